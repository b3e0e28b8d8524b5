#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Measures the receiver with a RoCE detector: JUNGFRAU 4M in RDMA WRITE messages, software RoCE.

    recv_roce_bench.py [--frames N] [--rounds N] [--seconds S] [--kernel null|host|cuda]
                       [--gpu VDEV] [--lcores RX,BUILDER,FEED] [--transport write|send]
                       [--trust] [--rows FILE] BUILD-DIR

braggline-detector writes a capture of a few frames, which stays in the L3 cache, into $TMPDIR. One
lcore polls a replay of it, without end, and passes the packets on through a ring, by reference. The
RX lcore does what it does behind an adapter: it checks the ICRC, and places the messages
(recv_sink_bench.c). Gangs read no pixel by default, because two cores are in use; with --kernel
cuda or host the frames go through to their verdicts, and all are vetoed. BUILD-DIR may be a bundle.
"""
import argparse
import os
import subprocess
import sys
import tempfile

import recv_bench
# recv_bench adds the folder
from background import eal_folder

MODULES, INTERFACES = 8, 2
STREAMS = MODULES * INTERFACES
TILES = 128 // INTERFACES
TILE, TRAILER = 8192, 64
SLOTS = 128
SLOT_BYTES = TILES * (TILE + TRAILER)
QPN, RKEY, IP = 0x100, 0x1234, '10.1.2.1'
BASE = 1 << 40  # of the receiver's messages by reference
VETO = MODULES * 512 * 1024  # no frame has so many strong pixels: some are masked
LIMIT = 150  # seconds


def program(build, path):
    """Path of a program in a build directory or in a bundle."""
    name = os.path.basename(path)
    places = [f'{build}/{path}', f'{build}/bin/{name}', f'{build}/test/{name}']
    return next((p for p in places if os.path.exists(p)), places[0])


def write_card(path, transport):
    """The card that a receiver with these settings has."""
    slots = SLOTS if transport == 'write' else 1
    with open(path, 'w', encoding='ascii') as f:
        f.write(f'[card]\nversion = 1\ntransport = {transport}\nstreams = {STREAMS}\nmtu = 4096\n'
                f'tile_bytes = {TILE}\ntrailer_bytes = {TRAILER}\ntiles = {TILES}\n'
                f'slots = {slots}\nslot_bytes = {SLOT_BYTES}\n')
        for s in range(STREAMS):
            f.write(f'[stream {s}]\nip = {IP}\nqpn = {QPN + s}\npsn = 0\nrkey = {RKEY:#x}\n'
                    f'base = {BASE + s * SLOTS * SLOT_BYTES:#x}\n')


def megabytes(o):
    """Memory of the receiver: the capture, the pools and everything else."""
    return (640 if o.kernel == 'null' else 1024) + 9 * o.frames


def command(o, where, huge):
    rx, builder, feed = o.lcores.split(',')
    prefix = f'braggline_bench_{os.getpid()}'
    eal_folder(prefix)
    lcores = ','.join(sorted({'0', rx, builder, feed}, key=int))
    c = [program(o.build, 'test/bench/recv_sink_bench'), '--in-memory' if huge else '--no-huge',
         '-m', str(megabytes(o)), '--no-pci', '--no-telemetry', '--file-prefix', prefix, '-l', lcores, '--log-level', '*:error', '--vdev',
         f'net_replay0,file={where}/in.pcap,align_at=54,loops=0,'
         f'roce={o.frames}:{SLOTS}:{SLOT_BYTES}']
    c += ['--vdev', o.gpu if o.kernel == 'cuda' else 'gpu_host0', '--', '--feed', feed,
          '--period', str(o.frames), '--rounds', str(o.rounds), '--seconds',
          str(o.seconds), '--rows', o.rows]
    if o.kernel == 'null':
        c += ['--null-gangs']
    settings = {
        'detector.modules': MODULES, 'detector.interfaces': INTERFACES,
        'detector.transport': o.transport, 'ingest.qpn': QPN, 'ingest.rkey': RKEY,
        'ingest.slots': SLOTS, 'ingest.check_icrc': 'no' if o.trust else 'yes',
        'port 0.device': f'roce:port=net_ring_feed,ip={IP}/16', 'port 0.mtu': 4200, 'lcores.rx': rx,
        'lcores.builder': builder, 'lcores.egress': builder,
        'gpu.kernel': 'cuda' if o.kernel == 'cuda' else 'host',
        'frames.slots': 8 if o.kernel == 'null' else 16,
        'frames.backpressure': 'wait', 'frames.stream_timeout_ms': 3000, 'veto.strong_min': VETO,
        'calibration.gain': f'{where}/gain_m%d.bin', 'calibration.mask': f'{where}/mask_m%d.bin',
        **{f'calibration.pedestal_g{g}': f'{where}/pedestal_g{g}_m%d.bin' for g in range(3)},
    }
    if o.kernel != 'cuda':
        settings |= {'lcores.gangs': 1, 'lcores.gang_workers': 1, 'lcores.gang': builder}
    for key, value in settings.items():
        c += ['--set', f'{key}={value}']
    return c


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n', maxsplit=1)[0])
    parser.add_argument('--frames', type=int, default=2, help='of the capture (2: 17 MB)')
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--seconds', type=float, default=0.5, help='of a round, up to 0.6')
    parser.add_argument('--kernel', default='null', choices=('null', 'host', 'cuda'))
    parser.add_argument('--gpu', default='gpu_cuda0,device=0',
                        help='EAL device of --kernel cuda (gpu_cuda0,device=0)')
    parser.add_argument('--lcores', default='0,0,1', help='RX, builder and feed (0,0,1)')
    parser.add_argument('--transport', default='write', choices=('write', 'send'))
    parser.add_argument('--trust', action='store_true', help='do not check the ICRC')
    parser.add_argument('--rows', default=os.devnull)
    parser.add_argument('build')
    o = parser.parse_args()
    huge = recv_bench.free_huge_megabytes() >= megabytes(o)
    with tempfile.TemporaryDirectory() as where:
        write_card(f'{where}/card.ini', o.transport)
        recv_bench.run_program(
            [program(o.build, 'app/detector/braggline-detector'), '--modules', str(MODULES),
             '--interfaces', str(INTERFACES), '--frames', str(o.frames), '--transport',
             o.transport, '--card', f'{where}/card.ini', '--pcap', f'{where}/in.pcap',
             '--calibration', where])
        print('huge pages' if huge else 'pages of 4 KiB, for want of huge ones', flush=True)
        try:
            return subprocess.run(command(o, where, huge), stdin=subprocess.DEVNULL, check=False,
                                  timeout=LIMIT).returncode
        except subprocess.TimeoutExpired:
            return f'recv_roce_bench: recv_sink_bench has not ended in {LIMIT} s'


if __name__ == '__main__':
    sys.exit(main())
