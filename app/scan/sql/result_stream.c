/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "sql/result_stream.h"

struct reading {
	struct sql_session *session;
	duckdb_arrow_options options;
};

/* Report an error of DuckDB's conversion. @return EIO */
static int
arrow_error(struct sql_session *s, duckdb_error_data error)
{
	snprintf(s->error, sizeof(s->error), "DuckDB's conversion to Arrow: %s",
		s->api->error_data_message(error));
	s->api->destroy_error_data(&error);
	return EIO;
}

static int
get_schema(struct ArrowArrayStream *stream, struct ArrowSchema *out)
{
	struct reading *r = stream->private_data;
	struct sql_session *s = r->session;
	duckdb_logical_type *type;
	duckdb_error_data error;
	uint64_t i;

	type = calloc(s->present.nb_columns + 1, sizeof(*type));
	if (type == NULL)
		return ENOMEM;
	for (i = 0; i < s->present.nb_columns; i++)
		type[i] = sql_session_type(s, i);
	*out = (struct ArrowSchema){0};
	error = s->api->to_arrow_schema(
		r->options, type, s->present.name, s->present.nb_columns, out);
	for (i = 0; i < s->present.nb_columns; i++)
		s->api->destroy_logical_type(&type[i]);
	free(type);
	return error != NULL ? arrow_error(s, error) : 0;
}

static int
get_next(struct ArrowArrayStream *stream, struct ArrowArray *out)
{
	struct reading *r = stream->private_data;
	struct sql_session *s = r->session;
	duckdb_error_data error;
	duckdb_chunk chunk;
	int ret;

	*out = (struct ArrowArray){0};
	ret = sql_session_fetch(s, &chunk);
	if (ret < 0)
		return -ret;
	if (chunk == NULL)
		return 0;
	error = s->api->data_chunk_to_arrow(r->options, chunk, out);
	s->api->destroy_data_chunk(&chunk);
	return error != NULL ? arrow_error(s, error) : 0;
}

static const char *
get_last_error(struct ArrowArrayStream *stream)
{
	const struct reading *r = stream->private_data;

	return r->session->error[0] != '\0' ? r->session->error : NULL;
}

static void
release(struct ArrowArrayStream *stream)
{
	struct reading *r = stream->private_data;

	if (r->options != NULL)
		r->session->api->destroy_arrow_options(&r->options);
	free(r);
	stream->release = NULL;
}

int
sql_result_stream(struct sql_session *s, struct ArrowArrayStream *stream)
{
	struct reading *r = malloc(sizeof(*r));

	if (r == NULL)
		return -ENOMEM;
	*r = (struct reading){s, s->api->result_get_arrow_options(&s->result)};
	*stream = (struct ArrowArrayStream){get_schema, get_next, get_last_error, release, r};
	return 0;
}
