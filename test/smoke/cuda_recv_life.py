#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""braggline-recv with CUDA gangs: repeated runs, kill -9 and an immediate restart.

usage: cuda_recv_life.py BIN-DIR; CUDA_RECV_GPU and CUDA_RECV_KERNEL as in cuda_recv.sh, which calls
this script
"""

import configparser
import glob
import os
import shutil
import subprocess
import sys
import tempfile
import time

from cases import want
from receiver import Telemetry

BIN = sys.argv[1]
GPU = os.environ.get('CUDA_RECV_GPU', 'gpu_cuda0,device=0')
KERNEL = os.environ.get('CUDA_RECV_KERNEL', 'cuda')
CPUS = os.cpu_count()
LCORES = '0-5' if CPUS > 6 else f'(0-5)@(0-{CPUS - 1})'
PREFIX = f'braggline_cuda_{os.getpid()}'
PERIOD = 64


def receiver(where, packets, name, *settings):
    """Start a receiver of an endless replay of a JUNGFRAU 1M at the highest rate."""
    c = [f'{BIN}/braggline-recv', '--no-huge', '-m', '4096', '--no-pci', '--file-prefix', PREFIX,
         '--lcores', LCORES, '--vdev', GPU, '--vdev',
         f'net_replay0,file={where}/in.pcap,loops=0,rewrite=42:8:le:{PERIOD}', '--', '--quiet']
    for s in ('detector.modules=2', 'detector.interfaces=2', 'lcores.rx_lcores=2',
              f'gpu.kernel={KERNEL}', f'gpu.packets={packets}', f'output.directory={where}/out',
              f'calibration.gain={where}/gain_m%d.bin', f'calibration.mask={where}/mask_m%d.bin',
              *(f'calibration.pedestal_g{g}={where}/pedestal_g{g}_m%d.bin' for g in range(3)),
              f'run.name={name}', 'output.preview=off', 'output.sync_ms=100',
              'output.frames_interval=4096', *settings):
        c += ['--set', s]
    return subprocess.Popen(c, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True)


def ledger(where, name):
    ini = configparser.ConfigParser()
    want(ini.read(f'{where}/out/{name}_ledger.ini'), 'no ledger of', name)
    frames = {k: int(v) for k, v in ini['frames'].items()}
    want(frames['balanced'] == 1 and frames['lost'] == 0 and frames['refused'] == 0, name, frames)
    return frames


def runs_come_and_go(where, packets):
    with receiver(where, packets, 'unused', 'run.control=telemetry') as p:
        try:
            telemetry = Telemetry(PREFIX, p)
            for i in range(4):
                telemetry.do(f'run/configure,run.name={packets}{i}')
                telemetry.do('run/start')
                time.sleep(2)
                telemetry.do('run/stop')
                telemetry.wait('idle')
                frames = ledger(where, f'{packets}{i}')
                want(frames['frames'] > 100, frames)
                print(f'{packets}: run {i} of one process: {frames["frames"]} frames in about 2 s,'
                      f' {frames["stored"]} stored', flush=True)
            p.terminate()
            text = p.communicate(timeout=60)[0]
            want(p.returncode == 0, p.returncode, text)
        except BaseException:
            p.kill()
            print(p.communicate()[0])
            raise


def killed_and_started_again(where, packets):
    with receiver(where, packets, f'{packets}killed') as p:
        end = time.monotonic() + 60
        while not glob.glob(f'{where}/out/{packets}killed_frames.arrow.part'):
            want(p.poll() is None and time.monotonic() < end, 'no run begins')
            time.sleep(0.02)
        time.sleep(2)
        p.kill()
    start = time.monotonic()
    with receiver(where, packets, f'{packets}after', 'run.frames=2000') as p:
        text = p.communicate(timeout=120)[0]
        want(p.returncode == 0, p.returncode, text)
    took = time.monotonic() - start
    frames = ledger(where, f'{packets}after')
    want(frames['frames'] == 2000, frames)
    want(not glob.glob(f'{where}/out/*.part'), 'not recovered')
    print(f'{packets}: killed with -9 in full work; the next process took {took:.1f} s for its start'
          ' and 2000 frames', flush=True)


def main():
    with tempfile.TemporaryDirectory() as where:
        subprocess.run([f'{BIN}/braggline-detector', '--modules', '2', '--interfaces', '2',
                        '--frames', str(PERIOD), '--hit-fraction', '0.1', '--pcap',
                        f'{where}/in.pcap', '--calibration', where], check=True,
                       stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for packets in ('pinned', 'device'):
            runs_come_and_go(where, packets)
            killed_and_started_again(where, packets)
    shutil.rmtree(f'/var/run/dpdk/{PREFIX}', ignore_errors=True)


main()
