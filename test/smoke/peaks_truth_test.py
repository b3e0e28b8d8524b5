#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The simulator draws crystals on the panels of a geometry file; the receiver finds their peaks; scan
compares them with the truth. Positions of the truth obey Bragg's law.

usage: peaks_truth_test.py BUILD-DIR [CASE...]
"""

import csv
import math
import os
import re
import subprocess
import sys
import xml.etree.ElementTree

import cases
from cases import case, want

BUILD = sys.argv[1]
SCAN = f'{BUILD}/app/scan/braggline-scan'
DETECTOR = f'{BUILD}/app/detector/braggline-detector'
FLOAT = f'(0-3)@(0-{os.cpu_count() - 1})'
FRAMES = 60
ENERGY = 11300  # eV
CLEN = 0.095
RES = 13250  # not quite that of pixels of 75 um
CELL = (79.1, 79.1, 37.9)


def run(*command, status=0):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False, timeout=60)
    want(done.returncode == status, 'status', done.returncode, 'of', ' '.join(command), '\n',
         done.stdout)
    return done.stdout


def panels():
    """Two modules in a column, of which the lower is turned by 1.5 degrees; one chip is tilted, one
    is 2 mm behind the others. @return {name: (fs_min, ss_min, corner, fs, ss)}"""
    found = {}
    for i in range(16):
        module, column, row = i // 8, i % 4, i // 4 % 2
        angle, tilt = math.radians(1.5) * module, 0.05 if i == 6 else 0
        c, s = math.cos(angle), math.sin(angle)
        x, y = column * 258 - 512.4, 540.2 - row * 258 - module * 552
        found[f'p{i}'] = (column * 256, module * 512 + row * 256,
                          (c * x - s * y, s * x + c * y, RES * 0.002 if i == 9 else 0),
                          (c * math.cos(tilt), s * math.cos(tilt), math.sin(tilt)), (s, -c, 0))
    return found


def write_geometry(path):
    with open(path, 'w', encoding='ascii') as f:
        print(f'clen = {CLEN}\nphoton_energy = {ENERGY}\nres = {RES!r}\nadu_per_photon = 1\n'
              'data = /entry/data/data\ndim0 = %\ndim1 = ss\ndim2 = fs', file=f)
        for name, (fs_min, ss_min, corner, fs, ss) in panels().items():
            print(f'{name}/min_fs = {fs_min}\n{name}/max_fs = {fs_min + 255}\n'
                  f'{name}/min_ss = {ss_min}\n{name}/max_ss = {ss_min + 255}\n'
                  f'{name}/corner_x = {corner[0]!r}\n{name}/corner_y = {corner[1]!r}\n'
                  f'{name}/coffset = {corner[2] / RES!r}', file=f)
            for axis, step in ('fs', fs), ('ss', ss):
                print(f'{name}/{axis} = {step[0]:+.12f}x {step[1]:+.12f}y {step[2]:+.12f}z', file=f)


def spots_of(path):
    with open(path, encoding='ascii', newline='') as f:
        return list(csv.DictReader(f))


def simulate(where, *options):
    write_geometry(f'{where}/d.geom')
    run(DETECTOR, '--modules', '2', '--frames', str(FRAMES), '--hit-fraction', '0.5', '--geometry',
        f'{where}/d.geom', '--spots', f'{where}/spots.csv', *options)
    return spots_of(f'{where}/spots.csv')


@case
def positions_obey_braggs_law(where):
    layout, wavelength, worst, seen = panels(), 12398.419843 / ENERGY, 0, set()
    bragg = 0
    for spot in simulate(where):
        fs_min, ss_min, corner, fs, ss = layout[spot['panel']]
        index = [int(spot[k]) for k in 'hkl']
        x, y, z = (corner[k] + fs[k] * (float(spot['fs']) - fs_min) +
                   ss[k] * (float(spot['ss']) - ss_min) + (CLEN * RES if k == 2 else 0)
                   for k in range(3))
        want(0 <= float(spot['fs']) - fs_min <= 256 and 0 <= float(spot['ss']) - ss_min <= 256,
             'not on its panel:', spot)
        if index == [0, 0, 0]:  # a stray peak
            continue
        d = 1 / math.sqrt(sum((i / a) ** 2 for i, a in zip(index, CELL)))
        radius = z * math.tan(2 * math.asin(wavelength / 2 / d))
        worst = max(worst, abs(math.hypot(x, y) - radius))
        seen.add(spot['panel'])
        bragg += 1
    want(bragg > 500 and seen == set(layout), bragg, 'spots on', sorted(seen))
    want(worst < 0.1, worst, 'pixels from the Bragg angle')


@case
def the_same_seed_gives_the_same_bytes(where):
    texts = []
    for _ in range(2):
        simulate(where, '--raw', f'{where}/raw')
        with open(f'{where}/raw', 'rb') as raw, open(f'{where}/spots.csv', 'rb') as spots:
            texts.append((raw.read(), spots.read()))
    want(texts[0] == texts[1], 'frames or spots differ')


def receive(where):
    command = [f'{BUILD}/app/recv/braggline-recv', '--no-huge', '-m', '512', '--no-pci',
               '--no-shconf', '--no-telemetry', '--lcores', FLOAT, '--vdev', 'gpu_host0', '--vdev',
               f'net_replay0,file={where}/in.pcap', '--', '--quiet']
    settings = {
        'detector.modules': 2, 'run.name': 'run', 'run.frames': FRAMES, 'run.first_frame': 1,
        'run.idle_timeout_ms': 3000, 'frames.backpressure': 'wait', 'output.preview': 'off',
        'output.directory': f'{where}/out', 'calibration.energy_kev': ENERGY / 1000,
        'calibration.gain': f'{where}/gain_m%d.bin', 'calibration.mask': f'{where}/mask_m%d.bin',
        'geometry.file': f'{where}/d.geom', 'peaks.search': 'all', 'peaks.threshold': 3,
        'veto.strong_min': 20, 'peaks.peaks_min': 10}
    for gain in range(3):
        settings[f'calibration.pedestal_g{gain}'] = f'{where}/pedestal_g{gain}_m%d.bin'
    for key, value in settings.items():
        command += ['--set', f'{key}={value}']
    run(*command)


def compare(where, spots, status=0):
    """@return recall, its number of spots, precision (both in per cent), median and 95 % error"""
    text = run(SCAN, f'{where}/out', '--spots', spots, status=status)
    found = re.search(r'peaks, recall +([\d.]+) %  \d+ of (\d+) spots of at least 50 photons found\n'
                      r'  peaks, precision +([\d.]+) %  .*\n'
                      r'  position error +([\d.]+) pixels in the median, ([\d.]+) at most', text)
    want(found is not None, text)
    return [float(value) for value in found.groups()]


@case
def found_peaks_are_the_spots(where):
    rows = simulate(where, '--pcap', f'{where}/in.pcap', '--calibration', where)
    receive(where)
    recall, bright, precision, median, most = compare(where, f'{where}/spots.csv')
    print('recall', recall, 'of', bright, 'precision', precision, 'error', median, most)
    want(bright > 300 and recall > 95 and precision > 95 and most < 0.3 and median < 0.15)

    # the comparison notices positions that are off, and spots that are missing
    header = ','.join(rows[0]) + '\n'
    with open(f'{where}/moved.csv', 'w', encoding='ascii') as f:
        f.write(header)
        for row in rows:
            row['fs'] = float(row['fs']) + 0.7
            f.write(','.join(map(str, row.values())) + '\n')
    recall, _, precision, median, _ = compare(where, f'{where}/moved.csv')
    want(recall > 95 and precision > 95 and 0.6 < median < 0.8, recall, precision, median)
    with open(f'{where}/half.csv', 'w', encoding='ascii') as f:
        f.write(header)
        f.writelines(','.join(map(str, {**row, 'fs': row['fs'] - 0.7}.values())) + '\n'
                     for row in rows[::2])
    recall, half, precision, median, _ = compare(where, f'{where}/half.csv')
    want(recall > 95 and half < 0.7 * bright and 30 < precision < 70, recall, half, precision)

    # the picture with circles differs from that without
    pictures = []
    for options in [], ['--peaks']:
        run(SCAN, f'{where}/out', '--png', f'{where}/x.png', *options)
        with open(f'{where}/x.png', 'rb') as f:
            pictures.append(f.read())
    want(pictures[0] != pictures[1], 'no circles')
    # SVG: what an XML parser reads as text
    for option, texts in (('--png', ('photons', 'x (pixels)', 'no sensor')),
                          ('--plot', ('Bragg peaks per frame', 'hit rate (%)', 'frame number'))):
        run(SCAN, f'{where}/out', option, f'{where}/x.svg')
        root = xml.etree.ElementTree.parse(f'{where}/x.svg').getroot()
        found = [e.text for e in root.iter('{http://www.w3.org/2000/svg}text')]
        want(all(text in found for text in texts), option, found)

    for text, message in (('', 'empty; expected a header line'),
                          ('frame,fs,ss\n', 'expected a header line with the columns frame, fs, ss '
                           'and photons'),
                          (header + '1,2,nan,4,1,1,1,p0\n', ':2: expected a frame number, and numbers'),
                          (header + '-1,2,3,4,1,1,1,p0\n', ':2: expected a frame number, and numbers'),
                          (header + '1,2,3\n', ':2: expected a frame number, and numbers')):
        with open(f'{where}/wrong.csv', 'w', encoding='ascii') as f:
            f.write(text)
        said = run(SCAN, f'{where}/out', '--spots', f'{where}/wrong.csv', status=1)
        want(message in said, message, 'not in', said)


@case
def wrong_options_are_refused(where):
    write_geometry(f'{where}/d.geom')
    geometry = ['--geometry', f'{where}/d.geom']
    two = ['--modules', '2', '--spots', f'{where}/s']
    for options, message in (
            ([*geometry, '--spots', f'{where}/s'], 'p8'),  # more rows than one module has
            ([*geometry, *two, '--distance', '80'], '--distance: found 80, expected no such option, or 95'),
            ([*geometry, *two, '--beam', '5,5'], '--beam: found --geometry'),
            (['--geometry', f'{where}/no.geom', *two], 'no.geom'),
            ([*geometry, '--modules', '2', '--pack', '--raw', f'{where}/r', f'{where}/d.geom'],
             '--pack: found --geometry'),
            (['--pack', '--spots', f'{where}/s', f'{where}/d.geom'], '--pack: found --spots'),
            ([*geometry, '--replay', '--raw', f'{where}/r', where], '--replay: found --geometry')):
        done = subprocess.run([DETECTOR, *options], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
                              text=True, check=False, timeout=60)
        want(done.returncode in (1, 2) and message in done.stderr, message, 'not in', done.stderr)
        want(sorted(os.listdir(where)) == ['d.geom'], os.listdir(where))


sys.exit(cases.run_cases(sys.argv[2:]))
