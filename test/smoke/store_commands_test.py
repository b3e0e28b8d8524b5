#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""braggline-store verify, reconcile and import on the files of a receiver and a store that were
killed.

usage: store_commands_test.py BUILD-DIR MODULES-DIR
"""

import fcntl
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile

from cases import wait, want
from chain import (BLOCK, batches as batches_of, files, flip, held, held_images, nb_batches, parts,
                   stored)
from forge import crc32c, forge_file, forge_journal
from store_test import Chain, SECONDS, end, kill

ENOUGH = 20  # batches
STORE_AT = 80  # of the first store in the header of a journal
STORE_BYTES = 88
HOSTILE = 'a\n\x1b[2Jevil\x7f\x9b'


class Commands:
    def __init__(self, build, name='store'):
        self.program = f'{os.path.abspath(build)}/app/{name}/braggline-{name}'

    def __call__(self, *arguments, status=0, says=''):
        done = subprocess.run([self.program, *arguments], stdin=subprocess.DEVNULL, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=SECONDS)
        want(done.returncode == status and says in done.stdout, *arguments, 'gave',
             done.returncode, f'expected {status} and "{says}":\n', done.stdout)
        return done.stdout


def paths(*directories):
    found = []
    for directory in directories:
        for where, _, names in os.walk(directory):
            found += [f'{where}/{name}' for name in names if name.endswith('.arrow')]
    return sorted(found)


def copy(source, to):
    shutil.copytree(source, to, ignore=shutil.ignore_patterns('.lock', '.identity', '.proved*'))
    return to


def read_locks(*directories):
    """Lock files as a user does who may only read them. @return descriptors"""
    fds = []
    for directory in directories:
        for where, _, names in os.walk(directory):
            for name in names:
                if not name.endswith(('.arrow', '.part')) and name != '.lock':
                    continue
                fds.append(os.open(f'{where}/{name}', os.O_RDONLY))
                fcntl.lockf(fds[-1], fcntl.LOCK_SH)
    want(fds, 'no files in', directories)
    return fds


def check_lock_file(directory):
    mode = os.stat(f'{directory}/.lock').st_mode & 0o777
    want(mode == 0o600, f'{directory}/.lock can be read by others: {mode:o}')


def check_usage(store):
    eal = ('--no-huge', '-m', '64', '--no-pci', '--no-shconf', '-l', '0')
    for words in (['--help'], ['-h'], ['--', '--help'], ['-l', '0', '--', '--help']):
        out = store(*words, says='Usage: braggline-store')
        want('EAL:' not in out, 'help must not need EAL', words, out)
    for words in (['--version'], ['--', '-V']):
        store(*words, says='braggline-store ')
    # wrong options are reported
    for words, says in (
            (['verfy'], "'verfy' is neither a command nor an option: import, recon"),
            (['--', 'x'], "'x' is neither a command nor an option"),
            ([], '--config FILE is required'),
            (['--', '--no-such-option'], "Try 'braggline-store --help'")):
        out = store(*words, status=2, says=says)
        want('EAL:' not in out, 'mistakes must not need EAL', words, out)
    # --dump-config works without mandatory settings
    for words in (['--dump-config'], ['--', '--dump-config']):
        out = store(*words, says='[store]\ndevice = ')
        want('EAL:' not in out, out)
    store('--dump-config', '--set', 'files.io=tape', status=2, says='[files] io = tape')
    for key in ([], ['--set', 'store.keys=']):
        out = store(*eal, '--', '--set', 'store.device=roce:port=0', *key, status=2,
                    says='[store] keys')
        want('is required' in out and '[store] device' not in out, out)
    store('--no-such-eal-option', '--', '--set', 'store.port=1', status=2,
          says='cannot start EAL')
    for command in ('verify', 'reconcile', 'import'):
        store(command, '--help', says=f'usage: braggline-store {command}')
        store(command, status=2)
        store(command, '--no-such-option', status=2)
    store('verify', '/nowhere/at/all', status=1)
    with tempfile.NamedTemporaryFile() as other:
        # that are not read
        for path in other.name, '/dev/null':
            store('verify', path, status=1,
                  says=f'{path}: expected a directory, or a file named *.arrow or *.arrow.part')


def leave(chain, store):
    """Stop the store during a run, then kill the receiver. @return the batches in its journal"""
    program = chain.start_store()
    receiver = chain.start_recv()
    # all commands that write detect the running store
    store('reconcile', chain.stored, status=1, says='in use by a running braggline-store')
    store('import', '--to', chain.stored, chain.where, status=1, says='in use by a running braggline-store')
    wait('batches of both tables', lambda: sorted(nb_batches(p) >= ENOUGH
                                                 for p in parts(chain.stored)) == [True, True])
    # its files are not changed through a directory above it, a run below it, or as a source
    other = f'{chain.where}/other'
    os.mkdir(other)
    run = os.path.dirname(parts(chain.stored)[0])
    before = os.listdir(run)
    for source in chain.stored, run, parts(run)[0], chain.where:
        store('import', '--to', other, source, status=1, says='in use by a running braggline-store')
    for directory in chain.where, run:
        store('reconcile', '--without-journal', directory, status=1,
              says='in use by a running braggline-store')
    want(set(before) <= set(os.listdir(run)), 'files of a running store were removed')
    shutil.rmtree(other)
    program.send_signal(signal.SIGTERM)
    end(program, 'braggline-store')
    # batches from now on stay in the journal
    wait('batches in the ring', lambda: sum(map(len, held(chain.ring).values())) >= ENOUGH)
    kill(receiver)
    left = held(chain.ring)
    want(left, 'nothing is held')
    return left


def check_verify(store, chain):
    out = store('verify', chain.stored, says=' 0 files with errors')
    want(out.count('good ') == len(paths(chain.stored)), 'a line for each file', out)
    damaged = copy(chain.stored, f'{chain.where}/damaged')
    path = paths(damaged)[-1]
    # a body: without its announcement, a batch cannot be compared with a copy
    flip(path, list(batches_of(path))[-1].body + 8)
    store('verify', '--quiet', damaged, status=1, says=f'WRONG  {path}')
    out = store('verify', '--quiet', '--rate-mb', '1000', damaged, status=1, says=' (0 of them repaired)')
    want(f'{path}: damaged: ' in out and ' frame' in out, 'the batch with its frames', out)
    # with a sound copy in another file the batch counts as repaired; the other batches are there
    # twice
    store('verify', damaged, chain.stored, status=1, says=' 1 batches damaged (1 of them repaired)')
    # a copy that another user made is not trusted
    foreign = copy(chain.stored, f'{chain.where}/foreign')
    for p in paths(foreign):
        os.chown(p, 65534, 65534)
    store('verify', damaged, foreign, status=1, says=' 1 batches damaged (0 of them repaired)')
    # the remaining copy must be good, so nothing is truncated
    before = [os.path.getsize(p) for p in paths(chain.stored)]
    store('reconcile', '--without-journal', chain.stored, damaged, status=1,
          says='nothing of its stream is truncated')
    want(before[-1] == os.path.getsize(paths(chain.stored)[-1]), 'the good one was cut')
    shutil.rmtree(damaged)


def recover(store, part):
    scan = os.path.join(os.path.dirname(store.program), '../scan/braggline-scan')
    subprocess.run([scan, '--recover', part], check=False, stdin=subprocess.DEVNULL,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def check_quarantine(store, chain):
    """A batch whose metadata was damaged before its file was completed is found, whether it was cut
    off or not."""
    name = paths(chain.stored)[-1]
    last = list(batches_of(name))[-1]
    for footer in True, False:
        where = f'{chain.where}/hit'
        os.mkdir(where)
        path = f'{where}/{os.path.basename(name)}'
        shutil.copy(name, f'{path}.part')
        flip(f'{path}.part', last.metadata + 20)
        if not footer:
            os.truncate(f'{path}.part', last.end)
        recover(store, f'{path}.part')
        want(os.path.exists(path), 'was not completed')
        kept = f'{path}.quarantine'
        want(os.path.exists(kept) != footer, 'after a valid footer nothing is torn')
        if footer:
            store('verify', where, status=1, says=f'{path}: damaged: ')
            want(os.path.getsize(path) == os.path.getsize(name), 'was changed')
        else:
            out = store('verify', where, status=1, says=f'{kept}: damaged: bytes {2 * BLOCK} to ')
            want(' 0 files with errors, 1 batches damaged (0 of them' in out, out)
        shutil.rmtree(where)


def check_missing(store, chain, name, first, last):
    """The first batch of a stream is in no file: verify reports it."""
    where = f'{chain.where}/missing'
    os.mkdir(where)
    part = f'{where}/{os.path.basename(name)}.part'
    with open(part, 'wb') as out:
        out.write(first.data[:first.metadata] + first.data[first.end:last.end])
    recover(store, part)
    text = 'missing: batches 0 to 0 of images'
    store('verify', where, says=text)
    out = store('verify', '--whole', where, status=1, says=text)
    want(' 0 files with errors' in out and out.endswith(' 1 missing\n'), out)
    store('verify', '--whole', chain.stored, says=' 0 missing')
    shutil.rmtree(where)


def check_hostile_names(store, scan, chain):
    """Names of files and folders forge no lines and do not control the terminal."""
    where = copy(chain.stored, f'{chain.where}/hostile')
    run = os.path.dirname(paths(where)[0])
    target = f'{chain.where}/target'
    os.mkdir(target)
    hostile = f'{where}/{HOSTILE}{os.path.basename(run)}'
    stem = os.path.basename(paths(where)[0]).split('_')[0]

    def clean(program, *arguments, status=None):
        done = subprocess.run([program.program, *arguments], stdin=subprocess.DEVNULL, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SECONDS)
        out = done.stdout
        want(status is None or done.returncode == status, arguments, done.returncode, out)
        want(b'\\x0a\\x1b[2Jevil\\x7f\\xc2\\x9b' in out, 'the name is not shown', arguments, out)
        want(not re.search(rb'[\x00-\x09\x0b-\x1f\x7f]|\xc2[\x80-\x9f]', out), arguments, out)
        want(not re.search(rb'^evil', out, re.MULTILINE), 'forged line', arguments, out)

    # a folder, files of a run, and a file that is none
    os.rename(run, hostile)
    clean(store, 'verify', where, status=0)
    clean(store, 'verify', '--progress', where, status=0)
    clean(store, 'reconcile', '--without-journal', hostile)
    clean(scan, hostile)
    clean(store, 'import', '--keep', '--to', target, where, status=0)
    for path in os.listdir(hostile):
        os.rename(f'{hostile}/{path}', f'{hostile}/{path.replace(".imported", "")}')
    for path in paths(where):
        os.rename(path, path.replace(f'/{stem}_', f'/{HOSTILE}_'))
    clean(scan, hostile)
    clean(store, 'verify', where, status=0)
    with open(f'{where}/{HOSTILE}.arrow', 'wb') as file:
        file.write(bytes(2 * BLOCK))
    for path in (where, f'{where}/{HOSTILE}.arrow', f'{where}/nothing{HOSTILE}'):
        clean(store, 'verify', path, status=1)
        clean(store, 'reconcile', '--without-journal', path, status=1)
        clean(store, 'import', '--to', target, path, status=1)
    clean(store, 'reconcile', '--journal', f'{where}/nothing{HOSTILE}', target, status=1)
    clean(scan, f'{where}/nothing{HOSTILE}')
    shutil.rmtree(where)
    shutil.rmtree(target)


def check_frame(store, chain):
    """Damage to the schema, footer or end of a complete file is reported by verify and scan."""
    name = max(paths(chain.stored), key=os.path.getsize)
    size = os.path.getsize(name)
    first, *_, last = batches_of(name)
    scan = os.path.join(os.path.dirname(store.program), '../scan/braggline-scan')

    def check(spoil, *says):
        where = f'{chain.where}/frame'
        os.mkdir(where)
        path = f'{where}/{os.path.basename(name)}'
        for table in 'frames', 'images':
            shutil.copy(name.rsplit('_', 1)[0] + f'_{table}.arrow', where)
        spoil(path)
        for text in says:
            store('verify', where, status=1, says=text)
        done = subprocess.run([scan, where], check=False, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        want(done.returncode == 1 and (says[0] in done.stdout or 'NOT COMPLETE' in done.stdout),
             'scan', done.returncode, says, done.stdout)
        shutil.rmtree(where)

    def zero(path, at):
        with open(path, 'r+b') as stream:
            stream.seek(at)
            stream.write(bytes(512))

    rows = sum(batch.rows for batch in batches_of(name))
    for at in 0, 1000, BLOCK, BLOCK + 1000:
        check(lambda path, at=at: flip(path, at), 'one of the two copies of its schema is damaged',
              f' {rows} rows valid, 0 damaged')
    check(lambda path: (flip(path, 1000), flip(path, BLOCK + 1001)), 'its schema is damaged')
    # the footer's own copy of the schema
    check(lambda path: zero(path, last.end + 512), 'footer is missing or damaged',
          f' {rows} rows valid, 0 damaged')
    check(lambda path: os.truncate(path, last.end - 1),
          f'damaged: batch {last.sequence} at byte {last.metadata}, frames above ')
    check(lambda path: (flip(path, last.metadata + 20), os.truncate(path, last.end - 1)),
          f'at byte {last.metadata}, {last.end - 1 - last.metadata} bytes, frames above ')
    check_missing(store, chain, name, first, last)
    want(os.path.getsize(name) == size and first.metadata == 2 * BLOCK, name, first.metadata)


def check_scrub(store, chain):
    """verify --all prints its progress; SIGINT ends it with the result so far."""
    where = copy(chain.stored, f'{chain.where}/scrub')
    first = max(paths(where), key=os.path.getsize)
    # at 1 MB/s it is not done before it is interrupted
    for i in range(1 + (20 << 20) // os.path.getsize(first)):
        shutil.copy(first, f'{first}.{i}.arrow.imported')
    terminal, stderr = pty.openpty()
    program = subprocess.Popen([store.program, 'verify', '--all', '--rate-mb', '1', where],
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr,
                               text=True)
    os.close(stderr)
    said = b''
    line = re.compile(rb'\d+\.\d of \d+\.\d GB, \d+\.\d\d GB/s, \d+ s left, ' +
                      where.encode())
    while not line.search(said):
        said += os.read(terminal, 4096)
    program.send_signal(signal.SIGINT)
    # discard further output
    out, _ = program.communicate(timeout=SECONDS)
    os.close(terminal)
    want(program.returncode == 1, 'status', program.returncode, out)
    want('good ' in out and 'interrupted: ' in out, 'what was found so far', out)
    # to the end, without a rate limit and a terminal; the copies are duplicates
    out = store('verify', '--all', '--progress', where, status=1, says=' 0 files with')
    want('interrupted' not in out and '.imported: ' in out, out)
    shutil.rmtree(where)


def check_others(store, chain, there):
    """A copy that another user made, or may replace, is no reason to remove or cut off our own."""
    others = copy(chain.stored, f'{chain.where}/others')
    run = os.path.dirname(paths(others)[0])
    part = f'{run}/left.arrow.part'

    def refused(says):
        store('reconcile', '--without-journal', chain.stored, others, status=1, says=says)
        store('import', '--keep', '--to', chain.stored, others, status=1, says=says)
        want(stored(chain.stored) == there, 'batches were cut off')

    os.chmod(run, 0o777)
    refused(f'{run}: mode is 0777, other users may write')
    os.chmod(run, 0o755)
    shutil.copy(paths(others)[0], part)
    os.chmod(part, 0o622)
    refused(f'{part}: mode is 0622, other users may write')
    os.chmod(part, 0o644)
    os.link(part, f'{run}/left')
    refused(f'{part}: it has 2 hard links')
    if os.geteuid() == 0:
        for path in part, paths(others)[0], run:
            os.chown(path, 65534, 65534)
            refused(f'{path}: owner is user 65534')
            os.chown(path, 0, 0)
            if path == part:
                os.unlink(part)
    else:
        print('SKIPPED: files of another user: root')
    shutil.rmtree(others)


def check_above(store, chain, there):
    """The owner of a folder above could replace ours by a link to other files while a command
    works."""
    if os.geteuid() != 0:
        print('SKIPPED: a folder of another user: root')
        return
    home = f'{chain.where}/home'
    spill = copy(chain.stored, f'{home}/spill')
    outside = f'{chain.where}/outside'
    os.mkdir(outside)
    link = f'{outside}/link'
    both = contents(chain.stored, spill)

    def each(path, says):
        for command in (('verify', path), ('reconcile', '--without-journal', chain.stored, path),
                        ('import', '--to', chain.stored, path), ('import', '--to', path, chain.stored)):
            store(*command, status=1, says=says)
        want(contents(chain.stored, spill) == both, 'a file was changed')

    def refused(says):
        for path in spill, os.path.dirname(paths(spill)[0]):
            each(path, says)
        for command in ('verify',), ('import', '--to', chain.stored):
            store(*command, paths(spill)[0], status=1, says=says)
        os.symlink(spill, link)
        each(link, says)
        os.unlink(link)

    os.chown(home, 65534, 65534)
    refused(f'owner of parent folder {home} is user 65534, who may replace what is below')
    os.chown(home, 0, 0)
    os.chmod(home, 0o777)
    refused(f'mode of parent folder {home} is 0777')
    # a folder is fine, but the link that leads to it is another user's
    os.chmod(home, 0o755)
    os.symlink(spill, link)
    os.chown(link, 65534, 65534, follow_symlinks=False)
    each(link, 'owner of link link is user 65534')
    os.unlink(link)
    # a group that may write was chosen by the owner
    os.chown(home, 0, 65534)
    os.chmod(home, 0o775)
    store('verify', spill, says=' 0 files with errors')
    want(stored(chain.stored) == there, 'batches were removed')
    shutil.rmtree(home)
    shutil.rmtree(outside)


def check_foreign(store, chain, there):
    """A file with batches of another stream than its name says is no copy of these batches."""
    for suffix in '', '.part':
        run = f'{chain.where}/foreign/evil-0000000000000005-0000000000000000'
        os.makedirs(run)
        for path in paths(chain.stored):
            shutil.copy(path, f'{run}/evil_00000000deadbeef_000001_{path.rsplit("_", 1)[1]}{suffix}')
        out = store('verify', chain.stored, run, status=1, says=' 0 duplicates')
        want(suffix or 'or of another stream than its file' in out, out)
        store('reconcile', '--without-journal', chain.stored, run, status=0 if suffix else 1)
        if not suffix:
            store('import', '--to', chain.stored, run, status=1, says='not imported')
        want(stored(chain.stored) == there, 'genuine batches were removed')
        shutil.rmtree(f'{chain.where}/foreign')


def contents(*directories):
    """Size and CRC of each file."""
    found = {}
    for path in paths(*directories):
        with open(path, 'rb') as stream:
            data = stream.read()
        found[path] = len(data), hash(data)
    return found


def check_forged(store, chain):
    """Copies of a batch that differ count as two batches: neither is removed because of the other."""
    forged = copy(chain.stored, f'{chain.where}/forged')
    name = min((p for p in paths(forged) if p.endswith('_images.arrow')), key=os.path.getsize)
    sequence = forge_file(name, [next(batches_of(name)).sequence])[0]
    for path in paths(forged):
        if path != name:
            os.unlink(path)
    genuine = chain.stored + name[len(forged):]
    both = {**contents(chain.stored), **contents(forged)}
    text = f'different: batch {sequence}'
    store('verify', forged, says=' 0 files with errors')

    def unchanged(says, *command):
        out = store(*command, status=1, says=says)
        want(' frame' in out and genuine in out and name in out, 'both files and the frames', out)
        want({**contents(chain.stored), **contents(forged)} == both, 'a file was changed', out)

    # a listing does not need the right to write, nor a lock
    with open(genuine, 'r+b') as one, open(name, 'r+b') as two:
        fcntl.lockf(one, fcntl.LOCK_EX)
        fcntl.lockf(two, fcntl.LOCK_EX)
        unchanged(text, 'verify', chain.stored, forged)
    for order in (chain.stored, forged), (forged, chain.stored):
        unchanged(text, 'reconcile', '--without-journal', *order)
    unchanged(text, 'import', '--to', chain.stored, forged)
    unchanged(text, 'import', '--to', forged, genuine)
    # nor is another table of this run imported
    unchanged(text, 'import', '--to', forged, chain.stored)
    # the store has none of them: the sources are compared
    empty = f'{chain.where}/empty'
    os.mkdir(empty)
    unchanged(text, 'import', '--to', empty, genuine, name)
    want(not paths(empty), 'one of two different files was imported')
    want(not [e for e in os.listdir(empty) if e[0] != '.'], 'an empty run was left', os.listdir(empty))
    # a damaged batch is repaired by a copy with its own CRCs only
    damaged = copy(os.path.dirname(genuine), f'{chain.where}/damaged')
    path = f'{damaged}/{os.path.basename(genuine)}'
    for other in paths(damaged):
        if other != path:
            os.unlink(other)
    flip(path, next(batches_of(path)).body + 8)
    store('verify', damaged, forged, status=1, says=' 1 batches damaged (0 of them repaired)')
    store('verify', damaged, chain.stored, status=1, says=' 1 batches damaged (1 of them repaired)')
    for where in damaged, forged, empty:
        shutil.rmtree(where)


def check_names(store, chain):
    """The name is a part of a run's identity: files of a run under another name are not its."""
    run = os.path.basename(os.path.dirname(paths(chain.stored)[0]))
    name = run.rsplit('-', 2)[0]
    other = f'{chain.where}/other/evil{run[len(name):]}'
    os.makedirs(other)
    for path in paths(chain.stored):
        shutil.copy(path, f'{other}/evil{os.path.basename(path)[len(name):]}')
    both = contents(chain.stored, other)
    store('import', '--to', chain.stored, other, status=1, says='has this run under another name')
    store('reconcile', '--without-journal', chain.stored, other, status=1, says='has two names')
    store('verify', chain.stored, other, status=1, says='has two names')
    empty = f'{chain.where}/empty'
    os.mkdir(empty)
    store('import', '--to', empty, chain.stored, other, '--keep', status=1, says='has two names')
    want(contents(chain.stored, other) == both, 'was imported')
    # the mark that a run has ended is enough
    shutil.rmtree(empty)
    marked = f'{empty}/{run}'
    os.makedirs(marked)
    open(f'{marked}/.ended-{os.path.basename(paths(other)[0]).split("_")[1]}', 'w').close()
    store('import', '--to', empty, paths(other)[0], status=1, says='has this run under another name')
    want(contents(chain.stored, other) == both, 'a file was changed')
    shutil.rmtree(empty)
    shutil.rmtree(f'{chain.where}/other')


