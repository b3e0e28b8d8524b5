/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "escaped_text.h"
#include "sql/chunks.h"
#include "sql/tables.h"

/*
 * Bytes of lists in a chunk. Larger chunks make the engine allocate, and the kernel clear, new
 * memory for each of them, which takes longer than the copy.
 */
#define CHUNK_BYTES (1u << 20)

/*
 * Most batches that a chunk joins: those of images have a dozen rows, and the engine takes as long
 * for a chunk of them as for one of hundreds. A chunk joins at most twice as many as the one
 * before, so that the first rows come early.
 */
#define JOINED_MAX 16

#define ARRAY_MAX 100000 /* DuckDB's limit of the size of an ARRAY */

/** A column of a statement. */
struct column {
	struct arrow_field field;
	size_t from;   /* source where it was found first, for errors */
	bool deferred; /* its values are handles */
};

/** A file of a statement, with the position of each column. */
struct source {
	struct sql_file *file;
	const char *run;
	int *field; /* of each column; -1: this file has none */
};

/** Made by bind, read by all threads. */
struct scan_bind {
	struct sql_tables *tables;
	struct sql_catalog *catalog; /* that of the tables, or an own one */
	struct sql_catalog own;
	char warning[512];     /* first one of the own catalog */
	bool allow_incomplete; /* of files of the own catalog */
	enum arrow_table table;
	struct column *column;
	unsigned int nb_columns;
	struct source *source;
	size_t nb_sources;
	bool with_run; /* the last column is the name of the run */
	uint64_t first;
	uint64_t last;
};

/** A batch that is read. */
struct unit {
	const struct source *source;
	size_t batch;
};

/** State of a scan. */
struct scan {
	const struct scan_bind *bind;
	unsigned int *column; /* of each column of the output; nb_columns: the name of the run */
	unsigned int nb_columns;
	struct unit *unit;
	size_t nb_units;
	size_t next; /* first unit that no thread has, atomic */
};

/** State of a thread. */
struct scan_thread {
	const struct scan *scan;
	const struct unit *unit; /* being read; NULL: none */
	uint64_t rows;
	uint64_t row;	     /* next row */
	bool damaged;	     /* a batch that must not be left out */
	int error;	     /* of the next batch: -ENOMEM; -EUCLEAN: it was changed; -ESTALE */
	unsigned int joined; /* most batches of the next chunk */
	const uint64_t *frame;
	struct arrow_column *value; /* of each column of the output; field NULL: absent */
	struct sql_chunks chunks;   /* of the batch, if the output has `value` of images */
	unsigned int chunks_at;	    /* that column of the output */
	int32_t **offsets;	    /* of each column of the output: copies, for `value` */
	unsigned int nb_columns;    /* room for columns of the output */
	/* conversion from Arrow, for the columns of one file */
	const struct source *converted;
	duckdb_arrow_types types;
	struct ArrowArray root;
	struct ArrowArray *array; /* two for each column: the second is that of the items */
	struct ArrowArray **child;
	struct ArrowArray **item;
	const void **buffer; /* four for each column */
	unsigned int *at;    /* column of the output, of each converted column */
	uint32_t *list;	     /* sql_handle.source of each deferred column of the output */
};

/* Whether a column of the output has handles. */
static bool
is_deferred(const struct scan *s, unsigned int output)
{
	return s->column[output] < s->bind->nb_columns &&
		s->bind->column[s->column[output]].deferred;
}

bool
sql_is_pattern(const char *name)
{
	return strpbrk(name, "*?[") != NULL;
}

static const char *
function_name(const struct sql_tables *t, enum arrow_table table)
{
	static const char *const names[] = {
		[ARROW_FRAMES] = "braggline_frames",
		[ARROW_IMAGES] = "braggline_images",
	};

	return t->catalog != NULL ? arrow_table_name(table) : names[table];
}

static bool
is_list(const struct arrow_field *f)
{
	return f->type == ARROW_LIST || f->type == ARROW_FIXED_LIST;
}

static void
bind_free(void *data)
{
	struct scan_bind *b = data;
	size_t i;

	for (i = 0; i < b->nb_sources; i++)
		free(b->source[i].field);
	free(b->source);
	free(b->column);
	if (b->catalog == &b->own)
		sql_catalog_destroy(&b->own);
	free(b);
}

static int
plain_type(enum arrow_type type)
{
	switch (type) {
	case ARROW_UINT8:
		return DUCKDB_TYPE_UTINYINT;
	case ARROW_UINT16:
		return DUCKDB_TYPE_USMALLINT;
	case ARROW_UINT32:
		return DUCKDB_TYPE_UINTEGER;
	case ARROW_UINT64:
		return DUCKDB_TYPE_UBIGINT;
	case ARROW_INT16:
		return DUCKDB_TYPE_SMALLINT;
	case ARROW_INT64:
		return DUCKDB_TYPE_BIGINT;
	case ARROW_FLOAT32:
		return DUCKDB_TYPE_FLOAT;
	case ARROW_FLOAT64:
		return DUCKDB_TYPE_DOUBLE;
	case ARROW_TIMESTAMP_NS:
		return DUCKDB_TYPE_TIMESTAMP_NS;
	case ARROW_BINARY:
		return DUCKDB_TYPE_BLOB;
	default:
		return DUCKDB_TYPE_INVALID;
	}
}

static duckdb_logical_type
column_type(const struct duckdb_api *api, const struct arrow_field *f)
{
	duckdb_logical_type item, type;

	if (!is_list(f))
		return api->create_logical_type(plain_type(f->type));
	item = api->create_logical_type(plain_type(f->item));
	type = f->type == ARROW_LIST ? api->create_list_type(item)
				     : api->create_array_type(item, f->list_size);
	api->destroy_logical_type(&item);
	return type;
}

static bool
same_type(const struct arrow_field *a, const struct arrow_field *b)
{
	return a->type == b->type && (!is_list(a) || a->item == b->item) &&
		(a->type != ARROW_FIXED_LIST || a->list_size == b->list_size);
}

/*
 * Write that a column has another type in a source than in one before it.
 * @param one    name of the file of the source
 * @param other  that of the one before
 */
