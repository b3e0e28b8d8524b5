#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Random queries of runs give the same rows as native tables of DuckDB, which were filled with the
files by another path: apache-arrow for JS finds the buffers, and DuckDB inserts them from Arrow's C
data interface.

usage: sql_test.py ARROW_WRITE SQL_RUN BRAGGLINE-SCAN EXTENSION MODULES-DIR [SEED [QUERIES]]
"""

import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile

from duckdb_arrow import DuckDB

HERE = os.path.dirname(os.path.abspath(__file__))
LIBRARY = 'node_modules/@duckdb/node-bindings-linux-x64/libduckdb.so'
# name, type, modules, frames of each set of files; sets of a run have the same frame numbers, as
# after a restart of the detector
RUNS = [('lyso_7', 'float32+peaks', 2, [150]), ('Dark-1', 'float32+peaks', 2, [9]),
        ('two', 'float32', 2, [60, 40])]
NUMBERS = {'frames': ['frame', 'bunch_id', 'detector_time', 'exposure', 'flags', 'strong_count',
                      'saturated', 'invalid', 'nnz', 'verdict', 'kind', 'veto_version'],
           'images': ['frame', 'kind']}
OTHERS = {'frames': ['receive_time', 'sum', 'missing'],
          'images': ['row_ptr', 'col', 'value', 'raw', 'missing']}
PEAKS = {'frames': ['peaks', 'shell_peaks'],
         'images': ['peak_fs', 'peak_ss', 'peak_intensity', 'peak_pixels', 'peak_panel']}

# what sql_run prints of a result as Arrow stream
STREAM = ('bytes', 'hash', 'rows', 'row_hash', 'batches', 'names')


def skip(what):
    print(f'SKIPPED: {what} is missing (make deps)')
    sys.exit(77)


def want(condition, *text):
    if not condition:
        print('FAILED:', *text)
        sys.exit(1)


def quoted(name):
    return f'"{name}"'


class Generator:
    """Makes statements that are valid for both engines, and whose result has one value."""

    def __init__(self, seed):
        self.r = random.Random(seed)

    def pick(self, *choices):
        return self.r.choice(choices)

    def number(self):
        return self.r.choice([0, 1, -1, 5, 17, 64, 65, 100, 128, 200, 300, 2**40, 2**63,
                              self.r.randrange(320), self.r.randrange(320)])

    def table(self):
        table = self.pick('frames', 'images')
        if self.r.random() < 0.15:
            return self.spelled(table), table, False
        name, kind, *_ = self.r.choice(RUNS)
        return self.spelled(f'{quoted(name)}.{table}'), table, 'peaks' in kind

    def spelled(self, name):
        """Another name of the same table."""
        if '.' not in name:
            name = self.pick('', '', 'main.', 'memory.', 'Memory.MAIN.') + name
        elif name.startswith('"'):
            schema, table = name.split('.')
            name = self.pick(schema, schema, schema.upper(), f'memory.{schema}') + '.' + table
        return name

    def of_frame(self, column):
        n, m = self.number(), self.number()
        op = self.pick('=', '<', '<=', '>', '>=', '!=', '<>', 'IS DISTINCT FROM')
        return self.pick(
            f'{column} {op} {n}', f'{n} {op} {column}', f'{column} BETWEEN {n} AND {m}',
            f'{column} BETWEEN {min(n, m)} AND {max(n, m)}', f'{column} NOT BETWEEN {n} AND {m}',
            f'{column} IN ({n}, {m}, {self.number()})', f'{column} NOT IN ({n}, {m})',
            f'NOT {column} < {n}', f'{column} >= {n}::HUGEINT', f'{column} < {n}.5',
            f'{column} + 1 > {n}', f'({column} < {n} OR {column} > {m})')

    def term(self, alias, table, depth=0):
        p = f'{alias}.' if alias else ''
        choice = self.r.random()
        if choice < 0.6:
            return self.of_frame(f'{p}{self.pick("frame", "FRAME", "frame")}')
        if choice < 0.75:
            return f'{p}{self.r.choice(NUMBERS[table])} {self.pick("<", ">=", "=")} {self.number()}'
        if choice < 0.9 and table == 'images':
            return self.pick(f'len({p}col) > {self.r.randrange(400)}', f'{p}raw IS NULL',
                             f'{p}raw IS NOT NULL', f'list_max({p}value) > 0',
                             f'{p}value[1] < 0', f'octet_length({p}missing) > 1')
        if depth < 2:
            op = self.pick('AND', 'OR')
            return f'({self.term(alias, table, depth + 1)} {op} {self.term(alias, table, depth + 1)})'
        return f'{p}missing IS NOT NULL'

    def where(self, alias, table):
        terms = [self.term(alias, table) for _ in range(self.r.randrange(4))]
        return ' WHERE ' + ' AND '.join(terms) if terms else ''

    def columns(self, alias, table, peaks):
        p = f'{alias}.' if alias else ''
        names = NUMBERS[table] + OTHERS[table] + (PEAKS[table] if peaks else [])
        some = self.r.sample(names, self.r.randrange(1, min(6, len(names))))
        return ', '.join(self.pick(
            f'{p}{c}', f'{p}{c}', f'md5({p}{c}::VARCHAR)', f'{p}{c} IS NULL') for c in some)

    def statement(self):
        forms = [self.plain, self.plain, self.aggregate, self.distinct, self.join, self.join,
                 self.union, self.nested, self.window, self.twice]
        return self.r.choice(forms)()

    def plain(self):
        name, table, peaks = self.table()
        alias = self.pick('', 't')
        return (f'SELECT {self.columns(alias, table, peaks)} FROM {name} {alias}'
                f'{self.where(alias, table)}'
                + self.pick('', '', f' ORDER BY ALL LIMIT {self.r.randrange(40)}'))

    def lists(self):
        """Statements whose columns are lists, of which some may be deferred."""
        form = self.r.choice([self.list_columns, self.list_columns, self.list_join, self.list_other,
                              self.list_batches])
        return form()

    def list_columns(self):
        name, table, peaks = self.table()
        alias = self.pick('t', 'u')
        names = OTHERS[table] + (PEAKS[table] if peaks else [])
        some = self.r.sample(names, self.r.randrange(1, min(5, len(names))))
        some += self.r.sample(NUMBERS[table], 2)
        self.r.shuffle(some)
        columns = [self.pick(c, c.upper(), f'{alias}.{c}', f'{c} AS a{i}', f'{alias}.{c} {c}')
                   for i, c in enumerate(some)]
        if self.r.random() < 0.2:
            columns.append(self.pick(f'len({some[0]}::VARCHAR)', 'a0', f'{some[1]} IS NULL', '*',
                                     'frame + 1', '[frame]', 'row_number() OVER (ORDER BY frame)'))
        select = self.pick(', '.join(columns), ', '.join(columns), '*', f'{alias}.*',
                           '* EXCLUDE (frame)', '* REPLACE (frame + 1 AS frame)', 'COLUMNS(*)')
        order = self.pick('', '', ' ORDER BY frame', ' ORDER BY kind', ' ORDER BY kind, frame DESC',
                          ' ORDER BY ALL', ' ORDER BY 1', ' ORDER BY a0', f' ORDER BY {some[0]}')
        limit = self.pick('', '', f' LIMIT {self.r.randrange(40)}',
                          f' LIMIT {self.r.randrange(40)} OFFSET {self.r.randrange(20)}')
        distinct = self.pick('', '', '', '', 'DISTINCT ', 'DISTINCT ON (kind) ')
        return f'SELECT {distinct}{select} FROM {name} {alias}{self.where("", table)}{order}{limit}'

    def list_batches(self):
        """Many rows of many batches."""
        name, kind, *_ = self.r.choice(RUNS)
        names = OTHERS['images'] + NUMBERS['images'] + (PEAKS['images'] if 'peaks' in kind else [])
        columns = ', '.join(f't.{c}' for c in self.r.sample(names, self.r.randrange(1, len(names))))
        run = quoted(name)
        source = self.pick(f'{run}.images t', f'{run}.images t', f'{run}.images t, range(3) q(i)',
                           f'{run}.images t JOIN {run}.frames f USING (frame)')
        where = self.pick('', '', f' WHERE t.frame % {self.r.randrange(2, 9)} > 0',
                          f' WHERE t.frame <> {self.number()}', ' WHERE t.kind <> 1')
        return f'SELECT {columns} FROM {source}{where}'

    def list_join(self):
        run = quoted(self.r.choice(RUNS)[0])
        how = self.pick('', 'INNER', 'LEFT', 'RIGHT', 'FULL', 'SEMI', 'ANTI', 'NATURAL')
        on = '' if how == 'NATURAL' else self.pick(
            'USING (frame)', 'USING (frame, kind)', 'ON a.frame = b.frame', 'ON a.frame < b.frame',
            'ON a.frame = b.frame AND len(a.col) > 9')
        a, b = self.pick(('images', 'frames'), ('images', 'frames'), ('images', 'images'))
        columns = self.pick('*', 'a.*', 'a.frame, a.col, a.value', 'a.frame, a.raw, a.value AS v',
                            'a.col, a.row_ptr, b.frame, b.nnz', 'b.missing, a.missing, a.value')
        order = self.pick('', '', ' ORDER BY a.frame', ' ORDER BY a.frame, b.frame LIMIT 20')
        return (f'SELECT {columns} FROM {run}.{a} a {how} JOIN {run}.{b} b {on} '
                f'WHERE {self.of_frame("a.frame")}{order}')

    def list_other(self):
        run = quoted(self.r.choice(RUNS)[0])
        inner = self.where('', 'frames')
        return self.pick(
            f'SELECT frame, col, value FROM {run}.images WHERE frame IN (SELECT frame FROM '
            f'{run}.frames{inner})',
            f'WITH q AS (SELECT frame, nnz FROM {run}.frames{inner}) SELECT nnz, col, value FROM '
            f'{run}.images JOIN q USING (frame)',
            f'WITH q AS (SELECT frame, col FROM {run}.images) SELECT q.col, t.value FROM q JOIN '
            f'{run}.images t USING (frame)',
            f'SELECT frame, value FROM (FROM {run}.images) q{self.where("", "images")}',
            f'SELECT q.n, t.col FROM {run}.images t, (SELECT count(*) n FROM {run}.frames) q',
            f'SELECT t.col, r FROM {run}.images t, range(2) q(r)',
            f'SELECT t.col, i FROM {run}.images t, (SELECT unnest([1, 2]) i) q',
            f'SELECT col, value FROM {run}.images UNION ALL SELECT col, value FROM {run}.images',
            f'SELECT col FROM {run}.images EXCEPT SELECT col FROM {run}.images WHERE frame < 30',
            f'SELECT col, count(*) FROM {run}.images GROUP BY col ORDER BY ALL',
            f'SELECT any_value(value), kind FROM {run}.images GROUP BY kind ORDER BY kind',
            f'SELECT col, value FROM {run}.images GROUP BY ALL ORDER BY ALL',
            f'SELECT t FROM {run}.images t', f'SELECT images FROM {run}.images',
            f'SELECT t, value FROM {run}.images t ORDER BY t',
            f'SELECT struct_pack(a := col) AS s, value FROM {run}.images',
            f'SELECT CASE WHEN frame > 60 THEN value END v, col FROM {run}.images',
            f'SELECT value AS v, v AS w, col FROM {run}.images ORDER BY {self.pick("w", "frame")}',
            f'SELECT value AS frame, col FROM {run}.images t ORDER BY {self.pick("frame", "t.frame")}',
            f'SELECT col, value FROM {run}.images QUALIFY row_number() OVER (PARTITION BY kind '
            f'ORDER BY {self.pick("frame", "len(col)", "col")}) < 5',
            f'SELECT col, lag(value) OVER (ORDER BY frame) v FROM {run}.images',
            f'SELECT unnest(col) c, frame FROM {run}.images',
            f'SELECT a.col FROM {run}.images a WHERE EXISTS (FROM {run}.images b WHERE b.col = a.col '
            'AND b.frame < a.frame)',
            f'SELECT value, col FROM {run}.images USING SAMPLE 100%',
            "SELECT run, col, missing FROM images('*', first := 20) WHERE run <> 'two'",
            f'SELECT * FROM {run}.images POSITIONAL JOIN {run}.frames',
            f'SELECT a.col, b.nnz FROM {run}.images a ASOF JOIN {run}.frames b ON a.frame >= b.frame',
            f'SELECT t.* FROM {run}.images t(a, b, c, d)')

    def aggregate(self):
        name, table, _ = self.table()
        key = self.r.choice(NUMBERS[table])
        having = self.pick('', ' HAVING count(*) > 2')
        return (f'SELECT {key}, count(*), min(frame), max(frame), sum(frame), '
                f'count(DISTINCT kind) FROM {name}{self.where("", table)} GROUP BY {key}{having}')

    def distinct(self):
        name, table, _ = self.table()
        column = self.r.choice(NUMBERS[table] + OTHERS[table])
        return self.pick(f'SELECT DISTINCT {column} FROM {name}{self.where("", table)}',
                         f'SELECT count(*), count({column}), max({column}::VARCHAR) FROM {name}'
                         f'{self.where("", table)}')

    def join(self):
        a, table_a, _ = self.table()
        b, table_b, _ = self.table()
        how = self.pick('', 'INNER', 'LEFT', 'RIGHT', 'FULL', 'SEMI', 'ANTI')
        on = self.pick('USING (frame)', 'ON a.frame = b.frame', 'ON a.frame = b.frame + 1')
        one = how in ('SEMI', 'ANTI')
        terms = [self.term('a', table_a)]
        if not one and self.r.random() < 0.5:
            terms.append(self.term('b', table_b))
        if on.startswith('USING') and self.r.random() < 0.6:
            terms.append(self.of_frame('frame'))
        select = 'count(*), sum(a.frame), min(a.kind)' + ('' if one else ', sum(b.frame), max(b.kind)')
        return (f'SELECT {select} FROM {a} a {how} JOIN {b} b {on} '
                f'WHERE {" AND ".join(terms)}')

    def union(self):
        a, table_a, _ = self.table()
        b, table_b, _ = self.table()
        op = self.pick('UNION', 'UNION ALL', 'EXCEPT', 'INTERSECT')
        return (f'SELECT frame, kind FROM {a}{self.where("", table_a)} {op} '
                f'SELECT frame, kind FROM {b}{self.where("", table_b)}')

    def nested(self):
        a, table_a, _ = self.table()
        b, table_b, _ = self.table()
        return self.pick(
            f'SELECT frame, kind FROM {a} WHERE frame IN (SELECT frame FROM {b}'
            f'{self.where("", table_b)}) AND {self.term("", table_a)}',
            f'WITH q AS (SELECT * FROM {a}{self.where("", table_a)}) SELECT count(*), sum(frame) '
            f'FROM q JOIN {b} t USING (frame) WHERE {self.of_frame("q.frame")}',
            f'SELECT t.frame, (SELECT count(*) FROM {b} u WHERE u.frame < t.frame AND '
            f'{self.of_frame("u.frame")}) FROM {a} t{self.where("t", table_a)}',
            f'WITH frames AS (SELECT frame + 1 AS frame, kind FROM {a}) SELECT frame, kind FROM frames '
            f'WHERE {self.of_frame("frame")}')

    def window(self):
        name, table, _ = self.table()
        return (f'SELECT frame, kind, count(*) OVER (PARTITION BY kind), '
                f'rank() OVER (ORDER BY frame, kind) FROM {name}{self.where("", table)}'
                + self.pick('', ' QUALIFY rank() OVER (ORDER BY frame) < 10'))

    def twice(self):
        name, table, _ = self.table()
        return self.pick(
            f'SELECT (SELECT count(*) FROM {name} WHERE {self.of_frame("frame")}), '
            f'(SELECT count(*) FROM {self.spelled(name)} WHERE {self.of_frame("frame")})',
            f'SELECT count(*) FROM (SELECT row_number() OVER () n FROM {name}) q POSITIONAL JOIN '
            f'{name} t WHERE {self.of_frame("t.frame")}',
            f'SELECT count(*), sum(t.frame) FROM {name} q ASOF JOIN {name} t ON q.frame >= t.frame '
            f'WHERE {self.of_frame("t.frame")}')


class Tables:
    """Another DuckDB with the same tables."""

    def __init__(self, library, **settings):
        self.duckdb = DuckDB(library, threads='1', **settings)
        for run, *_ in RUNS:
            self.duckdb.query(f'CREATE SCHEMA {quoted(run)}')

    def rows(self, sql):
        try:
            return self.duckdb.query(f'SELECT CAST(COLUMNS(*) AS VARCHAR) FROM ({sql})'), None
        except AssertionError as error:
            return None, str(error)


class Native(Tables):
    """In DuckDB's own storage."""

    def __init__(self, library, layouts):
        super().__init__(library)
        for layout in layouts:
            base = os.path.basename(layout['path'])
            run = next(r for r, *_ in RUNS if base.startswith(r))
            table = 'frames' if '_frames' in base else 'images'
            self.duckdb.take(layout['path'], f'{quoted(run)}.{table}', layout['fields'],
                             layout['batches'])
        for table in ('frames', 'images'):
            self.duckdb.query(f'CREATE VIEW {table} AS ' + ' UNION ALL BY NAME '.join(
                f"SELECT *, '{run}' AS run FROM {quoted(run)}.{table}" for run, *_ in RUNS))