def check_ended(store, chain, there):
    """A run that has ended at one store has ended at all that keep its batches."""
    first = copy(chain.stored, f'{chain.where}/first')
    second = copy(chain.stored, f'{chain.where}/later')
    marks = set()
    for path in paths(first):
        marks.add(f'.ended-{os.path.basename(path).split("_")[1]}')
    run = os.path.basename(os.path.dirname(paths(first)[0]))
    for mark in marks:
        open(f'{first}/{run}/{mark}', 'w').close()
    # what only the second store has stays there
    os.unlink(paths(first)[-1])
    kept = contents(first)
    for order in (first, second), (second, first):
        store('reconcile', '--dry-run', '--without-journal', *order, says='would be marked')
        want(not [e for e in os.listdir(f'{second}/{run}') if e in marks], 'a dry run wrote a mark')
    out = store('reconcile', '--without-journal', second, first, says='marked its run as ended')
    want(contents(first) == kept, 'the copy of the store where the run has ended was cut', out)
    want(stored(first, second) == there, 'batches were lost')
    want(marks <= set(os.listdir(f'{second}/{run}')), 'the run is not marked as ended', out)
    # import takes the mark along
    third = f'{chain.where}/third'
    os.mkdir(third)
    store('import', '--to', third, first, says='marked its run as ended')
    want(marks <= set(os.listdir(f'{third}/{run}')), 'the mark was not imported')
    for where in first, second, third:
        shutil.rmtree(where)


