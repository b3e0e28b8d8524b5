#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""braggline-view with sources that are no receivers: they answer late, wrongly or not at all, and
their live files are not those of a receiver.

usage: view_peer_test.py BUILD-DIR [CASE]...
"""

import os
import sys
import threading
import time

try:
    from view_server import serving
except ImportError as error:
    print(f'skipped: {error}: install python3-numpy')
    sys.exit(77)

from cases import case, run_cases, wait, want
from telemetry_peer import answering, reply

BUILD = os.path.abspath(sys.argv[1])
TOKEN = 'correct-horse-battery-staple'


def token_file(where):
    path = f'{where}/token'
    with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), 'w', encoding='ascii') as stream:
        stream.write(TOKEN)
    return ['--token-file', path]


@case
def slow_sources_do_not_delay_the_end(where):
    """A source without a greeting, one that answers late, and a command without an answer."""
    end = threading.Event()

    def late(command):
        end.wait(1 if command.startswith('/braggline/run/status') else 60)
        return reply(command, {})
    with answering(f'{where}/silent', greeting=None) as silent, answering(f'{where}/late', late), \
            serving(BUILD, f'{where}/silent', '--receiver', f'late={where}/late', '--control',
                    *token_file(where)) as server:
        server.token = TOKEN
        wait('a connection', lambda: silent.connections)
        commands = len(silent.connections) + 1

        def command():
            try:
                server.command('r', '/braggline/run/stop')
            except OSError:
                pass  # the server has ended
        threading.Thread(target=command, daemon=True).start()
        wait('the command', lambda: len(silent.connections) > commands)
        begin = time.monotonic()
        server.process.terminate()
        want(server.process.wait(10) == 0, server.process.returncode)
        want(time.monotonic() - begin < 5, time.monotonic() - begin, 's')
        end.set()


@case
def a_reply_is_one_to_its_command(where):
    """What is passed on as the reply to a command has that command as its only key."""
    replies = {'good': lambda command: reply(command, {'n': 1}),
               'another': lambda command: b'{"/braggline/other":{}}',
               'more': lambda command: b'{"%s":{},"x":1}' % command.encode(),
               'none': lambda command: b'{}',
               'list': lambda command: b'[1]',
               'text': lambda command: b'\xff\xfe\0',
               'deep': lambda command: b'{"%s":' % command.encode() + b'[' * 8000,
               'long': lambda command: reply(command, 'x' * 20000),
               'twice': lambda command: [reply(command, {})] * 2,
               'closes': lambda command: b''}
    expected = dict.fromkeys(replies, 'invalid reply') | {'closes': 'the connection ended'}
    peers = []
    try:
        for name, answer in replies.items():
            manager = answering(f'{where}/{name}', answer)
            peers.append(manager)
            manager.__enter__()
        options = [o for name in replies for o in ('--receiver', f'{name}={where}/{name}')]
        with serving(BUILD, f'{where}/absent', *options) as server:
            for name in replies:
                if name == 'good':
                    wait(name, lambda: server.get('sources/good')['state'] == 'up')
                    continue
                # 'twice' is up until its second reply is read
                wait(name, lambda n=name: expected[n] in server.get(f'sources/{n}').get('error', ''))
                command = '/braggline/ledger'
                want(server(f'/api/v1/sources/{name}/telemetry?command={command}').status == 503, name)
            want(server('/api/v1/sources/good/telemetry?command=/braggline/rx').json() ==
                 {'/braggline/rx': {'n': 1}})
    finally:
        for manager in peers:
            manager.__exit__(None, None, None)


if __name__ == '__main__':
    sys.exit(run_cases(sys.argv[2:]))
