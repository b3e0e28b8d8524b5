# SPDX-License-Identifier: BSD-3-Clause
"""Forged batches: other bytes with the same numbers, and CRCs that are right."""

import struct

from chain import BLOCK, TABLES, batches, body_in_journal

# offsets in a batch's metadata: CRC-32C of the body, of the metadata
CRCS = {'frames': (1376, 1448), 'images': (1040, 1112)}


def make_table():
    table = []
    for n in range(256):
        for _ in range(8):
            n = n >> 1 ^ 0x82f63b78 * (n & 1)
        table.append(n)
    return table


CRC_TABLE = make_table()


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc = CRC_TABLE[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xffffffff


def forge(metadata, body, table):
    """Change a byte of the body, which readers do not check, and both CRCs."""
    body[len(body) // 2] ^= 0x5a
    of_body, of_metadata = CRCS[table]
    metadata[of_body:of_body + 8] = b'%08x' % crc32c(body)
    metadata[of_metadata:of_metadata + 8] = b'0' * 8
    metadata[of_metadata:of_metadata + 8] = b'%08x' % crc32c(metadata)


def forge_file(path, sequences=None):
    """Forge the batches of a complete file. @return their sequence numbers"""
    forged = []
    with open(path, 'r+b') as stream:
        for batch in batches(path):
            if sequences is not None and batch.sequence not in sequences:
                continue
            metadata = bytearray(batch.data[batch.metadata:batch.body])
            body = bytearray(batch.data[batch.body:batch.end])
            forge(metadata, body, batch.table)
            stream.seek(batch.metadata)
            stream.write(metadata + body)
            forged.append(batch.sequence)
    return forged


def forge_journal(path):
    """Forge the images in the journal of a receiver that is not running, given to no store yet.
    @return number of batches"""
    forged = 0
    with open(path, 'r+b') as ring:
        header = ring.read(BLOCK)
        batches_at, data_at, room = struct.unpack_from('<QQQ', header, 48)
        count, = struct.unpack_from('<I', header, 72)
        ring.seek(batches_at)
        records = bytearray(ring.read(128 * count))
        for at in range(0, len(records), 128):
            table = TABLES[records[at + 70] & 1]
            if records[at] != 1 or table != 'images':
                continue
            position, = struct.unpack_from('<Q', records, at + 8)
            begin, body = data_at + position % room, bytearray()
            ring.seek(begin)
            metadata = bytearray(ring.read(BLOCK))
            places = body_in_journal(ring, records[at:at + 128], begin)
            for place, size in places:
                ring.seek(place)
                body += ring.read(size)
            forge(metadata, body, table)
            ring.seek(begin)
            ring.write(metadata)
            whole = bytes(body)
            for place, size in places:
                ring.seek(place)
                ring.write(whole[:size])
                whole = whole[size:]
            struct.pack_into('<IxxHI', records, at + 64, crc32c(body), *struct.unpack_from(
                '<HI', records, at + 70)[:1], crc32c(metadata))
            struct.pack_into('<I', records, at + 124, crc32c(records[at + 8:at + 124]))
            forged += 1
        ring.seek(batches_at)
        ring.write(records)
    return forged