def check_no_file(store, chain):
    """A directory or FIFO in place of a file: its batches are missing, which is an error."""
    where = copy(chain.stored, f'{chain.where}/no_file')
    path = paths(where)[-1]
    for suffix in '', '.part':
        os.unlink(path)
        for make in os.mkdir, os.mkfifo:
            make(path + suffix)
            store('verify', where, status=1, says=f'{path}{suffix} is ')
            store('reconcile', '--without-journal', where, status=1, says='expected a regular file')
            store('import', '--to', chain.stored, where, status=1, says='expected a regular file')
            if make is os.mkdir:
                os.rmdir(path + suffix)
            else:
                os.unlink(path + suffix)
        open(path, 'w').close()
    mark = f'{os.path.dirname(path)}/.ended-0123456789abcdef'
    for make in os.mkdir, os.mkfifo:
        make(mark)
        kind = 'a directory' if make is os.mkdir else 'a FIFO, socket or device'
        store('reconcile', '--without-journal', where, status=1,
              says=f'{mark} is {kind} with the name of the mark of an ended run; expected a regular file. If')
        if make is os.mkdir:
            os.rmdir(mark)
    shutil.rmtree(where)


def check_reconcile(store, chain, there):
    second = copy(chain.stored, f'{chain.where}/second')
    # a batch that only the other store has
    os.unlink(paths(chain.stored)[-1])
    store('verify', chain.stored, second, status=1, says='duplicates (run braggline-store reconcile)')
    store('reconcile', chain.stored, second, status=1, says='give the journal of its receiver')
    both = (chain.stored, second)
    store('reconcile', '--dry-run', '--journal', chain.ring, *both, says='would be truncated')
    store('verify', *both, status=1, says='duplicates (run braggline-store reconcile)')
    # a lock file of an older version, and files, that others have locked for reading
    for directory in both:
        open(f'{directory}/.lock', 'a', encoding='ascii').close()
        os.chmod(f'{directory}/.lock', 0o644)
    readers = read_locks(*both)
    store('reconcile', '--journal', chain.ring, *both, says='truncated')
    for fd in readers:
        os.close(fd)
    check_lock_file(chain.stored)
    store('verify', *both, says=' 0 duplicates')
    want(stored(*both) == there, 'batches were lost')
    store('reconcile', *both, says=' 0 duplicates')
    # A directory, and a directory in it: its files are not copies of themselves. Neither is a link.
    link = f'{os.path.dirname(paths(second)[0])}/link.arrow'
    os.link(paths(chain.stored)[0], link)
    store('reconcile', '--without-journal', os.path.dirname(paths(chain.stored)[-1]), *both,
          says=' 0 duplicates')
    os.unlink(link)
    want(stored(*both) == there, 'a file was taken for its own copy')
    # left over by a reconcile that was killed
    left = f'{os.path.dirname(paths(second)[0])}/.run_0123456789abcdef_000001_frames.arrow'
    for suffix in '', '.part':
        shutil.copy(paths(second)[0], left + suffix)
    store('reconcile', *both, says=' 0 duplicates')
    want(not os.path.exists(left) and not os.path.exists(left + '.part'), 'a copy was left')
    return second


