# SPDX-License-Identifier: BSD-3-Clause
"""Headless Chromium, driven by chromedriver over W3C WebDriver (HTTP and JSON)."""

import base64
import contextlib
import json
import re
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request

import background

CHROMIUM = shutil.which('chromium')
DRIVER = shutil.which('chromedriver')
# without these, Chromium connects to hosts of its vendor, and needs /dev/shm and a sandbox
FLAGS = ['--headless=new', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
         '--disable-background-networking', '--disable-component-update', '--disable-sync',
         '--disable-dev-shm-usage', '--disable-extensions', '--mute-audio',
         '--force-device-scale-factor=1']
ELEMENT = 'element-6066-11e4-a52e-4f735466cecf'
KEYS = {'Tab': '\ue004', 'Enter': '\ue007', 'Left': '\ue012', 'Up': '\ue013', 'Right': '\ue014',
        'Down': '\ue015', 'Space': ' '}


def missing():
    """@return what is missing to run a browser, '' if nothing is"""
    names = [name for name, path in (('chromium', CHROMIUM), ('chromedriver', DRIVER)) if not path]
    return f'{" and ".join(names)} not found (Debian: chromium-driver)' if names else ''


class Browser:
    def __init__(self, port, folder, width, height):
        self.base = f'http://127.0.0.1:{port}'
        options = {'binary': CHROMIUM, 'args': [*FLAGS, f'--user-data-dir={folder}',
                                                f'--window-size={width},{height}']}
        self.session = self.call('POST', '/session', {'capabilities': {'alwaysMatch': {
            'browserName': 'chrome', 'goog:chromeOptions': options,
            'goog:loggingPrefs': {'browser': 'ALL'}}}})['sessionId']
        self.base += f'/session/{self.session}'

    def call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, {'Content-Type': 'application/json'},
                                         method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:
                return json.load(reply)['value']
        except urllib.error.HTTPError as error:
            raise AssertionError(json.load(error)['value']['message']) from None

    def open(self, url):
        self.call('POST', '/url', {'url': url})

    def run(self, script, *arguments):
        """Run a function body in the page. @return its value"""
        return self.call('POST', '/execute/sync', {'script': script, 'args': arguments})

    def run_async(self, script, *arguments):
        """The same, for a body with await."""
        return self.call('POST', '/execute/async', {
            'script': f'const done = arguments[arguments.length - 1];(async () => {{{script}}})()'
                      '.then(done, error => done(String(error)));', 'args': arguments})

    def find(self, selector):
        return self.call('POST', '/element', {'using': 'css selector',
                                              'value': selector})[ELEMENT]

    def click(self, selector):
        self.call('POST', f'/element/{self.find(selector)}/click', {})

    def keys(self, *names, shift=False):
        """Press keys, one after the other, on what has the focus."""
        actions = [{'type': 'keyDown', 'value': '\ue008'}] if shift else []
        for name in names:
            value = KEYS.get(name, name)
            actions += [{'type': 'keyDown', 'value': value}, {'type': 'keyUp', 'value': value}]
        actions += [{'type': 'keyUp', 'value': '\ue008'}] if shift else []
        self.call('POST', '/actions', {'actions': [{'type': 'key', 'id': 'k', 'actions': actions}]})

    def size(self, width, height):
        """Size of the page, not of the window."""
        self.call('POST', '/goog/cdp/execute', {'cmd': 'Emulation.setDeviceMetricsOverride',
                  'params': {'width': width, 'height': height, 'deviceScaleFactor': 1,
                             'mobile': False}})

    def errors(self):
        """Errors and warnings of the console since the last call."""
        return [entry['message'] for entry in self.call('POST', '/se/log', {'type': 'browser'})
                if entry['level'] in ('SEVERE', 'WARNING')]

    def screenshot(self, path):
        with open(path, 'wb') as stream:
            stream.write(base64.b64decode(self.call('GET', '/screenshot')))


@contextlib.contextmanager
def running(width=1280, height=900):
    """Yields a Browser."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, \
            background.start([DRIVER, '--port=0'], stdout=subprocess.PIPE, text=True,
                             stderr=subprocess.DEVNULL) as driver:
        try:
            for line in driver.stdout:
                match = re.search(r'started successfully on port (\d+)', line)
                if match:
                    break
            else:
                raise AssertionError('chromedriver has ended')
            browser = Browser(match[1], folder, width, height)
            try:
                yield browser
            finally:
                browser.call('DELETE', '')
        finally:
            driver.terminate()
