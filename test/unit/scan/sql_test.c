/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Queries of runs: what is taken from a statement, what is refused, and what happens to damaged,
 * truncated and unusual files. Skipped without DuckDB's library (BRAGGLINE_DUCKDB).
 */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "sql/chunks.h"
#include "sql/ipc_type.h"
#include "sql/result_reader.h"
#include "sql/thread_time.h"

#define FRAMES 300

static struct duckdb_api api;
static char dir[] = "/tmp/sql_test.XXXXXX";

/* An open session over the files of a directory. */
struct rig {
	struct sql_catalog catalog;
	struct sql_session session;
	char warning[4096]; /* the last one */
	unsigned int warnings;
};

static unsigned int nb_checks;	/* of batches */
static uint64_t check_takes_ns; /* least CPU time of a check */

int __real_arrow_reader_crc(const struct arrow_reader *r, size_t batch);
int __wrap_arrow_reader_crc(const struct arrow_reader *r, size_t batch);

/* Linked in place of arrow_reader_crc(). */
int
__wrap_arrow_reader_crc(const struct arrow_reader *r, size_t batch)
{
	const uint64_t begin = thread_time_ns();

	__atomic_add_fetch(&nb_checks, 1, __ATOMIC_RELAXED);
	while (thread_time_ns() - begin < check_takes_ns)
		;
	return __real_arrow_reader_crc(r, batch);
}

static uint64_t nb_guards; /* that were asked whether they are marked */

bool __real_map_guard_is_marked(const struct map_guard *g);
bool __wrap_map_guard_is_marked(const struct map_guard *g);

/* Linked in place of map_guard_is_marked(). */
bool
__wrap_map_guard_is_marked(const struct map_guard *g)
{
	__atomic_add_fetch(&nb_guards, 1, __ATOMIC_RELAXED);
	return __real_map_guard_is_marked(g);
}

static const char *cut_path; /* truncated as soon as it is mapped; NULL: none */

void *__real_mmap64(void *at, size_t size, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap64(void *at, size_t size, int protection, int flags, int fd, off_t offset);

/* Linked in place of mmap(2). */
void *
__wrap_mmap64(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
	void *map = __real_mmap64(at, size, protection, flags, fd, offset);

	if (fd >= 0 && cut_path != NULL)
		assert_int_equal(truncate(cut_path, 0), 0);
	return map;
}

static void
keep_warning(void *arg, const char *text)
{
	struct rig *r = arg;

	snprintf(r->warning, sizeof(r->warning), "%s", text);
	r->warnings++;
}

__attribute__((format(printf, 1, 2))) static void
shell(const char *format, ...)
{
	char command[1024];
	va_list args;

	va_start(args, format);
	vsnprintf(command, sizeof(command), format, args);
	va_end(args);
	assert_int_equal(system(command), 0);
}

static void
rig_open_with(struct rig *r, const char *path, const struct sql_limits *limits)
{
	struct scan_list list = {0};

	memset(r, 0, sizeof(*r));
	assert_int_equal(scan_list_add(&list, path), 0);
	assert_int_equal(sql_catalog_create(&r->catalog, &list, keep_warning, r), 0);
	scan_list_free(&list);
	if (sql_session_open(&r->session, &api, &r->catalog, limits) < 0)
		fail_msg("%s", r->session.error);
}

static void
rig_open(struct rig *r, const char *path)
{
	rig_open_with(r, path, &(struct sql_limits){.threads = 1});
}

static void
rig_close(struct rig *r)
{
	sql_session_close(&r->session);
	sql_catalog_destroy(&r->catalog);
}

/* Execute a statement. @return 0 and the first column of the first row; -errno */
static int
ask(struct rig *r, const char *sql, char *answer, size_t size)
{
	struct sql_session *s = &r->session;
	const union duckdb_text *text;
	duckdb_chunk chunk;
	uint64_t rows = 0;
	int ret;

	answer[0] = '\0';
	ret = sql_session_execute(s, sql, SQL_TEXT);
	while (ret == 0) {
		ret = sql_session_fetch(s, &chunk);
		if (ret < 0 || chunk == NULL)
			break;
		if (rows == 0) {
			text = api.vector_get_data(api.data_chunk_get_vector(chunk, 0));
			snprintf(answer, size, "%.*s", (int)text->length, duckdb_text_bytes(text));
		}
		rows += api.data_chunk_get_size(chunk);
		api.destroy_data_chunk(&chunk);
	}
	return ret;
}

static void
want_answer(struct rig *r, const char *sql, const char *expected)
{
	char answer[4096];

	if (ask(r, sql, answer, sizeof(answer)) < 0)
		fail_msg("%s: %s", sql, r->session.error);
	if (strcmp(answer, expected) != 0)
		fail_msg("%s: %s, expected %s", sql, answer, expected);
}

static void
want_error(struct rig *r, const char *sql, int code, const char *expected)
{
	char answer[4096];
	const int ret = ask(r, sql, answer, sizeof(answer));

	if (ret != code || strstr(r->session.error, expected) == NULL)
		fail_msg("%s: %d: %s, expected %d: %s", sql, ret, r->session.error, code, expected);
}

static uint64_t
number(struct rig *r, const char *sql)
{
	char answer[4096];

	if (ask(r, sql, answer, sizeof(answer)) < 0)
		fail_msg("%s: %s", sql, r->session.error);
	return strtoull(answer, NULL, 10);
}

#define ALL UINT64_MAX

static void
test_ranges_are_those_of_the_statement(void **state)
{
	static const struct {
		const char *sql;
		uint64_t first, last; /* of the table x.frames; first > last: none */
	} cases[] = {
		{"FROM x.frames", 0, ALL},
		{"FROM x.frames WHERE frame = 5", 5, 5},
		{"FROM x.frames WHERE 5 = frame", 5, 5},
		{"FROM X.Frames WHERE FRAME > 5", 6, ALL},
		{"FROM x.frames WHERE frame >= 5 AND frame < 9", 5, 8},
		{"FROM x.frames WHERE 5 < frame AND 9 >= frame", 6, 9},
		{"FROM x.frames WHERE frame BETWEEN 7 AND 9 AND kind = 1", 7, 9},
		{"FROM x.frames WHERE frame IN (9, 4, 6)", 4, 9},
		{"FROM x.frames WHERE frame IN (9, kind)", 0, ALL},
		{"FROM x.frames WHERE frame NOT IN (9, 4)", 0, ALL},
		{"FROM x.frames WHERE frame NOT BETWEEN 7 AND 9", 0, ALL},
		{"FROM x.frames WHERE frame <> 5", 0, ALL},
		{"FROM x.frames WHERE NOT frame > 5", 0, 5}, /* the parser makes it <= */
		{"FROM x.frames WHERE NOT (frame > 5 AND kind = 1)", 0, ALL},
		{"FROM x.frames WHERE frame > 5 OR kind = 1", 0, ALL},
		{"FROM x.frames WHERE frame > -1", 0, ALL},
		{"FROM x.frames WHERE frame >= -5 AND frame <= 3", 0, 3},
		{"FROM x.frames WHERE frame < 0", 1, 0},
		{"FROM x.frames WHERE frame = -1", 1, 0},
		{"FROM x.frames WHERE frame > 9223372036854775807", UINT64_C(1) << 63, ALL},
		{"FROM x.frames WHERE frame IN (3, -9223372036854775807)", 3, 3},
		/* not an integer of 64 bits, or converted first */
		{"FROM x.frames WHERE frame > 9223372036854775808", 0, ALL},
		{"FROM x.frames WHERE frame > 18446744073709551616", 0, ALL},
		/* their trees are read as rows: JSON's integers have 64 bits with a sign */
		{"FROM x.frames WHERE frame = 5 AND kind < 9223372036854775808", 5, 5},
		{"FROM x.frames WHERE frame > 7 AND kind < 18446744073709551616", 8, ALL},
		{"FROM x.frames WHERE frame > 5.5", 0, ALL},
		{"FROM x.frames WHERE frame > 5::UTINYINT", 0, ALL},
		{"FROM x.frames WHERE frame > '5'", 0, ALL},
		{"FROM x.frames WHERE frame + 1 > 5", 0, ALL},
		{"FROM x.frames WHERE frame IS DISTINCT FROM 5", 0, ALL},
		{"FROM x.frames WHERE bunch_id = 5", 0, ALL},
		/* names */
		{"FROM x.frames t WHERE t.frame = 5", 5, 5},
		{"FROM x.frames t WHERE u.frame = 5", 0, ALL},
		{"FROM x.frames WHERE frames.frame = 5", 5, 5},
		{"FROM x.frames WHERE x.frames.frame = 5", 5, 5},
		{"FROM x.frames WHERE y.frames.frame = 5", 0, ALL},
		{"FROM x.frames t(frame, a) WHERE frame = 5", 0, ALL},
		{"FROM x.frames TABLESAMPLE 10% WHERE frame = 5", 0, ALL},
		{"FROM x.frames WHERE frame = 5 USING SAMPLE 3", 0, ALL},
		/* joins */
		{"FROM x.frames JOIN x.images USING (frame) WHERE frame < 5", 0, 4},
		{"FROM x.frames JOIN x.images USING (kind) WHERE frame < 5", 0, ALL},
		{"FROM x.frames LEFT JOIN x.images USING (frame) WHERE frame < 5", 0, ALL},
		{"FROM x.frames a LEFT JOIN x.images b USING (frame) WHERE a.frame < 5", 0, 4},
		{"FROM x.images a LEFT JOIN x.frames b USING (frame) WHERE b.frame < 5", 0, 4},
		{"FROM x.images a FULL JOIN x.frames b USING (frame) WHERE b.frame < 5", 0, 4},
		{"FROM x.images a, x.frames b WHERE b.frame < 5 AND a.frame = 3", 0, 4},
		{"FROM x.images a, x.frames a WHERE a.frame < 5", 0, ALL},
		{"FROM y.frames, x.frames WHERE frames.frame < 5", 0, ALL},
		{"FROM x.images a ASOF JOIN x.frames b ON a.frame >= b.frame WHERE b.frame < 5", 0,
			ALL},
		{"FROM x.images a POSITIONAL JOIN x.frames b WHERE b.frame < 5", 0, ALL},
		{"FROM x.frames a SEMI JOIN x.images b USING (frame) WHERE a.frame < 5", 0, ALL},
		{"FROM x.frames, range(5) t(frame) WHERE frame < 5", 0, ALL},
		{"FROM x.frames f, range(5) t(frame) WHERE f.frame < 5", 0, 4},
		/* several times: the range covers all of them */
		{"FROM x.frames WHERE frame = 5 UNION FROM x.frames WHERE frame = 9", 5, 9},
		{"FROM x.frames WHERE frame = 5 UNION FROM x.frames", 0, ALL},
		{"SELECT (SELECT max(frame) FROM x.frames WHERE frame < 9) FROM x.frames WHERE "
		 "frame > 2",
			0, ALL},
		{"SELECT 1 WHERE 3 IN (SELECT frame FROM x.frames WHERE frame IN (1, 3))", 1, 3},
		{"WITH q AS (FROM x.frames WHERE frame < 3) FROM q WHERE frame = 1", 0, 2},
		{"FROM (FROM x.frames) q WHERE frame = 1", 0, ALL},
		{"FROM x.frames WHERE frame < 0 UNION FROM x.frames WHERE frame = 7", 7, 7},
		{"FROM (SUMMARIZE x.frames)", 0, ALL},
	};
	struct sql_statement s;
	char error[1024];
	struct rig r;
	size_t i, k;

	rig_open(&r, dir);
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (sql_statement_parse(&s, &r.session.parser, cases[i].sql, error, sizeof(error)) <
			0)
			fail_msg("%s: %s", cases[i].sql, error);
		for (k = 0; k < s.nb_names; k++) {
			if (strcasecmp(s.name[k].schema, "x") == 0 &&
				strcasecmp(s.name[k].table, "frames") == 0)
				break;
		}
		if (k == s.nb_names)
			fail_msg("%s: the table is not found", cases[i].sql);
		if (cases[i].first > cases[i].last ? s.name[k].first <= s.name[k].last
						   : s.name[k].first != cases[i].first ||
					s.name[k].last != cases[i].last)
			fail_msg("%s: %lu to %lu, expected %lu to %lu", cases[i].sql,
				s.name[k].first, s.name[k].last, cases[i].first, cases[i].last);
		sql_statement_free(&s);
	}
	rig_close(&r);
}

