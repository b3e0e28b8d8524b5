#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Changes [peaks] and [veto] of a running receiver over its telemetry socket.

The replay repeats PERIOD frames, so frames n and n + PERIOD have the same pixels. Their rows differ
only if the thresholds do. Runs with the same thresholds from the start say what rows must be.

usage: peaks_live_test.py BUILD-DIR
"""

import configparser
import os
import signal
import subprocess
import sys

from cases import wait, want
from receiver import PERIOD, running

BUILD = sys.argv[1]
SETTINGS = ('geometry.beam_x=515', 'geometry.beam_y=270', 'geometry.distance_mm=100',
            'geometry.energy_kev=12.4', 'peaks.search=all', 'peaks.threshold=6', 'peaks.max=40',
            'peaks.peaks_min=3', 'veto.strong_min=0', 'output.format=csr')
# thresholds that give the same pixels other results, one after the other
CHANGES = ('peaks.threshold=20', 'peaks.min_snr=30', 'peaks.min_pix_count=4', 'peaks.peaks_min=0',
           'peaks.veto_shells=0,2,peaks.peaks_min=1', 'peaks.search=no',
           'peaks.search=hits,veto.strong_min=5,peaks.local_bg_radius=5')
REFUSED = (('peaks.threshold=lots', 'threshold = lots: must be'),
           ('peaks.threshold=40000', 'threshold = 40000: must be'),
           ('peaks.min_pix_count=201', 'max_pix_count'),
           ('peaks.peaks_min=50,peaks.peaks_max=40', 'peaks_max'),
           ('peaks.peaks_min=9999', 'peaks_min = 9999: must be'),
           ('peaks.veto_shells=3', 'veto_shells = 3: must be'),
           ('peaks.search=some', 'search = some: must be'),
           ('peaks.snr=4', 'snr = 4: unknown key'),
           ('peaks.shells=40,6,4,2', 'peaks.shells cannot change during a run'),
           ('peaks.min_res=10', 'peaks.min_res, max_res and max are fixed'),
           ('peaks.max=10', 'peaks.min_res, max_res and max are fixed'),
           ('peaks.min_snr=4,geometry.beam_x=3', 'cannot change during a run'),
           ('peaks', 'expected SECTION.KEY=VALUE'))
# columns that identify a frame, its time or its packets, not its pixels
OWN = ('frame', 'bunch_id', 'detector_time', 'receive_time', 'veto_version', 'pedestal_version')


def rows(where, name):
    table = subprocess.run([f'{BUILD}/app/scan/braggline-scan', '--csv', '-',
                            f'{where}/{name}_frames.arrow'], check=True, text=True,
                           stdout=subprocess.PIPE).stdout.strip().split('\n')
    head = table[0].split(',')
    return [dict(zip(head, line.split(','))) for line in table[1:]]


def pixels_of(row):
    """The columns that depend on pixels and thresholds only."""
    return {k: v for k, v in row.items() if k not in OWN}


def vetoes(where, name):
    ini = configparser.ConfigParser()
    ini.read(f'{where}/{name}_ledger.ini')
    want(ini['frames']['balanced'] == '1', name, 'is not balanced')
    return [dict(ini[s]) for s in ini.sections() if s.startswith('veto ')]


def short_run(t, where, name, *settings):
    """A run of some periods with these settings from its start. @return rows by frame % PERIOD"""
    t.do(f'run/configure,run.name={name},output.directory={where},run.frames={2 * PERIOD},' +
         ','.join(('peaks.shells=50,6,4,2', *settings)))
    t.do('run/start')
    t.wait('idle')
    by = {}
    for r in rows(where, name):
        want(by.setdefault(int(r['frame']) % PERIOD, pixels_of(r)) == pixels_of(r), name,
             'equal frames differ', r)
    want(len(by) == PERIOD, name, by)
    return by


def live(t, where):
    """@return name and boundaries of the changes: first frames of the versions"""
    t.do(f'run/configure,run.name=live,output.directory={where},peaks.shells=50,6,4,2')
    t.do('run/start')
    bounds = [0]
    for change in CHANGES:
        last = wait('a frame', lambda: (s := t.get('run/status'))['last_frame'] and s['last_frame'])
        before = t.get('veto')
        for wrong, why in REFUSED:
            reply = t.do(f'veto/set,{wrong}', -22)
            want(why in reply['message'], wrong, reply)
        # a refused change changes nothing, also if it has a part that is correct
        want(t.get('veto') == before, before, t.get('veto'))
        bounds.append(t.do(f'veto/set,{change},from_frame={last + 30}')['from_frame'])
        want(bounds[-1] >= last + 30, bounds, last)
        after, keys = t.get('veto'), {a.split('.')[1].split('=')[0] for a in change.split(',')
                                      if '=' in a}
        want(after['version'] == before['version'] + 1, before, after)
        want({k for k in after if after[k] != before[k]} == keys | {'version'}, before, after)
        wait('frames of this version', lambda: t.get('run/status')['last_frame'] > bounds[-1] + 20)
    t.do('run/stop')
    t.wait('idle')
    # these are the thresholds of the next run, of which no version is in force yet
    want(t.get('veto')['version'] == 0, t.get('veto'))
    return bounds


def check_live(where, bounds, expected):
    ledger = vetoes(where, 'live')
    want([int(v['from_frame']) for v in ledger] == bounds, ledger, bounds)
    want([v['threshold'] for v in ledger if v['search'] != '0'] == ['6'] + (len(ledger) - 2) * ['20'],
         ledger)
    want('threshold' not in ledger[-2] and ledger[-1]['local_bg_radius'] == '5', ledger)
    want(ledger[5]['veto_shells'] == '0x5' and ledger[1]['peaks_max'] == 'none', ledger)
    counts = [0] * len(bounds)
    for r in rows(where, 'live'):
        frame = int(r['frame'])
        version = sum(frame >= b for b in bounds) - 1
        want(int(r['veto_version']) == version + int(ledger_version(where)), r, bounds)
        want(pixels_of(r) == expected[version][frame % PERIOD], 'frame', frame, 'of version',
             version, pixels_of(r), expected[version][frame % PERIOD])
        counts[version] += 1
    want(all(n > 10 for n in counts), counts)


def ledger_version(where):
    """Number of the first version of the run."""
    ini = configparser.ConfigParser()
    ini.read(f'{where}/live_ledger.ini')
    return min(int(s.split()[1]) for s in ini.sections() if s.startswith('veto '))


def session(t, where):
    expected, settings = [], []
    for i, change in enumerate(('', *CHANGES)):
        settings += [change] if change else []
        expected.append(short_run(t, where, f'expected{i}', *settings))
        want(i == 0 or expected[-1] != expected[-2], change, 'changes nothing')
    check_live(where, live(t, where), expected)
    # files of a run without a search have no columns of peaks
    t.do(f'run/configure,run.name=none,output.directory={where},peaks.search=no')
    t.do('run/start')
    want('this run began without it' in t.do('veto/set,peaks.search=all', -22)['message'])
    t.do('veto/set,peaks.threshold=7')
    t.do('run/stop')
    t.wait('idle')
    want([v['search'] for v in vetoes(where, 'none')] == ['0', '0'])


def main():
    with running(BUILD, *SETTINGS) as (process, telemetry, where):
        where += '/out'
        os.mkdir(where)
        session(telemetry, where)
        process.send_signal(signal.SIGTERM)
        want(process.wait(30) == 0, 'status', process.returncode)


main()
