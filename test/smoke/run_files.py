# SPDX-License-Identifier: BSD-3-Clause
"""Reads the files of runs, to compare runs that must be equal."""

import csv
import io
import subprocess

FLAG_TIMEOUT = 8


def rows(build, where, name, ignored=0):
    """All columns of `frames` except the time of arrival. `ignored`: bits of `flags` to clear."""
    done = subprocess.run([f'{build}/app/scan/braggline-scan', '--csv', '-',
                           f'{where}/{name}/run_frames.arrow'], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60,
                          check=False)
    if done.returncode != 0:
        raise AssertionError(f'braggline-scan: status {done.returncode}: {done.stderr}')
    table = list(csv.DictReader(io.StringIO(done.stdout)))
    for row in table:
        del row['receive_time']
        row['flags'] = int(row['flags']) & ~ignored
    return table


def bodies(where, name):
    """Bodies of images, without the metadata, which contain the identity of a process."""
    with open(f'{where}/{name}/run_images.arrow', 'rb') as stream:
        data = stream.read()
    at = 16 + int.from_bytes(data[12:16], 'little')
    while int.from_bytes(data[at + 4:at + 8], 'little') != 0:
        size = int.from_bytes(data[at + 40:at + 48], 'little')
        yield data[at + 4096:at + 4096 + size]
        at += 4096 + size
