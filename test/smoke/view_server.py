# SPDX-License-Identifier: BSD-3-Clause
"""Runs a braggline-view, and requests its answers."""

import contextlib
import glob
import io
import json
import os
import struct
import subprocess
import time
import urllib.error
import urllib.request

import numpy

import background
from cases import wait, want

# geometry and peaks for one module
SETTINGS = ('output.live=auto', 'output.live_s=0.05', 'geometry.beam_x=515', 'geometry.beam_y=257',
            'geometry.distance_mm=86.33', 'peaks.search=all', 'peaks.threshold=10',
            'peaks.peaks_min=5', 'output.images_interval=16')
TYPES = {'F32': '<f4', 'I16': '<i2', 'U32': '<u4', 'U16': '<u2', 'U8': 'u1'}


def remove_live_file():
    """What a killed receiver of this process leaves in memory."""
    for path in glob.glob(f'/dev/shm/braggline-*/live-braggline_test_{os.getpid()}') + \
            glob.glob(f'/run/braggline/live-braggline_test_{os.getpid()}'):
        os.unlink(path)


class Answer:
    def __init__(self, reply):
        self.status = reply.status
        self.headers = reply.headers
        self.body = b'' if reply.fp is None else reply.read()

    def json(self):
        return json.loads(self.body)

    def array(self):
        return numpy.load(io.BytesIO(self.body), allow_pickle=False)

    def tensors(self):
        """@return metadata and tensors of a safetensors file"""
        length, = struct.unpack('<Q', self.body[:8])
        head = json.loads(self.body[8:8 + length])
        facts = head.pop('__metadata__')
        data = self.body[8 + length:]
        want(max(t['data_offsets'][1] for t in head.values()) == len(data), 'bytes after the data')
        return facts, {name: numpy.frombuffer(data[slice(*t['data_offsets'])], TYPES[t['dtype']])
                       .reshape(t['shape']) for name, t in head.items()}


class Server:
    def __init__(self, process, context=None):
        self.process = process
        self.context = context
        line = process.stdout.readline()
        want('://' in line, 'braggline-view has ended', line)
        self.url = line.split()[1]
        self.port = int(self.url.rsplit(':', 1)[1].rstrip('/'))
        self.token = None

    def open(self, path, method='GET', body=None, headers=None, timeout=10):
        headers = dict(headers or {})
        if self.token and 'Authorization' not in headers:
            headers['Authorization'] = f'Bearer {self.token}'
        request = urllib.request.Request(self.url + path.lstrip('/'), body, headers, method=method)
        return urllib.request.urlopen(request, timeout=timeout, context=self.context)

    def __call__(self, path, method='GET', body=None, headers=None):
        """@return an Answer, of any status"""
        try:
            with self.open(path, method, body, headers) as reply:
                return Answer(reply)
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error)

    def get(self, path):
        """@return JSON of a successful answer below /api/v1"""
        answer = self(f'/api/v1/{path}')
        want(answer.status == 200, path, answer.status, answer.body[:200])
        return answer.json()

    def command(self, source, command, parameters='', **headers):
        body = json.dumps({'command': command, 'parameters': parameters}).encode()
        return self(f'/api/v1/sources/{source}/command', 'POST', body,
                    {'Content-Type': 'application/json', **headers})

    def wait(self, what, ready, seconds=20):
        """Wait until ready(state of source r) is true. @return that value"""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            state = self.get('sources/r')
            value = ready(state)
            if value:
                return value
            time.sleep(0.02)
        raise AssertionError(f'{what}: not within {seconds} s: {state}')

    def events(self, path='/api/v1/events', timeout=10):
        """Yields the type and the data of each event."""
        with self.open(path, timeout=timeout) as stream:
            kind = None
            for line in stream:
                if line.startswith(b'event: '):
                    kind = line[7:].strip().decode()
                elif line.startswith(b'data: '):
                    yield kind, json.loads(line[6:])


@contextlib.contextmanager
def serving(build, socket, *options, context=None):
    """Yields a Server of one receiver, r."""
    with background.start([f'{build}/app/view/braggline-view', '--receiver', f'r={socket}',
                           '--listen', '127.0.0.1:0', '--interval', '100', *options],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield Server(process, context)
            process.terminate()
            want(process.wait(10) == 0, 'exit status', process.returncode, process.stderr.read())
        except BaseException:
            process.kill()
            print(process.stderr.read())
            raise


@contextlib.contextmanager
def opened(server, path, nb):
    """Open as many connections as the limit allows. The last ones of other clients may still end."""
    with contextlib.ExitStack() as stack:
        for _ in range(nb):
            def one():
                try:
                    return stack.enter_context(server.open(path))
                except urllib.error.HTTPError as error:
                    return want(error.code == 503, error)
            wait(path, one)
        yield
