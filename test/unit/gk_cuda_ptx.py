#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Looks through the PTX of the gang kernels for what rules of the project forbid.

    gk_cuda_ptx.py PTX

- a load through the non-coherent path: all that kernels read may be rewritten during the launch;
- a contracted a*b+c: fma is allowed where the source asks for it, by the _rn intrinsic, which is in
  counts of 8 pixels only;
- a doorbell that is not read with acquire, or results that are not released, at system scope.
"""
import re
import sys


def main(path):
    with open(path, encoding='utf-8') as stream:
        text = stream.read()
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if re.search(r'\bld\.global\S*\.nc\b|\bldu\.', line):
            found.append(f'{path}:{number}: non-coherent load: {line.strip()}')
        if re.search(r'\bfma\.(?!rn\.f32\b)|\bmad\.\S*f32', line):
            found.append(f'{path}:{number}: contracted arithmetic: {line.strip()}')
        if re.search(r'\b(?:add|sub|mul|div|fma)\.\S*(?:ftz|approx)', line):
            found.append(f'{path}:{number}: inexact arithmetic: {line.strip()}')
    for wanted in 'ld.acquire.sys.global.u32', 'st.release.sys.global.u32', 'fence.acq_rel.sys|membar.sys|fence.sc.sys':
        if not re.search(wanted.replace('.', r'\.'), text):
            found.append(f'{path}: no {wanted}')
    print('\n'.join(found) or f'{path}: {len(text.splitlines())} lines, nothing forbidden')
    return 1 if found else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1]))
