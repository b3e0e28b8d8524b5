#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""braggline-view with sources that are no receivers: they answer late, wrongly or not at all, and
their live files are not those of a receiver.

usage: view_peer_test.py BUILD-DIR [CASE]...
"""

import contextlib
import os
import re
import resource
import socket
import sys
import tempfile
import threading
import time

try:
    import numpy
    from view_document import Document
    from view_server import opened, serving
except ImportError as error:
    print(f'skipped: {error}: install python3-numpy and python3-jsonschema')
    sys.exit(77)

from cases import case, run_cases, wait, want
from live_file import LiveFile
from telemetry_peer import answering, reply, texts

BUILD = os.path.abspath(sys.argv[1])
TOKEN = 'correct-horse-battery-staple'
STOP = '/braggline/run/stop'


def serve(socket_path, *options):
    """As serving(). At its default priority the server has no CPU time on a busy machine."""
    return serving(BUILD, socket_path, '--nice', '0', *options)


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

    def mute(command):
        return None if command.startswith(STOP) else reply(command, {})
    with answering(f'{where}/silent', greeting=None) as silent, answering(f'{where}/late', late), \
            answering(f'{where}/mute', mute) as peer, \
            serve(f'{where}/silent', '--receiver', f'late={where}/late', '--receiver',
                  f'mute={where}/mute', '--control', *token_file(where)) as server:
        server.token = TOKEN
        wait('a connection', lambda: silent.connections)

        def command():
            try:
                server.command('mute', STOP)
            except OSError:
                pass  # the server has ended
        threading.Thread(target=command, daemon=True).start()
        wait('the command', lambda: any(c.startswith(STOP) for c in peer.asked))
        server.process.terminate()
        want(server.process.wait(20) == 0, server.process.returncode)
        end.set()


@case
def only_a_reply_to_the_command_is_passed_on(where):
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
        with serve(f'{where}/absent', *options) as server:
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


@case
def a_command_is_accepted_after_the_last_answer(where):
    """When the answer to a command has arrived, the next one is accepted."""
    with answering(f'{where}/socket'), serve(f'{where}/socket', '--control',
                                             *token_file(where)) as server:
        server.token = TOKEN
        for _ in range(100):
            answer = server.command('r', STOP)
            want(answer.status == 200, answer.status, answer.body)


@contextlib.contextmanager
def showing(path, *options):
    """Yields a server whose receiver names a live file."""
    def answer(command):
        return reply(command, texts('live', path) if command == '/braggline/preview' else {})
    with tempfile.TemporaryDirectory() as where, answering(f'{where}/s', answer), \
            serve(f'{where}/s', *options) as server:
        server.wait('the path', lambda s: s['live'])
        yield server


def peak_kib(server):
    with open(f'/proc/{server.process.pid}/status', encoding='ascii') as status:
        return int(re.search(r'VmHWM:\s+(\d+)', status.read())[1])


def frame_event(server):
    return next(event for kind, event in server.events() if kind == 'frame')


@case
def live_files_are_checked(where):
    path = f'{where}/live'
    frame = '/api/v1/sources/r/frame'
    LiveFile().write(path)
    with showing(path) as server:
        facts, tensors = server(frame).tensors()
        want(facts['frame'] == '7' and not numpy.any(tensors['value']), facts)
        first = frame_event(server)
        want(first['sum'] == 5 and first['run'] == 'made', first)
        # values for which JSON has no number, and no text
        file = LiveFile(id=2, generation=4, run=b'a\xff\n')
        file.frame['sum'] = float('nan')
        file.write(path)
        event = wait('the other run', lambda: (e := frame_event(server))['generation'] == 4 and e)
        want(event['sum'] is None and event['run'] == r'a\xff\x0a', event)
        want(server(frame).tensors()[0]['run'] == r'a\xff\x0a')
        # a file of holes, of which a copy would take 3 GiB
        LiveFile(id=3, generation=6, values=3 << 30, size=8 << 30, slot0=1 << 20,
                 slot1=1 << 20).write(path)
        before = peak_kib(server)
        for part in frame, '/api/v1/sources/r/image':
            want(server(part).status == 502, part)
        want(peak_kib(server) < before + (256 << 10), peak_kib(server), 'KiB')
        for fields in {'magic': b'BRGLIVE2'}, {'rows': 0}, {'cols': 1 << 20}, {'packet_rows': 3}, \
                {'size': 1 << 30}, {'slot1': 1 << 62}, {'geometry_size': 1 << 40}, {'col': 1}:
            LiveFile(id=4, generation=8, **fields).write(path)
            if 'size' in fields:
                os.truncate(path, 4096)
            want(server(frame).status == 502, fields, server(frame).status)
        LiveFile(id=5, generation=10).write(path)
        want(server(frame).status == 200)
        # what is no file: a link to nothing, a folder, a device
        for make in (lambda: os.symlink('absent', path), lambda: os.mkdir(path),
                     lambda: os.symlink('/dev/zero', path)):
            os.unlink(path)
            make()
            want(server(frame).status in (502, 503), server(frame).status)
            if os.path.isdir(path):
                os.rename(path, f'{path}.folder')
                os.symlink(f'{path}.folder', path)
        # a FIFO is not opened: its writer still waits
        os.unlink(path)
        os.mkfifo(path)
        writer = threading.Thread(target=lambda: os.close(os.open(path, os.O_WRONLY)), daemon=True)
        writer.start()
        for _ in range(20):
            want(server(frame).status == 502)
        time.sleep(0.1)
        want(writer.is_alive(), 'the FIFO was opened')
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
        writer.join(20)


@case
def live_files_have_any_name(where):
    name = f'{where}/' + ('long' * 20 + 'm\u00e4\u20ac\U0001f600"\\u12 \\\u00df%2e&<b>') * 2
    LiveFile().write(name)
    with showing(name) as server:
        want(server('/api/v1/sources/r/frame').status == 200)
    # escapes that are no text
    for text in '\ud800', '\0x', 'relative':
        value = {'live': f'{where}/' + ''.join(f'\\u{ord(c):04x}' for c in text)}
        if text == 'relative':
            value = {'live': text}
        with answering(f'{where}/s', lambda c, v=value: reply(c, v)), \
                serve(f'{where}/s') as server:
            wait('a reply', lambda: server(
                '/api/v1/sources/r/telemetry?command=/braggline/preview').status == 200)
            want(not server.get('sources/r')['live'], text)


@case
def windows_need_memory_for_their_cells_only(where):
    LiveFile().write(f'{where}/live')
    with showing(f'{where}/live') as server:
        if 'asan' not in BUILD:
            resource.prlimit(server.process.pid, resource.RLIMIT_AS, (4 << 30, 4 << 30))
        for part in 'image', 'frame':
            answer = server(f'/api/v1/sources/r/{part}?window=0,0,65536,65536,1')
            want(answer.status == 400, part, answer.status, answer.body)
            want(server(f'/api/v1/sources/r/{part}?window=0,0,64,16,1').status == 200, part)


def exchange(server, *lines):
    """@return the status of the answer to a request with these lines"""
    with socket.create_connection(('127.0.0.1', server.port), 20) as s:
        s.sendall('\r\n'.join([*lines, 'Connection: close', '', '']).encode())
        answer = b''
        while part := s.recv(65536):
            answer += part
    want(answer.count(b'HTTP/1.1 ') == 1, answer)
    return int(answer.split()[1])


@case
def ambiguous_requests_are_refused(where):
    os.mkdir(f'{where}/runs')
    with open(f'{where}/runs/x_frames.arrow', 'wb') as stream:
        stream.write(b'0123456789')
    LiveFile().write(f'{where}/live')
    with showing(f'{where}/live', '--runs', f'{where}/runs') as server:
        post, host = 'POST /api/v1/sources/r/command HTTP/1.1', 'Host: localhost'
        want(exchange(server, 'GET / HTTP/1.1', host) == 200)
        want(exchange(server, post, host, 'Content-Length: 0') == 403)
        want(exchange(server, 'GET / HTTP/1.1', host, 'Host: example.org') == 400)
        want(exchange(server, post, host, 'Content-Length: 0', 'content-length: 4') == 400)
        want(exchange(server, post, host, 'Content-Length: 4', 'Transfer-Encoding: chunked') == 400)
        for site, status in ('same-origin', 200), ('same-site', 403), ('cross-site', 403):
            answer = server('/api/v1/sources', headers={'Sec-Fetch-Site': site})
            want(answer.status == status, site, answer.status)
        # links to the page
        want(server('/', headers={'Sec-Fetch-Site': 'cross-site'}).status == 200)
        # ranges are those of GET
        path = '/api/v1/runs/0/x_frames.arrow'
        wait('the run', lambda: server(path).status == 200)
        want(server(path, headers={'Range': 'bytes=2-3'}).body == b'23')
        for value in 'bytes=2-3', 'bytes=90-':
            answer = server(path, 'HEAD', headers={'Range': value})
            want(answer.status == 200 and answer.headers['Content-Length'] == '10', answer.headers)
        # the tag of an image is that of its 304
        image = '/api/v1/sources/r/image'
        tag = server(image).headers['ETag']
        answer = server(image, headers={'If-None-Match': tag})
        want(answer.status == 304 and answer.headers['ETag'] == tag, answer.headers)


@case
def names_of_the_machine_are_accepted(where):
    # --listen again: the last one is used
    with serve(f'{where}/\udcff', '--listen', '127.0.0.5:0') as server:
        want(server.url.startswith('http://127.0.0.5:') and server('/').status == 200, server.url)
        # a path that is not UTF-8 hides no source
        want(server.get('sources/r')['socket'] == rf'{where}/\xff', server.get('sources'))
        want([s['source'] for s in server.get('sources')['sources']] == ['r'])
        for name in 'example.org', '127.0.0.5.example.org', '128.0.0.1', '[::2]':
            want(server('/', headers={'Host': name}).status == 403, name)


GEOMETRY = b'clen = 0.1\nphoton_energy = 12400\nadu_per_photon = 1\nres = 13333.3\n' \
           b'p0/min_fs = 0\np0/max_fs = 63\n' \
           b'p0/min_ss = 0\np0/max_ss = 15\np0/corner_x = -32\np0/corner_y = 8\np0/fs = x\n' \
           b'p0/ss = -y\n'
SOURCE = '/sources/{source}'
RUN_FILE = '/runs/{directory}/{file}'
NAMES = {'source': 'r', 'directory': '0', 'file': 'x_frames.arrow'}
PARTS = 'frame', 'image', 'geometry', 'places'
JSON = {'Content-Type': 'application/json'}


def request_of(method):
    """What a request needs in addition to its path."""
    return {'body': b'{"command":"/braggline/run/stop"}', 'headers': JSON} if method == 'post' else {}


def images_in_each_state(ask, path):
    """Answers about a live file, which has no frame, and is not valid, and is absent."""
    for part in PARTS:
        tag = ask(f'{SOURCE}/{part}', 200, **NAMES).headers['ETag']
        if part in ('frame', 'image'):
            ask(f'{SOURCE}/{part}', 304, headers={'If-None-Match': tag}, **NAMES)
            ask(f'{SOURCE}/{part}', 400, query='?window=0', **NAMES)
    LiveFile(id=2, generation=4, sequence=0).write(path)
    for part in PARTS:
        ask(f'{SOURCE}/{part}', 404, **NAMES)
    with open(path, 'wb') as stream:
        stream.write(b'no live file')
    for part in PARTS:
        ask(f'{SOURCE}/{part}', 502, **NAMES)
    os.unlink(path)
    for part in PARTS:
        ask(f'{SOURCE}/{part}', 503, **NAMES)


def limits_are_reached(ask, server):
    with opened(server, '/api/v1/events', 16):
        ask('/events', 503)
    wait('a free stream', lambda: server('/api/v1/events', 'HEAD').status == 200)
    with opened(server, '/api/v1/runs/0/x_data_000001.h5', 4):
        ask(RUN_FILE, 503, **NAMES)


def commands_in_each_state(ask, server, called, answered):
    """`called`: the command has arrived; `answered`: its answer may be sent"""
    command, of = f'{SOURCE}/command', {'method': 'post', **NAMES}
    post = {**of, **request_of('post')}
    ask(command, 404, **{**post, 'source': 'nobody'})
    ask(command, 415, body=post['body'], **of)
    ask(command, 413, body=b'{"command":"' + b'/' * 2100 + b'"}', headers=JSON, **of)
    for body in b'{"command":"/eal/params"}', b'{"command":"/braggline/run/stop","x":"1"}', b'[' * 2000, \
            b'{"command":"/braggline/run/stop","parameters":"a\\nb"}', b'\xff', b'', \
            b'{"command":"/braggline/run/stop","command":"/braggline/run/stop"}':
        ask(command, 400, body=body, headers=JSON, **of)
    first = threading.Thread(target=lambda: ask(command, 200, **post))
    first.start()
    want(called.wait(20), 'the command did not arrive')
    ask(command, 503, **post)
    answered.set()
    first.join(20)
    ask(command, 502, **{**post, 'source': 'down'})


@case
def each_status_of_the_document_occurs(where):
    os.mkdir(f'{where}/runs')
    for name, size in ('x_frames.arrow', 10), ('x_data_000001.h5', 1 << 28):
        with open(f'{where}/runs/{name}', 'wb') as stream:
            stream.truncate(size)
    path = f'{where}/live'
    LiveFile(geometry=GEOMETRY).write(path)
    called, answered = threading.Event(), threading.Event()

    def answer(command):
        if command == '/braggline/run/stop':
            called.set()
            answered.wait(20)
        return reply(command, {'live': path} if command == '/braggline/preview' else {'result': 0})
    options = ['--runs', f'{where}/runs', '--receiver', f'down={where}/absent']
    with answering(f'{where}/socket', answer):
        with serve(f'{where}/socket', *options) as server:
            ask = Document(server)
            occurred = ask.occurred
            server.wait('the path', lambda s: s['live'])
            wait('the list', lambda: server('/api/v1/runs').status == 200)
            for name, method, status in ask.described:
                if status == 403:
                    post = request_of(method)
                    ask(name, 403, method, body=post.get('body'), **NAMES,
                        headers={**post.get('headers', {}), 'Host': 'example.org'})
            tag = ask('/openapi.json', 200).headers['ETag']
            ask('/openapi.json', 304, headers={'If-None-Match': tag})
            ask('/sources', 200)
            ask(SOURCE, 200, **NAMES)
            ask(f'{SOURCE}/telemetry', 200, query='?command=/braggline/rx', **NAMES)
            ask(f'{SOURCE}/telemetry', 400, **NAMES)
            ask(f'{SOURCE}/telemetry', 503, query='?command=/braggline/rx', **{**NAMES, 'source': 'down'})
            for name in (SOURCE, *(f'{SOURCE}/{part}' for part in ('telemetry', *PARTS))):
                ask(name, 404, **{**NAMES, 'source': 'nobody'})
            ask('/runs', 200)
            ask(RUN_FILE, 200, **NAMES)
            ask(RUN_FILE, 206, headers={'Range': 'bytes=1-2'}, **NAMES)
            ask(RUN_FILE, 404, **{**NAMES, 'file': 'y_frames.arrow'})
            ask(RUN_FILE, 416, headers={'Range': 'bytes=90-'}, **NAMES)
            ask('/events', 400, query='?source=nobody')
            with server.open('/api/v1/events') as stream:
                want(stream.headers['Content-Type'] == 'text/event-stream')
                occurred.add(('/events', 'get', 200))
            images_in_each_state(ask, path)
            limits_are_reached(ask, server)
            # no page of another site may read, or send a command
            for method in 'GET', 'OPTIONS':
                answer_ = server('/api/v1/sources', method, headers={'Origin': 'http://example.org'})
                want(not any(h.startswith('Access-Control') for h in answer_.headers), answer_.headers)
        with serve(f'{where}/socket', *options, '--control', *token_file(where)) as server:
            ask = Document(server)
            for name, method, status in ask.described:
                if status == 401:
                    ask(name, 401, method, **request_of(method), **NAMES)
            want(not called.is_set(), 'a command without a token was sent')
            server.token = TOKEN
            server.wait('up', lambda s: s['state'] == 'up')
            commands_in_each_state(ask, server, called, answered)
            occurred |= ask.occurred
    # the folders are read within milliseconds of the start
    want(occurred == ask.described - {('/runs', 'get', 503)}, 'differ:', occurred ^ ask.described)


if __name__ == '__main__':
    sys.exit(run_cases(sys.argv[2:]))
