#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Readers of journals and Arrow files for tests of the chain braggline-detector, -recv, -store.

They use none of the product's code, only the byte tables of app/common/README.rst and
xfer/README.rst.
"""

import configparser
import csv
import glob
import os
import re
import struct

from cases import want

BLOCK = 4096
TABLES = ('frames', 'images')
# offsets in a batch's metadata: sequence, buffers
PLACES = {'frames': (1304, 400), 'images': (968, 272)}
# buffer numbers of columns of `frames`; the frame number is the first buffer of `images`, too
FRAME, BUNCH, FLAGS, STRONG_COUNT, VERDICT = 1, 3, 13, 18, 28
INCOMPLETE, NO_IMAGE = 1, 32
KEPT = 1, 2, 3
LOST = 5


def held(path):
    """Batches in the journal of a killed receiver: {(incarnation, table): {sequence: rows}}."""
    found = {}
    with open(path, 'rb') as ring:
        header = ring.read(BLOCK)
        runs_at, batches_at = struct.unpack_from('<QQ', header, 40)
        count, = struct.unpack_from('<I', header, 72)
        want(header[:8] == b'BLRETEN1', 'no journal')
        ring.seek(batches_at)
        batches = ring.read(128 * count)
        for at in range(0, len(batches), 128):
            if batches[at] != 1:
                continue
            sequence, rows = struct.unpack_from('<QQ', batches, at + 16)
            run, table = struct.unpack_from('<HB', batches, at + 68)
            ring.seek(runs_at + run * (BLOCK + 2 * (256 << 10)) + 16)
            incarnation, = struct.unpack('<Q', ring.read(8))
            found.setdefault((incarnation, TABLES[table]), {})[sequence] = rows
    return found


def flip(path, at):
    """Change one bit of a file."""
    with open(path, 'r+b') as stream:
        stream.seek(at)
        byte = stream.read(1)[0]
        stream.seek(at)
        stream.write(bytes([byte ^ 1]))


def body_in_journal(ring, record, metadata):
    """The parts of a batch's body that is not in slots of a journal: a list of (offset, bytes).
    `ring` is the open file, and `metadata` the offset of the batch's metadata in it."""
    size, = struct.unpack_from('<Q', record, 56)
    references, pieces = struct.unpack_from('<I12xI', record, 76)
    want(references == 0, 'a body in slots')
    if pieces == 0:
        return [(metadata + BLOCK, size)]
    # a table that is larger than a block is behind the body
    ring.seek(metadata + BLOCK + (BLOCK + size if 16 * pieces > BLOCK else 0))
    return [(metadata + 2 * BLOCK + at, part)
            for at, part in struct.iter_unpack('<QQ', ring.read(16 * pieces))]


def held_images(path, retained):
    """Batches of images in a journal whose last frame is at most this one, the newest last: a list
    of (sequence, rows, first frame, offset of the metadata, offset of the first byte of the body)."""
    found = []
    with open(path, 'rb') as ring:
        header = ring.read(BLOCK)
        batches_at, data_at, size, count = struct.unpack_from('<QQQI', header, 48)
        ring.seek(batches_at)
        batches = ring.read(128 * count)
        for at in range(0, len(batches), 128):
            position, sequence, rows, first, last = struct.unpack_from('<5Q', batches, at + 8)
            if batches[at] != 1 or batches[at + 70] != TABLES.index('images') or last > retained:
                continue
            metadata = data_at + position % size
            (body, _), *_ = body_in_journal(ring, batches[at:at + 128], metadata)
            found.append((sequence, rows, first, metadata, body))
    return sorted(found)


def ledger(path):
    """The journal's record of the run: app/recv/egress/README.rst."""
    with open(path, 'rb') as ring:
        at, = struct.unpack_from('<Q', ring.read(BLOCK), 32)
        ring.seek(at)
        copies = [ring.read(BLOCK) for _ in range(2)]
    last = max(copies, key=lambda c: struct.unpack_from('<Q', c, 8))
    names = ('version', 'running', 'run', 'incarnation', 'stride', 'written', 'first', 'last',
             'retained')
    return dict(zip(names, struct.unpack_from('<IIQQQqQQQ', last, 16)))


def final_ledger(path):
    """Section [frames] of the ledger of a run that has ended."""
    ini = configparser.ConfigParser()
    ini.read(path)
    return {k: int(v) for k, v in ini['frames'].items()}


def ledgers(directory, run):
    """Ledgers of all receivers of a run, in the order of their numbers: a list of {section: {name:
    value}} with the sections receiver, frames and run."""
    found = []
    # a receiver that dies before its first frame leaves a gap in the numbers
    paths = {path: int(number or 1) for path in glob.glob(f'{glob.escape(directory)}/{run}_ledger*.ini')
             for number in re.findall(r'_ledger(?:[.](\d+))?[.]ini$', path)}
    for path in sorted(paths, key=paths.get):
        ini = configparser.ConfigParser()
        ini.read(path)
        found.append({s: {k: int(v, 16 if k == 'incarnation' else 10) for k, v in ini[s].items()}
                      for s in ('receiver', 'frames', 'run')})
    return found


class Batch:
    """One batch of a file; `data` is the content of the whole file."""

    def __init__(self, data, at, table):
        self.data = data
        self.table = table
        self.metadata = at
        body, = struct.unpack_from('<q', data, at + 40)
        self.rows, = struct.unpack_from('<q', data, at + 80)
        sequence = at + PLACES[table][0]
        self.sequence = int(data[sequence:sequence + 16], 16)
        self.body = at + BLOCK
        self.end = self.body + body

    def column(self, buffer, kind):
        """Values of a column without nulls; kind is a format character of the module struct."""
        at, _ = struct.unpack_from('<qq', self.data, self.metadata + PLACES[self.table][1] +
                                   16 * buffer)
        return struct.unpack_from(f'<{self.rows}{kind}', self.data, self.body + at)


