#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""braggline-export --follow: NeXus files while a run is written. What was flushed is read by h5py
also after kill -9, and is the run's.

With --readers, DIALS and the way in which CrystFEL reads its files also open the master after each
kill: ../shared/oracles.

usage: follow_test.py BUILD-DIR [--kills N] [--readers] [CASE]...
"""

import contextlib
import errno
import importlib.util
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from cases import Skipped, case, run_cases, wait, want
from export_runs import (COLS, EXPORT, FILTER, ROWS, export, h5py, images, kept, numpy, receive,
                         refuse, runs, same_as, same_as_sparse, sparse_images, strong_counts)

SMALL = ('output.images_interval=2', 'output.frames_interval=8')
PER_FILE = 6
kills = 12
readers = False
ORACLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../../shared/oracles')


NOTICE = 'braggline-export: notice: io_uring is not available: Operation not permitted; writing one ' \
    'image at a time\n'
IO_URING_SETUP = 425  # on all machines


@contextlib.contextmanager
def follower(*arguments, status=0, before=None, output=subprocess.DEVNULL):
    """A process that follows, and is ended by SIGTERM. @return process; said(): its messages so far"""
    with tempfile.TemporaryFile('w+') as err:
        with subprocess.Popen([EXPORT, '--follow', '--images-per-file', str(PER_FILE), *arguments],
                              stdin=subprocess.DEVNULL, stdout=output,
                              stderr=err, text=True, preexec_fn=before) as process:
            process.said = lambda: os.pread(err.fileno(), 1 << 16, 0).decode()
            try:
                yield process
            finally:
                if process.poll() is None:
                    process.send_signal(signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(30)
                process.kill()
        err.seek(0)
        text = err.read()
        # not of the case: this host may refuse it
        process.text = text.replace(NOTICE, '')
        process.notices = text.count(NOTICE)
    want(process.returncode in (status, -signal.SIGKILL), process.returncode, process.text)


class Writer:
    """Writes the files of a run again, in pieces, as a receiver does."""

    def __init__(self, run, where, name='lyso'):
        self.paths = {t: f'{where}/{name}_{t}.arrow' for t in ('images', 'frames')}
        self.data = {}
        for t in self.paths:
            with open(f'{run}/lyso_{t}.arrow', 'rb') as stream:
                self.data[t] = stream.read()
        self.at = dict.fromkeys(self.data, 0)

    def step(self, share, tables=('images', 'frames')):
        """Write a share of each file. @return False: everything is written"""
        for t, data in ((t, self.data[t]) for t in tables):
            size = int(len(data) * share) + 1
            with open(f'{self.paths[t]}.part', 'ab') as stream:
                stream.write(data[self.at[t]:self.at[t] + size])
            self.at[t] = min(self.at[t] + size, len(data))
        return any(self.at[t] < len(d) for t, d in self.data.items())

    def end(self):
        while self.step(1):
            pass
        for path in self.paths.values():
            os.rename(f'{path}.part', path)


def read(path, made):
    """Images of a master or a data file, which must be the run's. @return their frames"""
    with h5py.File(path, 'r', locking=False) as f:
        frames = [int(n) for n in f['entry/frames/frame']]
        data = f['entry/data/data']
        want(data.shape == (len(frames), ROWS, COLS), path, data.shape)
        for i, frame in enumerate(frames):
            if os.path.exists(FILTER):
                want((data[i] == made[frame][0]).all(), path, 'frame', frame)
    return frames


def read_all(where, made):
    """@return frames of the master, of all data files"""
    master, data = [], []
    if os.path.exists(f'{where}/lyso_master.h5'):
        master = read(f'{where}/lyso_master.h5', made)
    for name in sorted(os.listdir(where)):
        if re.fullmatch(r'lyso_data_\d{6}\.h5', name):
            data += read(f'{where}/{name}', made)
    return master, data


