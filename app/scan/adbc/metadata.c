/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adbc/metadata.h"
#include "adbc/result.h"
#include "sql/ipc_stream.h"
#include "sql/quoted.h"

/* ------------------------------------------------------------------ constant results */

/* Buffers of a column of text. */
struct texts {
	int32_t offset[16];
	char bytes[256];
	int32_t nb;
};

static void
texts_add(struct texts *t, const char *text)
{
	const int32_t length = (int32_t)strlen(text);

	memcpy(t->bytes + t->offset[t->nb], text, (size_t)length);
	t->offset[t->nb + 1] = t->offset[t->nb] + length;
	t->nb++;
}

/* Write a batch as an IPC stream in memory, and make a stream of it. */
static AdbcStatusCode
stream_of(const struct ArrowSchema *schema, const struct ArrowArray *array,
	struct ArrowArrayStream *stream, struct failure *f)
{
	struct ipc_stream ipc = {0};
	char *bytes = NULL;
	size_t size;
	FILE *out = open_memstream(&bytes, &size);
	int ret;

	if (out == NULL)
		return failure_errno(f, errno, "open_memstream");
	ret = ipc_stream_begin(&ipc, out, schema);
	if (ret == 0)
		ret = ipc_stream_batch(&ipc, array);
	if (ret == 0)
		ret = ipc_stream_end(&ipc);
	if (fclose(out) != 0 && ret == 0)
		ret = -errno;
	if (ret < 0) {
		free(bytes);
		return failure_errno(f, -ret, "cannot write metadata");
	}
	return result_of_memory(bytes, size, stream, f);
}

AdbcStatusCode
metadata_table_types(struct ArrowArrayStream *stream, struct failure *f)
{
	struct texts type = {0};
	const void *buffers[] = {NULL, type.offset, type.bytes};
	struct ArrowSchema name = {.format = "u", .name = "table_type"};
	struct ArrowSchema *names[] = {&name};
	struct ArrowSchema schema = {.format = "+s", .n_children = 1, .children = names};
	struct ArrowArray values = {.n_buffers = 3, .buffers = buffers};
	struct ArrowArray *columns[] = {&values};
	struct ArrowArray array = {.n_buffers = 1, .n_children = 1, .children = columns};

	texts_add(&type, "table");
	values.length = array.length = type.nb;
	return stream_of(&schema, &array, stream, f);
}

/* Types of the union of GetInfo. */
enum info_type {
	INFO_TEXT,
	INFO_BOOL,
	INFO_INT64,
	INFO_INT32,
	INFO_TEXTS,
	INFO_MAP,
	INFO_TYPES
};

static const struct info {
	uint32_t code;
	enum info_type type;
	const char *text;
	int64_t number;
} infos[] = {
	{ADBC_INFO_VENDOR_NAME, INFO_TEXT, "braggline"},
	{ADBC_INFO_VENDOR_SQL, INFO_BOOL, NULL, 1},
	{ADBC_INFO_VENDOR_SUBSTRAIT, INFO_BOOL, NULL, 0},
	{ADBC_INFO_DRIVER_NAME, INFO_TEXT, "braggline"},
	{ADBC_INFO_DRIVER_VERSION, INFO_TEXT, BRAGGLINE_VERSION},
	{ADBC_INFO_DRIVER_ADBC_VERSION, INFO_INT64, NULL, ADBC_VERSION_1_1_0},
};

#define NB_INFOS (sizeof(infos) / sizeof(infos[0]))

/* Columns of GetInfo. */
struct info_columns {
	uint32_t code[NB_INFOS];
	int8_t type[NB_INFOS];
	int32_t offset[NB_INFOS];
	struct texts text;
	uint8_t bits;
	int64_t number[NB_INFOS];
	int32_t length[INFO_TYPES]; /* of the union's children */
	int64_t rows;
};

static bool
is_asked(uint32_t code, const uint32_t *codes, size_t nb)
{
	size_t i;

	for (i = 0; codes != NULL && i < nb; i++) {
		if (codes[i] == code)
			return true;
	}
	return codes == NULL;
}

