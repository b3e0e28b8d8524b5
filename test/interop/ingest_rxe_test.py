#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""RoCE detectors and receivers at both ends of the network card of a rdma_rxe guest. The columns
equal those of a run over UDP with the same pixels.

usage: ingest_rxe_test.py BUILDDIR [PART]...
independent  rxe_detector.c in the guest, by SEND and RDMA WRITE, also restarted in mid-frame;
             braggline-recv with the roce provider here
detector     braggline-detector with the verbs provider in the guest
receiver     braggline-recv with the verbs provider in the guest, braggline-detector with the roce
             provider here
"""

import configparser
import os
import random
import shlex
import struct
import sys
import tempfile
import time

from rdma_peer import LINK, OURS, THEIRS, outcome, step
from rxe_ends import NIC, Ends
from rxe_vm import Broken

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../smoke'))
import roce_ingest_test as smoke  # noqa: E402
from cases import want  # noqa: E402

FRAMES = 12
ROWS = 64       # of a module: few, as an emulated CPU is slow
# record batches do not depend on time
UDP = {'run.frames': FRAMES, 'detector.rows': ROWS, 'output.batch_ms': 0}
SECONDS = 120   # limit of a run
SERVICE = 4792
RATE = 20       # frames/s of braggline-detector


class Rig(Ends):
    """A capture of a UDP detector, its pixels, and a guest."""

    def __init__(self, build, where):
        super().__init__(build, where, smoke.FLOAT, SECONDS)
        self.udp = smoke.simulate(where, '--frames', str(FRAMES), '--rows', str(ROWS), '--rate',
                                  str(RATE))
        self.streams = 1 + max(smoke.place_of(p)[0] for _, _, p in self.udp)
        self.tiles = len(self.udp) // FRAMES // self.streams
        self.headers = {}       # module id, row, column, first tile of each stream
        for _, _, p in self.udp:
            stream, _, tile = smoke.place_of(p)
            if stream not in self.headers or tile < self.headers[stream][3]:
                self.headers[stream] = (*struct.unpack_from('<HHH', p, 42 + 32), tile)
        self.write_pixels()

    def write_pixels(self):
        """Write the pixels, and what else a frame's headers have, for rxe_detector."""
        pixels = bytearray(len(self.udp) * 8192)
        frames = {}
        for _, _, p in self.udp:
            stream, frame, _ = smoke.place_of(p)
            at = (((frame - 1) * self.streams + stream) * self.tiles
                  + self.index(p)) * 8192
            pixels[at:at + 8192] = p[90:]
            # exposure, bunch id, timestamp, and detSpec3
            frames[frame] = struct.unpack_from('<QI4xQQ8xI', p, 42)
        with open(f'{self.where}/pixels', 'wb') as out:
            out.write(pixels)
        with open(f'{self.where}/frames', 'w', encoding='ascii') as out:
            for number in sorted(frames):
                _, exposure, bunch, timestamp, info = frames[number]
                out.write(f'{number} {exposure} {bunch} {timestamp} {info}\n')

    def index(self, p):
        """Number of a packet's tile among those of its stream and frame that are read out."""
        stream, _, tile = smoke.place_of(p)
        return tile - self.headers[stream][3]

    def boot(self):
        super().boot('app/recv/braggline-recv', 'app/detector/braggline-detector',
                     'test/interop/rxe_detector')
        self.guest.run('sysctl -q -w net.ipv4.neigh.eth0.ucast_solicit=10 2>/dev/null; true')

    def settings(self, folder, name, transport, frames, values):
        """Settings of a receiver, whose files are in folder."""
        settings = {
            'detector.modules': 2, 'detector.interfaces': 2, 'detector.rows': ROWS, 'run.name': 'run',
            'run.frames': frames, 'run.first_frame': 1, 'run.idle_timeout_ms': SECONDS * 1000,
            'frames.stream_timeout_ms': 10000, 'frames.incomplete': 'keep',
            'output.directory': f'{folder}/{name}', 'output.preview': 'off',
            'output.frames_interval': 64, 'output.images_interval': 8, 'output.batch_ms': 0,
            'detector.transport': transport, 'ingest.card': f'{folder}/{name}.card',
            'calibration.gain': f'{folder}/gain_m%d.bin',
            'calibration.mask': f'{folder}/mask_m%d.bin', **values}
        for gain in range(3):
            settings[f'calibration.pedestal_g{gain}'] = f'{folder}/pedestal_g{gain}_m%d.bin'
        for key, value in settings.items():
            yield from ('--set', f'{key}={value}')

    def receiver(self, name, transport, frames=FRAMES, **values):
        """Start braggline-recv with the roce provider here."""
        values = {key.replace('__', '.'): value for key, value in values.items()}
        device = f'roce:port={NIC},ip={OURS}/24'
        return self.here(name, 'recv/braggline-recv', '1024', [
            '--vdev', 'gpu_host0', '--', '--quiet',
            *self.settings(self.where, name, transport, frames,
                           {'port 0.device': device, **values})])

    def card(self, name, process):
        self.until(lambda: os.path.exists(f'{self.where}/{name}.card'), process, 'the card')
        card = configparser.ConfigParser()
        card.read(f'{self.where}/{name}.card')
        return card

    def independent(self, card, *options):
        """Run rxe_detector with the registers of a card."""
        common = card['card']
        words = ['rxe_detector', '--ip', card['stream 0']['ip'], '--frames', '/share/frames',
                 '--pixels', '/share/pixels', '--tiles', common['tiles'], '--send', str(self.tiles),
                 '--leader', common.get('leader_bytes', '0'), '--slots', common.get('slots', '1'),
                 '--mtu', common['mtu'], *(['--write'] if common['transport'] == 'write' else []),
                 '--interval-us', '20000', *options]
        for s in range(self.streams):
            of = card[f'stream {s}']
            words += ['--stream', ','.join((of['qpn'], of['psn'], of.get('rkey', '0'), of.get('base', '0'),
                                            *map(str, self.headers[s])))]
        if self.guest is None:
            self.boot()
        job = self.guest.run(f'{LINK}; {shlex.join(words)}', SECONDS)
        want(job.status == 0, job.output)

    def check(self, name, udp, frames=FRAMES, events=FRAMES, lossless=True):
        """The ledger is balanced, and the columns are those of a run over UDP."""
        ini = configparser.ConfigParser()
        ini.read(f'{self.where}/{name}/run_ledger.ini')
        numbers = {f'{s}.{k}': int(v) for s in ('frames', 'packets', 'ports')
                   for k, v in ini[s].items()}
        want(numbers['frames.balanced'] == 1, numbers)
        want(numbers['packets.events'] == events * self.streams, numbers)
        if lossless:
            want(sum(int(v) for v in ini['ports'].values()) == 0, numbers)
        smoke.same(self.where, udp, name, frames)


