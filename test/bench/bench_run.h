/* SPDX-License-Identifier: BSD-3-Clause */
/* A run with random frames, and an engine that has its tables, for benchmarks of queries. */
#ifndef BENCH_RUN_H
#define BENCH_RUN_H

#include "sql/session.h"

#define BENCH_RUN_MODULES 8

/*
 * Write run_frames.arrow and run_images.arrow. Frames are numbered from 1; each has an image, which
 * is a list of pixels or a full one. The pixels of a few frames repeat, since random ones would
 * take long.
 * @return 0; -1
 */
int bench_run_write(const char *dir, unsigned int frames);

/* An engine with one thread. @param defer  as in the server. Exits on an error. */
struct bench_engine {
	struct sql_catalog catalog;
	struct sql_session session;
};

void bench_engine_open(struct bench_engine *e, const struct duckdb_api *api, const char *dir,
	enum sql_fill fill, bool defer);
void bench_engine_close(struct bench_engine *e);

#endif /* BENCH_RUN_H */
