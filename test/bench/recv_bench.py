#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Measures the whole receiver with JUNGFRAU 4M on two cores: replay, RX, builder, gangs, writer.

    recv_bench.py [--frames N] [--seconds S] [--rows FILE] BUILD-DIR

braggline-recv replays frames of the simulated detector without end, one hit in ten, and writes CSR
data of the hits into files in $TMPDIR. A gang has a worker on each lcore. The cost of a frame is
the CPU time of all threads, including idle polls, so that other load on the machine has little
effect; the wall-clock rate is reported beside it. The share of a role is the CPU time of its lcore,
divided in proportion to the cycles of its polls, because cycles also count while other programs use
the CPU. The result is compared with the stages alone: gang_bench (the same frames in the same gang
on the same cores) and rx_bench (packets without a picture). The upper limit is gk_bench, which
counts clean frames on one core, twice. All of them run before and after, and the faster run counts,
so that a machine that is slow for a while does not improve the ratio.
"""
import argparse
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../smoke'))
import background  # noqa: E402

MODULES = 8
PACKETS = 128 * MODULES
CORES = 2
STRONG_MIN = 40
TELEMETRY_SECONDS = 20  # the receiver may share its CPUs with other load
STOP_SECONDS = 60
PROGRAM_SECONDS = 120  # limit for a comparison program, or for making a capture


class Telemetry:
    """Client of DPDK's telemetry socket: one command a message, JSON replies. All waits have a
    limit."""

    def __init__(self, prefix, process):
        path = f'{background.eal_folder(prefix)}/dpdk_telemetry.v2'
        end = time.monotonic() + 60
        while True:
            if process.poll() is not None:
                raise SystemExit('recv_bench: braggline-recv has ended')
            try:
                self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                self.socket.settimeout(TELEMETRY_SECONDS)
                self.socket.connect(path)
                break
            except OSError as error:
                self.socket.close()
                if time.monotonic() > end:
                    raise SystemExit(f'recv_bench: {path}: {error}') from error
                time.sleep(0.1)
        self.size = json.loads(self.answer('greeting'))['max_output_len']
        # the socket exists before the receiver's commands are registered
        while '/braggline/info' not in self('/') or self('/braggline/gangs') is None:
            if time.monotonic() > end:
                raise SystemExit('recv_bench: no /braggline commands')
            time.sleep(0.1)

    def answer(self, what):
        try:
            return self.socket.recv(getattr(self, 'size', 1024)).decode()
        except TimeoutError as error:
            raise SystemExit(f'recv_bench: telemetry: no answer to {what} in '
                             f'{TELEMETRY_SECONDS} s') from error

    def __call__(self, command):
        self.socket.send(command.encode())
        return json.loads(self.answer(command))[command]


def cpu_seconds(pid):
    """CPU time of each thread: name and seconds."""
    times = {}
    for task in os.listdir(f'/proc/{pid}/task'):
        with open(f'/proc/{pid}/task/{task}/comm', encoding='utf-8') as f:
            name = f.read().strip()
        with open(f'/proc/{pid}/task/{task}/schedstat', encoding='utf-8') as f:
            times[task, name] = int(f.read().split()[0]) * 1e-9
    return times


def sample(telemetry, pid):
    lcores = telemetry('/braggline/lcores')
    return {
        'time': time.monotonic(),
        'frames': sum(g['frames'] for g in telemetry('/braggline/gangs').values()),
        'cycles': {(lcore, role): cycles for lcore, l in lcores.items()
                   for role, cycles in [*l['role_busy_cycles'].items(), ('idle', l['idle_cycles'])]},
        'cpu': cpu_seconds(pid),
    }


def lcore_of(pid, task, name):
    """The lcore of a thread, as telemetry names it; None: the thread is not an lcore."""
    worker = re.fullmatch(r'(?:rte-worker-|dpdk-worker)(\d+)', name)
    return '0' if int(task) == pid else worker and worker[1]


def cpu_by_role(pid, begin, after):
    """CPU seconds of each role, of idle polls, and of threads that are not lcores."""
    roles = {}
    for (task, name), seconds in after['cpu'].items():
        seconds -= begin['cpu'].get((task, name), 0)
        lcore = lcore_of(pid, task, name)
        cycles = {role: c - begin['cycles'][lcore, role]
                  for (of, role), c in after['cycles'].items() if of == lcore}
        if not cycles:
            cycles = {'other threads': 1}
        for role, c in cycles.items():
            roles[role] = roles.get(role, 0) + seconds * c / sum(cycles.values())
    return roles


def megabytes(frames):
    """Memory of the receiver: the capture and everything else."""
    return 900 + 9 * frames


def free_huge_megabytes():
    with open('/proc/meminfo', encoding='ascii') as lines:
        facts = dict(line.split(':') for line in lines)
    return int(facts['HugePages_Free']) * int(facts['Hugepagesize'].split()[0]) >> 10


def has_huge_pages(frames):
    """Huge pages as in a production receiver."""
    with open('/proc/mounts', encoding='ascii') as mounts:
        mounted = any(line.split()[2] == 'hugetlbfs' for line in mounts)
    return mounted and free_huge_megabytes() >= megabytes(frames)


def command(build, where, prefix, frames, huge):
    c = [f'{build}/app/recv/braggline-recv',
         '--huge-unlink' if huge else '--no-huge', '-m', str(megabytes(frames)),
         '--no-pci', '--file-prefix', prefix, '-l', '0,1', '--vdev', 'gpu_host0', '--vdev',
         f'net_replay0,file={where}/in.pcap,loops=0,rewrite=42:8:le:{frames}', '--', '--quiet']
    settings = {
        'detector.modules': MODULES, 'detector.udp_port': 50001, 'lcores.rx': 0,
        'lcores.builder': 0, 'lcores.gang': '0,1', 'lcores.gangs': 1, 'lcores.gang_workers': 2, 'gpu.kernel': 'host',
        'frames.slots': 32, 'frames.backpressure': 'wait', 'output.directory': f'{where}/out',
        'output.preview': 'off', 'output.roll_mib': 512, 'veto.strong_min': STRONG_MIN,
        'calibration.gain': f'{where}/gain_m%d.bin', 'calibration.mask': f'{where}/mask_m%d.bin',
        **{f'calibration.pedestal_g{g}': f'{where}/pedestal_g{g}_m%d.bin' for g in range(3)},
    }
    for key, value in settings.items():
        c += ['--set', f'{key}={value}']
    return c


def run_program(command):
    """Run a program to its end."""
    try:
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL, timeout=PROGRAM_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise SystemExit(f'recv_bench: {command[0]} has not ended in {PROGRAM_SECONDS} s') \
            from error


def run(build, where, frames, seconds, huge):
    """@return frames, seconds and CPU by role of a run in its steady state, and its ledger"""
    prefix = f'braggline_bench_{os.getpid()}'
    with open(f'{where}/log', 'w+', encoding='utf-8') as log, \
            background.start(command(build, where, prefix, frames, huge), stdout=log,
                             stderr=subprocess.STDOUT) as process:
        try:
            telemetry = Telemetry(prefix, process)
            end = time.monotonic() + 60
            while sum(g['frames'] for g in telemetry('/braggline/gangs').values()) < 4 * frames:
                if time.monotonic() > end:
                    raise SystemExit('recv_bench: no frames')
                time.sleep(0.1)
            begin = sample(telemetry, process.pid)
            time.sleep(seconds)
            after = sample(telemetry, process.pid)
            ledger = telemetry('/braggline/ledger')['frames']
            process.send_signal(signal.SIGINT)
            try:
                process.wait(timeout=STOP_SECONDS)
            except subprocess.TimeoutExpired as error:
                raise SystemExit(f'recv_bench: braggline-recv has not ended {STOP_SECONDS} s '
                                 f'after SIGINT') from error
            if process.returncode != 0:
                raise SystemExit(f'recv_bench: exit status {process.returncode}')
            return (after['frames'] - begin['frames'], after['time'] - begin['time'],
                    cpu_by_role(process.pid, begin, after), ledger)
        except BaseException:
            process.kill()
            log.seek(0)
            print(log.read())
            raise


def floor(program, arguments, stage, what, where):
    """@return seconds per frame, as another benchmark measures it"""
    rows = f'{where}/floor.rows'
    run_program([program, *arguments, '--rows', rows])
    with open(rows, encoding='utf-8') as lines:
        for line in lines:
            row = line.split('\t')
            if row[0] == stage and row[1] == what:
                rate = float(row[2]) * (1e6 / PACKETS if row[3] == 'Mpackets/s' else 1)
                return 1 / rate
    raise SystemExit(f'recv_bench: {program}: no row {what}')


def floors(o, where, huge):
    """CPU seconds per frame in the gang; in replay, RX and builder; and of a clean frame that one
    gang counts."""
    return (
        CORES * floor(f'{o.build}/test/bench/gang_bench',
                      ['--modules', str(MODULES), '--workers', str(CORES),
                       '--strong-min', str(STRONG_MIN), '--seconds', str(min(o.seconds, 2)),
                       *(['--huge'] if huge else []),
                       f'{where}/in.pcap', where],
                      'gang', 'frames of the detector', where),
        floor(f'{o.build}/test/bench/rx_bench',
              ['--rounds', '3' if o.seconds > 2 else '1', '--seconds', '0.1',
               '--frames', str(o.frames)],
              'RX', 'RX and builder, 1 lcore', where),
        floor(f'{o.build}/test/bench/gk_bench',
              ['--repeats', '3' if o.seconds > 2 else '1', '--isa', 'auto', '--row', 'count',
               '--modules', str(MODULES)],
              'gang', 'conversion + count', where))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n', maxsplit=1)[0])
    parser.add_argument('--frames', type=int, default=32, help='of the capture (32: 272 MB)')
    parser.add_argument('--seconds', type=float, default=6)
    parser.add_argument('--rows', default=os.devnull)
    parser.add_argument('build')
    o = parser.parse_args()
    # so that the receiver ends and the directory is removed with this process
    signal.signal(signal.SIGTERM, lambda *_: sys.exit('recv_bench: SIGTERM'))
    huge = has_huge_pages(o.frames)
    with tempfile.TemporaryDirectory() as where:
        run_program([f'{o.build}/app/detector/braggline-detector', '--modules', str(MODULES),
                     '--frames', str(o.frames), '--pcap', f'{where}/in.pcap', '--calibration',
                     where])
        before = floors(o, where, huge)
        frames, passed, roles, ledger = run(o.build, where, o.frames, o.seconds, huge)
        after = floors(o, where, huge) if o.seconds > 2 else before
        gang, rx, clean = map(min, before, after)
    cpu = sum(roles.values())
    cost = cpu / frames
    print(f'JUNGFRAU 4M on 2 cores: {frames} frames in {passed:.2f} s, {frames / passed:.0f}/s by '
          f'the clock with {cpu / passed:.2f} cores; {1e3 * cost:.3f} ms of CPU a frame, '
          f'{CORES / cost:.0f} frames/s with both cores to itself')
    pages = 'huge pages' if huge else 'pages of 4 KiB, for want of huge ones'
    print(pages)
    print(f'ledger: {json.dumps(ledger)}')
    rows = []
    for role, seconds in sorted(roles.items()):
        print(f'{role:16} {1e3 * seconds / frames:6.3f} ms of CPU a frame, '
              f'{100 * seconds / cpu:5.1f} %')
        rows.append(('share of ' + role, 100 * seconds / cpu, '%', '', 0, 0, ''))
    print(f'alone, ms of CPU a frame: gang {1e3 * gang:.3f}, replay + RX + builder {1e3 * rx:.3f}; '
          f'a clean frame counted: {1e3 * clean:.3f}')
    rows = [
        ('4M on 2 cores, by the clock', frames / passed, 'frames/s', 'the same by CPU time',
         CORES / cost, 0, ''),
        ('4M on 2 cores to itself', CORES / cost, 'frames/s', 'sum of its stages alone',
         CORES / (gang + rx), 0, ''),
        ('4M on 2 cores to itself', CORES / cost, 'frames/s', 'slowest stage alone: gangs',
         CORES / gang, 0, 'ratio >= 0.7'),
        ('4M on 2 cores to itself', CORES / cost, 'frames/s',
         f'{CORES} gangs of a core each, clean frames counted', CORES / clean, 0, ''),
        *rows,
    ]
    with open(o.rows, 'w', encoding='utf-8') as out:
        for what, value, unit, against, other, ratio, goal in rows:
            ratio = value / other if other else ratio
            out.write(f'receiver\t{what}\t{value:.6g}\t{unit}\t{against}\t{other:.6g}\t'
                      f'{ratio:.4g}\t{goal}\t0\t0\tpeer\t{pages}\t\n')


if __name__ == '__main__':
    sys.exit(main())
