#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The worked example of app/common/ingest/README.rst is what braggline-detector sends.

usage: ingest_example_test.py BUILD-DIR
"""

import os
import re
import struct
import subprocess
import sys
import tempfile

import roce_capture
from cases import want

README = f'{os.path.dirname(os.path.abspath(__file__))}/../../app/common/ingest/README.rst'
FRAME, STREAM, TILE, SLOTS, STREAMS, TILES = 1000, 1, 5, 128, 4, 64


def example():
    """Parts of the example by name."""
    with open(README, encoding='ascii') as f:
        text = f.read()
    parts, name = {}, None
    for line in text[text.index('\nWorked example\n'):].splitlines():
        if re.fullmatch(r'        ([0-9a-f]{2} )*[0-9a-f]{2}', line):
            parts[name] += bytes.fromhex(line)
        elif re.fullmatch(r'    \S.*', line):
            name = line.strip()
            parts[name] = b''
    return parts


def packets(where, build):
    """Packets of the stream, from the simulated detector."""
    raw = bytearray(2 * 512 * 1024 * 2)
    for n in range(4096):
        struct.pack_into('<H', raw, ((256 + 4 * TILE) * 1024 + n) * 2, n)
    with open(f'{where}/raw.bin', 'wb') as f:
        f.write(raw)
    slot = TILES * (8192 + 64)
    with open(f'{where}/card.ini', 'w', encoding='ascii') as f:
        f.write('[card]\nversion = 1\ntransport = write\n'
                f'streams = {STREAMS}\nmtu = 4096\ntile_bytes = 8192\ntrailer_bytes = 64\n'
                f'tiles = {TILES}\nslots = {SLOTS}\nslot_bytes = {slot}\n')
        for s in range(STREAMS):
            f.write(f'[stream {s}]\nip = 10.1.2.1\nqpn = {17 + s}\npsn = 0\nrkey = 0x1234\n'
                    f'base = {(1 << 40) + s * SLOTS * slot}\n')
    subprocess.run([f'{build}/app/detector/braggline-detector', '--pack', '--modules', '2',
                    '--interfaces', '2', '--frames', '1', '--first-frame', str(FRAME),
                    '--transport', 'write', '--card', f'{where}/card.ini', '--pcap',
                    f'{where}/out.pcap', f'{where}/raw.bin'], check=True, timeout=60,
                   stdin=subprocess.DEVNULL)
    return [p for _, _, p in roce_capture.read_pcap(f'{where}/out.pcap')
            if p[47:50] == bytes((0, 0, 17 + STREAM))]


def main():
    parts = example()
    with tempfile.TemporaryDirectory() as where:
        sent = packets(where, os.path.abspath(sys.argv[1]))
    first, middle, last = sent[3 * TILE:3 * TILE + 3]
    found = {
        'FIRST, headers': first[:70],
        'FIRST, pixels 0 to 3 and 2044 to 2047': first[70:78] + first[-12:-4],
        'FIRST, ICRC': first[-4:],
        'MIDDLE, headers': middle[:54],
        'MIDDLE, pixels 2048 to 2051 and 4092 to 4095': middle[54:62] + middle[-12:-4],
        'MIDDLE, ICRC': middle[-4:],
        'LAST, headers': last[:54],
        'LAST, trailer': last[54:-4],
        'LAST, ICRC': last[-4:],
        'event': sent[-1],
    }
    want(set(parts) == set(found), 'parts', sorted(parts), sorted(found))
    for name, data in found.items():
        want(parts[name] == data, name, 'README', parts[name].hex(' '), 'detector', data.hex(' '))


if __name__ == '__main__':
    main()