static void
info_add(struct info_columns *c, const struct info *info)
{
	const int32_t at = c->length[info->type]++;

	c->code[c->rows] = info->code;
	c->type[c->rows] = (int8_t)info->type;
	c->offset[c->rows++] = at;
	if (info->type == INFO_TEXT)
		texts_add(&c->text, info->text);
	else if (info->type == INFO_BOOL)
		c->bits |= (uint8_t)(info->number << at);
	else
		c->number[at] = info->number;
}

static AdbcStatusCode
info_stream(const struct info_columns *c, struct ArrowArrayStream *stream, struct failure *f)
{
	static const int64_t none[1];
	const int64_t nullable = ARROW_FLAG_NULLABLE;
	/* schema, from the leaves to the root */
	struct ArrowSchema item = {.format = "i", .name = "item", .flags = nullable};
	struct ArrowSchema *items[] = {&item};
	struct ArrowSchema text_item = {.format = "u", .name = "item", .flags = nullable};
	struct ArrowSchema *text_items[] = {&text_item};
	struct ArrowSchema key = {.format = "i", .name = "key"};
	struct ArrowSchema value = {.format = "+l",
		.name = "value",
		.flags = nullable,
		.n_children = 1,
		.children = items};
	struct ArrowSchema *pair[] = {&key, &value};
	struct ArrowSchema entries = {
		.format = "+s", .name = "entries", .n_children = 2, .children = pair};
	struct ArrowSchema *entry[] = {&entries};
	struct ArrowSchema kinds[INFO_TYPES] = {
		[INFO_TEXT] = {.format = "u", .name = "string_value", .flags = nullable},
		[INFO_BOOL] = {.format = "b", .name = "bool_value", .flags = nullable},
		[INFO_INT64] = {.format = "l", .name = "int64_value", .flags = nullable},
		[INFO_INT32] = {.format = "i", .name = "int32_bitmask", .flags = nullable},
		[INFO_TEXTS] = {.format = "+l",
			.name = "string_list",
			.flags = nullable,
			.n_children = 1,
			.children = text_items},
		[INFO_MAP] = {.format = "+m",
			.name = "int32_to_int32_list_map",
			.flags = nullable,
			.n_children = 1,
			.children = entry},
	};
	struct ArrowSchema *kind[INFO_TYPES];
	struct ArrowSchema names[] = {
		{.format = "I", .name = "info_name"},
		{.format = "+ud:0,1,2,3,4,5",
			.name = "info_value",
			.flags = nullable,
			.n_children = INFO_TYPES,
			.children = kind},
	};
	struct ArrowSchema *name[] = {&names[0], &names[1]};
	struct ArrowSchema schema = {.format = "+s", .n_children = 2, .children = name};
	/* arrays; those that are empty share a buffer */
	const void *empty[] = {NULL, none, none};
	const void *texts[] = {NULL, c->text.offset, c->text.bytes};
	const void *bits[] = {NULL, &c->bits};
	const void *numbers[] = {NULL, c->number};
	const void *codes[] = {NULL, c->code};
	const void *unions[] = {c->type, c->offset};
	struct ArrowArray empty_text = {.n_buffers = 3, .buffers = empty};
	struct ArrowArray empty_int = {.n_buffers = 2, .buffers = empty};
	struct ArrowArray *empty_texts[] = {&empty_text}, *empty_ints[] = {&empty_int};
	struct ArrowArray empty_list = {
		.n_buffers = 2, .buffers = empty, .n_children = 1, .children = empty_ints};
	struct ArrowArray *empty_pair[] = {&empty_int, &empty_list};
	struct ArrowArray empty_entries = {
		.n_buffers = 1, .buffers = empty, .n_children = 2, .children = empty_pair};
	struct ArrowArray *empty_entry[] = {&empty_entries};
	struct ArrowArray values[INFO_TYPES] = {
		[INFO_TEXT] = {.n_buffers = 3, .buffers = texts},
		[INFO_BOOL] = {.n_buffers = 2, .buffers = bits},
		[INFO_INT64] = {.n_buffers = 2, .buffers = numbers},
		[INFO_INT32] = {.n_buffers = 2, .buffers = empty},
		[INFO_TEXTS] = {.n_buffers = 2,
			.buffers = empty,
			.n_children = 1,
			.children = empty_texts},
		[INFO_MAP] = {.n_buffers = 2,
			.buffers = empty,
			.n_children = 1,
			.children = empty_entry},
	};
	struct ArrowArray *children[INFO_TYPES];
	struct ArrowArray columns[] = {
		{.length = c->rows, .n_buffers = 2, .buffers = codes},
		{.length = c->rows,
			.n_buffers = 2,
			.buffers = unions,
			.n_children = INFO_TYPES,
			.children = children},
	};
	struct ArrowArray *column[] = {&columns[0], &columns[1]};
	struct ArrowArray array = {.length = c->rows, .n_children = 2, .children = column};
	unsigned int i;

	for (i = 0; i < INFO_TYPES; i++) {
		values[i].length = c->length[i];
		children[i] = &values[i];
		kind[i] = &kinds[i];
	}
	return stream_of(&schema, &array, stream, f);
}

