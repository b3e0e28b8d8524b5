/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef EAL_START_H
#define EAL_START_H

#include <signal.h>
#include <stdio.h>

/**
 * @file
 * Command line of a program with EAL, `PROGRAM [EAL arguments --] [own arguments]`, and the start
 * of EAL.
 *
 * A program parses its own arguments before it starts EAL, so that `--help` and usage errors do not
 * need huge pages.
 */

#define EAL_EXIT_USAGE 2 /**< exit status of a program whose command line is wrong */

/**
 * Find a program's own arguments, which follow the first "--". Without "--", all arguments are its
 * own. The "--" is replaced by the name of the program, so that argv from there on is a complete
 * command line.
 *
 * @return index of that name; 0: there are no EAL arguments
 */
int eal_own_words(int argc, char **argv);

/**
 * Print where EAL's options belong, after a usage error in a command line without "--".
 * @param own  example of own arguments, printed after the "--"
 */
void eal_hint(FILE *out, const char *program, const char *own);

/**
 * Start EAL with its arguments. A failure is reported on stderr, with its cause and remedy.
 * rte_eal_init() also gets the program's own arguments, for /eal/app_params.
 *
 * @param own  result of eal_own_words()
 * @return 0, or the exit status of the program: EXIT_FAILURE; EAL_EXIT_USAGE: EAL rejects one of
 *   its options
 */
int eal_start(const char *program, int argc, char **argv, int own);

/**
 * As eal_start(), for a program that ends after one task. The log goes to stderr, and standard
 * output is left to the program: the list of EAL's options is not printed. What is logged during
 * the start is dropped; its last lines are printed if the start fails and only EAL knows the
 * cause. With `--log-level` among the EAL options, everything is printed.
 */
int eal_start_quietly(const char *program, int argc, char **argv, int own);

/**
 * Set up the signals of a long-running program. Call this before EAL starts, which takes a while.
 *
 * SIGINT, SIGTERM and SIGHUP end the program in order. SIGHUP stays ignored if it was, as under
 * nohup. SIGPIPE is ignored: if the reader of standard output or standard error has exited, the
 * output is lost, and the program continues. SIGXFSZ is ignored: a write beyond the limit of file
 * sizes is an error.
 *
 * @param end  action of the signals that end the program
 */
void eal_signals(const struct sigaction *end);

#endif
