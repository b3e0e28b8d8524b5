#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""braggline-recv to braggline-store over software RoCE and shared memory. Either or both are killed
with kill -9 during the run; every batch that was kept is in the files exactly once. If both are
killed and only the store comes back, it completes the files. If a batch of the journal is damaged
meanwhile, or while the receiver runs, its bytes are saved, its frames are counted, and the exit
status is 1.

usage: store_test.py BUILD-DIR [ROUNDS]; STORE_SEED repeats the moments of the kills
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time

import background
from cases import wait, want
from chain import BLOCK, flip, held, held_images, ledger, ledgers, nb_batches, parts, stored

FLOAT = f'(0-1)@(0-{os.cpu_count() - 1})'
PERIOD = 10   # frames of the capture, which is repeated
RATE = 500    # frames/s
SHORT = 50    # frames of a run that ends by itself
SECONDS = 120
# a small journal that fills up soon
SMALL = {'egress.journal_mib': 24, 'egress.failover_ms': 500, 'egress.hold_ms': 400,
         'egress.spill_at': 50}
LADDER = {'spill': SMALL, 'refuse': {**SMALL, 'egress.spill_mib': 2}}


class Chain:
    """A receiver, a store, and the connection between them."""

    MORE_EAL = ('--no-telemetry',)

    def __init__(self, build, where, kind):
        self.build = build
        # memif roles of receiver and store: a memif recovers when its client restarts, not when its
        # server does
        self.role = ('client', 'server') if kind in ('none', 'recv', 'gone') else ('server', 'client')
        self.where = where
        self.name = f'braggline_store_{os.getpid()}'
        self.ring = f'/dev/shm/{self.name}'
        self.stored = f'{where}/stored'
        self.spilled = f'{where}/spilled'
        self.more = LADDER.get(kind, {})
        if self.more:
            self.more = {**self.more, 'egress.spill': self.spilled}
        self.logs = []
        os.mkdir(self.stored)
        with open(f'{where}/key', 'wb') as key:
            key.write(os.urandom(64))
        with open(f'{where}/keys.ini', 'w', encoding='ascii') as keys:
            keys.write('[receiver chain]\nkey = key\nreceiver_ids = 0\n')
        os.chmod(f'{where}/key', 0o600)
        os.chmod(f'{where}/keys.ini', 0o600)
        subprocess.run([f'{build}/app/detector/braggline-detector', '--frames', str(PERIOD),
                        '--pcap', f'{where}/in.pcap', '--calibration', where], check=True,
                       stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def start(self, name, program, eal, settings):
        log = f'{self.where}/{len(self.logs):02d}-{name}.log'
        self.logs.append(log)
        background.eal_folder(f'{self.name}_{name}')
        command = [f'{self.build}/app/{program}', '--no-huge', '--no-pci', *self.MORE_EAL,
                   '--file-prefix', f'{self.name}_{name}', *eal, '--']
        for key, value in settings.items():
            command += ['--set', f'{key}={value}']
        with open(log, 'w', encoding='ascii') as out:
            return background.start(command, stdout=out, stderr=out)

    def start_store(self, **more):
        process = self.start('store', 'store/braggline-store', [
            '-m', '128', '--lcores', '0@(0-%d)' % (os.cpu_count() - 1),
            '--vdev', f'net_memif0,role={self.role[1]},socket={self.name}'], {
                'store.device': 'roce:port=net_memif0,ip=10.0.0.2/24',
                'store.keys': f'{self.where}/keys.ini', 'store.memory_mib': 64,
                'store.heartbeat_ms': 100, 'store.silence_ms': 1000,
                'files.directory': self.stored, 'files.sync_ms': 20,
                **{key.replace('__', '.'): value for key, value in more.items()}})
        wait_for(self, process, 'listening')
        return process

    def start_recv(self, frames=0):
        """@param frames  the receiver ends after so many; 0: on SIGTERM"""
        where = self.where
        process = self.start('recv', 'recv/braggline-recv', [
            '-m', '512', '--lcores', FLOAT, '--vdev', 'gpu_host0',
            '--vdev', f'net_replay0,file={where}/in.pcap,loops=0,rewrite=42:8:le:{PERIOD},'
                      f'rate={RATE * 128}',
            '--vdev', f'net_memif0,role={self.role[0]},socket={self.name}'], {
                'port 0.device': 'net_replay0', 'run.name': 'chain',
                **({'run.frames': frames} if frames else {}),
                'run.first_frame': 1, 'calibration.gain': f'{where}/gain_m%d.bin',
                'calibration.pedestal_g0': f'{where}/pedestal_g0_m%d.bin',
                'calibration.pedestal_g1': f'{where}/pedestal_g1_m%d.bin',
                'calibration.pedestal_g2': f'{where}/pedestal_g2_m%d.bin',
                'calibration.mask': f'{where}/mask_m%d.bin', 'veto.dry_run': 'yes',
                'frames.backpressure': 'wait', 'output.directory': f'{where}/run',
                'output.frames_interval': 32, 'output.images_interval': 8,
                'output.preview': 'off',
                'egress.device': 'roce:port=net_memif0,ip=10.0.0.1/24',
                'egress.stores': '10.0.0.2', 'egress.identity': 'chain',
                'egress.key': f'{where}/key',
                'egress.journal': self.ring, 'egress.journal_mib': 256, 'egress.rate_mb_per_s': 10,
                'egress.hold_ms': 10000, 'egress.batch_mib': 2, 'egress.end_ms': SECONDS * 1000,
                **self.more})
        # a kill before this line would hit nothing
        wait_for(self, process, 'journal has')
        return process


def kill(process):
    process.send_signal(signal.SIGKILL)
    process.wait()


def end(process, name, status=0):
    try:
        code = process.wait(SECONDS)
    except subprocess.TimeoutExpired:
        kill(process)
        raise AssertionError(f'{name} does not end') from None
    want(code == status, name, 'ended with status', code)


def in_files(chain):
    """Batches in the incomplete files of the store."""
    return sum(map(nb_batches, parts(chain.stored)))


def store_with_batches(chain):
    """Start the store, and wait until the receiver has sent it more batches than its files had."""
    before = in_files(chain)
    store = chain.start_store()
    wait('batches in files', lambda: in_files(chain) > before)
    return store


def wait_for(chain, process, text, log=-1):
    log = chain.logs[log]
    for _ in range(600):
        with open(log, encoding='ascii') as out:
            if text in out.read():
                return
        want(process.poll() is None, 'ended, see', log)
        time.sleep(0.05)
    raise AssertionError(f'{log} does not say {text}')


def play(chain, kind, moment):
    """One run with kills of a kind. @return the batches in the journal when the receiver was killed
    """
    left = {}
    if chain.role[0] == 'client':
        store = chain.start_store()
        recv = chain.start_recv()
        wait('batches in files', lambda: in_files(chain) > 0)
    else:
        recv = chain.start_recv()
        if kind in LADDER:
            # No store is there until the overload level is reached. Batches that it was given
            # before are spilled, too, and cut off when it is back.
            if kind == 'spill':
                store = store_with_batches(chain)
                time.sleep(moment.uniform(0, 1))
                kill(store)
            wait_for(chain, recv, f'-> {kind}:', 0)
        store = store_with_batches(chain)
    time.sleep(moment.uniform(0, 1 if kind == 'damaged' else 3))
    if kind == 'gone':
        return abandon(chain, store, recv)
    if kind in ('recv', 'both', 'damaged'):
        recv, store, left = replace(chain, kind, recv, store)
    else:
        if kind in ('store', 'flipped'):
            kill(store)
            if kind == 'flipped':
                flip_unsent(chain)
            time.sleep(moment.uniform(0, 1))
            store = store_with_batches(chain)
        recv.send_signal(signal.SIGTERM)
    # a run that lost kept frames has failed
    end(recv, 'braggline-recv', 1 if kind in ('damaged', 'flipped', 'refuse') else 0)
    store.send_signal(signal.SIGTERM)
    end(store, 'braggline-store')
    return left


def replace(chain, kind, recv, store):
    """Kill the receiver, and the store if the kind says so, and start them again. @return the new
    ones, and the batches in the journal in between"""
    if kind == 'damaged':
        # it has the batches of the journal neither in its files nor in its memory
        store.send_signal(signal.SIGSTOP)
        wait('batches in the journal', lambda: len(
            held_images(chain.ring, ledger(chain.ring)['retained'])) >= 12)
    if kind != 'recv':
        kill(store)
    kill(recv)
    left = held(chain.ring)
    chain.before = ledger(chain.ring)
    if kind == 'damaged':
        spoil(chain, left)
    # adopts the batches in the journal, and has a short run of its own
    recv = chain.start_recv(SHORT)
    if kind != 'recv':
        store = chain.start_store()
    return recv, store, left


def flip_unsent(chain):
    """Change a bit in the newest batch of images of a receiver that has no store."""
    def batches():
        return held_images(chain.ring, ledger(chain.ring)['retained'])
    # a store that is not running gets at most 30 batches
    wait('batches that were not sent', lambda: len(batches()) >= 60)
    sequence, rows, first, metadata, _ = batches()[-1]
    flip(chain.ring, metadata + BLOCK - 100)
    chain.spoilt = sequence, rows, first


def check_flipped(chain, found):
    """The frames of the damaged batch are missing, and the ledger of the run counts them."""
    sequence, rows, _ = chain.spoilt
    known = read_ledger(chain)
    left = known['frames'] - rows
    want(known['unwritten'] == rows and known['stored'] == left, known)
    images = [batches for (_, table), batches in found.items() if table == 'images']
    want(len(images) == 1 and sequence not in images[0], images)
    want(sum(images[0].values()) == left, images)
    return [left]


def spoil(chain, left):
    """Change a bit of the newest batch of images whose rows are in the journal."""
    sequence, rows, first, _, body = held_images(chain.ring, chain.before['retained'])[-1]
    flip(chain.ring, body + 100)
    chain.spoilt = sequence, rows, first
    want(left[(chain.before['incarnation'], 'images')].pop(sequence) == rows, left)


def check_spoilt(chain, found):
    """The ledger counts the frames of the damaged batch. Its bytes are in a file."""
    sequence, rows, first = chain.spoilt
    images = {key: batches for key, batches in found.items() if key[1] == 'images'}
    of_dead = images[(chain.before['incarnation'], 'images')]
    want(sorted([*of_dead, sequence]) == list(range(len(of_dead) + 1)), sequence, of_dead)
    known = ledgers(f'{chain.where}/run', 'chain')
    want([one['frames']['unwritten'] for one in known] == [rows, 0], known)
    run = known[-1]['run']
    want(run['balanced'] == 1 and run['unwritten'] == rows, run)
    # images after the damaged batch belong to frames whose rows were not put
    behind = sum(rows for number, rows in of_dead.items() if number > sequence)
    total = sum(sum(b.values()) for b in images.values())
    want(run['stored'] == total - behind, run, total, behind)
    saved = f'{chain.where}/run/journal-{0:016x}.quarantine'
    want(os.stat(saved).st_mode & 0o777 == 0o600, 'mode of', saved)
    with open(saved, 'rb') as file:
        text = file.read(512).split(b'\0')[0].decode()
    line = f'run chain, images {sequence}, frames {first} to {first + rows - 1}'
    want(f'its body is damaged; {line}' in text, text)
    with open(chain.logs[2], encoding='ascii') as log:
        log = log.read()
    want(line in log and saved in log, log)


def abandon(chain, store, recv):
    """Both are killed, and only the store is restarted: it completes the files."""
    kill(store)
    kill(recv)
    left = held(chain.ring)
    store = chain.start_store(files__idle_s=1)
    wait('complete files', lambda: not parts(chain.stored))
    store.send_signal(signal.SIGTERM)
    end(store, 'braggline-store')
    subprocess.run([f'{chain.build}/app/store/braggline-store', 'verify', '--quiet', chain.stored],
                   check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    return left


def check_abandoned(chain, left):
    """Batches that were durable are in complete files, the rest is in the journal."""
    found = stored(chain.stored)
    for stream, batches in found.items():
        sequences = sorted(set(batches) | set(left.get(stream, {})))
        want(sequences == list(range(len(sequences))), stream, 'has gaps:', *sequences)
    return [sum(b.values()) for (_, table), b in found.items() if table == 'images']


def read_ledger(chain):
    """The ledger of the last receiver."""
    found = ledgers(f'{chain.where}/run', 'chain')
    want(found[-1]['run']['balanced'] == 1, found)
    want(found[-1]['run']['frames'] == sum(one['frames']['frames'] for one in found), found)
    return found[-1]['frames']


def check_ladder(chain, kind):
    """Every kept batch is exactly once in the files of the store or of the receiver."""
    found = stored(chain.stored, chain.spilled)
    spilled = stored(chain.spilled)
    known = read_ledger(chain)
    want(known['balanced'] == 1, known)
    for what, batches, column in (('spilled', spilled, 'spilled'),
                                  ('in files', found, 'kept')):
        known['kept'] = known['stored'] + known['spilled']
        rows = sum(sum(b.values()) for (_, table), b in batches.items() if table == 'images')
        want(rows == known[column] and rows > 0, what, rows, known)
    want(known['unretained'] == known['frames'] - known['kept'], known)
    want((known['unretained'] > 0) == (kind == 'refuse'), known)
    return [known['stored'], known['spilled'], known['unretained']]


def check_lost(chain, found):
    """Frames of the killed receiver are in its files, or are counted as lost."""
    before, lost = chain.before, read_ledger(chain)
    if before['version'] == 0:
        return  # killed before its first ledger
    want(before['running'] == 1, before)
    rows = sum(found.get((before['incarnation'], 'frames'), {}).values())
    # A batch that was put after the last ledger is adopted, too. There may be batches before the
    # first ledger of the run, which names the first frame: frames count from 1.
    first = max(before['first'], 1)
    want(rows == 0 or rows >= before['retained'] - first + 1, rows, before)
    seen = max(before['last'], rows)
    want(lost['lost_at_restart'] == seen - rows, lost, before, rows)
    want(lost['lost_while_down'] == 0 and lost['balanced'] == 1, lost)
    want(lost['frames'] == SHORT + lost['lost_at_restart'], lost)


def check(chain, kind, left):
    if kind in LADDER:
        return check_ladder(chain, kind)
    if kind == 'gone':
        return check_abandoned(chain, left)
    found = stored(chain.stored)
    for key, batches in left.items():
        for sequence, rows in batches.items():
            want(found.get(key, {}).get(sequence) == rows, key, sequence, 'was held and is lost')
    if kind == 'flipped':
        return check_flipped(chain, found)
    if kind == 'damaged':
        check_spoilt(chain, found)
    for (incarnation, table), batches in found.items():
        want(kind == 'damaged' or sorted(batches) == list(range(len(batches))), f'{incarnation:x}',
             table, 'has gaps:', sorted(batches))
    rows = sorted(sum(b.values()) for (_, table), b in found.items() if table == 'images')
    if kind in ('none', 'store'):
        frames = read_ledger(chain)['frames']
        want(rows == [frames], f'images: {rows} rows, expected {frames}')
    else:
        check_lost(chain, found)
        # no frames of the first run, if it was killed that early
        want(SHORT in rows and len(rows) <= 2, f'images: {rows} rows, expected {SHORT} of the second run')
    return rows


def main():
    build = os.path.abspath(sys.argv[1])
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    seed = int(os.environ.get('STORE_SEED', os.getpid()))
    print(f'STORE_SEED={seed}', flush=True)
    moment = random.Random(seed)
    for number in range(rounds):
        for kind in ('none', 'store', 'flipped', 'recv', 'both', 'damaged', 'gone', *LADDER):
            with tempfile.TemporaryDirectory() as where:
                chain = Chain(build, where, kind)
                try:
                    left = play(chain, kind, moment)
                    rows = check(chain, kind, left)
                except AssertionError:
                    for log in chain.logs:
                        with open(log, encoding='ascii', errors='replace') as out:
                            print(f'---- {log}', *out.read().splitlines()[-30:], sep='\n')
                    raise
                finally:
                    if os.path.exists(chain.ring):
                        os.unlink(chain.ring)
            print(f'{number}: {kind}: {sum(len(b) for b in left.values())} batches adopted, '
                  f'images of {rows} rows', flush=True)


if __name__ == '__main__':
    main()
