# SPDX-License-Identifier: BSD-3-Clause
"""Damages files of a store that is not running, and records which batches were hit.

A hit flips a bit of a batch, or overwrites, zeroes or exchanges a part of it: a sector of 512 or a
block of 4096 bytes. The part is in the batch's announcement (metadata) or in its body.
"""

import fcntl
import hashlib
import os
import re
import subprocess
import time

import chain
from cases import want

LOCK_SECONDS = 30  # the kernel keeps the locks of a killed process until its writes have ended
# Lines of `verify`. AT finds file and byte; DAMAGED finds numbers of batches and byte.
AT = re.compile(r'(\S+\.(?:arrow|part)): damaged: .*? at byte (\d+)')
DAMAGED = re.compile(r'damaged: (?:batch (\d+)|of batches (\d+) to (\d+)|batch with unknown number)'
                     r'(?: at byte (\d+)|,)')
UNANNOUNCED = re.compile(r'damaged: bytes \d+ to \d+, truncated by recovery')


def stem(path):
    """A file's name without the suffix that tells whether it is complete."""
    return os.path.basename(path).split('.arrow')[0]


def digest(data):
    return hashlib.sha256(data).digest()


class Hit:
    """A batch that was damaged, and its digest before that."""

    def __init__(self, path, batch, announcement):
        self.stem = stem(path)
        self.stream = int(self.stem.split('_')[1], 16), batch.table
        self.sequence = batch.sequence
        self.begin, self.end = batch.metadata, batch.end
        self.digest = digest(batch.data[self.begin:self.end])
        self.announcement = announcement

    def __str__(self):
        return (f'batch {self.sequence} at byte {self.begin} of {self.stem}'
                f'{" (its announcement)" if self.announcement else ""}')


class Damage:
    def __init__(self, build, random):
        self.build = build
        self.random = random
        self.hits = []

    def skip(self, path, data, at):
        """If a batch that was hit begins at `at` and still differs from the original: @return its
        end, else None"""
        for hit in self.hits:
            if hit.begin == at and hit.stem == stem(path) and \
                    digest(data[hit.begin:hit.end]) != hit.digest:
                return hit.end
        return None

    def verify(self, *directories):
        """@return status, lines"""
        done = subprocess.run([f'{self.build}/app/store/braggline-store', 'verify', *directories],
                              check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
        want(done.returncode in (0, 1), 'verify:', done.returncode, done.stdout)
        return done.returncode, done.stdout.splitlines()

    def may_be_hit(self, directory):
        """(path, batch) of all sound batches. The last batches of a writer that was killed may not
        be sound."""
        _, lines = self.verify(directory)
        wrong = {(stem(found[1]), int(found[2])) for found in map(AT.search, lines) if found}
        for where, _, names in os.walk(directory):
            for name in sorted(names):
                if not name.endswith(('.arrow', '.arrow.part')):
                    continue
                path = f'{where}/{name}'
                for batch in chain.whole_batches(path, self):
                    if (stem(path), batch.metadata) not in wrong:
                        yield path, batch

    def choose(self, directory):
        """Choose a batch to damage: in half of the cases in an incomplete file, and in half of
        these the last one."""
        found = list(self.may_be_hit(directory))
        parts = [(path, batch) for path, batch in found if path.endswith('.part')]
        if parts and self.random.random() < 0.5:
            last = {path: (path, batch) for path, batch in parts}
            found = parts if self.random.random() < 0.5 else list(last.values())
        return self.random.choice(found) if found else (None, None)

    def hit(self, directory):
        """Damage one batch. @return whether there was one"""
        path, batch = self.choose(directory)
        if batch is None:
            return False
        announcement = self.random.random() < 0.3
        begin, end = (batch.metadata, batch.body) if announcement else (batch.body, batch.end)
        if begin == end:
            return False
        with open(path, 'r+b') as f:
            self.lock(f)
            f.seek(begin)
            before = f.read(end - begin)
            hit = Hit(path, batch, announcement)
            f.seek(begin)
            f.write(self.spoil(bytearray(before)))
        self.hits.append(hit)
        return True

    @staticmethod
    def lock(f):
        end = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                want(time.monotonic() < end, f.name, 'stays locked')
                time.sleep(0.01)

    def spoil(self, data):
        """Change data without changing its size."""
        before = bytes(data)
        size = self.random.choice((512, 4096))
        at = self.random.randrange(len(data) // size) * size
        other = self.random.randrange(len(data) // size) * size
        kind = self.random.choice(('bit', 'tear', 'zero', 'swap'))
        if kind == 'tear':
            cut = self.random.randrange(size)
            data[at + cut:at + size] = self.random.randbytes(size - cut)
        elif kind == 'zero':
            data[at:at + size] = bytes(size)
        elif kind == 'swap':
            data[at:at + size], data[other:other + size] = \
                before[other:other + size], before[at:at + size]
        if kind == 'bit' or data == before:
            data[self.random.randrange(len(data))] ^= 1 << self.random.randrange(8)
        return data

    def gone(self, found):
        """Hits of batches of which chain.stored() has found no sound copy."""
        return [hit for hit in self.hits if hit.sequence not in found.get(hit.stream, {})]

    def check(self, found, *directories):
        """`verify` lists all batches that are lost, and reports no other damage."""
        status, lines = self.verify(*directories)
        gone = self.gone(found)
        bad = [line for line in lines if DAMAGED.search(line) and not line.startswith('repaired')]
        # Lines about announcements that were hit at the end of a file. `verify` cannot tell whether
        # another copy exists.
        cut = [line for line in lines if UNANNOUNCED.search(line)]
        for hit in gone:
            named = [line for line in bad if hit.stem in line and self.names(line, hit)]
            named = named or hit.announcement and any(hit.stem in line for line in cut)
            want(named, hit, 'is in no line of verify:', '\n', *lines)
        # without its announcement, a batch cannot be compared with a sound copy of its number
        unknown = [hit for hit in self.hits if hit.announcement]
        for line in bad:
            want(any(hit.stem in line and self.names(line, hit) for hit in gone + unknown),
                 'was not hit, or is there:', line)
        for line in cut:
            want(any(hit.stem in line and hit.announcement for hit in self.hits),
                 'was not hit:', line)
        want(status == (1 if bad or cut else 0), 'status of verify:', status, len(gone), '\n', *lines)
        print(f'{len(self.hits)} batches were hit: {len(self.hits) - len(gone)} are there all the '
              f'same, {len(gone)} are listed')

    @staticmethod
    def names(line, hit):
        first, begin, end, at = DAMAGED.search(line).groups()
        if first:
            return int(first) == hit.sequence
        if begin:
            return int(begin) <= hit.sequence <= int(end)
        return at is not None and int(at) <= hit.begin