/* Append a text several times, with its number and the next one. @return the end */
static char *
put_many(char *at, const char *format, unsigned int from, unsigned int to)
{
	for (; from < to; from++)
		at += sprintf(at, format, from, from + 1);
	return at;
}

/* CPU time of the analysis of a statement, ns. @param may_defer  out */
static uint64_t
analysis_time(struct rig *r, const char *sql, bool *may_defer)
{
	const uint64_t begin = thread_time_ns();
	struct sql_statement s;
	char error[1024];

	if (sql_statement_parse(&s, &r->session.parser, sql, error, sizeof(error)) < 0)
		fail_msg("%s", error);
	assert_int_equal(sql_defer_find(&s), 0);
	*may_defer = s.may_defer;
	sql_statement_free(&s);
	return thread_time_ns() - begin;
}

/* A statement within the limit of its length is analysed before a deadline can end it. */
static void
test_the_analysis_is_linear(void **state)
{
	char *sql = malloc(SQL_STATEMENT_MAX), *at;
	struct sql_statement s;
	uint64_t one, many;
	char error[1024];
	bool may_defer;
	struct rig r;

	assert_non_null(sql);
	rig_open(&r, dir);
	/* terms of WHERE, and tables */
	at = stpcpy(sql, "SELECT 1 FROM frames a WHERE a.frame = 1");
	put_many(at, " AND a.frame < 4", 0, 4000);
	one = analysis_time(&r, sql, &may_defer);
	at = put_many(stpcpy(sql, "SELECT 1 FROM frames a"), ", frames a", 1, 400);
	put_many(stpcpy(at, " WHERE a.frame = 1"), " AND a.frame < 4", 0, 4000);
	many = analysis_time(&r, sql, &may_defer);
	if (many > 10 * one)
		fail_msg("%lu ns with 400 tables, %lu ns with one", many, one);
	/* names that the select list gives to columns, each for the next one */
	at = put_many(stpcpy(sql, "SELECT "), "a%u AS b%u, ", 0, 5000);
	stpcpy(at, "kind FROM frames ORDER BY a500");
	one = analysis_time(&r, sql, &may_defer);
	assert_true(may_defer);
	at = put_many(stpcpy(sql, "SELECT "), "a%u AS a%u, ", 0, 5000);
	stpcpy(at, "kind FROM frames ORDER BY a500");
	many = analysis_time(&r, sql, &may_defer);
	assert_false(may_defer);
	if (many > 10 * one)
		fail_msg("%lu ns with names of names, %lu ns without", many, one);
	/* names of tables */
	at = put_many(stpcpy(sql, "SELECT 1"), ", (FROM a%u)", 0, SQL_NAMES_MAX);
	if (sql_statement_parse(&s, &r.session.parser, sql, error, sizeof(error)) < 0)
		fail_msg("%s", error);
	sql_statement_free(&s);
	strcpy(at, ", (FROM b)");
	want_error(&r, sql, -EINVAL, "expected the names of at most 1024 tables, found more");
	rig_close(&r);
	free(sql);
}

static void
test_many_tables_have_no_range(void **state)
{
	struct sql_statement s;
	char sql[2048], error[1024], *at;
	struct rig r;
	unsigned int nb;

	rig_open(&r, dir);
	for (nb = 64; nb <= 65; nb++) {
		at = put_many(stpcpy(sql, "SELECT 1 FROM x.frames t"), ", y.frames t%u", 1, nb);
		strcpy(at, " WHERE t.frame = 5 AND t9.frame = 7");
		assert_int_equal(
			sql_statement_parse(&s, &r.session.parser, sql, error, sizeof(error)), 0);
		assert_string_equal(s.name[0].schema, "x");
		assert_int_equal(s.name[0].first, nb == 64 ? 5 : 0);
		assert_int_equal(s.name[0].last, nb == 64 ? 5 : ALL);
		sql_statement_free(&s);
	}
	rig_close(&r);
}

static void
test_only_one_select_is_executed(void **state)
{
	static const struct {
		const char *sql;
		const char *error;
	} cases[] = {
		{"", "expected one SELECT statement, found none"},
		{"-- nothing", "expected one SELECT statement, found none"},
		{"SELECT 1; SELECT 2", "found several"},
		{"SELECT 1; DROP TABLE t", "expected a SELECT"},
		{"CREATE TABLE t (a INTEGER)", "expected a SELECT"},
		{"DROP SCHEMA main", "expected a SELECT"},
		{"INSERT INTO t VALUES (1)", "expected a SELECT"},
		{"COPY (SELECT 1) TO '/tmp/sql_test.csv'", "expected a SELECT"},
		{"EXPORT DATABASE '/tmp/sql_test'", "expected a SELECT"},
		{"SET threads = 9", "expected a SELECT"},
		{"RESET threads", "expected a SELECT"},
		{"PRAGMA version", "expected a SELECT"},
		{"ATTACH 'x'", "expected a SELECT"},
		{"CALL enable_logging()", "expected a SELECT"},
		{"INSTALL httpfs", "expected a SELECT"},
		{"LOAD json", "expected a SELECT"},
		{"EXPLAIN ANALYZE SELECT 1", "expected a SELECT"},
		{"EXPLAIN (FORMAT json) SELECT 1", "expected a SELECT"},
		{"EXPLAIN DROP SCHEMA main", "expected a SELECT"},
		{"EXPLAIN EXPLAIN SELECT 1", "expected a SELECT"},
		{"EXPLAIN SELECT 1; SELECT 2", "found several"},
		{"EXPLAIN", "expected one SELECT statement, found none"},
		{"BEGIN", "expected a SELECT"},
		{"FROM read_csv('/etc/passwd')", "read_csv: not allowed"},
		{"SELECT (SELECT count(*) FROM glob('/*'))", "glob: not allowed"},
		{"FROM query('SELECT 1')", "query: not allowed"},
		{"FROM QUERY_TABLE('x')", "not allowed"},
		{"FROM enable_logging()", "enable_logging: not allowed"},
		{"FROM checkpoint()", "checkpoint: not allowed"},
		{"SELECT current_setting('secret_directory')",
			"function current_setting: not allowed"},
		{"SELECT 1 WHERE system.main.\"Current_Setting\"('threads') = 1",
			"function current_setting: not allowed"},
		{"SELECT ('threads').current_setting()", "function current_setting: not allowed"},
		{"SELECT list_transform(['threads'], lambda x: current_setting(x))",
			"function current_setting: not allowed"},
		{"SELECT write_log('text')", "function write_log: not allowed"},
		{"FROM '/etc/passwd'", "does not exist"},
		{"FROM '/tmp/x.csv'", ""},
		{"SELECT $1", "parameters"},
		{"SELECT ?", "parameters"},
		{"SELECT nothing", "nothing"},
		{"SELEKT 1", "syntax error"},
		{"FROM none.frames", "none"},
		{"FROM frames('none')", "no run is named none (number of runs: 1: lyso_7)"},
		{"FROM frames('n*')", "matches n*"},
		{"FROM frames(NULL)", "NULL"},
		{"SELECT '\xff\xfe'", "not text in UTF-8"},
	};
	struct rig r;
	size_t i;

	rig_open(&r, dir);
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		want_error(&r, cases[i].sql, -EINVAL, cases[i].error);
	/* the session still works */
	want_answer(&r, "SELECT 40 + 2", "42");
	want_answer(&r, "SELECT 1; -- the end", "1");
	want_answer(&r, "WITH q AS (SELECT 7) FROM q", "7");
	want_answer(&r, "VALUES (3), (4)", "3");
	want_answer(&r, "DESCRIBE lyso_7.frames; ", "frame");
	want_answer(&r, "DESCRIBE lyso_7.frames; -- the end", "frame");
	want_answer(&r, "DESCRIBE lyso_7.frames -- ;\n; /* the ; end */\n", "frame");
	want_answer(
		&r, "SUMMARIZE SELECT E'\\'; --' AS \"a; -- \", $$; --$$; -- the end", "a; -- ");
	want_answer(&r, "SELECT a FROM (SELECT 1 a, 2 a)", "1");
	rig_close(&r);
}

static void
test_the_end_of_a_statement_is_found(void **state)
{
	static const struct {
		const char *text; /* up to its end */
		const char *rest;
	} cases[] = {
		{"", ""},
		{"", " ; -- c"},
		{"a", ""},
		{"a", ";"},
		{"a", "; -- c"},
		{"a", "; -- c\n"},
		{"a", " -- ; b\n;"},
		{"a -- b\n, c", "-- d"},
		{"a -- b\r, c", "-- d"},
		{"a", " /* ; */ ;\n"},
		{"a", "; /* /* b */ c */"},
		{"a", "; /* b"},
		{"a /* /* b */ */ c", ""},
		{"a ' ; -- '", ";"},
		{"a ''' ; -- '", "; -- '"},
		{"a \" ; -- ' \"", "; -- \""},
		{"a '\\'", "; -- '"},
		{"a e'\\' ; -- '", "; -- '"},
		{"a E'\\\\'", "; -- '"},
		{"a be'\\'", "; -- '"},
		{"a \"e\"'\\'", "; -- '"},
		{"a $$ ; -- $$", "; -- $$"},
		{"a $t$ ; -- $$ $t$", "; -- $t$"},
		{"a $1 + b$c$", "; -- $c$"},
		{"a - 1 / 2 * 3", ";"},
		{"a '", ""},
	};
	char sql[64];
	size_t i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		snprintf(sql, sizeof(sql), "%s%s", cases[i].text, cases[i].rest);
		if (sql_statement_length(sql) != strlen(cases[i].text))
			fail_msg("%s: %zu bytes, expected %zu", sql, sql_statement_length(sql),
				strlen(cases[i].text));
	}
}

