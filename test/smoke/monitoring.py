# SPDX-License-Identifier: BSD-3-Clause
"""The queries of conf/telemetry: alert rules of Prometheus and dashboards of Grafana. check() compares
the metrics and labels that they name with the output of the exporter's endpoints."""

import json
import os
import re

import yaml

from cases import want

DASHBOARDS = ('grafana-recv.json', 'grafana-store.json')
# labels that Prometheus adds, and functions make
OTHERS = {'instance', 'le'}
# labels of metrics that are not of an endpoint: of Prometheus, braggline-exporter, the node exporter
OUTSIDE = {'up': {'job'}, 'braggline_exporter_endpoint_success': {'endpoint'},
           'node_systemd_unit_state': {'name', 'state'}}


def rules(folder):
    with open(f'{folder}/alerts.yml', encoding='utf-8') as stream:
        return [rule for group in yaml.safe_load(stream)['groups'] for rule in group['rules']]


def dashboard(folder, name):
    with open(f'{folder}/{name}', encoding='utf-8') as stream:
        return json.load(stream)


def queries(folder):
    """All queries: (where, expression, text with labels in braces)."""
    for rule in rules(folder):
        yield rule['alert'], rule['expr'], rule['annotations']['summary']
    for name in DASHBOARDS:
        board = dashboard(folder, name)
        for panel in board['panels']:
            for target in panel.get('targets', ()):
                yield f'{name}: {panel["title"]}', target['expr'], target['legendFormat']
        for variable in board['templating']['list']:
            if variable['type'] == 'query':
                yield name, variable['definition'].split('(')[1].split(',')[0], ''


def selectors(expression):
    """Metrics of an expression with their matchers: (name, [(label, operator, value)])."""
    names = '|'.join((r'dpdk_\w+', *OUTSIDE))
    for match in re.finditer(rf'\b({names})\b(?:\{{([^}}]*)\}})?', expression):
        yield match[1], re.findall(r'(\w+)(=~|!~|!=|=)"([^"]*)"', match[2] or '')


def labels_of(expression, text):
    """Labels that an expression groups by, and that its text shows."""
    found = set(re.findall(r'\{\{ *(?:\$labels\.)?(\w+) *\}\}', text))
    for group in re.findall(r'(?:by|on|group_left) \(([^)]*)\)', expression):
        found |= set(re.findall(r'\w+', group))
    return found - OTHERS


def check_names(folder, info):
    """Every metric is one that an endpoint describes. @param info  names with their prefix"""
    for where, expression, _ in queries(folder):
        names = [name for name, _ in selectors(expression)]
        want(names, where, 'has no metric:', expression)
        for name in names:
            want(name in info or name in OUTSIDE, f'{where}: {name}: no endpoint has this metric')


def check(folder, series):
    """Every metric, label and value of a label occurs in what the exporter has returned.
    @param series  labels by name: {'dpdk_braggline_frames_total': [{'outcome': 'stored'}, ...]}"""
    for where, expression, text in queries(folder):
        known = set()
        for name, matchers in selectors(expression):
            if name in OUTSIDE:
                known |= OUTSIDE[name]
                continue
            want(name in series, f'{where}: {name}: the exporter has no such metric')
            known |= {label for labels in series[name] for label in labels}
            for label, operator, value in matchers:
                if label in OTHERS:
                    continue
                # an empty alternative would match all
                for one in value.split('|') if '~' in operator else [value]:
                    want(any(labels.get(label) == one for labels in series[name]),
                         f'{where}: {name} has no {label}="{one}", only',
                         sorted({labels.get(label) for labels in series[name]}, key=str))
        want(labels_of(expression, text) <= known, f'{where}: labels',
             sorted(labels_of(expression, text) - known), 'are not in', sorted(known))


def series_of(endpoint, values):
    """The output of an endpoint with the names that the exporter makes."""
    prefix = 'dpdk_' + os.path.splitext(os.path.basename(endpoint))[0]
    found = {}
    for name, labels in values:
        found.setdefault(f'{prefix}_{name}', []).append(dict(labels))
    return found
