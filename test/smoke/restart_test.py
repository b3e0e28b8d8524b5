#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A detector goes on while its receiver is killed and comes back: what it sent meanwhile is counted,
in telemetry and ledger, as the files and the detector's truth tell it.

1. The receiver is killed, and comes back after a while.
2. It is killed, and so is the next one before it has seen a frame: the detector stands still.

usage: restart_test.py BUILD-DIR
"""

import sys

import chain
import world
from cases import wait, want

PACKETS = 16  # of a frame
AWAY = 25     # frames


def sent():
    """Packets of the detector on their way, or lost."""
    with open('/proc/net/dev', encoding='ascii') as file:
        line, = (line for line in file if line.strip().startswith('d0:'))
    return int(line.split(':')[1].split()[9])


def some_retained(w, than):
    """A ledger of another receiver than that one's, with frames in retention."""
    def ready():
        now = chain.ledger(w.ring(0))
        return now if now['incarnation'] != than and now['retained'] > 0 else None
    return wait('frames in retention', ready)


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
    w.launch('recv0')
    some_retained(w, incarnation)


def look(w, deaths):
    truth = chain.truth(f'{w.where}/detector0/truth.csv')
    frames = {}  # first and last one by incarnation
    for incarnation, table, path in chain.files(*w.directories):
        for batch in chain.batches(path) if table == 'frames' else ():
            column = batch.column(chain.FRAME, 'Q')
            low, high = frames.get(incarnation, (column[0], column[-1]))
            frames[incarnation] = min(low, column[0]), max(high, column[-1])
    lives = sorted(frames.values())
    want(len(lives) == 3, 'lives of receivers that had frames:', *lives)
    last = chain.final_ledger(f'{w.where}/detector0/run_ledger.ini')
    want(last['balanced'] == 1, last)
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
        want(down >= deaths.away[i], counted, 'wanted at least', deaths.away[i])


def main():
    deaths = Deaths()
    world.play(sys.argv[1], 1, 1, lambda w: story(w, deaths), lambda w: look(w, deaths),
               telemetry=True)


if __name__ == '__main__':
    world.inside(main)
