#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Stores whose disks fill up.

First, the disks of two stores fill up one after the other. The second store takes over the batches
that the first cannot store; then the receiver holds all of them. After room is made, both stores
continue, and each batch is in the files exactly once.

Second, one store gets all batches, and its disk stays full. The other store gets the rest,
including batches that the first was given and could not store. The run ends without waiting for the
full store.

The test waits for states that telemetry reports. The journal's size limits how long this may take.

usage: full_disk_test.py BUILD-DIR
"""

import sys

import chain
import world
from cases import wait, want

# half of all pixels, 130 kB a frame; files preallocate little room
SETTINGS = {'output__csr_threshold': 0, 'output__value': 'int16', 'output__compress': 'no',
            'egress__journal_mib': 256, 'files__slice_kib': 64}
SMALL = (24, 4)  # MB
ROOM = 256       # MB, more than two files need to continue
ENOUGH = 10      # batches


class Stores:
    def __init__(self, w):
        self.recv = w.ask('recv0')
        self.store = [w.ask(f'store{i}') for i in range(2)]
        wait('a view of the stores', lambda: len(self.of('durable')) == 2)

    def of(self, what):
        """A counter of each store, as the receiver reports it."""
        stores = self.recv.get('egress')['stores']
        return [stores[i][what] for i in sorted(stores)]

    def alarm(self, number):
        return self.store[number].get('store')['alarm']

    def has_some(self, number):
        """Wait until this store has ENOUGH more batches."""
        begin = self.of('durable')[number]
        wait(f'batches in store{number}', lambda: self.of('durable')[number] >= begin + ENOUGH)

    def is_full(self, number):
        wait(f'the alarm of store{number}', lambda: self.alarm(number) == 'disk full')
        wait('returned batches', lambda: self.of('returned')[number] > 0)
        wait('its state "disk full"', lambda: self.of('store_state')[number] == 'disk full')
        given_back = self.store[number].get('store')['batches_returned']
        want(given_back > 0, 'nothing was given back')

    def is_good(self, number):
        """Wait until this store stores again."""
        wait(f'the end of the alarm of store{number}', lambda: self.alarm(number) == 'none')
        self.has_some(number)
        streams = self.store[number].get('store/streams')
        images = [s for s in streams.values() if isinstance(s, dict) and s['resumes'] > 0]
        want(images and all(s['outages'] > 0 for s in images), streams)

    def held(self):
        return self.recv.get('egress')['journal']['batches']


def story(w):
    stores = Stores(w)
    stores.has_some(1)
    stores.is_full(1)
    # then it gets nothing, and the other store gets all batches
    sent = stores.of('sent')[1]
    stores.has_some(0)
    want(stores.of('sent')[1] == sent, 'a full store was sent', stores.of('sent')[1] - sent)
    stores.is_full(0)
    begin, durable = stores.held(), stores.of('durable')
    wait('batches that are held', lambda: stores.held() >= begin + ENOUGH)
    want(stores.of('durable') == durable, stores.of('durable'), 'expected', durable)
    w.disk(0, ROOM)
    stores.is_good(0)
    want(stores.alarm(1) == 'disk full', stores.alarm(1))
    w.disk(1, ROOM)
    stores.is_good(1)
    wait('all that was held', lambda: stores.held() < ENOUGH)
    e = stores.recv.get('egress')
    want(e['overload_level'] == 'hold', e)


def story_of_one(w):
    stores = Stores(w)
    stores.is_full(0)
    stores.has_some(1)
    wait('all that was held', lambda: stores.held() < ENOUGH)
    stores.has_some(1)
    e = stores.recv.get('egress')
    want(e['overload_level'] == 'hold' and e['refusals'] == 0, e)
    want(stores.alarm(0) == 'disk full', stores.alarm(0))


def before(w):
    for number, size in enumerate(SMALL):
        w.disk(number, size)


def before_one(w):
    w.disk(0, SMALL[0])


def check_one(w):
    want(not w.said('recv0', 0, "run ends before the stores"), 'the end waited for a full store')
    look(w)


def look(w):
    known = chain.final_ledger(f'{w.where}/detector0/run_ledger.ini')
    want(known['balanced'] == 1 and known['unretained'] == 0, known)


def main():
    world.play(sys.argv[1], 1, 2, story, look, before, telemetry=True, **SETTINGS)
    world.play(sys.argv[1], 1, 2, story_of_one, check_one, before_one, telemetry=True,
               egress__policy='primary', **SETTINGS)


if __name__ == '__main__':
    world.inside(main)
