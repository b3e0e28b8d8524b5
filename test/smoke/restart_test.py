#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A detector goes on while its receiver is killed and comes back: what it sent meanwhile is counted,
in telemetry and ledgers, as the files and the detector's truth tell it. Each receiver has its ledger,
also one that was killed: its successor writes it; and the last one has the sum of the run.

1. The receiver is killed, and comes back after a while.
2. It is killed when the detector has stood still for a while and all that it had seen is in the ring,
   rows and images; and so is the next one before it has seen a frame.
3. It dies when its first batch of rows was put, and is in no ledger yet, and the next one begins another run.

usage: restart_test.py BUILD-DIR
"""

import sys

import chain
import world
from cases import wait, want

PACKETS = 16  # of a frame
AWAY = 25     # frames
FIRST_ROWS = 3  # batch put: after those of images of the same frames


def sent():
    """Packets of the detector on their way, or lost."""
    with open('/proc/net/dev', encoding='ascii') as file:
        line, = (line for line in file if line.strip().startswith('d0:'))
    return int(line.split(':')[1].split()[9])


def some_retained(w, than):
    """A ledger of another receiver than that one's, with frames in the journal."""
    def ready():
        now = chain.ledger(w.ring(0))
        return now if now['incarnation'] != than and now['retained'] > 0 else None
    return wait('frames in the journal', ready)


def all_is_retained(w):
    """It has closed what it has, it has said so some times more, and nothing waits."""
    now = chain.ledger(w.ring(0))

    def later():
        then = chain.ledger(w.ring(0))
        return then if then['written'] >= now['written'] + 5 else None
    then = wait('some ledgers more', later)
    return now['last'] == then['last'] == then['retained']


class Deaths:
    """Of the receiver: what its ring said, and frames that were surely sent while it was away."""

    def __init__(self):
        self.ledgers = []
        self.away = []
        self.counted = None  # what telemetry said after the first one


def story(w, deaths):
    incarnation = some_retained(w, None)['incarnation']
    w.kill('recv0')
    deaths.ledgers.append(chain.ledger(w.ring(0)))
    begin = sent()
    wait('frames of the detector', lambda: sent() - begin >= AWAY * PACKETS)
    deaths.away.append((sent() - begin) // PACKETS - 1)
    w.launch('recv0')
    incarnation = some_retained(w, incarnation)['incarnation']
    deaths.counted = w.ask('recv0').get('ledger')['frames']

    w.hold('detector0')
    # batches of 4 and of 2 frames that nothing follows: they end by time. What the receiver waits for
    # is of frames that the detector was held in
    wait('all to be in the ring', lambda: all_is_retained(w))
    w.kill('recv0')
    deaths.ledgers.append(chain.ledger(w.ring(0)))
    written = deaths.ledgers[-1]['written']
    w.launch('recv0')
    wait('a ledger of its own', lambda: chain.ledger(w.ring(0))['written'] > written)
    w.kill('recv0')
    w.go_on('detector0')
    begin = sent()
    wait('frames of the detector', lambda: sent() - begin >= AWAY * PACKETS)
    deaths.away.append((sent() - begin) // PACKETS - 1)
    # when its first rows are in the ring, and nobody has written down that they are, nor has the main
    # lcore looked at its counters: what was lost before is kept with the rows
    w.launch('recv0', BRAGGLINE_FAIL_POINT=f'recv.kept:{FIRST_ROWS}')
    want(w.dies('recv0', world.SECONDS), 'recv0 lives')
    deaths.ledgers.append(chain.ledger(w.ring(0)))
    incarnation = deaths.ledgers[-1]['incarnation']
    w.more['recv']['run__name'] = 'next'
    w.launch('recv0')
    some_retained(w, incarnation)


def rows_by_incarnation(w):
    """{incarnation: {table: batches}}"""
    found = {}
    for incarnation, table, path in chain.files(*w.directories):
        found.setdefault(incarnation, {}).setdefault(table, []).extend(chain.batches(path))
    return found


def check_ledgers(w, own_loss):
    """Every frame number has one outcome, over all receivers of the run."""
    found = rows_by_incarnation(w)
    ledgers = chain.ledgers(f'{w.where}/detector0', 'run')
    want(len(ledgers) == 3, 'ledgers of receivers that had frames:', *ledgers)
    first, last, total = None, None, 0
    for one in ledgers:
        frames, sum_of, rows = one['frames'], one['run'], found[one['receiver']['incarnation']]
        numbers = [n for b in rows['frames'] for n in b.column(chain.FRAME, 'Q')]
        want(one['receiver']['died'] == 1, one)
        want(frames['balanced'] == 1 and sum_of['balanced'] == 1, one)
        lost = frames['lost_at_restart'] + frames['lost_while_down']
        want(frames['frames'] == len(numbers) + lost, len(numbers), 'rows', one)
        kept, without = chain.without_image(rows['frames'], rows['images'])
        want(not without, 'rows without an image', without)
        want(frames['stored'] + frames['held'] == len(kept), len(kept), one)
        total += frames['frames']
        want(sum_of['frames'] == total, sum_of, total)
        first = numbers[0] if first is None else first
        last = numbers[-1]
    want(ledgers[-1]['run']['receivers'] == 3, *ledgers)
    # nobody goes on with it: the last one says what it lost itself
    want(total >= last - first + 1 and total - (last - first + 1) == own_loss, total, first, last, own_loss, *ledgers)
    other, = chain.ledgers(f'{w.where}/detector0', 'next')
    want(other['run']['receivers'] == 1 and other['run']['balanced'] == 1, other)
    want(other['frames']['lost_at_restart'] == 0, other)


def look(w, deaths):
    truth = chain.truth(f'{w.where}/detector0/truth.csv')
    frames = {}  # first and last one by incarnation
    for incarnation, table, path in chain.files(*w.directories):
        for batch in chain.batches(path) if table == 'frames' else ():
            column = batch.column(chain.FRAME, 'Q')
            low, high = frames.get(incarnation, (column[0], column[-1]))
            frames[incarnation] = min(low, column[0]), max(high, column[-1])
    lives = sorted(frames.values())
    want(len(lives) == 4, 'lives of receivers that had frames:', *lives)
    last = chain.ledgers(f'{w.where}/detector0', 'run')[-1]['frames']
    # its own death is none of its run's
    own_loss = max(0, deaths.ledgers[2]['last'] - lives[2][1])
    check_ledgers(w, own_loss)
    last['lost_at_restart'] -= own_loss
    for i, counted in enumerate((deaths.counted, last)):
        before, after, death = lives[i], lives[i + 1], deaths.ledgers[i]
        missing = range(before[1] + 1, after[0])
        want(all(n in truth for n in missing), 'no frames of the detector:', missing)
        restart, down = counted['lost_at_restart'], counted['lost_while_down']
        print(f'death {i + 1}: frames {before[1]} to {after[0]}: {restart} lost at restart, '
              f'{down} while down, of which {deaths.away[i]} were seen to be sent')
        want(restart + down == len(missing), missing, counted)
        # what it had seen, and had written down
        want(after[0] - 1 - down == max(death['last'], before[1]), death, counted)
        want(down >= deaths.away[i], counted, 'expected at least', deaths.away[i])


def main():
    deaths = Deaths()
    world.play(sys.argv[1], 1, 1, lambda w: story(w, deaths), lambda w: look(w, deaths),
               telemetry=True)


if __name__ == '__main__':
    world.inside(main)