AdbcStatusCode
metadata_info(const uint32_t *codes, size_t nb, struct ArrowArrayStream *stream, struct failure *f)
{
	struct info_columns c = {0};
	size_t i;

	for (i = 0; i < NB_INFOS; i++) {
		if (is_asked(infos[i].code, codes, nb))
			info_add(&c, &infos[i]);
	}
	return info_stream(&c, stream, f);
}

/* ------------------------------------------------------------------ statements */

/* Write " AND expression LIKE 'pattern'". */
static void
put_like(FILE *out, const char *expression, const char *pattern)
{
	if (pattern == NULL)
		return;
	fprintf(out, " AND %s LIKE ", expression);
	sql_put_quoted(out, pattern, '\'');
}

/* Finish a statement. */
static char *
close_text(FILE *out, char **text)
{
	if (fclose(out) == 0)
		return *text;
	free(*text);
	return NULL;
}

char *
metadata_table_sql(const char *catalog, const char *schema, const char *table)
{
	const char *const parts[] = {catalog, schema, table};
	char *text = NULL;
	size_t size, i;
	FILE *out = open_memstream(&text, &size);

	if (out == NULL)
		return NULL;
	fputs("SELECT * FROM ", out);
	for (i = 0; i < 3; i++) {
		if (parts[i] == NULL || parts[i][0] == '\0')
			continue;
		sql_put_quoted(out, parts[i], '"');
		putc(i < 2 ? '.' : ' ', out);
	}
	fputs("LIMIT 0", out);
	return close_text(out, &text);
}

/* Write the tables `s`.`n` of runs that are schemas. */
static void
put_runs(FILE *out)
{
	fputs("WITH named_runs AS (SELECT run AS s, table_name AS n FROM (SELECT *, count(*) OVER "
	      "(PARTITION BY lower(run), table_name) AS same FROM runs) WHERE same = 1 AND "
	      "lower(run) NOT IN ('main', 'memory', 'temp', 'system', 'information_schema', "
	      "'pg_catalog'))",
		out);
}

static bool
has_tables(const struct metadata_filter *filter)
{
	size_t i;

	for (i = 0; filter->types != NULL && filter->types[i] != NULL; i++) {
		if (strcmp(filter->types[i], "table") == 0)
			return true;
	}
	return filter->types == NULL;
}

static void
put_filter(FILE *out, const struct metadata_filter *filter)
{
	fputs(has_tables(filter) ? " WHERE true" : " WHERE false", out);
	put_like(out, "s", filter->schema);
	put_like(out, "n", filter->table);
}

char *
metadata_names_sql(const struct metadata_filter *filter)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	if (out == NULL)
		return NULL;
	put_runs(out);
	/* a statement that names a table makes duckdb_columns() list its columns */
	fputs(" SELECT coalesce(string_agg('(SELECT 0 FROM \"' || replace(s, '\"', '\"\"') || "
	      "'\".' || n || ' LIMIT 0)', ', '), '0') FROM named_runs",
		out);
	put_filter(out, filter);
	return close_text(out, &text);
}

