#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A guest whose kernel implements RoCEv2 in software (rdma_rxe): an independent peer.

usage: rxe_vm.py [OPTION]... [--] COMMAND
  runs COMMAND, a line of sh, in a new guest; exits with its exit status, 124 if it took too long,
  125 if the guest did not boot or failed, 77 if something is not installed

  --vhost-user SOCKET  eth0 is connected to this vhost-user back end (DPDK: net_vhost0,iface=SOCKET)
  --vhost-server SOCKET  the same, but the guest listens: the back end (net_vhost0,...,client=1) may
                       reconnect; the guest boots when the first one is connected
  --tap NAME           eth0 is connected to this tap device; --netns NAME: in that namespace
  --netdev SPEC        eth0 is connected to this QEMU network, given without its id
  --ip ADDRESS/LEN     address of eth0, may be repeated
  --mac MAC            of eth0, 52:54:00:00:00:02 by default
  --mtu N              of eth0, 1500 by default; 4200 and more give a RoCE MTU of 4096
  --file PATH[=NAME]   copy a file of this machine to NAME, by default /bin/ and its own name; the
                       libraries that a program is linked with are copied, too
  --share FOLDER       mount this folder of this machine as /share in the guest
  --memory MIB, --cpus N, --huge PAGES   of the guest; 512, 1 and no page of 2 MiB by default
  --seconds N          time limit of COMMAND, 60 by default

Tests use the class Guest: one boot (about 3 s), any number of commands one after the other:

    with Guest(ip=['10.0.0.2/24'], vhost_user='nic0') as guest:
        ping = guest.run('ping -c 1 10.0.0.1')
        assert ping.status == 0, ping.output
        server = guest.start('rping -s -C 3', listens=True)     # returns once it listens
        ...
        assert server.wait() == 0

