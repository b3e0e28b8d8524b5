# SPDX-License-Identifier: BSD-3-Clause
"""Starts programs that run in the background of tests and benchmarks."""

import atexit
import ctypes
import os
import shutil
import signal
import subprocess


def die_with_parent():
    """preexec_fn of a process that must end when this one ends, for any reason."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def eal_folder(prefix):
    """EAL's runtime folder for this --file-prefix. EAL leaves it; it is removed when this process
    ends. @return its path"""
    base = '/var/run' if os.geteuid() == 0 else os.environ.get('XDG_RUNTIME_DIR', '/tmp')
    folder = f'{base}/dpdk/{prefix}'
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def start(command, **more):
    """Start a process in its own session, as services are started ("Stalled disks" in the store's
    README). It is killed when this process ends, for any reason."""
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True,
                            preexec_fn=die_with_parent, **more)
