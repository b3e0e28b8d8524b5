#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""braggline-exporter with processes that answer, hang, were killed, or belong to another user.
exporter_test.py compares its metrics with those of a receiver.

usage: exporter_server_test.py BUILD-DIR [CASE]...
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading

try:
    import exporter
except ImportError as error:
    print(f'skipped: {error}: install python3-prometheus-client')
    sys.exit(77)

from cases import Skipped, case, run_cases, wait, want
from exporter import ask, metrics
from telemetry_peer import answering, reply

BUILD = os.path.abspath(sys.argv[1])
SECONDS = 60
USER = 65534  # nobody
ODD = 'a "b" \\ c\nd'
ENDPOINT = '''
def info():
    return {'packets_total': ('Packets.', 'counter'), 'load': ('Load.', 'gauge'),
            'counter': ('A counter of DPDK.', 'counter'),
            'wait_seconds_bucket': ('Waits.', 'counter'), 'wait_seconds_sum': ('-', 'counter'),
            'wait_seconds_count': ('-', 'counter')}


def metrics(sock):
    if '/demo' not in sock.cmd('/'):
        return
    reply = sock.cmd('/demo')
    yield 'packets_total', reply['packets'], {'port': 0, 'name': reply['name']}
    yield 'packets_total', 2 ** 40, {'port': 1}
    yield 'load', reply['load'], {}
    yield 'counter', sock.cmd('/demo', 'counter')['counter'], {}
    for port in 0, 1:
        yield 'wait_seconds_bucket', port, {'port': port, 'le': '0.001'}
        yield 'wait_seconds_bucket', 2, {'port': port, 'le': '+Inf'}
        yield 'wait_seconds_sum', 0.25, {'port': port}
        yield 'wait_seconds_count', 2, {'port': port}
'''
DEMO = {'packets': 7, 'name': ODD, 'load': 0.5, 'counter': 3}


def demo(command):
    return reply(command, ['/', '/demo'] if command == '/' else DEMO)


@contextlib.contextmanager
def demo_exporter(where, *options, **others):
    """An exporter of the processes below where/run, with the endpoint above."""
    os.makedirs(f'{where}/endpoints', exist_ok=True)
    with open(f'{where}/endpoints/demo.py', 'w', encoding='ascii') as stream:
        stream.write(ENDPOINT)
    with exporter.serving(BUILD, where, '--run', f'{where}/run', '--endpoints',
                          f'{where}/endpoints', *options, **others) as found:
        yield found


def socket_of(where, name, folder='dpdk'):
    """The path of the socket of a process, in a new folder."""
    os.makedirs(f'{where}/run/{folder}/{name}', exist_ok=True)
    return f'{where}/run/{folder}/{name}/dpdk_telemetry.v2'


def ask_and_forget(url):
    def run():
        with contextlib.suppress(OSError):  # the exporter ends first
            ask(url)
    threading.Thread(target=run, daemon=True).start()


def targets(url):
    status, text = ask(f'{url}/targets')
    want(status == 200, text)
    return [group['labels']['__param_target'] for group in json.loads(text)]


@case
def metrics_are_those_of_the_endpoints(where):
    with answering(socket_of(where, 'one'), demo), demo_exporter(where) as (url, _, _):
        expected = {('dpdk_demo_packets_total', frozenset({('port', '0'), ('name', ODD)})): 7,
                    ('dpdk_demo_packets_total', frozenset({('port', '1'), ('name', '')})): 2 ** 40,
                    ('dpdk_demo_load', frozenset()): 0.5, ('dpdk_demo_counter', frozenset()): 3,
                    ('braggline_exporter_endpoint_success', frozenset({('endpoint', 'demo')})): 1}
        for port in '0', '1':
            label = ('port', port)
            expected.update({
                ('dpdk_demo_wait_seconds_bucket', frozenset({label, ('le', '0.001')})): int(port),
                ('dpdk_demo_wait_seconds_bucket', frozenset({label, ('le', '+Inf')})): 2,
                ('dpdk_demo_wait_seconds_sum', frozenset({label})): 0.25,
                ('dpdk_demo_wait_seconds_count', frozenset({label})): 2})
        found = metrics(url, 'one')
        want(found == expected, found)
        _, text = ask(f'{url}/metrics?target=one')
        for line in ('# TYPE dpdk_demo_packets_total counter', '# TYPE dpdk_demo_load gauge',
                     '# TYPE dpdk_demo_counter untyped', '# TYPE dpdk_demo_wait_seconds histogram', '# HELP dpdk_demo_load Load.'):
            want(line in text.splitlines(), line, 'not in', text)
        _, text = ask(f'{url}/metrics?target=one', Accept='application/openmetrics-text')
        want('# TYPE dpdk_demo_packets counter' in text and text.endswith('# EOF\n'), text)
        # its own
        _, text = ask(f'{url}/metrics')
        want('braggline_exporter_targets 1.0' in text.splitlines(), text)
        want(ask(f'{url}/')[0] == 404 and ask(f'{url}/metrics?target=')[0] == 404, 'no 404')


