#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Runs the sender and the receiver of ingest_bench as two processes, as on two hosts, with software
RoCE over shared memory. Its figures are ignored.

    ingest_roles.py INGEST_BENCH
"""
import os
import socket
import subprocess
import sys

LIMIT = 100      # seconds
METHODS = ('UDP recv', 'UDP tuned', 'UC SEND', 'UC WRITE', 'UC WRITE_IMM', 'RC WRITE')


def free_port():
    with socket.socket(socket.AF_INET6) as s:
        s.bind(('::', 0))
        return s.getsockname()[1]


def start(program, role, number, port, *options):
    memif = f'net_memif0,bsize=10240,socket-abstract=yes,socket=ingest_{os.getpid()}'
    side = 'server' if role == 'sender' else 'client'
    return subprocess.Popen(
        [program, '-l', str(number), '--no-huge', '--no-shconf', '--no-pci', '--no-telemetry',
         '-m', '256', '--vdev', f'{memif},role={side}', '--', '--role', role, '--port', str(port),
         '--device', f'roce:port=0,ip=10.0.0.{number + 1}/24', *options],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)


def main():
    program, port = sys.argv[1], free_port()
    with start(program, 'sender', 0, port) as sender, \
            start(program, 'receiver', 1, port, '--peer', 'localhost', '--addresses', '64',
                  '--rounds', '1', '--seconds', '0.01') as receiver:
        try:
            table = receiver.communicate(timeout=LIMIT)[0]
            sender.wait(timeout=LIMIT)
        finally:
            receiver.kill()
            sender.kill()
    print(table)
    missing = [m for m in METHODS for payload in ('2048', '4096', '8246')
               if f'{payload} {m} ' not in table]
    if missing or receiver.returncode or sender.returncode:
        sys.exit(f'ingest_roles: no rows of {missing}, exit status of the receiver '
                 f'{receiver.returncode}, of the sender {sender.returncode}')


if __name__ == '__main__':
    main()
