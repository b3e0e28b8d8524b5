#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Queries between providers: one of braggline-scan --serve and its clients uses the roce provider on
this machine, the others the verbs provider on the kernel's rdma_rxe in a guest.

usage: scan_verbs_test.py BUILDDIR MODULES-DIR

Each direction runs once, in one guest. Results are compared with those of braggline-scan --sql on
the same files, byte by byte. The bytes that the server counts show which way each result came.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile

from rdma_peer import OURS, THEIRS, outcome, pick_cpus
from rxe_ends import NIC, Ends
from rxe_vm import Missing
from sql_output_test import LIBRARY

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../smoke'))
from cases import want  # noqa: E402

SECONDS = 120   # limit for most waits
MEMORY = '128'  # MiB of a program
PROGRAM = 'braggline-scan'
ROCE, VERBS = f'roce:port={NIC},ip={OURS}/24,mtu=4096', 'verbs:rxe0'
LISTS = ('SELECT frame, b.nnz, col, raw, value AS v FROM lyso_7.frames b LEFT JOIN lyso_7.images '
         'USING (frame)')
NUMBERS = 'SELECT i, -i j FROM range(100000) t(i)'
ENDLESS = 'FROM range(1000000000)'
# name: exit status, statement, options
QUERIES = {
    'inline': (0, 'SELECT 42 AS x, NULL AS n', '--format', 'csv'),
    'lists': (0, LISTS, '--format', 'arrow'),
    'numbers': (0, NUMBERS, '--format', 'arrow'),
    'lists_pull': (0, LISTS, '--format', 'arrow', '--pull'),
    'numbers_pull': (0, NUMBERS, '--format', 'arrow', '--pull'),
    'wrong': (1, 'FROM lyso_7.nothing', '--format', 'csv'),
    'refused': (1, 'DROP TABLE frames', '--format', 'csv'),
    'middle': (1, "SELECT CASE WHEN i = 190000 THEN error('mid') ELSE i END FROM range(200000) t(i)",
               '--format', 'csv'),
}
CANCELLED = 130
# Shell: interrupts the client $pid, whose output is /tmp/out, when it has begun to print its result
INTERRUPT = ('exec 4</tmp/out\nhead -c 1000 <&4 >/dev/null\nkill -INT $pid\ncat <&4 >/dev/null\n'
             'wait $pid\n')


class Rig(Ends):
    """Files of a run, keys, and the local answers."""

    def __init__(self, build, where, library):
        super().__init__(build, where, f'0@({pick_cpus()})', SECONDS)
        os.environ['BRAGGLINE_DUCKDB'] = self.library = library
        os.mkdir(f'{where}/runs')
        subprocess.run([f'{build}/test/interop/arrow_write', f'{where}/runs', 'lyso_7',
                        'float32+peaks', '2', '60', '1'], check=True, stdout=subprocess.DEVNULL)
        with open(f'{where}/ana', 'wb') as key:
            key.write(os.urandom(64))
        with open(f'{where}/keys.ini', 'w', encoding='ascii') as keys:
            keys.write('[receiver ana]\nkey = ana\nrights = read\nruns = *\n')
        for name in ('ana', 'keys.ini'):
            os.chmod(f'{where}/{name}', 0o600)
        self.local = {name: self.answer(*query) for name, query in QUERIES.items()}

    def answer(self, status, sql, *options):
        """What a local query writes to its output and to its error output."""
        done = subprocess.run(
            [f'{self.build}/app/scan/{PROGRAM}', '--sql', sql, '--threads', '1',
             *(word for word in options if word != '--pull'), f'{self.where}/runs'],
            check=False, capture_output=True)
        want(done.returncode == status, sql, done)
        return done.stdout, done.stderr.decode()

    @staticmethod
    def server(device, where):
        """Command line of a server without EAL's options."""
        return ['--', '--device', device, '--serve', '--keys', f'{where}/keys.ini', f'{where}/runs']

    @staticmethod
    def client(device, server, where, sql, *options):
        """The same of a client."""
        return ['--', '--device', device, '--connect', server, '--identity', 'ana', '--key',
                f'{where}/ana', '--sql', sql, *options]

    def check(self, name, status, out, err):
        """Compare a result with the local one."""
        expected, sql = QUERIES[name][:2]
        want(status == expected, name, status, 'instead of', expected, err)
        local_out, local_err = self.local[name]
        if expected == 0:
            want(out == local_out, name, 'other values for', sql)
            want(err == '', name, err)
        else:
            # batches before an error may differ
            want(err.endswith(local_err), name, err, 'instead of', local_err)

    def check_counters(self, said):
        """What the server counted: one query was cancelled, and results came in all three ways."""
        found = re.search(r'queries: (\d+), cancelled: (\d+).*bytes in messages: (\d+), in slots: '
                          r'(\d+), read by clients: (\d+)', said)
        want(found, said)
        queries, cancelled, messages, slots, read = map(int, found.groups())
        want(queries == len(QUERIES) + 1 and cancelled == 1, said)
        # the cancelled one and that with an error were written to slots, too
        both = len(self.local['lists'][0]) + len(self.local['numbers'][0])
        want(messages > 0 and slots > 0.9 * both and 0.9 * both < read < 1.1 * both, said)


