#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""braggline-detector sends through a port to braggline-recv, over shared memory and over a pair of
veth devices. The receiver counts each injected fault as the detector reports it.

usage: detector_port_test.py BUILD-DIR [CASE]...
"""

import configparser
import csv
import os
import shutil
import signal
import subprocess
import sys
import time

import background
from cases import Skipped, case, run_cases, wait, want

BUILD = sys.argv[1]
DETECTOR = f'{BUILD}/app/detector/braggline-detector'
RECV = f'{BUILD}/app/recv/braggline-recv'
ALL = f'0-{os.cpu_count() - 1}'
NAME = f'bragg{os.getpid()}'
# rings consist of whole blocks of pages; a frame fits a packet (8,282 bytes) and is no larger than
# an mbuf
AF_PACKET = 'blocksz=1069056,framesz=8352,framecnt=4096,qpairs=1'
TEXTS = ('receiver',)
FAULTS = ('loss=0.01', 'burst-loss=0.0005:30', 'reorder=0.02:60', 'duplicate=0.01',
          'corrupt=0.01', 'truncate=0.005')


def eal(prefix, memory, lcores, vdev, shared):
    """Shared memory ports need EAL's shared configuration."""
    return ['--no-huge', '-m', str(memory), '--no-pci', '--no-telemetry', '--log-level',
            'lib.eal:warning', '--lcores', f'({lcores})@({ALL})', '--vdev', vdev,
            *(('--file-prefix', prefix) if shared else ('--no-shconf',))]


def detector(vdev, *options, shared=False):
    return [DETECTOR, *eal(f'{NAME}d', 256, '0', vdev, shared), '--', '--port',
            vdev.split(',')[0], '--distinct', '32', *options]


def recv(where, vdev, *settings, shared=False):
    c = [RECV, *eal(f'{NAME}r', 768, '0-5', vdev, shared), '--vdev', 'gpu_host0', '--', '--quiet']
    for s in (f'output.directory={where}/out', f'port 0.device={vdev.split(",")[0]}',
              'port 0.mtu=1500', 'frames.backpressure=wait', 'veto.dry_run=yes', *settings):
        c += ['--set', s]
    return c


def run(c, timeout=90):
    return subprocess.run(c, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=timeout)


