#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""braggline-scan --serve and --connect over software RoCE: the same output as braggline-scan --sql in
all formats, for all types; rights; damaged files; clients that are killed, stopped or interrupted; a
server that is killed; its telemetry.

The port is a veth device, which only root can create, otherwise a memif. net_memif of DPDK 22.11
unmaps the memory of a peer that has exited while an lcore polls it: rarely, the server then
crashes.

usage: sql_remote_test.py ARROW_WRITE BRAGGLINE-SCAN MODULES-DIR README ENDPOINT-FILE
"""

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(f'{HERE}/../smoke')

import background  # pylint: disable=wrong-import-position
import receiver  # pylint: disable=wrong-import-position
import sql_output_test as output  # pylint: disable=wrong-import-position
import wire  # pylint: disable=wrong-import-position
from sql_output_test import want  # pylint: disable=wrong-import-position

CPUS = f'0@(0-{os.cpu_count() - 1})'
SERVER, CLIENT = '10.0.0.2', '10.0.0.1'
FORMATS = 'arrow', 'csv', 'json', 'table'
NOT_NULL = ', '.join(f'{sql} AS {name}' for name, (sql, _, _) in output.TYPES.items())
STATEMENTS = [
    'SELECT 42 AS x, NULL AS n',
    'SELECT 1 WHERE false',
    'FROM lyso_7.frames',
    'FROM lyso_7.images',
    'SELECT run, count(*), sum(nnz) FROM frames GROUP BY run',
    'SELECT frame, col, value FROM lyso_7.images JOIN lyso_7.frames USING (frame) WHERE nnz > 5 '
    'ORDER BY frame',
    'SELECT i, -i j FROM range(100000) t(i)',
    # a body that is larger than all slots together
    'SELECT list(i) FROM range(2500000) t(i)',
    "SELECT repeat('é', 50000) t FROM range(30)",
    'DESCRIBE lyso_7.frames',
    'SELECT * FROM lyso_7.images WHERE len(col) > 5 ORDER BY kind, frame DESC LIMIT 30',
    'SELECT frame, b.nnz, col, raw, value AS v FROM lyso_7.frames b LEFT JOIN lyso_7.images '
    'USING (frame)',
    'EXPLAIN SELECT frame, value FROM lyso_7.images',
]
# whose bodies are read by the client
PULLED = [
    'SELECT frame, b.nnz, col, raw, value AS v FROM lyso_7.frames b LEFT JOIN lyso_7.images '
    'USING (frame)',
    'SELECT i, -i j FROM range(1000000) t(i)',
    'SELECT list(i) FROM range(2500000) t(i)',
]
WRONG = [
    'SELEC 1',
    'FROM secret.frames',
    "SELECT CASE WHEN i = 1900000 THEN error('mid') ELSE i END FROM range(2000000) t(i)",
]


class Pair:
    """A server, and clients of which one runs at a time."""

    def __init__(self, program, where):
        self.program, self.where = program, where
        self.name = f'braggline_sql_{os.getpid()}'
        self.wires = None
        if os.geteuid() == 0:
            self.wires = {'server': f'sq{os.getpid()}', 'client': f'cq{os.getpid()}'}
            wire.link(self.wires['server'], 0, self.wires['client'])
        for name in ('ana', 'eve'):
            with open(f'{where}/{name}', 'wb') as key:
                key.write(os.urandom(64))
        with open(f'{where}/keys.ini', 'w', encoding='ascii') as keys:
            keys.write('[receiver ana]\nkey = ana\nrights = read\nruns = lyso_*\n'
                       '[receiver eve]\nkey = eve\nrights = read\nruns = other\n')
        for name in ('ana', 'eve', 'keys.ini'):
            os.chmod(f'{where}/{name}', 0o600)
        self.log = open(f'{where}/server.log', 'wb+')  # pylint: disable=consider-using-with
        self.server = None
        self.start()

    def start(self, *options):
        """Start the server, which may have run before."""
        before = self.said().count(b'listening')
        self.server = background.start(
            [*self.eal('server'), '--serve', '--keys', f'{self.where}/keys.ini', *options,
             f'{self.where}/runs'], stderr=self.log)
        end = time.monotonic() + 60
        while self.said().count(b'listening') == before:
            want(time.monotonic() < end and self.server.poll() is None, self.said().decode())
            time.sleep(0.02)

    def close(self):
        for role in 'server', 'client':
            background.eal_folder(f'{self.name}_{role}')
        if self.wires:
            wire.unlink(self.wires['server'])

    def said(self):
        with open(self.log.name, 'rb') as log:
            return log.read()

    def eal(self, role):
        address = SERVER if role == 'server' else CLIENT
        if self.wires:
            name, vdev = 'net_pcap0', f'net_pcap0,iface={self.wires[role]},phy_mac=1'
        else:
            name, vdev = 'net_memif0', f'net_memif0,role={role},socket={self.name}'
        telemetry = [] if role == 'server' else ['--no-telemetry']
        return [self.program, '--no-huge', '--no-pci', *telemetry, '-m', '128', '--lcores',
                CPUS, '--file-prefix', f'{self.name}_{role}', '--log-level', 'lib.eal:error',
                '--log-level', 'braggline.rdma:error',
                '--log-level', 'braggline.scan.server:debug',
                '--vdev', vdev, '--', '--device', f'roce:port={name},ip={address}/24']

    def client(self, sql, *options, user='ana', key=None):
        return [*self.eal('client'), '--connect', SERVER, '--identity', user, '--key',
                f'{self.where}/{key or user}', '--sql', sql, *options]

    def run(self, sql, *options, **who):
        return subprocess.run(self.client(sql, *options, **who), check=False, capture_output=True,
                              timeout=60)

    def compare(self, sql, form, *options):
        local = subprocess.run([self.program, '--sql', sql, '--format', form, '--threads', '1',
                                f'{self.where}/runs/lyso_7_frames.arrow'], check=False,
                               capture_output=True)
        remote = self.run(sql, '--format', form, *options)
        want((local.returncode, local.stderr) == (remote.returncode, remote.stderr), form, sql,
             local.stderr, remote.stderr)
        # of a statement that fails in the middle, batches before the error may differ
        want(local.returncode != 0 or local.stdout == remote.stdout, form, sql)


def same(pair):
    rows = f'(SELECT {output.inner()} FROM range({output.ROWS}) t(i))'
    # values of rows that are NULL are not defined in Arrow
    for form in FORMATS[1:]:
        pair.compare(f'FROM {rows} q', form)
    pair.compare(f'SELECT {NOT_NULL} FROM range({output.ROWS}) t(i) WHERE i % 7 <> 6',
                 'csv')
    for i, sql in enumerate(STATEMENTS):
        pair.compare(sql, FORMATS[i % 3] if i < 3 else 'arrow')
    for sql in WRONG:
        pair.compare(sql, 'csv')
    for sql in PULLED:
        pair.compare(sql, 'arrow', '--pull')


def types(pair, modules):
    """Arrow data of all types, as apache-arrow reads them."""
    rows = f'(SELECT {output.inner()} FROM range({output.ROWS}) t(i))'
    local = subprocess.run([pair.program, '--sql', f'FROM {rows} q', '--format', 'arrow',
                            f'{pair.where}/runs'], check=True, stdout=subprocess.PIPE).stdout
    remote = pair.run(f'FROM {rows} q', '-o', 'arrow').stdout
    read = [subprocess.run(['node', f'{HERE}/sql_arrow.mjs', modules], input=stream, check=True,
                           stdout=subprocess.PIPE).stdout for stream in (local, remote)]
    want(read[0] == read[1] and len(read[0]) > 100000, 'types', len(read[0]), len(read[1]))


def counters(pair, readme):
    """What telemetry shows of the queries so far, and of one more."""
    telemetry = receiver.Telemetry(f'{pair.name}_server', pair.server, '/braggline/scan')
    before = telemetry.get('scan')
    done = pair.run('SELECT value FROM lyso_7.images', '-o', 'arrow', '--stats')
    want(done.returncode == 0 and b'in slots' in done.stderr, done.stderr)
    now = telemetry.get('scan')
    for key, more in ('sessions', 1), ('queries', 1), ('queries_deferred', 1), ('queries_failed', 0):
        want(now[key] == before[key] + more, key, before, now)
    want(before['queries_deferred'] >= 4 and before['queries_failed'] == len(WRONG), before)
    want(len(done.stdout) > now['body_bytes'] - before['body_bytes'] > 0, before, now)
    deferred = now['body_bytes_deferred'] - before['body_bytes_deferred']
    want(deferred > len(done.stdout) / 2, deferred, len(done.stdout))
    want(now['slot_bytes'] > before['slot_bytes'] and now['pull_bytes'] == before['pull_bytes'], now)
    done = pair.run('SELECT value FROM lyso_7.images', '-o', 'arrow', '--stats', '--pull')
    said = re.search(rb'in slots (\d+), of these read by READ (\d+), copied', done.stderr)
    want(done.returncode == 0 and said and int(said[1]) == int(said[2]) > 0, done.stderr)
    read = telemetry.get('scan')
    want(read['pull_bytes'] - now['pull_bytes'] == int(said[2]) and read['pull_bytes_current'] == 0 and
         read['slot_bytes'] == now['slot_bytes'], now, read)
    want(telemetry.get('rdma')['provider'] == 'roce', telemetry.get('rdma'))
    table = subprocess.run([pair.program, '--list-telemetry'], check=True, text=True,
                           stdout=subprocess.PIPE).stdout
    want(set(now) <= set(re.findall(r'\w+', table)), set(now) - set(re.findall(r'\w+', table)))
    with open(readme, encoding='utf-8') as text:
        want(table in text.read(), readme, 'does not have the list of --list-telemetry:\n', table)
    return telemetry


class Sock:
    """The object that an exporter passes to metrics()."""

    def __init__(self, telemetry):
        self.telemetry = telemetry

    def cmd(self, uri):
        return self.telemetry(uri)[uri]


def exported(telemetry, path):
    """The endpoint of braggline-exporter has every counter, under a name that it describes."""
    spec = importlib.util.spec_from_file_location('endpoint', path)
    endpoint = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(endpoint)
    for name, (text, kind) in endpoint.info().items():
        want(text and name.endswith('_total') == (kind == 'counter'), name, text, kind)
    reply = telemetry.get('scan')
    want(reply['queries'] > 0 and reply['refused_busy'] == 0, reply)
    found = list(endpoint.metrics(Sock(telemetry)))
    want({name for name, *_ in found} == set(endpoint.info()), found)
    want(len(found) == len(reply), found, reply)
    values = {(name, *labels.values()): value for name, value, labels in found}
    want(len(values) == len(found), found)
    for name, key in (('queries_total', 'queries'), ('failed_queries_total', 'queries_failed'),
                      ('slot_bytes_total', 'slot_bytes'), ('pull_bytes_total', 'pull_bytes'),
                      ('held_bytes', 'pull_bytes_current'), ('batches_total', 'batches')):
        want(values[name,] == reply[key], name, values, reply)
    for key in reply:
        if key.startswith('refused_'):
            want(values['refused_total', key[len('refused_'):]] == reply[key], key, values)
    # a process without queries has none of these metrics
    want(not list(endpoint.metrics(Sock(lambda uri: {uri: ['/', '/braggline/info']}))), path)


def times(pair):
    """The log of a server has the times of each query."""
    steps = re.findall(r'query 1 of ana: engine begins after (\d+) us, statement (\d+) us, '
                       r'rows (\d+) us, end is sent after (\d+) us\n', pair.said().decode())
    want(len(steps) > len(WRONG), steps, pair.said().decode())
    # a session opens its engine with its first statement, which takes some milliseconds
    want(all(1000 < int(step[1]) < 60e6 for step in steps), steps)
    want(all(int(us) < 60e6 for step in steps for us in step), steps)


def command_lines(pair):
    """Options of the other end are refused."""
    serve = ['--serve', '--keys', f'{pair.where}/keys.ini']
    for words, said in (([*serve, '--identity', 'ana', pair.where], '--identity: only with --connect'),
                        ([*serve, '--key', f'{pair.where}/ana', pair.where], '--key: only with --connect'),
                        (['--connect', SERVER, '--identity', 'ana', '--key', f'{pair.where}/ana',
                          '--sql', 'SELECT 1', '--port', '7'], '--port: only with --serve'),
                        (['--connect', SERVER, '--key', 'k', '--sql', 'SELECT 1'], '--identity NAME'),
                        (['--connect', SERVER, '--identity', 'ana', '--sql', 'SELECT 1'], '--key FILE'),
                        (['--connect', SERVER, '--identity', 'a/b', '--key', 'k', '--sql', 'SELECT 1'],
                         'found a/b'),
                        ([*serve, '--pull', pair.where], '--pull: only with --connect'),
                        ([*serve, '--hold', '0', pair.where], '--hold: expected 1 to 86400'),
                        (['--no-huge', *serve, pair.where],
                         'EAL options come first: braggline-scan [EAL options] -- --serve'),
                        ([*serve, '--stats', pair.where], '--stats')):
        done = subprocess.run([pair.program, '--device', 'roce:port=x', *words], check=False,
                              capture_output=True, text=True)
        want(done.returncode == 2 and said in done.stderr, words, done.stderr)
    # found by the engine, before the device is opened
    done = subprocess.run([*pair.eal('client'), *serve, '--memory', '5', pair.where], check=False,
                          capture_output=True, text=True)
    want(done.returncode == 2 and done.stderr.endswith(
        '--memory: expected a size such as 8GB, not 5\n'), done.returncode, done.stderr)


def rights(pair):
    for who, said in (({'user': 'eve'}, 'because schema "lyso_7" does not exist.\n\n  LINE 1: FROM lyso_7.frames\n'
                       '               ^\n\n  Number of runs: 0\n'),
                      ({'user': 'ana', 'key': 'eve'}, 'wrong identity or key: the keyring of the server '
                       '(--keys) must have [receiver ana] with this key'),
                      ({'user': 'nobody', 'key': 'ana'}, 'wrong identity or key')):
        done = pair.run('FROM lyso_7.frames', **who)
        want(done.returncode == 1 and said in done.stderr.decode(), who, done.stderr.decode())
    for name in 'ana', '(unknown)':
        want(f'scan: refused address={CLIENT} claims={name}: wrong identity or key\n' in
             pair.said().decode(), pair.said().decode())


def ends(pair, telemetry):
    """Clients that end in the middle of a result do not affect the next one."""
    endless = 'SELECT sum(i) FROM range(1000000000000000) t(i)'
    for sql, number, *options in ((endless, signal.SIGKILL), (endless, signal.SIGINT),
                                  ('FROM range(1000000000)', signal.SIGKILL),
                                  ('FROM range(1000000000)', signal.SIGKILL, '--pull')):
        queries = telemetry.get('scan')['queries']
        client = subprocess.Popen(pair.client(sql, '--format', 'csv', *options),
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        if sql != endless:
            client.stdout.read(1 << 16)
        end = time.monotonic() + 60
        while telemetry.get('scan')['queries'] == queries:
            want(time.monotonic() < end, 'no query')
            time.sleep(.05)
        client.send_signal(number)
        status = client.wait(timeout=60)
        want(status in (-number, 130), status)
        client.stdout.close()
        done = pair.run('SELECT 1', '--format', 'csv')
        want(done.stdout == b'1\n1\n', 'after', number, done, pair.server.poll(), pair.said().decode())


def blocks(process, number):
    """Return whether the main thread of a process has blocked a signal."""
    with open(f'/proc/{process.pid}/status', encoding='ascii') as status:
        mask = re.search('^SigBlk:\t([0-9a-f]+)$', status.read(), re.M)
    return int(mask[1], 16) >> number - 1 & 1 == 1


def nobody(pair):
    """A client can be interrupted while it waits for a server that is not there."""
    command = [f'{CLIENT}9' if word == SERVER else word for word in pair.client('SELECT 1')]
    client = subprocess.Popen(command, stderr=subprocess.PIPE)
    # before, SIGINT kills it
    end = time.monotonic() + 60
    while not blocks(client, signal.SIGINT):
        want(time.monotonic() < end and client.poll() is None, client.returncode)
        time.sleep(0.02)
    client.send_signal(signal.SIGINT)
    error = client.communicate(timeout=60)[1]
    want(client.returncode == 130 and b'the connection was given up' in error, client.returncode,
         error)
    # it ends as others do, EAL too
    left = background.eal_folder(f'{pair.name}_client') + '/mp_socket'
    want(not os.path.exists(left), left)
    # an output whose reader has exited is an error, without a signal
    output_end, client_end = os.pipe()
    with subprocess.Popen(command, stdout=client_end, stderr=subprocess.PIPE,
                          restore_signals=False) as client:
        os.close(client_end)
        os.close(output_end)
        error = client.communicate(timeout=60)[1]
    want(client.returncode == 1 and b'cannot write the result: Broken pipe' in error,
         client.returncode, error)


def damaged(pair, arrow_write):
    """A client learns that rows are missing, as a local query does."""
    runs = f'{pair.where}/runs'
    subprocess.run([arrow_write, runs, 'lyso_8', 'float32', '2', '60', '1'], check=True,
                   stdout=subprocess.DEVNULL)
    sql = 'SELECT count(*) FROM lyso_8.images'
    whole = pair.run(sql, '--format', 'csv')
    want(whole.returncode == 0 and whole.stderr == b'', whole)
    with open(f'{runs}/lyso_8_images.arrow', 'r+b') as stream:
        stream.seek(os.path.getsize(stream.name) // 2)
        byte = stream.read(1)
        stream.seek(-1, os.SEEK_CUR)
        stream.write(bytes([byte[0] ^ 1]))
    local = subprocess.run([pair.program, '--sql', sql, '--format', 'csv', runs], check=False,
                           capture_output=True)
    remote = pair.run(sql, '--format', 'csv')
    want(local.returncode == 1 and remote.returncode == 1, local, remote)
    want(local.stdout == remote.stdout != whole.stdout, local, remote, whole)
    want(b'lack rows: damaged batches, incomplete files and unreadable folders: 1;' in
         remote.stderr, remote)
    # other runs are whole
    done = pair.run('SELECT 1 FROM lyso_7.frames LIMIT 1', '--format', 'csv')
    want(done.returncode == 0 and done.stderr == b'', done)


def folder_is_absent(pair):
    """As one that is not mounted: its runs are missing, and a client learns that."""
    runs = f'{pair.where}/runs'
    os.rename(runs, f'{runs}.away')
    done = pair.run('FROM runs', '--format', 'csv')
    os.rename(f'{runs}.away', runs)
    want(done.returncode == 1 and b'unreadable folders: 1;' in done.stderr, done)
    want(f'{runs}: No such file or directory'.encode() in pair.said(), pair.said().decode())


def server_ends(pair):
    """A client notices that its server was killed."""
    client = subprocess.Popen(pair.client('FROM range(1000000000)', '--format', 'csv'),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    client.stdout.read(1 << 16)
    pair.server.kill()
    error = client.communicate(timeout=60)[1]
    want(client.returncode == 1 and b'the connection to the server is lost' in error,
         client.returncode, error)


def main():
    arrow_write, program, modules, readme, endpoint = sys.argv[1:6]
    library = f'{modules}/{output.LIBRARY}'
    if not os.path.exists(library):
        output.skip(library)
    os.environ['BRAGGLINE_DUCKDB'] = library
    with tempfile.TemporaryDirectory() as where:
        os.mkdir(f'{where}/runs')
        for name, kind in (('lyso_7', 'float32+peaks'), ('secret', 'float32')):
            subprocess.run([arrow_write, f'{where}/runs', name, kind, '2', '60', '1'], check=True,
                           stdout=subprocess.DEVNULL)
        pair = Pair(program, where)
        try:
            same(pair)
            if shutil.which('node'):
                types(pair, modules)
            telemetry = counters(pair, readme)
            exported(telemetry, endpoint)
            times(pair)
            command_lines(pair)
            rights(pair)
            ends(pair, telemetry)
            nobody(pair)
            folder_is_absent(pair)
            damaged(pair, arrow_write)
            causes = telemetry.get('scan')
            want(causes['refused_key'] == 2 and causes['queries_cancelled'] >= 1, causes)
            # the server notices after some seconds that clients were killed
            end = time.monotonic() + 60
            while causes['pull_bytes_current'] != 0 and time.monotonic() < end:
                time.sleep(.1)
                causes = telemetry.get('scan')
            want(causes['pull_bytes_current'] == 0, 'of clients that were killed', causes)
            want(pair.server.poll() is None, 'the server has ended:', pair.said().decode())
            server_ends(pair)
        finally:
            pair.close()
    print('ok')


if __name__ == '__main__':
    main()
