#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Raw frames whose chunks stay in output slots of the journal ([egress] journal_slots), from a
receiver to a store.

1. The gangs write into the journal. The CPU copies no byte of a chunk. While the store is stopped,
   batches in the journal refer to slots. The receiver is killed with SIGKILL; the next one sends
   these batches from the same slots. Every frame is in the store exactly once (world.py).
2. The same detector with a receiver whose journal has no slots: each byte is copied. The bodies of
   all batches of images are the same as in 1.

The receiver is killed once, or repeatedly for SECONDS.

usage: journal_slots_test.py BUILD-DIR [SECONDS]
"""

import sys
import time

import chain
import world
from cases import wait, want

FRAMES = 30  # frames of a run, at least
SLOTS = 250  # [egress] journal_slots


def count(recv, name):
    return recv.get('writer').get(name, 0)


def receive(recv):
    wait('frames', lambda: recv.get('ledger')['frames']['frames'] >= FRAMES)
    wait('images', lambda: count(recv, 'kept_bytes') > 0)


def slots(recv):
    journal = recv.get('egress')['journal']
    return journal['slots'], journal['slots_held']


def check_no_copy(recv):
    """Nothing is copied, unless batches hold nearly all slots because this machine is slow."""
    found = recv.get('writer')
    full = slots(recv)[1] > SLOTS - 10
    want(found['copied_bytes'] == found['no_journal_slot'] == 0 or full, found)


def check_no_more_copies(recv):
    """Images that come from now on are not copied. One batch may have begun with copies."""
    def next_image():
        kept = count(recv, 'kept_bytes')
        wait('an image', lambda: count(recv, 'kept_bytes') > kept)
        return count(recv, 'copied_bytes')

    before = next_image()
    want(before == 0 or count(recv, 'no_journal_slot') > 0, recv.get('writer'))
    want(next_image() == before, recv.get('writer'))


def kill_receiver(w):
    recv = w.ask('recv0')
    receive(recv)
    w.hold('store0')
    # a batch has two frames
    wait('batches that refer to slots', lambda: slots(recv)[1] >= 20)
    check_no_copy(recv)
    w.kill('recv0')
    begin = w.begin('recv0')
    w.wait_for('recv0', begin, w.READY['recv'])
    recv = w.ask('recv0')
    held = wait('slots that the killed receiver held', lambda: slots(recv)[1])
    want(held >= 20, held, 'slots')
    w.go_on('store0')
    receive(recv)
    wait('slots that are free again', lambda: slots(recv)[1] < 20)
    check_no_more_copies(recv)
    print(f'{held} of {slots(recv)[0]} slots were held by the killed receiver', flush=True)


def kill_receivers(w, seconds):
    end = time.monotonic() + seconds
    kills = 0
    while not kills or time.monotonic() < end:
        kill_receiver(w)
        kills += 1
    print(kills, 'receivers were killed')


def copy(w):
    recv = w.ask('recv0')
    receive(recv)
    want(slots(recv) == (0, 0), slots(recv))
    # each byte is copied once, to the journal; more often only if the journal was full
    found = recv.get('writer')
    want(found['copied_bytes'] >= found['kept_bytes'] > 0, found)
    full = recv.get('egress')['journal']['full']
    want(found['copied_bytes'] == found['kept_bytes'] or full, found, 'full', full)


def bodies(w):
    """Bodies of the batches of images of the first receiver, by their frames. All packets of these
    frames have arrived."""
    whole, found = set(), {}
    for _, table, path in chain.files(*w.directories):
        for batch in chain.batches(path):
            frames = batch.column(chain.FRAME, 'Q')
            if table == 'frames':
                whole.update(f for f, flags in zip(frames, batch.column(chain.FLAGS, 'I'))
                             if not flags & chain.INCOMPLETE)
            else:
                found[frames] = batch.data[batch.body:batch.end]
    return {frames: body for frames, body in found.items() if whole.issuperset(frames)}


def play(build, story, **settings):
    found = {}
    world.play(build, 1, 1, story, lambda w: found.update(bodies(w)), telemetry=True,
               output__format='raw', output__value='int16', egress__batch_mib=4, **settings)
    return found


def main():
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 0
    referred = play(sys.argv[1], lambda w: kill_receivers(w, seconds), egress__journal_slots=SLOTS)
    copied = play(sys.argv[1], copy, egress__journal_slots=0)
    both = referred.keys() & copied.keys()
    different = [frames for frames in sorted(both) if referred[frames] != copied[frames]]
    want(not different, 'bodies differ:', *different)
    want(len(both) >= 10, len(both), 'batches of', len(referred), 'and', len(copied))
    print(len(both), 'batches are the same')


if __name__ == '__main__':
    world.inside(main)
