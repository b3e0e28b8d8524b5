#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Measures the time from the first packet of a frame until its image is durable in a store, at half
of the maximum rate of the chain of receiver, software RoCE and store on this machine. The
receiver's telemetry counts it for the last frame of each batch, in buckets of powers of two.

usage: durable_bench.py BUILD-DIR [SECONDS]
"""

import os
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../smoke'))

import store_test  # noqa: E402
from receiver import Telemetry  # noqa: E402

WARM = 2  # seconds, at most


# deployment settings, larger than the test's
SETTINGS = {'store.memory_mib': 512, 'files.sync_ms': 100, 'output.images_interval': 64,
            'output.frames_interval': 1024, 'egress.batch_mib': 16, 'egress.journal_mib': 1024}


class Told(store_test.Chain):
    MORE_EAL = ()

    def start(self, name, program, eal, settings):
        return super().start(name, program, eal, {
            key: SETTINGS.get(key, value) for key, value in settings.items()})

    def end(self, recv, store):
        store_test.kill(recv)
        store_test.kill(store)
        os.unlink(self.ring)


def play(build, where, rate, seconds, chain_type=Told):
    """@return frames/s, histogram of images: upper bounds in us, batches"""
    store_test.RATE = rate
    os.mkdir(where)
    chain = chain_type(build, where, 'none')
    store = chain.start_store()
    recv = chain.start_recv()
    try:
        telemetry = Telemetry(f'{chain.name}_recv', recv)
        telemetry.wait('running')
        time.sleep(min(WARM, seconds))
        begin, first = time.monotonic(), telemetry.get('ledger')['frames']['stored']
        time.sleep(seconds)
        frames = telemetry.get('ledger')['frames']['stored'] - first
        taken = time.monotonic() - begin
        latency = telemetry.get('latency')
        return frames / taken, latency['below_us'], latency['images_batch_to_durable']
    finally:
        chain.end(recv, store)


def percentile(bounds, counts, part):
    left = part * sum(counts)
    for bound, count in zip(bounds, counts):
        left -= count
        if left <= 0:
            return bound
    return bounds[-1]


def main():
    build = os.path.abspath(sys.argv[1])
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 30
    # files are removed at the end only: a disk that discards their blocks delays other requests
    with tempfile.TemporaryDirectory() as where:
        most, _, _ = play(build, f'{where}/most', 1000000, min(seconds, 5))
        rate, bounds, counts = play(build, f'{where}/half', round(most / 2), seconds)
    print(f'stored at most {most:.0f} frames/s; at {rate:.0f} frames/s, {sum(counts)} batches of images:')
    for part in (0.5, 0.99, 0.9999):
        print(f'  p{100 * part:g}: below {percentile(bounds, counts, part) / 1000:.1f} ms')


if __name__ == '__main__':
    main()
