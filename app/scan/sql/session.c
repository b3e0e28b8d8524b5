/* SPDX-License-Identifier: BSD-3-Clause */

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "sql/quoted.h"
#include "sql/session.h"
#include "sql/thread_time.h"

/* A view of the user's statement, whose columns are converted. */
#define RESULT_VIEW "braggline_result"

/* DuckDB's names of a database in memory, and of its default schema. */
#define MEMORY_DATABASE "memory"
#define MAIN_SCHEMA	"main"

#define RUN_LIST "runs" /* the view that lists the runs */

#define TYPE_DEPTH_MAX 64 /* of nested types */

__attribute__((format(printf, 3, 4))) static int
session_error(struct sql_session *s, int ret, const char *format, ...)
{
	va_list args;
	char *trace;

	va_start(args, format);
	vsnprintf(s->error, sizeof(s->error), format, args);
	va_end(args);
	/* errors inside of the engine have addresses and paths of this machine */
	trace = strstr(s->error, "\n\nStack Trace:");
	if (trace != NULL)
		*trace = '\0';
	return ret;
}

/* Keep an error of SQL that the user did not write, without the position in it. */
static int
engine_error(struct sql_session *s, int ret, const char *error)
{
	char *line;

	session_error(s, ret, "%s", error);
	line = strstr(s->error, "\n\nLINE ");
	if (line != NULL)
		*line = '\0';
	return ret;
}

/* Text under construction, e.g. SQL. */
struct text {
	FILE *out;
	char *bytes;
	size_t size;
};

static int
text_open(struct text *t)
{
	t->bytes = NULL;
	t->out = open_memstream(&t->bytes, &t->size);
	return t->out != NULL ? 0 : -ENOMEM;
}

/* @return 0, and the caller frees `bytes`; -ENOMEM */
static int
text_close(struct text *t)
{
	if (fclose(t->out) == 0 && t->bytes != NULL)
		return 0;
	free(t->bytes);
	t->bytes = NULL;
	return -ENOMEM;
}

/* Execute SQL of this program. */
static int
run_sql(struct sql_session *s, const char *sql)
{
	struct duckdb_result result;
	int ret = 0;

	if (s->api->query(s->connection, sql, &result) != DUCKDB_SUCCESS)
		ret = engine_error(s, -EINVAL, s->api->result_error(&result));
	s->api->destroy_result(&result);
	return ret;
}

static int
configure(struct sql_session *s, const struct sql_limits *limits, duckdb_config config)
{
	char threads[16];
	/* in this order: later settings forbid earlier ones */
	const struct {
		const char *name;
		const char *value;
	} settings[] = {
		{"threads", limits->threads > 0 ? threads : NULL},
		{"memory_limit", limits->memory},
		{"preserve_insertion_order", limits->any_order ? "false" : "true"},
		{"temp_directory", ""},
		/* "" is the default, in the home directory of the user */
		{"secret_directory", "/nonexistent"},
		{"autoinstall_known_extensions", "false"},
		{"autoload_known_extensions", "false"},
		{"enable_external_access", "false"},
	};
	size_t i;

	snprintf(threads, sizeof(threads), "%u", limits->threads);
	for (i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
		if (settings[i].value == NULL)
			continue;
		if (s->api->set_config(config, settings[i].name, settings[i].value) ==
			DUCKDB_SUCCESS)
			continue;
		if (settings[i].value == limits->memory)
			return session_error(s, -EINVAL,
				"--memory: expected a size such as 8GB, not %s", limits->memory);
		return session_error(s, -EIO, "DuckDB %s does not accept %s = '%s'",
			s->api->library_version(), settings[i].name, settings[i].value);
	}
	return 0;
}

/*
 * Set what belongs to the connection, and forbid all later settings. An engine with one thread
 * executes a statement until the buffer of its result is full, and then returns the first rows.
 * This buffer has the handles of lists, so it would hold those of most runs.
 */
static int
configure_connection(struct sql_session *s, const struct sql_limits *limits)
{
	int ret = 0;

	if (limits->threads == 1)
		ret = run_sql(s, "SET streaming_buffer_size = '16KB'");
	return ret == 0 ? run_sql(s, "SET lock_configuration = true") : ret;
}

int
sql_session_open(struct sql_session *s, const struct duckdb_api *api, struct sql_catalog *catalog,
	const struct sql_limits *limits)
{
	duckdb_config config = NULL;
	char *error = NULL;
	int ret;

	*s = (struct sql_session){.api = api, .catalog = catalog};
	s->tables = (struct sql_tables){.api = api, .catalog = catalog, .fill = limits->fill};
	s->parser.api = api;
	sql_lists_init(&s->tables.lists);
	s->may_defer = limits->defer;
	s->tables.join = limits->join;
	if (api->create_config(&config) != DUCKDB_SUCCESS)
		return session_error(s, -EIO, "DuckDB has no configuration");
	ret = configure(s, limits, config);
	if (ret == 0 && api->open_ext(NULL, &s->db, config, &error) != DUCKDB_SUCCESS) {
		ret = session_error(s, -EIO, "DuckDB %s does not start: %s", api->library_version(),
			error != NULL ? error : "unknown reason");
		s->db = NULL;
	}
	api->free(error);
	api->destroy_config(&config);
	if (ret < 0)
		return ret;
	if (api->connect(s->db, &s->connection) != DUCKDB_SUCCESS ||
		api->connect(s->db, &s->tables.convert) != DUCKDB_SUCCESS ||
		sql_tables_register(&s->tables, s->db, s->connection) < 0)
		return session_error(s, -EIO, "DuckDB %s does not accept table functions",
			api->library_version());
	s->parser.connection = s->connection;
	return configure_connection(s, limits);
}

