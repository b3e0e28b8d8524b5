#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""braggline-detector sends RDMA messages to a small receiver, over shared memory. Every message that
the receiver has is compared with the UDP packet of the same seed. braggline-recv receives a capture
of such messages.

usage: detector_roce_test.py BUILD-DIR [CASE]...
"""

import os
import shutil
import subprocess
import sys
import tempfile

import background
from cases import case, run_cases, want
from detector_messages import (ALL, BUILD, DETECTOR, NAME, PIXELS, RATE, TRAILER, eal, faults, ini, numbers,
                               received, udp_packets)

RECV = f'{BUILD}/app/recv/braggline-recv'
RECEIVER = f'{BUILD}/test/smoke/roce_receiver'
SLOTS = 16


def transfer(where, transport, *options, **how):
    """Run both programs. @return the detector's report, the receiver's counters, its messages and
    copies"""
    # With a card, UC has no handshake: on a busy machine, the detector may send before the receiver has
    # connected its queue pairs.
    for _ in range(4):
        result = transfer_once(where, transport, *options, **how)
        if how.get('connect') or result[1].get('rx_bad_state', 0) == 0:
            break
    return result


def transfer_once(where, transport, *options, frames=20, modules=2, connect=False, service='uc'):
    where = tempfile.mkdtemp(dir=where)
    out, report, card = f'{where}/messages', f'{where}/report.ini', f'{where}/card.ini'
    device = 'roce:port=net_memif0,ip=10.0.0.{}/24'
    source = ['7471'] if connect else [card, '10.0.0.1']
    environment = {**os.environ, **({'SERVICE': 'rc'} if service == 'rc' else {})}
    with background.start([RECEIVER, *eal(where, 'r', 'server', 512), '--', device.format(2), transport,
                           str(modules), str(SLOTS), *source, out], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, env=environment) as r:
        try:
            # with a card, the receiver first resolves the detector's address
            line = ''
            while connect and line != 'ready\n':
                line = r.stdout.readline()
                want(line, 'the receiver ended')
            while not connect and not os.path.exists(card):
                want(r.poll() is None, 'the receiver ended')
            done = subprocess.run(
                [DETECTOR, *eal(where, 'd', 'client', 512), '--', '--transport', transport, '--device',
                 device.format(1), *(('--connect', '10.0.0.2:7471', '--queue-pairs', service) if connect else
                                     ('--card', card)), '--modules', str(modules), '--frames', str(frames),
                 '--distinct', str(frames), '--rate', RATE, '--report', report, *options],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                timeout=90)
            text = r.communicate(timeout=90)[0]
        finally:
            for side in ('d', 'r'):
                shutil.rmtree(f'/var/run/dpdk/{NAME}{side}', ignore_errors=True)
            r.kill()
    want(done.returncode == 0, done.returncode, done.stdout, text)
    want(r.returncode == 0, r.returncode, text)
    return ini(report), numbers(text), *received(out)


def whole_run(where, transport, **how):
    """Without faults every message arrives, with the bytes of the UDP packet."""
    report, counters, messages, copies = transfer(where, transport, **how)
    expected = udp_packets(where, 20, 2, ())
    want(counters['events'] == 40 == report.getint('packets', 'events'), counters)
    want(counters['wrong'] == counters['old'] == copies == 0, counters)
    want(report.getint('packets', 'sent') == len(expected), dict(report['packets']))
    want(messages == expected, f'{len(messages)} messages differ from {len(expected)} packets')


@case
def packets_arrive_by_write(where):
    whole_run(where, 'write')


@case
def packets_arrive_by_send(where):
    whole_run(where, 'send')


@case
def writes_by_the_cm(where):
    whole_run(where, 'write', connect=True)


@case
def sends_over_rc(where):
    whole_run(where, 'send', connect=True, service='rc')


def arrives(where, transport, *options):
    """Messages that arrive are those that the report says, with the bytes of the packets."""
    report, counters, messages, copies = transfer(where, transport, *options)
    everything = f'{counters} {[dict(report[s]) for s in report.sections()]} {len(messages)} messages'
    sent, fault = report['packets'], report['faults']
    want(counters['wrong'] == 0, everything)
    want(counters['events'] == sent.getint('events'), everything)
    want(sent.getint('sent') == sent.getint('made') - fault.getint('loss') - fault.getint('burst_loss') -
         fault.getint('stall') + fault.getint('duplicate'), everything)
    if fault.getint('drop_event') == 0 or transport == 'send':
        want(len(messages) == sent.getint('placeable'), everything)
    return report, counters, messages, copies, everything


@case
def lost_messages_are_the_lost_packets(where):
    """The same seed loses the same over UDP."""
    lossy = faults('loss=0.02', 'burst-loss=0.001:20', 'stall=1:4:5')
    expected = udp_packets(where, 20, 2, lossy)
    for transport in ('send', 'write'):
        report, counters, messages, _, everything = arrives(where, transport, *lossy)
        want(messages == expected, f'{everything}, {len(expected)} packets')
        want(counters['events'] == 38, everything)
        want(report.getint('faults', 'loss') > 50 and report.getint('faults', 'burst_loss') > 0, everything)


@case
def chosen_packets_are_lost(where):
    """A message without its first, a middle or its last packet does not count as a message. In the
    ring, the trailer of an earlier frame shows it."""
    expected = udp_packets(where, 20, 2, ())
    for transport in ('send', 'write'):
        report, counters, messages, _, everything = arrives(
            where, transport, *faults('drop=FIRST:0.02', 'drop=MIDDLE:0.02', 'drop=LAST:0.02'))
        lost = [report.getint('faults', f'drop_{k}') for k in ('first', 'middle', 'last')]
        want(min(lost) > 50 and len(messages) == len(expected) - sum(lost), everything)
        want(all(m == expected[k] for k, m in messages.items()), everything)
        want(counters['events'] == 40, everything)
        if transport == 'write':
            want(counters['old'] == sum(lost), everything)


@case
def lost_events_leave_whole_frames(where):
    expected = udp_packets(where, 20, 2, ())
    for fault, transport in (('event-loss=0.3', 'write'), ('drop=EVENT:0.3', 'send')):
        report, counters, messages, _, everything = arrives(where, transport, *faults(fault))
        lost = report.getint('faults', 'drop_event')
        want(0 < lost < 40 and counters['events'] == 40 - lost, everything)
        want(len(messages) == (40 - lost) * 128 if transport == 'write' else messages == expected, everything)
        want(all(m == expected[k] for k, m in messages.items()), everything)


@case
def messages_are_copied_and_reordered(where):
    expected = udp_packets(where, 20, 2, faults('restart=11:1'))
    report, _, messages, copies, everything = arrives(
        where, 'send', *faults('duplicate=0.02', 'reorder=0.05:300'))
    want(copies == report.getint('faults', 'duplicate') > 50, everything)
    want(report.getint('faults', 'reorder') > 100, everything)
    want(messages == udp_packets(where, 20, 2, ()), everything)
    # frames 1 to 10, and again
    _, _, messages, copies = transfer(where, 'send', *faults('restart=11:1'))
    want(copies == 10 * 256 and messages == expected, copies)


@case
def rc_repairs_what_is_lost(where):
    """Lost packets are sent again, so that nothing is missing."""
    expected = udp_packets(where, 20, 2, ())
    report, counters, messages, copies = transfer(
        where, 'write', *faults('drop=MIDDLE:0.01', 'drop=LAST:0.01'), connect=True, service='rc')
    want(report.getint('faults', 'drop_last') > 10, dict(report['faults']))
    want(messages == expected and copies == 0 and counters['events'] == 40, counters)


@case
def a_capture_is_received(where):
    """braggline-recv accounts for a capture as the detector's report does."""
    streams, tiles, slots = 4, 64, 128
    for transport in ('send', 'write'):
        card, out = f'{where}/{transport}.ini', f'{where}/{transport}'
        with open(card, 'w') as f:
            f.write(f'[card]\nversion = 1\ntransport = {transport}\nstreams = {streams}\nmtu = 4096\n'
                    f'tile_bytes = {PIXELS}\ntrailer_bytes = {TRAILER}\ntiles = {tiles}\n'
                    f'slots = {slots}\nslot_bytes = {tiles * (PIXELS + TRAILER)}\n')
            for s in range(streams):
                base = (1 << 40) + s * slots * tiles * (PIXELS + TRAILER)
                f.write(f'[stream {s}]\nip = 10.1.2.1\nqpn = {0x11 + s}\npsn = 0\nrkey = 0x1234\n'
                        f'base = {base}\n')
        subprocess.run([DETECTOR, '--transport', transport, '--card', card, '--pcap', f'{out}.pcap',
                        '--report', f'{out}.report', '--modules', '2', '--interfaces', '2', '--frames',
                        '40', *faults('loss=0.01', 'duplicate=0.01', 'drop=FIRST:0.01',
                                      'drop=MIDDLE:0.01', 'drop=LAST:0.01', 'event-loss=0.1')],
                       check=True, timeout=60)
        settings = {
            'detector.modules': 2, 'detector.interfaces': 2, 'detector.transport': transport,
            'ingest.qpn': 0x11, 'ingest.rkey': 0x1234, 'output.directory': out, 'run.name': 'run',
            'run.frames': 40, 'run.first_frame': 1, 'run.idle_timeout_ms': 2000,
            'frames.backpressure': 'wait', 'frames.incomplete': 'keep', 'veto.dry_run': 'yes',
            'port 0.device': 'roce:port=net_replay0,ip=10.1.2.1/16'}
        done = subprocess.run(
            [RECV, '--no-huge', '-m', '1024', '--no-pci', '--no-shconf', '--no-telemetry', '--lcores',
             f'(0-5)@({ALL})', '--vdev', 'gpu_host0', '--vdev',
             f'net_replay0,file={out}.pcap,align_at=54', '--', '--quiet',
             *(w for k, v in settings.items() for w in ('--set', f'{k}={v}'))],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=90, check=False)
        want(done.returncode == 0, done.stdout)
        report, ledger = ini(f'{out}.report'), ini(f'{out}/run_ledger.ini')
        sent = report['packets']
        everything = [dict(x[s]) for x in (report, ledger) for s in ('frames', 'packets')]
        want(ledger.getint('frames', 'balanced') == 1, everything)
        want(ledger.getint('packets', 'placed') == sent.getint('placeable'), everything)
        want(ledger.getint('packets', 'events') == sent.getint('events'), everything)
        want(ledger.getint('frames', 'missing_packets') ==
             sent.getint('made') - sent.getint('placeable'), everything)
        want(ledger.getint('frames', 'incomplete_kept') ==
             report.getint('frames', 'sent') - report.getint('frames', 'whole'), everything)


def main():
    return run_cases(sys.argv[2:])


if __name__ == '__main__':
    sys.exit(main())
