#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Receiver and store as a whole under the thread sanitizer: six lcores, runs that are ordered and
ended, and a client that asks for all telemetry meanwhile.

usage: tsan_programs.py BUILD-DIR [CASE]...
"""

import glob
import os
import re
import signal
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '..', 'smoke'))

from cases import case, run_cases, want  # noqa: E402
import receiver  # noqa: E402
import store_test  # noqa: E402

BUILD = os.path.abspath(sys.argv[1])
OPTIONS = os.environ.get('TSAN_OPTIONS', f'suppressions={HERE}/suppressions.txt')
# frames/s; the sanitizer costs a factor of ten
receiver.RATE = store_test.RATE = 100
FRAMES = 300  # that a receiver sends to a store


def no_reports(where):
    """Programs say nothing of races where they write their reports."""
    text = ''
    for path in sorted(glob.glob(f'{where}/tsan.*')):
        with open(path, encoding='utf-8', errors='replace') as report:
            text += report.read()
    if text:
        print(text)
    found = re.findall(r'SUMMARY: ThreadSanitizer: (.*)', text)
    want(not text, len(found), 'reports:', *sorted(set(found)))


def reports_go_to(where):
    os.environ['TSAN_OPTIONS'] = f'{OPTIONS}:log_path={where}/tsan'


def ask_for_everything(telemetry, ports=True):
    """Each command that only reads. Ports answer no more when they are closed: not as a run ends."""
    for command in telemetry('/')['/']:
        if command in ('/ethdev/stats', '/ethdev/xstats'):
            if ports:
                telemetry(f'{command},0')
        elif command.startswith('/braggline/') and not \
                re.search('/(configure|arm|start|stop|abort|set)$', command):
            telemetry(command)


# Everything that threads do: raw frames, which idle lcores compress, audits, darks, sets of files
RECEIVER = ('output.frames_interval=16', 'output.images_interval=8', 'output.format=raw',
            'veto.prescale=2', 'veto.prescale_raw=yes', 'dark.select=frame', 'dark.every=7',
            'dark.interval_frames=50', 'output.roll_frames=100')


@case
def runs_of_a_receiver(where):
    """Files, raw frames that are compressed, darks, thresholds that change, an abort."""
    reports_go_to(where)
    with receiver.running(BUILD, *RECEIVER) as (process, t, files):
        for name in 'a', 'b':
            t.do(f'run/configure,run.name={name},output.directory={files}')
            t.do('run/start')
            end = time.monotonic() + 4
            while time.monotonic() < end:
                ask_for_everything(t)
                t.get('veto/set,veto.strong_min=2')
            t.do('run/stop' if name == 'a' else 'run/abort')
            t.wait('idle')
        process.send_signal(signal.SIGTERM)
        want(process.wait(60) in (0, 66), 'receiver', process.returncode)
    no_reports(where)


@case
def receiver_and_store(where):
    """Batches over software RoCE; both are asked for their telemetry."""
    reports_go_to(where)
    store_test.Chain.MORE_EAL = ()
    chain = store_test.Chain(BUILD, where, 'none')
    try:
        store = chain.start_store()
        recv = chain.start_recv()
        telemetry = receiver.Telemetry(f'{chain.name}_recv', recv)
        of_store = receiver.Telemetry(f'{chain.name}_store', store, '/braggline/store')
        while telemetry.get('ledger')['frames']['frames'] < FRAMES:
            ask_for_everything(of_store, ports=False)
            ask_for_everything(telemetry, ports=False)
            time.sleep(0.05)
        recv.send_signal(signal.SIGTERM)
        while recv.poll() is None:
            ask_for_everything(of_store, ports=False)
            try:
                ask_for_everything(telemetry, ports=False)
            except (OSError, ValueError):
                pass  # it ends
            time.sleep(0.05)
        want(recv.returncode in (0, 66), 'receiver', recv.returncode)
        store.send_signal(signal.SIGTERM)
        want(store.wait(60) in (0, 66), 'store', store.returncode)
    finally:
        if os.path.exists(chain.ring):
            os.unlink(chain.ring)
    no_reports(where)


if __name__ == '__main__':
    with tempfile.TemporaryDirectory() as tmp:
        os.environ['TMPDIR'] = tmp
        # of the programs that are started
        os.environ['LD_PRELOAD'] = f'{BUILD}/test/tsan/libtsan_dpdk.so'
        sys.exit(run_cases(sys.argv[2:]))
