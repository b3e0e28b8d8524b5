# SPDX-License-Identifier: BSD-3-Clause
"""Helpers of the test scripts: want(), wait(), and a runner of test cases.

A case is a function that takes the path of its own temporary directory. Its name is the function's
name.
"""

import subprocess
import tempfile
import time

cases = {}


class Skipped(Exception):
    """Raised to skip a case; the text says what is missing."""


def case(function):
    cases[function.__name__] = function
    return function


def want(condition, *what):
    if not condition:
        raise AssertionError(' '.join(str(w) for w in what))


def wait(what, ready, seconds=60):
    """Wait until ready() returns a true value, at most `seconds`. @return that value"""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = ready()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f'{what}: not within {seconds} s')


def run_cases(names):
    """Run the named cases, or all of them if names is empty, or with the name I/N every Nth from the
    Ith on, and print the result of each. @return the exit status: 1 if one failed, 77 if all were
    skipped, else 0"""
    if len(names) == 1 and '/' in names[0]:
        first, step = map(int, names[0].split('/'))
        names = list(cases)[first - 1::step]
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
