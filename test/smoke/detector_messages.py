# SPDX-License-Identifier: BSD-3-Clause
"""What the tests of a detector's RDMA messages share. The build directory is the first argument of the
test."""

import configparser
import os
import struct
import subprocess
import sys

from cases import want

BUILD = sys.argv[1]
DETECTOR = f'{BUILD}/app/detector/braggline-detector'
ALL = f'0-{os.cpu_count() - 1}'
NAME = f'bragg{os.getpid()}'
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


def faults(*which):
    return tuple(w for f in which for w in ('--fault', f))
