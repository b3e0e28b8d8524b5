#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""braggline-view as its clients see it: images are those of the run's files, the OpenAPI document
describes the answers, receivers come and go, and hostile requests are bounded.

usage: view_test.py BUILD-DIR [CASE]...
"""

import contextlib
import json
import os
import re
import resource
import select
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
import warnings

try:
    import numpy
    from arrow_batches import batches
    from view_document import Document
except ImportError as error:
    print(f'skipped: {error}: install python3-numpy and python3-jsonschema')
    sys.exit(77)

import receiver
from cases import Skipped, case, run_cases, wait, want
from view_server import SETTINGS, remove_live_file, serving

BUILD = os.path.abspath(sys.argv[1])
# two polling threads only: the server and the thread of the live file have the lowest priority
LCORES = f'(0-1)@(0-{os.cpu_count() - 1})'
ROWS, COLS = 512, 1024
PREFIX = f'braggline_test_{os.getpid()}'
SOCKET = f'/var/run/dpdk/{PREFIX}/dpdk_telemetry.v2'
MASKED, GAP = 0x7fc00000, 0x7fc00002
LARGE = 1 << 28  # bytes, more than sockets hold
TOKEN = 'correct-horse-battery-staple'


@contextlib.contextmanager
def running(*settings):
    with receiver.running(BUILD, *SETTINGS, 'lcores.idle=yield', *settings, lcores=LCORES) as r:
        yield r
        r[0].terminate()
        want(r[0].wait(30) == 0, 'exit status of the receiver', r[0].returncode)


def start(telemetry, where, name, *settings):
    telemetry.do(','.join([f'run/configure,run.name={name}', f'output.directory={where}',
                           *settings]))
    telemetry.do('run/start')


def stop(telemetry):
    """Stop when frames were shown, and wait until all are in maximum and mean."""
    wait('frames', lambda: telemetry.get('preview')['live_frames'] > 4)
    telemetry.do('run/stop')
    telemetry.wait('idle')
    kept = telemetry.get('ledger')['frames']['stored']
    wait('all frames', lambda: sum(telemetry.get('preview')[k] for k in
                                   ('live_frames', 'live_skipped')) == kept)
    return telemetry.get('preview')


def images(path, csr):
    """{frame: pixels} of a file of float32 images; sparse ones have 0 elsewhere"""
    found = {}
    for rows, values in batches(path):
        frame, value, ends = values(1, 'u8'), values(15, 'f4'), values(13, 'i4')
        for row in range(rows):
            at = slice(ends[row], ends[row + 1])
            if not csr:
                found[int(frame[row])] = value[row * ROWS * COLS:(row + 1) * ROWS * COLS]
                continue
            plane = numpy.zeros(ROWS * COLS, 'f4')
            ptr_ends = values(5, 'i4')
            ptr = values(7, 'u4')[ptr_ends[row]:ptr_ends[row + 1]]
            y = numpy.repeat(numpy.arange(ROWS), numpy.diff(ptr.astype('i8')))
            plane[y * COLS + values(11, 'u2')[at]] = value[at]
            found[int(frame[row])] = plane
    return found


def placed(pixels):
    """The picture of one module: gaps of 2 pixels between chips of 256."""
    picture = numpy.full((514, 1030), numpy.nan, 'f4')
    for y in range(2):
        for x in range(4):
            picture[258 * y:258 * y + 256, 258 * x:258 * x + 256] = \
                pixels[256 * y:256 * y + 256, 256 * x:256 * x + 256]
    return picture


def binned(part, size):
    """The largest value of each cell."""
    rows, cols = -(-part.shape[0] // size), -(-part.shape[1] // size)
    whole = numpy.full((rows * size, cols * size), -numpy.inf, 'f4')
    whole[:part.shape[0], :part.shape[1]] = numpy.where(numpy.isnan(part), -numpy.inf, part)
    cells = whole.reshape(rows, size, cols, size).max(axis=(1, 3))
    return numpy.where(numpy.isinf(cells) & (cells < 0), numpy.nan, cells)


def same(found, expected, what):
    want(found.shape == (ROWS, COLS), found.shape)
    equal = numpy.array_equal(found.ravel(), expected.ravel(), equal_nan=True)
    want(equal, what, 'differs in', numpy.count_nonzero(found.ravel() != expected.ravel()), 'pixels')


def plane(server, name):
    answer = server(f'/api/v1/sources/r/image?plane={name}')
    want(answer.status == 200, name, answer.status, answer.body[:200])
    return answer.array()


@case
def pixels_equal_the_live_file(where):
    with running('veto.dry_run=yes') as (_, telemetry, data), serving(BUILD, SOCKET) as server:
        start(telemetry, where, 'sparse', 'output.format=csr')
        preview = stop(telemetry)
        server.wait('a live file', lambda s: s['live'])
        mask = plane(server, 'mask').astype(bool)
        want(mask.sum() == telemetry.get('pedestal')['masked'], mask.sum(), 'masked')
        frames = images(f'{where}/sparse_images.arrow', True)
        facts, tensors = server('/api/v1/sources/r/frame').tensors()
        wanted = frames[int(facts['frame'])].reshape(ROWS, COLS).copy()
        wanted[mask] = numpy.nan
        same(plane(server, 'frame'), wanted, 'frame')
        want(facts['kind'] == 'csr' and facts['run'] == 'sparse', facts)
        want(tensors['row_ptr'].size == ROWS + 1 and tensors['col'].size == tensors['value'].size)
        want(tensors['missing'].sum() == 0)
        # the last frames have no grant if the thread has had no CPU time
        if preview['live_skipped'] == 0:
            every = numpy.array(list(frames.values()))
            wanted = every.max(axis=0).reshape(ROWS, COLS)
            wanted[mask] = numpy.nan
            same(plane(server, 'maximum'), wanted, 'maximum')
            mean = (every.sum(axis=0, dtype='f8') / len(every)).astype('f4').reshape(ROWS, COLS)
            mean[mask] = numpy.nan
            want(numpy.allclose(plane(server, 'mean'), mean, rtol=1e-6, equal_nan=True), 'mean')
        # peaks of the frame are those of the table
        want(len(tensors['peaks']) == int(facts['peaks_found']), facts, len(tensors['peaks']))

        start(telemetry, where, 'full', 'output.format=image')
        stop(telemetry)
        facts, tensors = wait('the run', lambda: (f := server('/api/v1/sources/r/frame').tensors())
                              [0]['run'] == 'full' and f)
        frames = images(f'{where}/full_images.arrow', False)
        same(plane(server, 'frame'), frames[int(facts['frame'])], 'full image')
        same(tensors['value'], frames[int(facts['frame'])], 'full image as it was kept')
        want(numpy.isnan(plane(server, 'frame'))[mask].all(), 'masked pixels have values')
        picture = placed(frames[int(facts['frame'])].reshape(ROWS, COLS))
        for window, x, y, width, height, size in (('0,0,1030,514,1', 0, 0, 1030, 514, 1),
                                                  ('250,100,101,9,4', 250, 100, 101, 9, 4),
                                                  ('1029,513,1,1,64', 1029, 513, 1, 1, 64)):
            part = binned(picture[y:y + height, x:x + width], size)
            cells = server(f'/api/v1/sources/r/image?plane=frame&window={window}').array()
            want(numpy.array_equal(cells, part, equal_nan=True), window)
            tensors = server(f'/api/v1/sources/r/frame?window={window}').tensors()[1]
            want(numpy.array_equal(tensors['cells'], part, equal_nan=True), window)
            bits = numpy.ascontiguousarray(cells).view('u4')[numpy.isnan(cells)]
            want(set(bits.ravel()) <= {MASKED, GAP}, bits)
        want(bits.size == 0 and GAP in server('/api/v1/sources/r/image?window=256,0,1,1,1')
             .array().view('u4'), 'no gap between chips')
        places = server('/api/v1/sources/r/places').array()
        want(places[0, 255] == 255 and places[0, 256] == 258, 'gap of chips', places[0, 255:257])


@case
def answers_are_those_of_the_document(where):
    os.umask(0o077)
    with open(f'{where}/token', 'w', encoding='ascii') as stream:
        stream.write(TOKEN + '\n')
    with running('veto.dry_run=yes') as (_, telemetry, data), \
            serving(BUILD, SOCKET, '--token-file', f'{where}/token', '--control') as server:
        server.token = TOKEN
        ask = Document(server)
        r = {'source': 'r'}
        of = '/sources/{source}'
        server.wait('the receiver', lambda s: s['state'] == 'up')
        for part in 'frame', 'image', 'geometry', 'places':
            ask(f'{of}/{part}', 404, **r)
        start(telemetry, where, 'one')
        wait('a frame', lambda: server('/api/v1/sources/r/frame').status == 200)
        ask('/openapi.json', 200)
        want(ask('/sources', 200).json()['control'] is True)
        ask(of, 200, **r)
        ask(of, 404, source='nobody')
        for command in ask(of, 200, **r).json()['commands']:
            wait(command, lambda c=command: server(
                f'/api/v1/sources/r/telemetry?command={c}').status == 200)
            reply = ask(f'{of}/telemetry', 200, query=f'?command={command}', **r).json()
            want(list(reply) == [command], reply)
        ask(f'{of}/telemetry', 400, query='?command=/eal/params', **r)
        ask(f'{of}/telemetry', 400, **r)
        for name in 'frame', 'maximum', 'mean', 'mask':
            answer = ask(f'{of}/image', 200, query=f'?plane={name}', **r)
        ask(f'{of}/image', 304, query='?plane=mask', headers={'If-None-Match': answer.headers['ETag']},
            **r)
        ask(f'{of}/image', 400, query='?plane=none', **r)
        for window in '', '0,0,1,1', '0,0,1,1,0', '0,0,1,1,65', '-1,0,1,1,1', '0,0,1,1,1,1', \
                '0,0,1031,1,1', '1030,0,1,1,1', '0,514,1,1,1', '4294967295,0,1,1,1', '0,0,0,1,1':
            ask(f'{of}/image', 400, query=f'?window={window}', **r)
            ask(f'{of}/frame', 400, query=f'?window={window}', **r)
        ask(f'{of}/image', 400, query='?plane=mask&window=0,0,1,1,1', **r)
        for name in 'frame', 'maximum', 'mean':
            ask(f'{of}/image', 200, query=f'?plane={name}&window=0,0,1030,514,2', **r)
        ask(f'{of}/frame', 200, query='?window=0,0,1030,514,3', **r)
        for part in 'frame', 'geometry', 'places':
            ask(f'{of}/{part}', 200, **r)
        # what replies say about the same thing is the same as on the socket
        direct = telemetry('/braggline/veto')
        want(ask(f'{of}/telemetry', 200, query='?command=/braggline/veto', **r).json() == direct)

        json_type = {'Content-Type': 'application/json'}
        body = json.dumps({'command': '/braggline/veto/set', 'parameters': 'veto.strong_min=41'})
        ask.validate(json.loads(body), ask.doc['components']['schemas']['Command'])
        post = {**r, 'method': 'post', 'headers': json_type}
        reply = ask(f'{of}/command', 200, body=body.encode(), **post).json()
        want(reply['/braggline/veto/set']['result'] == 0, reply)
        want(telemetry.get('veto')['strong_min'] == 41, telemetry.get('veto'))
        ask(f'{of}/command', 400, body=b'{"command":"/eal/params"}', **post)
        ask(f'{of}/command', 400, body=b'{', **post)
        ask(f'{of}/command', 413, body=b'{"command":"' + b'/' * 2100 + b'"}', **post)
        ask(f'{of}/command', 415, method='post', body=body.encode(), headers={'Content-Type': 'text/plain'},
            **r)
        ask(f'{of}/command', 401, method='post', body=body.encode(),
            headers={**json_type, 'Authorization': f'Bearer {TOKEN}x'}, **r)
        want(telemetry.get('veto')['strong_min'] == 41)
        for path in ask.doc['paths']:
            if path != '/openapi.json' and 'get' in ask.doc['paths'][path]:
                ask(path, 401, headers={'Authorization': 'Bearer '}, **r, directory='0', file='x')

        schemas = {'source': 'Source', 'telemetry': 'TelemetryEvent', 'frame': 'FrameEvent'}
        kinds = set()
        for number, (kind, event) in enumerate(server.events()):
            ask.validate(event, ask.doc['components']['schemas'][schemas[kind]])
            kinds.add(kind)
            if kinds == set(schemas) and number > 30:
                break
        ask.left.discard(('/events', 'get'))
        # finished_runs_are_served() has finished runs
        want(ask('/runs', 200).json() == {'folders': [], 'truncated': False, 'runs': []})
        ask('/runs/{directory}/{file}', 404, directory='0', file='one_frames.arrow')
        ask('/events', 400, query='?source=nobody')
        want(not ask.left, 'not checked:', ask.left)
        # what is not in the document is not served
        for path in '/api/v1/sources/r/nothing', '/api/v1', '/../etc/passwd', '/view.c', '/%2e%2e/x':
            want(server(path).status == 404, path)


def make_runs(where):
    """Files in `where`: a finished run, done; one that is being written, open; and what an enemy of
    the page may put there. @return the receiver's count of frames"""
    with running('veto.dry_run=yes') as (_, telemetry, data):
        start(telemetry, where, 'done', 'output.format=csr')
        stop(telemetry)
        ledger = telemetry.get('ledger')['frames']
    os.mkdir(f'{where}/store-1')
    for table in 'frames', 'images':
        shutil.copy(f'{where}/done_{table}.arrow', f'{where}/store-1/x_{"1" * 16}_000001_{table}.arrow')
        shutil.copy(f'{where}/done_{table}.arrow', f'{where}/open_000001_{table}.arrow')
    shutil.copy(f'{where}/done_frames.arrow', f'{where}/open_000002_frames.arrow.part')
    with open(f'{where}/done_data_000001.h5', 'wb') as stream:
        stream.truncate(LARGE)
    os.mkdir(f'{where}/store-1/deeper')
    shutil.copy(f'{where}/done_frames.arrow', f'{where}/store-1/deeper/deep_frames.arrow')
    for name in 'a b', 'new\nline', '<b>', '.hidden', 'ä', '%2e':
        shutil.copy(f'{where}/done_frames.arrow', f'{where}/{name}_frames.arrow')
    for name, text in (('secret.txt', b'secret'), ('garbage_frames.arrow', b'\xff' * 5000),
                       ('empty_frames.arrow', b'')):
        with open(f'{where}/{name}', 'wb') as stream:
            stream.write(text)
    # later than 2262, the last year that 64 bits of nanoseconds can have; most file systems store it
    os.utime(f'{where}/empty_frames.arrow', (12e9, 12e9))
    # holes; the rows of so large a file are not counted
    shutil.copy(f'{where}/done_frames.arrow', f'{where}/holes_frames.arrow')
    with contextlib.suppress(OSError):
        os.truncate(f'{where}/holes_frames.arrow', (1 << 40) + 1)
    os.link(f'{where}/secret.txt', f'{where}/hard_frames.arrow')
    os.symlink(f'{where}/secret.txt', f'{where}/soft_frames.arrow')
    os.symlink('/etc', f'{where}/etc')
    os.symlink(f'{where}/store-1', f'{where}/store-2')
    os.mkdir(f'{where}/folder_frames.arrow')
    os.mkfifo(f'{where}/pipe_frames.arrow')
    return ledger


