#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Compares --help of each program and command with the tables of its README.rst, with its manual
page and with its completion: the same options in the same order, the same arguments and defaults,
and the same usage lines. The pages of headers have all functions.

usage: manual_test.py BUILD-DIR SOURCE-DIR
"""

import glob
import os
import re
import shutil
import subprocess
import sys

from cases import want

SECONDS = 30
EAL = ['--no-huge', '--no-pci', '--no-shconf', '--no-telemetry', '-m', '64', '--']
# programs whose commands need EAL for their --help
WITH_EAL = ('braggline-rdma',)


def output(command, **others):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=SECONDS, check=False, **others)
    want(done.returncode == 0, *command, 'gave', done.returncode, done.stderr)
    return done.stdout


def help_options(text):
    """Options that --help prints: (option with its argument, first line of its meaning). The list
    ends at a line of text that is not indented."""
    found = []
    for line in text.splitlines():
        match = re.match(r' {2,6}(-[^ ,]+(?:, --\S+)?(?: \[?[A-Z]\S*)?) +(\S.*)$', line)
        if match is not None:
            found.append(match.groups())
        elif found and line and line[0] != ' ':
            break
    return found


def usage_lines(text):
    """Command lines after `Usage:`, without their comments."""
    lines = []
    for line in text.splitlines():
        match = re.match(r'(?:[Uu]sage:| {6}) (braggline\S* .*)', line)
        if match is None:
            break
        lines.append(re.split(r' {3,}', match[1])[0])
    return lines


def man_terms(text):
    """Terms of definition lists of a manual page whose name begins with a dash."""
    found = []
    lines = text.splitlines()
    for before, line in zip(lines, lines[1:]):
        if before == '.TP' and line.startswith('.B '):
            term = line[3:].replace('\\-', '-').replace('\\(ha', '^')
            term = term.replace('\\fP', '').replace('\\fB', '').replace('\\&', '')
            if term.startswith('-'):
                found.append(term)
    return found


def contains(items, part):
    return any(items[at:at + len(part)] == part for at in range(len(items) - len(part) + 1))


def complete(path, words):
    """What the completion offers for the last word, with stubs for bash-completion's functions."""
    script = '''
        _init_completion() {
            words=("${COMP_WORDS[@]}") cword=$COMP_CWORD
            cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
        }
        _filedir() { COMPREPLY+=("FILES $*"); }
        compopt() { :; }
        . "$1"; shift
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
        function=_${1//-/_}
        $function
        printf '%s\\n' "${COMPREPLY[@]}"'''
    return output(['bash', '-c', script, 'bash', path, *words]).splitlines()


def check_command(command, name, documented, synopsis, eal):
    """One --help and its table. @return its options as --help names them"""
    text = output([*command, *(EAL if eal else []), *([name] if name else []), '--help'])
    printed = help_options(text)
    tables = [option.text for option in documented]
    want([option for option, _ in printed] == tables, *command, name, '--help has',
         [option for option, _ in printed], 'README.rst has', tables)
    for (option, meaning), row in zip(printed, documented):
        default = re.search(r'\(([^()]*)\)$', meaning)
        if row.default and default and not default[1].startswith('default'):
            # --help shows numbers in full: 79.1,79.1,37.9,90,90,90
            want(default[1].startswith(row.default), *command, option, '--help has', default[1],
                 'README.rst has', row.default)
    if synopsis:
        want(usage_lines(text) == synopsis, *command, name, '--help has', usage_lines(text),
             'README.rst has', synopsis)
    return [option for option, _ in printed]


def check_page(page, build, source, readme, completion):
    program = f'{build}/{page.folder}/{page.name}'
    document = readme.read(readme.readme_of(source, page.folder))
    with open(f'{build}/conf/man/{page.name}.1', encoding='utf-8') as stream:
        manual = stream.read()
    lists = completion.options_of(page, source)
    in_manual = man_terms(manual)
    for name, documented in lists.items():
        if not documented:
            continue
        nodes = (readme.find_section(document, page.commands[name]).children if name
                 else readme.introduction(document))
        synopsis = readme.synopsis(nodes, page.name)
        options = check_command([program], name, documented, synopsis, page.name in WITH_EAL)
        want(name or synopsis, page.folder, 'README.rst has no synopsis')
        # those of all modes have a table of their own
        shared = 0 if page.name not in WITH_EAL else len(readme.options(
            readme.find_section(document, 'Options/all modes')))
        for part in options[:len(options) - shared], options[len(options) - shared:]:
            want(contains(in_manual, part), page.name, name, 'the manual page does not have', part,
                 'in this order, but', in_manual)
        words = [page.name, *([name] if name else []), '-']
        offered = complete(f'{build}/conf/man/{page.name}', words)
        names = [n for option in documented for n in option.names()]
        want(offered == names, page.name, name, 'completion offers', offered, 'expected', names)


