#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Makes a manual page of sections of a README.rst, by the manpage writer of docutils.

usage: man_page.py SOURCE-DIR VERSION PAGE OUTPUT
"""

import os
import sys

import docutils.core
from docutils import nodes

import pages
import readme


def add_text(body, text):
    """Append a sentence to the last paragraph of a definition."""
    if body.children and isinstance(body.children[-1], nodes.paragraph):
        last = body.children[-1]
        last += nodes.Text(f' {text}' if last.astext().endswith('.') else f'. {text}')
    else:
        body += nodes.paragraph('', text)


def column(name, entry):
    """A cell of a middle or last column, headed by the column's name."""
    cell = [child.deepcopy() for child in entry.children]
    if name and cell and isinstance(cell[0], nodes.paragraph):
        cell[0].insert(0, [nodes.emphasis('', name), nodes.Text(': ')])
    return cell


def definition(head, row):
    """A row of a table as an item of a definition list."""
    term = nodes.term()
    for paragraph in row[0].findall(nodes.paragraph):
        if term.children:
            term += nodes.Text(' ')
        term += [child.deepcopy() for child in paragraph.children]
    body = nodes.definition()
    if head and head[0].lower() in readme.TERMS:
        body += [child.deepcopy() for child in row[-1].children]
        if len(row) == 3 and row[1].astext():
            add_text(body, f'Default: {row[1].astext()}.')
    else:
        for name, entry in zip(head[1:] if len(row) > 2 else [''], row[1:]):
            body += column(name, entry)
    return nodes.definition_list_item('', term, body)


def as_definitions(table):
    """A table as a definition list, which fits every width of a terminal. The first column has the
    terms; an empty cell there continues the row before."""
    head, items = readme.header(table), nodes.definition_list()
    names = head or [''] * len(readme.table_rows(table)[1])
    for row in readme.table_rows(table)[1:]:
        if row[0].astext() or not items.children:
            items += definition(names, row)
        else:
            items.children[-1].children[-1] += [
                child.deepcopy() for entry in row[1:] for child in entry.children]
    return items


def name_file(text, folder, top):
    """What a README's relative path to another README is called in a manual page."""
    path = os.path.normpath(os.path.join(folder, text))
    if not os.path.exists(os.path.join(top, path)):
        return text
    for page in pages.PAGES:
        if page.intro and path == os.path.join(page.folder, 'README.rst'):
            return f'{page.name}({page.section})'
    return path


def adapt(node, page, top):
    """Tables become definition lists; pictures are removed; other READMEs get their names."""
    for picture in list(node.findall(nodes.image)):
        picture.parent.remove(picture)
    for target in list(node.findall(nodes.target)):
        target.parent.remove(target)
    for literal in node.findall(nodes.literal):
        if literal.astext().endswith('README.rst'):
            literal.children = [nodes.Text(name_file(literal.astext(), page.folder, top))]
    for reference in node.findall(nodes.reference):
        uri = reference.get('refuri', '')
        if uri.endswith('README.rst'):
            reference.replace_self(
                nodes.emphasis('', name_file(uri, page.folder, top)))
        elif reference.get('refid'):
            reference.replace_self(nodes.emphasis('', reference.astext()))
    for table in list(node.findall(nodes.table)):
        table.replace_self(as_definitions(table))
    for number, section in enumerate(node.findall(nodes.section)):
        # subsections may have the names of those of other sections
        section['ids'], section['names'] = [f'part-{id(section)}-{number}'], []


def section(name, *children):
    return nodes.section('', nodes.title('', name), *children, ids=[f'part-{name}'])


def make(page, version, top):
    source = readme.read(readme.readme_of(top, page.folder))
    document = docutils.core.publish_doctree('')
    document += nodes.title('', page.name)
    document += nodes.subtitle('', page.summary)
    document += nodes.docinfo(
        '', nodes.version('', version),
        *[nodes.field('', nodes.field_name('', name), nodes.field_body('', nodes.paragraph('', text)))
          for name, text in (('manual_section', str(page.section)), ('manual_group', 'braggline'))])
    parts = [s for s in readme.sections(source)
             if readme.title(s) not in page.without
             and (not page.parts or readme.title(s) in page.parts)]
    missing = {*page.parts, *page.without} - {readme.title(s) for s in readme.sections(source)}
    if missing:
        raise SystemExit(f'{source["source"]}: no section {", ".join(sorted(missing))}')
    if page.intro:
        intro = readme.introduction(source)
        usage = [n for n in intro if readme.is_synopsis(n, page.name)]
        blocks = [n for n in intro if isinstance(n, nodes.literal_block) and n not in usage]
        rest = [n for n in intro if n not in usage and (usage or n not in blocks)]
        if usage:
            document += section('Synopsis', *usage)
        document += section('Description', *(rest if usage else intro))
    document += parts if page.intro or len(parts) > 1 else [
        section('Description', *parts[0].children[1:])]
    if page.section == 5:
        document += section('Files', nodes.paragraph(
            '', 'The packages have examples in /usr/share/braggline.'))
    document += section('See also', nodes.paragraph('', ', '.join(page.see)))
    adapt(document, page, top)
    return docutils.core.publish_from_doctree(
        document, writer_name='manpage',
        settings_overrides={'output_encoding': 'unicode', 'report_level': 2})


def main():
    top, version, name, output = sys.argv[1:5]
    text = make(pages.find(name), version, top)
    with open(output, 'w', encoding='utf-8') as stream:
        stream.write(text)


if __name__ == '__main__':
    main()
