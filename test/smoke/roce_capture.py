# SPDX-License-Identifier: BSD-3-Clause
"""Make captures of RoCEv2 detectors from captures of UDP detectors, with packets lost on purpose.

This is an independent implementation: it shares no code with braggline-detector or the provider
`roce`. The layout is that of app/common/ingest/card.h.
"""

import struct
import zlib

UDP_HEADERS = 42
DETECTOR_HEADER = 48
PIXELS = 8192
TRAILER = 64
ROCE_PORT = 4791

UC_SEND = {'first': 0x20, 'middle': 0x21, 'last': 0x22, 'only': 0x24, 'only_imm': 0x25}
UC_WRITE = {'first': 0x26, 'middle': 0x27, 'last': 0x28, 'only': 0x2a, 'only_imm': 0x2b}


def read_pcap(path):
    """Return a list of (seconds, nanoseconds, packet)."""
    with open(path, 'rb') as f:
        data = f.read()
    magic = struct.unpack_from('<I', data)[0]
    assert magic in (0xa1b23c4d, 0xa1b2c3d4), hex(magic)
    scale = 1 if magic == 0xa1b23c4d else 1000
    at, packets = 24, []
    while at < len(data):
        sec, frac, length, _ = struct.unpack_from('<IIII', data, at)
        packets.append((sec, frac * scale, data[at + 16:at + 16 + length]))
        at += 16 + length
    return packets


def write_pcap(path, packets):
    with open(path, 'wb') as f:
        f.write(struct.pack('<IHHiIII', 0xa1b23c4d, 2, 4, 0, 0, 65535, 1))
        for sec, nsec, packet in packets:
            f.write(struct.pack('<IIII', sec, nsec, len(packet), len(packet)) + packet)


def checksum(header):
    total = sum(struct.unpack(f'!{len(header) // 2}H', header))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


def icrc(ip, udp, bth, rest):
    """Invariant CRC: IBTA annex A17, with the variant fields set to ones."""
    masked = (b'\xff' * 8 + ip[:1] + b'\xff' + ip[2:8] + b'\xff' + ip[9:10] + b'\xff\xff' +
              ip[12:] + udp[:6] + b'\xff\xff' + bth[:4] + b'\xff' + bth[5:])
    return struct.pack('<I', zlib.crc32(rest, zlib.crc32(masked)))


class Card:
    """Registers of a detector that sends by RoCE."""

    def __init__(self, transport, streams, tiles, qpn=0x11, rkey=0x1234, slots=128,
                 base=1 << 40, mtu=4096, ip='10.1.2.1'):
        self.transport, self.streams, self.tiles = transport, streams, tiles
        self.qpn, self.rkey, self.slots, self.mtu = qpn, rkey, slots, mtu
        self.slot_bytes = tiles * (PIXELS + TRAILER)
        self.base = base
        self.ip = bytes(int(n) for n in ip.split('.'))

    def address(self, stream, frame, tile):
        base = self.base + stream * self.slots * self.slot_bytes
        return base + frame % self.slots * self.slot_bytes + tile * (PIXELS + TRAILER)


class Sender:
    """One UC queue pair a stream. `lose(stream, frame, tile, part)` tells which packets are lost;
    part is 'first', 'middle', 'last' or 'event'."""

    def __init__(self, card, lose=None, psn=0, udp_source=0xC000):
        self.card, self.lose = card, lose or (lambda *_: False)
        self.psn = [psn] * card.streams
        self.udp_source = udp_source
        self.identification = 0

    def packet(self, stream, ethernet, source_ip, opcode, extended, payload, ack=False):
        pad = -len(payload) % 4
        bth = struct.pack('!BBHIBBH', opcode, 0x40 | pad << 4, 0xffff, self.card.qpn + stream,
                          0, 0, 0)[:8] + struct.pack('!I', self.psn[stream] & 0xffffff)
        self.psn[stream] += 1
        rest = extended + payload + b'\0' * pad
        length = 20 + 8 + len(bth) + len(rest) + 4
        self.identification = (self.identification + 1) & 0xffff
        ip = struct.pack('!BBHHHBBH', 0x45, 0, length, self.identification, 0x4000, 64, 17,
                         0) + source_ip + self.card.ip
        ip = ip[:10] + struct.pack('!H', checksum(ip)) + ip[12:]
        udp = struct.pack('!HHHH', self.udp_source + stream, ROCE_PORT, length - 20, 0)
        return ethernet + ip + udp + bth + rest + icrc(ip, udp, bth, rest)

    def message(self, stream, ethernet, source_ip, frame, tile, pixels, header):
        """Packets of a message, with those that are lost left out."""
        body = pixels + header + b'\0' * (TRAILER - len(header))
        ops = UC_SEND if self.card.transport == 'send' else UC_WRITE
        parts = [body[i:i + self.card.mtu] for i in range(0, len(body), self.card.mtu)]
        out = []
        for i, part in enumerate(parts):
            name = 'first' if i == 0 else 'last' if i == len(parts) - 1 else 'middle'
            reth = b''
            if self.card.transport == 'write' and i == 0:
                reth = struct.pack('!QII', self.card.address(stream, frame, tile),
                                   self.card.rkey, len(body))
            packet = self.packet(stream, ethernet, source_ip, ops[name], reth, part)
            if not self.lose(stream, frame, tile, name):
                out.append(packet)
        return out

    def event(self, stream, ethernet, source_ip, frame):
        immediate = struct.pack('!I', stream << 24 | frame & 0xffffff)
        if self.card.transport == 'send':
            packet = self.packet(stream, ethernet, source_ip, UC_SEND['only_imm'], immediate, b'')
        else:
            packet = self.packet(stream, ethernet, source_ip, UC_WRITE['only_imm'],
                                 struct.pack('!QII', 0, 0, 0) + immediate, b'')
        return [] if self.lose(stream, frame, None, 'event') else [packet]


def convert(udp_packets, card, udp_port=50001, lose=None):
    """Convert UDP packets of a detector to packets of its RoCE twin, in the same order."""
    sender, out, sent = Sender(card, lose), [], {}
    for sec, nsec, p in udp_packets:
        stream = struct.unpack_from('!H', p, 36)[0] - udp_port
        header = p[UDP_HEADERS:UDP_HEADERS + DETECTOR_HEADER]
        pixels = p[UDP_HEADERS + DETECTOR_HEADER:]
        frame, tile = struct.unpack_from('<Q', header)[0], struct.unpack_from('<I', header, 12)[0]
        for packet in sender.message(stream, p[:14], p[26:30], frame, tile, pixels, header):
            out.append((sec, nsec, packet))
        sent[stream, frame] = sent.get((stream, frame), 0) + 1
        if sent[stream, frame] == card.tiles:
            out += [(sec, nsec, e) for e in sender.event(stream, p[:14], p[26:30], frame)]
    return out
