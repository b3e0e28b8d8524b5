#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The last step of a receiver whose stores are away: it refuses, and says what.

1. A receiver that may not spill fills its retention ring, and is killed.
2. The next one begins with a full ring and a directory for spilling that fails: it refuses its first
   batches. That directory is mended and the stores come back, and it goes on; a stream has gaps then,
   as many rows as the ledger says, and all that was ever held is in the files once.

usage: full_ring_test.py BUILD-DIR
"""

import subprocess
import sys

import chain
import world
from chain import want
from world import wait

# spilling begins after half of hold_ms, which must be later than its directory fails
SETTINGS = {'egress__ring_mb': 8, 'egress__rate_mb': 1, 'egress__hold_ms': 1500,
            'egress__spill_at': 10}
ROWS = 6  # refused


def mount(w, options):
    subprocess.run(['mount', '-t', 'tmpfs', '-o', options, 'none', w.spilled(0)], check=True)


def before(w):
    w.disk_at(w.spilled(0), 64)
    w.spill = False


def story(w):
    w.kill('store0', 'store1')
    w.wait_for('recv0', 0, '-> refuse')
    w.kill('recv0')
    w.spill = True
    begin = w.begin('recv0')
    w.wait_for('recv0', begin, 'packets in')
    mount(w, 'remount,ro')
    w.wait_for('recv0', begin, '-> refuse')
    want(w.said('recv0', begin, 'cannot be spilled'), 'it was spilled')
    recv = w.ask('recv0')
    wait('rows that are refused', lambda: recv.get('ledger')['frames']['unretained'] >= ROWS)
    mount(w, 'remount,rw')
    w.launch('store0', 'store1')
    w.wait_for('recv0', begin, '-> hold')


def look(w):
    """The second receiver's rows, and those it has refused."""
    known = chain.final_ledger(f'{w.where}/detector0/run_ledger.ini')
    incarnation = chain.ledger(w.ring(0))['incarnation']
    found = chain.stored(*w.directories)
    rows = sum(found[incarnation, 'images'].values())
    want(known['balanced'] == 1 and known['unretained'] > 0, known)
    want(rows == known['stored'] + known['spilled'], rows, 'images', known)
    # there may have been room for the small batches of `frames`
    images = found[incarnation, 'images']
    want(chain.gaps(images), 'there is no gap in', *sorted(images))
    print(known['unretained'], 'rows were refused')


def main():
    world.play(sys.argv[1], 1, 2, story, look, before, telemetry=True,
               spill=True, **SETTINGS)


if __name__ == '__main__':
    world.inside(main)
