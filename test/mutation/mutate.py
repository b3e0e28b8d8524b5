#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Breaks one line of the product at a time, and reports whether the tests detect it.

    test/mutation/mutate.py [OPTION]... [PATTERN]...

Each mutant of mutants.txt is applied to a copy of the working tree. The tests that it names are
built and run there until one fails. Patterns (of the shell) select mutants by name or file.

    --check     only check that each mutant's text is in its file exactly once
    --list      print names, files and tests
    -j N        number of copies, and of mutants tested in parallel (1)
    --keep      keep the copies, and print where they are
    --output    print the output of the test that failed

Results:
    killed      a test failed or did not end, as expected
    SURVIVED    no test failed: a test is missing
    known       no test failed, as its line `survives:` says
    NOT KNOWN   a test failed although it has a line `survives:`: remove the line
    NO BUILD    the mutant does not compile
    NO TEXT     the text to change is not in the file, or more than once: update mutants.txt

Exit status: 0 if all are killed or known, 1 if not, 2 if no mutant could be tested.
"""
import argparse
import concurrent.futures
import fnmatch
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
LIST = os.path.join(HERE, 'mutants.txt')
GOOD = ('killed', 'known')


class Mutant:
    """One entry of the list."""

    def __init__(self, name, line):
        self.name = name
        self.line = line
        self.file = self.why = self.survives = ''
        self.tests = []
        self.old = []
        self.new = []

    def text(self, which):
        return '\n'.join(which) + '\n'

    def problem(self, root):
        """@return why the mutant cannot be applied, '' if it can"""
        if not (self.file and self.tests and self.why):
            return 'file, tests and why are needed'
        if not self.old or self.old == self.new:
            return 'it changes nothing'
        try:
            with open(os.path.join(root, self.file), encoding='utf-8') as stream:
                count = ('\n' + stream.read()).count('\n' + self.text(self.old))
        except OSError as error:
            return f'{self.file}: {error.strerror}'
        if count != 1:
            return f'its text is in {self.file} {count} times, expected once'
        return ''


def fail(what):
    print(f'mutate: {what}', file=sys.stderr)
    sys.exit(2)


def read_list(path):
    """Read the mutants of a file. An entry begins with `== NAME`; the head of the file describes
    it."""
    mutants = []
    with open(path, encoding='utf-8') as stream:
        for number, line in enumerate(stream.read().split('\n'), 1):
            where = f'{os.path.basename(path)}:{number}'
            if not line or line.startswith('#'):
                continue
            if line.startswith('== '):
                mutants.append(Mutant(line[3:].strip(), number))
                continue
            if not mutants:
                fail(f'{where}: an entry begins with `== NAME`')
            mutant = mutants[-1]
            key = re.match(r'(file|tests|why|survives): (.*)', line)
            if key and key[1] == 'tests':
                mutant.tests = [name.strip() for name in key[2].split(',')]
            elif key:
                setattr(mutant, key[1], key[2])
            elif line[:2] in ('- ', '+ ', '  ', '-', '+'):
                if line[0] in '- ':
                    mutant.old.append(line[2:])
                if line[0] in '+ ':
                    mutant.new.append(line[2:])
            else:
                fail(f'{where}: expected file:, tests:, why:, survives:, or a line of text after '
                     '"- ", "+ " or two blanks')
    names = [m.name for m in mutants]
    for name in names:
        if names.count(name) > 1:
            fail(f'{name}: this name is there twice')
    return mutants


def is_tsan(test):
    """Tests that are built with the thread sanitizer."""
    return test.startswith('tsan ')


def output_of(command, **more):
    return subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          text=True, **more).stdout


def output_with(env, command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors='replace', env=env,
                          check=False)
    return done.returncode, done.stdout[-4000:]


class Build:
    """A build directory of a copy, and its tests."""

    ORDINARY = ('-Doptimization=1', '-Dwerror=false', '-Dcuda=disabled')
    THREADS = (*ORDINARY, '-Db_sanitize=thread', '-Db_lundef=false')

    def __init__(self, root, name, options, env, jobs):
        self.directory = os.path.join(root, name)
        self.env = env
        self.jobs = jobs
        self.spent = {}
        status, said = output_with(env, ['meson', 'setup', *options, self.directory, root])
        if status != 0:
            fail(f'meson setup: status {status}\n{said}')
        introspect = ['meson', 'introspect', self.directory]
        self.tests = {t['name']: t for t in json.loads(output_of([*introspect, '--tests']))}
        self.targets = {t['id']: t['filename'] for t in
                        json.loads(output_of([*introspect, '--targets']))}

    def make(self, tests):
        """Build these tests. @return the compiler's output, '' if the build succeeded"""
        files = {os.path.relpath(f, self.directory) for name in tests
                 for target in self.tests[name]['depends'] for f in self.targets[target]}
        status, said = output_with(
            self.env, ['ninja', '-C', self.directory, f'-j{self.jobs}', *sorted(files)])
        return said if status != 0 else ''

    def test(self, name):
        """@return 'ok', 'skipped', 'status N' or 'timeout', and the test's output"""
        test = self.tests[name]
        limit = self.spent[name] * 5 + 20 if name in self.spent else test['timeout'] * 4
        # a session of its own, so that its remaining processes can be killed with it
        with subprocess.Popen(test['cmd'], cwd=test['workdir'] or self.directory,
                              env={**self.env, **test['env']}, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              start_new_session=True) as process:
            begin = time.monotonic()
            try:
                said = process.communicate(timeout=limit)[0]
                result = {0: 'ok', 77: 'skipped'}.get(process.returncode,
                                                      f'status {process.returncode}')
            except subprocess.TimeoutExpired:
                result = 'timeout'
                said = b''
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.spent.setdefault(name, time.monotonic() - begin)
        return result, said.decode(errors='replace')


