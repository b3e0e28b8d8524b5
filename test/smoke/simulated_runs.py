# SPDX-License-Identifier: BSD-3-Clause
"""Runs of braggline-recv, of a capture of the simulator with its calibration."""

import os
import subprocess

from cases import want
from receiver import FLOAT

GEOMETRY = ('geometry.beam_x=515', 'geometry.beam_y=257', 'geometry.distance_mm=86.33',
            'peaks.search=all', 'peaks.threshold=10', 'peaks.peaks_min=5')


def receive(build, where, name, *settings, frames):
    """Receive the capture, which is made for the first run. @return directory of the run's files"""
    if not os.path.exists(f'{where}/in.pcap'):
        subprocess.run([f'{build}/app/detector/braggline-detector', '--frames', str(frames),
                        '--hit-fraction', '0.5', '--pcap', f'{where}/in.pcap', '--calibration',
                        where], check=True, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    c = [f'{build}/app/recv/braggline-recv', '--no-huge', '-m', '512', '--no-pci', '--no-shconf',
         '--no-telemetry', '--lcores', FLOAT, '--vdev', 'gpu_host0', '--vdev',
         f'net_replay0,file={where}/in.pcap', '--', '--quiet']
    for s in (f'calibration.gain={where}/gain_m%d.bin', f'calibration.mask={where}/mask_m%d.bin',
              *(f'calibration.pedestal_g{g}={where}/pedestal_g{g}_m%d.bin' for g in range(3)),
              f'output.directory={where}/{name}', 'run.name=lyso', 'run.idle_timeout_ms=300',
              'output.format=image', 'output.value=int16', *settings):
        c += ['--set', s]
    done = subprocess.run(c, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=120, check=False)
    want(done.returncode == 0, done.stdout)
    return f'{where}/{name}'
