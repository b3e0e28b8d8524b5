#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Controls several runs over the DPDK telemetry socket, with the stock client's protocol.

usage: telemetry_test.py BUILD-DIR README README-OF-STORES
"""

import configparser
import os
import re
import signal
import subprocess
import sys
import time

from cases import wait, want
from receiver import running, text

BUILD, README, README_OF_STORES = sys.argv[1:4]
RECV = f'{BUILD}/app/recv/braggline-recv'
STORE = f'{BUILD}/app/store/braggline-store'
RUNS = 50


def ledger(where, name):
    ini = configparser.ConfigParser()
    ini.read(f'{where}/{name}_ledger.ini')
    return {k: int(v) for k, v in ini['frames'].items()}


def frames_csv(where, name):
    """Rows of `frames`, read by braggline-scan."""
    text = subprocess.run([f'{BUILD}/app/scan/braggline-scan', '--csv', '-',
                           f'{where}/{name}_frames.arrow'], check=True, text=True,
                          stdout=subprocess.PIPE).stdout.strip().split('\n')
    head = text[0].split(',')
    return [dict(zip(head, line.split(','))) for line in text[1:]]


def documented(program, readme):
    table = subprocess.run([program, '--', '--list-telemetry'], check=True, text=True,
                           stdout=subprocess.PIPE).stdout
    want(len(table.splitlines()) > 4, program, table)
    with open(readme, encoding='utf-8') as f:
        want(table in f.read(), 'the list of commands in', readme,
             'is not what --list-telemetry prints')


def open_files(pid):
    """The smallest number of open files within a second: the picture of a run that has ended may be
    open for a moment."""
    n = []
    for _ in range(10):
        n.append(len(os.listdir(f'/proc/{pid}/fd')))
        time.sleep(0.1)
    return min(n)


def memory(pid):
    with open(f'/proc/{pid}/status', encoding='ascii') as f:
        return int(re.search(r'VmRSS:\s+(\d+)', f.read())[1])


def writer(t):
    """Bytes that the last run wrote, and write times of the batches of all runs."""
    w, frames = t.get('writer'), t.get('ledger')['frames']
    want(w['run'] == f'n{RUNS - 1}', w)
    for table, rows in (w['frames'], frames['frames']), (w['images'], frames['stored']):
        want(table['rows'] == table['durable'] == rows and table['unwritten'] == 0, w)
        want(table['state'] == 'closed' and table['error'] == '' and table['files'] == 1, w)
        want(table['mode'] in ('buffered', 'direct', 'direct+io_uring'), w)
        want((table['why'] == '') == (table['mode'] == 'direct+io_uring'), w)
        want(os.path.getsize(text(table, 'path')) == table['bytes'], w)
    latency = t.get('latency')
    durable = latency['frames_batch_to_durable']
    want(len(durable) == len(latency['below_us']), latency)
    # at least one batch a run; the files of short runs are closed within seconds
    want(sum(durable) >= RUNS + 4 and sum(durable[:-1]) >= RUNS, durable)
    want(sum(latency['images_batch_to_durable']) > 0)


def arrived(t, number=1):
    """Wait for a frame of the run. @return the number of the last one"""
    return wait(f'frame {number}', lambda: (n := t.get('run/status')['last_frame']) >= number and n)


def session(t, where, pid, log):
    info = t.get('info')
    want(info['detector'] == 'jungfrau' and info['rows'] == 512, info)
    want(t.get('run/status')['state'] == 'idle')
    # mistakes
    t.do('run/stop', -114)
    want('modules' in t.do('run/configure,detector.modules=2', -22)['message'])
    want('strong_mim' in t.do('run/configure,veto.strong_mim=2', -22)['message'])
    want(t.do('run/configure,veto.strong_mim=2', -22)['message'].startswith(
        'telemetry: [veto] strong_mim = 2: unknown key'))
    want('fixed' in t.do('run/configure,output.value=int16', -22)['message'])
    t.do('veto/set,veto.strong_min=5', -114)
    # a mistake in the settings is reported once, not again for the run
    with open(log, encoding='utf-8') as f:
        said = f.read()
    want(said.count('[veto] strong_mim = 2') == 2, said)
    for number in '', 'x', '12x', '-1', '1.5':
        want('must be a frame number' in
             t.do(f'veto/set,veto.strong_min=3,from_frame={number}', -22)['message'], number)
    want('from_frame is given twice' in
         t.do('veto/set,veto.strong_min=3,from_frame=4,from_frame=5', -22)['message'])
    want('no threshold given' in t.do('veto/set', -22)['message'])
    want('no threshold given' in t.do('veto/set,from_frame=3', -22)['message'])
    want('at most 63 bytes' in text(t.do(f'run/configure,run.{64 * "k"}=1', -22), 'message'))
    want('too long' in t.do('run/configure,run.sample=' + 1000 * 'x', -7)['message'])
    for command in ('run/start,run.name=x', 'run/stop,now', 'run/status,run.name=x', 'ledger,all'):
        want('takes no parameters' in t.do(command, -22)['message'], command)
    t.socket.send(b'/braggline/run/configure,run.name=M\xfcller')
    want('is not a single line of UTF-8 text' in t.socket.recv(t.size).decode())
    want(t.get('run/status')['state'] == 'idle')
    # packets between runs are counted and dropped
    wait('packets between runs', lambda: t.get('rx')['0']['no_run'] > 0)

    # one run step by step, with thresholds that change on the way
    t.do(f'run/configure,run.name=one,output.directory={where},run.sample=lysozyme,'
         'veto.strong_min=524288')
    want(t.do('run/arm')['state'] == 'armed')
    # an earlier error is not repeated here
    want(t.get('run/status')['message'] == '', t.get('run/status'))
    module = t.get('calibration')['0']
    want(module['live'] > 500000 and module['warnings'] == 0, module)
    want(2000 < float(module['pedestal_g0']) < 4000 and 30 < float(module['gain_g0']) < 50, module)
    t.do('run/configure,run.name=two', -16)
    want(t.do('run/start')['state'] == 'running')
    at = arrived(t)
    changed = t.do(f'veto/set,veto.strong_min=20,from_frame={at + 100}')['from_frame']
    want(changed >= at + 100, changed, at)
    # a refused change has no effect: the next change is accepted
    t.do('veto/set,veto.strong_min=many', -22)
    want('strong_min = many' in t.get('run/status')['message'], t.get('run/status'))
    again = t.do('veto/set,veto.dry_run=yes')['from_frame']
    want(t.get('run/status')['message'] == '', 'a message of a command before the last one')
    want(again >= changed, again, changed)
    t.do('veto/set,run.name=x', -22)
    # frames were judged by each of the thresholds
    arrived(t, again + 50)
    live = wait('frames of the run', lambda: (l := t.get('ledger'))['frames']['frames'] > 100 and l)
    want(live['state'] == 'running', live)
    # all frames are kept now; other processes may delay the thread that draws
    picture = wait('a picture', lambda: (p := t.get('preview'))['path'] and p)
    want(os.path.dirname(text(picture, 'path')) == where, picture)
    t.do('run/stop')
    status = t.wait('idle')
    want(status['failed'] == 0 and status['name'] == 'one', status)
    want(text(status, 'ledger') == f'{where}/one_ledger.ini', status)
    l = ledger(where, 'one')
    # the socket and the file have the same content in the same order
    want(list(t.get('ledger')['frames'].items()) == list(l.items()), l)
    want(l['balanced'] == 1 and l['lost'] == 0, l)
    ini = configparser.ConfigParser()
    ini.read(f'{where}/one_ledger.ini')
    vetoes = [dict(ini[s]) for s in ini.sections() if s.startswith('veto ')]
    want([int(v['from_frame']) for v in vetoes] == [0, changed, again], vetoes)
    want([v['strong_min'] for v in vetoes] == ['524288', '20', '20'], vetoes)
    rows = frames_csv(where, 'one')
    want(len(rows) == l['frames'])
    for r in rows:
        f, version = int(r['frame']), int(r['veto_version'])
        want(version == (1 if f < changed else 2 if f < again else 3), r, changed, again)
        if version == 1:
            want(r['verdict'] in ('0', 'vetoed'), r)
        if version == 3:
            want(r['verdict'] not in ('0', 'vetoed'), r)

    # a run with a number of frames ends by itself
    t.do(f'run/configure,run.name=count,output.directory={where},run.frames=60')
    t.do('run/start')
    want(t.wait('idle')['frames'] == 60)
    # every third frame, as from a detector that distributes its frames
    t.do(f'run/configure,run.name=third,output.directory={where},run.frames=20,'
         'run.stride=3,run.offset=1')
    t.do('run/start')
    t.wait('idle')
    numbers = [int(r['frame']) for r in frames_csv(where, 'third')]
    want(len(numbers) == 20 and all(n % 3 == 1 for n in numbers), numbers)
    want(all(b - a == 3 for a, b in zip(numbers, numbers[1:])), numbers)
    # files are never overwritten; a mistake does not change the state
    t.do(f'run/configure,run.name=one,output.directory={where}')
    want('one' in t.do('run/arm', -17)['message'])
    want(t.get('run/status')['state'] == 'configured')
    # an aborted run has a ledger, too
    t.do(f'run/configure,run.name=aborted,output.directory={where}')
    t.do('run/start')
    arrived(t)
    t.do('run/abort')
    t.wait('idle')
    aborted = ledger(where, 'aborted')
    want(aborted['balanced'] == 1, aborted)

    # many runs do not leak files or memory
    files = rss = 0
    for i in range(RUNS):
        t.do(f'run/configure,run.name=n{i},output.directory={where},run.frames=5')
        t.do('run/start')
        status = t.wait('idle')
        want(status['frames'] == 5 and status['failed'] == 0, status)
        if i == 10:
            files, rss = open_files(pid), memory(pid)
    want(open_files(pid) <= files, open_files(pid), files)
    want(memory(pid) < rss * 1.02 + 2048, memory(pid), rss)

    modules = t.get('modules')
    want(modules['0']['frames'] > 0, modules)
    # a run begins and ends with complete frames, except for the aborted one
    partial = {n: ledger(where, n)['missing_packets']
               for n in ['one', 'count', 'third', *(f'n{i}' for i in range(RUNS))]}
    want(not any(partial.values()), partial)
    want(modules['0']['missing_packets'] == aborted['missing_packets'], modules, aborted)
    want(sum(t.get('latency')['last_packet_to_verdict']) > 0)
    writer(t)
    want(t.get('preview')['active'] == 0, t.get('preview'))
    want(t.get('egress') == {'active': 0}, t.get('egress'))
    want(t.get('rdma') == {'active': 0}, t.get('rdma'))
    want(t.get('gangs')['0']['frames'] > 0 and t.get('pedestal')['masked'] > 0)
    want(any('builder' in l['roles'] for l in t.get('lcores').values()))
    # a run is in progress: SIGTERM ends it first
    t.do(f'run/configure,run.name=last,output.directory={where}')
    t.do('run/start')
    arrived(t)


def refused_once(log):
    """Each refusal is logged in exactly one line."""
    with open(log, encoding='utf-8') as f:
        lines = f.read()
    for what, times in (('[veto] strong_mim = 2: unknown key', 2), ('strong_min = many', 1),
                        ('output.value is fixed', 1), ('a run is armed', 1)):
        want(lines.count(what) == times, what, 'is not there', times, 'times:', lines)


def main():
    documented(RECV, README)
    documented(STORE, README_OF_STORES)
    with running(BUILD, 'run.sample=M\u00fcller') as (process, telemetry, where):
        # DPDK's replies are ASCII
        want('run.sample=M\\u00fcller' in telemetry('/eal/app_params')['/eal/app_params'])
        log = f'{where}/log'
        where += '/M\u00fcller'
        session(telemetry, where, process.pid, log)
        process.send_signal(signal.SIGTERM)
        want(process.wait(30) == 0, 'status', process.returncode)
        want(ledger(where, 'last')['balanced'] == 1)
        refused_once(f'{where}/../log')
        want(os.path.exists(f'{where}/last_frames.arrow'))
    print('a session of', RUNS + 6, 'runs over the telemetry socket: ok')


main()
