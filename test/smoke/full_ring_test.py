#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The last step of a receiver whose stores are away: it refuses, and says what.

1. A receiver, which may not spill, fills its journal, and is killed.
2. The next one begins with a full ring, and refuses its first batches. The stores come back, and it
   goes on: its streams have gaps then, as many rows as the ledger says, and all that was ever held is
   in the files once.

usage: full_ring_test.py BUILD-DIR
"""

import sys

import chain
import world
from cases import wait, want

SETTINGS = {'egress__journal_mib': 8, 'egress__rate_mb': 1, 'egress__hold_ms': 1000}
ROWS = 6  # refused


def story(w):
    w.kill('store0', 'store1')
    w.wait_for('recv0', 0, '-> refuse')
    w.kill('recv0')
    begin = w.begin('recv0')
    w.wait_for('recv0', begin, '-> refuse')
    recv = w.ask('recv0')
    wait('rows that are refused', lambda: recv.get('ledger')['frames']['unretained'] >= ROWS)
    w.launch('store0', 'store1')
    w.wait_for('recv0', begin, '-> hold')


def look(w):
    """The second receiver's rows, and those it has refused. It has written the first one's ledger as well."""
    known = chain.final_ledger(f'{w.where}/detector0/run_ledger.2.ini')
    incarnation = chain.ledger(w.ring(0))['incarnation']
    found = chain.stored(*w.directories)
    rows = sum(found[incarnation, 'images'].values())
    want(known['balanced'] == 1 and known['unretained'] >= ROWS, known)
    want(rows == known['stored'] + known['spilled'], rows, 'images', known)
    # there may have been room for the small batches of `frames`
    images = found[incarnation, 'images']
    want(chain.gaps(images), 'there is no gap in', *sorted(images))
    print(known['unretained'], 'rows were refused')


def main():
    world.play(sys.argv[1], 1, 2, story, look, telemetry=True, **SETTINGS)


if __name__ == '__main__':
    world.inside(main)
