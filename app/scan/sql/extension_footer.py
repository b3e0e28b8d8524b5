#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Makes an extension of DuckDB from a shared library: appends the block in which DuckDB looks for
the interface that it needs, and an empty signature.

Source: ParseExtensionMetaData() in extension_load.cpp of DuckDB 1.4, and
append_extension_metadata.py of duckdb/extension-ci-tools.

usage: extension_footer.py LIBRARY OUTPUT VERSION CPU
"""

import sys

PLATFORMS = {'x86_64': 'linux_amd64', 'aarch64': 'linux_arm64'}
MAGIC, API, ABI = '4', 'v1.2.0', 'C_STRUCT'


def main():
    library, output, version, cpu = sys.argv[1:]
    fields = ['', '', '', ABI, version, API, PLATFORMS.get(cpu, f'linux_{cpu}'), MAGIC]
    # the head of a custom section of WebAssembly, with its name and its size
    head = b'\x00\x93\x04\x10duckdb_signature\x80\x04'
    with open(library, 'rb') as file:
        data = file.read()
    with open(output, 'wb') as file:
        file.write(data + head + b''.join(f.encode().ljust(32, b'\0') for f in fields) + bytes(256))


if __name__ == '__main__':
    main()