/* CPU time of this thread for statements, ns: not for the check of batches, which is done once. */
static uint64_t
statement_time(void)
{
	return thread_time_ns() - sql_catalog_check_time();
}

/* Do not keep the present statement. */
static void
drop_prepared(struct sql_session *s)
{
	free(s->present.sql);
	s->present.sql = NULL;
}

/* End the statement. It is kept if `present.sql` is set. */
static void
close_result(struct sql_session *s)
{
	if (s->cost > SQL_PREPARED_NS)
		drop_prepared(s);
	if (s->has_result)
		s->api->destroy_result(&s->result);
	s->has_result = false;
	if (s->present.sql != NULL)
		sql_prepared_put(&s->prepared, s->api, &s->present);
	else
		sql_prepared_free(&s->present, s->api);
	s->present = (struct sql_prepared){.nb_columns = 0};
}

static void
forget_view(struct sql_view *v)
{
	free(v->sql);
	free(v->deferred);
}

static void
forget_views(struct sql_session *s)
{
	while (s->nb_views > 0)
		forget_view(&s->view[--s->nb_views]);
	free(s->view);
	s->view = NULL;
	s->lists_runs = false;
}

static void
forget_ranges(struct sql_session *s)
{
	free(s->range);
	s->range = NULL;
	s->tables.range = NULL;
	s->tables.nb_ranges = 0;
}

void
sql_session_close(struct sql_session *s)
{
	close_result(s);
	sql_prepared_clear(&s->prepared, s->api);
	sql_parser_close(&s->parser);
	if (s->tables.convert != NULL)
		s->api->disconnect(&s->tables.convert);
	if (s->connection != NULL)
		s->api->disconnect(&s->connection);
	if (s->db != NULL)
		s->api->close(&s->db);
	forget_views(s);
	/* no thread of the engine reads rows */
	sql_lists_free(&s->tables.lists);
}

/* Names of DuckDB's databases and schemas, which a run can have too. */
static bool
is_reserved(const char *schema)
{
	static const char *const names[] = {
		MAIN_SCHEMA, MEMORY_DATABASE, "temp", "system", "information_schema", "pg_catalog"};
	size_t i;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcasecmp(schema, names[i]) == 0)
			return true;
	}
	return false;
}

/* Whether a run has the name of a schema. */
static bool
is_run(const struct sql_session *s, const char *schema)
{
	const struct sql_catalog *c = s->catalog;
	size_t i;

	for (i = 0; i < c->nb_runs; i++) {
		if (strcasecmp(c->run[i].name, schema) == 0)
			return true;
	}
	return false;
}

/* Find the run of a schema. @return 0, `run` is NULL: there is none; -EINVAL: several */
static int
find_run(struct sql_session *s, const struct sql_name *n, const struct sql_run **run)
{
	const struct sql_catalog *c = s->catalog;
	size_t i;

	*run = NULL;
	for (i = 0; i < c->nb_runs; i++) {
		if (strcasecmp(c->run[i].name, n->schema) != 0)
			continue;
		if (*run != NULL)
			return session_error(s, -EINVAL,
				"%s.%s: expected the name of one run, found %s and %s, which are "
				"the same name in SQL: use %s('%s') or %s('%s')",
				n->schema, n->table, (*run)->name, c->run[i].name, n->table,
				(*run)->name, n->table, c->run[i].name);
		*run = &c->run[i];
	}
	return 0;
}

/* The view that a name of a statement refers to. */
struct view {
	struct sql_name name; /* of the view: the same for all names of it */
	enum arrow_table table;
	const struct sql_run *run; /* NULL: all runs */
};

/*
 * Find the view of a name.
 * @return 1: found; 0: there is none, and `v->table` is that of the name or ARROW_TABLES; -EINVAL
 */
static int
find_view(struct sql_session *s, const struct sql_name *n, struct view *v)
{
	const bool in_memory = strcasecmp(n->catalog, MEMORY_DATABASE) == 0;
	int ret;

	*v = (struct view){.name = *n};
	/* the settings, with paths of this machine; duckdb_settings() is not allowed either */
	if (strcasecmp(n->table, "pg_settings") == 0 &&
		(n->schema[0] == '\0' || is_reserved(n->schema)))
		return session_error(s, -EINVAL, "pg_settings: not allowed in a query of runs");
	for (v->table = 0; v->table < ARROW_TABLES; v->table++) {
		if (strcasecmp(n->table, arrow_table_name(v->table)) == 0)
			break;
	}
	if ((n->catalog[0] != '\0' && !in_memory) ||
		(v->table == ARROW_TABLES && is_reserved(n->schema)))
		return 0;
	if (v->table == ARROW_TABLES && is_run(s, n->schema))
		return session_error(s, -EINVAL, "%s.%s: run %s has the tables frames and images",
			n->schema, n->table, n->schema);
	if (v->table == ARROW_TABLES)
		return 0;
	ret = find_run(s, n, &v->run);
	if (ret < 0)
		return ret;
	v->name.catalog = MEMORY_DATABASE;
	v->name.table = arrow_table_name(v->table);
	if (!is_reserved(n->schema) && n->schema[0] != '\0') {
		/* one view for all spellings, which are the same name in SQL */
		if (v->run != NULL)
			v->name.schema = v->run->name;
		return v->run != NULL;
	}
	if (v->run != NULL && n->schema[0] != '\0')
		return session_error(s, -EINVAL,
			"%s.%s: expected the name of a run or of a schema, found a run with the "
			"name of a schema or database of DuckDB: use %s('%s') for this run, or %s "
			"for all runs",
			n->schema, n->table, v->name.table, v->run->name, v->name.table);
	v->run = NULL;
	v->name.schema = MAIN_SCHEMA;
	return n->schema[0] == '\0' || strcasecmp(n->schema, MAIN_SCHEMA) == 0 ||
		(!in_memory && strcasecmp(n->schema, MEMORY_DATABASE) == 0);
}

