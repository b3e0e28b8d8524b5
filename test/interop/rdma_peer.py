# SPDX-License-Identifier: BSD-3-Clause
"""Runs braggline-rdma on a net_vhost port, with a rdma_rxe guest at the other end.

A Bench has one guest for many runs of the tool. Each run is a separate process. The guest sees its
start and end as link up and link down. All frames are captured for capture_faults().
"""

import concurrent.futures
import functools
import glob
import os
import shutil
import signal
import subprocess
import tempfile
import time

from rxe_vm import BOOT_SECONDS, SKIP, Broken, Guest, Missing, die_with_parent

OURS, THEIRS = '10.99.0.1', '10.99.0.2'
# Ethernet MTU for each RoCE MTU: rdma_rxe uses the largest that leaves room for 80 bytes of headers
ETHERNET_MTU = {256: 400, 512: 700, 1024: 1500, 2048: 2500, 4096: 4300}
ETHERNET_MAX = 4300
# Shell command in the guest: wait until its link is up. Without a reply from our address, the link
# may be the last run's, about to go down.
LINK = (f'until ping -c 1 -W 1 {OURS} >/dev/null && ibv_devinfo -d rxe0 | grep -q PORT_ACTIVE; '
        'do usleep 100000; done')
# Options of perftest: acknowledge time-outs of 1.07 s. An emulated guest may need half a second for a
# message of 1 MiB, and longer on a busy machine.
PATIENT = '-u 18'
CLOCK_ATTEMPTS = 5
GRACE = 10      # limit in seconds for one end after the other has ended


def pick_cpus():
    return f'0-{os.cpu_count() - 1}'


def step(what, begin):
    """Print a step of the test, and the time."""
    print(f'{time.monotonic() - begin:6.1f} s  {what}', flush=True)


def outcome(test, *what):
    """Run a test. @return its exit status; prints what is missing or broken"""
    try:
        test(*what)
    except Missing as missing:
        print('skipped:', missing)
        return SKIP
    except Broken as broken:
        print('FAILED:', broken)
        return 1
    return 0


class Unsteady(Broken):
    """perftest in the guest found no steady CPU clock, and printed no figures."""


def steady(run):
    """Repeat a run if perftest could not measure its clock, as an emulated CPU pauses sometimes."""
    @functools.wraps(run)
    def again(*what, **how):
        for _ in range(CLOCK_ATTEMPTS - 1):
            try:
                return run(*what, **how)
            except Unsteady:
                print('  once more: the guest has no steady clock', flush=True)
        return run(*what, **how)
    return again


