#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Runs braggline-rdma as server and client over net_memif, and checks what --stats prints of both
devices.

usage: rdma_stats_test.py BUILD-DIR
"""

import re
import subprocess
import sys
import tempfile

import background
from cases import want

TURNS = 20
SECONDS = 60


def rping(build, where, role, *words):
    address = {'server': '10.0.0.1', 'client': '10.0.0.2'}[role]
    return background.start(
        [f'{build}/pmd-ext/rdma/examples/braggline-rdma', '--no-huge', '-m', '128', '--no-pci',
         '--no-telemetry', '--no-shconf', '-l', '0', '--vdev',
         f'net_memif0,role={role},socket={where}/socket,socket-abstract=no', '--', 'rping',
         '--device', f'roce:port=net_memif0,ip={address}/24', '-e', '-C', str(TURNS), *words],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def listening(build, where, *words):
    server = rping(build, where, 'server', '-s', *words)
    line = ''
    while 'listening' not in line:
        line = server.stdout.readline()
        want(line, 'no server')
    return server


def end(process):
    text = process.communicate(timeout=SECONDS)[0]
    want(process.returncode == 0, 'status', process.returncode, text)
    return text


def counters(text, address):
    """Counters that follow the name of the device."""
    head, found, rows = text.partition(f'counters of roce:port=net_memif0,ip={address}/24:\n')
    want(found and 'counters of' not in head, text)
    stats = {m[1]: int(m[2]) for m in re.finditer(r'^  (\w+) +(\d+)$', rows, re.M)}
    want(len(stats) == len(rows.splitlines()) and all(stats.values()), text)
    return stats


def main():
    build = sys.argv[1]
    with tempfile.TemporaryDirectory() as where:
        server = listening(build, where, '--stats')
        client = rping(build, where, 'client', '-c', '-a', '10.0.0.1', '--wait', '20', '--stats')
        ours, theirs = counters(end(client), '10.0.0.2'), counters(end(server), '10.0.0.1')
        for stats in ours, theirs:
            want(stats['cm_connected'] == 1 and stats['rx_packets'] > 2 * TURNS, ours, theirs)
        # by WRITE and by READ, in each iteration
        want(theirs['rx_message_bytes'] > 0 and ours['tx_packets'] > 2 * TURNS, ours, theirs)
        server = listening(build, where)
        client = rping(build, where, 'client', '-c', '-a', '10.0.0.1', '--wait', '20')
        for process in client, server:
            text = end(process)
            want('counters of' not in text, text)
    print('counters of both ends: ok')


if __name__ == '__main__':
    main()