/*
 * Text that two statements share if they defer the same columns of all tables.
 * @param text  out: allocated; NULL: nothing is deferred
 */
static int
deferral(struct sql_session *s, char **text)
{
	const struct sql_statement *defer = s->tables.defer;
	struct text t;
	size_t i;

	*text = NULL;
	if (defer == NULL)
		return 0;
	if (text_open(&t) < 0)
		return session_error(s, -ENOMEM, "not enough memory");
	for (i = 0; i < defer->nb_used; i++)
		sql_put_quoted(t.out, defer->used[i], '"');
	if (text_close(&t) < 0)
		return session_error(s, -ENOMEM, "not enough memory");
	*text = t.bytes;
	return 0;
}

/* SQL that creates a view. @return NULL: not enough memory */
static char *
view_sql(const struct view *v)
{
	struct text t;

	if (text_open(&t) < 0)
		return NULL;
	if (v->run != NULL) {
		fputs("CREATE SCHEMA IF NOT EXISTS ", t.out);
		sql_put_quoted(t.out, v->name.schema, '"');
		putc(';', t.out);
	}
	fputs("CREATE OR REPLACE VIEW ", t.out);
	sql_put_quoted(t.out, v->name.schema, '"');
	fprintf(t.out, ".%s AS FROM %s(", v->name.table, sql_tables_view(v->table));
	sql_put_quoted(t.out, v->run != NULL ? v->run->name : SQL_ALL_RUNS, '\'');
	putc(')', t.out);
	return text_close(&t) == 0 ? t.bytes : NULL;
}

/*
 * Create a view, if there is none that defers the same columns: DuckDB compares the types of the
 * columns with those of its creation. The range of frames is no part of it (sql_tables.range), so
 * that most statements find their views.
 */
static int
create_view(struct sql_session *s, const struct view *v)
{
	char *sql = view_sql(v), *deferred;
	struct sql_view *views;
	size_t i;
	int ret;

	if (sql == NULL)
		return session_error(s, -ENOMEM, "not enough memory");
	ret = deferral(s, &deferred);
	if (ret < 0) {
		free(sql);
		return ret;
	}
	for (i = 0; i < s->nb_views && strcmp(s->view[i].sql, sql) != 0; i++)
		;
	if (i < s->nb_views) {
		const char *before = s->view[i].deferred;

		if (before == deferred ||
			(before != NULL && deferred != NULL && strcmp(before, deferred) == 0)) {
			free(sql);
			free(deferred);
			return 0;
		}
		forget_view(&s->view[i]);
		s->view[i] = s->view[--s->nb_views];
	}
	views = realloc(s->view, (s->nb_views + 1) * sizeof(*views));
	if (views == NULL)
		ret = session_error(s, -ENOMEM, "not enough memory");
	else
		s->view = views;
	if (ret == 0)
		ret = run_sql(s, sql);
	if (ret == 0) {
		views[s->nb_views++] = (struct sql_view){sql, deferred};
		return 0;
	}
	free(sql);
	free(deferred);
	return ret;
}

/* Create the views with deferred columns again, without: DuckDB's own tables show their types. */
static int
renew_deferred(struct sql_session *s)
{
	size_t i;
	int ret = 0;

	for (i = 0; i < s->nb_views && ret == 0; i++) {
		if (s->view[i].deferred == NULL)
			continue;
		ret = run_sql(s, s->view[i].sql);
		if (ret == 0) {
			free(s->view[i].deferred);
			s->view[i].deferred = NULL;
		}
	}
	return ret;
}

/* Create the view `runs`: a row for each table of a run. */
static int
create_run_list(struct sql_session *s)
{
	const struct sql_catalog *c = s->catalog;
	enum arrow_table table;
	struct text t;
	size_t i;
	int ret;

	if (s->lists_runs)
		return 0;
	if (text_open(&t) < 0)
		return session_error(s, -ENOMEM, "not enough memory");
	/* the first row has the types, and is left out */
	fputs("CREATE OR REPLACE VIEW " RUN_LIST " AS SELECT run, table_name, files FROM (VALUES "
	      "(''::VARCHAR, ''::VARCHAR, 0::UBIGINT)",
		t.out);
	for (i = 0; i < c->nb_runs; i++) {
		for (table = 0; table < ARROW_TABLES; table++) {
			if (c->run[i].table[table].nb == 0)
				continue;
			fputs(", (", t.out);
			sql_put_quoted(t.out, c->run[i].name, '\'');
			fprintf(t.out, ", '%s', %zu)", arrow_table_name(table),
				c->run[i].table[table].nb);
		}
	}
	fputs(") list(run, table_name, files) WHERE files > 0", t.out);
	if (text_close(&t) < 0)
		return session_error(s, -ENOMEM, "not enough memory");
	ret = run_sql(s, t.bytes);
	free(t.bytes);
	s->lists_runs = ret == 0;
	return ret;
}

