#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Transfer between providers: one of braggline-recv and braggline-store uses the roce provider on
this machine, the other the verbs provider on the kernel's rdma_rxe in a guest.

usage: store_verbs_test.py BUILDDIR [kill]

Each direction runs once, in one guest: every frame of the detector is in the files exactly once, as
it was made, and all programs end in order. kill: the guest's program is killed during the run, and
restarted.
"""

import configparser
import os
import signal
import subprocess
import sys
import tempfile
import time

from rdma_peer import OURS, THEIRS, outcome, pick_cpus
from rxe_ends import NIC, Ends
from rxe_vm import Broken

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../smoke'))
import chain  # noqa: E402
from cases import want

ROWS = 64       # of the module: 16 packets a frame
PERIOD = 20     # frames of the capture, which is repeated
RATE = 20       # frames/s: low, as an emulated CPU is slow
# Many small batches; and batches of 14.7 and 6.3 MB, above and below the largest message that
# rdma_rxe sends, 8 MiB.
SMALL = {'output.format': 'csr', 'output.images_interval': 2}
LARGE = {'output.format': 'image', 'output.images_interval': 64}
FRAMES, FRAMES_LARGE, FRAMES_KILLED = 40, 10, 160   # of a run
AGAIN = 20      # of the second run, after the receiver was killed
SECONDS = 300   # limit for most waits
MEMORY = '256'  # MiB of a program

# Shell in the guest. Programs that poll are started as sessions, because Linux schedules by
# session.
START = 'setsid {} & pid=$!\n'
AWAIT = 'until [ -e /share/{} ] || ! [ -d /proc/$pid ]; do usleep 100000; done\n'
KILL = AWAIT.format('now') + 'kill -9 $pid || exit 99\nwait $pid\n'


def settings(values):
    for key, value in values.items():
        yield from ('-s', f'{key}={value}')


def receiver(capture, where, device, store, ring, frames, output):
    """Command line of a braggline-recv without EAL's options."""
    return ['--vdev', 'gpu_host0', '--vdev',
            f'net_replay0,file={capture}/in.pcap,loops=0,rewrite=42:8:le:{PERIOD},rate={RATE * 16}',
            '--', '--quiet', *settings({
                'detector.rows': ROWS, 'port 0.device': 'net_replay0', 'run.name': 'run',
                'run.frames': frames, 'run.first_frame': 1,
                'calibration.gain': f'{capture}/gain_m%d.bin',
                'calibration.pedestal_g0': f'{capture}/pedestal_g0_m%d.bin',
                'calibration.pedestal_g1': f'{capture}/pedestal_g1_m%d.bin',
                'calibration.pedestal_g2': f'{capture}/pedestal_g2_m%d.bin',
                'calibration.mask': f'{capture}/mask_m%d.bin', 'veto.dry_run': 'yes',
                'output.directory': where, 'output.frames_interval': 8, **output,
                'output.preview': 'off', 'output.calibration': 'no', 'egress.device': device,
                'egress.stores': store, 'egress.identity': 'recv',
                'egress.key': f'{capture}/key', 'egress.journal': ring,
                'egress.journal_mib': 128, 'egress.rate_mb_per_s': 6, 'egress.end_ms': SECONDS * 1000})]


def keeper(capture, directory, device):
    """Command line of a braggline-store without EAL's options."""
    return ['--', *settings({
        'store.device': device, 'store.keys': f'{capture}/keys.ini', 'store.memory_mib': 256,
        'store.silence_ms': 10000, 'files.directory': directory, 'files.sync_ms': 20})]


