/* SPDX-License-Identifier: BSD-3-Clause */

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <unistd.h>

#include "arrow/names.h"
#include "escaped_text.h"
#include "recovery/order.h"
#include "recovery/recovery.h"
#include "scan/same_name.h"
#include "sql/catalog.h"
#include "sql/thread_time.h"

#define INCARNATION_DIGITS 16
#define NAMES_SHOWN	   5

__attribute__((format(printf, 3, 4))) static void
catalog_warn(struct sql_catalog *c, uint64_t *counter, const char *format, ...)
{
	va_list args;
	char *text;

	__atomic_add_fetch(counter, 1, __ATOMIC_RELAXED);
	if (c->warn == NULL)
		return;
	va_start(args, format);
	if (vasprintf(&text, format, args) < 0)
		text = NULL;
	va_end(args);
	if (text != NULL)
		c->warn(c->arg, text);
	free(text);
}

/* Length of the name of a run at the beginning of the file name of a set. */
static size_t
name_length(const struct scan_sets *sets, const char *base)
{
	struct arrow_identity id;
	char path[PATH_MAX];
	size_t length = strlen(base);

	if (snprintf(path, sizeof(path), "%s_frames.arrow", sets->stem[0]) < (int)sizeof(path) &&
		arrow_name_stream(path, &id) && length > INCARNATION_DIGITS + 1)
		length -= INCARNATION_DIGITS + 1;
	return length;
}

static struct sql_run *
add_run(struct sql_catalog *c, const char *name, size_t length)
{
	struct sql_run *runs;
	size_t i;

	for (i = 0; i < c->nb_runs; i++) {
		if (strlen(c->run[i].name) == length && memcmp(c->run[i].name, name, length) == 0)
			return &c->run[i];
	}
	runs = realloc(c->run, (c->nb_runs + 1) * sizeof(*runs));
	if (runs == NULL)
		return NULL;
	c->run = runs;
	runs[c->nb_runs] = (struct sql_run){.name = strndup(name, length)};
	return runs[c->nb_runs].name != NULL ? &runs[c->nb_runs++] : NULL;
}

/* Add the file of a set, which may not exist. */
static int
add_file(struct sql_files *files, const char *stem, enum arrow_table table)
{
	struct sql_file *f = realloc(files->file, (files->nb + 1) * sizeof(*f));
	char path[PATH_MAX];

	if (f == NULL)
		return -ENOMEM;
	files->file = f;
	if (snprintf(path, sizeof(path), "%s_%s.arrow", stem, arrow_table_name(table)) >=
		(int)sizeof(path) - 5)
		return 0;
	/* a file loses .part at its end: the complete name is tried before and after the other */
	if (access(path, F_OK) != 0) {
		strcat(path, ".part");
		if (access(path, F_OK) != 0) {
			path[strlen(path) - 5] = '\0';
			if (access(path, F_OK) != 0)
				return 0;
		}
	}
	f[files->nb] = (struct sql_file){.path = strdup(path)};
	if (f[files->nb].path == NULL)
		return -ENOMEM;
	files->nb++;
	return 0;
}

static int
by_name(const void *a, const void *b)
{
	return strcmp(((const struct sql_run *)a)->name, ((const struct sql_run *)b)->name);
}

int
sql_catalog_create(struct sql_catalog *c, const struct scan_list *list, sql_warn warn, void *arg)
{
	const struct scan_sets *sets;
	struct sql_run *run;
	const char *base;
	unsigned int table;
	size_t i, k;

	*c = (struct sql_catalog){.warn = warn, .arg = arg};
	pthread_mutex_init(&c->lock, NULL);
	for (i = 0; i < list->nb; i++) {
		sets = &list->run[i];
		base = strrchr(sets->path, '/');
		base = base != NULL ? base + 1 : sets->path;
		run = add_run(c, base, name_length(sets, base));
		if (run == NULL)
			goto fail;
		for (k = 0; k < sets->nb; k++) {
			for (table = 0; table < ARROW_TABLES; table++) {
				if (add_file(&run->table[table], sets->stem[k], table) < 0)
					goto fail;
			}
		}
	}
	if (c->nb_runs > 0)
		qsort(c->run, c->nb_runs, sizeof(*c->run), by_name);
	return 0;

fail:
	sql_catalog_destroy(c);
	return -ENOMEM;
}

