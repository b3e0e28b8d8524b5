#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""braggline-detector sends multicast streams to two receivers, each with its own veto, over a switch
of shared memory ports. Each receiver's columns equal those of a run over UDP with the same veto.

usage: multicast_ingest_test.py BUILD-DIR [CASE]...
"""

import configparser
import glob
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import background
from cases import case, run_cases, wait, want
from run_files import FLAG_TIMEOUT, bodies, rows

BUILD = os.path.abspath(sys.argv[1])
FRAMES, MODULES, ROWS = 24, 2, 128
TILES = ROWS // 4
RATE = '50'
NAME = f'bragg{os.getpid()}'
# one keeps what the other rejects
VETOES = ({'veto.strong_min': 20}, {'veto.strong_min': 0, 'veto.strong_max': 19})
MODEL = ('--modules', str(MODULES), '--rows', str(ROWS), '--hit-fraction', '0.5')


def memif(where, number, name='net_memif0', role='client'):
    return ['--vdev', f'{name},role={role},id={number},socket={where}/switch{number}.sock,socket-abstract=no,'
            'bsize=8448,rsize=10']


def eal(name, memory, lcores):
    """Shared memory ports need EAL's shared configuration."""
    return ['--no-huge', '-m', str(memory), '--no-pci', '--no-telemetry', '--file-prefix', f'{NAME}{name}',
            '--log-level', 'lib.eal:warning', '--lcores', f'({lcores})@(0-{os.cpu_count() - 1})']


def run(*command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False, timeout=60)
    want(done.returncode == 0, done.returncode, 'of', ' '.join(command), '\n', done.stdout)
    return done.stdout


def recv(where, name, vdev, device, settings):
    settings = {
        'detector.modules': MODULES, 'detector.rows': ROWS, 'run.name': 'run',
        'run.first_frame': 1, 'run.idle_timeout_ms': 20000,
        'frames.stream_timeout_ms': 2000, 'frames.backpressure': 'wait',
        'output.directory': f'{where}/{name}', 'output.preview': 'off',
        'output.frames_interval': 64, 'output.images_interval': 8, 'output.batch_ms': 60000,
        'calibration.gain': f'{where}/gain_m%d.bin', 'calibration.mask': f'{where}/mask_m%d.bin',
        'port 0.device': device, **settings}
    for gain in range(3):
        settings[f'calibration.pedestal_g{gain}'] = f'{where}/pedestal_g{gain}_m%d.bin'
    command = [f'{BUILD}/app/recv/braggline-recv', *eal(name, 512, '0-3'), '--vdev', 'gpu_host0', *vdev,
               '--', '--quiet']
    for key, value in settings.items():
        command += ['--set', f'{key}={value}']
    return command


def simulate(where):
    run(f'{BUILD}/app/detector/braggline-detector', *MODEL, '--frames', str(FRAMES), '--rate', RATE,
        '--pcap', f'{where}/in.pcap', '--calibration', where)


def over_udp(where, number):
    """What the same packets become over UDP, with the veto of this receiver."""
    run(*recv(where, f'udp{number}', ['--vdev', f'net_replay0,file={where}/in.pcap'], 'net_replay0',
              {'run.frames': FRAMES, **VETOES[number]}))


