# SPDX-License-Identifier: BSD-3-Clause
"""Spilling, of crash_test.py: both stores are away, again and again, so that a receiver with a small
ring spills.

It dies at every step of that and at random moments, and starts over a ring and spilled files that
both hold things. While it is dead some of them are imported, and import dies at its steps; a
receiver that comes back then has not been told."""

import itertools
import time

import chain
import world
from chain import want

# spilling begins half a second after 10 % of the ring, a second of the detector, are reached
SETTINGS = {'egress__ring_mb': 4, 'egress__rate_mb': 1, 'egress__hold_ms': 1000,
            'egress__spill_at': 10}
# how stores go
WAYS = ('cut', 'kill', 'hold')
# steps of the receiver while both are away, so that one leaves what another needs,
AWAY = ('spill.opened', 'spill.assigned', 'spill.adopted', 'spill.write', 'stream.durable',
        'spill.synced', 'spill.result', 'file.synced', 'file.trailer', 'file.renamed')
AWAY_AT_A_TIME = 3
# ... when they are back,
BACK = ('spill.closed', 'recv.have')
# ... and of an import of spilled files, and of one of the ring as well
IMPORT = (('stream.durable', 'import.stored', 'import.removed', 'file.trailer', 'file.renamed'),
          ('ring.release', 'ring.released'))
SECONDS = 10  # patience with a step
ROUND = 7     # kills, about


class Story:
    def __init__(self, w, turn):
        self.w = w
        self.reached = set()
        self.both = 0  # deaths with batches in the ring and in a file
        self.away = turn * len(AWAY) // 2
        self.tried = 0
        self.back = itertools.cycle(BACK)
        imports = [(step, rings) for rings, steps in enumerate(IMPORT) for step in steps]
        self.imports = itertools.islice(itertools.cycle(imports), turn * 4, None)

    def note(self):
        self.both += (bool(chain.held(self.w.ring(0))) and
                      any(map(chain.has_batch, chain.parts(self.w.spilled(0)))))

    def die_at(self, step, count=1, meanwhile=lambda begin: None):
        if self.w.die_at('recv0', step, count, SECONDS, meanwhile):
            self.reached.add(step)
        self.note()

    def spill(self):
        """A receiver comes back, and dies at a random moment of its spilling."""
        begin = self.w.begin('recv0')
        self.w.wait_for('recv0', begin, 'hold -> spill')
        time.sleep(self.w.random.uniform(0, 0.5))
        self.w.kill('recv0')
        self.note()

    def leave(self, way):
        if way == 'kill':
            self.w.kill('store0', 'store1')
            return
        for name in ('store0', 'store1'):
            if way == 'cut':
                self.w.wire.order('cut', self.w.port(name))
            else:
                self.w.hold(name)

    def come_back(self, way):
        dead = [name for name in ('store0', 'store1') if self.w.process[name].poll() is not None]
        for name in ('store0', 'store1'):
            if way == 'cut':
                self.w.wire.order('join', self.w.port(name))
            elif way == 'hold' and name not in dead:
                self.w.go_on(name)
        self.w.launch(*dead)

    def die_on_return(self, step, way):
        """A receiver that spills dies at a step when the stores come back."""
        def return_of_stores(begin):
            end = time.monotonic() + SECONDS
            while (self.w.process['recv0'].poll() is None and time.monotonic() < end and
                   not self.w.said('recv0', begin, 'hold -> spill')):
                time.sleep(0.01)
            self.come_back(way)

        self.die_at(step, meanwhile=return_of_stores)

    def some_import(self):
        """Into the first store, over the head of a dead receiver; half of those that die are done
        again before it comes back."""
        if self.w.process['store0'].poll() is None:
            self.w.kill('store0')
        step, rings = next(self.imports)
        words = ('import', '--to', self.w.directories[0], *self.w.sources(rings))
        if self.w.tool(*words, BRAGGLINE_FAIL_POINT=step):
            self.reached.add(f'import at {step}')
        if self.w.random.random() < 0.5:
            self.w.tool(*words)

    def round(self, number):
        way = WAYS[number % len(WAYS)]
        self.leave(way)
        for _ in range(AWAY_AT_A_TIME):
            # the first time it comes there; later on, some time
            self.die_at(AWAY[self.away % len(AWAY)],
                        1 if self.tried < len(AWAY) else self.w.random.randint(1, 4))
            self.away += 1
            self.tried += 1
        self.spill()
        self.some_import()
        step = next(self.back)
        if step == 'spill.closed':
            self.die_on_return(step, way)
        else:
            self.come_back(way)
            self.die_at(step)
        self.w.launch('recv0')
        time.sleep(self.w.random.uniform(0, 1))


def look(w):
    """The ledger of the last receiver, which has ended in order, and its rows in the files."""
    known = chain.final_ledger(f'{w.where}/detector0/run_ledger.ini')
    want(known['balanced'] == 1 and known['unretained'] == 0, known)
    incarnation = chain.ledger(w.ring(0))['incarnation']
    rows = sum(chain.stored(*w.directories).get((incarnation, 'images'), {}).values())
    want(rows == known['stored'] + known['spilled'], rows, 'images', known)


def play(build, kills, turn, abandon):
    """@return steps that were reached"""
    begin = time.monotonic()
    stories = []

    def story(w):
        stories.append(Story(w, turn))
        for number in range(-(-kills // ROUND)):
            stories[0].round(number)

    w = world.play(build, 1, 2, story, (lambda world: None) if abandon else look, abandon=abandon,
                   spill=True, **SETTINGS)
    print(f'spilling: {w.kills} kills ({w.recv_kills} of the receiver, {stories[0].both} with '
          f'batches in ring and files) in {time.monotonic() - begin:.0f} s')
    want(stories[0].both > 0, 'none was killed in the middle of spilling')
    return stories[0].reached


def check(reached, kills):
    """Whether it came to all steps."""
    # of two plays: four rounds each
    if kills >= 50:
        steps = [*AWAY, *BACK, *(f'import at {step}' for step in sum(IMPORT, ()))]
        never = [step for step in steps if step not in reached]
        want(not never, 'spilling never came to', *never)