static void
free_run(struct sql_run *run)
{
	struct sql_file *f;
	unsigned int table;
	size_t k;

	for (table = 0; table < ARROW_TABLES; table++) {
		for (k = 0; k < run->table[table].nb; k++) {
			f = &run->table[table].file[k];
			map_guard_remove(f->guard);
			if (f->opened)
				arrow_reader_close(&f->reader);
			free(f->state);
			free(f->span);
			free(f->path);
		}
		free(run->table[table].file);
	}
	free(run->name);
}

void
sql_catalog_keep(struct sql_catalog *c, bool (*may)(void *arg, const char *run), void *arg)
{
	size_t i, nb = 0;

	for (i = 0; i < c->nb_runs; i++) {
		if (may(arg, c->run[i].name))
			c->run[nb++] = c->run[i];
		else
			free_run(&c->run[i]);
	}
	c->nb_runs = nb;
}

void
sql_catalog_hide_paths(struct sql_catalog *c)
{
	c->hides_paths = true;
}

void
sql_catalog_destroy(struct sql_catalog *c)
{
	size_t i;

	for (i = 0; i < c->nb_runs; i++)
		free_run(&c->run[i]);
	free(c->run);
	pthread_mutex_destroy(&c->lock);
	memset(c, 0, sizeof(*c));
}

struct sql_run *
sql_catalog_find(const struct sql_catalog *c, const char *name)
{
	struct sql_run *found = NULL;
	size_t i;

	for (i = 0; i < c->nb_runs; i++) {
		if (strcmp(c->run[i].name, name) == 0)
			return &c->run[i];
		/* the first of several whose names differ by case only */
		if (found == NULL && strcasecmp(c->run[i].name, name) == 0)
			found = &c->run[i];
	}
	return found;
}

void
sql_catalog_names(const struct sql_catalog *c, char *text, size_t size)
{
	const size_t nb = c->nb_runs < NAMES_SHOWN ? c->nb_runs : NAMES_SHOWN;
	size_t i, length;

	snprintf(text, size, "number of runs: %zu%s", c->nb_runs,
		nb == 0			  ? ""
			: nb < c->nb_runs ? ", the first are "
					  : ": ");
	for (i = 0; i < nb; i++) {
		length = strlen(text);
		snprintf(text + length, size - length, "%s%s", i > 0 ? ", " : "", c->run[i].name);
	}
}

const char *
sql_catalog_shown(const struct sql_catalog *c, const struct sql_file *f)
{
	const char *base = strrchr(f->path, '/');

	return c->hides_paths && base != NULL ? base + 1 : f->path;
}

/* With the catalog locked. */
static void
report(struct sql_catalog *c, struct sql_file *f, const char *text)
{
	if (!c->hides_paths || c->warn == NULL || f->reported)
		return;
	f->reported = true;
	c->warn(c->arg, text);
}

void
sql_catalog_report(struct sql_catalog *c, struct sql_file *f, const char *text)
{
	pthread_mutex_lock(&c->lock);
	report(c, f, text);
	pthread_mutex_unlock(&c->lock);
}

/* With the catalog locked. */
static void
set_error(struct sql_catalog *c, struct sql_file *f, const char *problem, char *error, size_t size)
{
	/* the path is in the text that is reported */
	snprintf(error, size, "%s: %s", f->path, problem);
	report(c, f, error);
	snprintf(error, size, "%s: %s", sql_catalog_shown(c, f), problem);
}

void
sql_catalog_error(
	struct sql_catalog *c, struct sql_file *f, const char *problem, char *error, size_t size)
{
	pthread_mutex_lock(&c->lock);
	set_error(c, f, problem, error, size);
	pthread_mutex_unlock(&c->lock);
}

/* @return what is wrong with the columns of a file; NULL: nothing */
static const char *
schema_problem(const struct sql_file *f, enum arrow_table table)
{
	const struct arrow_reader *r = &f->reader;
	const char *problem = arrow_table_problem(r, table);
	unsigned int i, k;
	char *shown;
	bool plain;

	if (problem != NULL)
		return problem;
	for (i = 0; i < r->schema.nb_fields; i++) {
		shown = escaped_text(r->fields[i].name);
		plain = shown != NULL && strcmp(shown, r->fields[i].name) == 0 && shown[0] != '\0';
		free(shown);
		if (!plain)
			return "the name of a column is empty, or not plain text in UTF-8";
		for (k = 0; k < i; k++) {
			if (strcasecmp(r->fields[i].name, r->fields[k].name) == 0)
				return "two columns have the same name";
		}
	}
	return NULL;
}

