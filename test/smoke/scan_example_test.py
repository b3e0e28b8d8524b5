#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The example of app/scan/README.rst for --serve and --connect without an RDMA device, as it is
printed there, in folders and network namespaces of its own.

usage: scan_example_test.py BUILD-DIR LIBDUCKDB.SO
"""

import os
import re
import signal
import subprocess
import sys
import tempfile

import background
from cases import wait, want
from world import inside

HERE = os.path.dirname(os.path.abspath(__file__))
FRAMES = 20


def skip(what):
    print('skipped:', what)
    sys.exit(77)


def commands(path, begin, end):
    """Indented blocks of a document between two texts."""
    with open(path, encoding='utf-8') as f:
        text = f.read()
    part = text[text.index(begin):text.index(end)]
    return [re.sub('^    ', '', block, flags=re.MULTILINE)
            for block in re.findall(r'::\n\n((?:    .*\n)+)', part)]


def command_of_tour():
    """The command in the first lines of conf/demo.ini."""
    with open(f'{HERE}/../../conf/demo.ini', encoding='utf-8') as f:
        head = f.read().split('\n\n', maxsplit=1)[0]
    return re.sub('^;  ', '', '\n'.join(re.findall('^;   .*', head, flags=re.MULTILINE)), flags=re.MULTILINE)


def shell(command, where, **more):
    done = subprocess.run(['sh', '-ec', command], cwd=where, stdin=subprocess.DEVNULL, timeout=60,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, **more)
    want(done.returncode == 0, command, done.returncode, done.stderr.decode())
    return done.stdout.decode()


def example(build, library, where):
    create, serve, connect, remove = commands(f'{HERE}/../../app/scan/README.rst', '**Without an RDMA device.**',
                                              'The keyring has the format')
    # a build directory after `make demo`
    here = f'{where}/build'
    os.mkdir(here)
    os.mkdir(f'{where}/.deps')
    os.symlink(library, f'{where}/.deps/libduckdb.so')
    os.symlink(f'{build}/app', f'{here}/app')
    os.symlink(f'{HERE}/../../conf', f'{where}/conf')
    shell(f'mkdir demo; app/detector/braggline-detector --frames {FRAMES} --pcap demo/capture.pcap --calibration demo',
          here)
    shell(command_of_tour(), here)
    shell(create, here)
    with open(f'{where}/log', 'wb+') as log, \
            background.start(['sh', '-c', serve], cwd=here, stdout=log, stderr=log) as server:
        def said():
            with open(log.name, encoding='utf-8') as lines:
                return lines.read()
        try:
            wait('the server', lambda: server.poll() is not None or 'listening on port 18517' in said())
            want(server.poll() is None, said())
            out = shell(connect, here)
            want(out == f'frames\n------\n{FRAMES:6}\n(1 row)\n', out)
            # Ctrl-C, in its session
            os.killpg(server.pid, signal.SIGINT)
            server.wait(60)
            wait('the end of the server', lambda: 'sessions: 1, lost: 0, queries: 1' in said())
        finally:
            server.kill()
    shell(remove, here)


def main():
    build, library = map(os.path.abspath, sys.argv[1:3])
    if not os.path.exists(library):
        skip(f'{library} is missing: make deps installs it')
    if subprocess.run(['ip', 'link', 'add', 'va', 'type', 'veth', 'peer', 'name', 'vb'],
                      check=False).returncode != 0:
        skip('veth devices cannot be created')
    # namespaces of other users keep their names
    os.makedirs('/run/netns', exist_ok=True)
    subprocess.run(['mount', '-t', 'tmpfs', 'tmpfs', '/run/netns'], check=True)
    with tempfile.TemporaryDirectory() as where:
        example(build, library, where)


if __name__ == '__main__':
    inside(main)
