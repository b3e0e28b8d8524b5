#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Alert rules and dashboards of conf/telemetry: they name metrics that exist; each alert fires when
it should and only then (promtool); the operator's guide names each alert, and has a configuration
of Prometheus; panels do not overlap. store_policies_test.py compares the labels with real output.

usage: monitoring_test.py SOURCE-DIR
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

import yaml

import exporter_test
import monitoring
from cases import want

SECONDS = 60
NAME = 'dpdk_braggline_'
# Series of five minutes and more, one sample in 15 s: growing, constant, and of a gauge.
GROWS, STAYS, ONE, ZERO = '0+10x60', '7+0x60', '1+0x60', '0+0x60'


def counter(name, *labels):
    """An alert on a counter that grows."""
    series = name + (f'{{{",".join(labels)}}}' if labels else '')
    return {series: GROWS}, {series: STAYS}


def gauge(name, *labels, fires=ONE, healthy=ZERO):
    series = name + (f'{{{",".join(labels)}}}' if labels else '')
    return {series: fires}, {series: healthy}


RUNNING = {'running': ONE}
# For each alert: series with which it fires, or a list of them, and one or more with which it does
# not.
CASES = {
    # a process that was killed, and one that has ended
    'ProcessGone': ({'up{job="braggline"}': '1+0x20 0+0x40'}, {'up{job="braggline"}': '1+0x20 _x40'}),
    'ExporterGone': gauge('up', 'job="braggline-exporter"', fires=ZERO, healthy=ONE),
    'MetricsMissing': gauge('braggline_exporter_endpoint_success', 'endpoint="braggline"',
                            fires=ZERO, healthy=ONE),
    'ServiceFailed': gauge('node_systemd_unit_state', 'name="braggline-recv@a.service"',
                           'state="failed"'),
    'NoPackets': ({'received_packets_total': STAYS, **RUNNING}, {'received_packets_total': GROWS, **RUNNING}),
    'PortDrops': counter('port_dropped_packets_total', 'cause="no_mbuf"'),
    'UnusablePackets': counter('packets_total', 'outcome="foreign"'),
    'StrayPackets': ({'packets_total{outcome="late"}': '0+10x60', 'received_packets_total': '0+100x60'},
                     {'packets_total{outcome="late"}': '0+10x60', 'received_packets_total': '0+10000x60'}),
    'PacketsRefused': counter('packets_total', 'outcome="handoff_full"'),
    'ModuleMissing': counter('module_missing_packets_total', 'module="3"'),
    'FramesLost': counter('frames_total', 'outcome="lost"'),
    'FramesRefused': counter('frames_total', 'outcome="refused"'),
    'FramesIncomplete': counter('incomplete_kept_frames_total'),
    'FramesTimedOut': counter('timeout_frames_total'),
    'FramesUnwritten': counter('frames_total', 'outcome="unwritten"'),
    'FramesLostAtRestart': counter('frames_total', 'outcome="lost_while_down"'),
    'FramesHeld': ({'frames_held': ONE, 'running': ZERO}, {'frames_held': ONE, **RUNNING}),
    'InconsistentFrames': counter('inconsistent_frames_total', 'differs="bunch_id"'),
    'LcoreBusy': ({'lcore_busy_cycles_total{lcore="1"}': '0+99x60', 'lcore_idle_cycles_total{lcore="1"}': '0+1x60'},
                  {'lcore_busy_cycles_total{lcore="1"}': '0+9x60', 'lcore_idle_cycles_total{lcore="1"}': '0+1x60'}),
    'VerdictLatencyHigh': ({'latency_seconds_bucket{step="last_packet_to_verdict",le="0.5"}': ZERO,
              'latency_seconds_bucket{step="last_packet_to_verdict",le="1"}': GROWS,
              'latency_seconds_bucket{step="last_packet_to_verdict",le="+Inf"}': GROWS},
             {'latency_seconds_bucket{step="last_packet_to_verdict",le="0.5"}': GROWS,
              'latency_seconds_bucket{step="last_packet_to_verdict",le="1"}': GROWS,
              'latency_seconds_bucket{step="last_packet_to_verdict",le="+Inf"}': GROWS}),
    'DiskStalled': counter('writer_outages_total', 'table="frames"'),
    'Calibration': gauge('calibration_warnings'),
    'StoreDown': ([{'egress_store_up{store="a"}': ZERO, **RUNNING},
                   {'egress_store_up{store="a"}': ZERO, 'running': ZERO, 'armed': ONE},
                   {'egress_store_up{store="a"}': ZERO, 'running': ZERO, 'journal_batches': ONE}],
                  {'egress_store_up{store="a"}': ONE, 'armed': ONE, **RUNNING},
                  {'egress_store_up{store="a"}': ZERO, 'running': ZERO, 'armed': ZERO, 'journal_batches': ZERO}),
    'StoreStuck': counter('egress_store_stuck_total', 'store="a"'),
    'JournalFilling': ({'journal_bytes': '60+0x60', 'journal_room_bytes': '100+0x60'},
                       {'journal_bytes': '40+0x60', 'journal_room_bytes': '100+0x60'}),
    'JournalFull': counter('unretained_frames_total'),
    'Spilling': gauge('egress_overload_level', 'level="spill"'),
    'Refusing': gauge('egress_overload_level', 'level="refuse"'),
    'SpillError': gauge('egress_spill_error'),
    'StoreAlarm': gauge('store_alarm', 'alarm="disk full"'),
    'StoreQuota': ({'store_quota_used_bytes': '95+0x60', 'store_quota_bytes': '100+0x60'},
                   {'store_quota_used_bytes': '95+0x60', 'store_quota_bytes': ZERO}),
    'StoreReturns': counter('store_returned_batches_total'),
    'StoreCorruption': counter('store_stored_damaged_batches_total'),
    'StoreFileError': gauge('store_stream_error', 'run="r"'),
    'StoreNotCompleted': gauge('store_completed_files_total', 'end="not_completed"'),
    'StoreRefusals': counter('store_refused_connections_total', 'reason="key"'),
    'RdmaCorruption': counter('rdma_events_total', 'event="icrc_error"'),
    'RdmaLoss': ({'rdma_events_total{event="timeout"}': GROWS, 'rdma_packets_total{direction="tx"}': '0+100x60'},
                 {'rdma_events_total{event="timeout"}': GROWS,
                  'rdma_packets_total{direction="tx"}': '0+1000000x60'}),
}