static void
put_types(const struct scan_bind *b, const struct column *c, const struct source *source,
	const char *one, const char *other, char *error, size_t size)
{
	const int length = snprintf(error, size, "column %s has another type in %s than in %s",
		c->field.name, one, other);

	if ((size_t)length >= size)
		return;
	if (strcmp(source->run, b->source[c->from].run) != 0)
		snprintf(error + length, size - length, ": query these runs one by one");
	else /* no query can name one of them */
		snprintf(error + length, size - length,
			", both of run %s: give %sonly one of these files, or of their directories",
			source->run, b->catalog->hides_paths ? "the server " : "");
}

/* Set the error that a column has another type in a source than in one before it. */
static void
types_differ(const struct scan_bind *b, const struct column *c, const struct source *source,
	char *error, size_t size)
{
	const struct sql_file *before = b->source[c->from].file;

	put_types(b, c, source, source->file->path, before->path, error, size);
	sql_catalog_report(b->catalog, source->file, error);
	put_types(b, c, source, sql_catalog_shown(b->catalog, source->file),
		sql_catalog_shown(b->catalog, before), error, size);
}

/* Add a file and its columns. @return 0; -ENOMEM; -EBADMSG: `error` says why */
static int
bind_source(struct scan_bind *b, struct sql_file *file, const char *run, char *error, size_t size)
{
	const struct arrow_reader *r = &file->reader;
	const struct arrow_field *f;
	struct source *sources, *source;
	struct column *columns;
	char problem[512];
	unsigned int i, k;

	sources = realloc(b->source, (b->nb_sources + 1) * sizeof(*sources));
	if (sources == NULL)
		return -ENOMEM;
	b->source = sources;
	source = &sources[b->nb_sources++];
	*source = (struct source){.file = file, .run = run};
	for (i = 0; i < r->schema.nb_fields; i++) {
		f = &r->fields[i];
		if (f->type == ARROW_FIXED_LIST &&
			(f->list_size == 0 || f->list_size > ARRAY_MAX)) {
			snprintf(problem, sizeof(problem),
				"column %s has %u items in a row, expected 1 to %u", f->name,
				f->list_size, ARRAY_MAX);
			sql_catalog_error(b->catalog, file, problem, error, size);
			return -EBADMSG;
		}
		for (k = 0; k < b->nb_columns; k++) {
			if (strcasecmp(b->column[k].field.name, f->name) == 0)
				break;
		}
		if (k < b->nb_columns && !same_type(&b->column[k].field, f)) {
			types_differ(b, &b->column[k], source, error, size);
			return -EBADMSG;
		}
		if (k < b->nb_columns) {
			/* a receiver that continues a run may search peaks, which are nullable */
			b->column[k].field.nullable |= f->nullable;
			continue;
		}
		columns = realloc(b->column, (k + 1) * sizeof(*columns));
		if (columns == NULL)
			return -ENOMEM;
		b->column = columns;
		columns[k] = (struct column){.field = *f, .from = source - sources};
		b->nb_columns++;
	}
	return 0;
}

/* Find the columns in each file. @return 0; -ENOMEM */
static int
bind_fields(struct scan_bind *b)
{
	const struct arrow_reader *r;
	struct source *s;
	unsigned int i, k;

	for (s = b->source; s < b->source + b->nb_sources; s++) {
		r = &s->file->reader;
		s->field = malloc((b->nb_columns + 1) * sizeof(*s->field));
		if (s->field == NULL)
			return -ENOMEM;
		for (k = 0; k < b->nb_columns; k++) {
			s->field[k] = -1;
			for (i = 0; i < r->schema.nb_fields; i++) {
				if (strcasecmp(r->fields[i].name, b->column[k].field.name) == 0)
					s->field[k] = (int)i;
			}
		}
	}
	return 0;
}

static int
bind_run(struct scan_bind *b, struct sql_run *run, char *error, size_t size)
{
	struct sql_files *files = &run->table[b->table];
	size_t i;
	int ret;

	ret = sql_catalog_open(b->catalog, run, b->table, error, size);
	for (i = 0; i < files->nb && ret == 0; i++)
		ret = bind_source(b, &files->file[i], run->name, error, size);
	return ret;
}

static void
keep_warning(void *arg, const char *text)
{
	struct scan_bind *b = arg;

	if (b->warning[0] == '\0')
		snprintf(b->warning, sizeof(b->warning), "%s", text);
}

/* Find the files of a directory, or of the name of a file. */
static int
bind_path(struct scan_bind *b, const char *path, char *error, size_t size)
{
	char message[SCAN_LIST_MESSAGE_LEN];
	struct scan_list list = {0};
	struct stat st;
	int ret;
	size_t i;

	b->with_run = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
	ret = scan_list_try(&list, path, message);
	if (ret < 0)
		snprintf(error, size, "%s", message);
	else
		ret = sql_catalog_create(&b->own, &list, keep_warning, b);
	if (ret == 0)
		b->catalog = &b->own;
	scan_list_free(&list);
	for (i = 0; ret == 0 && i < b->own.nb_runs; i++) {
		if (!b->with_run || b->own.run[i].table[b->table].nb > 0)
			ret = bind_run(b, &b->own.run[i], error, size);
	}
	if (ret == 0 && b->nb_sources == 0) {
		snprintf(error, size, "%s: no run has a file of the table %s", path,
			arrow_table_name(b->table));
		ret = -ENOENT;
	}
	if (ret == 0 && b->own.damaged > 0) {
		snprintf(error, size, "%s", b->warning);
		ret = -EBADMSG;
	} else if (ret == 0 && b->own.incomplete > 0 && !b->allow_incomplete) {
		snprintf(error, size,
			"%s; with allow_incomplete := true, %s() reads its complete batches",
			b->warning, function_name(b->tables, b->table));
		ret = -EBADMSG;
	}
	/* the scan reports a damaged batch */
	b->warning[0] = '\0';
	if (ret == 0)
		ret = bind_fields(b);
	return ret;
}