class Copy:
    """A copy of the working tree and its build directories."""

    def __init__(self, where, jobs, tests):
        self.root = where
        # with ccache, the copies share their objects
        env = {**os.environ, 'CCACHE_NOHASHDIR': '1', 'CCACHE_BASEDIR': where}
        files = output_of(['git', 'ls-files', '-z', '--cached', '--others', '--exclude-standard'],
                          cwd=ROOT)
        for name in files.split('\0'):
            source = os.path.join(ROOT, name)
            if name and os.path.isfile(source):
                os.makedirs(os.path.dirname(os.path.join(where, name)), exist_ok=True)
                shutil.copy2(source, os.path.join(where, name))
        for beside in ('.deps', os.path.join('..', 'shared')):
            source = os.path.realpath(os.path.join(ROOT, beside))
            target = os.path.normpath(os.path.join(where, beside))
            if os.path.exists(source) and not os.path.lexists(target):
                os.symlink(source, target)
        self.builds = [
            Build(where, name, options, env, jobs)
            for name, options in (('build', Build.ORDINARY), ('build-tsan', Build.THREADS))
            if any(is_tsan(t) == (name == 'build-tsan') for t in tests)]

    def build_of(self, name):
        return self.builds[-1 if is_tsan(name) else 0]

    def make(self, tests):
        for build in self.builds:
            said = build.make([t for t in tests if self.build_of(t) is build])
            if said:
                return said
        return ''

    def test(self, name):
        return self.build_of(name).test(name)

    def try_mutant(self, mutant):
        """@return the result, the test that decided it, and its output"""
        problem = mutant.problem(self.root)
        if problem:
            return 'NO TEXT', problem, ''
        path = os.path.join(self.root, mutant.file)
        with open(path, encoding='utf-8') as stream:
            good = stream.read()
        bad = ('\n' + good).replace('\n' + mutant.text(mutant.old),
                                    '\n' + mutant.text(mutant.new), 1)[1:]
        try:
            with open(path, 'w', encoding='utf-8') as stream:
                stream.write(bad)
            for name in mutant.tests:
                said = self.make([name])
                if said:
                    return 'NO BUILD', name, said
                result, said = self.test(name)
                if result not in ('ok', 'skipped'):
                    return ('NOT KNOWN' if mutant.survives else 'killed',
                            f'{name} ({result})', said)
            return ('known', mutant.survives, '') if mutant.survives else \
                ('SURVIVED', ', '.join(mutant.tests), '')
        finally:
            with open(path, 'w', encoding='utf-8') as stream:
                stream.write(good)