/* Whether a name is that of the view `runs`. */
static bool
is_run_list(const struct sql_name *n)
{
	return strcasecmp(n->table, RUN_LIST) == 0 &&
		(n->catalog[0] == '\0' || strcasecmp(n->catalog, MEMORY_DATABASE) == 0) &&
		(n->schema[0] == '\0' || strcasecmp(n->schema, MAIN_SCHEMA) == 0);
}

/*
 * Create each view that the statement names, unless it exists. Its range covers all of its names.
 * Names of other tables are those of WITH, or of DuckDB's own ones: these may show the types of
 * views, so nothing is deferred.
 */
static int
create_views(struct sql_session *s, const struct sql_statement *parsed)
{
	/* if the table of a name is unknown, it may be any table with its last part */
	const struct sql_name all = {.last = UINT64_MAX};
	bool unknown[ARROW_TABLES + 1] = {false};
	struct view *views, v;
	size_t nb = 0, i, k;
	int ret = 0;

	forget_ranges(s);
	views = calloc(parsed->nb_names + 1, sizeof(*views));
	s->range = calloc(parsed->nb_names + 1, sizeof(*s->range));
	if (views == NULL || s->range == NULL) {
		free(views);
		return session_error(s, -ENOMEM, "not enough memory");
	}
	for (i = 0; i < parsed->nb_names && ret == 0; i++) {
		if (is_run_list(&parsed->name[i])) {
			ret = create_run_list(s);
			continue;
		}
		ret = find_view(s, &parsed->name[i], &v);
		if (ret == 0)
			unknown[v.table] = true;
		if (ret == 0 && !sql_defer_is_cte(parsed, &parsed->name[i]) &&
			!(parsed->name[i].schema[0] == '\0' &&
				sql_is_file_name(parsed->name[i].table)))
			s->tables.defer = NULL;
		if (ret <= 0)
			continue;
		ret = 0;
		for (k = 0; k < nb; k++) {
			if (views[k].table == v.table && views[k].run == v.run)
				break;
		}
		if (k == nb)
			views[nb++] = v;
		else
			sql_name_cover(&views[k].name, &v.name);
	}
	if (ret == 0 && s->tables.defer == NULL)
		ret = renew_deferred(s);
	for (i = 0; i < nb && ret == 0; i++) {
		if (unknown[views[i].table])
			sql_name_cover(&views[i].name, &all);
		ret = create_view(s, &views[i]);
		s->range[i] = (struct sql_range){views[i].table,
			views[i].run != NULL ? views[i].run->name : SQL_ALL_RUNS,
			views[i].name.first, views[i].name.last};
	}
	s->tables.range = s->range;
	s->tables.nb_ranges = nb;
	free(views);
	return ret;
}

/* Write the SQL name of the nearest type of SQL_SIMPLE. @return false: nested too deeply */
static bool
put_simple_type(const struct duckdb_api *api, FILE *out, duckdb_logical_type type, int depth)
{
	static const struct {
		int id;
		const char *name;
	} plain[] = {
		{DUCKDB_TYPE_BOOLEAN, "BOOLEAN"},
		{DUCKDB_TYPE_TINYINT, "TINYINT"},
		{DUCKDB_TYPE_SMALLINT, "SMALLINT"},
		{DUCKDB_TYPE_INTEGER, "INTEGER"},
		{DUCKDB_TYPE_BIGINT, "BIGINT"},
		{DUCKDB_TYPE_UTINYINT, "UTINYINT"},
		{DUCKDB_TYPE_USMALLINT, "USMALLINT"},
		{DUCKDB_TYPE_UINTEGER, "UINTEGER"},
		{DUCKDB_TYPE_UBIGINT, "UBIGINT"},
		{DUCKDB_TYPE_FLOAT, "FLOAT"},
		{DUCKDB_TYPE_DOUBLE, "DOUBLE"},
		{DUCKDB_TYPE_BLOB, "BLOB"},
	};
	const int id = api->get_type_id(type);
	duckdb_logical_type child;
	bool good = true;
	uint64_t i, nb;
	char *name;

	if (depth > TYPE_DEPTH_MAX)
		return false;
	switch (id) {
	case DUCKDB_TYPE_LIST:
	case DUCKDB_TYPE_ARRAY:
		child = id == DUCKDB_TYPE_LIST ? api->list_type_child_type(type)
					       : api->array_type_child_type(type);
		good = put_simple_type(api, out, child, depth + 1);
		api->destroy_logical_type(&child);
		if (id == DUCKDB_TYPE_LIST)
			fputs("[]", out);
		else
			fprintf(out, "[%" PRIu64 "]", api->array_type_array_size(type));
		return good;
	case DUCKDB_TYPE_STRUCT:
		nb = api->struct_type_child_count(type);
		fputs("STRUCT(", out);
		for (i = 0; i < nb && good; i++) {
			name = api->struct_type_child_name(type, i);
			child = api->struct_type_child_type(type, i);
			/* without names, as row() makes it: it is converted as a whole */
			good = name[0] != '\0';
			if (i > 0)
				fputs(", ", out);
			sql_put_quoted(out, name, '"');
			putc(' ', out);
			good = good && put_simple_type(api, out, child, depth + 1);
			api->destroy_logical_type(&child);
			api->free(name);
		}
		putc(')', out);
		return good;
	default:
		for (i = 0; i < sizeof(plain) / sizeof(plain[0]); i++) {
			if (plain[i].id == id) {
				fputs(plain[i].name, out);
				return true;
			}
		}
		fputs("VARCHAR", out);
		return true;
	}
}