/* Find the files of a run or of a pattern. */
static int
bind_runs(struct scan_bind *b, const char *name, char *error, size_t size)
{
	struct sql_catalog *c = b->catalog;
	struct sql_run *run;
	char names[512];
	int ret = 0;
	size_t i;

	if (c == NULL)
		return bind_path(b, name, error, size);
	/* a run may have the name of a pattern */
	run = sql_catalog_find(c, name);
	b->with_run = run == NULL && sql_is_pattern(name);
	if (run != NULL) {
		ret = bind_run(b, run, error, size);
	} else if (!b->with_run) {
		sql_catalog_names(c, names, sizeof(names));
		snprintf(error, size, "no run is named %s (%s)", name, names);
		return -ENOENT;
	}
	for (i = 0; b->with_run && i < c->nb_runs && ret == 0; i++) {
		/* a run without this table has no rows */
		if (fnmatch(name, c->run[i].name, 0) == 0 && c->run[i].table[b->table].nb > 0)
			ret = bind_run(b, &c->run[i], error, size);
	}
	if (ret == 0 && b->nb_sources == 0) {
		sql_catalog_names(c, names, sizeof(names));
		snprintf(error, size, "no run with a file of the table %s matches %s (%s)",
			arrow_table_name(b->table), name, names);
		return -ENOENT;
	}
	if (ret == 0)
		ret = bind_fields(b);
	if (ret == -ENOMEM)
		snprintf(error, size, "not enough memory");
	return ret;
}

/* Whether a column of a file has pixels that are chunks of another column. */
static bool
has_chunks(const struct scan_bind *b, unsigned int column, const struct source *source)
{
	return b->table == ARROW_IMAGES && strcasecmp(b->column[column].field.name, "value") == 0 &&
		sql_chunks_may(&source->file->reader);
}

/* Decide which columns are deferred. */
static void
bind_deferred(struct scan_bind *b)
{
	const struct sql_statement *statement = b->tables->defer;
	unsigned int k;
	size_t i, n;

	for (k = 0; statement != NULL && k < b->nb_columns; k++) {
		struct column *c = &b->column[k];

		c->deferred =
			sql_lists_fit(c->field.type, 0) && sql_defer_may(statement, c->field.name);
		for (i = 0; i < b->nb_sources && c->deferred; i++) {
			const struct arrow_reader *r = &b->source[i].file->reader;

			c->deferred = !has_chunks(b, k, &b->source[i]);
			for (n = 0; n < r->nb_batches && c->deferred; n++)
				c->deferred = sql_lists_fit(c->field.type, r->batches[n].rows);
		}
	}
}

static uint64_t
named_parameter(
	const struct duckdb_api *api, duckdb_bind_info info, const char *name, uint64_t absent)
{
	duckdb_value value = api->bind_get_named_parameter(info, name);
	uint64_t number = absent;

	if (value == NULL)
		return absent;
	if (!api->is_null_value(value))
		number = api->get_uint64(value);
	api->destroy_value(&value);
	return number;
}

static uint64_t
batch_rows(const struct scan_bind *b)
{
	uint64_t rows = 0;
	size_t i, k;

	for (i = 0; i < b->nb_sources; i++) {
		const struct arrow_reader *r = &b->source[i].file->reader;

		for (k = 0; k < r->nb_batches; k++)
			rows += r->batches[k].rows;
	}
	return rows;
}

/* Get the range of a view; without one it has all frames. */
static void
view_range(const struct sql_tables *t, enum arrow_table table, const char *run, uint64_t *first,
	uint64_t *last)
{
	size_t i;

	for (i = 0; i < t->nb_ranges; i++) {
		const struct sql_range *r = &t->range[i];

		if (r->table != table || strcmp(r->run, run) != 0)
			continue;
		*first = r->first;
		*last = r->last;
		return;
	}
}

static void
bind(duckdb_bind_info info, struct sql_tables *t, enum arrow_table table, bool is_view)
{
	const struct duckdb_api *api = t->api;
	struct scan_bind *b = calloc(1, sizeof(*b));
	char error[SCAN_LIST_MESSAGE_LEN] = "not enough memory", *name, *shown;
	duckdb_logical_type type;
	duckdb_value value;
	unsigned int k;
	int ret;

	if (b == NULL) {
		api->bind_set_error(info, error);
		return;
	}
	b->tables = t;
	b->catalog = t->catalog;
	b->table = table;
	b->first = is_view ? 0 : named_parameter(api, info, "first", 0);
	b->last = is_view ? UINT64_MAX : named_parameter(api, info, "last", UINT64_MAX);
	b->allow_incomplete =
		t->catalog == NULL && named_parameter(api, info, "allow_incomplete", false);
	value = api->bind_get_parameter(info, 0);
	name = api->is_null_value(value) ? NULL : api->get_varchar(value);
	api->destroy_value(&value);
	if (name == NULL) {
		snprintf(error, sizeof(error), "the name of the run is NULL");
		ret = -EINVAL;
	} else {
		ret = bind_runs(b, name, error, sizeof(error));
		if (is_view)
			view_range(t, table, name, &b->first, &b->last);
		api->free(name);
	}
	if (ret < 0) {
		shown = escaped_text(error);
		api->bind_set_error(info, shown != NULL ? shown : "not enough memory");
		free(shown);
		bind_free(b);
		return;
	}
	bind_deferred(b);
	for (k = 0; k < b->nb_columns; k++) {
		type = column_type(api, &b->column[k].field);
		if (b->column[k].deferred)
			api->logical_type_set_alias(type, SQL_DEFERRED);
		api->bind_add_result_column(info, b->column[k].field.name, type);
		api->destroy_logical_type(&type);
	}
	if (b->with_run) {
		type = api->create_logical_type(DUCKDB_TYPE_VARCHAR);
		api->bind_add_result_column(info, "run", type);
		api->destroy_logical_type(&type);
	}
	api->bind_set_cardinality(info, batch_rows(b), false);
	api->bind_set_bind_data(info, b, bind_free);
}

/* Of the process. Atomic: sessions of several threads set it to the same value. */
static const struct duckdb_api *registered_api;

/* Get the API, for functions that DuckDB calls: it is needed to get their data. */
static const struct duckdb_api *
get_api(void)
{
	return __atomic_load_n(&registered_api, __ATOMIC_ACQUIRE);
}

/* The table is known by the function that DuckDB calls; the extra information is the same. */
static void
bind_frames(duckdb_bind_info info)
{
	bind(info, get_api()->bind_get_extra_info(info), ARROW_FRAMES, false);
}

static void
bind_view_frames(duckdb_bind_info info)
{
	bind(info, get_api()->bind_get_extra_info(info), ARROW_FRAMES, true);
}

static void
bind_images(duckdb_bind_info info)
{
	bind(info, get_api()->bind_get_extra_info(info), ARROW_IMAGES, false);
}

static void
bind_view_images(duckdb_bind_info info)
{
	bind(info, get_api()->bind_get_extra_info(info), ARROW_IMAGES, true);
}

