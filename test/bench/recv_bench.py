#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""JUNGFRAU 4M through the whole receiver on two cores: replay, RX, builder, gangs, writer.

    recv_bench.py [--frames N] [--seconds S] [--rows FILE] BUILD-DIR

braggline-recv replays frames of the simulated detector without end, one hit in ten, CSR of the hits
into files in $TMPDIR. A gang has a worker on each lcore. A frame's cost is the CPU time of all
threads, so that what others do on the machine counts little; beside it the rate by the clock. The
sum of the floors is what the same frames cost stage by stage: gk_bench and rx_bench, run here.
"""
import argparse
import json
import os
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
TELEMETRY_SECONDS = 20  # the receiver may share its CPUs with much else
STOP_SECONDS = 60
PROGRAM_SECONDS = 120  # a floor, or the making of a capture


class Telemetry:
    """DPDK's telemetry socket: a command a message, JSON back. Nothing waits without an end."""

    def __init__(self, prefix, process):
        path = f'/var/run/dpdk/{prefix}/dpdk_telemetry.v2'
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
        # the socket is there before the receiver's commands
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
    """CPU time of each thread: its name and seconds."""
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
        'roles': {role: cycles for lcore in lcores.values()
                  for role, cycles in lcore['role_busy_cycles'].items()},
        'idle': sum(lcore['idle_cycles'] for lcore in lcores.values()),
        'cpu': cpu_seconds(pid),
    }


def command(build, where, prefix, frames):
    c = [f'{build}/app/recv/braggline-recv', '--no-huge', '-m', str(700 + 9 * frames), '--no-pci',
         '--file-prefix', prefix, '-l', '0,1', '--vdev', 'gpu_host0', '--vdev',
         f'net_replay0,file={where}/in.pcap,loops=0,rewrite=42:8:le:{frames}', '--', '--quiet']
    settings = {
        'detector.modules': MODULES, 'detector.udp_port': 50001, 'lcores.rx': 0,
        'lcores.builder': 0, 'lcores.gang': '0,1', 'lcores.gangs': 1, 'lcores.gang_workers': 2, 'gpu.kernel': 'host',
        'frames.slots': 32, 'frames.backpressure': 'wait', 'output.directory': f'{where}/out',
        'output.preview': 'off', 'output.roll_mib': 512, 'veto.bragg_min': 40,
        'calibration.gain': f'{where}/gain_m%d.bin', 'calibration.mask': f'{where}/mask_m%d.bin',
        **{f'calibration.pedestal_g{g}': f'{where}/pedestal_g{g}_m%d.bin' for g in range(3)},
    }
    for key, value in settings.items():
        c += ['--set', f'{key}={value}']
    return c


def run_program(command):
    """One that ends by itself."""
    try:
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL, timeout=PROGRAM_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise SystemExit(f'recv_bench: {command[0]} has not ended in {PROGRAM_SECONDS} s') \
            from error


def run(build, where, frames, seconds):
    """@return two samples of one run in its steady state, and the frames stored meanwhile"""
    run_program([f'{build}/app/detector/braggline-detector', '--modules', str(MODULES),
                 '--frames', str(frames), '--pcap', f'{where}/in.pcap', '--calibration', where])
    prefix = f'braggline_bench_{os.getpid()}'
    with open(f'{where}/log', 'w+', encoding='utf-8') as log, \
            background.start(command(build, where, prefix, frames), stdout=log,
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
            return begin, after, ledger
        except BaseException:
            process.kill()
            log.seek(0)
            print(log.read())
            raise


def floor(program, arguments, stage, what, where):
    """Seconds of a frame, as another benchmark has it."""
    rows = f'{where}/floor.rows'
    run_program([program, *arguments, '--rows', rows])
    with open(rows, encoding='utf-8') as lines:
        for line in lines:
            row = line.split('\t')
            if row[0] == stage and row[1] == what:
                rate = float(row[2]) * (1e6 / PACKETS if row[3] == 'Mpackets/s' else 1)
                return 1 / rate
    raise SystemExit(f'recv_bench: {program}: no row {what}')


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n', maxsplit=1)[0])
    parser.add_argument('--frames', type=int, default=32, help='of the capture (32: 272 MB)')
    parser.add_argument('--seconds', type=float, default=6)
    parser.add_argument('--rows', default=os.devnull)
    parser.add_argument('build')
    o = parser.parse_args()
    # so that the receiver and the directory go away with us
    signal.signal(signal.SIGTERM, lambda *_: sys.exit('recv_bench: SIGTERM'))
    with tempfile.TemporaryDirectory() as where:
        begin, after, ledger = run(o.build, where, o.frames, o.seconds)
        quick = ['--repeats', '3'] if o.seconds > 2 else ['--repeats', '1']
        gang = floor(f'{o.build}/test/bench/gk_bench', [*quick, '--frames', '16', '--row', 'count'],
                     'gang', 'conversion + count', where)
        rx = floor(f'{o.build}/test/bench/rx_bench',
                   ['--rounds', quick[1], '--seconds', '0.1', '--frames', str(o.frames)], 'RX',
                   'RX and builder, 1 lcore', where)
    frames = after['frames'] - begin['frames']
    passed = after['time'] - begin['time']
    cpu = {k: v - begin['cpu'].get(k, 0) for k, v in after['cpu'].items()}
    roles = {r: c - begin['roles'][r] for r, c in after['roles'].items()}
    lcores = sum(v for (_, name), v in cpu.items()
                 if name == 'braggline-recv' or name.startswith('rte-worker'))
    others = sum(cpu.values()) - lcores
    busy = sum(roles.values())
    share = busy / (busy + after['idle'] - begin['idle'])
    cost = (lcores * share + others) / frames
    print(f'JUNGFRAU 4M on 2 cores: {frames} frames in {passed:.2f} s, {frames / passed:.0f}/s by '
          f'the clock; {1e3 * cost:.3f} ms of CPU a frame, {2 / cost:.0f} frames/s with both cores '
          f'to itself')
    print(f'ledger: {json.dumps(ledger)}')
    rows = []
    for role, cycles in sorted(roles.items()):
        print(f'{role:16} {100 * cycles / busy:6.1f} % of the busy cycles of lcores')
        rows.append(('share of ' + role, 100 * cycles / busy, '%', '', 0, 0, ''))
    print(f'{"other threads":16} {1e3 * others / frames:6.3f} ms of CPU a frame')
    print(f'floors, ms a frame: gang {1e3 * gang:.3f}, replay + RX + builder {1e3 * rx:.3f}')
    rows = [
        ('4M on 2 cores, by the clock', frames / passed, 'frames/s', '', 0, 0, ''),
        ('4M on 2 cores to itself', 2 / cost, 'frames/s', 'sum of the floors of its stages',
         2 / (gang + rx), 0, ''),
        ('4M on 2 cores to itself', 2 / cost, 'frames/s', 'slowest stage alone: gangs', 2 / gang,
         0, 'ratio >= 0.7'),
        *rows,
        ('writer and other threads', 1e3 * others / frames, 'ms a frame', '', 0, 0, ''),
    ]
    with open(o.rows, 'w', encoding='utf-8') as out:
        for what, value, unit, against, other, ratio, goal in rows:
            ratio = value / other if other else ratio
            out.write(f'receiver\t{what}\t{value:.6g}\t{unit}\t{against}\t{other:.6g}\t'
                      f'{ratio:.4g}\t{goal}\t0\n')


if __name__ == '__main__':
    sys.exit(main())