class Site:
    """Two receivers and a detector at a switch."""

    def __init__(self, where, *options, settings=(), of=({}, {}), policy='wait', frames=FRAMES):
        """@param settings  of both receivers; @param of  of each"""
        self.where = where
        self.place = tempfile.mkdtemp(dir=where)  # of sockets and logs
        self.frames = frames
        self.options = ('--policy', policy, *options)
        self.settings = dict(settings)
        self.sender = None
        self.receivers = []
        with open(f'{self.place}/switch.log', 'w', encoding='utf-8') as log:
            self.switch = background.start(
                [f'{BUILD}/test/smoke/memif_switch', *eal('switch', 256, '0'),
                 *(word for n in range(3) for word in memif(self.place, n, f'net_memif{n}', 'server'))],
                stdout=log, stderr=log)
        self.wait('the switch', lambda: 'ready' in self.log('switch'))
        for number in range(2):
            self.receivers.append(self.begin(
                f'r{number}', recv(where, f'out{number}', memif(self.place, number),
                                   f'roce:port=net_memif0,ip=10.1.2.{number + 1}/16',
                                   {'detector.transport': 'multicast', 'ingest.sender': '10.1.1.1',
                                    'ingest.slots': 128, **VETOES[number], **self.settings,
                                    **of[number]})))
        self.send()

    def begin(self, name, command):
        with open(f'{self.place}/{name}.log', 'a', encoding='utf-8') as log:
            return background.start(command, stdout=log, stderr=log)

    def send(self, *options):
        self.sender = self.begin('sender', [
            f'{BUILD}/app/detector/braggline-detector', *eal('sender', 256, '0'),
            *memif(self.place, 2), '--', *MODEL, '--frames', str(self.frames),
            '--distinct', str(FRAMES), '--transport', 'multicast', '--device',
            'roce:port=net_memif0,ip=10.1.1.1/16,mtu=4096', '--members', '2', '--link-wait', '30',
            '--report', f'{self.place}/report.ini', *self.options, *options])

    @staticmethod
    def kill(process):
        """Kill a process that has been stopped for some time, so that no packets are under way: net_memif
        of the switch crashes if its peer ends while it copies packets."""
        process.send_signal(signal.SIGSTOP)
        time.sleep(0.1)
        process.kill()
        process.wait()

    def log(self, name):
        with open(f'{self.place}/{name}.log', encoding='utf-8') as log:
            return log.read()

    def everything(self):
        return '\n'.join(self.log(name) for name in ('sender', 'r0', 'r1'))

    def wait(self, what, ready, seconds=30):
        try:
            return wait(what, ready, seconds)
        except AssertionError as e:
            raise AssertionError(f'{e}\n{self.everything()}') from e

    def joined(self, number, times=1):
        self.wait('joined', lambda: self.log(f'r{number}').count('joined at') == times * MODULES)

    def finish(self, *who, status=0):
        """These end by themselves."""
        for process in who or (self.sender, *self.receivers):
            self.wait('the end', lambda p=process: p.poll() is not None)
            want(process.returncode == status, process.returncode, self.everything())

    def ledger(self, number):
        ini = configparser.ConfigParser()
        want(ini.read(f'{self.where}/out{number}/run_ledger.ini'), self.everything())
        of = {k: int(v) for section in ('frames', 'packets', 'ports') for k, v in ini[section].items()}
        want(of['balanced'] == 1, of, self.everything())
        return of

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in (self.sender, *self.receivers, self.switch):
            if process is not None:
                process.kill()
                process.wait()


def same(where, number):
    a, b = rows(BUILD, where, f'udp{number}', FLAG_TIMEOUT), rows(BUILD, where, f'out{number}', FLAG_TIMEOUT)
    want(len(a) == len(b) == FRAMES, len(a), len(b), 'rows')
    for x, y in zip(a, b):
        want(x == y, 'over UDP', x, '\nby multicast', y)
    want(list(bodies(where, f'udp{number}')) == list(bodies(where, f'out{number}')), 'images differ')
    return sum(row['verdict'] == '1' for row in a)


def write_keys(where):
    for name, content in (('key', 'k' * 64), ('keys.ini', '[receiver any]\nkey = key\nreceiver_ids = 1\n')):
        with open(os.open(f'{where}/{name}', os.O_CREAT | os.O_WRONLY, 0o600), 'w', encoding='ascii') as f:
            f.write(content)


def equal_to_udp(where, *options, settings=()):
    """@return what both receivers have repaired, and the logs"""
    # results that depend on time differ on a busy machine
    with Site(where, '--rate', RATE, *options,
              settings={'frames.stream_timeout_ms': 20000, **dict(settings)}) as site:
        site.finish()
        hits = [same(where, number) for number in range(2)]
        want(hits[0] > 0 and hits[0] + hits[1] == FRAMES, hits, 'hits')
        ledgers = [site.ledger(number) for number in range(2)]
        for of in ledgers:
            want(of['lost_for_good'] == 0 and of['frames'] == FRAMES, of, site.everything())
            want(of['events'] == FRAMES * MODULES and of['placed'] == FRAMES * MODULES * TILES, of)
        return [of['repaired'] for of in ledgers], site.everything()


@case
def columns_equal_udp(where):
    """A run ends when the detector has ended its streams. In the second one, packets to the groups
    are lost and READ, and sender and receivers prove themselves."""
    simulate(where)
    for number in range(2):
        over_udp(where, number)
    _, text = equal_to_udp(where)
    want(text.count('run run ends: the detector has ended its streams') == 2, text)
    for number in range(2):
        shutil.rmtree(f'{where}/out{number}')
    write_keys(where)
    repaired, text = equal_to_udp(
        where, '--fault', 'group-loss=0.01', '--keys', f'{where}/keys.ini',
        settings={'ingest.identity': 'any', 'ingest.key': f'{where}/key'})
    want(min(repaired) > 0, repaired, text)


