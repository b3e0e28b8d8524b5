#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Runs crash_test.py several times in parallel until programs have been killed N times.

    soak.py [--kills N] [--worlds N] [--minutes N] [--seed N] [--logs DIR] BUILD-DIR

Each run is a simulated site: a process with its own network and about 200 kills. The next one
starts when one has ended. A line is printed for each. The output of failed ones stays in DIR; their
seeds repeat the kinds and moments of the kills (WORLD_SEED). With more sites than CPUs everything
is slower at times, which finds errors that kills alone do not find.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

import background

KILLS_A_WORLD = 200
WORLD_SECONDS = 3600  # limit for one run
CRASH_TEST = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'crash_test.py')


class Crashes:
    """One run of crash_test.py."""

    def __init__(self, build, logs, seed):
        self.seed = seed
        self.begin = time.monotonic()
        self.log = f'{logs}/world{seed}.log'
        with open(self.log, 'w', encoding='utf-8') as out:
            self.process = background.start(
                [sys.executable, CRASH_TEST, build, str(KILLS_A_WORLD)], stdout=out,
                stderr=subprocess.STDOUT, env={**os.environ, 'WORLD_SEED': str(seed)})

    def ended(self):
        if time.monotonic() > self.begin + WORLD_SECONDS:
            self.process.kill()
            self.process.wait()
        return self.process.poll() is not None

    def kills(self):
        """Number of kills in those of its scenarios that have ended."""
        with open(self.log, encoding='utf-8', errors='replace') as out:
            return sum(map(int, re.findall(r'^(?:spilling: |damage: )?(\d+) kills \(', out.read(), re.M)))

    def result(self):
        if self.process.returncode == 0:
            os.unlink(self.log)
            return 'all kept frames once'
        return f'FAILED ({self.process.returncode}), see {self.log}'


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n', maxsplit=1)[0])
    parser.add_argument('--kills', type=int, default=10000)
    parser.add_argument('--worlds', type=int, default=os.cpu_count(),
                        help='simulated sites in parallel (%(default)s)')
    parser.add_argument('--minutes', type=float, default=float('inf'),
                        help='no run starts after this time')
    parser.add_argument('--seed', type=int, default=os.getpid(), help='of the first run')
    parser.add_argument('--logs', help='directory of logs (a new one in TMPDIR)')
    parser.add_argument('build')
    o = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit('soak: SIGTERM'))
    logs = o.logs or tempfile.mkdtemp(prefix='braggline-soak-')
    os.makedirs(logs, exist_ok=True)
    begin = time.monotonic()
    seed = o.seed
    kills = failed = ended = 0
    broken = False
    running = []
    while running or kills < o.kills:
        late = time.monotonic() > begin + 60 * o.minutes or broken
        if late and not running:
            break
        # runs in progress are expected to reach their kills
        while (not late and len(running) < o.worlds and
               kills + KILLS_A_WORLD * len(running) < o.kills):
            running.append(Crashes(o.build, logs, seed))
            seed += 1
        time.sleep(0.2)
        for world in [w for w in running if w.ended()]:
            running.remove(world)
            ended += 1
            failed += world.process.returncode != 0
            n = world.kills()
            kills += n
            # a run that fails at its start: the next one would, too
            broken |= world.process.returncode != 0 and time.monotonic() < world.begin + 10
            print(f'{time.monotonic() - begin:6.0f} s: {kills} kills; world {world.seed}: {n} in '
                  f'{time.monotonic() - world.begin:.0f} s, {world.result()}', flush=True)
    print(f'{kills} kills in {ended} worlds, {failed} failed, '
          f'{time.monotonic() - begin:.0f} s')
    if not failed and not o.logs:
        os.rmdir(logs)
    return failed > 0 or kills < o.kills


if __name__ == '__main__':
    sys.exit(main())