static int
put_cast(struct sql_session *s, FILE *out, duckdb_logical_type type, uint64_t column,
	enum sql_form form)
{
	struct text t;
	bool simple;

	if (form == SQL_TEXT) {
		fprintf(out, "CAST(c%" PRIu64 " AS VARCHAR)", column);
		return 0;
	}
	if (text_open(&t) < 0)
		return -ENOMEM;
	simple = put_simple_type(s->api, t.out, type, 0);
	if (text_close(&t) < 0)
		return -ENOMEM;
	fprintf(out, "CAST(c%" PRIu64 " AS %s)", column, simple ? t.bytes : "VARCHAR");
	free(t.bytes);
	return 0;
}

/* The engine knows only the tables that the statement names: say which runs there are. */
static int
prepare_failed(struct sql_session *s, const char *error)
{
	char names[512];

	if (strstr(error, "Catalog Error: Table with name ") != error &&
		strstr(error, "Binder Error: Catalog ") != error)
		return session_error(s, -EINVAL, "%s", error);
	sql_catalog_names(s->catalog, names, sizeof(names));
	names[0] = (char)toupper((unsigned char)names[0]);
	return session_error(s, -EINVAL,
		"%s\n\n%s\nThe tables of a run are RUN.frames and RUN.images; \"RUN\".frames if "
		"RUN is no SQL name",
		error, names);
}

static int
prepare(struct sql_session *s, const char *sql)
{
	if (s->api->prepare(s->connection, sql, &s->present.statement) != DUCKDB_SUCCESS)
		return prepare_failed(s, s->api->prepare_error(s->present.statement));
	if (s->api->prepared_statement_type(s->present.statement) != DUCKDB_STATEMENT_SELECT)
		return session_error(s, -EINVAL, "expected a SELECT statement");
	if (s->api->nparams(s->present.statement) > 0)
		return session_error(s, -EINVAL, "parameters ($1, ?) have no values here");
	return 0;
}

bool
sql_type_is_direct(int id)
{
	switch (id) {
	case DUCKDB_TYPE_TINYINT:
	case DUCKDB_TYPE_SMALLINT:
	case DUCKDB_TYPE_INTEGER:
	case DUCKDB_TYPE_BIGINT:
	case DUCKDB_TYPE_UTINYINT:
	case DUCKDB_TYPE_USMALLINT:
	case DUCKDB_TYPE_UINTEGER:
	case DUCKDB_TYPE_UBIGINT:
	case DUCKDB_TYPE_FLOAT:
	case DUCKDB_TYPE_DOUBLE:
	case DUCKDB_TYPE_TIMESTAMP:
	case DUCKDB_TYPE_DATE:
	case DUCKDB_TYPE_TIME:
	case DUCKDB_TYPE_HUGEINT:
	case DUCKDB_TYPE_TIMESTAMP_S:
	case DUCKDB_TYPE_TIMESTAMP_MS:
	case DUCKDB_TYPE_TIMESTAMP_NS:
	case DUCKDB_TYPE_TIMESTAMP_TZ:
		return true;
	default:
		return false;
	}
}

/* Execute the prepared statement until it has rows, or has ended. */
static int
start(struct sql_session *s)
{
	duckdb_pending pending = NULL;
	uint64_t i;
	int ret = 0;

	s->tables.any_rows = true;
	for (i = 0; i < s->present.nb_columns; i++)
		s->tables.any_rows &=
			s->present.deferred[i] || sql_type_is_direct((int)s->present.type[i]);
	if (s->api->pending_prepared_streaming(s->present.statement, &pending) != DUCKDB_SUCCESS) {
		ret = session_error(s, -EIO, "%s", s->api->pending_error(pending));
	} else {
		ret = s->api->execute_pending(pending, &s->result) == DUCKDB_SUCCESS ? 0 : -EIO;
		s->has_result = true;
		if (ret < 0)
			engine_error(s, ret, s->api->result_error(&s->result));
	}
	s->api->destroy_pending(&pending);
	return ret;
}

/* Whether a type is that of a deferred column. */
static bool
is_deferred(const struct duckdb_api *api, duckdb_logical_type type)
{
	char *alias = api->logical_type_get_alias(type);
	const bool same = alias != NULL && strcmp(alias, SQL_DEFERRED) == 0;

	api->free(alias);
	return same;
}

