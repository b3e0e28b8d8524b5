#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""apache-arrow for JS and DuckDB, through the Arrow C data interface, read the files of stores, one
of which was killed during the run. Both find the detector's truth.

usage: store_readers_test.py BUILD-DIR MODULES-DIR
"""

import json
import os
import shutil
import subprocess
import sys
import time

from duckdb_arrow import DuckDB

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, f'{HERE}/../smoke')
import chain
import world
from cases import wait, want

LIBRARY = 'node_modules/@duckdb/node-bindings-linux-x64/libduckdb.so'
# strong pixels of an image; in DuckDB NaN is greater than every number
STRONG = 'len(list_filter(i.value, lambda v: v >= {threshold} AND NOT isnan(v)))'
# a sum of values that are weighted by their position
WEIGH = '''sum(list_sum(list_transform(i.{}, lambda v, k:
    CASE WHEN isfinite(v::DOUBLE) THEN k * trunc(v)::BIGINT ELSE 0 END)))'''
SUMS = f'''
    SELECT count(*), count(i.frame), count_if(f.verdict = {chain.LOST}),
        count_if(f.flags & {chain.INCOMPLETE} != 0), sum(f.strong_count), sum(f.nnz),
        sum(list_sum(f.missing)), {WEIGH.format('row_ptr')}, {WEIGH.format('col')},
        {WEIGH.format('value')}, sum({STRONG})
    FROM frames f LEFT JOIN images i USING (frame)'''
# number of rows that contradict the truth or their image, or that miss their image
WRONG = {
    'rows of frames that are not the truth': f'''
        SELECT count(*) FROM frames f LEFT JOIN truth t USING (frame)
        WHERE f.verdict != {chain.LOST} AND (f.bunch_id IS DISTINCT FROM t.bunch_id
            OR f.flags & {chain.INCOMPLETE} = 0 AND (f.strong_count != t.strong_pixels
                OR f.saturated != t.saturated_pixels))''',
    'rows whose image is another': f'''
        SELECT count(*) FROM frames f JOIN images i USING (frame)
        WHERE f.kind != i.kind OR f.strong_count != {STRONG}
            OR f.kind = 0 AND (len(i.col) != f.nnz OR len(i.value) != f.nnz
                OR i.row_ptr[-1] != f.nnz OR len(i.row_ptr) != {{rows}} + 1)''',
    'frames with a row of one table only': f'''
        SELECT count(*) FROM (FROM frames WHERE verdict != {chain.LOST}) f
        FULL JOIN images i USING (frame)
        WHERE f.frame IS NULL OR (i.frame IS NULL) = (f.verdict IN (1, 2, 3))''',
    'frames that are there twice': '''
        SELECT (SELECT count(*) - count(DISTINCT frame) FROM frames)
            + (SELECT count(*) - count(DISTINCT frame) FROM images)''',
}


def skip(what):
    print(f'SKIPPED: {what} is missing (make deps)')
    sys.exit(77)


def story(w):
    def taken():
        return {p for p in chain.parts(w.directories[1]) if '_images' in p and chain.has_batch(p)}

    wait('images in store1', taken)
    w.kill('store1')
    before = taken()
    time.sleep(1)  # in which only store0 runs
    w.launch('store1')
    wait('images in store1 again', lambda: taken() - before)


def look(w, modules):
    truth = f'{w.where}/detector0/truth.csv'
    paths = [path for _, _, path in chain.files(*w.directories)]
    done = subprocess.run(['node', f'{HERE}/store_readers.mjs', modules, truth, *paths],
                          check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    want(done.returncode == 0, 'store_readers.mjs ended with status', done.returncode)
    found = json.loads(done.stdout)
    sums = found['sums']
    print(f'apache-arrow: {len(paths)} files:', *(f'{name} {n},' for name, n in sums.items()),
          'as the truth says')
    want(sums['images'] > 0 and sums['strong'] > 0, 'nothing was kept')
    with DuckDB(f'{modules}/{LIBRARY}') as duckdb:
        for file in found['files']:
            duckdb.take(**file)
        duckdb.query(f"CREATE TABLE truth AS FROM read_csv('{truth}')")
        *row, strong = map(int, duckdb.query(SUMS.format(**found))[0])
        want(row == list(sums.values()), 'DuckDB finds', row, 'apache-arrow', sums)
        for what, sql in WRONG.items():
            number = duckdb.query(sql.format(**found))[0][0]
            want(number == '0', f'DuckDB finds {number} {what}')
        print(f'DuckDB {duckdb.version}: the same; {strong} strong pixels in images')


def main():
    modules = os.path.abspath(sys.argv[2])
    if not shutil.which('node'):
        skip('node')
    for needed in ('node_modules/apache-arrow', LIBRARY):
        if not os.path.exists(f'{modules}/{needed}'):
            skip(needed)
    world.inside(lambda: world.play(sys.argv[1], 1, 2, story, lambda w: look(w, modules)))


if __name__ == '__main__':
    main()
