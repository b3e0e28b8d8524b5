#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""All benchmarks of the host as one table and one picture: what `make bench` ends with.

    bench.py [--smoke] [--results DIR] BUILD-DIR [BENCHMARK]...

The table (host.rst) and the roofline (host.svg) go to DIR; without it they are only printed.
--smoke: a little of everything, so that it never rots; no figure is looked at. Exit status 1 when a
benchmark fails. A goal that is missed is said, and fails nothing: the machine may be another one.
"""
import argparse
import datetime
import os
import platform
import subprocess
import sys
import tempfile

import roofline

HERE = os.path.dirname(os.path.abspath(__file__))
FIELDS = ('stage', 'what', 'value', 'unit', 'against', 'other', 'ratio', 'goal', 'bytes')

LIMIT = 400  # seconds of a benchmark

# name: command below the build directory, what is added for smoke, what for figures
BENCHMARKS = {
    'rx': (['test/bench/rx_bench'],
           ['--frames', '2', '--rounds', '1', '--seconds', '0.05'], []),
    'replay': (['test/bench/replay_bench'], ['--mib', '16', '--rounds', '1', '--seconds', '0.05'],
               []),
    'gk': (['test/bench/gk_bench', '--numpy', f'{HERE}/gk_bench_numpy.py'],
           ['--modules', '1', '--repeats', '1'], []),
    'bitshuffle': (['test/bench/bitshuffle_bench'], ['--modules', '1', '--repeats', '1'], []),
    'writer': (['test/bench/writer_bench'], ['--mib', '64', '--rounds', '1'], ['--rounds', '5']),
    'store': (['test/bench/store_bench'], ['--mib', '64', '--rounds', '1'], ['--rounds', '7']),
    'recv': ([sys.executable, f'{HERE}/recv_bench.py', '.'],
             ['--frames', '8', '--seconds', '1'], []),
}


def run(build, name, smoke, where):
    """One benchmark; @return its rows, or None when it failed."""
    command, little, more = BENCHMARKS[name]
    rows = f'{where}/{name}.rows'
    command = [*command, *(little if smoke else more), '--rows', rows]
    if not command[0].startswith('/'):
        command[0] = os.path.join(build, command[0])
    print(f'== {name}', flush=True)
    with subprocess.Popen(command, cwd=build, stdin=subprocess.DEVNULL,
                          stderr=subprocess.STDOUT) as process:
        try:
            status = process.wait(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            print(f'bench: {name}: has not ended in {LIMIT} s: {" ".join(command)}')
            process.terminate()  # what it has started goes with it
            return None
    if status != 0:
        print(f'bench: {name}: exit status {status}: {" ".join(command)}')
        return None
    with open(rows, encoding='utf-8') as lines:
        found = [dict(zip(FIELDS, line.rstrip('\n').split('\t'))) for line in lines]
    for row in found:
        for field in ('value', 'other', 'ratio', 'bytes'):
            row[field] = float(row[field])
    return found


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


def table(rows):
    """Lines of a simple table of reStructuredText."""
    head = ('stage', 'what', 'this', 'peer or ceiling of the same run', 'ratio', 'goal')
    cells = [(r['stage'], r['what'], f'{number(r["value"])} {r["unit"]}',
              f'{r["against"]}: {number(r["other"])}' if r['against'] else '\\',
              f'{r["ratio"]:.2f}' if r['ratio'] else '\\', verdict(r) or '\\') for r in rows]
    widths = [max(len(c[i]) for c in [head, *cells]) for i in range(len(head))]
    rule = '  '.join('=' * w for w in widths)
    return [rule, *('  '.join(f'{c:{w}}' for c, w in zip(line, widths)).rstrip()
                    for line in [head]), rule,
            *('  '.join(f'{c:{w}}' for c, w in zip(line, widths)).rstrip() for line in cells),
            rule]


def machine():
    model = 'unknown processor'
    with open('/proc/cpuinfo', encoding='utf-8') as lines:
        for line in lines:
            if line.startswith('model name'):
                model = line.split(':')[1].strip()
                break
    memory, huge = 0, 0
    with open('/proc/meminfo', encoding='utf-8') as lines:
        for line in lines:
            if line.startswith('MemTotal'):
                memory = int(line.split()[1]) >> 20
            if line.startswith('HugePages_Total'):
                huge = int(line.split()[1])
    return (f'{os.cpu_count()} CPUs of {model}, {memory} GB, '
            f'{huge} huge pages, Linux {platform.release()}')


def commit():
    done = subprocess.run(['git', 'describe', '--always', '--dirty', '--abbrev=12'], cwd=HERE,
                          capture_output=True, text=True, check=False)
    return done.stdout.strip() or 'unknown'


def report(rows, facts):
    width = max(len(k) for k in facts)
    rule = '=' * width + ' ' + '=' * 80
    return '\n'.join([
        '.. SPDX-License-Identifier: BSD-3-Clause', '', 'All stages of the host',
        '======================', '', rule, *(f'{k:{width}} {v}' for k, v in facts.items()), rule,
        '', 'Medians; CPU time or real-time priority, so that others on the machine count little, '
        'but for', 'files and the whole receiver. The ratio is the median of neighbours.', '',
        *table(rows), '', '.. image:: host.svg', ''])


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
            parser.error(f'{name}: wanted {", ".join(BENCHMARKS)}')
    began, load = datetime.datetime.now(), os.getloadavg()[0]
    rows, failed = [], []
    with tempfile.TemporaryDirectory() as where:
        for name in names:
            found = run(os.path.abspath(options.build), name, options.smoke, where)
            if found is None:
                failed.append(name)
            else:
                rows += found
    facts = {
        'Machine': machine(),
        'Date': f'{began:%Y-%m-%d %H:%M}',
        'Load': f'{load:.1f} before, {os.getloadavg()[0]:.1f} after (1 minute)',
        'Commit': commit(),
        'Command': '``make bench``' if not options.benchmarks
                   else f'``bench.py`` for {", ".join(names)}',
    }
    text, picture = report(rows, facts), roofline.draw(rows, facts)
    print(text)
    if options.results:
        for name, content in ('host.rst', text), ('host.svg', picture):
            with open(os.path.join(options.results, name), 'w', encoding='utf-8') as out:
                out.write(content)
        print(f'written: {options.results}/host.rst and host.svg')
    if failed:
        print(f'bench: failed: {", ".join(failed)}')
    return 1 if failed or not rows else 0


if __name__ == '__main__':
    sys.exit(main())
