#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""braggline-detector sends to members of multicast groups, over shared memory. Every message that a
member has is compared with the UDP packet of the same seed.

usage: detector_multicast_test.py BUILD-DIR [CASE]...
"""

import errno
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import background
from cases import case, run_cases, wait, want
from detector_messages import BUILD, DETECTOR, NAME, RATE, eal, faults, ini, numbers, received, udp_packets

MEMBERS = f'{BUILD}/test/smoke/multicast_receiver'
DEVICE = 'roce:port=net_memif0,ip=10.0.0.{}/24'
FRAMES = 6
SERVICE = '7300'
PLACES = {s: f'/var/run/dpdk/{NAME}{s}' for s in ('d', 'e', 'm')}


def members_start(where, members, modules=1, keys=(), dies=False):
    """The members' port is the server of the shared memory, so that a detector can be restarted."""
    run = background.start(
        [MEMBERS, *eal(where, 'm', 'server', 256), '--', DEVICE.format(2), str(members), str(modules),
         '239.192.0.0', '10.0.0.1', SERVICE, f'{where}/member', *keys], stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, env={**os.environ, **({'MEMBER_DIES': '1'} if dies else {})})
    line = before = ''
    while line != 'ready\n':
        line = run.stdout.readline()
        want(line, f'the members ended {before}')
        before += line
    return run


def detector(where, *options, side='d', modules=1, frames=FRAMES):
    return [DETECTOR, *eal(where, side, 'client', 256), '--', '--transport', 'multicast', '--device',
            DEVICE.format(1), '--service', SERVICE, '--modules', str(modules), '--frames', str(frames),
            '--distinct', str(frames), '--rate', RATE, '--report', f'{where}/report.ini', *options]


def finish(run, seconds=60):
    done = subprocess.run(run, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=seconds)
    return done.returncode, done.stdout


def clean(run=None):
    if run is not None:
        run.kill()
        run.wait()
    for place in PLACES.values():
        shutil.rmtree(place, ignore_errors=True)


def transfer(where, members, *options, modules=1, member_keys=()):
    """Run both programs. @return the report, the members' counters, their messages, the output"""
    where = tempfile.mkdtemp(dir=where)
    run = members_start(where, members, modules, member_keys)
    try:
        status, text = finish(detector(where, '--members', str(members), *options, modules=modules))
        counters = run.communicate(timeout=60)[0]
    finally:
        clean(run)
    want(status == 0 and run.returncode == 0, status, run.returncode, text, counters)
    files = [received(f'{where}/member.{n}') for n in range(members)]
    return ini(f'{where}/report.ini'), numbers(counters), files, text + counters


def all_have_all(where, members, *options, modules=1, member_keys=()):
    """All members have the messages of the UDP packets of the same seed, each once."""
    expected = udp_packets(where, FRAMES, modules, ())
    report, counters, files, text = transfer(
        where, members, *options, modules=modules, member_keys=member_keys)
    want(counters['wrong'] == counters['incomplete'] == counters['lost'] == 0, text)
    want(counters['events'] == FRAMES * modules * members, text)
    want(report.getint('packets', 'sent') == report.getint('packets', 'placeable') == len(expected), text)
    want(report.getint('members', 'joined') == members * modules, text)
    want(report.getint('members', 'removed') == report.getint('members', 'refused') == 0, text)
    for messages, copies in files:
        want(messages == expected and copies == 0, f'{len(messages)} of {len(expected)} messages', text)
    return report, counters, text


@case
def one_member_has_the_packets(where):
    report, counters, text = all_have_all(where, 1, modules=2)
    want('members prove nothing' in text, text)
    want(counters['received'] + counters['repaired'] == 2 * FRAMES * (9 * 128 + 1), text)


@case
def two_members_repair_what_is_lost(where):
    report, counters, text = all_have_all(where, 2, *faults('group-loss=0.01', 'read-loss=0.01'))
    lost = report.getint('faults', 'group_loss')
    want(lost > 10 and counters['repaired'] >= 2 * lost, text)


@case
def faults_of_messages_are_in_the_stream(where):
    """Members cannot repair what the stream does not have."""
    lossy = faults('loss=0.02', 'duplicate=0.02', 'reorder=0.05:100', 'restart=4:101')
    expected = udp_packets(where, FRAMES, 1, lossy)
    drops = faults('drop=FIRST:0.02', 'drop=MIDDLE:0.02', 'drop=LAST:0.02', 'event-loss=0.3')
    for options in lossy, lossy + drops:
        report, counters, files, text = transfer(where, 1, *options)
        fault = report['faults']
        dropped = sum(fault.getint(f'drop_{k}') for k in ('first', 'middle', 'last'))
        messages, copies = files[0]
        want(counters['incomplete'] == dropped and counters['wrong'] == counters['lost'] == 0, text)
        want(counters['events'] == FRAMES - fault.getint('drop_event') == report.getint('packets', 'events'),
             text)
        want(len(messages) == report.getint('packets', 'placeable'), text)
        want(copies == fault.getint('duplicate') > 0 and fault.getint('loss') > 0, text)
        want(all(m == expected[k] for k, m in messages.items()), text)
        want(messages == expected if options == lossy else dropped > 5, text)


