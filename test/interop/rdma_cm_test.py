#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Connections between braggline-rdma and a Linux guest that end abnormally.

usage: rdma_cm_test.py BUILDDIR

Handshakes over a wire that drops every seventh frame; a program on either side that is killed
during a transfer; path MTUs that differ. (A guest that is powered off: make interop-full, reboot.)
Each time the other side must notice, and the next connection must work.
"""

import os
import sys
import time

from rdma_peer import OURS, THEIRS, Bench, Broken, outcome, step
from rxe_vm import rping

LOSS = 15
SEEDS = (1, 2)
PINGS = rping(OURS, '-C 3 -v')


def loss(bench):
    """Connect and disconnect without data, so that all retries are those of the connection manager.
    """
    for seed in SEEDS:
        lossy = f'-c 4 -C 0 --loss {LOSS} --seed {seed}'
        bench.serve('cmatose', lossy, f'ucmatose -s {OURS} -c 4 -C 0')
        bench.connect('cmatose', f'-s {THEIRS} {lossy}', 'ucmatose -c 4 -C 0')


def client_killed(bench):
    """The kernel disconnects for the killed client; our server continues."""
    run = bench.ours('rping', '-s -P -v')
    try:
        run.expect('listening on port')
        bench.greet()
        job = bench.guest.run(
            f'rping -c -a {OURS} >/dev/null & sleep 1; kill -9 $!; wait; {PINGS}', bench.seconds)
        if job.status != 0 or 'rdma-ping-2' not in job.output:
            raise Broken(f'after a killed client:\n{job.output}\n--- ours\n{run.output}')
    finally:
        run.interrupt()
        run.wait()


def we_are_killed(bench):
    """Our client is killed without a DREQ: the guest's server must be able to continue."""
    bench.guest.run(f'rping -s -P -a {THEIRS} >/tmp/server 2>&1 & echo $! >/tmp/pid')
    run = bench.ours('rping', f'-c -a {THEIRS} -v --wait {bench.seconds}')
    try:
        run.expect('rdma-ping-3')
    finally:
        run.close()                     # SIGKILL
    run = bench.ours('rping', f'-c -a {THEIRS} -C 3 -v --wait {bench.seconds}')
    status = run.wait()
    server = bench.guest.run('kill $(cat /tmp/pid); cat /tmp/server')
    if status != 0 or 'rdma-ping-2' not in run.output:
        raise Broken(f'after being killed:\n{run.output}\n--- theirs\n{server.output}')


def mtu(bench):
    """The guest requests a larger path MTU than our device has: it gets the reason. A smaller one
    works."""
    bench.mtu(4096)
    bench.device_options = ',mtu=1024'
    run = bench.ours('rping', '-s')
    try:
        run.expect('listening on port')
        bench.greet()
        job = bench.guest.run(PINGS)
        if job.status == 0 or 'REJECTED, error 26' not in job.output:
            raise Broken(f'MTU of 4096 where 1024 is expected:\n{job.output}')
    finally:
        run.close()
    bench.connect('rping', f'-c -a {THEIRS} -C 2 -V', 'rping -s -C 2', theirs=None)
    bench.mtu(4096)


def test(tool):
    begin = time.monotonic()
    with Bench(tool, capture=False) as bench:
        for part in (loss, client_killed, we_are_killed, mtu):
            part(bench)
            step(part.__name__, begin)


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    return outcome(test, os.path.join(sys.argv[1], 'pmd-ext/rdma/examples/braggline-rdma'))


if __name__ == '__main__':
    sys.exit(main())
