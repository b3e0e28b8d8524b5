# SPDX-License-Identifier: BSD-3-Clause
"""A telemetry socket of no DPDK program: it answers what a test wants, or nothing."""

import contextlib
import json
import os
import socket
import threading

GREETING = json.dumps({'version': 'DPDK 22.11.0', 'pid': 1, 'max_output_len': 16384}).encode()


def is_open(connection):
    """False if the other end has closed it, or this one."""
    try:
        return connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) != b''
    except BlockingIOError:
        return True
    except OSError:
        return False


class Peer:
    """@param answer  function (command) of the messages to send: bytes, a list of them, or None"""

    def __init__(self, path, answer, greeting=GREETING):
        self.path = path
        self.answer = answer
        self.greeting = greeting
        self.asked = []  # commands with their parameters
        self.connections = []
        self.most = 0  # connections that were open at the same time
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(path)
        self.listener.listen(10)
        self.run(self.accept)

    def run(self, function, *arguments):
        threading.Thread(target=function, args=arguments, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                connection = self.listener.accept()[0]
                self.most = max(self.most, 1 + sum(map(is_open, self.connections)))
                self.connections.append(connection)
                self.run(self.serve, connection)

    def serve(self, connection):
        with contextlib.suppress(OSError), connection:
            if self.greeting is None:
                connection.recv(1)  # until the other end closes
                return
            connection.send(self.greeting)
            while command := connection.recv(1024):
                self.asked.append(command.decode())
                messages = self.answer(command.decode())
                for message in messages if isinstance(messages, list) else [messages]:
                    if message is not None:
                        connection.send(message)

    def close(self):
        for s in (self.listener, *self.connections):
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)
            s.close()
        os.unlink(self.path)


def reply(command, value):
    """A reply as DPDK writes it."""
    return json.dumps({command.split(',')[0]: value}, separators=(',', ':')).encode()


def texts(name, text, size=127):
    """A text as telemetry_dict_text() writes it: ASCII with escapes, in parts."""
    units = text.encode('utf-16-be')
    ascii_ = ''.join(chr(n) if n < 0x80 else f'\\u{n:04x}' for n in
                     (int.from_bytes(units[i:i + 2], 'big') for i in range(0, len(units), 2)))
    return {name if at == 0 else f'{name}_{at // size + 1}': ascii_[at:at + size]
            for at in range(0, len(ascii_), size)}


@contextlib.contextmanager
def answering(path, answer=lambda command: reply(command, {}), **more):
    """Yields a Peer."""
    peer = Peer(path, answer, **more)
    try:
        yield peer
    finally:
        peer.close()