END = b'\xff' * 4 + bytes(4)


def batches(path, damage=None):
    """Batches of a complete file, whose sequence numbers must ascend; damaged batches are skipped
    (damage.py)."""
    table = path[:-6].rsplit('_', 1)[1]
    with open(path, 'rb') as stream:
        data = stream.read()
    want(data[-6:] == b'ARROW1', path, 'has no footer')
    at = 16 + struct.unpack_from('<I', data, 12)[0]
    last = -1
    while data[at:at + 8] != END:
        behind = damage.skip(path, data, at) if damage else None
        if behind is not None:
            at = behind
            continue
        batch = Batch(data, at, table)
        want(batch.sequence > last, path, 'does not ascend')
        last = batch.sequence
        yield batch
        at = batch.end


def files(*directories):
    """(incarnation, table, path) of all files of stores; all of them must be complete."""
    for directory in directories:
        for where, _, names in os.walk(directory):
            for name in sorted(names):
                # files that mark a run that has ended
                if name in ('.lock', '.identity') or name.startswith(('.ended-', '.proved')):
                    continue
                # [files] nexus
                if name == '.export.lock' or name.endswith(('.h5', '.geom')):
                    continue
                # batches that recovery has cut off; `verify` reads them
                if '.arrow.quarantine' in name:
                    continue
                want(name.endswith('.arrow'), name, 'is not complete')
                yield int(name.split('_')[1], 16), name[:-6].rsplit('_', 1)[1], f'{where}/{name}'


def parts(directory):
    """Incomplete files (*.arrow.part) of a store."""
    return [f'{where}/{name}' for where, _, names in os.walk(directory) for name in names
            if name.endswith('.arrow.part')]


def whole_batches(path, damage=None):
    """Complete batches of a file whose writer was killed; damaged batches are skipped (damage.py).
    """
    table = os.path.basename(path).split('.')[0].rsplit('_', 1)[1]
    with open(path, 'rb') as stream:
        data = stream.read()
    at = 16 + struct.unpack_from('<I', data, 12)[0] if len(data) >= BLOCK else len(data)
    while at + BLOCK <= len(data):
        behind = damage.skip(path, data, at) if damage and data[at:at + 8] != END else None
        if behind is not None:
            at = behind
            continue
        if data[at:at + 4] != b'\xff' * 4 or data[at:at + 8] == END:
            break
        batch = Batch(data, at, table)
        if batch.end > len(data):
            break
        yield batch
        at = batch.end


def without_image(frames, images):
    """@return frames that are kept and whose flags announce an image, and those of them without one
    in `images`"""
    have = {frame for batch in images for frame in batch.column(FRAME, 'Q')}
    kept = {frame for batch in frames for frame, flags, verdict in zip(
        batch.column(FRAME, 'Q'), batch.column(FLAGS, 'I'), batch.column(VERDICT, 'B'))
            if verdict in KEPT and not flags & NO_IMAGE}
    return kept, kept - have


def nb_batches(path):
    """Number of complete batches in a file that is being written."""
    nb = 0
    try:
        with open(path, 'rb') as stream:
            head = stream.read(BLOCK)
            if len(head) < BLOCK:
                return 0
            at = 16 + struct.unpack_from('<I', head, 12)[0]
            while True:
                stream.seek(at)
                head = stream.read(48)
                if len(head) < 48 or head[:4] != b'\xff\xff\xff\xff' or head[4:8] == bytes(4):
                    return nb
                at += BLOCK + struct.unpack_from('<q', head, 40)[0]
                nb += 1
    except FileNotFoundError:
        return nb


def has_batch(path):
    return nb_batches(path) > 0


def receiver_id(path):
    return int(os.path.basename(os.path.dirname(path)).split('-')[-2], 16)


def stored(*directories, damage=None):
    """Content of the stores' files: {(incarnation, table): {sequence: rows}}. Fails if a batch is
    there twice."""
    found = {}
    for incarnation, table, path in files(*directories):
        known = found.setdefault((incarnation, table), {})
        for batch in batches(path, damage):
            want(batch.sequence not in known, f'{path}: batch {batch.sequence} is there twice')
            known[batch.sequence] = batch.rows
    return found


def gaps(batches):
    """Sequence numbers that are missing between 0 and the largest one."""
    return [n for n in range(max(batches) + 1) if n not in batches]


def truth(path):
    """The frames that a detector sent: {frame: {column: text}}."""
    with open(path, newline='', encoding='ascii') as stream:
        return {int(row['frame']): row for row in csv.DictReader(stream)}


def compare(batch, made):
    """Compare a batch of `frames` with the frames that the detector sent. @return how many of them
    are marked as lost"""
    lost = 0
    for frame, bunch, flags, count, verdict in zip(
            batch.column(FRAME, 'Q'), batch.column(BUNCH, 'Q'), batch.column(FLAGS, 'I'),
            batch.column(STRONG_COUNT, 'I'), batch.column(VERDICT, 'B')):
        if verdict == LOST:
            lost += 1
            continue
        want(int(made[frame]['bunch_id']) == bunch, frame, bunch, made[frame])
        want(flags & INCOMPLETE or int(made[frame]['strong_pixels']) == count, frame, count,
             made[frame])
    return lost
