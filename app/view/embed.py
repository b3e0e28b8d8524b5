#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes files as C arrays, for assets.h. Large files are compressed.

usage: embed.py OUTPUT URL-PATH=FILE...
"""
import gzip
import hashlib
import os
import sys

TYPES = {'.html': 'text/html; charset=utf-8', '.js': 'text/javascript; charset=utf-8',
         '.css': 'text/css; charset=utf-8', '.json': 'application/json', '.svg': 'image/svg+xml',
         '.txt': 'text/plain; charset=utf-8', '.wasm': 'application/wasm'}
LARGE = 200000  # bytes


def main(output, entries):
    text = ['/* made by embed.py */', '#include "assets.h"', '']
    table = []
    for number, entry in enumerate(entries):
        path, _, name = entry.partition('=')
        with open(name, 'rb') as stream:
            data = stream.read()
        digest = hashlib.sha256(data).hexdigest()[:16]
        encoding = 'NULL'
        if len(data) > LARGE:
            data = gzip.compress(data, 9, mtime=0)
            encoding = '"gzip"'
        text.append(f'static const unsigned char asset_{number}[] = {{')
        text += [','.join(map(str, data[at:at + 32])) + ',' for at in range(0, len(data), 32)]
        text.append('};')
        kind = TYPES[os.path.splitext(path if '.' in path else name)[1]]
        table.append(f'\t{{"{path}", "{kind}", {encoding}, "\\"{digest}\\"", asset_{number}, '
                     f'{len(data)}}},')
    text += ['const struct asset assets[] = {', *table, '};',
             f'const size_t nb_assets = {len(table)};', '']
    with open(output, 'w', encoding='ascii') as stream:
        stream.write('\n'.join(text))


if __name__ == '__main__':
    main(sys.argv[1], sys.argv[2:])