/* Even SQL that passes the check of statements reaches no file and no setting. */
static void
test_the_engine_is_locked(void **state)
{
	static const char *const statements[] = {
		"COPY (SELECT 1) TO '/tmp/sql_test.csv'",
		"FROM read_csv('/etc/passwd')",
		"FROM read_text('/etc/passwd')",
		"FROM glob('/*')",
		"ATTACH '/tmp/sql_test.db'",
		"SET threads = 9",
		"SET enable_external_access = true",
		"SET lock_configuration = false",
		"SET temp_directory = '/tmp'",
		"INSTALL httpfs",
		"LOAD httpfs",
	};
	static const char settings[] =
		"SELECT value FROM duckdb_settings() WHERE name = 'temp_directory' AND value <> '' "
		"OR name = 'secret_directory' AND value <> '/nonexistent'";
	struct duckdb_result result;
	struct rig r;
	size_t i;

	rig_open(&r, dir);
	for (i = 0; i < sizeof(statements) / sizeof(statements[0]); i++) {
		if (api.query(r.session.connection, statements[i], &result) == DUCKDB_SUCCESS)
			fail_msg("%s: not refused", statements[i]);
		api.destroy_result(&result);
	}
	assert_int_equal(access("/tmp/sql_test.csv", F_OK), -1);
	assert_int_equal(api.query(r.session.connection, settings, &result), DUCKDB_SUCCESS);
	assert_null(api.fetch_chunk(result));
	api.destroy_result(&result);
	rig_close(&r);
}

static void
test_tables_have_the_rows_of_the_files(void **state)
{
	char sql[256];
	uint64_t last;
	struct rig r;

	rig_open(&r, dir);
	want_answer(&r, "SELECT count(*) FROM lyso_7.frames", "300");
	want_answer(&r, "SELECT count(*) FROM LYSO_7.FRAMES", "300");
	want_answer(&r, "SELECT count(*) FROM 'lyso_7_frames.arrow'", "300");
	want_answer(&r, "SELECT count(run) FROM frames", "300");
	want_answer(&r, "SELECT count(DISTINCT run) FROM images('l*7')", "1");
	want_answer(&r, "SELECT run FROM main.images LIMIT 1", "lyso_7");
	assert_int_equal(number(&r, "SELECT count(*) FROM lyso_7.images"),
		number(&r, "SELECT count(*) FROM lyso_7.frames WHERE verdict IN (1, 2, 3)"));
	/* named parameters, NULL: no limit */
	last = number(&r, "SELECT max(frame) FROM lyso_7.frames");
	snprintf(sql, sizeof(sql),
		"SELECT count(*) FROM frames('lyso_7', first := %lu, last := NULL)", last);
	want_answer(&r, sql, "1");
	want_answer(&r, "SELECT count(*) FROM frames('lyso_7', first := 9, last := 8)", "0");
	assert_int_equal(
		number(&r, "SELECT count(*) FROM images('lyso_7', first := 100, last := 200)"),
		number(&r,
			"SELECT count(*) FROM images('lyso_7') WHERE frame + 0 BETWEEN 100 AND "
			"200"));
	assert_int_equal(r.warnings, 0);
	assert_int_equal(r.catalog.damaged, 0);
	rig_close(&r);
}

static void
test_ranges_skip_batches(void **state)
{
	struct rig r;
	uint64_t read;

	rig_open(&r, dir);
	want_answer(&r, "SELECT count(*) FROM lyso_7.frames WHERE frame + 0 <= 20", "10");
	assert_int_equal(r.session.tables.skipped, 0);
	read = r.catalog.rows;
	assert_int_equal(read, FRAMES);
	want_answer(&r, "SELECT count(*) FROM lyso_7.frames WHERE frame <= 20", "10");
	assert_true(r.session.tables.skipped > 5);
	assert_true(r.catalog.rows - read < 64);
	assert_int_equal(r.catalog.rows, r.catalog.rows_total);
	/* a range that no row has */
	read = r.catalog.rows;
	want_answer(&r, "SELECT count(*) FROM lyso_7.frames WHERE frame < 0", "0");
	assert_int_equal(r.catalog.rows, read);
	rig_close(&r);
}

/* All names of a table are of one view, whose range covers all of them. */
static void
test_a_table_with_several_names_has_one_range(void **state)
{
	static const char *const names[][7] = {
		{"frames", "main.frames", "MAIN.\"Frames\"", "memory.frames", "Memory.main.frames",
			"\"memory\".\"frames\"", "'frames'"},
		{"lyso_7.frames", "LYSO_7.frames", "memory.lyso_7.frames", "\"lyso_7\".FRAMES"},
	};
	static const char *const forms[] = {
		"SELECT (SELECT count(*) FROM %s WHERE %s < 40) || ' ' || "
		"(SELECT count(*) FROM %s WHERE %s > 500)",
		"SELECT (SELECT count(*) FROM %s WHERE %s > 500) || ' ' || "
		"(SELECT count(*) FROM %s WHERE %s >= 0)",
		"WITH frames AS (FROM %s WHERE %s > 500) "
		"SELECT (SELECT count(*) FROM frames) || ' ' || "
		"(SELECT count(*) FROM %s q WHERE %s < 9)",
	};
	char sql[512], expected[64];
	struct rig r;
	size_t t, a, b, f;

	rig_open(&r, dir);
	for (t = 0; t < 2; t++) {
		for (a = 0; a < 7 && names[t][a] != NULL; a++) {
			for (b = a == 0 ? 1 : 0; b < (a == 0 ? 7 : 1) && names[t][b] != NULL; b++) {
				for (f = 0; f < 3; f++) {
					/* an expression gives no range */
					snprintf(sql, sizeof(sql), forms[f], names[t][a],
						"frame + 0", names[t][b], "frame + 0");
					assert_int_equal(
						ask(&r, sql, expected, sizeof(expected)), 0);
					snprintf(sql, sizeof(sql), forms[f], names[t][a], "frame",
						names[t][b], "frame");
					want_answer(&r, sql, expected);
				}
			}
		}
	}
	/* ranges of other tables stay */
	want_answer(&r,
		"SELECT (SELECT count(*) FROM lyso_7.frames WHERE frame <= 20) + count(*) FROM "
		"memory.frames WHERE frame < 0",
		"10");
	assert_true(r.session.tables.skipped > 0);
	rig_close(&r);
}

/* The analysis of a statement takes some kilobytes for each number, not for each pair of them. */
static void
test_long_lists_take_little_memory(void **state)
{
	char sql[64 + 2000 * 12];
	struct rig r;
	size_t i;
	int at;

	at = sprintf(sql, "SELECT count(*) FROM lyso_7.frames WHERE frame IN (1000000");
	for (i = 1; i < 2000; i++)
		at += sprintf(sql + at, ", %zu", 1000000 + i);
	strcpy(sql + at, ")");
	rig_open_with(&r, dir, &(struct sql_limits){.threads = 1, .memory = "256MB"});
	want_answer(&r, sql, "0");
	rig_close(&r);
}

/* Vectors that DuckDB gets, and the mapping in which their values must be. */
static const struct arrow_reader *spied;
static uint64_t spied_inside, spied_outside;
static void (*reference)(duckdb_vector to, duckdb_vector from);
static bool spy_lists;

static void
spy(duckdb_vector to, duckdb_vector from)
{
	duckdb_vector values = spy_lists ? api.list_vector_get_child(from) : from;
	const uint8_t *at = api.vector_get_data(values);

	if (at >= spied->data && at < spied->data + spied->size)
		spied_inside++;
	else
		spied_outside++;
	reference(to, from);
}

static void
test_vectors_refer_to_the_file(void **state)
{
	static const char *const columns[] = {"frame", "kind", "value", "col", "row_ptr"};
	char sql[256];
	struct rig r;
	size_t i;

	reference = api.vector_reference_vector;
	api.vector_reference_vector = spy;
	rig_open(&r, dir);
	want_answer(&r, "SELECT min(kind) FROM lyso_7.images LIMIT 0", "");
	spied = &sql_catalog_find(&r.catalog, "lyso_7")->table[ARROW_IMAGES].file[0].reader;
	for (i = 0; i < sizeof(columns) / sizeof(columns[0]); i++) {
		spy_lists = i > 1;
		spied_inside = spied_outside = 0;
		snprintf(sql, sizeof(sql), "SELECT count(%s) FROM lyso_7.images", columns[i]);
		if (i > 1)
			snprintf(sql, sizeof(sql), "SELECT sum(len(%s)) FROM lyso_7.images",
				columns[i]);
		number(&r, sql);
		if (spied_inside == 0 || spied_outside > 0)
			fail_msg("%s: %lu vectors in the file, %lu elsewhere", columns[i],
				spied_inside, spied_outside);
	}
	assert_int_equal(r.session.tables.copied, 0);
	assert_true(r.session.tables.referenced > 100000);
	api.vector_reference_vector = reference;
	rig_close(&r);
}

static int
no_reserve(duckdb_vector vector, uint64_t items)
{
	return DUCKDB_ERROR;
}

static void
test_copies_count_bytes_and_report_errors(void **state)
{
	int (*reserve)(duckdb_vector vector, uint64_t items) = api.list_vector_reserve;
	struct rig r;

	rig_open_with(&r, dir, &(struct sql_limits){.threads = 1, .fill = SQL_COPY});
	number(&r, "SELECT sum(frame) FROM lyso_7.frames");
	assert_int_equal(r.session.tables.copied, FRAMES * 8);
	assert_int_equal(r.session.tables.referenced, 0);
	api.list_vector_reserve = no_reserve;
	want_error(&r, "SELECT sum(len(col)) FROM lyso_7.images", -EIO, "not enough memory");
	api.list_vector_reserve = reserve;
	want_answer(&r, "SELECT count(*) FROM lyso_7.frames", "300");
	rig_close(&r);
}

/* Copy the run to a new directory `name`. */
static void
copy_run(const char *name, char path[256])
{
	snprintf(path, 256, "%s.%s", dir, name);
	shell("rm -rf '%s'; cp -r '%s' '%s'", path, dir, path);
}

static void
damage(const char *path, const char *file, long at)
{
	char name[512];
	FILE *f;
	int byte;

	snprintf(name, sizeof(name), "%s/%s", path, file);
	f = fopen(name, "r+b");
	assert_non_null(f);
	assert_int_equal(fseek(f, at, SEEK_SET), 0);
	byte = getc(f);
	assert_int_equal(fseek(f, at, SEEK_SET), 0);
	putc(byte ^ 0x40, f);
	assert_int_equal(fclose(f), 0);
}

static void
test_damaged_batches_are_left_out_and_reported_once(void **state)
{
	char path[256];
	uint64_t rows;
	struct rig r;

	copy_run("damaged", path);
	/* a byte in the body of the second batch of frames: each has one block of metadata */
	rig_open(&r, path);
	number(&r, "SELECT count(*) FROM lyso_7.frames");
	{
		const struct arrow_reader *reader =
			&sql_catalog_find(&r.catalog, "lyso_7")->table[ARROW_FRAMES].file[0].reader;
		const long at = reader->batches[1].offset + reader->batches[1].metadata_size + 77;

		rows = FRAMES - reader->batches[1].rows;
		rig_close(&r);
		damage(path, "lyso_7_frames.arrow", at);
	}
	rig_open(&r, path);
	assert_int_equal(number(&r, "SELECT count(*) FROM lyso_7.frames"), rows);
	assert_int_equal(r.warnings, 1);
	assert_non_null(strstr(r.warning, "batch 1 at byte"));
	assert_non_null(strstr(r.warning, "CRC-32C"));
	assert_int_equal(number(&r, "SELECT count(*) FROM lyso_7.frames WHERE frame >= 0"), rows);
	assert_int_equal(r.warnings, 1);
	assert_int_equal(r.catalog.damaged, 1);
	rig_close(&r);
	shell("rm -rf '%s'", path);
}

