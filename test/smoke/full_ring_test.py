#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The last overload level of a receiver whose stores are unreachable: it refuses batches and
reports them.

1. A receiver that may not spill fills its journal, and is killed.
2. The next receiver starts with a full journal, and refuses its first batches. The stores come
   back, and it continues. Its streams have gaps of as many rows as the ledger reports, and every
   batch that was ever held is in the files exactly once. Its run has failed and says why.

usage: full_ring_test.py BUILD-DIR
"""

import sys

import chain
import world
from cases import wait, want

SETTINGS = {'egress__journal_mib': 8, 'egress__rate_mb_per_s': 1, 'egress__hold_ms': 1000}
ROWS = 6  # that are refused


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
    """The rows and the refused rows of the second receiver. It has also written the ledger of the
    first one."""
    known = chain.final_ledger(f'{w.where}/detector0/run_ledger.2.ini')
    incarnation = chain.ledger(w.ring(0))['incarnation']
    found = chain.stored(*w.directories)
    rows = sum(found[incarnation, 'images'].values())
    want(known['balanced'] == 1 and known['unretained'] >= ROWS, known)
    want(rows == known['stored'] + known['spilled'], rows, 'images', known)
    # the small batches of `frames` may have fitted
    images = found[incarnation, 'images']
    want(chain.gaps(images), 'there is no gap in', *sorted(images))
    want(w.said('recv0', w.begins['recv0'], f'not written: {known["unretained"]} kept frames'))
    want(w.said('recv0', w.begins['recv0'], ': the journal was full; check the stores'))
    want(w.said('recv0', w.begins['recv0'], 'run run failed, see above'))
    print(known['unretained'], 'rows were refused')


def main():
    world.play(sys.argv[1], 1, 2, story, look, telemetry=True, **SETTINGS)


if __name__ == '__main__':
    world.inside(main)