@case
def targets_are_for_http_sd(where):
    with answering(socket_of(where, 'rte')), \
            answering(socket_of(where, 'recv-a', 'braggline/recv-a/dpdk')), \
            answering(socket_of(where, 'scan-q', 'braggline-scan/q/dpdk')), \
            answering(f'{where}/other'), \
            demo_exporter(where, '--socket', f'mine={where}/other') as (url, _, _):
        host = url.removeprefix('http://')
        _, text = ask(f'{url}/targets')
        want(json.loads(text) == [
            {'targets': [host], 'labels': {'__param_target': name, 'instance': f'127.0.0.1/{name}'}}
            for name in ('mine', 'recv-a', 'rte', 'scan-q')], text)
        _, text = ask(f'{url}/targets', Host='recv1.lab:80')
        want(json.loads(text)[0]['targets'] == ['recv1.lab:80'], text)
        want(json.loads(text)[0]['labels']['instance'] == 'recv1.lab/mine', text)
        want(ask(f'{url}/targets', Host='[')[0] == 400, 'a wrong Host')
        if shutil.which('promtool') is None:
            raise Skipped('promtool is not installed (Debian: prometheus)')
        with open(f'{where}/prometheus.json', 'w', encoding='ascii') as stream:
            json.dump({'scrape_configs': [{
                'job_name': 'braggline', 'http_sd_configs': [{'url': f'{url}/targets'}]}]}, stream)
        labels = []
        for seconds in 1, 5, 25:  # promtool waits until then
            if labels:
                break
            done = subprocess.run(
                ['promtool', 'check', 'service-discovery', f'--timeout={seconds}s',
                 f'{where}/prometheus.json', 'braggline'], stdin=subprocess.DEVNULL, text=True,
                capture_output=True, check=False, timeout=SECONDS)
            want(done.returncode == 0, done.stderr)
            labels = [found['labels'] for found in json.loads(done.stdout) or ()]
        want(sorted((found['__address__'], found['__param_target'], found['instance'])
                    for found in labels) ==
             [(host, name, f'127.0.0.1/{name}') for name in ('mine', 'recv-a', 'rte', 'scan-q')],
             labels)


@case
def a_process_that_hangs_does_not_delay_others(where):
    with answering(socket_of(where, 'silent'), greeting=None) as silent, \
            answering(socket_of(where, 'mute'), lambda _: None) as mute, \
            answering(socket_of(where, 'one'), demo):
        with demo_exporter(where, '--timeout', '60') as (url, process, _):
            for name in 'silent', 'mute':
                ask_and_forget(f'{url}/metrics?target={name}')
            wait('requests', lambda: silent.connections and mute.asked)
            metrics(url, 'one')
            process.send_signal(signal.SIGTERM)
            want(process.wait(SECONDS) == 0, process.returncode)
        with demo_exporter(where, '--timeout', '0.1') as (url, _, lines):
            for name in 'silent', 'mute':
                want('in time' in metrics(url, name, 504), name)
                metrics(url, name, 504)
            want(sum('mute: ' in line for line in lines()) == 1, 'logged again:', lines())


@case
def a_process_has_one_connection(where):
    """DPDK serves 10 connections. A second request waits until the first one has ended."""
    with answering(socket_of(where, 'mute'), lambda _: None) as mute, \
            demo_exporter(where, '--timeout', '1') as (url, _, _):
        ask_and_forget(f'{url}/metrics?target=mute')
        wait('a request', lambda: mute.asked)
        metrics(url, 'mute', 504)
        want(mute.most == 1, 'connections at the same time:', mute.most)


