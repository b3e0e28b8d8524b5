#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Measures braggline-export beside a plain copy of the bytes that it writes and beside the disk, and
the time until braggline-publish has given an image to a worker.

    export_bench.py [--frames N] [--rounds N] [--rows FILE] BUILD-DIR

A receiver makes a run of raw images and one of int16 photons from the simulated detector, one
module, in $TMPDIR. In each round an export and two copies of the run's files to a new file follow
each other: by sendfile(2), and by read(2) and write(2) with the CRC-32C of all bytes (crc_copy),
which an export must compute. All end with fsync(2). The same is done with `--follow`. Rates are by
the clock and by CPU time, on which other load of the machine has little effect; the ratios are
medians of the rounds. Reads are from the page cache. A part writes 4 MiB blocks with O_DIRECT, as a store does, in
turns with `--follow`, then alone and beside `--follow --background` that exports a run which grows.
The last part is publish_bench, with SCHED_FIFO if permitted: int16 images, one and up to three in a
batch, without a viewer and with one that hangs.
"""
import argparse
import os
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

PROGRAM_SECONDS = 180
BLOCK = 4 << 20
MAPS = 'gain', 'mask', 'pedestal_g0', 'pedestal_g1', 'pedestal_g2'


def run(*command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=PROGRAM_SECONDS,
                          check=False)
    if done.returncode != 0:
        raise SystemExit(f'export_bench: {command[0]}: status {done.returncode}\n{done.stdout}')


def receive(build, where, frames, form, *settings, name=None):
    """Make a run of which every frame is kept. @return its directory"""
    name = name or form
    run(f'{build}/app/recv/braggline-recv', '--no-huge', '-m', str(600 + 2 * frames), '--no-pci',
        '--no-shconf', '--no-telemetry', '--lcores', f'(0-5)@(0-{os.cpu_count() - 1})', '--vdev',
        'gpu_host0', '--vdev', f'net_replay0,file={where}/in.pcap', '--', '--quiet',
        *(word for s in (
            *(f'calibration.{m}={where}/{m}_m%d.bin' for m in MAPS),
            f'output.directory={where}/{name}', 'run.name=bench', 'run.idle_timeout_ms=500',
            f'output.format={form}', 'output.value=int16', 'output.compress=no', 'veto.strong_min=0',
            'geometry.beam_x=515', 'geometry.beam_y=257', 'geometry.distance_mm=100', *settings)
          for word in ('--set', s)))
    return f'{where}/{name}'


def cpu_seconds(who):
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


def written(where):
    return sum(os.path.getsize(f'{where}/{n}') for n in os.listdir(where))


def copy(source, target):
    """Copy all files of a directory into one. @return seconds"""
    begin = time.monotonic()
    with open(target, 'wb') as out:
        for name in sorted(os.listdir(source)):
            with open(f'{source}/{name}', 'rb') as data:
                while os.sendfile(out.fileno(), data.fileno(), None, 1 << 30):
                    pass
        os.fsync(out.fileno())
    return time.monotonic() - begin


def export(build, source, target, *arguments):
    begin = time.monotonic()
    run(f'{build}/app/export/braggline-export', '--output', target, *arguments, source)
    return time.monotonic() - begin


def follow(build, source, target):
    """@return seconds from the start to the end of a process that exports a complete run"""
    begin = time.monotonic()
    with subprocess.Popen([f'{build}/app/export/braggline-export', '--follow', '--output', target,
                           source], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True) as process:
        process.stdout.readline()  # the run is complete
        seconds = time.monotonic() - begin
        process.send_signal(signal.SIGTERM)
    return seconds


def crc_copy(build, source, target):
    """As copy(), with the CRC-32C of the bytes."""
    begin = time.monotonic()
    run(f'{build}/test/bench/crc_copy', target, *(f'{source}/{n}' for n in os.listdir(source)))
    return time.monotonic() - begin


def compare(build, where, source, rounds, way):
    """@return of both copies, by the clock and by CPU time: (bytes/s of the export, of the copy,
    median of their ratios)"""
    results = {(peer, measure): [] for peer in range(2) for measure in range(2)}
    for _ in range(rounds):
        shutil.rmtree(f'{where}/out', ignore_errors=True)
        begin = cpu_seconds(resource.RUSAGE_CHILDREN)
        seconds = way(build, source, f'{where}/out')
        used = cpu_seconds(resource.RUSAGE_CHILDREN) - begin
        size = written(f'{where}/out')
        # not the HDF5 files, which an export does not leave in the page cache
        begin = cpu_seconds(resource.RUSAGE_SELF)
        copied = copy(source, f'{where}/copy')
        peers = [(copied, cpu_seconds(resource.RUSAGE_SELF) - begin)]
        os.unlink(f'{where}/copy')
        begin = cpu_seconds(resource.RUSAGE_CHILDREN)
        copied = crc_copy(build, source, f'{where}/copy')
        peers.append((copied, cpu_seconds(resource.RUSAGE_CHILDREN) - begin))
        os.unlink(f'{where}/copy')
        for peer, times in enumerate(peers):
            for measure, mine in enumerate((seconds, used)):
                results[peer, measure].append((size / mine, written(source) / times[measure]))
    return [(statistics.median(r[0] for r in rows), statistics.median(r[1] for r in rows),
             statistics.median(r[0] / r[1] for r in rows)) for rows in results.values()]


def write_direct(path, seconds):
    """Bytes/s of writes with O_DIRECT, at most 8 GiB of the disk."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_DIRECT)
    except OSError:
        return 0  # a tmpfs
    with memoryview(bytearray(BLOCK + 4096)) as memory:
        import ctypes
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory.obj))
        block = memory[-address % 4096:][:BLOCK]
        begin, size = time.monotonic(), 0
        while time.monotonic() - begin < seconds:
            size += os.pwrite(fd, block, size % (1 << 33))
        taken = time.monotonic() - begin
        block.release()
    os.close(fd)
    os.unlink(path)
    return size / taken