/* Whether a type has that of a deferred column inside. */
static bool
has_deferred(const struct duckdb_api *api, duckdb_logical_type type, int depth)
{
	const int id = api->get_type_id(type);
	duckdb_logical_type child;
	bool found = depth > TYPE_DEPTH_MAX;
	uint64_t i, nb;

	if (found || (depth > 0 && is_deferred(api, type)))
		return true;
	switch (id) {
	case DUCKDB_TYPE_LIST:
	case DUCKDB_TYPE_ARRAY:
		child = id == DUCKDB_TYPE_LIST ? api->list_type_child_type(type)
					       : api->array_type_child_type(type);
		found = has_deferred(api, child, depth + 1);
		api->destroy_logical_type(&child);
		return found;
	case DUCKDB_TYPE_STRUCT:
		nb = api->struct_type_child_count(type);
		for (i = 0; i < nb && !found; i++) {
			child = api->struct_type_child_type(type, i);
			found = has_deferred(api, child, depth + 1);
			api->destroy_logical_type(&child);
		}
		return found;
	default:
		return false;
	}
}

/*
 * Whether handles are in the result only as columns. The analysis of the statement has found so;
 * this is the engine's own opinion.
 */
static bool
defers_columns_only(struct sql_session *s)
{
	const uint64_t nb = s->api->prepared_statement_column_count(s->present.statement);
	duckdb_logical_type type;
	bool good = true;
	uint64_t i;

	for (i = 0; i < nb && good; i++) {
		type = s->api->prepared_statement_column_logical_type(s->present.statement, i);
		good = !has_deferred(s->api, type, 0);
		s->api->destroy_logical_type(&type);
	}
	return good;
}

static int
keep_names(struct sql_session *s)
{
	const uint64_t nb = s->api->prepared_statement_column_count(s->present.statement);
	duckdb_logical_type type;
	char *name;

	s->present.name = calloc(nb + 1, sizeof(*s->present.name));
	s->present.type = calloc(nb + 1, sizeof(*s->present.type));
	s->present.deferred = calloc(nb + 1, sizeof(*s->present.deferred));
	if (s->present.name == NULL || s->present.type == NULL || s->present.deferred == NULL)
		return session_error(s, -ENOMEM, "not enough memory");
	for (s->present.nb_columns = 0; s->present.nb_columns < nb; s->present.nb_columns++) {
		type = s->api->prepared_statement_column_logical_type(
			s->present.statement, s->present.nb_columns);
		s->present.type[s->present.nb_columns] = s->api->get_type_id(type);
		s->present.deferred[s->present.nb_columns] =
			s->tables.defer != NULL && is_deferred(s->api, type);
		s->api->destroy_logical_type(&type);
		name = s->api->prepared_statement_column_name(
			s->present.statement, s->present.nb_columns);
		s->present.name[s->present.nb_columns] = name != NULL ? strdup(name) : NULL;
		s->api->free(name);
		if (s->present.name[s->present.nb_columns] == NULL)
			return session_error(s, -ENOMEM, "not enough memory");
	}
	return 0;
}

/* SQL that creates RESULT_VIEW, and that reads it. @return 0; -ENOMEM */
static int
conversion(struct sql_session *s, const struct sql_statement *parsed, const char *sql,
	enum sql_form form, char **view, char **query)
{
	struct text v, q;
	duckdb_logical_type type;
	uint64_t i;
	int ret = 0;

	*view = *query = NULL;
	if (text_open(&v) < 0)
		return -ENOMEM;
	if (text_open(&q) < 0) {
		if (text_close(&v) == 0)
			free(v.bytes);
		return -ENOMEM;
	}
	fputs("CREATE OR REPLACE TEMP VIEW " RESULT_VIEW " (", v.out);
	fputs("SELECT ", q.out);
	for (i = 0; i < s->present.nb_columns; i++) {
		fprintf(v.out, "%sc%" PRIu64, i > 0 ? ", " : "", i);
		fputs(i > 0 ? ", " : "", q.out);
		type = s->api->prepared_statement_column_logical_type(s->present.statement, i);
		if (put_cast(s, q.out, type, i, form) < 0)
			ret = -ENOMEM;
		s->api->destroy_logical_type(&type);
	}
	if (parsed->is_show) {
		/* DESCRIBE and SUMMARIZE are statements that a view can only have in brackets */
		fprintf(v.out, ") AS FROM (%.*s\n)", (int)sql_statement_length(sql), sql);
	} else {
		/* the statement may end in a comment or a semicolon */
		fprintf(v.out, ") AS %s", sql);
	}
	fputs(" FROM " RESULT_VIEW, q.out);
	if (text_close(&v) < 0)
		ret = -ENOMEM;
	else
		*view = v.bytes;
	if (text_close(&q) < 0)
		ret = -ENOMEM;
	else
		*query = q.bytes;
	return ret;
}

/* Replace the statement by one that converts its columns. */
static int
convert(struct sql_session *s, const struct sql_statement *parsed, const char *sql,
	enum sql_form form)
{
	char *view, *query;
	int ret;

	ret = conversion(s, parsed, sql, form, &view, &query);
	if (ret < 0) {
		session_error(s, ret, "not enough memory");
	} else {
		s->api->destroy_prepare(&s->present.statement);
		s->present.statement = NULL;
		ret = run_sql(s, view);
	}
	if (ret == 0)
		ret = prepare(s, query);
	free(view);
	free(query);
	return ret;
}

