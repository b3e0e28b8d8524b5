/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * `/braggline/store...` and `/braggline/rdma` on the DPDK telemetry socket. README.rst shows the
 * commands as store_telemetry_document() prints them.
 */
#ifndef STORE_TELEMETRY_H
#define STORE_TELEMETRY_H

#include <stdio.h>

struct store;

/** Commands answer from here on. Main lcore. */
void store_telemetry_open(const struct store *s);

/** The store goes: commands say nothing. */
void store_telemetry_close(void);

/** Print the commands as a reStructuredText table. */
void store_telemetry_document(FILE *out);

#endif /* STORE_TELEMETRY_H */
