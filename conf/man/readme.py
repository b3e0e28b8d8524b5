# SPDX-License-Identifier: BSD-3-Clause
"""Reads a README.rst with docutils: its introduction, its sections, and its tables of options and
settings. Manual pages and completions are made of these."""

import os
import re

import docutils.core
from docutils import nodes

# headers of the first column, whose rows are options, settings or arguments
TERMS = ('option', 'key', 'argument')


def read(path):
    """The document tree of a README. @return a docutils document"""
    with open(path, encoding='utf-8') as stream:
        document = docutils.core.publish_doctree(
            stream.read(), source_path=path,
            settings_overrides={'report_level': 2, 'halt_level': 2, 'syntax_highlight': 'none',
                                'doctitle_xform': True, 'input_encoding': 'unicode'})
    # docutils adds messages below its report level to the tree: a cell `.` may be a title's line
    for message in list(document.findall(nodes.system_message)):
        message.parent.remove(message)
    return document


def title(node):
    return node.next_node(nodes.title).astext()


def sections(node):
    """Direct sections of a document or section."""
    return [child for child in node.children if isinstance(child, nodes.section)]


def find_section(document, path):
    """The section with these titles, such as `Commands/verify`."""
    node = document
    for name in path.split('/'):
        found = [child for child in sections(node) if title(child) == name]
        if len(found) != 1:
            raise SystemExit(f'{document["source"]}: {len(found)} sections "{name}", expected 1')
        node = found[0]
    return node


def introduction(document):
    """What comes before the first section, without the title and comments."""
    return [child for child in document.children
            if not isinstance(child, (nodes.section, nodes.title, nodes.comment, nodes.docinfo))]


def is_synopsis(node, program):
    """Is this a literal block of command lines, of which at least one has options in words?"""
    return (isinstance(node, nodes.literal_block) and node.astext().startswith(program)
            and re.search(r'\[options\]|\[OPTION|COMMAND|MODE', node.astext()) is not None)


def synopsis(nodes_of, program):
    """Usage lines of a program or command. @return list of lines, [] if there are none"""
    for node in nodes_of:
        if is_synopsis(node, program):
            return node.astext().splitlines()
    return []


def table_rows(table):
    """A table as lists of entries; the first one is the header."""
    head = next(iter(table.findall(nodes.thead)), None)
    rows = list(head.findall(nodes.row)) if head is not None else [None]
    rows += [row for body in table.findall(nodes.tbody) for row in body.findall(nodes.row)]
    return [[] if row is None else list(row.children) for row in rows]


def header(table):
    return [entry.astext() for entry in table_rows(table)[0]]


def terms(node):
    """Rows of all tables below `node` that define options, settings or arguments.
    @return list of (term, default or None, meaning: an entry)"""
    found = []
    for table in node.findall(nodes.table):
        head = [name.lower() for name in header(table)]
        if not head or head[0] not in TERMS:
            continue
        for row in table_rows(table)[1:]:
            default = row[1].astext() if len(row) == 3 else None
            found.append((row[0].astext(), default, row[-1]))
    return found


class Option:
    """An option of a program: `-c, --config FILE`."""

    FORM = re.compile(r'(?:(-[A-Za-z]))?(?:, )?(?:(--[A-Za-z0-9_-]+))?(?: (\S+))?')

    def __init__(self, text, default, meaning):
        match = self.FORM.fullmatch(text)
        if match is None or not (match[1] or match[2]):
            raise SystemExit(f'"{text}": not an option, expected such as -c, --config FILE')
        self.text = text
        self.letter, self.name, self.argument = match[1], match[2], match[3]
        self.default = default
        self.meaning = meaning

    def names(self):
        return [name for name in (self.letter, self.name) if name]

    def words(self):
        """Words of which the argument is one, as its meaning lists them; [] for free text."""
        if self.argument not in ('NAME', 'LIST', 'STAGE', 'U', 'F', 'TYPE'):
            return []
        words = [literal.astext() for literal in self.meaning.findall(nodes.literal)]
        words = [word for word in words if re.fullmatch(r'[A-Za-z0-9_]+', word)]
        if words and self.default and re.fullmatch(r'[a-z]+', self.default):
            words.append(self.default)
        return list(dict.fromkeys(words))


def options(node):
    """Options of the tables below a section, in their order."""
    return [Option(*row) for row in terms(node) if row[0].startswith('-')]


def settings(node):
    """Names of the settings below a section: section.key."""
    found = []
    for term, _, _ in terms(node):
        section, names = re.fullmatch(r'\[(.+?)\] (.+)', term).groups()
        names = names.split(', ')
        # `roll_frames, _mib`: the second name has another suffix
        names = [re.sub('_[^_]*$', name, names[0]) if name[0] == '_' else name for name in names]
        found += [f'{section}.{name}' for name in names]
    return found


def faults(document):
    """Names of the faults in the table of the section Faults."""
    table = next(find_section(document, 'Faults').findall(nodes.table))
    return [row[0].astext().split('=')[0] for row in table_rows(table)[1:]]


def readme_of(top, folder):
    return os.path.join(top, folder, 'README.rst')
