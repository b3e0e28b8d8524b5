/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Executes statements over the runs of directories in one session. Statements come from standard
 * input, separated by zero bytes. For each it prints its rows: cells as text, each with a byte 0x1F
 * after it, NULL as a byte 0x01, and a byte 0x1E after each row. Then a byte 0x1D, the error or
 * nothing, and a byte 0x1C.
 *
 * `plain` and `deferred` print one row in place of these: length and hash of the result as an Arrow
 * IPC stream, and the names of the columns whose lists were past the engine.
 *
 * usage: sql_run reference|copy|plain|deferred THREADS DIR...
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sql/result_reader.h"

static void
warn(void *arg, const char *text)
{
	fprintf(stderr, "%s\n", text);
}

static void
print_rows(struct sql_session *s, duckdb_chunk chunk)
{
	const uint64_t rows = s->api->data_chunk_get_size(chunk);
	const union duckdb_text *text;
	const uint64_t *validity;
	duckdb_vector vector;
	uint64_t row, i;

	for (row = 0; row < rows; row++) {
		for (i = 0; i < s->present.nb_columns; i++) {
			vector = s->api->data_chunk_get_vector(chunk, i);
			validity = s->api->vector_get_validity(vector);
			text = s->api->vector_get_data(vector);
			if (validity != NULL && !(validity[row / 64] >> row % 64 & 1))
				putchar(0x01);
			else
				fwrite(duckdb_text_bytes(&text[row]), 1, text[row].length, stdout);
			putchar(0x1F);
		}
		putchar(0x1E);
	}
}

static void
run(struct sql_session *s, const char *sql)
{
	duckdb_chunk chunk;
	int ret;

	ret = sql_session_execute(s, sql, SQL_TEXT);
	while (ret == 0) {
		ret = sql_session_fetch(s, &chunk);
		if (ret < 0 || chunk == NULL)
			break;
		print_rows(s, chunk);
		s->api->destroy_data_chunk(&chunk);
	}
	printf("\x1d%s\x1c", ret < 0 ? s->error : "");
}

static int
write_stream(struct sql_session *s, FILE *out)
{
	struct sql_reader *reader;
	struct sql_batch batch;
	struct ipc_stream ipc;
	int ret;

	ret = sql_reader_open(&reader, s);
	if (ret < 0)
		return ret;
	ret = ipc_stream_begin(&ipc, out, sql_reader_schema(reader));
	while (ret == 0) {
		ret = sql_reader_next(reader, &batch);
		if (ret < 0 || batch.array == NULL)
			break;
		ret = ipc_stream_batch_values(&ipc, batch.array, batch.values);
	}
	sql_reader_close(reader);
	return ret;
}

/* FNV-1a */
static uint64_t
hash(const char *bytes, size_t size)
{
	uint64_t value = UINT64_C(0xcbf29ce484222325);
	size_t i;

	for (i = 0; i < size; i++)
		value = (value ^ (uint8_t)bytes[i]) * UINT64_C(0x100000001b3);
	return value;
}

static void
run_arrow(struct sql_session *s, const char *sql)
{
	char *bytes = NULL, names[1024];
	size_t size = 0;
	FILE *out = open_memstream(&bytes, &size);
	int ret;

	if (out == NULL)
		exit(1);
	ret = sql_session_execute(s, sql, SQL_NATIVE);
	if (ret == 0)
		ret = write_stream(s, out);
	fclose(out);
	if (ret == 0) {
		(void)sql_session_deferred(s, names, sizeof(names));
		printf("%zu\x1f%016lx\x1f%s\x1f\x1e", size, hash(bytes, size), names);
	}
	printf("\x1d%s\x1c", ret == 0 ? "" : s->error[0] != '\0' ? s->error : strerror(-ret));
	free(bytes);
}

int
main(int argc, char **argv)
{
	struct sql_limits limits = {0};
	struct scan_list list = {0};
	struct sql_catalog catalog;
	struct sql_session session;
	struct duckdb_api api;
	char problem[1024], *sql = NULL;
	bool arrow;
	size_t room = 0;
	int i;

	if (argc < 4) {
		fprintf(stderr, "usage: sql_run reference|copy|plain|deferred THREADS DIR...\n");
		return 2;
	}
	limits.fill = strcmp(argv[1], "copy") == 0 ? SQL_COPY : SQL_ZERO_COPY;
	limits.defer = strcmp(argv[1], "deferred") == 0;
	arrow = limits.defer || strcmp(argv[1], "plain") == 0;
	limits.threads = atoi(argv[2]);
	limits.memory = "1GB";
	limits.any_order = limits.threads > 1;
	for (i = 3; i < argc; i++) {
		if (scan_list_add(&list, argv[i]) < 0)
			return 1;
	}
	if (duckdb_api_load(&api, problem, sizeof(problem)) < 0) {
		fprintf(stderr, "%s\n", problem);
		return 77;
	}
	if (sql_catalog_create(&catalog, &list, warn, NULL) < 0)
		return 1;
	scan_list_free(&list);
	if (sql_session_open(&session, &api, &catalog, &limits) < 0) {
		fprintf(stderr, "%s\n", session.error);
		return 1;
	}
	while (getdelim(&sql, &room, '\0', stdin) > 0)
		(arrow ? run_arrow : run)(&session, sql);
	free(sql);
	fprintf(stderr, "bytes copied %lu, referenced %lu; batches skipped %lu\n",
		session.tables.copied, session.tables.referenced, session.tables.skipped);
	sql_session_close(&session);
	sql_catalog_destroy(&catalog);
	return 0;
}
