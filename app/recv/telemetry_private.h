/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * What the callbacks of telemetry.c (the table, runs, datapath), telemetry_output.c (latency,
 * files, pictures) and telemetry_egress.c (stores) share.
 */
#ifndef TELEMETRY_PRIVATE_H
#define TELEMETRY_PRIVATE_H

#include <rte_telemetry.h>

#include "telemetry.h"

/**
 * What all callbacks are about: DPDK gives them no argument of ours. NULL when the process is about
 * to end: commands cannot be taken back, so they find nothing.
 */
extern struct run *telemetry_run;

int telemetry_latency(const char *cmd, const char *params, struct rte_tel_data *d);
int telemetry_writer(const char *cmd, const char *params, struct rte_tel_data *d);
int telemetry_egress(const char *cmd, const char *params, struct rte_tel_data *d);
int telemetry_device(const char *cmd, const char *params, struct rte_tel_data *d);
int telemetry_preview(const char *cmd, const char *params, struct rte_tel_data *d);

#endif /* TELEMETRY_PRIVATE_H */