@case
def a_killed_process_stays_a_target(where):
    path = socket_of(where, 'one')
    with demo_exporter(where) as (url, _, lines):
        with answering(path, demo):
            metrics(url, 'one')
        want(targets(url) == [], 'a process that has ended')
        want('/targets' in metrics(url, 'one', 404))
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as dead:
            dead.bind(path)
        want(targets(url) == ['one'], 'not found')
        want('refused' in metrics(url, 'one', 503))
        os.unlink(path)
        with answering(path, demo):
            metrics(url, 'one')
        want([line.split()[-1] for line in lines()[1:]] == ['answers', 'refused', 'answers'], lines())


@case
def a_closed_folder_is_a_target(where):
    if os.geteuid() != 0:
        raise Skipped('only root can run a program as another user')
    with answering(socket_of(where, 'recv-a', 'braggline/recv-a/dpdk')), \
            answering(socket_of(where, 'scan-q', 'braggline-scan/q/dpdk')):
        for folder in 'braggline/recv-a', 'braggline-scan/q':
            os.chmod(f'{where}/run/{folder}', 0o700)
        os.chmod(where, 0o755)
        command = shutil.copy(exporter.program(BUILD), where)
        with demo_exporter(where, command=command, user=USER, group=USER, extra_groups=[]) as (url, _, _):
            want(targets(url) == ['recv-a', 'scan-q'], targets(url))
            for name in targets(url):
                want('Permission denied' in metrics(url, name, 503), name)


@case
def wrong_replies_are_reported(where):
    replies = {'text': b'hello', 'list': b'[]', 'other': b'{"/other": {}}'}
    with contextlib.ExitStack() as stack:
        for name, message in replies.items():
            stack.enter_context(answering(socket_of(where, name), lambda _, m=message: m))
        stack.enter_context(answering(socket_of(where, 'size'), greeting=b'{"max_output_len": 1e99}'))
        stack.enter_context(answering(socket_of(where, 'gone'), greeting=b''))
        # an endpoint that does not fit the process
        stack.enter_context(answering(
            socket_of(where, 'old'), lambda c: reply(c, ['/demo'] if c == '/' else {})))
        url, _, lines = stack.enter_context(demo_exporter(where))
        for name in 'text', 'list', 'other', 'size':
            metrics(url, name, 502)
        metrics(url, 'gone', 503)
        found = metrics(url, 'old')
        want(found == {('braggline_exporter_endpoint_success',
                        frozenset({('endpoint', 'demo')})): 0}, found)
        want("old: endpoint demo: KeyError: 'packets'" in lines()[-1], lines())


@case
def a_wrong_command_line_is_refused(where):
    def run(*arguments):
        done = subprocess.run([exporter.program(BUILD), *arguments], stdin=subprocess.DEVNULL, text=True,
                              stderr=subprocess.PIPE, check=False, timeout=SECONDS)
        return done.returncode, done.stderr
    for arguments in (['--listen', '9876'], ['--listen', 'localhost:9876'], ['--listen', '::1'],
                      ['--listen', '127.0.0.1:65536'], ['--socket', 'relative'], ['--timeout', '0'],
                      ['--timeout', 'nan'], ['--time', '1'], ['argument']):
        status, text = run(*arguments)
        want(status == 2 and 'error:' in text, arguments, status, text)
    want(run('--endpoints', where) == (
        1, f'braggline-exporter: {where}: no endpoint (*.py); use --endpoints DIR (conf/telemetry '
        'of the source tree)\n'))
    with open(f'{where}/wrong.py', 'w', encoding='ascii') as stream:
        stream.write('1 / 0\n')
    status, text = run('--endpoints', where)
    want(status == 1 and text.count('\n') == 1 and 'wrong.py: ZeroDivisionError' in text, text)
    os.unlink(f'{where}/wrong.py')
    with demo_exporter(where) as (url, _, _):
        port = url.rpartition(':')[2]
        status, text = run('--endpoints', f'{where}/endpoints', '--listen', f'127.0.0.1:{port}')
        want(status == 1 and 'Address already in use' in text, text)


if __name__ == '__main__':
    sys.exit(run_cases(sys.argv[2:]))
