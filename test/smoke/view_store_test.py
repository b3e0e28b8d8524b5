#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""braggline-view with a store: what the page says of a store and of a receiver that sends to it is
what their telemetry sockets say. The store is killed and comes back.

usage: view_store_test.py BUILD-DIR
"""

import subprocess
import sys

import world
from cases import wait, want

try:
    from view_server import serving
except ImportError as error:
    print(f'skipped: {error}: install python3-numpy')
    sys.exit(77)

import browser  # noqa: E402

# numbers of telemetry that never decrease, by command
ASCENDING = {
    ('s', '/braggline/store'): ('batches_durable', 'body_bytes', 'runs_opened'),
    ('r', '/braggline/ledger'): ()}


def socket_of(w, name):
    return f'/var/run/dpdk/{w.prefix(name)}/dpdk_telemetry.v2'


def numbers(reply, path=''):
    """{path: number} of all numbers in a reply"""
    if isinstance(reply, dict):
        items = reply.items()
    elif isinstance(reply, list):
        items = enumerate(reply)
    else:
        return {path: reply} if isinstance(reply, (int, float)) else {}
    return {k: v for name, value in items for k, v in numbers(value, f'{path}/{name}').items()}


class Page:
    """Replies of the server, which are compared with those of the sockets."""

    def __init__(self, w, server):
        self.w = w
        self.server = server

    def __call__(self, source, command):
        answer = self.server(f'/api/v1/sources/{source}/telemetry?command={command}')
        return answer.json()[command] if answer.status == 200 else None

    def state(self, source):
        return self.server.get(f'sources/{source}')['state']

    def compare(self, source, name, command):
        """A reply of the page is one between two of the socket."""
        ask = self.w.ask(name)
        before = ask(command)[command]
        # a reply that the server has got since
        seen = [self(source, command)]

        def changed():
            seen.append(self(source, command))
            return seen[-1] is not None and all(
                seen[-1].get(key, 0) >= value for key, value in counters(before).items())
        wait(f'{command} of {name}', changed)
        after = ask(command)[command]
        page = seen[-1]
        want(type(page) is type(after) and set(page) == set(after), command, set(page) ^ set(after))
        for key, value in counters(after).items():
            want(counters(before)[key] <= page[key] <= value, command, key, before[key], page[key],
                 value)
        for key, value in after.items():
            if isinstance(value, str) and before[key] == value:
                want(page[key] == value, command, key, page[key], value)
        return page


def counters(reply):
    """The counters among the values: integers whose name is one of a count."""
    return {key: value for key, value in reply.items() if isinstance(value, int) and
            key.startswith(('batches_', 'runs_', 'body_bytes', 'body_crc', 'connections_accepted'))
            and not key.endswith('_per_s')}


def histogram(page, name, w):
    """Latencies of the page are those of the socket."""
    command = '/braggline/egress'
    ask = w.ask('recv0')
    # the receiver learns later than the store that a batch is durable
    before = wait('a latency', lambda: sum((
        now := numbers(ask(command)[command]['kept_to_durable'])).values()) and now)
    value = wait('latencies', lambda: (now := page('r', command)) and
                 (found := numbers(now['kept_to_durable'])) and
                 all(found[k] >= v for k, v in before.items()) and found)
    after = numbers(ask(command)[command]['kept_to_durable'])
    want(all(before[k] <= value[k] <= after[k] for k in after), name, before, value, after)
    want(sum(value.values()) > 0, 'no latency')


def look(w, page):
    """The page in a browser shows the store's numbers."""
    if browser.missing():
        return
    with browser.running() as b:
        b.open(page.server.url)
        wait('the table of stores', lambda: b.run(
            'return document.querySelectorAll("#stores tr").length') >= 2)
        titles = wait('plots', lambda: (t := b.run(
            'return [...document.querySelectorAll(".plot")].map(p => p.dataset.title)')) and
            {'To stores', 'Journal'} <= set(t) and t)
        want('Kept to durable, 99 %' in titles or wait('latencies', lambda: b.run(
            'return [...document.querySelectorAll(".plot")].some(p => '
            'p.dataset.title.startsWith("Kept to durable"))')), titles)
        b.run('const s = document.getElementById("source"); s.value = "s";'
              's.dispatchEvent(new Event("change"))')
        identity = w.ask('store0')('/braggline/store')['/braggline/store']['identity']
        wait('the identity', lambda: identity in b.run(
            'return document.getElementById("run").textContent'))
        want(b.run('return document.getElementById("picture-section").hidden'), 'a picture of a store')
        w.kill('store0')
        wait('the alert', lambda: not b.run('return document.getElementById("alert").hidden'))
        w.launch('store0')
        wait('no alert', lambda: b.run('return document.getElementById("alert").hidden'))


def story(w):
    subprocess.run(['ip', 'link', 'set', 'lo', 'up'], check=True)
    with serving(w.build, socket_of(w, 'recv0'), '--nice', '0', '--store',
                 f's={socket_of(w, "store0")}') as server:
        page = Page(w, server)
        wait('both', lambda: page.state('r') == page.state('s') == 'up')
        durable = wait('durable batches', lambda: (r := page('s', '/braggline/store')) and
                       r['batches_durable'])
        page.compare('s', 'store0', '/braggline/store')
        page.compare('s', 'store0', '/braggline/store/streams')
        histogram(page, 'recv0', w)
        direct = w.ask('recv0')('/braggline/egress')['/braggline/egress']
        egress = page('r', '/braggline/egress')
        want(set(numbers(direct['journal'])) == set(numbers(egress['journal'])), egress['journal'])
        look(w, page)
        # it is killed: the page shows this, and that batches wait in the receiver's journal
        w.kill('store0')
        wait('down', lambda: page.state('s') == 'down')
        want(page('s', '/braggline/store') is None, 'old telemetry of a store that is down')
        wait('batches that wait', lambda: page('r', '/braggline/egress')['journal']['batches'] > 2)
        want(page.state('r') == 'up')
        w.launch('store0')
        wait('up', lambda: page.state('s') == 'up')
        wait('durable batches', lambda: (r := page('s', '/braggline/store')) and
             r['batches_durable'] > 0)
        page.compare('s', 'store0', '/braggline/store')
        want(durable > 0)


def main():
    world.play(sys.argv[1], 1, 1, story, telemetry=True)


world.inside(main)