/* Open a file, with the catalog locked. */
static int
open_file(
	struct sql_catalog *c, struct sql_file *f, enum arrow_table table, char *error, size_t size)
{
	const char *problem = "not enough memory", *fault;
	struct arrow_mapping map;
	size_t i, nb;
	int ret, frame;

	if (f->opened)
		return 0;
	ret = arrow_reader_map(&map, f->path, &problem);
	if (ret < 0)
		goto fail;
	/* before the first byte is read */
	f->guard = map_guard_add(map.data, map.size);
	if (f->guard == NULL) {
		ret = -ENOMEM;
		goto unmap;
	}
	ret = arrow_reader_open_mapped(&f->reader, &map, &problem);
	if (ret < 0)
		goto unmap;
	ret = -EBADMSG;
	problem = schema_problem(f, table);
	if (problem != NULL)
		goto close;
	frame = arrow_reader_find(&f->reader, "frame", ARROW_UINT64, 0);
	problem = "it has no column frame of type uint64 without nulls";
	if (frame < 0 || f->reader.fields[frame].nullable)
		goto close;
	f->frame = (unsigned int)frame;
	problem = "not enough memory";
	ret = arrow_order(&f->reader);
	if (ret == 0)
		ret = arrow_reader_part(&f->reader);
	if (ret < 0)
		goto close;
	nb = f->reader.nb_batches;
	f->state = calloc(nb + 1, sizeof(*f->state));
	f->span = malloc((nb + 1) * sizeof(*f->span));
	ret = -ENOMEM;
	if (f->state == NULL || f->span == NULL)
		goto close;
	for (i = 0; i < nb; i++)
		f->span[i] = (struct sql_span){1, 0};
	fault = arrow_recovery_frame_fault(&f->reader);
	if (map_guard_is_marked(f->guard))
		goto close;
	f->opened = true;
	for (i = 0; i < f->reader.nb_damage; i++)
		catalog_warn(c, &c->damaged,
			"%s: damaged, left out: %" PRIu64 " bytes at %" PRIu64 ": %s", f->path,
			f->reader.damage[i].length, f->reader.damage[i].offset,
			f->reader.damage[i].why);
	if (fault != NULL)
		catalog_warn(c, &c->damaged, "%s: damaged: %s", f->path, fault);
	else if (!f->reader.complete)
		catalog_warn(c, &c->incomplete, "%s: not complete: %s", f->path, f->reader.problem);
	return 0;

close:
	free(f->state);
	free(f->span);
	f->state = NULL;
	f->span = NULL;
	/* it stays mapped until the guard has ended */
	f->reader.mapped = false;
	arrow_reader_close(&f->reader);
unmap:
	if (f->guard != NULL && map_guard_is_marked(f->guard)) {
		ret = -EIO;
		problem = SQL_UNREADABLE;
	}
	map_guard_remove(f->guard);
	f->guard = NULL;
	munmap(map.data, map.size);
fail:
	set_error(c, f, problem, error, size);
	return ret;
}

/*
 * Report different runs of the same name, whose rows are all in the table, unless there is no
 * memory for the comparison. With the catalog locked.
 */
static void
compare_files(struct sql_catalog *c, struct sql_files *files)
{
	struct scan_same_name_file *all;
	char *text;
	size_t i;
	int ret;

	if (files->compared || c->warn == NULL)
		return;
	all = calloc(files->nb, sizeof(*all));
	if (all == NULL)
		return;
	for (i = 0; i < files->nb; i++)
		all[i] = (struct scan_same_name_file){files->file[i].path, &files->file[i].reader};
	ret = scan_same_name_find(all, files->nb, &text);
	free(all);
	files->compared = true;
	if (ret > 0) {
		c->warn(c->arg, text);
		free(text);
	}
}

int
sql_catalog_open(struct sql_catalog *c, struct sql_run *run, enum arrow_table table, char *error,
	size_t size)
{
	struct sql_files *files = &run->table[table];
	int ret = 0;
	size_t i;

	if (files->nb == 0) {
		snprintf(error, size, "run %s has no file of the table %s", run->name,
			arrow_table_name(table));
		return -ENOENT;
	}
	pthread_mutex_lock(&c->lock);
	for (i = 0; i < files->nb && ret == 0; i++)
		ret = open_file(c, &files->file[i], table, error, size);
	if (ret == 0)
		compare_files(c, files);
	pthread_mutex_unlock(&c->lock);
	return ret;
}

