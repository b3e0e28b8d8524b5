#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A simulated site: detectors, receivers and stores as programs on one machine, connected by a
simulated wire, and checks of the files that they leave. It runs in its own network namespace."""

import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import background
import chain
from cases import want
from damage import Damage
from receiver import Telemetry
from wire import Wire, link, unlink

LCORES = f'0@(0-{os.cpu_count() - 1})'
# rings consist of whole blocks of pages; a frame fits a packet (8,282 bytes) and is no larger than
# an mbuf
DETECTOR = 'blocksz=1069056,framesz=8352,framecnt=2048,qpairs=1'
ROCE = 'framecnt=1024'
RATE = 50     # frames/s
ROWS = 64     # rows read out of a module: 16 packets, 131,072 bytes
DISTINCT = 50
SECONDS = 60  # limit for most waits
# receivers with gangs on a GPU: WORLD_GPU=gpu_cuda0,device=0 WORLD_KERNEL=cuda
GPU = os.environ.get('WORLD_GPU', 'gpu_host0')
KERNEL = os.environ.get('WORLD_KERNEL', 'host')


class Steps:
    """Iterates over fail points in order, repeatedly. After the first pass, every second result is
    a needed fail point at which no process has died yet, if there is one."""

    def __init__(self, steps, needed=None):
        self.steps = list(steps)
        self.needed = self.steps if needed is None else needed
        self.reached = set()
        self.turn = 0
        self.again = 0

    def never(self):
        return [step for step in self.needed if step not in self.reached]

    def __next__(self):
        never = self.never()
        if never and self.turn >= len(self.steps) and self.again < self.turn - len(self.steps):
            self.again += 1
            return never[self.again % len(never)]
        self.turn += 1
        return self.steps[(self.turn - 1) % len(self.steps)]

    def note(self, step, reached):
        if reached:
            self.reached.add(step)


class World:
    """One simulated site. Its processes are named detector0, recv0, store0 and so on; detectorN
    sends to recvN."""

    READY = {'detector': '', 'recv': 'packets in', 'store': 'listening'}

    def __init__(self, build, where, seed, receivers, stores, telemetry, spill, guests,
                 settings):
        self.build = build
        self.where = where
        self.random = random.Random(seed)
        self.receivers = receivers
        self.stores = stores
        self.telemetry = telemetry
        self.spill = spill
        of_stores = {k: v for k, v in settings.items() if k.startswith(('store__', 'files__'))}
        self.more = {'store': of_stores,
                     'recv': {k: v for k, v in settings.items() if k not in of_stores}}
        self.directories = [f'{where}/stored{i}' for i in range(stores)]
        self.held = {}      # all batches that were seen in a journal
        self.refusing = set()  # incarnations that refused batches because their journal was full
        self.process = {}
        self.logs = {}
        self.begins = {}    # offset in the log where the current process begins
        self.damaged = Damage(build, self.random)
        self.kills = 0
        self.recv_kills = 0
        self.disks = set()
        self.wire = Wire(receivers + stores + guests, seed)
        for i in range(receivers):
            link(f'd{i}', 8 + i, f'r{i}', 12 + i)
        self.keys({**{f'recv{i}': i + 1 for i in range(receivers)}, 'hostile': 666})

    def keys(self, receiver_ids):
        """Make a key for each name, and the keyring of all stores."""
        with open(f'{self.where}/keys.ini', 'w', encoding='ascii') as ring:
            os.chmod(ring.name, 0o600)
            for name, receiver_id in receiver_ids.items():
                with open(f'{self.where}/{name}.key', 'wb') as key:
                    os.chmod(key.name, 0o600)
                    key.write(os.urandom(64))
                ring.write(f'[receiver {name}]\nkey = {name}.key\nreceiver_ids = {receiver_id}\n')

    @staticmethod
    def ring(number):
        return f'/dev/shm/braggline_world_{os.getpid()}_{number}'

    def spilled(self, number):
        return f'{self.where}/spilled{number}'

    @staticmethod
    def prefix(name):
        return f'braggline_world_{os.getpid()}_{name}'

    def disk(self, number, megabytes):
        """Mount a file system of this size as a store's directory, or change its size."""
        where = self.directories[number]
        os.makedirs(where, exist_ok=True)
        more = ',remount' if where in self.disks else ''
        done = subprocess.run(['mount', '-t', 'tmpfs', '-o', f'size={megabytes}m{more}', 'none',
                               where], check=False, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            print('SKIPPED: a small file system: mount:', done.stderr.strip())
            sys.exit(77)
        self.disks.add(where)

    def ask(self, name):
        """Telemetry client of a receiver or store."""
        return Telemetry(self.prefix(name), self.process[name],
                         '/braggline/store' if name.startswith('store') else '/braggline/info')

    def port(self, name):
        """Number of a program's port of the wire."""
        return int(name[-1]) + (self.receivers if name.startswith('store') else 0)

    def start(self, name, program, eal, words, **environment):
        log = f'{self.where}/{name}.log'
        self.logs[name] = log
        with open(log, 'a', encoding='ascii') as out:
            begin = self.begins[name] = out.tell()
            self.process[name] = background.start(
                [f'{self.build}/{program}', '--no-huge', '--no-pci',
                 *(('--file-prefix', self.prefix(name)) if self.telemetry else
                   ('--no-telemetry', '--no-shconf')),
                 '--log-level', 'lib.eal:warning', *eal, '--', *words],
                stdout=out, stderr=out, env={**os.environ, **environment})
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

    def start_detector(self, number):
        where = f'{self.where}/detector{number}'
        return self.start(f'detector{number}', 'app/detector/braggline-detector', [
            '-m', '64', '--lcores', LCORES, '--vdev', f'net_af_packet0,iface=d{number},{DETECTOR}'], [
                '--port', 'net_af_packet0', '--rows', str(ROWS), '--distinct', str(DISTINCT),
                '--rate', str(RATE), '--hit-fraction', '0.7', '--seed', str(number + 1), '--loop',
                '--truth', f'{where}/truth.csv'])

    def calibrate(self, number):
        """Make the calibration of a detector for its receiver."""
        where = f'{self.where}/detector{number}'
        os.mkdir(where)
        subprocess.run([f'{self.build}/app/detector/braggline-detector', '--rows', str(ROWS),
                        '--seed', str(number + 1), '--calibration', where], check=True,
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)

    def start_recv(self, number, **environment):
        where = f'{self.where}/detector{number}'
        stores = ','.join(f'10.0.0.{100 + i}' for i in range(self.stores))
        spill = {'egress__spill': self.spilled(number)} if self.spill else {}
        return self.start(f'recv{number}', 'app/recv/braggline-recv', [
            '-m', '256', '--lcores', LCORES, '--vdev', GPU,
            '--vdev', f'net_af_packet0,iface=r{number},{DETECTOR}',
            '--vdev', f'net_af_packet1,iface=p{number},{ROCE}'], [
                '--quiet', '--set', 'port 0.device=net_af_packet0', '--set', 'port 0.mtu=1500',
                '--set', 'port 0.descriptors=512', *self.settings(
                    detector__rows=ROWS, gpu__kernel=KERNEL, frames__slots=16,
                    frames__backpressure='wait',
                    calibration__gain=f'{where}/gain_m%d.bin',
                    calibration__pedestal_g0=f'{where}/pedestal_g0_m%d.bin',
                    calibration__pedestal_g1=f'{where}/pedestal_g1_m%d.bin',
                    calibration__pedestal_g2=f'{where}/pedestal_g2_m%d.bin',
                    calibration__mask=f'{where}/mask_m%d.bin', veto__dry_run='yes',
                    run__name='run', output__directory=where, output__receiver_id=number + 1,
                    output__frames_interval=4, output__images_interval=2, output__preview='off',
                    egress__device=f'roce:port=net_af_packet1,ip=10.0.0.{number + 1}/24',
                    egress__stores=stores, egress__identity=f'recv{number}',
                    egress__key=f'{self.where}/recv{number}.key',
                    egress__journal=self.ring(number), egress__journal_mib=64, egress__rate_mb_per_s=2,
                    egress__hold_ms=5000, egress__batch_mib=1, egress__failover_ms=500,
                    egress__end_ms=SECONDS * 1000), *self.settings(**spill, **self.more['recv'])], **environment)

    def start_store(self, number, **environment):
        return self.start(f'store{number}', 'app/store/braggline-store', [
            '-m', '64', '--lcores', LCORES, '--vdev',
            f'net_af_packet0,iface=p{self.receivers + number},{ROCE}'], [*self.settings(
                store__device=f'roce:port=net_af_packet0,ip=10.0.0.{100 + number}/24',
                store__keys=f'{self.where}/keys.ini', store__memory_mib=64,
                store__heartbeat_ms=100, store__silence_ms=1000,
                files__directory=self.directories[number], files__sync_ms=10),
                *self.settings(**self.more['store'])], **environment)

    def start_guest(self, name, program, number, *words):
        """Start another program on the wire; its arguments are a device and the address of the
        first store."""
        port = self.receivers + self.stores + number
        return self.start(name, program, [
            '-m', '64', '--lcores', LCORES, '--vdev', f'net_af_packet0,iface=p{port},{ROCE}'], [
                f'roce:port=net_af_packet0,ip=10.0.0.{200 + number}/24', '10.0.0.100', *words])

    def begin(self, name, **environment):
        start = {'detector': self.start_detector, 'recv': self.start_recv,
                 'store': self.start_store}[name[:-1]]
        return start(int(name[-1]), **environment)

    def launch(self, *names, **environment):
        """Start all of them, then wait until each is ready."""
        for name, begin in [(name, self.begin(name, **environment)) for name in names]:
            self.wait_for(name, begin, self.READY[name[:-1]])

    def kill(self, *names):
        for name in names:
            self.process[name].send_signal(signal.SIGKILL)
        for name in names:
            self.process[name].wait()
            self.dead(name)

    def hold(self, name):
        """Stop a process with SIGSTOP."""
        self.process[name].send_signal(signal.SIGSTOP)

    def go_on(self, name):
        self.process[name].send_signal(signal.SIGCONT)

    def dies(self, name, seconds):
        """@return whether the process dies of SIGKILL within this time"""
        try:
            code = self.process[name].wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        want(code == -signal.SIGKILL, name, 'ended with status', code)
        self.dead(name)
        return True

    def die_at(self, name, step, count, seconds, meanwhile=lambda begin: None):
        """Kill a process if it runs, and restart it so that it dies at a fail point. Calls
        meanwhile(offset where its log begins). @return whether it reached the fail point in this
        time"""
        if self.process[name].poll() is None:
            self.kill(name)
        meanwhile(self.begin(name, BRAGGLINE_FAIL_POINT=f'{step}:{count}'))
        reached = self.dies(name, seconds)
        if not reached:
            self.kill(name)
        return reached

    def damage(self, name):
        """Damage a batch in the files of a store that is dead. @return whether there was one"""
        return self.damaged.hit(self.directories[int(name[-1])])

    def dead(self, name):
        self.kills += 1
        if not name.startswith('recv'):
            return
        self.recv_kills += 1
        for stream, batches in chain.held(self.ring(int(name[-1]))).items():
            self.held.setdefault(stream, {}).update(batches)
        self.note_refusal(name)

    def note_refusal(self, name):
        """Record that a receiver refused batches because its journal stays full, so that gaps are
        expected."""
        if name.startswith('recv') and self.said(name, self.begins[name], '-> refuse'):
            self.refusing.add(chain.ledger(self.ring(int(name[-1])))['incarnation'])

    def end(self, name):
        process = self.process[name]
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(2 * SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f'{name} does not end') from None
        # a run that lost kept frames or rows has failed
        lost = name.startswith('recv') and self.said(name, self.begins[name], 'not written: ')
        want(code == int(lost), name, 'ended with status', code)
        self.note_refusal(name)

    def close(self):
        for process in self.process.values():
            if process.poll() is None:
                process.kill()
                process.wait()
        for name in self.process:
            shutil.rmtree(f'/var/run/dpdk/{self.prefix(name)}', ignore_errors=True)
        self.wire.close()
        for i in range(self.receivers):
            unlink(f'd{i}')
            if os.path.exists(self.ring(i)):
                os.unlink(self.ring(i))
        for where in self.disks:
            subprocess.run(['umount', where], check=True)

    def tool(self, *words, **environment):
        """Run a command of braggline-store on directories. @return whether it died at its fail
        point"""
        done = subprocess.run([f'{self.build}/app/store/braggline-store', *words], check=False,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True,
                              env={**os.environ, **environment})
        died = bool(environment) and done.returncode == -signal.SIGKILL
        want(died or done.returncode == 0, *words, 'ended with status', done.returncode,
             done.stdout)
        self.kills += died
        return died

    def sources(self, rings):
        """Sources of an import: spilled files and, if `rings` is set, journals."""
        numbers = range(self.receivers)
        return [*filter(os.path.isdir, map(self.spilled, numbers)),
                *(map(self.ring, numbers) if rings else ())]

    def finish(self, abandon):
        """End all programs in order; with `abandon` the receivers are killed and do not come back.
        """
        rings = [self.ring(i) for i in range(self.receivers)]
        receivers = [name for name in self.process if name.startswith('recv')]
        for name in sorted(self.process):
            if abandon and name in receivers:
                self.kill(name)
            else:
                self.end(name)
        sources = self.sources(rings=abandon)
        if sources:
            self.tool('import', '--to', self.directories[0], *sources)
        self.tool('reconcile', *(w for ring in rings for w in ('--journal', ring)),
                  *self.directories)
        if not self.damaged.hits:
            self.tool('verify', '--quiet', *self.directories)

    def check(self):
        """Check the content of the files after all programs have ended."""
        found = chain.stored(*self.directories, damage=self.damaged)
        want(found, 'nothing is stored')
        hit = {(h.stream, h.sequence) for h in self.damaged.gone(found)}
        if self.damaged.hits:
            self.damaged.check(found, *self.directories)
        for stream, batches in self.held.items():
            for sequence, rows in batches.items():
                want((stream, sequence) in hit or
                     found.get(stream, {}).get(sequence) == rows, *stream, sequence,
                     'was held and is lost')
        refused = 0
        for stream, batches in found.items():
            gaps = [n for n in chain.gaps(batches) if (stream, n) not in hit]
            if gaps and stream[0] in self.refusing:
                print('refused:', f'{stream[0]:016x}', stream[1], *gaps)
                refused += len(gaps)
                continue
            want(not gaps, f'{stream[0]:016x}', stream[1], 'has gaps:', *gaps)
        for number in range(self.receivers):
            self.check_frames(number, refused, len(hit))

    def check_frames(self, number, refused, hit):
        """Check the rows of a receiver; refused, hit: at most so many batches are missing."""
        truth = chain.truth(f'{self.where}/detector{number}/truth.csv')
        seen = {'frames': set(), 'images': set()}
        lost = 0
        for _, table, path in chain.files(*self.directories):
            if chain.receiver_id(path) != number + 1:
                continue
            for batch in chain.batches(path, self.damaged):
                for frame in batch.column(chain.FRAME, 'Q'):
                    want(frame not in seen[table], 'frame', frame, 'is twice in', table)
                    seen[table].add(frame)
                if table == 'frames':
                    lost += chain.compare(batch, truth)
        frames = sorted(seen['frames'])
        gaps = sum(b != a + 1 for a, b in itertools.pairwise(frames))
        want(gaps <= self.recv_kills + refused + hit, gaps, 'gaps by', self.recv_kills,
             'deaths of receivers,', refused, 'batches refused and', hit, 'damaged')
        print(f'recv{number}: {len(frames) - lost} of {frames[-1] - frames[0] + 1} frames are '
              f'there once, {lost} did not arrive, {gaps} gaps; {len(seen["images"])} images')


def inside(main):
    """Call main in new network and mount namespaces: there is no other traffic, and its mounts end
    with it."""
    if 'WORLD_INSIDE' in os.environ:
        main()
        return
    if os.geteuid() != 0:
        print('SKIPPED: root, for a network namespace and mounts')
        sys.exit(77)
    os.environ['WORLD_INSIDE'] = '1'
    os.execvp('unshare', ['unshare', '--net', '--mount', sys.executable, *sys.argv])


def play(build, receivers, stores, story, look=lambda world: None, before=lambda world: None,
         abandon=False, telemetry=False, spill=False, guests=0, **settings):
    """Run a scenario in a simulated site. before(world) prepares it, and story(world) causes the
    events. Then all programs end, the directories are reconciled, and the files are checked;
    look(world) checks more."""
    seed = int(os.environ.get('WORLD_SEED', os.getpid()))
    print(f'WORLD_SEED={seed}', flush=True)
    with tempfile.TemporaryDirectory() as where:
        world = World(os.path.abspath(build), where, seed, receivers, stores, telemetry,
                      spill, guests, settings)
        kinds = [[f'{kind}{i}' for i in range(n)] for kind, n in (
            ('detector', receivers), ('recv', receivers), ('store', stores))]
        try:
            before(world)
            for number in range(receivers):
                world.calibrate(number)
            # detectors last: net_af_packet receives from all devices until its socket is bound to
            # one
            for names in reversed(kinds):
                world.launch(*names)
            story(world)
            world.finish(abandon)
            world.check()
            look(world)
            return world
        except AssertionError:
            for name in world.logs:
                # the whole output of the last process, and some lines of earlier ones
                with open(world.logs[name], encoding='ascii', errors='replace') as out:
                    out.seek(world.begins[name])
                    last = len(out.read().splitlines())
                    out.seek(0)
                    print(f'---- {name}', *out.read().splitlines()[-max(400, last):], sep='\n')
            raise
        finally:
            world.close()