def check_two_rings(store, chain, left, ring):
    """Two journals that hold different batches of one number: both are left unchanged."""
    shutil.copy(chain.ring, ring)
    numbers = next(sorted(n) for (_, table), n in left.items() if table == 'images')
    want(forge_journal(ring) == len(numbers), 'not all images were forged')
    target = f'{chain.where}/target'
    os.mkdir(target)
    both = {}
    for path in chain.ring, ring:
        with open(path, 'rb') as file:
            both[path] = file.read()
    before = contents(chain.stored)
    says = f'different: batches {numbers[0]} to {numbers[-1]} of images, receiver '
    # the store has other batches of the stream; a directory that has none
    for directory in chain.stored, target:
        for order in (chain.ring, ring), (ring, chain.ring):
            for dry_run in ['--dry-run'], []:
                store('reconcile', *dry_run, '--journal', order[0], '--journal', order[1], directory,
                      status=1, says=says)
                for path, content in both.items():
                    with open(path, 'rb') as file:
                        want(file.read() == content, f'{path} was changed')
                want(contents(chain.stored) == before, 'a file was changed')
    want(not paths(target), 'a file was made')
    shutil.rmtree(target)


def check_import(store, chain, second, there):
    for source in chain.stored, os.path.dirname(paths(chain.stored)[0]), paths(chain.stored)[0]:
        store('import', '--to', chain.stored, source, status=1, says='source and destination are the same')
    lock = os.open(f'{os.path.dirname(paths(second)[0])}/.lock', os.O_RDWR | os.O_CREAT)
    fcntl.lockf(lock, fcntl.LOCK_EX)
    store('import', '--to', chain.stored, second, status=1, says='receiver that may still spill')
    os.close(lock)
    # users who can only read the files cannot lock them
    for path in f'{chain.stored}/.lock', *paths(second), *(os.path.dirname(p) for p in paths(second)):
        readable = os.open(path, os.O_RDONLY)
        fcntl.flock(readable, fcntl.LOCK_EX)
    read_locks(chain.stored, second)
    duplicates = copy(chain.stored, f'{chain.where}/duplicates')
    nb = len(paths(duplicates))
    store('import', '--keep', '--to', chain.stored, duplicates,
          says='0 batches stored')
    want(not paths(duplicates), 'was not renamed')
    store('import', '--set', f'files.directory={chain.stored}', second,
          says='0 left in the source')
    want(not paths(second) and len(paths(chain.stored)) > nb, 'was not removed')
    want(stored(chain.stored) == there, 'batches were lost')


