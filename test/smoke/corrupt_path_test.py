#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A switch that always flips the same bit of the packets to a store, and repairs their ICRC.

1. One store: no batch that the switch corrupts is acknowledged. The receiver keeps it, and the
   store gets the others. When the switch is repaired, it gets these, too.
2. Two stores, and the switch stays faulty: the other store gets what the first one refuses, and the
   run ends without a batch in the journal.

In the end each batch is in the files exactly once, and sound.

usage: corrupt_path_test.py BUILD-DIR
"""

import sys

import chain
import world
from cases import wait, want

ENOUGH = 10  # batches


class Path:
    """The path to store 0, as receiver and store report it."""

    def __init__(self, w):
        self.w = w
        self.recv = w.ask('recv0')
        self.store = w.ask('store0')
        wait('a view of the stores', lambda: '0' in self.recv.get('egress')['stores'])
        w.wire.order('corrupt', w.port('store0'))

    def of(self, what, store='0'):
        return self.recv.get('egress')['stores'][store][what]

    def is_noticed(self):
        """Batches were refused although the receiver had checked its copies."""
        wait('corrupted batches', lambda: self.of('corrupted') >= ENOUGH)
        for name, text in (('recv0', 'the network path or the memory of the store corrupts it'),
                           ('store0', 'the network path or the memory of this store corrupts it')):
            want(self.w.said(name, 0, text), name, 'does not say', text)

    def is_honest(self):
        """No batch is taken for one that is damaged in the receiver's memory."""
        s = self.store.get('store')
        want(s['body_crc_errors'] >= ENOUGH and s['batches_stored_damaged'] == 0, s)
        want(self.of('sent_damaged') == 0, self.recv.get('egress'))


def one_store(w):
    path = Path(w)
    path.is_noticed()
    begin = path.of('durable')
    wait('other batches', lambda: path.of('durable') >= begin + ENOUGH)
    path.is_honest()
    w.wire.order('repair', w.port('store0'))
    wait('all that was held', lambda: path.recv.get('egress')['journal']['batches'] < ENOUGH)


def two_stores(w):
    path = Path(w)
    path.is_noticed()
    begin = path.of('durable', '1'), path.of('broken')
    wait('batches at the other store', lambda: path.of('durable', '1') >= begin[0] + ENOUGH)
    wait('another connection', lambda: path.recv.get('egress')['journal']['reassigned'] > 0)
    path.is_noticed()
    path.is_honest()


def look(w):
    known = chain.final_ledger(f'{w.where}/detector0/run_ledger.ini')
    want(known['balanced'] == 1 and known['unretained'] == 0, known)
    want(not w.said('recv0', 0, 'the rest stays'), 'the run ended with batches in the journal')


def main():
    world.play(sys.argv[1], 1, 1, one_store, look, telemetry=True)
    world.play(sys.argv[1], 1, 2, two_stores, look, telemetry=True)


if __name__ == '__main__':
    world.inside(main)