def against_disk(build, where, source, rounds, seconds):
    """@return (bytes/s of --follow, of a writer with O_DIRECT, median of the ratios)"""
    results = []
    for _ in range(rounds):
        shutil.rmtree(f'{where}/out', ignore_errors=True)
        disk = write_direct(f'{where}/direct', seconds)
        taken = follow(build, source, f'{where}/out')
        results.append((written(f'{where}/out') / taken, disk))
    if not results or results[0][1] == 0:
        return None
    return (statistics.median(r[0] for r in results), statistics.median(r[1] for r in results),
            statistics.median(r[0] / r[1] for r in results))


def live(build, where, source, name, rounds):
    """Rows of publish_bench: [(what, p95 in ms, p95 of bare ZeroMQ)]"""
    command = [f'{build}/test/bench/publish_bench', f'{build}/app/publish/braggline-publish',
               f'{source}/bench_images.arrow', '2', '50', str(rounds)]
    if subprocess.run(['chrt', '-f', '10', 'true'], stderr=subprocess.DEVNULL, check=False).returncode == 0:
        command = ['chrt', '-f', '10', *command]
    done = subprocess.run(command, cwd=where, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True, timeout=PROGRAM_SECONDS, check=True)
    p95 = {line[:44].rstrip(): float(line.split()[-2]) for line in done.stdout.splitlines()[2:]}
    bare = p95['bare ZeroMQ, message of that size -> worker']
    return [(f'{name}{viewer}', p95[key], bare) for viewer, key in (
        ('', 'batch written -> image at a worker'),
        (', a viewer hangs', 'a viewer hangs: written -> worker'))]


def grow(source, target, stop):
    """Write the files of a run again and again, as a receiver does."""
    number = 0
    while not stop.is_set():
        number += 1
        os.makedirs(f'{target}/{number}')
        for table in 'frames', 'images':
            with open(f'{source}/bench_{table}.arrow', 'rb') as data, \
                    open(f'{target}/{number}/bench_{table}.arrow.part', 'wb') as out:
                while not stop.is_set() and os.sendfile(out.fileno(), data.fileno(), None, BLOCK):
                    time.sleep(0.01)
        for table in 'frames', 'images':
            os.rename(f'{target}/{number}/bench_{table}.arrow.part',
                      f'{target}/{number}/bench_{table}.arrow')


