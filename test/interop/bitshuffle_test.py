#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Chunks of every instruction set, decoded by bitshuffle's own library, and by libhdf5 with its
filter.

usage: bitshuffle_test.py BITSHUFFLE-WRITE DATA-DIR
"""

import os
import subprocess
import sys
import tempfile

try:
    import bitshuffle
    import h5py
    import numpy
except ImportError as error:
    print(f'{error}: install python3-h5py and bitshuffle')
    sys.exit(77)

FILTER = '/usr/lib/x86_64-linux-gnu/hdf5/serial/plugins/libh5bshuf.so'
HEADER, BITSHUFFLE = 12, 32008


def frames(data):
    """Names and values: of one size that is a multiple of a block, and of others."""
    random = numpy.random.default_rng(1)
    sparse = (random.random(70000) < 0.01) * random.integers(0, 65536, 70000)
    cases = {'constant': numpy.full(65536, 0xFFFF), 'random': random.integers(0, 65536, 65536),
             'noise': 2000 + random.integers(0, 64, 40000), 'sparse': sparse,
             'short': random.integers(0, 4, 24), 'rest': random.integers(0, 4, 4096 + 13)}
    for i in range(6):
        path = f'{data}/jungfrau/mod5_raw{i}.bin'
        if os.path.exists(path):
            cases[os.path.basename(path)] = numpy.fromfile(path, '<u2')
    return {name: values.astype('<u2') for name, values in cases.items()}


def read_by_hdf5(chunk, n, where):
    with h5py.File(f'{where}/chunk.h5', 'w') as f:
        made = f.create_dataset('data', (n,), '<u2', chunks=(n,), compression=BITSHUFFLE,
                                compression_opts=(0, 2))
        made.id.write_direct_chunk((0,), chunk)
    with h5py.File(f'{where}/chunk.h5') as f:
        return f['data'][()]


def check(write, isa, values, where):
    values.tofile(f'{where}/values')
    done = subprocess.run([write, isa, f'{where}/values', f'{where}/chunk'], check=False,
                          stdin=subprocess.DEVNULL, timeout=60)
    if done.returncode == 77:
        return False
    assert done.returncode == 0, done
    with open(f'{where}/chunk', 'rb') as f:
        chunk = f.read()
    blocks = numpy.frombuffer(chunk[HEADER:], 'u1')
    assert (bitshuffle.decompress_lz4(blocks, values.shape, values.dtype, 4096) == values).all()
    assert (read_by_hdf5(chunk, len(values), where) == values).all()
    return True


def main(write, data):
    if not os.path.exists(FILTER):
        print('h5py has no filter 32008: install bitshuffle')
        return 77
    with tempfile.TemporaryDirectory() as where:
        for isa in 'plain', 'avx2', 'avx512':
            done = [name for name, values in frames(data).items()
                    if check(write, isa, values, where)]
            print(f'{isa}: {" ".join(done) or "skipped: not supported by this CPU"}')
    return 0


sys.exit(main(*sys.argv[1:]))
