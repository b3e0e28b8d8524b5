/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The driver of ADBC, loaded as a driver manager does. Its results are compared with those of
 * DuckDB's own driver for the same statements, and with braggline-scan --format json. Programs that
 * fail in many ways take the place of braggline-scan.
 *
 * Environment: ADBC_DRIVER, BRAGGLINE_SCAN, ARROW_WRITE: paths; BRAGGLINE_DUCKDB: of libduckdb.so.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "adbc/adbc_abi.h"
#include "adbc/pipe.h"
#include "sql/ipc_type.h"

#define ENDLESS \
	"SELECT count(*) FROM range(1000000000) a, range(1000000000) b WHERE a.range * b.range = 7"

/* A driver with an open connection. */
struct client {
	struct AdbcDriver driver;
	struct AdbcDatabase database;
	struct AdbcConnection connection;
};

static struct client ours, theirs;
static char dir[256], runs[300];

/* ------------------------------------------------------------------ clients */

static void
check(AdbcStatusCode status, struct AdbcError *error)
{
	if (status != ADBC_STATUS_OK)
		print_error("status %u: %s\n", status,
			error->message != NULL ? error->message : "no message");
	assert_int_equal(status, ADBC_STATUS_OK);
}

static void
load(struct client *c, const char *path, const char *entry)
{
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	struct AdbcError error = {0};
	AdbcDriverInitFunc init;

	if (library == NULL)
		print_error("%s\n", dlerror());
	assert_non_null(library);
	*(void **)&init = dlsym(library, entry);
	assert_non_null(init);
	check(init(ADBC_VERSION_1_1_0, &c->driver, &error), &error);
}

static void
open_database(struct client *c, const char *uri)
{
	struct AdbcError error = {0};

	check(c->driver.DatabaseNew(&c->database, &error), &error);
	if (uri != NULL) {
		check(c->driver.DatabaseSetOption(&c->database, "uri", uri, &error), &error);
		check(c->driver.DatabaseSetOption(&c->database, "adbc.braggline.program",
			      getenv("BRAGGLINE_SCAN"), &error),
			&error);
	}
	check(c->driver.DatabaseInit(&c->database, &error), &error);
	check(c->driver.ConnectionNew(&c->connection, &error), &error);
	check(c->driver.ConnectionInit(&c->connection, &c->database, &error), &error);
}

static void
close_database(struct client *c)
{
	struct AdbcError error = {0};

	check(c->driver.ConnectionRelease(&c->connection, &error), &error);
	check(c->driver.DatabaseRelease(&c->database, &error), &error);
}

static void
new_statement(struct client *c, struct AdbcStatement *s, const char *sql)
{
	struct AdbcError error = {0};

	*s = (struct AdbcStatement){0};
	check(c->driver.StatementNew(&c->connection, s, &error), &error);
	check(c->driver.StatementSetSqlQuery(s, sql, &error), &error);
}

/* Make a script that takes the place of braggline-scan. @param path  out */
static void
write_program(char *path, size_t size, const char *script)
{
	FILE *out;

	snprintf(path, size, "%s/program", dir);
	unlink(path);
	out = fopen(path, "w");
	assert_non_null(out);
	fprintf(out, "#!/bin/sh\n%s\n", script);
	assert_int_equal(fclose(out), 0);
	assert_int_equal(chmod(path, 0700), 0);
}

/* Make such a script, and use it for a statement. */
static void
set_program(struct AdbcStatement *s, const char *script)
{
	struct AdbcError error = {0};
	char path[300];

	write_program(path, sizeof(path), script);
	check(ours.driver.StatementSetOption(s, "adbc.braggline.program", path, &error), &error);
}

static void
release_statement(struct client *c, struct AdbcStatement *s)
{
	struct AdbcError error = {0};

	check(c->driver.StatementRelease(s, &error), &error);
}

/* Begin a query of ours: the stream does not need the statement. */
static void
run(const char *sql, struct ArrowArrayStream *stream)
{
	struct AdbcError error = {0};
	struct AdbcStatement s;
	int64_t rows;

	new_statement(&ours, &s, sql);
	check(ours.driver.StatementExecuteQuery(&s, stream, &rows, &error), &error);
	release_statement(&ours, &s);
	assert_int_equal(rows, -1);
}

/* Expect an error of ExecuteQuery. */
static void
expect_error(struct AdbcStatement *s, AdbcStatusCode status, const char *sqlstate, int32_t vendor,
	const char *said)
{
	struct AdbcError error = {0};
	struct ArrowArrayStream stream;
	const AdbcStatusCode got = ours.driver.StatementExecuteQuery(s, &stream, NULL, &error);

	if (got != status || error.message == NULL || strstr(error.message, said) == NULL ||
		memcmp(error.sqlstate, sqlstate, 5) != 0 || error.vendor_code != vendor)
		print_error("status %u, SQLSTATE %.5s, vendor code %d: %s\n", got, error.sqlstate,
			error.vendor_code, error.message);
	assert_int_equal(got, status);
	assert_memory_equal(error.sqlstate, sqlstate, 5);
	assert_int_equal(error.vendor_code, vendor);
	assert_non_null(strstr(error.message, said));
	error.release(&error);
}

/* ------------------------------------------------------------------ values as text */

static bool
is_null(const struct ArrowArray *a, int64_t row)
{
	const uint8_t *validity = a->n_buffers > 0 ? a->buffers[0] : NULL;

	row += a->offset;
	return a->null_count != 0 && validity != NULL && !(validity[row / 8] >> row % 8 & 1);
}

