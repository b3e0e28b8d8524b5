#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The driver of ADBC in Python's driver manager: results, metadata, partitions, errors.

usage: adbc_python_test.py ARROW_WRITE BRAGGLINE-SCAN DRIVER LIBDUCKDB
"""

import json
import os
import subprocess
import sys
import tempfile

try:
    import adbc_driver_manager
    from adbc_driver_manager import dbapi
    import pyarrow
except ImportError as error:
    print(f'SKIPPED: {error.name} is missing (Python packages adbc-driver-manager and pyarrow)')
    sys.exit(77)


def want(condition, *text):
    if not condition:
        print('FAILED:', *text)
        sys.exit(1)


def check(connection, program, directory):
    with connection.cursor() as cursor:
        cursor.execute('SELECT frame, kind, col FROM lyso_7.images ORDER BY frame')
        table = cursor.fetch_arrow_table()
        lines = subprocess.run([program, directory, '--format', 'json', '--sql',
                                'SELECT frame, kind, col FROM lyso_7.images ORDER BY frame'],
                               check=True, capture_output=True).stdout.splitlines()
        want(table.to_pylist() == [json.loads(line) for line in lines], 'images')
        table.validate(full=True)
        cursor.execute("SELECT i::HUGEINT AS h, ['a', NULL] AS l, {'x': i} AS s, "
                       "'b'::ENUM('a', 'b') AS e FROM range(3000) t(i)")
        table = cursor.fetch_arrow_table()
        table.validate(full=True)
        want(table.num_rows == 3000 and pyarrow.types.is_decimal(table.schema.field('h').type) and
             pyarrow.types.is_dictionary(table.schema.field('e').type), table.schema)
        schema = cursor.adbc_execute_schema('SELECT 1 AS one')
        want(schema.names == ['one'], schema)
        partitions, _ = cursor.adbc_execute_partitions('SELECT count(*) FROM lyso_7.frames')
        cursor.adbc_read_partition(partitions[0])
        want(cursor.fetchall() == [(100,)], 'partition')
        try:
            cursor.execute('SELECT nothing')
            want(False, 'no error')
        except adbc_driver_manager.Error as error:
            want('nothing' in str(error) and error.sqlstate == '42000', error, error.sqlstate)
    objects = connection.adbc_get_objects(depth='all').read_all().to_pylist()
    schemas = objects[0]['catalog_db_schemas']
    want([s['db_schema_name'] for s in schemas] == ['lyso_7'], objects)
    want(connection.adbc_get_info()['driver_name'] == 'braggline', connection.adbc_get_info())
    want(connection.adbc_get_table_types() == ['table'], connection.adbc_get_table_types())
    schema = connection.adbc_get_table_schema('frames', db_schema_filter='lyso_7')
    want('frame' in schema.names, schema)


def main():
    write, program, driver, library = sys.argv[1:5]
    if not os.path.exists(library):
        print(f'SKIPPED: {library} is missing (make deps)')
        sys.exit(77)
    os.environ['BRAGGLINE_DUCKDB'] = library
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run([write, directory, 'lyso_7', 'float32', '2', '100', '1'], check=True)
        options = {'uri': directory, 'adbc.braggline.program': program}
        with dbapi.connect(driver=driver, db_kwargs=options, autocommit=True) as connection:
            check(connection, program, directory)
    print('adbc_driver_manager and pyarrow: results, metadata, partitions and errors as expected')


if __name__ == '__main__':
    main()
