#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Measures what [files] nexus = yes costs: frames/s that a store writes at the maximum rate of the
chain of receiver, software RoCE and store on this machine, without and with it, in turns. The
images are raw. The export gives way by the pressure of the last 10 s, so a round waits as long
before it counts. With fewer CPUs than the chain has threads, the chain alone uses them all, and the
share of the images that are exported meanwhile is small, because the export gives way.

usage: nexus_bench.py BUILD-DIR [SECONDS [ROUNDS]]
"""

import contextlib
import glob
import os
import signal
import statistics
import sys
import tempfile

import durable_bench

ALONE = {'output.format': 'raw', 'geometry.beam_x': 515, 'geometry.beam_y': 257,
         'geometry.distance_mm': 100}


class Alone(durable_bench.Told):
    NEXUS = {}

    def start(self, name, program, eal, settings):
        more = ALONE if name == 'recv' else self.NEXUS
        return super().start(name, program, eal, {**settings, **more})

    def size(self, pattern):
        return sum(os.path.getsize(path) for path in glob.glob(f'{self.stored}/*/{pattern}'))

    def end(self, recv, store):
        Alone.share = self.size('*_data_*.h5') / max(1, self.size('*images.arrow*'))
        children = []
        for path in glob.glob(f'/proc/{store.pid}/task/*/children'):
            with open(path, encoding='ascii') as stream:
                children += [int(pid) for pid in stream.read().split()]
        super().end(recv, store)
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


class Nexus(Alone):
    NEXUS = {'files.nexus': 'yes'}


def main():
    build = os.path.abspath(sys.argv[1])
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 10
    durable_bench.WARM = 10
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    if not os.path.exists(f'{build}/app/export/braggline-export'):
        print('nexus_bench: no braggline-export: install libhdf5-dev')
        return 77
    alone, nexus, shares = [], [], []
    for i in range(rounds):
        # a file that is removed delays other requests of a disk that discards its blocks
        with tempfile.TemporaryDirectory() as where:
            alone.append(durable_bench.play(build, f'{where}/a', 1000000, seconds, Alone)[0])
            nexus.append(durable_bench.play(build, f'{where}/n', 1000000, seconds, Nexus)[0])
            shares.append(Alone.share)
    lost = statistics.median(1 - n / a for n, a in zip(nexus, alone))
    print(f'store alone                  {statistics.median(alone):8.1f} frames/s')
    print(f'store with nexus = yes       {statistics.median(nexus):8.1f} frames/s')
    print(f'throughput lost              {100 * lost:8.1f} %      (goal: < 10 %)')
    print(f'bytes exported meanwhile     {100 * statistics.median(shares):8.1f} %')
    return 0


if __name__ == '__main__':
    sys.exit(main())
