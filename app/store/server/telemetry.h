/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Commands `/braggline/store...` and `/braggline/rdma` on the DPDK telemetry socket. README.rst
 * shows the table that store_telemetry_document() prints.
 */
#ifndef STORE_TELEMETRY_H
#define STORE_TELEMETRY_H

#include <stdio.h>

struct store;

/** Register the commands. Main lcore. */
void store_telemetry_open(const struct store *s);

/** Detach the store: the commands return nothing from then on. */
void store_telemetry_close(void);

/** Print the commands as a reStructuredText table. */
void store_telemetry_document(FILE *out);

#endif /* STORE_TELEMETRY_H */
