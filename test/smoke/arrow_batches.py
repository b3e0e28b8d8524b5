# SPDX-License-Identifier: BSD-3-Clause
"""Reads the record batches of Arrow files, with numpy only."""

import struct

import bitshuffle
import numpy

from cases import want


def field(data, at, number):
    """Offset of a field of a flatbuffer's table."""
    vtable = at - struct.unpack_from('<i', data, at)[0]
    offset, = struct.unpack_from('<H', data, vtable + 4 + 2 * number)
    want(offset != 0, 'a field is absent')
    return at + offset


def follow(data, at):
    return at + struct.unpack_from('<I', data, at)[0]


def image(values, row, kind, shape):
    """Pixels of a full image of a batch, which may be a chunk of filter 32008."""
    ends = values(13, 'i4')[row:row + 2]
    if ends[1] > ends[0]:
        return values(15, kind)[slice(*ends)].reshape(shape)
    ends = values(17, 'i4')[row:row + 2]
    chunk = values(18, 'u1')[ends[0] + 12:ends[1]]
    return bitshuffle.decompress_lz4(chunk.copy(), shape, numpy.dtype(kind), 4096)


def batches(path):
    """Batches of an Arrow file, read as Arrow's format says: number of rows, and a function that
    returns the values of a buffer, which are numbered as in app/common/README.rst."""
    with open(path, 'rb') as stream:
        data = stream.read()
    at = 16 + int.from_bytes(data[12:16], 'little')
    while int.from_bytes(data[at + 4:at + 8], 'little') != 0:
        message = follow(data, at + 8)
        body = at + 8 + int.from_bytes(data[at + 4:at + 8], 'little')
        batch = follow(data, field(data, message, 2))
        rows, = struct.unpack_from('<q', data, field(data, batch, 0))
        buffers = follow(data, field(data, batch, 2)) + 4

        def values(number, kind, buffers=buffers, body=body):
            offset, size = struct.unpack_from('<qq', data, buffers + 16 * number)
            return numpy.frombuffer(data, kind, size // numpy.dtype(kind).itemsize, body + offset)

        yield rows, values
        length, = struct.unpack_from('<q', data, field(data, message, 3))
        at = body + length
