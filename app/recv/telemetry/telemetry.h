/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * `/braggline/...` on the DPDK telemetry socket: counters to read, runs to control.
 *
 * The commands are one table in telemetry.c; README.rst shows it as telemetry_document() prints
 * it. Callbacks run in the telemetry thread: counters are read as they are, commands of runs may
 * wait for the file system.
 */
#ifndef TELEMETRY_H
#define TELEMETRY_H

#include <stdio.h>

#include "run.h"

/** Register all commands. @return 0 or -errno (logged) */
int telemetry_register(struct run *run);

/** Answer no more: the run goes. Waits for a command that is being served. */
void telemetry_retire(void);

/** Print the commands as a reStructuredText table. */
void telemetry_document(FILE *out);

#endif /* TELEMETRY_H */