@case
def finished_runs_are_served(where):
    os.umask(0o077)
    with open(f'{where}/token', 'w', encoding='ascii') as stream:
        stream.write(TOKEN + '\n')
    folder = f'{where}/runs'
    os.mkdir(folder)
    ledger = make_runs(folder)
    with serving(BUILD, SOCKET, '--runs', folder, '--runs', f'{where}/absent', '--token-file',
                 f'{where}/token') as server:
        server.token = TOKEN
        ask = Document(server)
        wait('the list', lambda: server('/api/v1/runs').status == 200)
        answer = ask('/runs', 200).json()
        want(answer['folders'] == [folder, f'{where}/absent'] and not answer['truncated'], answer)
        runs = {(run['directory'], run['name']): run for run in answer['runs']}
        want(set(runs) == {('0', 'done'), ('0', 'garbage'), ('0', 'empty'), ('0', 'holes'),
                           ('0:store-1', f'x_{"1" * 16}')}, list(runs))
        for key in ('0', 'done'), ('0:store-1', f'x_{"1" * 16}'):
            run = runs[key]
            want(run['frames'] == ledger['frames'] and run['kept'] == ledger['stored'], run, ledger)
            want(time.time() - 60 < run['started'] < run['finished'] < time.time(), run)
            want(run['bytes'] == sum(f['bytes'] for f in run['files']), run)
        names = [f['name'] for f in runs['0', 'done']['files']]
        want(names == ['done_data_000001.h5', 'done_frames.arrow', 'done_images.arrow'], names)
        want(runs['0', 'garbage']['frames'] == runs['0', 'empty']['frames'] == 0)
        if os.path.getsize(f'{folder}/holes_frames.arrow') > 1 << 40:
            want(runs['0', 'holes']['frames'] == 0, runs['0', 'holes'])
        changed = os.stat(f'{folder}/empty_frames.arrow').st_mtime
        want(runs['0', 'empty']['finished'] >= min(changed, 9.2e9), runs['0', 'empty'])

        with open(f'{folder}/done_frames.arrow', 'rb') as stream:
            data = stream.read()
        done = {'directory': '0', 'file': 'done_frames.arrow'}
        path = '/runs/{directory}/{file}'
        answer = ask(path, 200, **done)
        want(answer.body == data and answer.headers['Content-Disposition'] == 'attachment')
        tag = answer.headers['ETag']
        size = len(data)
        for text, part in (('0-0', data[:1]), ('5-104', data[5:105]), ('-7', data[-7:]),
                           (f'{size - 3}-', data[-3:]), (f'1-{size * 9}', data[1:])):
            answer = ask(path, 206, headers={'Range': f'bytes={text}', 'If-Range': tag}, **done)
            at = data.index(part) if len(part) > 7 else None
            want(answer.body == part, text, len(answer.body))
            want(answer.headers['Content-Range'].endswith(f'/{size}'), answer.headers)
            want(at is None or answer.headers['Content-Range'].startswith(f'bytes {at}-'), text)
        want(ask(path, 416, headers={'Range': f'bytes={size}-'}, **done)
             .headers['Content-Range'] == f'bytes */{size}')
        for headers in {'Range': 'bytes=0-1,4-5'}, {'Range': 'bytes=0-1', 'If-Range': '"old"'}:
            want(ask(path, 200, headers=headers, **done).body == data, headers)
        ask(path, 401, headers={'Authorization': 'Bearer x'}, **done)
        ask('/runs', 401, headers={'Authorization': 'Bearer x'})
        want(server('/api/v1/runs/0/done_frames.arrow', 'HEAD').headers['Content-Length'] == str(size))
        want(ask(path, 200, directory='0:store-1', file=f'x_{"1" * 16}_000001_frames.arrow').body == data)

        for name in ('secret.txt', 'soft_frames.arrow', 'hard_frames.arrow', 'pipe_frames.arrow',
                     'folder_frames.arrow', 'open_000001_frames.arrow', '.hidden_frames.arrow',
                     'open_000002_frames.arrow.part', '%2e_frames.arrow', '..%2fsecret.txt',
                     'a%20b_frames.arrow', '', '.', '..', '../../etc/passwd'):
            want(server(f'/api/v1/runs/0/{name}').status == 404, name)
        for directory in ('1', '7', '9', '0:', '0:etc', '0:..', '0:store-2', '0:store-1/deeper',
                          '0:store-1%2fdeeper', '-1', '00', ':', '0:store-1:'):
            for name in 'passwd', f'x_{"1" * 16}_000001_frames.arrow', 'deep_frames.arrow':
                want(server(f'/api/v1/runs/{directory}/{name}').status == 404, directory, name)
        # slow clients cannot take all
        request = f'GET /api/v1/runs/0/done_data_000001.h5 HTTP/1.1\r\nHost: localhost\r\n' \
                  f'Authorization: Bearer {TOKEN}\r\n\r\n'.encode()
        slow = [send(server, request) for _ in range(6)]
        wait('the limit', lambda: server('/api/v1/runs/0/done_frames.arrow').status == 503)
        want(server('/api/v1/sources').status == 200)
        for s in slow:
            s.close()
        wait('no limit', lambda: server('/api/v1/runs/0/done_frames.arrow').status == 200)
        # a file that is truncated while it is sent ends the connection at once
        with send(server, request) as s:
            s.settimeout(20)
            want(s.recv(1 << 16).startswith(b'HTTP/1.1 200'))
            os.truncate(f'{folder}/done_data_000001.h5', 1 << 16)
            received = 0
            while (part := s.recv(1 << 20)):
                received += len(part)
            want(received < LARGE, received)
        # a file that is replaced after it was listed
        os.unlink(f'{folder}/done_frames.arrow')
        os.symlink(f'{folder}/secret.txt', f'{folder}/done_frames.arrow')
        want(server('/api/v1/runs/0/done_frames.arrow').status == 404)
        shutil.rmtree(folder)
        want(server('/api/v1/runs/0/done_images.arrow').status == 404)
        wait('an empty list', lambda: server.get('runs')['runs'] == [])


