#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Runs all benchmarks of the host and makes one table and one picture, at the end of `make bench`.

    bench.py [--smoke] [--results DIR] BUILD-DIR [BENCHMARK]...

The table and the roofline are written to DIR as host-CPU-ISA.rst and .svg, generated files for this
machine. Without DIR they are only printed. Files that were written by hand are not overwritten. A
run in which a benchmark failed, or that omits some, overwrites nothing. --smoke runs a small part
of each benchmark to check that it works; its figures are ignored. The exit status is 1 if a
benchmark fails. A missed goal is reported but is no failure, as machines differ.
"""
import argparse
import contextlib
import datetime
import os
import signal
import subprocess
import sys
import tempfile
import time

import bench_machine
import roofline

HERE = os.path.dirname(os.path.abspath(__file__))
# bench_rows.c writes them
FIELDS = ('stage', 'what', 'value', 'unit', 'against', 'other', 'ratio', 'goal', 'bytes', 'paired',
          'role', 'notes', 'missing')
NUMBERS = ('value', 'other', 'ratio', 'bytes', 'paired')
GENERATED = '.. Made by test/bench/bench.py, and made again by it: not to be edited.'
SKIPPED = 77

LIMIT = 200      # seconds per benchmark; their sum is below meson's timeout
GRACE = 20       # seconds for a benchmark to clean up

# name: command below the build directory, additional arguments for smoke, for figures
BENCHMARKS = {
    'rx': (['test/bench/rx_bench'],
           ['--frames', '2', '--rounds', '1', '--seconds', '0.05'], ['--rounds', '7']),
    'replay': (['test/bench/replay_bench'], ['--mib', '16', '--rounds', '1', '--seconds', '0.05'],
               ['--rounds', '7']),
    'gk': (['test/bench/gk_bench', '--numpy', f'{HERE}/gk_bench_numpy.py'],
           ['--modules', '1', '--frames', '8', '--repeats', '1'], ['--repeats', '7']),
    'bitshuffle': (['test/bench/bitshuffle_bench', '--data', f'{HERE}/../../../shared/data/jungfrau'],
                   ['--modules', '1', '--frames', '2', '--repeats', '1'], []),
    'writer': (['test/bench/writer_bench'], ['--mib', '16', '--rounds', '1', '--ways', '1'],
               ['--rounds', '4']),
    'store': (['test/bench/store_bench'], ['--mib', '64', '--rounds', '1'], ['--rounds', '5']),
    'ingest': (['test/bench/ingest_bench', '-l', '0,1', '--no-huge', '--no-shconf', '--no-pci',
                '--no-telemetry', '-m', '384', '--'],
               ['--addresses', '64', '--rounds', '1', '--seconds', '0.01'], ['--rounds', '5']),
    'roce': ([sys.executable, f'{HERE}/recv_roce_bench.py', '.'],
             ['--rounds', '2', '--seconds', '0.1'], []),
    'export': ([sys.executable, f'{HERE}/export_bench.py', '.'],
               ['--frames', '8', '--rounds', '1', '--seconds', '0.2'], []),
    'recv': ([sys.executable, f'{HERE}/recv_bench.py', '.'],
             ['--frames', '8', '--seconds', '0.5'], ['--seconds', '4']),
}


class Failed(Exception):
    """A benchmark that printed no rows, and the reason."""


def program(build, name):
    """Path of a program in a build directory or in a bundle."""
    if name.startswith('/'):
        return name
    places = [os.path.join(build, name), os.path.join(build, 'test', os.path.basename(name))]
    for place in places:
        if os.path.exists(place):
            return place
    raise Failed(f'no program {places[0]}')


def end_group(process):
    """End the benchmark and its children, for instance fio."""
    for number in signal.SIGTERM, signal.SIGKILL:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=GRACE)


def run(build, name, smoke, where):
    """Run one benchmark. @return its rows"""
    command, little, more = BENCHMARKS[name]
    path = f'{where}/{name}.rows'
    command = [program(build, command[0]), *command[1:], *(little if smoke else more),
               '--rows', path]
    print(f'== {name}', flush=True)
    begin, status = time.monotonic(), None
    with subprocess.Popen(command, cwd=build, stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT,
                          start_new_session=True) as process:
        try:
            status = process.wait(timeout=LIMIT)
        except subprocess.TimeoutExpired as error:
            raise Failed(f'has not ended in {LIMIT} s') from error
        finally:
            if status != 0:
                end_group(process)
    print(f'== {name}: {time.monotonic() - begin:.0f} s', flush=True)
    if status not in (0, SKIPPED):
        raise Failed(f'exit status {status}')
    rows = read_rows(path)
    if status == SKIPPED:
        return rows + [missing(name, 'all', 'skipped: the reason is above')]
    if not rows:
        raise Failed('it ended well without a single row')
    return rows


def read_rows(path):
    rows = []
    with contextlib.suppress(FileNotFoundError), open(path, encoding='utf-8') as lines:
        for line in lines:
            fields = line.rstrip('\n').split('\t')
            if len(fields) != len(FIELDS):
                raise Failed(f'a row of {len(fields)} fields, expected {len(FIELDS)}: {line!r}')
            row = dict(zip(FIELDS, fields))
            rows.append({**row, **{field: float(row[field]) for field in NUMBERS}})
    return rows


def missing(stage, what, why):
    return {**dict.fromkeys(FIELDS, ''), **dict.fromkeys(NUMBERS, 0.0), 'stage': stage,
            'what': what, 'missing': why}


def verdict(row):
    if not row['goal']:
        return ''
    field, relation, limit = row['goal'].split()
    met = row[field] >= float(limit) if relation == '>=' else row[field] <= float(limit)
    return f'{row["goal"]}, {"met" if met else "MISSED"}'


def number(value):
    if abs(value) >= 1000 or value == int(value):
        return f'{value:,.0f}'
    return f'{value:.3g}' if abs(value) < 100 else f'{value:.0f}'


def cells(row):
    """Cells of a row; a backslash is an empty one."""
    if row['missing']:
        return (row['stage'], row['what'], 'NOT MEASURED', row['missing'], '\\', '\\', '\\')
    ratio = f'{row["ratio"]:.2f}' if row['ratio'] else '\\'
    return (row['stage'], row['what'], f'{number(row["value"])} {row["unit"]}',
            f'{row["against"]}: {number(row["other"])}' if row['against'] else '\\',
            f'{ratio} q' if row['ratio'] and not row['paired'] else ratio,
            verdict(row) or '\\', row['notes'] or '\\')


def table(rows):
    """Lines of a simple table of reStructuredText."""
    head = ('stage', 'what', 'this', 'peer or ceiling of the same run', 'ratio', 'goal',
            'conditions')
    lines = [cells(r) for r in rows]
    widths = [max(len(c[i]) for c in [head, *lines]) for i in range(len(head))]
    rule = '  '.join('=' * w for w in widths)
    text = ['  '.join(f'{c:{w}}' for c, w in zip(line, widths)).rstrip() for line in [head, *lines]]
    return [rule, text[0], rule, *text[1:], rule]


def report(rows, facts, slug):
    width, most = max(len(k) for k in facts), max(len(v) for v in facts.values())
    rule = '=' * width + ' ' + '=' * most
    title = f'All stages of the host: {slug}'
    return '\n'.join([
        '.. SPDX-License-Identifier: BSD-3-Clause', '', GENERATED, '', title, '=' * len(title), '',
        rule, *(f'{k:{width}} {v}' for k, v in facts.items()), rule,
        '', 'Medians; CPU time or real-time priority, so that others on the machine count little, '
        'but for', 'files and the whole receiver. A ratio is the median of those of neighbours; '
        'with ``q`` it is the', 'quotient of the two medians.', '',
        *table(rows), '', f'.. image:: host-{slug}.svg', ''])


def written_by_hand(path):
    try:
        with open(path, encoding='utf-8') as f:
            return GENERATED not in f.read()
    except FileNotFoundError:
        return False


def refusal(path, names):
    """@return why results of these benchmarks must not be written there; None: they may be"""
    if written_by_hand(path):
        return f'{path}: was not written by this program; move it away'
    if os.path.exists(path) and len(names) < len(BENCHMARKS):
        return f'{path}: it has more than {", ".join(names)}; move it away'
    return None


def measure(build, names, smoke):
    """@return rows of all benchmarks, and the names of those that failed"""
    rows, failed = [], []
    with tempfile.TemporaryDirectory() as where:
        for name in BENCHMARKS:
            if name not in names:
                if not smoke:
                    rows.append(missing(name, 'all', 'not asked for'))
                continue
            try:
                rows += run(build, name, smoke, where)
            except Failed as why:
                print(f'bench: {name}: {why}', flush=True)
                failed.append(name)
                rows.append(missing(name, 'all', f'FAILED: {why}'))
    return rows, failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n', maxsplit=1)[0])
    parser.add_argument('--smoke', action='store_true')
    parser.add_argument('--results')
    parser.add_argument('build')
    parser.add_argument('benchmarks', nargs='*', metavar='BENCHMARK', help=', '.join(BENCHMARKS))
    options = parser.parse_args()
    names = options.benchmarks or list(BENCHMARKS)
    for name in names:
        if name not in BENCHMARKS:
            parser.error(f'{name}: expected {", ".join(BENCHMARKS)}')
    if options.smoke and options.results:
        parser.error('--smoke has no figures to be kept')
    # so that child processes end with this one
    signal.signal(signal.SIGTERM, lambda *_: sys.exit('bench: SIGTERM'))
    build = os.path.abspath(options.build)
    slug = bench_machine.slug(bench_machine.processor(bench_machine.read('/proc/cpuinfo')))
    path = os.path.join(options.results or '.', f'host-{slug}')
    if options.results and refusal(f'{path}.rst', names):
        sys.exit(f'bench: {refusal(f"{path}.rst", names)}')
    facts = bench_machine.facts(build)
    began, load, times = datetime.datetime.now(), os.getloadavg()[0], bench_machine.cpu_times()
    rows, failed = measure(build, names, options.smoke)
    spent = [after - before for before, after in zip(times, bench_machine.cpu_times())]
    facts.update({
        'Date': f'{began:%Y-%m-%d %H:%M} to {datetime.datetime.now():%H:%M}',
        'Load': f'{load:.1f} before, {os.getloadavg()[0]:.1f} after (1 minute); the host gave '
                f'{100 * spent[1] / max(spent[0], 1):.1f} % of the CPUs to others',
        'Command': '``make bench``' if not options.benchmarks
                   else f'``bench.py`` for {", ".join(names)}',
    })
    text, picture = report(rows, facts, slug), roofline.draw(rows, facts)
    print(text)
    if failed:
        print(f'bench: failed: {", ".join(failed)}{"; nothing written" if options.results else ""}')
        return 1
    if options.results:
        for name, content in (f'{path}.rst', text), (f'{path}.svg', picture):
            with open(name, 'w', encoding='utf-8') as out:
                out.write(content)
        print(f'written: {path}.rst and .svg')
    return 0


if __name__ == '__main__':
    sys.exit(main())
