/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Subcommands, `braggline-store NAME ...`, which work on directories, without EAL. Each has a file
 * cmd_NAME.c and an entry in the table of main.c.
 */
#ifndef COMMAND_H
#define COMMAND_H

#include <stdbool.h>
#include <stdio.h>

#include "escaped_text.h"

/**
 * Exit status for wrong usage. EXIT_SUCCESS: no problem found; EXIT_FAILURE: a problem was found or
 * an error occurred.
 */
#define EXIT_USAGE 2

/**
 * `say` callback of the commands: reports actions to stdout and problems to stderr. Names of files
 * may be of another user: they are escaped.
 */
static inline void
command_print(void *arg, bool error, const char *text)
{
	escaped_line(error ? stderr : stdout, "%s", text);
}

/** Callback of store_tree_take(): reports a completed file. */
static inline void
command_report_recovery(const char *path, const char *what)
{
	escaped_line(stdout, "%s: %s", path, what);
}

/** @param argv  arguments, starting with the name of the command. @return exit status */
int cmd_import(int argc, char **argv);
int cmd_reconcile(int argc, char **argv);
int cmd_verify(int argc, char **argv);

#endif /* COMMAND_H */
