# SPDX-License-Identifier: BSD-3-Clause
"""Part of crash_test.py: a store is killed, alone or with its receiver, and its files are damaged
before it restarts. Batches that were not damaged are in the files. Batches that were damaged are in
the files again, or `verify` lists them."""

import time

import world
from cases import want

KINDS = (('store0',), ('recv0', 'store0'), ('store0',), ('recv0',))
HITS = 3  # batches damaged at a time, at most


def plays(build, kills):
    begin = time.monotonic()

    def story(w):
        for number in range(kills * 2):
            if w.kills >= kills:
                break
            kind = KINDS[number % len(KINDS)]
            time.sleep(w.random.uniform(0.2, 1))
            w.kill(*kind)
            if 'store0' in kind:
                for _ in range(w.random.randint(0, HITS)):
                    w.damage('store0')
            w.launch(*kind)

    w = world.play(build, 1, 1, story)
    print(f'damage: {w.kills} kills ({w.recv_kills} of the receiver) in '
          f'{time.monotonic() - begin:.0f} s')
    want(w.damaged.hits, 'nothing was hit')
