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


def receive(program, port):
    """@return the receiver's table"""
    with start(program, 'receiver', 1, port, '--peer', 'localhost', '--addresses', '64',
               '--rounds', '1', '--seconds', '0.01') as receiver:
        try:
            table = receiver.communicate(timeout=LIMIT)[0]
        finally:
            receiver.kill()
    if receiver.returncode:
        sys.exit(f'ingest_roles: exit status of the receiver: {receiver.returncode}')
    return table


def main():
    program, port = sys.argv[1], free_port()
    with start(program, 'sender', 0, port) as sender:
        try:
            # its end of the shared memory is then ready
            if not any('waiting' in line for line in sender.stdout):
                sys.exit('ingest_roles: the sender does not wait for a receiver')
            table = receive(program, port)
            sender.wait(timeout=LIMIT)
        finally:
            sender.kill()
    print(table)
    missing = [f'{payload} {m}' for m in METHODS for payload in ('2048', '4096', '8246')
               if f'{payload} {m} ' not in table]
    if missing or sender.returncode:
        sys.exit(f'ingest_roles: missing rows: {", ".join(missing) or "none"}; exit status of the '
                 f'sender: {sender.returncode}')


if __name__ == '__main__':
    main()
