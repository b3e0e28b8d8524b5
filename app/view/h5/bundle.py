#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Bundles the page of HDF5 files and its worker by esbuild, and collects the licences of the packages
that are in them.

usage: bundle.py NODE-MODULES PAGE.js WORKER.js LICENCES.txt

PAGE.css is written beside PAGE.js.
"""
import glob
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))


def bundle(modules, source, output):
    """@return {package: folder} of what is in the output"""
    tool, = glob.glob(f'{modules}/@esbuild/*/bin/esbuild')
    with tempfile.TemporaryDirectory() as folder:
        facts = f'{folder}/facts.json'
        subprocess.run([tool, f'{HERE}/{source}', '--bundle', '--minify', '--format=esm',
                        '--target=es2022', '--charset=utf8', '--legal-comments=none',
                        '--define:process.env.NODE_ENV="production"', '--log-level=error',
                        f'--outfile={output}', f'--metafile={facts}'],
                       check=True, env={**os.environ, 'NODE_PATH': modules}, cwd=HERE)
        with open(facts, encoding='utf-8') as stream:
            inputs = json.load(stream)['inputs']
    found = {}
    for path in inputs:
        above, below, name = path.rpartition('node_modules/')
        if below:
            package = '/'.join(name.split('/')[:2 if name.startswith('@') else 1])
            found[package] = f'{HERE}/{above}{below}{package}'
    return found


def licences(packages):
    for package, folder in sorted(packages.items()):
        with open(f'{folder}/package.json', encoding='utf-8') as stream:
            about = json.load(stream)
        yield f'{package} {about["version"]}: {about["license"]}\n\n'
        for path in sorted(glob.glob(f'{folder}/*')):
            if os.path.basename(path).upper().startswith(('LICENSE', 'LICENCE', 'COPYING')):
                with open(path, encoding='utf-8') as stream:
                    yield stream.read().strip() + '\n\n'
        yield '-' * 80 + '\n\n'


def main(modules, page, worker, text):
    modules = os.path.abspath(modules)
    packages = bundle(modules, 'page.js', os.path.abspath(page)) | \
        bundle(modules, 'worker.js', os.path.abspath(worker)) | \
        {'h5wasm-plugins': f'{modules}/h5wasm-plugins'}
    with open(text, 'w', encoding='utf-8') as stream:
        stream.writelines(licences(packages))


if __name__ == '__main__':
    main(*sys.argv[1:])