static void
print_text(FILE *out, const char *bytes, int64_t length)
{
	int64_t i;

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
print_hex(FILE *out, const uint8_t *bytes, int64_t length)
{
	int64_t i;

	putc('"', out);
	for (i = 0; i < length; i++)
		fprintf(out, "%02x", bytes[i]);
	putc('"', out);
}

static void
print_float(FILE *out, double value, bool single)
{
	char text[40];
	int digits;

	if (!isfinite(value)) {
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

static int64_t
get_int(const void *values, uint32_t width, bool is_signed, int64_t at)
{
	switch (width) {
	case 1:
		return is_signed ? ((const int8_t *)values)[at] : ((const uint8_t *)values)[at];
	case 2:
		return is_signed ? ((const int16_t *)values)[at] : ((const uint16_t *)values)[at];
	case 4:
		return is_signed ? ((const int32_t *)values)[at] : ((const uint32_t *)values)[at];
	default:
		return ((const int64_t *)values)[at];
	}
}

static void print_value(
	FILE *out, const struct ArrowSchema *f, const struct ArrowArray *a, int64_t row);

static void
print_items(FILE *out, const struct ArrowSchema *f, const struct ArrowArray *a, int64_t first,
	int64_t end)
{
	int64_t i;

	putc('[', out);
	for (i = first; i < end; i++) {
		if (i > first)
			putc(',', out);
		print_value(out, f->children[0], a->children[0], i);
	}
	putc(']', out);
}

static void
print_struct(FILE *out, const struct ArrowSchema *f, const struct ArrowArray *a, int64_t row)
{
	int64_t i;

	putc('{', out);
	for (i = 0; i < f->n_children; i++) {
		if (i > 0)
			putc(',', out);
		print_text(out, f->children[i]->name, (int64_t)strlen(f->children[i]->name));
		putc(':', out);
		print_value(out, f->children[i], a->children[i], row + a->offset);
	}
	putc('}', out);
}

static void
print_fixed(FILE *out, const struct ipc_type *t, const void *values, int64_t at)
{
	if (t->id == ARROW_FB_INT && t->width == 8 && !t->arg[1])
		fprintf(out, "%" PRIu64, ((const uint64_t *)values)[at]);
	else if (t->id == ARROW_FB_INT)
		fprintf(out, "%" PRId64, get_int(values, t->width, t->arg[1], at));
	else if (t->id == ARROW_FB_FLOAT && t->width == 4)
		print_float(out, ((const float *)values)[at], true);
	else if (t->id == ARROW_FB_FLOAT && t->width == 8)
		print_float(out, ((const double *)values)[at], false);
	else
		print_hex(out, (const uint8_t *)values + at * t->width, t->width);
}

/* Print a value as --format json does; those of other types as their bytes. */
static void
print_value(FILE *out, const struct ArrowSchema *f, const struct ArrowArray *a, int64_t row)
{
	const int64_t at = row + a->offset;
	struct ipc_type t;
	int64_t first, end;
	int8_t type;

	assert_int_equal(ipc_type_read(f->format, &t), 0);
	if (t.layout == LAYOUT_NONE || (t.layout != LAYOUT_UNION && is_null(a, row))) {
		fputs("null", out);
		return;
	}
	if (f->dictionary != NULL) {
		print_value(out, f->dictionary, a->dictionary,
			get_int(a->buffers[1], t.width, t.arg[1], at));
		return;
	}
	switch (t.layout) {
	case LAYOUT_BITS:
		fputs(((const uint8_t *)a->buffers[1])[at / 8] >> at % 8 & 1 ? "true" : "false",
			out);
		break;
	case LAYOUT_FIXED:
		print_fixed(out, &t, a->buffers[1], at);
		break;
	case LAYOUT_TEXT:
	case LAYOUT_LIST:
		first = get_int(a->buffers[1], t.width, true, at);
		end = get_int(a->buffers[1], t.width, true, at + 1);
		if (t.layout == LAYOUT_LIST)
			print_items(out, f, a, first, end);
		else if (t.id == FB_UTF8 || t.id == FB_LARGE_UTF8)
			print_text(out, (const char *)a->buffers[2] + first, end - first);
		else
			print_hex(out, (const uint8_t *)a->buffers[2] + first, end - first);
		break;
	case LAYOUT_CHILD:
		if (t.id == FB_STRUCT)
			print_struct(out, f, a, row);
		else
			print_items(out, f, a, at * t.arg[0], (at + 1) * t.arg[0]);
		break;
	case LAYOUT_UNION:
		type = ((const int8_t *)a->buffers[0])[at];
		fprintf(out, "%d:", type);
		print_value(out, f->children[type], a->children[type],
			t.width > 0 ? ((const int32_t *)a->buffers[1])[at] : at);
		break;
	case LAYOUT_NONE:
		break;
	}
}

/* Print names, types and flags of a schema. IPC has no flags of the values of a dictionary. */
static void
print_schema(FILE *out, const struct ArrowSchema *f, bool is_dictionary)
{
	size_t length;
	int64_t i;

	/* decimals of 128 bits have two formats */
	length = strlen(f->format);
	if (f->format[0] == 'd' && length > 4 && strcmp(f->format + length - 4, ",128") == 0)
		length -= 4;
	fprintf(out, "%.*s %s %d", (int)length, f->format, f->name,
		is_dictionary ? 0 : (int)f->flags);
	if (f->dictionary != NULL) {
		fputs(" dictionary ", out);
		print_schema(out, f->dictionary, true);
	}
	putc('(', out);
	for (i = 0; i < f->n_children; i++) {
		if (i > 0)
			putc(',', out);
		print_schema(out, f->children[i], false);
	}
	putc(')', out);
}

/* Read a stream to its end and release it. @return lines of JSON; the caller frees them */
static char *
read_all(struct ArrowArrayStream *stream, bool with_schema, int *error)
{
	struct ArrowSchema schema;
	struct ArrowArray array;
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);
	int64_t row;

	assert_non_null(out);
	assert_int_equal(stream->get_schema(stream, &schema), 0);
	if (with_schema) {
		/* names of the root differ */
		for (row = 0; row < schema.n_children; row++) {
			print_schema(out, schema.children[row], false);
			putc('\n', out);
		}
	}
	for (;;) {
		*error = stream->get_next(stream, &array);
		if (*error != 0 || array.release == NULL)
			break;
		for (row = 0; row < array.length; row++) {
			print_struct(out, &schema, &array, row);
			putc('\n', out);
		}
		array.release(&array);
	}
	if (*error == 0)
		stream->release(stream);
	schema.release(&schema);
	assert_int_equal(fclose(out), 0);
	return text;
}

static char *
query(struct client *c, const char *sql, bool with_schema)
{
	struct AdbcError problem = {0};
	struct ArrowArrayStream stream;
	struct AdbcStatement s;
	char *text;
	int error;

	new_statement(c, &s, sql);
	check(c->driver.StatementExecuteQuery(&s, &stream, NULL, &problem), &problem);
	text = read_all(&stream, with_schema, &error);
	if (error != 0)
		print_error("%s: %s\n", sql, stream.get_last_error(&stream));
	assert_int_equal(error, 0);
	release_statement(c, &s);
	return text;
}

/* Show where two texts differ. */
static void
assert_same(const char *sql, const char *got, const char *expected)
{
	size_t i = 0;

	while (got[i] != '\0' && got[i] == expected[i])
		i++;
	if (got[i] != expected[i])
		print_error("%.100s\nat byte %zu: got ...%.200s\nexpected ...%.200s\n", sql, i,
			got + (i > 40 ? i - 40 : 0), expected + (i > 40 ? i - 40 : 0));
	assert_int_equal(got[i], expected[i]);
}

/* ------------------------------------------------------------------ results */

/* All types that plain SQL makes, with NULLs, over several batches. */
static const char *const types[] = {
	"i % 3 = 0",
	"(i % 256 - 128)::TINYINT",
	"(i % 256)::UTINYINT",
	"(i * 13 - 32768)::SMALLINT",
	"(i * 13)::USMALLINT",
	"(i * -400000)::INTEGER",
	"(i * 800000)::UINTEGER",
	"i * -1000000000000001",
	"(18446744073709551615 - i)::UBIGINT",
	"i::HUGEINT * -100000000000000000000000000",
	"(i / 100)::DECIMAL(4, 2)",
	"(i::HUGEINT * 10000000000000000000)::DECIMAL(38, 5)",
	"CASE i % 5 WHEN 0 THEN 'nan'::FLOAT WHEN 1 THEN 'inf'::FLOAT ELSE (i / 7)::FLOAT END",
	"i / 7 * 1e300",
	"repeat('e', (i % 5)::INT) || i",
	"''",
	"('\\x00\\xFF' || i::VARCHAR)::BLOB",
	"(['one', 'two', 'three'])[i % 3 + 1]::ENUM('one', 'two', 'three')",
	"[(['one', 'two'])[i % 2 + 1]::ENUM('one', 'two')]",
	"('00000000-0000-0000-0000-' || lpad(i::VARCHAR, 12, '0'))::UUID",
	"NULL",
	"range(i % 5)",
	"[[i, NULL], [], NULL]",
	"list_transform(range(i % 4), lambda v: CASE WHEN v = 2 THEN NULL ELSE 'x' || v END)",
	"{'x': i, 'y': {'z': [i / 2]}, 'n': CASE WHEN i % 2 = 0 THEN 'even' END}",
	"'2020-01-01'::DATE + i::INTEGER",
	"'00:00:00.000001'::TIME + to_seconds(i)",
	"'1969-12-31 23:59:59.999999'::TIMESTAMP + to_microseconds(i)",
	"make_timestamp_ns(1700000000000000001 + i)",
	"make_timestamp_ms(1700000000001 + i)::TIMESTAMP_MS",
	"'2020-01-01'::TIMESTAMP_S + to_seconds(i)",
	"'2020-01-01 00:00:00+00'::TIMESTAMPTZ + to_seconds(i)",
	"to_months(i) + to_days(3) + to_microseconds(i)",
	"map(['a', 'b'], [i, NULL])",
	"CASE WHEN i % 2 = 0 THEN union_value(num := i)::UNION(num BIGINT, str VARCHAR) ELSE "
	"union_value(str := 's')::UNION(num BIGINT, str VARCHAR) END",
};

static void
all_types_are_those_of_duckdb(void **state)
{
	char *sql = NULL, *got, *expected;
	size_t size, i;
	FILE *out = open_memstream(&sql, &size);

	fputs("SELECT i", out);
	for (i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		fprintf(out, ", CASE WHEN i %% 7 <> 6 THEN (%s) END AS v%zu", types[i], i);
	/* CASE has no arrays */
	fputs(", (CASE WHEN i % 7 <> 6 THEN [i, i + 1, NULL] END)::INTEGER[3] AS a FROM "
	      "range(2500) "
	      "t(i)",
		out);
	assert_int_equal(fclose(out), 0);
	got = query(&ours, sql, true);
	expected = query(&theirs, sql, true);
	assert_same(sql, got, expected);
	free(got);
	free(expected);
	free(sql);
}

static void
statements_are_those_of_duckdb(void **state)
{
	static const char *const statements[] = {
		"SELECT 42 AS answer",
		"SELECT 1 AS a WHERE false",
		"SELECT [] AS e, NULL AS n WHERE false",
		"SELECT 1 AS a, 2 AS a",
		"VALUES (1, 'a'), (2, NULL) -- comment",
		"SELECT sum(i), avg(i), count(*) FROM range(10) t(i);",
		"SELECT i % 3 AS k, list(i ORDER BY i) AS l FROM range(20) t(i) GROUP BY k "
		"ORDER BY k",
		"SELECT repeat('x', 100000) AS long FROM range(40)",
		"WITH a AS (SELECT 1 AS x) SELECT * FROM a UNION ALL FROM a",
	};
	char *got, *expected;
	size_t i;

	for (i = 0; i < sizeof(statements) / sizeof(statements[0]); i++) {
		got = query(&ours, statements[i], true);
		expected = query(&theirs, statements[i], true);
		assert_same(statements[i], got, expected);
		free(got);
		free(expected);
	}
}

/* Read the output of a command. */
static char *
command_output(const char *format, ...)
{
	char command[1024], *text = NULL, *more;
	size_t size = 0, n;
	va_list args;
	FILE *in;

	va_start(args, format);
	vsnprintf(command, sizeof(command), format, args);
	va_end(args);
	in = popen(command, "r");
	assert_non_null(in);
	do {
		more = realloc(text, size + 65537);
		assert_non_null(more);
		text = more;
		n = fread(text + size, 1, 65536, in);
		size += n;
	} while (n > 0);
	text[size] = '\0';
	assert_int_equal(pclose(in), 0);
	return text;
}

static void
tables_are_those_of_json(void **state)
{
	static const char *const statements[] = {
		"SELECT * EXCLUDE (receive_time) FROM lyso_7.frames",
		"SELECT frame, kind, row_ptr, col, value, raw, missing FROM lyso_7.images",
		"SELECT run, count(*) AS n, max(frame) AS last FROM frames GROUP BY run ORDER BY "
		"run",
		"SELECT frame, len(col) AS pixels FROM other.images JOIN other.frames USING "
		"(frame) "
		"WHERE frame BETWEEN 10 AND 20",
		"FROM runs",
	};
	char *got, *expected;
	size_t i;

	for (i = 0; i < sizeof(statements) / sizeof(statements[0]); i++) {
		got = query(&ours, statements[i], false);
		expected = command_output("'%s' %s --format json --sql \"%s\"",
			getenv("BRAGGLINE_SCAN"), runs, statements[i]);
		assert_same(statements[i], got, expected);
		assert_true(strlen(got) > 10);
		free(got);
		free(expected);
	}
}

static void
arrays_outlive_everything(void **state)
{
	struct AdbcError error = {0};
	struct ArrowArrayStream stream;
	struct ArrowArray first, second, column;
	struct AdbcStatement s;
	struct client c = {.driver = ours.driver};

	open_database(&c, runs);
	new_statement(&c, &s, "SELECT i, 'text' || i AS t FROM range(5000) t(i)");
	check(c.driver.StatementExecuteQuery(&s, &stream, NULL, &error), &error);
	close_database(&c);
	assert_int_equal(stream.get_next(&stream, &first), 0);
	release_statement(&ours, &s);
	assert_int_equal(stream.get_next(&stream, &second), 0);
	stream.release(&stream);
	/* a child that is moved out of its parent */
	column = *first.children[1];
	first.children[1]->release = NULL;
	first.release(&first);
	assert_memory_equal(column.buffers[2], "text0text1text2", 15);
	column.release(&column);
	assert_int_equal(((const int64_t *)second.children[0]->buffers[1])[1], 2049);
	assert_int_equal((uintptr_t)second.children[0]->buffers[1] % 64, 0);
	second.release(&second);
}

static void
two_statements_at_once(void **state)
{
	struct ArrowArrayStream a, b;
	struct ArrowArray array;
	int64_t rows[2] = {0};
	bool more = true;

	run("SELECT i FROM range(20000) t(i)", &a);
	run("SELECT i FROM range(30000) t(i)", &b);
	while (more) {
		more = false;
		assert_int_equal(a.get_next(&a, &array), 0);
		if (array.release != NULL) {
			rows[0] += array.length;
			array.release(&array);
			more = true;
		}
		assert_int_equal(b.get_next(&b, &array), 0);
		if (array.release != NULL) {
			rows[1] += array.length;
			array.release(&array);
			more = true;
		}
	}
	assert_int_equal(rows[0], 20000);
	assert_int_equal(rows[1], 30000);
	a.release(&a);
	b.release(&b);
	/* a stream that is not read ends its process */
	run("SELECT * FROM range(1000000000)", &a);
	a.release(&a);
}

static void
schema_without_rows(void **state)
{
	struct AdbcError error = {0};
	struct ArrowSchema schema;
	struct AdbcStatement s;

	new_statement(&ours, &s, "SELECT i, [i] AS l FROM range(1000000000) t(i)");
	check(ours.driver.StatementPrepare(&s, &error), &error);
	check(ours.driver.StatementExecuteSchema(&s, &schema, &error), &error);
	assert_int_equal(schema.n_children, 2);
	assert_string_equal(schema.children[0]->format, "l");
	assert_string_equal(schema.children[1]->name, "l");
	schema.release(&schema);
	/* no result is wanted */
	check(ours.driver.StatementSetSqlQuery(&s, "SELECT i FROM range(100000) t(i)", &error),
		&error);
	check(ours.driver.StatementExecuteQuery(&s, NULL, NULL, &error), &error);
	release_statement(&ours, &s);
	check(ours.driver.ConnectionGetTableSchema(
		      &ours.connection, NULL, "lyso_7", "frames", &schema, &error),
		&error);
	assert_string_equal(schema.children[0]->name, "frame");
	assert_string_equal(schema.children[0]->format, "L");
	schema.release(&schema);
	assert_int_equal(ours.driver.ConnectionGetTableSchema(
				 &ours.connection, NULL, "nobody", "frames", &schema, &error),
		ADBC_STATUS_NOT_FOUND);
	error.release(&error);
}

/* ------------------------------------------------------------------ metadata */

static char *
objects(int depth, const char *schema, const char *table, const char **kinds, const char *column)
{
	struct AdbcError error = {0};
	struct ArrowArrayStream stream;
	char *text;
	int ret;

	check(ours.driver.ConnectionGetObjects(
		      &ours.connection, depth, NULL, schema, table, kinds, column, &stream, &error),
		&error);
	text = read_all(&stream, true, &ret);
	assert_int_equal(ret, 0);
	return text;
}

static void
metadata(void **state)
{
	static const char *no_tables[] = {"system", NULL};
	const uint32_t codes[] = {100, 103};
	struct AdbcError error = {0};
	struct ArrowArrayStream stream;
	char *text, *value;
	int ret;

	check(ours.driver.ConnectionGetInfo(&ours.connection, NULL, 0, &stream, &error), &error);
	text = read_all(&stream, true, &ret);
	assert_non_null(
		strstr(text, "I info_name 0()\n+ud:0,1,2,3,4,5 info_value 2(u string_value"));
	assert_non_null(strstr(text, "{\"info_name\":0,\"info_value\":0:\"braggline\"}"));
	assert_non_null(strstr(text, "{\"info_name\":3,\"info_value\":1:true}"));
	assert_non_null(strstr(text, "{\"info_name\":4,\"info_value\":1:false}"));
	free(text);
	check(ours.driver.ConnectionGetInfo(&ours.connection, codes, 2, &stream, &error), &error);
	text = read_all(&stream, false, &ret);
	assert_string_equal(text,
		"{\"info_name\":100,\"info_value\":0:\"braggline\"}\n"
		"{\"info_name\":103,\"info_value\":2:1001000}\n");
	free(text);
	check(ours.driver.ConnectionGetTableTypes(&ours.connection, &stream, &error), &error);
	text = read_all(&stream, false, &ret);
	assert_string_equal(text, "{\"table_type\":\"table\"}\n");
	free(text);

	text = objects(ADBC_OBJECT_DEPTH_CATALOGS, NULL, NULL, NULL, NULL);
	assert_non_null(strstr(text, "{\"catalog_name\":\"memory\",\"catalog_db_schemas\":null}"));
	free(text);
	text = objects(ADBC_OBJECT_DEPTH_DB_SCHEMAS, NULL, NULL, NULL, NULL);
	assert_non_null(strstr(text,
		"[{\"db_schema_name\":\"lyso_7\",\"db_schema_tables\":null},"
		"{\"db_schema_name\":\"other\",\"db_schema_tables\":null}]"));
	free(text);
	text = objects(ADBC_OBJECT_DEPTH_TABLES, "oth%", NULL, NULL, NULL);
	assert_non_null(strstr(text,
		"[{\"db_schema_name\":\"other\",\"db_schema_tables\":[{\"table_name\":\"frames\","
		"\"table_type\":\"table\",\"table_columns\":null,\"table_constraints\":null},"));
	free(text);
	text = objects(ADBC_OBJECT_DEPTH_TABLES, "other", NULL, no_tables, NULL);
	assert_non_null(strstr(text, "{\"db_schema_name\":\"other\",\"db_schema_tables\":[]}"));
	free(text);
	text = objects(ADBC_OBJECT_DEPTH_ALL, "lyso%", "images", NULL, "val%");
	/* the types that the specification has */
	assert_non_null(strstr(text, "s xdbc_data_type"));
	assert_non_null(strstr(text, "i ordinal_position"));
	assert_non_null(strstr(text, "b xdbc_is_generatedcolumn"));
	value = strstr(text, "{\"column_name\":");
	assert_non_null(value);
	assert_non_null(strstr(value, "{\"column_name\":\"value\",\"ordinal_position\":"));
	assert_non_null(strstr(value, "\"xdbc_type_name\":\"FLOAT[]\""));
	assert_null(strstr(value + 1, "{\"column_name\":"));
	assert_null(strstr(text, "\"other\""));
	free(text);
	/* a pattern that tries to be SQL */
	text = objects(ADBC_OBJECT_DEPTH_ALL, "x' OR ''='", "\" --", NULL, "'");
	assert_non_null(strstr(text, "\"catalog_db_schemas\":[]"));
	free(text);
}

static void
options(void **state)
{
	struct client c = {.driver = ours.driver};
	struct AdbcError error = {.vendor_code = ADBC_ERROR_VENDOR_CODE_PRIVATE_DATA};
	struct AdbcStatement s;
	char text[64], uri[300];
	size_t length = 3;
	int64_t number;
	double seconds;

	new_statement(&ours, &s, "SELECT 1 AS n");
	check(ours.driver.StatementSetOptionInt(&s, "adbc.braggline.threads", 3, &error), &error);
	check(ours.driver.StatementGetOptionInt(&s, "adbc.braggline.threads", &number, &error),
		&error);
	assert_int_equal(number, 3);
	check(ours.driver.StatementSetOptionDouble(
		      &s, "adbc.braggline.deadline_seconds", 2.5, &error),
		&error);
	check(ours.driver.StatementGetOptionDouble(
		      &s, "adbc.braggline.deadline_seconds", &seconds, &error),
		&error);
	assert_true(seconds == 2.5);
	check(ours.driver.StatementGetOption(&s, "adbc.braggline.threads", text, &length, &error),
		&error);
	assert_int_equal(length, 2);
	assert_string_equal(text, "3");
	length = 2;
	check(ours.driver.StatementGetOption(&s, "adbc.braggline.program", text, &length, &error),
		&error);
	assert_int_equal(length, strlen(getenv("BRAGGLINE_SCAN")) + 1);
	assert_int_equal(
		ours.driver.StatementSetOption(&s, "adbc.braggline.threads", "many", &error),
		ADBC_STATUS_INVALID_ARGUMENT);
	assert_non_null(strstr(error.message, "expected 1 to 9999, found 'many'"));
	assert_int_equal(ours.driver.StatementSetOption(&s, "nothing", "1", &error),
		ADBC_STATUS_NOT_IMPLEMENTED);
	assert_int_equal(ours.driver.StatementGetOption(&s, "nothing", text, &length, &error),
		ADBC_STATUS_NOT_FOUND);
	error.release(&error);
	length = sizeof(text);
	check(ours.driver.ConnectionGetOption(
		      &ours.connection, "adbc.connection.catalog", text, &length, &error),
		&error);
	assert_string_equal(text, "memory");
	/* options of a connection that come before its start are not those of the database */
	check(c.driver.ConnectionNew(&c.connection, &error), &error);
	check(c.driver.ConnectionSetOption(&c.connection, "adbc.braggline.threads", "7", &error),
		&error);
	check(c.driver.ConnectionInit(&c.connection, &ours.database, &error), &error);
	check(c.driver.ConnectionGetOptionInt(
		      &c.connection, "adbc.braggline.threads", &number, &error),
		&error);
	assert_int_equal(number, 7);
	length = sizeof(uri);
	check(c.driver.ConnectionGetOption(&c.connection, "uri", uri, &length, &error), &error);
	assert_string_equal(uri, runs);
	check(c.driver.ConnectionRelease(&c.connection, &error), &error);
	assert_int_equal(ours.driver.ConnectionSetOption(
				 &ours.connection, "adbc.connection.autocommit", "false", &error),
		ADBC_STATUS_NOT_IMPLEMENTED);
	error.release(&error);
	release_statement(&ours, &s);
	/* they reach the engine */
	new_statement(&ours, &s, "SELECT count(*) FROM range(10)");
	check(ours.driver.StatementSetOption(&s, "adbc.braggline.memory", "much", &error), &error);
	expect_error(&s, ADBC_STATUS_INVALID_ARGUMENT, "HY024", 2,
		"--memory: expected a size such as 8GB, not much");
	check(ours.driver.StatementSetOption(&s, "adbc.braggline.memory", "1GB", &error), &error);
	check(ours.driver.StatementSetOption(&s, "adbc.braggline.unordered", "true", &error),
		&error);
	check(ours.driver.StatementSetOption(&s, "adbc.braggline.threads", "2", &error), &error);
	check(ours.driver.StatementExecuteQuery(&s, NULL, NULL, &error), &error);
	release_statement(&ours, &s);
}

/* A value is not rounded: 0 seconds would be no limit. */
static void
options_that_are_no_number(void **state)
{
	static const struct {
		const char *option;
		const char *value;
		AdbcStatusCode as_int;
		AdbcStatusCode as_double;
	} cases[] = {
		{"adbc.braggline.deadline_seconds", "0.5", ADBC_STATUS_INVALID_ARGUMENT,
			ADBC_STATUS_OK},
		{"adbc.braggline.deadline_seconds", "3", ADBC_STATUS_OK, ADBC_STATUS_OK},
		{"adbc.braggline.key", "9223372036854775807", ADBC_STATUS_OK, ADBC_STATUS_OK},
		{"adbc.braggline.key", "9223372036854775808", ADBC_STATUS_INVALID_ARGUMENT,
			ADBC_STATUS_OK},
		{"adbc.braggline.key", "1e300", ADBC_STATUS_INVALID_ARGUMENT, ADBC_STATUS_OK},
		{"adbc.braggline.key", "3 keys", ADBC_STATUS_INVALID_ARGUMENT,
			ADBC_STATUS_INVALID_ARGUMENT},
		{"adbc.braggline.key", NULL, ADBC_STATUS_NOT_FOUND, ADBC_STATUS_NOT_FOUND},
	};
	struct AdbcError error = {0};
	struct AdbcStatement s;
	int64_t number;
	double real;
	size_t i;

	new_statement(&ours, &s, "SELECT 1");
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		check(ours.driver.StatementSetOption(&s, cases[i].option, cases[i].value, &error),
			&error);
		number = -1;
		assert_int_equal(
			ours.driver.StatementGetOptionInt(&s, cases[i].option, &number, &error),
			cases[i].as_int);
		if (cases[i].as_int == ADBC_STATUS_OK)
			assert_int_equal(number, strtoll(cases[i].value, NULL, 10));
		else
			error.release(&error);
		assert_int_equal(
			ours.driver.StatementGetOptionDouble(&s, cases[i].option, &real, &error),
			cases[i].as_double);
		if (cases[i].as_double != ADBC_STATUS_OK)
			error.release(&error);
	}
	release_statement(&ours, &s);
}

static void
versions(void **state)
{
	union {
		struct AdbcDriver driver;
		uint8_t bytes[sizeof(struct AdbcDriver)];
	} table;
	void *library = dlopen(getenv("ADBC_DRIVER"), RTLD_NOW | RTLD_LOCAL);
	struct AdbcError error = {0};
	AdbcDriverInitFunc init;
	size_t i;

	*(void **)&init = dlsym(library, "AdbcDriverBragglineInit");
	assert_non_null(init);
	memset(&table, 0xAA, sizeof(table));
	check(init(ADBC_VERSION_1_0_0, &table.driver, &error), &error);
	/* nothing is written after the table of this version */
	for (i = 232; i < sizeof(table); i++)
		assert_int_equal(table.bytes[i], 0xAA);
	assert_int_equal(init(1002000, &table.driver, &error), ADBC_STATUS_NOT_IMPLEMENTED);
	error.release(&error);
	check(table.driver.release(&table.driver, &error), &error);
	dlclose(library);
}

/* ------------------------------------------------------------------ errors */

static void
statements_that_are_refused(void **state)
{
	static const struct {
		const char *sql;
		AdbcStatusCode status;
		const char *sqlstate;
		const char *said;
	} cases[] = {
		{"SELEC 1", ADBC_STATUS_INVALID_ARGUMENT, "42000", "syntax error"},
		{"SELECT nothing", ADBC_STATUS_INVALID_ARGUMENT, "42000", "\"nothing\""},
		{"FROM nowhere", ADBC_STATUS_NOT_FOUND, "42S02", "nowhere"},
		{"DROP TABLE x", ADBC_STATUS_INVALID_ARGUMENT, "42000", "expected a SELECT"},
		{"SELECT 1; SELECT 2", ADBC_STATUS_INVALID_ARGUMENT, "42000", "expected one"},
		{"", ADBC_STATUS_INVALID_ARGUMENT, "42000", "expected"},
		{"FROM read_csv('/etc/passwd')", ADBC_STATUS_UNAUTHORIZED, "42000", "not allowed"},
		{"SELECT $1", ADBC_STATUS_NOT_IMPLEMENTED, "HYC00", "parameters"},
		{"SELECT 'x'::INTEGER", ADBC_STATUS_INVALID_DATA, "22018", "Could not convert"},
		{"SELECT 200::TINYINT", ADBC_STATUS_INVALID_DATA, "22018", ""},
	};
	struct AdbcStatement s;
	size_t i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		new_statement(&ours, &s, cases[i].sql);
		expect_error(&s, cases[i].status, cases[i].sqlstate, 1, cases[i].said);
		release_statement(&ours, &s);
	}
}

/* Execute a statement without a stream: it fails as its stream does. */
static void
fail_without_stream(struct AdbcStatement *s, AdbcStatusCode status, const struct AdbcError *last)
{
	struct AdbcError error = {0};

	assert_int_equal(ours.driver.StatementExecuteQuery(s, NULL, NULL, &error), status);
	assert_memory_equal(error.sqlstate, last->sqlstate, 5);
	assert_int_equal(error.vendor_code, last->vendor_code);
	assert_string_equal(error.message, last->message);
	error.release(&error);
}

/* Read a stream that fails. @return its error, which is valid until its release */
static const struct AdbcError *
read_failing(struct AdbcStatement *s, struct ArrowArrayStream *stream, int expected,
	AdbcStatusCode expected_status)
{
	struct AdbcError error = {0};
	const struct AdbcError *last;
	AdbcStatusCode status = ADBC_STATUS_OK;
	int ret;

	check(ours.driver.StatementExecuteQuery(s, stream, NULL, &error), &error);
	assert_null(ours.driver.ErrorFromArrayStream(stream, &status));
	free(read_all(stream, false, &ret));
	last = ours.driver.ErrorFromArrayStream(stream, &status);
	assert_non_null(last);
	if (ret != expected || status != expected_status)
		print_error("errno %d, status %u: %s\n", ret, status, last->message);
	assert_int_equal(ret, expected);
	assert_int_equal(status, expected_status);
	assert_string_equal(last->message, stream->get_last_error(stream));
	/* it stays */
	struct ArrowArray array;

	assert_int_equal(stream->get_next(stream, &array), expected);
	fail_without_stream(s, expected_status, last);
	return last;
}

static void
errors_in_mid_stream(void **state)
{
	struct AdbcError error = {0};
	struct ArrowArrayStream stream;
	const struct AdbcError *last;
	struct AdbcStatement s;
	char script[2000];

	new_statement(&ours, &s,
		"SELECT CASE WHEN i = 900000 THEN error('stop here')::INT ELSE i END AS x FROM "
		"range(1000000) t(i)");
	/* with several threads, DuckDB reports the end of one of the others at times */
	check(ours.driver.StatementSetOption(&s, "adbc.braggline.threads", "1", &error), &error);
	last = read_failing(&s, &stream, EIO, ADBC_STATUS_INVALID_DATA);
	assert_non_null(strstr(last->message, "stop here"));
	assert_memory_equal(last->sqlstate, "22000", 5);
	stream.release(&stream);

	/* the helper is killed, or ends without the end of the stream */
	snprintf(script, sizeof(script), "'%s' \"$@\" | head -c 100000; kill -9 $$",
		getenv("BRAGGLINE_SCAN"));
	set_program(&s, script);
	last = read_failing(&s, &stream, EIO, ADBC_STATUS_IO);
	assert_non_null(strstr(last->message, "signal 9"));
	assert_int_equal(last->vendor_code, 137);
	assert_memory_equal(last->sqlstate, "08S01", 5);
	stream.release(&stream);
	snprintf(script, sizeof(script), "'%s' \"$@\" | head -c 100000", getenv("BRAGGLINE_SCAN"));
	set_program(&s, script);
	last = read_failing(&s, &stream, EIO, ADBC_STATUS_IO);
	assert_non_null(strstr(last->message, "ends before its end marker"));
	stream.release(&stream);
	release_statement(&ours, &s);
}

static void
programs_that_fail(void **state)
{
	struct AdbcError error = {0};
	struct AdbcStatement s;

	new_statement(&ours, &s, "SELECT 1");
	check(ours.driver.StatementSetOption(
		      &s, "adbc.braggline.program", "/nonexistent/scan", &error),
		&error);
	expect_error(&s, ADBC_STATUS_NOT_FOUND, "08001", 127, "/nonexistent/scan");
	set_program(&s, "echo not a stream");
	expect_error(&s, ADBC_STATUS_IO, "08S01", -EBADMSG, "expected an Arrow IPC stream");
	set_program(&s, "exit 0");
	expect_error(&s, ADBC_STATUS_IO, "08S01", 0, "ends before");
	set_program(&s, "echo scan: no such option >&2; exit 2");
	expect_error(&s, ADBC_STATUS_INVALID_ARGUMENT, "HY024", 2, "no such option");
	set_program(&s, "echo scan: wrong identity or key >&2; exit 1");
	expect_error(&s, ADBC_STATUS_UNAUTHENTICATED, "28000", 1, "wrong identity");
	set_program(&s, "exit 7");
	expect_error(&s, ADBC_STATUS_IO, "HY000", 7, "without a message");
	set_program(&s, "printf '\\377\\377\\377\\377\\020\\0\\0\\0'; yes");
	expect_error(&s, ADBC_STATUS_IO, "08S01", -EBADMSG, "damaged");
	/* it says more than the pipe takes, before and without a result */
	set_program(&s, "head -c 300000 /dev/zero | tr '\\0' x >&2; exit 1");
	expect_error(&s, ADBC_STATUS_IO, "HY000", 1, "xxx");
	release_statement(&ours, &s);
	new_statement(&ours, &s, "SELECT 1");
	check(ours.driver.StatementSetOption(&s, "uri", "/nonexistent/runs", &error), &error);
	expect_error(&s, ADBC_STATUS_IO, "HY000", 1, "/nonexistent/runs");
	release_statement(&ours, &s);
}

/* Write a statement as a session reads it from its standard input: a file in `dir`. */
static void
write_statement(const char *sql)
{
	const struct pipe_statement head = {PIPE_STATEMENT, (uint32_t)strlen(sql)};
	char path[300];
	FILE *file;

	snprintf(path, sizeof(path), "%s/statement", dir);
	file = fopen(path, "w");
	assert_non_null(file);
	fwrite(&head, sizeof(head), 1, file);
	fputs(sql, file);
	assert_int_equal(fclose(file), 0);
}

/* A program that ends after the schema, in functions that need no rows. */
static void
metadata_of_a_program_that_fails(void **state)
{
	struct client c = {.driver = ours.driver};
	struct AdbcError error = {0};
	struct ArrowArrayStream stream;
	struct ArrowSchema schema;
	char path[300], script[2000];

	write_statement("SELECT 'text' AS t");
	/* all but the end of the answer */
	snprintf(script, sizeof(script),
		"'%s' \"$@\" < %s/statement | head -c -8; echo scan: Out of Memory Error: x >&2; "
		"exit 1",
		getenv("BRAGGLINE_SCAN"), dir);
	write_program(path, sizeof(path), script);
	check(c.driver.ConnectionNew(&c.connection, &error), &error);
	check(c.driver.ConnectionSetOption(&c.connection, "adbc.braggline.program", path, &error),
		&error);
	check(c.driver.ConnectionInit(&c.connection, &ours.database, &error), &error);
	assert_int_equal(c.driver.ConnectionGetTableSchema(
				 &c.connection, NULL, "lyso_7", "frames", &schema, &error),
		ADBC_STATUS_INTERNAL);
	assert_memory_equal(error.sqlstate, "HY001", 5);
	error.release(&error);
	assert_int_equal(c.driver.ConnectionGetObjects(&c.connection, ADBC_OBJECT_DEPTH_ALL, NULL,
				 NULL, NULL, NULL, NULL, &stream, &error),
		ADBC_STATUS_INTERNAL);
	assert_memory_equal(error.sqlstate, "HY001", 5);
	error.release(&error);
	check(c.driver.ConnectionRelease(&c.connection, &error), &error);
}

/* Changed bytes in a stream of all layouts: an error or other values, never a crash. */
static void
damaged_streams(void **state)
{
	struct AdbcError error = {0};
	struct ArrowArrayStream stream;
	struct AdbcStatement s;
	static const char sql[] =
		"SELECT i, 't' || i AS t, [i] AS l, {'x': i} AS s, "
		"i::VARCHAR::ENUM('0', '1', '2') AS e, [i, i]::INT[2] AS a, map(['k'], [i]) AS m, "
		"union_value(k := i) AS u, i::HUGEINT AS h FROM range(3) t(i)";
	char path[300], script[2000], *bytes;
	unsigned int seed = 1, failed = 0, i;
	struct stat st;
	FILE *file;
	int ret;

	write_statement(sql);
	snprintf(path, sizeof(path), "%s/stream", dir);
	free(command_output("'%s' --session -- %s < %s/statement > %s", getenv("BRAGGLINE_SCAN"),
		runs, dir, path));
	assert_int_equal(stat(path, &st), 0);
	bytes = malloc((size_t)st.st_size);
	file = fopen(path, "r+");
	assert_int_equal(fread(bytes, 1, (size_t)st.st_size, file), st.st_size);
	new_statement(&ours, &s, "SELECT 1");
	/* an answer to each statement, which has 16 bytes */
	snprintf(script, sizeof(script),
		"while [ \"$(head -c 16 | wc -c)\" = 16 ]; do cat %s; done", path);
	set_program(&s, script);
	for (i = 0; i < 100; i++) {
		const long at = rand_r(&seed) % st.st_size;
		const int change = 1 << rand_r(&seed) % 8;

		fseek(file, at, SEEK_SET);
		fputc(bytes[at] ^ change, file);
		fflush(file);
		if (ours.driver.StatementExecuteQuery(&s, &stream, NULL, &error) ==
			ADBC_STATUS_OK) {
			free(read_all(&stream, true, &ret));
			failed += ret != 0;
			if (ret != 0)
				stream.release(&stream);
		} else {
			failed++;
		}
		fseek(file, at, SEEK_SET);
		fputc(bytes[at], file);
		fflush(file);
	}
	if (error.release != NULL)
		error.release(&error);
	assert_true(failed > 10);
	assert_int_equal(ours.driver.StatementExecuteQuery(&s, &stream, NULL, &error), 0);
	free(read_all(&stream, true, &ret));
	assert_int_equal(ret, 0);
	fclose(file);
	free(bytes);
	release_statement(&ours, &s);
}

static void
damaged_files(void **state)
{
	struct client c = {.driver = ours.driver};
	struct AdbcError error = {0};
	struct ArrowArrayStream stream;
	const struct AdbcError *last;
	struct ArrowSchema schema;
	struct AdbcStatement s;
	char path[300], *text;
	FILE *file;
	int ret;

	snprintf(path, sizeof(path), "%s/bad", dir);
	assert_int_equal(mkdir(path, 0700), 0);
	free(command_output("'%s' %s bad float32 2 100 1", getenv("ARROW_WRITE"), path));
	snprintf(path, sizeof(path), "%s/bad/bad_frames.arrow", dir);
	file = fopen(path, "r+");
	assert_non_null(file);
	fseek(file, 12300, SEEK_SET);
	ret = fgetc(file);
	fseek(file, 12300, SEEK_SET);
	fputc(ret ^ 1, file);
	fclose(file);
	snprintf(path, sizeof(path), "%s/bad", dir);
	new_statement(&ours, &s, "SELECT count(*) AS n FROM bad.frames");
	check(ours.driver.StatementSetOption(&s, "uri", path, &error), &error);
	last = read_failing(&s, &stream, EIO, ADBC_STATUS_INVALID_DATA);
	assert_non_null(strstr(last->message, "bad_frames.arrow: damaged, left out"));
	stream.release(&stream);
	check(ours.driver.StatementSetOption(&s, "adbc.braggline.allow_damaged", "true", &error),
		&error);
	check(ours.driver.StatementExecuteQuery(&s, &stream, NULL, &error), &error);
	text = read_all(&stream, false, &ret);
	assert_int_equal(ret, 0);
	assert_int_equal(strncmp(text, "{\"n\":", 5), 0);
	free(text);
	check(ours.driver.StatementExecuteQuery(&s, NULL, NULL, &error), &error);
	/* other errors are errors still */
	check(ours.driver.StatementSetSqlQuery(&s, "SELECT nothing", &error), &error);
	expect_error(&s, ADBC_STATUS_INVALID_ARGUMENT, "42000", 1, "nothing");
	release_statement(&ours, &s);
	/* the columns of an incomplete table are known */
	free(command_output("truncate -s -1 %s/bad_frames.arrow", path));
	open_database(&c, path);
	check(c.driver.ConnectionGetTableSchema(
		      &c.connection, NULL, "bad", "frames", &schema, &error),
		&error);
	schema.release(&schema);
	close_database(&c);
}

/* ------------------------------------------------------------------ ends */

struct canceller {
	struct AdbcStatement *statement;
	bool stop;
};

/* Cancel until the reader has seen it: a call before the start has nothing to cancel. */
static void *
cancel_main(void *arg)
{
	struct canceller *c = arg;
	struct AdbcError error = {0};

	while (!__atomic_load_n(&c->stop, __ATOMIC_ACQUIRE)) {
		if (ours.driver.StatementCancel(c->statement, &error) != ADBC_STATUS_OK)
			error.release(&error);
		usleep(10000);
	}
	return NULL;
}

static void
cancelled_by_another_thread(void **state)
{
	struct ArrowArrayStream stream;
	struct AdbcError error = {0};
	struct canceller c = {0};
	struct AdbcStatement s;
	pthread_t thread;
	AdbcStatusCode status;
	int ret;

	/* while the statement has no result yet */
	new_statement(&ours, &s, ENDLESS);
	c.statement = &s;
	assert_int_equal(ours.driver.StatementCancel(&s, &error), ADBC_STATUS_INVALID_STATE);
	error.release(&error);
	assert_int_equal(pthread_create(&thread, NULL, cancel_main, &c), 0);
	status = ours.driver.StatementExecuteQuery(&s, &stream, NULL, &error);
	if (status == ADBC_STATUS_OK) {
		free(read_all(&stream, false, &ret));
		assert_int_equal(ret, ECANCELED);
		stream.release(&stream);
	} else {
		assert_int_equal(status, ADBC_STATUS_CANCELLED);
		assert_memory_equal(error.sqlstate, "HY008", 5);
		error.release(&error);
	}
	__atomic_store_n(&c.stop, true, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);

	/* while its rows come */
	check(ours.driver.StatementSetSqlQuery(&s, "SELECT i FROM range(10000000000) t(i)", &error),
		&error);
	check(ours.driver.StatementExecuteQuery(&s, &stream, NULL, &error), &error);
	c.stop = false;
	assert_int_equal(pthread_create(&thread, NULL, cancel_main, &c), 0);
	/* not read_all(): it keeps the rows */
	struct ArrowArray array;

	while ((ret = stream.get_next(&stream, &array)) == 0)
		array.release(&array);
	assert_int_equal(ret, ECANCELED);
	stream.release(&stream);
	__atomic_store_n(&c.stop, true, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	/* the statement can be executed again */
	check(ours.driver.StatementSetSqlQuery(&s, "SELECT 1 AS x", &error), &error);
	check(ours.driver.StatementExecuteQuery(&s, &stream, NULL, &error), &error);
	free(read_all(&stream, false, &ret));
	assert_int_equal(ret, 0);
	release_statement(&ours, &s);
}

static void
deadline(void **state)
{
	struct ArrowArrayStream stream;
	struct AdbcError error = {0};
	struct AdbcStatement s;
	AdbcStatusCode status;
	int ret = ETIMEDOUT;

	new_statement(&ours, &s, ENDLESS);
	check(ours.driver.StatementSetOption(&s, "adbc.braggline.deadline_seconds", "0.3", &error),
		&error);
	status = ours.driver.StatementExecuteQuery(&s, &stream, NULL, &error);
	if (status == ADBC_STATUS_OK) {
		free(read_all(&stream, false, &ret));
		stream.release(&stream);
	} else {
		assert_int_equal(status, ADBC_STATUS_TIMEOUT);
		assert_memory_equal(error.sqlstate, "HYT00", 5);
		error.release(&error);
	}
	assert_int_equal(ret, ETIMEDOUT);
	/* while rows come that nobody wants */
	check(ours.driver.StatementSetSqlQuery(&s, "SELECT i FROM range(10000000000) t(i)", &error),
		&error);
	assert_int_equal(
		ours.driver.StatementExecuteQuery(&s, NULL, NULL, &error), ADBC_STATUS_TIMEOUT);
	assert_memory_equal(error.sqlstate, "HYT00", 5);
	error.release(&error);
	release_statement(&ours, &s);
}

/* Wait until a process is gone. @return false: it is not after some seconds */
static bool
is_gone(pid_t pid)
{
	char path[64], state;
	unsigned int i;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	for (i = 0; i < 1000; i++) {
		file = fopen(path, "r");
		if (file == NULL)
			return true;
		/* nobody waits for it in a container without an init */
		if (fscanf(file, "%*d %*s %c", &state) == 1 && state == 'Z') {
			fclose(file);
			return true;
		}
		fclose(file);
		usleep(10000);
	}
	return false;
}

/* Read the process number that a program has written. */
static pid_t
read_pid(const char *path)
{
	unsigned int i;
	FILE *file;
	int pid = 0;

	for (i = 0; i < 1000 && pid == 0; i++) {
		file = fopen(path, "r");
		if (file != NULL) {
			if (fscanf(file, "%d\n", &pid) != 1)
				pid = 0;
			fclose(file);
		}
		usleep(10000);
	}
	assert_int_not_equal(pid, 0);
	return pid;
}

static void
death_of_the_client_ends_the_helper(void **state)
{
	char script[2000], path[300];
	struct ArrowArrayStream stream;
	struct AdbcStatement s;
	pid_t client, helper;

	snprintf(path, sizeof(path), "%s/pid", dir);
	snprintf(script, sizeof(script), "echo $$ > %s.new; mv %s.new %s; exec '%s' \"$@\"", path,
		path, path, getenv("BRAGGLINE_SCAN"));
	new_statement(&ours, &s, ENDLESS);
	set_program(&s, script);
	client = fork();
	assert_true(client >= 0);
	if (client == 0) {
		ours.driver.StatementExecuteQuery(&s, &stream, NULL, NULL);
		_exit(0);
	}
	helper = read_pid(path);
	assert_int_equal(kill(client, SIGKILL), 0);
	assert_int_equal(waitpid(client, NULL, 0), client);
	assert_true(is_gone(helper));
	release_statement(&ours, &s);
}

/* ------------------------------------------------------------------ processes */

/* Make the statement's program note its processes. */
static void
note_processes(struct AdbcStatement *s)
{
	char script[2000];

	snprintf(script, sizeof(script), "echo $$ >> %s/processes; exec '%s' \"$@\"", dir,
		getenv("BRAGGLINE_SCAN"));
	set_program(s, script);
}

/* Numbers of processes that were started, and the last of these. */
static unsigned int
processes(pid_t *last)
{
	char path[300];
	unsigned int nb = 0;
	FILE *file;
	int pid;

	snprintf(path, sizeof(path), "%s/processes", dir);
	file = fopen(path, "r");
	assert_non_null(file);
	for (*last = 0; fscanf(file, "%d", &pid) == 1; nb++)
		*last = pid;
	fclose(file);
	return nb;
}

/* Execute a statement whose result is a number. */
static int64_t
number(struct AdbcStatement *s, const char *sql)
{
	struct AdbcError error = {0};
	struct ArrowArrayStream stream;
	long long n = -1;
	char *text;
	int ret;

	check(ours.driver.StatementSetSqlQuery(s, sql, &error), &error);
	check(ours.driver.StatementExecuteQuery(s, &stream, NULL, &error), &error);
	text = read_all(&stream, false, &ret);
	assert_int_equal(ret, 0);
	assert_int_equal(sscanf(text, "{\"n\":%lld}", &n), 1);
	free(text);
	return n;
}

static void
statements_share_a_process(void **state)
{
	struct AdbcError error = {0};
	struct ArrowArrayStream stream;
	struct ArrowSchema schema;
	struct AdbcStatement a, b;
	pid_t first, last;
	char *text;
	int ret;

	new_statement(&ours, &a, "SELECT 1 AS n");
	new_statement(&ours, &b, "SELECT 2 AS n");
	note_processes(&a);
	note_processes(&b);
	assert_int_equal(number(&a, "SELECT 1::BIGINT AS n"), 1);
	assert_int_equal(processes(&first), 1);
	assert_int_equal(number(&b, "SELECT count(*) AS n FROM lyso_7.frames"), 100);
	expect_error((check(ours.driver.StatementSetSqlQuery(&a, "SELECT x", &error), &error), &a),
		ADBC_STATUS_INVALID_ARGUMENT, "42000", 1, "\"x\"");
	assert_int_equal(number(&a, "SELECT 3::BIGINT AS n"), 3);
	assert_int_equal(processes(&last), 1);
	/* Cancel of a statement that has ended does not end another one of its process */
	check(ours.driver.StatementSetSqlQuery(&b, "SELECT i AS n FROM range(300000) t(i)", &error),
		&error);
	check(ours.driver.StatementExecuteQuery(&b, &stream, NULL, &error), &error);
	check(ours.driver.StatementCancel(&a, &error), &error);
	text = read_all(&stream, false, &ret);
	assert_int_equal(ret, 0);
	free(text);
	/* a second statement at the same time has a process of its own; one of them is kept */
	check(ours.driver.StatementExecuteQuery(&b, &stream, NULL, &error), &error);
	assert_int_equal(number(&a, "SELECT 4::BIGINT AS n"), 4);
	assert_int_equal(processes(&last), 2);
	stream.release(&stream);
	assert_int_equal(number(&b, "SELECT 5::BIGINT AS n"), 5);
	assert_int_equal(processes(&last), 2);
	assert_true(is_gone(first));
	/* another option needs another process */
	check(ours.driver.StatementSetOption(&b, "adbc.braggline.threads", "1", &error), &error);
	assert_int_equal(number(&b, "SELECT 6::BIGINT AS n"), 6);
	assert_int_equal(processes(&last), 3);
	/* a schema alone ends the process if there is more to come */
	check(ours.driver.StatementExecuteSchema(&b, &schema, &error), &error);
	schema.release(&schema);
	release_statement(&ours, &a);
	release_statement(&ours, &b);
}

static void
processes_that_die(void **state)
{
	struct AdbcError error = {0};
	struct ArrowArrayStream stream;
	struct ArrowArray array;
	struct AdbcStatement s;
	struct pollfd process = {.events = POLLIN};
	unsigned int before;
	pid_t pid;
	int ret;

	new_statement(&ours, &s, "SELECT 1");
	note_processes(&s);
	check(ours.driver.StatementSetOption(&s, "adbc.braggline.threads", "2", &error), &error);
	/* between two statements */
	assert_int_equal(number(&s, "SELECT 1::BIGINT AS n"), 1);
	before = processes(&pid);
	process.fd = pidfd_open(pid, 0);
	assert_true(process.fd >= 0);
	assert_int_equal(kill(pid, SIGKILL), 0);
	/* not is_gone(): other threads than the first one may live a little longer */
	assert_int_equal(poll(&process, 1, 10000), 1);
	close(process.fd);
	assert_int_equal(number(&s, "SELECT 2::BIGINT AS n"), 2);
	assert_int_equal(processes(&pid), before + 1);
	/* while its answer is read: an error with SQLSTATE, and the next one has another process */
	check(ours.driver.StatementSetSqlQuery(&s, "SELECT i FROM range(10000000000) t(i)", &error),
		&error);
	check(ours.driver.StatementExecuteQuery(&s, &stream, NULL, &error), &error);
	assert_int_equal(kill(pid, SIGKILL), 0);
	while ((ret = stream.get_next(&stream, &array)) == 0 && array.release != NULL)
		array.release(&array);
	assert_int_equal(ret, EIO);
	assert_memory_equal(ours.driver.ErrorFromArrayStream(&stream, NULL)->sqlstate, "08S01", 5);
	stream.release(&stream);
	assert_int_equal(number(&s, "SELECT 3::BIGINT AS n"), 3);
	assert_int_equal(processes(&pid), before + 2);
	release_statement(&ours, &s);
}

/* A process that is kept sees runs that have come, have changed and have gone. */
static void
files_that_change(void **state)
{
	static const char sql[] = "SELECT count(*) AS n FROM frames";
	struct AdbcError error = {0};
	struct AdbcStatement s;
	unsigned int before;
	char path[300];
	pid_t pid;

	snprintf(path, sizeof(path), "%s/growing", dir);
	free(command_output(
		"mkdir %s && '%s' %s a float32 1 10 1", path, getenv("ARROW_WRITE"), path));
	new_statement(&ours, &s, sql);
	note_processes(&s);
	check(ours.driver.StatementSetOption(&s, "uri", path, &error), &error);
	assert_int_equal(number(&s, sql), 10);
	before = processes(&pid);
	free(command_output("'%s' %s b float32 1 20 1", getenv("ARROW_WRITE"), path));
	assert_int_equal(number(&s, sql), 30);
	assert_int_equal(number(&s, sql), 30);
	free(command_output(
		"rm %s/*; '%s' %s b float32 1 25 1", path, getenv("ARROW_WRITE"), path));
	assert_int_equal(number(&s, sql), 25);
	assert_int_equal(processes(&pid), before);
	release_statement(&ours, &s);
}

/* The answer ends within a message: this is an error, which does not wait for the rest. */
static void
a_file_that_is_truncated_in_mid_message(void **state)
{
	const struct timespec pause = {.tv_nsec = 300000000};
	struct ArrowArrayStream stream;
	struct AdbcError error = {0};
	struct AdbcStatement s;
	struct ArrowArray array;
	char path[300];
	int ret;

	snprintf(path, sizeof(path), "%s/short", dir);
	free(command_output(
		"mkdir %s && '%s' %s a float32 2 60 1", path, getenv("ARROW_WRITE"), path));
	/* each message is larger than the pipe */
	new_statement(&ours, &s, "SELECT row_ptr, col, value FROM a.images, range(1000)");
	check(ours.driver.StatementSetOption(&s, "uri", path, &error), &error);
	check(ours.driver.StatementSetOption(&s, "adbc.braggline.deadline_seconds", "8", &error),
		&error);
	check(ours.driver.StatementExecuteQuery(&s, &stream, NULL, &error), &error);
	assert_int_equal(stream.get_next(&stream, &array), 0);
	array.release(&array);
	/* the process waits for room for the rest of the next message */
	nanosleep(&pause, NULL);
	snprintf(path, sizeof(path), "%s/short/a_images.arrow", dir);
	assert_int_equal(truncate(path, 4096), 0);
	while ((ret = stream.get_next(&stream, &array)) == 0 && array.release != NULL)
		array.release(&array);
	assert_int_not_equal(ret, 0);
	if (strstr(stream.get_last_error(&stream), "truncated") == NULL)
		print_error("%s\n", stream.get_last_error(&stream));
	assert_non_null(strstr(stream.get_last_error(&stream), "truncated"));
	stream.release(&stream);
	release_statement(&ours, &s);
}

/* ------------------------------------------------------------------ sources */

static void
sources(void **state)
{
	struct AdbcPartitions partitions;
	struct AdbcError error = {0};
	struct ArrowArrayStream stream;
	struct ArrowSchema schema;
	struct AdbcStatement s;
	char uri[800], *text;
	size_t i;
	int ret;

	/* several folders, one of them as a URI with an escape */
	snprintf(uri, sizeof(uri), "%s/store0\r\nfile://%s/store%%31\n", dir, dir);
	new_statement(&ours, &s, "SELECT count(*) AS n FROM frames");
	check(ours.driver.StatementSetOption(&s, "uri", uri, &error), &error);
	check(ours.driver.StatementExecuteQuery(&s, &stream, NULL, &error), &error);
	text = read_all(&stream, false, &ret);
	assert_string_equal(text, "{\"n\":30}\n");
	free(text);
	/* one partition, unless the user says that the sources are independent */
	check(ours.driver.StatementExecutePartitions(&s, &schema, &partitions, NULL, &error),
		&error);
	assert_int_equal(partitions.num_partitions, 1);
	schema.release(&schema);
	partitions.release(&partitions);
	check(ours.driver.StatementSetOption(&s, "adbc.braggline.partition_by", "source", &error),
		&error);
	check(ours.driver.StatementExecutePartitions(&s, &schema, &partitions, NULL, &error),
		&error);
	assert_int_equal(partitions.num_partitions, 2);
	assert_int_equal(schema.n_children, 1);
	schema.release(&schema);
	for (i = 0; i < 2; i++) {
		check(ours.driver.ConnectionReadPartition(&ours.connection,
			      partitions.partitions[i], partitions.partition_lengths[i], &stream,
			      &error),
			&error);
		text = read_all(&stream, false, &ret);
		assert_string_equal(text, i == 0 ? "{\"n\":10}\n" : "{\"n\":20}\n");
		free(text);
	}
	assert_int_equal(
		ours.driver.ConnectionReadPartition(&ours.connection, partitions.partitions[0],
			partitions.partition_lengths[0] - 1, &stream, &error),
		ADBC_STATUS_INVALID_ARGUMENT);
	assert_int_equal(ours.driver.ConnectionReadPartition(
				 &ours.connection, (const uint8_t *)"x", 1, &stream, &error),
		ADBC_STATUS_INVALID_ARGUMENT);
	error.release(&error);
	partitions.release(&partitions);
	release_statement(&ours, &s);
}

/* A server: the program gets --connect and the address; a script takes its place. */
static void
addresses(void **state)
{
	struct AdbcError error = {0};
	struct ArrowArrayStream stream;
	struct AdbcStatement s;
	char script[2000], *text;
	int ret;

	snprintf(script, sizeof(script), "echo \"$@\" > %s/arguments; exec '%s' --session -- %s",
		dir, getenv("BRAGGLINE_SCAN"), runs);
	new_statement(&ours, &s, "SELECT count(*) AS n FROM lyso_7.frames");
	set_program(&s, script);
	check(ours.driver.StatementSetOption(&s, "uri", "braggline://[::1]:4791/", &error), &error);
	check(ours.driver.StatementSetOption(
		      &s, "adbc.braggline.eal_arguments", "-a\n81:00.0\n", &error),
		&error);
	check(ours.driver.StatementSetOption(&s, "adbc.braggline.device", "roce:x", &error),
		&error);
	check(ours.driver.StatementSetOption(&s, "username", "ana", &error), &error);
	check(ours.driver.StatementSetOption(&s, "adbc.braggline.key", "/etc/key file", &error),
		&error);
	check(ours.driver.StatementExecuteQuery(&s, &stream, NULL, &error), &error);
	text = read_all(&stream, false, &ret);
	assert_string_equal(text, "{\"n\":100}\n");
	free(text);
	text = command_output("cat %s/arguments", dir);
	assert_string_equal(text,
		"-a 81:00.0 -- --session --device roce:x --identity ana --key "
		"/etc/key file --connect [::1]:4791\n");
	free(text);
	check(ours.driver.StatementSetOption(
		      &s, "uri", "braggline://10.0.0.1\nbraggline://10.0.0.2", &error),
		&error);
	expect_error(&s, ADBC_STATUS_NOT_IMPLEMENTED, "HYC00", -ENOTSUP, "one server");
	check(ours.driver.StatementSetOption(&s, "uri", "http://10.0.0.1/", &error), &error);
	expect_error(&s, ADBC_STATUS_INVALID_ARGUMENT, "HY024", -EINVAL, "http://");
	check(ours.driver.StatementSetOption(&s, "uri", "file:///a%2", &error), &error);
	expect_error(&s, ADBC_STATUS_INVALID_ARGUMENT, "HY024", -EINVAL, "file:///");
	release_statement(&ours, &s);
}

/* ------------------------------------------------------------------ */

static int
group_setup(void **state)
{
	const char *duckdb = getenv("BRAGGLINE_DUCKDB");

	snprintf(dir, sizeof(dir), "/tmp/adbc_test.XXXXXX");
	assert_non_null(mkdtemp(dir));
	snprintf(runs, sizeof(runs), "%s/runs", dir);
	free(command_output(
		"mkdir %s %s/store0 %s/store1 && w='%s' && \"$w\" %s lyso_7 float32 2 100 1 && "
		"\"$w\" %s other float32 2 50 2 && \"$w\" %s/store0 a float32 1 10 1 && "
		"\"$w\" %s/store1 b float32 1 20 1",
		runs, dir, dir, getenv("ARROW_WRITE"), runs, runs, dir, dir));
	load(&ours, getenv("ADBC_DRIVER"), "AdbcDriverInit");
	open_database(&ours, runs);
	load(&theirs, duckdb, "duckdb_adbc_init");
	open_database(&theirs, NULL);
	return 0;
}

static int
group_teardown(void **state)
{
	close_database(&ours);
	close_database(&theirs);
	free(command_output("rm -rf %s", dir));
	return 0;
}

/* As in other results in Arrow. */
static void
lists_are_past_the_engine(void **state)
{
	char *text = query(&ours, "EXPLAIN SELECT frame, value FROM lyso_7.images", false);

	assert_non_null(strstr(text, "deferred, in results as Arrow: value"));
	free(text);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_types_are_those_of_duckdb),
		cmocka_unit_test(statements_are_those_of_duckdb),
		cmocka_unit_test(tables_are_those_of_json),
		cmocka_unit_test(lists_are_past_the_engine),
		cmocka_unit_test(arrays_outlive_everything),
		cmocka_unit_test(two_statements_at_once),
		cmocka_unit_test(schema_without_rows),
		cmocka_unit_test(metadata),
		cmocka_unit_test(options),
		cmocka_unit_test(options_that_are_no_number),
		cmocka_unit_test(versions),
		cmocka_unit_test(statements_that_are_refused),
		cmocka_unit_test(errors_in_mid_stream),
		cmocka_unit_test(programs_that_fail),
		cmocka_unit_test(metadata_of_a_program_that_fails),
		cmocka_unit_test(damaged_streams),
		cmocka_unit_test(damaged_files),
		cmocka_unit_test(cancelled_by_another_thread),
		cmocka_unit_test(deadline),
		cmocka_unit_test(death_of_the_client_ends_the_helper),
		cmocka_unit_test(statements_share_a_process),
		cmocka_unit_test(processes_that_die),
		cmocka_unit_test(files_that_change),
		cmocka_unit_test(a_file_that_is_truncated_in_mid_message),
		cmocka_unit_test(sources),
		cmocka_unit_test(addresses),
	};

	if (getenv("BRAGGLINE_DUCKDB") == NULL || access(getenv("BRAGGLINE_DUCKDB"), R_OK) != 0) {
		printf("skipped: DuckDB's library (BRAGGLINE_DUCKDB) is missing: make deps\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
