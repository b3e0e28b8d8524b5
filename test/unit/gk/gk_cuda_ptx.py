#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Searches the PTX of the gang kernels for instructions that the project forbids.

    gk_cuda_ptx.py PTX...

- a load through the non-coherent path: all data that kernels read may change during the launch;
- a contracted a*b+c: fma is allowed only where the source requests it, with the factors below;
- arithmetic that may still be contracted: ptxas fuses instructions without .rn or .rz;
- a doorbell that is read without acquire, or results without release, at system scope.
"""
import re
import sys


# WORD_SCALE of gk_cuda_pixel.cuh and GK_SUM_SCALE of gk_pixel.h, in PTX notation.
FACTORS = '0f7F000000', '0f43800000'


def main(path):
    with open(path, encoding='utf-8') as stream:
        text = stream.read()
    found = []
    factors = set()  # registers of a function that hold one of them
    for number, line in enumerate(text.splitlines(), 1):
        if re.search(r'\bld\.global\S*\.nc\b|\bldu\.', line):
            found.append(f'{path}:{number}: non-coherent load: {line.strip()}')
        if re.search(r'\.(?:entry|func)\b', line):
            factors.clear()
        if (mov := re.search(r'\bmov\.f32\s+(%\w+), (\w+);', line)) and mov[2] in FACTORS:
            factors.add(mov[1])
        fma = re.search(r'\bfma\.rn\.f32\s+%\w+, %\w+, (%?\w+),', line)
        if (re.search(r'\bfma\.|\bmad\.\S*f32', line) and
                not (fma and (fma[1] in factors or fma[1] in FACTORS))):
            found.append(f'{path}:{number}: contracted arithmetic: {line.strip()}')
        if re.search(r'\b(?:add|sub|mul)\.(?!r[nz]\b)\S*f32', line):
            found.append(f'{path}:{number}: may be contracted: {line.strip()}')
        if re.search(r'\b(?:add|sub|mul|div|fma)\.\S*(?:ftz|approx)', line):
            found.append(f'{path}:{number}: inexact arithmetic: {line.strip()}')
    for expected in ('ld.acquire.sys.global.u32', 'st.release.sys.global.u32',
                   'st.release.sys.global.u64', 'fence.acq_rel.sys|membar.sys|fence.sc.sys'):
        if not re.search(expected.replace('.', r'\.'), text):
            found.append(f'{path}: no {expected}')
    print('\n'.join(found) or f'{path}: {len(text.splitlines())} lines, nothing forbidden')
    return 1 if found else 0


if __name__ == '__main__':
    sys.exit(max(main(path) for path in sys.argv[1:]))
