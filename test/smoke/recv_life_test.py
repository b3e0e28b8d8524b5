#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Events in the life of a receiver: kill -9, SIGSTOP and SIGCONT, start under load, stop while a
module is silent, a disk that fills up, a device that is removed, lcores that do not start, a log
that nobody reads.

usage: recv_life_test.py BUILD-DIR [CASE]...
"""

import configparser
import contextlib
import glob
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import background
from cases import Skipped, case, run_cases, wait, want
import receiver
from chain import nb_batches, whole_batches, without_image

BUILD = sys.argv[1]
RECV = f'{BUILD}/app/recv/braggline-recv'
DETECTOR = f'{BUILD}/app/detector/braggline-detector'
SCAN = f'{BUILD}/app/scan/braggline-scan'
STORE = f'{BUILD}/app/store/braggline-store'
FLOAT = f'(0-5)@(0-{os.cpu_count() - 1})'
NAME = f'bragglife{os.getpid()}'
PERIOD = 10


def capture(where, *options):
    """Make a capture of PERIOD frames that a replay repeats with new numbers."""
    subprocess.run([DETECTOR, '--frames', str(PERIOD), '--pcap', f'{where}/in.pcap', *options],
                   check=True, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def command(where, rate, *settings, out='out', modules=1):
    """Command line of a receiver of an endless replay at `rate` frames a second."""
    c = [RECV, '--no-huge', '-m', '768', '--no-pci', '--no-shconf', '--no-telemetry', '--lcores',
         FLOAT, '--vdev', 'gpu_host0', '--vdev',
         f'net_replay0,file={where}/in.pcap,loops=0,rewrite=42:8:le:{PERIOD},'
         f'rate={rate * 128 * modules}', '--', '--quiet']
    for s in (f'output.directory={where}/{out}', f'detector.modules={modules}',
              'veto.dry_run=yes', 'output.csr_threshold=5', 'output.images_interval=16',
              'output.frames_interval=64', *settings):
        c += ['--set', s]
    return c


def recv(where, rate, *settings, out='out', modules=1):
    """Start this receiver, and wait until its run has begun."""
    c = command(where, rate, *settings, out=out, modules=modules)
    p = background.start(c, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    name = next((s[9:] for s in settings if s.startswith('run.name=')), 'run')
    end = time.monotonic() + 60
    while not glob.glob(f'{where}/{out}/{name}_frames.arrow.part'):
        if p.poll() is not None or time.monotonic() > end:
            p.kill()
            raise AssertionError('no run begins: ' + p.communicate()[0])
        time.sleep(0.02)
    return p


def written(where, number, name='run'):
    """Wait until the run's file has `number` batches of 64 rows of `frames`."""
    part = f'{where}/out/{name}_frames.arrow.part'
    wait(f'{number} batches of {name}', lambda: nb_batches(part) >= number)


def finish(process, number=signal.SIGTERM, timeout=60):
    process.send_signal(number)
    text = process.communicate(timeout=timeout)[0]
    want(process.returncode == 0, process.returncode, text)
    return text


def ledger(where, out='out', name='run'):
    ini = configparser.ConfigParser()
    want(ini.read(f'{where}/{out}/{name}_ledger.ini'), 'no ledger')
    return {**{k: int(v) for k, v in ini['frames'].items()},
            **{f'p_{k}': int(v) for k, v in ini['packets'].items()}}


def rows(path):
    """Rows of `frames`; braggline-scan also checks every CRC."""
    done = subprocess.run([SCAN, '--csv', '-', path], check=True, text=True,
                          stdout=subprocess.PIPE)
    head, *lines = done.stdout.strip().split('\n')
    return [dict(zip(head.split(','), line.split(','))) for line in lines]