@case
def a_receiver_comes_and_goes(where):
    with serving(BUILD, SOCKET) as server:
        want(server.get('sources/r')['state'] == 'down')
        want(server('/api/v1/sources/r/telemetry?command=/braggline/ledger').status == 503)
        pids, states = [], []
        for end in signal.SIGKILL, signal.SIGTERM:
            with receiver.running(BUILD, *SETTINGS, lcores=LCORES) as (process, telemetry, data):
                start(telemetry, where, f'run{len(pids)}')
                pids.append(server.wait('up', lambda s: s['state'] == 'up' and s['pid']))
                frame = wait('a frame', lambda: (a := server('/api/v1/sources/r/frame'))
                             .status == 200 and a.tensors()[0])
                want(frame['run'] == f'run{len(pids) - 1}', frame)
                process.send_signal(end)
                process.wait(30)
                states.append(server.wait('down', lambda s: s['state'] == 'down' and s))
                want(server('/api/v1/sources/r/frame').status == 404)
                want(server('/api/v1/sources/r/telemetry?command=/braggline/ledger').status == 503)
        want(pids[0] != pids[1] and states[0]['error'], pids, states)
    remove_live_file()


@case
def a_stopped_receiver_stops_nothing_else(where):
    with running() as (process, telemetry, data), serving(BUILD, SOCKET) as server:
        server.wait('up', lambda s: s['state'] == 'up')
        process.send_signal(signal.SIGSTOP)
        try:
            begin = time.monotonic()
            server.get('sources')
            want(server('/').status == 200)
            want(time.monotonic() - begin < 1, 'the server waits for the receiver')
            server.wait('down', lambda s: s['state'] == 'down')
        finally:
            process.send_signal(signal.SIGCONT)
        server.wait('up', lambda s: s['state'] == 'up')