class Extended(Tables):
    """Files, by the extension."""

    def __init__(self, library, extension, directory, paths):
        super().__init__(library, allow_unsigned_extensions='true')
        self.duckdb.query(f"LOAD '{extension}'")
        for run, *_ in RUNS:
            for table in ('frames', 'images'):
                files = [p for p in paths if os.path.basename(p).startswith(run) and f'_{table}' in p]
                self.duckdb.query(f'CREATE VIEW {quoted(run)}.{table} AS ' +
                                  ' UNION ALL '.join(f"FROM '{p}'" for p in files))
        for table in ('frames', 'images'):
            self.duckdb.query(f"CREATE VIEW {table} AS FROM braggline_{table}('{directory}')")
        self.range(directory, paths[0])
        self.damage(paths[0])

    def range(self, directory, file):
        count = 'SELECT count(*) FROM braggline_frames'
        some = self.rows(f"{count}('{directory}', first := 20, last := 90)")
        want(some[1] is None and some == self.rows('SELECT count(*) FROM frames WHERE frame BETWEEN '
                                                   '20 AND 90'), some)
        store = f'{directory}/store'
        os.makedirs(f'{store}/run')
        for path, said in ((f'{directory}/none', ': No such file or directory'),
                           ('/dev/null', ': expected a directory, or a file named RUN_frames'),
                           (store, ': no file named RUN_frames.arrow or RUN_images.arrow in')):
            _, error = self.rows(f"{count}('{path}')")
            want(f'{path}: ' in str(error) and said in str(error), path, error)
        os.symlink(file, f'{store}/run/{os.path.basename(file)}')
        of_store = self.rows(f"{count}('{store}')")
        want(of_store[1] is None and of_store == self.rows(f"{count}('{file}')"), of_store)
        shutil.rmtree(store)

    def damage(self, path):
        """A damaged batch and an incomplete file are errors: nobody would see what is left out."""
        bad = f'{os.path.dirname(path)}.bad_frames.arrow'
        shutil.copy(path, bad)
        with open(bad, 'r+b') as file:
            file.seek(12300)
            byte = file.read(1)[0]
            file.seek(12300)
            file.write(bytes([byte ^ 1]))
        _, error = self.rows(f"SELECT count(*) FROM '{bad}'")
        want('batch 0 at byte 8192: a batch with a wrong CRC-32C' in str(error), error)
        shutil.copy(path, bad)
        os.truncate(bad, os.path.getsize(bad) - 1000)
        _, error = self.rows(f"SELECT count(*) FROM '{bad}'")
        want('bad_frames.arrow: not complete: ' in str(error) and
             'with allow_incomplete := true, braggline_frames() reads' in str(error), error)
        rows, error = self.rows(
            f"SELECT count(*) > 0 FROM braggline_frames('{bad}', allow_incomplete := true)")
        want(rows == [['true']], rows, error)
        os.remove(bad)


