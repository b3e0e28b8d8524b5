#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""A store is identified by its identity, not by its address.

1. Two stores are killed and restarted with each other's addresses. In the end each batch is in the
   files exactly once.
2. A store is stopped that has batches which were also sent to the other one, and the next receiver
   does not have it in its settings. That receiver names the store, and ends without waiting for it.
   The one after it has the store in its settings again, and no batch is left.

usage: store_moves_test.py BUILD-DIR
"""

import sys
import time

import world
from cases import wait, want
from chain import final_ledger
from store_policies_test import Shares

BOTH = '10.0.0.100,10.0.0.101'


def change_places(w):
    Shares(w).some([0, 1])
    w.kill('store0', 'store1')
    w.directories.reverse()
    w.launch('store0', 'store1')
    Shares(w).some([0, 1])
    want(w.said('recv0', 0, '; before it was '), 'the receiver did not see who is there')


def in_doubt(w):
    return w.ask('recv0').get('egress')['journal']['in_doubt']


def goes_and_comes(w):
    shares = Shares(w)
    shares.some([0, 1])
    w.hold('store1')
    wait('batches that were reassigned', lambda: in_doubt(w) > 0)
    w.kill('recv0', 'store1')
    w.more['recv']['egress__stores'] = '10.0.0.100'
    w.launch('recv0')
    w.wait_for('recv0', w.begins['recv0'], 'which is not in [egress] stores')
    want(in_doubt(w) > 0, 'it was not waited for the store')
    begin = time.monotonic()
    w.end('recv0')
    print(f'the end took {time.monotonic() - begin:.1f} s without the store')
    want(not w.said('recv0', w.begins['recv0'], 'the rest stays'), 'the end has waited')
    w.recv_kills += 1  # may add a gap
    w.more['recv']['egress__stores'] = BOTH
    w.launch('recv0', 'store1')
    wait('the store to be informed', lambda: in_doubt(w) == 0)


def each_has_its_ledger(w):
    """The first receiver of the run and the last one have their ledgers."""
    for name in 'run_ledger.ini', 'run_ledger.2.ini':
        known = final_ledger(f'{w.where}/detector0/{name}')
        want(known['balanced'] == 1 and known['frames'] > 0, name, known)


def main():
    build = sys.argv[1]
    world.play(build, 1, 2, change_places, telemetry=True)
    world.play(build, 1, 2, goes_and_comes, each_has_its_ledger, telemetry=True)


if __name__ == '__main__':
    world.inside(main)
