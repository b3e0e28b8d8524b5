# SPDX-License-Identifier: BSD-3-Clause
"""Runs of the simulator for tests of braggline-export, and their Arrow files read as Arrow's format
says. sys.argv[1] is the build directory."""

import csv
import ctypes
import io
import os
import struct
import subprocess
import sys

import simulated_runs
from cases import want

try:
    import h5py
    import numpy
    from arrow_batches import batches, image
except ImportError as error:
    print(f'{error}: install python3-h5py and bitshuffle')
    sys.exit(77)

BUILD = os.path.abspath(sys.argv[1])
EXPORT = f'{BUILD}/app/export/braggline-export'
SCAN = f'{BUILD}/app/scan/braggline-scan'
ROWS, COLS, FRAMES = 512, 1024, 40
PEAKS = {'peakXPosRaw': (0, 'f4'), 'peakYPosRaw': (1, 'f4'), 'peakTotalIntensity': (2, 'f4'),
         'peakSNR': (3, 'f4'), 'peakBackground': (4, 'f4'), 'peakNPixels': (5, 'u4'),
         'peakPanel': (6, 'u2')}
FILTER = '/usr/lib/x86_64-linux-gnu/hdf5/serial/plugins/libh5bshuf.so'
runs = {}


def receive(name, *settings, geometry=True):
    """Receive the capture. @return directory of the run's files"""
    if name not in runs:
        runs[name] = simulated_runs.receive(
            BUILD, runs['where'], name, *(simulated_runs.GEOMETRY if geometry else ()), *settings,
            frames=FRAMES)
    return runs[name]


def refuse(error, call, argument=None):
    """@return function that makes a system call fail in this process (seccomp(2))

    call      number
    argument  low half of its second argument; None: any"""
    # offsets in struct seccomp_data: number of the system call, low half of the second argument
    code = [(0x20, 0, 0, 0), (0x15, 0, 1 if argument is None else 3, call)]
    if argument is not None:
        code += [(0x20, 0, 0, 24), (0x15, 0, 1, argument)]
    code += [(0x06, 0, 0, 0x50000 | error), (0x06, 0, 0, 0x7fff0000)]
    text = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *c) for c in code))
    program = struct.pack('H6xQ', len(code), ctypes.addressof(text))
    libc = ctypes.CDLL(None, use_errno=True)

    def install():
        # PR_SET_NO_NEW_PRIVS; PR_SET_SECCOMP, SECCOMP_MODE_FILTER
        if libc.prctl(38, 1, 0, 0, 0) < 0 or libc.prctl(22, 2, program, 0, 0) < 0:
            raise OSError(ctypes.get_errno(), 'prctl')

    # the buffer lives as long as the function
    install.text = text
    return install


def export(*arguments, status=0):
    """@return standard output and error of an export"""
    done = subprocess.run([EXPORT, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    want(done.returncode == status, 'status', done.returncode, done.stdout, done.stderr)
    return done.stdout, done.stderr


def table(run):
    """Rows of `frames` by frame number."""
    done = subprocess.run([SCAN, '--csv', '-', run], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, text=True, timeout=60, check=True)
    return {int(row['frame']): row for row in csv.DictReader(io.StringIO(done.stdout))}


def strong_counts(run):
    return sorted(int(row['strong_count']) for row in table(run).values())


def images(path):
    """{frame: (pixels, lists of peaks)} of a file of full images."""
    found = {}
    for rows, values in batches(path):
        frame = values(1, 'u8')
        for row in range(rows):
            lists = []
            for number, kind in PEAKS.values():
                ends = values(22 + 4 * number + 1, 'i4')
                lists.append(values(22 + 4 * number + 3, kind)[ends[row]:ends[row + 1]])
            found[int(frame[row])] = image(values, row, 'i2', (ROWS, COLS)), lists
    return found


def sparse_images(path, kind):
    """{frame: (positions, values)} of a file of CSR images."""
    found = {}
    for rows, values in batches(path):
        frame, col, value = values(1, 'u8'), values(11, 'u2'), values(15, kind)
        ptr_ends, ends = values(5, 'i4'), values(13, 'i4')
        for row in range(rows):
            ptr = values(7, 'u4')[ptr_ends[row]:ptr_ends[row + 1]]
            at = slice(ends[row], ends[row + 1])
            y = numpy.repeat(numpy.arange(ROWS, dtype='u4'), numpy.diff(ptr.astype('i8')))
            found[int(frame[row])] = y * COLS + col[at], value[at]
    return found


def same_as(run, master, frames):
    """All images and peaks of a master file are those of the run."""
    made = images(f'{run}/lyso_images.arrow')
    with h5py.File(master, 'r') as f:
        want(list(f['entry/frames/frame']) == frames, list(f['entry/frames/frame']), frames)
        data, peaks = f['entry/data/data'], f['entry/peaks']
        want(data.shape == (len(frames), ROWS, COLS) and data.dtype == '<i2' and data.is_virtual)
        for i, frame in enumerate(frames):
            pixels, lists = made[frame]
            if os.path.exists(FILTER):
                want((data[i] == pixels).all(), f'pixels of frame {frame}')
            nb = peaks['nPeaks'][i]
            want(nb == len(lists[0]), f'peaks of frame {frame}')
            for name, (number, _) in PEAKS.items():
                want((peaks[name][i][:nb] == lists[number]).all(), name, f'of frame {frame}')
                want(not peaks[name][i][nb:].any(), name, 'is not padded by zeros')


def same_as_sparse(path, made, frames=None):
    """Frames of a sparse file are the first ones of the run. @return their frames"""
    with h5py.File(path, 'r', locking=False) as f:
        entry = f[f.attrs['default']]
        group = entry[entry.attrs['default']]
        found = [int(n) for n in entry['frames/frame']]
        ptr, index, value = (group[name][()] for name in ('frame_ptr', 'index', 'intensity'))
        want(len(ptr) == len(found) + 1 and ptr[-1] == len(index) == len(value), path, ptr)
        want(len(group['background_avg']) == len(entry['peaks/nPeaks']) == len(found), path)
        for i, frame in enumerate(found):
            at = slice(ptr[i], ptr[i + 1])
            want((index[at] == made[frame][0]).all(), path, 'frame', frame)
            want((value[at] == made[frame][1]).all(), path, 'frame', frame)
            want(value.dtype == made[frame][1].dtype, value.dtype)
    want(frames is None or found == frames, path, found, frames)
    return found


def calibration_mask():
    """Of the capture that receive() has made."""
    return numpy.fromfile(f'{runs["where"]}/mask_m0.bin', 'u1').reshape(ROWS, COLS) != 0


def kept(run, verdicts='123'):
    return [n for n, row in sorted(table(run).items()) if row['verdict'] in tuple(verdicts)]