static void
scan_free(void *data)
{
	struct scan *s = data;

	free(s->column);
	free(s->unit);
	free(s);
}

/* List the batches that have frames of the range. */
static int
list_units(struct scan *s)
{
	const struct scan_bind *b = s->bind;
	struct sql_tables *t = b->tables;
	uint64_t rows = 0, skipped = 0;
	const struct source *source;
	size_t i, k, room = 0;

	for (i = 0; i < b->nb_sources; i++)
		room += b->source[i].file->reader.nb_batches;
	s->unit = malloc((room + 1) * sizeof(*s->unit));
	if (s->unit == NULL)
		return -ENOMEM;
	for (i = 0; i < b->nb_sources; i++) {
		source = &b->source[i];
		for (k = 0; k < source->file->reader.nb_batches; k++) {
			if ((b->first > 0 || b->last < UINT64_MAX) &&
				!sql_catalog_overlaps(
					b->catalog, source->file, k, b->first, b->last)) {
				skipped++;
				continue;
			}
			s->unit[s->nb_units++] = (struct unit){source, k};
			rows += source->file->reader.batches[k].rows;
		}
	}
	__atomic_add_fetch(&t->skipped, skipped, __ATOMIC_RELAXED);
	__atomic_add_fetch(&b->catalog->rows_total, rows, __ATOMIC_RELAXED);
	return 0;
}

static void
init(duckdb_init_info info)
{
	const struct duckdb_api *api = get_api();
	const struct scan_bind *b = api->init_get_bind_data(info);
	struct scan *s = calloc(1, sizeof(*s));
	uint64_t i, column;

	if (s == NULL)
		goto fail;
	s->bind = b;
	s->nb_columns = api->init_get_column_count(info);
	s->column = malloc((s->nb_columns + 1) * sizeof(*s->column));
	if (s->column == NULL || list_units(s) < 0)
		goto fail;
	for (i = 0; i < s->nb_columns; i++) {
		column = api->init_get_column_index(info, i);
		/* a statement that needs rows, but no column, asks for the number of a row */
		s->column[i] = column < b->nb_columns + b->with_run ? column : UINT32_MAX;
	}
	api->init_set_max_threads(info, s->nb_units > 0 ? s->nb_units : 1);
	api->init_set_init_data(info, s, scan_free);
	return;

fail:
	if (s != NULL)
		scan_free(s);
	api->init_set_error(info, "not enough memory");
}

static void
thread_free(void *data)
{
	struct scan_thread *t = data;
	unsigned int i;

	for (i = 0; t->offsets != NULL && i < t->nb_columns; i++)
		free(t->offsets[i]);
	if (t->types != NULL)
		get_api()->destroy_arrow_converted_schema(&t->types);
	free(t->value);
	free(t->array);
	free(t->child);
	free(t->item);
	free(t->buffer);
	free(t->at);
	free(t->list);
	free(t->offsets);
	sql_chunks_free(&t->chunks);
	free(t);
}

/* The start of a thread cannot get the state of the scan: function() sets it. */
static void
init_thread(duckdb_init_info info)
{
	const struct duckdb_api *api = get_api();
	const unsigned int nb = api->init_get_column_count(info) + 1;
	struct scan_thread *t = calloc(1, sizeof(*t));

	if (t != NULL) {
		t->joined = 1;
		t->nb_columns = nb;
		t->value = calloc(nb, sizeof(*t->value));
		t->array = calloc(2 * nb, sizeof(*t->array));
		t->child = calloc(nb, sizeof(*t->child));
		t->item = calloc(nb, sizeof(*t->item));
		t->buffer = calloc(4 * nb, sizeof(*t->buffer));
		t->at = calloc(nb, sizeof(*t->at));
		t->list = calloc(nb, sizeof(*t->list));
		t->offsets = calloc(nb, sizeof(*t->offsets));
	}
	if (t == NULL || t->value == NULL || t->array == NULL || t->child == NULL ||
		t->item == NULL || t->buffer == NULL || t->at == NULL || t->list == NULL ||
		t->offsets == NULL) {
		if (t != NULL)
			thread_free(t);
		api->init_set_error(info, "not enough memory");
		return;
	}
	api->init_set_init_data(info, t, thread_free);
}

static const char *
plain_format(enum arrow_type type)
{
	static const char *const formats[ARROW_TYPES] = {
		[ARROW_UINT8] = "C",
		[ARROW_UINT16] = "S",
		[ARROW_UINT32] = "I",
		[ARROW_UINT64] = "L",
		[ARROW_INT16] = "s",
		[ARROW_INT64] = "l",
		[ARROW_FLOAT32] = "f",
		[ARROW_FLOAT64] = "g",
		[ARROW_TIMESTAMP_NS] = "tsn:",
		[ARROW_BINARY] = "z",
		[ARROW_LIST] = "+l",
	};

	return formats[type];
}

static void
release_schema(struct ArrowSchema *schema)
{
	schema->release = NULL;
}

/* The structures belong to the thread, and the bytes to the catalog. */
static void
release_array(struct ArrowArray *array)
{
	array->release = NULL;
}

/* Describe the columns of a file to DuckDB. @return 0; -EIO */
static int
convert_types(struct scan_thread *t, const struct source *source)
{
	const struct scan *s = t->scan;
	const struct sql_tables *tables = s->bind->tables;
	struct ArrowSchema *field, **child, *item, **items;
	struct ArrowSchema root = {.format = "+s", .name = "", .release = release_schema};
	char(*fixed)[16];
	duckdb_error_data error;
	unsigned int i, nb = 0;
	int ret = -EIO;

	if (t->types != NULL)
		tables->api->destroy_arrow_converted_schema(&t->types);
	t->types = NULL;
	field = calloc(2 * s->nb_columns + 2, sizeof(*field));
	child = calloc(2 * s->nb_columns + 2, sizeof(*child));
	fixed = calloc(s->nb_columns + 1, sizeof(*fixed));
	if (field == NULL || child == NULL || fixed == NULL)
		goto out;
	item = field + s->nb_columns + 1;
	items = child + s->nb_columns + 1;
	for (i = 0; i < s->nb_columns; i++) {
		const struct arrow_field *f;

		if (s->column[i] >= s->bind->nb_columns || source->field[s->column[i]] < 0 ||
			s->bind->column[s->column[i]].deferred)
			continue;
		f = &s->bind->column[s->column[i]].field;
		t->at[nb] = i;
		child[nb] = &field[nb];
		field[nb] = (struct ArrowSchema){
			.format = plain_format(f->type),
			.name = f->name,
			.flags = f->nullable ? ARROW_FLAG_NULLABLE : 0,
			.release = release_schema,
		};
		if (is_list(f)) {
			item[nb] = (struct ArrowSchema){
				.format = plain_format(f->item),
				.name = "item",
				.release = release_schema,
			};
			items[nb] = &item[nb];
			field[nb].children = &items[nb];
			field[nb].n_children = 1;
		}
		if (f->type == ARROW_FIXED_LIST) {
			snprintf(fixed[nb], sizeof(fixed[nb]), "+w:%u", f->list_size);
			field[nb].format = fixed[nb];
		}
		nb++;
	}
	root.children = child;
	root.n_children = nb;
	t->root.n_children = nb;
	if (nb > 0) {
		error = tables->api->schema_from_arrow(tables->convert, &root, &t->types);
		if (error != NULL) {
			tables->api->destroy_error_data(&error);
			goto out;
		}
	}
	t->converted = source;
	ret = 0;
out:
	free(field);
	free(child);
	free(fixed);
	return ret;
}