def independent(rig, say):
    """rxe_detector's columns are those of UDP."""
    smoke.receive(rig.where, 'udp', rig.udp, UDP)
    for name, transport, values in (
            ('send', 'send', {}), ('write', 'write', {}),
            ('memory', 'write', {'ingest__delivery': 'memory'})):
        process = rig.receiver(name, transport, **values)
        rig.independent(rig.card(name, process))
        rig.ends(process, 'braggline-recv')
        rig.check(name, 'udp')
        say(name)
    for name, transport, values in (
            ('restart_send', 'send', {}), ('restart_write', 'write', {}),
            ('restart_memory', 'write', {'ingest__delivery': 'memory'})):
        restarted(rig, name, transport, values)
        say(name)


def restarted(rig, name, transport, values):
    """The detector ends in the middle of frame 5. Its successor has another PSN and source port,
    and begins with frame 6."""
    stop, tiles = 5, 3
    rest = [p for p in rig.udp
            if smoke.place_of(p[2])[1] != stop or rig.index(p[2]) < tiles]
    smoke.receive(rig.where, f'udp_{name}', rest, UDP)
    process = rig.receiver(name, transport, **values)
    card = rig.card(name, process)
    rig.independent(card, '--stop', f'{stop}:{tiles}')
    rig.independent(card, '--from', str(stop + 1), '--first-psn',
                    str(random.Random(name).randrange(1 << 24)))
    rig.ends(process, 'braggline-recv')
    rig.check(name, f'udp_{name}', events=FRAMES - 1)


