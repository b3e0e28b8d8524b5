#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Runs a braggline-recv that receives an endless replay, and queries its telemetry socket."""

import contextlib
import json
import os
import socket
import subprocess
import tempfile
import time

import background
from cases import want

FLOAT = f'(0-5)@(0-{os.cpu_count() - 1})'
PERIOD = 10  # frames of the capture
RATE = 500   # frames/s


def text(reply, key):
    """A string of a reply that may be longer than a DPDK string, or not ASCII."""
    whole, n = reply[key], 2
    while f'{key}_{n}' in reply:
        whole += reply[f'{key}_{n}']
        n += 1
    return whole.encode('ascii').decode('unicode_escape')


class Telemetry:
    """Client of usertools/dpdk-telemetry.py's protocol: a SEQPACKET socket, one command a message,
    JSON replies."""

    def __init__(self, prefix, process, command='/braggline/info', runtime='/var/run'):
        path = f'{runtime}/dpdk/{prefix}/dpdk_telemetry.v2'
        for _ in range(200):
            want(process.poll() is None, prefix, 'has ended')
            try:
                self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                self.socket.connect(path)
                break
            except OSError:
                self.socket.close()
                time.sleep(0.1)
        else:
            raise AssertionError(f'no telemetry at {path}')
        self.size = json.loads(self.socket.recv(1024).decode())['max_output_len']
        for _ in range(100):
            if command in self('/')['/']:
                return
            time.sleep(0.1)
        raise AssertionError('no /braggline commands')

    def __call__(self, command):
        self.socket.send(command.encode())
        return json.loads(self.socket.recv(self.size).decode())

    def get(self, path):
        return self(f'/braggline/{path}')[f'/braggline/{path.split(",")[0]}']

    def do(self, path, result=0):
        reply = self.get(path)
        want(reply['result'] == result, path, reply)
        return reply

    def wait(self, state, timeout=20):
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            status = self.get('run/status')
            if status['state'] == state:
                return status
            time.sleep(0.01)
        raise AssertionError(f'not {state}: {status}')


@contextlib.contextmanager
def running(build, *settings, lcores=FLOAT, stdout=None):
    """Yields the process, its telemetry, and a directory that exists while it runs."""
    with tempfile.TemporaryDirectory() as where:
        subprocess.run([f'{build}/app/detector/braggline-detector', '--frames', str(PERIOD),
                        '--pcap', f'{where}/in.pcap', '--calibration', where], check=True,
                       stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        prefix = f'braggline_test_{os.getpid()}'
        background.eal_folder(prefix)
        command = [f'{build}/app/recv/braggline-recv', '--no-huge', '-m', '512', '--no-pci',
                   '--file-prefix', prefix, '--lcores', lcores, '--vdev', 'gpu_host0', '--vdev',
                   f'net_replay0,file={where}/in.pcap,loops=0,rewrite=42:8:le:{PERIOD},'
                   f'rate={RATE * 128}', '--', '--quiet', '--set', 'run.control=telemetry',
                   '--set', f'calibration.gain={where}/gain_m%d.bin',
                   '--set', f'calibration.mask={where}/mask_m%d.bin']
        for g in range(3):
            command += ['--set', f'calibration.pedestal_g{g}={where}/pedestal_g{g}_m%d.bin']
        for s in settings:
            command += ['--set', s]
        with open(f'{where}/log', 'w+', encoding='utf-8') as log, \
                background.start(command, stdout=stdout or log, stderr=log) as process:
            try:
                yield process, Telemetry(prefix, process), where
            except BaseException:
                process.kill()
                log.seek(0)
                print(log.read())
                raise
