#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Longer variants of rdma_test.py, which do not fit into `make test`: braggline-rdma and programs
of a guest.

usage: rdma_full.py BUILDDIR [PART...]
sizes      write, read, send at every path MTU, both roles, sizes from 1 byte to 8 MiB, and 0
latency    ib_*_lat, both roles
loss       1 to 4 % of all frames lost in both directions: rping compares data, perftest succeeds
ends       either side is ended in every state; the next client is served normally
reboot     the guest is powered off during a transfer, and restarted
store      store_verbs_test.py, with kill -9 in the guest
ingest     ingest_rxe_test.py: detectors and receivers of RoCE in the guest
"""

import functools
import os
import sys
import time

import ingest_rxe_test
import store_verbs_test
from rdma_peer import OURS, THEIRS, Bench, Broken, capture_faults, outcome, step
from rxe_vm import rping
from rdma_test import MTUS

# an emulated guest on a shared machine may pause for longer than 8 x 67 ms
PATIENCE = '-u 18'
SIZES = (1, 255, 4095, 65537, 1048577, 8388608)
VERBS = ('write', 'read', 'send')


def both(bench, mode, expected, *texts):
    """Run a tool of perftest as client and as server."""
    bench.serve(mode, f'{expected} {PATIENCE}', f'ib_{mode} -F -R {expected} {OURS}', *texts)
    bench.connect(mode, f'{expected} {PATIENCE} {THEIRS}', f'ib_{mode} -F -R {expected}', *texts)


def sizes(bench, say):
    for mtu in MTUS:
        bench.mtu(mtu)
        for verb in VERBS:
            for size in SIZES:
                count = max(5, min(200, (1 << 22) // size))
                both(bench, f'{verb}_bw', f'-s {size} -n {count}', f' {size} ')
                say(f'{verb}_bw at MTU {mtu}, {size} bytes')
    # perftest itself refuses messages of zero bytes
    for verb in VERBS:
        bench.connect(f'{verb}_bw', f'-s 0 -n 100 {PATIENCE} {THEIRS}',
                      f'ib_{verb}_bw -F -R -s 1 -n 100', ' 0 ')
        say(f'{verb}_bw, 0 bytes')
    # all sizes that perftest iterates over, in one connection
    bench.mtu(4096)
    for verb in VERBS:
        both(bench, f'{verb}_bw', '-a -n 5', ' 8388608 ')
        say(f'{verb}_bw of all sizes')


def latency(bench, say):
    bench.mtu(1024)
    for verb in ('write', 'read', 'send', 'atomic'):
        both(bench, f'{verb}_lat', '-n 200' + ('' if verb == 'atomic' else ' -s 600'), '#bytes')
        say(f'{verb}_lat')


def loss(bench, say):
    bench.mtu(1024)
    # After a second loss in one message rdma_rxe waits 2.1 s, even if NAKs arrive. So it sends
    # shorter messages where the loss is high.
    for percent, theirs in ((1, 65536), (2, 16384), (3, 4096), (4, 4096)):
        lost = f'--loss {percent} --seed {percent} {PATIENCE}'
        noisy = f'--loss {percent} --seed {percent}'
        bench.serve('rping', f'-s -S 65536 {noisy}', rping(OURS, '-C 20 -V -S 65535'),
                    'frames were dropped')
        bench.connect('rping', f'-c -a {THEIRS} -C 20 -V -S 65535 {noisy}',
                      'rping -s -C 20 -S 65535', 'frames were dropped', theirs=None)
        say(f'rping with {percent} % lost')
        for verb in VERBS:
            expected = f'-s {theirs} -n 100'
            bench.serve(f'{verb}_bw', f'{expected} {lost}', f'ib_{verb}_bw -F -R {expected} {OURS}',
                        'frames were dropped')
            say(f'{verb}_bw with {percent} % lost, the guest asks')
            expected = '-s 65536 -n 100'
            bench.connect(f'{verb}_bw', f'{expected} {THEIRS} {lost}', f'ib_{verb}_bw -F -R {expected}',
                          'frames were dropped')
            say(f'{verb}_bw with {percent} % lost, we ask')
        bench.serve('atomic_bw', f'-n 200 {lost}', f'ib_atomic_bw -F -R -n 200 {OURS}')


def still_serves(bench, what, attempts=1):
    """The same server still works after an event on its client's side."""
    job = bench.guest.run(f'for i in $(seq {attempts}); do ({rping(OURS, "-C 2 -V")}) && exit 0; '
                          'sleep 1; done; exit 1', 60)
    if job.status != 0:
        raise Broken(f'after {what} no client is served: {job.status}\n{job.output}')