class Rig(Ends):
    """A capture, and receiver and store."""

    def __init__(self, build, where, kill):
        super().__init__(build, where, f'0@({pick_cpus()})', SECONDS)
        self.kill = kill
        self.ring = f'/dev/shm/braggline_store_verbs_{os.getpid()}'     # on either machine
        with open(f'{where}/key', 'wb') as key:
            key.write(os.urandom(64))
        with open(f'{where}/keys.ini', 'w', encoding='ascii') as keys:
            keys.write('[receiver recv]\nkey = key\nreceiver_ids = 0\n')
        os.chmod(f'{where}/key', 0o600)
        os.chmod(f'{where}/keys.ini', 0o600)
        subprocess.run(
            [f'{build}/app/detector/braggline-detector', '--frames', str(PERIOD), '--rows',
             str(ROWS), '--hit-fraction', '0.5', '--pcap', f'{where}/in.pcap', '--truth',
             f'{where}/truth.csv', '--calibration', where], check=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def tell(self, name):
        """Create a file that a script of the guest waits for."""
        with open(f'{self.where}/{name}', 'w', encoding='ascii'):
            pass

    def says(self, process, text):
        def done():
            with open(self.logs[-1], encoding='ascii', errors='replace') as log:
                return text in log.read()
        self.until(done, process, f'"{text}"')

    @staticmethod
    def job_ends(job):
        if job.wait():
            raise Broken(f'the guest: status {job.status}')

    def close(self):
        super().close()
        if os.path.exists(self.ring):
            os.unlink(self.ring)


def from_guest(rig):
    """braggline-recv over verbs, braggline-store over roce."""
    stored = f'{rig.where}/roce'
    frames, output = (FRAMES_KILLED, SMALL) if rig.kill else (FRAMES_LARGE, LARGE)
    store = rig.here('store', 'store/braggline-store', MEMORY,
                     keeper(rig.where, stored, f'roce:port={NIC},ip={OURS}/24,mtu=4096'))
    rig.boot('app/recv/braggline-recv', 'app/store/braggline-store')
    rig.says(store, 'listening')

    def recv(frames):
        return START.format(rig.there('braggline-recv', MEMORY, receiver(
            '/share', '/share/verbs_run', 'verbs:rxe0', OURS, rig.ring, frames, output)))

    text = recv(frames)
    if rig.kill:
        text += KILL + f'cp {rig.ring} /share/left\n' + recv(AGAIN)
    job = rig.guest.start(rig.script('recv', text + 'wait $pid\n'), SECONDS)
    if rig.kill:
        rig.until(lambda: sum(map(chain.has_batch, chain.parts(stored))) == len(chain.TABLES),
                  store, 'a batch of each table')
        rig.tell('now')
    rig.job_ends(job)
    store.send_signal(signal.SIGTERM)
    rig.ends(store, 'braggline-store')
    if rig.kill:
        os.unlink(f'{rig.where}/now')
        check_adopted(rig, stored, frames)
    else:
        check_run(rig, stored, frames, 'verbs_run')


def to_guest(rig):
    """braggline-recv over roce, braggline-store over verbs."""
    frames = FRAMES_KILLED if rig.kill else FRAMES
    store = START.format(rig.there('braggline-store', MEMORY,
                                   keeper('/share', '/tmp/stored', 'verbs:rxe0')))
    # the guest's link is up when ours is
    recv = rig.here('recv', 'recv/braggline-recv', MEMORY, [
        '--log-level=braggline.xfer:debug', *receiver(
            rig.where, f'{rig.where}/roce_run', f'roce:port={NIC},ip={OURS}/24,mtu=4096', THEIRS,
            rig.ring, frames, SMALL)])
    text = store + KILL + store if rig.kill else store
    job = rig.guest.start(rig.script('store', text + AWAIT.format('stop') + 'kill $pid\n'
                                     'wait $pid && cp -r /tmp/stored /share/verbs\n'), SECONDS)
    if rig.kill:
        rig.says(recv, '-> up')
        time.sleep(1)
        rig.tell('now')
    rig.ends(recv, 'braggline-recv')
    rig.tell('stop')
    rig.job_ends(job)
    check_run(rig, f'{rig.where}/verbs', frames, 'roce_run')


def rows(rig, directory, frames):
    """Check that {(incarnation, table): rows} equals the detector's frames, without gaps from 1 on.
    """
    truth = chain.truth(f'{rig.where}/truth.csv')
    truth = {n: truth[(n - 1) % PERIOD + 1] for n in range(1, frames + 1)}
    found = {}
    for incarnation, table, path in chain.files(directory):
        for batch in chain.batches(path):
            seen = found.setdefault((incarnation, table), [])
            seen += batch.column(chain.FRAME, 'Q')
            if table == 'frames':
                want(chain.compare(batch, truth) == 0, 'frames did not arrive')
    for stream, seen in found.items():
        want(seen == list(range(1, len(seen) + 1)), *stream, seen)
    return {stream: len(seen) for stream, seen in found.items()}


def check_run(rig, directory, frames, run):
    """All frames of one run are there, and its ledger counts them."""
    found = rows(rig, directory, frames)
    want(sorted(table for _, table in found) == sorted(chain.TABLES) and
               set(found.values()) == {frames}, found, 'expected', frames)
    ini = configparser.ConfigParser()
    ini.read(f'{rig.where}/{run}/run_ledger.ini')
    ledger = {k: int(v) for k, v in ini['frames'].items()}
    want(ledger['balanced'] == 1 and ledger['stored'] == ledger['frames'] == frames,
               ledger)


def check_adopted(rig, directory, frames):
    """Check the batches that the receiver held when it was killed, the earlier ones, and its second
    run."""
    found, stored = rows(rig, directory, frames), chain.stored(directory)
    for stream, batches in chain.held(f'{rig.where}/left').items():
        for sequence, count in batches.items():
            want(stored.get(stream, {}).get(sequence) == count, *stream, sequence,
                       'was held and is lost')
    for table in chain.TABLES:
        of_table = sorted(count for (_, name), count in found.items() if name == table)
        want(len(of_table) == 2 and AGAIN in of_table, table, found)


def test(build, kill):
    with tempfile.TemporaryDirectory() as where, \
            Rig(os.path.abspath(build), where, kill) as rig:
        rig.play(from_guest, to_guest)


def main():
    if len(sys.argv) < 2 or sys.argv[2:] not in ([], ['kill']):
        print(__doc__, file=sys.stderr)
        return 2
    return outcome(test, sys.argv[1], len(sys.argv) > 2)


if __name__ == '__main__':
    sys.exit(main())