class Run:
    """A running braggline-rdma."""

    def __init__(self, bench, mode, options, seconds):
        self.name = f'{mode} {options}'
        self.deadline = time.monotonic() + seconds
        self.seen = 0
        self.log = open(f'{bench.folder}/tool.log', 'w+', encoding='utf-8', errors='replace')
        bench.runs += 1
        extra = []
        if bench.capture:
            extra = ['--capture', f'{bench.folder}/{bench.runs:03}.pcap']
        self.process = subprocess.Popen(
            [bench.tool, '--lcores', f'0@({pick_cpus()})', '-m', str(bench.memory), '--no-huge',
             '--no-shconf', '--no-pci', '--no-telemetry', '--log-level=lib.vhost.*:error',
             f'--vdev=net_vhost0,iface={bench.socket},queues=1,client=1', '--', mode, '--device',
             f'roce:port=0,ip={OURS}/24{bench.device_options}', '-e', *extra, *options.split()],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT,
            preexec_fn=die_with_parent)

    @property
    def output(self):
        self.log.flush()
        with open(self.log.name, encoding='utf-8', errors='replace') as log:
            log.seek(self.seen)
            return log.read()

    def forget(self):
        """Ignore the output so far in expect()."""
        self.seen = os.path.getsize(self.log.name)

    def expect(self, text):
        while text not in self.output:
            if self.process.poll() is not None or time.monotonic() > self.deadline:
                raise Broken(f'braggline-rdma {self.name} never printed {text!r}:\n{self.output}')
            time.sleep(0.05)

    def ends(self, seconds):
        """@return the exit status, None if the process does not end in this time"""
        try:
            return self.process.wait(max(0.1, seconds))
        except subprocess.TimeoutExpired:
            return None

    def wait(self):
        """@return the exit status, None if the time is over and the process is killed"""
        status = self.ends(self.deadline - time.monotonic())
        if status is None:
            self.close()
        return status

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class Bench:
    """A guest, and methods that run the tool with it."""

    def __init__(self, tool, capture=True, memory=256, seconds=60):
        self.tool, self.capture, self.memory, self.seconds = tool, capture, memory, seconds
        self.device_options, self.runs, self.guest = ',mtu=4096', 0, None
        self.folder = tempfile.mkdtemp(prefix='rdma-test-')
        self.socket = f'{self.folder}/nic'
        # the network card needs a back end while the guest boots, for minutes on a busy machine
        first = self.ours('rping', '-s -P', BOOT_SECONDS + 120)
        try:
            self.boot()
            self.greet()
            first.interrupt()
            if first.wait() != 0:
                raise Broken(f'the first run failed:\n{first.output}')
        except BaseException:
            first.close()
            self.close()
            raise

    def boot(self):
        self.guest = Guest([f'{THEIRS}/24'], vhost_server=self.socket, mtu=ETHERNET_MAX)
        # more unicast probes before a neighbor entry fails, as the guest may be slow
        self.guest.run('sysctl -q -w net.ipv4.neigh.eth0.ucast_solicit=10 2>/dev/null; true')

    def ours(self, mode, options, seconds=None):
        return Run(self, mode, options, seconds or self.seconds)

    def greet(self):
        """Wait until both ends can reach each other."""
        job = self.guest.run(f'for i in $(seq 20); do ping -c 1 -W 1 {OURS} && exit 0; done; exit 1')
        if job.status != 0:
            raise Broken(f'the guest does not reach {OURS}:\n{job.output}')

    def mtu(self, mtu):
        """Set the path MTU: the guest's Ethernet MTU, and the MTU of our device."""
        self.device_options = f',mtu={mtu}'
        job = self.guest.run(f'ip link set eth0 mtu {ETHERNET_MTU[mtu]} && ibv_devinfo -d rxe0')
        if f'active_mtu:\t\t{mtu} ' not in job.output:
            raise Broken(f'the guest has no MTU of {mtu}:\n{job.output}')

    @steady
    def serve(self, mode, options, client, *texts, theirs=0, ours=0):
        """Run our server and the guest's client."""
        run = self.ours(mode, options)
        try:
            run.expect('listening on port')
            self.greet()
            job = self.guest.run(client, self.seconds)
            if job.status != theirs:
                run.interrupt()         # it may still be waiting for a client
            self.check(run, run.wait(), job, texts, theirs, ours)
        finally:
            run.close()

    @steady
    def connect(self, mode, options, server, *texts, theirs=0, ours=0):
        """Run the guest's server and our client. The client starts first, because the guest's link
        is up only while it runs."""
        run = self.ours(mode, f'{options} --wait {self.seconds}')
        try:
            job = self.server(server)
            self.until_one_ends(run, job)
            status = run.wait()
            if status == ours:
                job.wait()
            else:       # it may poll forever
                self.wait_for(job, GRACE)
            self.check(run, status, job, texts, theirs, ours)
        finally:
            run.close()

    def until_one_ends(self, run, job):
        """Our client waits for its server, so end it if the server has ended without it."""
        self.wait_for(job, run.deadline - time.monotonic(), run)
        if job.status and run.ends(GRACE) is None:
            run.interrupt()

    @staticmethod
    def wait_for(job, seconds, run=None):
        """Wait until the guest's command or our program has ended, or the time is over."""
        end = time.monotonic() + seconds
        while job.status is None and time.monotonic() < end and \
                (run is None or run.process.poll() is None):
            time.sleep(0.05)

    def server(self, command):
        """Start a server in the guest. It needs a link, so our program is started before."""
        return self.guest.start(f'{LINK}; exec {command}', self.seconds)

    def check(self, run, status, job, texts, theirs, ours):
        both = run.output + job.output
        wrong = [text for text in texts if text not in both]
        if status != ours or (theirs is not None and job.status != theirs) or wrong:
            kind = Unsteady if 'Correlation coefficient' in job.output else Broken
            raise kind(f'{run.name}: exit status {status}, expected {ours}; the guest\'s '
                       f'{job.status}, expected {theirs}; missing: {wrong}\n--- ours\n'
                       f'{run.output}\n--- theirs\n{job.output}\n{self.guest.console()}')

    def forget(self):
        """Remove the captures so far."""
        for path in glob.glob(f'{self.folder}/*.pcap'):
            os.remove(path)

    def close(self):
        if self.guest:
            self.guest.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *what):
        self.close()


def capture_faults(folder, icrcs=4000):
    """@return faults that tshark and scapy find in the captures, and how many frames each checked
    """
    tshark = shutil.which('tshark')
    if not tshark:
        raise Missing('tshark is not installed: run make deps')
    def dissect(path):
        # tshark would look for an rpcordma header in every SEND
        shown = subprocess.run(
            [tshark, '-r', path, '--disable-protocol', 'rpcordma', '-T', 'fields',
             '-e', 'frame.number', '-e', '_ws.malformed', '-e', 'infiniband.bth.opcode',
             '-e', 'frame.protocols'],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, encoding='utf-8', check=False)
        return path, shown.stdout.splitlines()

    faults, frames = [], 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as several:
        dissected = list(several.map(dissect, sorted(glob.glob(f'{folder}/*.pcap'))))
    for path, lines in dissected:
        for line in lines:
            number, malformed, opcode, protocols = (line.split('\t') + [''] * 4)[:4]
            frames += 1
            # tshark may decode a payload as Ethernet because of its first two bytes, and call it
            # malformed
            if malformed and ':infiniband:ethertype' not in protocols:
                faults.append(f'{path}: frame {number}: tshark: malformed, opcode {opcode}')
    checked, more = icrc_faults(folder, icrcs)
    return faults + more, frames, checked


def icrc_faults(folder, limit):
    """Check the ICRC of IPv4 frames with scapy; the frames are sampled evenly from all captures."""
    scapy = shutil.which('scapy') or shutil.which('scapy3')
    if not scapy:
        raise Missing('scapy is not installed: run make deps')
    # Debian's scapy is installed for Debian's interpreter, which may differ from this one
    with open(scapy, encoding='utf-8', errors='replace') as f:
        python = f.readline().removeprefix('#!').split()
    done = subprocess.run(
        [*python, '-B', os.path.join(os.path.dirname(__file__), 'scapy_icrc.py'), str(limit),
         *sorted(glob.glob(f'{folder}/*.pcap'))],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding='utf-8', check=False)
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        raise Broken(f'scapy_icrc.py: {done.stdout}')
    return int(lines[-1]), lines[:-1]
