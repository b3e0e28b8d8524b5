/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef EAL_START_H
#define EAL_START_H

#include <signal.h>
#include <stdio.h>

/**
 * @file
 * The command line of a program with EAL: `PROGRAM [EAL's words --] [its own words]`.
 *
 * A program reads its own words first: help and mistakes must not need huge pages.
 */

/**
 * Where a program's own words begin: behind the first "--"; without one all words are its own. The
 * word there becomes the program's name, so that argv from there is a command line by itself.
 *
 * @return index of that name; 0: there are no words of EAL's
 */
int eal_own_words(int argc, char **argv);

/**
 * Tell where EAL's options go: for a mistake in a command line without "--".
 * @param own  what comes after it
 */
void eal_hint(FILE *out, const char *program, const char *own);

/**
 * Start EAL with its words. On failure the cause and what to do about it are on standard error.
 *
 * @param own  what eal_own_words() has returned
 * @return as rte_eal_init(), which is given the program's words as well, for /eal/app_params
 */
int eal_start(const char *program, int argc, char **argv, int own);

/** End by SIGHUP as by SIGTERM, unless it is ignored, as nohup wants it. */
void eal_hangup_ends(const struct sigaction *action);

#endif
