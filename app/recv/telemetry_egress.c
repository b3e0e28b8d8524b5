/* SPDX-License-Identifier: BSD-3-Clause */

#include <stdio.h>
#include <string.h>

#include <dpdk_compat.h>

#include "telemetry_private.h"

struct rte_tel_data *
telemetry_new_dict(void)
{
	struct rte_tel_data *d = rte_tel_data_alloc();

	if (d != NULL)
		rte_tel_data_start_dict(d);
	return d;
}

void
telemetry_add_nested(struct rte_tel_data *d, const char *name, struct rte_tel_data *child)
{
	if (child != NULL)
		rte_tel_data_add_dict_container(d, name, child, 0);
}

void
telemetry_add_array(struct rte_tel_data *d, const char *name, const uint64_t *values, uint32_t n)
{
	struct rte_tel_data *array = rte_tel_data_alloc();

	if (array == NULL)
		return;
	rte_tel_data_start_array(array, RTE_TEL_U64_VAL);
	for (uint32_t i = 0; i < n; i++)
		rte_tel_data_add_array_uint(array, values[i]);
	telemetry_add_nested(d, name, array);
}

void
telemetry_add_real(struct rte_tel_data *d, const char *name, double value)
{
	char text[32];

	snprintf(text, sizeof(text), "%.9g", value);
	rte_tel_data_add_dict_string(d, name, text);
}

void
telemetry_add_text(struct rte_tel_data *d, const char *name, const char *text)
{
	char part[RTE_TEL_MAX_STRING_LEN], key[RTE_TEL_MAX_STRING_LEN];
	unsigned int n = 1;

	snprintf(key, sizeof(key), "%s", name);
	do {
		snprintf(part, sizeof(part), "%s", text);
		rte_tel_data_add_dict_string(d, key, part);
		text += strlen(part);
		snprintf(key, sizeof(key), "%s_%u", name, ++n);
	} while (text[0] != '\0');
}

int
telemetry_latency(const char *cmd, const char *params, struct rte_tel_data *d)
{
	const struct builder_stats *b = builder_stats(telemetry_run->pipeline->builder);
	uint64_t below[BUILDER_LATENCY_BUCKETS];

	for (uint32_t i = 0; i < BUILDER_LATENCY_BUCKETS; i++)
		below[i] = UINT64_C(1) << i;
	rte_tel_data_start_dict(d);
	telemetry_add_array(d, "below_us", below, BUILDER_LATENCY_BUCKETS);
	telemetry_add_array(
		d, "first_packet_to_verdict", b->latency_verdict, BUILDER_LATENCY_BUCKETS);
	telemetry_add_array(d, "last_packet_to_verdict", b->latency_gang, BUILDER_LATENCY_BUCKETS);
	return 0;
}

int
telemetry_preview(const char *cmd, const char *params, struct rte_tel_data *d)
{
	struct preview_status status;

	preview_get_status(telemetry_run->pipeline->preview, &status);
	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_uint(d, "active", status.active);
	telemetry_add_text(d, "path", status.path);
	rte_tel_data_add_dict_uint(d, "sequence", status.sequence);
	rte_tel_data_add_dict_uint(d, "frame", status.frame);
	rte_tel_data_add_dict_uint(d, "frames", status.frames);
	rte_tel_data_add_dict_uint(d, "skipped", status.skipped);
	rte_tel_data_add_dict_uint(d, "errors", status.errors);
	telemetry_add_text(d, "error", status.error);
	return 0;
}
