#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The receiver, the store and the query server as services: a stand-in for systemd receives their messages. Also a
receiver without root, as the units start it, and the page of another user that shows it.

usage: service_test.py BUILD-DIR SOURCE-DIR [CASE...]
"""

import configparser
import contextlib
import json
import os
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import urllib.request

import background
from cases import Skipped, case, run_cases, wait, want
from receiver import FLOAT, Telemetry

SECONDS = 60
WATCHDOG_US = 400000
USER = 65534  # nobody
PAGE_USER = 65533
BUILD, SOURCE = map(os.path.abspath, sys.argv[1:3])
PREFIX = f'recv-test-{os.getpid()}'
# of Linux: Python 3.11 has no names for it
SO_TIMESTAMP = 29
FRAMES = 20


class Manager:
    """Receives the messages of a service: sd_notify(3)."""

    def __init__(self, where):
        self.path = f'{where}/notify'
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        # when a message was sent: this process may read it later
        self.socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMP, 1)
        os.chmod(self.path, 0o777)
        self.socket.setblocking(False)
        self.messages = []  # (time, fields)

    def environment(self, **others):
        return {**os.environ, 'NOTIFY_SOCKET': self.path, 'WATCHDOG_USEC': str(WATCHDOG_US),
                **others}

    def read(self):
        with contextlib.suppress(BlockingIOError):
            while True:
                text, others, _, _ = self.socket.recvmsg(4096, socket.CMSG_SPACE(16))
                fields = dict(line.split('=', 1) for line in text.decode().splitlines())
                seconds, us = struct.unpack('=qq', next(
                    data for _, kind, data in others if kind == SO_TIMESTAMP))
                self.messages.append((seconds + us / 1e6, fields))
        return self.messages

    def count(self, key, value=None):
        return sum(1 for _, fields in self.read()
                   if key in fields and value in (None, fields[key]))

    def wait(self, key, value=None, number=1):
        wait(f'{number} {key}={value}', lambda: self.count(key, value) >= number, SECONDS)


def make_capture(where):
    subprocess.run([f'{BUILD}/app/detector/braggline-detector', '--frames', str(FRAMES), '--pcap',
                    f'{where}/in.pcap'], check=True, stdin=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL, timeout=SECONDS)


def receiver(where, *settings, program=f'{BUILD}/app/recv/braggline-recv', loops=0,
             memory=('--no-huge', '-m', '512')):
    command = [program, *memory, '--no-pci', '--file-prefix', PREFIX, '--lcores', FLOAT,
               '--vdev', 'gpu_host0', '--vdev',
               f'net_replay0,file={where}/in.pcap,loops={loops},rewrite=42:8:le:{FRAMES},rate=4000',
               '--', '--quiet', '--set', f'output.directory={where}/runs']
    for setting in settings:
        command += ['--set', setting]
    return command


@contextlib.contextmanager
def service(command, where, environment, **others):
    """A service whose log is printed if a check fails."""
    with open(f'{where}/log', 'w+', encoding='utf-8') as log, \
            background.start(command, stdout=log, stderr=log, env=environment, **others) as process:
        try:
            yield process
        except BaseException:
            process.kill()
            log.seek(0)
            print(log.read())
            raise


def check_watchdog(manager):
    """The service is alive within the interval that systemd demands."""
    manager.wait('WATCHDOG', '1', 4)
    times = [at for at, fields in manager.read() if 'WATCHDOG' in fields]
    gaps = [b - a for a, b in zip(times, times[1:])]
    want(min(gaps) > WATCHDOG_US / 1e7, 'messages without need:', gaps)


def check_end(manager, process):
    process.send_signal(signal.SIGTERM)
    wait('the end', lambda: manager.read() and process.poll() is not None)
    want(process.returncode == 0, 'status', process.returncode)
    want(manager.count('STOPPING', '1') == 1, manager.messages)
    last = next(i for i, (_, fields) in enumerate(manager.messages) if 'STOPPING' in fields)
    want(not any('WATCHDOG' in fields for _, fields in manager.messages[last:]),
         'alive after the end', manager.messages)


@case
def a_receiver_is_ready_when_lcores_poll(where):
    make_capture(where)
    manager = Manager(where)
    environment = manager.environment(RUNTIME_DIRECTORY=where)
    with service(receiver(where, 'run.control=telemetry'), where, environment) as process:
        manager.wait('READY', '1')
        telemetry = Telemetry(PREFIX, process, runtime=where)
        lcores = telemetry.get('lcores')
        want(all(lcore['rounds'] > 0 for lcore in lcores.values() if lcore['roles']), lcores)
        # systemd would have killed a receiver that is silent
        check_watchdog(manager)
        manager.wait('STATUS', 'idle')
        telemetry.do('run/configure,run.name=service')
        telemetry.do('run/start')
        manager.wait('STATUS', 'running: run service')
        check_end(manager, process)
        want(manager.count('EXTEND_TIMEOUT_USEC', '30000000') > 0, manager.messages)
    want(manager.count('READY') == 1, manager.messages)


@case
def a_receiver_that_waits_for_an_export_asks_for_time(where):
    """The export ends when this test says so, long after the run was written."""
    make_capture(where)
    shutil.copy(f'{BUILD}/app/recv/braggline-recv', f'{where}/braggline-recv')
    with open(f'{where}/braggline-export', 'w', encoding='ascii') as stream:
        stream.write(f'''#!/bin/sh
trap 'touch "{where}/ending"' TERM
until [ -e "{where}/ended" ]; do sleep 0.1; done
''')
    os.chmod(f'{where}/braggline-export', 0o755)
    manager = Manager(where)
    command = receiver(where, 'run.idle_timeout_ms=300', 'output.nexus=yes', loops=1,
                       program=f'{where}/braggline-recv')
    with service(command, where, manager.environment()) as process:
        wait('the end of the run', lambda: os.path.exists(f'{where}/ending'), SECONDS)
        manager.wait('EXTEND_TIMEOUT_USEC', '30000000',
                     manager.count('EXTEND_TIMEOUT_USEC') + 3)
        with open(f'{where}/ended', 'w', encoding='ascii'):
            pass
        want(process.wait(SECONDS) == 0, 'failed')


@case
def without_a_service_manager_nothing_is_sent(where):
    make_capture(where)
    manager = Manager(where)
    environment = {k: v for k, v in manager.environment().items() if k != 'NOTIFY_SOCKET'}
    with service(receiver(where, 'run.idle_timeout_ms=300', loops=1), where, environment) as process:
        want(process.wait(SECONDS) == 0, 'failed')
    want(manager.read() == [], manager.messages)


@case
def a_service_manager_that_does_not_read_does_not_keep_a_receiver(where):
    make_capture(where)
    manager = Manager(where)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                other.sendto(b'STATUS=full', manager.path)
    command = receiver(where, 'run.idle_timeout_ms=300', loops=1)
    with service(command, where, manager.environment()) as process:
        want(process.wait(SECONDS) == 0, 'failed')
    with open(f'{where}/log', encoding='utf-8') as log:
        want('does not read NOTIFY_SOCKET' in log.read(), 'not told')


def is_ready_when_it_listens(where, name, port, keys, *arguments):
    """Start a program that listens, with a keyring. @param arguments  after --"""
    os.umask(0o077)
    with open(f'{where}/key', 'wb') as stream:
        stream.write(bytes(64))
    with open(f'{where}/keys.ini', 'w', encoding='ascii') as stream:
        stream.write(f'[receiver r]\nkey = key\n{keys}')
    manager = Manager(where)
    # arguments as those of the unit
    command = [f'{BUILD}/app/{name}/braggline-{name}', '--file-prefix', f'{name}-test', '--no-huge',
               '-m', '128', '--no-pci', '--lcores', f'0@(0-{os.cpu_count() - 1})',
               '--vdev', f'net_memif0,role=server,socket={where}/memif,socket-abstract=no', '--',
               *arguments]
    with service(command, where, manager.environment(RUNTIME_DIRECTORY=where)) as process:
        manager.wait('READY', '1')
        status = next(fields['STATUS'] for _, fields in manager.messages if 'STATUS' in fields)
        want(status.startswith(f'listening on port {port}'), status)
        check_watchdog(manager)
        check_end(manager, process)
    return manager


@case
def a_store_is_ready_when_it_listens(where):
    manager = is_ready_when_it_listens(
        where, 'store', 18516, 'receiver_ids = 0\n',
        '--set', 'store.device=roce:port=net_memif0,ip=10.0.0.2/24',
        '--set', f'store.keys={where}/keys.ini', '--set', f'files.directory={where}/data')
    want(manager.count('EXTEND_TIMEOUT_USEC', '30000000') > 0, manager.messages)


@case
def a_server_of_queries_is_ready_when_it_listens(where):
    if not os.path.exists(os.environ.get('BRAGGLINE_DUCKDB', '')):
        raise Skipped('no libduckdb.so: make deps')
    os.mkdir(f'{where}/runs')
    is_ready_when_it_listens(
        where, 'scan', 18517, 'rights = read\nruns = *\n', '--serve',
        '--device', 'roce:port=net_memif0,ip=10.0.0.2/24', '--keys', f'{where}/keys.ini',
        f'{where}/runs')


def free_huge_pages():
    with open('/proc/meminfo', encoding='ascii') as stream:
        fields = dict(line.split(':', 1) for line in stream)
    return int(fields['HugePages_Free']) * int(fields['Hugepagesize'].split()[0]) >> 10


@contextlib.contextmanager
def receiver_of_user(where, *settings, mode=0o700, **others):
    """A receiver as user nobody, in a separate folder. Yields the process and its manager."""
    if os.geteuid() != 0:
        raise Skipped('only root can run a program as another user')
    make_capture(where)
    # the user may not be able to read the build directory
    shutil.copy(f'{BUILD}/app/recv/braggline-recv', f'{where}/braggline-recv')
    os.mkdir(f'{where}/runtime')
    os.chmod(f'{where}/runtime', mode)
    for path in where, f'{where}/runtime', f'{where}/in.pcap':
        os.chown(path, USER, USER)
    manager = Manager(where)
    environment = manager.environment(RUNTIME_DIRECTORY=f'{where}/runtime', HOME=where)
    command = receiver(where, *settings, program=f'{where}/braggline-recv', **others)
    with service(command, where, environment, user=USER, group=USER, extra_groups=[], umask=0o027,
                 cwd=where) as process:
        manager.wait('READY', '1')
        yield process, manager


def run_as_user(where, memory):
    """A run of a receiver as user nobody."""
    with receiver_of_user(where, 'run.idle_timeout_ms=500', loops=1, memory=memory) as (
            process, manager):
        want(os.path.isdir(f'{where}/runtime/dpdk/{PREFIX}'), 'not in its runtime directory:',
             os.listdir(f'{where}/runtime'))
        # a service that nobody reads waits
        wait('the end', lambda: manager.read() and process.poll() is not None)
        want(process.returncode == 0, 'the run failed')
    ini = configparser.ConfigParser()
    ini.read(f'{where}/runs/run_ledger.ini')
    want(int(ini['frames']['frames']) == FRAMES, dict(ini['frames']))
    found = os.stat(f'{where}/runs/run_frames.arrow')
    want(found.st_uid == USER and found.st_mode & 0o777 == 0o640, found)


@case
def a_receiver_runs_without_root(where):
    run_as_user(where, ('--no-huge', '-m', '512'))


@case
def a_receiver_without_root_uses_huge_pages(where):
    if free_huge_pages() < 260:
        raise Skipped(f'{free_huge_pages()} MiB of huge pages are free, needed: 260')
    run_as_user(where, ('--in-memory', '-m', '256'))


def ask(url):
    with urllib.request.urlopen(url, timeout=SECONDS) as reply:
        return json.load(reply)


def drop_in_command(path):
    """The command of a drop-in that systemd runs when the service is ready."""
    with open(path, encoding='utf-8') as stream:
        line, = [line for line in stream if line.startswith('ExecStartPost=')]
    return shlex.split(line.split('=', 1)[1].lstrip('-'))


@case
def a_page_of_another_user_needs_the_drop_in(where):
    if not os.path.exists(f'{BUILD}/app/view/braggline-view'):
        raise Skipped('braggline-view is not built')
    with receiver_of_user(where, f'output.live={where}/runtime/live', 'output.live_s=0.02',
                          loops=50, mode=0o750) as (run, _):
        os.chmod(where, 0o711)
        page = f'{where}/braggline-view'
        shutil.copy(f'{BUILD}/app/view/braggline-view', page)
        socket_path = f'{where}/runtime/dpdk/{PREFIX}/dpdk_telemetry.v2'
        with background.start([page, '--receiver', f'r={socket_path}', '--listen', '127.0.0.1:0',
                               '--interval', '100'], stdout=subprocess.PIPE, text=True,
                              user=PAGE_USER, group=PAGE_USER, extra_groups=[USER], cwd='/',
                              umask=0o077) as process:
            try:
                # braggline-view: http://127.0.0.1:PORT/
                source = process.stdout.readline().split()[-1] + 'api/v1/sources/r'
                state = wait('a refusal', lambda: 'Permission denied' in (found := ask(source)).get('error', '')
                             and found)
                want(state['state'] == 'down', state)
                subprocess.run(drop_in_command(f'{SOURCE}/conf/systemd/drop-ins/telemetry.conf'),
                               check=True, user=USER, group=USER, extra_groups=[], timeout=SECONDS,
                               env={**os.environ, 'RUNTIME_DIRECTORY': f'{where}/runtime'})
                wait('the receiver', lambda: ask(source)['state'] == 'up')
                wait('the live file', lambda: ask(source)['live'])
                process.terminate()
                want(process.wait(SECONDS) == 0, 'the page failed')
            finally:
                process.kill()
                run.terminate()


if __name__ == '__main__':
    background.eal_folder(PREFIX)
    sys.exit(run_cases(sys.argv[3:]))