/* Get a column of the first batch of an open file. */
static struct arrow_column
column_of(const struct sql_file *f, const char *name, enum arrow_type type, enum arrow_type item)
{
	const int field = arrow_reader_find(&f->reader, name, type, item);
	struct arrow_column column = {.rows = 0};

	assert_true(field >= 0);
	assert_int_equal(arrow_reader_column(&f->reader, 0, field, &column), 0);
	return column;
}

/* Write an offset or a length that is not valid in the file, as another program may. */
static void
write_offset(const struct sql_file *f, const void *at)
{
	const int32_t offset = INT32_MAX;
	const int fd = open(f->path, O_WRONLY);

	assert_int_equal(pwrite(fd, &offset, sizeof(offset),
				 (const uint8_t *)at - (const uint8_t *)f->reader.data),
		sizeof(offset));
	close(fd);
}

/* Another program writes to a file after its check: an error, and no read outside of the file. */
static void
test_offsets_that_change_are_not_used(void **state)
{
	static const char sql[] = "SELECT sum(len(value) + value[1]) FROM lyso_7.images";
	struct arrow_column column;
	struct sql_file *file;
	char path[256];
	struct rig r;

	copy_run("changed", path);
	rig_open(&r, path);
	number(&r, sql);
	file = &sql_catalog_find(&r.catalog, "lyso_7")->table[ARROW_IMAGES].file[0];
	column = column_of(file, "value", ARROW_LIST, ARROW_FLOAT32);
	write_offset(file, column.offsets + column.rows);
	want_error(&r, sql, -EIO, "a file was changed during the query");
	rig_close(&r);
	shell("rm -rf '%s'", path);
}

/* The same for the offsets of chunks: the copies of a batch stay as they were checked. */
static void
test_offsets_of_chunks_that_change_are_not_used(void **state)
{
	static const char sql[] = "SELECT sum(len(value) + value[1]) FROM new.images";
	struct arrow_column value, raw;
	struct sql_chunks chunks = {0};
	int16_t *before, *after;
	struct sql_file *file;
	uint64_t row = 0, items;
	char path[256];
	struct rig r;

	snprintf(path, sizeof(path), "%s.chunks", dir);
	shell("rm -rf '%s'; mkdir '%s'; '%s' '%s' new int16+chunks 2 90 4", path, path,
		getenv("ARROW_WRITE"), path);
	rig_open(&r, path);
	number(&r, sql);
	file = &sql_catalog_find(&r.catalog, "new")->table[ARROW_IMAGES].file[0];
	value = column_of(file, "value", ARROW_LIST, ARROW_INT16);
	raw = column_of(file, "raw", ARROW_BINARY, 0);
	assert_int_equal(sql_chunks_open(&chunks, &file->reader, 0, &value), 0);
	assert_true(chunks.some);
	while (chunks.row[row].chunk == NULL)
		row++;
	items = chunks.row[row].items;
	before = calloc(items, sizeof(*before));
	after = calloc(items, sizeof(*after));
	assert_true(before != NULL && after != NULL);
	assert_int_equal(sql_chunks_copy(&chunks, row, before), 0);
	write_offset(file, raw.offsets + row + 1);
	assert_int_equal(chunks.row[row].items, items);
	assert_int_equal(sql_chunks_copy(&chunks, row, after), 0);
	assert_memory_equal(before, after, items * sizeof(*before));
	want_error(&r, sql, -EIO, "a file was changed during the query");
	free(before);
	free(after);
	sql_chunks_free(&chunks);
	rig_close(&r);
	shell("rm -rf '%s'", path);
}

/* Each query reads the frame numbers, also one whose columns do not have them. */
static void
test_frame_numbers_that_change_are_not_used(void **state)
{
	static const char sql[] = "SELECT max(bunch_id) FROM lyso_7.frames";
	struct sql_file *file;
	char path[256];
	struct rig r;

	copy_run("numbers", path);
	rig_open(&r, path);
	number(&r, sql);
	file = &sql_catalog_find(&r.catalog, "lyso_7")->table[ARROW_FRAMES].file[0];
	assert_int_equal(file->frame, 0);
	write_offset(file, file->reader.batches[0].nodes);
	want_error(&r, sql, -EIO, "a file was changed during the query");
	rig_close(&r);
	shell("rm -rf '%s'", path);
}

static void
test_files_that_are_not_tables_are_refused(void **state)
{
	char path[256];
	struct rig r;

	copy_run("wrong", path);
	shell("cp '%s/lyso_7_images.arrow' '%s/other_frames.arrow'", path, path);
	shell("echo nonsense > '%s/bad_frames.arrow'", path);
	shell("head -c 20000 '%s/lyso_7_frames.arrow' > '%s/part_frames.arrow.part'", path, path);
	rig_open(&r, path);
	want_error(&r, "FROM other.frames", -EINVAL, "does not match the table in its name");
	want_error(&r, "FROM bad.frames", -EINVAL, "not an Arrow IPC file");
	want_error(&r, "FROM other.images", -EINVAL, "run other has no file of the table images");
	want_error(&r, "FROM frames", -EINVAL, "bad_frames.arrow");
	/* a file in progress: its complete batches */
	assert_in_range(number(&r, "SELECT count(*) FROM part.frames"), 1, FRAMES - 1);
	assert_int_equal(r.warnings, 1);
	assert_non_null(strstr(r.warning, "part_frames.arrow.part: not complete"));
	rig_close(&r);
	shell("rm -rf '%s'", path);
}

static void
test_a_truncated_file_ends_the_query(void **state)
{
	const struct sql_file *f;
	char path[256];
	struct rig r;

	copy_run("cut", path);
	rig_open(&r, path);
	/* opens the file, but reads no batch */
	want_answer(&r, "SELECT count(*) FROM images('lyso_7', last := 0)", "0");
	f = &sql_catalog_find(&r.catalog, "lyso_7")->table[ARROW_IMAGES].file[0];
	assert_int_equal(truncate(f->path, f->reader.batches[2].offset), 0);
	want_error(&r, "SELECT sum(list_sum(col)) FROM lyso_7.images", -EIO, "truncated");
	want_error(&r, "SELECT 1", -EIO, "truncated");
	assert_true(map_guard_any_marked());
	rig_close(&r);
	assert_false(map_guard_any_marked());
	/* a new catalog sees the file as it is */
	rig_open(&r, path);
	assert_true(number(&r, "SELECT count(*) FROM lyso_7.images") > 0);
	assert_non_null(strstr(r.warning, "not complete"));
	rig_close(&r);
	shell("rm -rf '%s'", path);
}

/* A query fails: its error names a file without a directory, and the report has the path. */
static void
want_hidden(struct rig *r, const char *sql, int code, const char *expected, const char *path)
{
	want_error(r, sql, code, expected);
	if (strchr(r->session.error, '/') != NULL)
		fail_msg("%s: a path in %s", sql, r->session.error);
	if (strstr(r->warning, expected) == NULL || strstr(r->warning, path) == NULL)
		fail_msg("%s: reported %s, expected %s of %s", sql, r->warning, expected, path);
}

static void
test_paths_are_hidden_from_remote_readers(void **state)
{
	static const char *const tables[] = {"bad.frames", "images", "lyso_7.images"};
	const struct sql_file *f;
	char path[256], file[512];
	unsigned int warnings;
	struct rig r;
	size_t i;

	copy_run("hidden", path);
	shell("echo nonsense > '%s/bad_frames.arrow'; '%s' '%s' photons int16 2 10 4", path,
		getenv("ARROW_WRITE"), path);
	rig_open(&r, path);
	sql_catalog_hide_paths(&r.catalog);
	snprintf(file, sizeof(file), "%s/bad_frames.arrow: it does", path);
	want_hidden(&r, "FROM bad.frames", -EINVAL, "bad_frames.arrow: it does", file);
	snprintf(file, sizeof(file), "%s/lyso_7_images.arrow", path);
	want_hidden(&r, "FROM images", -EINVAL, "column value has another type in", file);
	assert_int_equal(r.warnings, 2);
	f = &sql_catalog_find(&r.catalog, "lyso_7")->table[ARROW_IMAGES].file[0];
	assert_int_equal(truncate(f->path, f->reader.batches[2].offset), 0);
	snprintf(file, sizeof(file), "%s/lyso_7_images.arrow: it", path);
	want_hidden(&r, "SELECT sum(list_sum(col)) FROM lyso_7.images", -EIO,
		"lyso_7_images.arrow: it was truncated", file);
	warnings = r.warnings;
	for (i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
		snprintf(file, sizeof(file), "SELECT max(frame) FROM %s", tables[i]);
		want_error(&r, file, -EIO, "truncated");
	}
	assert_int_equal(r.warnings, warnings);
	rig_close(&r);
	shell("rm -rf '%s'", path);
}

/* Each chunk of a result is checked for truncated files: open files cost nothing. */
static void
test_the_check_of_files_does_not_depend_on_their_number(void **state)
{
	static const char sql[] = "SELECT sum(list_sum(col)) FROM lyso_7.images";
	uint64_t one, many;
	char path[256];
	struct rig r;

	copy_run("number", path);
	shell("for i in 1 2 3 4 5 6 7 8 9; do ln '%s/lyso_7_images.arrow' "
	      "'%s/copy'$i'_images.arrow'; done",
		path, path);
	rig_open(&r, path);
	number(&r, sql);
	nb_guards = 0;
	number(&r, sql);
	one = nb_guards;
	number(&r, "SELECT count(*) FROM images");
	nb_guards = 0;
	number(&r, sql);
	many = nb_guards;
	if (one == 0 || many != one)
		fail_msg("%lu guards with one open file, %lu with ten", one, many);
	rig_close(&r);
	shell("rm -rf '%s'", path);
}

static void
test_a_file_may_be_truncated_while_it_is_opened(void **state)
{
	char path[256], file[512];
	struct rig r;

	copy_run("cut", path);
	snprintf(file, sizeof(file), "%s/lyso_7_frames.arrow", path);
	rig_open(&r, path);
	cut_path = file;
	want_error(&r, "SELECT count(*) FROM lyso_7.frames", -EINVAL, "it was truncated during");
	cut_path = NULL;
	want_error(&r, "SELECT count(*) FROM lyso_7.frames", -EINVAL, "it is empty");
	want_answer(&r, "SELECT count(*) > 0 FROM lyso_7.images", "true");
	rig_close(&r);
	shell("rm -rf '%s'", path);
}