@case
def a_stopped_receiver_loses(where):
    """The detector overwrites what a receiver does not read in time. The second receiver is stopped
    and has fewer packets; so has the first one if it gets no CPU for the time of the ring. Each
    frame has a row, and each packet is placed or counted as missing."""
    simulate(where)
    frames = 300
    # the ring has 0.4 s of the stream
    with Site(where, '--rate', '100', '--silence', '30000', policy='overwrite', frames=frames) as site:
        site.joined(1)
        time.sleep(0.7)
        site.receivers[1].send_signal(signal.SIGSTOP)
        time.sleep(1.2)
        site.receivers[1].send_signal(signal.SIGCONT)
        site.finish()
        first, second = site.ledger(0), site.ledger(1)
        want(first['frames'] == second['frames'] == frames, first, second, site.everything())
        want(first['placed'] > second['placed'], first, second)
        want(second['lost_for_good'] > 0 and second['lost'] > 0, second, site.everything())
        for of in first, second:
            want(of['placed'] + of['missing_packets'] == (frames - of['lost']) * MODULES * TILES, of)


@case
def a_killed_receiver_does_not_stop_others(where):
    """The detector waits for a killed receiver until it counts as silent. It does not wait for one
    that ends. The receivers join a detector again that was killed and restarted."""
    simulate(where)
    with Site(where, '--rate', '200', '--ring-slots', '512', '--silence', '1500', frames=400,
              settings={'run.first_frame': 'auto'}) as site:
        site.joined(0)
        time.sleep(0.5)
        site.kill(site.receivers[1])
        site.finish(site.sender, site.receivers[0])
        of = site.ledger(0)
        want(of['frames'] == 400 and of['placed'] == 400 * MODULES * TILES, of, site.everything())
        want('was silent for 1500 ms' in site.log('sender'), site.everything())


@case
def multicast_failures_are_reported(where):
    """A receiver whose buffers are too few, and one that has the wrong address of the detector. Neither
    is a member."""
    simulate(where)
    with Site(where, '--members', '1', '--link-wait', '4', of=({'ingest.buffers': 256}, {'ingest.sender': '10.1.9.9'})) as site:
        site.finish(site.receivers[0], site.sender, status=1)
        for text in ("stream 0: failed: Message too long; the detector's ring has 4096 packets: set [ingest] "
                     'buffers = 4096 or more, found 256', 'run run: all multicast streams have failed'):
            want(text in site.log('r0'), site.everything())
        want('stream 0 has 0 members after 4 s, expected 1' in site.log('sender'), site.everything())
        site.wait('the warning', lambda: 'stream 0: no answer of 10.1.9.9 port 7190 for 5 s, 2 of 2 streams' in
                  site.log('r1'), 10)
        site.receivers[1].send_signal(signal.SIGINT)
        site.finish(site.receivers[1])


@case
def a_group_that_does_not_arrive_is_reported(where):
    """The detector has another group than a receiver, which READs all packets. A receiver without a key is
    refused with a message."""
    simulate(where)
    write_keys(where)
    proof = {'ingest.identity': 'any', 'ingest.key': f'{where}/key'}
    with Site(where, '--rate', RATE, '--members', '1', '--keys', f'{where}/keys.ini',
              of=({'ingest.group': '239.1.1.1', **proof}, {})) as site:
        site.finish(site.sender, site.receivers[0])
        of = site.ledger(0)
        want(of['placed'] == FRAMES * MODULES * TILES and of['repaired'] > of['placed'], of, site.everything())
        for stream in range(MODULES):
            want(f'stream {stream}: ' in site.log('r0') and 'READ, and meanwhile none arrived by multicast to '
                 f'239.1.1.{1 + stream}; check [ingest] group' in site.log('r0'), site.everything())
        site.finish(site.receivers[1], status=1)
        want('the detector requires a proof: set [ingest] identity and key' in site.log('r1'),
             site.everything())


@case
def a_restarted_detector_is_joined_again(where):
    simulate(where)
    with Site(where, '--rate', '100', frames=1000, settings={'run.first_frame': 'auto'}) as site:
        site.joined(0)
        time.sleep(0.5)
        site.kill(site.sender)
        site.frames = 300
        site.send('--first-frame', '50001')
        site.joined(0, times=2)
        # the detector has counted both members, as it sends
        site.wait('frames', lambda: 'detector restarted: frame 50001' in site.log('r0'))
        # one that ends does not stop the others
        site.receivers[1].send_signal(signal.SIGINT)
        site.finish()
        of = site.ledger(0)
        want(any(row['frame'] == '50300' for row in rows(BUILD, where, 'out0', FLAG_TIMEOUT)), of, site.everything())


try:
    sys.exit(run_cases(sys.argv[2:]))
finally:
    for place in glob.glob(f'/var/run/dpdk/{NAME}*'):
        shutil.rmtree(place, ignore_errors=True)
