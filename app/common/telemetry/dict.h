/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Additions to rte_telemetry.h for replies of `/braggline/...`: nested dicts, arrays, histograms,
 * and numbers and texts for which DPDK has no type. If memory cannot be allocated, the value is
 * missing from the reply. The functions are called in the telemetry thread.
 */
#ifndef TELEMETRY_DICT_H
#define TELEMETRY_DICT_H

#include <stdint.h>

#include <rte_telemetry.h>

#include <dpdk_compat.h>

#include "histogram.h"

/** @return an empty dict; NULL: out of memory */
struct rte_tel_data *telemetry_dict_new(void);

/** Add a dict to another one, which then owns it. If `child` is NULL, nothing is added. */
void telemetry_dict_nest(struct rte_tel_data *d, const char *name, struct rte_tel_data *child);

/** Add an array of n values. */
void telemetry_dict_array(
	struct rte_tel_data *d, const char *name, const uint64_t *values, uint32_t n);

/** Add `below_us`, the upper bounds of the buckets of histograms. */
void telemetry_dict_below_us(struct rte_tel_data *d);

/** Add the buckets of a histogram as NAME, and the sum of its times as NAME_sum_us. */
void telemetry_dict_histogram(struct rte_tel_data *d, const char *name, const struct histogram *h);

/** Add a floating-point number as text. */
void telemetry_dict_real(struct rte_tel_data *d, const char *name, double value);

/** Add a number as 16 hexadecimal digits, as in file names. */
void telemetry_dict_hex(struct rte_tel_data *d, const char *name, uint64_t value);

/**
 * Add a UTF-8 text. Characters that are not ASCII become \uXXXX, as in JSON, because DPDK does not
 * support them. A text above DPDK's limit of 127 bytes is continued in NAME_2, NAME_3 and so on. It
 * is cut after a blank, if there is one, and the parts are joined as they are.
 */
void telemetry_dict_text(struct rte_tel_data *d, const char *name, const char *text);

#endif /* TELEMETRY_DICT_H */