static void
test_names_of_runs_are_quoted(void **state)
{
	static const char *const names[] = {
		"main.frames", "\"MAIN\".frames", "memory.main.frames", "frames, main.frames b"};
	char path[256], sql[128];
	struct rig r;
	size_t i;

	copy_run("names", path);
	shell("cd '%s' && for t in frames images; do cp lyso_7_$t.arrow \"a\\\"b'c;_$t.arrow\" && "
	      "cp lyso_7_$t.arrow \"main_$t.arrow\" && cp lyso_7_$t.arrow '[x]*_'$t.arrow; done",
		path);
	rig_open(&r, path);
	want_answer(&r, "SELECT count(*) FROM \"a\"\"b'c;\".frames", "300");
	want_answer(&r, "SELECT count(*) FROM frames('a\"b''c;')", "300");
	/* the name of a run is not a pattern; a pattern has the column run */
	want_answer(&r, "SELECT count(*) FROM \"[x]*\".frames", "300");
	want_error(&r, "SELECT run FROM frames('[x]*')", -EINVAL, "run");
	want_answer(&r, "SELECT count(DISTINCT run) FROM frames", "4");
	/* main.frames could be of all runs, or of this one */
	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(sql, sizeof(sql), "SELECT count(*) FROM %s", names[i]);
		want_error(&r, sql, -EINVAL,
			"found a run with the name of a schema or database of DuckDB: use "
			"frames('main') for this run, or frames for all runs");
	}
	want_answer(&r, "SELECT count(*) FROM frames('main')", "300");
	want_answer(&r, "SELECT count(*) FROM 'main_frames.arrow'", "300");
	want_answer(&r, "SELECT count(*) FROM memory.frames", "1200");
	rig_close(&r);
	/* the same for a database; the schema main has the tables of all runs */
	shell("cd '%s' && for t in frames images; do mv main_$t.arrow memory_$t.arrow; done", path);
	rig_open(&r, path);
	want_error(&r, "FROM images, memory.images b", -EINVAL, "use images('memory') for this");
	want_error(&r, "FROM memory.memory.images", -EINVAL, "use images('memory') for this run");
	want_answer(&r, "SELECT count(*) FROM memory.main.frames", "1200");
	rig_close(&r);
	/* names of SQL ignore case */
	shell("cd '%s' && for t in frames images; do mv memory_$t.arrow Lyso_7_$t.arrow; done",
		path);
	rig_open(&r, path);
	want_error(&r, "FROM lyso_7.frames", -EINVAL,
		"found Lyso_7 and lyso_7, which are the same name in SQL: use frames('Lyso_7') or "
		"frames('lyso_7')");
	want_answer(&r, "SELECT count(*) FROM frames('lyso_7')", "300");
	rig_close(&r);
	shell("rm -rf '%s'", path);
}

/* Files of stores have the run's name before the incarnation. Those of two stores are one run. */
static void
test_files_of_stores_are_one_run(void **state)
{
	static const char run[] = "lyso_7-0123456789abcdef-000000000000002a";
	struct scan_list list = {0};
	struct sql_catalog c;
	char path[512];
	unsigned int i;

	for (i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s.store%u/%s", dir, i, run);
		shell("mkdir -p '%s'; for t in frames images; do cp '%s'/lyso_7_$t.arrow "
		      "'%s'/lyso_7_fedcba987654321%u_000001_$t.arrow; done",
			path, dir, path, i);
		assert_int_equal(scan_list_add(&list, path), 0);
	}
	assert_int_equal(sql_catalog_create(&c, &list, NULL, NULL), 0);
	scan_list_free(&list);
	assert_int_equal(c.nb_runs, 1);
	assert_string_equal(c.run[0].name, "lyso_7");
	assert_int_equal(c.run[0].table[ARROW_FRAMES].nb, 2);
	assert_int_equal(c.run[0].table[ARROW_IMAGES].nb, 2);
	assert_ptr_equal(sql_catalog_find(&c, "LYSO_7"), &c.run[0]);
	assert_null(sql_catalog_find(&c, "lyso"));
	sql_catalog_destroy(&c);
	shell("rm -r '%s.store0' '%s.store1'", dir, dir);
}

static void
test_sets_and_columns_of_several_runs_are_merged(void **state)
{
	char path[256];
	struct rig r;

	snprintf(path, sizeof(path), "%s.sets", dir);
	shell("rm -rf '%s'; mkdir '%s'", path, path);
	shell("'%s' '%s' a_000001 float32 2 40 1 && '%s' '%s' a_000002 float32 2 30 2 && "
	      "'%s' '%s' p float32+peaks+radial 2 20 3 && '%s' '%s' q int16 2 10 4",
		getenv("ARROW_WRITE"), path, getenv("ARROW_WRITE"), path, getenv("ARROW_WRITE"),
		path, getenv("ARROW_WRITE"), path);
	rig_open(&r, path);
	want_answer(&r, "SELECT count(*) FROM a.frames", "70");
	/* columns that a run lacks are NULL */
	want_answer(&r,
		"SELECT count(*) FROM frames WHERE run = 'a' AND peaks IS NULL AND "
		"shell_peaks IS NULL",
		"70");
	want_answer(&r, "SELECT count(shell_peaks) FROM frames", "20");
	want_answer(&r, "SELECT typeof(radial_sum) FROM p.frames LIMIT 1", "BIGINT[7]");
	want_answer(&r, "SELECT typeof(radial_count) FROM p.frames LIMIT 1", "UINTEGER[7]");
	/* null of frames that no gang has processed, in both columns */
	want_answer(&r,
		"SELECT count(radial_sum) BETWEEN 5 AND 19 AND count(*) = 20 AND count(*) FILTER "
		"(radial_sum IS NULL) = count(*) FILTER (radial_count IS NULL) FROM p.frames",
		"true");
	want_answer(&r, "SELECT count(*) FROM frames", "100");
	want_error(&r, "FROM images", -EINVAL, "column value has another type in");
	want_error(&r, "FROM images", -EINVAL, ": query these runs one by one");
	want_answer(&r, "SELECT typeof(value) FROM q.images LIMIT 1", "SMALLINT[]");
	rig_close(&r);
	rig_open_with(&r, path, &(struct sql_limits){.threads = 2, .fill = SQL_COPY});
	want_answer(&r, "SELECT count(*) FROM frames WHERE shell_peaks IS NULL", "80");
	rig_close(&r);
	shell("rm -rf '%s'", path);
}

/* Two directories have a run of the same name: no query can read one of them. */
static void
test_types_that_differ_between_directories(void **state)
{
	static const char sql[] = "FROM lyso_7.images";
	struct scan_list list = {0};
	char path[256], files[1024];
	struct rig r;

	memset(&r, 0, sizeof(r));
	copy_run("types", path);
	shell("rm '%s'/lyso_7_*; '%s' '%s' lyso_7 int16 2 10 4", path, getenv("ARROW_WRITE"), path);
	assert_int_equal(scan_list_add(&list, dir), 0);
	assert_int_equal(scan_list_add(&list, path), 0);
	assert_int_equal(sql_catalog_create(&r.catalog, &list, keep_warning, &r), 0);
	scan_list_free(&list);
	assert_int_equal(
		sql_session_open(&r.session, &api, &r.catalog, &(struct sql_limits){.threads = 1}),
		0);
	snprintf(files, sizeof(files),
		"in %s/lyso_7_images.arrow than in %s/lyso_7_images.arrow, both of run lyso_7: ",
		path, dir);
	want_error(&r, sql, -EINVAL, files);
	want_error(&r, sql, -EINVAL, ": give only one of these files, or of their directories");
	assert_int_equal(r.warnings, 0);
	sql_catalog_hide_paths(&r.catalog);
	want_error(&r, sql, -EINVAL,
		"in lyso_7_images.arrow than in lyso_7_images.arrow, both of run lyso_7: give the "
		"server only one of these files, or of their directories");
	assert_non_null(strstr(r.warning, files));
	rig_close(&r);
	shell("rm -rf '%s'", path);
}

/* Execute a statement with lists deferred. @return names of the deferred columns */
static const char *
deferred_by(struct rig *r, const char *sql)
{
	static char names[1024];

	if (sql_session_execute(&r->session, sql, SQL_NATIVE) < 0)
		fail_msg("%s: %s", sql, r->session.error);
	(void)sql_session_deferred(&r->session, names, sizeof(names));
	return names;
}

/* Lists are deferred if the result needs nothing but these columns. */
static void
test_lists_are_deferred_where_their_values_are_not_needed(void **state)
{
	static const struct {
		const char *sql;
		const char *names; /* of the columns that are deferred */
	} cases[] = {
		{"SELECT frame, col, value FROM lyso_7.images", "col, value"},
		{"SELECT COL, Value AS v FROM images WHERE frame > 30", "col, v"},
		{"SELECT t.col, t.raw FROM memory.lyso_7.images t WHERE kind < 2", "col, raw"},
		{"FROM lyso_7.images", "row_ptr, col, value, raw, missing"},
		{"SELECT t.* EXCLUDE (row_ptr, value) FROM lyso_7.images t", "col, raw, missing"},
		{"SELECT value FROM images('lyso_7', first := 30)", "value"},
		{"SELECT value FROM 'lyso_7_images.arrow'", "value"},
		{"SELECT a.value, b.nnz FROM lyso_7.images a JOIN lyso_7.frames b USING (frame) "
		 "WHERE nnz > 5 ORDER BY frame DESC LIMIT 7 OFFSET 1",
			"value"},
		{"SELECT a.value, b.col FROM lyso_7.images a LEFT JOIN lyso_7.images b ON "
		 "a.frame = b.frame + 1",
			"value, col"},
		{"SELECT value FROM lyso_7.images WHERE frame IN (SELECT frame FROM lyso_7.frames "
		 "WHERE nnz > 5)",
			"value"},
		{"WITH q AS (SELECT frame FROM lyso_7.frames WHERE nnz > 5) SELECT value FROM "
		 "lyso_7.images JOIN q USING (frame)",
			"value"},
		{"SELECT value, count(*) OVER (PARTITION BY kind) FROM lyso_7.images", "value"},
		{"SELECT value, value AS v, [frame], frame + 1 FROM lyso_7.images ORDER BY frame",
			"value, v"},
		{"SELECT value AS v, v AS w FROM lyso_7.images ORDER BY frame", "v, w"},
		/* one column is used, the others are not */
		{"SELECT col, value FROM lyso_7.images WHERE len(col) > 9", "value"},
		{"SELECT col, value, raw FROM lyso_7.images WHERE raw IS NULL ORDER BY len(col)",
			"value"},
		{"SELECT col, value, len(lyso_7.images.value) FROM lyso_7.images", "col"},
		{"SELECT *, value AS v FROM lyso_7.images WHERE v IS NOT NULL",
			"row_ptr, col, raw, missing"},
		{"SELECT value AS v, v AS w, col FROM lyso_7.images ORDER BY w", "col"},
		{"SELECT value AS frame, col FROM lyso_7.images ORDER BY frame", "col"},
		{"SELECT a.value, a.col FROM lyso_7.images a JOIN lyso_7.images b USING (frame, "
		 "col)",
			"value"},
		{"SELECT value, raw FROM lyso_7.images a WHERE EXISTS (SELECT 1 FROM lyso_7.images "
		 "b WHERE a.raw = b.raw)",
			"value"},
		/* all values are needed, or it is not known */
		{"SELECT frame FROM lyso_7.images", ""},
		{"SELECT len(value) FROM lyso_7.images", ""},
		{"SELECT [value] FROM lyso_7.images", ""},
		{"SELECT CASE WHEN kind = 0 THEN value END FROM lyso_7.images", ""},
		{"SELECT DISTINCT value FROM lyso_7.images", ""},
		{"SELECT DISTINCT ON (frame) value FROM lyso_7.images", ""},
		{"SELECT value FROM lyso_7.images ORDER BY value", ""},
		{"SELECT value FROM lyso_7.images ORDER BY 1", ""},
		{"SELECT value FROM lyso_7.images ORDER BY ALL", ""},
		{"SELECT value FROM lyso_7.images GROUP BY value", ""},
		{"SELECT value FROM lyso_7.images GROUP BY 1", ""},
		{"SELECT value FROM lyso_7.images GROUP BY ALL", ""},
		{"SELECT max(value) FROM lyso_7.images", ""},
		{"SELECT any_value(value) FROM lyso_7.images", ""},
		{"SELECT value FROM lyso_7.images UNION ALL SELECT value FROM lyso_7.images", ""},
		{"SELECT value FROM (FROM lyso_7.images) q", ""},
		{"SELECT value FROM (SELECT value FROM lyso_7.images) q", ""},
		{"WITH q AS (FROM lyso_7.images) SELECT value FROM q", ""},
		{"SELECT value FROM lyso_7.images WHERE frame IN (SELECT t FROM (SELECT frame t, * "
		 "FROM lyso_7.frames))",
			""},
		{"SELECT COLUMNS('value') FROM lyso_7.images", ""},
		{"SELECT * REPLACE (frame + 1 AS frame) FROM lyso_7.images", ""},
		{"SELECT images FROM lyso_7.images", ""},
		{"SELECT t, value FROM lyso_7.images t", ""},
		{"SELECT value FROM lyso_7.images t ORDER BY t", ""},
		{"SELECT value, t.b FROM lyso_7.images t(a, b)", ""},
		{"SELECT value FROM lyso_7.images a NATURAL JOIN (SELECT frame FROM frames) b", ""},
		{"SELECT value FROM lyso_7.images TABLESAMPLE 100%", ""},
		{"SELECT value FROM lyso_7.images USING SAMPLE 100%", ""},
		{"SELECT value, column_name FROM lyso_7.images, duckdb_columns() LIMIT 1", ""},
		{"SELECT value, data_type FROM lyso_7.images, information_schema.columns LIMIT 1",
			""},
		{"SELECT unnest(value) FROM lyso_7.images", ""},
		{"SELECT value, u FROM lyso_7.images, unnest(value) t(u)", ""},
		{"SELECT #1 FROM (SELECT 1), lyso_7.images", ""},
		{"DESCRIBE lyso_7.images", ""},
		{"SELECT 1", ""},
	};
	const char *names;
	struct rig r;
	size_t i;

	rig_open_with(&r, dir, &(struct sql_limits){.threads = 1, .defer = true});
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		names = deferred_by(&r, cases[i].sql);
		if (strcmp(names, cases[i].names) != 0)
			fail_msg("%s: deferred are: %s, expected: %s", cases[i].sql, names,
				cases[i].names);
	}
	/* only results as Arrow */
	want_answer(
		&r, "SELECT len(value) > 0, value FROM lyso_7.images WHERE len(value) > 0", "true");
	assert_string_equal(deferred_by(&r, "SELECT 1"), "");
	rig_close(&r);
	/* nor if the reader of results does not ask for it */
	rig_open(&r, dir);
	assert_string_equal(deferred_by(&r, "SELECT value FROM lyso_7.images"), "");
	rig_close(&r);
}

