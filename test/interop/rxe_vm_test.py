#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Tests the rig of the RDMA interop tests: two rxe guests communicate, without code of this project
between them.

usage: rxe_vm_test.py

Stock dpdk-testpmd forwards from one net_vhost port to the other. Tested are ping with full jumbo
frames, rping, exit status and output of commands, the end of a command that takes too long, and a
peer that does not exist.
"""

import os
import shutil
import subprocess
import sys
import tempfile

from rxe_vm import Broken, Guest, Missing, SKIP, TIMED_OUT, die_with_parent, rping, wait_for

MTU = 9000


def testpmd(folder, log):
    """Start testpmd with two vhost-user back ends; it forwards all packets from one to the other.
    """
    tool = shutil.which('dpdk-testpmd')
    if not tool:
        raise Missing('dpdk-testpmd is not installed: run make deps')
    cpus = f'0-{os.cpu_count() - 1}'
    process = subprocess.Popen(
        [tool, '--lcores', f'(0,1)@({cpus})', '-m', '256', '--no-huge', '--no-pci', '--no-shconf',
         *(f'--vdev=net_vhost{i},iface={folder}/nic{i},queues=1' for i in range(2)), '--',
         '--auto-start', '--forward-mode=io', '--total-num-mbufs=4096', '--mbuf-size=10240',
         f'--max-pkt-len={MTU + 18}', '--nb-cores=1', '--stats-period=3600'],
        stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd=folder,
        preexec_fn=die_with_parent)
    for i in range(2):
        wait_for(f'{folder}/nic{i}')
    return process


def check(job, status, *texts):
    if job.status != status or any(text not in job.output for text in texts):
        raise Broken(f'status {job.status}, not {status}, or none of {texts} in:\n{job.output}')


def talk(one, two):
    check(one.run('ping -c 3 -i 0.2 -s 8900 10.99.0.2'), 0, ' 0% packet loss')
    server = two.start('rping -s -a 10.99.0.2 -C 5', listens=True)
    client = one.run(rping('10.99.0.2', '-C 5 -v'))
    check(client, 0, 'ping data: rdma-ping-4: EFGHIJ')
    server.wait()
    check(server, 0)
    check(one.run('ibv_devinfo -d rxe0'), 0, 'active_mtu:\t\t4096')


def owe(guest):
    check(guest.run('echo "a b"; exit 3'), 3, 'a b\n')
    check(guest.run('sleep 60 & cat', seconds=10), 0)
    check(guest.run('echo begun; sleep 60', seconds=1), TIMED_OUT, 'begun')
    # no program listens at that address
    job = guest.run('rping -c -a 10.99.0.2 -C 1')
    if job.status == 0:
        raise Broken('rping succeeded although no server listens')


def main():
    folder = tempfile.mkdtemp()
    process = None
    try:
        with open(f'{folder}/testpmd', 'w+', encoding='utf-8', errors='replace') as log:
            try:
                process = testpmd(folder, log)
                with Guest(['10.99.0.1/24'], f'{folder}/nic0', mac='52:54:00:00:00:01', mtu=MTU,
                           name='one') as one, \
                     Guest(['10.99.0.2/24'], f'{folder}/nic1', mac='52:54:00:00:00:02', mtu=MTU,
                           name='two') as two:
                    talk(one, two)
                    owe(one)
            except Broken as broken:
                log.seek(0)
                print(log.read())
                print('FAILED:', broken)
                return 1
    except Missing as missing:
        print('skipped:', missing)
        return SKIP
    finally:
        if process:
            process.kill()
            process.wait()
        shutil.rmtree(folder)
    print('two rxe guests spoke through testpmd')
    return 0


if __name__ == '__main__':
    sys.exit(main())
