#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The operations of gk_bench written with numpy; prints seconds per frame for each row.

    gk_bench_numpy.py MODULES REPEATS

Exit status 77: numpy is not installed.
"""
import sys
import time

try:
    import numpy as np
except ImportError:
    print('skipped: no numpy (python3-numpy)')
    sys.exit(77)


def photons(raw, p, r):
    """G0 only, as in most of the pixels; NaN for others."""
    x = (raw.astype(np.float32) - p) * r
    x[raw >= 0x4000] = np.nan
    return x


def total(x):
    """Sum in 1/256 photon, as integers, so that the order does not matter."""
    return np.rint(np.nan_to_num(x) * np.float32(256)).astype(np.int32).sum(dtype=np.int64)


def counts(x):
    """Number of pixels at or above each threshold, and of NaN."""
    return (x >= 10).sum(), (x >= 2).sum(), np.isnan(x).sum()


def count(raw, p, r):
    x = photons(raw, p, r)
    return counts(x), total(x)


def csr(raw, p, r):
    x = photons(raw, p, r)
    kept = x >= 2
    columns = np.nonzero(kept)[1].astype(np.uint16)
    return kept.sum(axis=1), columns, x[kept], (x >= 10).sum(), np.isnan(x).sum(), total(x)


def float32(raw, p, r):
    x = photons(raw, p, r)
    return x, counts(x), total(x)


def int16(raw, p, r):
    x = photons(raw, p, r)
    return counts(x), total(x), np.where(np.isnan(x), np.float32(-32768), np.trunc(
        np.clip(x, -32767, 32767) + np.copysign(np.float32(0.5), x))).astype(np.int16)


def median_time(repeats, function, *arguments):
    times = []
    function(*arguments)  # warm-up: the first call allocates memory
    for _ in range(repeats):
        start = time.process_time()
        function(*arguments)
        times.append(time.process_time() - start)
    return sorted(times)[repeats // 2]


def main():
    modules, repeats = int(sys.argv[1]), int(sys.argv[2])
    shape = (512 * modules, 1024)
    rng = np.random.default_rng(1)
    raw = (3000 + rng.integers(0, 64, shape)).astype(np.uint16)
    bright = rng.random(shape)
    raw[bright < 0.009] += 2542
    raw[bright > 0.999] += 6100
    p = (3000 + np.arange(1024) % 64 + np.zeros(shape)).astype(np.float32)
    r = (1 / (508.4 + np.arange(1024) % 32) + np.zeros(shape)).astype(np.float32)
    r[rng.random(shape) < 0.001] = np.nan
    with np.errstate(all='ignore'):
        for name, function in ('count', count), ('csr', csr), ('f32', float32), ('i16', int16):
            print(name, median_time(repeats, function, raw, p, r))


if __name__ == '__main__':
    main()
