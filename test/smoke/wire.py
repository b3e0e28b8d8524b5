#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A switch of veth devices in this network namespace that drops or corrupts frames and whose links
can be cut.

It is a separate process because its users block on other things. It reads commands from standard
input: `loss P`, `cut PORT`, `join PORT`, `corrupt PORT`, `repair PORT`.

usage: wire.py INTERFACE...
"""

import os
import random
import selectors
import socket
import subprocess
import sys
import zlib

SOL_PACKET = 263
PACKET_IGNORE_OUTGOING = 23
ETH_P_ALL = 3
BURST = 64
ROCE_PORT = b'\x12\xb7'
WRITE_MIDDLE = 7  # of an RC queue pair: these are parts of bodies
PAYLOAD = 14 + 20 + 8 + 12  # bytes in front of it
MASKED = 1, 8, 10, 11, 26, 27, 32  # bytes of IPv4, UDP and BTH that count as ones in the ICRC


def link(name, number, peer, peer_number=0):
    """Create a pair of veth devices with these interface indices; 0: any. net_af_packet computes the ID of
    a fanout group, which all processes share, from the process ID and the interface index. Indices
    that are far apart keep the groups apart."""
    here, there = (f'index {n << 12}' if n else '' for n in (number, peer_number))
    for command in (f'link add {name} {here} type veth peer name {peer} {there}',
                    f'link set {name} addrgenmode none mtu 9000 up',
                    f'link set {peer} addrgenmode none mtu 9000 up'):
        subprocess.run(['ip', *command.split()], check=True, stdin=subprocess.DEVNULL)


def unlink(name):
    subprocess.run(['ip', 'link', 'del', name], check=True, stdin=subprocess.DEVNULL)


class Wire:
    """Creates devices p0 p1 ... for DPDK's net_af_packet, connected by the switch."""

    def __init__(self, ports, seed):
        self.names = [f'p{i}' for i in range(ports)]
        for i, name in enumerate(self.names):
            link(name, 1 + i, f's{name}')
        self.process = subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), *(f's{name}' for name in self.names)],
            stdin=subprocess.PIPE, text=True, env={**os.environ, 'WIRE_SEED': str(seed)})

    def order(self, *words):
        print(*words, file=self.process.stdin, flush=True)

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        for name in self.names:
            unlink(name)


def corrupted(frame):
    """Flip a bit of one in 128 middle packets of WRITEs, always of the same content, and repair
    the ICRC: only the CRC of the body shows this."""
    if (len(frame) < 1000 or frame[12:14] != b'\x08\x00' or frame[36:38] != ROCE_PORT or
            frame[42] != WRITE_MIDDLE or zlib.crc32(frame[PAYLOAD:-4]) % 128 != 0):
        return frame
    wrong = bytearray(frame)
    wrong[500] ^= 1
    covered = bytearray(b'\xff' * 8 + wrong[14:-4])
    for at in MASKED:
        covered[8 + at] = 0xff
    wrong[-4:] = zlib.crc32(covered).to_bytes(4, 'little')
    return bytes(wrong)


class Switch:
    def __init__(self, interfaces, seed):
        self.selector = selectors.DefaultSelector()
        self.random = random.Random(seed)
        self.loss = 0.0
        self.cut = set()
        self.corrupt = set()
        self.where = {}  # port of a MAC address
        self.ports = []
        for number, interface in enumerate(interfaces):
            port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
            port.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
            port.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 20)
            port.bind((interface, ETH_P_ALL))
            port.setblocking(False)
            self.ports.append(port)
            self.selector.register(port, selectors.EVENT_READ, number)
        os.set_blocking(0, False)
        self.selector.register(0, selectors.EVENT_READ, None)

    def run_commands(self):
        text = os.read(0, 4096)
        for line in text.decode().splitlines():
            order, value = line.split()
            if order == 'loss':
                self.loss = float(value)
            elif order == 'cut':
                self.cut.add(int(value))
            elif order == 'join':
                self.cut.discard(int(value))
            elif order == 'corrupt':
                self.corrupt.add(int(value))
            else:
                self.corrupt.discard(int(value))
        return len(text) > 0

    def carry(self, number):
        for _ in range(BURST):
            try:
                frame = self.ports[number].recv(16384)
            except BlockingIOError:
                return
            self.where[frame[6:12]] = number
            if number in self.cut or self.random.random() < self.loss:
                continue
            there = self.where.get(frame[:6])
            for other in range(len(self.ports)) if there is None else (there,):
                if other == number or other in self.cut:
                    continue
                try:
                    self.ports[other].send(
                        corrupted(frame) if other in self.corrupt else frame)
                except OSError:
                    pass  # its queue is full: the frame is lost, as on any wire

    def run(self):
        while True:
            for key, _ in self.selector.select():
                if key.data is not None:
                    self.carry(key.data)
                elif not self.run_commands():
                    return


if __name__ == '__main__':
    Switch(sys.argv[1:], int(os.environ.get('WIRE_SEED', '1'))).run()
