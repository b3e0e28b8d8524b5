#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Radial profiles of a run by braggline-scan, compared with the sums and counts of its frames.

usage: profile_test.py BUILD-DIR
"""

import csv
import io
import math
import os
import signal
import subprocess
import sys

from cases import want
from receiver import running, text

BUILD = sys.argv[1]
FRAMES = 4
PIXELS = 512 * 1024
SETTINGS = ('geometry.beam_x=515', 'geometry.beam_y=270', 'geometry.distance_mm=100',
            'geometry.energy_kev=12.4', 'veto.strong_min=0', 'output.format=image')


def scan(path, *options, status=0, message=''):
    done = subprocess.run([f'{BUILD}/app/scan/braggline-scan', *options, path], text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    want(done.returncode == status and message in done.stderr, options, done.returncode, done.stderr)
    return list(csv.DictReader(io.StringIO(done.stdout)))


def by_frame(rows):
    """Bins of each frame, in order."""
    frames = {}
    for r in rows:
        bins = frames.setdefault(int(r['frame']), [])
        want(int(r['bin']) == len(bins), r)
        bins.append({k: float(v) for k, v in r.items()})
    return frames


def check(path, value):
    frames = {int(r['frame']): r for r in scan(path, '--csv', '-')}
    q = by_frame(scan(path, '--profile', '-', '--bins', '300'))
    want(set(q) == set(frames) and len(q) == FRAMES, sorted(q), sorted(frames))
    for number, bins in q.items():
        row = frames[number]
        want(sum(b['count'] for b in bins) == PIXELS - int(row['invalid']) - int(row['saturated']),
             row, sum(b['count'] for b in bins))
        # float images lose nothing; int16 images are rounded
        if value == 'float32':
            want(sum(b['sum'] for b in bins) == float(row['sum']), row)
        for b in bins:
            want(b['norm'] == b['count'], b)
            want(abs(b['mean'] * b['norm'] - b['sum']) <= 1e-6 * abs(b['sum']) + 1e-9
                 if b['count'] else math.isnan(b['mean']), b)
        want(all(a['centre'] < b['centre'] for a, b in zip(bins, bins[1:])), 'centres')
    d = by_frame(scan(path, '--profile', '-', '--bins', '300', '--unit', 'd'))
    angle = by_frame(scan(path, '--profile', '-', '--bins', '300', '--unit', '2theta'))
    exact = by_frame(scan(path, '--profile', '-', '--bins', '300', '--solid-angle',
                          '--polarization', '0.99'))
    for number, bins in q.items():
        for a, b, c in zip(bins, d[number], exact[number]):
            want(a['sum'] == b['sum'] == c['sum'] and a['count'] == b['count'] == c['count'], a, b, c)
            want(abs(a['centre'] * b['centre'] / (2 * math.pi) - 1) < 1e-7, a, b)
            want(0 < c['norm'] < a['norm'] or a['count'] == 0, a, c)
        want(sum(b['count'] for b in angle[number]) == sum(b['count'] for b in bins))
    # 2 theta = 2 asin(q wavelength / 4 pi), at the last bin within the width of a bin
    last = 2 * math.degrees(math.asin(bins[-1]['centre'] * 12.398419843 / 12.4 / 4 / math.pi))
    want(abs(angle[number][-1]['centre'] / last - 1) < 0.005, angle[number][-1], last)
    want(len(scan(path, '--profile', '-')) == 1000 * FRAMES, 'the default number of bins')


def record(t, where, name, *settings):
    t.do(f'run/configure,run.name={name},output.directory={where},run.frames={FRAMES},' +
         ','.join(settings))
    t.do('run/start')
    t.wait('idle')
    return f'{where}/{name}_images.arrow'


def session(t, where, value):
    path = record(t, where, 'image', 'peaks.search=no')
    check(path, value)
    for wrong in (('--bins', '0'), ('--bins', '16384'), ('--bins', '9x'), ('--unit', 'nm'),
                  ('--polarization', '2'), ('--polarization', 'nan')):
        scan(path, '--profile', '-', *wrong, status=2, message=f'{wrong[0]}: expected')
    scan(path, '--bins', '5', status=2, message='only with --profile')
    sparse = record(t, where, 'sparse', 'output.format=csr')
    want(not scan(sparse, '--profile', '-', status=1, message='are no full images'),
         'profiles of CSR')
    scan(path, '--profile', f'{where}/none/p.csv', status=1, message='cannot write')


def numbers(profiles):
    return {n: [(b['sum'], b['count']) for b in bins] for n, bins in profiles.items()}


def made(t, where):
    """Profiles of the receiver: those of images, and also of frames without one."""
    path = record(t, where, 'made', 'veto.strong_min=0')
    have = by_frame(scan(path, '--profile', '-'))
    want(len(have) == FRAMES and all(len(bins) == 300 for bins in have.values()), sorted(have))
    # a correction changes norms only, and is computed from the images
    computed = by_frame(scan(path, '--profile', '-', '--bins', '300', '--unit', 'd',
                             '--solid-angle'))
    want(numbers(have) == numbers(computed), 'sums and counts')
    for number, bins in have.items():
        for a, b in zip(bins, computed[number]):
            want(abs(a['centre'] / b['centre'] - 1) < 1e-8, a, b)
            want(a['norm'] == a['count'], a)
            want(abs(a['mean'] * a['count'] - a['sum']) <= 1e-6 * abs(a['sum']) + 1e-9
                 if a['count'] else math.isnan(a['mean']), a)
    want(len(scan(path, '--profile', '-', '--bins', '20')) == 20 * FRAMES, 'other bins')
    vetoed = record(t, where, 'vetoed', 'veto.strong_min=500000')
    have = by_frame(scan(vetoed, '--profile', '-'))
    rows = {int(r['frame']): r for r in scan(vetoed, '--csv', '-')}
    want(set(have) == set(rows) and len(rows) == FRAMES, sorted(have), sorted(rows))
    for number, bins in have.items():
        row = rows[number]
        want(row['verdict'] == '0' and row['kind'] == '255', row)
        want(sum(b['count'] for b in bins) == PIXELS - int(row['invalid']) - int(row['saturated']),
             row)
        want(row['radial_sum'].split() == [str(int(b['sum'])) for b in bins], number)
    t.do(f'run/configure,run.name=moved,output.directory={where},geometry.distance_mm=99')
    message = text(t.do('run/start', result=-22), 'message')
    want('with which the process was started, and [radial]' in message, message)


def main():
    with running(BUILD, *SETTINGS, 'output.value=int16', 'radial.bins=300',
                 'radial.unit=d') as (process, telemetry, where):
        where += '/out'
        os.mkdir(where)
        made(telemetry, where)
        process.send_signal(signal.SIGTERM)
        want(process.wait(30) == 0, 'status', process.returncode)
    for value in 'float32', 'int16':
        with running(BUILD, *SETTINGS, f'output.value={value}') as (process, telemetry, where):
            where += '/out'
            os.mkdir(where)
            session(telemetry, where, value)
            process.send_signal(signal.SIGTERM)
            want(process.wait(30) == 0, 'status', process.returncode)


main()
