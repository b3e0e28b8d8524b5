#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The page of braggline-view in headless Chromium: its pixels are those of the run's files, it
follows a receiver, and it can be used with a keyboard and on a small screen.

usage: view_browser_test.py BUILD-DIR [CASE]...

VIEW_SCREENSHOTS=DIR keeps pictures of the page.
"""

import contextlib
import itertools
import json
import os
import re
import signal
import subprocess
import sys

import browser

why = browser.missing()
try:
    import numpy
    from arrow_batches import batches
    from view_server import SETTINGS, opened, remove_live_file, serving
except ImportError as error:
    why = f'{error}: install python3-numpy'
if why:
    print(f'skipped: {why}')
    sys.exit(77)

import receiver  # noqa: E402
from cases import case, run_cases, wait, want  # noqa: E402
from telemetry_peer import answering, reply  # noqa: E402

BUILD = os.path.abspath(sys.argv[1])
SHOTS = os.environ.get('VIEW_SCREENSHOTS')
LCORES = f'(0-1)@(0-{os.cpu_count() - 1})'
ROWS, COLS = 512, 1024
SOCKET = f'/var/run/dpdk/braggline_test_{os.getpid()}/dpdk_telemetry.v2'
TOKEN = 'correct-horse-battery-staple'
HIGH = 0.5  # photons
MASKED = 0xff6e4a2f
GAP = 0xff362f2b


@contextlib.contextmanager
def running(*settings):
    with receiver.running(BUILD, *SETTINGS, 'lcores.idle=yield', 'veto.dry_run=yes', *settings,
                          lcores=LCORES) as r:
        yield r
        r[0].kill()
        r[0].wait(30)
    remove_live_file()


@contextlib.contextmanager
def page_of(*options, **size):
    """Yields a page and its server, whose console has no error at the end."""
    with serving(BUILD, SOCKET, '--nice', '0', *options) as server, browser.running(**size) as page:
        page.open(server.url)
        yield page, server
        errors = [e for e in page.errors() if 'net::ERR' not in e and ' 503 ' not in e
                  and ' 404 ' not in e]
        want(not errors, errors)


def start(telemetry, where, name, *settings):
    telemetry.do(','.join([f'run/configure,run.name={name}', f'output.directory={where}',
                           *settings]))
    telemetry.do('run/start')


def text(page, selector):
    return page.run('return document.querySelector(arguments[0]).textContent', selector)


def frame(page):
    """Number of the frame that the page shows, None: none."""
    return page.run('const p = braggline.picture; return (p.data || p.cells) && Number(p.frame)')


def keep(page, name):
    if SHOTS:
        page.screenshot(f'{SHOTS}/{name}.png')


def images(path):
    """{frame: pixels} of a file of full float32 images"""
    found = {}
    for rows, values in batches(path):
        number, value = values(1, 'u8'), values(15, 'f4')
        for row in range(rows):
            found[int(number[row])] = value[row * ROWS * COLS:(row + 1) * ROWS * COLS] \
                .reshape(ROWS, COLS)
    return found


def placed(pixels):
    """The picture of one module: gaps of 2 pixels between chips of 256."""
    picture = numpy.full((514, 1030), numpy.nan, 'f8')
    gap = numpy.ones(picture.shape, bool)
    for y in range(2):
        for x in range(4):
            at = numpy.s_[258 * y:258 * y + 256, 258 * x:258 * x + 256]
            picture[at] = pixels[256 * y:256 * y + 256, 256 * x:256 * x + 256]
            gap[at] = False
    return picture, gap


@case
def pixels_are_those_of_the_file(where):
    with running() as (_, telemetry, data), page_of() as (page, server):
        start(telemetry, where, 'full', 'output.format=image')
        # the page follows the receiver
        first = wait('a frame', lambda: frame(page))
        wait('another frame', lambda: frame(page) > first)
        points = 'return Math.max(0, ...[...braggline.plots.plots.values()].map(p => p.data[0].length))'
        before = page.run(points)
        wait('plots move', lambda: page.run(points) > before + 3)
        titles = page.run('return [...document.querySelectorAll(".plot")].map(p => p.dataset.title)')
        want({'Hit rate', 'Frames', 'Packets', 'Load of lcores', 'Missing packets',
              'Strong pixels of frames', 'Peaks of frames'} <= set(titles), titles)
        drawn = page.run('return [...document.querySelectorAll(".plot canvas")].every(c => '
                         'c.getContext("2d").getImageData(0, 0, c.width, c.height).data.some(v => v))')
        want(drawn, 'a plot is empty')
        telemetry.do('run/stop')
        telemetry.wait('idle')
        last = server('/api/v1/sources/r/frame').tensors()[0]['frame']
        wait('the last frame', lambda: frame(page) == int(last))
        keep(page, 'page')
        # one pixel of the canvas for each pixel of the picture
        page.run('''for (const [id, value] of arguments[0]) {
              const e = document.getElementById(id);
              if (e.type === 'checkbox') e.checked = value; else e.value = value;
              e.dispatchEvent(new Event('change'));
            }''', [('scale', 'linear'), ('limits', 'manual'), ('low', '0'), ('high', str(HIGH)),
                   ('rings', False), ('peaks', False)])
        page.run('''
            const p = braggline.picture, c = p.canvas;
            p.zoom = 1;
            p.x = 300 + c.width / 2 % 1; p.y = 257 + c.height / 2 % 1;
            p.fitted = false;
            p.later();''')
        wait('single pixels', lambda: page.run(
            'const c = braggline.picture.cells; return c.bin === 1 && c.cols > 600'))
        width, height, left, top, colours, pixels = page.run('''
            const p = braggline.picture, c = p.canvas;
            p.draw();
            const data = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
            return [c.width, c.height, -p.screenX(0), -p.screenY(0), [...braggline.colours],
              [...new Uint32Array(data.buffer)]];''')
        picture, gap = placed(images(f'{where}/full_images.arrow')[int(last)])
        want(left % 1 == 0 and top % 1 == 0, left, top)
        shown = numpy.array(pixels, 'u4').reshape(height, width)
        y0, x0 = max(0, int(top)), max(0, int(left))
        y1, x1 = min(514, int(top) + height), min(1030, int(left) + width)
        shown = shown[y0 - int(top):y1 - int(top), x0 - int(left):x1 - int(left)]
        want(shown.size > 200000, shown.shape)
        picture, gap = picture[y0:y1, x0:x1], gap[y0:y1, x0:x1]
        nothing = numpy.isnan(picture)
        index = numpy.clip(numpy.where(nothing, 0, picture) * (255 / HIGH), 0, 255).astype(int)
        wanted = numpy.array(colours, 'u4')[index]
        wanted[nothing] = MASKED
        wanted[gap] = GAP
        different = numpy.argwhere(shown != wanted)
        want(len(different) == 0, len(different), 'pixels differ, the first at', different[:1],
             [hex(a[tuple(d)]) for d in different[:1] for a in (shown, wanted)])
        want(len(numpy.unique(shown)) > 40, 'few colours')


@case
def keyboard_and_small_screen(where):
    with running() as (_, telemetry, data), page_of() as (page, server):
        start(telemetry, where, 'one', 'output.format=image')
        wait('a frame', lambda: frame(page))
        telemetry.do('run/stop')
        telemetry.wait('idle')
        last = server('/api/v1/sources/r/frame').tensors()[0]['frame']
        wait('the last frame', lambda: frame(page) == int(last))
        active = 'return document.activeElement.id'
        seen = []
        while page.run(active) != 'picture':
            page.keys('Tab')
            seen.append(page.run(active))
            want(len(seen) < 30, seen)
        want({'plane', 'scale', 'limits', 'rings', 'peaks', 'zoom-in', 'fit'} <= set(seen), seen)
        zoom = page.run('return braggline.picture.zoom')
        page.keys('+', '+', '+', '+')
        want(abs(page.run('return braggline.picture.zoom') / zoom - 16) < 1e-6)
        page.keys('Right', 'Right', 'Down')
        at = wait('the value', lambda: (at := page.run('return braggline.picture.pixel()'))['what']
                  != 'unknown' and at)
        pixels = images(f'{where}/one_images.arrow')[int(last)]
        if at['value'] is not None:
            want(abs(pixels[at['row'], at['column']] - at['value']) < 1e-6, at)
        want('photons' in text(page, '#cursor') or at['what'] != 'value', text(page, '#cursor'))
        want(f'x {at["x"]}, y {at["y"]}' in text(page, '#cursor'), text(page, '#cursor'), at)
        want('Å' in text(page, '#cursor'), text(page, '#cursor'))
        page.keys('Left')
        want(page.run('return braggline.picture.pixel().x') == at['x'] - 1)
        x = page.run('return braggline.picture.x')
        page.keys('Right', shift=True)
        want(page.run('return braggline.picture.x') > x, 'Shift does not pan')
        page.keys('0')
        want(page.run('return braggline.picture.fitted'))
        # another plane with the keyboard
        page.run('document.getElementById("plane").focus()')
        page.keys('Down')
        want(page.run('return document.getElementById("plane").value') == 'maximum')
        start(telemetry, where, 'two')
        wait('the maximum', lambda: 'kept frames' in text(page, '#facts'))
        keep(page, 'maximum')

        page.size(390, 844)
        wait('a narrow page', lambda: page.run('return innerWidth') == 390)
        wide = page.run('''return [...document.querySelectorAll(
            'select, input, button, canvas, section, p, dl')].filter(e => {
              const box = e.getBoundingClientRect();
              return box.width > 0 && (box.right > 391 || box.left < -1) && !e.closest('.u-legend');
            }).map(e => e.id || e.outerHTML.slice(0, 80))''')
        want(not wide, 'wider than the screen:', wide)
        want(page.run('return document.documentElement.scrollWidth') <= 390)
        keep(page, 'small')


@case
def a_receiver_that_dies_is_shown(where):
    os.umask(0o077)
    with open(f'{where}/token', 'w', encoding='ascii') as stream:
        stream.write(TOKEN)
    with page_of('--token-file', f'{where}/token', '--control') as (page, server):
        server.token = TOKEN
        wait('the form', lambda: page.run('return !document.getElementById("login").hidden'))
        page.errors()  # 401 is one
        page.run('document.getElementById("token").focus()')
        page.keys(*TOKEN, 'Enter')
        hidden = 'return document.getElementById("alert").hidden'
        wait('the alert', lambda: not page.run(hidden) and 'down' in text(page, '#alert'))
        for run in 'one', 'two':
            with running() as (process, telemetry, data):
                wait('no alert', lambda: page.run(hidden))
                # the page starts the run
                page.run('document.getElementById("parameters").value = arguments[0]',
                         f'run.name={run},output.directory={where}')
                page.click('button[value="/braggline/run/configure"]')
                wait('configured', lambda: 'configure: done' in text(page, '#command-reply'))
                page.click('button[value="/braggline/run/start"]')
                wait('started', lambda: 'start: done' in text(page, '#command-reply'))
                telemetry.wait('running')
                first = wait('a frame', lambda: frame(page))
                wait('frames', lambda: frame(page) not in (first, None))
                want(text(page, '#run-name') == run, text(page, '#run-name'))
                process.send_signal(signal.SIGKILL)
                process.wait(30)
                wait('the alert', lambda: not page.run(hidden))
                want(text(page, '#state') == 'down')
        keep(page, 'down')


@case
def nexus_files_are_opened(where):
    os.umask(0o077)
    with open(f'{where}/token', 'w', encoding='ascii') as stream:
        stream.write(TOKEN)
    with running('output.format=image') as (process, telemetry, data):
        start(telemetry, where, 'full', 'run.frames=24')
        telemetry.wait('idle')
        stored = telemetry.get('ledger')['frames']['stored']
        want(stored > 10, stored)
    subprocess.run([f'{BUILD}/app/export/braggline-export', '--images-per-file', '5', '--output',
                    where, where], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
    with page_of('--token-file', f'{where}/token', '--runs', where) as (page, server):
        wait('the form', lambda: page.run('return !document.getElementById("login").hidden'))
        page.errors()  # 401 is one
        page.run('document.getElementById("token").focus()')
        page.keys(*TOKEN, 'Enter')
        wait('the list', lambda: page.run('return document.querySelectorAll("#runs td").length'))
        cells = page.run('return [...document.querySelectorAll("#runs td")].map(c => c.textContent)')
        want(cells[0] == 'full' and cells[3:5] == [str(stored)] * 2, cells)
        page.run('document.getElementById("runs").scrollIntoView()')
        keep(page, 'runs')
        # a file is saved, with the token
        page.run("""URL.createObjectURL = blob => { window.saved = blob; return 'data:,'; };
            const choice = document.querySelector('#runs select');
            choice.value = 'full_frames.arrow';""")
        page.click('#runs button')
        wait('the file', lambda: page.run('return window.saved?.size ?? 0') ==
             os.stat(f'{where}/full_frames.arrow').st_size)
        page.size(390, 844)
        wait('a narrow page', lambda: page.run('return innerWidth') == 390)
        want(page.run('return document.documentElement.scrollWidth') <= 390, 'wider than the screen')
        page.size(1280, 900)
        # the keyboard opens the file
        active = 'return document.activeElement.textContent'
        page.run('document.querySelector("#stores-section").focus();'
                 'document.getElementById("one").focus()')
        for _ in range(20):
            page.keys('Tab')
            if page.run(active) == 'full_master.h5':
                break
        want(page.run(active) == 'full_master.h5', page.run(active))
        page.keys('Enter')
        wait('H5Web', lambda: page.run('return document.title === "full_master.h5" && '
                                       '!!window.braggline?.api'))
        want(page.run('return document.getElementById("alert").hidden'), text(page, '#alert'))
        wait('the image', lambda: page.run('return !!document.querySelector("#file canvas")'))
        # pixels of the first and the last data file
        frames = images(f'{where}/full_images.arrow')
        for number in 0, len(frames) - 1:
            values = page.run_async(f"""
                const dataset = await braggline.api.getEntity('/entry/data/data');
                const values = await braggline.api.getValue({{ dataset, selection: '{number},:,:' }});
                return [dataset.shape, [...values]];""")
            want(isinstance(values, list), values)
            want(values[0] == [len(frames), ROWS, COLS], values[0])
            pixels = frames[sorted(frames)[number]].astype('f8')
            wanted = numpy.where(numpy.isnan(pixels), -32768,
                                 numpy.sign(pixels) * numpy.floor(numpy.abs(pixels) + 0.5))
            shown = numpy.array(values[1]).reshape(ROWS, COLS)
            good = ~numpy.isnan(pixels) & numpy.isfinite(pixels)
            want((shown[good] == wanted[good]).all(), 'image', number, 'differs')
        wait('a scale without invalid pixels', lambda: '-3.277e+4' not in text(page, '#file') and
             '\u22123.277e+4' not in text(page, '#file'))
        keep(page, 'nexus')
        page.size(390, 844)
        wait('a narrow page', lambda: page.run('return innerWidth') == 390)
        want(page.run('return document.documentElement.scrollWidth') <= 390, 'wider than the screen')
        keep(page, 'nexus_small')
        # files that are not in the list
        for name in 'secret.h5', '../token':
            page.open(f'{server.url}h5.html?directory=0&file={name}')
            wait('the alert', lambda: 'not a file of a finished run' in text(page, '#alert'))
        want(not [e for e in page.errors() if 'WebGL' not in e and 'ReadPixels' not in e],
             'errors of the page')


MARKUP = '<img src=x onerror="window.injected=1"></td></dd><script>window.injected=1</script>'


def markup(value):
    """The value with markup in all texts and names that a source can choose."""
    if isinstance(value, dict):
        return {key: markup(v) for key, v in value.items()} | {MARKUP: 1}
    return MARKUP if isinstance(value, str) else value


REPLIES = {
    '/braggline/run/status': {'name': 'x', 'directory': 'x', 'state': 'x', 'message': 'x',
                              'warning': 'x', 'first_frame': 'x', 'seconds': '1'},
    '/braggline/lcores': {'1': {'busy_cycles': 1, 'idle_cycles': 1, 'roles': 'x'}},
    '/braggline/ledger': {'frames': {'hits': 1}, 'packets': {'received': 1}},
    '/braggline/modules': {'0': {'missing_packets': 1}},
    '/braggline/latency': {'below_us': [1, 2], 'all': {'0': 1, '1': 1}, 'all_sum_us': 2},
    '/braggline/egress': {'active': 1, 'stores': {'0': {'bytes_per_s': 1, 'state': 'x'}}},
    '/braggline/veto': {'mode': 'x'}, '/braggline/info': {'version': 'x'}}


@case
def other_programs_are_shown(where):
    """Sources that are no receivers hide nothing of others, and cannot put markup into the page."""
    counter = itertools.count(1)

    def hostile(command):
        value = markup(REPLIES.get(command, {}))
        n = next(counter)
        return reply(command, json.loads(re.sub(r': 1\b', f': {n}', json.dumps(value))))
    with answering(f'{where}/null', lambda command: reply(command, None)), \
            answering(f'{where}/good', lambda command: reply(command, REPLIES.get(command, {}))), \
            answering(f'{where}/hostile', hostile), \
            serving(BUILD, f'{where}/null', '--nice', '0', '--receiver', f'good={where}/good',
                    '--receiver', f'hostile={where}/hostile') as server, browser.running() as page:
        page.open(server.url)
        # as any DPDK program answers commands that it does not know
        wait('an alert', lambda: 'unexpected replies' in text(page, '#alert'))
        want(text(page, '#state') == 'up', text(page, '#state'))
        names = wait('all sources', lambda: (n := page.run(
            'return [...document.getElementById("source").options].map(o => o.value)')) and
            len(n) == 3 and n)

        def select(name):
            want(name in names, names)
            page.run('const s = document.getElementById("source"); s.value = arguments[0];'
                     's.dispatchEvent(new Event("change"))', name)
            wait('the run', lambda: page.run('return document.querySelectorAll("#run dt").length'))
        select('good')
        wait('a name', lambda: text(page, '#run-name') == 'x')
        want(page.run('return document.getElementById("alert").hidden'), text(page, '#alert'))
        select('hostile')
        wait('the text', lambda: text(page, '#run-name') == MARKUP)
        wait('labels', lambda: page.run(
            'return [...document.querySelectorAll(".u-label")].some(l => l.textContent.includes("<img"))'))
        wait('settings', lambda: MARKUP in text(page, '#settings') and MARKUP in text(page, '#stores'))
        want(page.run('return document.querySelectorAll("img, body script").length === 0'), 'markup')
        want(page.run('return window.injected === undefined'), 'a script ran')
        errors = page.errors()
        want(not errors, errors)
        page.open('about:blank')
        with opened(server, '/api/v1/events', 16):
            page.open(server.url)
            wait('the reason', lambda: text(page, '#state').startswith('busy'), 20)
        wait('a place again', lambda: text(page, '#state') == 'up')
        # a page that the browser keeps connects again
        page.open('about:blank')
        page.run('history.back()')
        wait('the page again', lambda: page.run('return location.href') == server.url and
             text(page, '#state') == 'up')
        page.errors()
        # the policy of the page is a second line: it forbids scripts in the text
        page.run('document.body.insertAdjacentHTML("beforeend", arguments[0]);'
                 'const s = document.createElement("script");'
                 's.textContent = "window.injected = 1"; document.body.append(s)', MARKUP)
        wait('a report', page.errors)
        want(page.run('return window.injected === undefined'), 'the policy allows scripts')


if __name__ == '__main__':
    sys.exit(run_cases(sys.argv[2:]))
