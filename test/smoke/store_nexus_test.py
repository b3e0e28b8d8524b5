#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""[files] nexus = yes: a store's NeXus files while a run goes on. The process that writes them is
killed, and so is the store. In the end the files have all images of the store's Arrow files.

usage: store_nexus_test.py BUILD-DIR
"""

import glob
import os
import signal
import subprocess
import sys
import tempfile

import world
from cases import wait, want

try:
    import h5py
except ImportError as error:
    print(f'{error}: install python3-h5py and bitshuffle')
    sys.exit(77)

FILTER = '/usr/lib/x86_64-linux-gnu/hdf5/serial/plugins/libh5bshuf.so'


def frames(directory):
    """Frame numbers of the master of the only run in a store's directory."""
    masters = glob.glob(f'{directory}/*/run_master.h5')
    if not masters:
        return []
    with h5py.File(masters[0], 'r', locking=False) as f:
        return [int(n) for n in f['entry/frames/frame']]


def more(directory, nb=2):
    """Wait until the master has more images."""
    begin = len(frames(directory))
    wait('more images', lambda: len(frames(directory)) >= begin + nb, 120)


def children(pid):
    """Processes of braggline-export that a process started."""
    found = []
    for path in glob.glob('/proc/[0-9]*/stat'):
        try:
            with open(path, encoding='utf-8', errors='replace') as stat:
                number, rest = stat.read().split(' (', 1)
        except OSError:
            continue
        name, fields = rest.rsplit(') ', 1)
        if name.startswith('braggline-expor') and fields.split()[1] == str(pid):
            found.append(int(number))
    return found


def story(w):
    more(w.directories[0])
    store = w.process['store0'].pid
    first, = children(store)
    # it is not an lcore's neighbour, and gives way to everything
    want(os.getpriority(os.PRIO_PROCESS, first) == 19, 'priority')
    os.kill(first, signal.SIGKILL)
    wait('another process', lambda: children(store) and children(store) != [first])
    more(w.directories[0])
    second, = children(store)
    w.kill('store0')
    # it exports what is there, at the lowest priority
    wait('the end of the process', lambda: not os.path.exists(f'/proc/{second}'), 180)
    before = len(frames(w.directories[0]))
    w.launch('store0')
    more(w.directories[0])
    want(len(frames(w.directories[0])) > before, before)


def look(w):
    run, = glob.glob(f'{w.directories[0]}/run-*')
    have = frames(w.directories[0])
    with tempfile.TemporaryDirectory() as where:
        done = subprocess.run([f'{w.build}/app/export/braggline-export', '--output', where, run],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)
        want(done.returncode == 0, done.stdout)
        with h5py.File(f'{run}/run_master.h5', 'r') as a, \
                h5py.File(f'{where}/run_master.h5', 'r') as b:
            want(sorted(have) == [int(n) for n in b['entry/frames/frame']], len(have))
            place = {int(n): i for i, n in enumerate(b['entry/frames/frame'])}
            for i, frame in enumerate(have):
                for name in 'verdict', 'bunch_id', 'receive_time':
                    want(a['entry/frames'][name][i] == b['entry/frames'][name][place[frame]],
                         name, 'of frame', frame)
                if os.path.exists(FILTER) and i % 16 == 0:
                    want((a['entry/data/data'][i] == b['entry/data/data'][place[frame]]).all(),
                         'image of frame', frame)
    print(len(have), 'images')


def main():
    # the journal has room for the time in which the store is down and the export, at the lowest
    # priority, has no CPU
    world.play(sys.argv[1], 1, 1, story, look, files__nexus='yes', output__format='raw',
               egress__journal_mib=256,
               geometry__beam_x=515, geometry__beam_y=257, geometry__distance_mm=86.33,
               veto__dry_run='no')


world.inside(main)
