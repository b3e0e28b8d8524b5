/* SPDX-License-Identifier: BSD-3-Clause */

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arrow/names.h"
#include "arrow/reader.h"
#include "bounds.h"
#include "escaped_text.h"
#include "io/directory.h"
#include "io/own_file.h"
#include "monotonic_cond.h"
#include "runs.h"
#include "scan/list.h"

#define PERIOD_S 5
#define NS_PER_S INT64_C(1000000000)

/** A file of a run. */
struct entry {
	struct request_run at; /**< directory and name */
	size_t run;	       /**< length of the run's name */
	bool part;	       /**< still being written */
	ino_t inode;
	uint64_t bytes;
	int64_t changed; /**< ns since 1970 */
	bool counted;
	uint64_t rows; /**< rows of a complete Arrow file */
	int64_t first; /**< ns since 1970: receive time of the first frame; 0: not known */
};

struct entries {
	struct entry *entry; /**< sorted by directory and name */
	size_t nb, room;
	bool truncated;
	bool failed; /**< a folder could not be read to its end */
};

/** A run: its entries are neighbours. */
struct group {
	size_t begin, nb;
	int64_t changed;
};

struct runs {
	const char *folder[LIMIT_RUN_FOLDERS];
	size_t nb_folders;
	bool failed; /* as `failed` of the last entries; only the thread uses it */
	pthread_t thread;
	pthread_mutex_t lock; /* protects the fields below */
	pthread_cond_t wake;
	bool stop;	       /* also read without the lock: atomic */
	struct entries listed; /* files of the runs in `text`; changed only by the thread */
	char *text;
};

/** Length of the run's name in a file's name. @return 0: not a file of a run */
static size_t
run_length(const char *name)
{
	static const char *const ends[] = {"_master.h5", "_sparse.h5", ".cxi"};
	static const char data[] = "_data_", h5[] = ".h5";
	const size_t length = strlen(name), stem = scan_stem_length(name);
	size_t digits = 0;

	if (stem > 0)
		return scan_run_length(name, stem);
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		if (arrow_name_ends(name, ends[i]))
			return length - strlen(ends[i]);
	if (!arrow_name_ends(name, h5))
		return 0;
	while (isdigit((unsigned char)name[length - sizeof(h5) - digits]))
		if (++digits + sizeof(h5) > length)
			return 0;
	if (digits < 6 || length <= digits + sizeof(h5) - 1 + sizeof(data) - 1 ||
		memcmp(name + length - sizeof(h5) + 1 - digits - sizeof(data) + 1, data,
			sizeof(data) - 1) != 0)
		return 0;
	return length - (sizeof(h5) - 1) - digits - (sizeof(data) - 1);
}

static int
open_folder(const struct runs *r, const struct request_run *at)
{
	const int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK;
	int folder, fd;

	if (at->folder >= r->nb_folders)
		return -ENOENT;
	folder = open(r->folder[at->folder], flags);
	if (folder < 0)
		return -errno;
	if (at->sub[0] == '\0')
		return folder;
	fd = openat(folder, at->sub, flags | O_NOFOLLOW);
	if (fd < 0)
		fd = -errno;
	close(folder);
	return fd;
}

/** Folders on a network can take minutes to list; the end of the program must not. */
static bool
is_stopped(const struct runs *r)
{
	return __atomic_load_n(&r->stop, __ATOMIC_RELAXED);
}

/** A regular file with one name; not a link. */
static int
open_file(const struct runs *r, const struct request_run *at, struct stat *st)
{
	const int folder = open_folder(r, at);
	int fd;

	if (folder < 0)
		return folder;
	fd = own_file_open(folder, at->file, O_RDONLY | O_CLOEXEC, 0);
	close(folder);
	if (fd < 0)
		return fd;
	if (fstat(fd, st) == 0 && S_ISREG(st->st_mode) && st->st_nlink == 1)
		return fd;
	close(fd);
	return -ENOENT;
}

/* ---- listing ---- */

static int
by_place(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;
	const size_t shorter = x->run < y->run ? x->run : y->run;
	int order;

	if (x->at.folder != y->at.folder)
		return x->at.folder < y->at.folder ? -1 : 1;
	order = strcmp(x->at.sub, y->at.sub);
	if (order == 0)
		order = memcmp(x->at.file, y->at.file, shorter);
	if (order == 0 && x->run != y->run)
		return x->run < y->run ? -1 : 1;
	return order != 0 ? order : strcmp(x->at.file, y->at.file);
}