/* Create the views, and prepare the statement, with lists deferred if it permits it. */
static int
plan(struct sql_session *s, const struct sql_statement *parsed, const char *sql)
{
	int ret;

	s->tables.defer = parsed->may_defer ? parsed : NULL;
	ret = create_views(s, parsed);
	if (ret == 0)
		ret = prepare(s, sql);
	if (s->tables.defer == NULL || (ret == 0 && defers_columns_only(s)))
		return ret;
	/* the plain plan: the reason of an error is that of the statement itself */
	if (s->present.statement != NULL)
		s->api->destroy_prepare(&s->present.statement);
	s->present.statement = NULL;
	s->tables.defer = NULL;
	ret = create_views(s, parsed);
	return ret == 0 ? prepare(s, sql) : ret;
}

/* Prepare and start a statement. */
static int
execute_parsed(
	struct sql_session *s, struct sql_statement *parsed, const char *sql, enum sql_form form)
{
	int ret = 0;

	if (s->may_defer && form == SQL_NATIVE && sql_defer_find(parsed) < 0)
		return session_error(s, -ENOMEM, "not enough memory");
	ret = plan(s, parsed, sql);
	if (ret == 0)
		ret = keep_names(s);
	if (ret == 0 && form != SQL_NATIVE)
		ret = convert(s, parsed, sql, form);
	return ret == 0 ? start(s) : ret;
}

/* Get the engine's plan of a statement. @param text  out: allocated @return 0; -EINVAL; -ENOMEM */
static int
engine_plan(struct sql_session *s, const char *sql, char **text)
{
	struct duckdb_result result;
	const union duckdb_text *plan;
	duckdb_chunk chunk = NULL;
	struct text t;
	int ret;

	if (text_open(&t) < 0)
		return session_error(s, -ENOMEM, "not enough memory");
	fprintf(t.out, "EXPLAIN %s", sql);
	if (text_close(&t) < 0)
		return session_error(s, -ENOMEM, "not enough memory");
	ret = s->api->query(s->connection, t.bytes, &result);
	free(t.bytes);
	if (ret != DUCKDB_SUCCESS) {
		ret = engine_error(s, -EINVAL, s->api->result_error(&result));
	} else {
		ret = 0;
		chunk = s->api->fetch_chunk(result);
	}
	/* columns: explain_key, explain_value */
	if (chunk != NULL && s->api->data_chunk_get_column_count(chunk) == 2 &&
		s->api->data_chunk_get_size(chunk) > 0) {
		plan = s->api->vector_get_data(s->api->data_chunk_get_vector(chunk, 1));
		*text = strndup(duckdb_text_bytes(plan), plan->length);
	} else if (ret == 0) {
		*text = strdup("");
	}
	if (chunk != NULL)
		s->api->destroy_data_chunk(&chunk);
	s->api->destroy_result(&result);
	return ret == 0 && *text == NULL ? session_error(s, -ENOMEM, "not enough memory") : ret;
}

/* Prepare and start a statement whose rows say how another one would be executed. */
static int
explain(struct sql_session *s, struct sql_statement *parsed, const char *sql, enum sql_form form)
{
	const struct sql_statement answer = {.nb_nodes = 0};
	char names[1024], *text = NULL;
	struct text t;
	int ret;

	if (s->may_defer && sql_defer_find(parsed) < 0)
		return session_error(s, -ENOMEM, "not enough memory");
	ret = plan(s, parsed, sql);
	if (ret == 0)
		ret = keep_names(s);
	if (ret < 0)
		return ret;
	ret = engine_plan(s, sql, &text);
	if (ret < 0 || text_open(&t) < 0) {
		free(text);
		return ret < 0 ? ret : session_error(s, -ENOMEM, "not enough memory");
	}
	fputs("SELECT * FROM (VALUES ('lists', ", t.out);
	if (sql_session_deferred(s, names, sizeof(names)) == 0) {
		fputs("'deferred, in results as Arrow: ' || ", t.out);
		sql_put_quoted(t.out, names, '\'');
	} else {
		fputs("'through the engine'", t.out);
	}
	fputs("), ('physical_plan', ", t.out);
	sql_put_quoted(t.out, text, '\'');
	fputs(")) t(explain_key, explain_value)", t.out);
	free(text);
	close_result(s);
	s->tables.defer = NULL;
	if (text_close(&t) < 0)
		return session_error(s, -ENOMEM, "not enough memory");
	ret = prepare(s, t.bytes);
	if (ret == 0)
		ret = keep_names(s);
	if (ret == 0 && form != SQL_NATIVE)
		ret = convert(s, &answer, t.bytes, form);
	free(t.bytes);
	return ret == 0 ? start(s) : ret;
}

/*
 * Keep the present statement when it ends. Its plan is for the tables of the catalog, which does
 * not change. Not those of DESCRIBE and the like, whose plans have the rows of their results.
 * @param parsed  is taken if the statement is kept
 */
static void
keep(struct sql_session *s, struct sql_statement *parsed, const char *sql)
{
	if (parsed->is_show || strlen(sql) > SQL_PREPARED_BYTES)
		return;
	s->present.sql = strdup(sql);
	if (s->present.sql == NULL)
		return;
	s->present.parsed = *parsed;
	s->present.defers = s->tables.defer != NULL;
	*parsed = (struct sql_statement){.nb_nodes = 0};
}

/* Start a statement that was kept. */
static int
execute_prepared(struct sql_session *s)
{
	struct sql_prepared *k = &s->present;
	int ret;

	/* DuckDB plans it again if it has a function such as now() */
	s->tables.defer = k->defers ? &k->parsed : NULL;
	ret = create_views(s, &k->parsed);
	return ret == 0 ? start(s) : ret;
}

