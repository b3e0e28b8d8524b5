#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Makes HTML of the READMEs of all folders, with their pictures, for the package of documentation.
Links between READMEs lead to the HTML pages.

usage: html_pages.py SOURCE-DIR OUTPUT-DIR README...
"""

import os
import shutil
import sys

import docutils.core
from docutils import nodes

import readme


def convert(top, output, path):
    document = readme.read(os.path.join(top, path))
    folder = os.path.dirname(path)
    for reference in document.findall(nodes.reference):
        uri = reference.get('refuri', '')
        if ':' not in uri and uri.endswith('README.rst'):
            reference['refuri'] = uri[:-len('.rst')] + '.html'
    for picture in document.findall(nodes.image):
        to = os.path.join(output, folder, picture['uri'])
        os.makedirs(os.path.dirname(to), exist_ok=True)
        shutil.copyfile(os.path.join(top, folder, picture['uri']), to)
    os.makedirs(os.path.join(output, folder), exist_ok=True)
    with open(os.path.join(output, path[:-len('.rst')] + '.html'), 'w', encoding='utf-8') as stream:
        stream.write(docutils.core.publish_from_doctree(
            document, writer_name='html5',
            settings_overrides={'output_encoding': 'unicode', 'report_level': 2,
                                'embed_stylesheet': True, 'syntax_highlight': 'none'}))


def main():
    top, output = sys.argv[1:3]
    shutil.rmtree(output, ignore_errors=True)
    for path in sys.argv[3:]:
        convert(top, output, path)


if __name__ == '__main__':
    main()
