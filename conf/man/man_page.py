#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Makes a manual page of sections of a README.rst, by the manpage writer of docutils.

usage: man_page.py SOURCE-DIR VERSION PAGE OUTPUT
"""

import os
import re
import sys

import docutils.core
from docutils import nodes

import pages
import readme

# where the packages install READMEs as HTML, whose names in the pages are relative to this folder
# because longer ones do not fit a line, and configurations
DOCUMENTATION, DATA = '/usr/share/doc/braggline/html', '/usr/share/braggline'


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
        default = row[1].astext() if len(row) == 3 else ''
        if default:
            add_text(body, f'Default: {default}.' if default != '.'
                     else 'Default: the working directory (.).')
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
    """What a file of the source tree is called in a manual page. READMEs name files relative to
    their folder, or to the top of the tree.
    @return the text itself, if it is no file of the tree"""
    if text == 'conf':
        return DATA
    for base in (folder, ''):
        path = os.path.normpath(os.path.join(base, text))
        if re.fullmatch(r'(app|pmd-ext)/[a-z/-]+|gpu-kernels', text):
            path = f'{text}/README.rst'
        if '/' in path and text[0] != '/' and os.path.isfile(os.path.join(top, path)):
            break
    else:
        return text
    if path.endswith('README.rst'):
        for page in pages.PAGES:
            if page.intro and os.path.dirname(path) in (page.folder, *page.more):
                return f'{page.name}({page.section})'
        return f'{path[:-len(".rst")]}.html'
    if re.fullmatch(r'conf/[^/]+\.ini', path):
        return f'{DATA}/{os.path.basename(path)}'
    if path.startswith('conf/telemetry/'):
        return os.path.basename(path)
    if '/' not in text:
        return text
    return f'{path} of the source tree'


def name_commands(text):
    """A shell example that runs in a build folder, for installed programs."""
    text = re.sub(r'(?m)^( *)(?:build/)?app/[a-z]+/(braggline-)', r'\1\2', text)
    return re.sub(r'(?:\.\./)?conf/([a-z0-9-]+\.ini)', rf'{DATA}/\1', text)


def end_sentence(paragraph):
    """A paragraph that introduces the usage, which has a section of its own here."""
    last = paragraph.children[-1]
    if isinstance(last, nodes.Text) and last.endswith(':'):
        paragraph.replace(last, nodes.Text(last[:-1] + '.'))


def adapt(node, folder, page, top):
    """Tables become definition lists; pictures are removed; files get the names that they have on
    a machine without the source tree.
    @param folder  of the README that has the node"""
    for picture in list(node.findall(nodes.image)):
        picture.parent.remove(picture)
    for target in list(node.findall(nodes.target)):
        target.parent.remove(target)
    for literal in node.findall(nodes.literal):
        literal.children = [nodes.Text(name_file(literal.astext(), folder, top))]
    for block in node.findall(nodes.literal_block):
        block.children = [nodes.Text(name_commands(block.astext()))]
    for reference in list(node.findall(nodes.reference)):
        uri = reference.get('refuri', '')
        if uri and ':' not in uri:
            name = name_file(uri, folder, top)
            reference.replace_self(nodes.emphasis(
                '', name if name not in (uri, f'{page.name}({page.section})')
                else reference.astext()))
        elif reference.get('refid'):
            reference.replace_self(nodes.emphasis('', reference.astext()))
    for table in list(node.findall(nodes.table)):
        table.replace_self(as_definitions(table))


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
        for before, after in zip(intro, intro[1:]):
            if after in usage and isinstance(before, nodes.paragraph):
                end_sentence(before)
        if usage:
            document += section('Synopsis', *usage)
        document += section('Description', *(rest if usage else intro))
    document += parts if page.intro or len(parts) > 1 else [
        section('Description', *parts[0].children[1:])]
    if page.section == 5:
        document += section('Files', nodes.paragraph(
            '', 'The packages have examples in /usr/share/braggline.'))
    adapt(document, page.folder, page, top)
    for folder in page.more:
        more = readme.read(readme.readme_of(top, folder))
        part = section(readme.title(more), *readme.introduction(more), *readme.sections(more))
        adapt(part, folder, page, top)
        document += part
    for number, one in enumerate(document.findall(nodes.section)):
        # subsections may have the names of those of other sections
        one['ids'], one['names'] = [f'part-{number}'], []
    document += section('See also', nodes.paragraph('', ', '.join(page.see)))
    if 'README.html' in document.astext():
        document.children[-1] += nodes.paragraph(
            '', f'Files README.html are below {DOCUMENTATION}, in the package braggline-doc.')
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
