# SPDX-License-Identifier: BSD-3-Clause
"""What test scripts are made of: want(), wait(), and cases that run one after another.

A case is a function of a directory of its own, which goes with it; its name is the function's.
"""

import subprocess
import tempfile
import time

cases = {}


class Skipped(Exception):
    """What is missing."""


def case(function):
    cases[function.__name__] = function
    return function


def want(condition, *what):
    if not condition:
        raise AssertionError(' '.join(str(w) for w in what))


def wait(what, ready, seconds=60):
    """Until something is so. @return what ready() says"""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = ready()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f'{what}: not within {seconds} s')


def run_cases(names):
    """These, or all if none is named; says of each what came of it.
    @return the exit status: 1 if one failed, 77 if all were skipped, else 0"""
    names = names or list(cases)
    failed = skipped = 0
    for name in names:
        begin = time.monotonic()
        with tempfile.TemporaryDirectory() as where:
            try:
                cases[name](where)
                result = 'ok'
            except Skipped as e:
                result = f'skipped: {e}'
                skipped += 1
            except (AssertionError, OSError, subprocess.SubprocessError) as e:
                result = f'FAILED: {e}'
                failed += 1
        print(f'{name}: {result} ({time.monotonic() - begin:.1f} s)', flush=True)
    return 1 if failed else 77 if skipped == len(names) else 0
