#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""kill -9, again and again: a detector that goes on, a receiver, two stores, and the wire between.

Processes die at random moments and at every named step (fail points), alone and together, links are
cut, one frame in a hundred is lost. In the end, after `braggline-store reconcile`:

- every batch that was ever seen held in the receiver's retention ring is in the files,
- each stream's batches are in the files of both stores once, without gaps,
- each frame is there at most once, as the detector made it; frames miss only where the receiver was
  killed.

usage: crash_test.py BUILD-DIR [KILLS]; CRASH_SEED repeats kinds and moments
"""

import csv
import glob
import itertools
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

import chain
from chain import want
from wire import Wire

LCORES = f'0@(0-{os.cpu_count() - 1})'
# rings hold whole blocks of pages, frames hold a packet (8,282 bytes) and no more than an mbuf
DETECTOR = 'blocksz=1069056,framesz=8352,framecnt=2048,qpairs=1'
ROCE = 'framecnt=1024'
RATE = 50     # frames/s
ROWS = 64     # of a module: 16 packets, 131,072 bytes
DISTINCT = 50
SECONDS = 60  # patience
# a process of this name dies; a link of this name is cut
KINDS = (('recv',), ('store0',), ('store1',), ('store0', 'store1'), ('recv', 'store0'),
         ('recv', 'store0', 'store1'), ('link0',), ('link1',), ('link recv',), ('loss',))


class World:
    def __init__(self, build, where, seed):
        self.build = build
        self.where = where
        self.random = random.Random(seed)
        self.name = f'braggline_crash_{os.getpid()}'
        self.ring = f'/dev/shm/{self.name}'
        self.held = {}      # batches that were ever seen held
        self.process = {}
        self.logs = {}
        self.kills = 0
        self.recv_kills = 0
        # 0: receiver, 1 and 2: stores
        self.wire = Wire(3, seed)
        for command in ('link add d0 type veth peer name d1',
                        'link set d0 addrgenmode none mtu 9000 up',
                        'link set d1 addrgenmode none mtu 9000 up'):
            subprocess.run(['ip', *command.split()], check=True, stdin=subprocess.DEVNULL)
        with open(f'{where}/key', 'wb') as key:
            key.write(os.urandom(64))
        os.chmod(f'{where}/key', 0o600)

    def start(self, name, program, eal, words, **environment):
        log = f'{self.where}/{name}.log'
        self.logs[name] = log
        with open(log, 'a', encoding='ascii') as out:
            begin = out.tell()
            self.process[name] = subprocess.Popen(
                [f'{self.build}/app/{program}', '--no-huge', '--no-pci', '--no-telemetry',
                 '--no-shconf', '--log-level', 'lib.eal:warning', *eal, '--', *words],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                env={**os.environ, **environment})
        return begin

    def wait_for(self, name, begin, text):
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            if self.said(name, begin, text):
                return
            want(self.process[name].poll() is None, name, 'ended by itself')
            time.sleep(0.01)
        raise AssertionError(f'{name} does not say "{text}"')

    def said(self, name, begin, text):
        with open(self.logs[name], encoding='ascii', errors='replace') as out:
            out.seek(begin)
            return text in out.read()

    def settings(self, **values):
        for key, value in values.items():
            yield from ('--set', f'{key.replace("__", ".")}={value}')

    def start_detector(self):
        where = self.where
        self.start('detector', 'detector/braggline-detector', [
            '-m', '64', '--lcores', LCORES, '--vdev', f'net_af_packet0,iface=d0,{DETECTOR}'], [
                '--port', 'net_af_packet0', '--rows', str(ROWS), '--distinct', str(DISTINCT),
                '--rate', str(RATE), '--hit-fraction', '0.7', '--loop', '--truth',
                f'{where}/truth.csv', '--calibration', where])

    def start_recv(self, **environment):
        where = self.where
        return self.start('recv', 'recv/braggline-recv', [
            '-m', '256', '--lcores', LCORES, '--vdev', 'gpu_host0',
            '--vdev', f'net_af_packet0,iface=d1,{DETECTOR}',
            '--vdev', f'net_af_packet1,iface=p0,{ROCE}'], [
                '--quiet', '--set', 'port 0.device=net_af_packet0', '--set', 'port 0.mtu=1500', '--set',
                'port 0.descriptors=512',
                *self.settings(
                    detector__rows=ROWS, frames__slots=16,
                    calibration__gain=f'{where}/gain_m%d.bin',
                    calibration__pedestal_g0=f'{where}/pedestal_g0_m%d.bin',
                    calibration__pedestal_g1=f'{where}/pedestal_g1_m%d.bin',
                    calibration__pedestal_g2=f'{where}/pedestal_g2_m%d.bin',
                    calibration__mask=f'{where}/mask_m%d.bin', veto__dry_run='yes',
                    run__name='crash', output__directory=f'{where}/run',
                    output__frames_interval=4, output__images_interval=2, output__preview='off',
                    output__calibration='no', egress__device='roce:port=net_af_packet1,ip=10.0.0.1/24',
                    egress__stores='10.0.0.2,10.0.0.3', egress__key=f'{where}/key',
                    egress__ring=self.ring, egress__ring_mb=64, egress__rate_mb=2,
                    egress__hold_ms=5000, egress__batch_mb=1, egress__failover_ms=500,
                    egress__end_ms=SECONDS * 1000)], **environment)

    def start_store(self, number, **environment):
        return self.start(f'store{number}', 'store/braggline-store', [
            '-m', '64', '--lcores', LCORES, '--vdev',
            f'net_af_packet0,iface=p{number + 1},{ROCE}'], self.settings(
                store__device=f'roce:port=net_af_packet0,ip=10.0.0.{number + 2}/24',
                store__key=f'{self.where}/key', store__memory_mb=16, store__number=number + 1,
                store__heartbeat_ms=100, store__silence_ms=500,
                files__directory=f'{self.where}/stored{number}', files__sync_ms=10), **environment)

    def begin(self, name, **environment):
        if name == 'recv':
            return self.start_recv(**environment)
        return self.start_store(int(name[-1]), **environment)

    def launch(self, *names, **environment):
        """Start, all at once, and wait until they are there."""
        for name, begin in [(name, self.begin(name, **environment)) for name in names]:
            while True:
                try:
                    self.wait_for(name, begin, 'retention of' if name == 'recv' else 'listening')
                    break
                except AssertionError:
                    # net_af_packet makes the number of its group from those of process and link
                    if not self.said(name, begin, 'could not set PACKET_FANOUT'):
                        raise
                    begin = self.begin(name, **environment)

    def kill(self, *names):
        for name in names:
            self.process[name].send_signal(signal.SIGKILL)
            self.kills += 1
        for name in names:
            self.process[name].wait()
            if name == 'recv':
                self.recv_kills += 1
                for stream, batches in chain.held(self.ring).items():
                    self.held.setdefault(stream, {}).update(batches)

    def upset(self, kind):
        """One thing that goes wrong, and is put right after a moment."""
        moment = self.random.uniform(0, 0.6)
        if kind == ('loss',):
            self.wire.order('loss', 0.01)
            time.sleep(1)
            self.wire.order('loss', 0)
        elif kind[0].startswith('link'):
            port = {'link recv': 0, 'link0': 1, 'link1': 2}[kind[0]]
            self.wire.order('cut', port)
            time.sleep(self.random.uniform(0.1, 1))
            self.wire.order('join', port)
        else:
            self.kill(*kind)
            time.sleep(self.random.uniform(0, 0.3))
            self.launch(*kind)
        time.sleep(moment)

    def end(self, name):
        process = self.process[name]
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(2 * SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f'{name} does not end') from None
        want(code == 0, name, 'ended with status', code)

    def close(self):
        for process in self.process.values():
            if process.poll() is None:
                process.kill()
                process.wait()
        self.wire.close()
        if os.path.exists(self.ring):
            os.unlink(self.ring)

    def check(self):
        directories = [f'{self.where}/stored{i}' for i in range(2)]
        found = chain.stored(*directories)
        for stream, batches in self.held.items():
            for sequence, rows in batches.items():
                want(found.get(stream, {}).get(sequence) == rows, *stream, sequence,
                     'was held and is lost')
        for stream, batches in found.items():
            gaps = [n for n in range(max(batches) + 1) if n not in batches]
            want(not gaps, *stream, 'has gaps:', *gaps)
        with open(f'{self.where}/truth.csv', newline='', encoding='ascii') as file:
            truth = {int(t['frame']): t for t in csv.DictReader(file)}
        want(found, 'nothing is stored')
        seen = {'frames': set(), 'images': set()}
        lost = 0
        for _, table, path in chain.files(*directories):
            for batch in chain.batches(path):
                for frame in batch.column(chain.FRAME, 'Q'):
                    want(frame not in seen[table], 'frame', frame, 'is twice in', table)
                    seen[table].add(frame)
                if table == 'frames':
                    lost += self.compare(batch, truth)
        frames = sorted(seen['frames'])
        gaps = sum(b != a + 1 for a, b in itertools.pairwise(frames))
        want(gaps <= self.recv_kills, gaps, 'gaps by', self.recv_kills, 'deaths of the receiver')
        print(f'{len(frames) - lost} of {frames[-1] - frames[0] + 1} frames are there once, '
              f'{lost} did not arrive, {gaps} gaps; {len(seen["images"])} images')

    @staticmethod
    def compare(batch, truth):
        """Rows of `frames` with what the detector made; returns how many did not arrive."""
        lost = 0
        for frame, bunch, flags, count, verdict in zip(
                batch.column(chain.FRAME, 'Q'), batch.column(chain.BUNCH, 'Q'),
                batch.column(chain.FLAGS, 'I'), batch.column(chain.BRAGG_COUNT, 'I'),
                batch.column(chain.VERDICT, 'B')):
            if verdict == chain.LOST:
                lost += 1
                continue
            want(int(truth[frame]['bunch_id']) == bunch, frame, bunch, truth[frame])
            want(flags & chain.INCOMPLETE or int(truth[frame]['strong_pixels']) == count, frame,
                 count, truth[frame])
        return lost


def run(build, where, kills, seed):
    world = World(build, where, seed)
    try:
        world.start_detector()
        world.launch('store0', 'store1', 'recv')
        begin = time.monotonic()
        for number in itertools.count():
            if world.kills >= kills:
                break
            kind = KINDS[number % len(KINDS)]
            world.upset(kind)
            if sys.stdout.isatty() or number % 20 == 0:
                print(f'{world.kills} kills, {time.monotonic() - begin:.0f} s: {"+".join(kind)}',
                      flush=True)
        for name in ('detector', 'recv', 'store0', 'store1'):
            world.end(name)
        print(f'{world.kills} kills ({world.recv_kills} of the receiver) in '
              f'{time.monotonic() - begin:.0f} s: {sum(len(b) for b in world.held.values())} '
              'batches were seen held', flush=True)
        world.check()
    except AssertionError:
        for name in world.logs:
            with open(world.logs[name], encoding='ascii', errors='replace') as out:
                print(f'---- {name}', *out.read().splitlines()[-30:], sep='\n')
        raise
    finally:
        world.close()


def main():
    if 'CRASH_INSIDE' not in os.environ:
        # a network namespace of our own: nobody else speaks there, and it goes with us
        if os.geteuid() != 0:
            print('SKIPPED: root, for a network namespace')
            sys.exit(77)
        os.environ['CRASH_INSIDE'] = '1'
        os.execvp('unshare', ['unshare', '--net', sys.executable, *sys.argv])
    seed = int(os.environ.get('CRASH_SEED', os.getpid()))
    print(f'CRASH_SEED={seed}', flush=True)
    with tempfile.TemporaryDirectory() as where:
        run(os.path.abspath(sys.argv[1]), where,
            int(sys.argv[2]) if len(sys.argv) > 2 else 20, seed)


if __name__ == '__main__':
    main()
