#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Two receivers, two stores: one store is killed and comes back. What was kept is in the files once,
and both stores get their share again; how long it took until the one that is back had a batch.

usage: stores_test.py BUILD-DIR; WORLD_SEED repeats moments
"""

import sys
import time

import chain
import world
from chain import want

AWAY = 3     # seconds
AFTER = 6    # seconds
SHARE = 0.4
WINDOW = 20  # batches


def main():
    def story(w):
        time.sleep(3)
        w.kill('store1')
        time.sleep(AWAY)
        before = set(chain.parts(w.directories[1]))
        started = time.monotonic()
        w.launch('store1')
        while not any(chain.has_batch(p) for p in chain.parts(w.directories[1]) if p not in before):
            want(time.monotonic() - started < world.SECONDS, 'store1 gets no batch')
            time.sleep(0.002)
        print(f'first batch {time.monotonic() - started:.2f} s after the start of the store')
        time.sleep(AFTER)

    world.play(sys.argv[1], 2, 2, story, look)


def look(w):
    """Of each run, in the order of its batches: which store each one of images went to."""
    runs = {}
    for store, directory in enumerate(w.directories):
        for incarnation, table, path in chain.files(directory):
            for batch in chain.batches(path) if table == 'images' else ():
                runs.setdefault(incarnation, []).append((batch.sequence, store))
    want(len(runs) == 2, len(runs), 'runs')
    for run in runs.values():
        stores = [store for _, store in sorted(run)]
        # store1 was away where its batches are furthest apart
        own = [at for at, store in enumerate(stores) if store == 1]
        _, back = max((after - at, after) for at, after in zip(own, own[1:]))
        print(f'batches of images by store: before, {stores[:back].count(0)} and '
              f'{stores[:back].count(1)}; back, {stores[back:].count(0)} and '
              f'{stores[back:].count(1)}')
        shares = [sum(stores[at:at + WINDOW]) / WINDOW
                  for at in range(back, len(stores) - WINDOW)]
        want(any(SHARE <= share <= 1 - SHARE for share in shares), 'no balance', stores[back:])


if __name__ == '__main__':
    world.inside(main)