/* What DuckDB shows of tables is not changed by a statement before. */
static void
test_types_of_deferred_columns_are_not_seen(void **state)
{
	static const char types[] = "SELECT string_agg(DISTINCT data_type) FROM duckdb_columns() "
				    "WHERE column_name = 'value'";
	struct rig r;

	rig_open_with(&r, dir, &(struct sql_limits){.threads = 1, .defer = true});
	want_answer(&r, "SELECT count(value) > 0 FROM lyso_7.images", "true");
	want_answer(&r, types, "FLOAT[]");
	assert_string_equal(deferred_by(&r, "SELECT value FROM lyso_7.images"), "value");
	want_answer(&r, types, "FLOAT[]");
	assert_string_equal(deferred_by(&r, "SELECT value FROM lyso_7.images"), "value");
	want_answer(&r, "SELECT typeof(value) FROM lyso_7.images LIMIT 1", "FLOAT[]");
	rig_close(&r);
}

static void
test_explain_says_which_lists_are_deferred(void **state)
{
	struct rig r;

	rig_open_with(&r, dir, &(struct sql_limits){.threads = 1, .defer = true});
	want_answer(&r, "SELECT 1", "1");
	want_answer(&r, "EXPLAIN SELECT value FROM lyso_7.images", "lists");
	assert_string_equal(deferred_by(&r, "EXPLAIN SELECT value FROM lyso_7.images"), "");
	rig_close(&r);
}

/* Append rows of a column: NULL or not, number of items, bytes. */
static void
put_column(FILE *out, const struct ArrowSchema *f, const struct ArrowArray *a,
	const struct ipc_values *v)
{
	const uint8_t *validity = a->buffers[0], *at = a->buffers[1];
	const bool is_list = f->n_children > 0;
	const int32_t *offsets = a->buffers[1];
	uint8_t *bytes = malloc(v->size + 1);
	struct ipc_type type;
	int64_t i, items;
	size_t k;

	assert_non_null(bytes);
	assert_int_equal(ipc_type_read(is_list ? f->children[0]->format : f->format, &type), 0);
	if (v->is_set) {
		uint8_t *to = bytes;

		for (k = 0; k < v->nb; to += v->piece[k++].size)
			memcpy(to, v->piece[k].bytes, v->piece[k].size);
		assert_int_equal(to - bytes, v->size);
		at = bytes;
	}
	for (i = 0; i < a->length; i++) {
		items = is_list ? offsets[i + 1] - offsets[i] : 1;
		fprintf(out, "%d %d ", validity == NULL || (validity[i / 8] >> i % 8 & 1),
			(int)items);
		fwrite(at, type.width, items, out);
		at += items * type.width;
	}
	free(bytes);
}

static int
keep_body(void *arg, const void *metadata, size_t size, const struct ipc_buffer *buffer, size_t nb,
	uint64_t body)
{
	*(uint64_t *)arg = body;
	return 0;
}

/* Rows of a result column by column, read in batches of a size. @param nb  out: batches */
static char *
read_rows(struct rig *r, const char *sql, uint64_t batch_bytes, size_t *length, uint64_t *nb)
{
	struct {
		FILE *out;
		char *bytes;
		size_t size;
	} column[8], all;
	uint64_t body = 0;
	const struct ipc_sink sink = {keep_body, &body};
	const struct ArrowSchema *schema;
	struct sql_reader *reader;
	struct ipc_stream ipc;
	struct sql_batch batch;
	int64_t i;

	assert_int_equal(sql_session_execute(&r->session, sql, SQL_NATIVE), 0);
	assert_int_equal(sql_reader_open(&reader, &r->session), 0);
	sql_reader_batch_bytes(reader, batch_bytes);
	schema = sql_reader_schema(reader);
	assert_in_range(schema->n_children, 1, 8);
	assert_int_equal(ipc_stream_begin_messages(&ipc, &sink, schema), 0);
	for (i = 0; i < schema->n_children; i++)
		column[i].out = open_memstream(&column[i].bytes, &column[i].size);
	for (*nb = 0;; ++*nb) {
		assert_int_equal(sql_reader_next(reader, &batch), 0);
		if (batch.array == NULL)
			break;
		assert_int_equal(ipc_stream_batch_values(&ipc, batch.array, batch.values), 0);
		if (batch_bytes > 0 && batch.array->length > 1)
			assert_in_range(body, 1, batch_bytes);
		for (i = 0; i < schema->n_children; i++)
			put_column(column[i].out, schema->children[i], batch.array->children[i],
				&batch.values[i]);
	}
	/* the end stays the end */
	assert_int_equal(sql_reader_next(reader, &batch), 0);
	assert_null(batch.array);
	all.out = open_memstream(&all.bytes, &all.size);
	for (i = 0; i < schema->n_children; i++) {
		fclose(column[i].out);
		fwrite(column[i].bytes, column[i].size, 1, all.out);
		free(column[i].bytes);
	}
	fclose(all.out);
	sql_reader_close(reader);
	*length = all.size;
	return all.bytes;
}

/* Batches of any size have the same rows. */
static void
test_chunks_are_split_and_joined(void **state)
{
	static const struct {
		const char *sql;
		bool is_large; /* chunks are larger than 4 KiB */
	} cases[] = {
		{"SELECT i, CASE WHEN i % 3 > 0 THEN i * 2 END a, "
		 "CASE WHEN i NOT BETWEEN 5000 AND 5100 THEN i::FLOAT END b "
		 "FROM range(20000) t(i) WHERE i % 7 < 5",
			true},
		{"SELECT (i % 200)::UTINYINT a FROM range(100000) t(i)"},
		{"SELECT frame, col, value FROM lyso_7.images WHERE frame % 3 > 0", true},
	};
	static const uint64_t sizes[] = {1, 4096, 50000, 1 << 20};
	uint64_t chunks, batches;
	size_t i, k, size, length;
	char *rows, *same;
	struct rig r;

	rig_open_with(&r, dir, &(struct sql_limits){.threads = 1, .defer = true});
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		rows = read_rows(&r, cases[i].sql, 0, &size, &chunks);
		assert_true(size > 0);
		for (k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
			same = read_rows(&r, cases[i].sql, sizes[k], &length, &batches);
			assert_int_equal(length, size);
			assert_memory_equal(same, rows, size);
			if (sizes[k] == 4096 && cases[i].is_large)
				assert_true(batches > chunks);
			/* 49 chunks: 1, 2, 4, 8, 16 and the rest */
			if (sizes[k] == 1 << 20 && strstr(cases[i].sql, "UTINYINT") != NULL)
				assert_true(batches < chunks / 4);
			free(same);
		}
		free(rows);
	}
	rig_close(&r);
}

/* The first rows of a result come before the engine has read all of a run. */
static void
test_first_rows_come_early(void **state)
{
	static const char sql[] = "SELECT frame, col, value FROM lyso_7.images";
	duckdb_chunk chunk;
	struct rig r;

	rig_open_with(&r, dir, &(struct sql_limits){.threads = 1, .defer = true});
	assert_int_equal(sql_session_execute(&r.session, sql, SQL_NATIVE), 0);
	assert_int_equal(sql_session_fetch(&r.session, &chunk), 0);
	assert_non_null(chunk);
	assert_in_range(r.catalog.rows, 1, r.catalog.rows_total / 4);
	api.destroy_data_chunk(&chunk);
	rig_close(&r);
}

/* The engine has few chunks of handles, with the rows of many small batches in their order. */
static void
test_handles_of_several_batches_are_one_chunk(void **state)
{
	static const char sql[] = "SELECT frame, kind, value, missing FROM lyso_7.images";
	const struct sql_files *images;
	uint64_t chunks = 0, rows = 0, batches = 0, i;
	duckdb_chunk chunk;
	const uint64_t *frame;
	struct rig r;

	rig_open_with(&r, dir, &(struct sql_limits){.threads = 1, .defer = true, .join = true});
	assert_int_equal(sql_session_execute(&r.session, sql, SQL_NATIVE), 0);
	images = &sql_catalog_find(&r.catalog, "lyso_7")->table[ARROW_IMAGES];
	for (i = 0; i < images->nb; i++)
		batches += images->file[i].reader.nb_batches;
	while (sql_session_fetch(&r.session, &chunk) == 0 && chunk != NULL) {
		frame = api.vector_get_data(api.data_chunk_get_vector(chunk, 0));
		for (i = 1; i < api.data_chunk_get_size(chunk); i++)
			assert_true(frame[i] > frame[i - 1]);
		rows += api.data_chunk_get_size(chunk);
		chunks++;
		api.destroy_data_chunk(&chunk);
	}
	assert_int_equal(rows, number(&r, "SELECT count(*) FROM lyso_7.images"));
	if (chunks * 3 > batches)
		fail_msg("%lu chunks of %lu batches", chunks, batches);
	rig_close(&r);
}