def open_in_programs(where):
    """DIALS imports the master, if there is one, and CrystFEL finds its peaks."""
    if not os.path.exists(f'{where}/lyso.geom'):
        return
    for command in ([f'{ORACLES}/dials-open.sh', '--no-spots', f'{where}/lyso_master.h5'],
                    ['/usr/bin/python3', f'{ORACLES}/crystfel-check.py', '--images', '2', '--geom',
                     f'{where}/lyso.geom', f'{where}/lyso_master.h5']):
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)
        want(done.returncode == 0, *command, done.stdout)


@case
def a_run_is_exported_while_it_is_written(where):
    run = receive('small', *SMALL)
    made, frames = images(f'{run}/lyso_images.arrow'), kept(run)
    shutil.copy(f'{run}/lyso_calibration.bin', where)
    writer = Writer(run, where)
    seen = 0
    # of a follower that was killed
    with open(f'{where}/lyso_data_000099.h5.part', 'wb'):
        pass
    with follower(where) as process:
        for share in 0.3, 0.2, 0.2:
            writer.step(share)
            # images of batches that are whole
            wait('more images', lambda: os.path.exists(f'{where}/lyso_master.h5') and
                 len(read(f'{where}/lyso_master.h5', made)) > seen)
            with h5py.File(f'{where}/lyso_master.h5', 'r', locking=False) as f:
                seen = len(f['entry/frames/frame'])
                want(list(f['entry/frames/frame']) == frames[:seen])
            want(seen < len(frames), 'all images', share)
        want(seen > PER_FILE, 'one data file only')
        want(not [name for name in os.listdir(where) if name.endswith('.h5.part')], os.listdir(where))
        # another export would write the same files
        _, err = export('--output', where, run, status=1)
        want('another braggline-export writes the files of run lyso; wait for its end' in err, err)
        _, data = read_all(where, made)
        want(data[:seen] == frames[:seen] and len(data) < len(frames), data)
        writer.end()
        wait('all images', lambda: len(read(f'{where}/lyso_master.h5', made)) == len(frames))
        want(process.poll() is None)
    want(process.text == '', process.text)
    want(not os.path.exists(f'{where}/.lyso.export.lock'), os.listdir(where))
    same_as(run, f'{where}/lyso_master.h5', frames)
    # a file of a run that was followed is that of an export, with all columns of the run
    export('--output', f'{where}/after', '--images-per-file', str(PER_FILE), run)
    with h5py.File(f'{where}/after/lyso_master.h5', 'r') as a, \
            h5py.File(f'{where}/lyso_master.h5', 'r') as b:
        for group in 'frames', 'peaks':
            for name in a['entry'][group]:
                want((a['entry'][group][name][()] == b['entry'][group][name][()]).all(), name)
    out, _ = export('--output', where, '--images-per-file', str(PER_FILE), run)
    want('4 of 4 data files were complete' in out, out)


@case
def a_file_that_is_truncated_is_followed(where):
    run = receive('small', *SMALL)
    made, frames = images(f'{run}/lyso_images.arrow'), kept(run)
    writer = Writer(run, where)
    master = f'{where}/lyso_master.h5'
    with follower(where) as process:
        writer.step(0.7)
        wait('images', lambda: os.path.exists(master) and len(read(master, made)) > PER_FILE)
        # as a store does whose last batches another store has
        for t, path in writer.paths.items():
            writer.at[t] = len(writer.data[t]) // 3
            os.truncate(f'{path}.part', writer.at[t])
        time.sleep(0.5)
        writer.end()
        wait('all images', lambda: len(read(master, made)) == len(frames))
        want(process.poll() is None)
    want(process.text == '', process.text)
    same_as(run, master, frames)