def check_arguments(build):
    """Arguments are completed: names of settings, words, files."""
    def offers(program, *words):
        return complete(f'{build}/conf/man/{program}', [program, *words])
    want('veto.strong_min=' in offers('braggline-recv', '--set', 'veto.'), 'no setting')
    want(offers('braggline-store', '-s', 'files.ch') == ['files.check='], 'no setting of the store')
    want(offers('braggline-recv', '-c', '') == ['FILES '], 'no file')
    want(offers('braggline-store', 'import', '--to', '') == ['FILES -d'], 'no directory')
    want(offers('braggline-recv', '--set', 'port\\ 0.mt') == ['port\\ 0.mtu='], 'no setting of a port')
    want(offers('braggline-scan', '--unit', '2') == ['2theta'], 'no unit')
    want(offers('braggline-scan', '--format', '') == ['table', 'csv', 'json', 'arrow'], 'no format')
    want(offers('braggline-detector', '--fault', 'st') == ['stall='], 'no fault')
    want(sorted(offers('braggline-detector', '--transport', '')) ==
         ['multicast', 'send', 'udp', 'write'], 'no transport')
    if os.path.exists(f'{build}/conf/man/braggline-publish'):
        want(offers('braggline-publish', '--geom', '') == ['FILES '], 'no geometry')
        want(offers('braggline-publish', '--stream2-') == ['--stream2-pub'], 'no option')
    if os.path.exists(f'{build}/conf/man/braggline-view'):
        want(offers('braggline-view', '--receiver', '') == ['FILES '], 'no socket')
    want(offers('braggline-store', 'rec') == ['reconcile', 'FILES '], 'no command')


def check_text(build, source, pages):
    """Manual pages have no messages of docutils and no paths of the machine that made them. Files
    have the names that they have on a machine without the source tree."""
    for page in pages:
        path = f'{build}/conf/man/{page.name}.{page.section}'
        if not os.path.exists(path):
            continue
        with open(path, encoding='utf-8') as stream:
            text = re.sub(r'\\f[A-Z]|\\%|\\&', '', stream.read()).replace('\\-', '-')
        for wrong in (r'\((INFO|WARNING|ERROR|SEVERE)/\d\)', r'README\.rst', r'\bDefault: \.',
                      re.escape(os.path.abspath(source)), re.escape(os.path.abspath(build)),
                      r'(?<![\w/-])conf/[a-z]', r'keeps:\n\.SH',
                      r'(?<![\w/-])(app|pmd-ext|gpu-kernels|test)/[\w/.-]+\.(?!html)[a-z]+\b(?! --|\s+of\s+the\s+source)'):
            found = re.search(f'.*(?:{wrong}).*', text)
            want(found is None, path, 'has', wrong, 'in', found and found[0])


def header_pages(build):
    return sorted(glob.glob(f'{glob.escape(build)}/conf/man/*.h.3'))


def check_headers(build, source):
    """A header's page has each function, and a function's comment in full."""
    want(len(header_pages(build)) > 10, header_pages(build))
    for path in header_pages(build):
        name = os.path.basename(path)[:-2]
        header, = (found for folder in ('gpu-kernels', 'pmd-ext/*', 'pmd-ext/*/*')
                   for found in glob.glob(f'{glob.escape(source)}/{folder}/{name}'))
        with open(header, encoding='utf-8') as stream:
            code = re.sub(r'/\*.*?\*/', '', stream.read(), flags=re.S)
        with open(path, encoding='utf-8') as stream:
            text = re.sub(r'\\f[A-Z]|\\&', '', stream.read()).replace('\\-', '-')
        functions = re.findall(r'^(?:\w[\w ]*[ *])?((?:rdma|gk|gpu|net)_\w+)\(', code, re.M)
        missing = [function for function in functions if f'{function}(' not in text]
        want(not missing, path, 'has no', missing)
    with open(f'{build}/conf/man/rdma.h.3', encoding='utf-8') as stream:
        text = ' '.join(stream.read().replace('\\-', '-').split())
    for part in ('struct rdma_pd *rdma_pd_alloc(struct rdma_dev *dev);',
                 'NULL with rte_errno ENOMEM', '-EBUSY: memory regions, queue pairs'):
        want(part in text, 'rdma.h.3 has no', part)


def check_rendering(build, pages):
    """Manual pages have no errors of roff, if there is a man that shows them."""
    if shutil.which('man') is None or shutil.which('groff') is None:
        print('skipped: rendering: man and groff are not installed')
        return
    for path, summary in [
            *((f'{build}/conf/man/{page.name}.{page.section}', page.summary) for page in pages),
            *((path, os.path.basename(path)[:-2] + ' - ') for path in header_pages(build))]:
        if not os.path.exists(path):
            continue
        done = subprocess.run(['man', '--warnings', '-E', 'UTF-8', '-l', path], check=False,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=SECONDS,
                              env={**os.environ, 'LC_ALL': 'C.UTF-8', 'MANWIDTH': '80'})
        want(done.returncode == 0 and done.stderr == '', path, done.stderr)
        want(summary in ' '.join(done.stdout.replace('\u2010', '-').split()), path,
             'has no summary')


def main():
    build, source = sys.argv[1:3]
    sys.path.insert(0, f'{source}/conf/man')
    import completion
    import pages
    import readme
    for page in pages.PAGES:
        if page.section == 1 and os.path.exists(f'{build}/conf/man/{page.name}.1'):
            check_page(page, build, source, readme, completion)
    check_arguments(build)
    check_text(build, source, pages.PAGES)
    check_headers(build, source)
    check_rendering(build, pages.PAGES)
    print('manual: --help, READMEs, manual pages and completions agree')


main()
