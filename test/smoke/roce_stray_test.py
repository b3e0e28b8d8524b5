#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""RoCE packets that no stack sends, between the messages of a detector: each of them is counted, and
the detector's frame is the same as without them.

usage: roce_stray_test.py BUILD-DIR
"""

import collections
import random
import struct
import sys

import roce_capture
import roce_ingest_test as smoke
from cases import case, run_cases, want
from run_files import FLAG_TIMEOUT, rows

STREAM, OTHER = 3, 0    # the packets are sent to the queue pair of a stream
UC_MIDDLE, UC_LAST = 0x27, 0x28
ETHERNET = bytes(range(2, 14)) + b'\x08\x00'


class Strays:
    """Packets, and the counters that they end in."""

    def __init__(self, sender, source):
        self.sender, self.source, self.card = sender, source, sender.card
        self.counters = collections.Counter()
        self.kinds = []

    def make(self, opcode, extended=b'', payload=b''):
        return self.sender.packet(STREAM, ETHERNET, self.source, opcode, extended, payload)

    def unseen(self, packet):
        """The queue pair does not get this packet: the PSN is used again."""
        self.sender.psn[STREAM] -= 1
        return packet

    def add(self, packets, **counters):
        self.kinds.append(packets if isinstance(packets, list) else [packets])
        self.counters.update(counters)

    def reth(self, address=None, rkey=None, length=8256):
        address = self.card.address(STREAM, 1, 0) if address is None else address
        return struct.pack('!QII', address, self.card.rkey if rkey is None else rkey, length)

    def message(self, reth, bodies=(4096, 4096, 64)):
        opcodes = (0x26, UC_MIDDLE, UC_LAST)
        return [self.make(opcode, reth if opcode == 0x26 else b'', bytes(body))
                for opcode, body in zip(opcodes, bodies)]


def seal(packet):
    """Make the ICRC again after a change."""
    return packet[:-4] + roce_capture.icrc(packet[14:34], packet[34:42], packet[42:54], packet[54:-4])


def change(packet, at, value, sealed=True):
    packet = packet[:at] + value + packet[at + len(value):]
    return seal(packet) if sealed else packet


def out_of_order(s):
    # without a first packet; what follows is skipped until the next one
    s.add([s.make(UC_MIDDLE, payload=bytes(4096)), s.make(UC_LAST, payload=bytes(64))],
          refused=1, incomplete_message=1)
    # a message that ends with the first packet of another one
    s.add([s.make(0x26, s.reth(), bytes(4096)), s.make(UC_MIDDLE, payload=bytes(4096))],
          incomplete_message=2)
    # SEND in the middle of an RDMA WRITE
    s.add([s.make(0x26, s.reth(), bytes(4096)), s.make(0x21, payload=bytes(4096))],
          incomplete_message=1, refused=1)
    # the same packet twice
    event = s.make(0x2b, bytes(16) + struct.pack('!I', STREAM << 24 | 0), b'')
    s.add([event, event], repeated=1, events=1)


def lengths(s):
    # a first packet that is not full, and one that is longer than the path MTU
    s.add(s.make(0x26, s.reth(), bytes(4092)), refused=1)
    s.add(s.make(0x26, s.reth(), bytes(4100)), refused=1)
    # an empty first packet
    s.add(s.make(0x26, s.reth(), b''), refused=1)
    # longer and shorter than announced
    s.add(s.message(s.reth(length=8192)), refused=1, incomplete_message=2)
    s.add(s.message(s.reth(length=8260)), refused=1, incomplete_message=2)
    s.add(s.make(0x2a, s.reth(length=64), bytes(60)), refused=1)
    for length in (8257, 1 << 20, 0x7fffffff, 0xffffffff):
        s.add(s.message(s.reth(length=length)), refused=1, incomplete_message=2)
    # no bytes, and no immediate: no event
    s.add(s.make(0x2a, s.reth(length=0), b''), malformed=1)
    # a pad that makes the packet shorter than announced, and one longer than the packet
    s.add(change(s.make(0x2a, s.reth(length=64), bytes(64)), 43, b'\x70'), refused=1)
    s.add(s.unseen(change(s.make(0x2a, s.reth(length=0), b''), 43, b'\x70')), refused=1)


def places(s):
    ring = s.card.slots * s.card.slot_bytes
    base = s.card.address(STREAM, 0, 0)
    for address in (base - 64, base + ring, base + ring - 8255, 0, (1 << 64) - 64,
                    s.card.address(OTHER, 1, 0)):
        s.add(s.message(s.reth(address)), refused=1, incomplete_message=2)
    s.add(s.message(s.reth(rkey=s.card.rkey + 1)), refused=1, incomplete_message=2)
    # between two tiles, and without a detector's header
    s.add(s.message(s.reth(base + 64)), malformed=1)
    # a message of another form
    s.add(s.make(0x2a, s.reth(length=64), bytes(64)), wrong_length=1)
    s.add([s.make(op, b'', bytes(n)) for op, n in ((0x20, 4096), (0x21, 4096), (0x22, 64))],
          wrong_length=1)
    # the event of another stream
    s.add(s.make(0x2b, bytes(16) + struct.pack('!I', OTHER << 24 | 1), b''), malformed=1)


def headers(s):
    def tile():
        return s.unseen(s.make(0x2a, s.reth(length=64), bytes(64)))

    s.add(change(tile(), 46, b'\0\x0f\xff\xff'), refused=1)            # queue pair
    s.add(change(tile(), 44, b'\x12\x34'), refused=1)                   # partition
    s.add(change(tile(), 43, b'\x41'), refused=1)                       # version of the BTH
    s.add(change(tile(), 33, b'\x09'), refused=1)                       # destination
    s.add(change(tile(), 100, b'\x01', sealed=False), bad_icrc=1)
    for opcode in (0x06, 0x0a, 0x0c, 0x11, 0x3f, 0x64, 0xff):           # RC, UD and unknown
        s.add(change(tile(), 42, bytes([opcode])), refused=1)
    s.add(change(tile(), 45, b'\0\0\0\0\1'), refused=1)                 # the CM, but no MAD
    for fragment in (b'\x20\x00', b'\x00\x10', b'\x1f\xff'):
        s.add(change(tile(), 20, fragment), refused=1)
    s.add(change(tile(), 14, b'\x46'), refused=1)                       # an IP option
    for length in (b'\0\0', b'\0\x14', b'\xff\xff'):
        s.add(change(tile(), 16, length), refused=1)                    # of IP
        s.add(change(tile(), 38, length), refused=1)                    # of UDP
    for size in (14, 20, 34, 41, 42, 53, 54, 69, 70, 100):
        s.add(tile()[:size], refused=1)
    packet = tile()
    s.add(packet[:12] + b'\x81\0\0\x07' + packet[12:], refused=1)       # of a VLAN
    six = struct.pack('!IHBB', 6 << 28, len(packet) - 34, 17, 64) + bytes(15) + b'\1' + bytes(15) + b'\2'
    s.add(packet[:12] + b'\x86\xdd' + six + packet[34:], refused=1)     # to another IPv6 address


@case
def strays_are_counted(where):
    udp = smoke.simulate(where, '--frames', '1')
    smoke.receive(where, 'udp', udp, {'run.frames': 1})
    card = roce_capture.Card('write', smoke.STREAMS, smoke.TILES)
    sender = roce_capture.Sender(card)
    strays = Strays(sender, udp[STREAM][2][26:30])
    packets = []
    todo = [out_of_order, lengths, places, headers]
    for sec, nsec, p in udp:
        stream, frame, tile = smoke.place_of(p)
        if stream == STREAM and tile % 8 == 4 and todo:
            before = len(strays.kinds)
            todo.pop(0)(strays)
            for kind in strays.kinds[before:]:
                packets += [(sec, nsec, k) for k in kind]
        packets += [(sec, nsec, k) for k in sender.message(
            stream, p[:14], p[26:30], frame, tile, p[90:], p[42:90])]
    for stream in range(smoke.STREAMS):
        packets += [(sec, nsec, k) for k in sender.event(stream, ETHERNET, strays.source, 1)]
    want(not todo, todo)
    ledger, out = receive(where, 'stray', packets, card)
    found = {**smoke.drops(where, 'stray'), 'malformed': ledger['p_malformed'],
             'wrong_length': ledger['p_wrong_length'], 'events': ledger['p_events'] - smoke.STREAMS}
    want(ledger['balanced'] == 1 and ledger['p_placed'] == len(udp), found, strays.counters, out)
    want({k: v for k, v in found.items() if v} == dict(strays.counters), found, strays.counters)
    want(rows(smoke.BUILD, where, 'udp', FLAG_TIMEOUT) ==
         rows(smoke.BUILD, where, 'stray', FLAG_TIMEOUT), 'the frame differs')


def receive(where, name, packets, card):
    return smoke.receive(
        where, name, packets,
        {'detector.transport': 'write', 'ingest.qpn': card.qpn, 'ingest.rkey': card.rkey,
         'run.frames': 'unlimited', 'run.idle_timeout_ms': 300},
        ',align_at=54', 'roce:port=net_replay0,ip=10.1.2.1/16', status=None)


@case
def random_changes(where):
    """Random bytes of packets change, with a correct ICRC: the receiver ends, and its ledger is
    balanced."""
    udp = smoke.simulate(where, '--frames', '1')
    for transport in ('send', 'write'):
        card = roce_capture.Card(transport, smoke.STREAMS, smoke.TILES)
        packets = roce_capture.convert(udp, card)
        draw = random.Random(transport)
        for i, (sec, nsec, packet) in enumerate(packets):
            if draw.random() < 0.5:
                continue
            for _ in range(draw.randrange(1, 4)):
                at = draw.choice((draw.randrange(12, 74), draw.randrange(len(packet) - 4)))
                packet = change(packet, min(at, len(packet) - 5), draw.randbytes(1))
            packets[i] = (sec, nsec, packet)
        ledger, out = receive(where, transport, packets, card)
        want(ledger['balanced'] == 1, ledger, out)
        want(sum(smoke.drops(where, transport).values()) > len(packets) // 4, ledger, out)
        want(ledger['p_packets'] > 0, ledger, out)


if __name__ == '__main__':
    sys.exit(run_cases(sys.argv[2:] or ['strays_are_counted', 'random_changes']))
