#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The driver of ADBC with the address of a server: its results are those of a local statement, over
software RoCE and shared memory.

usage: adbc_remote_test.py ARROW_WRITE BRAGGLINE-SCAN DRIVER MODULES-DIR
"""

import contextlib
import ctypes
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(f'{HERE}/../smoke')

import sql_output_test as output  # pylint: disable=wrong-import-position
import sql_remote_test as remote  # pylint: disable=wrong-import-position
from sql_output_test import want  # pylint: disable=wrong-import-position

VERSION = 1001000  # of ADBC
# places of functions in the table of a driver, in pointers
TABLE = 58
(DATABASE_INIT, DATABASE_NEW, DATABASE_SET_OPTION, DATABASE_RELEASE, CONNECTION_INIT, CONNECTION_NEW,
 CONNECTION_RELEASE, STATEMENT_EXECUTE, STATEMENT_NEW, STATEMENT_RELEASE, STATEMENT_SET_SQL,
 STREAM_ERROR) = (3, 4, 5, 6, 12, 13, 16, 20, 23, 25, 27, 31)


class Error(ctypes.Structure):
    _fields_ = [('message', ctypes.c_char_p), ('vendor_code', ctypes.c_int32),
                ('sqlstate', ctypes.c_char * 5), ('release', ctypes.c_void_p)]


class Array(ctypes.Structure):
    _fields_ = [('length', ctypes.c_int64), ('null_count', ctypes.c_int64), ('offset', ctypes.c_int64),
                ('n_buffers', ctypes.c_int64), ('n_children', ctypes.c_int64),
                ('buffers', ctypes.POINTER(ctypes.c_void_p)), ('children', ctypes.POINTER(ctypes.c_void_p)),
                ('dictionary', ctypes.c_void_p), ('release', ctypes.c_void_p), ('private', ctypes.c_void_p)]


class Stream(ctypes.Structure):
    _fields_ = [('get_schema', ctypes.c_void_p), ('get_next', ctypes.c_void_p),
                ('get_last_error', ctypes.c_void_p), ('release', ctypes.c_void_p),
                ('private', ctypes.c_void_p)]


def function(address, result=ctypes.c_int):
    """A function whose arguments are pointers."""
    return lambda *arguments: ctypes.CFUNCTYPE(result, *[ctypes.c_void_p] * len(arguments))(address)(
        *[ctypes.cast(a, ctypes.c_void_p) if isinstance(a, bytes) else ctypes.addressof(a)
          if a is not None else None for a in arguments])


class Driver:
    """The driver, with a database and a connection."""

    def __init__(self, path, options):
        self.table = (ctypes.c_void_p * TABLE)()
        self.error = Error()
        library = ctypes.CDLL(path)
        want(library.AdbcDriverInit(VERSION, ctypes.byref(self.table), None) == 0, 'AdbcDriverInit')
        self.database, self.connection = (ctypes.c_void_p * 2)(), (ctypes.c_void_p * 2)()
        self.call(DATABASE_NEW, self.database)
        for name, value in options.items():
            self.call(DATABASE_SET_OPTION, self.database, name.encode(), value.encode())
        self.call(DATABASE_INIT, self.database)
        self.call(CONNECTION_NEW, self.connection)
        self.call(CONNECTION_INIT, self.connection, self.database)

    def status(self, place, *arguments):
        return function(self.table[place], ctypes.c_uint8)(*arguments, self.error)

    def call(self, place, *arguments):
        status = self.status(place, *arguments)
        want(status == 0, 'status', status, self.error.message)

    def query(self, sql, after_first=None):
        """Numbers of the first column, which must be 64 bits wide; or SQLSTATE and text of the error, and
        how many numbers came before it. `after_first` is called after the first batch."""
        statement, stream, array = (ctypes.c_void_p * 2)(), Stream(), Array()
        self.call(STATEMENT_NEW, self.connection, statement)
        self.call(STATEMENT_SET_SQL, statement, sql.encode())
        status = self.status(STATEMENT_EXECUTE, statement, stream, None)
        if status != 0:
            self.call(STATEMENT_RELEASE, statement)
            return self.error.sqlstate.decode(), self.error.message.decode()
        numbers = []
        while True:
            if function(stream.get_next)(stream, array) != 0:
                at = function(self.table[STREAM_ERROR], ctypes.c_void_p)(stream, None)
                error = Error.from_address(at)
                failed = error.sqlstate.decode(), error.message.decode(), len(numbers)
                function(stream.release, None)(stream)
                self.call(STATEMENT_RELEASE, statement)
                return failed
            if not array.release:
                break
            column = ctypes.cast(array.children[0], ctypes.POINTER(Array))[0]
            numbers += (ctypes.c_int64 * array.length).from_address(column.buffers[1])
            function(array.release, None)(array)
            if after_first:
                after_first()
                after_first = None
        function(stream.release, None)(stream)
        self.call(STATEMENT_RELEASE, statement)
        return numbers

    def close(self):
        self.call(CONNECTION_RELEASE, self.connection)
        self.call(DATABASE_RELEASE, self.database)


def server_options(pair, user, key):
    command = pair.eal('client')
    own = command.index('--')
    return {'uri': f'braggline://{remote.SERVER}', 'adbc.braggline.program': command[0],
            'adbc.braggline.eal_arguments': '\n'.join(command[1:own]),
            'adbc.braggline.device': command[own + 2], 'username': user,
            'adbc.braggline.key': f'{pair.where}/{key}'}


def dictionaries(client):
    """Results of one schema each have a dictionary of their own, here in a slot."""
    for i in range(20):
        enum = "ENUM(" + ', '.join(f"'{i}-{k}-{'x' * 60}'" for k in range(300)) + ')'
        got = client.query(f"SELECT {i}::BIGINT AS i, '{i}-7-{'x' * 60}'::{enum} AS e")
        want(got == [i], 'query', i, got)


def lost(pair, client):
    """The server ends in the middle of a result: this statement fails, and the next one of the same
    connection has a new session."""
    got = client.query('SELECT i FROM range(1000000000) t(i)', pair.server.kill)
    state, text, rows = got if isinstance(got, tuple) else ('', '', len(got))
    want(state == '08S01' and 'the connection to the server is lost' in text and 0 < rows < 1000000000,
         state, text, rows)
    state, text = client.query('SELECT 1')
    want(state == '08001', 'without a server', state, text)
    pair.server.wait()
    pair.start()
    want(client.query('SELECT 7::BIGINT') == [7], 'after the restart of the server')


def helper_of(pair):
    """@return process of the driver that is connected to the server"""
    with open(f'/proc/self/task/{os.getpid()}/children', encoding='ascii') as children:
        for pid in map(int, children.read().split()):
            with open(f'/proc/{pid}/cmdline', 'rb') as words:
                if pid != pair.server.pid and b'--session' in words.read().split(b'\0'):
                    return pid
    raise AssertionError('no process of the driver')


def idle_program(pair):
    """@return a program that starts the pair's, and the file to which its standard error goes"""
    program, log = f'{pair.where}/program', f'{pair.where}/client.log'
    with open(program, 'w', encoding='utf-8') as script:
        script.write(f'#!/bin/sh\nexec {shlex.quote(pair.program)} "$@" 2>> {shlex.quote(log)}\n')
    os.chmod(program, 0o700)
    return program, log


