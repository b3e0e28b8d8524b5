/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * `/braggline/...` commands on the DPDK telemetry socket. They read counters and control runs.
 *
 * The commands are defined in one table in telemetry.c, which telemetry_document() prints for
 * README.rst. Callbacks run in the telemetry thread. They read counters without synchronization,
 * and commands that control runs may wait for the file system.
 */
#ifndef TELEMETRY_H
#define TELEMETRY_H

#include <stdio.h>

struct run;

/** Register all commands. @return 0 or -errno (logged) */
int telemetry_register(struct run *run);

/**
 * Detach the commands from the run, which is about to be freed. Waits for a command in progress.
 */
void telemetry_retire(void);

/** Print the commands as a reStructuredText table. */
void telemetry_document(FILE *out);

#endif /* TELEMETRY_H */