@case
def a_copy_that_grows_under_its_name_is_followed(where):
    run = receive('small', *SMALL)
    made, frames = images(f'{run}/lyso_images.arrow'), kept(run)
    master = f'{where}/lyso_master.h5'
    shutil.copy(f'{run}/lyso_frames.arrow', where)
    with open(f'{run}/lyso_images.arrow', 'rb') as stream:
        data = stream.read()
    with follower(where) as process, open(f'{where}/lyso_images.arrow', 'wb', buffering=0) as copy:
        for at in range(0, len(data), len(data) // 20):
            copy.write(data[at:at + len(data) // 20])
            time.sleep(0.02)
        wait('all images', lambda: os.path.exists(master) and len(read(master, made)) == len(frames))
    want(process.text == '', process.text)
    same_as(run, master, frames)


@case
def a_torn_file_is_left_out_and_ends(where):
    run = receive('small', *SMALL)
    made, frames = images(f'{run}/lyso_images.arrow'), kept(run)
    for name, end in (('rename', lambda w: w.end()), ('unlink', lambda w: os.unlink(f'{w.paths["images"]}.part')),
                      ('fifo', lambda w: (os.unlink(f'{w.paths["images"]}.part'),
                                          os.mkfifo(w.paths['images'])))):
        place = f'{where}/{name}'
        os.mkdir(place)
        writer = Writer(run, place)
        writer.data['images'] = writer.data['images'][:len(writer.data['images']) * 2 // 3]
        with follower(place, status=1) as process:
            writer.step(1)
            wait('images', lambda place=place: os.path.exists(f'{place}/lyso_master.h5'))
            end(writer)
            process.send_signal(signal.SIGTERM)
            process.wait(20)
        want(process.text.count('\n') == 1 and 'its end is absent or damaged' in process.text,
             name, process.text)
        done = read(f'{place}/lyso_master.h5', made)
        want(done == frames[:len(done)] and done, name, done)


@case
def what_was_flushed_is_read_after_a_kill(where):
    run = receive('small', *SMALL)
    made, frames = images(f'{run}/lyso_images.arrow'), kept(run)
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    print(f'seed {seed}, {kills} kills')
    done = rounds = 0
    while done < kills:
        place = f'{where}/{rounds}'
        os.mkdir(place)
        writer = Writer(run, place)
        stop = threading.Event()

        def write(writer=writer, stop=stop):
            while not stop.wait(rng.random() * 0.05) and writer.step(0.01 + rng.random() * 0.03):
                pass

        thread = threading.Thread(target=write)
        thread.start()
        master, data = [], []
        while done < kills and (thread.is_alive() or rng.random() < 0.5):
            with follower(place) as process:
                time.sleep(rng.random() ** 2 * 0.6)
                process.kill()
            done += 1
            if readers:
                open_in_programs(place)
            before = master, data
            master, data = read_all(place, made)
            # nothing that was readable is lost, also while a file is replaced after the restart
            want(len(master) >= len(before[0]) and len(data) >= len(before[1]), before, master,
                 data)
            want(master == frames[:len(master)] and data == frames[:len(data)], master, data)
            want(len(data) >= len(master), data, master)
        stop.set()
        thread.join()
        writer.end()
        with follower(place):
            wait('the end', lambda place=place: os.path.exists(f'{place}/lyso_master.h5') and
                 len(read(f'{place}/lyso_master.h5', made)) == len(frames))
        same_as(run, f'{place}/lyso_master.h5', frames)
        shutil.rmtree(place)
        rounds += 1
    print(f'{rounds} runs')


@case
def runs_that_were_complete_are_left_alone_in_the_background(where):
    run = receive('small', *SMALL)
    store = f'{where}/store'
    for name in 'old', 'new', 'begun':
        os.makedirs(f'{store}/{name}')
    for name in 'old', 'begun':
        for table in 'images', 'frames':
            shutil.copy(f'{run}/lyso_{table}.arrow', f'{store}/{name}')
            os.utime(f'{store}/{name}/lyso_{table}.arrow', (1e9, 1e9))
    # its export did not end
    with open(f'{store}/begun/lyso_data_000001.h5', 'wb'):
        pass
    os.utime(f'{store}/begun/lyso_data_000001.h5', (9e8, 9e8))
    writer = Writer(run, f'{store}/new')
    writer.step(0.5)
    # as a child of a program that is killed
    with subprocess.Popen(['/bin/sh', '-c', '"$@" & echo $!; wait', 'sh', EXPORT, '--follow',
                           '--background', store], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as parent:
        child = int(parent.stdout.readline())
        wait('a master', lambda: os.path.exists(f'{store}/new/lyso_master.h5') and
             os.path.exists(f'{store}/begun/lyso_master.h5'))
        want(os.getpriority(os.PRIO_PROCESS, child) == 19, 'priority')
        writer.end()
        parent.kill()
    # it exports what is there, and ends
    wait('the end of the child', lambda: not os.path.exists(f'/proc/{child}'))
    for name in 'new', 'begun':
        same_as(run, f'{store}/{name}/lyso_master.h5', kept(run))
    want(sorted(os.listdir(f'{store}/old')) == ['lyso_frames.arrow', 'lyso_images.arrow'])


@case
def the_thread_that_starts_it_may_end(where):
    run = receive('small', *SMALL)
    started = []

    def start():
        started.append(subprocess.Popen([EXPORT, '--follow', '--background', where],
                                        stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        wait('the lock', lambda: os.path.exists(f'{where}/.export.lock'))

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    with started[0] as child:
        try:
            Writer(run, where).end()
            wait('a master', lambda: os.path.exists(f'{where}/lyso_master.h5'))
            child.send_signal(signal.SIGTERM)
            want(child.wait(20) == 0, child.returncode)
        finally:
            child.kill()
    same_as(run, f'{where}/lyso_master.h5', kept(run))


@case
def what_cannot_be_followed_is_reported(where):
    with follower(where, status=0):
        wait('the lock', lambda: os.path.exists(f'{where}/.export.lock'))
        _, err = export('--follow', where, status=1)
        want('another braggline-export follows it' in err, err)
    os.mkdir(f'{where}/flat')
    Writer(receive('flat', geometry=False), f'{where}/flat').end()
    with follower(f'{where}/flat', status=1) as process:
        wait('a message', lambda: '--geometry' in process.said())
    want(re.search('has no geometry.*--geometry', process.text), process.text)
    want(not os.path.exists(f'{where}/flat/lyso_master.h5'))
    for wrong in (['--format', 'cxi'], ['--frames', '3'], ['--overwrite'],
                  ['--images-per-file', '65001']):
        _, err = export('--follow', *wrong, where, status=2)
        want('--follow' in err, err)
    _, err = export('--background', where, status=2)
    want('requires --follow' in err, err)
    # a batch that is damaged in a complete file is left out
    run = receive('small', *SMALL)
    os.mkdir(f'{where}/damaged')
    writer = Writer(run, f'{where}/damaged')
    data = bytearray(writer.data['images'])
    data[len(data) // 2] ^= 1
    writer.data['images'] = bytes(data)
    writer.end()
    with follower(f'{where}/damaged', status=1) as process:
        wait('images', lambda: os.path.exists(f'{where}/damaged/lyso_master.h5'))
    want('a damaged batch is left out' in process.text, process.text)
    frames = read(f'{where}/damaged/lyso_master.h5', images(f'{run}/lyso_images.arrow'))
    want(len(kept(run)) - 2 <= len(frames) < len(kept(run)), frames)


@case
def a_receiver_starts_it(where):
    run = receive('nexus', 'output.nexus=yes', *SMALL)
    same_as(run, f'{run}/lyso_master.h5', kept(run))
    run = receive('nexus_csr', 'output.nexus=yes', 'output.format=csr', *SMALL)
    same_as_sparse(f'{run}/lyso_sparse.h5', sparse_images(f'{run}/lyso_images.arrow', 'i2'), kept(run))
    try:
        receive('nexus_store', 'output.nexus=yes', 'egress.device=roce:x')
    except AssertionError as error:
        want(re.search('set .files. nexus = yes of the stores', str(error)), error)
    else:
        raise AssertionError('nexus with stores is accepted')


def as_fabio_does(path):
    check = f'{ORACLES}/pyfai-sparse-open.py'
    if importlib.util.find_spec('fabio') is None or not os.path.exists(check):
        print('  not read by fabio: no python3-fabio, or no ../shared/oracles')
        return
    done = subprocess.run(['/usr/bin/python3', check, path], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, text=True, timeout=60, check=False)
    want(done.returncode == 0 and done.stdout.endswith(': ok\n'), done.stdout)


@case
def csr_images_are_sparse_frames_while_they_are_written(where):
    run = receive('csr_small_float', 'output.format=csr', *SMALL, 'output.value=float32')
    made, frames = sparse_images(f'{run}/lyso_images.arrow', 'f4'), kept(run)
    place = f'{where}/run'
    os.mkdir(place)
    shutil.copy(f'{run}/lyso_calibration.bin', place)
    path, writer, seen = f'{place}/lyso_sparse.h5', Writer(run, place), 0
    with follower(place) as process:
        for share in 0.4, 0.5:
            writer.step(share)
            wait('more images', lambda seen=seen: os.path.exists(path) and
                 len(same_as_sparse(path, made)) > seen)
            found = same_as_sparse(path, made)
            seen = len(found)
            want(found == frames[:seen] and seen < len(frames), found)
        # a file of an earlier, longer run of this name
        shutil.copy(f'{place}/lyso_sparse_000001.h5', f'{place}/lyso_sparse_000005.h5')
        writer.end()
        wait('all images', lambda: same_as_sparse(path, made) == frames)
    want(process.text == '', process.text)
    names = sorted(n for n in os.listdir(place) if n.endswith('.h5'))
    parts = (len(frames) + PER_FILE - 1) // PER_FILE
    want(names == ['lyso_sparse.h5', *(f'lyso_sparse_{k + 1:06d}.h5' for k in range(parts))], names)
    as_fabio_does(path)
    # all datasets are those of an export
    export('--format', 'sparse', '--output', f'{where}/after', run)
    with h5py.File(f'{where}/after/lyso_sparse.h5') as a, h5py.File(path) as b:
        a.visit(lambda name: names.append(name) if isinstance(a[name], h5py.Dataset) else None)
        for name in names[1 + parts:]:
            # bytes: the mask has NaN
            want(numpy.array(a[name][()]).tobytes() == numpy.array(b[name][()]).tobytes(), name)


@case
def sparse_frames_outlive_a_kill(where):
    run = receive('csr_small', 'output.format=csr', *SMALL, 'output.value=int16')
    made, frames = sparse_images(f'{run}/lyso_images.arrow', 'i2'), kept(run)
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    print(f'seed {seed}')
    writer, path, found = Writer(run, where), f'{where}/lyso_sparse.h5', []
    for _ in range(kills // 2):
        writer.step(0.2)
        with follower(where) as process:
            time.sleep(rng.random() * 0.6)
            process.kill()
        before = found
        if os.path.exists(path):
            found = same_as_sparse(path, made)
        want(found[:len(before)] == before and found == frames[:len(found)], before, found)
    writer.end()
    with follower(where):
        wait('the end', lambda: os.path.exists(path) and same_as_sparse(path, made) == frames)
    # other images of this name: the file that links to them is removed first
    other = f'{where}/other'
    os.mkdir(other)
    for name in os.listdir(where):
        if name.endswith('.h5'):
            shutil.copy(f'{where}/{name}', other)
    counts = strong_counts(run)
    again = receive('csr_again', 'output.format=csr', f'veto.strong_min={counts[-len(frames) // 2]}',
                    *SMALL, 'output.value=int16')
    want(0 < len(kept(again)) < len(frames), kept(again))
    Writer(again, other).end()
    with follower(other) as process:
        wait('the other run', lambda: kept(again) == (
            os.path.exists(f'{other}/lyso_sparse.h5') and
            [int(n) for n in h5py.File(f'{other}/lyso_sparse.h5', locking=False)['entry_0000/frames/frame']]))
        process.send_signal(signal.SIGTERM)
        process.wait(20)
    same_as_sparse(f'{other}/lyso_sparse.h5', sparse_images(f'{again}/lyso_images.arrow', 'i2'), kept(again))


@case
def a_run_whose_first_images_are_dense_becomes_sparse(where):
    run = receive('csr_small_float', 'output.format=csr', *SMALL, 'output.value=float32')
    made, frames = sparse_images(f'{run}/lyso_images.arrow', 'f4'), kept(run)
    most = len(made[frames[0]][0]) - 1
    want(min(len(made[n][0]) for n in frames) <= most, 'the first image has fewest pixels')
    run = receive('csr_dense', 'output.format=csr', 'output.images_interval=1',
                  'output.frames_interval=8', 'output.value=float32', f'output.nnz_max={most}')
    writer = Writer(run, where)
    with follower(where) as process:
        # a full image is much larger than a sparse one
        writer.step(0.08, ['images'])
        writer.step(0.5, ['frames'])
        wait('a master of full images', lambda: os.path.exists(f'{where}/lyso_master.h5'))
        writer.end()
        path = f'{where}/lyso_sparse.h5'
        wait('all images', lambda: os.path.exists(path) and len(same_as_sparse(path, made)) == len(frames))
    want(process.text == '', process.text)
    same_as_sparse(path, made, frames)
    want(not [n for n in os.listdir(where) if re.match('lyso_(master|data)', n)], os.listdir(where))


@case
def raw_images_are_copied(where):
    run = receive('raw_small', 'output.format=raw', *SMALL)
    with follower('--output', f'{where}/out', where):
        Writer(run, where).end()
        wait('images', lambda: os.path.exists(f'{where}/out/lyso_master.h5'))
    export('--output', f'{where}/after', run)
    if not os.path.exists(FILTER):
        raise Skipped('h5py has no filter 32008: install bitshuffle')
    with h5py.File(f'{where}/out/lyso_master.h5') as a, \
            h5py.File(f'{where}/after/lyso_master.h5') as b:
        want((a['entry/data/data'][()] == b['entry/data/data'][()]).all())


@case
def output_that_nobody_reads_ends_nothing(where):
    run = receive('small', *SMALL)
    made, frames = images(f'{run}/lyso_images.arrow'), kept(run)
    gone, output = os.pipe()
    os.close(gone)
    with follower(where, status=1, output=output) as process:
        # a line is printed at the end of each run
        for name in 'first', 'second':
            master = f'{where}/{name}/lyso_master.h5'
            os.makedirs(f'{where}/{name}')
            Writer(run, f'{where}/{name}').end()
            wait('all images', lambda master=master: os.path.exists(master) and
                 len(read(master, made)) == len(frames))
    os.close(output)
    want(process.text.endswith('cannot write to standard output\n'), process.text)


@case
def where_io_uring_is_refused_images_are_the_same(where):
    run = receive('raw_small', 'output.format=raw', *SMALL)
    for name, before in ('with', None), ('without', refuse(errno.EPERM, IO_URING_SETUP)):
        os.makedirs(f'{where}/{name}')
        with follower(f'{where}/{name}', before=before) as process:
            Writer(run, f'{where}/{name}').end()
            wait('images', lambda name=name: os.path.exists(f'{where}/{name}/lyso_master.h5'))
    want(process.notices == 1 and process.text == '', process.notices, process.text)
    names = sorted(n for n in os.listdir(f'{where}/with') if 'data' in n)
    want(len(names) > 1, names)
    for name in names:
        with h5py.File(f'{where}/with/{name}') as a, h5py.File(f'{where}/without/{name}') as b:
            a, b = a['entry/data/data'], b['entry/data/data']
            want(a.shape == b.shape, name)
            for i in range(len(a)):
                want(a.id.read_direct_chunk((i, 0, 0)) == b.id.read_direct_chunk((i, 0, 0)), name, i)


def main():
    global kills, readers
    arguments = sys.argv[2:]
    if arguments[:1] == ['--kills']:
        kills, arguments = int(arguments[1]), arguments[2:]
    if arguments[:1] == ['--readers']:
        readers, arguments = True, arguments[1:]
        if not os.path.exists(f'{ORACLES}/dials-open.sh'):
            print('SKIPPED: no ../shared/oracles')
            return 77
    with tempfile.TemporaryDirectory() as where:
        runs['where'] = where
        return run_cases(arguments)


sys.exit(main())