def idle(pair, driver):
    """The server ends an idle session while a statement is on its way: a new session executes it. The
    client may learn of the end before it begins the statement, which is no such case."""
    # which tells its clients
    pair.server.terminate()
    pair.server.wait()
    pair.start('--idle', '1')
    program, log = idle_program(pair)
    options = server_options(pair, 'ana', 'ana')
    options['adbc.braggline.program'] = program
    options['adbc.braggline.eal_arguments'] += '\n--log-level\nbraggline.scan.query:debug'
    client = Driver(driver, options)
    said, ended, attempts = b'', b"no query in the server's idle time", 0
    while b'the server ended the idle session, and no statement' not in said:
        attempts += 1
        want(attempts < 20, 'all statements begin after the end of the session', said)
        got = client.query('SELECT 5::BIGINT')
        want(got == [5], 'before the idle time', got)
        helper, before = helper_of(pair), pair.said().count(ended)
        os.kill(helper, signal.SIGSTOP)
        end = time.monotonic() + 30
        while pair.said().count(ended) == before:
            want(time.monotonic() < end, 'the session stays', pair.said())
            time.sleep(0.02)
        later = threading.Timer(0.1, os.kill, (helper, signal.SIGCONT))
        later.start()
        got = client.query('SELECT 6::BIGINT')
        later.join()
        with open(log, 'rb') as lines:
            said = lines.read()
        want(got == [6], 'after the idle time', got, said)
        want(helper_of(pair) == helper, 'the process has ended')
    client.close()


