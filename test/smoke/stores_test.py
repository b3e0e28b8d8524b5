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

AWAY = 3    # seconds
AFTER = 6   # seconds
SHARE = 0.4


def main():
    back = []

    def story(w):
        begin = time.monotonic()
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
        # the number of the frame that is being sent
        back.append(int((time.monotonic() - begin) * world.RATE))
        time.sleep(AFTER)

    world.play(sys.argv[1], 2, 2, story, lambda w: look(w, back[0]))


def look(w, back):
    """Which store got how many batches of images."""
    seconds = [[0, 0] for _ in range(AFTER)]
    for store, directory in enumerate(w.directories):
        for _, table, path in chain.files(directory):
            for batch in chain.batches(path) if table == 'images' else ():
                second = (batch.column(chain.FRAME, 'Q')[0] - back) // world.RATE
                if 0 <= second < AFTER:
                    seconds[second][store] += 1
    print('batches of images by store, second by second since both are there again:', *seconds)
    want(any(min(s) >= SHARE * sum(s) > 0 for s in seconds), 'no balance')


if __name__ == '__main__':
    world.inside(main)