@case
def killed_and_started_again(where):
    capture(where)
    for round_number in range(3):
        with recv(where, 200, f'run.name=killed{round_number}', 'output.sync_ms=100') as p:
            written(where, round_number + 3, f'killed{round_number}')
            p.kill()
    parts = glob.glob(f'{where}/out/*.arrow.part')
    want(parts, 'a killed receiver leaves files that are not complete')
    with recv(where, 200, 'run.name=after') as p:
        written(where, 1, 'after')
        text = finish(p)
    want(not glob.glob(f'{where}/out/*.arrow.part'), 'left over', glob.glob(f'{where}/out/*'), text)
    want(ledger(where, name='after')['balanced'] == 1, text)
    survived = 0
    for path in glob.glob(f'{where}/out/killed*_frames.arrow'):
        numbers = [int(r['frame']) for r in rows(path)]
        # the rows are a prefix without a gap; on a slow machine there may be none
        want(numbers == list(range(1, len(numbers) + 1)), path, numbers, text)
        survived += len(numbers)
    want(survived >= 60, 'only', survived, 'frames survived', text)


@case
def hits_then_vetoed_frames(where):
    """Killed later than batch_ms + sync_ms after the last kept frame. Everything that the writer
    was given before is in the files, both rows and images, although batches of 1,024 and 64 frames
    were open and no kept frame followed."""
    out = f'{where}/out'
    with receiver.running(BUILD, f'output.directory={out}', 'veto.dry_run=yes', 'output.batch_ms=500',
                          'output.sync_ms=500') as (p, telemetry, _):
        telemetry.do('run/start')
        wait('frames', lambda: telemetry.get('ledger')['frames']['frames'] > 100)
        last = telemetry.do('veto/set,veto.dry_run=no,veto.strong_min=524288')['from_frame'] - 1
        wait('vetoed frames', lambda: telemetry.get('ledger')['frames']['vetoed'] > 0)
        first = telemetry.get('run/status')['first_frame']

        def durable():
            writer = telemetry.get('writer')
            return writer['frames']['durable'] > last - first and \
                writer['images']['durable'] == writer['images']['rows'] > 0
        # as long as a busy disk takes
        wait('all of it to be durable', durable)
        p.kill()
        p.wait()
    frames = list(whole_batches(f'{out}/run_frames.arrow.part'))
    images = list(whole_batches(f'{out}/run_images.arrow.part'))
    kept, without = without_image(frames, images)
    want(not without, 'rows without an image:', sorted(without))
    want(kept == set(range(first, last + 1)), 'kept frames', first, 'to', last, 'found', len(kept))


@case
def stopped_and_continued(where):
    capture(where)
    with recv(where, 100, 'run.idle_timeout_ms=1000') as p:
        written(where, 1)
        p.send_signal(signal.SIGSTOP)
        # longer than the timeouts of a silent module and of an idle run
        time.sleep(2)
        p.send_signal(signal.SIGCONT)
        written(where, 3)
        text = finish(p)
    l = ledger(where)
    want('did not run for' in text, 'the log does not name the time', text)
    # the replay waits for its receiver: no packet is lost, and no stream times out
    want(l['balanced'] == 1 and l['lost'] == 0 and l['incomplete_kept'] == 0, text)
    want(l['frames'] > 50, text)


@case
def stopped_while_a_module_is_silent(where):
    capture(where, '--modules', '2', '--fault', 'stall=1:1:1000000')
    with recv(where, 50, 'frames.stream_timeout_ms=300', modules=2) as p:
        written(where, 1)
        start = time.monotonic()
        text = finish(p)
        want(time.monotonic() - start < 5, 'it takes too long to stop')
    l = ledger(where)
    want(l['balanced'] == 1 and l['frames'] > 30, text)
    want(l['missing_packets'] == l['frames'] * 128, text)


