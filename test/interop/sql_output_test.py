#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Output of braggline-scan --sql: values of all types as CSV, JSON and Arrow, where apache-arrow for JS
reads the latter; its exit status, and what it does on signals and errors.

usage: sql_output_test.py ARROW_WRITE BRAGGLINE-SCAN MODULES-DIR
"""

import csv
import io
import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
LIBRARY = 'node_modules/@duckdb/node-bindings-linux-x64/libduckdb.so'
ROWS = 2500  # more than a vector of DuckDB
ARRAY = '::INTEGER[3]'
# name: SQL of row i, type in Arrow, SQL of the text that sql_arrow.mjs makes of it; None: that of
# --format json
TYPES = {
    'b': ('i % 3 = 0', 'Bool', None),
    'i8': ('(i % 256 - 128)::TINYINT', 'Int8', None),
    'u8': ('(i % 256)::UTINYINT', 'Uint8', None),
    'i16': ('(i * 13 - 32768)::SMALLINT', 'Int16', None),
    'u16': ('(i * 13)::USMALLINT', 'Uint16', None),
    'i32': ('(i * -400000)::INTEGER', 'Int32', None),
    'u32': ('(i * 800000)::UINTEGER', 'Uint32', None),
    'i64': ('i * -1000000000000001', 'Int64', None),
    'u64': ('(18446744073709551615 - i)::UBIGINT', 'Uint64', None),
    'h': ('i::HUGEINT * -100000000000000000000000000', 'Decimal[38e0]', None),
    'd4': ('(i / 100)::DECIMAL(4, 2)', 'Decimal[4e+2]', None),
    'd38': ('(i::HUGEINT * 10000000000000000000)::DECIMAL(38, 5)', 'Decimal[38e+5]', None),
    'f': ("CASE i % 5 WHEN 0 THEN 'nan'::FLOAT WHEN 1 THEN 'inf'::FLOAT WHEN 2 THEN '-inf'::FLOAT "
          "ELSE (i / 7)::FLOAT END", 'Float32', None),
    'd': ("CASE i % 5 WHEN 0 THEN 'nan'::DOUBLE ELSE i / 7 * 1e300 END", 'Float64', None),
    't': ("repeat('é\"\\,' || chr(10), (i % 5)::INT) || i", 'Utf8', None),
    'empty': ("''", 'Utf8', None),
    'blob': ("('\\x00\\xFF' || i::VARCHAR)::BLOB", 'Binary', None),
    'e': ("(['one', 'two', 'three'])[i % 3 + 1]::ENUM('one', 'two', 'three')",
          'Dictionary<Uint8, Utf8>', None),
    'uuid': ("('00000000-0000-0000-0000-' || lpad(i::VARCHAR, 12, '0'))::UUID", 'Utf8', None),
    'n': ('NULL::INTEGER', 'Int32', None),
    'l': ('range(i % 5)', 'List<Int64>', None),
    'll': ("[[i, NULL], [], NULL]", 'List<List<Int64>>', None),
    'lt': ("list_transform(range(i % 4), lambda v: CASE WHEN v = 2 THEN NULL ELSE 'x' || v END)",
           'List<Utf8>', None),
    'a': ('[i, i + 1, NULL]::INTEGER[3]', 'FixedSizeList[3]<Int32>', None),
    's': ("{'x': i, 'y': {'z': [i / 2]}, 'n': CASE WHEN i % 2 = 0 THEN 'even' END}",
          'Struct<{x:Int64, y:Struct<{z:List<Float64>}>, n:Utf8}>', None),
    'day': ("'2020-01-01'::DATE + i::INTEGER", 'Date32<DAY>', "(day - '1970-01-01'::DATE)::VARCHAR"),
    'time': ("'00:00:00.000001'::TIME + to_seconds(i)", 'Time64<MICROSECOND>',
             'epoch_us(time)::VARCHAR'),
    'ts': ("'1969-12-31 23:59:59.999999'::TIMESTAMP + to_microseconds(i)", 'Timestamp<MICROSECOND>',
           'epoch_us(ts)::VARCHAR'),
    'tsn': ("make_timestamp_ns(1700000000000000001 + i)", 'Timestamp<NANOSECOND>',
            'epoch_ns(tsn)::VARCHAR'),
    'tsm': ("make_timestamp_ms(1700000000001 + i)::TIMESTAMP_MS", 'Timestamp<MILLISECOND>',
            'epoch_ms(tsm)::VARCHAR'),
    'tss': ("'2020-01-01'::TIMESTAMP_S + to_seconds(i)", None, None),
    'tz': ("'2020-01-01 00:00:00+00'::TIMESTAMPTZ + to_seconds(i)", None, None),
    'iv': ("to_months(i) + to_days(3) + to_microseconds(i)", 'Interval<MONTH_DAY_NANO>',
           "datepart('year', iv) * 12 + datepart('month', iv) || ' ' || datepart('day', iv) || ' ' "
           "|| i * 1000"),
    'm': ("map(['a', 'b'], [i, NULL])", 'Map<{key:Utf8, value:Int64}>', None),
    'un': ("CASE WHEN i % 2 = 0 THEN union_value(num := i)::UNION(num BIGINT, str VARCHAR) ELSE "
           "union_value(str := 's')::UNION(num BIGINT, str VARCHAR) END", None, None),
}
WIDE = ('h', 'd4', 'd38')  # numbers that Python's parser would round


def skip(what):
    print(f'SKIPPED: {what} is missing (make deps)')
    sys.exit(77)


def want(condition, *text):
    if not condition:
        print('FAILED:', *text)
        sys.exit(1)


class Scan:
    def __init__(self, program, directory):
        self.program, self.directory = program, directory

    def run(self, sql, *options, status=0, said='', **how):
        done = subprocess.run([self.program, self.directory, '--sql', sql, *options], check=False,
                              capture_output=True, **how)
        error = done.stderr.decode()
        want(done.returncode == status and said in error, f'{error}\nstatus {done.returncode}, '
             f'expected {status} with "{said}": {options} {sql}')
        return done.stdout


def inner(names=tuple(TYPES)):
    # every seventh row is null in all columns; CASE has no arrays
    return ', '.join(f'(CASE WHEN i % 7 = 6 THEN NULL ELSE {TYPES[n][0].removesuffix(ARRAY)} END)'
                     f'{ARRAY if TYPES[n][0].endswith(ARRAY) else ""} AS {n}' for n in names)


def digits(value):
    """As sql_arrow.mjs: integers as text."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return str(value)
    if isinstance(value, list):
        return [digits(v) for v in value]
    if isinstance(value, dict):
        return {k: digits(v) for k, v in value.items()}
    return value


