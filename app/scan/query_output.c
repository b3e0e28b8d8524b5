/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "escaped_text.h"
#include "query_output.h"
#include "sql/ipc_stream.h"

#define TABLE_SAMPLE 512 /* rows that determine the widths of columns */
#define TABLE_WIDTH  64	 /* of a column, at most */

static bool
is_valid(const uint64_t *validity, uint64_t row)
{
	return validity == NULL || validity[row / 64] >> row % 64 & 1;
}

/* Numbers that are text in a result of SQL_SIMPLE. */
static bool
is_wide_number(int type)
{
	return type == DUCKDB_TYPE_HUGEINT || type == DUCKDB_TYPE_UHUGEINT ||
		type == DUCKDB_TYPE_DECIMAL;
}

static bool
is_number(int type)
{
	return (type >= DUCKDB_TYPE_TINYINT && type <= DUCKDB_TYPE_DOUBLE) || is_wide_number(type);
}

/* ------------------------------------------------------------------ CSV */

static void
put_csv(FILE *out, const char *bytes, size_t length)
{
	size_t i;

	for (i = 0; i < length && strchr(",\"\r\n", bytes[i]) == NULL && bytes[i] != '\0'; i++)
		;
	/* an empty text differs from NULL, which is nothing */
	if (length > 0 && i == length) {
		fwrite(bytes, 1, length, out);
		return;
	}
	putc('"', out);
	for (i = 0; i < length; i++) {
		if (bytes[i] == '"')
			putc('"', out);
		putc(bytes[i], out);
	}
	putc('"', out);
}

static void
csv_names(const struct sql_session *s, FILE *out)
{
	uint64_t i;

	for (i = 0; i < s->nb_columns; i++) {
		if (i > 0)
			putc(',', out);
		put_csv(out, s->name[i], strlen(s->name[i]));
	}
	putc('\n', out);
}

static void
csv_rows(const struct sql_session *s, duckdb_chunk chunk, FILE *out)
{
	const uint64_t rows = s->api->data_chunk_get_size(chunk);
	const union duckdb_text *text;
	duckdb_vector vector;
	uint64_t row, i;

	for (row = 0; row < rows; row++) {
		for (i = 0; i < s->nb_columns; i++) {
			vector = s->api->data_chunk_get_vector(chunk, i);
			text = s->api->vector_get_data(vector);
			if (i > 0)
				putc(',', out);
			if (is_valid(s->api->vector_get_validity(vector), row))
				put_csv(out, duckdb_text_bytes(&text[row]), text[row].length);
		}
		putc('\n', out);
	}
}

/* ------------------------------------------------------------------ table */

struct table {
	unsigned int *width;
	char **cell; /* of the first rows, row by row; shortened and printable */
	uint64_t nb_cells;
	uint64_t rows; /* all so far */
	bool printing; /* the widths are fixed */
};

/* Number of characters of UTF-8. */
static unsigned int
characters(const char *text)
{
	unsigned int n = 0;

	for (; *text != '\0'; text++)
		n += (*text & 0xC0) != 0x80;
	return n;
}

/* Make a printable cell of at most TABLE_WIDTH characters. @return NULL: out of memory */
static char *
table_cell(const char *bytes, size_t length)
{
	const size_t most = 4 * TABLE_WIDTH; /* bytes of so many characters */
	char *text, *cell, *at;
	unsigned int n;

	text = strndup(bytes, length < most ? length : most);
	cell = text != NULL ? escaped_text(text) : NULL;
	free(text);
	if (cell == NULL)
		return NULL;
	if (length <= most && characters(cell) <= TABLE_WIDTH)
		return cell;
	for (at = cell, n = 0; *at != '\0'; at++) {
		n += (*at & 0xC0) != 0x80;
		if (n > TABLE_WIDTH - 3)
			break;
	}
	/* an escape is longer than its byte, so there is room */
	if (strlen(at) >= 3)
		strcpy(at, "...");
	return cell;
}

static void
table_put(const struct sql_session *s, const struct table *t, uint64_t column, const char *cell,
	FILE *out)
{
	const unsigned int length = characters(cell);
	const unsigned int pad = t->width[column] > length ? t->width[column] - length : 0;
	const bool last = column + 1 == s->nb_columns;

	if (is_number(s->type[column]))
		fprintf(out, "%*s%s", (int)pad, "", cell);
	else
		fprintf(out, "%s%*s", cell, last ? 0 : (int)pad, "");
	fputs(last ? "\n" : "  ", out);
}

