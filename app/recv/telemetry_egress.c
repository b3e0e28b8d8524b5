/* SPDX-License-Identifier: BSD-3-Clause */

#include <assert.h>
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
	rte_tel_data_start_array(array, RTE_TEL_UINT_VAL);
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
	uint64_t durable[ARROW_TABLES][ARROW_LATENCY_BUCKETS];

	static_assert(ARROW_LATENCY_BUCKETS == BUILDER_LATENCY_BUCKETS, "the same below_us");

	for (uint32_t i = 0; i < BUILDER_LATENCY_BUCKETS; i++)
		below[i] = UINT64_C(1) << i;
	rte_tel_data_start_dict(d);
	telemetry_add_array(d, "below_us", below, BUILDER_LATENCY_BUCKETS);
	telemetry_add_array(
		d, "first_packet_to_verdict", b->latency_verdict, BUILDER_LATENCY_BUCKETS);
	telemetry_add_array(d, "last_packet_to_verdict", b->latency_gang, BUILDER_LATENCY_BUCKETS);
	run_get_latency(telemetry_run, durable);
	telemetry_add_array(
		d, "frames_batch_to_durable", durable[ARROW_FRAMES], ARROW_LATENCY_BUCKETS);
	telemetry_add_array(
		d, "images_batch_to_durable", durable[ARROW_IMAGES], ARROW_LATENCY_BUCKETS);
	return 0;
}

/** One table: `rows` were taken; they are durable, unwritten, or on their way. */
static struct rte_tel_data *
writer_table(const struct run_writer *w, enum arrow_table table, uint64_t rows)
{
	const struct arrow_run_stats *s = &w->stats.table[table];
	struct rte_tel_data *d = telemetry_new_dict();

	if (d == NULL)
		return NULL;
	rte_tel_data_add_dict_string(d, "state", arrow_run_state_name(s->state));
	rte_tel_data_add_dict_string(d, "mode", arrow_io_mode_name(s->mode));
	telemetry_add_text(d, "why", w->status[table].why);
	telemetry_add_text(d, "path", w->status[table].path);
	rte_tel_data_add_dict_uint(d, "rows", rows);
	rte_tel_data_add_dict_uint(d, "durable", s->rows);
	rte_tel_data_add_dict_uint(d, "unwritten", s->unwritten);
	rte_tel_data_add_dict_uint(d, "unwritten_full", s->unwritten_full);
	rte_tel_data_add_dict_uint(d, "unwritten_error", s->unwritten_error);
	rte_tel_data_add_dict_uint(d, "unwritten_bad", s->unwritten_bad);
	rte_tel_data_add_dict_uint(d, "batches", s->batches);
	rte_tel_data_add_dict_uint(d, "bytes", s->bytes);
	rte_tel_data_add_dict_uint(d, "files", s->files);
	rte_tel_data_add_dict_uint(d, "outages", s->outages);
	rte_tel_data_add_dict_uint(d, "stalls", s->stalls);
	rte_tel_data_add_dict_uint(d, "resumes", s->resumes);
	telemetry_add_text(d, "error", w->status[table].error);
	return d;
}

int
telemetry_writer(const char *cmd, const char *params, struct rte_tel_data *d)
{
	struct run_writer w;

	run_get_writer(telemetry_run, &w);
	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_string(d, "run", w.name);
	if (w.name[0] == '\0')
		return 0;
	telemetry_add_nested(d, "frames", writer_table(&w, ARROW_FRAMES, w.stats.records));
	telemetry_add_nested(d, "images", writer_table(&w, ARROW_IMAGES, w.stats.kept));
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
