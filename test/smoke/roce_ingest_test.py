#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""RoCE detectors, replayed from captures that this test makes itself: the files equal those of a
run over UDP, column by column, without loss and with the same tiles lost.

usage: roce_ingest_test.py BUILD-DIR [CASE]...
"""

import concurrent.futures
import configparser
import os
import random
import re
import struct
import subprocess
import sys

import roce_capture
from cases import case, run_cases, wait, want
from run_files import FLAG_TIMEOUT, bodies, rows

BUILD = os.path.abspath(sys.argv[1])
FLOAT = f'(0-5)@(0-{os.cpu_count() - 1})'
FRAMES, MODULES, INTERFACES = 24, 2, 2
STREAMS, TILES = MODULES * INTERFACES, 128 // INTERFACES


def run(*command, status=0):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False, timeout=120)
    want(status is None or done.returncode == status, 'status', done.returncode, 'of', ' '.join(command), '\n',
         done.stdout)
    return done.stdout


def receive(where, name, packets, settings, replay='', device='net_replay0', log=None,
            status=0):
    """Receive a capture. @return the ledger and the output"""
    roce_capture.write_pcap(f'{where}/{name}.pcap', packets)
    command = [f'{BUILD}/app/recv/braggline-recv', '--no-huge', '-m', '1024', '--no-pci',
               '--no-shconf', '--no-telemetry', '--lcores', FLOAT, '--vdev', 'gpu_host0',
               *(['--log-level', log] if log else []),
               '--vdev', f'net_replay0,file={where}/{name}.pcap{replay}', '--', '--quiet']
    settings = {
        'detector.modules': MODULES, 'detector.interfaces': INTERFACES, 'run.name': 'run',
        'run.frames': FRAMES, 'run.first_frame': 1, 'run.idle_timeout_ms': 2000,
        'frames.backpressure': 'wait', 'frames.stream_timeout_ms': 3000,
        'frames.incomplete': 'keep', 'output.directory': f'{where}/{name}',
        'output.preview': 'off', 'output.frames_interval': 64, 'output.images_interval': 8,
        'output.batch_ms': 60000,
        'calibration.gain': f'{where}/gain_m%d.bin', 'calibration.mask': f'{where}/mask_m%d.bin',
        'port 0.device': device, **settings}
    for gain in range(3):
        settings[f'calibration.pedestal_g{gain}'] = f'{where}/pedestal_g{gain}_m%d.bin'
    for key, value in settings.items():
        command += ['--set', f'{key}={value}']
    out = run(*command, status=status)
    ini = configparser.ConfigParser()
    ini.read(f'{where}/{name}/run_ledger.ini')
    return ({**{k: int(v) for k, v in ini['frames'].items()},
             **{f'p_{k}': int(v) for k, v in ini['packets'].items()}}, out)


def receive_roce(where, name, udp, transport, lose=None, settings=None, replay='', log=None):
    card = roce_capture.Card(transport, STREAMS, TILES)
    packets = roce_capture.convert(udp, card, lose=lose)
    return receive(where, name, packets,
                   {'detector.transport': transport, 'ingest.qpn': card.qpn,
                    'ingest.rkey': card.rkey, **(settings or {})},
                   ',align_at=54' + replay, 'roce:port=net_replay0,ip=10.1.2.1/16', log)


def simulate(where, *options):
    run(f'{BUILD}/app/detector/braggline-detector', '--modules', str(MODULES), '--interfaces',
        str(INTERFACES), '--frames', str(FRAMES), '--hit-fraction', '0.3', '--dark-every', '7',
        '--pcap', f'{where}/in.pcap', '--calibration', where, *options)
    return roce_capture.read_pcap(f'{where}/in.pcap')


def same(where, one, other, frames=FRAMES):
    a, b = rows(BUILD, where, one, FLAG_TIMEOUT), rows(BUILD, where, other, FLAG_TIMEOUT)
    want(len(a) == frames, len(a), 'rows')
    for x, y in zip(a, b):
        want(x == y, one, x, '\n', other, y)
    want(len(a) == len(b), len(a), len(b))
    images = [list(bodies(where, name)) for name in (one, other)]
    want(images[0] == images[1], 'images of', one, 'and', other, 'differ:',
         [[len(body) for body in bodies] for bodies in images])
    hits = sum(row['verdict'] == '1' for row in a)
    want(0 < hits < frames, hits, 'hits')


def place_of(p):
    """Stream, frame and tile of a UDP packet."""
    return (struct.unpack_from('!H', p, 36)[0] - 50001, struct.unpack_from('<Q', p, 42)[0],
            struct.unpack_from('<I', p, 54)[0])


@case
def equal_to_udp(where):
    udp = simulate(where)
    receive(where, 'udp', udp, {})
    for transport in ('send', 'write'):
        ledger, out = receive_roce(where, transport, udp, transport)
        want(ledger['balanced'] == 1 and ledger['p_placed'] == len(udp), ledger, out)
        want(ledger['p_events'] == FRAMES * STREAMS, ledger)
        same(where, 'udp', transport)


@case
def capture_in_loops(where):
    """A capture of three frames is received five times. Its numbers continue, and all packets are
    good: the receiver checks PSNs, addresses and the ICRC."""
    udp = simulate(where, '--frames', '3')
    frames = {'run.frames': 15}
    receive(where, 'udp', udp, frames, ',loops=5,rewrite=42:8:le:3')
    card = roce_capture.Card('write', STREAMS, TILES)
    ring = f':{card.slots}:{card.slot_bytes}'
    for name, transport, payload, more in (('send', 'send', 'reference', ''),
                                           ('write', 'write', 'reference', ring),
                                           ('copies', 'write', 'memory', ring)):
        ledger, out = receive_roce(where, name, udp, transport, None,
                                   {**frames, 'port 0.payload': payload},
                                   f',loops=5,roce=3{more}')
        want(ledger['balanced'] == 1 and ledger['p_placed'] == 5 * len(udp), ledger, out)
        want(ledger['p_events'] == 15 * STREAMS, ledger)
        want(sum(drops(where, name).values()) == 0, drops(where, name))
        same(where, 'udp', name, 15)


@case
def two_rx_roles(where):
    """Flow rules distribute packets to two RX roles, by their source or by RSS. A poll group that
    receives packets of the other one's queue pairs forwards them."""
    udp = simulate(where)
    receive(where, 'udp', udp, {})
    for name, transport, source in (('rss', 'write', 'auto'),
                                    ('source', 'send', '10.1.1.1-10.1.1.4')):
        ledger, out = receive_roce(where, name, udp, transport, log='braggline.port:info', settings={
            'lcores.rx_lcores': 2, 'detector.source': source})
        want('2 queues, single segment, flow rules' in out, out)
        want(ledger['balanced'] == 1 and ledger['p_placed'] == len(udp), ledger, out)
        same(where, 'udp', name)