def try_all(mutants, arguments, where):
    """@return the number of mutants with another result than killed or known"""
    copies = queue.Queue()
    jobs = max(1, (os.cpu_count() or 1) // arguments.j)
    # one folder deeper, as tests look for data beside the checkout
    needed = sorted({name for m in mutants for name in m.tests})
    for i in range(arguments.j):
        root = os.path.join(where, f'copy{i}', 'braggline')
        os.makedirs(root)
        copies.put(Copy(root, jobs, needed))
    for copy in list(copies.queue):
        unknown = [name for name in needed if name not in copy.build_of(name).tests]
        if unknown:
            fail(f'no such test: {", ".join(unknown)} (meson test --list has the names)')
        said = copy.make(needed)
        if said:
            fail(f'the tree does not build:\n{said}')
        for name in needed:
            result, said = copy.test(name)
            if result not in ('ok', 'skipped'):
                fail(f'{name} fails without a mutant ({result}):\n{said[-4000:]}')
            if result == 'skipped':
                print(f'mutate: {name} is skipped here: it kills nothing', flush=True)

    def one(mutant):
        copy = copies.get()
        begin = time.monotonic()
        try:
            return mutant, *copy.try_mutant(mutant), time.monotonic() - begin
        finally:
            copies.put(copy)

    ends = {}
    with concurrent.futures.ThreadPoolExecutor(arguments.j) as pool:
        for mutant, end, by, said, seconds in pool.map(one, mutants):
            ends[end] = ends.get(end, 0) + 1
            print(f'{end:9}  {mutant.name:40} {seconds:4.0f} s  {by}', flush=True)
            if said and (arguments.output or end == 'NO BUILD'):
                print(said[-4000:])
    print(', '.join(f'{n} {end}' for end, n in sorted(ends.items())))
    return sum(n for end, n in ends.items() if end not in GOOD)


def main():
    parser = argparse.ArgumentParser(usage='mutate.py [OPTION]... [PATTERN]...')
    parser.add_argument('--check', action='store_true')
    parser.add_argument('--list', action='store_true')
    parser.add_argument('--keep', action='store_true')
    parser.add_argument('--output', action='store_true')
    parser.add_argument('-j', type=int, default=1)
    parser.add_argument('patterns', nargs='*')
    arguments = parser.parse_args()

    mutants = [m for m in read_list(LIST)
               if not arguments.patterns or any(fnmatch.fnmatch(text, p) for text in
                                                (m.name, m.file) for p in arguments.patterns)]
    if not mutants:
        fail('no mutant has such a name')
    if arguments.list:
        for m in mutants:
            print(f'{m.name:40} {m.file:44} {", ".join(m.tests)}')
        return 0
    if arguments.check:
        problems = [f'test/mutation/mutants.txt:{m.line}: {m.name}: {p}'
                    for m in mutants if (p := m.problem(ROOT))]
        print(*problems, sep='\n', end='\n' if problems else '')
        return 1 if problems else 0
    where = tempfile.mkdtemp(prefix='mutation')
    try:
        return 1 if try_all(mutants, arguments, where) else 0
    finally:
        if arguments.keep:
            print(f'copies are in {where}')
        else:
            shutil.rmtree(where, ignore_errors=True)


if __name__ == '__main__':
    sys.exit(main())
