#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Makes a manual page of a header's comments: the declarations in their order, each with its text.
Comments are those of the headers here: paragraphs, lists, `code`, *emphasis*, @param, @return, and
groups from @{ to @}.

usage: header_page.py HEADER VERSION LIBRARY OUTPUT

LIBRARY is the name of its pkg-config file, or `-`.
"""

import os
import re
import sys
import textwrap

import docutils.core

ITEM = re.compile(r'( *)(-|\d+\.) ')


def strip(comment):
    """Text of a comment block, without its frame."""
    lines = [re.sub(r'^\s*\*? ?', '', line) for line in comment[3:-2].split('\n')]
    lines[0] = lines[0].strip()
    return '\n'.join(line.rstrip() for line in lines).strip('\n').replace('@{', '').replace('@}', '')


def inline(text):
    """Inline markup as reStructuredText."""
    parts = re.split(r'(`[^`]+`)', text)
    for i, part in enumerate(parts):
        if i % 2:
            parts[i] = f'`{part}`'
            continue
        part = part.replace('\\', '\\\\').replace('|', '\\|')
        # the end of a name is no reference, and a star is one of a name, except *Word.*
        part = re.sub(r'_(?=[^A-Za-z0-9_]|$)', r'\\_', part)
        parts[i] = re.sub(r'\*(?!\w[\w ,]*[.]?\*)(?<!\w\*)(?<!\.\*)', r'\\*', part)
    return ''.join(parts)


def prose(lines):
    """Paragraphs, lists and tables of text as reStructuredText, which has empty lines around them."""
    out, depth, more, table = [], None, 0, False
    for line in lines:
        item = ITEM.match(line)
        indent = len(line) - len(line.lstrip())
        if depth is not None and line and not item and indent < depth:
            # after the list, or after an inner one
            depth = indent if indent else None
            more = more if indent else 0
            out.append('')
        is_table = depth is None and indent >= 2 and not item
        if is_table and not table:
            out += ['', '::', '']
        elif item or (table and line and not is_table):
            out.append('')
        table = is_table or (table and not line)
        if item:
            # items of a numbered list have text of less indentation than reStructuredText demands
            depth, more = len(item[1]) + 2, len(item[2]) - 1
            out.append(inline(line))
        else:
            out.append(line if is_table else ' ' * (more if indent else 0) + inline(line))
    return out


def definitions(parts):
    """Parameters and the result as a definition list. @param parts  (term, lines)"""
    out = []
    for term, lines in parts:
        out += ['', term] + [f'  {line}' if line else '' for line in prose(lines)]
    return out


def text_of(comment):
    """A comment as reStructuredText."""
    body, parts = [], []
    # a tag in a line of text begins a new line
    for line in re.sub(r'(?<=\S) (?=@(?:param|return)\b)', '\n', comment).split('\n'):
        tag = re.match(r'@(param|return)\s+(.*)', line)
        if tag and tag[1] == 'param':
            name, text = re.match(r'([\w, ]*\w)(?:  +| )(.*)', tag[2]).groups() \
                if '  ' in tag[2] else tag[2].split(' ', 1)
            parts.append((f'``{name}``', [text]))
        elif tag:
            parts.append(('Return value', [tag[2]]))
        elif parts:
            parts[-1][1].append(line)
        else:
            body.append(line)
    return prose(body) + definitions([
        (term, lines[:1] + textwrap.dedent('\n'.join(lines[1:])).split('\n'))
        for term, lines in parts])


def declaration(code):
    """The declaration at the beginning of the code after a comment. @return (text, length)"""
    start = len(code) - len(code.lstrip('\n'))
    depth, at = 0, start
    if code[start:].startswith('#define'):
        end = re.compile(r'(?<!\\)\n').search(code, start)
        return code[start:end.start()], end.start()
    is_type = re.match(r'(?:typedef\s+)?(?:struct|enum|union)\s+\w*\s*\{', code[start:])
    while at < len(code):
        if code.startswith('/*', at):
            at = code.index('*/', at) + 2
            continue
        c = code[at]
        if c == '{' and depth == 0 and not is_type:
            # the body of an inline function is not part of its interface
            head = re.sub(r'^static inline(?: __attribute__\(\(always_inline\)\))?\s+', '',
                          code[start:at].rstrip())
            return head + ';', code.index('\n}', at) + 2
        depth += {'{': 1, '}': -1}.get(c, 0)
        if c == ';' and depth == 0:
            end = code.index('\n', at)
            return code[start:end], end
        at += 1
    return code[start:].rstrip(), len(code)


def literal(code):
    """A literal block, with the indentation of tabs of 8 columns."""
    lines = code.strip('\n').expandtabs(8).split('\n')
    return ['', '::', ''] + [f'    {line}' if line else '' for line in lines] + ['']


def without_guards(code):
    """Code without includes, conditions and the ends of groups."""
    code = re.sub(r'#ifdef __cplusplus\n.*?#endif[^\n]*\n', '', code, flags=re.S)
    return re.sub(r'(?m)^#(?:include|if|ifdef|ifndef|endif|else|undef)\b.*\n|^#define \w+_H\n', '', code)


def parts(header):
    """(kind, text) of a header: `section` titles, `text` of comments, `code`."""
    header = without_guards(header)
    at = 0
    mark = re.compile(r'/\* -+ (?P<section>.*?) -+ \*/|/\*\*(?!<)(?P<text>.*?)\*/', re.S)
    while True:
        found = mark.search(header, at)
        between = header[at:found.start() if found else len(header)]
        between = re.sub(r'(?m)^/\*[^*].*?\*/\n', '', between, flags=re.S).strip('\n')
        # bodies of inline functions
        between = re.sub(r'\n\{\n.*?\n\}(?=\n|$)', ';', between, flags=re.S)
        if between.strip():
            yield 'code', between
        if not found:
            return
        at = found.end()
        if found['section'] is not None:
            yield 'section', found['section']
            continue
        comment = found[0]
        yield 'text', strip(comment)
        if '@file' in comment or '@}' in comment:
            continue
        if '@{' in comment:
            end = header.index('@}', at)
            end = header.rindex('/**', at, end)
            yield 'code', header[at:end]
            at = end
            continue
        code, length = declaration(header[at:])
        yield 'code', code
        at += length


def make(path, version, library):
    name = os.path.basename(path)
    with open(path, encoding='utf-8') as stream:
        header = stream.read()
    what = re.search(r'/\*\*\s*\n \* @file\n(.*?)\*/', header, re.S)
    if what is None:
        raise SystemExit(f'{path}: no comment with @file')
    header = header.replace(what[0], '', 1).replace('/* SPDX-License-Identifier: BSD-3-Clause */\n', '')
    description = strip(f'/**\n{what[1]}*/').strip()
    summary = re.split(r'(?<=\w)[.:](?=\s|$)', ' '.join(description.split()), maxsplit=1)[0]
    lines = ['=' * 70, name, '=' * 70, '', '-' * 70, summary.replace('`', '')[:66], '-' * 70, '',
             f':Version: {version}', ':Manual section: 3', ':Manual group: braggline', '',
             'Synopsis', '~~~~~~~~', '', '::', '', f'    #include <{name}>', '']
    if library != '-':
        lines += [f'Compile and link with ``pkg-config --cflags --libs {library}``.', '']
    lines += ['Description', '~~~~~~~~~~~', ''] + text_of(description) + ['']
    began, text = False, []
    for kind, what in parts(header):
        if kind == 'section' or not began:
            title = what.capitalize() if kind == 'section' else 'Declarations'
            lines += text + ['', title, '~' * len(title), '']
            began, text = True, []
        if kind == 'text':
            lines += text
            text = ['', *text_of(what), '']
        elif kind == 'code':
            lines += literal(what) + text
            text = []
    lines += text
    lines += ['', 'See also', '~~~~~~~~', '', 'braggline-rdma-devices(7), gpu_cuda(7), gpu_host(7), '
              'net_replay(7)', '']
    return '\n'.join(lines)


def main():
    path, version, library, output = sys.argv[1:5]
    text = docutils.core.publish_string(
        make(path, version, library), source_path=path, writer_name='manpage',
        settings_overrides={'output_encoding': 'unicode', 'report_level': 2, 'halt_level': 2})
    with open(output, 'w', encoding='utf-8') as stream:
        stream.write(text)


if __name__ == '__main__':
    main()
