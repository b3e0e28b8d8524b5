/* SPDX-License-Identifier: BSD-3-Clause */

#include <stdio.h>
#include <stdlib.h>

#include "arrow/file.h"
#include "../unit/arrow/arrow_sample.h"
#include "bench_run.h"

#define FRAME_MAX 4 /* frames that differ in their pixels */

static struct arrow_file file[ARROW_TABLES];

static void
emit(void *arg, const struct batch *b)
{
	arrow_file_append(&file[b->table], b);
}

int
bench_run_write(const char *dir, unsigned int frames)
{
	struct batch_builder_config config;
	struct batch_builder *builder;
	struct arrow_tables tables;
	struct sample s;
	char name[32];
	uint64_t i;

	sample_init(&s, 1, GK_VALUE_F32, BENCH_RUN_MODULES);
	if (sample_tables(&s, &tables) < 0)
		return -1;
	for (i = 0; i < ARROW_TABLES; i++) {
		snprintf(name, sizeof(name), "run_%s", arrow_table_name(i));
		if (arrow_file_create(&file[i], NULL, dir, name, &tables.schema[i]) < 0)
			return -1;
	}
	config = sample_builder_config(&s, &tables);
	config.emit = emit;
	if (batch_builder_create(&builder, &config) < 0)
		return -1;
	for (i = 1; i <= frames; i++) {
		if (i % (frames / FRAME_MAX) == 1)
			do {
				sample_next(&s, 1, 8);
			} while (s.record.kind == GK_KIND_RAW);
		s.record.frame = i;
		s.record.strong_count = i % 1000;
		s.record.verdict = FRAME_HIT + i % 3;
		if (batch_builder_add(builder, &s.record) < 0)
			return -1;
	}
	batch_builder_flush(builder);
	for (i = 0; i < ARROW_TABLES; i++)
		if (arrow_file_close(&file[i]) < 0)
			return -1;
	batch_builder_destroy(builder);
	arrow_tables_free(&tables);
	sample_free(&s);
	return 0;
}

void
bench_engine_open(struct bench_engine *e, const struct duckdb_api *api, const char *dir,
	enum sql_fill fill, bool defer)
{
	const struct sql_limits limits = {
		.threads = 1, .fill = fill, .defer = defer, .join = defer};
	struct scan_list list = {0};

	if (scan_list_add(&list, dir) < 0 ||
		sql_catalog_create(&e->catalog, &list, NULL, NULL) < 0 ||
		sql_session_open(&e->session, api, &e->catalog, &limits) < 0) {
		fprintf(stderr, "bench: no engine for %s\n", dir);
		exit(1);
	}
	scan_list_free(&list);
}

void
bench_engine_close(struct bench_engine *e)
{
	sql_session_close(&e->session);
	sql_catalog_destroy(&e->catalog);
}