static int
table_head(const struct sql_session *s, struct table *t, FILE *out)
{
	unsigned int width;
	uint64_t i, k;
	char *name;

	for (i = 0; i < s->nb_columns; i++) {
		name = table_cell(s->name[i], strlen(s->name[i]));
		if (name == NULL)
			return -ENOMEM;
		t->width[i] = characters(name);
		for (k = i; k < t->nb_cells; k += s->nb_columns) {
			width = characters(t->cell[k]);
			if (width > t->width[i])
				t->width[i] = width;
		}
		table_put(s, t, i, name, out);
		free(name);
	}
	for (i = 0; i < s->nb_columns; i++) {
		for (k = 0; k < t->width[i]; k++)
			putc('-', out);
		fputs(i + 1 == s->nb_columns ? "\n" : "  ", out);
	}
	for (k = 0; k < t->nb_cells; k++) {
		table_put(s, t, k % s->nb_columns, t->cell[k], out);
		free(t->cell[k]);
	}
	t->nb_cells = 0;
	t->printing = true;
	return 0;
}

static int
table_rows(const struct sql_session *s, struct table *t, duckdb_chunk chunk, FILE *out)
{
	const uint64_t rows = s->api->data_chunk_get_size(chunk);
	const union duckdb_text *text;
	duckdb_vector vector;
	uint64_t row, i;
	char *cell;
	int ret;

	for (row = 0; row < rows; row++) {
		for (i = 0; i < s->nb_columns; i++) {
			vector = s->api->data_chunk_get_vector(chunk, i);
			text = s->api->vector_get_data(vector);
			if (is_valid(s->api->vector_get_validity(vector), row))
				cell = table_cell(duckdb_text_bytes(&text[row]), text[row].length);
			else
				cell = strdup("NULL");
			if (cell == NULL)
				return -ENOMEM;
			if (!t->printing) {
				t->cell[t->nb_cells++] = cell;
				continue;
			}
			table_put(s, t, i, cell, out);
			free(cell);
		}
		t->rows++;
		if (!t->printing && t->rows == TABLE_SAMPLE) {
			ret = table_head(s, t, out);
			if (ret < 0)
				return ret;
		}
	}
	return 0;
}

static int
table_open(const struct sql_session *s, struct table *t)
{
	*t = (struct table){0};
	t->width = calloc(s->nb_columns + 1, sizeof(*t->width));
	t->cell = calloc(TABLE_SAMPLE * s->nb_columns + 1, sizeof(*t->cell));
	return t->width != NULL && t->cell != NULL ? 0 : -ENOMEM;
}

static void
table_close(struct table *t)
{
	uint64_t i;

	for (i = 0; i < t->nb_cells; i++)
		free(t->cell[i]);
	free(t->cell);
	free(t->width);
}

static int
table_end(const struct sql_session *s, struct table *t, FILE *out)
{
	int ret = t->printing ? 0 : table_head(s, t, out);

	if (ret == 0)
		fprintf(out, "(%" PRIu64 " row%s)\n", t->rows, t->rows == 1 ? "" : "s");
	return ret;
}

/* ------------------------------------------------------------------ JSON */

static void
json_text(FILE *out, const char *bytes, size_t length)
{
	size_t i;

	putc('"', out);
	for (i = 0; i < length; i++) {
		const unsigned char c = bytes[i];

		if (c == '"' || c == '\\')
			fprintf(out, "\\%c", c);
		else if (c < 0x20)
			fprintf(out, "\\u%04x", c);
		else
			putc(c, out);
	}
	putc('"', out);
}

static void
json_blob(FILE *out, const char *bytes, size_t length)
{
	static const char digits[] = "0123456789abcdef";
	size_t i;

	putc('"', out);
	for (i = 0; i < length; i++) {
		putc(digits[(unsigned char)bytes[i] >> 4], out);
		putc(digits[bytes[i] & 15], out);
	}
	putc('"', out);
}

/* Write the shortest decimal that is read back as the same number. */
static void
json_float(FILE *out, double value, bool single)
{
	char text[40];
	int digits;

	if (!isfinite(value)) {
		/* JSON has no such numbers; these names are those of Protocol Buffers' JSON */
		fputs(isnan(value) ? "\"NaN\"" : value > 0 ? "\"Infinity\"" : "\"-Infinity\"", out);
		return;
	}
	for (digits = single ? 6 : 15; digits <= 17; digits++) {
		snprintf(text, sizeof(text), "%.*g", digits, value);
		if (single ? strtof(text, NULL) == (float)value : strtod(text, NULL) == value)
			break;
	}
	fputs(text, out);
}