def check_locked_source(store, chain):
    """A source that cannot be opened at the comparison is left unchanged. The others are imported."""
    target = f'{chain.where}/target'
    os.mkdir(target)
    source = copy(chain.stored, f'{chain.where}/source')
    path = paths(source)[0]
    with open(path, 'r+b') as file:
        before = file.read()
        fcntl.lockf(file, fcntl.LOCK_EX)
        out = store('import', '--to', target, source, status=1, says=', 1 left in the source')
    want(f'cannot open {path}: locked' in out and paths(source) == [path], out)
    with open(path, 'rb') as file:
        want(file.read() == before, 'was changed')
    store('import', '--to', target, source, says=', 0 left in the source')
    want(stored(target) == stored(chain.stored), 'batches were lost')
    shutil.rmtree(source)
    shutil.rmtree(target)


def check_ring(store, chain, left, there):
    store('import', '--to', chain.stored, chain.ring, says='0 left in the source')
    want(not held(chain.ring), 'is still held')
    for key, numbers in left.items():
        there.setdefault(key, {}).update(numbers)
    want(stored(chain.stored) == there, 'what was held is not there')
    for (incarnation, table), numbers in there.items():
        want(sorted(numbers) == list(range(len(numbers))), f'{incarnation:x} {table} has gaps')
    store('import', '--to', chain.stored, chain.ring, says='0 batches stored, 0 already stored')
    store('verify', chain.stored, says=' 0 files with errors')