def types(scan, modules):
    rows = f'(SELECT {inner()} FROM range({ROWS}) t(i))'
    plain = scan.run(f'FROM {rows} q', '--format', 'csv').decode()
    stream = scan.run(f'FROM {rows} q', '--format', 'arrow')
    node = subprocess.run(['node', f'{HERE}/sql_arrow.mjs', modules], input=stream, check=True,
                          stdout=subprocess.PIPE)
    head, *lines = node.stdout.decode().splitlines()
    head, arrow = json.loads(head), [json.loads(line) for line in lines]
    # the same values in the form of sql_arrow.mjs
    forms = [f'{TYPES[n][2]} AS {n}' if TYPES[n][2] else n for n in TYPES]
    expected = scan.run(f'SELECT {", ".join(forms)} FROM (SELECT i, {inner()} FROM range({ROWS}) t(i)) q',
                        '--format', 'json').decode().splitlines()
    expected = [json.loads(line, parse_float=str) for line in expected]
    text = list(csv.reader(io.StringIO(plain)))
    want(len(arrow) == len(expected) == len(text) - 1 == ROWS, len(arrow), len(expected), len(text))
    want(text[0] == list(TYPES), text[0])
    for name, (_, kind, _) in TYPES.items():
        want(kind in (None, head[name]), name, 'is', head[name], 'expected', kind)
    for i, (got, row, cells) in enumerate(zip(arrow, expected, text[1:])):
        null = i % 7 == 6
        want(all(cell == '' for cell in cells) if null else cells[0] == str(i % 3 == 0).lower(), i, cells)
        for name, (_, kind, _) in TYPES.items():
            value = got[name]
            if null or name == 'n':
                want(value is None and row[name] is None, i, name, value, row[name])
                continue
            if kind is None or name == 'm':
                continue
            if name in ('f', 'd', 's'):
                # floating point: the same number
                same = json.loads(json.dumps(value)) == restore(row[name], name)
            else:
                same = value == digits(row[name])
            want(same, 'row', i, name, value, 'expected', row[name])
            if name in ('t', 'uuid', 'e', 'i64', 'u64', 'h', 'd38'):
                want(cells[list(TYPES).index(name)] == str(value), i, name, cells)
        if not null:
            want(got['m'] == [{'key': 'a', 'value': str(i)}, {'key': 'b', 'value': None}], got['m'])
            want(got['un'] == (str(i) if i % 2 == 0 else 's'), got['un'])
    print(f'{len(TYPES)} types, {ROWS} rows: CSV, JSON and apache-arrow agree')


