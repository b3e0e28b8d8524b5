#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Compares the tables of settings in README.rst with the programs: the same keys, the same
defaults, and each default is a valid value.

usage: settings_test.py BUILD-DIR SOURCE-DIR
"""

import configparser
import os
import re
import subprocess
import sys
import tempfile

from cases import want

SECONDS = 30


def table(path):
    """Defaults in the README.rst: (section, key) -> text."""
    with open(path) as stream:
        lines = stream.read().splitlines()
    begin = next(i for i, line in enumerate(lines) if re.match('key +default +meaning', line))
    end = next(i for i in range(begin + 2, len(lines)) if lines[i].startswith('==='))
    column = lines[begin].index('default')
    last = lines[begin].index('meaning')
    found = {}
    for line in lines[begin + 2:end]:
        if line[:last].strip() == '':
            continue  # the meaning goes on
        want(line[column - 1] == line[last - 1] == ' ', 'not a row of the table:', line)
        section, names = re.fullmatch(r'\[(.+?)\] (.+)', line[:column].rstrip()).groups()
        names = names.split(', ')
        # `roll_frames, _mib`: the second name has another suffix
        names = [re.sub('_[^_]*$', n, names[0]) if n[0] == '_' else n for n in names]
        texts = line[column:last].rstrip().split(', ')
        want(len(texts) in (1, len(names)), f'{line}: {len(names)} keys, {len(texts)} defaults')
        for name, text in zip(names, texts * len(names) if len(texts) == 1 else texts):
            found[section.replace(' N', ' 0'), name] = text
    return found


def dump(program, *words):
    """Settings that the program prints: (section, key) -> text."""
    done = subprocess.run([program, '--dump-config', *words], stdin=subprocess.DEVNULL, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=SECONDS)
    want(done.returncode == 0 and done.stderr == '', program, *words, 'gave', done.returncode,
         done.stderr)
    ini = configparser.ConfigParser(interpolation=None)
    ini.read_string(done.stdout)
    return {(s, k): v for s in ini.sections() for k, v in ini[s].items()}


def write(path, settings):
    ini = configparser.ConfigParser(interpolation=None)
    for (section, key), text in settings.items():
        if section not in ini:
            ini[section] = {}
        ini[section][key] = text
    with open(path, 'w') as stream:
        ini.write(stream)


def check_table(program, readme, path):
    documented, unset = table(readme), dump(program)
    want(len(documented) > 15, readme, 'has no table')
    want(documented.keys() == unset.keys(), f'{readme}: not in the table:',
         sorted(unset.keys() - documented.keys()), 'not in the program:',
         sorted(documented.keys() - unset.keys()))
    for key, text in documented.items():
        want(text == unset[key], f'{readme}: {key}: {text}, and the program has {unset[key]}')
    write(path, documented)
    want(dump(program, '--config', path) == unset, 'written, the defaults are others')


def check_run(build, where):
    """A receiver with all defaults set explicitly behaves as one without settings."""
    subprocess.run([f'{build}/app/detector/braggline-detector', '--frames', '20', '--pcap',
                    f'{where}/in.pcap'], check=True, stdin=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL, timeout=SECONDS)
    ledgers = []
    for out, words in (('plain', []), ('told', ['--config', f'{where}/recv.ini'])):
        c = [f'{build}/app/recv/braggline-recv', '--no-huge', '-m', '1024', '--no-pci',
             '--no-shconf', '--no-telemetry', '--lcores', f'(0-5)@(0-{os.cpu_count() - 1})',
             '--vdev', 'gpu_host0', '--vdev', f'net_replay0,file={where}/in.pcap', '--', '--quiet',
             *words, '--set', f'output.directory={where}/{out}', '--set', 'run.idle_timeout_ms=300']
        done = subprocess.run(c, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False,
                              stderr=subprocess.STDOUT, text=True, timeout=SECONDS)
        want(done.returncode == 0, out, 'gave', done.returncode, done.stdout)
        want(os.path.exists(f'{where}/{out}/run_images.arrow'), out, os.listdir(f'{where}/{out}'))
        ini = configparser.ConfigParser()
        ini.read(f'{where}/{out}/run_ledger.ini')
        ledgers.append(dict(ini['frames']))
    want(ledgers[0] == ledgers[1] and int(ledgers[0]['frames']) == 20, *ledgers)


def main():
    build, source = sys.argv[1:3]
    with tempfile.TemporaryDirectory() as where:
        for name in ('recv', 'store'):
            check_table(f'{build}/app/{name}/braggline-{name}', f'{source}/app/{name}/README.rst',
                        f'{where}/{name}.ini')
        check_run(build, where)
    print('settings: tables and programs agree')


main()
