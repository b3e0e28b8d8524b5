#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Two stores whose disks fill up, one after the other: the other one takes what the first cannot, then
the receiver holds all of it; room is made, and they go on. In the end each batch is there once.

Then one that has all while it takes it, whose disk stays full: the other one gets the rest, also what
the first was given and could not store, and the run ends without waiting for it.

What is waited for must come to be so, as telemetry tells it; of time there is as much as is in the
journal.

usage: full_disk_test.py BUILD-DIR
"""

import sys

import chain
import world
from cases import wait, want

# half of all pixels, 130 kB a frame; files take little room ahead of what is in them
SETTINGS = {'output__csr_threshold': 0, 'output__value': 'int16', 'egress__journal_mib': 256,
            'files__slice_kib': 64}
SMALL = (24, 4)  # MB
ROOM = 256       # what two files that go on must find, and more
ENOUGH = 10      # batches


class Stores:
    def __init__(self, w):
        self.recv = w.ask('recv0')
        self.store = [w.ask(f'store{i}') for i in range(2)]
        wait('a view of the stores', lambda: len(self.of('durable')) == 2)

    def of(self, what):
        """As the receiver sees them."""
        stores = self.recv.get('egress')['stores']
        return [stores[i][what] for i in sorted(stores)]

    def alarm(self, number):
        return self.store[number].get('store')['alarm']

    def has_some(self, number):
        """Until this store has ENOUGH more."""
        begin = self.of('durable')[number]
        wait(f'batches in store{number}', lambda: self.of('durable')[number] >= begin + ENOUGH)

    def is_full(self, number):
        wait(f'the alarm of store{number}', lambda: self.alarm(number) == 'disk full')
        wait('what it has not stored', lambda: self.of('returned')[number] > 0)
        wait('that it says so', lambda: self.of('says')[number] == 'disk full')
        given_back = self.store[number].get('store')['batches_returned']
        want(given_back > 0, 'nothing was given back')

    def is_good(self, number):
        """Until it stores again."""
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
    # it gets nothing then, and the other one all
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
    want(e['step'] == 'hold', e)


def story_of_one(w):
    stores = Stores(w)
    stores.is_full(0)
    stores.has_some(1)
    wait('all that was held', lambda: stores.held() < ENOUGH)
    stores.has_some(1)
    e = stores.recv.get('egress')
    want(e['step'] == 'hold' and e['refusals'] == 0, e)
    want(stores.alarm(0) == 'disk full', stores.alarm(0))


def before(w):
    for number, size in enumerate(SMALL):
        w.disk(number, size)


def before_one(w):
    w.disk(0, SMALL[0])


def check_one(w):
    want(not w.said('recv0', 0, "the run's end waits"), 'the end waited for a full store')
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
