/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * What the callbacks of telemetry.c (the table, runs, datapath) and telemetry_egress.c (what leaves
 * the datapath) share.
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

/** @return an empty dict, NULL if there is no memory */
struct rte_tel_data *telemetry_new_dict(void);

/** Takes `child`, which may be NULL: then nothing is added. */
void telemetry_add_nested(struct rte_tel_data *d, const char *name, struct rte_tel_data *child);
void telemetry_add_array(
	struct rte_tel_data *d, const char *name, const uint64_t *values, uint32_t n);
void telemetry_add_real(struct rte_tel_data *d, const char *name, double value);

/** Texts that are too long for DPDK (127 bytes) go on in NAME_2, NAME_3 ... */
void telemetry_add_text(struct rte_tel_data *d, const char *name, const char *text);

int telemetry_latency(const char *cmd, const char *params, struct rte_tel_data *d);
int telemetry_writer(const char *cmd, const char *params, struct rte_tel_data *d);
int telemetry_egress(const char *cmd, const char *params, struct rte_tel_data *d);
int telemetry_preview(const char *cmd, const char *params, struct rte_tel_data *d);

#endif /* TELEMETRY_PRIVATE_H */
