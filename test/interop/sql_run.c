/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Executes statements over the runs of directories in one session. Statements come from standard
 * input, separated by zero bytes. For each it prints its rows: cells as text, each with a byte 0x1F
 * after it, NULL as a byte 0x01, and a byte 0x1E after each row. Then a byte 0x1D, the error or
 * nothing, and a byte 0x1C.
 *
 * `plain`, `deferred` and `joined` print one row in place of these, about the result as an Arrow
 * IPC stream: its length and hash; the number of its rows and the sum of their hashes, in which the
 * order has no effect; the number of its batches; and the names of the columns whose lists were
 * deferred. `joined` is `deferred` with sql_limits.join.
 *
 * usage: sql_run reference|copy|plain|deferred|joined THREADS DIR...
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sql/ipc_reader.h"
#include "sql/ipc_type.h"
#include "sql/result_reader.h"

/* What is in a stream. */
struct content {
	uint64_t rows;
	uint64_t hash; /* sum of the hashes of the rows */
	uint64_t batches;
};

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

#define HASH_START UINT64_C(0xcbf29ce484222325)

/* Continue a hash: FNV-1a. */
static uint64_t
hash(uint64_t value, const void *bytes, size_t size)
{
	const uint8_t *b = bytes;
	size_t i;

	for (i = 0; i < size; i++)
		value = (value ^ b[i]) * UINT64_C(0x100000001b3);
	return value;
}

/* Continue a hash with a value of an array. @return 0; -ENOTSUP: its type */
static int
hash_value(uint64_t *value, const struct ArrowSchema *f, const struct ArrowArray *a, int64_t row)
{
	const uint8_t *validity = a->n_buffers > 0 ? a->buffers[0] : NULL;
	const bool valid = validity == NULL || (validity[row / 8] >> row % 8 & 1);
	const int32_t *offsets;
	struct ipc_type t;
	int64_t i, start = row, end = row + 1;
	uint8_t bit;
	int ret;

	ret = f->dictionary != NULL ? -ENOTSUP : ipc_type_read(f->format, &t);
	if (ret < 0)
		return ret;
	*value = hash(*value, &valid, sizeof(valid));
	if (!valid)
		return 0;
	switch (t.layout) {
	case LAYOUT_BITS:
		bit = ((const uint8_t *)a->buffers[1])[row / 8] >> row % 8 & 1;
		*value = hash(*value, &bit, sizeof(bit));
		return 0;
	case LAYOUT_FIXED:
		*value = hash(*value, (const uint8_t *)a->buffers[1] + row * t.width, t.width);
		return 0;
	case LAYOUT_TEXT:
	case LAYOUT_LIST:
		if (t.width != sizeof(*offsets))
			return -ENOTSUP;
		offsets = a->buffers[1];
		start = offsets[row];
		end = offsets[row + 1];
		*value = hash(*value, &(int64_t){end - start}, sizeof(int64_t));
		if (t.layout == LAYOUT_TEXT)
			*value = hash(*value, (const uint8_t *)a->buffers[2] + start, end - start);
		break;
	case LAYOUT_CHILD:
		if (t.id == ARROW_FB_FIXED_LIST) {
			start = row * t.arg[0];
			end = start + t.arg[0];
		}
		break;
	default:
		return -ENOTSUP;
	}
	for (i = 0; i < f->n_children; i++) {
		for (row = start; row < end && ret == 0; row++)
			ret = hash_value(value, f->children[i], a->children[i], row);
	}
	return ret;
}

static void
keep(void *arg)
{
}

/* Read the messages of a stream. @return 0; -EBADMSG, -ENOTSUP, -ENOMEM */
static int
read_stream(const char *bytes, size_t size, struct content *content)
{
	struct ipc_reader *reader = ipc_reader_create();
	struct ipc_body body = {.release = keep};
	struct ArrowSchema schema = {.release = NULL};
	struct ArrowArray array;
	const char *metadata;
	uint32_t length;
	uint64_t value;
	size_t at = 0;
	int64_t row;
	int ret = reader == NULL ? -ENOMEM : 0;

	*content = (struct content){0};
	while (ret == 0 && at < size) {
		/* 0xFFFFFFFF, the length of the metadata, the metadata, the body */
		memcpy(&length, bytes + at + sizeof(length), sizeof(length));
		metadata = bytes + at + 2 * sizeof(length);
		body.bytes = (const uint8_t *)metadata + length;
		at = (const char *)body.bytes - bytes;
		ret = ipc_reader_head(metadata, length, &body.size);
		if (ret == IPC_SCHEMA) {
			ret = ipc_reader_schema(reader, metadata, length);
			if (ret == 0)
				ret = ipc_reader_copy_schema(reader, &schema);
			continue;
		}
		if (ret < 0)
			break;
		at += body.size;
		ret = ipc_reader_batch(reader, metadata, length, &body, &array);
		if (ret < 0 || array.release == NULL)
			continue;
		for (row = 0; row < array.length && ret == 0; row++) {
			value = HASH_START;
			for (int64_t i = 0; i < schema.n_children && ret == 0; i++)
				ret = hash_value(
					&value, schema.children[i], array.children[i], row);
			content->hash += value;
		}
		content->rows += array.length;
		content->batches++;
		array.release(&array);
	}
	if (schema.release != NULL)
		schema.release(&schema);
	if (reader != NULL)
		ipc_reader_destroy(reader);
	return ret;
}

static void
run_arrow(struct sql_session *s, const char *sql)
{
	char *bytes = NULL, names[1024];
	struct content content;
	size_t size = 0;
	FILE *out = open_memstream(&bytes, &size);
	int ret;

	if (out == NULL)
		exit(1);
	ret = sql_session_execute(s, sql, SQL_NATIVE);
	if (ret == 0)
		ret = write_stream(s, out);
	fclose(out);
	if (ret == 0)
		ret = read_stream(bytes, size, &content);
	if (ret == 0) {
		(void)sql_session_deferred(s, names, sizeof(names));
		printf("%zu\x1f%016lx\x1f%lu\x1f%016lx\x1f%lu\x1f%s\x1f\x1e", size,
			hash(HASH_START, bytes, size), content.rows, content.hash, content.batches,
			names);
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
		fprintf(stderr,
			"usage: sql_run reference|copy|plain|deferred|joined THREADS DIR...\n");
		return 2;
	}
	limits.fill = strcmp(argv[1], "copy") == 0 ? SQL_COPY : SQL_ZERO_COPY;
	limits.join = strcmp(argv[1], "joined") == 0;
	limits.defer = limits.join || strcmp(argv[1], "deferred") == 0;
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