@case
def equal_to_udp_with_loss(where):
    """Packets of messages are lost: first, middle, last; and events."""
    udp = simulate(where)
    for number, transport in enumerate(('send', 'write')):
        draw = random.Random(number)
        lost, events = {}, set()
        for packet in udp:
            if draw.random() < 0.02:
                lost[place_of(packet[2])] = draw.choice(('first', 'middle', 'last'))
        # nothing follows the last message of a stream
        lost[STREAMS - 1, FRAMES, TILES - 1] = 'last'
        events.add((STREAMS - 1, FRAMES))
        for frame in range(1, FRAMES + 1):
            events |= {(s, frame) for s in range(STREAMS) if draw.random() < 0.1}

        def lose(stream, frame, tile, part):
            if part == 'event':
                return (stream, frame) in events
            return lost.get((stream, frame, tile)) == part

        receive(where, f'udp-{transport}', [p for p in udp if place_of(p[2]) not in lost], {})
        ledger, out = receive_roce(where, transport, udp, transport, lose)
        want(ledger['balanced'] == 1, ledger, out)
        want(ledger['p_placed'] == len(udp) - len(lost), ledger, len(lost))
        want(ledger['p_events'] == FRAMES * STREAMS - len(events), ledger)
        # the packets that came of a message, also of the last one of the run
        want(drops(where, transport)['incomplete_message'] == 2 * len(lost), ledger, len(lost))
        same(where, f'udp-{transport}', transport)