/* Describe rows of a column to DuckDB. */
static void
convert_column(struct scan_thread *t, unsigned int k, uint64_t rows)
{
	const struct arrow_column *c = &t->value[t->at[k]];
	struct ArrowArray *a = &t->array[2 * k], *items = a + 1;
	const void **buffer = &t->buffer[4 * k];
	const bool list = is_list(c->field);

	t->child[k] = a;
	*a = (struct ArrowArray){
		.length = (int64_t)rows,
		.null_count = c->validity != NULL ? -1 : 0,
		.offset = (int64_t)t->row,
		.n_buffers = c->field->type == ARROW_FIXED_LIST ? 1
			: c->field->type == ARROW_BINARY	? 3
								: 2,
		.buffers = buffer,
		.release = release_array,
	};
	buffer[0] = c->validity;
	buffer[1] = c->field->type == ARROW_LIST || c->field->type == ARROW_BINARY
		? (const void *)c->offsets
		: c->data;
	if (c->field->type == ARROW_BINARY)
		buffer[2] = c->data;
	if (!list)
		return;
	t->item[k] = items;
	a->n_children = 1;
	a->children = &t->item[k];
	*items = (struct ArrowArray){
		.length = (int64_t)c->items,
		.n_buffers = 2,
		.buffers = buffer + 2,
		.release = release_array,
	};
	buffer[2] = NULL;
	buffer[3] = c->data;
}

/* Bytes of values of some rows. */
static uint64_t
value_bytes(const struct arrow_column *c, uint64_t row, uint64_t rows)
{
	const struct arrow_field *f = c->field;

	switch (f->type) {
	case ARROW_LIST:
		return (uint64_t)(c->offsets[row + rows] - c->offsets[row]) *
			arrow_type_width(f->item);
	case ARROW_BINARY:
		return c->offsets[row + rows] - c->offsets[row];
	case ARROW_FIXED_LIST:
		return rows * f->list_size * arrow_type_width(f->item);
	default:
		return rows * arrow_type_width(f->type);
	}
}

/* Make the output refer to the rows of the file. @return 0; -EIO */
static int
fill_by_reference(struct scan_thread *t, duckdb_chunk output, uint64_t rows)
{
	struct sql_tables *tables = t->scan->bind->tables;
	const struct duckdb_api *api = tables->api;
	duckdb_error_data error;
	duckdb_chunk chunk = NULL;
	uint64_t bytes = 0;
	unsigned int k;

	if (t->converted != t->unit->source && convert_types(t, t->unit->source) < 0)
		return -EIO;
	if (t->root.n_children == 0)
		return 0;
	for (k = 0; k < t->root.n_children; k++) {
		convert_column(t, k, rows);
		bytes += value_bytes(&t->value[t->at[k]], t->row, rows);
	}
	t->root = (struct ArrowArray){
		.length = (int64_t)rows,
		.n_buffers = 1,
		.buffers = &t->buffer[4 * t->root.n_children],
		.n_children = t->root.n_children,
		.children = t->child,
		.release = release_array,
	};
	error = api->data_chunk_from_arrow(tables->convert, &t->root, t->types, &chunk);
	if (error != NULL) {
		api->destroy_error_data(&error);
		return -EIO;
	}
	for (k = 0; k < t->root.n_children; k++)
		api->vector_reference_vector(api->data_chunk_get_vector(output, t->at[k]),
			api->data_chunk_get_vector(chunk, k));
	api->destroy_data_chunk(&chunk);
	__atomic_add_fetch(&tables->referenced, bytes, __ATOMIC_RELAXED);
	return 0;
}

/* @param at  row of the vector that is that of `row` */
static void
copy_validity(const struct duckdb_api *api, duckdb_vector vector, uint64_t at,
	const struct arrow_column *c, uint64_t row, uint64_t rows)
{
	uint64_t *validity, i;

	if (c->validity == NULL)
		return;
	api->vector_ensure_validity_writable(vector);
	validity = api->vector_get_validity(vector);
	for (i = 0; i < rows; i++) {
		if (arrow_column_is_null(c, row + i))
			validity[(at + i) / 64] &= ~(UINT64_C(1) << (at + i) % 64);
	}
}

/* Copy rows of `value`, of which some are in chunks. @return 0; -ENOMEM; -EBADMSG */
static int
copy_chunks(struct scan_thread *t, duckdb_vector vector, uint64_t rows)
{
	const struct duckdb_api *api = t->scan->bind->tables->api;
	struct duckdb_list *lists;
	uint64_t i, items, at = 0;
	int16_t *data;
	int ret = 0;

	for (i = 0; i < rows; i++)
		at += t->chunks.row[t->row + i].items;
	if (api->list_vector_reserve(vector, at) != DUCKDB_SUCCESS ||
		api->list_vector_set_size(vector, at) != DUCKDB_SUCCESS)
		return -ENOMEM;
	lists = api->vector_get_data(vector);
	data = api->vector_get_data(api->list_vector_get_child(vector));
	for (i = at = 0; ret == 0 && i < rows; i++, at += items) {
		items = t->chunks.row[t->row + i].items;
		lists[i] = (struct duckdb_list){at, items};
		ret = sql_chunks_copy(&t->chunks, t->row + i, data + at);
	}
	return ret;
}