def rot(directory, expected=None):
    """Flip a bit in the body of a batch. @return its (incarnation, table, sequence)"""
    for incarnation, table, path in files(directory):
        for batch in batches_of(path):
            if expected not in (None, (incarnation, table, batch.sequence)):
                continue
            with open(path, 'r+b') as stream:
                stream.seek(batch.body + 8)
                byte = stream.read(1)[0]
                stream.seek(batch.body + 8)
                stream.write(bytes([byte ^ 1]))
            return
    want(False, 'no batch', expected, 'in', directory)


def check_repaired(store, directory):
    out = store('verify', directory, says=' 1 batches damaged (1 of them repaired)')
    want(' 0 duplicates' in out, out)


def check_rot_and_import(store, chain):
    """A damaged batch in a store's file does not allow the removal of its spilled copy."""
    target = copy(chain.stored, f'{chain.where}/target')
    source = copy(chain.stored, f'{chain.where}/source')
    rot(target)
    store('import', '--to', target, source, says='1 batches in the store are damaged')
    want(not paths(source), 'was not removed')
    check_repaired(store, target)
    shutil.rmtree(target)


def check_rot_and_ring(store, chain, left, ring):
    """A damaged batch in a store's file does not allow its release from a journal."""
    target = copy(chain.stored, f'{chain.where}/target')
    (incarnation, table), of_one = next(iter(left.items()))
    rot(target, (incarnation, table, min(of_one)))
    store('reconcile', '--journal', ring, target, status=1, says='stay in the journal; run braggline-store import')
    want({k: list(v) for k, v in held(ring).items()} == {(incarnation, table): [min(of_one)]},
         'what is damaged in the file is held, and nothing else', held(ring))
    store('import', '--to', target, ring, says='1 batches in the store are damaged')
    want(not held(ring), 'is still held')
    check_repaired(store, target)
    shutil.rmtree(target)


