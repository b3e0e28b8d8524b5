#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""braggline-recv as its user runs it: wrong settings, faulty input, the end of a run.

usage: recv_test.py BUILD-DIR [CASE]...
"""

import array
import configparser
import os
import random
import re
import signal
import struct
import subprocess
import sys
import time

from cases import case, run_cases, wait, want

BUILD = sys.argv[1]
RECV = f'{BUILD}/app/recv/braggline-recv'
FLOAT = f'(0-5)@(0-{os.cpu_count() - 1})'
HEADER = 90  # Ethernet, IPv4, UDP, SLS
FRAMES = 40


def command(capture, *settings, vdev='', eal=('-m', '1024'), lcores=FLOAT, gpu='gpu_host0'):
    c = [RECV, '--no-huge', *eal, '--no-pci', '--no-shconf', '--no-telemetry', '--lcores',
         lcores, '--vdev', gpu, '--vdev', f'net_replay0,file={capture}{vdev}', '--',
         '--quiet']
    for s in settings:
        c += ['--set', s]
    return c


def run(c, timeout=120):
    return subprocess.run(c, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=timeout)


def ledger(directory, name='run'):
    """Counters of frames by name, of packets with the prefix `p_`, of drops at ports with `d_`."""
    ini = configparser.ConfigParser()
    ini.read(f'{directory}/{name}_ledger.ini')
    return {**{k: int(v) for k, v in ini['frames'].items()},
            **{f'p_{k}': int(v) for k, v in ini['packets'].items()},
            **{f'd_{k}': int(v) for k, v in ini['ports'].items()}}


def recv(where, packets, *settings, status=0, times=None, out='out', **kwargs):
    """Run the receiver with these packets. @return ledger and output"""
    capture = f'{where}/in.pcap'
    write_pcap(capture, packets, times)
    done = run(command(capture, f'output.directory={where}/{out}', 'run.idle_timeout_ms=300',
                       *settings, **kwargs))
    want(done.returncode == status, done.returncode, done.stdout)
    l = ledger(f'{where}/{out}')
    want(l['balanced'] == 1, l, done.stdout)
    return l, done.stdout


def read_pcap(path):
    with open(path, 'rb') as f:
        data = f.read()
    at, packets = 24, []
    while at < len(data):
        size = struct.unpack_from('<I', data, at + 8)[0]
        packets.append(data[at + 16:at + 16 + size])
        at += 16 + size
    return packets


def write_pcap(path, packets, times=None):
    """@param times  seconds of each packet; by default packets are one microsecond apart"""
    with open(path, 'wb') as f:
        f.write(struct.pack('<IHHiIII', 0xa1b2c3d4, 2, 4, 0, 0, 65535, 1))
        for i, p in enumerate(packets):
            us = i if times is None else round(times[i] * 1000000)
            f.write(struct.pack('<IIII', us // 1000000, us % 1000000, len(p), len(p)) + p)


def frame_of(p):
    return struct.unpack_from('<Q', p, 42)[0]


def renumbered(p, frame):
    """The packet with another frame number. Its UDP checksum is 0, which means not computed."""
    return p[:40] + bytes(2) + struct.pack('<Q', frame) + p[50:]


def module(where, frames=FRAMES, *options):
    path = f'{where}/model.pcap'
    subprocess.run([f'{BUILD}/app/detector/braggline-detector', '--frames', str(frames),
                    '--pcap', path, *options], check=True, stdin=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    return read_pcap(path)


@case
def help_and_version(where):
    for a in ('--help', '--version'):
        for c in ([RECV, a], [RECV, '--', a]):
            done = run(c)
            want(done.returncode == 0 and 'braggline-recv' in done.stdout, c, done.stdout)
            want('EAL:' not in done.stdout, 'help must not need EAL')
    for words, status, text in (
            (['--dump-config'], 0, '[detector]'),
            (['--dump-config', '--set', 'run.name=a/b'], 2, '[run] name = a/b'),
            ([], 2, '--config FILE is required'),
            (['x'], 2, "'x': not an option"),
            (['--', '--no-such-option'], 2, "Try 'braggline-recv --help'")):
        done = run([RECV, *words])
        want(done.returncode == status and text in done.stdout, words, done.returncode,
             done.stdout)
        want('EAL:' not in done.stdout, 'neither must', words)
    done = run([RECV, '--no-such-eal-option', '--', '--set', 'run.name=a'])
    want(done.returncode == 2 and 'cannot start EAL' in done.stdout, done.stdout)


@case
def mistakes_are_reported(where):
    write_pcap(f'{where}/in.pcap', module(where, 1))
    with open(f'{where}/short.bin', 'wb') as f:
        f.write(bytes(100))
    for setting, status, *texts in (
            ('veto.strong_mim=3', 2, r'\[veto\] strong_mim = 3', 'strong_min'),
            ('egress.batch_mb=16', 2, r'\[egress\] batch_mb = 16: unknown key', 'batch_mib'),
            ('detektor.modules=3', 2, r'\[detektor\] modules = 3', 'not a known section'),
            ('detector.modules=33', 2, r'\[detector\] modules = 33', r'1 \.\.\. 32'),
            ('detector.type=eiger9', 2, r'\[detector\] type = eiger9', 'jungfrau'),
            ('output.format=tiff', 2, r'\[output\] format = tiff', 'csr, image or raw'),
            ('run.name=a/b', 2, r'\[run\] name = a/b', 'letters'),
            ('nonsense', 2, "'nonsense': expected section.key=value"),
            ('port 0.device=net_replay7', 2,
             "no Ethernet device 'net_replay7'; EAL has net_replay0. ", '--vdev'),
            ('gpu.device=gpu_cuda0', 2, 'gpu_cuda0: no such GPU'),
            ('gpu.device=0000:ff:1f.7', 1, '0000:ff:1f.7: no such GPU'),
            ('gpu.kernel=metal', 2, 'metal: not built in'),
            ('lcores.builder=77', 2, 'lcore 77', 'EAL'),
            (f'calibration.mask={where}/none.bin', 1, 'none.bin', 'No such file'),
            (f'calibration.mask={where}/short.bin', 1, 'short.bin has 100 bytes', '524288'),
            ('output.directory=/proc/nowhere', 1, '/proc/nowhere')):
        done = run(command(f'{where}/in.pcap', 'run.idle_timeout_ms=1',
                           f'output.directory={where}/out', setting))
        want(done.returncode == status, setting, done.returncode, done.stdout)
        for t in texts:
            want(re.search(t, done.stdout), f'{setting}: no "{t}" in', done.stdout)
    with open(f'{where}/recv.ini', 'w') as f:
        f.write('[run]\nname = a\n\n; a note\n[detector]\nmodules = 33 ; too many\nmodule = 1\n'
                '[veto]\nstrong_min = few\n')
    done = run([RECV, '--dump-config', '--config', f'{where}/recv.ini',
                '--set', 'veto.strong_min=many'])
    want(done.returncode == 2, done.returncode, done.stdout)
    for text in ('recv.ini:6: [detector] modules = 33: must be',
                 'recv.ini:7: [detector] module = 1: unknown key; this section has type modules ',
                 ' --set: [veto] strong_min = many: must be'):
        want(text in done.stdout, text, 'is not in', done.stdout)
    want(done.stdout.count('\n') == 3, done.stdout)
    with open(f'{where}/recv.ini', 'a') as f:
        f.write('strong_max\n')
    done = run([RECV, '--dump-config', '--config', f'{where}/recv.ini'])
    want(done.returncode == 2 and 'recv.ini:10: expected [section], key = value' in done.stdout,
         done.stdout)
    done = run([RECV, '--no-huge', '-m', '64', '--no-pci', '--no-shconf', '--', '--config',
                f'{where}/none.ini'])
    want(done.returncode == 2 and 'none.ini' in done.stdout, done.stdout)


@case
def short_memory_is_refused(where):
    write_pcap(f'{where}/in.pcap', module(where, 1))
    done = run(command(f'{where}/in.pcap', 'frames.slots=4096', 'detector.modules=8',
                       eal=('-m', '256')))
    want(done.returncode == 1, done.returncode, done.stdout)
    want(re.search(r'cannot allocate \d+ MiB|\d+ mbufs are required', done.stdout), done.stdout)
    # payload buffers are one piece of memory
    done = run(command(f'{where}/in.pcap', 'frames.slots=4096', 'port 0.payload=memory',
                       eal=('-m', '256')))
    want(done.returncode == 1, done.returncode, done.stdout)
    want('--check prints the memory that all parts require' in done.stdout, done.stdout)
    want('cannot create pool payload_0: Cannot allocate memory. ' in done.stdout, done.stdout)


@case
def files_are_not_overwritten(where):
    packets = module(where, 2)
    recv(where, packets)
    done = run(command(f'{where}/in.pcap', f'output.directory={where}/out',
                       'run.idle_timeout_ms=300'))
    want(done.returncode == 1 and 'run_frames.arrow' in done.stdout, done.stdout)


@case
def every_fault_is_counted(where):
    rng = random.Random(5)
    sent, faults = [], dict(duplicate=0, foreign=0, fragment=0, wrong_length=0, malformed=0,
                            outlier=0)
    dropped, partial = 0, set()
    for p in module(where):
        f = frame_of(p)
        if f == 20:
            continue  # a complete frame is lost
        what = rng.random() if 3 < f < FRAMES - 12 else 1
        if what < 0.01:
            dropped += 1
            partial.add(f)
            continue
        sent.append(p)
        if what < 0.02:
            sent.append(p)
            faults['duplicate'] += 1
        elif what < 0.022:
            sent.append(b'\xff' * 12 + b'\x08\x06' + bytes(50))
            faults['foreign'] += 1
        elif what < 0.024:
            sent.append(p[:36] + b'\x00\x07' + p[38:])
            faults['foreign'] += 1
        elif what < 0.026:
            sent.append(p[:20] + b'\x20\x00' + p[22:])
            faults['fragment'] += 1
        elif what < 0.028:
            sent.append(p[:4000])
            faults['wrong_length'] += 1
        elif what < 0.030:
            sent.append(p[:38] + b'\x00\x40' + p[40:])
            faults['wrong_length'] += 1
        elif what < 0.032:
            sent.append(p[:88] + b'\x09\x02' + p[90:])
            faults['malformed'] += 1
        elif what < 0.034:
            sent.append(p[:54] + b'\x80\x00\x00\x00' + p[58:])
            faults['malformed'] += 1
        elif what < 0.036:
            sent.append(p[:42] + rng.randbytes(8) + p[50:])
            faults['outlier'] += 1
    for mode in ('split', 'single'):
        subprocess.run(['rm', '-rf', f'{where}/out'], check=True)
        l, out = recv(where, sent, 'veto.dry_run=yes', f'port 0.mode={mode}')
        want(l['frames'] == FRAMES and l['lost'] == 1 and l['stored'] == FRAMES - 1, out)
        want(l['missing_packets'] == dropped and l['incomplete_kept'] == len(partial), out)
        want(l['p_packets'] == len(sent), out)
        # a duplicate that arrives after its frame was closed counts as late
        want(l['p_duplicate'] + l['p_late'] == faults['duplicate'], faults, out)
        for k in ('foreign', 'fragment', 'wrong_length', 'malformed', 'outlier'):
            want(l['p_' + k] == faults[k], k, faults, out)
    subprocess.run(['rm', '-rf', f'{where}/out'], check=True)
    l, out = recv(where, sent, 'veto.dry_run=yes', 'frames.incomplete=drop')
    want(l['incomplete'] == len(partial) and l['stored'] == FRAMES - 1 - len(partial), out)


def changed(p, at, new, checksum=True):
    """The packet with other bytes. The checksum of its IPv4 header is correct, or with
    checksum=False stays as it was."""
    b = bytearray(p)
    b[at:at + len(new)] = new
    if checksum:
        b[24:26] = bytes(2)
        total = sum(struct.unpack('>10H', b[14:34]))
        total = (total & 0xffff) + (total >> 16)
        struct.pack_into('>H', b, 24, ~(total + (total >> 16)) & 0xffff)
    return bytes(b)


def forged(p, checksum=True, **kwargs):
    """The packet from another MAC and IPv4 address, with other pixels."""
    frame = struct.pack('<Q', kwargs['frame']) if 'frame' in kwargs else p[42:50]
    return changed(p[:6] + b'\x66' * 6 + p[12:42] + frame + p[50:HEADER] + b'\x2a' * 8192, 26,
                   bytes((10, 9, 9, 9)), checksum)


@case
def forged_packets_change_nothing(where):
    """Half of each frame arrives first from another sender, which also sends distant frame numbers
    to move the window. Neither has an effect."""
    frames, count = 10, 128
    real = module(where, frames)
    source = '.'.join(str(b) for b in real[0][26:30])
    mac = ':'.join(f'{b:02x}' for b in real[0][6:12])
    attack = []
    for f in range(frames):
        one = real[f * count:(f + 1) * count]
        attack += [forged(p) for p in one[:64]] + one
        attack += [forged(p, frame=10 ** 6 + f) for p in one[:16]]
    for name, settings in (('ip', (f'detector.source={source}:32410',)),
                           ('mac', ('detector.source=any', f'detector.source_mac={mac}'))):
        os.mkdir(f'{where}/{name}')
        l, text = recv(f'{where}/{name}', attack, 'veto.dry_run=yes', *settings)
        want(l['p_placed'] == frames * count and l['p_foreign'] == frames * 80, l, text)
        want(l['missing_packets'] == 0 and l['p_late'] == 0 and l['frames'] == frames, l, text)
    # Without settings the source is learned: the sender that leads by one frame's packets, of 208 a
    # frame 128 to 80, which is 32 packets before the end of the third frame. No pixel before that
    # is forged.
    os.mkdir(f'{where}/learnt')
    l, text = recv(f'{where}/learnt', attack, 'veto.dry_run=yes')
    want(l['p_placed'] == (frames - 3) * count + 32 + 1, l, text)
    want('has two sources' in text and '10.9.9.9' in text, text)
    os.mkdir(f'{where}/sum')
    broken = [forged(p, checksum=False) for p in real[:64]]
    l, text = recv(f'{where}/sum', broken + real, 'veto.dry_run=yes')
    want(l['p_bad_checksum'] == 64 and l['missing_packets'] == 0, l, text)
    want(l['p_placed'] == frames * count, l, text)


@case
def swapped_cables_are_reported(where):
    real = module(where, 4, '--modules', '2')
    port = 50001
    swap = [changed(p, 36, struct.pack('>H', 2 * port + 1 - struct.unpack('>H', p[36:38])[0]))
            for p in real]
    for positions in ('auto', '2'):
        os.mkdir(f'{where}/{positions}')
        l, text = recv(f'{where}/{positions}', swap, 'detector.modules=2',
                       f'detector.positions={positions}', status=1)
        want(l['p_misplaced'] == len(swap) and l['p_placed'] == 0, l, text)
        want('streams 0 and 1 look swapped: stream 0 announces row' in text, text)
    os.mkdir(f'{where}/off')
    l, text = recv(f'{where}/off', swap, 'detector.modules=2', 'detector.positions=off')
    want(l['p_placed'] == len(swap), l, text)


@case
def what_is_too_long_is_not_called_damaged(where):
    sent = module(where, 20)
    longer = sent[0] + bytes(10000 - len(sent[0]))
    # buffers that are split are chained, and have room for it
    l, out = recv(where, [longer, *sent, longer], 'veto.dry_run=yes', 'port 0.mode=single',
                  'port 0.payload=memory')
    want(l['stored'] == 20 and l['p_packets'] == len(sent), out)
    want([l['d_errors'], l['d_ring_full'], l['d_no_mbuf']] == [2, 0, 0], out)
    want(re.search(r'^  errors +2 .*too long \(check MTU\)$', out, re.M), out)


@case
def reordered_packets_find_their_frames(where):
    rng = random.Random(6)
    packets = module(where)
    # each packet moves by up to about two frames
    order = sorted(range(len(packets)), key=lambda i: i + rng.uniform(0, 256))
    l, out = recv(where, [packets[i] for i in order], 'veto.dry_run=yes')
    want(l['stored'] == FRAMES and l['p_placed'] == len(packets), out)
    want(l['incomplete_kept'] == 0, out)


@case
def frames_do_not_wait_for_a_silent_module(where):
    two = module(where, FRAMES, '--modules', '2')
    # module 1 sends nothing after frame 10; the end of module 0 is not lost
    sent = [p for p in two if frame_of(p) <= 10 or p[36:38] == struct.pack('>H', 50001)]
    start = time.monotonic()
    l, out = recv(where, sent, 'detector.modules=2', 'veto.dry_run=yes', 'frames.stream_timeout_ms=200')
    want(l['stored'] == FRAMES and l['incomplete_kept'] == FRAMES - 10, out)
    want(l['missing_packets'] == (FRAMES - 10) * 128 and l['timeouts'] >= 1, out)
    want(time.monotonic() - start < 10, 'it is waited for again and again')


@case
def what_is_configured_absent_is_no_loss(where):
    two = module(where, 20, '--modules', '2', '--interfaces', '2')
    # module 1 is switched off; the second cable of module 0 is unplugged
    sent = [p for p in two if p[36:38] == struct.pack('>H', 50001)]
    l, out = recv(where, sent, 'detector.modules=2', 'detector.interfaces=2',
                  'detector.absent=1-3', 'veto.dry_run=yes', 'lcores.rx_lcores=2')
    want(l['stored'] == 20 and l['incomplete_kept'] == 0 and l['missing_packets'] == 0, out)
    subprocess.run(['rm', '-rf', f'{where}/out'], check=True)
    # not configured: every frame is incomplete but usable, and the receiver waits for the silent
    # streams once
    l, out = recv(where, sent, 'detector.modules=2', 'detector.interfaces=2', 'veto.dry_run=yes',
                  'frames.stream_timeout_ms=200')
    want(l['stored'] == 20 and l['incomplete_kept'] == 20, out)
    want(l['missing_packets'] == 20 * 192, out)
    subprocess.run(['rm', '-rf', f'{where}/out'], check=True)
    l, out = recv(where, sent, 'detector.modules=2', 'detector.interfaces=2', 'veto.dry_run=yes',
                  'frames.stream_timeout_ms=200', 'frames.incomplete_min=65')
    want(l['stored'] == 0 and l['incomplete'] == 20, out)


@case
def partial_readout_is_complete(where):
    for interfaces in ('1', '2'):
        sent = module(where, 20, '--rows', '128', '--interfaces', interfaces)
        subprocess.run(['rm', '-rf', f'{where}/out'], check=True)
        l, out = recv(where, sent, f'detector.interfaces={interfaces}', 'detector.rows=128',
                      'veto.dry_run=yes')
        want(l['stored'] == 20 and l['missing_packets'] == 0 and l['p_placed'] == 20 * 32, out)
        # packets of rows that are not read out do not belong to this detector
        subprocess.run(['rm', '-rf', f'{where}/out'], check=True)
        l, out = recv(where, sent, f'detector.interfaces={interfaces}', 'detector.rows=64',
                      'veto.dry_run=yes')
        want(l['p_malformed'] == 20 * 16 and l['stored'] == 20, out)


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


@case
def files_say_what_the_receiver_knows(where):
    sent = module(where, 3, '--calibration', where)
    given = [f'calibration.mask={where}/mask_m%d.bin', 'run.sample=lysozyme, batch 7',
             'geometry.distance_mm=123.5', 'geometry.beam_x=511.25', 'geometry.beam_y=-3',
             'calibration.energy_kev=9.5']
    with open(f'{where}/mask_m0.bin', 'rb') as f:
        mask = f'crc32c:{crc32c(f.read()):08x}'
    digests = set()
    for beside in 'yes', 'no':
        subprocess.run(['rm', '-rf', f'{where}/out'], check=True)
        recv(where, sent, *given, f'output.calibration={beside}')
        done = run([f'{BUILD}/app/scan/braggline-scan', f'{where}/out'])
        want(done.returncode == 0, done.stdout)
        for name, value in (('sample', 'lysozyme, batch 7'), ('distance', '123.5 mm'),
                            ('beam, x', '511.25 pixels'), ('beam, y', '-3 pixels'),
                            ('photon energy', '9.5 keV'), ('gain maps', 'none'),
                            ('pedestal maps', 'none'), ('mask maps', mask)):
            want(re.search(rf'^  {name} +{re.escape(value)}$', done.stdout, re.M), name, value,
                 done.stdout)
        geom = f'{where}/x.geom'
        run([f'{BUILD}/app/scan/braggline-scan', f'{where}/out', '--geometry', geom])
        with open(geom, encoding='ascii') as f:
            geom = f.read()
        # the second chip of the lower row: two pixels of gap to the right and down
        want('\nm0c5/corner_x = -253.25\nm0c5/corner_y = -261\n' in geom and
             '\nclen = 0.1235 m\n' in geom and '\nphoton_energy = 9500 eV\n' in geom, geom)
        digest = re.search(r'^  all coefficients +(crc32c:[0-9a-f]{8})$', done.stdout, re.M)
        want(digest, done.stdout)
        digests.add(digest[1])
    want(len(digests) == 1, 'of the same coefficients', digests)


def forget_expected(path):
    """Give the key of the expected packets another name, as if the file were of 0.1.0. Corrects the
    checksums of the first and of the last block."""
    with open(path, 'rb') as f:
        data = f.read()
    half = (16 + struct.unpack_from('<I', data, 12)[0]) // 2
    at = data.rindex(b'\xff\xff\xff\xff\0\0\0\0', 0, len(data))
    while at % 4096:
        at = data.rindex(b'\xff\xff\xff\xff\0\0\0\0', 0, at)

    def crc_of(block):
        """Where the block has its CRC-32C, for which these digits count as 0."""
        for m in re.finditer(rb'(?<![0-9a-f])[0-9a-f]{8}(?=\0)', block):
            zeros = block[:m.start()] + b'00000000' + block[m.end():]
            if f'{crc32c(zeros):08x}'.encode() == m[0]:
                return m.start()
        raise AssertionError('a block without its CRC')

    def renamed(block, place):
        block = block.replace(b'braggline.expected_packets', b'braggline.expected_packetz')
        zeros = block[:place] + b'00000000' + block[place + 8:]
        return block[:place] + f'{crc32c(zeros):08x}'.encode() + block[place + 8:]

    first, last = crc_of(data[:half]), crc_of(data[at:])
    header = renamed(data[:half], first)
    footer = data[at:].replace(data[first:first + 8], header[first:first + 8])
    with open(path, 'wb') as f:
        f.write(header + header + data[2 * half:at] + renamed(footer, last))


@case
def missing_packets_of_a_partial_readout(where):
    """The totals are those of the rows and streams that the detector sends."""
    sent = module(where, 100, '--modules', '3', '--rows', '64', '--fault', 'loss=0.01')
    two = [p for p in sent if p[37] != 0x52]
    for name, packets, frame, *settings in (('rows', sent, 48), ('absent', two, 32, 'detector.absent=1')):
        missing = 100 * frame - len(packets)
        l, _ = recv(where, packets, 'detector.modules=3', 'detector.rows=64', *settings, out=name)
        want(l['frames'] == 100 and l['lost'] == 0 and l['missing_packets'] == missing, l)
        for whole in False, True:
            sends = 384 if whole else frame
            done = run([f'{BUILD}/app/scan/braggline-scan', f'{where}/{name}'])
            want(done.returncode == 0 and done.stdout.count('every CRC-32C right, complete') == 2, done.stdout)
            share = f'{100 * missing / (100 * sends):.4f}'
            want(f'packets missing    {missing} of {100 * sends} ({share} %)' in done.stdout, sends, done.stdout)
            want(f' of {100 * sends * 8192 / 1e6:.1f} MB raw' in done.stdout, sends, done.stdout)
            for table in 'frames', 'images':
                if not whole:
                    forget_expected(f'{where}/{name}/run_{table}.arrow')


def columns(path):
    """All columns of `frames` except the time of arrival."""
    done = run([f'{BUILD}/app/scan/braggline-scan', '--csv', '-', path])
    want(done.returncode == 0, done.stdout)
    return [line.split(',')[:3] + line.split(',')[4:] for line in done.stdout.splitlines()]


@case
def pixels_in_gpu_memory_give_the_same_files(where):
    rng = random.Random(6)
    # incomplete frames are closed by later frames, none by the timeout, as this machine may be slow
    sent = [p for p in module(where, 30, '--interfaces', '2', '--hit-fraction', '0.3',
                              '--dark-every', '5', '--calibration', where)
            if not 3 < frame_of(p) < 20 or rng.random() > 0.003]
    calibration = [f'calibration.gain={where}/gain_m%d.bin', f'calibration.mask={where}/mask_m%d.bin',
                   *(f'calibration.pedestal_g{g}={where}/pedestal_g{g}_m%d.bin' for g in range(3))]
    capture, out = f'{where}/in.pcap', f'{where}/out'
    write_pcap(capture, sent)
    ways = {'pinned': ('packets in pinned host memory', 'results in pinned host memory'),
            'device': ('packets in memory of gpu_host0', 'results in pinned host memory',
                       'gpu.packets=device'),
            'both': ('packets in memory of gpu_host0', 'results in memory of gpu_host0',
                     'gpu.packets=device', 'gpu.results=device'),
            # a pool as of a NIC; each packet is copied into it
            'pool': ('packets in memory of gpu_host0', 'results in memory of gpu_host0',
                     'gpu.packets=device', 'gpu.results=device', 'port 0.payload=memory')}
    for kind in ('csr', 'image', 'raw'):
        files = {}
        for way, (packets, results, *settings) in ways.items():
            # any access to its memory ends the process, except by gangs and copies
            done = run(command(capture, f'output.directory={out}', f'run.name={kind}_{way}',
                               'run.frames=30', 'run.idle_timeout_ms=20000',
                               'frames.stream_timeout_ms=10000', 'detector.interfaces=2',
                               f'output.format={kind}', 'veto.prescale=4', 'veto.prescale_raw=yes',
                               'lcores.rx_lcores=2', 'lcores.gangs=2', 'dark.select=external_input',
                               'dark.interval_frames=10', 'dark.samples_min=1',
                               *calibration, *settings, gpu='gpu_host0,private=1'))
            want(done.returncode == 0, way, done.stdout)
            want(packets in done.stdout and results in done.stdout, way, done.stdout)
            l = ledger(out, f'{kind}_{way}')
            want(l['balanced'] == 1 and l['prescaled'] > 0 and l['missing_packets'] > 0, l)
            files[way] = f'{out}/{kind}_{way}'
        for way in list(ways)[1:]:
            want(columns(files[way] + '_frames.arrow') == columns(files['pinned'] +
                                                                 '_frames.arrow'), kind, way)
            # images may differ only in the identity of the process and the checksum of each batch
            images = [f'{files[w]}_images.arrow' for w in ('pinned', way)]
            want(os.path.getsize(images[0]) == os.path.getsize(images[1]), kind, way)
            differ = run(['cmp', '-l', *images]).stdout.count('\n')
            want(0 < differ < 400, kind, way, differ)
        subprocess.run(['rm', '-rf', out], check=True)


@case
def gpu_memory_that_cannot_be_used_is_explained(where):
    capture = f'{where}/in.pcap'
    write_pcap(capture, module(where, 1))
    for setting, text in (('port 0.mode=single', 'net_replay0: mode = single'),
                          ('port 0.device=net_nobody0', 'net_nobody0: no such port'),
                          ('gpu.device=gpu_cuda0', 'gpu_cuda0: no such GPU')):
        done = run(command(capture, f'output.directory={where}/out', 'gpu.packets=device', setting))
        want(done.returncode == 2 and text in done.stdout, setting, done.stdout)


@case
def a_run_has_first_frame_and_count(where):
    packets = module(where)
    l, out = recv(where, packets, 'run.first_frame=11', 'run.frames=20', 'veto.dry_run=yes',
                  vdev=',rate=12800')
    want(l['frames'] == 20 and l['stored'] == 20 and l['p_late'] == 10 * 128, out)
    # packets before and after the run do not belong to its rate
    rate = re.search(r'^  (\d+) frames/s, ([\d.]+) Mpackets/s, ([\d.]+) GB/s', out, re.M)
    want(abs(float(rate[2]) * 1e6 / 128 / float(rate[1]) - 1) < 0.2, out)
    want(abs(float(rate[3]) * 1e9 / 1e6 / 1.058 / float(rate[1]) - 1) < 0.2, out)
    subprocess.run(['rm', '-rf', f'{where}/out'], check=True)
    l, out = recv(where, packets, 'run.frames=7', 'veto.dry_run=yes')
    want(l['frames'] == 7 and l['stored'] == 7, out)


def numbered(packets, first):
    """These packets with frame numbers that start at `first`."""
    base = frame_of(packets[0])
    return [renumbered(p, frame_of(p) - base + first) for p in packets]


def restarts(out):
    return re.findall(r'detector restarted: (.*)', out)


@case
def a_restarted_detector_is_followed(where):
    """No packet is lost, whether the frame number goes back far or not. The log has the numbers."""
    packets = module(where, 60)
    for first, sent in (
            (28, (numbered(packets[:33 * 128], 28), numbered(packets[:27 * 128], 1))),
            (1, (packets[:20 * 128], packets[:20 * 128]))):
        subprocess.run(['rm', '-rf', f'{where}/out'], check=True)
        l, out = recv(where, sum(sent, []), 'veto.dry_run=yes')
        frames = sum(len(s) for s in sent) // 128
        want(restarts(out) == [f'frame 1 after frame {first + len(sent[0]) // 128 - 1}'], out)
        want(l['frames'] == l['stored'] == frames, l, out)
        want(l['p_placed'] == frames * 128 and l['missing_packets'] == 0, l, out)


@case
def short_acquisitions_are_all_taken(where):
    """Acquisitions of 5 frames with pauses between them: first the same numbers again, then the
    next ones."""
    packets = module(where, 5)
    sent = [numbered(packets, first) for first in (1, 1, 1, 1, 6)]
    times = [3 * i + k / 10000 for i, s in enumerate(sent) for k in range(len(s))]
    l, out = recv(where, sum(sent, []), 'veto.dry_run=yes',
                  'run.idle_timeout_ms=5000', vdev=',speed=1', times=times)
    want(restarts(out) == 3 * ['frame 1 after frame 5'], out)
    want(l['frames'] == l['stored'] == 25 and l['p_placed'] == 25 * 128, l, out)


@case
def a_gap_costs_no_packets(where):
    """A gap longer than the setting loses no packet either: it counts as a restart."""
    packets = module(where, 20)
    for gap in (50, 300, 16000, 20000):
        subprocess.run(['rm', '-rf', f'{where}/out'], check=True)
        l, out = recv(where, packets + numbered(packets, 21 + gap), 'veto.dry_run=yes')
        want(restarts(out) == ([f'frame {21 + gap} after frame 20'] if gap == 20000 else []), out)
        want(l['lost'] == (0 if gap == 20000 else gap), l, out)
        want(l['stored'] == 40 and l['p_placed'] == 40 * 128, l, out)


@case
def frames_that_came_late_are_counted(where):
    """One of three modules has other frame numbers. Its frames have no row, and the ledger counts
    them."""
    three = module(where, 30, '--modules', '3')
    sent = [p if p[36:38] != struct.pack('>H', 50002) else renumbered(p, frame_of(p) + 1000000)
            for p in three]
    l, out = recv(where, sent, 'detector.modules=3', 'veto.dry_run=yes', 'frames.stream_timeout_ms=200')
    want(l['late_frames'] == 30 and l['frames'] == 60 and l['stored'] == 30, l, out)
    want(l['p_outlier'] == 30 * 128 and l['missing_packets'] == 30 * 128, l, out)
    want('all packets late or out of the window: no row' in out, out)
    want('module 1, interface 0 is at frame 1000001' in out, out)


@case
def refusal_costs_whole_frames(where):
    packets = module(where, 200)
    l, out = recv(where, packets, 'frames.backpressure=refuse', 'frames.slots=4',
                  'frames.max_skew_frames=2', 'gpu.batch=2', lcores='0@0')
    want(l['refused'] > 0 and l['incomplete_kept'] == 0 and l['incomplete'] == 0, out)
    want(l['p_refused'] == l['refused'] * 128, out)


def floats(path):
    values = array.array('f')
    with open(path, 'rb') as f:
        values.frombytes(f.read())
    return values


@case
def a_dark_run_gives_pedestals(where):
    """Dynamic and forced gains in one run; the result calibrates the next run."""
    frames, loops, sent = 13, 10, []
    for i, stage in enumerate(('g0', 'g1', 'g2')):
        sent += module(where, frames, '--dark-run', stage, '--first-frame', str(1 + i * frames),
                       '--calibration', where)
    capture = f'{where}/dark.pcap'
    write_pcap(capture, sent)
    done = run(command(capture, f'output.directory={where}/out', 'run.idle_timeout_ms=300',
                       'run.type=dark', 'output.calibration=no',
                       vdev=f',loops={loops},rewrite=42:8:le:{3 * frames}'))
    out, n = done.stdout, frames * loops
    want(done.returncode == 0 and ledger(f'{where}/out')['stored'] == 3 * n, out)
    want(all(f'G{stage} {n} frames, ' in out for stage in range(3)), out)
    with open(f'{where}/mask_m0.bin', 'rb') as f:
        mask = f.read()
    for stage in range(3):
        truth = floats(f'{where}/pedestal_g{stage}_m0.bin')
        found = floats(f'{where}/out/run_pedestal_g{stage}_m0.bin')
        good = [f - t for f, t, m in zip(found, truth, mask)
                if m == 0 and f < 16383 and 0 < t < 16383]
        mean = sum(good) / len(good)
        worst = max(abs(d) for d in good)
        want(len(good) > 0.99 * len(truth) and abs(mean) < 1, stage, len(good), mean)
        # the largest deviation: a noise of about 50 ADU, the mean of 13 samples, half a million
        # pixels
        want(worst < 120, stage, worst)
    # a data run uses them; their sidecars identify the detector
    subprocess.run(['rm', '-rf', f'{where}/data'], check=True)
    capture = f'{where}/data.pcap'
    write_pcap(capture, module(where, 20))
    settings = [f'calibration.pedestal_g{g}={where}/out/run_pedestal_g{g}_m%d.bin'
                for g in range(3)]
    done = run(command(capture, f'output.directory={where}/data', 'run.idle_timeout_ms=300',
                       f'calibration.gain={where}/gain_m%d.bin', *settings))
    want(done.returncode == 0, done.stdout)
    done = run(command(capture, f'output.directory={where}/data2', 'run.idle_timeout_ms=300',
                       'detector.modules=2', *settings))
    want(done.returncode == 1 and 'pedestal' in done.stdout, done.stdout)


@case
def signals_end_a_run_cleanly(where):
    packets = module(where, 10)
    capture = f'{where}/in.pcap'
    write_pcap(capture, packets)
    for number in (signal.SIGTERM, signal.SIGINT):
        out = f'{where}/out{number}'
        # frames 1 ... 10, 11 ... 20 and so on without end, 200 a second
        with subprocess.Popen(command(capture, f'output.directory={out}', 'veto.dry_run=yes',
                                      vdev=',loops=0,rewrite=42:8:le:10,rate=25600'),
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True) as p:
            wait('a run', lambda: p.poll() is not None or os.path.exists(f'{out}/run_frames.arrow.part'))
            time.sleep(2)
            p.send_signal(number)
            text = p.communicate(timeout=60)[0]
            want(p.returncode == 0, p.returncode, text)
        l = ledger(out)
        want(l['balanced'] == 1 and l['frames'] > 50 and l['lost'] == 0, text)
        want(os.path.exists(f'{out}/run_images.arrow'), text)


sys.exit(run_cases(sys.argv[2:]))