/*
 * Copy rows of a column.
 * @param at  first row of the vector; 0 if the column has lists or bytes
 * @return 0; -ENOMEM
 */
static int
copy_column(const struct duckdb_api *api, duckdb_vector vector, uint64_t at,
	const struct arrow_column *c, uint64_t row, uint64_t rows)
{
	const struct arrow_field *f = c->field;
	const uint8_t *data = c->data;
	struct duckdb_list *lists;
	uint64_t i, start, end, width;

	copy_validity(api, vector, at, c, row, rows);
	switch (f->type) {
	case ARROW_LIST:
		start = c->offsets[row];
		end = c->offsets[row + rows];
		width = arrow_type_width(f->item);
		if (api->list_vector_reserve(vector, end - start) != DUCKDB_SUCCESS ||
			api->list_vector_set_size(vector, end - start) != DUCKDB_SUCCESS)
			return -ENOMEM;
		lists = api->vector_get_data(vector);
		for (i = 0; i < rows; i++)
			lists[i] = (struct duckdb_list){c->offsets[row + i] - start,
				c->offsets[row + i + 1] - c->offsets[row + i]};
		if (end > start)
			memcpy(api->vector_get_data(api->list_vector_get_child(vector)),
				data + start * width, (end - start) * width);
		return 0;
	case ARROW_BINARY:
		for (i = row; i < row + rows; i++)
			api->vector_assign_string_element_len(vector, i - row,
				(const char *)data + c->offsets[i],
				c->offsets[i + 1] - c->offsets[i]);
		return 0;
	case ARROW_FIXED_LIST:
		width = (uint64_t)f->list_size * arrow_type_width(f->item);
		memcpy((uint8_t *)api->vector_get_data(api->array_vector_get_child(vector)) +
				at * width,
			data + row * width, rows * width);
		return 0;
	default:
		width = arrow_type_width(f->type);
		memcpy((uint8_t *)api->vector_get_data(vector) + at * width, data + row * width,
			rows * width);
		return 0;
	}
}

static int
fill_by_copy(struct scan_thread *t, duckdb_chunk output, uint64_t at, uint64_t rows)
{
	const struct scan *s = t->scan;
	struct sql_tables *tables = s->bind->tables;
	duckdb_vector vector;
	uint64_t bytes = 0;
	unsigned int i;
	int ret;

	for (i = 0; i < s->nb_columns; i++) {
		if (t->value[i].field == NULL || is_deferred(s, i))
			continue;
		vector = tables->api->data_chunk_get_vector(output, i);
		ret = t->chunks.some && i == t->chunks_at
			? copy_chunks(t, vector, rows)
			: copy_column(tables->api, vector, at, &t->value[i], t->row, rows);
		if (ret < 0)
			return ret;
		bytes += value_bytes(&t->value[i], t->row, rows);
	}
	__atomic_add_fetch(&tables->copied, bytes, __ATOMIC_RELAXED);
	return 0;
}

/* Write a handle for each row of a column. @return 0; -ENOMEM */
static int
put_handles(struct scan_thread *t, unsigned int column, duckdb_vector vector, uint64_t at,
	uint64_t rows)
{
	const struct duckdb_api *api = t->scan->bind->tables->api;
	const struct arrow_column *c = &t->value[column];
	struct sql_handle handle = {.source = t->list[column]};
	struct duckdb_list *lists;
	uint64_t row, items;
	uint8_t *data;

	copy_validity(api, vector, at, c, t->row, rows);
	if (c->field->type == ARROW_BINARY) {
		for (row = 0; row < rows; row++) {
			handle.row = (uint32_t)(t->row + row);
			api->vector_assign_string_element_len(
				vector, at + row, (const char *)&handle, sizeof(handle));
		}
		return 0;
	}
	items = sizeof(handle) / arrow_type_width(c->field->item);
	if (api->list_vector_reserve(vector, (at + rows) * items) != DUCKDB_SUCCESS ||
		api->list_vector_set_size(vector, (at + rows) * items) != DUCKDB_SUCCESS)
		return -ENOMEM;
	lists = api->vector_get_data(vector);
	data = api->vector_get_data(api->list_vector_get_child(vector));
	for (row = 0; row < rows; row++) {
		handle.row = (uint32_t)(t->row + row);
		lists[at + row] = (struct duckdb_list){(at + row) * items, items};
		memcpy(data + (at + row) * sizeof(handle), &handle, sizeof(handle));
	}
	return 0;
}

/* @return 0; -ENOMEM */
static int
fill_deferred(struct scan_thread *t, duckdb_chunk output, uint64_t at, uint64_t rows)
{
	const struct scan *s = t->scan;
	unsigned int i;
	int ret = 0;

	for (i = 0; i < s->nb_columns && ret == 0; i++) {
		if (t->value[i].field != NULL && is_deferred(s, i))
			ret = put_handles(t, i,
				s->bind->tables->api->data_chunk_get_vector(output, i), at, rows);
	}
	return ret;
}

/* Fill a column that the file does not have with NULL. */
static void
fill_null(const struct duckdb_api *api, duckdb_vector vector, const struct arrow_field *f,
	uint64_t rows)
{
	uint64_t *validity;

	api->vector_ensure_validity_writable(vector);
	validity = api->vector_get_validity(vector);
	memset(validity, 0, (rows + 63) / 64 * sizeof(*validity));
	/* positions of lists must be valid even if they are NULL */
	if (f->type == ARROW_LIST)
		memset(api->vector_get_data(vector), 0, rows * sizeof(struct duckdb_list));
}

static void
fill_others(struct scan_thread *t, duckdb_chunk output, uint64_t rows)
{
	const struct scan *s = t->scan;
	const struct duckdb_api *api = s->bind->tables->api;
	duckdb_vector vector;
	duckdb_value value;
	const char *run;
	unsigned int i;

	for (i = 0; i < s->nb_columns; i++) {
		if (t->value[i].field != NULL || s->column[i] == UINT32_MAX)
			continue;
		vector = api->data_chunk_get_vector(output, i);
		if (s->column[i] < s->bind->nb_columns) {
			fill_null(api, vector, &s->bind->column[s->column[i]].field, rows);
			continue;
		}
		run = t->unit->source->run;
		if (api->vector_reference_value == NULL) {
			for (uint64_t row = 0; row < rows; row++)
				api->vector_assign_string_element_len(
					vector, row, run, strlen(run));
			continue;
		}
		value = api->create_varchar_length(run, strlen(run));
		api->vector_reference_value(vector, value);
		api->destroy_value(&value);
	}
}

