#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Checks the ICRCs of captures with scapy.

usage: scapy_icrc.py LIMIT FILE...

Checks LIMIT RoCEv2 frames with IPv4, sampled evenly from all files. Prints a line for each whose
ICRC differs from scapy's, and at the end the number of checked frames.
"""

import struct
import sys

from scapy.contrib.roce import BTH
from scapy.layers.l2 import Ether


def frames_of(path):
    """RoCEv2 frames of a pcap file."""
    with open(path, 'rb') as f:
        data = f.read()
    at = 24
    while at + 16 <= len(data):
        size = struct.unpack_from('<I', data, at + 8)[0]
        frame = data[at + 16:at + 16 + size]
        if frame[12:14] == b'\x08\0' and frame[36:38] == b'\x12\xb7':
            yield frame
        at += 16 + size


def main(limit, paths):
    checked = 0
    for path in paths:
        frames = list(frames_of(path))
        for frame in frames[::max(1, len(frames) * len(paths) // limit)]:
            bth = Ether(frame)[BTH]
            if bth.compute_icrc(None) != struct.pack('!I', bth.icrc):
                print(f'{path}: scapy has another ICRC for {frame[:60].hex()}')
            checked += 1
    print(checked)


if __name__ == '__main__':
    main(int(sys.argv[1]), sys.argv[2:])
