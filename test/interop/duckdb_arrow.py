# SPDX-License-Identifier: BSD-3-Clause
"""Lets DuckDB's C library read Arrow columns in place, through the Arrow C data interface.

This file declares only the parts that are used of DuckDB's C API
(https://duckdb.org/docs/stable/clients/c/api) and of the interface
(https://arrow.apache.org/docs/format/CDataInterface.html).
"""

import ctypes
import mmap
from ctypes import POINTER, byref, c_char, c_char_p, c_int64, c_uint64, c_void_p

NULLABLE = 2


class Schema(ctypes.Structure):
    """struct ArrowSchema"""


class Array(ctypes.Structure):
    """struct ArrowArray"""


Release = ctypes.CFUNCTYPE(None, c_void_p)
Schema._fields_ = [
    ('format', c_char_p), ('name', c_char_p), ('metadata', c_char_p), ('flags', c_int64),
    ('n_children', c_int64), ('children', POINTER(POINTER(Schema))), ('dictionary', c_void_p),
    ('release', c_void_p), ('private_data', c_void_p)]
Array._fields_ = [
    ('length', c_int64), ('null_count', c_int64), ('offset', c_int64), ('n_buffers', c_int64),
    ('n_children', c_int64), ('buffers', POINTER(c_void_p)), ('children', POINTER(POINTER(Array))),
    ('dictionary', c_void_p), ('release', c_void_p), ('private_data', c_void_p)]


class Result(ctypes.Structure):
    """duckdb_result"""
    _fields_ = [('column_count', c_uint64), ('row_count', c_uint64), ('rows_changed', c_uint64),
                ('columns', c_void_p), ('error', c_char_p), ('data', c_void_p)]


@Release
def release_schema(schema):
    Schema.from_address(schema).release = None


@Release
def release_array(array):
    Array.from_address(array).release = None


def pointers(kind, structures):
    return (POINTER(kind) * len(structures))(*(ctypes.pointer(s) for s in structures))


def schema_of(field):
    """An ArrowSchema of {format, name, nullable, children}."""
    children = [schema_of(child) for child in field['children']]
    return Schema(format=field['format'].encode(), name=field['name'].encode(),
                  flags=NULLABLE if field['nullable'] else 0, n_children=len(children),
                  children=pointers(Schema, children),
                  release=ctypes.cast(release_schema, c_void_p))


def array_of(column, base):
    """An ArrowArray of {length, nulls, buffers, children}; buffers are offsets from base."""
    children = [array_of(child, base) for child in column['children']]
    buffers = [None if at is None else base + at for at in column['buffers']]
    return Array(length=column['length'], null_count=column['nulls'], n_buffers=len(buffers),
                 n_children=len(children), buffers=(c_void_p * len(buffers))(*buffers),
                 children=pointers(Array, children), release=ctypes.cast(release_array, c_void_p))


class DuckDB:
    """An in-memory database."""

    def __init__(self, library, **settings):
        self.c = ctypes.CDLL(library)
        self.c.duckdb_value_varchar.restype = c_void_p
        self.c.duckdb_value_varchar.argtypes = [c_void_p, c_uint64, c_uint64]
        self.c.duckdb_row_count.restype = self.c.duckdb_column_count.restype = c_uint64
        self.c.duckdb_result_error.restype = self.c.duckdb_library_version.restype = c_char_p
        self.c.duckdb_free.argtypes = [c_void_p]
        self.version = self.c.duckdb_library_version().decode()
        self.database = c_void_p()
        self.connection = c_void_p()
        config, error = c_void_p(), c_char_p()
        self.done(self.c.duckdb_create_config(byref(config)), 'duckdb_create_config')
        for name, value in settings.items():
            self.done(self.c.duckdb_set_config(config, name.encode(), value.encode()), name)
        self.done(self.c.duckdb_open_ext(None, byref(self.database), config, byref(error)),
                  error.value)
        self.c.duckdb_destroy_config(byref(config))
        self.done(self.c.duckdb_connect(self.database, byref(self.connection)), 'duckdb_connect')

    @staticmethod
    def done(state, what):
        if state != 0:
            raise AssertionError(f'{what}: DuckDB does not want to')

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.c.duckdb_disconnect(byref(self.connection))
        self.c.duckdb_close(byref(self.database))

    def query(self, sql):
        """@return rows of strings; None for NULL"""
        result = Result()
        try:
            if self.c.duckdb_query(self.connection, sql.encode(), byref(result)) != 0:
                raise AssertionError(self.c.duckdb_result_error(byref(result)).decode())
            return [[self.text(result, column, row)
                     for column in range(self.c.duckdb_column_count(byref(result)))]
                    for row in range(self.c.duckdb_row_count(byref(result)))]
        finally:
            self.c.duckdb_destroy_result(byref(result))

    def text(self, result, column, row):
        value = self.c.duckdb_value_varchar(byref(result), column, row)
        if value is None:
            return None
        try:
            return ctypes.string_at(value).decode()
        finally:
            self.c.duckdb_free(value)

    def take(self, path, table, fields, batches):
        """Insert the batches {rows, columns} of a file into a table, which is created if it does
        not exist."""
        root = {'format': '+s', 'name': '', 'nullable': False, 'children': fields}
        with open(path, 'rb') as file:
            # copy on write: the only way to get the address of a read-only mapping
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        first = c_char.from_buffer(data)
        for batch in batches:
            schema = schema_of(root)
            array = array_of({'length': batch['rows'], 'nulls': 0, 'buffers': [None],
                              'children': batch['columns']}, ctypes.addressof(first))
            stream = c_void_p()
            self.done(self.c.duckdb_arrow_array_scan(self.connection, b'batch', byref(schema),
                                                     byref(array), byref(stream)), path)
            try:
                self.query(f'CREATE TABLE IF NOT EXISTS {table} AS FROM batch LIMIT 0')
                self.query(f'INSERT INTO {table} FROM batch')
                self.query('DROP VIEW batch')
            finally:
                self.c.duckdb_destroy_arrow_stream(byref(stream))
        del first
        data.close()