/*
 * Replace the offsets of a column by a copy that is checked: another process may write to the file.
 * @return 0; -ENOMEM; -EUCLEAN
 */
static int
copy_offsets(struct arrow_column *c, int32_t **copy)
{
	int32_t *offsets = realloc(*copy, (c->rows + 1) * sizeof(*offsets));
	uint64_t i;

	if (offsets == NULL)
		return -ENOMEM;
	*copy = offsets;
	memcpy(offsets, c->offsets, (c->rows + 1) * sizeof(*offsets));
	if (offsets[0] < 0 || (uint64_t)offsets[c->rows] > c->items)
		return -EUCLEAN;
	for (i = 0; i < c->rows; i++) {
		if (offsets[i + 1] < offsets[i])
			return -EUCLEAN;
	}
	c->offsets = offsets;
	return 0;
}

/* Take a column of the next batch. @return 0; -ENOMEM; -EUCLEAN */
static int
take_column(struct scan_thread *t, unsigned int output, unsigned int field)
{
	const struct arrow_reader *r = &t->unit->source->file->reader;
	struct arrow_column *c = &t->value[output];
	int ret;

	if (arrow_reader_column(r, t->unit->batch, field, c) < 0)
		return -EUCLEAN;
	if (is_deferred(t->scan, output))
		return sql_lists_add(&t->scan->bind->tables->lists, c, &t->list[output]);
	ret = c->offsets != NULL ? copy_offsets(c, &t->offsets[output]) : 0;
	if (ret < 0 || !has_chunks(t->scan->bind, t->scan->column[output], t->unit->source))
		return ret;
	t->chunks_at = output;
	return sql_chunks_open(&t->chunks, r, t->unit->batch, c);
}

/* Take the columns of the batch, which was checked. @return 0; -ENOMEM; -EUCLEAN; -ESTALE */
static int
take_batch(struct scan_thread *t)
{
	const struct source *source = t->unit->source;
	const struct scan *s = t->scan;
	struct arrow_column frame;
	unsigned int i;
	int field, ret;

	ret = arrow_reader_column(
		&source->file->reader, t->unit->batch, source->file->frame, &frame);
	if (ret < 0)
		ret = -EUCLEAN;
	t->frame = frame.data;
	t->rows = frame.rows;
	t->row = 0;
	t->chunks.some = false;
	for (i = 0; i < s->nb_columns && ret == 0; i++) {
		t->value[i].field = NULL;
		field = s->column[i] < s->bind->nb_columns ? source->field[s->column[i]] : -1;
		if (field >= 0)
			ret = take_column(t, i, field);
	}
	return ret < 0 && map_guard_is_marked(source->file->guard) ? -ESTALE : ret;
}

/* Take the next batch. @return false: there is none, or an error */
static bool
next_unit(struct scan_thread *t, struct scan *s)
{
	const struct scan_bind *b = s->bind;
	struct sql_file *file;
	size_t at;

	while ((at = __atomic_fetch_add(&s->next, 1, __ATOMIC_RELAXED)) < s->nb_units) {
		t->unit = &s->unit[at];
		file = t->unit->source->file;
		__atomic_add_fetch(&b->catalog->rows, file->reader.batches[t->unit->batch].rows,
			__ATOMIC_RELAXED);
		if (sql_catalog_check(b->catalog, file, t->unit->batch)) {
			t->error = take_batch(t);
			return t->error == 0;
		}
		if (b->catalog == &b->own) {
			t->damaged = true;
			return false;
		}
	}
	t->unit = NULL;
	return false;
}

/* Find the next rows of the range that fit into a chunk. @return their number; 0: none is left */
static uint64_t
next_rows(struct scan_thread *t)
{
	const struct scan *s = t->scan;
	const uint64_t first = s->bind->first, last = s->bind->last;
	uint64_t rows, bytes = 0;
	unsigned int i;

	while (t->row < t->rows && (t->frame[t->row] < first || t->frame[t->row] > last))
		t->row++;
	for (rows = 0; rows < DUCKDB_VECTOR_ROWS && t->row + rows < t->rows; rows++) {
		if (t->frame[t->row + rows] < first || t->frame[t->row + rows] > last)
			break;
		for (i = 0; i < s->nb_columns; i++) {
			if (s->bind->tables->any_rows && is_deferred(s, i))
				continue;
			if (t->value[i].field != NULL && t->value[i].offsets != NULL)
				bytes += t->chunks.some && i == t->chunks_at
					? t->chunks.row[t->row + rows].items * sizeof(int16_t)
					: value_bytes(&t->value[i], t->row + rows, 1);
		}
		if (rows > 0 && bytes > CHUNK_BYTES)
			break;
	}
	return rows;
}

/*
 * Whether the rows of the present batch can follow others in a chunk: they have handles, and no
 * lists or bytes.
 */
static bool
may_join(const struct scan_thread *t)
{
	const struct scan *s = t->scan;
	bool handles = false;
	unsigned int i;

	/* a chunk of other results is a record batch, which must not be large */
	if (!s->bind->tables->join || !s->bind->tables->any_rows || t->chunks.some)
		return false;
	for (i = 0; i < s->nb_columns; i++) {
		if (t->value[i].field == NULL)
			continue;
		if (is_deferred(s, i))
			handles = true;
		else if (t->value[i].offsets != NULL)
			return false;
	}
	return handles;
}

/* Find rows that are not in a chunk yet. @return their number; 0: there are none, or an error */
static uint64_t
find_rows(struct scan_thread *t, struct scan *s)
{
	uint64_t rows;

	while (t->unit != NULL || next_unit(t, s)) {
		rows = next_rows(t);
		if (rows > 0)
			return rows;
		t->unit = NULL;
	}
	return 0;
}

/*
 * Append rows of the present batch to a chunk.
 * @param at    rows that it has
 * @param join  others may follow: they are copied, as no chunk refers to several batches
 * @return 0; -ENOMEM, -EIO; -EBADMSG: a chunk of an image; -ESTALE: a file
 */
