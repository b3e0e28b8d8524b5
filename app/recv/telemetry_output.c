/* SPDX-License-Identifier: BSD-3-Clause */
/* What leaves the datapath: latency, files, pictures. */

#include <assert.h>

#include "telemetry_dict.h"
#include "telemetry_private.h"

int
telemetry_latency(const char *cmd, const char *params, struct rte_tel_data *d)
{
	const struct builder_stats stats = builder_stats(telemetry_run->pipeline->builder),
				   *b = &stats;
	uint64_t durable[ARROW_TABLES][ARROW_LATENCY_BUCKETS];

	static_assert(ARROW_LATENCY_BUCKETS == BUILDER_LATENCY_BUCKETS, "the same below_us");

	rte_tel_data_start_dict(d);
	telemetry_dict_below_us(d, BUILDER_LATENCY_BUCKETS);
	telemetry_dict_array(
		d, "first_packet_to_verdict", b->latency_verdict, BUILDER_LATENCY_BUCKETS);
	telemetry_dict_array(d, "last_packet_to_verdict", b->latency_gang, BUILDER_LATENCY_BUCKETS);
	run_get_latency(telemetry_run, durable);
	telemetry_dict_array(
		d, "frames_batch_to_durable", durable[ARROW_FRAMES], ARROW_LATENCY_BUCKETS);
	telemetry_dict_array(
		d, "images_batch_to_durable", durable[ARROW_IMAGES], ARROW_LATENCY_BUCKETS);
	return 0;
}

/** One table: `rows` were taken; they are durable, unwritten, or on their way. */
static struct rte_tel_data *
writer_table(const struct run_writer *w, enum arrow_table table, uint64_t rows)
{
	const struct arrow_run_stats *s = &w->stats.table[table];
	struct rte_tel_data *d = telemetry_dict_new();

	if (d == NULL)
		return NULL;
	rte_tel_data_add_dict_string(d, "state", arrow_run_state_name(s->state));
	rte_tel_data_add_dict_string(d, "mode", arrow_io_mode_name(s->mode));
	telemetry_dict_text(d, "why", w->status[table].why);
	telemetry_dict_text(d, "path", w->status[table].path);
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
	telemetry_dict_text(d, "error", w->status[table].error);
	return d;
}

int
telemetry_writer(const char *cmd, const char *params, struct rte_tel_data *d)
{
	struct run_writer w;

	run_get_writer(telemetry_run, &w);
	rte_tel_data_start_dict(d);
	telemetry_dict_text(d, "run", w.name);
	if (w.name[0] == '\0')
		return 0;
	telemetry_dict_nest(d, "frames", writer_table(&w, ARROW_FRAMES, w.stats.records));
	telemetry_dict_nest(d, "images", writer_table(&w, ARROW_IMAGES, w.stats.kept));
	return 0;
}

int
telemetry_preview(const char *cmd, const char *params, struct rte_tel_data *d)
{
	struct preview_status status;

	preview_get_status(telemetry_run->pipeline->preview, &status);
	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_uint(d, "active", status.active);
	telemetry_dict_text(d, "path", status.path);
	rte_tel_data_add_dict_uint(d, "sequence", status.sequence);
	rte_tel_data_add_dict_uint(d, "frame", status.frame);
	rte_tel_data_add_dict_uint(d, "frames", status.frames);
	rte_tel_data_add_dict_uint(d, "skipped", status.skipped);
	rte_tel_data_add_dict_uint(d, "errors", status.errors);
	telemetry_dict_text(d, "error", status.error);
	return 0;
}
