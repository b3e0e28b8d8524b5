#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The verbs provider over the kernel's rdma_rxe in a guest behaves as rdma.h specifies.

usage: verbs_test.py MTU PROGRAM...

Each program gets the guest's device, verbs:rxe0, for both of its ends. MTU is that of Ethernet.
"""

import os
import sys

from rxe_vm import Broken, Guest, Missing, SKIP


def main(mtu, *programs):
    failed = []
    try:
        # a hub without other ports: all packets that are sent are for the device itself
        with Guest(['10.99.0.1/24'], netdev='hubport,hubid=0', mtu=mtu, memory=768,
                   files={p: '/bin/' + os.path.basename(p) for p in programs}) as guest:
            for program in map(os.path.basename, programs):
                job = guest.run(f'{program} verbs:rxe0', seconds=300)
                if job.status:
                    print(job.output)
                    failed.append(f'{program} at MTU {mtu}: status {job.status}')
    except Missing as missing:
        print('skipped:', missing)
        return SKIP
    except Broken as broken:
        failed.append(str(broken))
    print('\n'.join(f'FAILED: {f}' for f in failed) or 'verbs over rxe: all as promised')
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:]))