def simulated(transport, device):
    """Options of braggline-detector, for the same pixels as in the capture."""
    return ['--modules', '2', '--interfaces', '2', '--rows', str(ROWS), '--frames', str(FRAMES),
            '--distinct', str(FRAMES), '--hit-fraction', '0.3', '--dark-every', '7', '--rate',
            str(RATE), '--transport', transport, '--device', device, '--link-wait', str(SECONDS)]


def detector(rig, say):
    """braggline-detector in the guest, with the verbs provider."""
    smoke.receive(rig.where, 'udp', rig.udp, UDP)
    for name, transport, values, source in (
            ('card', 'write', {}, lambda name: ('--card', f'/share/{name}.card')),
            ('connect', 'send', {'ingest__service': SERVICE},
             lambda _: ('--connect', f'{OURS}:{SERVICE}'))):
        process = rig.receiver(name, transport, **values)
        rig.card(name, process)
        if rig.guest is None:
            rig.boot()
        job = rig.guest.run(rig.script(f'{name}.sh', rig.there('braggline-detector', '256', [
            '--', *simulated(transport, 'verbs:rxe0'), *source(name)]) + '\n'), SECONDS)
        want(job.status == 0, job.output)
        rig.ends(process, 'braggline-recv')
        rig.check(name, 'udp')
        say(f'detector, {name}')


def receiver(rig, say):
    """braggline-recv in the guest, with the verbs provider: it resolves the detector's address, so
    the detector must be there before, and connects through the CM."""
    smoke.receive(rig.where, 'udp', rig.udp, UDP)
    process = rig.here('detector', 'detector/braggline-detector', '256', [
        '--', *simulated('write', f'roce:port={NIC},ip={OURS}/24,mtu=4096'),
        '--connect', f'{THEIRS}:{SERVICE}'])
    rig.boot()
    words = ['--vdev', 'gpu_host0', '--', '--quiet', *rig.settings(
        '/share', 'verbs', 'write', FRAMES,
        {'port 0.device': 'verbs:rxe0', 'ingest.service': SERVICE, 'ingest.slots': 32,
         'frames.slots': 16})]
    job = rig.guest.run(rig.script('receiver.sh', rig.there('braggline-recv', '384', words) + '\n'),
                        SECONDS)
    want(job.status == 0, job.output)
    rig.ends(process, 'braggline-detector')
    rig.check('verbs', 'udp')
    say('receiver, verbs')


PARTS = (independent, detector, receiver)
KNOWN = [part.__name__ for part in PARTS]


def test(build, names):
    begin = time.monotonic()
    for part in PARTS:
        if part.__name__ not in names:
            continue
        with tempfile.TemporaryDirectory() as where, Rig(os.path.abspath(build), where) as rig:
            try:
                part(rig, lambda what: step(what, begin))
            except (AssertionError, Broken) as wrong:
                rig.show()
                raise Broken(str(wrong)) from wrong


def main():
    if len(sys.argv) < 2 or any(name not in KNOWN for name in sys.argv[2:]):
        print(__doc__, file=sys.stderr)
        return 2
    return outcome(test, sys.argv[1], sys.argv[2:] or KNOWN)


if __name__ == '__main__':
    sys.exit(main())