def check_panels(board, name):
    """Panels do not overlap, and each has a unique number and the dashboard's data source."""
    want(board['uid'] and board['schemaVersion'] >= 30, name)
    ids = [panel['id'] for panel in board['panels']]
    want(len(set(ids)) == len(ids), name, 'panels with the same id', ids)
    cells = set()
    for panel in board['panels']:
        at = panel['gridPos']
        mine = {(x, y) for x in range(at['x'], at['x'] + at['w'])
                for y in range(at['y'], at['y'] + at['h'])}
        want(at['x'] + at['w'] <= 24 and not cells & mine, name, panel['title'], 'overlaps another')
        cells |= mine
        for target in panel.get('targets', ()):
            want(target['datasource']['uid'] == '${datasource}', name, panel['title'])
            want('instance=~"$instance"' in target['expr'], name, panel['title'], 'is not limited to the instance')


def promtool(*arguments):
    done = subprocess.run(['promtool', *arguments], stdin=subprocess.DEVNULL, check=False, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SECONDS)
    want(done.returncode == 0, 'promtool', *arguments, done.stdout)


def check_queries(folder, where):
    """Prometheus accepts the queries of the dashboards, as rules that record them."""
    expressions = [e for w, e, _ in monitoring.queries(folder) if w.startswith('grafana')]
    text = [{'record': f'query:{n}',
             'expr': e.replace('$__rate_interval', '1m').replace('$instance', '.*')}
            for n, e in enumerate(expressions)]
    with open(f'{where}/queries.json', 'w', encoding='utf-8') as stream:
        json.dump({'groups': [{'name': 'queries', 'rules': text}]}, stream)
    promtool('check', 'rules', f'{where}/queries.json')


def check_alerts(folder, where):
    """Each alert fires for the instance with its series, and not for a healthy one."""
    inputs, expected = [], []
    for name, (fires, *healthy) in CASES.items():
        fires = fires if isinstance(fires, list) else [fires]
        for n, values in enumerate(fires + healthy):
            instance = f'{name}:{n}'
            for one, numbers in values.items():
                metric, _, labels = one.rstrip('}').partition('{')
                labels = ','.join(part for part in (labels, f'instance="{instance}"') if part)
                if metric not in monitoring.OUTSIDE:
                    metric = NAME + metric
                inputs.append({'series': f'{metric}{{{labels}}}', 'values': numbers})
            alert = f'alertname="Braggline{name}",instance="{instance}",alertstate="firing"'
            expected.append({'expr': f'count(ALERTS{{{alert}}}) or vector(0)', 'eval_time': '12m',
                             'exp_samples': [{'labels': '{}', 'value': int(n < len(fires))}]})
    with open(f'{where}/tests.json', 'w', encoding='utf-8') as stream:
        json.dump({'rule_files': [os.path.abspath(f'{folder}/alerts.yml')],
                   'evaluation_interval': '15s',
                   'tests': [{'interval': '15s', 'input_series': inputs,
                              'promql_expr_test': expected}]}, stream)
    promtool('test', 'rules', f'{where}/tests.json')


