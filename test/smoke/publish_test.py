#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""braggline-publish with real ZeroMQ clients: fast, slow, hanging and killed workers, hostile
requests, runs that end, begin later or follow each other, files that grow or are damaged. Pixels
and peaks are compared with the Arrow files bit for bit. Messages are decoded by python3-msgpack and
python3-cbor2.

usage: publish_test.py BUILD-DIR [CASE]...
"""

import contextlib
import datetime
import fcntl
import os
import re
import resource
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
import time

import simulated_runs
from cases import Skipped, case, run_cases, wait, want

try:
    import arrow_batches
    import bitshuffle
    import cbor2
    import msgpack
    import numpy
    import zmq
except ImportError as error:
    print(f'{error}: install python3-zmq, python3-msgpack, python3-cbor2 and bitshuffle')
    sys.exit(77)

BUILD = os.path.abspath(sys.argv[1])
PUBLISH = f'{BUILD}/app/publish/braggline-publish'
ORACLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../../shared/oracles')
ROWS, COLS, FRAMES = 512, 1024, 40
PEAKS = {'fs': (0, 'f4'), 'ss': (1, 'f4'), 'intensity': (2, 'f4'), 'snr': (3, 'f4'),
         'background': (4, 'f4'), 'pixels': (5, 'u4'), 'panel': (6, 'u2')}
COLUMNS = {'bunch_id': (3, 'u8'), 'detector_time': (5, 'u8'), 'receive_time': (7, 'i8'),
           'exposure': (9, 'u4'), 'detector_status': (11, 'u4'), 'flags': (13, 'u4'),
           'strong_count': (18, 'u4'), 'sum': (20, 'f8'), 'saturated': (22, 'u4'),
           'invalid': (24, 'u4'), 'verdict': (28, 'u1'), 'veto_version': (32, 'u4'),
           'pedestal_version': (34, 'u4')}
# data types and mandatory fields of the documentation of stream v2. Tables of corrections and masks
# are optional.
TEXT, INTEGER, REAL, FLAG, DATE, RATIO, ANY_TYPE = range(7)
ENERGIES, AXES, VECTOR, CHANNELS, ARRAYS = range(7, 12)
SERIES = {'type': TEXT, 'series_id': INTEGER, 'series_unique_id': TEXT}
FIELDS = {
    'start': SERIES | {
        'arm_date': DATE, 'beam_center_x': REAL, 'beam_center_y': REAL, 'channels': CHANNELS,
        'count_time': REAL, 'countrate_correction_enabled': FLAG, 'detector_description': TEXT,
        'detector_serial_number': TEXT, 'detector_translation': VECTOR, 'flatfield_enabled': FLAG,
        'frame_time': REAL, 'goniometer': AXES, 'image_dtype': TEXT, 'image_size_x': INTEGER,
        'image_size_y': INTEGER, 'incident_energy': REAL, 'incident_wavelength': REAL,
        'number_of_images': INTEGER, 'pixel_mask_enabled': FLAG, 'pixel_size_x': REAL,
        'pixel_size_y': REAL, 'saturation_value': INTEGER, 'sensor_material': TEXT,
        'sensor_thickness': REAL, 'threshold_energy': ENERGIES, 'user_data': ANY_TYPE,
        'virtual_pixel_interpolation_enabled': FLAG},
    'image': SERIES | {
        'data': ARRAYS, 'image_id': INTEGER, 'real_time': RATIO, 'series_date': DATE,
        'start_time': RATIO, 'stop_time': RATIO, 'user_data': ANY_TYPE},
    'end': SERIES}
TAGS = {69: 'u2', 70: 'u4', 77: 'i2', 85: 'f4'}
ANY = 'tcp://127.0.0.1:*'
runs = {}


def receive(name, *settings):
    """Receive a capture. @return directory of the run's files"""
    if name not in runs:
        runs[name] = simulated_runs.receive(
            BUILD, runs['where'], name, 'output.images_interval=4', 'output.batch_ms=0',
            *simulated_runs.GEOMETRY, *settings, frames=FRAMES)
    return runs[name]


def field(data, at, number):
    """Offset of a field of a flatbuffer's table."""
    vtable = at - struct.unpack_from('<i', data, at)[0]
    offset, = struct.unpack_from('<H', data, vtable + 4 + 2 * number)
    want(offset != 0, 'a field is absent')
    return at + offset


def follow(data, at):
    return at + struct.unpack_from('<I', data, at)[0]


