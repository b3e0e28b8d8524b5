#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Two receivers and two stores; one store is killed and restarted. Every kept batch is in the files
exactly once, and both stores get their share again. Prints how long it took until the restarted
store had a batch.

usage: stores_test.py BUILD-DIR; WORLD_SEED repeats the moments
"""

import os
import sys
import time

import chain
import world
from cases import want

AWAY = 3     # seconds
AFTER = 6    # seconds
SHARE = 0.4
WINDOW = 20  # batches


def names(directory):
    """Files of a store, whether complete or not."""
    return {os.path.basename(path).removesuffix('.part') for where, _, found in os.walk(directory)
            for path in found}


def main():
    before = set()

    def story(w):
        time.sleep(3)
        w.kill('store1')
        time.sleep(AWAY)
        before.update(names(w.directories[1]))
        started = time.monotonic()
        w.launch('store1')
        first = None
        runs = set()
        while len(runs) < 2:
            want(time.monotonic() - started < world.SECONDS, 'store1 gets no batch of', *runs)
            runs = {os.path.basename(p).split('_')[1] for p in chain.parts(w.directories[1])
                    if os.path.basename(p)[:-5] not in before and chain.has_batch(p)}
            if runs and first is None:
                first = time.monotonic() - started
                print(f'first batch {first:.2f} s after the start of the store')
            time.sleep(0.002)
        time.sleep(AFTER)

    world.play(sys.argv[1], 2, 2, story, lambda w: look(w, before))


def look(w, before):
    """For each run: which store each batch of images went to, in the order of the batches."""
    runs, new = {}, {}
    for store, directory in enumerate(w.directories):
        for incarnation, table, path in chain.files(directory):
            for batch in chain.batches(path) if table == 'images' else ():
                runs.setdefault(incarnation, []).append((batch.sequence, store))
                if store == 1 and os.path.basename(path) not in before:
                    new.setdefault(incarnation, []).append(batch.sequence)
    want(len(runs) == 2, len(runs), 'runs')
    for incarnation, run in runs.items():
        want(incarnation in new, 'store1 has nothing new of', f'{incarnation:016x}')
        stores = [store for sequence, store in sorted(run) if sequence >= min(new[incarnation])]
        print(f'batches of images by store since store1 is back: {stores.count(0)} and '
              f'{stores.count(1)}')
        shares = [sum(stores[at:at + WINDOW]) / WINDOW for at in range(len(stores) - WINDOW)]
        want(any(SHARE <= share <= 1 - SHARE for share in shares), 'no balance', stores)


if __name__ == '__main__':
    world.inside(main)
