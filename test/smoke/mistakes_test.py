#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Mistakes that people make, the line that each of them must see, and the exit status.

usage: mistakes_test.py BUILD-DIR [CASE]...
"""

import contextlib
import os
import signal
import subprocess
import sys

import background
from cases import case, run_cases, wait, want

BUILD = os.path.abspath(sys.argv[1])
RECV = f'{BUILD}/app/recv/braggline-recv'
STORE = f'{BUILD}/app/store/braggline-store'
SCAN = f'{BUILD}/app/scan/braggline-scan'
RDMA = f'{BUILD}/app/rdma/braggline-rdma'
DETECTOR = f'{BUILD}/app/detector/braggline-detector'
SECONDS = 60  # at most, on a machine that does other things as well
PREFIX = f'mistakes_{os.getpid()}'


def capture(where, frames=20):
    """A capture of one module, and its calibration. @return its path"""
    subprocess.run([DETECTOR, '--frames', str(frames), '--pcap', f'{where}/in.pcap',
                    '--calibration', where], check=True, stdin=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    return f'{where}/in.pcap'


def command(where, *settings, eal=(), replay='', prefix=PREFIX):
    """A receiver of that capture, on one CPU."""
    words = [RECV, '--no-huge', '-m', '512', '--no-pci', '--file-prefix', prefix, '--lcores',
             f'(0-3)@(0-{os.cpu_count() - 1})', '--vdev', 'gpu_host0', '--vdev',
             f'net_replay0,file={where}/in.pcap{replay}', *eal, '--',
             '--set', f'output.directory={where}/out', '--set', 'run.idle_timeout_ms=500',
             '--set', f'calibration.gain={where}/gain_m%d.bin',
             '--set', f'calibration.mask={where}/mask_m%d.bin']
    for g in range(3):
        words += ['--set', f'calibration.pedestal_g{g}={where}/pedestal_g{g}_m%d.bin']
    for setting in settings:
        words += ['--set', setting]
    return words


@contextlib.contextmanager
def running(where, words):
    """A program in the background; its output is in WHERE/log."""
    with open(f'{where}/log', 'w', encoding='utf-8') as log, \
            background.start(words, stdout=log, stderr=subprocess.STDOUT) as process:
        try:
            yield process
        finally:
            process.kill()


def says(words, status, *lines, never=()):
    """The program ends with this status and has said each of these lines."""
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=SECONDS, check=False)
    out = done.stdout.decode()
    want(done.returncode == status, 'exit status', done.returncode, 'instead of', status, out)
    for line in lines:
        want(line in out, f'does not say "{line}":', out)
    for line in never:
        want(line not in out, f'says "{line}":', out)
    return out


@case
def eal_options_without_a_separator(where):
    for program in RECV, STORE:
        says([program, '-l', '0', '--config', 'x.ini'], 2, 'Options of EAL come first: '
             f'{os.path.basename(program)} [EAL options] -- --config FILE')


@case
def a_prefix_that_is_in_use(where):
    capture(where)
    words = command(where, 'run.idle_timeout_ms=0', replay=',loops=0,rate=1000')
    with running(where, words) as process:
        wait('the first receiver', lambda: os.path.exists(f'{where}/out'), SECONDS)
        says(command(where), 1, 'another process runs with this --file-prefix')
        process.send_signal(signal.SIGTERM)
        want(process.wait(SECONDS) == 0, 'the first one was disturbed', process.returncode)


@case
def a_runtime_folder_that_others_may_write_to(where):
    """EAL would listen for telemetry in it."""
    capture(where)
    prefix = f'{PREFIX}_others'
    base = '/var/run' if os.geteuid() == 0 else os.environ.get('XDG_RUNTIME_DIR', '/tmp')
    folder = f'{base}/dpdk/{prefix}'
    os.makedirs(folder, 0o700)
    os.chmod(folder, 0o777)
    out = says(command(where, prefix=prefix), 1, f'{folder}: mode is 0777, other users may write')
    want(not os.path.exists(f'{where}/out'), 'it goes on:', out)


@case
def a_configuration_that_is_a_fifo(where):
    """Without its other end, nobody waits."""
    os.mkfifo(f'{where}/fifo')
    for program in RECV, STORE:
        says([program, '--no-huge', '-m', '64', '--no-pci', '--file-prefix', PREFIX, '-l', '0', '--',
              '--config', f'{where}/fifo'], 2, f'cannot read {where}/fifo: it is not a regular file')


@case
def a_link_in_place_of_what_is_written(where):
    """What it leads to stays as it is."""
    victim, name = f'{where}/victim', f'{where}/name'
    with open(victim, 'w', encoding='ascii') as f:
        f.write('mine')
    os.symlink(victim, name)
    capture(where)
    says(command(where, 'run.name=r'), 0)
    found = f'{where}/out/r_frames.arrow'
    says([SCAN, '--csv', name, found], 1, f'cannot write {name}: it is a symbolic link')
    says([SCAN, '--png', name, found], 1, f'{name}: it is a symbolic link')
    says(command(where, 'run.name=s', replay=f',tx=file:{name}'), 1,
         f'{name}: it is a symbolic link')
    says([RDMA, '--no-huge', '-m', '64', '--no-pci', '--file-prefix', PREFIX, '-l', '0', '--vdev',
          'net_null0', '--', 'rping', '-s', '--device', 'roce:port=net_null0,ip=10.0.0.2/24', '--capture',
          name], 1, f'{name}: it is a symbolic link')
    with open(victim, encoding='ascii') as f:
        want(f.read() == 'mine', 'it was written to')
    # a FIFO in place of a file that is read: nobody waits for its other end
    os.mkfifo(f'{where}/fifo')
    says([SCAN, '--truth', f'{where}/fifo', found], 1, f'{where}/fifo: it is not a regular file')


@case
def the_socket_of_a_store_that_was_killed(where):
    """The memif example of the store's README, again after kill -9."""
    with open(f'{where}/key', 'wb') as f:
        f.write(os.urandom(64))
    with open(f'{where}/keys.ini', 'w', encoding='ascii') as f:
        f.write('[receiver recv]\nkey = key\nproducers = 0\n')
    os.chmod(f'{where}/key', 0o600)
    os.chmod(f'{where}/keys.ini', 0o600)
    words = [STORE, '--no-huge', '-m', '256', '--no-pci', '--file-prefix', PREFIX, '-l', '0', '--vdev',
             f'net_memif0,role=server,socket={where}/store.sock,socket-abstract=no', '--',
             '-s', 'store.device=roce:port=net_memif0,ip=10.0.0.2/24',
             '-s', f'store.keys={where}/keys.ini',
             '-s', f'files.directory={where}/data', '-s', 'store.memory_mib=64']
    for again in False, True:
        with running(where, words) as process:
            try:
                wait('the store', lambda: process.poll() is not None or
                     'listening on' in open(f'{where}/log', encoding='utf-8').read(), SECONDS)
                out = open(f'{where}/log', encoding='utf-8').read()
                want('listening on' in out, out)
                want(('nobody listens on it' in out) == again, out)
            finally:
                process.kill()
    want(os.path.exists(f'{where}/store.sock'), 'nothing was left to find')
    # of a file that is no socket nothing is said, and it stays
    os.remove(f'{where}/store.sock')
    with open(f'{where}/store.sock', 'w', encoding='ascii') as f:
        f.write('mine')
    says(words, 1, 'store.sock', never=('nobody listens',))
    want(os.path.getsize(f'{where}/store.sock') == 4, 'the file is gone')