def messages(pair, driver):
    """An error is the message of the program. What EAL logs is in front of it only if EAL does not
    start, for a cause that only EAL knows, or with --log-level."""
    # net_pcap has a notice of its own: it copies payload
    options = {name: value.replace('net_pcap0', 'net_af_packet0').replace(',phy_mac=1', '')
               for name, value in server_options(pair, 'ana', 'eve').items()}
    arguments = options['adbc.braggline.eal_arguments'].splitlines()
    while '--log-level' in arguments:
        at = arguments.index('--log-level')
        del arguments[at:at + 2]
    refused = r"braggline-scan: .*wrong identity or key.*"
    for more, state, said in (
            ([], '28000', refused),
            (['--log-level=lib.eal:info'], '28000', f'EAL: (.*\n)+{refused}'),
            (['--vdev', 'net_none0'], 'HY000',
             r'(EAL: .*\n){2,8}braggline-scan: cannot start EAL: a device is missing .*'),
            (['-l', 'x'], 'HY024',
             r'(EAL: .*\n){2,8}braggline-scan: cannot start EAL: it rejects one of its options, .*')):
        options['adbc.braggline.eal_arguments'] = '\n'.join([*arguments, *more])
        client = Driver(driver, options)
        got = client.query('SELECT 1')
        client.close()
        want(got[0] == state and re.fullmatch(said, got[1]), more, got)


def main():
    arrow_write, program, driver, modules = sys.argv[1:5]
    library = f'{modules}/{output.LIBRARY}'
    if not os.path.exists(library):
        output.skip(library)
    os.environ['BRAGGLINE_DUCKDB'] = library
    with tempfile.TemporaryDirectory() as where:
        os.mkdir(f'{where}/runs')
        subprocess.run([arrow_write, f'{where}/runs', 'lyso_7', 'float32', '2', '60', '1'], check=True,
                       stdout=subprocess.DEVNULL)
        pair = remote.Pair(program, where)
        with contextlib.closing(pair):
            far = Driver(driver, server_options(pair, 'ana', 'ana'))
            near = Driver(driver, {'uri': f'{where}/runs', 'adbc.braggline.program': program})
            for sql in ('FROM lyso_7.frames', 'SELECT i FROM range(100000) t(i)',
                        'SELECT 1::BIGINT WHERE false', 'SELECT count(*), list(col) FROM lyso_7.images'):
                got = far.query(sql)
                want(got == near.query(sql) and isinstance(got, list), sql, got)
            state, text = far.query('SELECT nothing')
            want(state == '42000' and 'nothing' in text, state, text)
            dictionaries(far)
            far.close()
            pulling = Driver(driver, {**server_options(pair, 'ana', 'ana'), 'adbc.braggline.pull': 'true'})
            sql = 'SELECT i FROM range(1000000) t(i)'
            want(pulling.query(sql) == near.query(sql), sql)
            near.close()
            lost(pair, pulling)
            pulling.close()
            idle(pair, driver)
            messages(pair, driver)
            pair.server.kill()
    print('a server and files: the same results')


if __name__ == '__main__':
    main()
