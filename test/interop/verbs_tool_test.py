#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""braggline-rdma with the verbs provider, on the kernel's rdma_rxe in a guest.

usage: verbs_tool_test.py BUILDDIR

In the guest each mode runs against its stock original, once as server and once as client. It also
runs against the roce provider of the host, once in each direction.
"""

import os
import shutil
import subprocess
import sys
import tempfile

from rdma_peer import ETHERNET_MAX, LINK, OURS, PATIENT, THEIRS
from rxe_vm import Broken, Guest, Missing, SKIP, die_with_parent, rping

EAL = '--no-huge -m 64 --no-pci --no-shconf --no-telemetry'
TOOL = f'braggline-rdma {EAL} --'

# Runs a server and its client: starts the first, waits until it listens, runs the second. Exit
# status 10 if the server fails, 20 if the client fails.
BOTH = r'''#!/bin/sh
( exec $1 ) >/tmp/server 2>&1 &
server=$!
until rdma resource show cm_id | grep -q 'state LISTEN' || ! [ -d /proc/$server ]; do
	usleep 100000
done
( eval "$2" ) || failed=20
[ -z "$failed" ] || kill -INT $server
wait $server || failed=10
echo "--- server"
cat /tmp/server
exit ${failed:-0}
'''

# Mode, options of both, the original's program, expected output of the client's side. Originals get
# -F: they fail if a guest's clock is too uneven to tell a CPU's frequency.
PEERS = (
    ('write_bw', f'-s 65536 -n 50 {PATIENT}', 'ib_write_bw', '#bytes'),
    ('read_bw', f'-s 65536 -n 50 {PATIENT}', 'ib_read_bw', '#bytes'),
    ('send_bw', f'-s 5000 -n 50 {PATIENT}', 'ib_send_bw', '#bytes'),
    ('atomic_bw', f'-n 50 {PATIENT}', 'ib_atomic_bw', '#bytes'),
    ('write_lat', f'-s 64 -n 50 {PATIENT}', 'ib_write_lat', '#bytes'),
)


def check(job, what, *texts):
    missing = [text for text in texts if text not in job.output]
    if job.status or missing:
        raise Broken(f'{what}: status {job.status}, missing: {missing}\n{job.output}')
    print(f'verbs: {what}', flush=True)


def stock_peers(guest):
    """Both ends in the guest, on one device."""
    def pair(what, server, client, *texts):
        check(guest.run(f"both '{server}' '{client}'", seconds=180), what, *texts)

    device = '--device verbs:rxe0 -e'
    for mode, options, original, text in PEERS:
        pair(f'{mode}, ours serves {original}', f'{TOOL} {mode} {device} {options}',
             f'{original} -F -R {options} {THEIRS}', text)
    mode, options, original, text = PEERS[0]
    pair(f'{mode}, {original} serves ours', f'{original} -F -R {options}',
         f'{TOOL} {mode} {device} {options} {THEIRS}', text)
    pair('write_bw, ours serves ours', f'{TOOL} write_bw {device} -s 1000000 -n 5 {PATIENT}',
         f'{TOOL} write_bw {device} -s 1000000 -n 5 {PATIENT} {THEIRS}', '#bytes')
    pair('rping, ours serves the original', f'{TOOL} rping {device} -s',
         rping(THEIRS, '-C 3 -v'), 'ping data: rdma-ping-2')
    pair('rping, the original serves ours', f'rping -s -a {THEIRS} -C 3',
         f'{TOOL} rping {device} -c -a {THEIRS} -C 3 -v', 'rdma-ping-2')
    pair('cmatose, ours serves ucmatose', f'{TOOL} cmatose {device} -C 10',
         f'ucmatose -s {THEIRS} -C 10', 'data transfers complete')
    pair('udaddy, ours serves the original', f'{TOOL} udaddy {device}',
         f'udaddy -s {THEIRS}', 'data transfers complete')


class Host:
    """braggline-rdma on the roce provider, with the guest's network card at its port."""

    def __init__(self, tool, folder, words):
        cpus = f'0-{os.cpu_count() - 1}'
        self.log = open(f'{folder}/host', 'w+', encoding='utf-8', errors='replace')
        self.process = subprocess.Popen(
            [tool, '--lcores', f'0@({cpus})', '--no-huge', '-m', '256', '--no-pci', '--no-shconf',
             '--no-telemetry', '--log-level=lib.vhost.*:error',
             f'--vdev=net_vhost0,iface={folder}/nic,queues=1,client=1', '--',
             *words.split(), '--device', f'roce:port=0,ip={OURS}/24,mtu=4096', '-e'],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT,
            preexec_fn=die_with_parent)

    def output(self):
        with open(self.log.name, encoding='utf-8', errors='replace') as f:
            return f.read()

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *what):
        self.close()


def against_roce(tool, folder):
    """verbs in the guest, roce on the host: both providers through one interface."""
    device = '--device verbs:rxe0 -e'
    with Host(tool, folder, 'rping -s -S 20000') as host, \
         Guest([f'{THEIRS}/24'], vhost_server=f'{folder}/nic', mtu=ETHERNET_MAX, memory=768,
               files={tool: '/bin/braggline-rdma'}) as guest:
        # the guest's network card works as soon as the host's end is connected
        def verbs_asks(words, text):
            job = guest.run(f'{LINK}; {TOOL} {words}', seconds=180)
            if job.status:
                print(host.output())
            check(job, f'{words.split()[0]}, roce serves verbs', text)

        verbs_asks(f'rping {device} -c -a {OURS} -C 3 -v -S 20000', 'rdma-ping-2')
        host.close()
        with Host(tool, folder, f'write_bw -s 65536 -n 50 {PATIENT}') as host:
            verbs_asks(f'write_bw {device} -s 65536 -n 50 {PATIENT} {OURS}', '#bytes')
        host.close()
        with Host(tool, folder, 'send_bw -c UC -s 4000 -n 50') as host:
            verbs_asks(f'send_bw {device} -c UC -s 4000 -n 50 {OURS}', '#bytes')
        with Host(tool, folder, f'rping -c -a {THEIRS} -C 3 -v --wait 60') as host:
            job = guest.start(f'{LINK}; {TOOL} rping {device} -s', seconds=180)
            status = host.process.wait(180)
            if status or 'rdma-ping-2' not in host.output():
                raise Broken(f'rping, verbs serves roce: {status}\n{host.output()}\n{job.output}')
            job.wait()
            check(job, 'rping, verbs serves roce')


def main():
    tool = f'{sys.argv[1]}/pmd-ext/rdma/examples/braggline-rdma'
    folder = tempfile.mkdtemp()
    try:
        with open(f'{folder}/both', 'w', encoding='ascii') as f:
            f.write(BOTH)
        with Guest([f'{THEIRS}/24'], netdev='hubport,hubid=0', mtu=ETHERNET_MAX, memory=768,
                   files={tool: '/bin/braggline-rdma', f'{folder}/both': '/bin/both'}) as guest:
            stock_peers(guest)
        against_roce(tool, folder)
    except Missing as missing:
        print('skipped:', missing)
        return SKIP
    except (Broken, subprocess.TimeoutExpired) as broken:
        print('FAILED:', broken)
        return 1
    finally:
        shutil.rmtree(folder)
    return 0


if __name__ == '__main__':
    sys.exit(main())
