#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Opens the page of an installed braggline-view in headless Chromium: frames of a running receiver
must follow each other, and its plots must move. deb_test.sh runs it in the network of its container.

usage: deb_page.py URL SCREENSHOT
"""

import os
import sys

sys.path.insert(0, f'{os.path.dirname(os.path.abspath(__file__))}/../smoke')

import browser  # noqa: E402
from cases import wait, want  # noqa: E402

WAIT = 15  # s
FRAME = 'const p = braggline.picture; return (p.data || p.cells) && Number(p.frame)'
POINTS = 'return Math.max(0, ...[...braggline.plots.plots.values()].map(p => p.data[0].length))'

why = browser.missing()
if why:
    print(f'skipped: {why}')
    sys.exit(77)
url, path = sys.argv[1:]
with browser.running() as page:
    page.open(url)
    first = wait('a frame', lambda: page.run(FRAME), WAIT)
    wait('another frame', lambda: page.run(FRAME) > first, WAIT)
    before = page.run(POINTS)
    wait('plots that move', lambda: page.run(POINTS) > before + 3, WAIT)
    page.screenshot(path)
    errors = page.errors()
    want(not errors, errors)
