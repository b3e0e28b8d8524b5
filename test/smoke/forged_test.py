#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A holder of a receiver's key stores other bytes under the numbers of batches that the receiver
still holds, or uses the numbers of its run under another name. The receiver's batches are not
released because of that, and the stored ones stay.

usage: forged_test.py BUILD-DIR
"""

import os
import shutil
import signal
import sys
import tempfile

from cases import wait, want
from chain import held, stored
from forge import forge_journal
from store_test import Chain, end, kill

HELD = 10  # batches of images


def images(chain):
    return [(key, numbers) for key, numbers in held(chain.ring).items() if key[1] == 'images']


def log_of(chain, name):
    path = [path for path in chain.logs if path.endswith(f'-{name}.log')][-1]
    with open(path, encoding='utf-8', errors='replace') as log:
        return log.read()


def restart(chain, journal):
    shutil.copy(journal, chain.ring)
    os.chmod(chain.ring, 0o600)
    return chain.start_recv(50), chain.start_store()


def stop(store, receiver):
    """The store first: net_memif may crash in a program whose peer ends."""
    store.send_signal(signal.SIGTERM)
    end(store, 'braggline-store')
    kill(receiver)


def check_refused(chain, journal, reason, *says):
    """The receiver with its genuine journal is refused, and keeps its batches."""
    before = stored(chain.stored)
    receiver, store = restart(chain, journal)
    wait(f'refusal {reason}', lambda: f'reason={reason}' in log_of(chain, 'store') and
         f'closing the connection: {reason}' in log_of(chain, 'recv'))
    for name, text in says:
        want(text in log_of(chain, name), text, 'is not in the log:\n', log_of(chain, name))
    stop(store, receiver)
    now = stored(chain.stored)
    for key, numbers in before.items():
        want(now.get(key) == numbers, 'stored batches were changed', key)


def main():
    with tempfile.TemporaryDirectory() as where:
        chain = Chain(os.path.abspath(sys.argv[1]), where, 'store')
        journal = f'{where}/journal'
        try:
            receiver = chain.start_recv()
            wait('held batches', lambda: any(len(n) >= HELD for _, n in images(chain)))
            kill(receiver)
            shutil.copy(chain.ring, journal)
            (key, numbers), = images(chain)
            # the thief's batches are stored first
            want(forge_journal(chain.ring) == len(numbers), 'not all were forged')
            receiver = chain.start_recv()
            store = chain.start_store()
            wait('forged batches in the store', lambda: not any(k[0] == key[0] for k in held(chain.ring)))
            stop(store, receiver)
            check_refused(chain, journal, 'differs', ('store', f'incarnation {key[0]:016x}'),
                          ('store', 'has other bytes than the stored one'),
                          ('recv', 'and other bytes'))
            want(dict(images(chain)).get(key) == numbers, 'genuine batches were released',
                 held(chain.ring))
            # the same run under another name
            chain.stored = f'{where}/another'
            os.mkdir(chain.stored)
            other = f'{chain.stored}/evil-{0:016x}-{0:016x}'
            os.mkdir(other)
            os.close(os.open(f'{other}/.ended-{key[0]:016x}', os.O_CREAT, 0o644))
            check_refused(chain, journal, 'run_name', ('store', 'has this run under another name'))
            want(dict(images(chain)).get(key) == numbers, 'batches were released', held(chain.ring))
        finally:
            if os.path.exists(chain.ring):
                os.unlink(chain.ring)
    print(f'{len(numbers)} genuine batches are held')


if __name__ == '__main__':
    main()