def ends(bench, say):
    bench.mtu(1024)
    # the guest's client is killed at a random time, and sends no DREQ
    run = bench.ours('rping', '-s -P -S 65536', 200)
    try:
        run.expect('listening on port')
        bench.greet()
        for i in range(20):
            bench.guest.run(f'rping -c -a {OURS} -S 65535 & sleep 0.{i:02}; kill -9 $!', 30)
        say('20 clients killed')
        # one after the other, as the dead connections must time out first
        still_serves(bench, '20 clients that were killed')
        run.interrupt()
        if run.wait() != 0:
            raise Broken(f'rping -s -P failed:\n{run.output}')
    finally:
        run.close()
    # our client is interrupted while it starts, while it waits for its server, and during a
    # transfer
    for i in range(8):
        run = bench.ours('write_bw', f'-D 20 --wait 20 {THEIRS}', 60)
        try:
            # the original server does not notice, and would poll forever
            job = bench.server('timeout -s KILL 6 ib_write_bw -F -R -D 20') if i > 1 else None
            run.expect('#bytes' if job else 'EAL: ')
            time.sleep(0.1 * i)
            run.interrupt()
            if run.wait() != 130:
                raise Broken(f'interrupted, and the exit status is {run.process.poll()}:\n'
                             f'{run.output}')
            if job:
                job.wait()
        finally:
            run.close()
        say(f'interrupted, {i}')
    bench.serve('rping', '-s', rping(OURS, '-C 2 -V'))


def reboot(bench, say):
    bench.mtu(4096)         # the guest gets its MTU when it boots
    run = bench.ours('write_bw', f'-D 60 --wait 30 {THEIRS}', 120)
    try:
        bench.server('ib_write_bw -F -R -D 60')
        run.expect('#bytes')
        time.sleep(1)
        bench.guest.close()
        begin = time.monotonic()
        if run.wait() != 1 or 'retries exceeded' not in run.output:
            raise Broken(f'the guest was powered off, and the output is:\n{run.output}')
        say(f'given up {time.monotonic() - begin:.1f} s after the guest was powered off')
    finally:
        run.close()
    # our server is interrupted at different times: with work in progress, or while it waits
    run = bench.ours('rping', '-s -P -v', 400)
    try:
        bench.boot()
        bench.greet()
        for i in range(3):
            bench.guest.start(f'rping -c -a {OURS}', 60)
            run.expect('rdma-ping-3')
            time.sleep(i / 7)
            bench.guest.close()
            bench.boot()
            bench.greet()
            say('the guest is back')
            # the first attempt may be rejected as stale, because its queue pair is still known
            still_serves(bench, 'a reboot', 5)
            say('and served')
            run.forget()
        run.interrupt()
        if run.wait() != 0:
            raise Broken(f'rping -s -P failed:\n{run.output}')
    finally:
        run.close()


PARTS = (sizes, latency, loss, ends, reboot)


def run_parts(tool, names):
    with Bench(tool, memory=512, seconds=300) as bench:
        for part in PARTS:
            if part.__name__ not in names:
                continue
            begin = time.monotonic()
            part(bench, functools.partial(step, begin=begin))
            print(f'{part.__name__}: {time.monotonic() - begin:.0f} s', flush=True)
            faults, frames, icrcs = capture_faults(bench.folder)
            if faults:
                raise Broken('\n'.join(faults[:20]))
            print(f'  {frames} frames dissected, {icrcs} ICRCs', flush=True)
            bench.forget()


def main():
    known = [part.__name__ for part in PARTS] + ['store', 'ingest']
    if len(sys.argv) < 2 or any(name not in known for name in sys.argv[2:]):
        print(__doc__, file=sys.stderr)
        return 2
    build, names, status = sys.argv[1], sys.argv[2:] or known, 0
    if set(names) - {'store', 'ingest'}:
        status = outcome(run_parts, os.path.join(build, 'pmd-ext/rdma/examples/braggline-rdma'), names)
    if 'store' in names and status == 0:
        begin = time.monotonic()
        status = outcome(store_verbs_test.test, build, True)
        print(f'store: {time.monotonic() - begin:.0f} s', flush=True)
    if 'ingest' in names and status == 0:
        begin = time.monotonic()
        status = outcome(ingest_rxe_test.test, build, ingest_rxe_test.KNOWN)
        print(f'ingest: {time.monotonic() - begin:.0f} s', flush=True)
    return status


if __name__ == '__main__':
    sys.exit(main())
