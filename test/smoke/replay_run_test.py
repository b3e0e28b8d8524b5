#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A raw run is replayed to a receiver with other thresholds. The result equals a live run with
these thresholds, and `store_load_bench` reads all of it.

usage: replay_run_test.py BUILD-DIR
"""

import os
import subprocess
import sys
import tempfile

from cases import want
from run_files import bodies, rows

FLOAT = f'(0-5)@(0-{os.cpu_count() - 1})'
FRAMES = 120
NEW = {'veto.strong_threshold': '25', 'veto.strong_min': '5', 'output.csr_threshold': '3',
       'veto.dry_run': 'no', 'output.format': 'csr'}
RAW = {'veto.dry_run': 'yes', 'output.format': 'raw'}


def run(*command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False, timeout=120)
    want(done.returncode == 0, 'status', done.returncode, 'of', ' '.join(command), '\n',
         done.stdout)
    return done.stdout


class Test:
    def __init__(self, build, where):
        self.build = build
        self.where = where

    def receive(self, name, capture, settings):
        command = [f'{self.build}/app/recv/braggline-recv', '--no-huge', '-m', '1024', '--no-pci',
                   '--no-shconf', '--no-telemetry', '--lcores', FLOAT, '--vdev', 'gpu_host0',
                   '--vdev', f'net_replay0,file={self.where}/{capture}.pcap', '--', '--quiet']
        settings = {
            'detector.modules': 2, 'detector.interfaces': 2, 'run.name': 'run',
            'run.frames': FRAMES, 'run.first_frame': 1, 'run.idle_timeout_ms': 3000,
            'frames.backpressure': 'wait', 'frames.stream_timeout_ms': 3000,
            'frames.incomplete': 'keep', 'output.directory': f'{self.where}/{name}',
            'output.preview': 'off', 'output.frames_interval': 64, 'output.images_interval': 8,
            'calibration.gain': f'{self.where}/gain_m%d.bin',
            'calibration.mask': f'{self.where}/mask_m%d.bin', **settings}
        for gain in range(3):
            settings[f'calibration.pedestal_g{gain}'] = f'{self.where}/pedestal_g{gain}_m%d.bin'
        for key, value in settings.items():
            command += ['--set', f'{key}={value}']
        run(*command)

    def play(self):
        detector = f'{self.build}/app/detector/braggline-detector'
        shape = ['--modules', '2', '--interfaces', '2']
        run(detector, *shape, '--frames', str(FRAMES), '--hit-fraction', '0.3', '--dark-every',
            '7', '--fault', 'loss=0.001', '--pcap', f'{self.where}/in.pcap', '--calibration',
            self.where)
        self.receive('live', 'in', NEW)
        self.receive('raw', 'in', RAW)
        run(detector, '--replay', *shape, '--pcap', f'{self.where}/again.pcap',
            f'{self.where}/raw')
        self.receive('again', 'again', NEW)
        wrong = subprocess.run([detector, '--replay', '--modules', '1', '--pcap',
                                f'{self.where}/wrong.pcap', f'{self.where}/raw'], check=False,
                               stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
        want(wrong.returncode == 1 and 'run of 2 modules, expected' in wrong.stderr, wrong)
        self.compare()
        self.load()

    def compare(self):
        live, again, raw = (rows(self.build, self.where, n) for n in ('live', 'again', 'raw'))
        want(len(live) == FRAMES, len(live), 'rows')
        for one, other in zip(live, again):
            want(one == other, 'live:', one, '\nreplayed:', other)
        want(len(again) == FRAMES, len(again), 'rows are replayed')
        hits = sum(row['verdict'] == '1' for row in live)
        other_hits = sum(int(row['strong_count']) > 0 for row in raw)
        partial = sum(int(row['flags']) & 1 for row in live)
        want(0 < hits < FRAMES and partial > 0, hits, 'hits,', partial, 'incomplete')
        want(list(bodies(self.where, 'live')) == list(bodies(self.where, 'again')), 'images differ')
        print(f'{FRAMES} frames, {hits} hits with new thresholds, {partial} incomplete, '
              f'{other_hits} with strong pixels in the raw run: live and replayed are equal')

    def load(self):
        out = run(f'{self.build}/test/bench/store_load_bench', f'{self.where}/raw',
                  f'{self.where}/again')
        print(out, end='')
        want(out.count(' 0 wrong, 0 without') == 2, 'load does not say that all is right')
        # memory of gpudev that only its driver may access
        out = run(f'{self.build}/test/bench/store_load_bench', '--gpu', 'gpu_host0',
                  '--threads', '3', '--slice', '64', f'{self.where}/raw')
        want('memory of gpu_host0' in out and ' 0 wrong' in out, out)


def main():
    with tempfile.TemporaryDirectory() as where:
        Test(os.path.abspath(sys.argv[1]), where).play()


if __name__ == '__main__':
    main()
