#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""braggline-rdma and the unmodified RDMA programs of a Linux guest, in both roles.

usage: rdma_test.py BUILDDIR

Each tool runs once as client and once as server, with every path MTU and a list of unusual sizes.
Then tshark finds no malformed frame in the captures of the port, and scapy confirms the ICRCs.
"""

import os
import sys
import time

from rdma_peer import OURS, PATIENT, THEIRS, Bench, Broken, capture_faults, outcome, step
from rxe_vm import rping

MTUS = (256, 512, 1024, 2048, 4096)
# around MTUs, cache lines and words; rping accepts 23 to 65536
SIZES = (23, 24, 63, 255, 257, 1023, 1025, 2049, 4095, 4097, 20000, 65535)
# tool, message size, messages, path MTU: combinations that rping does not offer
PERFTEST = (
    ('write_bw', '', 1, 300, 4096),
    ('write_bw', '-q 3', 1048577, 5, 1024),
    ('read_bw', '', 4097, 200, 2048),
    ('read_bw', '-q 2', 1048575, 5, 4096),
    ('send_bw', '', 65537, 50, 256),
    ('send_bw', '-q 2', 3, 600, 512),
    ('send_bw', '-c UD', 1024, 50, 1024),
    ('atomic_bw', '', None, 100, 1024),
)


def every_mtu_and_size(bench):
    """rping does READ and WRITE of every size at every MTU; its client compares the data."""
    run = bench.ours('rping', '-s -P -S 65536')
    try:
        run.expect('listening on port')
        bench.greet()
        for mtu in MTUS:
            bench.mtu(mtu)
            sizes = ' '.join(map(str, SIZES))
            job = bench.guest.run(
                f'for s in {sizes}; do {rping(OURS, "-C 2 -V -S $s")}; echo done $s; done',
                bench.seconds)
            if job.status or job.output.count('done') != len(SIZES):
                raise Broken(f'MTU {mtu}: status {job.status}:\n{job.output}\n{run.output}')
        run.interrupt()
        if run.wait() != 0:
            raise Broken(f'rping -s -P failed:\n{run.output}')
    finally:
        run.close()
    for i, size in enumerate(SIZES):
        bench.mtu(MTUS[i % len(MTUS)])
        bench.connect('rping', f'-c -a {THEIRS} -C 2 -V -S {size}', f'rping -s -C 2 -S {size}',
                      theirs=None)


def perftest(bench, mode, options, size, messages, mtu):
    bench.mtu(mtu)
    expected = f'{options} {PATIENT} -n {messages}' + (f' -s {size}' if size else '')
    # perftest connects its measured connections before the guest's server listens for them
    bench.serve(mode, expected, f'ib_{mode} -F -R {expected} {OURS}', ' #bytes')
    bench.connect(mode, f'{expected} {THEIRS}', f'ib_{mode} -F -R {expected}', ' #bytes')


def messages(bench):
    bench.mtu(1024)
    done = 'data transfers complete'
    bench.serve('cmatose', '-C 20 -S 3000 -c 3', f'ucmatose -s {OURS} -C 20 -S 3000 -c 3', done)
    bench.connect('cmatose', f'-s {THEIRS} -C 20 -S 3000 -c 3', 'ucmatose -C 20 -S 3000 -c 3', done)
    bench.serve('udaddy', '-S 1000', f'udaddy -s {OURS} -S 1000', done)
    bench.connect('udaddy', f'-s {THEIRS} -S 1000', 'udaddy -S 1000', done)


def multicast(bench):
    group = '239.1.2.3'
    run = bench.ours('mckey', f'-m {group} -C 5')
    try:
        run.expect('joined')
        bench.greet()
        job = bench.guest.run(f'mckey -m {group} -b {THEIRS} -s -C 5', bench.seconds)
        bench.check(run, run.wait(), job, ['data transfers complete'], 0, 0)
    finally:
        run.close()
    job = bench.guest.start(f'mckey -m {group} -b {THEIRS} -C 5', bench.seconds)
    job.expect('joined')
    run = bench.ours('mckey', f'-m {group} -s -C 5')
    try:
        status = run.wait()
        job.wait()
        bench.check(run, status, job, ['data transfers complete'], 0, 0)
    finally:
        run.close()


def nobody(bench):
    """A refused connection is reported on either side."""
    run = bench.ours('rping', f'-c -a {THEIRS} -C 1')
    if run.wait() != 1 or 'rejected by the peer, reason 8' not in run.output:
        raise Broken(f'no program listens, and the output is:\n{run.output}')
    run = bench.ours('rping', '-s')
    try:
        run.expect('listening on port')
        bench.greet()
        job = bench.guest.run(f'rping -c -a {OURS} -C 1 -p 9999')
        if job.status == 0 or 'REJECTED' not in job.output:
            raise Broken(f'no program listens on 9999, and the guest prints:\n{job.output}')
    finally:
        run.close()


def test(tool):
    begin = time.monotonic()
    with Bench(tool) as bench:
        step('guest is up', begin)
        every_mtu_and_size(bench)
        step('rping', begin)
        for row in PERFTEST:
            perftest(bench, *row)
            step(f'{row[0]} {row[1]}', begin)
        messages(bench)
        step('ucmatose, udaddy', begin)
        multicast(bench)
        step('mckey', begin)
        nobody(bench)
        faults, frames, icrcs = capture_faults(bench.folder)
        step(f'{frames} frames dissected, {icrcs} ICRCs', begin)
        if faults:
            raise Broken('\n'.join(faults[:20]))


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    return outcome(test, os.path.join(sys.argv[1], 'pmd-ext/rdma/examples/braggline-rdma'))


if __name__ == '__main__':
    sys.exit(main())
