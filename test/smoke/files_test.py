#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""braggline-rdma push and fetch: files by reliable multicast to two members, over a switch that loses
frames.

usage: files_test.py BUILD-DIR [CASE]...
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import background
from cases import case, run_cases, wait, want

BUILD = sys.argv[1]
TOOL = f'{BUILD}/pmd-ext/rdma/examples/braggline-rdma'
SWITCH = f'{BUILD}/test/smoke/memif_switch'
ALL = f'0-{os.cpu_count() - 1}'
NAME = f'braggf{os.getpid()}'
SIDES = 'hspq'


def eal(side, vdevs, memory=128):
    """Shared memory ports need EAL's shared configuration."""
    return ['--no-huge', '-m', str(memory), '--no-pci', '--no-telemetry', '--log-level', 'lib.eal:warning',
            '--lcores', f'(0)@({ALL})', '--file-prefix', f'{NAME}{side}',
            *(w for v in vdevs for w in ('--vdev', v))]


class Link:
    """A switch with a port for each of its three stations."""

    def __init__(self, where, loss=0):
        self.where = where
        self.runs = []
        vdevs = [f'net_memif{i},role=server,socket={where}/{i}.sock,socket-abstract=no,rsize=11'
                 for i in range(3)]
        self.switch = self.start(SWITCH, *eal('h', vdevs, 256), '--', str(loss), '7')
        want(self.switch.stdout.readline() == 'ready\n', 'the switch ended')

    def start(self, *command):
        run = background.start(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.runs.append(run)
        return run

    def tool(self, station, mode, *options):
        """A program at a station, 0 to 2."""
        vdev = f'net_memif0,role=client,socket={self.where}/{station}.sock,socket-abstract=no,rsize=11'
        return self.start(TOOL, *eal(SIDES[1 + station], [vdev]), '--', mode, '--device',
                          f'roce:port=net_memif0,ip=10.0.0.{1 + station}/24', '--wait', '15', *options)

    def push(self, *options):
        return self.tool(0, 'push', *options)

    def fetch(self, station, directory, *options):
        return self.tool(station, 'fetch', '--directory', directory, '--sender', '10.0.0.1', *options)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for run in self.runs:
            run.kill()
            run.wait()
        for side in SIDES:
            shutil.rmtree(f'/var/run/dpdk/{NAME}{side}', ignore_errors=True)


def end(run, status, *texts):
    text = run.communicate(timeout=60)[0]
    want(run.returncode == status, f'status {run.returncode}, expected {status}:', text)
    for expected in texts:
        want(expected in text, f'{expected}: not in', text)
    return text


def make(where, **sizes):
    """Files of random bytes. @return paths"""
    numbers = random.Random(1)
    paths = []
    for name, size in sizes.items():
        paths.append(f'{where}/{name}')
        with open(paths[-1], 'wb') as f:
            f.write(numbers.randbytes(size))
    return paths


def same(path, directory):
    with open(path, 'rb') as a, open(f'{directory}/{os.path.basename(path)}', 'rb') as b:
        return a.read() == b.read()


@case
def two_members_fetch_files_over_a_lossy_link(where):
    files = make(where, gain=3000001, pedestal=200000, empty=0, one=1)
    places = [f'{where}/a', f'{where}/b']
    os.makedirs(places[0])
    with open(f'{places[0]}/gain', 'w') as f:
        f.write('an old one')
    with Link(where, loss=1) as link:
        members = [link.fetch(1 + i, place) for i, place in enumerate(places)]
        sender = link.push('--members', '2', *files)
        end(sender, 0, 'push: gain, 3000001 bytes', 'push: 2 of 2 members have stored all files',
            'members prove nothing')
        for member in members:
            end(member, 0, 'fetch: gain, 3000001 bytes', 'fetch: empty, 0 bytes, CRC-32C 00000000')
        link.switch.terminate()
        lost = int(link.switch.communicate(timeout=10)[0].split()[2])
        want(lost > 20, lost, 'frames lost')
    for place in places:
        want(sorted(os.listdir(place)) == ['empty', 'gain', 'one', 'pedestal'], os.listdir(place))
        want(all(same(path, place) for path in files), place)


@case
def files_that_are_not_regular_stay(where):
    (path,) = make(where, mask=5000)
    os.makedirs(f'{where}/a')
    os.symlink('/dev/null', f'{where}/a/mask')
    with Link(where) as link:
        members = [link.fetch(1, f'{where}/a'), link.fetch(2, f'{where}/b')]
        sender = link.push('--silence', '2000', '--members', '2', path)
        end(members[0], 1, 'mask: exists and is not a regular file; it is not replaced')
        end(members[1], 0)
        end(sender, 1, 'push: 1 of 2 members have stored all files', 'members were removed without all files')
    want(os.readlink(f'{where}/a/mask') == '/dev/null' and os.listdir(f'{where}/a') == ['mask'])
    want(same(path, f'{where}/b'))


@case
def signals_end_both(where):
    (path,) = make(where, large=30000000)
    for victim in 'push', 'fetch':
        place = tempfile.mkdtemp(dir=where)
        with Link(tempfile.mkdtemp(dir=where)) as link:
            member = link.fetch(1, place)
            sender = link.push('--rate', '40', path)
            wait('a part of the file', lambda: os.path.exists(f'{place}/.large.part') and
                 os.path.getsize(f'{place}/.large.part') > 100000)
            if victim == 'push':
                sender.send_signal(signal.SIGINT)
                end(sender, 130, 'interrupted')
                end(member, 1, 'the sender has stopped before the last file')
            else:
                member.send_signal(signal.SIGINT)
                end(member, 130, 'interrupted')
                sender.send_signal(signal.SIGTERM)
                end(sender, 143)
            want(os.listdir(place) == [], os.listdir(place))


@case
def members_need_the_key(where):
    (path,) = make(where, mask=5000)
    for name, text in ('key', 'k' * 64), ('other', 'o' * 64), ('keys.ini', '[receiver lyso]\nkey = key\n'
                                                                'receiver_ids = 1\n'):
        with open(os.open(f'{where}/{name}', os.O_CREAT | os.O_WRONLY, 0o600), 'w') as f:
            f.write(text)
    with Link(where) as link:
        good = link.fetch(1, f'{where}/a', '--identity', 'lyso', '--key', f'{where}/key')
        bad = link.fetch(2, f'{where}/b', '--identity', 'lyso', '--key', f'{where}/other')
        sender = link.push('--keys', f'{where}/keys.ini', path)
        end(good, 0)
        end(sender, 0)
        bad.kill()
    want(same(path, f'{where}/a') and os.listdir(f'{where}/b') == [])


@case
def mistakes_are_reported(where):
    (path,) = make(where, mask=50)
    hidden = f'{where}/.hidden'
    shutil.copy(path, hidden)
    os.makedirs(f'{where}/c')
    shutil.copy(path, f'{where}/c/mask')
    begin = time.monotonic()
    with Link(where) as link:
        end(link.push(), 2, 'no file given')
        end(link.push(hidden), 1, 'is not hidden')
        end(link.push(path, f'{where}/c/mask'), 1, 'have the same name')
        end(link.push(where), 1, 'directory')
        end(link.push('--group', '10.0.0.9', path), 1, "--group: found '10.0.0.9'")
        end(link.push('--wait', '1', path), 1, '0 members after 1 s, expected 1')
        end(link.tool(1, 'fetch', '--directory', where), 2, 'expected --directory and --sender')
        end(link.fetch(1, f'{where}/d', '--wait', '1'), 1, 'no reply from 10.0.0.1 for 1 s')
        # a member waits, but not all do
        member = link.fetch(1, f'{where}/d')
        end(link.push('--members', '2', '--wait', '3', path), 1, '1 members after 3 s, expected 2')
        end(member, 1, 'the sender has stopped before the first file')
    want(time.monotonic() - begin < 30)


if __name__ == '__main__':
    sys.exit(run_cases(sys.argv[2:]))