def run_all(program, how, threads, directory, statements):
    done = subprocess.run([program, how, str(threads), directory], check=False,
                          input='\0'.join(statements).encode() + b'\0', capture_output=True)
    want(done.returncode == 0, f'{how}: status {done.returncode}:', done.stderr.decode())
    results = []
    for result in done.stdout.decode().split('\x1c')[:-1]:
        rows, error = result.split('\x1d')
        results.append(([[None if cell == '\x01' else cell for cell in row.split('\x1f')[:-1]]
                         for row in rows.split('\x1e')[:-1]], error or None))
    want(len(results) == len(statements), f'{how}: {len(results)} results of {len(statements)}')
    return results, done.stderr.decode()


def ordered(rows):
    return sorted(rows, key=lambda row: [(cell is None, cell or '') for cell in row])


def compare(statements, native, found, how):
    empty = 0
    for sql, (expected, error), (rows, problem) in zip(statements, native, found):
        want((error is None) == (problem is None), f'{how}: {sql}\n', problem, '\nnative:', error)
        if error is None:
            empty += not expected
            want(ordered(rows) == ordered(expected), f'{how}: {sql}\n', len(rows), 'rows', str(rows)[:2000],
                 '\nnative:', len(expected), 'rows', str(expected)[:2000])
    return empty