def send(server, data):
    """@return a connection on which the bytes were sent, or as many as the server takes"""
    s = socket.create_connection(('127.0.0.1', server.port), 20)
    with contextlib.suppress(OSError):
        s.sendall(data)
    return s


def rest(s):
    """@return what the server sends until it closes the connection"""
    reply = b''
    with contextlib.suppress(ConnectionError), s:
        while part := s.recv(65536):
            reply += part
    return reply


def answers(server):
    try:
        return server('/').status == 200
    except OSError:
        return False


@case
def hostile_requests_are_bounded(where):
    with serving(BUILD, f'{where}/nobody') as server:
        # a page of another site, by DNS rebinding
        want(server('/api/v1/sources', headers={'Host': 'example.org'}).status == 403)
        want(server('/', headers={'Host': 'example.org'}).status == 403)
        # no control without --control, and no body of another site's form
        want(server.command('r', '/braggline/run/start').status == 403)
        for method in 'PUT', 'DELETE', 'OPTIONS', 'PATCH':
            want(server('/api/v1/sources', method).status == 405, method)
        want(server('/api/v1/sources', 'POST', b'x').status == 405)
        head = b'GET / HTTP/1.1\r\nHost: localhost\r\n'
        begin = time.monotonic()
        garbage = [send(server, data) for data in (
            b'\0' * 100, b'\xff\xfe' * 50 + b'\r\n\r\n', b'GET\r\n\r\n',
            head + b'X: ' + b'y' * 100000 + b'\r\n\r\n',
            b'GET /' + b'a' * 100000 + b' HTTP/1.1\r\n\r\n', head + b'x:y\r\n' * 20000 + b'\r\n',
            b'POST /api/v1/sources/r/command HTTP/1.1\r\nHost: localhost\r\n'
            b'Content-Length: -1\r\n\r\n',
            b'POST /api/v1/sources/r/command HTTP/1.1\r\nHost: localhost\r\n'
            b'Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n1000\r\n' + b'x' * 4096 +
            b'\r\n0\r\n\r\n')]
        # requests that are never completed
        slow = [send(server, head) for _ in range(12)]
        # the same, after one that was
        for _ in range(4):
            s = send(server, b'HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n')
            want(s.recv(4096).endswith(b'\r\n\r\n'))
            s.sendall(head)
            slow.append(s)
        want(server('/').status == 200, 'slow clients stop others')
        # streams of events
        streams, refused = [], 0
        for _ in range(4):
            streams.append(server.open('/api/v1/events'))
        for s in slow:
            rest(s)
        for s in garbage:
            reply = rest(s)
            want(b' 200 ' not in reply.split(b'\r\n')[0], reply[:100])
        elapsed = time.monotonic() - begin
        want(4 < elapsed < 60, f'closed after {elapsed:.1f} s')
        for _ in range(14):
            try:
                streams.append(server.open('/api/v1/events'))
            except OSError as error:
                refused += getattr(error, 'code', 0) == 503
        want(len(streams) == 16 and refused == 2, len(streams), 'streams', refused, 'refused')
        with open(f'/proc/{server.process.pid}/status', encoding='ascii') as status:
            rss = int(re.search(r'VmRSS:\s+(\d+)', status.read())[1])
        limit = 400 if 'asan' in BUILD else 64
        want(rss < limit << 10, rss, 'KiB')
        want(server('/').status == 200)
        # more connections than one address may have
        many = [socket.create_connection(('127.0.0.1', server.port)) for _ in range(40)]
        # 16 of 32 are streams
        wait('refusals', lambda: len(select.select(many, [], [], 0.1)[0]) >= 24, 4)
        for s in many:
            s.close()
        for s in streams:
            s.close()
        wait('free connections', lambda: answers(server), 10)


