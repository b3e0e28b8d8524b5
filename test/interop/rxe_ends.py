# SPDX-License-Identifier: BSD-3-Clause
"""Programs at both ends of the network card of a rdma_rxe guest."""

import os
import shlex
import subprocess
import sys
import time

from rdma_peer import ETHERNET_MAX, LINK, THEIRS, step
from rxe_vm import Broken, Guest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../smoke'))
import background  # noqa: E402

EAL = '--no-huge --no-pci --no-shconf --no-telemetry --log-level=lib.eal:warning'.split()
# DPDK's mempool drivers, which it loads from its installation
MEMPOOLS = ('librte_mempool_ring.so', 'librte_mempool_stack.so')
NIC = 'net_vhost0'
SHOWN = 40      # last lines of a log


class Ends:
    """A guest, and the programs at both ends of its network card. The folder `where` is /share in
    the guest."""

    def __init__(self, build, where, lcores, seconds):
        """seconds: limit of a program, and of most waits"""
        self.build, self.where, self.lcores, self.seconds = build, where, lcores, seconds
        self.guest, self.logs, self.processes = None, [], []

    def boot(self, *programs, more=None):
        """Start the guest with programs of the build folder. more: {other file: its path there}"""
        libdir = subprocess.run(['pkg-config', '--variable=libdir', 'libdpdk'], check=True,
                                stdout=subprocess.PIPE, text=True).stdout.strip()
        files = {f'{libdir}/{name}': f'/lib/{name}' for name in MEMPOOLS} | (more or {})
        for name in programs:
            files[f'{self.build}/{name}'] = f'/bin/{os.path.basename(name)}'
        self.guest = Guest([f'{THEIRS}/24'], vhost_server=f'{self.where}/nic', mtu=ETHERNET_MAX,
                           share=self.where, memory=1024, files=files)

    def here(self, log, program, memory, words, stdout=None):
        """Start a program on this machine, at the guest's network card. stdout: a file, otherwise
        the log."""
        log = f'{self.where}/{log}.log'
        self.logs.append(log)
        with open(log, 'w', encoding='ascii') as out:
            process = background.start(
                [f'{self.build}/app/{program}', '--lcores', self.lcores, '-m', memory, *EAL,
                 '--log-level=lib.vhost.*:error', '--vdev',
                 f'{NIC},iface={self.where}/nic,queues=1,client=1', *words],
                stdout=stdout or out, stderr=out)
        self.processes.append(process)
        return process

    @staticmethod
    def there(program, memory, words):
        """Shell command that starts the same in the guest."""
        drivers = (word for name in MEMPOOLS for word in ('-d', f'/lib/{name}'))
        return shlex.join([program, *drivers, '-l', '0', '-m', memory, *EAL, *words])

    def script(self, name, text):
        """Write a command of the guest into a file."""
        with open(f'{self.where}/{name}', 'w', encoding='ascii') as out:
            out.write(f'{LINK}\n{text}')
        return f'sh /share/{name}'

    def until(self, done, process, what):
        end = time.monotonic() + self.seconds
        while not done():
            if process.poll() is not None or time.monotonic() > end:
                raise Broken(f'{what}: not in time, or status {process.poll()}')
            time.sleep(0.05)

    def ends(self, process, name):
        """Wait until a program ends in order."""
        try:
            status = process.wait(self.seconds)
        except subprocess.TimeoutExpired:
            raise Broken(f'{name} does not end') from None
        if status:
            raise Broken(f'{name}: status {status}')

    def play(self, *parts):
        """Run the parts of a test, which get this object. Print all logs if one fails."""
        begin = time.monotonic()
        try:
            for part in parts:
                part(self)
                step(part.__name__, begin)
        except (AssertionError, Broken) as wrong:
            self.show()
            raise Broken(str(wrong)) from wrong

    def show(self):
        """Print all logs."""
        for log in self.logs:
            with open(log, encoding='ascii', errors='replace') as out:
                print(f'---- {os.path.basename(log)}', *out.read().splitlines()[-SHOWN:], sep='\n')
        if self.guest:
            print('---- the guest', self.guest.job.output, self.guest.console(), sep='\n')

    def close(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait()
        if self.guest:
            self.guest.close()

    def __enter__(self):
        return self

    def __exit__(self, *what):
        self.close()