def start(c):
    return background.start(c, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def ini(path):
    parser = configparser.ConfigParser()
    want(parser.read(path), path, 'is not there')
    # the section [receiver] has text values
    return {s: {k: float(v.replace('none', 'inf')) for k, v in parser[s].items()} for s in parser.sections()
            if s not in TEXTS}


def compare(where, receiving, sending):
    """Run both programs, and compare the receiver's ledger with the detector's report."""
    with start(receiving) as r:
        try:
            wait('a run', lambda: r.poll() is not None or
                 os.path.exists(f'{where}/out/run_frames.arrow.part'))
            if r.poll() is not None:
                raise AssertionError(r.communicate()[0])
            done = run(sending)
            time.sleep(1)
        finally:
            r.send_signal(signal.SIGTERM)
            text = r.communicate(timeout=60)[0]
    want(done.returncode == 0, done.returncode, done.stdout, text)
    want(r.returncode == 0, r.returncode, text)
    report, ledger = ini(f'{where}/report.ini'), ini(f'{where}/out/run_ledger.ini')
    sent, fault = report['packets'], report['faults']
    frames, packets = ledger['frames'], ledger['packets']
    everything = f'{report}\n{ledger}\n{done.stdout}\n{text}'
    # a corrupt frame number names a frame that has no row
    want(frames['balanced'] == 1 and
         frames['frames'] - frames['late_frames'] == report['frames']['sent'], everything)
    want(packets['packets'] == sent['sent'] == sent['made'] - fault['loss'] -
         fault['burst_loss'] - fault['stall'] + fault['duplicate'], everything)
    want(packets['placed'] == sent['placeable'], everything)
    want(frames['missing_packets'] == sent['made'] - sent['placeable'], everything)
    want(packets['duplicate'] + packets['late'] == fault['duplicate'], everything)
    want(packets['wrong_length'] == fault['truncate'], everything)
    want(packets['foreign'] == fault['corrupt_port'], everything)
    want(packets['malformed'] == fault['corrupt_version'] + fault['corrupt_packet'], everything)
    # the last of them are still waiting when the run ends
    want(packets['outlier'] + packets['at_stop'] == fault['corrupt_frame'], everything)
    want(frames['incomplete_kept'] == report['frames']['sent'] - report['frames']['whole'],
         everything)
    with open(f'{where}/truth.csv', newline='') as f:
        truth = list(csv.DictReader(f))
    want(len(truth) == report['frames']['sent'], everything)
    want(sum(int(t['packets_sent']) for t in truth) == sent['placeable'], everything)
    return report


def outputs(where):
    return ('--report', f'{where}/report.ini', '--truth', f'{where}/truth.csv')


def faults():
    return tuple(w for f in FAULTS for w in ('--fault', f))


def memif(where, role):
    return (f'net_memif0,role={role},socket={where}/memif.sock,socket-abstract=no,bsize=8448,'
            'rsize=9')


def over_memif(where, *options, settings=()):
    try:
        return compare(where, recv(where, memif(where, 'server'), *settings, shared=True),
                       detector(memif(where, 'client'), *outputs(where), *options, shared=True))
    finally:
        for prefix in ('d', 'r'):
            shutil.rmtree(f'/var/run/dpdk/{NAME}{prefix}', ignore_errors=True)


@case
def mistakes_are_reported(where):
    for command, status, text in (
            ([DETECTOR, '--port', 'net_null0'], 2, 'EAL options'),
            ([DETECTOR, '--no-huge', '--', '--pcap', 'x'], 2, '--port'),
            (detector('net_null0', '--pcap', 'x'), 2, 'separate run'),
            (detector('net_null0', '--dark-every', '5', '--loop'), 2, 'multiple of the 5'),
            (detector('net_null0', '--fault', 'stall=3:1:2'), 1, 'stall of module 3'),
            (detector('net_null0,copy=0', '--modules', '32'), 1, 'more memory (-m)'),
            (detector('net_null0', '--port', 'net_null7'), 1, "no Ethernet device 'net_null7'; EAL has net_null0. ")):
        done = run(command)
        want(done.returncode == status and text in done.stdout, command, done.returncode,
             done.stdout)
    for words in (['--help'], ['--', '--help']):
        done = run([DETECTOR, *words])
        want(done.returncode == 0 and '--burst-gap' in done.stdout, done.stdout)
        want('EAL:' not in done.stdout, 'help must not need EAL')


@case
def frames_keep_their_rate(where):
    done = run(detector('net_null0', '--frames', '400', '--rate', '200', *outputs(where)))
    want(done.returncode == 0, done.stdout)
    report = ini(f'{where}/report.ini')
    want(report['packets']['sent'] == 400 * 128 == report['port']['port_packets'], report)
    # the first frame is sent immediately: 399 periods
    want(1.99 < report['port']['seconds'] < 3, report)
    # 128 packets at intervals of 20 us take half of the period
    done = run(detector('net_null0', '--frames', '100', '--rate', '200', '--burst-gap', '20000',
                        *outputs(where)))
    want(done.returncode == 0, done.stdout)
    want(0.495 + 0.0025 < ini(f'{where}/report.ini')['port']['seconds'] < 2, done.stdout)


@case
def signals_end_a_loop_cleanly(where):
    """After more frames than the distinct ones, which a busy machine makes in some seconds."""
    for number in (signal.SIGTERM, signal.SIGINT):
        for seconds in (2, 8, 30):
            with start(detector('net_null0', '--loop', '--rate', '100', *outputs(where))) as p:
                wait('the outputs', lambda: os.path.exists(f'{where}/truth.csv.partial'))
                time.sleep(seconds)
                p.send_signal(number)
                text = p.communicate(timeout=60)[0]
            want(p.returncode == 0, p.returncode, text)
            report = ini(f'{where}/report.ini')
            want(report['packets']['sent'] == report['frames']['sent'] * 128, report)
            with open(f'{where}/truth.csv') as f:
                want(len(f.readlines()) == report['frames']['sent'] + 1, report)
            if report['frames']['sent'] > 32:
                break
        want(report['frames']['sent'] > 32, report, text)


@case
def no_peer_at_the_other_end(where):
    done = run(detector(memif(where, 'client'), '--link-wait', '1', *outputs(where), shared=True))
    shutil.rmtree(f'/var/run/dpdk/{NAME}d', ignore_errors=True)
    want(done.returncode == 1 and 'no link after 1 s' in done.stdout, done.stdout)
    want(os.listdir(where) in ([], ['memif.sock']), os.listdir(where))


@case
def memif_brings_every_packet(where):
    report = over_memif(where, '--frames', '300', '--rate', '100')
    want(report['frames']['whole'] == 300, report)


@case
def memif_brings_every_fault(where):
    report = over_memif(where, '--frames', '200', '--rate', '50', '--modules', '2',
                        '--interfaces', '2', *faults(),
                        settings=('detector.modules=2', 'detector.interfaces=2'))
    want(all(v > 0 for k, v in report['faults'].items()
             if k not in ('stall', 'restart', 'group_loss', 'read_loss')
             and not k.startswith('drop_')), report)


@case
def veth_brings_every_fault(where):
    """net_af_packet at both ends, with the receiver in its own network namespace."""
    if os.geteuid() != 0 or shutil.which('ip') is None:
        raise Skipped('root and iproute2, for a network namespace')
    here, there, ns = f'{NAME}a'[-15:], f'{NAME}b'[-15:], NAME
    inside = ['ip', 'netns', 'exec', ns]
    try:
        for c in (['ip', 'netns', 'add', ns],
                  ['ip', 'link', 'add', here, 'type', 'veth', 'peer', 'name', there],
                  ['ip', 'link', 'set', there, 'netns', ns],
                  # without addresses and IPv6, only the detector sends
                  ['ip', 'link', 'set', here, 'addrgenmode', 'none', 'mtu', '9000', 'up'],
                  [*inside, 'ip', 'link', 'set', there, 'addrgenmode', 'none', 'mtu', '9000',
                   'up']):
            done = run(c)
            if done.returncode != 0:
                raise Skipped(f'{" ".join(c)}: {done.stdout.strip()}')
        compare(where, [*inside, *recv(where, f'net_af_packet0,iface={there},{AF_PACKET}')],
                detector(f'net_af_packet0,iface={here},{AF_PACKET}', '--frames', '80', '--rate',
                         '20', *outputs(where), *faults()))
    finally:
        subprocess.run(['ip', 'link', 'del', here], check=False, stderr=subprocess.DEVNULL)
        subprocess.run(['ip', 'netns', 'del', ns], check=False, stderr=subprocess.DEVNULL)


sys.exit(run_cases(sys.argv[2:]))
