# SPDX-License-Identifier: BSD-3-Clause
"""Programs that tests and benchmarks start beside themselves."""

import ctypes
import signal
import subprocess


def die_with_us():
    """preexec_fn of a process that must not outlive this one, whatever ends it."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def start(command, **more):
    """A process in a session of its own, as services have ("Disks that stand still" in the store's
    README); it is killed when this one ends, however it does."""
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True,
                            preexec_fn=die_with_us, **more)
