/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * What replies of `/braggline/...` are made of, beyond rte_telemetry.h: dicts in dicts, arrays,
 * histograms, numbers and texts that DPDK has no form for. Where there is no memory, something is
 * missing from a reply. Telemetry's thread.
 */
#ifndef TELEMETRY_DICT_H
#define TELEMETRY_DICT_H

#include <stdint.h>

#include <rte_telemetry.h>

#include <dpdk_compat.h>

/** @return an empty dict, NULL if there is no memory */
struct rte_tel_data *telemetry_dict_new(void);

/** Takes `child`, which may be NULL: then nothing is added. */
void telemetry_dict_nest(struct rte_tel_data *d, const char *name, struct rte_tel_data *child);

void telemetry_dict_array(
	struct rte_tel_data *d, const char *name, const uint64_t *values, uint32_t n);

/** `below_us`: the bounds of histograms of latency.h. */
void telemetry_dict_below_us(struct rte_tel_data *d, uint32_t buckets);

/** As text. */
void telemetry_dict_real(struct rte_tel_data *d, const char *name, double value);

/** As 16 hexadecimal digits, which names of files have. */
void telemetry_dict_hex(struct rte_tel_data *d, const char *name, uint64_t value);

/**
 * A UTF-8 text. Characters that are not ASCII become \uXXXX, as in JSON: DPDK does not pass them
 * on. Texts that are too long for DPDK (127 bytes) go on in NAME_2, NAME_3 ...
 */
void telemetry_dict_text(struct rte_tel_data *d, const char *name, const char *text);

#endif /* TELEMETRY_DICT_H */
