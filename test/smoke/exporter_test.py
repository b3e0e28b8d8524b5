#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The endpoint files of DPDK's exporter, loaded and called as by the exporter, with a running
receiver; and braggline-exporter with the same receiver.

usage: exporter_test.py BUILD-DIR ENDPOINT-FILE ENDPOINT-FILE-OF-STORES ENDPOINT-FILE-OF-RDMA
"""

import copy
import importlib.util
import os
import re
import signal
import sys

try:
    import exporter
except ImportError as error:
    print(f'skipped: {error}: install python3-prometheus-client')
    sys.exit(77)

from cases import wait, want
from receiver import running

LCORES = f'(0-1)@(0-{os.cpu_count() - 1})'


class Sock:
    """The object that the exporter passes to metrics(): cmd(uri, arg=None) returns the reply as
    Python values."""

    def __init__(self, telemetry):
        self.telemetry = telemetry
        self.replies = {}

    def cmd(self, uri, arg=None):
        want(arg is None, 'every command is without a parameter')
        self.replies[uri] = self.telemetry(uri)[uri]
        # a copy, as the endpoint may modify it
        return copy.copy(self.replies[uri])


def load(endpoint):
    name = os.path.splitext(os.path.basename(endpoint))[0]
    spec = importlib.util.spec_from_file_location(name, endpoint)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def collect(module, telemetry):
    """Values by metric and labels. Checks the forms that the exporter relies on."""
    sock, info, values = Sock(telemetry), module.info(), {}
    for name, (description, kind) in info.items():
        want(re.fullmatch(r'[a-z_]+', name) and kind in ('counter', 'gauge'), name, kind)
        # part of a histogram, or as Prometheus wants counters
        want(name.startswith('latency_') or name.endswith('_total') == (kind == 'counter'), name)
        want(description and '\n' not in description, name)
    for name, value, labels in module.metrics(sock):
        want(name in info, name, 'is not in info()')
        want(isinstance(value, (int, float)), name, value)
        key = name, frozenset((k, str(v)) for k, v in labels.items())
        want(key not in values, name, labels, 'twice')
        values[key] = value
    missing = set(info) - {name for name, _ in values}
    if not sock.replies.get('/braggline/egress', {'active': 1})['active']:
        missing = {name for name in missing if not name.startswith('egress_store_')}
    want(not missing, 'no value of', missing)
    return values, sock.replies


def check_rdma(module, telemetry, active):
    """The counters of `roce` appear, in the groups of the endpoint."""
    def at(event):
        return values['events_total', frozenset({('event', event)})]

    if not active:
        reply = telemetry.get('rdma')
        want(reply['active'] == 0 and list(module.metrics(Sock(telemetry))) == [], reply)
        return
    values, replies = collect(module, telemetry)
    reply = replies['/braggline/rdma']
    want(reply['active'] == 1, reply)
    want(reply['provider'] == 'roce' and reply['device'].startswith('roce:port='), reply)
    counters = reply['counters']
    want(len(counters) > 80 and counters['rx_packets'] > 0 and counters['cm_connected'] > 0, reply)
    for direction in 'rx', 'tx':
        want(values['packets_total', frozenset({('direction', direction)})]
             == counters[f'{direction}_packets'], counters)
    want(at('retransmit') == counters['tx_retransmits'] and at('timeout') == counters['ack_timeouts'])
    want(at('icrc_error') == counters['rx_icrc_errors'])
    want(at('ring_full') == sum(n for name, n in counters.items() if name.endswith('_ring_full')))
    # the software device has every counter that the endpoint reads
    for names in (*module.RDMA_EVENTS.values(), *module.RDMA_PACKETS.values()):
        of_adapters = [name for name in names if name.startswith(('hw_', 'wc_')) or name == 'cm_timed_out']
        want(set(names) - set(of_adapters) <= set(counters), names, 'of', *counters)


def check(values, replies):
    """Every number of the replies appears in a metric."""
    def at(name, **labels):
        return values[name, frozenset((k, str(v)) for k, v in labels.items())]

    ledger = replies['/braggline/ledger']
    frames, packets = ledger['frames'], ledger['packets']
    outcomes = [v for (name, _), v in values.items() if name == 'frames_total']
    want(sum(outcomes) + at('frames_in_flight') + at('frames_held') == frames['frames'], frames)
    for outcome in 'stored', 'vetoed', 'incomplete', 'lost', 'refused', 'aborted', 'unwritten':
        want(at('frames_total', outcome=outcome) == frames[outcome], outcome)
    want(at('kept_frames_total', reason='dry_run') == frames['dry_run'])
    want(at('received_packets_total') == packets['packets'])
    want(at('received_bytes_total') == packets['bytes'])
    for cause in 'ring_full', 'no_mbuf', 'errors':
        want(at('port_dropped_packets_total', cause=cause) == ledger['ports'][cause], ledger)
    want(at('unretained_frames_total') == frames['unretained'])
    outcomes = {dict(labels)['outcome']: v for (name, labels), v in values.items() if name == 'packets_total'}
    want(all(packets[outcome] == v for outcome, v in outcomes.items()), outcomes)
    for lcore, l in replies['/braggline/lcores'].items():
        want(at('lcore_busy_cycles_total', lcore=lcore) == l['busy_cycles'])
        want(at('lcore_idle_cycles_total', lcore=lcore) == l['idle_cycles'])
    for module, m in replies['/braggline/modules'].items():
        want(at('module_missing_packets_total', module=module) == m['missing_packets'])
        want(at('module_frames_total', module=module) == m['frames'])
    for gang, g in replies['/braggline/gangs'].items():
        want(at('gang_frames_total', gang=gang) == g['frames'])
        want(at('gang_batches_total', gang=gang) == g['batches'])
    writer = replies['/braggline/writer']
    for table in 'frames', 'images':
        w = writer.get(table, {'bytes': 0, 'durable': 0, 'stalls': 0})
        want(at('writer_bytes_total', table=table) == w['bytes'])
        want(at('writer_durable_rows_total', table=table) == w['durable'])
        want(at('writer_stalls_total', table=table) == w['stalls'])
    for name in 'kept_bytes', 'copied_bytes':
        want(at(f'writer_{name}_total') == writer.get(name, 0))
    egress = replies['/braggline/egress']
    if egress['active']:
        want(at('journal_full_total') == egress['journal']['full'], egress)
        for name in 'spills', 'refusals':
            want(at(f'egress_{name}_total') == egress[name], egress)
        want(at('egress_spill_error') == egress['spill_error'], egress)
    latency = replies['/braggline/latency']
    for step in (name for name in latency if not name.endswith('_us')):
        want(at('latency_seconds_sum', step=step) == latency[f'{step}_sum_us'] / 1e6)
        total = sum(latency[step])
        want(at('latency_seconds_bucket', step=step, le='+Inf') == total)
        want(at('latency_seconds_count', step=step) == total)
        # 2^10 us: all buckets up to this bound
        want(at('latency_seconds_bucket', step=step, le='0.001024') == sum(latency[step][:11]))
    for module, m in replies['/braggline/calibration'].items():
        want(at('calibration_live_pixels', module=module) == m['live'])
    want(at('calibration_warnings') == replies['/braggline/pedestal']['warnings'])
    want(at('pedestal_updates_total') == replies['/braggline/pedestal']['updates'])
    want(at('preview_pictures_total') == replies['/braggline/preview']['sequence'])
    return frames, packets, outcomes


def check_sums(latency):
    """The sum of the times fits their buckets. The receiver is idle: it adds to no histogram."""
    steps = [name for name in latency if not name.endswith('_us')]
    want(sum(latency['last_packet_to_verdict']) > 50, latency)
    for step in steps:
        # the last bucket has no upper bound
        below = [*latency['below_us'][:-1], float('inf')]
        most = sum(n * us for n, us in zip(latency[step], below) if n > 0)
        least = sum(n * (us // 2) for n, us in zip(latency[step], latency['below_us']))
        want(least <= latency[f'{step}_sum_us'] <= most, step, latency)


def check_exporter(build, where, endpoint, telemetry):
    """braggline-exporter has the same metrics of this process, which is idle: only counters of
    lcores and of pictures still grow."""
    path, module = telemetry.socket.getpeername(), load(endpoint)
    before, _ = collect(module, telemetry)
    with exporter.serving(build, where, '--run', where, '--socket', f'recv={path}', '--endpoints',
                          os.path.dirname(endpoint)) as (url, _, _):
        found = exporter.metrics(url, 'recv')
    after, _ = collect(module, telemetry)
    want(all(value == 1 for (name, _), value in found.items()
             if name == 'braggline_exporter_endpoint_success'), found)
    prefix = 'dpdk_braggline_'
    found = {(name[len(prefix):], labels): value for (name, labels), value in found.items()
             if name.startswith(prefix)}
    want(set(found) == set(after), set(found) ^ set(after))
    for key, value in found.items():
        want(before[key] <= value <= after[key], key, before[key], value, after[key])


def check_store(values, replies):
    """The same for a store."""
    def at(name, **labels):
        return values[name, frozenset((k, str(v)) for k, v in labels.items())]

    store = replies['/braggline/store']
    for alarm in 'disk full', 'quota', 'I/O error', 'disk stalled':
        want(at('alarm', alarm=alarm) == (store['alarm'] == alarm), store)
    want(at('durable_batches_total') == store['batches_durable'])
    want(at('received_bytes_total') == store['body_bytes'])
    want(at('connections_total', end='established') == store['connections_established'])
    want(at('refused_connections_total', reason='key') == store['refused_key'])
    want(at('descriptors_total', fault='good') == store['descriptors_good'])
    want(at('body_crc_errors_total') == store['body_crc_errors'], store)
    want(at('unreadable_bodies_total') == store['bodies_unreadable'], store)
    want(at('stored_damaged_batches_total') == store['batches_stored_damaged'], store)
    want(at('completing_files') == store['completing_files'], store)
    want(at('completing_bytes') == store['completing_bytes'], store)
    want(at('completed_files_total', end='completed') == store['files_completed'], store)
    want(at('completed_files_total', end='not_completed') == store['files_not_completed'], store)
    want(at('removed_connections_total') == store['keys_removed'], store)
    want(at('reassigned_refused_total') == store['reassigned_refused'], store)
    for end in 'admitted', 'admitted_known', 'full', 'crowded', 'evicted':
        want(at('unauthenticated_requests_total', end=end) == store[f'unauthenticated_{end}'], store)
    for reason in (name[8:] for name in store if name.startswith('refused_')):
        want(at('refused_connections_total', reason=reason) == store[f'refused_{reason}'], store)
    identities = replies['/braggline/store/identities']
    for identity in identities.values():
        for metric, name in (('connections', 'connections'),
                             ('authentications_total', 'authentications'),
                             ('durable_batches_total', 'batches_durable'),
                             ('received_bytes_total', 'body_bytes'), ('refused_total', 'refused'),
                             ('truncated_batches_total', 'batches_truncated'),
                             ('ended_runs_total', 'runs_ended'),
                             ('connections_established_total', 'connections_established')):
            want(at(f'identity_{metric}', identity=identity['name']) == identity[name], identity)
    want(sum(i['authentications'] for i in identities.values()) >= store['connections_established'], identities)
    connections = replies['/braggline/store/connections']
    want(at('open_connections') == len(connections))
    want(at('credits') == sum(c['credits'] for c in connections.values()))
    streams = replies['/braggline/store/streams']
    n = 0
    for name, s in streams.items():
        if name in ('below_us', 'received_to_durable', 'received_to_durable_sum_us'):
            continue
        n += 1
        slot, table = name.split('_')
        labels = {'slot': slot, 'table': table, 'run': s['run'], 'receiver_id': s['receiver_id']}
        for metric in 'bytes', 'batches', 'stalls', 'outages':
            want(at(f'stream_{metric}_total', **labels) == s[metric], metric, s)
        for metric in 'files', 'error':
            want(at(f'stream_{metric}', **labels) == s[metric], metric, s)
        want(at('quota_bytes', receiver_id=s['receiver_id']) == s['quota'], s)
    want(at('streams') == n, streams)
    step, total = 'received_to_durable', sum(streams['received_to_durable'])
    want(at('latency_seconds_bucket', step=step, le='+Inf') == total)
    want(at('latency_seconds_count', step=step) == total)
    want(at('latency_seconds_sum', step=step) == streams[f'{step}_sum_us'] / 1e6)


def main():
    build, endpoint, of_stores, of_rdma = sys.argv[1:5]
    module = load(endpoint)
    with running(build, lcores=LCORES) as (process, t, where):
        want(load(of_stores).metrics(Sock(t)) == [], 'the receiver is no store')
        check_rdma(load(of_rdma), t, active=False)
        # before the first run
        values, replies = collect(module, t)
        check(values, replies)
        # a setting with non-ASCII text does not hide any metric
        t.do(f'run/configure,run.name=one,output.directory={where}/M\u00fcller,veto.dry_run=yes')
        t.do('run/arm')
        values, replies = collect(module, t)
        want(values['armed', frozenset()] == 1 and values['running', frozenset()] == 0, values)
        t.do('run/start')
        wait('frames', lambda: t.get('ledger')['frames']['frames'] > 50)
        values, replies = collect(module, t)
        frames, _, _ = check(values, replies)
        want(frames['frames'] > 50 and values['running', frozenset()] == 1, frames)
        want(values['armed', frozenset()] == 0)
        t.do('run/stop')
        t.wait('idle')
        values, replies = collect(module, t)
        frames, packets, outcomes = check(values, replies)
        check_sums(replies['/braggline/latency'])
        want(frames['in_flight'] == 0 and values['running', frozenset()] == 0)
        # every packet that the run received has an outcome
        want(sum(outcomes.values()) >= packets['placed'] > 0, outcomes)
        want(values['writer_bytes_total', frozenset({('table', 'images')})] > 0)
        # files are written from the memory that each value is copied to
        want(values['writer_copied_bytes_total', frozenset()] == values['writer_kept_bytes_total', frozenset()] > 0)
        check_exporter(build, where, endpoint, t)
        process.send_signal(signal.SIGTERM)
        want(process.wait(30) == 0, 'status', process.returncode)
    print(len(module.info()), 'metrics for the exporter: ok')


if __name__ == '__main__':
    main()
