#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""kill -9, repeatedly, of a receiver and two stores while a detector sends through a lossy wire.

Processes are killed alone and together, at random moments and at every fail point
(app/common/xfer/README.rst). Links are cut, and one frame in a hundred is lost. A quarter of the
kills tests spilling (crash_spill.py), a twentieth tests damaged files of a
store (crash_damage.py). With `slots`, kept frames are raw, and batches refer to output slots in the
journal.
There are two runs. At the end of the second one the receiver does not come back: its journal and
spilled files are imported. After `braggline-store reconcile`:

- every batch that was ever seen in the receiver's journal is in the files,
- the batches of each stream are in the files of both stores exactly once, and without gaps, except
  for batches that a receiver reports as refused (one that was kept from running for long:
  full_ring_test.py),
- each frame is there at most once and as the detector made it; frames are missing only where the
  receiver was killed.

usage: crash_test.py BUILD-DIR [KILLS [kills|slots|spilling|damage]...]; WORLD_SEED repeats the kinds and moments of the kills
"""

import itertools
import sys
import time

import crash_damage
import crash_spill
import world
from cases import want

# the named processes are killed; the named link is cut
KINDS = (('recv0',), ('store0',), ('store1',), ('store0', 'store1'), ('recv0', 'store0'),
         ('recv0', 'store0', 'store1'), ('link store0',), ('link store1',), ('link recv0',),
         ('loss',))
# Fail points: a process is started and dies at one. The second list of each process has those that
# are not reached in every run.
STEPS = {
    'recv0': (('recv.filled', 'recv.kept', 'journal.assigned', 'journal.given', 'recv.body', 'recv.imm',
               'recv.result', 'journal.release', 'journal.released', 'recv.inventory'),
              ('recv.reassigned', 'journal.confirmed')),
    'store0': (('store.inventory', 'store.taken', 'stream.durable', 'store.results', 'file.synced'),
               ('store.truncated', 'file.trailer', 'file.renamed'))}
PARTS = 'kills', 'slots', 'spilling', 'damage'
STEP_SECONDS = 3  # limit for reaching a fail point


def upset(w, kind):
    """Cause one fault, and repair it after a moment."""
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
    """Restart a process so that it dies at a fail point. @return whether it reached it"""
    reached = w.die_at(victim, step, count, STEP_SECONDS)
    w.launch(victim)
    return reached


def play(build, kills, steps, all_steps, abandon, **settings):
    """Run until this number of kills. If all_steps is set and a required fail point was not
    reached, run at most as many kills again."""
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
            # at the first visit until the process has died there once, later at a random one
            count = w.random.randint(1, 10) if (victim, step) in steps.reached else 1
            steps.note((victim, step), die_at(w, victim, step, count))

    w = world.play(build, 1, 2, story, abandon=abandon, **settings)
    print(f'{w.kills} kills ({w.recv_kills} of the receiver) in {time.monotonic() - begin:.0f} s: '
          f'{sum(len(b) for b in w.held.values())} batches were seen held')


def plays(build, kills, **settings):
    """Run once where all programs end in order, and once where the receiver does not come back."""
    steps = world.Steps(((victim, step) for victim, lists in STEPS.items() for step in sum(lists, ())),
                        [(victim, step) for victim, lists in STEPS.items() for step in lists[0]])
    all_steps = kills >= 6 * len(steps.steps)  # three rounds of each half
    play(build, kills // 2, steps, False, abandon=False, **settings)
    steps.steps.reverse()
    play(build, kills - kills // 2, steps, all_steps, abandon=True, **settings)
    print('died at:', *sorted(step for _, step in steps.reached))
    never = steps.never()
    want(not all_steps or not never, 'never came to', *never)


def main():
    kills = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    parts = sys.argv[3:] or PARTS
    if 'kills' in parts:
        plays(sys.argv[1], kills * 7 // 10)
    if 'slots' in parts:
        plays(sys.argv[1], kills // 10, output__format='raw', egress__batch_mib=4)
    if 'spilling' in parts:
        crash_spill.plays(sys.argv[1], kills // 4)
    if 'damage' in parts:
        crash_damage.plays(sys.argv[1], max(kills // 20, 4))


if __name__ == '__main__':
    world.inside(main)