@case
def too_slow_to_keep_up(where):
    """Complete frames are refused, and no frame is kept in part."""
    capture(where)
    with recv(where, 100000, 'frames.backpressure=refuse', 'frames.slots=8', 'frames.max_skew_frames=2',
              'output.format=image', 'gpu.outputs=16') as p:
        time.sleep(2)
        text = finish(p)
    l = ledger(where)
    want(l['balanced'] == 1 and l['refused'] > 0 and l['stored'] > 0, text)
    want(l['p_refused'] + l['p_no_run'] + l['p_after_run'] + l['p_late'] >= 128, text)
    want(l['incomplete_kept'] <= 1, text)


@case
def the_disk_is_full(where):
    """Frames that do not fit on the disk are counted, the others are in the file."""
    if os.geteuid() != 0:
        raise Skipped('root, to mount a small file system')
    capture(where)
    os.mkdir(f'{where}/small')
    done = subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=24m', 'none', f'{where}/small'],
                          check=False, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise Skipped('mount: ' + done.stderr.strip())
    try:
        with recv(where, 100, 'output.format=image', 'output.images_interval=2',
                  'output.calibration=no',
                  out='small/run') as p:
            time.sleep(3)
            p.send_signal(signal.SIGTERM)
            text = p.communicate(timeout=60)[0]
        want(p.returncode == 1, 'a run that lost frames must not pass for a good one', text)
        want('No space left' in text, text)
        # there is no room for the ledger file either; the ledger is also printed
        outcome = {m[1]: int(m[2]) for m in re.finditer(r'^  (\w[\w ]*?) +(\d+)', text, re.M)}
        want('unwritten' in outcome, outcome, text)
        want(outcome['unwritten'] > 0 and outcome['stored'] > 0, outcome, text)
        want('every frame accounted for' in text, text)
        images = glob.glob(f'{where}/small/run/*_images.arrow*')
        done = subprocess.run([SCAN, *images], check=False, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        want('CRC' in done.stdout and 'wrong' not in done.stdout, done.stdout)
    finally:
        subprocess.run(['umount', f'{where}/small'], check=False)


@case
def packets_come_before_the_run(where):
    """A replay starts with the process. The run that a client starts later finds none of its
    packets, and says how many there were."""
    capture(where)
    c = command(where, 1000, 'run.control=telemetry', 'run.idle_timeout_ms=300')
    replay = next(i for i, word in enumerate(c) if word.startswith('net_replay0'))
    c[replay] = f'net_replay0,file={where}/in.pcap'
    c = ['--file-prefix=' + NAME if word == '--no-shconf' else word for word in c
         if word != '--no-telemetry']
    with background.start(c, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as p:
        telemetry = receiver.Telemetry(NAME, p)
        wait('the packets', lambda: sum(
            role['no_run'] for role in telemetry.get('rx').values()) == PERIOD * 128)
        telemetry.do('run/start')
        status = telemetry.wait('idle')
        want(status['failed'] == 1 and f'but {PERIOD * 128} packets arrived before the run' in
             receiver.text(status, 'message'), status)
        p.send_signal(signal.SIGTERM)
        p.communicate(timeout=60)


@case
def a_run_of_a_service_fails(where):
    """The service continues after a run that failed. Its exit status says that one has failed."""
    lost = f'{where}/lost'
    with receiver.running(BUILD, 'veto.dry_run=yes', 'output.preview=off') as (p, telemetry, data):
        telemetry.do(f'run/configure,run.name=bad,output.directory={lost}')
        telemetry.do('run/start')
        wait('files', lambda: glob.glob(f'{lost}/*.part'))
        shutil.rmtree(lost)
        telemetry.do('run/stop')
        status = telemetry.wait('idle')
        want(status['failed'] == 1 and status['ledger'] == '', status)
        telemetry.do(f'run/configure,run.name=gone,output.directory={lost}')
        telemetry.do('run/arm')
        shutil.rmtree(lost)
        want('was removed or renamed after run gone was armed' in telemetry.do('run/start', -2)['message'])
        telemetry.do('run/stop')
        telemetry.wait('idle')
        telemetry.do(f'run/configure,run.name=good,run.frames=5,output.directory={where}/good')
        want(telemetry.get('run/status')['failed'] == 0, 'the next run has failed already')
        telemetry.do('run/start')
        status = telemetry.wait('idle')
        want(status['failed'] == 0 and status['frames'] == 5, status)
        p.send_signal(signal.SIGTERM)
        want(p.wait(60) == 1, 'ended with status', p.returncode)
        with open(f'{data}/log', encoding='utf-8') as log:
            text = log.read()
        want('1 of 2 runs failed' in text, text)
        want(f'  {lost}/bad_frames.arrow.part: No such file or directory\n' in text and
             f'  {lost}/bad_ledger.ini\n' not in text, text)
        want(re.search('^  [1-5][.][0-9]+ frames per batch, [1-5] batches$', text, re.M), text)
        # a line at the start of each run, and its summary at the end
        for line in (f'run bad begins, files in {lost}\n', 'run bad has failed\n',
                     f'run good begins, files in {where}/good\n', 'run good has ended\n'):
            want(text.count(line) == 1, f'not "{line}":', text)
        want(re.search(r'^  = sum +5 +every frame accounted for', text, re.M) and
             text.count('\nframes\n') == 2 and f'  {where}/good/good_ledger.ini\n' in text, text)


@case
def its_output_has_no_reader(where):
    """The program that reads standard output and standard error ends, as after `| tee` is killed.
    The run continues, and its files are complete."""
    capture(where)
    c = [*command(where, 100), '--progress', '0.1']
    with background.start(c, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as p:
        wait('the run', lambda: p.poll() is not None or
             glob.glob(f'{where}/out/run_frames.arrow.part'))
        p.stdout.close()
        written(where, 2)  # after several progress lines
        p.send_signal(signal.SIGTERM)
        want(p.wait(60) == 0, 'ended with status', p.returncode)
    want(not glob.glob(f'{where}/out/*.part'), os.listdir(f'{where}/out'))
    want(ledger(where)['balanced'] == 1, ledger(where))


@case
def standard_output_is_blocked(where):
    """The pipe of standard output has room for a part of a summary. A service and its runs continue,
    and SIGTERM ends it."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, bytes(4096))
    os.set_blocking(writer, True)
    os.read(reader, 4096)
    # the summary of a run has this path three times
    out = where + 9 * ('/' + 200 * 'x')
    os.makedirs(out)
    try:
        with receiver.running(BUILD, 'veto.dry_run=yes', 'output.preview=off',
                              f'output.directory={out}', stdout=writer) as (p, telemetry, _):
            for name in 'one', 'two':
                telemetry.do(f'run/configure,run.name={name},run.frames=5')
                telemetry.do('run/start')
                telemetry.wait('idle')
                want(ledger('', out, name)['balanced'] == 1, name)
            p.send_signal(signal.SIGTERM)
            want(p.wait(20) == 0, 'ended with status', p.returncode)
    finally:
        os.close(reader)
        os.close(writer)


@case
def the_log_of_a_store_has_no_reader(where):
    for name in ('key', 'keys.ini'):
        with open(f'{where}/{name}', 'w', encoding='ascii') as f:
            f.write('0' * 64 if name == 'key' else
                    '[receiver r]\nkey = key\nreceiver_ids = 0\n')
        os.chmod(f'{where}/{name}', 0o600)
    c = [STORE, '--no-huge', '-m', '256', '--no-pci', '--no-shconf', '--no-telemetry', '--lcores',
         f'0@(0-{os.cpu_count() - 1})', '--vdev', f'net_memif0,role=server,socket={NAME}', '--']
    for s in ('store.device=roce:port=net_memif0,ip=10.0.0.2/24', f'store.keys={where}/keys.ini',
              f'files.directory={where}/data', 'store.memory_mib=64'):
        c += ['--set', s]
    with background.start(c, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as p:
        text = ''
        while 'listening on port' not in text:
            line = p.stdout.readline()
            want(line, 'no store starts:', text)
            text += line
        p.stdout.close()
        p.send_signal(signal.SIGTERM)  # it logs that it stops
        want(p.wait(60) == 0, 'ended with status', p.returncode)


def preload(where, name):
    """Environment in which this library of test/smoke is preloaded."""
    linked = subprocess.run(['ldd', RECV], check=False, text=True, stdout=subprocess.PIPE).stdout
    if 'librte_eal.so' not in linked or 'libasan' in linked:
        raise Skipped('a receiver with shared DPDK, and without sanitizers')
    # a copy, because LD_PRELOAD cannot name a path with a blank
    return {**os.environ, 'LD_PRELOAD': shutil.copy(f'{BUILD}/test/smoke/lib{name}.so', where)}


def removed(where, words, device):
    """Run the receiver, and report the removal of a device when a frame has been kept. @return its output"""
    words = [w for w in words if w != '--quiet'] + ['--progress', '0.05']
    environment = {**preload(where, 'removed_device'), 'REMOVED_DEVICE': device,
                   'REMOVED_FILE': f'{where}/now'}
    with open(f'{where}/log', 'w+', encoding='utf-8') as log:
        process = background.start(words, stdout=log, stderr=subprocess.STDOUT, env=environment)

        def text():
            with open(f'{where}/log', encoding='utf-8') as f:
                return f.read()
        wait('a kept frame', lambda: re.search(r' [1-9][0-9]* kept', text()) or process.poll() is not None)
        with open(f'{where}/now', 'x', encoding='ascii'):
            pass
        status = process.wait(60)
    want(status == 1, status, text())
    want(ledger(where)['balanced'] == 1, text())
    want('this is a bug' not in text(), text())
    return text()


@case
def a_port_is_removed(where):
    """The run ends, and its files are complete."""
    capture(where)
    text = removed(where, command(where, 100), 'net_replay0')
    want('device net_replay0 was removed or has failed; the receiver ends\n' in text, text)
    want(os.path.exists(f'{where}/out/run_frames.arrow'), os.listdir(f'{where}/out'), text)


@case
def the_device_of_the_stores_is_removed(where):
    """The run ends without waiting for stores, and the journal keeps its batches."""
    capture(where)
    with open(f'{where}/key', 'w', encoding='ascii') as f:
        f.write('0' * 64)
    os.chmod(f'{where}/key', 0o600)
    device = 'roce:port=net_null1,ip=10.0.0.1/24'
    journal = f'/dev/shm/{NAME}'
    words = command(where, 100, f'egress.device={device}', 'egress.stores=10.0.0.2',
                    'egress.identity=r', f'egress.key={where}/key', f'egress.journal={journal}',
                    'egress.journal_mib=128', 'egress.rate_mb_per_s=10', 'egress.batch_mib=4')
    words[words.index('--'):words.index('--')] = ['--vdev', 'net_null1']
    try:
        text = removed(where, words, 'net_null1')
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(journal)
    want(f'device {device} was removed or has failed; the receiver ends, and the journal keeps what '
         'stores do not have\n' in text, text)
    want(f'the rest stays in {journal}' in text, text)
    want('waiting up to' not in text, text)


@case
def no_lcore_can_be_launched(where):
    capture(where)
    done = subprocess.run(command(where, 100), check=False, timeout=60, text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, env=preload(where, 'no_launch'))
    want(done.returncode == 1, done.returncode, done.stdout)
    want('cannot launch lcore' in done.stdout, done.stdout)
    want('run run aborted: cannot launch lcores' in done.stdout, done.stdout)
    want('this is a bug' not in done.stdout, done.stdout)


def main():
    status = run_cases(sys.argv[2:])
    shutil.rmtree(f'/var/run/dpdk/{NAME}', ignore_errors=True)
    sys.exit(status)


main()