@case
def a_port_in_use(where):
    with serving(BUILD, f'{where}/s') as server:
        done = subprocess.run([f'{BUILD}/app/view/braggline-view', '--receiver', f'r={where}/s',
                               '--listen', f'127.0.0.1:{server.port}'], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=20, check=False)
        want(done.returncode == 1 and 'another program listens there; end it, or set another port'
             in done.stderr, done.returncode, done.stderr)


@case
def secrets_and_tls(where):
    os.umask(0o022)
    for name, text, mode in (('good', TOKEN + '\n', 0o600), ('short', 'x\n', 0o600),
                             ('open', TOKEN, 0o644), ('blank', TOKEN + ' x\n', 0o600),
                             ('two', TOKEN + '\nmore', 0o600)):
        with open(f'{where}/{name}', 'w', encoding='ascii') as stream:
            stream.write(text)
        os.chmod(f'{where}/{name}', mode)
    view = [f'{BUILD}/app/view/braggline-view', '--receiver', f'r={where}/s', '--listen',
            '127.0.0.1:0']
    for name in 'short', 'open', 'blank', 'two', 'absent':
        done = subprocess.run([*view, '--token-file', f'{where}/{name}'], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=20, check=False)
        want(done.returncode == 1 and name in done.stderr, name, done.returncode, done.stderr)
    openssl = subprocess.run(
        ['openssl', 'req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-subj', '/CN=localhost',
         '-addext', 'subjectAltName=IP:127.0.0.1', '-keyout', f'{where}/key', '-out',
         f'{where}/certificate'], capture_output=True, check=False)
    if openssl.returncode != 0:
        raise Skipped('openssl cannot make a certificate')
    os.chmod(f'{where}/key', 0o600)
    tls = ['--tls-certificate', f'{where}/certificate', '--tls-key', f'{where}/key']
    context = ssl.create_default_context(cafile=f'{where}/certificate')
    with serving(BUILD, f'{where}/s', *tls, '--token-file', f'{where}/good',
                 context=context) as server:
        want(server.url.startswith('https://'), server.url)
        want(server('/api/v1/sources').status == 401 and server('/').status == 200)
        server.token = TOKEN
        # with a token any name may lead here
        want(server('/api/v1/sources', headers={'Host': 'example.org'}).status == 200)
        # forbidden by RFC 8996
        old = ssl.create_default_context(cafile=f'{where}/certificate')
        old.set_ciphers('ALL:@SECLEVEL=0')
        warnings.simplefilter('ignore', DeprecationWarning)
        old.minimum_version = ssl.TLSVersion.TLSv1
        for old.maximum_version in ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1:
            try:
                with socket.create_connection(('127.0.0.1', server.port), 20) as s, \
                        old.wrap_socket(s, server_hostname='127.0.0.1') as t:
                    raise AssertionError(f'{t.version()} is accepted')
            except (ssl.SSLError, ConnectionError):
                pass
    os.mkfifo(f'{where}/pipe')
    done = subprocess.run([*view, '--tls-certificate', f'{where}/pipe', '--tls-key', f'{where}/key'],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20,
                          check=False)
    want(done.returncode == 1 and 'not a regular file' in done.stderr, done.stderr)
    done = subprocess.run([*view, '--tls-certificate', f'{where}/good', '--tls-key', f'{where}/key'],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20,
                          check=False)
    want(done.returncode == 1 and '--tls-certificate' in done.stderr, done.stderr)


if __name__ == '__main__':
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.exit(run_cases(sys.argv[2:]))
