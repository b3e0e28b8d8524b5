# SPDX-License-Identifier: BSD-3-Clause
"""Programs that tests and benchmarks start beside themselves."""

import subprocess


def start(command, **more):
    """A process in a session of its own, as services have ("Disks that stand still" in the store's
    README); it is killed when this one ends, however it does."""
    return subprocess.Popen(['setpriv', '--pdeathsig', 'KILL', *command],
                            stdin=subprocess.DEVNULL, start_new_session=True, **more)