/* Parse, prepare and start a statement. */
static int
execute(struct sql_session *s, const char *sql, enum sql_form form)
{
	const char *explained = sql_statement_explained(sql);
	struct sql_statement parsed;
	int ret;

	if (explained != NULL)
		sql = explained;
	ret = sql_statement_parse(&parsed, &s->parser, sql, s->error, sizeof(s->error));
	if (ret < 0)
		return ret == -ENOMEM ? ret : -EINVAL;
	ret = explained != NULL ? explain(s, &parsed, sql, form)
				: execute_parsed(s, &parsed, sql, form);
	if (ret == 0 && form == SQL_NATIVE && explained == NULL)
		keep(s, &parsed, sql);
	sql_statement_free(&parsed);
	return ret;
}

static bool
is_cancelled(const struct sql_session *s)
{
	return __atomic_load_n(&s->cancelled, __ATOMIC_ACQUIRE);
}

/* Whether the last error can be due to the statements that are kept. */
static bool
is_of_prepared(const struct sql_session *s, bool is_prepared)
{
	return is_prepared || (s->prepared.nb > 0 && strstr(s->error, "Out of Memory") != NULL);
}

/* Execute a statement that is kept, or else a new one. */
static int
execute_any(struct sql_session *s, const char *sql, enum sql_form form)
{
	const bool is_prepared =
		form == SQL_NATIVE && sql_prepared_take(&s->prepared, sql, &s->present);
	int ret;

	ret = is_prepared ? execute_prepared(s) : execute(s, sql, form);
	if (ret == 0 || is_cancelled(s) || !is_of_prepared(s, is_prepared))
		return ret;
	drop_prepared(s);
	close_result(s);
	sql_prepared_clear(&s->prepared, s->api);
	s->error[0] = '\0';
	sql_lists_clear(&s->tables.lists);
	return execute(s, sql, form);
}

int
sql_session_execute(struct sql_session *s, const char *sql, enum sql_form form)
{
	const char *path;
	uint64_t begin;
	int ret;

	close_result(s);
	s->error[0] = '\0';
	sql_lists_clear(&s->tables.lists);
	begin = statement_time();
	s->cost = 0;
	ret = is_cancelled(s) ? -ECANCELED : execute_any(s, sql, form);
	s->cost = statement_time() - begin;
	/* the statement is bound: rows are read without these */
	s->tables.defer = NULL;
	forget_ranges(s);
	if (ret == 0)
		return 0;
	drop_prepared(s);
	close_result(s);
	/* also if a query that analyses the statement was interrupted */
	if (is_cancelled(s))
		return session_error(s, -ECANCELED, "cancelled");
	/* the first rows may be read before they are fetched */
	path = sql_catalog_unreadable(s->catalog);
	return path != NULL ? sql_session_unreadable(s, path) : ret;
}

int
sql_session_unreadable(struct sql_session *s, const char *file)
{
	return session_error(s, -EIO, "%s: " SQL_UNREADABLE, file);
}

int
sql_session_fetch(struct sql_session *s, duckdb_chunk *chunk)
{
	const uint64_t begin = statement_time();
	const char *error, *path;

	*chunk = s->api->fetch_chunk(s->result);
	s->cost += statement_time() - begin;
	/* the rows were read before they came, so zeros in place of a file are not returned */
	path = sql_catalog_unreadable(s->catalog);
	if (path != NULL) {
		drop_prepared(s);
		if (*chunk != NULL)
			s->api->destroy_data_chunk(chunk);
		*chunk = NULL;
		return sql_session_unreadable(s, path);
	}
	if (*chunk != NULL)
		return 0;
	/* NULL is the end, or an error */
	error = s->api->result_error(&s->result);
	if (error != NULL && *error != '\0')
		drop_prepared(s);
	if (is_cancelled(s))
		return session_error(s, -ECANCELED, "cancelled");
	return error == NULL || *error == '\0' ? 0 : engine_error(s, -EIO, error);
}

duckdb_logical_type
sql_session_type(struct sql_session *s, uint64_t column)
{
	duckdb_logical_type type = s->api->column_logical_type(&s->result, column), item, plain;

	if (!s->present.deferred[column])
		return type;
	if (s->present.type[column] == DUCKDB_TYPE_LIST) {
		item = s->api->list_type_child_type(type);
		plain = s->api->create_list_type(item);
		s->api->destroy_logical_type(&item);
	} else {
		plain = s->api->create_logical_type(s->present.type[column]);
	}
	s->api->destroy_logical_type(&type);
	return plain;
}

int
sql_session_deferred(const struct sql_session *s, char *names, size_t size)
{
	size_t length = 0;
	uint64_t i;
	int ret = -ENOENT;

	names[0] = '\0';
	for (i = 0; i < s->present.nb_columns; i++) {
		if (!s->present.deferred[i])
			continue;
		if (length < size)
			length += snprintf(names + length, size - length, "%s%s",
				ret == 0 ? ", " : "", s->present.name[i]);
		ret = 0;
	}
	return ret;
}

void
sql_session_cancel(struct sql_session *s)
{
	__atomic_store_n(&s->cancelled, true, __ATOMIC_RELEASE);
	if (s->connection != NULL)
		s->api->interrupt(s->connection);
}