def drops(where, name):
    ini = configparser.ConfigParser()
    ini.read(f'{where}/{name}/run_ledger.ini')
    return {k: int(v) for k, v in ini['ports'].items()}


@case
def faults_are_counted(where):
    """The wire damages, shortens, repeats, reorders and loses packets. Each packet has an outcome,
    and what was placed is what was sent: each complete frame equals that of UDP."""
    udp = simulate(where)
    receive(where, 'udp', udp, {})
    good = {row['frame']: row for row in rows(BUILD, where, 'udp', FLAG_TIMEOUT)}
    for transport in ('send', 'write'):
        ledger, out = receive_roce(
            where, transport, udp, transport, replay=',loss=0.0003,corrupt=0.0003,truncate=0.0003,'
            'duplicate=0.001,reorder=0.0003:8,seed=7')
        want(ledger['balanced'] == 1, ledger, out)
        ports = drops(where, transport)
        want(ports['bad_icrc'] > 0 and ports['incomplete_message'] > 0 and ports['repeated'] > 0,
             ports)
        complete = 0
        for row in rows(BUILD, where, transport, FLAG_TIMEOUT):
            if int(row['flags']) & 1:
                continue
            complete += 1
            want(row == good[row['frame']], row, good[row['frame']])
        want(0 < complete < FRAMES, complete)


@case
def messages_of_unknown_senders_are_dropped(where):
    """Messages with another key, address, queue pair, source or transport are dropped, by cause."""
    udp = simulate(where)
    for name, change, cause in (
            ('key', {'rkey': 0x1235}, 'refused'),
            ('base', {'base': 1 << 41}, 'refused'),
            ('slots', {'slots': 64}, None),
            ('qpn', {'qpn': 0x81}, 'refused'),
            ('ip', {'ip': '10.1.2.2'}, 'refused'),
            ('transport', {'transport': 'send'}, None)):
        card = roce_capture.Card(**{'transport': 'write', 'streams': STREAMS, 'tiles': TILES,
                                    **change})
        packets = roce_capture.convert(udp[:STREAMS * TILES], card)
        ledger, out = receive(
            where, name, packets,
            {'detector.transport': 'write', 'ingest.qpn': 0x11, 'ingest.rkey': 0x1234,
             'run.frames': 'unlimited', 'run.idle_timeout_ms': 300},
            ',align_at=54', 'roce:port=net_replay0,ip=10.1.2.1/16', status=None)
        ports = drops(where, name)
        want(ledger['balanced'] == 1, name, ledger)
        if cause is not None:
            want(ports[cause] > 0 and ledger['p_placed'] == 0, name, ports, ledger)
        elif name == 'transport':
            want(ledger['p_placed'] == 0 and ledger['p_wrong_length'] == STREAMS * TILES, ledger)
        else:
            # slot 1 of stream 0 is the right address with any number of slots
            want(ledger['p_placed'] == TILES and ledger['p_malformed'] + ports['refused'] > 0,
                 name, ledger, ports)


