#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A detector keeps sending while its receiver is killed and restarted. Telemetry and ledgers count
the frames that were sent meanwhile, in agreement with the files and the detector's truth. Each
receiver has its ledger; the ledger of a killed one is written by its successor. The last ledger has
the sum of the run.

1. The receiver is killed, and restarted after a while.
2. It is killed while the detector is stopped and all frames that it has seen, rows and images, are
   in the journal. The next receiver is killed before it has seen a frame.
3. It dies after its first batch of rows was put into the journal but is in no ledger yet, and the
   next receiver begins another run.

usage: restart_test.py BUILD-DIR
"""

import sys

import chain
import world
from cases import wait, want

PACKETS = 16  # of a frame
AWAY = 25     # frames sent while no receiver runs
FIRST_ROWS = 3  # number of the batch with the first rows; images of the same frames precede it


def sent():
    """Packets that the detector has sent, including lost ones."""
    with open('/proc/net/dev', encoding='ascii') as file:
        line, = (line for line in file if line.strip().startswith('d0:'))
    return int(line.split(':')[1].split()[9])


def some_retained(w, than):
    """The ledger of a receiver other than `than`, as soon as it has frames in the journal."""
    def ready():
        now = chain.ledger(w.ring(0))
        return now if now['incarnation'] != than and now['retained'] > 0 else None
    return wait('frames in the journal', ready)


def all_is_retained(w):
    """@return whether all frames are in the journal: the last frame is the same after five more
    ledgers, and all frames up to it are retained"""
    now = chain.ledger(w.ring(0))

    def later():
        then = chain.ledger(w.ring(0))
        return then if then['written'] >= now['written'] + 5 else None
    then = wait('some ledgers more', later)
    return now['last'] == then['last'] == then['retained']


class Deaths:
    """For each death of the receiver: its journal's ledger, and frames that were certainly sent
    before the restart."""

    def __init__(self):
        self.ledgers = []
        self.away = []
        self.counted = None  # telemetry after the first restart


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
    # Batches of 4 and of 2 frames are open and no frame follows: they are closed by time. The
    # receiver waits for the frames that the stopped detector has sent in part.
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
    # It dies when its first rows are in the journal, before any ledger records them and before the
    # main lcore has read its counters. The rows themselves record the frames that were lost before.
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
    """Every frame number has exactly one outcome, over all receivers of the run."""
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
    # no receiver continues this run: the last one counts its own losses
    want(total >= last - first + 1 and total - (last - first + 1) == own_loss, total, first, last, own_loss, *ledgers)
    other, = chain.ledgers(f'{w.where}/detector0', 'next')
    want(other['run']['receivers'] == 1 and other['run']['balanced'] == 1, other)
    want(other['frames']['lost_at_restart'] == 0, other)


def look(w, deaths):
    truth = chain.truth(f'{w.where}/detector0/truth.csv')
    frames = {}  # first and last frame by incarnation
    for incarnation, table, path in chain.files(*w.directories):
        for batch in chain.batches(path) if table == 'frames' else ():
            column = batch.column(chain.FRAME, 'Q')
            low, high = frames.get(incarnation, (column[0], column[-1]))
            frames[incarnation] = min(low, column[0]), max(high, column[-1])
    lives = sorted(frames.values())
    want(len(lives) == 4, 'lives of receivers that had frames:', *lives)
    last = chain.ledgers(f'{w.where}/detector0', 'run')[-1]['frames']
    # frames lost by its own death do not count for its run
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
        # frames that it had seen and recorded
        want(after[0] - 1 - down == max(death['last'], before[1]), death, counted)
        want(down >= deaths.away[i], counted, 'expected at least', deaths.away[i])


def main():
    deaths = Deaths()
    world.play(sys.argv[1], 1, 1, lambda w: story(w, deaths), lambda w: look(w, deaths),
               telemetry=True)


if __name__ == '__main__':
    world.inside(main)