def deferred_lists(program, directory, generator, statements, number):
    """
    Both plans give the same Arrow stream, byte for byte. Chunks of handles that have the rows of
    several batches, as in a server, give the same rows.
    """
    statements = statements[:number // 4] + [generator.lists() for _ in range(number)]
    plans = [run_all(program, how, 1, directory, statements)[0]
             for how in ('plain', 'deferred', 'joined')]
    failed = some = fewer = 0
    for sql, *results in zip(statements, *plans):
        for how, (_, error) in zip(('deferred', 'joined'), results[1:]):
            # errors inside of the engine have addresses after the first line
            want(str(error).split('\n')[0] == str(results[0][1]).split('\n')[0],
                 f'{how}: {sql}\n', error, '\nplain:', results[0][1])
        if results[0][1] is not None:
            failed += 1
            continue
        plain, deferred, joined = (dict(zip(STREAM, rows[0])) for rows, _ in results)
        want(plain['names'] == '', 'the plain plan defers', plain)
        for key in ('bytes', 'hash'):
            want(plain[key] == deferred[key], f'deferred: {sql}\n', deferred, '\nplain:', plain)
        for key in ('rows', 'row_hash'):
            want(plain[key] == joined[key], f'joined: {sql}\n', joined, '\nplain:', plain)
        want(deferred['names'] == joined['names'], sql, deferred, joined)
        some += deferred['names'] != ''
        fewer += int(joined['batches']) < int(deferred['batches'])
    want(failed < len(statements) / 5, failed, 'statements fail')
    want(number < 50 or some > number / 5, some, 'statements are deferred')
    want(number < 50 or fewer > number / 20, fewer, 'statements have joined batches')
    print(f'deferred: {len(statements)} statements, {failed} with an error, {some} with deferred '
          f'lists, {fewer} with joined batches: the same')


def main():
    write, program, scan, extension, modules = sys.argv[1:6]
    seed = int(sys.argv[6]) if len(sys.argv) > 6 else 1
    number = int(sys.argv[7]) if len(sys.argv) > 7 else 200
    library = os.path.abspath(f'{modules}/{LIBRARY}')
    if not shutil.which('node'):
        skip('node')
    for needed in (f'{modules}/node_modules/apache-arrow', library):
        if not os.path.exists(needed):
            skip(needed)
    os.environ['BRAGGLINE_DUCKDB'] = library
    # these functions ignore WHERE and the order of columns
    with open(scan, 'rb') as file:
        names = set(re.findall(rb'duckdb_\w+', file.read()))
    want(b'duckdb_create_table_function' in names, 'no table function')
    for name in (b'duckdb_arrow_scan', b'duckdb_arrow_array_scan'):
        want(name not in names, scan, 'uses', name.decode())
    with tempfile.TemporaryDirectory() as directory:
        paths = []
        for run, kind, nb_modules, sets in RUNS:
            for i, frames in enumerate(sets):
                base = run if len(sets) == 1 else f'{run}_{i + 1:06}'
                subprocess.run([write, directory, base, kind, str(nb_modules), str(frames),
                                str(seed + i)], check=True)
                paths += [f'{directory}/{base}_{table}.arrow' for table in ('frames', 'images')]
        done = subprocess.run(['node', f'{HERE}/sql_layout.mjs', modules, *paths], check=True,
                              stdout=subprocess.PIPE)
        native = Native(library, json.loads(done.stdout))
        generator = Generator(seed)
        statements = [f'SELECT * FROM {quoted(run)}.{table}'
                      for run, *_ in RUNS for table in ('frames', 'images')]
        statements += ['FROM frames', 'FROM images']
        statements += [generator.statement() for _ in range(number)]
        expected = [native.rows(sql) for sql in statements]
        failed = sum(error is not None for _, error in expected)
        want(failed < number / 10, f'{failed} of {number} statements are wrong, e.g.',
             next((pair for pair in zip(statements, expected) if pair[1][1]), ''))
        for how, threads in (('reference', 1), ('copy', 1), ('reference', 2)):
            found, counts = run_all(program, how, threads, directory, statements)
            empty = compare(statements, expected, found, f'{how}, {threads} threads')
            print(f'{how}, {threads} threads: {len(statements)} statements, {failed} with an error, '
                  f'{empty} without rows: the same. {counts.strip().splitlines()[-1]}')
            want(how == 'copy' or ' copied 0,' in counts, 'values were copied')
            want(not counts.strip().endswith(' skipped 0'), 'no batch was skipped')
        deferred_lists(program, directory, generator, statements, number)
        extended = Extended(library, os.path.abspath(extension), directory, paths)
        found = [extended.rows(sql) for sql in statements]
        compare(statements, expected, found, 'extension')
        print(f'extension: {len(statements)} statements: the same')


if __name__ == '__main__':
    main()
