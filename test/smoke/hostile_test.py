#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A running store, a receiver that sends to it, and a hostile process on the same wire, with and
without the key (hostile_peers.c). The store refuses each attack and counts it by cause. The
receiver is not affected, and all batches that it kept are in the files.

usage: hostile_test.py BUILD-DIR
"""

import collections
import os
import subprocess
import sys
import time

import background
import chain
import world
from cases import wait, want

PROGRAM = 'test/smoke/hostile_peers'
ENOUGH = 10  # batches
ADDRESSES = 4
SPOOFED = 200  # forged requests a second
SILENCE_MS = 4000  # for a machine with other load
BACK = 2     # s, limit for reconnecting
BACK_AT_START = 4  # it retries once a second after a rejection


def story(w):
    recv, store = w.ask('recv0'), w.ask('store0')

    def some():
        begin = recv.get('egress')['stores']['0']['durable']
        wait('batches of the receiver', lambda: recv.get('egress')['stores']['0']['durable'] >=
             begin + ENOUGH)

    def alone():
        wait('the receiver alone', lambda: len(store.get('store/connections')) == 1)

    wait('a view of the store', lambda: recv.get('egress')['stores'])
    some()
    # including a peer that dies during an attack
    w.start_guest('hostile_peers', PROGRAM, 0, f'{w.where}/hostile.key')
    wait('an entry that is refused', lambda: store.get('store')['refused_descriptor'] > 0)
    w.kill('hostile_peers')
    alone()
    before = store.get('store')
    durable = recv.get('egress')['stores']['0']['durable']
    begin = w.start_guest('hostile_peers', PROGRAM, 0, f'{w.where}/hostile.key')
    code = w.process['hostile_peers'].wait(world.SECONDS)
    with open(w.logs['hostile_peers'], encoding='ascii') as out:
        out.seek(begin)
        tried = [line.strip().split(': ') for line in out if ': ' in line]
    tried = [names.split() for _, names in tried if all(n in before for n in names.split())]
    want(code == 0, 'hostile_peers ended with status', code)
    durable = recv.get('egress')['stores']['0']['durable'] - durable
    print(f'{len(tried)} things were tried, {durable} batches of the receiver stored meanwhile')
    want(durable >= ENOUGH, durable)
    expected = collections.Counter(name for names in tried for name in names)

    def counted():
        now = store.get('store')
        return {name: now[name] - before[name] for name in now
                if name in expected or name.startswith(('refused_', 'descriptors_'))}
    alone()
    found = {name: n for name, n in counted().items() if n > 0 and name != 'descriptors_good'}
    want(found == expected, found, 'expected', dict(expected))
    some()
    s = recv.get('egress')['stores']['0']
    want(s['connections'] == 1 and s['broken'] + s['returned'] + s['refused'] == 0, s)
    flood(w, recv, store)
    some()


def spoof(w):
    """Connection requests from source addresses that do not exist, each of another network."""
    process = background.start(
        [sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), 'spoof.py'),
         f'p{w.port("store0")}', f'p{w.receivers + w.stores + ADDRESSES}', str(SPOOFED)],
        stdout=subprocess.PIPE, text=True)
    w.process['spoof'] = process
    return process


def flood(w, recv, store):
    """Four addresses and forged ones occupy all connections for unknown peers, repeatedly. The
    receiver is disconnected, and reconnects as soon as the link is up again."""
    spoofing = spoof(w)
    peers = [f'flood_{i}' for i in range(ADDRESSES)]
    for i, name in enumerate(peers):
        w.start_guest(name, PROGRAM, i, f'{w.where}/hostile.key', 'flood')
    want(spoofing.stdout.readline() == 'sending\n', 'no forged requests')
    before = store.get('store')
    # forged addresses hold some of the connections that time out; the other peers may hold all the
    # rest
    wait('a flood', lambda: store.get('store')['refused_late'] >= before['refused_late'] + 64)
    wait('forged requests', lambda: store.get('store')['requests'] >=
         before['requests'] + 2 * SPOOFED)
    w.wire.order('cut', w.port('recv0'))
    wait('the end of the connection at both ends', lambda: all(
        c['state'] != 'up' for c in store.get('store/connections').values()) and
        recv.get('egress')['stores']['0']['state'] != 'up')
    w.wire.order('join', w.port('recv0'))
    begin = time.monotonic()
    wait('the receiver', lambda: recv.get('egress')['stores']['0']['connections'] == 2)
    seconds = time.monotonic() - begin
    now = store.get('store')
    # a store that was killed and restarted still knows the peers that had authenticated
    w.kill('store0')
    wait('the receiver to know it',
         lambda: recv.get('egress')['stores']['0']['state'] != 'up')
    w.launch('store0')
    begin = time.monotonic()
    wait('the receiver, after a start of the store',
         lambda: recv.get('egress')['stores']['0']['connections'] == 3)
    again = time.monotonic() - begin
    started = w.ask('store0').get('store')
    w.kill('spoof', *peers)
    for name in ('spoof', *peers):
        background.eal_folder(w.prefix(name))
        del w.process[name]
    print(f'back after {seconds:.2f} s, {again:.2f} s after a start of the store, {now["requests"] - before["requests"]} requests, '
          f'{now["unauthenticated_admitted_known"] - before["unauthenticated_admitted_known"]} of one that is known')
    want(seconds < BACK and again < BACK_AT_START, seconds, again)
    want(now['unauthenticated_admitted_known'] > before['unauthenticated_admitted_known'], now)
    want(started['unauthenticated_admitted_known'] > 0, started)


def look(w):
    known = chain.final_ledger(f'{w.where}/detector0/run_ledger.ini')
    want(known['balanced'] == 1 and known['unretained'] == 0, known)
    stored = chain.stored(*w.directories)
    want(len(stored) == 2, 'streams that have batches:', *stored)


def main():
    world.play(sys.argv[1], 1, 1, story, look, telemetry=True, guests=ADDRESSES + 1,
               store__silence_ms=SILENCE_MS)


if __name__ == '__main__':
    world.inside(main)