rxe0 is on eth0; its GID 1 is the IPv4 address.
"""

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import rxe_image

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../smoke'))
from background import die_with_parent  # noqa: E402

Missing = rxe_image.Missing
TIMED_OUT, BROKEN, SKIP = 124, 125, 77
QEMU = 'qemu-system-x86_64'
# Booting takes 3 s on an idle machine; tests may run on a busy one.
BOOT_SECONDS = 180
# No offloads: the guest sends complete frames with all checksums.
OFFLOADS = ''.join(f',{name}=off' for name in (
    'csum', 'gso', 'guest_csum', 'guest_tso4', 'guest_tso6', 'guest_ufo', 'guest_ecn', 'host_tso4',
    'host_tso6', 'host_ufo', 'host_ecn'))


class Broken(Exception):
    """The guest did not boot, or has ended."""


def rping(address, options):
    """Shell command: the guest's rping as a client. Its event thread may find its channel closed at
    the end, and exits with an error; this is accepted."""
    return (f'out=$(rping -c -a {address} {options} 2>&1) || case $out in '
            '*mismatch*) false;; *"rdma_get_cm_event: Bad file"*) true;; *) false;; esac || '
            '{ echo "$out"; exit 1; }; echo "$out"')


class Job:
    """A command in a guest, running or ended."""

    def __init__(self, guest, number, seconds):
        self.guest, self.number, self.seconds = guest, number, seconds
        self.raw, self.status = b'', None

    @property
    def output(self):
        return self.raw.replace(b'\002listening\n', b'').decode(errors='replace')

    def wait(self):
        """Wait until it has ended. @return its exit status, 124 if it took too long"""
        # the guest ends a command in time; if the guest itself hangs, it is ended here
        self.guest.until(lambda: self.status is not None, self.seconds + 30,
                         'does not end its command')
        return self.status

    def expect(self, text, seconds=30):
        """Wait until it has printed this text; raise Broken if it ends without it."""
        text = text.encode()
        self.guest.until(lambda: text in self.raw or self.status is not None, seconds,
                         f'does not print {text!r}')
        if text not in self.raw:
            raise Broken(f'ended with {self.status} and never printed {text!r}: {self.output}')


class Guest:
    """A running guest. It runs one command at a time; a command itself may use &."""

    def __init__(self, ip=(), vhost_user=None, vhost_server=None, tap=None, netns=None, netdev=None,
                 mac='52:54:00:00:00:02', mtu=1500, files=None, share=None, memory=512, cpus=1,
                 huge=0, name='guest'):
        if not shutil.which(QEMU):
            raise Missing(f'{QEMU} is not installed: run make deps')
        self.name, self.condition = name, threading.Condition()
        self.job, self.ended, self.vm = None, False, None
        self.folder = tempfile.mkdtemp(prefix='rxe-vm-')
        try:
            conf = {'IPS': ' '.join(ip), 'MTU': mtu, 'HUGE': huge or '', 'SHARE': 'y' if share else '',
                    'IP': ip[0].split('/')[0] if ip else '', 'MAC': mac}
            text = ''.join(f'{key}={shlex.quote(str(value))}\n' for key, value in conf.items())
            with open(self._path('initramfs'), 'wb') as f:
                f.write(rxe_image.initramfs(text + 'export IP MAC MTU\n', files or {}))
            nic = f'{vhost_server},server=on,wait=off' if vhost_server else vhost_user
            command = [QEMU, *self._machine(memory, cpus), *self._nic(nic, tap, netdev, mac)]
            if share:
                command += ['-virtfs', f'local,path={share},mount_tag=share,security_model=none']
            if netns:
                command = ['ip', 'netns', 'exec', netns, *command]
            self._boot(command)
        except BaseException:
            self.close()
            raise

    def _path(self, name):
        return os.path.join(self.folder, name)

    def _machine(self, memory, cpus):
        # Emulated, so that it runs anywhere; the CPU has SSE 4.2, which Debian's DPDK needs.
        return ['-accel', 'tcg,thread=multi', '-cpu', 'Nehalem', '-smp', str(cpus),
                '-m', str(memory), '-machine', 'pc,memory-backend=ram',
                '-object', f'memory-backend-memfd,id=ram,size={memory}M,share=on',
                '-no-user-config', '-nodefaults', '-display', 'none', '-vga', 'none', '-no-reboot',
                '-kernel', rxe_image.kernel(), '-initrd', self._path('initramfs'),
                '-append', 'console=ttyS0 quiet panic=-1 tsc=reliable no_timer_check '
                           'mitigations=off edd=off',
                '-chardev', f'file,id=console,path={self._path("console")}',
                '-serial', 'chardev:console',
                '-chardev', 'stdio,id=command,signal=off', '-serial', 'chardev:command']

    @staticmethod
    def _nic(vhost_user, tap, netdev, mac):
        device, before = f'virtio-net-pci,netdev=net,mac={mac},romfile=,rx_queue_size=1024', []
        if vhost_user:
            before = ['-chardev', f'socket,id=nic,path={vhost_user}']
            netdev = 'vhost-user,chardev=nic,queues=1'
            # QEMU 7.2, emulating, crashes when the driver enables MSI-X of a vhost-user device
            device += ',vectors=0'
        elif tap:
            netdev = f'tap,ifname={tap},script=no,downscript=no,vhost=off,vnet_hdr=off'
        if not netdev:
            return []
        return [*before, '-netdev', f'{netdev},id=net', '-device', device + OFFLOADS]

    def _boot(self, command):
        with open(self._path('errors'), 'wb') as errors:
            self.vm = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                       stderr=errors, bufsize=0,
                                       preexec_fn=die_with_parent)
        self.number = 0
        self.job = Job(self, 0, BOOT_SECONDS)
        threading.Thread(target=self._read, daemon=True).start()
        self.until(lambda: self.job.status is not None, BOOT_SECONDS, 'does not boot')

    def _read(self):
        """Thread: pass the guest's output to the running job."""
        while True:
            data = os.read(self.vm.stdout.fileno(), 65536)
            with self.condition:
                if not data:
                    self.ended = True
                else:
                    job = self.job
                    job.raw += data
                    end = re.search(rb'\001%d (\d+)\n' % job.number, job.raw)
                    if end:
                        # 128 + KILL, by the clock of the guest
                        status = int(end.group(1))
                        job.raw = job.raw[:end.start()]
                        job.status = TIMED_OUT if status == 137 else status
                self.condition.notify_all()
                if self.ended:
                    return

    def until(self, done, seconds, what):
        with self.condition:
            self.condition.wait_for(lambda: done() or self.ended, seconds)
            if done():
                return
        raise Broken(f'{self.name} {"has exited" if self.ended else what}\n{self.console()}')

    def console(self):
        """Messages of QEMU and of the guest's kernel."""
        text = ''
        for name in ('errors', 'console'):
            try:
                with open(self._path(name), encoding='utf-8', errors='replace') as f:
                    text += ''.join(f'{self.name}: {line.rstrip()}\n' for line in f.readlines()[-40:])
            except FileNotFoundError:
                pass
        return text

    def start(self, command, seconds=60, listens=False):
        """Start a command, one line of sh. listens: return once it listens with the CM."""
        if self.job.status is None:
            raise ValueError(f'{self.name} still runs a command')
        if '\n' in command:
            raise ValueError('a command is one line')
        if listens:
            command = f'listen {command}'
        self.number += 1
        job = self.job = Job(self, self.number, seconds)
        try:
            self.vm.stdin.write(f'{job.number} {seconds} {command}\n'.encode())
        except BrokenPipeError:
            pass        # until() reports it
        if listens:
            job.expect('\002listening')
        return job

    def run(self, command, seconds=60):
        """Run a command. @return its job, with status and output"""
        job = self.start(command, seconds)
        job.wait()
        return job

    def close(self):
        """End the guest in any state."""
        if self.vm:
            self.vm.kill()
            self.vm.wait()
            self.vm.stdin.close()
            self.vm = None
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *what):
        self.close()


def wait_for(path, seconds=30):
    """Wait until a file exists, for instance a socket."""
    end = time.monotonic() + seconds
    while not os.path.exists(path):
        if time.monotonic() > end:
            raise Broken(f'{path} does not appear')
        time.sleep(0.05)


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split('usage: ', 1)[1], add_help=False)
    for option in ('vhost-user', 'vhost-server', 'tap', 'netns', 'netdev', 'mac', 'share'):
        parser.add_argument('--' + option)
    for option in ('mtu', 'memory', 'cpus', 'huge'):
        parser.add_argument('--' + option, type=int)
    parser.add_argument('--ip', action='append', default=[])
    parser.add_argument('--file', action='append', default=[])
    parser.add_argument('--seconds', type=int, default=60)
    parser.add_argument('command', nargs='+')
    given = {k: v for k, v in vars(parser.parse_args()).items() if v is not None}
    command, seconds = ' '.join(given.pop('command')), given.pop('seconds')
    files = {}
    for spec in given.pop('file'):
        path, _, name = spec.partition('=')
        files[path] = name or '/bin/' + os.path.basename(path)
    try:
        with Guest(files=files, **given) as guest:
            job = guest.run(command, seconds)
            sys.stdout.write(job.output)
            return job.status
    except Missing as missing:
        print('skipped:', missing)
        return SKIP
    except Broken as broken:
        print('rxe_vm:', broken, file=sys.stderr)
        return BROKEN


if __name__ == '__main__':
    sys.exit(main())
