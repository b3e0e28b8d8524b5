/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "escaped_text.h"
#include "query_output.h"
#include "sql/duckdb_api.h"
#include "sql/ipc_stream.h"

#define TABLE_SAMPLE 512 /* rows that determine the widths of columns */
#define TABLE_WIDTH  64	 /* of a column, at most */

/* Whether a value is not NULL; `at` is its index with the offset of the array. */
static bool
is_valid(const struct ArrowArray *a, int64_t at)
{
	const uint8_t *validity = a->n_buffers > 0 ? a->buffers[0] : NULL;

	return validity == NULL || validity[at / 8] >> at % 8 & 1;
}

/* Bytes of a text or binary value. */
static const char *
text_at(const struct ArrowArray *a, int64_t at, size_t *length)
{
	const int32_t *offset = a->buffers[1];
	const char *bytes = a->buffers[2];

	*length = offset[at + 1] - offset[at];
	return *length > 0 ? bytes + offset[at] : "";
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
	/* an empty text differs from NULL, for which nothing is printed */
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
csv_names(const struct query_result *r, FILE *out)
{
	const char *name;
	int64_t i;

	for (i = 0; i < r->schema->n_children; i++) {
		name = r->schema->children[i]->name;
		if (i > 0)
			putc(',', out);
		put_csv(out, name, strlen(name));
	}
	putc('\n', out);
}

static void
csv_rows(const struct ArrowArray *batch, FILE *out)
{
	const struct ArrowArray *a;
	const char *bytes;
	int64_t row, i;
	size_t length;

	for (row = 0; row < batch->length; row++) {
		for (i = 0; i < batch->n_children; i++) {
			a = batch->children[i];
			if (i > 0)
				putc(',', out);
			if (!is_valid(a, row + a->offset))
				continue;
			bytes = text_at(a, row + a->offset, &length);
			put_csv(out, bytes, length);
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
table_put(const struct query_result *r, const struct table *t, uint64_t column, const char *cell,
	FILE *out)
{
	const unsigned int length = characters(cell);
	const unsigned int pad = t->width[column] > length ? t->width[column] - length : 0;
	const bool last = column + 1 == (uint64_t)r->schema->n_children;

	if (is_number(r->type[column]))
		fprintf(out, "%*s%s", (int)pad, "", cell);
	else
		fprintf(out, "%s%*s", cell, last ? 0 : (int)pad, "");
	fputs(last ? "\n" : "  ", out);
}

static int
table_head(const struct query_result *r, struct table *t, FILE *out)
{
	const uint64_t nb = r->schema->n_children;
	unsigned int width;
	uint64_t i, k;
	char *name;

	for (i = 0; i < nb; i++) {
		name = table_cell(
			r->schema->children[i]->name, strlen(r->schema->children[i]->name));
		if (name == NULL)
			return -ENOMEM;
		t->width[i] = characters(name);
		for (k = i; k < t->nb_cells; k += nb) {
			width = characters(t->cell[k]);
			if (width > t->width[i])
				t->width[i] = width;
		}
		table_put(r, t, i, name, out);
		free(name);
	}
	for (i = 0; i < nb; i++) {
		for (k = 0; k < t->width[i]; k++)
			putc('-', out);
		fputs(i + 1 == nb ? "\n" : "  ", out);
	}
	for (k = 0; k < t->nb_cells; k++) {
		table_put(r, t, k % nb, t->cell[k], out);
		free(t->cell[k]);
	}
	t->nb_cells = 0;
	t->printing = true;
	return 0;
}

static int
table_rows(const struct query_result *r, struct table *t, const struct ArrowArray *batch, FILE *out)
{
	const struct ArrowArray *a;
	const char *bytes;
	int64_t row, i;
	size_t length;
	char *cell;
	int ret;

	for (row = 0; row < batch->length; row++) {
		for (i = 0; i < batch->n_children; i++) {
			a = batch->children[i];
			if (is_valid(a, row + a->offset)) {
				bytes = text_at(a, row + a->offset, &length);
				cell = table_cell(bytes, length);
			} else {
				cell = strdup("NULL");
			}
			if (cell == NULL)
				return -ENOMEM;
			if (!t->printing) {
				t->cell[t->nb_cells++] = cell;
				continue;
			}
			table_put(r, t, i, cell, out);
			free(cell);
		}
		t->rows++;
		if (!t->printing && t->rows == TABLE_SAMPLE) {
			ret = table_head(r, t, out);
			if (ret < 0)
				return ret;
		}
	}
	return 0;
}

static int
table_open(const struct query_result *r, struct table *t)
{
	const uint64_t nb = r->schema->n_children;

	*t = (struct table){0};
	t->width = calloc(nb + 1, sizeof(*t->width));
	t->cell = calloc(TABLE_SAMPLE * nb + 1, sizeof(*t->cell));
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
table_end(const struct query_result *r, struct table *t, FILE *out)
{
	int ret = t->printing ? 0 : table_head(r, t, out);

	if (ret == 0)
		fprintf(out, "(%" PRIu64 " row%s)\n", t->rows, t->rows == 1 ? "" : "s");
	return ret;
}

/* Write the rows of EXPLAIN, whose texts have lines. @return 0; -ENOMEM */
static int
plan_rows(const struct ArrowArray *batch, FILE *out)
{
	const struct ArrowArray *a;
	char *text, *line, *rest;
	const char *bytes;
	int64_t row, i;
	size_t length;

	for (row = 0; row < batch->length; row++) {
		for (i = 0; i < batch->n_children; i++) {
			a = batch->children[i];
			bytes = text_at(a, row + a->offset, &length);
			text = strndup(bytes, length);
			if (text == NULL)
				return -ENOMEM;
			rest = text;
			while ((line = strsep(&rest, "\n")) != NULL)
				escaped_line(out, "%s%s", line, i == 0 ? ":" : "");
			free(text);
		}
	}
	return 0;
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

/* Write a value of a type of SQL_SIMPLE that has no children. @return 0; -ENOTSUP */
static int
json_plain(FILE *out, char letter, const struct ArrowArray *a, int64_t at)
{
	const void *data = a->buffers[1];
	const char *bytes;
	size_t length;

	switch (letter) {
	case 'b':
		fputs(((const uint8_t *)data)[at / 8] >> at % 8 & 1 ? "true" : "false", out);
		return 0;
	case 'c':
		fprintf(out, "%d", ((const int8_t *)data)[at]);
		return 0;
	case 's':
		fprintf(out, "%d", ((const int16_t *)data)[at]);
		return 0;
	case 'i':
		fprintf(out, "%" PRId32, ((const int32_t *)data)[at]);
		return 0;
	case 'l':
		fprintf(out, "%" PRId64, ((const int64_t *)data)[at]);
		return 0;
	case 'C':
		fprintf(out, "%u", ((const uint8_t *)data)[at]);
		return 0;
	case 'S':
		fprintf(out, "%u", ((const uint16_t *)data)[at]);
		return 0;
	case 'I':
		fprintf(out, "%" PRIu32, ((const uint32_t *)data)[at]);
		return 0;
	case 'L':
		fprintf(out, "%" PRIu64, ((const uint64_t *)data)[at]);
		return 0;
	case 'f':
		json_float(out, ((const float *)data)[at], true);
		return 0;
	case 'g':
		json_float(out, ((const double *)data)[at], false);
		return 0;
	case 'z':
		bytes = text_at(a, at, &length);
		json_blob(out, bytes, length);
		return 0;
	case 'u': /* SQL_SIMPLE has converted all others to text */
		bytes = text_at(a, at, &length);
		json_text(out, bytes, length);
		return 0;
	default:
		return -ENOTSUP;
	}
}

static int json_value(
	FILE *out, const struct ArrowSchema *f, const struct ArrowArray *a, int64_t row);

static int
json_items(FILE *out, const struct ArrowSchema *f, const struct ArrowArray *a, int64_t first,
	int64_t length)
{
	int64_t i;
	int ret = 0;

	putc('[', out);
	for (i = 0; i < length && ret == 0; i++) {
		if (i > 0)
			putc(',', out);
		ret = json_value(out, f->children[0], a->children[0], first + i);
	}
	putc(']', out);
	return ret;
}

static int
json_struct(FILE *out, const struct ArrowSchema *f, const struct ArrowArray *a, int64_t at)
{
	int64_t i;
	int ret = 0;

	putc('{', out);
	for (i = 0; i < f->n_children && ret == 0; i++) {
		if (i > 0)
			putc(',', out);
		json_text(out, f->children[i]->name, strlen(f->children[i]->name));
		putc(':', out);
		ret = json_value(out, f->children[i], a->children[i], at);
	}
	putc('}', out);
	return ret;
}

static int
json_value(FILE *out, const struct ArrowSchema *f, const struct ArrowArray *a, int64_t row)
{
	const int64_t at = row + a->offset;
	const int32_t *offset;
	int64_t length;

	if (!is_valid(a, at)) {
		fputs("null", out);
		return 0;
	}
	if (strcmp(f->format, "+l") == 0) {
		offset = a->buffers[1];
		return json_items(out, f, a, offset[at], offset[at + 1] - offset[at]);
	}
	if (strncmp(f->format, "+w:", 3) == 0) {
		length = atoll(f->format + 3);
		return json_items(out, f, a, at * length, length);
	}
	if (strcmp(f->format, "+s") == 0)
		return json_struct(out, f, a, at);
	return json_plain(out, f->format[1] == '\0' ? f->format[0] : '\0', a, at);
}

static int
json_rows(const struct query_result *r, const struct ArrowArray *batch, FILE *out)
{
	const struct ArrowSchema *f;
	const struct ArrowArray *a;
	const char *bytes;
	int64_t row, i;
	size_t length;
	int ret = 0;

	for (row = 0; row < batch->length && ret == 0; row++) {
		putc('{', out);
		for (i = 0; i < batch->n_children && ret == 0; i++) {
			f = r->schema->children[i];
			a = batch->children[i];
			if (i > 0)
				putc(',', out);
			json_text(out, f->name, strlen(f->name));
			putc(':', out);
			/* a number that came as text, such as the sum of integers */
			if (is_wide_number(r->type[i]) && strcmp(f->format, "u") == 0 &&
				is_valid(a, row + a->offset)) {
				bytes = text_at(a, row + a->offset, &length);
				fwrite(bytes, 1, length, out);
			} else {
				ret = json_value(out, f, a, row);
			}
		}
		fputs("}\n", out);
	}
	return ret;
}

/* ------------------------------------------------------------------ all formats */

/* Write a batch. @return 0; -errno */
static int
put_batch(const struct query_result *r, enum query_format format, struct table *table,
	struct ipc_stream *arrow, const struct ArrowArray *batch, FILE *out)
{
	int ret;

	switch (format) {
	case QUERY_TABLE:
		return r->plan ? plan_rows(batch, out) : table_rows(r, table, batch, out);
	case QUERY_CSV:
		csv_rows(batch, out);
		return 0;
	case QUERY_JSON:
		return json_rows(r, batch, out);
	case QUERY_ARROW:
	case QUERY_FORMATS:
		break;
	}
	ret = ipc_stream_batch(arrow, batch);
	/* a reader has each batch as soon as it is complete */
	return ret == 0 && fflush(out) != 0 ? -errno : ret;
}

static int
begin(const struct query_result *r, enum query_format format, struct table *table,
	struct ipc_stream *arrow, FILE *out)
{
	int64_t i;
	int ret;

	if (format == QUERY_ARROW) {
		ret = ipc_stream_begin(arrow, out, r->schema);
		return ret == 0 && fflush(out) != 0 ? -errno : ret;
	}
	for (i = 0; format != QUERY_JSON && i < r->schema->n_children; i++) {
		if (strcmp(r->schema->children[i]->format, "u") != 0)
			return -ENOTSUP;
	}
	if (format == QUERY_TABLE)
		return table_open(r, table);
	if (format == QUERY_CSV)
		csv_names(r, out);
	return 0;
}

int
query_output(struct query_result *r, enum query_format format, FILE *out)
{
	struct ArrowArray batch = {0};
	struct ipc_stream arrow;
	struct table table = {0};
	int ret;

	ret = begin(r, format, &table, &arrow, out);
	while (ret == 0) {
		ret = -r->stream->get_next(r->stream, &batch);
		if (ret < 0 && r->stream->get_last_error(r->stream) != NULL)
			snprintf(r->error, sizeof(r->error), "%s",
				r->stream->get_last_error(r->stream));
		if (ret < 0 || batch.release == NULL)
			break;
		errno = 0;
		ret = put_batch(r, format, &table, &arrow, &batch, out);
		if (ferror(out))
			ret = errno != 0 ? -errno : -EIO;
		batch.release(&batch);
	}
	if (ret == 0 && format == QUERY_TABLE && !r->plan)
		ret = table_end(r, &table, out);
	if (ret == 0 && format == QUERY_ARROW)
		ret = ipc_stream_end(&arrow);
	if (ret == -ENOTSUP && r->error[0] == '\0')
		snprintf(r->error, sizeof(r->error),
			"a column has a type that is not supported in this format: cast it");
	if (ret < 0 && r->error[0] == '\0')
		snprintf(r->error, sizeof(r->error), "cannot write the result: %s", strerror(-ret));
	table_close(&table);
	return ret;
}