/* A column, as GetObjects describes it. */
static const char column_sql[] =
	"struct_pack(column_name := column_name, ordinal_position := column_index::INTEGER, "
	"remarks := NULL::VARCHAR, xdbc_data_type := NULL::SMALLINT, "
	"xdbc_type_name := data_type, xdbc_column_size := NULL::INTEGER, "
	"xdbc_decimal_digits := NULL::SMALLINT, xdbc_num_prec_radix := NULL::SMALLINT, "
	"xdbc_nullable := is_nullable::SMALLINT, xdbc_column_def := NULL::VARCHAR, "
	"xdbc_sql_data_type := NULL::SMALLINT, xdbc_datetime_sub := NULL::SMALLINT, "
	"xdbc_char_octet_length := NULL::INTEGER, "
	"xdbc_is_nullable := CASE WHEN is_nullable THEN 'YES' ELSE 'NO' END, "
	"xdbc_scope_catalog := NULL::VARCHAR, xdbc_scope_schema := NULL::VARCHAR, "
	"xdbc_scope_table := NULL::VARCHAR, xdbc_is_autoincrement := false, "
	"xdbc_is_generatedcolumn := false)";

/* The type of constraints, of which there are none. */
static const char constraints_type[] =
	"STRUCT(constraint_name VARCHAR, constraint_type VARCHAR, constraint_column_names "
	"VARCHAR[], constraint_column_usage STRUCT(fk_catalog VARCHAR, fk_db_schema VARCHAR, "
	"fk_table VARCHAR, fk_column_name VARCHAR)[])[]";

/* Contents of a level that is not requested. */
static const char *
unless(bool asked, const char *list)
{
	return asked ? list : "NULL";
}

char *
metadata_objects_sql(const struct metadata_filter *filter, const char *names)
{
	const bool schemas = filter->depth != ADBC_OBJECT_DEPTH_CATALOGS;
	const bool tables = schemas && filter->depth != ADBC_OBJECT_DEPTH_DB_SCHEMAS;
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	if (out == NULL)
		return NULL;
	put_runs(out);
	if (names != NULL)
		fprintf(out, ", named AS (SELECT %s)", names);
	fputs(", tabs AS (SELECT s, n FROM named_runs", out);
	put_filter(out, filter);
	fprintf(out,
		"), cols AS (SELECT schema_name AS s, table_name AS n, list(%s ORDER BY "
		"column_index) AS l FROM duckdb_columns() WHERE true",
		column_sql);
	put_like(out, "column_name", filter->column);
	/* CASE keeps the type of lists that are not requested */
	fprintf(out,
		" GROUP BY s, n), tables AS (SELECT s, list(struct_pack(table_name := n, "
		"table_type := 'table', table_columns := CASE WHEN %s THEN coalesce(l, []) END, "
		"table_constraints := %s::%s) ORDER BY n) AS l FROM tabs LEFT JOIN cols USING (s, "
		"n) GROUP BY s), schemas AS (SELECT list(struct_pack(db_schema_name := s, "
		"db_schema_tables := CASE WHEN %s THEN coalesce(l, []) END) ORDER BY s) AS l FROM "
		"(SELECT DISTINCT s FROM named_runs WHERE true",
		names != NULL ? "true" : "false", unless(names != NULL, "[]"), constraints_type,
		tables ? "true" : "false");
	put_like(out, "s", filter->schema);
	fprintf(out,
		") LEFT JOIN tables USING (s)) SELECT '" METADATA_CATALOG "' AS catalog_name, "
		"CASE WHEN %s THEN coalesce(l, []) END AS catalog_db_schemas FROM schemas "
		"WHERE true",
		schemas ? "true" : "false");
	put_like(out, "'" METADATA_CATALOG "'", filter->catalog);
	return close_text(out, &text);
}