static void
json_plain(FILE *out, int type, const void *data, uint64_t row)
{
	const union duckdb_text *text = data;

	switch (type) {
	case DUCKDB_TYPE_BOOLEAN:
		fputs(((const uint8_t *)data)[row] ? "true" : "false", out);
		break;
	case DUCKDB_TYPE_TINYINT:
		fprintf(out, "%d", ((const int8_t *)data)[row]);
		break;
	case DUCKDB_TYPE_SMALLINT:
		fprintf(out, "%d", ((const int16_t *)data)[row]);
		break;
	case DUCKDB_TYPE_INTEGER:
		fprintf(out, "%" PRId32, ((const int32_t *)data)[row]);
		break;
	case DUCKDB_TYPE_BIGINT:
		fprintf(out, "%" PRId64, ((const int64_t *)data)[row]);
		break;
	case DUCKDB_TYPE_UTINYINT:
		fprintf(out, "%u", ((const uint8_t *)data)[row]);
		break;
	case DUCKDB_TYPE_USMALLINT:
		fprintf(out, "%u", ((const uint16_t *)data)[row]);
		break;
	case DUCKDB_TYPE_UINTEGER:
		fprintf(out, "%" PRIu32, ((const uint32_t *)data)[row]);
		break;
	case DUCKDB_TYPE_UBIGINT:
		fprintf(out, "%" PRIu64, ((const uint64_t *)data)[row]);
		break;
	case DUCKDB_TYPE_FLOAT:
		json_float(out, ((const float *)data)[row], true);
		break;
	case DUCKDB_TYPE_DOUBLE:
		json_float(out, ((const double *)data)[row], false);
		break;
	case DUCKDB_TYPE_BLOB:
		json_blob(out, duckdb_text_bytes(&text[row]), text[row].length);
		break;
	default: /* SQL_SIMPLE has converted all others to text */
		json_text(out, duckdb_text_bytes(&text[row]), text[row].length);
	}
}

static void json_value(const struct duckdb_api *api, FILE *out, duckdb_logical_type type,
	duckdb_vector vector, uint64_t row);

static void
json_list(const struct duckdb_api *api, FILE *out, duckdb_logical_type type, duckdb_vector vector,
	uint64_t row)
{
	const bool array = api->get_type_id(type) == DUCKDB_TYPE_ARRAY;
	duckdb_logical_type item =
		array ? api->array_type_child_type(type) : api->list_type_child_type(type);
	duckdb_vector items =
		array ? api->array_vector_get_child(vector) : api->list_vector_get_child(vector);
	const struct duckdb_list *lists = api->vector_get_data(vector);
	const uint64_t length = array ? api->array_type_array_size(type) : lists[row].length;
	const uint64_t offset = array ? row * length : lists[row].offset;
	uint64_t i;

	putc('[', out);
	for (i = 0; i < length; i++) {
		if (i > 0)
			putc(',', out);
		json_value(api, out, item, items, offset + i);
	}
	putc(']', out);
	api->destroy_logical_type(&item);
}

static void
json_struct(const struct duckdb_api *api, FILE *out, duckdb_logical_type type, duckdb_vector vector,
	uint64_t row)
{
	const uint64_t nb = api->struct_type_child_count(type);
	duckdb_logical_type child;
	uint64_t i;
	char *name;

	putc('{', out);
	for (i = 0; i < nb; i++) {
		name = api->struct_type_child_name(type, i);
		child = api->struct_type_child_type(type, i);
		if (i > 0)
			putc(',', out);
		json_text(out, name, strlen(name));
		putc(':', out);
		json_value(api, out, child, api->struct_vector_get_child(vector, i), row);
		api->destroy_logical_type(&child);
		api->free(name);
	}
	putc('}', out);
}

static void
json_value(const struct duckdb_api *api, FILE *out, duckdb_logical_type type, duckdb_vector vector,
	uint64_t row)
{
	const int id = api->get_type_id(type);

	if (!is_valid(api->vector_get_validity(vector), row))
		fputs("null", out);
	else if (id == DUCKDB_TYPE_LIST || id == DUCKDB_TYPE_ARRAY)
		json_list(api, out, type, vector, row);
	else if (id == DUCKDB_TYPE_STRUCT)
		json_struct(api, out, type, vector, row);
	else
		json_plain(out, id, api->vector_get_data(vector), row);
}

/* Write a number that came as text, such as the sum of integers. @return false: another value */
static bool
json_wide(const struct sql_session *s, duckdb_chunk chunk, uint64_t column, uint64_t row, FILE *out)
{
	duckdb_vector vector = s->api->data_chunk_get_vector(chunk, column);
	const union duckdb_text *text = s->api->vector_get_data(vector);

	if (!is_wide_number(s->type[column]) || !is_valid(s->api->vector_get_validity(vector), row))
		return false;
	fwrite(duckdb_text_bytes(&text[row]), 1, text[row].length, out);
	return true;
}

