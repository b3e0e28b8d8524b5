#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Makes the completion of a program for bash, of the tables of options in its README.rst.

usage: completion.py SOURCE-DIR PROGRAM OUTPUT
"""

import re
import sys

import pages
import readme

# arguments in the tables that are paths
FILES, DIRECTORIES = ('FILE', '[NAME=]SOCKET'), ('DIR',)

HEAD = '''\
# bash completion for {program}
# SPDX-License-Identifier: BSD-3-Clause

{function}()
{{
	local cur prev words cword command= word
	_init_completion -n =: || return
'''

COMMANDS = '''\
	for word in "${{words[@]:1:cword-1}}"; do
		case $word in
		{commands})
			command=$word
			break
			;;
		esac
	done
'''

TAIL = '''\
	if [[ $cur == -* ]]; then
		case $command in
{lists}
		esac
		return
	fi
	{words}_filedir
}}
complete -F {function} {program}
'''


def action(option, page, top):
    """The shell command that completes an option's argument."""
    if option.argument in FILES:
        return '_filedir'
    if option.argument in DIRECTORIES:
        return '_filedir -d'
    if option.argument == 'SECTION.KEY=VALUE' and page.settings:
        document = readme.read(readme.readme_of(top, page.settings[0]))
        names = readme.settings(readme.find_section(document, page.settings[1]))
        # [port N] is offered as [port 0]; its blank is escaped on the command line
        words = '\n'.join(re.sub(' N[.]', ' 0.', name) + '=' for name in names)
        return ("local IFS=$'\\n'\n"
                f'\t\tCOMPREPLY=($(compgen -W "{words}" -- "$cur"))\n'
                '\t\tCOMPREPLY=("${COMPREPLY[@]// /\\\\ }")\n'
                '\t\tcompopt -o nospace')
    if option.argument == 'NAME=VALUE':
        document = readme.read(readme.readme_of(top, page.folder))
        words = ' '.join(f'{name}=' for name in readme.faults(document))
        return f'COMPREPLY=($(compgen -W "{words}" -- "$cur")); compopt -o nospace'
    if option.words():
        return f'COMPREPLY=($(compgen -W "{" ".join(option.words())}" -- "$cur"))'
    return 'COMPREPLY=()'


def options_of(page, top):
    """Options by command; '': those without a command."""
    document = readme.read(readme.readme_of(top, page.folder))
    lists = {name: readme.options(readme.find_section(document, path))
             for name, path in page.commands.items()}
    shared = 'Options/all modes'
    if any(path.startswith('Options/') for path in page.commands.values()):
        common = readme.options(readme.find_section(document, shared))
        return {'': [], **{name: own + common for name, own in lists.items()}}
    return {'': readme.options(readme.find_section(document, 'Options')), **lists}


def make(page, top):
    function = '_' + page.name.replace('-', '_')
    lists = options_of(page, top)
    text = HEAD.format(program=page.name, function=function)
    if page.commands:
        text += COMMANDS.format(commands=' | '.join(page.commands))
    text += '\tcase $command,$prev in\n'
    for command, options in lists.items():
        for option in options:
            if option.argument:
                names = ' | '.join(f'{command},{name}' for name in option.names())
                text += f'\t{names})\n\t\t{action(option, page, top)}\n\t\treturn\n\t\t;;\n'
    text += '\tesac\n'
    rows = []
    for command, options in lists.items():
        names = ' '.join(name for option in options for name in option.names())
        rows.append(f'\t\t{command or "*"})\n\t\t\tCOMPREPLY=($(compgen -W "{names}" -- "$cur"))'
                    '\n\t\t\t;;')
    words = ''
    if page.commands:
        words = ('[ -n "$command" ] || COMPREPLY=($(compgen -W "'
                 + ' '.join(page.commands) + '" -- "$cur"))\n\t')
    # the default comes last
    rows.append(rows.pop(0))
    return text + TAIL.format(program=page.name, function=function, lists='\n'.join(rows),
                              words=words)


def main():
    top, name, output = sys.argv[1:4]
    with open(output, 'w', encoding='utf-8') as stream:
        stream.write(make(pages.find(name), top))


if __name__ == '__main__':
    main()