class Arrow:
    """A file of images: its parts, and {frame: (pixels, {name: list of peaks})}."""

    def __init__(self, path, value='i2', kind='image'):
        with open(path, 'rb') as stream:
            data = self.data = stream.read()
        at = self.begin = 16 + int.from_bytes(data[12:16], 'little')
        self.batches, self.images, self.frames = [], {}, []
        while int.from_bytes(data[at + 4:at + 8], 'little') != 0:
            message = follow(data, at + 8)
            body = at + 8 + int.from_bytes(data[at + 4:at + 8], 'little')
            length, = struct.unpack_from('<q', data, field(data, message, 3))
            before = len(self.frames)
            self.read(message, body, value, kind)
            self.batches.append((at, body + length, len(self.frames) - before))
            at = body + length
        self.end = at

    def message(self, first):
        """Offset of the message of a batch, and of its body."""
        return (follow(self.data, first + 8),
                first + 8 + int.from_bytes(self.data[first + 4:first + 8], 'little'))

    def buffers(self, message, body):
        """Number of rows of a batch, and a function that gives the values of a buffer."""
        data = self.data
        batch = follow(data, field(data, message, 2))
        rows, = struct.unpack_from('<q', data, field(data, batch, 0))
        buffers = follow(data, field(data, batch, 2)) + 4

        def values(number, dtype):
            offset, size = struct.unpack_from('<qq', data, buffers + 16 * number)
            return numpy.frombuffer(data, dtype, size // numpy.dtype(dtype).itemsize, body + offset)

        return rows, values

    def read(self, message, body, value, kind):
        rows, values = self.buffers(message, body)
        ends = values(13, 'i4')
        for row in range(rows):
            if kind == 'image':
                pixels = arrow_batches.image(values, row, value, (ROWS, COLS))
            elif kind == 'csr':
                first = values(5, 'i4')
                ptr = values(7, 'u4')[first[row]:first[row + 1]].astype('i8')
                pixels = numpy.zeros((ROWS, COLS), value)
                y = numpy.repeat(numpy.arange(ROWS), numpy.diff(ptr))
                pixels[y, values(11, 'u2')[ends[row]:ends[row + 1]]] = \
                    values(15, value)[ends[row]:ends[row + 1]]
            else:
                raw = values(17, 'i4')
                chunk = values(18, 'u1')[raw[row] + 12:raw[row + 1]]
                pixels = bitshuffle.decompress_lz4(chunk.copy(), (ROWS * COLS,), numpy.dtype('u2'),
                                                   4096).reshape(ROWS, COLS)
            lists = {}
            for name, (number, dtype) in PEAKS.items():
                last = values(22 + 4 * number + 1, 'i4')
                lists[name] = values(22 + 4 * number + 3, dtype)[last[row]:last[row + 1]]
            frame = int(values(1, 'u8')[row])
            self.frames.append(frame)
            self.images[frame] = pixels, lists


class Frames(Arrow):
    """A file of `frames`: its parts, and {frame: {name: number, or list}}."""

    def __init__(self, path):
        self.rows = {}
        super().__init__(path)

    def read(self, message, body, value, kind):
        nb, values = self.buffers(message, body)
        peaks = values(35, 'u1')
        first = values(38, 'i4')
        for row in range(nb):
            columns = {name: values(number, dtype)[row].item()
                       for name, (number, dtype) in COLUMNS.items()}
            if len(peaks) == 0 or peaks[row // 8] >> row % 8 & 1:
                columns['peak_count'] = values(36, 'u4')[row].item()
                columns['shell_peaks'] = values(40, 'u4')[first[row]:first[row + 1]].tolist()
            frame = values(1, 'u8')[row].item()
            self.frames.append(frame)
            self.rows[frame] = columns


def int16(pixels):
    """float32 photons as the receiver rounds them to int16."""
    with numpy.errstate(invalid='ignore'):
        whole = numpy.clip(numpy.trunc(pixels + numpy.copysign(numpy.float32(0.5), pixels)), -32767, 32767)
    return numpy.where(numpy.isnan(pixels), -32768, whole).astype('i2')


class Growing:
    """A run whose file is written as a receiver does it: locked, and with space in front."""

    def __init__(self, arrow, where, stem='lyso'):
        self.arrow = arrow
        self.path = f'{where}/{stem}_{"frames" if isinstance(arrow, Frames) else "images"}.arrow'
        self.fd = os.open(f'{self.path}.part', os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        lock = struct.pack('hhqqi4x', fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        fcntl.fcntl(self.fd, fcntl.F_OFD_SETLK, lock)
        os.posix_fallocate(self.fd, 0, len(arrow.data) + (8 << 20))
        os.pwrite(self.fd, arrow.data[:arrow.begin], 0)
        self.done = 0

    def append(self, batches=1, until=None):
        """Write some batches, or only their first bytes."""
        for first, last, _ in self.arrow.batches[self.done:self.done + batches]:
            os.pwrite(self.fd, self.arrow.data[first:last if until is None else first + until], first)
        self.done += 0 if until else batches

    def finish(self):
        self.append(len(self.arrow.batches))
        os.pwrite(self.fd, self.arrow.data[self.arrow.end:], self.arrow.end)
        os.ftruncate(self.fd, len(self.arrow.data))
        os.fsync(self.fd)
        os.rename(f'{self.path}.part', self.path)
        os.close(self.fd)


class Publisher:
    """The program, with its addresses and counters."""

    def __init__(self, where, *options):
        self.stats_path = f'{where}/stats.prom'
        self.log = open(f'{where}/publish.log', 'w+', encoding='utf-8')
        self.process = subprocess.Popen([PUBLISH, '--stats', self.stats_path, *options],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=self.log, text=True)
        outputs = [o[2:] for o in options if re.fullmatch('--(crystfel|stream2)(-pub)?', o)]
        self.address = {}
        for _ in outputs:
            name, _, address = self.process.stdout.readline().rstrip('\n').partition(': ')
            want(name in outputs, 'no address of', name, self.error())
            self.address[name] = address

    def error(self):
        self.log.seek(0)
        return self.log.read()

    def stats(self):
        try:
            with open(self.stats_path, encoding='utf-8') as stream:
                return {name: int(value) for name, value in
                        re.findall(r'^braggline_publish_([^ ]*) (\d+)$', stream.read(), re.M)}
        except FileNotFoundError:
            return {}

    def wait_for(self, name, value, output=None):
        key = name if output is None else f'output_{name}{{output="{output}"}}'
        wait(f'{key} >= {value}', lambda: self.stats().get(key, 0) >= value, 20)

    def wait_for_error(self, text):
        wait(text, lambda: re.search(text, self.error()), 20)

    def end(self, signal_number=None, status=0):
        """@return counters of the end, and the summary"""
        if signal_number is not None:
            self.process.send_signal(signal_number)
        out, _ = self.process.communicate(timeout=30)
        want(self.process.returncode == status, self.process.returncode, out, self.error())
        return self.stats(), out

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.log.close()


class Client(threading.Thread):
    """Takes messages until it gets none for a time, or is told to stop."""

    def __init__(self, kind, address, rest=0., most=1 << 30, context=None):
        super().__init__(daemon=True)
        self.context = context or zmq.Context()
        self.socket = self.context.socket(kind)
        self.socket.linger = 0
        if kind == zmq.SUB:
            self.socket.subscribe(b'')
        self.kind, self.rest, self.most = kind, rest, most
        self.messages, self.times, self.stopped = [], [], False
        self.socket.connect(address)
        self.start()

    def run(self):
        asked = False
        while not self.stopped and len(self.messages) < self.most:
            if self.kind == zmq.REQ and not asked:
                self.socket.send(b'next')
                asked = True
            if self.socket.poll(50):
                self.messages.append(self.socket.recv())
                self.times.append(time.time_ns())
                asked = False
                time.sleep(self.rest)

    def end(self):
        self.stopped = True
        self.join()
        self.socket.close()
        return self.messages


def connect(address):
    if address.startswith('ipc://'):
        s = socket.socket(socket.AF_UNIX)
        s.connect(address[6:].replace('@', '\0', 1))
        return s
    host, _, port = address[6:].rpartition(':')
    return socket.create_connection((host, int(port)))


def peer(address, kind):
    """A connection that has done the handshake of ZMTP 3.0 as a socket of a type."""
    s = connect(address)
    s.settimeout(20)
    ready = b'\x05READY\x0bSocket-Type' + struct.pack('>I', len(kind)) + kind
    s.sendall(b'\xff' + bytes(8) + b'\x7f\x03\x00NULL' + bytes(48) +
              b'\x04' + bytes([len(ready)]) + ready)
    answer = b''
    while b'READY' not in answer:
        part = s.recv(256)
        want(part, 'no handshake')
        answer += part
    return s


@contextlib.contextmanager
def other_process(p, kind, output, action):
    """A client that can be stopped or killed."""
    process = subprocess.Popen(
        ['/usr/bin/python3', '-c', f'import time, zmq; s = zmq.Context().socket(zmq.{kind}); '
         f's.connect("{p.address[output]}"); {action}; time.sleep(60)'], stdin=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def crystfel(raw):
    """The map of a message, and its pixels."""
    message, = msgpack.unpackb(raw, raw=False)
    keys = list(message)
    for i, key in enumerate(keys):
        want(not any(later.startswith(key) for later in keys[i + 1:]), key, 'is a prefix')
    data = message['detector_data']
    want(data['type'] == '<i4' and data['shape'] == [ROWS, COLS])
    for name in ('fs', 'ss', 'intensity'):
        want(all(isinstance(x, float) for x in message['peaks'][name]), name)
    return message, numpy.frombuffer(data['data'], '<i4').reshape(ROWS, COLS)


def is_array(value):
    """Whether it is an array of two dimensions (RFC 8746), compressed or not."""
    if not isinstance(value, cbor2.CBORTag) or value.tag != 40 or len(value.value) != 2:
        return False
    dims, typed = value.value
    return (len(dims) == 2 and all(has_type(n, INTEGER) for n in dims) and
            isinstance(typed, cbor2.CBORTag) and typed.tag in TAGS and
            (isinstance(typed.value, bytes) or
             isinstance(typed.value, cbor2.CBORTag) and typed.value.tag == 56500))


def is_map(value, item):
    return isinstance(value, dict) and all(isinstance(k, str) and item(v) for k, v in value.items())


def is_list(value, item):
    return isinstance(value, list) and all(has_type(v, item) for v in value)


def has_type(value, kind):
    """Whether a decoded value has a type of stream v2. Integers are unsigned, and no real numbers."""
    return {
        TEXT: lambda: isinstance(value, str),
        INTEGER: lambda: type(value) is int and 0 <= value < 1 << 64,  # pylint: disable=C0123
        REAL: lambda: isinstance(value, float),
        FLAG: lambda: isinstance(value, bool),
        DATE: lambda: isinstance(value, datetime.datetime) and value.tzinfo is not None,
        RATIO: lambda: is_list(value, INTEGER) and len(value) == 2 and value[1] > 0,
        ANY_TYPE: lambda: True,
        ENERGIES: lambda: is_map(value, lambda v: has_type(v, REAL)),
        AXES: lambda: is_map(value, lambda v: is_map(v, lambda _: True)),
        VECTOR: lambda: is_list(value, REAL) and len(value) == 3,
        CHANNELS: lambda: is_list(value, TEXT) and len(value) > 0,
        ARRAYS: lambda: is_map(value, is_array) and len(value) > 0,
    }[kind]()


def mistake_of_stream2(message):
    """@return what is wrong with the fields of a decoded message, or None"""
    if next(iter(message), None) != 'type':
        return f'the first field is not type: {list(message)}'
    fields = FIELDS.get(message['type'])
    if fields is None:
        return f'a message of type {message["type"]}'
    for name, kind in fields.items():
        if name not in message:
            return f'{message["type"]}: {name} is absent'
        if not has_type(message[name], kind):
            return f'{message["type"]}: {name} = {message[name]!r}: wrong type'
    if 'pixel_mask' in message and not has_type(message['pixel_mask'], ARRAYS):
        return f'{message["type"]}: pixel_mask: wrong type'
    return None


def stream2(raw):
    """The map of a message, and its pixels if it is an image. All fields are checked."""
    want(raw[:3] == b'\xd9\xd9\xf7', 'no tag of self-described CBOR')
    message = cbor2.loads(raw[3:])
    mistake = mistake_of_stream2(message)
    want(mistake is None, mistake)
    if message['type'] != 'image':
        return message, None
    dims, typed = message['data']['default'].value
    algorithm, size, chunk = typed.value.value
    want(message['data']['default'].tag == 40 and dims == [ROWS, COLS] and size == 2)
    want(typed.value.tag == 56500 and algorithm == 'bslz4', algorithm)
    total, block = struct.unpack('>QI', chunk[:12])
    want(total == 2 * ROWS * COLS, total)
    pixels = bitshuffle.decompress_lz4(numpy.frombuffer(chunk, 'u1', offset=12).copy(),
                                       (ROWS * COLS,), numpy.dtype('u2'), block // 2)
    return message, pixels.view(TAGS[typed.tag]).reshape(ROWS, COLS)


def same_crystfel(messages, arrow, change=lambda pixels: pixels):
    """Compare messages with the file. @return their frames"""
    found = []
    for raw in messages:
        message, pixels = crystfel(raw)
        want_pixels, lists = arrow.images[message['frame']]
        want((pixels == change(want_pixels)).all(), 'pixels of frame', message['frame'])
        for name, (_, dtype) in PEAKS.items():
            got = numpy.array(message['peaks'][name], dtype)
            want(got.tobytes() == lists[name].tobytes(), name, 'of frame', message['frame'])
        want(arrow.frames[message['image_id']] == message['frame'])
        found.append(message['frame'])
    return found


def same_stream2(messages, arrow, change=lambda pixels: pixels):
    """Compare images with the file. @return their frames"""
    found = []
    for raw in messages:
        message, pixels = stream2(raw)
        if message['type'] != 'image':
            continue
        want_pixels, lists = arrow.images[message['frame']]
        want((pixels == change(want_pixels)).all(), 'pixels of frame', message['frame'])
        for name, (_, dtype) in PEAKS.items():
            tagged = message['peaks'][name]
            want(TAGS[tagged.tag] == dtype, name, tagged.tag)
            want(tagged.value == lists[name].tobytes(), name, 'of frame', message['frame'])
        want(arrow.frames[message['image_id']] == message['frame'])
        found.append(message['frame'])
    return found


def same_rows(messages, rows):
    """Compare the columns of `frames` of decoded images."""
    for message in messages:
        columns = rows[message['frame']]
        want({name: message.get(name) for name in columns} == columns, message['frame'], columns)
        if 'type' in message:
            ticks = [columns['detector_time'], columns['exposure']]
            want(message['start_time'] == [ticks[0], 10**7], message['start_time'])
            want(message['real_time'] == [ticks[1], 10**7], message['real_time'])
            want(message['stop_time'] == [sum(ticks), 10**7], message['stop_time'])
            want(message['xfel_pulse_id'] == columns['bunch_id'])


def types(messages):
    return [stream2(raw)[0]['type'] for raw in messages]


@case
def each_image_goes_to_one_worker(where):
    """Workers that ask always, once, and hang, and a killed one. Nothing is lost but what the one that
    hangs has."""
    arrow = Arrow(f'{receive("image")}/lyso_images.arrow')
    os.mkdir(f'{where}/run')
    with Publisher(where, '--crystfel', ANY, f'{where}/run') as p:
        address = p.address['crystfel']
        with other_process(p, 'REQ', 'crystfel', 's.send(b"next")'):
            p.wait_for('requests', 1, 'crystfel')
        p.wait_for('disconnected', 1, 'crystfel')
        hanging = zmq.Context().socket(zmq.REQ)
        hanging.connect(address)
        hanging.send(b'next')
        p.wait_for('requests', 2, 'crystfel')
        fast, slow = Client(zmq.REQ, address), Client(zmq.REQ, address, most=1)
        p.wait_for('requests', 4, 'crystfel')
        run = Growing(arrow, f'{where}/run')
        for _ in arrow.batches:
            run.append()
            time.sleep(.01)
        run.finish()
        p.wait_for('images', len(arrow.frames), 'crystfel')
        p.wait_for_error('run lyso has ended')
        wait('all images', lambda: len(fast.messages) + len(slow.messages) == len(arrow.frames) - 1)
        # what the hanging worker left was not given to another one
        lists = [same_crystfel(c.end(), arrow) for c in (fast, slow)]
        lists.append(same_crystfel([hanging.recv()], arrow))
        want(sorted(sum(lists, [])) == sorted(arrow.frames), lists)
        want(len(lists[1]) == 1, 'a worker that asks once gets one image', lists)
        want(lists[2] == arrow.frames[:1], 'requests are answered in their order', lists)
        stats, out = p.end(signal.SIGTERM)
        want(stats['output_lost_workers{output="crystfel"}'] == 1, out)
        want(f'{len(arrow.frames)} images in {len(arrow.batches)} batches' in out, out)


@case
def stream2_is_shared_and_complete(where):
    arrow = Arrow(f'{receive("image")}/lyso_images.arrow')
    os.mkdir(f'{where}/run')
    with Publisher(where, '--stream2', ANY, f'{where}/run') as p:
        clients = [Client(zmq.PULL, p.address['stream2'], rest=r) for r in (0, .05)]
        # a client that hangs holds only what fits into its queues
        hanging = zmq.Context().socket(zmq.PULL)
        hanging.rcvhwm = 1
        hanging.connect(p.address['stream2'])
        p.wait_for('connected', 3, 'stream2')
        Growing(arrow, f'{where}/run').finish()
        p.wait_for('images', len(arrow.frames), 'stream2')
        p.wait_for_error('run lyso has ended')
        held = []
        while hanging.poll(500):
            held.append(hanging.recv())
        messages = [c.end() for c in clients]
        want(all(len(m) > 2 for m in messages), [len(m) for m in messages])
        every = sum(messages, held)
        want(sorted(same_stream2(every, arrow)) == sorted(arrow.frames))
        want(sorted(set(types(every))) == ['end', 'image', 'start'], types(every))
        want(types(every).count('start') == types(every).count('end') == 1, types(every))
        start = next(stream2(raw)[0] for raw in every if stream2(raw)[0]['type'] == 'start')
        want(start['image_dtype'] == 'int16' and start['error_value'] == -32768, start)
        want((start['image_size_x'], start['image_size_y']) == (COLS, ROWS), start)
        want(abs(start['incident_energy'] - 12400) < 1e-9, start)
        want(start['detector_translation'] == [0, 0, .08633], start)
        want((start['beam_center_x'], start['beam_center_y']) == (515 - 2, 257), start)
        dims, mask = start['pixel_mask']['default'].value
        want(dims == [ROWS, COLS] and len(mask.value) == 4 * ROWS * COLS)
        p.end(signal.SIGINT)


@case
def a_wrong_field_of_stream2_is_found(where):
    """The check of the fields sees each field that is absent or has another type."""
    with Publisher(where, '--stream2', ANY, '--run', 'lyso', receive('image')) as p:
        client = Client(zmq.PULL, p.address['stream2'])
        p.end()
        wait('the end', lambda: types(client.messages[-1:]) == ['end'])
    found = {message['type']: message for message, _ in map(stream2, client.end())}
    want(set(found) == set(FIELDS), list(found))
    for kind, message in found.items():
        for name, field_type in FIELDS[kind].items():
            if name == 'type':
                continue
            without = {key: value for key, value in message.items() if key != name}
            want(mistake_of_stream2(without) == f'{kind}: {name} is absent', kind, name)
            other = 1 if has_type(message[name], REAL) else -1.5
            want(field_type == ANY_TYPE or 'wrong type' in mistake_of_stream2(message | {name: other}),
                 kind, name)
        moved = dict(reversed(message.items()))
        want('first field' in mistake_of_stream2(moved), kind)
    want(mistake_of_stream2(found['start'] | {'pixel_mask': b''}) == 'start: pixel_mask: wrong type')


@case
def images_have_their_rows_of_frames(where):
    """Images wait for their rows, in either order and for a limited time."""
    run = receive('image')
    arrow, rows = Arrow(f'{run}/lyso_images.arrow'), Frames(f'{run}/lyso_frames.arrow')
    want(len(arrow.batches) > 4 and rows.frames[-1] == FRAMES, rows.frames)
    want(any(c['verdict'] == 1 and c['peak_count'] > 0 and c['bunch_id'] > 0 and
             c['detector_time'] > 0 for c in rows.rows.values()), rows.rows)
    # a run that has ended
    with Publisher(where, '--crystfel', ANY, '--stream2', ANY, '--run', 'lyso', '--rows-ms', '60000',
                   run) as p:
        worker = Client(zmq.REQ, p.address['crystfel'])
        client = Client(zmq.PULL, p.address['stream2'])
        stats, out = p.end()
        want(stats['rows'] == FRAMES and 'no_row' not in out, out)
        wait('the end', lambda: types(client.messages[-1:]) == ['end'])
        want(same_stream2(client.end(), arrow) == arrow.frames)
        same_rows([m for m, pixels in map(stream2, client.messages) if pixels is not None], rows.rows)
        wait('images', lambda: len(worker.messages) == len(arrow.frames))
        want(same_crystfel(worker.end(), arrow) == arrow.frames)
        same_rows([crystfel(m)[0] for m in worker.messages], rows.rows)
    os.mkdir(f'{where}/run')
    with Publisher(where, '--crystfel', ANY, '--stream2', ANY, '--rows-ms', '60000',
                   f'{where}/run') as p:
        worker = Client(zmq.REQ, p.address['crystfel'])
        client = Client(zmq.PULL, p.address['stream2'])
        images, frames = Growing(arrow, f'{where}/run'), Growing(rows, f'{where}/run')
        images.append(3)
        p.wait_for('images', sum(b[2] for b in arrow.batches[:3]))
        wait('the start', lambda: client.messages)
        time.sleep(.2)
        want(not worker.messages and types(client.messages) == ['start'], 'images did not wait')
        frames.append(len(rows.batches))
        wait('images', lambda: len(worker.messages) == sum(b[2] for b in arrow.batches[:3]))
        # rows that are first
        images.finish()
        wait('all images', lambda: len(worker.messages) == len(arrow.frames))
        wait('all images', lambda: types(client.messages).count('image') == len(arrow.frames))
        frames.finish()
        want(same_crystfel(worker.end(), arrow) == arrow.frames)
        same_rows([crystfel(m)[0] for m in worker.messages], rows.rows)
        same_rows([m for m, pixels in map(stream2, client.end()) if pixels is not None], rows.rows)
        stats, out = p.end(signal.SIGTERM)
        want(all(stats[f'output_no_row{{output="{o}"}}'] == 0 for o in ('crystfel', 'stream2')), out)


@case
def images_whose_rows_are_late_go_without_them(where):
    run = receive('image')
    arrow, rows = Arrow(f'{run}/lyso_images.arrow'), Frames(f'{run}/lyso_frames.arrow')
    os.mkdir(f'{where}/run')
    with Publisher(where, '--stream2', ANY, '--rows-ms', '300', f'{where}/run') as p:
        client = Client(zmq.PULL, p.address['stream2'])
        images, frames = Growing(arrow, f'{where}/run'), Growing(rows, f'{where}/run')
        first = arrow.batches[0][2]
        images.append()
        wait('images without rows', lambda: types(client.messages).count('image') == first)
        frames.append(len(rows.batches))
        p.wait_for('rows', FRAMES)
        images.finish()
        frames.finish()
        wait('the end', lambda: types(client.messages[-1:]) == ['end'])
        want(same_stream2(client.end(), arrow) == arrow.frames)
        found = [m for m, pixels in map(stream2, client.messages) if pixels is not None]
        want(all('bunch_id' not in m and m['start_time'] == [0, 10**7] for m in found[:first]))
        same_rows(found[first:], rows.rows)
        stats, out = p.end(signal.SIGTERM)
        want(stats['output_no_row{output="stream2"}'] == first, out)


@case
def subscribers_get_all_or_lose_images(where):
    arrow = Arrow(f'{receive("image")}/lyso_images.arrow')
    os.mkdir(f'{where}/run')
    with Publisher(where, '--crystfel-pub', ANY, '--stream2-pub', ANY, '--hwm', '100',
                   '--rows-ms', '0', f'{where}/run') as p:
        run = Growing(arrow, f'{where}/run')
        run.append()
        # nobody is there: the first images are not kept
        p.wait_for('unseen', 1, 'crystfel-pub')
        p.wait_for('unseen', 1, 'stream2-pub')
        live = Client(zmq.SUB, p.address['crystfel-pub'])
        view = Client(zmq.SUB, p.address['stream2-pub'])
        p.wait_for('requests', 1, 'crystfel-pub')
        wait('start for a late subscriber', lambda: len(view.messages) == 1)
        want(types(view.messages) == ['start'])
        run.append(3)
        seen = sum(b[2] for b in arrow.batches[1:4])
        wait('images', lambda: len(live.messages) == seen and len(view.messages) == 1 + seen)
        run.finish()
        wait('the end', lambda: types(view.messages[-1:]) == ['end'])
        first = arrow.batches[0][2]
        want(same_stream2(view.end(), arrow) == arrow.frames[first:])
        wait('all images', lambda: len(live.messages) == len(arrow.frames) - first)
        want(same_crystfel(live.end(), arrow) == arrow.frames[first:])
        p.end(signal.SIGTERM)


@case
def a_hanging_subscriber_does_not_affect_others(where):
    """Its queue fills, which is counted. Others get everything, and memory stays bounded."""
    arrow = Arrow(f'{receive("image")}/lyso_images.arrow')
    os.mkdir(f'{where}/run')
    with Publisher(where, '--crystfel-pub', ANY, '--crystfel', ANY, '--hwm', '2', f'{where}/run') as p, \
            other_process(p, 'SUB', 'crystfel-pub', 's.subscribe(b"")') as hanging:
        p.wait_for('requests', 1, 'crystfel-pub')
        hanging.send_signal(signal.SIGSTOP)
        worker = Client(zmq.REQ, p.address['crystfel'])
        run = Growing(arrow, f'{where}/run')
        for _ in arrow.batches:
            run.append()
            time.sleep(.05)
        run.finish()
        wait('all images', lambda: len(worker.messages) == len(arrow.frames))
        want(same_crystfel(worker.end(), arrow) == arrow.frames)
        p.wait_for('full', 1, 'crystfel-pub')
        _, out = p.end(signal.SIGTERM)
        want('full' in out, out)


@case
def subscribers_without_room_cost_little(where):
    """When no subscriber had room, images are not encoded for up to 200 ms. A new one gets images."""
    os.mkdir(f'{where}/more')
    more = simulated_runs.receive(BUILD, f'{where}/more', 'all', 'output.images_interval=4',
                                  'output.batch_ms=0', *simulated_runs.GEOMETRY,
                                  'peaks.peaks_min=0', 'veto.strong_min=0', frames=80)
    arrow = Arrow(f'{more}/lyso_images.arrow')
    os.mkdir(f'{where}/run')
    with Publisher(where, '--crystfel-pub', ANY, '--hwm', '1', f'{where}/run') as p, \
            other_process(p, 'SUB', 'crystfel-pub', 's.subscribe(b"")') as hanging:
        def counters():
            names = 'images', 'encoded', 'no_room', 'unseen', 'skipped'
            return [p.stats().get(f'output_{n}{{output="crystfel-pub"}}', 0) for n in names]

        def every_image():
            images, _, *others = counters()
            return images + sum(others)
        p.wait_for('requests', 1, 'crystfel-pub')
        hanging.send_signal(signal.SIGSTOP)
        run = Growing(arrow, f'{where}/run')
        begin = time.monotonic()
        run.append(len(arrow.batches) - 1)
        first = arrow.batches[-1][2]
        wait('all images', lambda: every_image() == len(arrow.frames) - first)
        seconds = time.monotonic() - begin
        images, encoded, no_room, unseen, skipped = counters()
        want(no_room > 0 and unseen == skipped == 0, counters())
        # that which filled the queue, 8 attempts within 255 ms, and one each 200 ms
        want(encoded - images <= 10 + seconds / .2, counters(), seconds)
        view = Client(zmq.SUB, p.address['crystfel-pub'])
        p.wait_for('requests', 2, 'crystfel-pub')
        run.finish()
        wait('an image', lambda: view.messages)
        want(set(same_crystfel(view.end(), arrow)) <= set(arrow.frames[-first:]))
        p.end(signal.SIGTERM)


@case
def hostile_requests_are_refused(where):
    arrow = Arrow(f'{receive("image")}/lyso_images.arrow')
    os.mkdir(f'{where}/run')
    with Publisher(where, '--crystfel', ANY, '--stream2', ANY, '--crystfel-pub', ANY,
                   f'{where}/run') as p:
        context = zmq.Context()
        address = p.address['crystfel']
        port = int(address.split(':')[2])
        garbage = [b'GET / HTTP/1.0\r\n\r\n', bytes(range(256)) * 64, b'\xff' * 4096,
                   b'\xff' + bytes(8) + b'\x7f' + b'\x03\x00' + b'\xff' * 200]
        for name in p.address.values():
            for data in garbage:
                with socket.create_connection(('127.0.0.1', int(name.split(':')[2]))) as s:
                    s.sendall(data)
        dealer = context.socket(zmq.DEALER)
        dealer.linger = 0
        dealer.connect(address)
        # no empty part; too many parts; three requests of one worker, of which one waits
        for parts in ([b'x'], [b'x', b'y'], [b'', b'a', b'b', b'c'], [b''],
                      [b'', b'next'], [b'', b'next'], [b'', b'next']):
            dealer.send_multipart(parts)
        p.wait_for('refused', 6, 'crystfel')
        # a request that is too long ends its connection
        long = context.socket(zmq.REQ)
        long.linger = 0
        long.connect(address)
        long.send(bytes(1 << 20))
        p.wait_for('disconnected', 1, 'crystfel')
        worker = Client(zmq.REQ, address)
        p.wait_for('requests', 8, 'crystfel')
        Growing(arrow, f'{where}/run').finish()
        wait('all images', lambda: len(worker.messages) == len(arrow.frames) - 1)
        # the dealer gets one image for its one valid request
        parts = dealer.recv_multipart()
        want(parts[0] == b'' and len(parts) == 2, len(parts))
        want(sorted(same_crystfel(worker.end() + parts[1:], arrow)) == sorted(arrow.frames))
        with socket.create_connection(('127.0.0.1', port)) as s:
            s.sendall(b'\xff')
            p.end(signal.SIGTERM)
        long.close()
        dealer.close()


@case
def runs_that_end_begin_later_and_follow(where):
    """An old run is left out, two later ones are two series, and a named one may have ended."""
    arrow = Arrow(f'{receive("image")}/lyso_images.arrow')
    os.mkdir(f'{where}/run')
    Growing(arrow, f'{where}/run', 'old').finish()
    # the directory of a store has the runs in subfolders, and may not exist yet
    with Publisher(where, '--stream2', ANY, f'{where}/later', f'{where}/run') as p:
        client = Client(zmq.PULL, p.address['stream2'])
        p.wait_for('connected', 1, 'stream2')
        os.makedirs(f'{where}/later/lyso-0-1')
        Growing(arrow, f'{where}/later/lyso-0-1', 'lyso_000001').finish()
        p.wait_for_error('run lyso has ended')
        Growing(arrow, f'{where}/run', 'again').finish()
        wait('two series', lambda: types(client.messages).count('end') == 2, 20)
        maps = [stream2(raw)[0] for raw in client.end()]
        n = len(arrow.frames)
        want([m['type'] for m in maps] == 2 * (['start'] + n * ['image'] + ['end']))
        want([m['series_id'] for m in maps] == (n + 2) * [1] + (n + 2) * [2])
        want(len({m['series_unique_id'] for m in maps}) == 2)
        stats, out = p.end(signal.SIGTERM)
        want(stats['runs'] == 2, out)
    with Publisher(where, '--stream2', ANY, '--run', 'lyso', receive('image')) as p:
        client = Client(zmq.PULL, p.address['stream2'])
        p.end()
        wait('the end', lambda: types(client.messages[-1:]) == ['end'])
        want(same_stream2(client.end(), arrow) == arrow.frames)


@case
def a_run_that_has_not_begun_is_reported(where):
    run = receive('image')
    kept = Arrow(f'{run}/lyso_images.arrow').frames
    with Publisher(where, '--stream2', ANY, '--run', 'lyso', f'{where}/later') as p:
        client = Client(zmq.PULL, p.address['stream2'])
        p.wait_for_error(fr'waiting for run lyso in {where}/later \(it does not exist yet\) and its '
                         r'subfolders: a file lyso\*_images.arrow')
        shutil.copytree(run, f'{where}/later')
        p.end()
        wait('the end', lambda: types(client.messages[-1:]) == ['end'])
        client.end()
        want(p.error().count('waiting') == 1, p.error())
    with Publisher(where, '--stream2', ANY, '--run', 'lyso', run) as p:
        p.wait_for_error(f'--stream2 {p.address["stream2"]}: {len(kept)} images wait for clients')
        client = Client(zmq.PULL, p.address['stream2'])
        p.end()
        client.end()
        want('waiting' not in p.error(), p.error())
    # a run that has ended is no run to publish without --run
    with Publisher(where, '--stream2', ANY, run) as p:
        p.wait_for_error(f'waiting for runs that are written in {run} and its subfolders; --run NAME')
        p.end(signal.SIGTERM)


@case
def a_batch_is_published_when_it_is_whole(where):
    arrow = Arrow(f'{receive("image")}/lyso_images.arrow')
    os.mkdir(f'{where}/run')
    with Publisher(where, '--crystfel', ANY, f'{where}/run') as p:
        worker = Client(zmq.REQ, p.address['crystfel'])
        run = Growing(arrow, f'{where}/run')
        run.append(until=4096)
        time.sleep(.1)
        # its last block is there, and the middle is not
        first, last, images = arrow.batches[0]
        os.pwrite(run.fd, arrow.data[last - 4096:last], last - 4096)
        time.sleep(.2)
        want(worker.messages == [], 'a batch that was not whole')
        run.append()
        wait('the batch', lambda: len(worker.messages) == images)
        # an application may lock the file meanwhile: the publisher has no lock
        fcntl.fcntl(run.fd, fcntl.F_OFD_SETLK, struct.pack('hhqqi4x', fcntl.F_WRLCK, 0, 0, 0, 0))
        # the writer is killed within a batch
        run.append(until=8192)
        os.close(run.fd)
        p.wait_for_error('run lyso has ended')
        want(same_crystfel(worker.end(), arrow) == arrow.frames[:images])
        stats, out = p.end(signal.SIGTERM)
        want(stats['damaged_batches'] == 1, out)


@case
def damage_loses_only_its_batch(where):
    arrow = Arrow(f'{receive("image")}/lyso_images.arrow')
    os.makedirs(f'{where}/run')
    data = bytearray(arrow.data)
    data[arrow.batches[1][0] + 20000] ^= 1               # a body
    data[arrow.batches[3][0] + 40] ^= 1                  # an announcement
    data[arrow.batches[5][0]:arrow.batches[5][1]] = bytes(arrow.batches[5][1] - arrow.batches[5][0])
    with open(f'{where}/run/lyso_images.arrow', 'wb') as stream:
        stream.write(data)
    frames, at = [], 0
    for number, (_, _, images) in enumerate(arrow.batches):
        if number not in (1, 3, 5):
            frames += arrow.frames[at:at + images]
        at += images
    with Publisher(where, '--crystfel', ANY, '--run', 'lyso', f'{where}/run') as p:
        worker = Client(zmq.REQ, p.address['crystfel'])
        stats, out = p.end()
        want(stats['damaged_batches'] == 3, out, p.error())
        wait('images', lambda: len(worker.messages) == len(frames))
        got = [crystfel(raw)[0]['frame'] for raw in worker.end()]
        want(got == frames, got)
        want('damaged at offset' in p.error())


@case
def a_copy_that_grows_under_its_name_is_published(where):
    arrow = Arrow(f'{receive("image")}/lyso_images.arrow')
    os.mkdir(f'{where}/run')
    with Publisher(where, '--crystfel', ANY, f'{where}/run') as p:
        worker = Client(zmq.REQ, p.address['crystfel'])
        with open(f'{where}/run/lyso_images.arrow', 'wb', buffering=0) as stream:
            for at in range(0, len(arrow.data), len(arrow.data) // 20):
                stream.write(arrow.data[at:at + len(arrow.data) // 20])
                time.sleep(.02)
        p.wait_for_error('run lyso has ended')
        wait('images', lambda: len(worker.messages) == len(arrow.frames))
        want(same_crystfel(worker.end(), arrow) == arrow.frames)
        stats, _ = p.end(signal.SIGTERM)
        want(stats['damaged_batches'] == 0, p.error())


@case
def a_torn_copy_ends(where):
    arrow = Arrow(f'{receive("image")}/lyso_images.arrow')
    os.mkdir(f'{where}/run')
    with Publisher(where, '--crystfel', ANY, f'{where}/run') as p:
        worker = Client(zmq.REQ, p.address['crystfel'])
        with open(f'{where}/run/lyso_images.arrow', 'wb') as stream:
            stream.write(arrow.data[:arrow.batches[2][1] - 512])
        p.wait_for_error('run lyso has ended')
        stats, _ = p.end(signal.SIGTERM)
        want(stats['damaged_batches'] == 1 and stats['batches'] == 2, stats, p.error())
        worker.end()


@case
def ends_of_unknown_subscriptions_are_ignored(where):
    arrow = Arrow(f'{receive("image")}/lyso_images.arrow')
    os.mkdir(f'{where}/run')
    with Publisher(where, '--stream2-pub', ANY, '--hwm', '100', f'{where}/run') as p:
        view = Client(zmq.SUB, p.address['stream2-pub'])
        p.wait_for('requests', 1, 'stream2-pub')
        # handshakes that fail, and a subscriber that only ends subscriptions
        for _ in range(3):
            with connect(p.address['stream2-pub']) as s:
                s.sendall(b'GET / HTTP/1.0\r\n\r\n')
        p.wait_for('disconnected', 3, 'stream2-pub')
        with peer(p.address['stream2-pub'], b'SUB') as s:
            s.sendall(b'\x00\x01\x00' * 5)
            p.wait_for('requests', 6, 'stream2-pub')
            Growing(arrow, f'{where}/run').finish()
            wait('the end', lambda: types(view.messages[-1:]) == ['end'])
        want(same_stream2(view.end(), arrow) == arrow.frames)
        stats, _ = p.end(signal.SIGTERM)
        want(stats['output_unseen{output="stream2-pub"}'] == 0, stats)


@case
def an_output_that_is_over_stops_no_other(where):
    """Nothing reads the reports of connections of an output that has sent all. They must not stop
    the I/O thread."""
    arrow = Arrow(f'{receive("image")}/lyso_images.arrow')
    with Publisher(where, '--crystfel', ANY, '--stream2', ANY, '--run', 'lyso', receive('image')) as p:
        client = Client(zmq.PULL, p.address['stream2'])
        wait('the end', lambda: types(client.messages[-1:]) == ['end'])
        client.end()
        # more than the 2000 reports that wait
        for _ in range(1100):
            with connect(p.address['stream2']) as s:
                s.settimeout(20)
                s.recv(1)
        worker = Client(zmq.REQ, p.address['crystfel'])
        wait('images', lambda: len(worker.messages) == len(arrow.frames), 20)
        want(same_crystfel(worker.end(), arrow) == arrow.frames)
        p.end()


@case
def requests_of_workers_that_vanished_are_dropped(where):
    """More workers ask and vanish than requests may wait: a later one gets images, and the one that
    waited before them is still connected."""
    arrow = Arrow(f'{receive("image")}/lyso_images.arrow')
    os.mkdir(f'{where}/run')
    with Publisher(where, '--crystfel', ANY, f'{where}/run') as p:
        request = b'\x01\x00\x00\x04next'
        stays = Client(zmq.REQ, p.address['crystfel'], most=1)
        p.wait_for('requests', 1, 'crystfel')
        for _ in range(4096):
            with peer(p.address['crystfel'], b'REQ') as s:
                s.sendall(request)
        worker = Client(zmq.REQ, p.address['crystfel'])
        p.wait_for('requests', 4098, 'crystfel')
        Growing(arrow, f'{where}/run').finish()
        # the first request is answered before that of the worker
        wait('images', lambda: len(worker.messages) == len(arrow.frames) - 1, 20)
        want(same_crystfel(worker.end(), arrow) == arrow.frames[1:])
        wait('the first image', lambda: stays.messages)
        want(same_crystfel(stays.end(), arrow) == arrow.frames[:1])
        p.end(signal.SIGTERM)


@case
def a_flood_of_subscriptions_is_ended(where):
    """ZeroMQ keeps subscriptions in a tree that needs 30 times their size."""
    port = free_port()
    flood(where, f'tcp://127.0.0.2:{port}', f'tcp://127.0.0.1:{port}')


@case
def a_flood_of_a_local_socket_is_ended(where):
    """Its path ends as the address of the other output."""
    port = free_port()
    flood(where, f'ipc://{where}/socket:{port}', f'tcp://127.0.0.1:{port}')


def free_port():
    with socket.create_server(('127.0.0.1', 0)) as s:
        return s.getsockname()[1]


def flood(where, address, other):
    """Send subscriptions to an output until its clients are disconnected. Those of the other output
    stay connected."""
    arrow = Arrow(f'{receive("image")}/lyso_images.arrow')
    os.mkdir(f'{where}/run')
    with Publisher(where, '--stream2-pub', address, '--crystfel-pub', other, '--hwm', '100',
                   f'{where}/run') as p:
        stays = Client(zmq.SUB, p.address['crystfel-pub'])
        p.wait_for('requests', 1, 'crystfel-pub')
        view = Client(zmq.SUB, p.address['stream2-pub'])
        p.wait_for('requests', 1, 'stream2-pub')
        hostile = peer(p.address['stream2-pub'], b'SUB')
        hostile.settimeout(60)
        try:
            for _ in range(8000):
                hostile.sendall(b'\x02' + struct.pack('>Q', 4090) + b'\x01' + os.urandom(4089))
            raise AssertionError('32 MB of subscriptions were taken')
        except OSError:
            hostile.close()
        p.wait_for_error('--stream2-pub ...://.* subscriptions.* disconnected, and may connect again')
        # the viewer connects and subscribes again
        p.wait_for('connected', 3, 'stream2-pub')
        requests = p.stats()['output_requests{output="stream2-pub"}']
        p.wait_for('requests', requests, 'stream2-pub')
        Growing(arrow, f'{where}/run').finish()
        wait('the end', lambda: types(view.messages[-1:]) == ['end'])
        want(same_stream2(view.end(), arrow) == arrow.frames)
        with open(f'/proc/{p.process.pid}/status', encoding='ascii') as stream:
            most = int(re.search(r'VmHWM:\s+(\d+)', stream.read())[1]) >> 10
        want(most < 700, most, 'MiB')
        stats, _ = p.end(signal.SIGTERM)
        want(stats['output_disconnected{output="crystfel-pub"}'] == 0, p.error())
        stays.end()


@case
def images_wait_while_clients_have_all_descriptors(where):
    run = receive('image')
    arrow, rows = Arrow(f'{run}/lyso_images.arrow'), Frames(f'{run}/lyso_frames.arrow')
    os.mkdir(f'{where}/run')
    with Publisher(where, '--crystfel', ANY, '--stream2', ANY, '--rows-ms', '60000', f'{where}/run',
                   f'{where}/later') as p:
        worker = peer(p.address['crystfel'], b'REQ')
        Growing(rows, f'{where}/run').finish()
        Growing(arrow, f'{where}/run').finish()
        p.wait_for('rows', FRAMES)
        p.wait_for_error('run lyso has ended')
        resource.prlimit(p.process.pid, resource.RLIMIT_NOFILE, (100, 100))
        clients = [connect(p.address['stream2']) for _ in range(100)]
        wait('no descriptor', lambda: len(os.listdir(f'/proc/{p.process.pid}/fd')) == 100)
        worker.sendall(b'\x01\x00\x00\x04next')
        p.wait_for_error('Too many open files')
        os.mkdir(f'{where}/later')
        Growing(rows, f'{where}/later', 'later').finish()
        Growing(arrow, f'{where}/later', 'later').finish()
        p.wait_for_error('later.*Too many open files; end clients, or raise the limit')
        for s in clients:
            s.close()
        others = Client(zmq.REQ, p.address['crystfel'])
        wait('images', lambda: len(others.messages) == 2 * len(arrow.frames) - 1)
        want(same_crystfel(others.end(), arrow) == arrow.frames[1:] + arrow.frames)
        same_rows([crystfel(m)[0] for m in others.messages], rows.rows)
        stats, out = p.end(signal.SIGTERM)
        want(all(stats[f'output_{name}{{output="crystfel"}}'] == 0 for name in ('gone', 'no_row')), out)
        worker.close()


@case
def what_is_no_file_is_reported(where):
    os.mkdir(f'{where}/run')
    with Publisher(where, '--crystfel', ANY, f'{where}/run', f'{where}/later') as p:
        with open(f'{where}/later', 'wb'):
            pass
        p.wait_for_error('later: cannot be listed yet: Not a directory; expected a directory')
        os.mkfifo(f'{where}/run/fifo_images.arrow')
        os.mkdir(f'{where}/run/folder_images.arrow')
        os.mkfifo(f'{where}/run/part_images.arrow.part')
        for text in ('fifo_images.arrow: it is not a regular file', 'folder_images.arrow: Is a directory',
                     'part_images.arrow: it is not a regular file'):
            p.wait_for_error(text)
        p.end(signal.SIGTERM)


@case
def late_workers_get_the_newest_images(where):
    arrow = Arrow(f'{receive("image")}/lyso_images.arrow')
    os.mkdir(f'{where}/run')
    with Publisher(where, '--crystfel', ANY, '--stream2', ANY, '--behind', '5', f'{where}/run') as p:
        run = Growing(arrow, f'{where}/run')
        run.append(len(arrow.batches) - 1)
        ready = len(arrow.frames) - arrow.batches[-1][2]
        p.wait_for('images', ready)
        worker = Client(zmq.REQ, p.address['crystfel'])

        def last():
            return worker.messages and crystfel(worker.messages[-1])[0]['frame']

        wait('the newest image', lambda: last() == arrow.frames[ready - 1])
        run.finish()
        wait('the last image', lambda: last() == arrow.frames[-1])
        got = [crystfel(raw)[0]['frame'] for raw in worker.end()]
        newest = arrow.frames[ready - 5:]
        # one image may have been encoded before more of them waited
        want(got[-len(newest):] == newest and len(got) <= len(newest) + 1, got)
        p.wait_for('skipped', 1, 'crystfel')
        p.end(signal.SIGTERM)


@case
def files_that_vanish_are_counted(where):
    arrow = Arrow(f'{receive("image")}/lyso_images.arrow')
    os.mkdir(f'{where}/run')
    with Publisher(where, '--crystfel', ANY, f'{where}/run') as p:
        Growing(arrow, f'{where}/run').finish()
        p.wait_for_error('run lyso has ended')
        os.unlink(f'{where}/run/lyso_images.arrow')
        worker = Client(zmq.REQ, p.address['crystfel'])
        p.wait_for('gone', 1, 'crystfel')
        # the batch that was read last is in memory
        wait('the others', lambda: len(worker.messages) + p.stats()['output_gone{output="crystfel"}']
             == len(arrow.frames))
        p.end(signal.SIGTERM)
        worker.end()


@case
def a_receiver_is_followed(where):
    """The files of a run while braggline-recv writes them."""
    receive('image')
    runs['live'] = f'{where}/live'
    os.mkdir(runs['live'])
    with Publisher(where, '--crystfel', ANY, '--stream2-pub', ANY, '--hwm', '100', '--geom',
                   f'{where}/live.geom', runs['live']) as p:
        worker = Client(zmq.REQ, p.address['crystfel'])
        view = Client(zmq.SUB, p.address['stream2-pub'])
        p.wait_for('requests', 1, 'stream2-pub')
        del runs['live']
        home, runs['where'] = runs['where'], where
        try:
            for name in os.listdir(home):
                if os.path.isfile(f'{home}/{name}'):
                    os.link(f'{home}/{name}', f'{where}/{name}')
            receive('live', 'output.sync_ms=50')
        finally:
            runs['where'] = home
            live = runs.pop('live')
        arrow = Arrow(f'{live}/lyso_images.arrow')
        wait('images', lambda: len(worker.messages) == len(arrow.frames))
        wait('the end', lambda: types(view.messages[-1:]) == ['end'], 20)
        want(same_crystfel(worker.end(), arrow) == arrow.frames)
        want(same_stream2(view.end(), arrow) == arrow.frames)
        p.end(signal.SIGTERM)
        with open(f'{where}/live.geom', encoding='ascii') as stream:
            text = stream.read()
        want('data = detector_data\n' in text and 'peak_list = peaks\n' in text and 'dim' not in text)


@case
def images_arrive_soon(where):
    """Times from the end of the write of a batch, and from its discovery, to two workers. They
    depend on the load of the machine, so only a time that no load explains is an error."""
    arrow = Arrow(f'{receive("image")}/lyso_images.arrow')
    os.mkdir(f'{where}/run')
    with Publisher(where, '--crystfel', ANY, f'{where}/run') as p:
        workers = [Client(zmq.REQ, p.address['crystfel']) for _ in range(2)]
        p.wait_for('requests', 2, 'crystfel')
        run = Growing(arrow, f'{where}/run')
        written, at = {}, 0
        for _, _, images in arrow.batches:
            time.sleep(.05)
            run.append()
            for frame in arrow.frames[at:at + images]:
                written[frame] = time.time_ns()
            at += images
        run.finish()
        wait('images', lambda: sum(len(w.messages) for w in workers) == len(arrow.frames))
        times = [(message['seen_ns'], written[message['frame']], then) for w in workers
                 for message, then in zip((crystfel(raw)[0] for raw in w.messages), w.times)]
        for name, which in (('found', 0), ('written', 1)):
            ms = sorted((t[2] - t[which]) / 1e6 for t in times)
            print(f'  {name} to worker: p50 {ms[len(ms) // 2]:.2f}, p95 {ms[int(len(ms) * .95)]:.2f}, '
                  f'longest {ms[-1]:.2f} ms')
            want(ms[len(ms) // 2] < 2000, ms)
        for w in workers:
            w.end()
        p.end(signal.SIGTERM)


def publish_kind(where, name, setting, value, kind, change, *options):
    """Publish a run with another kind of images. @return its directory and file"""
    run = receive(name, setting)
    arrow = Arrow(f'{run}/lyso_images.arrow', value, kind)
    with Publisher(where, '--crystfel', ANY, '--stream2', ANY, '--run', 'lyso', *options, run) as p:
        worker = Client(zmq.REQ, p.address['crystfel'])
        client = Client(zmq.PULL, p.address['stream2'])
        p.end()
        wait('images', lambda: len(worker.messages) == len(arrow.frames))
        wait('the end', lambda: types(client.messages[-1:]) == ['end'])
        want(same_crystfel(worker.end(), arrow, change) == arrow.frames, name)
        want(same_stream2(client.end(), arrow, change) == arrow.frames, name)
        want(crystfel(worker.messages[0])[0]['sparse'] == (name == 'csr'), name)
        start, _ = stream2(client.messages[0])
        want(start['image_dtype'] == ('uint16' if name == 'raw' else 'int16'), start)
    return run, arrow


@case
def csr_images_are_expanded(where):
    publish_kind(where, 'csr', 'output.format=csr', 'i2', 'csr', lambda p: p)


@case
def plain_images_of_older_versions_are_published(where):
    publish_kind(where, 'plain', 'output.compress=no', 'i2', 'image', lambda p: p)


@case
def float_images_are_rounded(where):
    publish_kind(where, 'float', 'output.value=float32', 'f4', 'image', int16)


@case
def raw_images_are_published_on_demand(where):
    run, arrow = publish_kind(where, 'raw', 'output.format=raw', 'u2', 'raw', lambda p: p, '--raw')
    # without --raw such a run has no images, which is reported
    with Publisher(where, '--stream2', ANY, '--run', 'lyso', run) as p:
        client = Client(zmq.PULL, p.address['stream2'])
        stats, _ = p.end()
        want(stats['images'] == 0 and stats['other_kind'] == len(arrow.frames), stats)
        want('raw images, which are left out' in p.error(), p.error())
        client.end()


@case
def mistakes_are_reported(where):
    for options, text in (
            ((), 'expected a directory'),
            (('--crystfel', 'localhost:1', where), '--crystfel localhost:1: expected tcp://HOST:PORT'),
            (('--crystfel', 'tcp://127.0.0.1:99999', where), ':99999: expected tcp://HOST:PORT with a port of 1 to'),
            (('--stream2', 'tcp://127.0.0.1', where), '127.0.0.1: expected tcp://HOST:PORT with a port of 1 to'),
            (('--hwm', '0', where), '--hwm 0: expected 1 to 1000'),
            (('--behind', '-1', where), '--behind -1: expected a number'),
            (('--poll-ms', '2s', where), '--poll-ms 2s: expected 1 to 1000'),
            (('--rows-ms', '60001', where), '--rows-ms 60001: expected 0 to 60000'),
            (('--run', 'a/b', where), '--run a/b: expected the name'),
            (('--zmq', where), 'an option is unknown'),
            ((where, __file__), f'argument {__file__}: expected a directory')):
        done = subprocess.run([PUBLISH, *options], capture_output=True, text=True, timeout=20, check=False)
        want(done.returncode == 2 and text in done.stderr, options, done)
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        s.listen()
        address = f'tcp://127.0.0.1:{s.getsockname()[1]}'
        done = subprocess.run([PUBLISH, '--crystfel', ANY, '--stream2', address, where],
                              capture_output=True, text=True, timeout=20, check=False)
        want(done.returncode == 1 and f'--stream2 {address}: cannot be bound' in done.stderr, done)
    with open('/dev/full', 'wb') as full:
        done = subprocess.run([PUBLISH, '--crystfel', ANY, where], stdout=full, stderr=subprocess.PIPE,
                              text=True, timeout=20, check=False)
    want(done.returncode == 1 and 'standard output: No space left' in done.stderr, done)
    # a FIFO, like a device, keeps its name
    os.mkfifo(f'{where}/stats.prom')
    with Publisher(where, '--crystfel', ANY, where) as p:
        p.wait_for_error('--stats .*: cannot be written: it is not a regular file')
        p.process.send_signal(signal.SIGTERM)
        want(p.process.wait(20) == 0, p.error())
    want(stat.S_ISFIFO(os.stat(f'{where}/stats.prom').st_mode), 'the FIFO was replaced')


def oracle(name):
    if not os.path.exists(f'{ORACLES}/{name}'):
        raise Skipped(f'../shared/oracles/{name} is absent')
    return f'{ORACLES}/{name}'


@case
def stream2_oracle(where):
    """An independent client reads all messages."""
    program = oracle('stream2-open.py')
    arrow = Arrow(f'{receive("image")}/lyso_images.arrow')
    for kind, options in (('stream2', []), ('stream2-pub', ['--sub'])):
        os.mkdir(f'{where}/{kind}')
        with Publisher(where, f'--{kind}', ANY, '--hwm', '100', f'{where}/{kind}') as p:
            client = subprocess.Popen(['/usr/bin/python3', program, *options, p.address[kind]],
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            p.wait_for('connected', 1, kind)
            if options:
                p.wait_for('requests', 1, kind)
            Growing(arrow, f'{where}/{kind}').finish()
            out, _ = client.communicate(timeout=60)
            want(client.returncode == 0, out)
            want(f'{len(arrow.frames) + 2} messages, {len(arrow.frames)} images, 0 problems' in out, out)
            p.end(signal.SIGTERM)


@case
def crystfel_oracle(where):
    """A stand-in for indexamajig finds the same peaks."""
    program = oracle('crystfel-live.py')
    try:
        __import__('h5py')
    except ImportError as missing:
        raise Skipped('python3-h5py is absent') from missing
    arrow = Arrow(f'{receive("image")}/lyso_images.arrow')
    count = 4
    for kind, options in (('crystfel', ['--request', 'next']), ('crystfel-pub', ['--subscribe', ''])):
        os.mkdir(f'{where}/{kind}')
        geom = f'{where}/{kind}.geom'
        with Publisher(where, f'--{kind}', ANY, '--geom', geom, '--hwm', '100', f'{where}/{kind}') as p:
            run = Growing(arrow, f'{where}/{kind}')
            wait('the geometry', lambda g=geom: os.path.exists(g))
            client = subprocess.Popen(['/usr/bin/python3', program, p.address[kind], *options,
                                       '--geom', geom, '--count', str(count), '--timeout', '20'],
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            p.wait_for('requests', 1, kind)
            run.finish()
            out, _ = client.communicate(timeout=60)
            lines = [line for line in out.splitlines() if 'WRONG' in line]
            # this oracle takes its own default `dims` for a line of the geometry
            want(all('no dim lines' in line for line in lines), out)
            want(f'{count} messages, {len(lines)} problems' in out, out)
            want(out.count('peakfinder8') == count, out)
            p.end(signal.SIGTERM)


if __name__ == '__main__':
    import tempfile
    with tempfile.TemporaryDirectory() as directory:
        runs['where'] = directory
        sys.exit(run_cases(sys.argv[2:]))
