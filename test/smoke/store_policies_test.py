#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The policies `primary` and `by_frame` with two stores. The store that receives the batches is
killed and the other one takes over. After its restart it receives its own share again. In the end
each batch is in the files exactly once. Telemetry and the exporter's metrics of all three programs
are checked meanwhile.

The test does not depend on timing: it waits for states that must be reached.

usage: store_policies_test.py BUILD-DIR ENDPOINT-FILE ENDPOINT-FILE-OF-STORES
"""

import os
import re
import subprocess
import sys

import chain
import exporter_test
import monitoring
import world
from cases import wait, want

ENOUGH = 10  # batches
INTERVAL = 4


class Shares:
    """Batches of each store, as the receiver reports them."""

    def __init__(self, w):
        self.recv = w.ask('recv0')
        wait('a view of the stores', lambda: len(self.recv.get('egress')['stores']) == 2)

    def now(self):
        stores = self.recv.get('egress')['stores']
        return [stores[str(i)] for i in range(2)]

    def some(self, to, none=()):
        """Wait until the stores in `to` have more batches; those in `none` get nothing meanwhile.
        """
        begin = self.now()

        def ready():
            nonlocal begin
            now = self.now()
            if any(now[i]['sent'] != begin[i]['sent'] for i in none):
                begin = now
            return all(now[i]['durable'] >= begin[i]['durable'] + ENOUGH for i in to)
        wait(f'batches for stores {to} alone', ready)


def check_fields(reply, what, *names):
    want(all(name in reply for name in names), what, reply, 'expected', *names)


def telemetry(w, endpoint, of_stores, of_rdma):
    """Telemetry of both sides, while batches go to store 0."""
    recv, store = w.ask('recv0'), w.ask('store0')

    def rates():
        e, s = recv.get('egress')['stores']['0'], store.get('store')
        return e['bytes_per_s'] > 0 and e['durable_per_s'] > 0 and s['body_bytes_per_s'] > 0
    wait('rates on both sides', rates)
    e = recv.get('egress')
    want(e['active'] == 1 and e['overload_level'] == 'hold' and e['runs'] == 1, e)
    want(e['journal']['put'] >= e['journal']['released'] > 0 and e['journal']['room'] > 0, e)
    want(sum(e['kept_to_durable']) > 0 and len(e['below_us']) == len(e['kept_to_durable']), e)
    first = e['stores']['0']
    check_fields(first, 'a store', 'waiting', 'found', 'duplicates', 'returned', 'refused', 'malformed', 'late')
    with open(f'{w.directories[0]}/.identity', encoding='ascii') as identity:
        want(first['identity'] == identity.read().strip(), 'not who it is:', first)
    want(first['state'] == 'up' and first['connections'] > 0, first)
    want(0 <= first['credits'] <= first['slots'] and first['slots'] > 0, first)

    s = store.get('store')
    want(s['alarm'] == 'none' and s['connections_established'] > 0 and s['batches_durable'] > 0, s)
    check_fields(s, 'store', 'reconciliations', 'batches_truncated', 'batches_duplicate', 'batches_returned')
    connection, = store.get('store/connections').values()
    want(connection['slots'] == connection['credits'] + connection['pending'] > 0, connection)
    want(connection['images_durable'] > 0, connection)
    streams = store.get('store/streams')
    want(sum(streams['received_to_durable']) > 0, streams)
    images = [x for x in streams.values() if isinstance(x, dict) and x['connected']]
    want(images and all(x['files'] > 0 and x['batches'] > 0 and x['io'] for x in images), images)
    check_fields(images[0], 'stream', 'pending', 'files_complete', 'syncs', 'truncated', 'error', 'quota_used')

    module = exporter_test.load(endpoint)
    values, replies = exporter_test.collect(module, recv)
    exporter_test.check(values, replies)
    series = monitoring.series_of(endpoint, values)
    for one in replies['/braggline/egress']['stores'].values():
        labels = frozenset({('store', one['address'])})
        want(values['egress_store_durable_batches_total', labels] == one['durable'], one)
        want(values['egress_store_up', labels] == (one['state'] == 'up'), one)
    want(module.metrics(exporter_test.Sock(store)) == [], 'a store is no receiver')
    module = exporter_test.load(of_stores)
    values, replies = exporter_test.collect(module, store)
    exporter_test.check_store(values, replies)
    series.update(monitoring.series_of(of_stores, values))
    documented(f'{w.build}/app/store/braggline-store',
               {**replies, '/braggline/rdma': store.get('rdma')})
    for process in recv, store:
        exporter_test.check_rdma(exporter_test.load(of_rdma), process, active=True)
    values, _ = exporter_test.collect(exporter_test.load(of_rdma), store)
    # alerts and dashboards name nothing else
    monitoring.check(os.path.dirname(endpoint), {
        **series, **monitoring.series_of(of_rdma, values)})
    values, _ = exporter_test.collect(module, store)
    want(values['durable_batches_total', frozenset()] > 0 and values['streams', frozenset()] > 0, values)


def documented(program, replies):
    """Every key of a reply is listed in the README's row of its command."""
    table = subprocess.run([program, '--', '--list-telemetry'], check=True, text=True,
                           stdout=subprocess.PIPE).stdout
    rows = {m[1]: set(re.findall(r'\w+', m[0]))
            for m in re.finditer(r'^``(/[^,`]+).*\n(?: .*\n)+', table, re.M)}
    for command, reply in replies.items():
        if command == '/':
            continue
        # nested dicts that are keyed by number; causes share one word
        keys = {re.sub('^(refused|descriptors)_.*', r'\1', key) if command == '/braggline/store' else key
                for name, value in reply.items()
                for key in (value if re.match('[0-9]', name) else [name])}
        known = {re.sub('_(REASON|FAULT)$', '', word) for word in rows[command]}
        want(keys <= known, command, 'has', *sorted(keys - known), 'which the table does not name')


