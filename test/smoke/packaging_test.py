#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The Debian packaging fits the tree: each installed file is in exactly one package, each line of
the packages' lists has files, and the packages depend on what .ci/deps installs. `make deb-test`
tries the packages themselves.

usage: packaging_test.py BUILD-DIR SOURCE-DIR
"""

import fnmatch
import glob
import json
import os
import re
import subprocess
import sys

from cases import want


def installed(build):
    """Paths of files that `meson install` makes, as in a package: usr/bin/..."""
    def meson(what):
        done = subprocess.run(['meson', 'introspect', build, what], check=True, text=True,
                              stdout=subprocess.PIPE)
        return json.loads(done.stdout)
    options = {option['name']: option['value'] for option in meson('--buildoptions')}
    paths = set()
    for path in meson('--installed').values():
        path = os.path.relpath(path, options['prefix'])
        want(not path.startswith('..'), path, 'is outside the prefix')
        if path.startswith(options['systemd_unit_dir']):
            path = 'lib/systemd/system/' + os.path.basename(path)
        elif path.startswith(options['libdir'] + '/') and not path.startswith('lib/sysusers.d'):
            # /usr/lib/MULTIARCH, which this build may not have
            path = 'usr/lib/multiarch/' + os.path.relpath(path, options['libdir'])
        elif path.startswith(options['sysconfdir'].lstrip('/') + '/'):
            # /etc if the prefix is /usr
            path = 'etc/' + os.path.relpath(path, options['sysconfdir'].lstrip('/'))
        else:
            path = f'usr/{path}'
        paths.add(path)
    return paths


def lists(folder):
    """Patterns of debhelper's lists by package."""
    found = {}
    for path in glob.glob(f'{folder}/*.install'):
        with open(path, encoding='utf-8') as stream:
            found[os.path.basename(path)[:-len('.install')]] = [
                line.split()[0] for line in stream if not line.startswith('debian/')]
    return found


def is_in(path, pattern):
    return fnmatch.fnmatch(path, pattern) or fnmatch.fnmatch(path, pattern + '/*')


def check_lists(paths, packages):
    for path in paths:
        of = [package for package, patterns in packages.items()
              if any(is_in(path, pattern) for pattern in patterns)]
        want(len(of) == 1, path, 'is in packages', of, 'expected one')
    for package, patterns in packages.items():
        for pattern in patterns:
            want(any(is_in(path, pattern) for path in paths), f'{package}.install:', pattern,
                 'has no file')


def check_depends(source):
    """Libraries and tools of the build are in Build-Depends."""
    with open(f'{source}/conf/debian/control', encoding='utf-8') as stream:
        control = stream.read()
    depends = re.search(r'^Build-Depends:\n((?: .*\n)+)', control, re.M)[1]
    depends = {re.split(r'[ (,]', line.strip())[0] for line in depends.splitlines()}
    with open(f'{source}/.ci/deps', encoding='utf-8') as stream:
        needs = re.findall(r'^(?:build|deb) +library +\S+ +(\S+)$', stream.read(), re.M)
    # only tests need it
    needs = set(needs) - {'libcmocka-dev'}
    want(len(needs) > 8 and needs <= depends, 'not in Build-Depends:', sorted(needs - depends))
    names = re.findall(r'^Package: (\S+)', control, re.M)
    want(sorted(names) == ['braggline', 'braggline-dev', 'braggline-doc', 'braggline-view'], names)


def check_page(source):
    """The pages of braggline-view have uPlot and H5Web embedded: the packages name their licenses,
    and `make deb` installs them."""
    def text(path):
        with open(f'{source}/{path}', encoding='utf-8') as stream:
            return stream.read()
    packages = json.loads(text('app/view/package-lock.json'))['packages']
    for name in 'uplot', '@h5web/app':
        license = re.search(rf'^Files: node_modules/{name}/.*\nCopyright: .*\nLicense: (\S+)$',
                            text('conf/debian/copyright'), re.M)
        want(license and re.search(f'^License: {license[1]}\n ', text('conf/debian/copyright'), re.M),
             'conf/debian/copyright has no license of', name)
        locked = packages[f'node_modules/{name}']['license']
        want(locked == license[1], f'license of {name}: package-lock.json has', locked,
             'conf/debian/copyright has', license[1])
    want('-Dnode_modules=' in text('conf/debian/rules') and 'NODE_MODULES=' in text('.ci/deb'),
         'the packages are built without the packages of npm')


def main():
    build, source = sys.argv[1:3]
    paths = installed(build)
    want('usr/bin/braggline-recv' in paths, sorted(paths))
    check_lists(paths, lists(f'{source}/conf/debian'))
    check_depends(source)
    check_page(source)
    print(f'packaging: {len(paths)} files: ok')


main()