def read(path, mode='r'):
    with open(path, mode, encoding=None if 'b' in mode else 'utf-8') as data:
        return data.read()


def from_guest(rig):
    """Clients over verbs, server over roce."""
    server = rig.here('server', f'scan/{PROGRAM}', MEMORY, rig.server(ROCE, rig.where))
    rig.boot(f'app/scan/{PROGRAM}', more={rig.library: '/lib/libduckdb.so'})
    rig.until(lambda: 'listening' in read(rig.logs[-1]), server, 'listening')

    def there(*query):
        return rig.there(PROGRAM, MEMORY, rig.client(VERBS, OURS, '/share', *query))

    text = ''.join(f'{there(*query)} >/share/{name}.out 2>/share/{name}.err\n'
                   f'echo $? >/share/{name}.status\n' for name, (_, *query) in QUERIES.items())
    text += (f'mkfifo /tmp/out\n{there(ENDLESS, "--format", "csv")} >/tmp/out &\npid=$!\n'
             f'{INTERRUPT}echo $? >/share/status\n')
    job = rig.guest.start(rig.script('clients', text), SECONDS)
    want(job.wait() == 0, 'the guest:', job.status)
    for name in QUERIES:
        at = f'{rig.where}/{name}'
        rig.check(name, int(read(f'{at}.status')), read(f'{at}.out', 'rb'), read(f'{at}.err'))
    want(int(read(f'{rig.where}/status')) == CANCELLED, read(f'{rig.where}/status'))
    server.send_signal(signal.SIGTERM)
    rig.ends(server, PROGRAM)
    rig.check_counters(read(rig.logs[0]))


def to_guest(rig):
    """Clients over roce, server over verbs."""
    server = rig.there(PROGRAM, MEMORY, rig.server(VERBS, '/share'))
    # not a script(), which waits for the link: it is up only while a client runs
    job = rig.guest.start(
        f'export BRAGGLINE_DUCKDB=/lib/libduckdb.so; setsid {server} & pid=$!; '
        'until [ -e /share/stop ] || ! [ -d /proc/$pid ]; do usleep 100000; done; '
        'kill $pid; wait $pid', SECONDS)
    job.expect('listening', SECONDS)
    clients = 0

    def start(sql, *options):
        nonlocal clients
        clients += 1
        out = open(f'{rig.where}/out{clients}', 'wb')  # pylint: disable=consider-using-with
        return rig.here(f'client{clients}', f'scan/{PROGRAM}', MEMORY,
                        rig.client(ROCE, THEIRS, rig.where, sql, *options), stdout=out)

    for name, (_, *query) in QUERIES.items():
        client = start(*query)
        status = client.wait(SECONDS)
        rig.check(name, status, read(f'{rig.where}/out{clients}', 'rb'), read(rig.logs[-1]))
    client = start(ENDLESS, '--format', 'csv')
    rig.until(lambda: os.path.getsize(f'{rig.where}/out{clients}') > 0, client, 'a result')
    client.send_signal(signal.SIGINT)
    want(client.wait(SECONDS) == CANCELLED, client.returncode)
    with open(f'{rig.where}/stop', 'w', encoding='ascii'):
        pass
    want(job.wait() == 0, 'the guest:', job.status)
    rig.check_counters(job.output)


def test(build, modules):
    library = os.path.realpath(f'{modules}/{LIBRARY}')
    if not os.path.exists(library):
        raise Missing(library)
    with tempfile.TemporaryDirectory() as where, Rig(os.path.abspath(build), where, library) as rig:
        rig.play(from_guest, to_guest)


def main():
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    return outcome(test, *sys.argv[1:])


if __name__ == '__main__':
    sys.exit(main())
