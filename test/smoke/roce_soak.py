#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A RoCE detector and its receiver, restarted and killed again and again while packets are lost.

    roce_soak.py [--minutes N] [--cycles N] [--seed N] [--logs DIR] BUILD-DIR

In a cycle a detector sends FRAMES frames to a receiver over a pair of veth devices, by SEND or by
WRITE, by reference or into memory, with a card from a file or from the CM. Packets, parts of
messages and events are lost. One end or both are restarted, by SIGTERM or by kill -9. Then the files
are compared with those of a UDP run without loss:

- each frame number of a run has one row, and the rows add up to the ledger's columns,
- a complete frame has the columns and the pixels of the UDP run,
- of an incomplete frame, each packet is missing, or has the pixels of the UDP run: no pixel is that
  of another frame.

Logs and files of a failed cycle stay in DIR; its seed, with --cycles 1, repeats its settings and
moments. It runs in its own network namespace.
"""

import argparse
import configparser
import math
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

import background
import chain
import world
from cases import wait, want
from wire import link, unlink

FRAMES, FIRST, RATE = 80, 1, 30
MODULES, INTERFACES, ROWS = 1, 2, 64
STREAMS = MODULES * INTERFACES
COLUMNS, PACKET_ROWS, PACKETS = 1024, 4, 128
PACKET_PIXELS = COLUMNS * PACKET_ROWS
LCORES = f'0@(0-{os.cpu_count() - 1})'
DETECTOR = '--modules', str(MODULES), '--interfaces', str(INTERFACES), '--rows', str(ROWS), \
    '--hit-fraction', '0.3', '--rate', str(RATE), '--distinct', str(FRAMES)
SERVICE = 4792
LEAST = 5      # frames of the run after a restart, at least
AHEAD = 16     # frames after the run's last one: more than [frames] max_skew_frames
SECONDS = 900  # limit for a run: the machine may be busy
FLAG_INCOMPLETE, FLAG_TIMEOUT = 1, 8
KEPT = 1, 2, 3
# verdict: column of the ledger; the columns of kept frames add up
LEDGER = {4: 'incomplete', 5: 'lost', 6: 'refused', 7: 'aborted'}
# buffers of columns that depend on the time of arrival
RECEIVE_TIME = 7
# buffer, type and number of values in a row: all other columns of `frames`
FLAGS, MISSING, VERDICT = 13, 16, 28
COLUMN_BUFFERS = {
    'bunch_id': (3, 'Q', 1), 'detector_time': (5, 'Q', 1), 'exposure': (9, 'I', 1),
    'detector_status': (11, 'I', 1), 'missing': (MISSING, 'H', MODULES),
    'strong_count': (18, 'I', 1), 'sum': (20, 'd', 1), 'saturated': (22, 'I', 1),
    'invalid': (24, 'I', 1), 'nnz': (26, 'I', 1), 'verdict': (VERDICT, 'B', 1), 'kind': (30, 'B', 1),
    'veto_version': (32, 'I', 1), 'pedestal_version': (34, 'I', 1)}
# buffers of images: pixels, and the bitmap of missing packets
VALUE, BITMAP = 15, 21
NAN = struct.pack('<f', math.nan) * PACKET_PIXELS

WAYS = (  # transport, delivery, with the CM
    ('send', 'reference', False), ('write', 'reference', False), ('write', 'memory', False),
    ('send', 'reference', True), ('write', 'reference', True), ('write', 'memory', True))
ENDS = ('none', 'detector TERM', 'detector KILL', 'recv TERM', 'recv KILL', 'both KILL',
        'recv KILL, same card')


def buffer_of(batch, number):
    at, size = struct.unpack_from('<qq', batch.data, batch.metadata +
                                  chain.PLACES[batch.table][1] + 16 * number)
    return batch.data[batch.body + at:batch.body + at + size]


def paths(directory, run, table):
    return [f'{directory}/{name}' for name in sorted(os.listdir(directory))
            if name in (f'{run}_{table}.arrow', f'{run}_{table}.arrow.part')]


def read_rows(directory, run):
    """Rows of `frames`, in their order: a list of (frame, flags, columns)."""
    found = []
    for path in paths(directory, run, 'frames'):
        for batch in chain.whole_batches(path):
            columns = {}
            for name, (number, kind, n) in COLUMN_BUFFERS.items():
                data = buffer_of(batch, number)
                values = struct.unpack_from(f'<{n * batch.rows}{kind}', data)
                columns[name] = [values[i * n:i * n + n] for i in range(batch.rows)]
            flags = batch.column(FLAGS, 'I')
            for i, frame in enumerate(batch.column(chain.FRAME, 'Q')):
                found.append((frame, flags[i], {k: v[i] for k, v in columns.items()}))
    return found


def read_images(directory, run):
    """Pixels and bitmap of each image: yields (frame, pixels, bitmap). A batch has one row."""
    for path in paths(directory, run, 'images'):
        for batch in chain.whole_batches(path):
            want(batch.rows == 1, path, 'has a batch of', batch.rows)
            frame, = batch.column(chain.FRAME, 'Q')
            yield frame, buffer_of(batch, VALUE), buffer_of(batch, BITMAP)


def port(interface):
    """EAL arguments of a port on a veth device. net_af_packet has an MTU of at most 1500."""
    return '--vdev', f'net_pcap0,iface={interface},phy_mac=1'


class Site:
    def __init__(self, build, where):
        self.build = build
        self.where = where
        self.running = []
        link('d0', 8, 'r0', 12)
        subprocess.run([f'{build}/app/detector/braggline-detector', *DETECTOR, '--frames',
                        str(FRAMES), '--pcap', f'{where}/in.pcap', '--calibration', where],
                       check=True, stdin=subprocess.DEVNULL)
        self.reference()

    def close(self):
        unlink('d0')

    def spawn(self, log, program, eal, words):
        with open(log, 'a', encoding='ascii') as out:
            p = background.start([f'{self.build}/{program}', '--no-huge', '--no-pci', '--no-shconf',
                                  '--no-telemetry', '--log-level', 'lib.eal:warning', '--lcores',
                                  LCORES, *eal, '--', *words], stdout=out, stderr=out)
        self.running.append(p)
        return p

    def detector(self, words, log):
        return self.spawn(log, 'app/detector/braggline-detector', [
            '-m', '384', *port('d0')], [*DETECTOR, *words])

    def recv(self, log, directory, run, eal, **settings):
        words = ['--quiet']
        for key, value in {
                'detector__modules': MODULES, 'detector__interfaces': INTERFACES,
                'detector__rows': ROWS, 'run__name': run, 'run__first_frame': FIRST,
                'run__frames': FRAMES, 'run__idle_timeout_ms': 60000,
                'frames__slots': 16, 'frames__backpressure': 'wait', 'veto__dry_run': 'yes',
                'output__directory': directory, 'output__preview': 'off',
                'output__format': 'image', 'output__frames_interval': 4,
                'output__images_interval': 1, 'output__calibration': 'no',
                'calibration__gain': f'{self.where}/gain_m%d.bin',
                'calibration__mask': f'{self.where}/mask_m%d.bin',
                **{f'calibration__pedestal_g{g}': f'{self.where}/pedestal_g{g}_m%d.bin'
                   for g in range(3)}, **settings}.items():
            words += ['--set', f'{key.replace("__", ".").replace("port.", "port 0.")}={value}']
        return self.spawn(log, 'app/recv/braggline-recv',
                          ['-m', '1024', '--vdev', 'gpu_host0', *eal], words)

    def reference(self):
        """Rows and pixels of a run over UDP without loss."""
        where = f'{self.where}/udp'
        p = self.recv(f'{self.where}/udp.log', where, 'run',
                      ['--vdev', f'net_replay0,file={self.where}/in.pcap'],
                      port__device='net_replay0')
        code = p.wait(SECONDS)
        with open(f'{self.where}/udp.log', encoding='ascii', errors='replace') as log:
            want(code == 0, 'the UDP run fails:', log.read())
        self.rows = {frame: columns for frame, _, columns in read_rows(where, 'run')}
        want(sorted(self.rows) == list(range(FIRST, FIRST + FRAMES)), 'rows of the UDP run')
        self.pixels = {frame: pixels for frame, pixels, _ in read_images(where, 'run')}
        want(sorted(self.pixels) == sorted(self.rows), len(self.pixels), 'images of the UDP run')
        shutil.rmtree(where)


def packets_sent():
    """RoCE packets that the detector has sent since its start, and a few others."""
    with open('/proc/net/dev', encoding='ascii') as devices:
        for line in devices:
            name, _, counters = line.partition(':')
            if name.strip() == 'd0':
                return int(counters.split()[9])
    raise AssertionError('no device d0')


class Cycle:
    """One run, or two if the receiver is restarted."""

    def __init__(self, site, seed, where):
        self.site = site
        self.seed = seed
        self.where = where
        self.random = random.Random(seed)
        self.way = self.random.choice(WAYS)
        ends = [end for end in ENDS if end[-4:] != 'card' or self.way[1:] == ('reference', False)]
        self.end = self.random.choice(ends)
        self.runs = []
        self.killed = set()
        self.late = False  # the last frames were sent before the receiver ran
        self.first = FIRST
        os.makedirs(f'{where}/out')

    def __str__(self):
        transport, delivery, cm = self.way
        return f'{transport}, {delivery}, {"CM" if cm else "card"}, {self.end}'

    def start_recv(self):
        transport, delivery, cm = self.way
        run = f'run{len(self.runs)}'
        self.runs.append(run)
        card = f'{self.where}/card.ini'
        if os.path.exists(card):
            os.unlink(card)
        settings = {'ingest__service': SERVICE} if cm else {}
        if self.end.endswith('card'):
            settings.update(ingest__qpn=0x11, ingest__rkey=0x1234)
        # a small ring is overwritten now and then
        if delivery == 'memory':
            settings['ingest__slots'] = 32 if self.seed % 2 else 128
        self.receiver = self.site.recv(
            f'{self.where}/{run}.log', f'{self.where}/out', run,
            [*port('r0')], port__device='roce:port=net_pcap0,ip=10.1.2.1/16', detector__transport=transport,
            ingest__delivery=delivery, ingest__card=card, **settings)
        wait('the card', lambda: os.path.exists(card) or self.receiver.poll() is not None, SECONDS)
        want(self.receiver.poll() is None, 'the receiver ended with', self.receiver.returncode)

    def faults(self):
        r = self.random
        for fault in (f'drop=FIRST:{r.choice((0, 0.001, 0.01))}',
                      f'drop=MIDDLE:{r.choice((0, 0.001, 0.01))}',
                      f'drop=LAST:{r.choice((0, 0.001, 0.01))}',
                      f'event-loss={r.choice((0, 0.02, 0.1))}', f'loss={r.choice((0, 0.001))}',
                      f'burst-loss={r.choice((0, 0.0005))}:10',
                      f'duplicate={r.choice((0, 0.001))}'):
            yield from ('--fault', fault)

    def start_detector(self, first):
        transport, _, cm = self.way
        self.first = first
        self.began = packets_sent()
        self.sender = self.site.detector(
            ['--first-frame', str(first), '--frames', str(FIRST + FRAMES + AHEAD - first),
             '--transport', transport, '--device', 'roce:port=net_pcap0,ip=10.1.1.1/16,mtu=4096',
             '--report', f'{self.where}/report{first}.ini', '--fault-seed', str(self.seed),
             *(('--connect', f'10.1.2.1:{SERVICE}') if cm else
               ('--card', f'{self.where}/card.ini')), *self.faults()],
            f'{self.where}/detector.log')

    def sent(self):
        """About the last frame that was sent: messages of 3 packets, and events."""
        a_frame = STREAMS * (3 * ROWS // PACKET_ROWS // INTERFACES + 1)
        return self.first + (packets_sent() - self.began) // a_frame

    def stop(self, process, signal_number):
        """@return whether it was killed"""
        if process.poll() is None:
            process.send_signal(signal_number)
        process.wait(SECONDS)
        return signal_number == signal.SIGKILL

    def disturb(self):
        """End one end or both in mid-run, and start them again."""
        who, number = self.end.split(',')[0].split(' ')
        number = getattr(signal, f'SIG{number}')
        again = self.end.endswith('card')
        # a receiver needs a second to recover files, in which the detector may go on
        at = FIRST + self.random.randrange(FRAMES // 4 if again else FRAMES * 3 // 4)
        wait(f'frame {at}', lambda: self.sent() >= at or self.sender.poll() is not None, SECONDS)
        time.sleep(self.random.uniform(0, 2 / RATE))
        if self.receiver.poll() is not None:
            return  # the machine was busy: the run has ended before
        if who != 'detector' and self.stop(self.receiver, number):
            self.killed.add(self.runs[-1])
        if who != 'recv':
            self.stop(self.sender, number)
        if who == 'recv' and not again:
            # for a while it sends to a receiver that has exited
            time.sleep(self.random.uniform(0, 0.2))
            self.stop(self.sender, signal.SIGTERM)
        first = min(self.sent() + self.random.randrange(1, 4), FIRST + FRAMES - LEAST)
        if who != 'detector':
            self.start_recv()
        if not again:
            self.start_detector(first)

    def finish(self):
        try:
            code = self.receiver.wait(SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError('the receiver does not end') from None
        with open(f'{self.where}/{self.runs[-1]}.log', encoding='ascii', errors='replace') as log:
            said = log.read()
        none = re.search(r'run \w+: (the detector is at frame|no packet received)', said)
        want(code == int(none is not None), 'the receiver ended with', code)
        want(none is None or self.end.endswith('card'), 'no packet came:', said)
        # the lcore had no CPU for a while, and the last frames found a full ring
        starved = 'did not run for' in said or 'ring_full' in said
        self.late = none is not None or (starved and 'did not arrive' in said)
        # 1: the receiver has ended, as the CM says, or before the detector has found it
        want(self.sender.wait(SECONDS) in (0, 1), 'the detector ended with',
             self.sender.returncode)

    def check_ledger(self, run, rows):
        ledger = configparser.ConfigParser()
        want(ledger.read(f'{self.where}/out/{run}_ledger.ini'), run, 'has no ledger')
        frames = {k: int(v) for k, v in ledger['frames'].items()}
        want(frames['balanced'] == 1 and frames['unwritten'] == frames['in_flight'] == 0, frames)
        numbers = [frame for frame, _, _ in rows]
        if run == self.runs[-1]:
            want(numbers == list(range(FIRST, FIRST + FRAMES)), run, 'has the rows', numbers)
        want(len(set(numbers)) == len(numbers) == frames['frames'], numbers, frames)
        verdicts = [columns['verdict'][0] for _, _, columns in rows]
        want(sum(v in KEPT for v in verdicts) == frames['stored'], verdicts, frames)
        for verdict, column in LEDGER.items():
            want(verdicts.count(verdict) == frames[column], column, verdicts, frames)
        want(sum(int(n) for k, n in ledger['packets'].items() if k in OUTCOMES) ==
             ledger.getint('packets', 'packets'), dict(ledger['packets']))

    def check_pixels(self, frame, pixels, bitmap):
        """@return whether it is complete"""
        good, size = self.site.pixels[frame], 4 * PACKET_PIXELS
        want(len(pixels) == len(good), frame, len(pixels), len(good))
        if pixels == good:
            return True
        for packet in range(len(good) // size):
            part = pixels[packet * size:(packet + 1) * size]
            missing = bitmap[packet // 8] >> packet % 8 & 1
            want(part == (NAN if missing else good[packet * size:(packet + 1) * size]), 'frame',
                 frame, 'packet', packet, 'has', 'pixels' if missing else 'other pixels')
        return False

    def check(self):
        """@return number of frames: complete, incomplete"""
        complete, incomplete, unstored = 0, 0, 0
        for run in self.runs:
            rows = read_rows(f'{self.where}/out', run)
            if run not in self.killed and not self.late:
                self.check_ledger(run, rows)
            kept = {}
            for frame, flags, columns in rows:
                if columns['verdict'][0] not in KEPT:
                    continue
                want(FIRST <= frame < FIRST + FRAMES, frame)
                kept[frame] = not flags & FLAG_INCOMPLETE
                if kept[frame]:
                    want(columns == self.site.rows[frame], run, 'frame', frame, columns, 'UDP:',
                         self.site.rows[frame])
            for frame, pixels, bitmap in read_images(f'{self.where}/out', run):
                whole = self.check_pixels(frame, pixels, bitmap)
                # a killed receiver may have written an image, and not its row
                if frame not in kept:
                    want(run in self.killed, run, 'has an image without row:', frame)
                    unstored += 1
                    continue
                want(kept.pop(frame) == whole, run, 'frame', frame)
                complete += whole
                incomplete += not whole
            want(not kept, run, 'has no images of', list(kept))
        return complete, incomplete

    def play(self):
        self.start_recv()
        self.start_detector(FIRST)
        if self.end != 'none':
            self.disturb()
        self.finish()
        return self.check()


OUTCOMES = ('placed', 'duplicate', 'late', 'refused', 'outlier', 'after_run', 'no_run',
            'other_receiver', 'foreign', 'bad_checksum', 'misplaced', 'fragment', 'wrong_length',
            'malformed', 'overrun', 'handoff_full', 'at_stop')


def run_cycle(site, seed, logs):
    """@return complete and incomplete frames; None: it failed"""
    begin = time.monotonic()
    where = f'{logs}/cycle{seed}'
    cycle = Cycle(site, seed, where)
    result = None
    try:
        result = cycle.play()
        said = f'{result[0]} complete and {result[1]} incomplete frames'
    except (AssertionError, OSError, subprocess.SubprocessError) as e:
        said = f'FAILED, see {where}: {str(e)[:2000]}'
    finally:
        for process in site.running:
            if process.poll() is None:
                process.kill()
                process.wait()
        site.running.clear()
    if result is not None:
        shutil.rmtree(where)
    print(f'cycle {seed}: {cycle}: {said} ({time.monotonic() - begin:.1f} s)', flush=True)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n', maxsplit=1)[0])
    parser.add_argument('--minutes', type=float, default=60, help='no cycle starts after this time')
    parser.add_argument('--cycles', type=int, default=sys.maxsize)
    parser.add_argument('--seed', type=int, default=int(time.time()), help='of the first cycle')
    parser.add_argument('--logs', help='directory of logs (a new one in TMPDIR)')
    parser.add_argument('build')
    o = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit('roce_soak: SIGTERM'))
    logs = o.logs or tempfile.mkdtemp(prefix='braggline-roce-soak-')
    begin = time.monotonic()
    results = []
    with tempfile.TemporaryDirectory() as where:
        site = Site(os.path.abspath(o.build), where)
        while len(results) < o.cycles and time.monotonic() < begin + 60 * o.minutes:
            results.append(run_cycle(site, o.seed + len(results), logs))
        site.close()
    failed = results.count(None)
    good = [r for r in results if r is not None]
    print(f'{len(results)} cycles, {failed} failed, {sum(r[0] for r in good)} complete and '
          f'{sum(r[1] for r in good)} incomplete frames, {time.monotonic() - begin:.0f} s')
    if not failed and not o.logs:
        os.rmdir(logs)
    want(failed or sum(r[0] for r in good) > 0, 'no frame arrived')
    sys.exit(failed > 0)


if __name__ == '__main__':
    world.inside(main)
