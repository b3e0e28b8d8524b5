/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file --serve: answers queries of other machines over RDMA.
 */
#ifndef SERVE_H
#define SERVE_H

#include "remote/server.h"

/** Handle the signals that end the server. Before EAL starts. */
void serve_prepare(void);

/**
 * Serve until SIGTERM or SIGINT, or until the device is removed or fails. EAL must have started.
 * @return exit status
 */
int serve(struct scan_server_config *config);

#endif /* SERVE_H */
