# SPDX-License-Identifier: BSD-3-Clause
"""Part of crash_test.py: both stores are unreachable repeatedly, so that a receiver with a small
journal spills.

The receiver is killed at every step of spilling and at random moments. It restarts with batches
both in its journal and in spilled files. While it is dead, some of the spilled files are imported,
and the import is killed at its own steps. A receiver that restarts then must find out by itself
which files were imported.
"""

import time

import chain
import world
from cases import want

# spilling begins half a second after the journal is 10 % full, which takes the detector one second
SETTINGS = {'egress__journal_mib': 4, 'egress__rate_mb_per_s': 1, 'egress__hold_ms': 1000,
            'egress__spill_at': 10}
# how the stores become unreachable
WAYS = ('cut', 'kill', 'hold')
# Fail points of the receiver while both stores are unreachable. One leaves the files that another
# needs.
AWAY = ('spill.opened', 'spill.assigned', 'spill.adopted', 'spill.write', 'stream.durable',
        'spill.synced', 'spill.result', 'file.synced', 'file.trailer', 'file.renamed')
AWAY_AT_A_TIME = 3
# Fail points of adopting spilled files, before and after some of them are imported.
ADOPT = ('spill.adopted', 'spill.forgotten')
# Fail points after the stores are reachable again.
BACK = ('spill.closed', 'recv.inventory')
# Fail points of importing spilled files, and of importing the journal as well.
IMPORT = tuple(f'import at {step}' for step in (
    'stream.durable', 'import.stored', 'import.removed', 'file.trailer', 'file.renamed',
    'journal.release', 'journal.released'))
SECONDS = 10  # limit for reaching a fail point
ROUND = 7     # kills in a round, approximately


class Story:
    def __init__(self, w, steps):
        self.w = w
        self.away, self.adopt, self.back, self.imports = steps
        self.both = 0  # deaths with batches both in the journal and in a spilled file

    def note(self):
        self.both += (bool(chain.held(self.w.ring(0))) and
                      any(map(chain.has_batch, chain.parts(self.w.spilled(0)))))

    def die_at(self, steps, step, count=1, meanwhile=lambda begin: None):
        steps.note(step, self.w.die_at('recv0', step, count, SECONDS, meanwhile))
        self.note()

    def spill(self):
        """Restart the receiver, and kill it at a random moment while it spills."""
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
        """A receiver that spills is killed at a fail point when the stores return."""
        def return_of_stores(begin):
            end = time.monotonic() + SECONDS
            while (self.w.process['recv0'].poll() is None and time.monotonic() < end and
                   not self.w.said('recv0', begin, 'hold -> spill')):
                time.sleep(0.01)
            self.come_back(way)

        self.die_at(self.back, step, meanwhile=return_of_stores)

    def some_import(self):
        """Import into the first store while the receiver is dead. If the import was killed, repeat
        it in half of the cases before the receiver restarts."""
        if self.w.process['store0'].poll() is None:
            self.w.kill('store0')
        step = next(self.imports)
        point = step.split()[-1]
        sources = self.w.sources(rings=point.startswith('journal.'))
        words = ('import', '--to', self.w.directories[0], *sources)
        self.imports.note(step, self.w.tool(*words, BRAGGLINE_FAIL_POINT=point))
        if self.w.random.random() < 0.5:
            self.w.tool(*words)

    def round(self, number):
        way = WAYS[number % len(WAYS)]
        self.leave(way)
        for _ in range(AWAY_AT_A_TIME):
            # at the first visit until the receiver has died there once, later at a random one
            step = next(self.away)
            self.die_at(self.away, step,
                        self.w.random.randint(1, 4) if step in self.away.reached else 1)
        self.spill()
        if number % 2 == 0:
            self.die_at(self.adopt, 'spill.adopted', self.w.random.randint(1, 4))
        self.some_import()
        if number % 2 == 0:
            self.die_at(self.adopt, 'spill.forgotten')
            self.some_import()
        step = next(self.back)
        if step == 'spill.closed':
            self.die_on_return(step, way)
        else:
            self.come_back(way)
            self.die_at(self.back, step)
        self.w.launch('recv0')
        time.sleep(self.w.random.uniform(0, 1))


def look(w):
    """The ledger of the last receiver, which ended in order, agrees with its rows in the files."""
    known = chain.ledgers(f'{w.where}/detector0', 'run')[-1]['frames']
    want(known['balanced'] == 1 and known['unretained'] == 0, known)
    incarnation = chain.ledger(w.ring(0))['incarnation']
    rows = sum(chain.stored(*w.directories).get((incarnation, 'images'), {}).values())
    want(rows == known['stored'] + known['spilled'], rows, 'images', known)


def play(build, kills, steps, all_steps, abandon):
    """Run enough rounds for this number of kills. If all_steps is set and a fail point was not
    reached, run at most as many rounds again."""
    begin = time.monotonic()
    rounds = -(-kills // ROUND)
    stories = []

    def story(w):
        stories.append(Story(w, steps))
        for number in range(2 * rounds if all_steps else rounds):
            if number >= rounds and not any(s.never() for s in steps):
                break
            stories[0].round(number)

    w = world.play(build, 1, 2, story, (lambda world: None) if abandon else look, abandon=abandon,
                   spill=True, **SETTINGS)
    print(f'spilling: {w.kills} kills ({w.recv_kills} of the receiver, {stories[0].both} with '
          f'batches in ring and files) in {time.monotonic() - begin:.0f} s')
    want(stories[0].both > 0, 'none was killed in the middle of spilling')


def plays(build, kills):
    """Run once where all programs end in order, and once where the receiver does not come back."""
    steps = [world.Steps(s) for s in (AWAY, ADOPT, BACK, IMPORT)]
    all_steps = kills >= 50  # four rounds with each program end
    play(build, kills // 2, steps, False, abandon=False)
    play(build, kills - kills // 2, steps, all_steps, abandon=True)
    print('spilling died at:', *sorted(step for s in steps for step in s.reached))
    never = [step for s in steps for step in s.never()]
    want(not all_steps or not never, 'spilling never came to', *never)
