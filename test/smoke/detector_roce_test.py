#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""braggline-detector sends RDMA messages to a small receiver, over shared memory. Every message that
the receiver has is compared with the UDP packet of the same seed.

usage: detector_roce_test.py BUILD-DIR [CASE]...
"""

import configparser
import os
import shutil
import struct
import subprocess
import sys

import background
from cases import case, run_cases, want

BUILD = sys.argv[1]
DETECTOR = f'{BUILD}/app/detector/braggline-detector'
RECEIVER = f'{BUILD}/test/smoke/roce_receiver'
ALL = f'0-{os.cpu_count() - 1}'
NAME = f'bragg{os.getpid()}'
SLOTS = 16
RATE = '20'
PIXELS, TRAILER = 8192, 64


def eal(where, side, role, memory):
    """Shared memory ports need EAL's shared configuration."""
    vdev = f'net_memif0,role={role},socket={where}/memif.sock,socket-abstract=no,bsize=8448,rsize=10'
    return ['--no-huge', '-m', str(memory), '--no-pci', '--no-telemetry', '--log-level',
            'lib.eal:warning', '--lcores', f'(0)@({ALL})', '--vdev', vdev, '--file-prefix',
            f'{NAME}{side}']


def udp_packets(where, frames, modules, options):
    """Pixels and header of the UDP packets, by stream, frame and packet."""
    path = f'{where}/udp.pcap'
    subprocess.run([DETECTOR, '--pcap', path, '--frames', str(frames), '--modules', str(modules),
                    '--rate', RATE, *options], check=True, timeout=90)
    packets = {}
    with open(path, 'rb') as f:
        data = f.read()
    at = 24
    while at < len(data):
        size = struct.unpack_from('<I', data, at + 8)[0]
        p = data[at + 16:at + 16 + size]
        at += 16 + size
        stream = struct.unpack_from('>H', p, 36)[0] - 50001
        frame, _, number = struct.unpack_from('<QII', p, 42)
        packets[stream, frame, number] = p[90:] + p[42:90] + bytes(TRAILER - 48)
    return packets


def received(path):
    """Messages of the receiver's file, by stream, frame and packet. @return them, and copies"""
    messages, copies = {}, 0
    with open(path, 'rb') as f:
        while record := f.read(12 + PIXELS + TRAILER):
            stream, frame = struct.unpack_from('<IQ', record)
            message = record[12:]
            key = stream, frame, struct.unpack_from('<I', message, PIXELS + 12)[0]
            copies += key in messages
            messages[key] = message
    return messages, copies


def ini(path):
    parser = configparser.ConfigParser()
    want(parser.read(path), path, 'is not there')
    return parser


def numbers(text):
    return {k: int(v) for k, _, v in (line.partition(' = ') for line in text.splitlines())
            if v.isdigit()}


def transfer(where, transport, *options, frames=20, modules=2, connect=False, service='uc'):
    """Run both programs. @return the detector's report, the receiver's counters, its messages and
    copies"""
    out, report, card = f'{where}/messages', f'{where}/report.ini', f'{where}/card.ini'
    device = 'roce:port=net_memif0,ip=10.0.0.{}/24'
    source = ['7471'] if connect else [card, '10.0.0.1']
    environment = {**os.environ, **({'SERVICE': 'rc'} if service == 'rc' else {})}
    with background.start([RECEIVER, *eal(where, 'r', 'server', 512), '--', device.format(2), transport,
                           str(modules), str(SLOTS), *source, out], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, env=environment) as r:
        try:
            # with a card, the receiver first resolves the detector's address
            line = ''
            while connect and line != 'ready\n':
                line = r.stdout.readline()
                want(line, 'the receiver ended')
            while not connect and not os.path.exists(card):
                want(r.poll() is None, 'the receiver ended')
            done = subprocess.run(
                [DETECTOR, *eal(where, 'd', 'client', 512), '--', '--transport', transport, '--device',
                 device.format(1), *(('--connect', '10.0.0.2:7471', '--service', service) if connect else
                                     ('--card', card)), '--modules', str(modules), '--frames', str(frames),
                 '--distinct', str(frames), '--rate', RATE, '--report', report, *options],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                timeout=90)
            text = r.communicate(timeout=90)[0]
        finally:
            for side in ('d', 'r'):
                shutil.rmtree(f'/var/run/dpdk/{NAME}{side}', ignore_errors=True)
            r.kill()
    want(done.returncode == 0, done.returncode, done.stdout, text)
    want(r.returncode == 0, r.returncode, text)
    return ini(report), numbers(text), *received(out)


def whole_run(where, transport, **how):
    """Without faults every message arrives, with the bytes of the UDP packet."""
    report, counters, messages, copies = transfer(where, transport, **how)
    expected = udp_packets(where, 20, 2, ())
    want(counters['events'] == 40 == report.getint('packets', 'events'), counters)
    want(counters['wrong'] == counters['old'] == copies == 0, counters)
    want(report.getint('packets', 'sent') == len(expected), dict(report['packets']))
    want(messages == expected, f'{len(messages)} messages differ from {len(expected)} packets')


@case
def writes_are_the_packets(where):
    whole_run(where, 'write')


@case
def sends_are_the_packets(where):
    whole_run(where, 'send')


@case
def writes_by_the_cm(where):
    whole_run(where, 'write', connect=True)


@case
def sends_over_rc(where):
    whole_run(where, 'send', connect=True, service='rc')


def main():
    return run_cases(sys.argv[2:])


if __name__ == '__main__':
    sys.exit(main())
