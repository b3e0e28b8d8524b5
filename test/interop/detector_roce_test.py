#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""RoCE captures of braggline-detector: tshark finds the expected headers in them and no malformed
packet, and roce_capture.py, which shares no code with the detector, makes the same packets of a UDP
capture of the same seed.

usage: detector_roce_test.py BUILD-DIR SMOKE-DIR
"""

import shutil
import subprocess
import sys
import tempfile

BUILD, SMOKE = sys.argv[1:3]
sys.path.insert(0, SMOKE)

import roce_capture  # noqa: E402
from cases import want  # noqa: E402

DETECTOR = f'{BUILD}/app/detector/braggline-detector'
FRAMES, MODULES, INTERFACES, PSN = 3, 2, 2, 0xffff80
STREAMS, TILES = MODULES * INTERFACES, 128 // INTERFACES
FIELDS = ('frame.len', 'ip.src', 'ip.dst', 'udp.dstport', 'infiniband.bth.opcode',
          'infiniband.bth.destqp', 'infiniband.bth.psn', 'infiniband.reth.va', 'infiniband.reth.r_key',
          'infiniband.reth.dmalen', 'infiniband.immdt', 'infiniband.invariant.crc', '_ws.malformed',
          '_ws.expert.severity')
ERROR = 6291456  # severities from warning on


def write_card(path, card):
    with open(path, 'w') as f:
        f.write(f'[card]\nversion = 1\ntransport = {card.transport}\nstreams = {STREAMS}\n'
                f'mtu = {card.mtu}\ntile_bytes = 8192\ntrailer_bytes = 64\ntiles = {TILES}\n'
                f'slots = {card.slots}\nslot_bytes = {card.slot_bytes}\n')
        for s in range(STREAMS):
            f.write(f'[stream {s}]\nip = {".".join(str(b) for b in card.ip)}\nqpn = {card.qpn + s}\n'
                    f'psn = {PSN:#x}\nrkey = {card.rkey:#x}\nbase = {card.address(s, 0, 0):#x}\n')


def detector(path, *options):
    subprocess.run([DETECTOR, '--pcap', path, '--frames', str(FRAMES), '--modules', str(MODULES),
                    '--interfaces', str(INTERFACES), *options], check=True, timeout=60)
    return [p for _, _, p in roce_capture.read_pcap(path)]


def invariant(packet):
    """What both programs must agree on. Identification, UDP source port and MigReq are free, and
    the ICRC covers them."""
    want(packet[-4:] == roce_capture.icrc(packet[14:34], packet[34:42], packet[42:54], packet[54:-4]),
         'ICRC of', packet[:70].hex())
    want(roce_capture.checksum(packet[14:34]) == 0, 'checksum of', packet[:34].hex())
    return (packet[:18], packet[20:24], packet[26:34], packet[36:43], packet[43] & ~0x40, packet[44:-4])


def check_twin(got, udp, card):
    """The events come after all messages of a frame, and in the twin after those of their stream."""
    sender = roce_capture.Sender(card, psn=PSN)
    expected = []
    for at in range(0, len(udp), STREAMS * TILES):
        for i in range(STREAMS * TILES):
            p = udp[at + i]
            stream, frame = i % STREAMS, int.from_bytes(p[42:50], 'little')
            expected += sender.message(stream, p[:14], p[26:30], frame, i // STREAMS, p[90:], p[42:90])
        for s in range(STREAMS):
            p = udp[at + s]
            expected += sender.event(s, p[:14], p[26:30], frame)
    want(len(got) == len(expected), len(got), 'packets, expected', len(expected))
    for n, (a, b) in enumerate(zip(got, expected)):
        want(invariant(a) == invariant(b), f'packet {n}: {a[:90].hex()}, expected {b[:90].hex()}')


def dissect(path):
    command = ['tshark', '-r', path, '--disable-protocol', 'rpcordma', '-o', 'ip.check_checksum:TRUE',
               '-T', 'fields', '-E', 'separator=|', '-E', 'occurrence=f']
    for field in FIELDS:
        command += ['-e', field]
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                         text=True, timeout=120).stdout
    return [dict(zip(FIELDS, line.split('|'))) for line in out.splitlines()]


def check_dissection(rows, packets, card):
    want(len(rows) == len(packets), len(rows), 'packets dissected of', len(packets))
    psn = [PSN] * STREAMS
    place = {}
    for n, (row, packet) in enumerate(zip(rows, packets)):
        stream = int(row['infiniband.bth.destqp'], 16) - card.qpn
        opcode = int(row['infiniband.bth.opcode'])
        want(row['_ws.malformed'] == '' and int(row['_ws.expert.severity'] or 0) < ERROR, n, row)
        want(int(row['infiniband.bth.psn']) == psn[stream] & 0xffffff, n, row)
        psn[stream] += 1
        want(int(row['infiniband.invariant.crc'], 16) == int.from_bytes(packet[-4:], 'big'), n, row)
        want(row['ip.dst'] == '10.1.2.1' and row['udp.dstport'] == '4791', n, row)
        want(row['ip.src'] == f'10.1.1.{1 + stream}', n, row)
        first, count = divmod(place.get(stream, 0), TILES)
        if opcode == 0x26:
            want(int(row['infiniband.reth.va'], 16) == card.address(stream, first + 1, count), n, row)
            want(int(row['infiniband.reth.r_key'], 16) == card.rkey, n, row)
            want(row['infiniband.reth.dmalen'] == '8256', n, row)
        if opcode in (0x26, 0x20):
            place[stream] = place.get(stream, 0) + 1
        if opcode in (0x2b, 0x25):
            want(int(row['infiniband.immdt'], 16) == stream << 24 | first, n, row)
    want(all(p == FRAMES * TILES for p in place.values()), place)


def main():
    with tempfile.TemporaryDirectory() as where:
        udp = detector(f'{where}/udp.pcap')
        for transport in ('send', 'write'):
            for mtu in (4096, 1024):
                card = roce_capture.Card(transport, STREAMS, TILES, slots=2, mtu=mtu, qpn=0x11)
                write_card(f'{where}/card.ini', card)
                path = f'{where}/{transport}.pcap'
                packets = detector(path, '--transport', transport, '--card', f'{where}/card.ini')
                check_twin(packets, udp, card)
                if shutil.which('tshark'):
                    check_dissection(dissect(path), packets, card)
                print(f'{transport}, path MTU {mtu}: {len(packets)} packets')
    if not shutil.which('tshark'):
        print('skipped the dissection: tshark is not installed: run make deps')
        sys.exit(77)


main()