def check_damaged_ring(store, chain, left, ring):
    """A damaged batch of a journal is listed and stays there. The others are imported."""
    target = f'{chain.where}/target'
    os.mkdir(target)
    sequence, _, first, _, body = held_images(ring, 1 << 62)[-2]
    flip(ring, body + 100)
    with open(ring, 'rb') as file:
        before = file.read()
    says = f'its body is damaged; run chain, images {sequence}, frames {first} to '
    store('reconcile', '--dry-run', '--journal', ring, target, status=1, says=says)
    with open(ring, 'rb') as file:
        want(file.read() == before, 'a dry run has changed the journal')
    store('reconcile', '--journal', ring, target, status=1, says=says)
    out = store('import', '--to', target, ring, status=1, says=says)
    want(' 1 left in the source' in out, out)
    kept, = held(ring).values()
    want([sequence] == list(kept), kept)
    found = stored(target)
    want(sum(map(len, found.values())) == sum(map(len, left.values())) - 1, found)
    # and again, until the journal is removed
    store('import', '--to', target, ring, status=1, says='0 batches stored, 0 already stored, 1 left')
    shutil.rmtree(target)
    # one wrong bit in a run is corrected; with more in both copies of its numbers, nothing is
    # imported
    with open(ring, 'wb') as file:
        file.write(before)
    at, = struct.unpack_from('<Q', before, 40)
    flip(ring, at + 16)
    os.mkdir(target)
    store('reconcile', '--dry-run', '--journal', ring, target, status=1,
          says='1 records with a wrong bit or a damaged copy were corrected')
    for wrong in at + 17, at + 2048 + 8, at + 2048 + 9:
        flip(ring, wrong)
    out = store('import', '--to', target, ring, status=1, says='run 0 is damaged: wrong checksum')
    nb = sum(map(len, left.values()))
    want(f'0 batches stored, 0 already stored, {nb} left in the source' in out, out)
    want(sum(map(len, held(ring).values())) == nb, held(ring))
    # two wrong bits in the identity of a store: it may be any of the stores
    with open(ring, 'wb') as file:
        file.write(before)
    flip(ring, body + 100)
    flip(ring, STORE_AT + 8)
    flip(ring, STORE_AT + 9)
    says = 'store 0 is damaged: wrong checksum of its identity'
    store('reconcile', '--dry-run', '--journal', ring, target, status=1, says=says)
    out = store('import', '--to', target, ring, status=1, says=says)
    want(f'{nb} batches stored, 0 already stored, 0 left in the source' in out, out)
    # a journal that begins with zeros
    with open(ring, 'r+b') as file:
        file.write(bytes(8))
    store('import', '--to', target, ring, status=1, says='begins with zeros but is not empty')
    shutil.rmtree(target)
    with open(ring, 'wb') as file:
        file.write(before)
    flip(ring, body + 100)


def records(ring):
    """Offset, state, owner and the stores that may have a copy of each batch held or in doubt."""
    with open(ring, 'rb') as file:
        batches_at, count = struct.unpack('<Q16xI', file.read(BLOCK)[48:76])
        file.seek(batches_at)
        batches = file.read(128 * count)
    return [(batches_at + at, *struct.unpack_from('<BBH', batches, at))
            for at in range(0, len(batches), 128) if batches[at]]