def beside(build, where, source, rounds, seconds):
    """@return (bytes/s of a writer beside a follower, alone, median of the ratios)"""
    results = []
    for _ in range(rounds):
        stop = threading.Event()
        os.makedirs(f'{where}/grows')
        thread = threading.Thread(target=grow, args=(source, f'{where}/grows', stop))
        thread.start()
        alone = write_direct(f'{where}/direct', seconds)
        with subprocess.Popen([f'{build}/app/export/braggline-export', '--follow', '--background',
                               f'{where}/grows'], stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            both = write_direct(f'{where}/direct', seconds)
            process.kill()
        stop.set()
        thread.join()
        shutil.rmtree(f'{where}/grows')
        results.append((both, alone))
    if not results or results[0][1] == 0:
        return None
    return (statistics.median(r[0] for r in results), statistics.median(r[1] for r in results),
            statistics.median(r[0] / r[1] for r in results))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n\n')[0])
    parser.add_argument('--frames', type=int, default=300)
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--seconds', type=float, default=1.5)
    parser.add_argument('--rows', default=os.devnull)
    parser.add_argument('build')
    o = parser.parse_args()
    build = os.path.abspath(o.build)
    if not os.path.exists(f'{build}/app/export/braggline-export'):
        print('export_bench: no braggline-export: install libhdf5-dev')
        return 77
    cpus = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as where:
        run(f'{build}/app/detector/braggline-detector', '--frames', str(o.frames), '--hit-fraction',
            '1', '--pcap', f'{where}/in.pcap', '--calibration', where)
        raw = receive(build, where, o.frames, 'raw')
        image = receive(build, where, o.frames, 'image')
        # of 64 frames: a batch has one image, or three
        run(f'{build}/app/detector/braggline-detector', '--frames', str(min(o.frames, 64)),
            '--hit-fraction', '1', '--pcap', f'{where}/in.pcap', '--calibration', where)
        few = [receive(build, where, 64, 'image', f'output.images_interval={n}', 'output.batch_ms=0',
                       name=f'few{n}') for n in (1, 3)]
        os.unlink(f'{where}/in.pcap')
        pixels = os.path.getsize(f'{image}/bench_images.arrow')
        rows = [(f'{what}{measure}', against, *result, 'ratio >= 0.9') for what, way in (
            ('raw chunks', export), ('raw chunks, --follow', follow))
                for (against, measure), result in zip(
                    ((against, measure) for against in ('a copy of the same bytes', 'crc_copy')
                     for measure in (', by the clock', ', by CPU time')),
                    compare(build, where, raw, o.rounds, way))]
        times = [min(export(build, image, f'{where}/photons{n}', '--threads', str(n), '--overwrite')
                     for _ in range(o.rounds)) for n in sorted({1, cpus})]
        fast = against_disk(build, where, raw, o.rounds, o.seconds)
        disk = beside(build, where, raw, o.rounds, o.seconds)
        soon = []
        if os.path.exists(f'{build}/test/bench/publish_bench'):
            for n, source in zip((1, 3), few):
                soon += live(build, where, source, f'to a worker, {n} a batch', o.rounds)
    with open(o.rows, 'w', encoding='utf-8') as out:
        def row(what, value, against, other, ratio, goal, notes=''):
            print(f'{what:36} {value / 1e6:8.0f} MB/s   {against} {other / 1e6:8.0f} MB/s   '
                  f'{ratio:.2f}')
            out.write('\t'.join(('export', what, f'{value / 1e6:.6g}', 'MB/s', against,
                                 f'{other / 1e6:.6g}', f'{ratio:.6g}', goal, '0',
                                 '1' if ratio else '0', 'peer', notes, '')) + '\n')

        for what, against, value, other, ratio, goal in rows:
            row(what, value, against, other, ratio, goal)
        for n, seconds in zip(sorted({1, cpus}), times):
            row(f'int16 photons, {n} thread{"s" if n > 1 else ""}', pixels / seconds, '', 0, 0, '',
                'bytes of pixels')
        if fast is not None:
            row('--follow, raw chunks', fast[0], 'O_DIRECT in turns', fast[1], fast[2],
                'ratio >= 0.9')
        for what, value, bare in soon:
            print(f'{what:36} {value:8.2f} ms p95   bare ZeroMQ {bare:8.2f} ms   {value / bare:.2f}')
            out.write('\t'.join(('export', what, f'{value:.6g}', 'ms', 'bare ZeroMQ', f'{bare:.6g}',
                                 f'{value / bare:.6g}', 'value <= 5', '0', '1', 'peer', 'p95', ''))
                      + '\n')
        if disk is not None:
            row('O_DIRECT beside --follow', disk[0], 'alone', disk[1], disk[2], 'ratio >= 0.9')
    return 0


if __name__ == '__main__':
    sys.exit(main())
