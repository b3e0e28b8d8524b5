#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Tests bench.py with benchmarks that fail, hang or print no rows, and tests names of machines and
pictures. The benchmarks themselves are tested elsewhere."""
import contextlib
import io
import os
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock
from xml.etree import ElementTree

import bench
import bench_machine
import heatmap
import roofline

ROW = ('RX', 'all', '10', 'frames/s', 'another', '20', '0.5', 'ratio >= 0.6', '1e6', '1', 'peer',
       'huge pages', '')
SVG = '{http://www.w3.org/2000/svg}'

ZEN3 = ('processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 1\n'
        'model name\t: AMD EPYC\nflags\t\t: fpu avx2 bmi1 bmi2\n\nprocessor\t: 1\n')


def row(**more):
    return {**bench.missing('RX', 'all', ''), 'value': 10.0, 'unit': 'frames/s', 'role': 'peer', **more}


def script(*lines):
    return ['/bin/sh', '-c', '\n'.join(lines), 'bench']


def writing(*rows):
    """A benchmark that prints these rows; its last arguments are `--rows FILE`."""
    text = ''.join('\t'.join(r) + '\n' for r in rows)
    return script(f"for last; do :; done; printf '%s' '{text}' > \"$last\"")


def is_alive(pid):
    """@return whether a process is alive; zombies are not"""
    state = bench_machine.read(f'/proc/{pid}/stat').rpartition(')')[2].split()
    return bool(state) and state[0] != 'Z'


class Bench(unittest.TestCase):
    def setUp(self):
        self.where = self.enterContext(tempfile.TemporaryDirectory())
        slug = bench_machine.slug(bench_machine.processor(bench_machine.read('/proc/cpuinfo')))
        self.table = f'{self.where}/host-{slug}.rst'

    def run_bench(self, benchmarks, *arguments, limit=30):
        """@return exit status, output"""
        printed = io.StringIO()
        commands = {name: (command, [], []) for name, command in benchmarks.items()}
        with mock.patch.object(bench, 'BENCHMARKS', commands), \
                mock.patch.multiple(bench, LIMIT=limit, GRACE=1), \
                mock.patch.object(sys, 'argv', ['bench.py', *arguments]), \
                contextlib.redirect_stdout(printed):
            try:
                status = bench.main()
            except SystemExit as end:
                print(end.code)
                status = 1
        return status, printed.getvalue()

    def results(self):
        with open(self.table, encoding='utf-8') as f:
            return f.read()

    def test_results_are_made_and_made_anew(self):
        for _ in range(2):
            status, _ = self.run_bench({'a': writing(ROW)}, '--results', self.where, '.')
            self.assertEqual(status, 0)
            self.assertIn('ratio >= 0.6, MISSED', self.results())
            self.assertIn('huge pages', self.results())
            ElementTree.parse(self.table.replace('.rst', '.svg'))

    def test_failure_is_named_and_keeps_the_results(self):
        self.run_bench({'a': writing(ROW)}, '--results', self.where, '.')
        before = self.results()
        for command, why in ((script('exit 3'), 'exit status 3'),
                             (writing(), 'without a single row'),
                             (writing(ROW[:9]), 'a row of 9 fields'),
                             (['test/bench/nowhere'], 'no program')):
            status, printed = self.run_bench({'a': writing(ROW), 'b': command},
                                             '--results', self.where, '.')
            self.assertEqual(status, 1)
            self.assertRegex(printed, f'b +all +NOT MEASURED +FAILED: .*{why}')
            self.assertEqual(self.results(), before)

    def test_nothing_that_was_written_by_hand_is_overwritten(self):
        with open(self.table, 'w', encoding='utf-8') as f:
            f.write('by hand\n')
        status, _ = self.run_bench({'a': writing(ROW)}, '--results', self.where, '.')
        self.assertEqual((status, self.results()), (1, 'by hand\n'))

    def test_part_does_not_replace_all(self):
        both = {'a': writing(ROW), 'b': writing(ROW)}
        self.run_bench(both, '--results', self.where, '.')
        before = self.results()
        status, _ = self.run_bench(both, '--results', self.where, '.', 'a')
        self.assertEqual((status, self.results()), (1, before))
        os.remove(self.table)
        status, _ = self.run_bench(both, '--results', self.where, '.', 'a')
        self.assertEqual(status, 0)
        self.assertRegex(self.results(), 'b +all +NOT MEASURED +not asked for')

    def test_skipped(self):
        status, printed = self.run_bench({'a': script('exit 77')}, '.')
        self.assertEqual(status, 0)
        self.assertRegex(printed, 'a +all +NOT MEASURED +skipped')

    def test_whatever_hangs_is_ended_with_all_that_it_has_begun(self):
        pid = f'{self.where}/pid'
        # the child ignores SIGTERM, and its parent ends first
        status, printed = self.run_bench(
            {'a': script(f"sh -c 'trap \"\" TERM; echo $$ > {pid}; while :; do sleep 0.1; done' &",
                         'wait')}, '.', limit=1)
        self.assertEqual(status, 1)
        self.assertIn('has not ended in 1 s', printed)
        end = time.monotonic() + 5
        while is_alive(bench_machine.read(pid).strip()) and time.monotonic() < end:
            time.sleep(0.05)
        self.assertFalse(is_alive(bench_machine.read(pid).strip()))

    def test_quotients_are_marked(self):
        self.assertEqual(bench.cells(row(other=20.0, ratio=0.5, paired=1.0))[4], '0.50')
        self.assertEqual(bench.cells(row(other=20.0, ratio=0.5, paired=0.0))[4], '0.50 q')


class Machine(unittest.TestCase):
    def test_slug(self):
        self.assertEqual(bench_machine.slug(bench_machine.processor(ZEN3)), 'amd-zen3-avx2')
        turin = ZEN3.replace('family\t: 25', 'family\t: 26').replace(
            'bmi2', 'bmi2 avx512f avx512bw avx512dq avx512vl')
        self.assertEqual(bench_machine.slug(bench_machine.processor(turin)), 'amd-zen5-avx512')
        other = ZEN3.replace('AuthenticAMD', 'GenuineIntel').replace('avx2', '')
        self.assertEqual(bench_machine.slug(bench_machine.processor(other)), 'intel-f25m1-plain')


class Pictures(unittest.TestCase):
    facts = {'Machine': 'one', 'Gangs': 'two', 'Date': 'now', 'Commit': 'c'}

    def test_only_floors_are_the_roof(self):
        rows = [row(stage='gang', bytes=1e6, other=20.0, role='floor'),
                row(bytes=1e6, value=900.0, other=90000.0),
                row(stage='gang', what='count from L1', value=70.0, role='ceiling')]
        picture = roofline.draw(rows, self.facts)
        ElementTree.fromstring(picture)
        self.assertIn('0.50 of its floor', picture)
        self.assertIn('0.01 of its peer', picture)
        # 20 frames/s of 1 MB each
        self.assertIn('memory: 0.0 GB/s', picture)
        self.assertIn('arithmetic: count, 70 frames/s', picture)

    def test_empty(self):
        self.assertIn('no stage was measured', roofline.draw([], self.facts))

    def test_heat_map(self):
        log = ['noise', 'threads KiB gpu_out gpu_in', '1 64 0.5 0.25', '2 64 1.5 1.25', 'end']
        out = subprocess.run([sys.executable, heatmap.__file__], input='\n'.join(log), text=True,
                             capture_output=True, check=True).stdout
        texts = [t.text for t in ElementTree.fromstring(out).iter(f'{SVG}text')]
        for text in 'GPU memory to file', '0.50', '1.25', '64 KiB':
            self.assertIn(text, texts)
        none = subprocess.run([sys.executable, heatmap.__file__], input='noise\n', text=True,
                              capture_output=True, check=False)
        self.assertEqual(none.returncode, 1)


if __name__ == '__main__':
    unittest.main()