def restore(value, name):
    """Floating-point numbers of --format json, which were kept as text; single precision is exact."""
    if isinstance(value, dict):
        return {k: restore(v, k) for k, v in value.items()}
    if isinstance(value, list):
        return [restore(v, name) for v in value]
    if name == 'x':
        return str(value)
    if value is None or value in ('NaN', 'Infinity', '-Infinity', 'even'):
        return value
    if name == 'f':
        import struct
        return struct.unpack('f', struct.pack('f', float(value)))[0]
    return float(value)


def blocked(pid):
    """Whether a process has blocked SIGINT: then it waits for it."""
    with open(f'/proc/{pid}/status', encoding='ascii') as file:
        mask = next(line.split()[1] for line in file if line.startswith('SigBlk'))
    return int(mask, 16) >> (signal.SIGINT - 1) & 1


def cancel(scan):
    endless = ('SELECT count(*) FROM range(1000000000) a, range(1000000000) b '
               'WHERE a.range * b.range = 7')
    with subprocess.Popen([scan.program, scan.directory, '--sql', endless], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as process:
        while process.poll() is None and not blocked(process.pid):
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=60)
        want(process.returncode == 130 and b'cancelled' in error and out == b'',
             'SIGINT:', process.returncode, out, error)
    # nobody reads its output: the second SIGINT ends it
    with subprocess.Popen([scan.program, scan.directory, '--format', 'csv', '--sql',
                           'SELECT * FROM range(100000000)'], stdout=subprocess.PIPE) as process:
        process.stdout.read(1)
        while process.poll() is None:  # signals that are pending together count once
            process.send_signal(signal.SIGINT)
            time.sleep(0.05)
        want(process.returncode == 130, 'second SIGINT:', process.returncode)


def closed(scan):
    """The reader of the output exits before the query has a row: the query ends as with a failed
    write."""
    with subprocess.Popen([scan.program, scan.directory, '--format', 'arrow', '--sql',
                           'SELECT count(*) FROM range(1000000000) a, range(1000000000) b '
                           'WHERE a.range * b.range = 7'], stdout=subprocess.PIPE) as process:
        process.stdout.close()
        want(process.wait(timeout=60) == -signal.SIGPIPE, 'closed pipe:', process.returncode)


def progress(scan):
    """Rows read so far, on a terminal."""
    endless = ('SELECT count(*) FROM lyso_7.frames f, range(1000000000) a, range(1000000000) b '
               'WHERE a.range * b.range = f.frame')
    terminal, end = pty.openpty()
    with subprocess.Popen([scan.program, scan.directory, '--sql', endless], stdout=subprocess.PIPE,
                          stderr=end) as process:
        os.close(end)
        said = b''
        while b'\rbraggline-scan: 100 of 100 rows read' not in said:
            said += os.read(terminal, 1000)
        process.send_signal(signal.SIGINT)
        want(process.wait(timeout=60) == 130, 'SIGINT:', process.returncode)
    os.close(terminal)


