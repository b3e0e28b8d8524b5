/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Queries of a run, compared with native tables of DuckDB that have the same rows, in one process
 * with one thread. The file is in the page cache. Columns of the table: the first query of a file,
 * which checks the CRC of each batch; later ones; the same with copies into DuckDB's vectors;
 * native tables; and what the import of these took. Bytes are those of values that the engine got.
 *
 * usage: sql_bench [quick]
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench_median.h"
#include "bench_run.h"

enum way {
	FIRST,
	LATER,
	COPY,
	NATIVE,
	WAYS
};

static const struct {
	const char *what;
	const char *sql; /* %s: schema */
} queries[] = {
	{"lists: sum of values", "SELECT sum(list_sum(value)) FROM %s.images WHERE kind < 2"},
	{"lists of 1 % of frames",
		"SELECT sum(len(value)), max(value[1]) FROM %s.images "
		"WHERE frame BETWEEN 1000 AND 1020"},
	{"columns: filter, sums",
		"SELECT count(*), sum(strong_count), max(nnz) FROM %s.frames WHERE verdict = 1"},
	{"one row of frames", "SELECT * FROM %s.frames WHERE frame = 1000"},
	{"join", "SELECT count(*), sum(nnz) FROM %s.images JOIN %s.frames USING (frame)"},
};

#define NB_QUERIES (sizeof(queries) / sizeof(queries[0]))

static struct duckdb_api api;
/* CPU time of the process, so that other programs affect it as little as possible. */
static double
seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Execute a query. @return seconds; its result is in `answer` */
static double
ask(struct sql_session *s, const char *sql, char *answer, size_t size)
{
	const double start = seconds();
	const union duckdb_text *text;
	duckdb_chunk chunk = NULL;
	size_t length = 0;

	answer[0] = '\0';
	if (sql_session_execute(s, sql, SQL_TEXT) < 0 || sql_session_fetch(s, &chunk) < 0 ||
		chunk == NULL) {
		fprintf(stderr, "sql_bench: %s: %s\n", sql, s->error);
		exit(1);
	}
	for (uint64_t i = 0; i < s->present.nb_columns && length < size; i++) {
		text = api.vector_get_data(api.data_chunk_get_vector(chunk, i));
		length += snprintf(answer + length, size - length, "%.*s ", (int)text->length,
			duckdb_text_bytes(text));
	}
	api.destroy_data_chunk(&chunk);
	return seconds() - start;
}

static void
engine_sql(struct sql_session *s, const char *sql)
{
	struct duckdb_result result;

	if (api.query(s->connection, sql, &result) != DUCKDB_SUCCESS) {
		fprintf(stderr, "sql_bench: %s: %s\n", sql, api.result_error(&result));
		exit(1);
	}
	api.destroy_result(&result);
}

static void
run_query(size_t q, const char *dir, struct bench_engine *w, unsigned int rounds)
{
	double time[WAYS][BENCH_ROUNDS_MAX];
	char sql[2][512], answer[WAYS][512];
	struct bench_engine first;
	uint64_t referenced, copied;

	snprintf(sql[0], sizeof(sql[0]), queries[q].sql, "run", "run");
	snprintf(sql[1], sizeof(sql[1]), queries[q].sql, "native", "native");
	referenced = w[LATER].session.tables.referenced;
	copied = w[LATER].session.tables.copied;
	for (unsigned int i = 0; i < rounds; i++) {
		for (int way = 0; way < WAYS; way++) {
			struct sql_session *s = &w[way].session;

			if (way == FIRST) {
				bench_engine_open(&first, &api, dir, SQL_ZERO_COPY, false);
				s = &first.session;
			}
			time[way][i] = ask(s, sql[way == NATIVE], answer[way], sizeof(answer[way]));
			if (way == FIRST)
				bench_engine_close(&first);
			if (strcmp(answer[way], answer[FIRST]) != 0) {
				fprintf(stderr, "sql_bench: %s: %s, not %s\n", sql[way == NATIVE],
					answer[way], answer[FIRST]);
				exit(1);
			}
		}
	}
	referenced = (w[LATER].session.tables.referenced - referenced) / rounds;
	copied = (w[LATER].session.tables.copied - copied) / rounds;
	printf("%-24s %9.2f %9.2f %9.2f %9.2f %8.2f %8.2f %11.1f %7.1f\n", queries[q].what,
		1e3 * bench_median(time[FIRST], rounds), 1e3 * bench_median(time[LATER], rounds),
		1e3 * bench_median(time[COPY], rounds), 1e3 * bench_median(time[NATIVE], rounds),
		bench_median_ratio(time[NATIVE], time[LATER], rounds),
		bench_median_ratio(time[COPY], time[LATER], rounds), 1e-6 * (double)referenced,
		1e-6 * (double)copied);
}

int
main(int argc, char **argv)
{
	const bool quick = argc > 1 && strcmp(argv[1], "quick") == 0;
	const unsigned int frames = quick ? 1200 : 4000, rounds = quick ? 1 : 7;
	char dir[] = "/tmp/sql_bench.XXXXXX", problem[1024], command[64];
	struct bench_engine w[WAYS];
	double import;

	if (duckdb_api_load(&api, problem, sizeof(problem)) < 0) {
		printf("SKIPPED: %s (make deps)\n", problem);
		return 77;
	}
	if (mkdtemp(dir) == NULL || bench_run_write(dir, frames) < 0) {
		fprintf(stderr, "sql_bench: cannot write a run to %s\n", dir);
		return 1;
	}
	bench_engine_open(&w[LATER], &api, dir, SQL_ZERO_COPY, false);
	bench_engine_open(&w[COPY], &api, dir, SQL_COPY, false);
	bench_engine_open(&w[NATIVE], &api, dir, SQL_ZERO_COPY, false);
	engine_sql(&w[NATIVE].session, "CREATE SCHEMA native");
	import = seconds();
	engine_sql(&w[NATIVE].session, "CREATE TABLE native.frames AS FROM frames('run')");
	engine_sql(&w[NATIVE].session, "CREATE TABLE native.images AS FROM images('run')");
	import = seconds() - import;
	printf("%u frames of %d modules; DuckDB %s, 1 thread; milliseconds of CPU time, median "
	       "of %u; import into native tables: %.0f ms\n",
		frames, BENCH_RUN_MODULES, api.library_version(), rounds, 1e3 * import);
	printf("%-24s %9s %9s %9s %9s %8s %8s %11s %7s\n", "query", "first", "later", "copy",
		"native", "native/", "copy/", "MB referred", "copied");
	printf("%-24s %9s %9s %9s %9s %8s %8s %11s %7s\n", "", "", "", "", "", "later", "later", "",
		"");
	for (size_t q = 0; q < NB_QUERIES; q++)
		run_query(q, dir, w, rounds);
	for (int way = LATER; way < WAYS; way++)
		bench_engine_close(&w[way]);
	snprintf(command, sizeof(command), "rm -r %s", dir);
	return system(command) != 0;
}