static bool
same_run(const struct entry *a, const struct entry *b)
{
	return a->at.folder == b->at.folder && a->run == b->run &&
		strcmp(a->at.sub, b->at.sub) == 0 && memcmp(a->at.file, b->at.file, a->run) == 0;
}

static int
newest_first(const void *a, const void *b)
{
	const struct group *x = a, *y = b;

	if (x->changed != y->changed)
		return x->changed > y->changed ? -1 : 1;
	return x->begin < y->begin ? -1 : 1;
}

static void
add_entry(struct entries *all, const struct entry *e)
{
	struct entry *more;
	size_t room;

	if (all->nb == LIMIT_RUN_ENTRIES) {
		all->truncated = true;
		return;
	}
	if (all->nb == all->room) {
		room = all->room > 0 ? all->room * 2 : 64;
		more = realloc(all->entry, room * sizeof(*more));
		if (more == NULL) {
			all->truncated = true;
			return;
		}
		all->entry = more;
		all->room = room;
	}
	all->entry[all->nb++] = *e;
}

/** Time of the last change in ns since 1970. Files can have times that do not fit: the nearest. */
static int64_t
changed_ns(const struct stat *st)
{
	const int64_t s = st->st_mtim.tv_sec;

	if (s >= INT64_MAX / NS_PER_S)
		return INT64_MAX;
	return s < INT64_MIN / NS_PER_S ? INT64_MIN : s * NS_PER_S + st->st_mtim.tv_nsec;
}

/** Note that a folder could not be read to its end. It is reported once. */
static void
note_failure(const struct runs *r, const struct request_run *at, struct entries *all)
{
	const int error = errno;

	if (!r->failed && !all->failed)
		escaped_line(stderr,
			"braggline-view: %s%s%s: cannot be listed to its end: %s; runs may be "
			"missing",
			r->folder[at->folder], at->sub[0] != '\0' ? "/" : "", at->sub,
			strerror(error));
	all->failed = all->truncated = true;
}