def doubt(ring):
    """As if each batch was sent to store 0, and then to store 1; the last one is in doubt."""
    def sealed(status):
        return status + struct.pack('<I', crc32c(status) ^ crc32c(bytes(4)))

    address = b'10.9.9.9:9'.ljust(64, b'\0')
    with open(ring, 'r+b') as file:
        file.seek(STORE_AT + STORE_BYTES)
        # a store that has never connected, at this address
        file.write(sealed(struct.pack('<I', 1 | 4)) + bytes(8) + address +
                   struct.pack('<II', 0, crc32c(address)))
        last = records(ring)[-1][0]
        for at, *_ in records(ring):
            file.seek(at)
            file.write(sealed(struct.pack('<BBH', 2 if at == last else 1, 1, 3)))


def check_doubts(store, chain, left, ring):
    """The journal still knows which stores may have batches of a run that was left alone."""
    doubt(ring)
    before = records(ring)
    want({r[3] for r in before} == {3}, before)
    target = copy(chain.stored, f'{chain.where}/target')
    other = copy(target, f'{chain.where}/other')
    run = os.path.basename(os.path.dirname(paths(target)[0]))
    (incarnation, _) = next(iter(left))

    def unchanged(says, *command):
        files_before = contents(target, other)
        store(*command, status=1, says=says)
        want(records(ring) == before and contents(target, other) == files_before, 'changed by', *command)

    evil = f'{target}/evil{run[run.index("-"):]}'
    os.mkdir(evil)
    open(f'{evil}/.ended-{incarnation:016x}', 'w').close()
    unchanged('has this run under another name', 'import', '--to', target, ring)
    shutil.rmtree(evil)
    # a source of which nothing is known
    os.mkdir(f'{other}/no_file.arrow')
    unchanged('is a directory', 'import', '--to', target, other, ring)
    os.rmdir(f'{other}/no_file.arrow')
    # a damaged file, and one with other bytes
    path = min((p for p in paths(other) if p.endswith('_images.arrow')), key=os.path.getsize)
    batch = next(batches_of(path))
    flip(path, batch.body + 8)
    unchanged('nothing of its stream is truncated', 'reconcile', '--journal', ring, target, other)
    flip(path, batch.body + 8)
    forge_file(path, [batch.sequence])
    unchanged('different: ', 'reconcile', '--journal', ring, target, other)
    unchanged('different: ', 'import', '--keep', '--to', target, other, ring)
    shutil.rmtree(other)
    # what is imported is not in doubt
    store('import', '--to', target, ring, says='0 left in the source')
    want(not records(ring), records(ring))
    shutil.rmtree(target)


def check_reader(chain, there, modules):
    """apache-arrow finds the expected number of rows in all files."""
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), '../interop/recv_files.mjs')
    if not shutil.which('node') or not os.path.isdir(f'{modules}/node_modules/apache-arrow'):
        print('reader: skipped: apache-arrow is missing (make deps)')
        return
    rows = {'frames': 0, 'images': 0}
    for prefix in {path[:-6].rsplit('_', 1)[0] for path in paths(chain.stored)}:
        for table in rows:
            if not os.path.exists(f'{prefix}_{table}.arrow'):
                continue
            out = subprocess.run(['node', script, modules, 'rows', prefix, table], check=True,
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
            rows[table] += int(out.stdout)
    for table, found in rows.items():
        expected = sum(sum(b.values()) for (_, t), b in there.items() if t == table)
        want(found == expected, f'apache-arrow finds {found} rows of {table}, expected {expected}')


def main():
    store = Commands(sys.argv[1])
    check_usage(store)
    with tempfile.TemporaryDirectory() as where:
        chain = Chain(os.path.abspath(sys.argv[1]), where, 'recv')
        ring = f'{chain.ring}.copy'
        try:
            left = leave(chain, store)
            there = stored(chain.stored)
            check_verify(store, chain)
            check_hostile_names(store, Commands(sys.argv[1], 'scan'), chain)
            check_quarantine(store, chain)
            check_frame(store, chain)
            check_scrub(store, chain)
            check_foreign(store, chain, there)
            check_foreign(store, chain, there)
            check_others(store, chain, there)
            check_above(store, chain, there)
            check_forged(store, chain)
            check_names(store, chain)
            check_ended(store, chain, there)
            check_no_file(store, chain)
            second = check_reconcile(store, chain, there)
            # reconcile records in the journal which batches it has found in files
            left = held(chain.ring)
            check_two_rings(store, chain, left, ring)
            check_import(store, chain, second, there)
            check_locked_source(store, chain)
            check_rot_and_import(store, chain)
            shutil.copy(chain.ring, ring)
            check_doubts(store, chain, left, ring)
            shutil.copy(chain.ring, ring)
            check_damaged_ring(store, chain, left, ring)
            check_ring(store, chain, left, there)
            check_rot_and_ring(store, chain, left, ring)
            check_reader(chain, there, sys.argv[2])
        finally:
            for path in (chain.ring, ring):
                if os.path.exists(path):
                    os.unlink(path)
    print(f'{sum(len(b) for b in there.values())} batches, '
          f'{sum(len(b) for b in left.values())} of them out of the ring')


if __name__ == '__main__':
    main()
