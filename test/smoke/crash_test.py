#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""kill -9, again and again: a detector that goes on, a receiver, two stores, and the wire between.

Processes die at random moments and at every named step (fail points), alone and together, links are
cut, one frame in a hundred is lost. In the end, after `braggline-store reconcile`:

- every batch that was ever seen held in the receiver's retention ring is in the files,
- each stream's batches are in the files of both stores once, without gaps,
- each frame is there at most once, as the detector made it; frames miss only where the receiver was
  killed.

usage: crash_test.py BUILD-DIR [KILLS]; WORLD_SEED repeats kinds and moments
"""

import itertools
import sys
import time

import world

# a process of this name dies; a link of this name is cut
KINDS = (('recv0',), ('store0',), ('store1',), ('store0', 'store1'), ('recv0', 'store0'),
         ('recv0', 'store0', 'store1'), ('link store0',), ('link store1',), ('link recv0',),
         ('loss',))


def upset(w, kind):
    """One thing that goes wrong, and is put right after a moment."""
    moment = w.random.uniform(0, 0.6)
    if kind == ('loss',):
        w.wire.order('loss', 0.01)
        time.sleep(1)
        w.wire.order('loss', 0)
    elif kind[0].startswith('link'):
        port = w.port(kind[0].split()[1])
        w.wire.order('cut', port)
        time.sleep(w.random.uniform(0.1, 1))
        w.wire.order('join', port)
    else:
        w.kill(*kind)
        time.sleep(w.random.uniform(0, 0.3))
        w.launch(*kind)
    time.sleep(moment)


def main():
    kills = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    begin = time.monotonic()

    def story(w):
        for number in itertools.count():
            if w.kills >= kills:
                break
            kind = KINDS[number % len(KINDS)]
            upset(w, kind)
            if sys.stdout.isatty() or number % 20 == 0:
                print(f'{w.kills} kills, {time.monotonic() - begin:.0f} s: {"+".join(kind)}',
                      flush=True)

    w = world.play(sys.argv[1], 1, 2, story)
    print(f'{w.kills} kills ({w.recv_kills} of the receiver) in {time.monotonic() - begin:.0f} s: '
          f'{sum(len(b) for b in w.held.values())} batches were seen held')


if __name__ == '__main__':
    world.inside(main)