/* Check all that queries rely on. */
static const char *
batch_problem(const struct sql_file *f, size_t batch)
{
	struct arrow_column column;
	unsigned int i;

	if (arrow_reader_crc(&f->reader, batch) < 0)
		return "a batch with a wrong CRC-32C";
	for (i = 0; i < f->reader.schema.nb_fields; i++) {
		if (arrow_reader_column(&f->reader, batch, i, &column) < 0)
			return "a batch whose columns do not fit its body";
		if (column.validity != NULL && !f->reader.fields[i].nullable)
			return "a batch with a null in a column that has none";
	}
	return NULL;
}

static __thread uint64_t check_ns; /* CPU time of this thread for checks of batches */

uint64_t
sql_catalog_check_time(void)
{
	return check_ns;
}

bool
sql_catalog_check(struct sql_catalog *c, struct sql_file *f, size_t batch)
{
	uint8_t state = __atomic_load_n(&f->state[batch], __ATOMIC_ACQUIRE);
	const char *problem;
	uint64_t begin;

	if (state != SQL_BATCH_UNKNOWN)
		return state == SQL_BATCH_GOOD;
	begin = thread_time_ns();
	problem = batch_problem(f, batch);
	check_ns += thread_time_ns() - begin;
	state = problem == NULL ? SQL_BATCH_GOOD : SQL_BATCH_DAMAGED;
	/* two threads may have checked it: one reports it, and the other waits for the report */
	pthread_mutex_lock(&c->lock);
	if (f->state[batch] == SQL_BATCH_UNKNOWN && problem != NULL)
		catalog_warn(c, &c->damaged,
			"%s: damaged, left out: batch %zu at byte %" PRIu64 ": %s", f->path, batch,
			f->reader.batches[batch].offset, problem);
	__atomic_store_n(&f->state[batch], state, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&c->lock);
	return problem == NULL;
}

bool
sql_catalog_overlaps(
	struct sql_catalog *c, struct sql_file *f, size_t batch, uint64_t first, uint64_t last)
{
	struct sql_span span;
	struct arrow_column column;
	const uint64_t *frame;
	uint64_t i;

	pthread_mutex_lock(&c->lock);
	span = f->span[batch];
	if (span.first > span.last) {
		/* an unusable batch is not skipped, so that it is reported */
		if (arrow_reader_column(&f->reader, batch, f->frame, &column) < 0) {
			span = (struct sql_span){0, UINT64_MAX};
		} else if (column.rows > 0) {
			frame = column.data;
			span.first = span.last = frame[0];
			for (i = 1; i < column.rows; i++) {
				if (frame[i] < span.first)
					span.first = frame[i];
				if (frame[i] > span.last)
					span.last = frame[i];
			}
		}
		f->span[batch] = span;
	}
	pthread_mutex_unlock(&c->lock);
	return span.first <= last && first <= span.last;
}

const char *
sql_catalog_unreadable(struct sql_catalog *c)
{
	struct sql_file *found = NULL;
	char text[PATH_MAX + 128];
	struct sql_files *files;
	unsigned int table;
	size_t i, k;

	/* asked for each chunk: its cost does not depend on the number of files */
	if (!map_guard_any_marked())
		return NULL;
	pthread_mutex_lock(&c->lock);
	for (i = 0; i < c->nb_runs && found == NULL; i++) {
		for (table = 0; table < ARROW_TABLES; table++) {
			files = &c->run[i].table[table];
			for (k = 0; k < files->nb; k++) {
				if (files->file[k].guard != NULL &&
					map_guard_is_marked(files->file[k].guard))
					found = &files->file[k];
			}
		}
	}
	if (found != NULL)
		set_error(c, found, SQL_UNREADABLE, text, sizeof(text));
	pthread_mutex_unlock(&c->lock);
	return found != NULL ? sql_catalog_shown(c, found) : NULL;
}

bool
sql_catalog_mapping(struct sql_catalog *c, const void *bytes, struct sql_mapping *mapping)
{
	const struct sql_files *files;
	const struct sql_file *f;
	unsigned int table;
	bool found = false;
	size_t i, k;

	pthread_mutex_lock(&c->lock);
	for (i = 0; i < c->nb_runs && !found; i++) {
		for (table = 0; table < ARROW_TABLES && !found; table++) {
			files = &c->run[i].table[table];
			for (k = 0; k < files->nb && !found; k++) {
				f = &files->file[k];
				found = f->opened && f->reader.mapped &&
					(uintptr_t)bytes - (uintptr_t)f->reader.data <
						f->reader.size;
				if (found)
					*mapping = (struct sql_mapping){
						f->reader.data, f->reader.size, f->guard};
			}
		}
	}
	pthread_mutex_unlock(&c->lock);
	return found;
}