/* A statement that is executed again has the same rows, whatever was executed between. */
static void
test_statements_are_kept(void **state)
{
	static const char *const statements[] = {
		"SELECT frame, col, value FROM lyso_7.images WHERE frame < 40",
		"SELECT frame, nnz FROM lyso_7.frames WHERE frame BETWEEN 20 AND 60",
		/* the same views with other ranges, and with other deferred columns */
		"SELECT frame, col FROM lyso_7.images WHERE frame > 500 AND len(value) > 0",
		"SELECT frame, len(col) AS n FROM lyso_7.images WHERE frame = 30",
		"SELECT frame FROM lyso_7.frames WHERE frame > 500",
		"SELECT count(*) AS n FROM duckdb_columns() WHERE data_type = 'FLOAT[]'",
		"SELECT a.frame, value FROM lyso_7.images a JOIN frames b USING (frame) WHERE nnz "
		"> 5",
		/* planned again each time */
		"SELECT value, (now() > '2000-01-01')::INTEGER AS n FROM lyso_7.images WHERE frame "
		"< 40",
	};
	enum {
		NB = sizeof(statements) / sizeof(statements[0])
	};
	char *rows[NB], *same, deferred[NB][64], sql[64], answer[2][64];
	size_t size[NB], length, i, k;
	uint64_t batches;
	struct rig r;

	for (i = 0; i < NB; i++) {
		rig_open_with(&r, dir, &(struct sql_limits){.threads = 1, .defer = true});
		/* views exist, without deferred columns */
		want_answer(&r, "SELECT count(value) > 0 FROM lyso_7.images, frames", "true");
		rows[i] = read_rows(&r, statements[i], 0, &size[i], &batches);
		(void)sql_session_deferred(&r.session, deferred[i], sizeof(deferred[i]));
		rig_close(&r);
	}
	assert_string_equal(deferred[0], "col, value");
	assert_string_equal(deferred[2], "col");
	rig_open_with(&r, dir, &(struct sql_limits){.threads = 1, .defer = true});
	want_answer(&r, "SELECT count(value) > 0 FROM lyso_7.images, frames", "true");
	for (i = 0; i < 2 * NB * NB; i++) {
		/* each one after each other one, and after itself */
		k = i % 2 == 0 ? i / 2 % NB : (i / 2 / NB + i / 2) % NB;
		same = read_rows(&r, statements[k], 0, &length, &batches);
		(void)sql_session_deferred(&r.session, answer[0], sizeof(answer[0]));
		if (length != size[k] || memcmp(same, rows[k], length) != 0)
			fail_msg("%s: other rows than at first", statements[k]);
		assert_string_equal(answer[0], deferred[k]);
		free(same);
	}
	for (i = 0; i < NB; i++)
		free(rows[i]);
	/* each execution has its own time, also if the plan is kept */
	for (i = 0; i < 2; i++) {
		same = read_rows(&r, "SELECT epoch_us(now()) AS t", 0, &length, &batches);
		assert_in_range(length, 1, sizeof(answer[i]) - 1);
		memcpy(answer[i], same, length);
		free(same);
	}
	assert_memory_not_equal(answer[0], answer[1], length);
	/* their number has a limit */
	for (i = 0; i < 2 * SQL_PREPARED_MAX; i++) {
		snprintf(sql, sizeof(sql), "SELECT %zu::UBIGINT AS n", i);
		assert_int_equal(sql_session_execute(&r.session, sql, SQL_NATIVE), 0);
	}
	assert_int_equal(r.session.prepared.nb, SQL_PREPARED_MAX);
	/* the present one is in none of these places */
	assert_string_equal(r.session.present.sql, "SELECT 31::UBIGINT AS n");
	assert_string_equal(r.session.prepared.entry[0].sql, "SELECT 30::UBIGINT AS n");
	/* the plan has the constant, which is 16 MB */
	want_answer(&r, "SELECT len(range(2000000))", "2000000");
	assert_int_equal(sql_session_execute(&r.session, "SELECT 1 AS n", SQL_NATIVE), 0);
	assert_string_not_equal(r.session.prepared.entry[0].sql, "SELECT len(range(2000000))");
	/* an error is not kept */
	assert_true(sql_session_execute(&r.session, "SELECT nothing", SQL_NATIVE) < 0);
	assert_null(r.session.present.sql);
	/* a run has one view, however its name is written */
	want_answer(&r, "SELECT count(*) FROM lyso_7.frames", "300");
	k = r.session.nb_views;
	want_answer(&r, "SELECT count(*) FROM LYSO_7.frames", "300");
	assert_int_equal(r.session.nb_views, k);
	/* the function of views has the range of the statement */
	want_error(&r, "FROM view_frames('lyso_7')", -EINVAL, "view_frames: not allowed");
	rig_close(&r);
}

/* The check of batches does not count as time of a statement, and is done once in a session. */
static void
test_checks_are_no_cost_of_a_statement(void **state)
{
	static const char sql[] = "SELECT frame, nnz FROM lyso_7.frames WHERE nnz > 5";
	unsigned int first;
	uint64_t batches;
	size_t length;
	struct rig r;

	rig_open(&r, dir);
	nb_checks = 0;
	/* longer than the statement itself on any machine */
	check_takes_ns = UINT64_C(300000000);
	free(read_rows(&r, sql, 0, &length, &batches));
	first = nb_checks;
	assert_true(length > 0 && first > 0);
	assert_in_range(r.session.cost, 1, check_takes_ns);
	free(read_rows(&r, sql, 0, &length, &batches));
	assert_true(length > 0);
	assert_int_equal(nb_checks, first);
	check_takes_ns = 0;
	rig_close(&r);
}

/* Bytes of a file that was truncated are not part of a result. */
static void
test_a_truncated_file_ends_a_deferred_query(void **state)
{
	struct sql_reader *reader;
	const struct sql_file *f;
	struct sql_batch batch;
	char path[256];
	struct rig r;
	uint64_t i;
	int ret;

	copy_run("gone", path);
	rig_open_with(&r, path, &(struct sql_limits){.threads = 1, .defer = true});
	/* the CRC of all batches is checked */
	assert_true(number(&r, "SELECT count(value) FROM lyso_7.images") > 0);
	assert_string_equal(deferred_by(&r, "SELECT value FROM lyso_7.images"), "value");
	assert_int_equal(sql_reader_open(&reader, &r.session), 0);
	assert_int_equal(sql_reader_next(reader, &batch), 0);
	assert_non_null(batch.array);
	assert_true(batch.deferred > 0);
	f = &sql_catalog_find(&r.catalog, "lyso_7")->table[ARROW_IMAGES].file[0];
	assert_int_equal(truncate(f->path, f->reader.batches[0].offset), 0);
	assert_null(sql_catalog_unreadable(&r.catalog));
	for (i = 0; i < batch.values[0].nb; i++) {
		char byte;

		ipc_body_copy(&byte, &batch.values[0].piece[i], 1, 0, 1);
		assert_int_equal(byte, 0);
	}
	assert_non_null(sql_catalog_unreadable(&r.catalog));
	do {
		ret = sql_reader_next(reader, &batch);
	} while (ret == 0 && batch.array != NULL);
	assert_int_equal(ret, -EIO);
	assert_non_null(strstr(r.session.error, "truncated"));
	sql_reader_close(reader);
	rig_close(&r);
	shell("rm -rf '%s'", path);
}

/* Handles and offsets are checked, whatever the engine or another process makes of them. */
static void
test_wrong_handles_are_refused(void **state)
{
	int32_t offsets[] = {0, 2, 5, 4};
	const struct arrow_field field = {.type = ARROW_LIST, .item = ARROW_UINT16};
	const struct arrow_column column = {
		.field = &field, .rows = 3, .offsets = offsets, .data = offsets, .items = 5};
	static const struct {
		struct sql_handle handle;
		uint32_t width;
		int ret;
		uint32_t items;
	} cases[] = {
		{{0, 0}, 2, 0, 2},
		{{0, 1}, 2, 0, 3},
		{{0, 1}, 4, -EBADMSG, 0},
		{{0, 2}, 2, -EBADMSG, 0},
		{{0, 3}, 2, -EBADMSG, 0},
		{{1, 0}, 2, -EBADMSG, 0},
		{{UINT32_MAX, UINT32_MAX}, 2, -EBADMSG, 0},
	};
	const uint64_t null = 0;
	struct sql_list_range range;
	struct sql_lists lists;
	uint32_t number;
	size_t i;

	sql_lists_init(&lists);
	assert_int_equal(sql_lists_add(&lists, &column, &number), 0);
	assert_int_equal(number, 0);
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(sql_lists_resolve(
					 &lists, &cases[i].handle, NULL, 1, cases[i].width, &range),
			cases[i].ret);
		if (cases[i].ret == 0)
			assert_int_equal(range.items, cases[i].items);
		/* a row that is NULL has no handle */
		assert_int_equal(
			sql_lists_resolve(&lists, &cases[i].handle, &null, 1, 2, &range), 0);
		assert_int_equal(range.items, 0);
	}
	offsets[1] = 6;
	assert_int_equal(sql_lists_resolve(&lists, &cases[0].handle, NULL, 1, 2, &range), -EBADMSG);
	offsets[1] = -1;
	assert_int_equal(sql_lists_resolve(&lists, &cases[0].handle, NULL, 1, 2, &range), -EBADMSG);
	assert_false(sql_lists_fit(ARROW_LIST, UINT64_C(1) << 32));
	assert_true(sql_lists_fit(ARROW_BINARY, UINT32_MAX));
	assert_false(sql_lists_fit(ARROW_FIXED_LIST, 1));
	sql_lists_free(&lists);
}

/* Parts of a body whose buffers are in several pieces. */
static void
test_parts_of_a_body_are_those_of_the_whole(void **state)
{
	static const struct ipc_buffer buffers[] = {{"abc", 3, true}, {"", 0, true},
		{"defgh", 5, false}, {NULL, 0, false}, {"x", 1, false},
		{"0123456789012345678901234567890123456789012345678901234567890123", 64, true},
		{"end", 3, false}};
	const size_t nb = sizeof(buffers) / sizeof(buffers[0]);
	char expected[256] = "abcdefgh", whole[256], part[256];
	uint64_t offset, length;

	expected[64] = 'x';
	memcpy(expected + 128, buffers[5].bytes, 64);
	memcpy(expected + 192, "end", 3);
	ipc_body_copy(whole, buffers, nb, 0, sizeof(whole));
	assert_memory_equal(whole, expected, sizeof(whole));
	for (offset = 0; offset < sizeof(whole); offset++) {
		for (length = 0; offset + length <= sizeof(whole); length += 13) {
			memset(part, 1, sizeof(part));
			ipc_body_copy(part, buffers, nb, offset, length);
			assert_memory_equal(part, expected + offset, length);
			if (length < sizeof(part))
				assert_int_equal(part[length], 1);
		}
	}
}

