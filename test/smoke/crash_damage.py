# SPDX-License-Identifier: BSD-3-Clause
"""Damage, of crash_test.py: a store dies, alone or with its receiver, and before it comes back its files
are damaged. What was not hit is there; what was hit is there again, or `verify` lists it."""

import time

import world
from cases import want

KINDS = (('store0',), ('recv0', 'store0'), ('store0',), ('recv0',))
HITS = 3  # at a time, at most


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
