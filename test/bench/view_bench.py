#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Pictures of a JUNGFRAU 4M per second in a browser, and what they cost the receiver: a replay that
does not wait for the receiver, braggline-view and headless Chromium on the same machine.

usage: view_bench.py BUILD-DIR [SECONDS]
"""

import os
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../smoke'))
import background  # noqa: E402
import browser  # noqa: E402
from receiver import Telemetry  # noqa: E402

BUILD = os.path.abspath(sys.argv[1])
SECONDS = float(sys.argv[2]) if len(sys.argv) > 2 else 10
MODULES, PACKETS, FRAMES = 8, 1024, 8
RATE = 20  # frames/s
LOST = ('lost', 'refused', 'incomplete', 'incomplete_kept', 'late_frames', 'unwritten')
HZ = os.sysconf('SC_CLK_TCK')


def seconds_of(pid):
    """CPU seconds of each thread of a process, summed by the thread's name."""
    used = {}
    for task in os.listdir(f'/proc/{pid}/task'):
        with open(f'/proc/{pid}/task/{task}/stat', encoding='ascii') as stat:
            name, rest = stat.read().split('(', 1)[1].rsplit(')', 1)
        fields = rest.split()
        used[name] = used.get(name, 0) + (int(fields[11]) + int(fields[12])) / HZ
    return used


def receiver(where, prefix):
    """@return command of a receiver that keeps all frames"""
    c = [f'{BUILD}/app/recv/braggline-recv', '--no-huge', '-m', '1400', '--no-pci',
         '--file-prefix', prefix, '-l', '0', '--vdev',
         'gpu_host0', '--vdev', f'net_replay0,file={where}/in.pcap,loops=0,'
         f'rewrite=42:8:le:{FRAMES},rate={RATE * PACKETS}', '--', '--quiet']
    settings = {
        'detector.modules': MODULES, 'frames.slots': 32, 'frames.backpressure': 'refuse',
        'run.control': 'telemetry', 'output.live': 'auto', 'output.live_s': 0.05,
        'output.preview': 'off', 'veto.dry_run': 'yes', 'geometry.beam_x': 1034,
        'geometry.beam_y': 1100, 'geometry.distance_mm': 150, 'geometry.column_modules': 4,
        'calibration.gain': f'{where}/gain_m%d.bin',
        'calibration.mask': f'{where}/mask_m%d.bin',
        **{f'calibration.pedestal_g{g}': f'{where}/pedestal_g{g}_m%d.bin' for g in range(3)},
    }
    return c + [word for key, value in settings.items() for word in ('--set', f'{key}={value}')]


def measure(telemetry, processes, page):
    """@return pictures per second, facts of the ledger, CPU seconds by thread"""
    begin = [seconds_of(p.pid) for p in processes]
    frames = telemetry.get('ledger')['frames']
    start = time.monotonic()
    if page:
        page.run('braggline.count = 0; const push = braggline.drawn.push;'
                 'braggline.drawn.push = function (t) { braggline.count++;'
                 'return push.call(this, t); };')
    chromium = chromium_seconds()
    time.sleep(SECONDS)
    chromium = chromium_seconds() - chromium
    pictures = page.run('return braggline.count') if page else 0
    elapsed = time.monotonic() - start
    after = telemetry.get('ledger')['frames']
    used = {}  # % of a core
    for process, before in zip(processes, begin):
        for name, s in seconds_of(process.pid).items():
            used[name] = used.get(name, 0) + 100 * (s - before.get(name, 0)) / elapsed
    if page:
        used['chromium'] = 100 * chromium / elapsed
    lost = sum(after[k] - frames[k] for k in LOST)
    return pictures / elapsed, (after['frames'] - frames['frames']) / elapsed, lost, used


def chromium_seconds():
    """CPU seconds of all processes of Chromium."""
    total = 0
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            with open(f'/proc/{pid}/stat', encoding='ascii') as stat:
                fields = stat.read().rsplit(')', 1)[1].split()
            if os.path.realpath(f'/proc/{pid}/exe').endswith('/chromium'):
                total += (int(fields[11]) + int(fields[12])) / HZ
        except OSError:
            pass
    return total


def case(telemetry, processes, page, where, name, setting):
    telemetry.do(f'run/configure,run.name={name},output.directory={where}/{name},{setting}')
    telemetry.do('run/start')
    time.sleep(4)
    result = measure(telemetry, processes, page)
    telemetry.do('run/stop')
    telemetry.wait('idle', 60)
    return result


def main():
    why = browser.missing()
    if why:
        print(f'skipped: {why}')
        return 77
    prefix = f'braggline_view_{os.getpid()}'
    folder = background.eal_folder(prefix)
    with tempfile.TemporaryDirectory() as where:
        subprocess.run([f'{BUILD}/app/detector/braggline-detector', '--modules', str(MODULES),
                        '--column-modules', '4', '--frames', str(FRAMES), '--hit-fraction', '1',
                        '--pcap', f'{where}/in.pcap', '--calibration', where], check=True,
                       stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        print(f'{"frames":22} {"page":5} {"pictures/s":>10} {"frames/s":>9} {"lost":>5}  CPU '
              'of threads and of Chromium, % of a core')
        with open(f'{where}/log', 'w+', encoding='utf-8') as log, \
                background.start(receiver(where, prefix), stdout=log, stderr=log) as process:
            telemetry = Telemetry(prefix, process)
            with background.start([f'{BUILD}/app/view/braggline-view', '--listen', '127.0.0.1:0',
                                   '--receiver', f'r={folder}/dpdk_telemetry.v2'],
                                  stdout=subprocess.PIPE, text=True) as view:
                url = view.stdout.readline().split()[1]
                for name, setting in (('csr', 'output.format=csr'),
                                      ('image', 'output.format=image')):
                    for watch in False, True:
                        if watch:
                            with browser.running() as page:
                                page.open(url)
                                done = case(telemetry, (process, view), page, where,
                                            f'{name}_page', setting)
                        else:
                            done = case(telemetry, (process, view), None, where, name, setting)
                        threads = ', '.join(f'{n} {s:.0f}' for n, s in sorted(done[3].items())
                                            if s >= 0.5)
                        print(f'4M float32 {name:11} {"yes" if watch else "no":5} {done[0]:10.1f} '
                              f'{done[1]:9.1f} {done[2]:5}  {threads}', flush=True)
                view.terminate()
            process.terminate()
            process.wait(30)
    return 0


if __name__ == '__main__':
    sys.exit(main())