def live(where, name, transport, settings, *options, ports=1):
    """braggline-detector sends to braggline-recv over a memif. With two ports, each has the stream
    of one module, and its own detector. @return ledger, report of the first one, outputs"""
    card = f'{where}/{name}.card'

    def memif(role, port, device=0):
        return ('--vdev', f'net_memif{device},role={role},socket={where}/{name}{port}.sock,'
                f'id={port},socket-abstract=no,bsize=8192,rsize=12')

    def detector(port):
        own = options
        if ports > 1:
            # the other module is silent: its stream has no place on this port
            with open(card, encoding='utf-8') as file:
                text = re.sub(r'ip = .*', f'ip = 10.{port + 1}.2.1', file.read())
            with open(f'{card}{port}', 'w', encoding='utf-8') as file:
                file.write(text)
            own = ('--card', f'{card}{port}', '--interfaces', '1', '--fault',
                   f'stall={1 - port}:1:{FRAMES}', *options)
        elif not options or options[0] not in ('--card', '--connect'):
            own = ('--card', card, *options)
        return [f'{BUILD}/app/detector/braggline-detector', '--no-huge', '-m', '256', '--no-pci',
                '--no-shconf', '--no-telemetry', '--lcores', FLOAT, *memif('client', port), '--',
                '--modules', str(MODULES), '--interfaces', str(INTERFACES), '--frames',
                str(FRAMES), '--hit-fraction', '0.3', '--dark-every', '7', '--distinct',
                str(FRAMES), '--transport', transport, '--device',
                f'roce:port=net_memif0,ip=10.{port + 1}.1.1/16,mtu=4096', '--report',
                f'{where}/{name}{port}.ini', *own]

    settings = {
        'detector.modules': MODULES, 'detector.interfaces': INTERFACES, 'run.name': 'run',
        'run.frames': FRAMES, 'run.first_frame': 1, 'run.idle_timeout_ms': 20000,
        'frames.stream_timeout_ms': 3000, 'frames.backpressure': 'wait',
        'output.directory': f'{where}/{name}', 'output.preview': 'off',
        'output.frames_interval': 64, 'output.images_interval': 8,
        'output.batch_ms': 60000,
        'calibration.gain': f'{where}/gain_m%d.bin', 'calibration.mask': f'{where}/mask_m%d.bin',
        'detector.transport': transport, 'ingest.card': card, **settings}
    for port in range(ports):
        settings[f'port {port}.device'] = f'roce:port=net_memif{port},ip=10.{port + 1}.2.1/16'
        if ports > 1:
            settings[f'port {port}.streams'] = port
    for gain in range(3):
        settings[f'calibration.pedestal_g{gain}'] = f'{where}/pedestal_g{gain}_m%d.bin'
    command = [f'{BUILD}/app/recv/braggline-recv', '--no-huge', '-m', '1024', '--no-pci',
               '--no-shconf', '--no-telemetry', '--lcores', FLOAT, '--vdev', 'gpu_host0',
               *(word for port in range(ports) for word in memif('server', port, port)), '--',
               '--quiet']
    for key, value in settings.items():
        command += ['--set', f'{key}={value}']
    receiver = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True)
    try:
        wait('the card', lambda: os.path.exists(card) or receiver.poll() is not None)
        with concurrent.futures.ThreadPoolExecutor(ports) as pool:
            sent = list(pool.map(lambda port: run(*detector(port)), range(ports)))
        out, _ = receiver.communicate(timeout=100)
    finally:
        if receiver.poll() is None:
            receiver.kill()
            receiver.wait()
    want(receiver.returncode == 0, receiver.returncode, out, sent)
    ledger, report = configparser.ConfigParser(), configparser.ConfigParser()
    ledger.read(f'{where}/{name}/run_ledger.ini')
    report.read(f'{where}/{name}0.ini')
    return ({**{k: int(v) for k, v in ledger['frames'].items()},
             **{f'p_{k}': int(v) for k, v in ledger['packets'].items()}},
            {f'{section}_{k}': v for section in report.sections()
             for k, v in report[section].items()}, out)


@case
def live_equals_udp(where):
    """The detector sends through queue pairs, with its card from a file and from the CM."""
    udp = simulate(where)
    receive(where, 'udp', udp, {})
    for name, transport, settings, options in (
            ('write', 'write', {}, ()), ('send', 'send', {}, ()),
            ('memory', 'write', {'ingest.delivery': 'memory'}, ()),
            ('connect-memory', 'write', {'ingest.delivery': 'memory', 'ingest.service': 4792},
             ('--connect', '10.1.2.1:4792')),
            ('connect', 'write', {'ingest.service': 4792}, ('--connect', '10.1.2.1:4792'))):
        ledger, _, out = live(where, name, transport, settings, *options, '--rate', '2000')
        want(ledger['balanced'] == 1 and ledger['p_placed'] == len(udp), name, ledger, out)
        want(ledger['p_events'] == FRAMES * STREAMS, ledger)
        same(where, 'udp', name)