/* The same run with and without chunks, as in files of older versions, has the same pixels. */
static void
test_chunks_are_pixels(void **state)
{
	static const enum sql_fill fills[] = {SQL_ZERO_COPY, SQL_COPY};
	char path[256], rows[32];
	struct rig r;

	snprintf(path, sizeof(path), "%s.chunks", dir);
	shell("rm -rf '%s'; mkdir '%s'", path, path);
	shell("'%s' '%s' old int16 2 90 4 && '%s' '%s' new int16+chunks 2 90 4",
		getenv("ARROW_WRITE"), path, getenv("ARROW_WRITE"), path);
	for (unsigned int i = 0; i < 2; i++) {
		rig_open_with(&r, path, &(struct sql_limits){.threads = 2, .fill = fills[i]});
		snprintf(rows, sizeof(rows), "%" PRIu64,
			number(&r, "SELECT count(*) FROM old.images"));
		/* all rows: they are distinct by frame */
		want_answer(&r,
			"SELECT count(*) FROM old.images o JOIN new.images n USING (frame) "
			"WHERE o.value = n.value AND o.kind = n.kind AND o.col = n.col",
			rows);
		/* a column of another one is not needed, and chunks stay visible */
		want_answer(&r, "SELECT count(DISTINCT len(value)) > 3 FROM new.images", "true");
		want_answer(&r, "SELECT count(raw) = count(*) FILTER (kind >= 1) FROM new.images",
			"true");
		want_answer(&r, "SELECT count(raw) = count(*) FILTER (kind = 2) FROM old.images",
			"true");
		rig_close(&r);
	}
	/* pixels in chunks are not in the list that a handle would stand for */
	rig_open_with(&r, path, &(struct sql_limits){.threads = 1, .defer = true});
	assert_string_equal(deferred_by(&r, "SELECT col, value FROM old.images"), "col, value");
	assert_string_equal(deferred_by(&r, "SELECT col, value, raw FROM new.images"), "col, raw");
	assert_string_equal(deferred_by(&r, "SELECT col, Value FROM images('*')"), "col");
	rig_close(&r);
	shell("rm -rf '%s'", path);
}

/* Cancels a session until `done`, first after some microseconds. */
struct canceller {
	struct sql_session *session;
	unsigned int wait;
	bool done; /* atomic */
};

static void *
cancel_soon(void *arg)
{
	struct canceller *c = arg;

	usleep(c->wait);
	/* a call before the statement starts may be missed, as documented */
	while (!__atomic_load_n(&c->done, __ATOMIC_ACQUIRE)) {
		sql_session_cancel(c->session);
		usleep(5000);
	}
	return NULL;
}

static void
test_a_query_without_end_is_cancelled(void **state)
{
	static const unsigned int waits[] = {0, 300, 1000, 2000, 4000, 8000, 50000};
	struct canceller c;
	pthread_t thread;
	char answer[64];
	struct rig r;
	size_t i;
	int ret;

	/* whatever the statement is doing when the call comes */
	for (i = 0; i < sizeof(waits) / sizeof(waits[0]); i++) {
		rig_open(&r, dir);
		c = (struct canceller){.session = &r.session, .wait = waits[i]};
		assert_int_equal(pthread_create(&thread, NULL, cancel_soon, &c), 0);
		ret = ask(&r,
			"SELECT count(*) FROM range(1000000000) a, range(1000000000) b WHERE "
			"a.range * b.range = 7",
			answer, sizeof(answer));
		__atomic_store_n(&c.done, true, __ATOMIC_RELEASE);
		pthread_join(thread, NULL);
		if (ret != -ECANCELED || strcmp(r.session.error, "cancelled") != 0)
			fail_msg("after %u us: %d: %s", waits[i], ret, r.session.error);
		/* nothing is executed after it */
		want_error(&r, "SELECT 1", -ECANCELED, "cancelled");
		rig_close(&r);
	}
}

static void
test_errors_are_not_the_end_of_the_rows(void **state)
{
	struct rig r;

	rig_open(&r, dir);
	want_error(&r,
		"SELECT CASE WHEN range = 90000 THEN error('at a row') ELSE range END "
		"FROM range(100000)",
		-EIO, "at a row");
	rig_close(&r);
	rig_open_with(&r, dir, &(struct sql_limits){.threads = 1, .memory = "32MB"});
	want_error(&r, "SELECT list(range) FROM range(100000000)", -EIO, "Out of Memory");
	want_answer(&r, "SELECT count(*) FROM lyso_7.frames", "300");
	rig_close(&r);
}

static void
test_limits_are_checked(void **state)
{
	struct scan_list list = {0};
	struct sql_catalog catalog;
	struct sql_session s;

	assert_int_equal(sql_catalog_create(&catalog, &list, NULL, NULL), 0);
	assert_int_equal(
		sql_session_open(&s, &api, &catalog, &(struct sql_limits){.memory = "much"}),
		-EINVAL);
	assert_non_null(strstr(s.error, "--memory: expected a size such as 8GB, not much"));
	sql_session_close(&s);
	assert_int_equal(sql_session_open(&s, &api, &catalog, &(struct sql_limits){0}), 0);
	assert_int_equal(sql_session_execute(&s, "FROM frames", SQL_NATIVE), -EINVAL);
	assert_non_null(strstr(s.error, "no run"));
	sql_session_close(&s);
	sql_catalog_destroy(&catalog);
}

static void
test_long_and_deep_statements_are_refused(void **state)
{
	char *sql = malloc(SQL_STATEMENT_MAX + 100), answer[64];
	struct rig r;
	size_t i;

	assert_non_null(sql);
	rig_open(&r, dir);
	memset(sql, ' ', SQL_STATEMENT_MAX + 1);
	strcpy(sql + SQL_STATEMENT_MAX - 8, "SELECT 10");
	want_error(&r, sql, -EINVAL, "longer than");
	/* nested beyond the engine's limit: an error or an answer, not a crash */
	strcpy(sql, "SELECT ");
	for (i = 0; i < 20000; i++)
		strcpy(sql + 7 + i, "(");
	strcpy(sql + 20007, "1");
	for (i = 0; i < 20000; i++)
		strcpy(sql + 20008 + i, ")");
	assert_true(ask(&r, sql, answer, sizeof(answer)) < 0);
	want_answer(&r, "SELECT 1", "1");
	rig_close(&r);
	free(sql);
}

static void
test_a_library_that_is_not_duckdb_is_refused(void **state)
{
	char *path = strdup(getenv(DUCKDB_VARIABLE)), problem[1024];
	struct duckdb_api other;

	setenv(DUCKDB_VARIABLE, "/nonexistent/libduckdb.so", 1);
	assert_int_equal(duckdb_api_load(&other, problem, sizeof(problem)), -ENOENT);
	assert_non_null(strstr(problem, "set BRAGGLINE_DUCKDB to the path of libduckdb.so"));
	setenv(DUCKDB_VARIABLE, "libm.so.6", 1);
	assert_int_equal(duckdb_api_load(&other, problem, sizeof(problem)), -ENOSYS);
	assert_non_null(strstr(problem, "libm.so.6: version unknown has no duckdb_"));
	setenv(DUCKDB_VARIABLE, path, 1);
	free(path);
}

static int
setup(void **state)
{
	if (mkdtemp(dir) == NULL)
		return -1;
	shell("'%s' '%s' lyso_7 float32 2 %d 1", getenv("ARROW_WRITE"), dir, FRAMES);
	shell("rm '%s/lyso_7.txt'", dir);
	return 0;
}

static int
teardown(void **state)
{
	shell("rm -r '%s'", dir);
	return 0;
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ranges_are_those_of_the_statement),
		cmocka_unit_test(test_the_analysis_is_linear),
		cmocka_unit_test(test_many_tables_have_no_range),
		cmocka_unit_test(test_only_one_select_is_executed),
		cmocka_unit_test(test_the_end_of_a_statement_is_found),
		cmocka_unit_test(test_the_engine_is_locked),
		cmocka_unit_test(test_tables_have_the_rows_of_the_files),
		cmocka_unit_test(test_ranges_skip_batches),
		cmocka_unit_test(test_a_table_with_several_names_has_one_range),
		cmocka_unit_test(test_long_lists_take_little_memory),
		cmocka_unit_test(test_vectors_refer_to_the_file),
		cmocka_unit_test(test_copies_count_bytes_and_report_errors),
		cmocka_unit_test(test_damaged_batches_are_left_out_and_reported_once),
		cmocka_unit_test(test_offsets_that_change_are_not_used),
		cmocka_unit_test(test_offsets_of_chunks_that_change_are_not_used),
		cmocka_unit_test(test_frame_numbers_that_change_are_not_used),
		cmocka_unit_test(test_files_that_are_not_tables_are_refused),
		cmocka_unit_test(test_a_truncated_file_ends_the_query),
		cmocka_unit_test(test_paths_are_hidden_from_remote_readers),
		cmocka_unit_test(test_the_check_of_files_does_not_depend_on_their_number),
		cmocka_unit_test(test_a_file_may_be_truncated_while_it_is_opened),
		cmocka_unit_test(test_lists_are_deferred_where_their_values_are_not_needed),
		cmocka_unit_test(test_types_of_deferred_columns_are_not_seen),
		cmocka_unit_test(test_explain_says_which_lists_are_deferred),
		cmocka_unit_test(test_chunks_are_split_and_joined),
		cmocka_unit_test(test_first_rows_come_early),
		cmocka_unit_test(test_handles_of_several_batches_are_one_chunk),
		cmocka_unit_test(test_statements_are_kept),
		cmocka_unit_test(test_checks_are_no_cost_of_a_statement),
		cmocka_unit_test(test_a_truncated_file_ends_a_deferred_query),
		cmocka_unit_test(test_wrong_handles_are_refused),
		cmocka_unit_test(test_parts_of_a_body_are_those_of_the_whole),
		cmocka_unit_test(test_names_of_runs_are_quoted),
		cmocka_unit_test(test_files_of_stores_are_one_run),
		cmocka_unit_test(test_sets_and_columns_of_several_runs_are_merged),
		cmocka_unit_test(test_types_that_differ_between_directories),
		cmocka_unit_test(test_chunks_are_pixels),
		cmocka_unit_test(test_a_query_without_end_is_cancelled),
		cmocka_unit_test(test_errors_are_not_the_end_of_the_rows),
		cmocka_unit_test(test_limits_are_checked),
		cmocka_unit_test(test_long_and_deep_statements_are_refused),
		cmocka_unit_test(test_a_library_that_is_not_duckdb_is_refused),
	};
	char problem[1024];

	if (getenv("ARROW_WRITE") == NULL || duckdb_api_load(&api, problem, sizeof(problem)) < 0) {
		printf("SKIPPED: %s (make deps)\n",
			getenv("ARROW_WRITE") != NULL ? problem : "ARROW_WRITE is not set");
		return 77;
	}
	return cmocka_run_group_tests(tests, setup, teardown);
}
