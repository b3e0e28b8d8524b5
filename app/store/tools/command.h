/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Subcommands, `braggline-store NAME ...`: work on directories, without EAL. Each has a file
 * cmd_NAME.c and a line of the table in main.c.
 */
#ifndef COMMAND_H
#define COMMAND_H

#include <stdbool.h>
#include <stdio.h>

/** Exit status: all well is EXIT_SUCCESS, EXIT_FAILURE that something is wrong or has failed. */
#define EXIT_USAGE 2

/** What was done to stdout, what is wrong to stderr: `say` of what commands call. */
static inline void
command_say(void *arg, bool error, const char *text)
{
	fprintf(error ? stderr : stdout, "%s\n", text);
}

/** A file that was completed: for store_tree_take(). */
static inline void
command_say_recovery(const char *path, const char *what)
{
	printf("%s: %s\n", path, what);
}

/** @param argv  from the name on. @return exit status */
int cmd_import(int argc, char **argv);
int cmd_load(int argc, char **argv);
int cmd_reconcile(int argc, char **argv);
int cmd_verify(int argc, char **argv);

#endif /* COMMAND_H */