@case
def two_ports(where):
    """The streams come through two ports to two RX roles: the files are those of one port."""
    udp = simulate(where, '--interfaces', '1')
    receive(where, 'udp', udp, {'detector.interfaces': 1})
    both = {'detector.interfaces': 1, 'lcores.rx_lcores': 2, 'frames.stream_timeout_ms': 20000}
    for name, transport, settings in (('memory', 'write', {'ingest.delivery': 'memory'}),
                                      ('send', 'send', {})):
        ledger, _, out = live(where, name, transport, {**both, **settings}, '--rate', '2000',
                              ports=2)
        want(ledger['balanced'] == 1 and ledger['p_placed'] == len(udp), name, ledger, out)
        want(ledger['p_events'] == FRAMES * MODULES and ledger['p_handoff'] == 0, name, ledger)
        same(where, 'udp', name)


FAULTS = [option for fault in ('drop=FIRST:0.01', 'drop=MIDDLE:0.01', 'drop=LAST:0.01',
                               'event-loss=0.05') for option in ('--fault', fault)]


@case
def memory_equals_reference(where):
    """The device writes messages into memory, and gangs find what is missing by the trailers: the
    columns are those of messages by reference, of which the packets in the network are the same."""
    udp = simulate(where, '--rate', '200')
    receive(where, 'udp', udp, {})
    ledger, _, out = live(where, 'memory', 'write', {'ingest.delivery': 'memory'}, '--rate', '200')
    want(ledger['balanced'] == 1 and ledger['p_events'] == FRAMES * STREAMS, ledger, out)
    same(where, 'udp', 'memory')
    one, report, out = live(where, 'lossy', 'write', {}, '--rate', '200', *FAULTS)
    want(one['balanced'] == 1, one, out)
    other, report, out = live(
        where, 'memory-lossy', 'write', {'ingest.delivery': 'memory'}, '--rate', '200', *FAULTS)
    want(other['balanced'] == 1, other, out)
    want(int(report['faults_drop_first']) > 0 and int(report['faults_drop_event']) > 0, report)
    a, b = rows(BUILD, where, 'lossy', FLAG_TIMEOUT), rows(BUILD, where, 'memory-lossy', FLAG_TIMEOUT)
    want(len(a) == len(b) == FRAMES, len(a), len(b), one, other, out)
    # without the event of its last frame a stream seems not to have sent it
    for x, y in zip(a[:-1], b[:-1]):
        want(x == y, 'by reference', x, '\nin memory', y)
    partial = sum(int(row['flags']) & 1 for row in a)
    want(partial > FRAMES // 2, partial)


@case
def credits_stop_the_detector(where):
    """A detector that is faster than the gangs overwrites frames in use, unless it listens to
    credits: then nothing is lost."""
    udp = simulate(where, '--rows', '64', '--rate', '100000')
    receive(where, 'udp', udp, {'detector.rows': 64})
    memory = {'ingest.delivery': 'memory', 'ingest.service': 4792, 'ingest.slots': 4,
              'frames.slots': 3, 'frames.max_skew_frames': 2, 'detector.rows': 64}
    connect = ('--connect', '10.1.2.1:4792', '--rate', '100000', '--rows', '64')
    long = 20 * FRAMES
    ledger, report, out = live(where, 'fast', 'write', {**memory, 'run.frames': long}, *connect,
                               '--frames', str(long), '--distinct', '21')
    want(ledger['balanced'] == 1, ledger, out)
    want(ledger['p_overrun'] > 0 and ledger['p_credits'] == 0, ledger, report)
    ledger, report, out = live(where, 'credits', 'write', memory, *connect, '--credits')
    want(ledger['balanced'] == 1 and ledger['p_placed'] == len(udp), ledger, out)
    want(ledger['p_overrun'] == 0 and ledger['p_credits'] > FRAMES // 2 * STREAMS, ledger)
    want(int(report['port_credit_waits']) > 0, report)
    same(where, 'udp', 'credits')


if __name__ == '__main__':
    sys.exit(run_cases(sys.argv[2:]))
