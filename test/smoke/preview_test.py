#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The preview picture of a running receiver: telemetry names its path, it is complete at any time,
and it does not delay the run.

usage: preview_test.py BUILD-DIR
"""

import os
import shutil
import signal
import struct
import sys
import time
import zlib

import cases
from cases import want
from receiver import running

BUILD = sys.argv[1]
PATIENCE = 60
# two images, one below the other, with margins of so many sizes of the font; then the legend
FONT = 1024 // 55
SIZE = (5 * FONT + 1024 + 15 * FONT // 2, 2 * (5 * FONT // 2 + 512 + 4 * FONT) + 3 * FONT)
# two polling threads only: the preview runs at the lowest priority
LCORES = f'(0-1)@(0-{os.cpu_count() - 1})'


def png(path):
    """@return the size of a PNG, after checking its chunks, checksums and length"""
    with open(path, 'rb') as f:
        data = f.read()
    want(data[:8] == b'\x89PNG\r\n\x1a\n', 'no PNG')
    at, pixels, size, kind = 8, b'', None, None
    while kind != b'IEND':
        length, kind = struct.unpack('>I4s', data[at:at + 8])
        body = data[at + 8:at + 8 + length]
        crc, = struct.unpack('>I', data[at + 8 + length:at + 12 + length])
        want(zlib.crc32(kind + body) == crc, 'CRC of', kind)
        if kind == b'IHDR':
            width, height, depth, colour = struct.unpack('>IIBB', body[:10])
            want((depth, colour) == (8, 2), 'not RGB')
            size = width, height
        if kind == b'IDAT':
            pixels += body
        at += 12 + length
    want(at == len(data), 'bytes after the end')
    want(len(zlib.decompress(pixels)) == size[1] * (1 + 3 * size[0]), 'bytes of the picture')
    return size


def wait(t, what):
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        preview = t.get('preview')
        if what(preview):
            return preview
        time.sleep(0.02)
    raise AssertionError(f'in vain: {preview}')


def start(t, where, name, *settings):
    t.do(f'run/configure,run.name={name},output.directory={where},output.preview_s=0.2,'
         'veto.dry_run=yes' + ''.join(f',{s}' for s in settings))
    t.do('run/start')


def stop(t):
    t.do('run/stop')
    return t.wait('idle')


def session(t, where):
    want(t.get('preview')['sequence'] == 0 and t.get('preview')['path'] == '')
    # one run: pictures follow each other, the number of frames grows
    start(t, where, 'one')
    first = wait(t, lambda p: p['sequence'] > 0)
    want(first['path'] == f'{where}/one_preview.png' and first['active'] == 1, first)
    want(png(first['path']) == SIZE, png(first['path']))
    then = wait(t, lambda p: p['sequence'] >= first['sequence'] + 2)
    want(then['frame'] > first['frame'] and then['frames'] > first['frames'], first, then)
    want(png(then['path']) == SIZE)
    want(stop(t)['failed'] == 0)
    # the last picture has all frames of the run, except those for which no grant was left
    stored = t.get('ledger')['frames']['stored']
    last = wait(t, lambda p: p['frames'] + p['skipped'] == stored)
    want(last['active'] == 0 and last['errors'] == 0, last)
    one = png(last['path'])

    # full images, and a path from the settings
    start(t, where, 'two', 'output.format=image', f'output.preview={where}/live.png')
    two = wait(t, lambda p: p['sequence'] > last['sequence'] + 1)
    want(two['path'] == f'{where}/live.png' and png(two['path']) == SIZE, two)
    stop(t)
    stored = t.get('ledger')['frames']['stored']
    wait(t, lambda p: p['frames'] + p['skipped'] == stored)
    # raw output has no preview, nor has a run whose preview is off
    for name, setting in ('three', 'output.format=raw'), ('four', 'output.preview=off'):
        before = wait(t, lambda p: p['active'] == 0)['sequence']
        start(t, where, name, setting)
        time.sleep(0.5)
        want(t.get('preview')['sequence'] == before, name)
        stop(t)
        want(not os.path.exists(f'{where}/{name}_preview.png'))
    want(png(f'{where}/one_preview.png') == one)
    # the last picture of a run is written after the run has ended
    cases.wait('no unfinished picture',
               lambda: not [f for f in os.listdir(where) if 'png' in f and f.endswith('.part')])

    # the directory is removed: this is reported, with no other effect
    gone = f'{where}/gone'
    start(t, gone, 'five', f'output.preview={where}/there/x.png')
    wrong = wait(t, lambda p: p['errors'] > 0)
    want('there/x.png' in ''.join(wrong[k] for k in wrong if k.startswith('error_') or
                                  k == 'error'), wrong)
    os.mkdir(f'{where}/there')
    wait(t, lambda p: p['error'] == '' and p['path'] == f'{where}/there/x.png')
    shutil.rmtree(f'{where}/there')
    shutil.rmtree(gone)
    wait(t, lambda p: p['errors'] > wrong['errors'])
    t.do('run/stop')
    t.wait('idle')
    start(t, where, 'six')
    wait(t, lambda p: p['path'] == f'{where}/six_preview.png')


def main():
    with running(BUILD, lcores=LCORES) as (process, telemetry, where):
        session(telemetry, where)
        process.send_signal(signal.SIGTERM)
        # the run whose directory was removed has failed
        want(process.wait(30) == 1, 'status', process.returncode)
        want(png(f'{where}/six_preview.png') == SIZE)
        want(not [f for f in os.listdir(where) if f.endswith('.part')], os.listdir(where))
        with open(f'{where}/log', encoding='utf-8') as log:
            text = log.read()
        # summaries name the pictures of their runs, not those of the process's settings
        for name in 'one_preview.png', 'live.png', 'six_preview.png':
            want(f'  {where}/{name}\n' in text, name, text)
        want('run_preview.png' not in text and 'four_preview.png' not in text, text)
    print('pictures of six runs: ok')


main()