static int
append_rows(struct scan_thread *t, duckdb_chunk output, uint64_t at, uint64_t rows, bool join)
{
	int ret;

	/* no memory that outlives the output has the values of chunks */
	ret = t->scan->bind->tables->fill == SQL_ZERO_COPY && !t->chunks.some && !join
		? fill_by_reference(t, output, rows)
		: fill_by_copy(t, output, at, rows);
	if (ret == 0)
		ret = fill_deferred(t, output, at, rows);
	if (ret < 0)
		return ret;
	fill_others(t, output, at + rows);
	if (map_guard_is_marked(t->unit->source->file->guard))
		return -ESTALE;
	t->row += rows;
	if (t->row == t->rows)
		t->unit = NULL;
	return 0;
}

static void
function(duckdb_function_info info, duckdb_chunk output)
{
	const struct duckdb_api *api = get_api();
	struct scan_thread *t = api->function_get_local_init_data(info);
	struct scan *s = api->function_get_init_data(info);
	const struct source *source;
	const char *error = NULL;
	uint64_t rows, at = 0;
	unsigned int nb = 0;
	bool join;
	int ret = 0;

	t->scan = s;
	rows = find_rows(t, s);
	source = rows > 0 ? t->unit->source : NULL;
	join = rows > 0 && rows <= DUCKDB_VECTOR_ROWS / JOINED_MAX && may_join(t);
	while (rows > 0 && ret == 0) {
		ret = append_rows(t, output, at, rows, join);
		at += rows;
		if (!join || ++nb == t->joined)
			break;
		rows = find_rows(t, s);
		/* the next chunk has them */
		if (rows > 0 &&
			(t->unit->source != source || at + rows > DUCKDB_VECTOR_ROWS ||
				!may_join(t)))
			break;
	}
	if (t->joined < JOINED_MAX)
		t->joined *= 2;
	if (ret == -EBADMSG)
		error = "a chunk of an image is damaged, or does not fit the detector; leave its "
			"frame out with WHERE frame";
	else if (t->error == -EUCLEAN)
		error = "a file was changed during the query: a column of a batch is not valid any "
			"more; query runs that no program changes";
	else if (ret == -ESTALE || t->error == -ESTALE)
		error = "a file was truncated during the query, or its disk has an error";
	else if (ret < 0 || t->error < 0)
		error = "not enough memory for the rows of a run";
	else if (t->damaged)
		error = s->bind->warning;
	api->data_chunk_set_size(output, error == NULL ? at : 0);
	if (error != NULL)
		api->function_set_error(info, error);
}

const char *
sql_tables_view(enum arrow_table table)
{
	static const char *const names[] = {
		[ARROW_FRAMES] = "view_frames",
		[ARROW_IMAGES] = "view_images",
	};

	return names[table];
}

/* Whether a name is that of a file. @param end  out: length of the part with the run's name */
static bool
file_table(const char *name, enum arrow_table *table, size_t *end)
{
	static const char *const ends[ARROW_TABLES] = {
		[ARROW_FRAMES] = "_frames.arrow",
		[ARROW_IMAGES] = "_images.arrow",
	};
	const size_t length = strlen(name);

	for (*table = 0; *table < ARROW_TABLES; ++*table) {
		*end = length - strlen(ends[*table]);
		if (length > strlen(ends[*table]) && strcmp(name + *end, ends[*table]) == 0)
			return true;
	}
	return false;
}

bool
sql_is_file_name(const char *name)
{
	enum arrow_table table;
	size_t end;

	return file_table(name, &table, &end);
}

/* Replace the name of a file by a call of its table's function. */
static void
replace(duckdb_replacement_info info, const char *name, void *data)
{
	struct sql_tables *t = data;
	enum arrow_table table;
	duckdb_value value;
	size_t end;

	if (!file_table(name, &table, &end))
		return;
	t->api->replacement_scan_set_function_name(info, function_name(t, table));
	/* a run, or the name of a file */
	value = t->api->create_varchar_length(name, t->catalog != NULL ? end : strlen(name));
	t->api->replacement_scan_add_parameter(info, value);
	t->api->destroy_value(&value);
}

/* Register a function for a table. @param is_view  of its views */
static int
register_table(
	struct sql_tables *t, duckdb_connection connection, enum arrow_table table, bool is_view)
{
	static void (*const binds[ARROW_TABLES][2])(duckdb_bind_info) = {
		[ARROW_FRAMES] = {bind_frames, bind_view_frames},
		[ARROW_IMAGES] = {bind_images, bind_view_images},
	};
	const struct duckdb_api *api = t->api;
	duckdb_table_function f = api->create_table_function();
	duckdb_logical_type text = api->create_logical_type(DUCKDB_TYPE_VARCHAR);
	duckdb_logical_type number = api->create_logical_type(DUCKDB_TYPE_UBIGINT);
	duckdb_logical_type boolean = api->create_logical_type(DUCKDB_TYPE_BOOLEAN);
	int ret;

	api->table_function_set_name(f, is_view ? sql_tables_view(table) : function_name(t, table));
	api->table_function_add_parameter(f, text);
	if (!is_view) {
		api->table_function_add_named_parameter(f, "first", number);
		api->table_function_add_named_parameter(f, "last", number);
	}
	/* a catalog reports incomplete files otherwise */
	if (t->catalog == NULL)
		api->table_function_add_named_parameter(f, "allow_incomplete", boolean);
	api->table_function_set_extra_info(f, t, NULL);
	api->table_function_set_bind(f, binds[table][is_view]);
	api->table_function_set_init(f, init);
	api->table_function_set_local_init(f, init_thread);
	api->table_function_set_function(f, function);
	api->table_function_supports_projection_pushdown(f, true);
	ret = api->register_table_function(connection, f);
	api->destroy_logical_type(&text);
	api->destroy_logical_type(&number);
	api->destroy_logical_type(&boolean);
	api->destroy_table_function(&f);
	return ret == DUCKDB_SUCCESS ? 0 : -EIO;
}

int
sql_tables_register(struct sql_tables *t, duckdb_database db, duckdb_connection connection)
{
	enum arrow_table table;

	__atomic_store_n(&registered_api, t->api, __ATOMIC_RELEASE);
	for (table = 0; table < ARROW_TABLES; table++) {
		if (register_table(t, connection, table, false) < 0)
			return -EIO;
		/* without a catalog there are no views */
		if (t->catalog != NULL && register_table(t, connection, table, true) < 0)
			return -EIO;
	}
	t->api->add_replacement_scan(db, replace, t, NULL);
	return 0;
}