/** Add the files of a folder, and of its subfolders if it is none itself. */
static void
list_folder(const struct runs *r, const struct request_run *at, struct entries *all)
{
	struct request_run sub;
	struct entry e = {.at = *at};
	struct dirent *d;
	struct stat st;
	size_t seen = 0;
	DIR *dir;
	int fd = open_folder(r, at);

	dir = fd >= 0 ? fdopendir(fd) : NULL;
	if (dir == NULL) {
		if (fd >= 0)
			close(fd);
		return;
	}
	while (!all->truncated && !is_stopped(r)) {
		d = directory_next(dir);
		if (d == NULL && errno != 0)
			note_failure(r, at, all);
		if (d == NULL)
			break;
		if (++seen > LIMIT_RUN_ENTRIES) {
			all->truncated = true;
			break;
		}
		/* most files of a folder can be others; their names are enough */
		if (!request_is_run_name(d->d_name) ||
			(d->d_type == DT_REG && run_length(d->d_name) == 0) ||
			fstatat(dirfd(dir), d->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
			continue;
		if (S_ISDIR(st.st_mode) && at->sub[0] == '\0') {
			sub = *at;
			memcpy(sub.sub, d->d_name, strlen(d->d_name) + 1);
			list_folder(r, &sub, all);
			continue;
		}
		e.run = run_length(d->d_name);
		if (e.run == 0 || !S_ISREG(st.st_mode) || st.st_nlink != 1)
			continue;
		memcpy(e.at.file, d->d_name, strlen(d->d_name) + 1);
		e.part = arrow_name_is_part(d->d_name);
		e.inode = st.st_ino;
		e.bytes = (uint64_t)st.st_size;
		e.changed = changed_ns(&st);
		add_entry(all, &e);
	}
	closedir(dir);
}

/** Receive time of the first frame. @return ns since 1970; 0: not known */
static int64_t
first_time(const struct arrow_reader *reader)
{
	const int field = arrow_reader_find(reader, "receive_time", ARROW_TIMESTAMP_NS, 0);
	struct arrow_column column;
	int64_t t = 0;

	if (field < 0 || reader->nb_batches == 0)
		return 0;
	arrow_reader_load(reader, reader->batches[0].body, 1);
	if (arrow_reader_column(reader, 0, (unsigned int)field, &column) != 0 || column.rows == 0)
		return 0;
	arrow_reader_load(reader, column.data, sizeof(t));
	memcpy(&t, column.data, sizeof(t));
	return t > 0 ? t : 0;
}

/** Count the rows of an Arrow file, unless that was done for the same file before. */
static void
count_rows(const struct runs *r, struct entry *e)
{
	const struct entry *old = r->listed.nb > 0
		? bsearch(e, r->listed.entry, r->listed.nb, sizeof(*e), by_place)
		: NULL;
	struct arrow_reader reader;
	const char *problem;
	char path[32];
	struct stat st;
	int fd;

	if (old != NULL && old->counted && old->inode == e->inode && old->bytes == e->bytes &&
		old->changed == e->changed) {
		e->rows = old->rows;
		e->first = old->first;
		e->counted = true;
		return;
	}
	fd = open_file(r, &e->at, &st);
	if (fd < 0)
		return;
	e->counted = true;
	/* the memory of its index grows with the size that a file claims, holes included */
	if ((uint64_t)st.st_size > LIMIT_COUNTED) {
		escaped_line(stderr,
			"braggline-view: %s: larger than %u GiB: its rows are not counted",
			e->at.file, (unsigned int)(LIMIT_COUNTED >> 30));
		close(fd);
		return;
	}
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (arrow_reader_open_read(&reader, path, &problem) == 0) {
		for (size_t i = 0; i < reader.nb_batches; i++)
			e->rows += reader.batches[i].rows;
		if (arrow_name_ends(e->at.file, "_frames.arrow"))
			e->first = first_time(&reader);
		arrow_reader_close(&reader);
	}
	close(fd);
}

static json_t *
describe_run(const struct runs *r, struct entry *e, size_t nb, int64_t changed)
{
	json_t *files = json_array();
	uint64_t frames = 0, kept = 0, bytes = 0;
	int64_t first = 0;
	char directory[REQUEST_RUN_LEN + 16];

	for (size_t i = 0; i < nb; i++) {
		const bool is_frames = arrow_name_ends(e[i].at.file, "_frames.arrow");

		if (arrow_name_is_complete(e[i].at.file))
			count_rows(r, &e[i]);
		frames += is_frames ? e[i].rows : 0;
		kept += is_frames ? 0 : e[i].rows;
		bytes += e[i].bytes;
		if (e[i].first > 0 && (first == 0 || e[i].first < first))
			first = e[i].first;
		json_array_append_new(files,
			json_pack("{s:s, s:I}", "name", e[i].at.file, "bytes",
				(json_int_t)e[i].bytes));
	}
	snprintf(directory, sizeof(directory), "%u%s%s", e->at.folder,
		e->at.sub[0] != '\0' ? ":" : "", e->at.sub);
	return json_pack("{s:s, s:s%, s:o, s:f, s:I, s:I, s:I, s:o}", "directory", directory,
		"name", e->at.file, e->run, "started",
		first > 0 ? json_real((double)first / NS_PER_S) : json_null(), "finished",
		(double)changed / NS_PER_S, "frames", (json_int_t)frames, "kept", (json_int_t)kept,
		"bytes", (json_int_t)bytes, "files", files);
}

/** Find the runs that are finished. @return their number */
static size_t
find_groups(const struct entries *all, struct group *group)
{
	size_t nb = 0, end;
	bool part, complete;

	for (size_t i = 0; i < all->nb; i = end) {
		struct group g = {.begin = i};

		part = complete = false;
		for (end = i; end < all->nb && same_run(&all->entry[i], &all->entry[end]); end++) {
			const struct entry *e = &all->entry[end];

			part |= e->part;
			complete |= arrow_name_ends(e->at.file, "_frames.arrow");
			if (arrow_name_is_complete(e->at.file) && e->changed > g.changed)
				g.changed = e->changed;
		}
		g.nb = end - i;
		if (complete && !part)
			group[nb++] = g;
	}
	qsort(group, nb, sizeof(*group), newest_first);
	return nb;
}

/** @param listed  out: the files of the runs in the text */
static char *
make_text(const struct runs *r, struct entries *all, struct entries *listed)
{
	struct group *group = malloc((all->nb + 1) * sizeof(*group));
	json_t *runs = json_array(), *folders = json_array(), *object;
	const size_t nb = group != NULL ? find_groups(all, group) : 0;
	char *text;

	for (size_t i = 0; i < r->nb_folders; i++) {
		object = json_string(r->folder[i]);
		/* a name that is not UTF-8 must not hide all runs */
		json_array_append_new(folders, object != NULL ? object : json_string("?"));
	}
	for (size_t i = 0; i < nb && !is_stopped(r); i++) {
		struct entry *e = &all->entry[group[i].begin];

		if (i == LIMIT_RUNS || listed->nb + group[i].nb > LIMIT_RUN_FILES) {
			all->truncated = true;
			break;
		}
		json_array_append_new(runs, describe_run(r, e, group[i].nb, group[i].changed));
		for (size_t k = 0; k < group[i].nb; k++)
			add_entry(listed, &e[k]);
	}
	free(group);
	object = json_pack(
		"{s:o, s:b, s:o}", "folders", folders, "truncated", all->truncated, "runs", runs);
	text = object != NULL ? json_dumps(object, JSON_COMPACT) : NULL;
	json_decref(object);
	return text;
}

static void
list_runs(struct runs *r)
{
	struct entries all = {.nb = 0}, listed = {.nb = 0}, old;
	char *text, *old_text;

	for (size_t i = 0; i < r->nb_folders; i++)
		list_folder(r, &(struct request_run){.folder = (unsigned int)i}, &all);
	if (all.nb > 0)
		qsort(all.entry, all.nb, sizeof(*all.entry), by_place);
	text = make_text(r, &all, &listed);
	if (listed.nb > 0)
		qsort(listed.entry, listed.nb, sizeof(*listed.entry), by_place);
	free(all.entry);
	pthread_mutex_lock(&r->lock);
	old = r->listed;
	old_text = r->text;
	r->listed = listed;
	r->text = text;
	pthread_mutex_unlock(&r->lock);
	r->failed = all.failed;
	free(old.entry);
	free(old_text);
}

static void *
runs_main(void *arg)
{
	struct runs *r = arg;
	struct timespec until;

	pthread_mutex_lock(&r->lock);
	while (!r->stop) {
		pthread_mutex_unlock(&r->lock);
		list_runs(r);
		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_sec += PERIOD_S;
		pthread_mutex_lock(&r->lock);
		while (!r->stop && pthread_cond_timedwait(&r->wake, &r->lock, &until) == 0)
			continue;
	}
	pthread_mutex_unlock(&r->lock);
	return NULL;
}

/* ---- interface ---- */

struct runs *
runs_start(const char *const *folders, size_t nb)
{
	struct runs *r = calloc(1, sizeof(*r));

	if (r == NULL)
		return NULL;
	for (size_t i = 0; i < nb; i++)
		r->folder[i] = folders[i];
	r->nb_folders = nb;
	pthread_mutex_init(&r->lock, NULL);
	monotonic_cond_init(&r->wake);
	if (pthread_create(&r->thread, NULL, runs_main, r) == 0)
		return r;
	pthread_cond_destroy(&r->wake);
	pthread_mutex_destroy(&r->lock);
	free(r);
	return NULL;
}

char *
runs_text(struct runs *r)
{
	char *text;

	pthread_mutex_lock(&r->lock);
	text = r->text != NULL ? strdup(r->text) : NULL;
	pthread_mutex_unlock(&r->lock);
	return text;
}

int
runs_open(struct runs *r, const struct request_run *name, struct stat *st)
{
	const struct entry wanted = {.at = *name, .run = run_length(name->file)};
	bool known;

	pthread_mutex_lock(&r->lock);
	known = r->listed.nb > 0 &&
		bsearch(&wanted, r->listed.entry, r->listed.nb, sizeof(wanted), by_place) != NULL;
	pthread_mutex_unlock(&r->lock);
	return known ? open_file(r, name, st) : -ENOENT;
}

void
runs_stop(struct runs *r)
{
	if (r == NULL)
		return;
	pthread_mutex_lock(&r->lock);
	__atomic_store_n(&r->stop, true, __ATOMIC_RELAXED);
	pthread_cond_signal(&r->wake);
	pthread_mutex_unlock(&r->lock);
	pthread_join(r->thread, NULL);
	pthread_cond_destroy(&r->wake);
	pthread_mutex_destroy(&r->lock);
	free(r->listed.entry);
	free(r->text);
	free(r);
}
