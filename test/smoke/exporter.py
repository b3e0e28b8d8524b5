# SPDX-License-Identifier: BSD-3-Clause
"""Runs braggline-exporter, and asks it as Prometheus does."""

import contextlib
import urllib.error
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

import background
from cases import wait, want

SECONDS = 60


def program(build):
    return f'{build}/conf/telemetry/braggline-exporter'


@contextlib.contextmanager
def serving(build, where, *options, command=None, **others):
    """An exporter with a port of its own. @param where  folder of its log
    Yields its URL, its process, and a function that returns the lines of its log."""
    def lines():
        with open(f'{where}/exporter.log', encoding='utf-8') as stream:
            return stream.read().splitlines()

    def address():
        want(process.poll() is None, 'the exporter does not start:', lines())
        # the line may not be complete yet
        return [line for line in lines() if line.endswith('/targets')]
    with open(f'{where}/exporter.log', 'w', encoding='utf-8') as log, \
            background.start([command or program(build), '--listen', '127.0.0.1:0', *options], stderr=log, **others) as process:
        try:
            # braggline-exporter: http://127.0.0.1:PORT/targets
            url = wait('the address', address)[0].split()[-1].removesuffix('/targets')
            yield url, process, lines
        finally:
            process.kill()


def ask(url, **headers):
    """@return status and text"""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers),
                                    timeout=SECONDS) as found:
            return found.status, found.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def metrics(url, target, status=200):
    """@return samples by name and labels, or with an error status its message"""
    found, text = ask(f'{url}/metrics?target={target}')
    want(found == status, target, found, text)
    if status != 200:
        return text
    return {(sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text) for sample in family.samples}