def check_guide(source):
    """The operator's guide has a row for each outcome of the receiver's ledger."""
    sys.path.insert(0, f'{source}/conf/man')
    try:
        import readme
    except ImportError:
        print('skipped: rows of the guide: docutils is not installed (Debian: python3-docutils)')
        return
    from docutils import nodes
    recv = readme.read(f'{source}/app/recv/telemetry/README.rst')
    outcomes = set()
    for table in readme.find_section(recv, 'Ledger').findall(nodes.table):
        if readme.header(table)[0] in ('column', 'outcome', 'counter'):
            outcomes |= {name for row in readme.table_rows(table)[1:]
                         for name in row[0].astext().split(', ')}
    # sums; and counters of packets and of receivers that are described in words
    outcomes = outcomes - {'frames', 'balanced'} | {'events_lost', 'waits', 'died'}
    want({'lost', 'held', 'malformed', 'no_mbuf', 'bad_icrc'} <= outcomes, outcomes)
    guide = readme.find_section(readme.read(f'{source}/conf/README.rst'), 'Troubleshooting')
    rows = {literal.astext() for table in guide.findall(nodes.table)
            for row in readme.table_rows(table)[1:] for literal in row[0].findall(nodes.literal)}
    want(outcomes <= rows, 'no row in the operator\'s guide:', sorted(outcomes - rows))


def check_configuration(guide, folder, where):
    """Prometheus accepts the configuration in the operator's guide, which has the jobs of the
    alerts."""
    text, = re.findall(r'^ *\.\. code-block:: yaml\n\n((?: {8}.*\n|\n)+)', guide, re.M)
    settings = yaml.safe_load(text)
    jobs = {job['job_name'] for job in settings['scrape_configs']}
    named = {value for rule in monitoring.rules(folder)
             for _, matchers in monitoring.selectors(rule['expr'])
             for label, _, value in matchers if label == 'job'}
    want(named and named <= jobs, 'jobs of the alerts:', named, 'of the guide:', jobs)
    # the file of the guide is on another machine
    want([os.path.basename(path) for path in settings['rule_files']] == ['alerts.yml'], settings)
    settings['rule_files'] = [os.path.abspath(f'{folder}/alerts.yml')]
    with open(f'{where}/prometheus.json', 'w', encoding='utf-8') as stream:
        json.dump(settings, stream)
    promtool('check', 'config', f'{where}/prometheus.json')


def main():
    folder = f'{sys.argv[1]}/conf/telemetry'
    info = set()
    for name in 'braggline', 'braggline_store', 'braggline_scan', 'braggline_rdma':
        names = {f'dpdk_{name}_{metric}' for metric in exporter_test.load(f'{folder}/{name}.py').info()}
        # the exporter puts the name of the endpoint before the name of the metric
        want(not info & names, 'metrics of two endpoints with the same name:', info & names)
        info |= names
    monitoring.check_names(folder, info)
    for name in monitoring.DASHBOARDS:
        check_panels(monitoring.dashboard(folder, name), name)
    alerts = [rule['alert'] for rule in monitoring.rules(folder)]
    want(sorted(alerts) == sorted(f'Braggline{name}' for name in CASES), 'alerts without a test:',
         set(alerts) ^ {f'Braggline{name}' for name in CASES})
    with open(f'{sys.argv[1]}/conf/README.rst', encoding='utf-8') as stream:
        guide = stream.read()
    named = set(re.findall(r'``(Braggline\w+)``', guide))
    want(named == set(alerts), 'alerts that the operator\'s guide does not name, or that do not exist:',
         sorted(named ^ set(alerts)))
    check_guide(sys.argv[1])
    if shutil.which('promtool') is None:
        print('skipped: rules and queries: promtool is not installed (Debian: prometheus)')
    else:
        with tempfile.TemporaryDirectory() as where:
            promtool('check', 'rules', f'{folder}/alerts.yml')
            check_queries(folder, where)
            check_alerts(folder, where)
            check_configuration(guide, folder, where)
    print(f'monitoring: {len(alerts)} alerts, {len(monitoring.DASHBOARDS)} dashboards: ok')


main()