def behaviour(scan, directory):
    want(scan.run('SELECT 42 AS answer, NULL AS nothing') ==
         b'answer  nothing\n------  -------\n    42     NULL\n(1 row)\n', 'table')
    want(scan.run("SELECT 'a' || chr(9) || 'b' AS t, repeat('é', 99) AS long") ==
         f't       {"long":64}\n------  {"-" * 64}\na\\x09b  {"é" * 61}...\n(1 row)\n'
         .replace(f'{"long":64}', 'long').encode(), 'escapes', scan.run("SELECT 'a' || chr(9) || 'b' AS t, repeat('é', 99) AS long"))
    want(scan.run('-', '--format', 'csv', input=b'SELECT 1 AS x -- from a file\n') == b'x\n1\n', 'stdin')
    want(scan.run("SELECT '' AS e, NULL AS n, 'a\"b' AS q", '--format', 'csv') ==
         b'e,n,q\n"",,"a""b"\n', 'csv')
    want(scan.run('SELECT sum(frame) AS s, 1.5 AS d FROM lyso_7.frames WHERE frame <= 6', '--format',
                  'json') == b'{"s":10,"d":1.5}\n', 'json')
    want(scan.run('FROM runs', '--format', 'csv') ==
         b'run,table_name,files\nlyso_7,frames,1\nlyso_7,images,1\n', 'runs')
    want(scan.run('SELECT 1 WHERE false', '--format', 'csv') == b'1\n', 'no rows')
    scan.run('SELECT nothing', status=1, said='column "nothing" was not found')
    scan.run("SELECT 1/0 = error('stop')", status=1, said='stop')
    # text of an error: no control characters, and no line that looks like a message
    scan.run("SELECT error(chr(27) || '[31mred' || chr(10) || 'braggline-scan: forged' || chr(155))",
             status=1, said='Error: \\x1b[31mred\n  braggline-scan: forged\\xc2\\x9b\n')
    scan.run('SELECT nothing', status=1, said='\n  LINE 1: SELECT nothing\n                 ^\n')
    scan.run('SELECT list_sum(frame) FROM lyso_7.images', status=1, said='\n   Candidate functions:\n')
    # the plan of EXPLAIN is a drawing
    plan = scan.run('EXPLAIN SELECT frame FROM lyso_7.images').decode()
    want(plan.startswith('lists:\nthrough the engine\nphysical_plan:\n┌────') and '\n└────' in plan and
         '...' not in plan and '\\x0a' not in plan, plan)
    scan.run('SELECT frame FROM lyso_7.image', status=1,
             said='lyso_7.image: run lyso_7 has the tables frames and images\n')
    scan.run('DROP TABLE x', status=1, said='expected a SELECT statement')
    scan.run('SELECT 1', '--format', 'xml', status=2, said='expected table, csv, json or arrow')
    scan.run('SELECT 1', '--threads', '0', status=2, said='expected 1 to 9999')
    for size in ('much', '5'):
        scan.run('SELECT 1', '--memory', size, status=2,
                 said=f'--memory: expected a size such as 8GB, not {size}\n')
    scan.run('SELECT 1', '--csv', '-', status=2, said='--sql cannot be used with')
    scan.run('SELECT 1', status=1, said='set BRAGGLINE_DUCKDB to the path of libduckdb.so of a release '
             "of DuckDB; in the source tree, 'make deps' installs",
             env={**os.environ, 'BRAGGLINE_DUCKDB': '/nonexistent'})
    scan.run('SELECT count(*) FROM lyso_7.frames', '--threads', '2', '--memory', '1GB', '--unordered')
    done = subprocess.run([scan.program, directory, '--format', 'csv'], check=False, capture_output=True)
    want(done.returncode == 2 and b'only with --sql' in done.stderr, done.stderr)
    with open('/dev/full', 'wb') as full:
        done = subprocess.run([scan.program, directory, '--format', 'csv', '--sql',
                               'SELECT * FROM range(100000)'], check=False, stdout=full,
                              stderr=subprocess.PIPE)
    want(done.returncode == 1 and b'cannot write the result: No space left' in done.stderr, done.stderr)
    # a damaged batch: the other rows, a line on standard error, and status 1
    path = f'{directory}/lyso_7_frames.arrow'
    with open(path, 'r+b') as file:
        file.seek(12300)
        byte = file.read(1)[0]
        file.seek(12300)
        file.write(bytes([byte ^ 1]))
    rows = scan.run('SELECT count(*) AS n FROM lyso_7.frames', '--format', 'csv', status=1,
                    said='lyso_7_frames.arrow: damaged, left out: batch 0 at byte 8192: a batch with a '
                         'wrong CRC-32C')
    want(0 < int(rows.split()[1]) < 100, rows)
    print('table, errors, limits and damaged files: as expected')


def main():
    write, program, modules = sys.argv[1:4]
    library = os.path.abspath(f'{modules}/{LIBRARY}')
    if not shutil.which('node'):
        skip('node')
    for needed in (f'{modules}/node_modules/apache-arrow', library):
        if not os.path.exists(needed):
            skip(needed)
    os.environ['BRAGGLINE_DUCKDB'] = library
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run([write, directory, 'lyso_7', 'float32', '2', '100', '1'], check=True)
        scan = Scan(program, directory)
        types(scan, modules)
        cancel(scan)
        closed(scan)
        progress(scan)
        behaviour(scan, directory)


if __name__ == '__main__':
    main()
