/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Commands `/braggline/scan` and `/braggline/rdma` on the DPDK telemetry socket of a server of
 * queries. README.rst shows the table that serve_telemetry_document() prints.
 */
#ifndef SERVE_TELEMETRY_H
#define SERVE_TELEMETRY_H

#include <stdio.h>

#include "remote/server.h"

/** Register the commands. Main lcore. */
void serve_telemetry_open(const struct scan_server *s);

/** Detach the server: the commands return nothing from then on. Before it is closed. */
void serve_telemetry_close(void);

/** Print the commands as a reStructuredText table. */
void serve_telemetry_document(FILE *out);

#endif /* SERVE_TELEMETRY_H */