@case
def no_huge_pages(where):
    free = [f'/sys/kernel/mm/hugepages/{size}/free_hugepages'
            for size in os.listdir('/sys/kernel/mm/hugepages')]
    if any(int(open(path, encoding='ascii').read()) for path in free):
        return
    says([RECV, '--no-pci', '--file-prefix', PREFIX, '--', '--set', 'run.name=x'], 1,
         'no huge page is free; use --no-huge')


@case
def a_terminal_that_is_closed(where):
    """SIGHUP ends a run as SIGTERM does; under nohup it does nothing."""
    capture(where)
    words = command(where, 'run.idle_timeout_ms=0', replay=',loops=0,rate=10000')
    with running(where, words) as process:
        wait('the run', lambda: os.path.exists(f'{where}/out/run_frames.arrow.part'), SECONDS)
        process.send_signal(signal.SIGHUP)
        want(process.wait(SECONDS) == 0, 'exit status', process.returncode)
        for name in 'frames.arrow', 'images.arrow', 'ledger.ini':
            want(os.path.exists(f'{where}/out/run_{name}'), f'run_{name} is missing')


@case
def a_capture_that_ends_within_a_record(where):
    path = capture(where)
    os.truncate(path, os.path.getsize(path) - 1000)
    says(command(where), 0, 'ends within record 2560: the 2559 records before it are used')