def primary(w, endpoints):
    shares = Shares(w)
    shares.some([0], none=[1])
    telemetry(w, *endpoints)
    w.kill('store0')
    shares.some([1])
    w.launch('store0')
    shares.some([0], none=[1])


def by_frame(w, known):
    shares = Shares(w)
    wait('both stores', lambda: all(s['state'] == 'up' for s in shares.now()))
    known.append(chain.ledger(w.ring(0))['retained'])
    # some of the first batches are from before
    shares.some([0, 1])
    shares.some([0, 1])
    w.kill('store1')
    wait('its absence', lambda: shares.now()[1]['state'] != 'up')
    shares.some([0])
    w.launch('store1')
    shares.some([0, 1])
    known.append(shares.now()[0]['broken'])


def look_by_frame(w, known):
    """Each batch is in the store that its first frame selects, except while that store was away."""
    begin, broken = known
    count = [[0, 0], [0, 0]]  # by selected store and actual store
    for store, directory in enumerate(w.directories):
        for _, _, path in chain.files(directory):
            for batch in chain.batches(path):
                frame = batch.column(chain.FRAME, 'Q')[0]
                count[frame // INTERVAL % 2][store] += frame > begin + INTERVAL
    print('by_frame: batches of store 0 in stores 0, 1:', count[0], 'of store 1:', count[1])
    want(count[0][0] >= ENOUGH and count[1][1] >= 2 * ENOUGH, count)
    # on a machine that paused, store 0 may have been disconnected as well
    want(count[0][1] == 0 or broken > 0, count, broken)
    want(count[1][0] > 0, count)


def main():
    build, *endpoints = sys.argv[1:5]
    world.play(build, 1, 2, lambda w: primary(w, endpoints), telemetry=True,
               egress__policy='primary')
    known = []
    world.play(build, 1, 2, lambda w: by_frame(w, known), lambda w: look_by_frame(w, known),
               telemetry=True, egress__policy='by_frame', egress__interval=INTERVAL)


if __name__ == '__main__':
    world.inside(main)
