#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""kill -9, again and again: a detector that goes on, a receiver, two stores, and the wire between.

Processes die at random moments and at every named step (fail points: app/common/xfer/README.rst),
alone and together, links are cut, one frame in a hundred is lost; a quarter of the kills is for spilling
(crash_spill.py), a tenth for damage to the files of a store (crash_damage.py). In the end, after `braggline-store reconcile` (half of the kills with a receiver that does
not come back: its ring, and what it has spilled, are imported):

- every batch that was ever seen held in the receiver's journal is in the files,
- each stream's batches are in the files of both stores once, without gaps but for what a receiver says
  that it refuses (one that was kept from running for long: full_ring_test.py),
- each frame is there at most once, as the detector made it; frames miss only where the receiver was
  killed.

usage: crash_test.py BUILD-DIR [KILLS]; WORLD_SEED repeats kinds and moments
"""

import itertools
import sys
import time

import crash_damage
import crash_spill
import world
from cases import want

# a process of this name dies; a link of this name is cut
KINDS = (('recv0',), ('store0',), ('store1',), ('store0', 'store1'), ('recv0', 'store0'),
         ('recv0', 'store0', 'store1'), ('link store0',), ('link store1',), ('link recv0',),
         ('loss',))
# a process is started, and dies at a step; those of the second line need what does not always happen
STEPS = {
    'recv0': (('recv.kept', 'ring.assigned', 'ring.given', 'recv.body', 'recv.imm', 'recv.result',
               'ring.release', 'ring.released', 'recv.have'),
              ('recv.moved', 'ring.confirmed')),
    'store0': (('store.have', 'store.taken', 'stream.durable', 'store.results', 'file.synced'),
               ('store.cut', 'file.trailer', 'file.renamed'))}
STEP_SECONDS = 3  # patience


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


def die_at(w, victim, step, count):
    """A process is started again, and dies at a step. @return whether it came to it"""
    reached = w.die_at(victim, step, count, STEP_SECONDS)
    w.launch(victim)
    return reached


def play(build, kills, steps, all_steps, abandon):
    """More kills than these, if all steps that must be are to be and some were not: as many again."""
    begin = time.monotonic()

    def story(w):
        for number in itertools.count():
            more = 2 if all_steps and steps.never() else 1
            if w.kills >= more * kills:
                break
            kind = KINDS[number % len(KINDS)]
            victim, step = next(steps)
            if sys.stdout.isatty() or number % 10 == 0:
                print(f'{w.kills} kills, {time.monotonic() - begin:.0f} s: {"+".join(kind)}, '
                      f'{victim} at {step}', flush=True)
            upset(w, kind)
            # the first time it comes there; once it has died there, some time
            count = w.random.randint(1, 10) if (victim, step) in steps.reached else 1
            steps.note((victim, step), die_at(w, victim, step, count))

    w = world.play(build, 1, 2, story, abandon=abandon)
    print(f'{w.kills} kills ({w.recv_kills} of the receiver) in {time.monotonic() - begin:.0f} s: '
          f'{sum(len(b) for b in w.held.values())} batches were seen held')


def main():
    kills = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    spilling = kills // 4
    damaging = max(kills // 10, 4)
    kills -= spilling + damaging
    steps = world.Steps(((victim, step) for victim, lists in STEPS.items() for step in sum(lists, ())),
                        [(victim, step) for victim, lists in STEPS.items() for step in lists[0]])
    all_steps = kills >= 6 * len(steps.steps)  # three of a round
    play(sys.argv[1], kills // 2, steps, False, abandon=False)
    steps.steps.reverse()
    play(sys.argv[1], kills - kills // 2, steps, all_steps, abandon=True)
    print('died at:', *sorted(step for _, step in steps.reached))
    never = steps.never()
    want(not all_steps or not never, 'never came to', *never)
    crash_spill.plays(sys.argv[1], spilling)
    crash_damage.plays(sys.argv[1], damaging)


if __name__ == '__main__':
    world.inside(main)
