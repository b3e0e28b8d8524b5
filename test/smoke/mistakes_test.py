#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Mistakes of users: each must produce the expected message and exit status.

usage: mistakes_test.py BUILD-DIR [CASE]...
"""

import contextlib
import gzip
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

import background
from cases import Skipped, case, run_cases, wait, want

BUILD = os.path.abspath(sys.argv[1])
RECV = f'{BUILD}/app/recv/braggline-recv'
STORE = f'{BUILD}/app/store/braggline-store'
SCAN = f'{BUILD}/app/scan/braggline-scan'
RDMA = f'{BUILD}/pmd-ext/rdma/examples/braggline-rdma'
DETECTOR = f'{BUILD}/app/detector/braggline-detector'
RDMA = f'{BUILD}/pmd-ext/rdma/examples/braggline-rdma'
# programs that use EAL, with their mandatory options
PROGRAMS = {RECV: ('--set', 'run.name=x'),
            STORE: ('--set', 'files.directory=/nowhere'),
            DETECTOR: ('--port', 'net_null0', '--frames', '1'),
            RDMA: ('rping', '--device', 'roce:port=0,ip=10.0.0.1/24', '-s')}
SECONDS = 60  # at most, on a machine with other load
PREFIX = f'mistakes_{os.getpid()}'


def capture(where, *options, frames=20):
    """Make a capture of one module, and its calibration. @return the path of the capture"""
    subprocess.run([DETECTOR, '--frames', str(frames), '--pcap', f'{where}/in.pcap',
                    '--calibration', where, *options], check=True, stdin=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    return f'{where}/in.pcap'


def rewrite_packets(path, change):
    """Write a capture again with each packet replaced by change(packet); b'' removes it."""
    with open(path, 'rb') as f:
        data = f.read()
    at, out = 24, [data[:24]]
    while at < len(data):
        size = struct.unpack_from('<I', data, at + 8)[0]
        packet = change(data[at + 16:at + 16 + size])
        if packet:
            out.append(data[at:at + 8] + struct.pack('<II', len(packet), len(packet)) + packet)
        at += 16 + size
    with open(path, 'wb') as f:
        f.writelines(out)


def with_ip(packet, header, rest):
    """The packet with another IPv4 header; sets its length and checksum."""
    h = bytearray(header)
    struct.pack_into('>H', h, 2, len(h) + len(rest))
    h[10:12] = bytes(2)
    total = sum(struct.unpack(f'>{len(h) // 2}H', h))
    total = (total & 0xffff) + (total >> 16)
    struct.pack_into('>H', h, 10, ~(total + (total >> 16)) & 0xffff)
    return packet[:14] + bytes(h) + rest


def command(where, *settings, eal=(), replay='', prefix=PREFIX):
    """Command line of a receiver of that capture, on one CPU."""
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
    """Start a program in the background; its output goes to WHERE/log."""
    with open(f'{where}/log', 'w', encoding='utf-8') as log, \
            background.start(words, stdout=log, stderr=subprocess.STDOUT) as process:
        try:
            yield process
        finally:
            process.kill()


def says(words, status, *lines, never=()):
    """The program ends with this status and has printed each of these lines, and none of `never`.
    """
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=SECONDS, check=False)
    out = done.stdout.decode()
    want(done.returncode == status, 'exit status', done.returncode, 'instead of', status, out)
    for line in lines:
        want(line in out, f'does not say "{line}":', out)
    for line in never:
        want(line not in out, f'says "{line}":', out)
    return out


def pattern(line):
    """How many samples there are depends on the time."""
    return re.escape(line).replace(r'N\ of\ N\ samples', r'\d+ of \d+ samples')


@case
def eal_options_without_a_separator(where):
    for program, own in ((RECV, '--config FILE'), (STORE, '--config FILE'),
                         (DETECTOR, '--port NAME'), (RDMA, 'MODE')):
        says([program, '-l', '0', *PROGRAMS[program]], 2, 'EAL options come first: '
             f'{os.path.basename(program)} [EAL options] -- {own}')


@case
def options_that_do_not_exist(where):
    """The option is named, and where the options are described."""
    for program, *words in ((RECV,), (STORE,), (STORE, 'verify'), (STORE, 'import'), (STORE, 'reconcile'),
                            (DETECTOR,), (SCAN,)):
        name = ' '.join([os.path.basename(program), *words])
        says([program, *words, '--bogus'], 2, "unrecognized option '--bogus'\n", f"Try '{name} --help'.\n")


@case
def names_that_are_none_of_a_geometry(where):
    """Before files are read."""
    for words, option in ((('--geometry', 'a.txt', f'{where}/none'), '--geometry'),
                          (('--geometry', 'a.geom', '--from', 'a.txt'), '--from')):
        says([SCAN, *words], 2, f'{option}: expected a name that ends in .geom (CrystFEL) or .poni (pyFAI), '
             'not a.txt; see braggline-scan --help', never=('No such file',))


@case
def options_that_eal_does_not_take(where):
    """Unknown EAL options are reported, as are options of the program before the separator."""
    usual = ('--no-huge', '--no-pci', '--file-prefix', PREFIX)
    for wrong in ('--config', 'x.ini'), ('-l', '0,999'), ('-l', 'x'):
        for words in (*usual, *wrong), (*wrong, *usual), (*wrong, *usual[1:]):
            out = says([RECV, *words, '--', '--set', 'run.name=x'], 2,
                       "options of braggline-recv come after '--'", never=('huge pages',))
            want(out.splitlines()[-1].startswith(
                'braggline-recv: cannot start EAL: it rejects one of its options, see its message '
                'before the list'), 'the message is not the last line:', out)
    for program, own in PROGRAMS.items():
        says([program, *usual, '-l', 'x', '--', *own], 2, 'it rejects one of its options')
        says([program, *usual, '--in-memory', '--', *own], 2, '--in-memory and --no-huge exclude each other')
    says([RECV, *usual, '--vdev', 'net_none0', '--', '--set', 'run.name=x'], 1,
         'a device is missing or fails to start', 'check --vdev')


@case
def a_prefix_that_is_in_use(where):
    capture(where)
    words = command(where, 'run.idle_timeout_ms=none', replay=',loops=0,rate=1000')
    with running(where, words) as process:
        wait('the first receiver', lambda: os.path.exists(f'{where}/out'), SECONDS)
        for program, own in PROGRAMS.items():
            says([program, '--no-huge', '-m', '64', '--no-pci', '--file-prefix', PREFIX, '--', *own], 1,
                 'another process uses this --file-prefix', '--file-prefix '
                 f'{os.path.basename(program)}2')
        for kind in 'secondary', 'auto':
            says(command(where, eal=('--proc-type', kind)), 1, 'remove --proc-type',
                 never=('--file-prefix braggline-recv2',))
        process.send_signal(signal.SIGTERM)
        want(process.wait(SECONDS) == 0, 'the first one was disturbed', process.returncode)


@case
def a_runtime_folder_that_cannot_be_made(where):
    """EAL itself reports only 'Invalid argument'."""
    if os.geteuid() != 0:
        raise Skipped('only root may become another user')
    os.chmod(where, 0o755)
    other = ['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups', 'env',
             f'XDG_RUNTIME_DIR={where}']
    if subprocess.run([*other, 'test', '-x', RECV], check=False).returncode != 0:
        raise Skipped('another user cannot run the programs where they are')
    words = [*other, RECV, '--no-huge', '-m', '64', '--no-pci', '--file-prefix', PREFIX, '--', '--set',
             'run.name=x']
    says(words, 1, f'runtime folder {where} is not usable: Permission denied',
         'set XDG_RUNTIME_DIR to a folder of this user')
    # the directory exists if root has run with this prefix
    os.makedirs(f'{where}/dpdk/{PREFIX}', 0o755)
    says(words, 1, f'runtime folder {where}/dpdk')


@case
def a_runtime_folder_that_others_may_write_to(where):
    """EAL would create its telemetry socket in it."""
    capture(where)
    prefix = f'{PREFIX}_others'
    folder = background.eal_folder(prefix)
    os.makedirs(folder, 0o700)
    os.chmod(folder, 0o777)
    out = says(command(where, prefix=prefix), 1, f'{folder}: mode is 0777, other users may write')
    want(not os.path.exists(f'{where}/out'), 'it goes on:', out)


@case
def a_configuration_that_is_a_fifo(where):
    """Neither program waits for a writer."""
    os.mkfifo(f'{where}/fifo')
    for program in RECV, STORE:
        says([program, '--no-huge', '-m', '64', '--no-pci', '--file-prefix', PREFIX, '-l', '0', '--',
              '--config', f'{where}/fifo'], 2, f'cannot read {where}/fifo: it is not a regular file')


@case
def a_link_in_place_of_what_is_written(where):
    """The target of the link is not changed."""
    victim, name = f'{where}/victim', f'{where}/name.png'
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
    # neither program waits for the writer of a FIFO in place of an input file
    os.mkfifo(f'{where}/fifo')
    says([SCAN, '--truth', f'{where}/fifo', found], 1, f'{where}/fifo: it is not a regular file')


def store_words(where):
    """Command line of a store that receiver `recv` may use, with its key."""
    with open(f'{where}/key', 'wb') as f:
        f.write(os.urandom(64))
    with open(f'{where}/keys.ini', 'w', encoding='ascii') as f:
        f.write('[receiver recv]\nkey = key\nreceiver_ids = 0\n')
    os.chmod(f'{where}/key', 0o600)
    os.chmod(f'{where}/keys.ini', 0o600)
    return [STORE, '--no-huge', '-m', '256', '--no-pci', '--file-prefix', f'{PREFIX}_store', '-l', '0', '--vdev',
            f'net_memif0,role=server,socket={where}/store.sock,socket-abstract=no', '--',
            '-s', 'store.device=roce:port=net_memif0,ip=10.0.0.2/24',
            '-s', f'store.keys={where}/keys.ini',
            '-s', f'files.directory={where}/data', '-s', 'store.memory_mib=64']


@case
def the_socket_of_a_store_that_was_killed(where):
    """The memif example of the store's README, restarted after kill -9."""
    words = store_words(where)
    for again in False, True:
        with running(where, words) as process:
            try:
                wait('the store', lambda: process.poll() is not None or
                     'listening on' in open(f'{where}/log', encoding='utf-8').read(), SECONDS)
                out = open(f'{where}/log', encoding='utf-8').read()
                want('listening on' in out, out)
                want(('no process listens on it' in out) == again, out)
            finally:
                process.kill()
    want(os.path.exists(f'{where}/store.sock'), 'nothing was left to find')
    # a socket of another user, or in use, is not removed
    if os.geteuid() == 0:
        os.chown(f'{where}/store.sock', 65534, 65534)
        says(words, 1, f'{where}/store.sock: no process listens on this socket, and its owner is user '
             '65534', 'remove it')
    os.remove(f'{where}/store.sock')
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as other:
        other.bind(f'{where}/store.sock')
        other.listen()
        says(words, 1, f'{where}/store.sock: another process listens on this socket')
    want(os.path.exists(f'{where}/store.sock'), 'the socket of another process was removed')
    # a file that is not a socket is neither reported nor removed
    os.remove(f'{where}/store.sock')
    with open(f'{where}/store.sock', 'w', encoding='ascii') as f:
        f.write('mine')
    says(words, 1, 'store.sock', never=('no process listens',))
    want(os.path.getsize(f'{where}/store.sock') == 4, 'the file was removed')


@case
def a_gpu_that_a_store_does_not_have(where):
    says([*store_words(where), '-s', 'store.bodies=gpu:7'], 1,
         '[store] bodies: no GPU 7; create it with --vdev')


