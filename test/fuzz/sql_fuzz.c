/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Queries of runs. An input that begins as an Arrow file is a file of a run: it is refused, or its
 * rows are the same with and without copies. The CRCs of bodies count as correct, so that DuckDB
 * gets changed bodies. Other inputs are statements, which are parsed: they are refused, or have
 * ranges. Skipped without DuckDB's library (BRAGGLINE_DUCKDB).
 */

#include "seed_corpus.h"

#include "sql/session.h"

static struct duckdb_api api;
static struct sql_catalog no_runs;
static struct sql_session without_runs; /* its parser reads statements */
static char dir[256];

int __wrap_arrow_reader_crc(const struct arrow_reader *r, size_t batch);

int
__wrap_arrow_reader_crc(const struct arrow_reader *r, size_t batch)
{
	return 1;
}

/* Hash of all cells of a table as text. @return number of rows; -1: refused */
static int64_t
read_table(struct sql_session *s, const char *sql, uint64_t *hash)
{
	const union duckdb_text *text;
	const uint64_t *validity;
	duckdb_vector vector;
	duckdb_chunk chunk;
	int64_t rows = 0;

	*hash = 14695981039346656037u;
	if (sql_session_execute(s, sql, SQL_TEXT) < 0)
		return -1;
	for (;;) {
		if (sql_session_fetch(s, &chunk) < 0)
			return -1;
		if (chunk == NULL)
			return rows;
		const uint64_t n = api.data_chunk_get_size(chunk);

		for (uint64_t i = 0; i < s->present.nb_columns; i++) {
			vector = api.data_chunk_get_vector(chunk, i);
			validity = api.vector_get_validity(vector);
			text = api.vector_get_data(vector);
			for (uint64_t row = 0; row < n; row++) {
				if (validity != NULL && !(validity[row / 64] >> row % 64 & 1))
					continue;
				for (uint32_t k = 0; k < text[row].length; k++)
					*hash = (*hash ^
							(uint8_t)duckdb_text_bytes(&text[row])[k]) *
						1099511628211u;
			}
		}
		rows += n;
		api.destroy_data_chunk(&chunk);
	}
}

static void
open_session(struct sql_session *s, struct sql_catalog *catalog, int fill)
{
	if (sql_session_open(s, &api, catalog,
		    &(struct sql_limits){.threads = 1, .memory = "256MB", .fill = fill}) < 0)
		abort();
}

static void
try_file(const uint8_t *data, size_t size)
{
	static const char *const queries[] = {
		"FROM x.frames LIMIT 4096", "FROM x.images WHERE frame >= 100 LIMIT 4096"};
	struct scan_list list = {0};
	struct sql_catalog catalog;
	struct sql_session session;
	char path[2][512];
	uint64_t hash[2][2];
	int64_t rows[2][2];
	FILE *f;

	for (int i = 0; i < 2; i++) {
		snprintf(path[i], sizeof(path[i]), "%s/x_%s.arrow", dir, arrow_table_name(i));
		f = fopen(path[i], "wb");
		if (f == NULL || fwrite(data, 1, size, f) != size || fclose(f) != 0)
			abort();
	}
	if (scan_list_add(&list, dir) < 0 || sql_catalog_create(&catalog, &list, NULL, NULL) < 0)
		abort();
	scan_list_free(&list);
	for (int k = 0; k < 2; k++) {
		open_session(&session, &catalog, k);
		for (int i = 0; i < 2; i++)
			rows[i][k] = read_table(&session, queries[i], &hash[i][k]);
		sql_session_close(&session);
	}
	for (int i = 0; i < 2; i++)
		if (rows[i][0] != rows[i][1] || (rows[i][0] > 0 && hash[i][0] != hash[i][1]))
			abort();
	sql_catalog_destroy(&catalog);
}

static void
try_statement(const uint8_t *data, size_t size)
{
	struct sql_statement s;
	char error[1024], *sql = malloc(size + 1);

	if (sql == NULL)
		abort();
	memcpy(sql, data, size);
	sql[size] = '\0';
	if (sql_statement_parse(&s, &without_runs.parser, sql, error, sizeof(error)) == 0) {
		for (size_t i = 0; i < s.nb_names; i++)
			if (s.name[i].table[0] == '\0')
				abort();
		sql_statement_free(&s);
	} else if (strlen(error) >= sizeof(error)) {
		abort();
	}
	free(sql);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size >= 6 && memcmp(data, "ARROW1", 6) == 0)
		try_file(data, size);
	else
		try_statement(data, size);
	return 0;
}

static void
close_all(void)
{
	char command[512];

	sql_session_close(&without_runs);
	sql_catalog_destroy(&no_runs);
	snprintf(command, sizeof(command), "rm -rf '%s'", dir);
	if (getpid() == seed_owner && system(command) != 0)
		fprintf(stderr, "%s: not removed\n", dir);
}

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	static const char *const statements[] = {
		"SELECT frame FROM x.frames f WHERE f.frame BETWEEN 3 AND 9 AND frame IN (4, 5)",
		"FROM x.frames a LEFT JOIN y.images b USING (frame) WHERE a.frame < 5 AND 3 <= "
		"b.frame",
		"WITH q AS (SELECT * FROM frames WHERE frame >= 7) FROM q ASOF JOIN x.images ON a "
		"> b",
		"SELECT (SELECT max(frame) FROM x.frames WHERE frame = -1) UNION FROM frames('a', "
		"first := 3) TABLESAMPLE 3% WHERE NOT frame <> 3 ORDER BY ALL LIMIT 5; SELECT 2",
		"DESCRIBE x.frames",
		"SELECT {'a': [1, 2]}, map(['x'], [1.5]), list_transform([1], lambda v: v + 1)"};
	const char *writer = getenv("ARROW_WRITE"), *tmp = getenv("TMPDIR");
	struct scan_list none = {0};
	char problem[1024], command[1024];

	if (duckdb_api_load(&api, problem, sizeof(problem)) < 0) {
		printf("SKIPPED: %s (make deps)\n", problem);
		exit(77);
	}
	seed_begin(argc, argv);
	for (size_t i = 0; i < sizeof(statements) / sizeof(statements[0]); i++) {
		snprintf(problem, sizeof(problem), "statement%zu", i);
		seed_add(problem, statements[i], strlen(statements[i]));
	}
	if (writer != NULL) {
		snprintf(command, sizeof(command),
			"cd '%s' && '%s' . a float32+peaks 1 3 1 && '%s' . b int16+chunks 2 3 2 && "
			"rm ?.txt",
			seed_dir, writer, writer);
		if (system(command) != 0)
			fprintf(stderr, "no seeds from %s\n", writer);
	}
	snprintf(dir, sizeof(dir), "%s/braggline-sql-XXXXXX", tmp != NULL ? tmp : "/tmp");
	if (mkdtemp(dir) == NULL || sql_catalog_create(&no_runs, &none, NULL, NULL) < 0)
		abort();
	open_session(&without_runs, &no_runs, 0);
	atexit(close_all);
	return 0;
}