@case
def a_capture_that_is_none(where):
    capture(where)
    with open(f'{where}/in.pcap', 'wb') as f:
        f.write(b'no capture' * 100)
    says(command(where), 1, 'unknown file format', 'net_replay0 could not be created, see above',
         never=('create a virtual device',))


def rewrite(path, change):
    with open(path, 'rb') as f:
        data = change(f.read())
    with open(path, 'wb') as f:
        f.write(data)


def says_twice(where, status, line, check):
    """In a run and, as a row with this verdict, in --check."""
    says(command(where), status, line)
    says([*command(where, 'run.name=second'), '--check'], 1 if check == 'FAIL' else 0,
         check, line.removeprefix('calibration: '))


@case
def a_mask_of_int32(where):
    capture(where)
    rewrite(f'{where}/mask_m0.bin', lambda data: bytes(b for x in data for b in (x, 0, 0, 0)))
    says_twice(where, 1, 'mask_m0.bin has 2097152 bytes, must have 524288: [1][512][1024] values '
               'of 1 bytes (int32 values? Convert them to uint8)', 'FAIL')


@case
def a_pedestal_file_of_two_maps(where):
    capture(where)
    rewrite(f'{where}/pedestal_g0_m0.bin', lambda data: 2 * data)
    says_twice(where, 1, 'pedestal_g0_m0.bin has 4194304 bytes, must have 2097152', 'FAIL')


@case
def an_inverted_mask(where):
    capture(where)
    rewrite(f'{where}/mask_m0.bin', lambda data: bytes(not x for x in data))
    says_twice(where, 0, 'of 524288 pixels can be used in G0: is the mask inverted', 'warn')


@case
def the_pedestals_of_another_stage(where):
    capture(where)
    with open(f'{where}/pedestal_g1_m0.bin', 'rb') as f:
        other = f.read()
    rewrite(f'{where}/pedestal_g0_m0.bin', lambda data: other)
    says_twice(where, 0, 'module 0: the median pedestal of G0 is', 'warn')


@case
def pedestals_of_zero(where):
    capture(where)
    rewrite(f'{where}/pedestal_g0_m0.bin', lambda data: bytes(len(data)))
    says_twice(where, 0, 'module 0: the median pedestal of G0 is 0 ADU, expected 500 to 9000',
               'warn')


@case
def a_dark_run_that_is_too_short(where):
    capture(where)
    says(command(where, 'run.type=dark', 'output.calibration=no'), 1,
         'dark run run: at least 128 frames of each gain stage are needed',
         'module 0 has 20 complete frames in G0, at least 128 are needed')
    want(not [f for f in os.listdir(f'{where}/out') if 'pedestal' in f], os.listdir(f'{where}/out'))


@case
def settings_with_several_mistakes(where):
    with open(f'{where}/x.ini', 'wb') as f:
        f.write(b'\xef\xbb\xbf[output]\ndirectory =\nvalue\n[run]\nframes = many\nname = \xfc\n')
    says([RECV, '--', '--config', f'{where}/x.ini', '--dump-config'], 2,
         'x.ini:2: [output] directory = : is empty', 'x.ini:3: ', 'x.ini:5: [run] frames = many',
         'x.ini:6: is not UTF-8 text')


if __name__ == '__main__':
    # whoever started this may ignore it, as nohup does, and then so would the programs
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    sys.exit(run_cases(sys.argv[2:]))