@case
def no_huge_pages(where):
    free = [f'/sys/kernel/mm/hugepages/{size}/free_hugepages'
            for size in os.listdir('/sys/kernel/mm/hugepages')]
    hidden, line = [], 'no free huge pages; use --no-huge'
    if any(int(open(path, encoding='ascii').read()) for path in free):
        line = 'huge pages are free, but hugetlbfs is not mounted; use --no-huge'
        if ' hugetlbfs ' in open('/proc/mounts', encoding='utf-8').read():
            hidden = ['unshare', '-m', 'sh', '-c', 'umount -a -t hugetlbfs && exec "$@"', 'sh']
            if subprocess.run([*hidden, 'true'], check=False, stderr=subprocess.DEVNULL).returncode != 0:
                raise Skipped('cannot unmount hugetlbfs in a mount namespace')
    for program, own in PROGRAMS.items():
        says([*hidden, program, '--no-pci', '--file-prefix', PREFIX, '--', *own], 1, line)


@case
def more_memory_than_huge_pages(where):
    """They are the limit, not the memory of the host."""
    mounted = ['unshare', '-m', 'sh', '-c', f'mount -t hugetlbfs none {where} && exec "$@"', 'sh']
    if subprocess.run([*mounted, 'true'], check=False, stderr=subprocess.DEVNULL).returncode != 0:
        raise Skipped('cannot mount hugetlbfs in a mount namespace')
    with open('/proc/meminfo', encoding='ascii') as f:
        pages = {key: int(value.split()[0]) for key, value in (line.split(':') for line in f)}
    if pages['HugePages_Free'] == 0:
        raise Skipped('free huge pages')
    says([*mounted, RECV, '--no-pci', '--file-prefix', PREFIX, '--huge-dir', where, '-m',
          str(pages['HugePages_Total'] * pages['Hugepagesize'] // 1024 + 100), '--', '--set', 'run.name=x'], 1,
         'cannot start EAL: Cannot allocate memory; request no more than the free huge pages: -m MIB')


@case
def a_terminal_that_is_closed(where):
    """SIGHUP ends a run as SIGTERM does; under nohup it is ignored."""
    capture(where)
    words = command(where, 'run.idle_timeout_ms=none', replay=',loops=0,rate=10000')
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
def captures_that_were_joined_with_cat(where):
    path = capture(where, frames=2)
    rewrite(path, lambda data: data + data)
    says(command(where), 1, 'record 257 is the header of another capture: join captures with mergecap')


@case
def a_capture_of_any_interface(where):
    """tcpdump -i any writes another link type."""
    for link, name in (113, 'LINUX_SLL'), (276, 'LINUX_SLL2'):
        path = capture(where, frames=1)
        rewrite(path, lambda data, link=link: data[:20] + struct.pack('<I', link) + data[24:])
        says(command(where), 1, f"link type {link} ({name}), expected Ethernet (1); capture on the detector's "
             'interface, not on any (-i INTERFACE)')


@case
def a_capture_that_ends_in_zeros(where):
    """Power loss leaves room that was not written."""
    path = capture(where)
    with open(path, 'r+b') as f:
        f.seek(24 + 100 * (16 + 8282))
        zeros = os.path.getsize(path) - f.tell() - 3
        f.write(bytes(zeros))
        f.truncate()
    says(command(where), 0, f'{zeros // 16} records are empty and not used, the first is record 101; the file is '
         'probably damaged from there', f'ends within record {100 + zeros // 16 + 1}: 100 records before it are used')


@case
def a_file_that_is_no_capture(where):
    capture(where)
    with open(f'{where}/in.pcap', 'wb') as f:
        f.write(b'no capture' * 100)
    says(command(where), 1, 'unknown file format', 'net_replay0 could not be created, see above',
         never=('create a virtual device',))
    capture(where, frames=1)
    rewrite(f'{where}/in.pcap', gzip.compress)
    says(command(where), 1, 'unknown file format; it is compressed with gzip: decompress it with gunzip')


def rewrite(path, change):
    with open(path, 'rb') as f:
        data = change(f.read())
    with open(path, 'wb') as f:
        f.write(data)


def says_twice(where, status, line, check, *settings):
    """The message appears in a run, and as a row with this verdict in --check."""
    says([*command(where, *settings), '--check'], 1 if check == 'FAIL' else 0, check, line)
    says(command(where, *settings), status, line)


@case
def a_mask_of_int32(where):
    capture(where)
    rewrite(f'{where}/mask_m0.bin', lambda data: bytes(b for x in data for b in (x, 0, 0, 0)))
    says_twice(where, 1, 'mask_m0.bin has 2097152 bytes, expected 524288: [1][512][1024] values '
               'of 1 byte (int32 values? Convert them to uint8)', 'FAIL')


@case
def a_pedestal_file_of_two_maps(where):
    capture(where)
    rewrite(f'{where}/pedestal_g0_m0.bin', lambda data: 2 * data)
    says_twice(where, 1, 'pedestal_g0_m0.bin has 4194304 bytes, expected 2097152', 'FAIL')


@case
def a_gain_file_of_six_maps(where):
    """PSI's gain file with HG0, HG1 and HG2 is accepted only with an explicit setting."""
    capture(where)
    rewrite(f'{where}/gain_m0.bin', lambda data: 2 * data)
    says_twice(where, 1, 'gain_m0.bin has 25165824 bytes, expected 12582912: [3][512][1024] values '
               'of 8 bytes (6 maps, with HG0, HG1 and HG2? Set [calibration] gain_maps = 6)', 'FAIL')
    says(command(where, 'calibration.gain_maps=6'), 0, never=('calibration: ',))
    rewrite(f'{where}/gain_m0.bin', lambda data: data[:len(data) // 4])
    says_twice(where, 1, 'values of 8 bytes (float32 values? Convert them to double)', 'FAIL', 'run.name=float')


@case
def a_gain_stage_without_pedestals(where):
    """It is named in the log, in the summary, in --check and in the files; a dark run needs none."""
    capture(where, '--dark-run', 'g0', frames=130)
    for g0, line in (
            (f'{where}/pedestal_g0_m%d.bin', 'no pedestal files of G1, G2: photon values of pixels in these gain stages '
             'include the dark level; set [calibration] pedestal_g1, pedestal_g2'),
            ('none', 'no pedestal files of G0, G1, G2: ')):
        unset = f'calibration.pedestal_g0={g0}', 'calibration.pedestal_g1=none', 'calibration.pedestal_g2=none'
        says_twice(where, 0, line, 'warn', *unset, f'run.name=data{len(line)}')
        with open(f'{where}/out/data{len(line)}_frames.arrow', 'rb') as f:
            want(line.encode() in f.read(16384), 'not in the file')
    says(command(where, *unset, 'run.name=one', 'calibration.pedestal_g0=' + f'{where}/pedestal_g0_m0.bin',
                 f'calibration.pedestal_g2={where}/pedestal_g2_m0.bin'), 0,
         'calibration\n  1 warning, the first: no pedestal file of G1: photon values of pixels in this gain stage include')
    for check in ('--check',), ():
        says([*command(where, *unset, 'run.name=dark', 'run.type=dark', 'calibration.gain=none'), *check], 0,
             never=('dark level', 'photon values'))


@case
def an_inverted_mask(where):
    """Reported in the log and in --check, and for each module in the files."""
    capture(where)
    rewrite(f'{where}/mask_m0.bin', lambda data: bytes(not x for x in data))
    with open(f'{where}/mask_m0.bin', 'rb') as f:
        live = f.read().count(0)
    line = f'module 0: only {live} of 524288 pixels are usable in G0; check that 0 means'
    says_twice(where, 0, line, 'warn')
    for table in 'frames', 'images':
        with open(f'{where}/out/run_{table}.arrow', 'rb') as f:
            head = f.read(16384)
        want(line.encode() in head, table, 'does not have the warning')
        at = head.index(b'braggline.calibration_live_pixels')
        want(str(live).encode() in head[at:at + 64], table, head[at:at + 64])


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
         'dark run run: requires at least 128 frames of each gain stage',
         'module 0 has 20 complete frames in G0, expected at least 128',
         'dark run run: frames with at least one complete module: G0 20, G1 0, G2 0; expected at least 128 complete '
         'frames of each module in a gain stage; the log names the maps that are not written')
    want(not [f for f in os.listdir(f'{where}/out') if 'pedestal' in f], os.listdir(f'{where}/out'))


@case
def a_dark_run_of_some_rows(where):
    """Only the rows that are read out count: in the dark run, and for its maps in the next run."""
    capture(where, '--rows', '64', '--dark-run', 'g0', frames=150)
    out = says(command(where, 'run.type=dark', 'run.name=dark', 'detector.rows=64', 'output.calibration=no'), 0,
               never=('check that the beam was off',))
    found = re.search(r'G0 150 frames, (\d+) of 65536 pixels read out masked; G1 0 frames; G2 0 frames;', out)
    want(found and int(found[1]) < 1000, out)
    want(re.search(r'dark frames +150 +100.00 %  kept for the pedestals', out) and ' hits ' not in out, out)
    with open(f'{where}/out/dark_ledger.ini', encoding='ascii') as f:
        ledger = f.read()
    want('hits = 0\n' in ledger and 'dry_run = 150\n' in ledger, ledger)
    want(f'{where}/out/dark_preview.png\n' + ''.join(
        f'  {where}/out/dark_{name}_m0.bin\n' for name in ('pedestal_g0', 'rms_g0', 'dark_mask')) +
        f'  {where}/out/dark_ledger.ini\n' in out, 'its maps are not in the list of files:', out)
    # the maps stay, also when the other files of the run are elsewhere
    for table in 'frames', 'images':
        os.rename(f'{where}/out/dark_{table}.arrow', f'{where}/archived_{table}.arrow')
    for check in ('--check',), ():
        says([*command(where, 'run.type=dark', 'run.name=dark', 'detector.rows=64', 'output.calibration=no'), *check], 1,
             '/out/dark_pedestal_g0_m0.bin already exists')
    out = says([SCAN, f'{where}/archived_frames.arrow'], 0, 'dark, kept       150        100.00 %',
               never=('hit, kept', 'hit rate'))
    maps = [f'calibration.{key}={where}/out/dark_{name}_m%d.bin'
            for key, name in (('pedestal_g0', 'pedestal_g0'), ('mask', 'dark_mask'))]
    capture(where, '--rows', '64')
    for check in ('--check',), ():
        says([*command(where, 'detector.rows=64', *maps), *check], 0, never=('pixels are usable in G0',
                                                                             'usable in G0; check'))
    # all rows, with maps of 64 rows
    capture(where)
    says(command(where, 'run.name=all', *maps), 0, 'module 0: only 65')


@case
def a_dark_run_with_beam(where):
    capture(where, '--rows', '64', '--background', '1', frames=150)
    line = (r'dark run: \d+ of 65536 pixels read out are masked in G0, \d+ of them for noise above 100 ADU, '
            r'\d+ for samples of another gain stage; check that the beam was off, and the gain mode')
    out = says(command(where, 'run.type=dark', 'detector.rows=64', 'output.calibration=no'), 0)
    want(re.search('recv: ' + line, out) or re.search('run: ' + line, out), out)
    want(re.search(r'^warning\n  ' + line, out, re.M), 'not in the summary:', out)


def with_status(packet, status):
    """The packet with these bits of the detector's status."""
    return packet[:82] + struct.pack('<I', struct.unpack_from('<I', packet, 82)[0] | status) + packet[86:]


# Frames of another status: its bits, those of module 1, the setting, the message
STATUS = (
    (0x300, 0x300, 'detector.storage_cell=2', r'40 of 40 frames have storage cell 3, expected \[detector\] '
     r'storage_cell = 2; set storage_cell = 3 or any, or'),
    (0x1000, 0x1000, 'detector.gain_mode=dynamic', r'40 of 40 frames have gain mode g1, expected \[detector\] '
     r'gain_mode = dynamic; set gain_mode = g1 or any, or'),
    (0, 0x2000, 'detector.gain_mode=any', r'40 of 40 frames have modules of different gain modes: module 1 '
     r'has gain mode g2, the first module has dynamic; set up'),
)


@case
def a_detector_of_another_mode(where):
    whole = capture(where, '--rows', '64', '--modules', '2', frames=40)
    with open(whole, 'rb') as f:
        data = f.read()
    for number, (first, second, setting, line) in enumerate(STATUS):
        with open(whole, 'wb') as f:
            f.write(data)
        rewrite_packets(whole, lambda p, first=first, second=second: with_status(
            p[:40] + bytes(2) + p[42:], second if p[36:38] == b'\xc3\x52' else first))
        out = says(command(where, f'run.name=n{number}', 'detector.rows=64', 'detector.modules=2', setting), 0)
        want(len(re.findall(r'recv: .*of \d+ frames have', out)) == 1 and
             re.search(r'^warning\n  ' + line, out, re.M), f'"{line}" is not in:', out)


def with_number(packet, frame, bunch):
    return packet[:42] + struct.pack('<Q', frame) + packet[50:58] + struct.pack('<Q', bunch) + packet[66:]


@case
def modules_whose_numbers_are_shifted(where):
    """A module counts 3 triggers more than the other: the bunch ids tell, also in the files."""
    whole = capture(where, '--rows', '64', '--modules', '2', frames=40)
    rewrite_packets(whole, lambda p: p[:40] + bytes(2) + (with_number(
        p, frame_of(p) + 3, 10000000 + frame_of(p)) if p[36:38] == b'\xc3\x52' else p)[42:])
    settings = 'detector.rows=64', 'detector.modules=2', 'veto.dry_run=yes'
    line = (r'37 of 43 frames have modules of different bunch ids, the last one is frame 40: module 0 has bunch id '
            r'\d+, module 1 has \d+; their images may mix exposures\. Set the same next frame number')
    out = says(command(where, 'run.name=same', *settings), 0)
    want(re.search(r'^warning\n  ' + line, out, re.M), f'"{line}" is not in:', out)
    want(len(re.findall(r'recv: .* bunch ids', out)) == 1, out)
    files = f'{where}/out/same_frames.arrow', f'{where}/out/same_images.arrow'
    says([SCAN, *files], 0, '37 frames whose modules disagree on the bunch id: their images may mix exposures')
    says(command(where, 'run.name=any', *settings, 'detector.bunch_id=any'), 0, never=('bunch id',))


@case
def exchanged_gains(where):
    capture(where)
    size = 512 * 1024 * 8
    rewrite(f'{where}/gain_m0.bin', lambda data: data[:size] + data[2 * size:] + data[size:2 * size])
    says_twice(where, 0, 'are G1 and G2 exchanged in the gain file?', 'warn')


# Packets that no stream accepts: the change to each packet, and the expected message.
UNUSABLE = {
    'VLAN tag': (lambda p: p[:12] + b'\x81\x00\x00\x05' + p[12:],
                 'have VLAN tag 5 (10.1.1.1:32410 to 10.1.2.1:50001, UDP length 8248), expected none'),
    'priority tag': (lambda p: p[:12] + b'\x81\x00\x60\x00' + p[12:],
                     'have a priority tag (VLAN 0) (10.1.1.1:32410 to 10.1.2.1:50001, UDP length 8248), expected '
                     'none; disable priority tags (802.1p)'),
    'IP options': (lambda p: with_ip(p, b'\x46' + p[15:34] + b'\x01\x01\x01\x00', p[34:]),
                   'have IPv4 options (10.1.1.1:32410 to 10.1.2.1:50001, UDP length 8248)'),
    'fragments': (lambda p: with_ip(p, p[14:20] + b'\x20\x00' + p[22:34], p[34:]),
                  'are IPv4 fragments (10.1.1.1 to 10.1.2.1, IPv4 length 8268)'),
    'IP checksum': (lambda p: p[:24] + bytes((p[24] ^ 1,)) + p[25:],
                    'have a wrong IPv4 header checksum (10.1.1.1:32410'),
    'UDP checksum': (lambda p: p[:40] + b'\x12\x34' + p[42:],
                     'have a wrong UDP checksum (10.1.1.1:32410'),
    'other length': (lambda p: with_ip(p, p[14:34], p[34:38] + struct.pack('>H', 4104) + p[40:4138]),
                     'have length (10.1.1.1:32410 to 10.1.2.1:50001, UDP length 4104), '
                     'expected 8248 of a jungfrau; set [detector] type'),
    'snapshot length': (lambda p: p[:1500], 'are truncated (10.1.1.1:32410 to 10.1.2.1:50001, UDP '
                        'length 8248): 1500 bytes are present; capture with a larger snapshot length'),
    'other detector': (lambda p: p[:88] + b'\x01' + p[89:], 'have no header of a jungfrau (10.1.1.1'),
}


@case
def packets_that_no_stream_can_use(where):
    """Each change has its own run of 1.5 s, in which no packet is accepted."""
    whole = capture(where, frames=4)
    with open(whole, 'rb') as f:
        data = f.read()
    for number, (what, (change, line)) in enumerate(UNUSABLE.items()):
        with open(whole, 'wb') as f:
            f.write(data)
        rewrite_packets(whole, change)
        out = says(command(where, f'run.name=n{number}'), 1,
                   f'recv: none of 512 packets is usable: 512 {line}',
                   f'run n{number}: none of the received packets was usable')
        want(out.count(line) == 2, what, 'once in the log, once in the summary:', out)


# A detector that differs from the receiver's settings: its options, the settings, the message.
SET_UP = (
    ((), ('detector.rows=256',), '768 of 1536 packets are not usable; N of N samples of them have packet '
     'numbers from 0 to 127, expected 32 to 95; set [detector] rows = 512'),
    (('--rows', '256'), (), 'none of 12 frames is complete: stream 0 sends packets 32 to 95, expected '
     '0 to 127; set [detector] rows = 256'),
    ((), ('detector.interfaces=2',), 'have packet numbers from 64 to 127, expected 0 to 63; set '
     '[detector] interfaces = 1'),
    (('--interfaces', '2'), (), 'set [detector] interfaces = 2'),
    (('--modules', '2'), (), '1536 of 3072 packets are not usable; N of N samples of them are sent to UDP port '
     '50002 (10.1.1.2:32410 to 10.1.2.1:50002, UDP length 8248), expected 50001; set [detector] modules'
     ' = 2'),
)


@case
def a_detector_that_is_set_up_otherwise(where):
    """The receiver keeps what it can use, reports the rest, and repeats this in a line of the
    summary."""
    for number, (options, settings, line) in enumerate(SET_UP):
        capture(where, *options, frames=12)
        # all frames are closed at the end, some long before
        line = line.replace('none of 12 frames', '')
        out = says(command(where, f'run.name=n{number}', 'frames.stream_timeout_ms=100', *settings), 0)
        want(len(re.findall(pattern(line), out)) == 2 and '\nwarning\n' in out,
             f'not "{line}" once in the log and the summary:', out)


def port_of(packet):
    return struct.unpack_from('>H', packet, 36)[0]


@case
def modules_beyond_those_set(where):
    """Their ports are named, even if their share is small, and all of them in the summary."""
    small = 'detector.rows=64', 'gpu.outputs=4', 'frames.slots=32'
    capture(where, '--rows', '64', '--modules', '18', frames=10)
    out = says(command(where, 'run.name=last', *small, 'detector.modules=17'), 0)
    line = ("160 of 2880 packets have the length of the detector's and are sent to UDP port 50018 (10.1.1.18:32410 to "
            '10.1.2.1:50018, UDP length 8248), expected 50001 to 50017; set [detector] modules = 18\n')
    want(out.count(line) == 2 and '\nwarning\n' in out, f'not "{line}" twice:', out)
    says(command(where, 'run.name=many', *small, 'detector.modules=10'), 0,
         'are sent to UDP port 50011 to 50018 (10.1.1.', '; set [detector] modules = 18\n')
    # fewer than these may be another host's
    capture(where, '--rows', '64', '--modules', '2', frames=10)
    rewrite_packets(f'{where}/in.pcap', lambda p: p if p[37] == 0x51 or packet_of(p) < 62 else b'')
    says(command(where, 'run.name=few', *small, 'detector.modules=1'), 0, never=('\nwarning\n',))


@case
def exchanged_interfaces(where):
    """With few rows, the two interfaces of a module send different packet numbers."""
    for number, (modules, first, line) in enumerate((
            (1, 50001, 'recv: none of 320 packets is usable: 320 have packet numbers from 0 to 7 in stream 0, '
             'expected 56 to 63; streams 0 and 1 look swapped: swap their cables or ports\n'),
            (2, 50003, ' samples of them have packet numbers from 0 to 7 in stream 2, expected '
             '56 to 63; streams 2 and 3 look swapped: swap their cables or ports\n'))):
        capture(where, '--rows', '64', '--interfaces', '2', '--modules', str(modules), frames=20)
        ports = {first: first + 1, first + 1: first}
        rewrite_packets(f'{where}/in.pcap', lambda p, ports=ports: p[:36] + struct.pack(
            '>H', ports.get(port_of(p), port_of(p))) + p[38:])
        says(command(where, f'run.name=n{number}', 'detector.rows=64', 'detector.interfaces=2',
                     f'detector.modules={modules}'), int(modules == 1), line)
    # all rows are read out: numbers of each stream are out of range on one side
    capture(where, '--interfaces', '2', frames=10)
    says(command(where, 'run.name=rows', 'detector.rows=64', 'detector.interfaces=2'), 0,
         'have packet numbers from 0 to 55 in stream 0, expected 56 to 63; set [detector] rows = 512\n')


def sizes_of_a_journal(where, words):
    """One that is too small is not created; an existing one keeps its size, and the line says so."""
    journal = f'/dev/shm/{PREFIX}size'
    words = [*words, '--set', f'egress.journal={journal}', '--set', 'run.idle_timeout_ms=100', '--set', 'egress.end_ms=100']
    try:
        for check in ('--check',), ():
            says([*words, '--set', 'egress.journal_mib=16', *check], 1 if check else 2, '16 MiB' if check else
                 f'journal {journal} is not created: [egress] journal_mib = 16 is too small; required: 49 MiB')
            want(not os.path.exists(journal), 'it was created')
        for size, rate, line in (
                (64, 10, 'journal has 64 MiB, required: 49 MiB'),
                (128, 10, f'journal {journal} has 64 MiB: an existing file keeps its size, so [egress] journal_mib = 128 '
                 'has no effect; to change the size, remove the file after'),
                (128, 100, f'journal {journal} has 64 MiB, which is too small; required: 4')):
            out = says([*words, '--set', f'egress.journal_mib={size}', '--set', f'egress.rate_mb_per_s={rate}',
                        '--set', f'run.name=size{size}{rate}'], 2 if rate == 100 else 1, line)
            want(('has no effect' in out) == (size > 64), out)
            want(rate < 100 or 'journal_mib = 128 has no effect; lower rate_mb_per_s until stores have its batches' in out,
                 out)
        says([*words, '--set', 'output.receiver_id=5'], 2, f'journal {journal} belongs to receiver 0, expected 5 ([output] receiver_id)')
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(journal)


@case
def a_store_that_cannot_be_used(where):
    """It has another key for this receiver, or another port: the line says what to check."""
    capture(where, '--rows', '64', frames=20)
    with open(f'{where}/other', 'wb') as f:
        f.write(os.urandom(64))
    os.chmod(f'{where}/other', 0o600)
    memif = f'net_memif0,role=client,socket={where}/store.sock,socket-abstract=no'
    words = command(where, 'detector.rows=64', 'egress.identity=recv', 'egress.stores=10.0.0.2',
                    'egress.device=roce:port=net_memif0,ip=10.0.0.1/24', f'egress.key={where}/other',
                    f'egress.journal=/dev/shm/{PREFIX}', 'egress.journal_mib=64', 'egress.batch_mib=4',
                    'egress.rate_mb_per_s=10', eal=('--vdev', memif))
    for check in (), ('--check',):
        try:
            says([*words, *check], 1, f'no process listens on {where}/store.sock; start the')
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.remove(f'/dev/shm/{PREFIX}')
    with running(where, store_words(where)) as process:
        wait('the store', lambda: process.poll() is not None or log_has(where, 'listening on'), SECONDS)
        sizes_of_a_journal(where, words)
        for name, key, store in ('a', 'other', '10.0.0.2'), ('b', 'key', '10.0.0.2:18000'):
            words = command(where, f'run.name={name}', 'detector.rows=64', 'egress.identity=recv',
                            'egress.device=roce:port=net_memif0,ip=10.0.0.1/24', f'egress.stores={store}',
                            f'egress.key={where}/{key}', f'egress.journal=/dev/shm/{PREFIX}{name}',
                            'egress.journal_mib=64', 'egress.batch_mib=4', 'egress.rate_mb_per_s=10',
                            'egress.end_ms=3000', eal=('--vdev', memif))
            words[words.index('--lcores') + 1] = f'(0-4)@(0-{os.cpu_count() - 1})'
            try:
                out = says(words, 1, 'recv: run', never=('  stores: ',))
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.remove(f'/dev/shm/{PREFIX}{name}')
            for table in 'frames', 'images':
                want(re.search(f'^  journal /dev/shm/{PREFIX}{name}: {table} of {name}, [0-9]+ batch(es)? that no store '
                               'has yet$', out, re.M), out)
            if name == 'a':
                want('xfer: store 10.0.0.2: it does not know identity recv, or has another key for it; check '
                     f"[egress] identity and key = {where}/other, and [receiver recv] of the store's keyring\n" in out, out)
                want(out.count('closing the connection: key') <= 3, 'a line for each attempt:', out)
                want('no connection for' not in out, 'says that the store may not run:', out)
            else:
                want(re.search(r'store 10.0.0.2:18000: no connection for 1\d\d\d ms: no store listens at this address '
                               r'and port; .* Check \[egress\] stores', out) and 'last failure: no store listens' in out, out)


@case
def fewer_frames_than_requested(where):
    """The detector stops early, or its last frames are lost: they are named."""
    capture(where, '--rows', '64', frames=18)
    for name, settings, line in (
            ('a', ('run.frames=20',), 'frames 19 to 20 did not arrive'),
            ('b', ('run.frames=10', 'run.stride=2'), 'frame 20 did not arrive'),
            ('c', ('run.frames=18',), None)):
        out = says(command(where, f'run.name={name}', 'detector.rows=64', 'run.first_frame=1', *settings), 0)
        want(out.count(line) == 2 and '\nwarning\n  [run] frames = ' in out if line else 'did not arrive' not in out, out)


def with_frame(packet, frame):
    """The packet with another frame number; its UDP checksum is 0, not computed."""
    return packet[:42] + struct.pack('<Q', frame) + packet[50:]


def frame_of(packet):
    return struct.unpack_from('<Q', packet, 42)[0]


# Frame numbers that a run cannot use: the number for each frame of the detector, settings, the exit
# status, the message.
NUMBERS = (
    (lambda n: 1 + n % 4, (), 0, r'recv: 576 of 640 packets were dropped because of their frame numbers '
     r'\([^)]*\): the last one has frame [1-4], which had been sent before. If the detector was restarted, '
     r'let it pause for 1.25 \[frames\] stream_timeout_ms = 1250 ms first, because numbers that are at '
     r'most max_skew_frames = 8 lower do not show a restart'),
    (lambda n: 7, (), 0, r'recv: 624 of 640 packets were dropped because of their frame numbers \([^)]*\): '
     'all packets have frame 7, expected numbers that count up; check the detector.s frame counter'),
    (lambda n: 2 ** 48 - 20 + n, (), 0, r'packets were dropped because of their frame numbers '
     r'\(\d+ outlier\): module 0 \(stream 0, UDP port 50001\) sent frame 281474976710676, expected at '
     'most 281474976710654; restart'),
    (lambda n: n, ('run.first_frame=1000',), 1, r'recv: 640 of 640 packets were dropped because of their '
     r'frame numbers \(640 late\): the last one has frame 40, expected at least \[run\] first_frame = 1000; '
     "set it to 'auto' or"),
)


@case
def frame_numbers_that_repeat_or_are_too_high(where):
    """Each line appears in the log and in the summary."""
    whole = capture(where, '--rows', '64', frames=40)
    with open(whole, 'rb') as f:
        data = f.read()
    for number, (change, settings, status, line) in enumerate(NUMBERS):
        with open(whole, 'wb') as f:
            f.write(data)
        rewrite_packets(whole, lambda p, change=change: with_frame(p, change(frame_of(p))))
        out = says(command(where, f'run.name=n{number}', 'detector.rows=64', *settings), status)
        want(len(re.findall(line.removeprefix('recv: '), out)) == 2, f'not "{line}" twice:', out)
        want(re.search(line if line.startswith('recv') else 'recv: .*' + line, out), 'log:', out)


@case
def a_silence_that_a_restart_ends(where):
    """Its last frame has a higher number than the frame that ends it."""
    capture(where, '--rows', '64', '--modules', '2', frames=60)
    path = f'{where}/in.pcap'
    with open(path, 'rb') as f:
        whole = f.read()
    rewrite_packets(path, lambda p: p if p[37] == 0x51 or frame_of(p) <= 20 else b'')
    with open(path, 'ab') as f:  # the same numbers, 1 s later
        at = 24
        while at < len(whole):
            seconds, part, size = struct.unpack_from('<III', whole, at)
            f.write(struct.pack('<II', seconds + 1, part) + whole[at + 8:at + 16 + size])
            at += 16 + size
    out = says(command(where, 'detector.rows=64', 'detector.modules=2', 'frames.stream_timeout_ms=200',
                       'run.idle_timeout_ms=1500', replay=',speed=1'), 0, 'frames: detector restarted')
    want(re.search(r'^  module 1 .* packets missing, .* %; silent from frame 21 to the restart of the detector$', out, re.M), out)


@case
def a_server_in_another_subnet(where):
    """Nothing is sent to it without a gateway, so the client does not wait for an answer."""
    with open(f'{where}/key', 'wb') as key:
        key.write(os.urandom(64))
    os.chmod(f'{where}/key', 0o600)
    says([SCAN, '--no-huge', '-m', '256', '--no-pci', '--file-prefix', PREFIX, '-l', '0', '--vdev', 'net_null0', '--',
          '--connect', '10.78.0.9', '--device', 'roce:port=net_null0,ip=10.77.0.1/24', '--identity', 'ana',
          '--key', f'{where}/key', '--sql', 'SELECT 1'], 1,
         'cannot connect: 10.78.0.9 is not in 10.77.0.1/24 of the device, and gateway= is not set')


@case
def a_fault_after_good_data(where):
    """The detector sends to another port after three seconds of data: 240 of 5,040 packets."""
    capture(where, '--rows', '64', frames=315)
    rewrite_packets(f'{where}/in.pcap', lambda p: p[:36] + struct.pack('>H', 50011) + p[38:]
                    if frame_of(p) > 300 else p)
    out = says(command(where, 'detector.rows=64', replay=',rate=1500'), 0)
    line = (r'240 of the last \d+ packets, in \d\.\d s after frame 300, are not usable; (\d+) of \1 samples of them '
            r'are sent to UDP port 50011 \(.*\), expected 50001; ')
    want(re.search('recv: ' + line, out) and len(re.findall(line, out)) == 2, out)


@case
def faults_of_several_kinds(where):
    """The most frequent cause need not be that of the majority of packets."""
    capture(where, '--rows', '64', frames=40)
    rewrite_packets(f'{where}/in.pcap', lambda p: (
        p[:36] + struct.pack('>H', 50011) + p[38:] if frame_of(p) % 5 == 1 else
        p[:12] + b'\x81\x00\x00\x05' + p[12:] if frame_of(p) % 5 == 2 else p))
    out = says(command(where, 'detector.rows=64'), 0)
    found = re.findall(r'packets are not usable; (\d+) of (\d+) samples of them ', out)
    want(len(found) == 2 and all(0 < int(few) < int(all_) for few, all_ in found), found, out)


@case
def a_module_that_sends_what_cannot_be_used(where):
    """It is not called silent: its packets are tagged, or have other numbers than the others."""
    whole = capture(where, '--rows', '64', '--modules', '3', frames=40)
    with open(whole, 'rb') as f:
        data = f.read()
    name = r'recv: module 1 \(stream 1, UDP port 50002\) has sent no usable packet since frame 21; '
    for number, (change, line) in enumerate((
            (lambda p: p[:12] + b'\x81\x00\x00\x05' + p[12:], 'its packets have a VLAN tag; check'),
            (lambda p: with_frame(p, frame_of(p) + 5000), 'its packets are dropped as outlier, the last one '
             'has frame 50[0-9]+ while the run is at frame [0-9]+; check the module'),
            (lambda p: p[:6] + b'\x02\x00\x00\x00\x09\x09' + p[12:], 'its packets are dropped as '
             r'foreign; the last one, from 10\.1\.1\.2 \(02:00:00:00:09:09\), has source MAC address '
             r'02:00:00:00:09:09, expected 02:00:00:00:01:01 as learnt; if the detector sends it, set \[detector\] source'))):
        with open(whole, 'wb') as f:
            f.write(data)
        rewrite_packets(whole, lambda p, change=change: change(p)
                        if p[36:38] == b'\xc3\x52' and frame_of(p) > 20 else p)
        out = says(command(where, f'run.name=n{number}', 'detector.modules=3', 'detector.rows=64',
                           'frames.stream_timeout_ms=200'), 0)
        want(re.search(name + line, out), f'does not say "{line}":', out)
        want('has sent nothing' not in out, out)
    # none of its packets was ever accepted
    with open(whole, 'wb') as f:
        f.write(data)
    says(command(where, 'run.name=set', 'detector.modules=3', 'detector.rows=64', 'frames.stream_timeout_ms=200',
                 'detector.source=10.1.1.1,10.1.1.9,10.1.1.3'), 0,
         'recv: module 1 (stream 1, UDP port 50002) has sent no usable packet since frame 1; its packets are dropped as '
         'foreign; the last one, from 10.1.1.2 (02:00:00:00:01:01), has source address 10.1.1.2, expected 10.1.1.9; if '
         'the detector sends it, correct [detector] source', never=('than before',))


@case
def two_modules_on_one_port(where):
    """Neither of them is the right source, and [detector] source would drop one permanently."""
    capture(where, '--rows', '64', '--modules', '2', frames=20)
    rewrite_packets(f'{where}/in.pcap', lambda p: p[:36] + b'\xc3\x51' + p[38:])
    line = (r'stream 0: two modules send to its UDP port, 10.1.1.1 \(.*\) \(row 0, column 0\) and 10.1.1.2 '
            r'\(.*\) \(row 1, column 0\), expected one; set another destination port in one of them')
    out = says(command(where, 'detector.rows=64', 'detector.modules=2'), 1, never=('set [detector] source',))
    want(len(re.findall('source: ' + line, out)) == 1 and re.search(r'^warning\n  ' + line, out, re.M), out)


def packet_of(packet):
    return struct.unpack_from('<I', packet, 54)[0]


# What module 1 of two sends: the detector's rows, whether a packet of it is sent, the change to those that
# are, and the message. The settings fit module 0, so no setting is advised.
ODD = (
    (64, lambda n: 60 <= n < 68, None, 'frames is complete: {} sends packets 60 to 67, expected 56 to 71, unlike '
     'other modules; check the rows that are set in that module'),
    (64, lambda n: n != 71, None, 'frames is complete: packet 71 of {} is missing in all of them; check that module'),
    (128, lambda n: True, None, 'have packet numbers from 48 to 79, expected 56 to 71, and are from {}, unlike those '
     'of other modules; check the rows and interfaces that are set in that module'),
    (64, lambda n: True, UNUSABLE['other length'][0], 'UDP length 4104), expected 8248 of a jungfrau, and are from {}, '
     "unlike those of other modules; check that module's configuration"),
    (64, lambda n: True, lambda p: p[:89] + b'\1' + p[90:], ': detector type 3 and header version 1, expected 3 and '
     "2; they are from {}, unlike those of other modules: check that module's type and firmware"),
    (64, lambda n: True, lambda p: p[:40] + b'\x12\x34' + p[42:], 'UDP length 8248); check {} and the network'),
)


@case
def a_module_that_differs_from_the_others(where):
    """It is named; a setting that fits it would break the others."""
    name = 'module 1 (stream 1, UDP port 50002)'
    for number, (rows, is_sent, change, line) in enumerate(ODD):
        capture(where, '--rows', str(rows), '--modules', '2', frames=40)
        rewrite_packets(f'{where}/in.pcap', lambda p, is_sent=is_sent, change=change: (
            p if p[37] != 0x52 or not change else change(p)) if (
                56 <= packet_of(p) < 72 if p[37] != 0x52 else is_sent(packet_of(p))) else b'')
        out = says(command(where, f'run.name=n{number}', 'detector.modules=2', 'detector.rows=64',
                           'frames.stream_timeout_ms=200'), 0, 'recv: ')
        want(out.count(line.format(name)) == 2 and '\nwarning\n' in out, f'not "{line}" twice:', out)
        want('set [detector]' not in out, out)


@case
def an_absent_stream_that_sends(where):
    """The remedy is to correct that list."""
    capture(where, '--rows', '64', '--modules', '2', frames=40)
    out = says(command(where, 'detector.modules=2', 'detector.rows=64', 'detector.absent=1'), 0)
    line = ('640 of 1280 packets are not usable; N of N samples of them are from module 1 (stream 1, UDP port 50002), which '
            'sends, but is in [detector] absent; remove it from there\n')
    want(len(re.findall(pattern(line), out)) == 2, f'not "{line}" twice:', out)


@case
def two_short_acquisitions(where):
    """The second one repeats the numbers of the first without a pause: its three frames are lost."""
    capture(where, '--rows', '64', frames=6)
    rewrite_packets(f'{where}/in.pcap', lambda p: with_frame(p, 1 + (frame_of(p) - 1) % 3))
    says(command(where, 'detector.rows=64'), 0, '  48 of 96 packets were dropped because of their frame numbers (48 '
         'duplicate): the last one has frame 3, which had been sent before. If the detector was restarted, let it')


@case
def packets_that_wait(where):
    """A module whose numbers jump is not called silent while its packets are held."""
    capture(where, '--rows', '64', '--modules', '3', frames=200)
    rewrite_packets(f'{where}/in.pcap', lambda p: p if p[37] != 0x52 or frame_of(p) <= 20 else with_frame(
        p, frame_of(p) + 5000) if frame_of(p) == 21 else b'')
    says(command(where, 'detector.modules=3', 'detector.rows=64', replay=',rate=6000'), 0, 'recv: module 1 (stream 1, '
         'UDP port 50002) has sent no usable packet since frame 21; its packets wait, because their frames are not '
         "open yet; check the module's trigger and frame counter\n", never=('has sent nothing',))


@case
def a_first_frame_in_the_middle(where):
    """The packets before it are as expected; packets that are sent twice are not."""
    capture(where, '--rows', '64', frames=40)
    out = says(command(where, 'run.name=a', 'detector.rows=64', 'run.first_frame=20'), 0)
    want(re.search(r'^  late +304 +47.50 %', out, re.M), out)
    want('dropped because' not in out and '\nwarning\n' not in out, out)
    with open(f'{where}/in.pcap', 'rb') as f:
        data = f.read()
    rewrite(f'{where}/in.pcap', lambda data: data + data[24 + 34 * 16 * 8298:])
    out = says(command(where, 'run.name=b', 'detector.rows=64', 'run.first_frame=20'), 0)
    # they are duplicates as long as their frames are open
    want(re.search(r'^  96 of 432 packets were dropped because of their frame numbers '
                   r'\((\d+ (late|duplicate)(, | and |))+\)', out, re.M), out)
    rewrite(f'{where}/in.pcap', lambda _: data)
    # a user ends the run before its first frame
    words = command(where, 'run.name=c', 'run.idle_timeout_ms=none', 'detector.rows=64', 'run.first_frame=1000')
    with running(where, [*words, '--progress', '0.1']) as process:
        wait('packets', lambda: process.poll() is not None or log_has(where, '640 packets received'))
        process.send_signal(signal.SIGINT)
        want(process.wait(SECONDS) == 1 and log_has(where, 'expected at least [run] first_frame = 1000; set it'),
             process.returncode, open(f'{where}/log', encoding='utf-8').read())


@case
def a_last_frame_that_has_passed(where):
    """The run ends, also while the detector continues: its other frames will not come."""
    window = 'run.first_frame=1', 'run.frames=20', 'detector.rows=64', 'detector.modules=2'
    endless = ',loops=0,rate=20000,rewrite=42:8:le:100'
    capture(where, '--rows', '64', '--modules', '2', '--first-frame', '5000', frames=100)
    out = says(command(where, 'run.name=once', *window), 1)
    want(re.search("^run: run once: the detector is at frame 5099, the run's last frame is 20; set "
                   r"\[run\] first_frame to 'auto' or to a frame", out, re.M), out)
    out = says(command(where, 'run.name=on', *window, 'run.idle_timeout_ms=5000', replay=endless), 1)
    want(re.search(r"^run: run on ends: the detector is at frame \d+, the run's last frame is 20$", out, re.M), out)
    want(re.search(r'^run: run on: the detector is at frame \d+, .* set \[run\] first_frame', out, re.M), out)
    # stride 3: the receiver takes 2, 5, ... 29
    out = says(command(where, 'run.name=stride', 'run.first_frame=1', 'run.frames=10', 'run.stride=3', 'run.offset=2',
                       'detector.rows=64', 'detector.modules=2'), 1, "the run's last frame is 29; set [run] first_frame")
    # the last frames are lost; in the second case one of the modules is dead
    for first, lost in (('1', lambda p: 11 <= frame_of(p) <= 20),
                        ('auto', lambda p: frame_of(p) > 10 and (p[37] == 0x52 or frame_of(p) <= 20))):
        capture(where, '--rows', '64', '--modules', '2', frames=100)
        rewrite_packets(f'{where}/in.pcap', lambda p, lost=lost: b'' if lost(p) else p)
        says(command(where, f'run.name={first}', *window[1:], f'run.first_frame={first}',
                     'run.idle_timeout_ms=5000', replay=endless), 0, 'ends: the detector is at frame',
             'recv: [run] frames = 20, but the run has ended after 10: frames 11 to 20 did not arrive')


@case
def numbers_that_jump(where):
    """No module is named if all have them: neither the only one, nor one of two with the same
    fault."""
    capture(where, '--rows', '64', frames=60)
    rewrite_packets(f'{where}/in.pcap', lambda p: with_frame(p, frame_of(p) if frame_of(p) <= 30 else
                                                             (frame_of(p) + packet_of(p)) * 0x9e3779b1 % 2 ** 40))
    out = says(command(where, 'run.name=jump', 'detector.rows=64'), 0)
    want(re.search(r'packets were dropped because of their frame numbers \(\d+ outlier.*\): the last one has frame '
                   r'\d+ while the run is at frame \d+. If the detector was restarted, let it pause for 1.25 '
                   r'\[frames\] stream_timeout_ms = 1250 ms first; else check its frame counter', out), out)
    want('of module 0' not in out, out)
    # some damaged numbers are fewer than one packet in 16
    capture(where, '--rows', '64', '--modules', '2', '--fault', 'corrupt=0.05:frame', '--fault-seed', '7', frames=200)
    out = says(command(where, 'run.name=some', 'detector.rows=64', 'detector.modules=2'), 0,
               'too far ahead, or not a frame number (2^48 - 1 or more)', never=('of 0 packets',))
    want('dropped because' not in out, out)
    capture(where, '--rows', '64', '--modules', '2', '--fault', 'corrupt=0.2:frame', '--fault-seed', '7', frames=200)
    out = says(command(where, 'run.name=many', 'detector.rows=64', 'detector.modules=2'), 0, 'dropped because of',
               never=('of module ', '2^48 - 1; restart', 'expected at most 281474976710654'))


@case
def unusable_packets_until_the_end(where):
    """The summary has the numbers of the whole run."""
    capture(where, '--rows', '128', frames=400)
    out = says(command(where, 'detector.rows=64', replay=',rate=6000'), 0)
    line = ('  6400 of 12800 packets are not usable; N of N samples of them have packet numbers from 48 to 79, expected '
            '56 to 71; set [detector] rows = 128\n')
    want(re.search(pattern(line), out), f'does not say "{line}":', out)
    want(not re.search('^recv: 6400 of 12800', out, re.M), 'the line in the log is not an early one:', out)


# Settings that exclude the detector's packets, and what names the field that differs.
SENDERS = (
    ('source=10.1.1.2', 'source address 10.1.1.1, expected 10.1.1.2; if the detector sends it, correct '
     '[detector] source\n'),
    ('source=10.1.2.0/24', 'source address 10.1.1.1, expected 10.1.2.0/24; '),
    ('source=10.1.1.1:1234', 'source port 32410, expected 1234; if the detector sends it, correct [detector] '
     'source\n'),
    ('source_mac=02:00:00:00:09:09', 'source MAC address 02:00:00:00:01:00, expected 02:00:00:00:09:09; if the '
     'detector sends it, correct [detector] source_mac\n'),
    ('destination=10.1.2.2', 'destination address 10.1.2.1, expected 10.1.2.2; if the detector sends it, '
     'correct [detector] destination\n'),
)


@case
def a_sender_that_is_not_the_configured_one(where):
    """The line names the field, also in the summary. A run that a user ends fails, too.

    The count in the log depends on when the line is written, that of the summary does not.
    """
    capture(where, '--rows', '64', frames=4)
    begin = 'the last one{}, from 10.1.1.1 (02:00:00:00:01:00), has '
    for number, (setting, line) in enumerate(SENDERS):
        out = says(command(where, f'run.name=n{number}', 'detector.rows=64', f'detector.{setting}'), 1,
                   ' packets dropped as foreign; ' + begin.format('') + line,
                   '  64 of 64 packets were dropped as foreign; ' +
                   begin.format(' to module 0 (stream 0, UDP port 50001)') + line)
        want('\nwarning\n  64 of' in out, out)
    words = command(where, 'run.name=int', 'run.idle_timeout_ms=none', 'detector.rows=64',
                    'detector.source=10.1.1.2', replay=',loops=0,rate=10000')
    with running(where, words) as process:
        wait('a warning', lambda: process.poll() is not None or log_has(where, 'dropped as foreign'))
        process.send_signal(signal.SIGINT)
        want(process.wait(SECONDS) == 1, 'exit status', process.returncode)
        want(log_has(where, 'run int: none of the received packets was usable; its warnings say why') and
             log_has(where, '\nwarning\n'), open(f'{where}/log', encoding='utf-8').read())


@case
def modules_in_the_place_of_others(where):
    """The line about swapped cables is also in the summary."""
    capture(where, '--rows', '64', '--modules', '4', frames=20)
    rewrite_packets(f'{where}/in.pcap', lambda p: p[:37] + bytes((0x51 + {0x51: 1, 0x52: 0}.get(p[37], p[37] - 0x51),))
                    + p[38:])
    line = ('streams 0 and 1 look swapped: stream 0 announces row 1, column 0, expected row 0, column 0. Their '
            'packets are dropped as misplaced; swap the cables or ports, or set [detector] positions\n')
    out = says(command(where, 'detector.rows=64', 'detector.modules=4'), 0, 'source: ' + line)
    want(re.search(r'^warning\n  640 of 1280 packets were dropped as misplaced: ' + re.escape(line), out, re.M), out)
    out = says(command(where, 'run.name=set', 'detector.rows=64', 'detector.modules=4', 'detector.positions=4'), 0,
               line.replace('or set', 'or correct'), 'correct the cabling or [detector] positions',
               never=('set [detector] positions',))
    # the geometry has all modules in one column, but the detector does not
    capture(where, '--rows', '64', '--modules', '4', '--column-modules', '2', frames=20)
    words = ('detector.rows=64', 'detector.modules=4', 'geometry.beam_x=0', 'geometry.beam_y=0', 'geometry.distance_mm=80')
    line = 'packets announce 2 modules in a column, [geometry] column_modules is 4: '
    out = says(command(where, 'run.name=column', *words), 0, line, 'set column_modules = 2')
    want(re.search('^warning\n  ' + re.escape(line), out, re.M), out)
    says(command(where, 'run.name=right', *words, 'detector.positions=2'), 0, never=('packets announce',))
    # two modules on one port, with sources that are not checked
    capture(where, '--rows', '64', '--modules', '2', frames=20)
    rewrite_packets(f'{where}/in.pcap', lambda p: p[:37] + b'\x51' + p[38:])
    says(command(where, 'run.name=any', 'detector.rows=64', 'detector.source=any'), 0,
         'packets were dropped as misplaced: the position in the headers of a stream changes; check that one '
         'module sends to each UDP port')


@case
def panels_that_are_missing(where):
    """Peaks are not searched outside of panels, so a file that covers a part of the detector is reported."""
    capture(where, frames=4)
    with open(f'{where}/x.geom', 'w', encoding='ascii') as f:
        f.write('photon_energy = 12400\nclen = 0.1\nres = 13333.3\np/min_fs = 0\np/max_fs = 1023\np/min_ss = 0\n'
                'p/max_ss = 255\np/adu_per_photon = 1\np/corner_x = -512\np/corner_y = -32\np/fs = x\np/ss = y\n')
    words = (f'geometry.file={where}/x.geom', 'geometry.energy_kev=12.4', 'calibration.energy_kev=12.4')
    line = ('[geometry] 262144 of 524288 pixels are in no panel; peaks and radial profiles leave them out; add panels '
            'to the file')
    says(command(where, 'run.name=all', *words, 'peaks.search=all'), 0, line)
    says(command(where, 'run.name=none', *words), 0, never=('in no panel',))


def read_log(where):
    with open(f'{where}/log', encoding='utf-8') as f:
        return f.read()


def log_has(where, line):
    return line in read_log(where)


@case
def signals_while_a_run_waits_for_its_stores(where):
    """No store answers. The second signal after the line that says so ends the wait; what is not
    stored stays in the journal, for the next start."""
    memory = tempfile.TemporaryDirectory(dir='/dev/shm')  # removed with the object
    capture(where)
    with open(f'{where}/key', 'wb') as f:
        f.write(os.urandom(64))
    os.chmod(f'{where}/key', 0o600)
    words = command(where, 'veto.dry_run=yes', 'port 0.device=net_replay0', 'egress.stores=10.0.0.2',
                    'egress.device=roce:port=net_null1,ip=10.0.0.1/24', 'egress.identity=r',
                    f'egress.key={where}/key', f'egress.journal={memory.name}/journal', 'egress.journal_mib=512',
                    eal=('--vdev', 'net_null1'))
    words[words.index('-m') + 1] = '768'
    with running(where, words) as process:
        wait('a line', lambda: process.poll() is not None or log_has(
            where, ' s ([egress] end_ms) for stores to take '))
        process.send_signal(signal.SIGINT)
        wait('how to end the wait', lambda: process.poll() is not None or log_has(
            where, ' batches; a further SIGINT or SIGTERM ends the wait, and the next start sends'))
        want(process.poll() is None, 'it has ended', open(f'{where}/log', encoding='utf-8').read())
        begin = time.monotonic()
        process.send_signal(signal.SIGINT)
        status = process.wait(SECONDS)
        out = open(f'{where}/log', encoding='utf-8').read()
        want(status == 1 and time.monotonic() - begin < 30, status, time.monotonic() - begin, out)
        want('the rest stays in ' in out, out)
    # the next start sends them; the ledger of the run has been written
    with running(where, words) as process:
        wait('the batches', lambda: process.poll() is not None or log_has(where, ': resending '))
        wait('the wait', lambda: process.poll() is not None or log_has(where, ' for stores to take '))
        want(not log_has(where, 'was killed'), open(f'{where}/log', encoding='utf-8').read())


@case
def a_limit_of_file_sizes(where):
    """A write beyond it is an error like that to a full disk. The ledger counts what is not written."""
    capture(where)
    words = command(where, 'veto.dry_run=yes', 'output.format=image', 'output.preview=off',
                    'output.images_interval=2', replay=',loops=3,rewrite=42:8:le:20')
    out = says(['prlimit', f'--fsize={40 << 20}', *words], 1,
               ': File too large; raise the limit of file sizes (ulimit -f)\n')
    with open(f'{where}/out/run_ledger.ini', encoding='ascii') as f:
        ledger = f.read()
    want(re.search(r'^unwritten = [1-9]', ledger, re.M) and 'balanced = 1' in ledger, ledger, out)
    out = says([SCAN, f'{where}/out'], 1, 'NOTE               60 kept frames, but ')
    want(re.search(r'^ +[1-9]\d* of them are flagged as without image: it could not be written', out, re.M), out)


@case
def a_file_that_is_removed_while_it_is_written(where):
    """Its frames are not counted as stored."""
    capture(where)
    words = command(where, 'run.idle_timeout_ms=none', 'veto.dry_run=yes', 'output.sync_ms=10',
                    replay=',loops=0,rate=2000,rewrite=42:8:le:20')
    with running(where, words) as process:
        wait('images', lambda: os.path.exists(f'{where}/out/run_images.arrow.part') and
             os.stat(f'{where}/out/run_images.arrow.part').st_size > 1 << 20, SECONDS)
        time.sleep(1)  # some are durable
        os.remove(f'{where}/out/run_images.arrow.part')
        process.send_signal(signal.SIGTERM)
        want(process.wait(SECONDS) == 1, 'exit status', process.returncode)
        want(log_has(where, 'run_images.arrow.part at byte ') and log_has(
            where, '; it or its directory was removed or renamed; its rows count as unwritten'),
             open(f'{where}/log', encoding='utf-8').read())
    with open(f'{where}/out/run_ledger.ini', encoding='ascii') as f:
        ledger = f.read()
    want(re.search(r'^stored = 0$', ledger, re.M) and re.search(r'^unwritten = [1-9]', ledger, re.M) and
         'balanced = 1' in ledger, ledger)


@case
def settings_that_need_others(where):
    """Sections of stores without a device; the only port is not port 0."""
    for key in 'stores=10.0.0.2', 'identity=r', 'key=/nowhere':
        says([RECV, '--', '--set', f'egress.{key}', '--dump-config'], 2,
             '[egress] device = none (default): is required with stores, identity or key')
    capture(where)
    says(command(where, 'port 7.device=net_replay0'), 0, never=('is in no [port N] section',))
    says(command(where, 'run.name=two', eal=('--vdev', 'net_null0,no-rx=1')), 0,
         'recv: port net_null0 is in no [port N] section: its packets are not received; add a section with '
         'device = net_null0, or remove the EAL option')
    says([RECV, '--', '--set', 'port 7.streams=0', '--set', 'detector.modules=2', '--dump-config'], 2,
         '[port 7] streams = 0: does not cover all streams', never=('[port 0]', '[port 1]'))


@case
def a_directory_without_runs(where):
    """Nor are there any in its subfolders."""
    os.mkdir(f'{where}/lyso-0-0')
    says([SCAN, where], 1, f'{where}: no file named RUN_frames.arrow or RUN_images.arrow in this directory '
         'or in a subfolder')
    says([SCAN, f'{where}/none'], 1, f'{where}/none: No such file or directory')


@case
def a_file_that_another_receiver_writes(where):
    """Each message names the file."""
    capture(where)
    words = command(where, 'run.idle_timeout_ms=none', 'run.name=first', replay=',loops=0,rate=1000')
    with running(where, words) as process:
        wait('the run', lambda: os.path.exists(f'{where}/out/first_images.arrow.part'), SECONDS)
        out = says(command(where, 'run.name=second', prefix=f'{PREFIX}_second'), 0)
        says(command(where, 'run.name=first', prefix=f'{PREFIX}_second'), 1, '/out/first_frames.arrow.part already '
             'exists: another process writes this run, or has left it; set another run name')
        for table in 'frames', 'images':
            want(re.search(f'run: .*/out/first_{table}.arrow.part: cannot open: locked by another process', out),
                 out)
        process.send_signal(signal.SIGTERM)
        process.wait(SECONDS)


@case
def a_wrong_port(where):
    """In an endless run the mistake is reported during the run and in progress lines. The run ends.
    """
    capture(where, frames=4)
    words = [*command(where, 'run.idle_timeout_ms=none', 'detector.udp_port=50011',
                      replay=',loops=0,rate=10000'), '--progress', '0.1']
    line = ('packets is usable: ', ' are sent to UDP port 50001 (10.1.1.1:32410 to 10.1.2.1:50001, UDP '
            'length 8248), expected 50011; set [detector] udp_port = 50001')

    def log():
        with open(f'{where}/log', encoding='utf-8') as f:
            return f.read()

    with running(where, words) as process:
        wait('the run', lambda: os.path.exists(f'{where}/out/run_frames.arrow.part'), SECONDS)
        begin = time.monotonic()
        wait('a warning', lambda: all(part in log() for part in line), SECONDS)
        # reported within a second on an idle machine
        want(time.monotonic() - begin < 10, 'after', time.monotonic() - begin, 's')
        wait('progress', lambda: re.search(
            r'^\d\d:\d\d:\d\d  no frame yet: [1-9]\d* packets received, 0 placed$', log(), re.M))
        process.send_signal(signal.SIGTERM)
        want(process.wait(SECONDS) == 1, 'exit status', process.returncode, log())


@case
def a_detector_that_does_not_send(where):
    """The timeout counts from the start of the run, with packets of other senders or without
    packets."""
    capture(where, frames=1)
    rewrite_packets(f'{where}/in.pcap', lambda p: b'\xff' * 12 + b'\x08\x06' + bytes(50))
    out = says(command(where), 1, 'packets is usable: 128 are not IPv4 datagrams of UDP (EtherType '
               '0x0806); check that the detector sends to this port')
    want('no frame' not in out, 'progress is for long runs:', out)
    says(command(where, 'run.name=none', 'port 0.device=net_null0', eal=('--vdev', 'net_null0,no-rx=1')),
         1, 'run none: no packet received within [run] idle_timeout_ms = 500; check that the detector sends')


@case
def a_module_that_is_silent(where):
    """A module stops, and either returns or does not. The log and the summary name it."""
    name = 'module 1 (stream 1, UDP port 50002)'
    settings = 'detector.modules=2', 'frames.stream_timeout_ms=100'
    capture(where, '--modules', '2', '--fault', 'stall=1:11:25', frames=40)
    says(command(where, 'run.name=back', *settings), 0,
         f'recv: {name} sends again since frame 26; it had sent nothing since frame 11',
         f'  {name}: 1920 packets missing, 37.50 %; silent from frame 11 to 25')
    capture(where, '--modules', '2', '--fault', 'stall=1:21:100', frames=40)
    says(command(where, 'run.name=dead', *settings), 0,
         f'recv: {name} has sent nothing since frame 21; check the module and its cable',
         f'  {name}: 2560 packets missing, 50.00 %; silent since frame 21')
    # one packet
    capture(where, frames=5)
    packets = iter(range(5 * 128))
    rewrite_packets(f'{where}/in.pcap', lambda p: b'' if next(packets) == 200 else p)
    says(command(where, 'run.name=one'), 0, '  module 0 (stream 0, UDP port 50001): 1 packet missing, 0.16 %')
    # twice
    capture(where, '--modules', '2', frames=40)
    rewrite_packets(f'{where}/in.pcap', lambda p: b'' if p[37] == 0x52 and frame_of(p) % 20 in range(3, 13) else p)
    says(command(where, 'run.name=twice', *settings), 0,
         f'  {name}: 2560 packets missing, 50.00 %; silent from frame 23 to 32, and 1 time before\n')
    # too few frames for a silence
    capture(where, '--modules', '2', '--fault', 'stall=1:1:100', frames=5)
    says(command(where, 'run.name=short', *settings), 0,
         f'recv: {name} has sent nothing since the run began at frame 1; check the module and its cable',
         f'  {name}: 640 packets missing, 100.00 %; no usable packet of it arrived')
    # another module continues: the log reports it during the run, as do progress lines
    capture(where, '--modules', '2', '--fault', 'stall=1:1:100', frames=10)
    words = [*command(where, 'run.name=never', 'run.idle_timeout_ms=none', *settings,
                      replay=',loops=0,rate=12800,rewrite=42:8:le:10'), '--progress', '0.1']
    with running(where, words) as process:
        for line in (f'recv: {name} has sent nothing since the run began at frame 1; check',
                     '0 frames lost; silent: module 1\n'):
            wait(line, lambda line=line: line in open(f'{where}/log', encoding='utf-8').read())
        process.send_signal(signal.SIGTERM)
        want(process.wait(SECONDS) == 0, 'exit status', process.returncode)


@case
def a_run_of_several_files(where):
    """The summary names all files."""
    capture(where, frames=40)
    out = f'{where}/out'
    says(command(where, 'output.roll_frames=16', 'output.frames_interval=16',
                 'output.images_interval=16'), 0,
         f'  {out}/run_000001_frames.arrow ... {out}/run_000003_frames.arrow, 3 files\n',
         f'  {out}/run_000001_images.arrow ... {out}/run_000003_images.arrow, 3 files\n')
    want(os.path.exists(f'{out}/run_000002_frames.arrow'), os.listdir(out))


@case
def a_detector_whose_terminal_is_closed(where):
    """Incomplete output is removed, as after SIGTERM."""
    path = f'{where}/in.pcap'
    with running(where, [DETECTOR, '--frames', '1000000', '--pcap', path]) as process:
        wait('packets', lambda: os.path.exists(f'{path}.partial'))
        process.send_signal(signal.SIGHUP)
        want(process.wait(SECONDS) == 128 + signal.SIGHUP, 'exit status', process.returncode)
        want(not os.path.exists(f'{path}.partial'), 'a file is left')


@case
def a_directory_that_cannot_be_used(where):
    """--check creates the directory as a run does, and removes it."""
    capture(where)
    with open(f'{where}/file', 'w', encoding='ascii'):
        pass
    os.symlink('nowhere', f'{where}/link')
    for directory, line in ((f'{where}/a/b', f'[output] directory = {where}/a/b: cannot create it: '
                             'No such file or directory; create it, or set another'),
                            (f'{where}/file', 'Not a directory'),
                            (f'{where}/link', 'No such file'),
                            ('/proc/braggline', 'cannot create it'),
                            ('/proc', 'cannot create /proc/run_calibration.bin')):
        says_twice(where, 1, line, 'FAIL', f'output.directory={directory}')
    says([*command(where), '--check'], 0, ', will be created')
    want(not os.path.exists(f'{where}/out'), 'a check leaves what it makes')


@case
def a_directory_below_one_of_another_user(where):
    """Another user could replace it. Nothing is created there."""
    capture(where)
    os.mkdir(f'{where}/theirs')
    os.chmod(f'{where}/theirs', 0o777)
    lines = [f'[output] directory: folder {where}/theirs/out: mode of parent folder {where}/theirs '
             'is 0777']
    if os.geteuid() == 0:
        os.mkdir(f'{where}/user')
        os.chown(f'{where}/user', 65534, 65534)
        lines.append(f'[output] directory: folder {where}/user/out: owner of parent folder '
                     f'{where}/user is user 65534')
    for line in lines:
        directory = line.split(': ')[1].removeprefix('folder ')
        says_twice(where, 1, line, 'FAIL', f'output.directory={directory}')
        want(not os.path.exists(directory), directory, 'was created')


@case
def a_directory_of_others_is_reported_once(where):
    """By --recover, which prints a report of each file."""
    os.mkdir(f'{where}/theirs')
    os.chmod(f'{where}/theirs', 0o777)
    out = says([SCAN, '--recover', f'{where}/theirs'], 1,
               f'NOT RECOVERED {where}/theirs: folder {where}/theirs: mode is 0777')
    want(out.count('\n') == 1, out)


@contextlib.contextmanager
def disk(where, megabytes):
    """A file system of that size. @return its folder"""
    small = f'{where}/small{megabytes}'
    os.mkdir(small)
    if subprocess.run(['mount', '-t', 'tmpfs', '-o', f'size={megabytes}m', 'tmpfs', small], check=False,
                      stderr=subprocess.DEVNULL).returncode != 0:
        raise Skipped('cannot mount a tmpfs')
    try:
        yield small
    finally:
        subprocess.run(['umount', small], check=False)


@case
def a_directory_without_space(where):
    """The advice is to free space, not to create the directory. A run that fits is not refused."""
    capture(where)
    with disk(where, 8) as small:
        setting = f'output.directory={small}'
        says([*command(where, setting), '--check'], 1, 'No space left on device',
             f'free space on the file system of {small}, or set another', never=('mkdir -p',))
        says(command(where, setting), 1,
             'run_calibration.bin: No space left on device; free space on this file system, or set [output] '
             'calibration = no')
    # less than the tables allocate ahead: 64 MiB
    with disk(where, 60) as small:
        setting = f'output.directory={small}'
        says([*command(where, setting), '--check'], 0, never=('No space left',))
        says(command(where, setting), 0, 'every frame accounted for', never=('No space left',))
        want({'run_calibration.bin', 'run_frames.arrow', 'run_images.arrow'} <= set(os.listdir(small)),
             os.listdir(small))


@case
def a_disk_that_fills_up_in_a_run(where):
    """Progress, telemetry and the summary say what is not written. Writing resumes as the log says."""
    capture(where, '--rows', '64', frames=16)
    settings = ('detector.rows=64', 'output.format=image', 'veto.dry_run=yes', 'output.calibration=no',
                'output.preview=off', 'run.idle_timeout_ms=none', 'output.frames_interval=64',
                'output.sync_ms=100')
    replay = ',loops=0,rate=800,rewrite=42:8:le:16'
    for size, resume in ((72, 'writing cannot resume on this file system, which has fewer than 128 MiB; start a '
                          'new run with another [output] directory'),
                         (200, 'writing resumes at a frame number that is a multiple of 64, or where the numbers restart, '
                          'when 128 MiB are free')):
        with disk(where, size) as small:
            if size > 72:
                with open(f'{small}/other', 'wb') as f:
                    f.write(bytes(128 << 20))
            words = [*command(where, f'output.directory={small}/out', *settings, replay=replay),
                     '--progress', '0.2']
            with running(where, words) as process:
                wait('the message', lambda: log_has(where, 'rows of `images` are no longer written; ' + resume))
                wait('progress', lambda: re.search(r'^\d\d:\d\d:\d\d  .* frames lost; [1-9]\d* not written: No '
                                                   'space left on device$', read_log(where), re.M))
                if size > 72:
                    os.remove(f'{small}/other')
                    wait('the files', lambda: log_has(where, 'writing resumed, with '))
                    time.sleep(1)
                process.send_signal(signal.SIGTERM)
                want(process.wait(SECONDS) == 1, 'exit status', process.returncode)
            want(re.search(r'^warning\n  not written: [1-9]\d* kept frames: cannot write .*: No space left', read_log(where),
                           re.M), read_log(where))
            with open(f'{small}/out/run_ledger.ini', encoding='ascii') as f:
                ledger = f.read()
            want(re.search(r'^stored = [1-9]', ledger, re.M) if size > 72 else
                 re.search(r'^unwritten = [1-9]', ledger, re.M), ledger)
            want('balanced = 1' in ledger, ledger)


@case
def a_preview_that_cannot_be_written(where):
    """--check says so, as the run does."""
    capture(where)
    for path, why in ((f'{where}/none/x.png', 'No such file or directory'), (where, 'Is a directory')):
        says([*command(where, f'output.preview={path}'), '--check'], 0,
             f'[output] preview = {path}: cannot write it: {why}')
    # a file of another kind is not replaced, a picture is
    other = f'{where}/other.pcap'
    with open(other, 'wb') as f:
        f.write(b'mine')
    says_twice(where, 0, f'[output] preview = {other}: the file exists and is not a PNG picture, so it is not replaced',
               'warn', f'output.preview={other}', 'veto.dry_run=yes')
    with open(other, 'rb') as f:
        want(f.read() == b'mine', 'it was replaced')
    for name in 'first', 'second':
        says(command(where, f'run.name={name}', f'output.preview={where}/x.png', 'veto.dry_run=yes'), 0,
             never=('no preview',))
        with open(f'{where}/x.png', 'rb') as f:
            want(f.read(4) == b'\x89PNG', 'no picture')
        with open(f'{where}/x.png', 'wb') as f:
            f.write(b'\x89PNG\r\n\x1a\n')


@case
def a_live_file_that_cannot_be_written(where):
    """--check says so, as the run does, which continues without."""
    capture(where)
    for path, why in ((f'{where}/none/x', 'No such file or directory'), (where, 'Is a directory')):
        says([*command(where, f'output.live={path}'), '--check'], 0,
             f'[output] live = {path}: cannot write it: {why}')
    other = f'{where}/other'
    with open(other, 'wb') as f:
        f.write(b'mine')
    says_twice(where, 0, f'[output] live = {other}: the file exists and is not a live file, so it is not replaced',
               'warn', f'output.live={other}', 'veto.dry_run=yes')
    with open(other, 'rb') as f:
        want(f.read() == b'mine', 'it was replaced')
    # a file that a killed receiver has left is replaced, and removed at the end
    with open(f'{where}/live', 'wb') as f:
        f.write(b'BRGLIVE1')
    says(command(where, 'run.name=second', f'output.live={where}/live', 'veto.dry_run=yes'), 0,
         never=('no live file',))
    want(not os.path.exists(f'{where}/live'), 'the live file remains')


@case
def settings_that_cannot_work(where):
    says([RECV, '--', '--set', 'run.type=dark', '--set', 'run.frames=10', '--dump-config'], 2,
         '[run] frames = 10: must be at least 128 in a dark run')
    capture(where)
    rewrite(f'{where}/mask_m0.bin', lambda data: b'\1' * len(data))
    out = says(command(where), 0)
    want(re.search('^calibration\n  [1-9][0-9]* warnings?, the first: module 0: only 0 of 524288 pixels', out,
                   re.M), 'the summary has no warning of the mask:', out)
    with open(f'{where}/key', 'wb') as f:
        f.write(os.urandom(64))
    with open(f'{where}/keys.ini', 'w', encoding='ascii') as f:
        f.write('[receiver recv]\nkey = key\nreceiver_ids = 0\n')
    os.chmod(f'{where}/key', 0o600)
    os.chmod(f'{where}/keys.ini', 0o600)
    with running(where, [STORE, '--no-huge', '-m', '256', '--no-pci', '--file-prefix', PREFIX, '-l', '0',
                         '--vdev', 'net_null0', '--', '-s', 'store.device=roce:port=net_null0,ip=10.0.0.2/24',
                         '-s', f'store.keys={where}/keys.ini', '-s', f'files.directory={where}/data',
                         '-s', 'store.memory_mib=1048576']) as process:
        wait('the store', lambda: process.poll() is not None or log_has(where, 'listening on'))
        want(log_has(where, '[store] memory_mib = 1048576 for each connection, but this host has '),
             open(f'{where}/log', encoding='utf-8').read())


ROCE_CARD = {'version': 1, 'transport': 'write', 'streams': 1, 'mtu': 4096, 'tile_bytes': 8192,
             'trailer_bytes': 64, 'tiles': 128, 'slots': 128, 'slot_bytes': 128 * 8256}
ROCE_STREAM = {'ip': '10.1.2.1', 'qpn': 0x100, 'psn': 0, 'rkey': 0x1234, 'base': 1 << 40}


def roce_capture(where, **changes):
    """A capture of a RoCE detector whose card has other values than the receiver's."""
    with open(f'{where}/card.ini', 'w', encoding='ascii') as f:
        for section, keys in ('card', ROCE_CARD), ('stream 0', {**ROCE_STREAM, **changes}):
            f.write(f'[{section}]\n' + ''.join(f'{k} = {v}\n' for k, v in keys.items()))
    capture(where, '--transport', 'write', '--card', f'{where}/card.ini', frames=4)


@case
def roce_packets_that_are_refused(where):
    """The log and the end of the run give their number, the cause and what to check."""
    good = ('detector.transport=write', 'ingest.qpn=0x100', 'ingest.rkey=0x1234',
            'port 0.device=roce:port=net_replay0,ip=10.1.2.1/16')
    refused = 'RoCE packets refused, none used: '
    for name, changes, line in (
            ('qpn', {'qpn': 0x101}, f'1540 {refused}1540 are for queue pairs that no stream has'),
            ('rkey', {'rkey': 1}, f'1536 {refused}512 have a key, address or operation that is refused'),
            ('tile', {'base': (1 << 40) + 8256}, 'are messages at an address that is not that of their '
             'frame and tile')):
        roce_capture(where, **changes)
        says(command(where, *good, f'run.name={name}', replay=',align_at=54'), 1, line,
             never=('no packet received',))
    roce_capture(where)
    says(command(where, 'run.name=udp'), 1, ':4791, UDP length', 'expected UDP packets of a jungfrau; set '
         '[detector] transport to send or write')
    says(command(where, good[3]), 2, 'is a device for RoCE: set [detector] transport = send, write or multicast')


@case
def roce_devices_that_cannot_be_opened(where):
    """--check fails as the run does."""
    roce_capture(where)
    for name, keys in ('bits', 'ip=10.1.2.1'), ('key', 'ip=10.1.2.1/16,foo=3'):
        words = command(where, 'detector.transport=write', 'ingest.qpn=0x100', 'ingest.rkey=0x1234',
                        f'port 0.device=roce:port=net_replay0,{keys}', f'run.name={name}')
        out = says([*words, '--check'], 1, f'{keys}: cannot open: ', 'correct [port 0] device')
        want(re.search('FAIL +port 0: RoCE device', out) or re.search('port 0: RoCE device +FAIL', out), out)
        says(words, 2)


@case
def files_of_a_run_that_exist(where):
    """Any existing file of the run is reported."""
    capture(where)
    for name in 'second_images.arrow', 'second_000001_frames.arrow', 'second_calibration.bin':
        directory = f'{where}/{name}'
        os.mkdir(directory)
        with open(f'{directory}/{name}', 'wb') as f:
            f.write(b'mine')
        says_twice(where, 1, f'/{name} ', 'FAIL', 'run.name=second', f'output.directory={directory}')
        want(os.listdir(directory) == [name], 'a check leaves what it makes', os.listdir(directory))
        with open(f'{directory}/{name}', 'rb') as f:
            want(f.read() == b'mine', name, 'is another one')
    # the maps of a dark run
    for name in 'pedestal_g0_m0.bin', 'pedestal_g2_m0.ini', 'rms_g1_m0.bin', 'dark_mask_m0.bin':
        name = f'second_{name}'
        directory = f'{where}/{name}'
        os.mkdir(directory)
        with open(f'{directory}/{name}', 'wb') as f:
            f.write(b'mine')
        says_twice(where, 1, f'/{name} already exists; move it away or set another run name', 'FAIL',
                   'run.name=second', f'output.directory={directory}', 'run.type=dark')
        want(os.listdir(directory) == [name], os.listdir(directory))
        says([*command(where, 'run.name=second', f'output.directory={directory}'), '--check'], 0)


@case
def settings_with_several_mistakes(where):
    with open(f'{where}/x.ini', 'wb') as f:
        f.write(b'\xef\xbb\xbf[output]\ndirectory =\nvalue\n[run]\nframes = many\nname = \xfc\n')
    says([RECV, '--', '--config', f'{where}/x.ini', '--dump-config'], 2,
         'x.ini:2: [output] directory = (empty): give a value', 'x.ini:3: ', 'x.ini:5: [run] frames = many',
         'x.ini:6: is not UTF-8 text; save the file as UTF-8')
    # each line of the log has the prefix
    with open(f'{where}/x.ini', 'wb') as f:
        f.write(b'[run]\nname\nframes\n')
    out = says([RECV, '--', '--config', f'{where}/x.ini', '--dump-config'], 2)
    want(re.fullmatch('(config: .*x.ini:[23]: expected .*\n){2}', out), out)
    # another file
    with open(f'{where}/x.ini', 'wb') as f:
        f.write(38 * b'CrystFEL\n')
    out = says([RECV, '--', '--config', f'{where}/x.ini', '--dump-config'], 2,
               'x.ini: 33 more wrong lines; is this a file of settings?\n')
    want(len(out.splitlines()) == 6, out)
    # one mistake, one message
    with open(f'{where}/x.ini', 'wb') as f:
        f.write(b'[detector\nrows = 64\n[run] ; comment\nname = x\n')
    out = says([RECV, '--', '--config', f'{where}/x.ini', '--dump-config'], 2,
               'x.ini:1: expected [section] alone in its line')
    want(len(out.splitlines()) == 1, out)
    with open(f'{where}/x.ini', 'wb') as f:
        f.write('[run]\nname = x\nframes = 1\n'.encode('utf-16'))
    says([RECV, '--', '--config', f'{where}/x.ini', '--dump-config'], 2,
         'x.ini: is UTF-16 text, expected UTF-8; save the file as UTF-8', never=('zero byte',))


@case
def settings_that_are_empty_or_too_much(where):
    """The message names the key."""
    for setting, line in (
            ('output.directory=', '[output] directory = (empty): give a value'),
            ('lcores.rx=', "[lcores] rx = (empty): must be 'auto' or at most"),
            ('detector.absent=all', "[detector] absent = all: must be 'none' or at most"),
            ('detector.absent=0', '[detector] absent = 0: leaves no stream that sends'),
            ('detector.rows=12', '[detector] rows = 12: must be a multiple of 8, 8 ... 512'),
            ('veto.strong_min=524289', '[veto] strong_min = 524289: must be a whole number, 0 ... 524288'),
            ('detector.source=224.0.0.1', '[detector] source = 224.0.0.1: must be addresses that hosts send from, '
             '1.0.0.0 ... 223.255.255.255'),
            ('detector.source=0.0.0.0', '[detector] source = 0.0.0.0: must be addresses that hosts send from'),
            ('detector.source=128.0.0.0/1', '[detector] source = 128.0.0.0/1: must be addresses that hosts send'),
            ('detector.source_mac=ff:ff:ff:ff:ff:ff', '[detector] source_mac = ff:ff:ff:ff:ff:ff: must be addresses '
             'that hosts send from: the first byte is even, and not all bytes are 0'),
            ('calibration.energy_kev=0.0124', '[calibration] energy_kev = 0.0124: must be a number in keV, 0.1 ... 1000'),
            ('geometry.beam_x=5', '[geometry] beam_y = none (default): must be a number; set beam_x, beam_y and '
             'distance_mm, or none of them'),
            ('geometry.beam_y=far', "[geometry] beam_y = far: must be 'none' or a number, -1e+06 ... 1e+06"),
            ('geometry.file=x.txt', '[geometry] file = x.txt: x.txt: the name of a geometry ends with .geom (CrystFEL) '
             'or .poni (pyFAI)'),
            ('port 99.mtu=9000', '[port 99] mtu = 9000: is not a known section; the sections are [detector] [ingest] [port 0] '),
            ('run.sample=' + 2048 * 'x', 'a value has at most 2047 bytes'),
            (f'run.{64 * "k"}=1', "a section's or key's name has at most 63 bytes"),
            ('run.sample=M\udcfcller', 'is not a single line of UTF-8 text')):
        says([RECV, '--', '--set', setting, '--dump-config'], 2, line)
    says([RECV, '--', '--set', 'dark.interval_frames=5', '--set', 'run.stride=10', '--dump-config'], 2,
         "[dark] interval_frames = 5: must be 'none', or not less than [run] stride = 10")
    says([RECV, '--', '--set', 'run.stride=65536', '--dump-config'], 2,
         "[dark] interval_frames = 20000 (default): must be 'none', or not less than [run] stride = 65536")
    says([RECV, '--', '--set', 'run.offset=5', '--dump-config'], 2, '[run] offset = 5: must be less than [run] stride = 1')
    says([RECV, '--', '--set', 'dark.phase=9', '--set', 'dark.every=9', '--dump-config'], 2,
         '[dark] phase = 9: must be less than [dark] every = 9')
    # what needs the geometry does not say that the section is missing
    out = says([RECV, '--', *(word for s in ('peaks.search=hits', 'radial.bins=100', 'geometry.beam_x=5', 'geometry.beam_y=5',
                                             'geometry.distance_mm=-4') for word in ('--set', s)), '--dump-config'], 2,
               "[geometry] distance_mm = -4: must be 'none' or a number")
    want(len(out.splitlines()) == 1, out)
    says([RECV, '--', '--set', ' veto . strong_min = 30 ', '--dump-config'], 0, '\nstrong_min = 30\n')
    for streams, line in ((), 'auto (default): means all streams, also'), (('--set', 'port 1.streams=0-1'), '0-1: lists'):
        out = says([RECV, '--', '--set', 'detector.modules=3', '--set', 'port 0.device=0', '--set', 'port 1.device=1',
                    *streams, '--dump-config'], 2, f'[port 1] streams = {line} stream 0, which [port 0] has, too; list '
                   'the streams of each port, every stream once')
        want(out.count('config: ') == 1, out)
    good = {'detector.transport': 'multicast', 'ingest.sender': '10.1.1.1',
            'port 0.device': 'roce:port=0,ip=10.1.2.1/16', 'detector.modules': '2'}
    for setting, line in (
            ({'ingest.sender': 'none'}, '[ingest] sender = none (default): is required with [detector] transport = '
             'multicast: the IPv4 address'),
            ({'ingest.sender': 'lyso'}, '[ingest] sender = lyso: must be an IPv4 address'),
            ({'ingest.group': '10.0.0.1'}, '[ingest] group = 10.0.0.1: must be a multicast address'),
            ({'ingest.group': '239.255.255.255'}, 'with room for one group for each stream'),
            ({'ingest.service': '65535'}, '[ingest] service = 65535: leaves no port for each stream'),
            ({'ingest.delivery': 'reference'}, '[ingest] delivery = reference: must be memory'),
            ({'ingest.slots': '64'}, '[ingest] slots = 64: must be more than [frames] slots'),
            ({'ingest.key': 'k'}, '[ingest] identity = none (default): is required'),
            ({'ingest.identity': 'k'}, '[ingest] key = none (default): is required'),
            ({'port 0.device': 'verbs:mlx5_0'}, 'must not be multicast with a verbs: device')):
        words = [word for key, value in {**good, **setting}.items() if value != 'none'
                 for word in ('--set', f'{key}={value}')]
        says([RECV, '--', *words, '--dump-config'], 2, line)
    says([RECV, '--', *(word for key, value in good.items() for word in ('--set', f'{key}={value}')),
          '--dump-config'], 0, '\ngroup = 239.192.0.0\n')
    for source in '0.0.0.0/0', '10.0.0.0/8', '223.255.255.255':
        says([RECV, '--', '--set', f'detector.source={source}', '--dump-config'], 0)
    says([RECV, '--', '--set', 'run.name=x', '--check', '--dump-config'], 2,
         '--check and --dump-config: expected only one of them')


if __name__ == '__main__':
    # the parent may ignore SIGHUP, as nohup does, and children inherit that
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    for own_prefix in PREFIX, f'{PREFIX}_store', f'{PREFIX}_second':
        background.eal_folder(own_prefix)
    sys.exit(run_cases(sys.argv[2:]))