static int
json_rows(struct sql_session *s, duckdb_chunk chunk, FILE *out)
{
	const uint64_t rows = s->api->data_chunk_get_size(chunk);
	duckdb_logical_type *type;
	uint64_t row, i;

	type = calloc(s->nb_columns + 1, sizeof(*type));
	if (type == NULL)
		return -ENOMEM;
	for (i = 0; i < s->nb_columns; i++)
		type[i] = sql_session_type(s, i);
	for (row = 0; row < rows; row++) {
		putc('{', out);
		for (i = 0; i < s->nb_columns; i++) {
			if (i > 0)
				putc(',', out);
			json_text(out, s->name[i], strlen(s->name[i]));
			putc(':', out);
			if (!json_wide(s, chunk, i, row, out))
				json_value(s->api, out, type[i],
					s->api->data_chunk_get_vector(chunk, i), row);
		}
		fputs("}\n", out);
	}
	for (i = 0; i < s->nb_columns; i++)
		s->api->destroy_logical_type(&type[i]);
	free(type);
	return 0;
}

/* ------------------------------------------------------------------ Arrow */

struct arrow_output {
	struct ipc_stream stream;
	duckdb_arrow_options options;
	struct ArrowSchema schema;
};

/* Report an error of DuckDB's conversion. */
static int
arrow_error(struct sql_session *s, duckdb_error_data error)
{
	snprintf(s->error, sizeof(s->error), "DuckDB's conversion to Arrow: %s",
		s->api->error_data_message(error));
	s->api->destroy_error_data(&error);
	return -EIO;
}

static int
arrow_begin(struct sql_session *s, struct arrow_output *a, FILE *out)
{
	duckdb_logical_type *type;
	duckdb_error_data error;
	uint64_t i;
	int ret;

	*a = (struct arrow_output){.options = s->api->result_get_arrow_options(&s->result)};
	type = calloc(s->nb_columns + 1, sizeof(*type));
	if (type == NULL)
		return -ENOMEM;
	for (i = 0; i < s->nb_columns; i++)
		type[i] = sql_session_type(s, i);
	error = s->api->to_arrow_schema(a->options, type, s->name, s->nb_columns, &a->schema);
	for (i = 0; i < s->nb_columns; i++)
		s->api->destroy_logical_type(&type[i]);
	free(type);
	if (error != NULL)
		return arrow_error(s, error);
	ret = ipc_stream_begin(&a->stream, out, &a->schema);
	if (ret == -ENOTSUP)
		snprintf(s->error, sizeof(s->error),
			"a column has a type that is not supported in Arrow streams: cast it");
	return ret;
}

static int
arrow_rows(struct sql_session *s, struct arrow_output *a, duckdb_chunk chunk)
{
	struct ArrowArray array = {0};
	duckdb_error_data error;
	int ret;

	error = s->api->data_chunk_to_arrow(a->options, chunk, &array);
	if (error != NULL)
		return arrow_error(s, error);
	ret = ipc_stream_batch(&a->stream, &array);
	if (array.release != NULL)
		array.release(&array);
	return ret;
}

static void
arrow_close(struct sql_session *s, struct arrow_output *a)
{
	if (a->schema.release != NULL)
		a->schema.release(&a->schema);
	if (a->options != NULL)
		s->api->destroy_arrow_options(&a->options);
}

/* ------------------------------------------------------------------ all formats */

int
query_output(struct sql_session *s, enum query_format format, FILE *out)
{
	struct arrow_output arrow = {.options = NULL};
	struct table table = {0};
	duckdb_chunk chunk;
	int ret = 0;

	if (format == QUERY_TABLE)
		ret = table_open(s, &table);
	else if (format == QUERY_CSV)
		csv_names(s, out);
	else if (format == QUERY_ARROW)
		ret = arrow_begin(s, &arrow, out);
	while (ret == 0) {
		ret = sql_session_fetch(s, &chunk);
		if (ret < 0 || chunk == NULL)
			break;
		errno = 0;
		if (format == QUERY_TABLE)
			ret = table_rows(s, &table, chunk, out);
		else if (format == QUERY_CSV)
			csv_rows(s, chunk, out);
		else if (format == QUERY_JSON)
			ret = json_rows(s, chunk, out);
		else
			ret = arrow_rows(s, &arrow, chunk);
		if (ferror(out))
			ret = errno != 0 ? -errno : -EIO;
		s->api->destroy_data_chunk(&chunk);
	}
	if (ret == 0 && format == QUERY_TABLE)
		ret = table_end(s, &table, out);
	if (ret == 0 && format == QUERY_ARROW)
		ret = ipc_stream_end(&arrow.stream);
	if (ret < 0 && s->error[0] == '\0')
		snprintf(s->error, sizeof(s->error), "cannot write the result: %s", strerror(-ret));
	arrow_close(s, &arrow);
	table_close(&table);
	return ret;
}