@case
def members_prove_themselves(where):
    with open(os.open(f'{where}/key', os.O_CREAT | os.O_WRONLY, 0o600), 'w') as f:
        f.write('k' * 64)
    with open(os.open(f'{where}/other', os.O_CREAT | os.O_WRONLY, 0o600), 'w') as f:
        f.write('o' * 64)
    with open(os.open(f'{where}/keys.ini', os.O_CREAT | os.O_WRONLY, 0o600), 'w') as f:
        f.write('[receiver lyso]\nkey = key\nreceiver_ids = 1\n')
    keys = ('--keys', f'{where}/keys.ini')
    _, _, text = all_have_all(where, 1, *keys, member_keys=('lyso', f'{where}/key'))
    want('prove nothing' not in text, text)
    for wrong in ('lyso', f'{where}/other'), ('nobody', f'{where}/key'):
        place = tempfile.mkdtemp(dir=where)
        run = members_start(place, 1, 1, wrong)
        try:
            status, text = finish(detector(place, *keys, '--link-wait', '1'))
            run.kill()
            failed = run.communicate()[0]
        finally:
            clean(run)
        want(f'failed = {errno.EACCES}' in failed, failed)
        want(status == 1 and 'stream 0 has 0 members after 1 s, expected 1' in text, status, text)


@case
def a_silent_member_is_removed(where):
    """It stops a ring that is shorter than the run, until it counts as silent."""
    run = members_start(where, 2, dies=True)
    try:
        status, text = finish(detector(where, '--ring-slots', '256', '--members', '2'))
        want(status == 0 and
             re.search(r'member [01], [0-9.]+, was silent for 2000 ms: removed', text), status, text)
        want(os.path.getsize(f'{where}/member.0') > (FRAMES - 1) * 128 * 8256, text)
    finally:
        clean(run)
    report = ini(f'{where}/report.ini')
    want(report.getint('members', 'removed') == 1 and report.getint('port', 'full') > 0, text)


@case
def a_slow_member_is_reported(where):
    """A signal ends the run. What members lack is reported after a second."""
    run = members_start(where, 2, dies=True)
    try:
        sender = background.start(detector(where, '--ring-slots', '256', '--members', '2', '--loop',
                                           '--silence', '60000'),
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        # more than the frame after which the other member does nothing
        wait('messages', lambda: os.path.getsize(f'{where}/member.0') > 3 << 19 or sender.poll() is not None)
        sender.send_signal(signal.SIGTERM)
        text = sender.communicate(timeout=30)[0]
        want(sender.returncode == 1, text)
        want('stream 0: member 10.0.0.2 has ' in text and 'aborted; these members lack packets' in text, text)
    finally:
        clean(run)


@case
def no_member_joins(where):
    run = members_start(where, 0)
    try:
        begin = time.monotonic()
        status, text = finish(detector(where, '--link-wait', '1', '--members', '2'))
        want(time.monotonic() - begin < 30, text)
        want(status == 1 and 'waiting for members: stream 0 has 0, expected 2' in text, status, text)
        want('stream 0 has 0 members after 1 s, expected 2' in text, text)
    finally:
        clean(run)


@case
def overwrite_does_not_wait_for_members(where):
    report, counters, files, text = transfer(where, 1, '--policy', 'overwrite')
    want(counters['wrong'] == 0, text)
    want(counters['messages'] == len(files[0][0]) and
         (counters['lost'] > 0 or counters['messages'] == FRAMES * 128), text)
    # without members, it sends at once
    run = members_start(where, 0)
    try:
        status, text = finish(detector(where, '--members', '0', '--policy', 'overwrite'))
    finally:
        clean(run)
    want(status == 0, text)


@case
def a_restarted_detector_is_joined_again(where):
    """A detector that is killed in the middle of a frame leaves an unfinished message at most."""
    run = members_start(where, 1)
    try:
        first = background.start(detector(where, '--frames', '1000', '--distinct', '2', side='e'),
                                 stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
        path = f'{where}/member.0'
        end = time.monotonic() + 30
        while os.path.getsize(path) < 3 << 20:
            want(time.monotonic() < end and first.poll() is None, 'nothing comes')
            time.sleep(0.01)
        first.kill()
        first.wait()
        shutil.rmtree(PLACES['e'], ignore_errors=True)
        status, text = finish(detector(where, '--first-frame', '2001'))
        counters = run.communicate(timeout=60)[0]
    finally:
        clean(run)
    want(status == 0 and run.returncode == 0, status, text, counters)
    counters = numbers(counters)
    messages, copies = received(f'{where}/member.0')
    want(counters['incomplete'] <= 1 and counters['wrong'] == 0 == copies, counters)
    want(sum(k[1] > 2000 for k in messages) == FRAMES * 128, counters, len(messages))


@case
def wrong_options_are_refused(where):
    for options, message in (
            (('--transport', 'send', '--card', 'x', '--members', '2'), '--members: found --transport send, '
             'expected multicast'),
            (('--transport', 'multicast', '--card', 'x'),
             '--card: found --transport multicast, expected send or write'),
            (('--transport', 'multicast', '--group', '10.0.0.5'), "--group: found '10.0.0.5', expected an "
             'IPv4 multicast address'),
            (('--transport', 'multicast', '--ring-slots', '100'),
             '--ring-slots: found 100, expected a power of two'),
            (('--transport', 'multicast', '--service', '65535', '--modules', '2'),
             '--service: found 65535, expected at most 65534, as 2 streams need as many ports'),
            (('--transport', 'multicast', '--keys', f'{where}/none'), '--keys: cannot open keyring'),
            (('--transport', 'multicast', '--fault', 'truncate=0.1'), '--fault: found truncate with --transport '
             'multicast, expected udp')):
        status, text = finish([DETECTOR, '--no-huge', '-m', '64', '--no-pci', '--no-shconf', '--no-telemetry',
                               '-l', '0', '--vdev', 'net_null0', '--', '--device',
                               'roce:port=net_null0,ip=10.0.0.1/24', *options])
        want(status in (1, 2) and message in text, status, text)


if __name__ == '__main__':
    sys.exit(run_cases(sys.argv[2:]))
