/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "arrow/format.h"
#include "escaped_text.h"
#include "query_arrow.h"
#include "sql/result_reader.h"

#define BLOCK (1u << 20) /* bytes of a body that are copied, checked and written at a time */

struct writer {
	struct sql_session *session;
	FILE *out;
	uint8_t *block;
	uint64_t body; /* bytes of that of the last message */
	uint64_t batches;
	uint64_t bytes;	   /* of bodies */
	uint64_t deferred; /* of these, of deferred lists */
	uint64_t copied;
};

static int
put_bytes(struct writer *w, const void *bytes, size_t size)
{
	errno = 0;
	if (size == 0 || fwrite(bytes, size, 1, w->out) == 1)
		return 0;
	return errno != 0 ? -errno : -EIO;
}

/* Takes a message of the Arrow writer. */
static int
put_message(void *arg, const void *metadata, size_t size, const struct ipc_buffer *buffer,
	size_t nb, uint64_t body)
{
	const uint32_t prefix[2] = {ARROW_CONTINUATION, (uint32_t)size};
	struct writer *w = arg;
	uint64_t offset, length;
	const char *path;
	int ret;

	ret = put_bytes(w, prefix, sizeof(prefix));
	if (ret == 0)
		ret = put_bytes(w, metadata, size);
	for (offset = 0; offset < body && ret == 0; offset += length) {
		length = body - offset < BLOCK ? body - offset : BLOCK;
		ipc_body_copy(w->block, buffer, nb, offset, length);
		/* zeros in place of a file are not written */
		path = sql_catalog_unreadable(w->session->catalog);
		if (path != NULL) {
			(void)sql_session_unreadable(w->session, path);
			return -EPROTO;
		}
		ret = put_bytes(w, w->block, length);
	}
	w->body = body;
	/* a reader has each batch as soon as it is complete */
	return ret == 0 && fflush(w->out) != 0 ? -errno : ret;
}

static void
show(const struct writer *w)
{
	char names[1024];

	if (sql_session_deferred(w->session, names, sizeof(names)) == 0)
		escaped_line(
			stderr, "%s: deferred lists: %s", program_invocation_short_name, names);
	else
		fprintf(stderr, "%s: lists through the engine\n", program_invocation_short_name);
	fprintf(stderr,
		"%s: record batches %" PRIu64 ", bytes of bodies %" PRIu64
		", of these deferred lists %" PRIu64 "; bytes copied after the engine %" PRIu64
		" (%.2f for each byte)\n",
		program_invocation_short_name, w->batches, w->bytes, w->deferred, w->copied,
		w->bytes > 0 ? (double)w->copied / (double)w->bytes : 0);
}

static int
put_batches(struct writer *w, struct sql_reader *reader)
{
	static const uint32_t end[2] = {ARROW_CONTINUATION, 0};
	const struct ipc_sink sink = {put_message, w};
	struct sql_batch batch;
	struct ipc_stream out;
	int ret;

	ret = ipc_stream_begin_messages(&out, &sink, sql_reader_schema(reader));
	while (ret == 0) {
		ret = sql_reader_next(reader, &batch);
		if (ret < 0)
			break;
		if (batch.array == NULL)
			return put_bytes(w, end, sizeof(end));
		ret = ipc_stream_batch_values(&out, batch.array, batch.values);
		w->batches++;
		w->bytes += w->body;
		w->deferred += batch.deferred;
		/* once to a block, and before that what the engine converted */
		w->copied += w->body + (w->body > batch.direct ? w->body - batch.direct : 0);
	}
	return ret;
}

int
query_arrow(struct sql_session *s, FILE *out, bool stats)
{
	struct writer w = {.session = s, .out = out, .block = malloc(BLOCK)};
	struct sql_reader *reader;
	int ret = -ENOMEM;

	if (w.block != NULL)
		ret = sql_reader_open(&reader, s);
	if (ret == 0) {
		sql_reader_batch_bytes(reader, BLOCK);
		ret = put_batches(&w, reader);
		sql_reader_close(reader);
	}
	free(w.block);
	if (ret == 0 && stats)
		show(&w);
	if (ret == -ENOTSUP && s->error[0] == '\0')
		snprintf(s->error, sizeof(s->error),
			"a column has a type that is not supported in this format: cast it");
	if (ret < 0 && s->error[0] == '\0')
		snprintf(s->error, sizeof(s->error), "cannot write the result: %s", strerror(-ret));
	return ret;
}
