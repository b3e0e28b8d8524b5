/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <fcntl.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "arrow/names.h"
#include "arrow/tables.h"
#include "clock.h"
#include "counter.h"
#include "escaped_text.h"
#include "interval_set.h"
#include "io/directory.h"
#include "io/own_file.h"
#include "plural.h"
#include "scan/list.h"
#include "scan/memory.h"
#include "series.h"
#include "watch.h"

#define NS		1000000000
#define MS		1000000
#define SEARCH_STEPS	256   /* blocks that are examined for the next batch before other work */
#define OPEN_MS		10000 /* time limit of a file without a valid first block */
#define STREAMS_MAX	64    /* streams of a run whose copies are recognized */
#define RECORDS_MAX	4 /* batches in memory: two that are sent, the last one, one that is read */
#define RESERVED_IMAGES 4 /* images of a batch for which memory is reserved */
#define TOO_MANY	"end clients, or raise the limit of open files (ulimit -n, LimitNOFILE=)"
#define ROWS_MS		20 /* between two checks whether the run of a file of `frames` has begun */

enum file_state {
	FILE_PENDING, /* its first block is not written yet */
	FILE_FOLLOWED,
	FILE_SEARCHING, /* the next batch after a damaged one is searched */
	FILE_DONE,
	FILE_IGNORED,
};

/* A file of a run. */
struct watch_file {
	enum arrow_table table;
	char *path;   /* name of the complete file */
	size_t group; /* length of the path without the number of the set */
	enum file_state state;
	bool complete; /* the file has its final name; a copy may still be in progress */
	struct scan_change change; /* last change of a complete file */
	int fd;			   /* -1: not open */
	struct scan_header *header;
	struct watch_series *series;
	int number;  /* number of the file in the run of the feed */
	uint64_t at; /* offset of the next batch */
	/* times on the clock of monotonic_ns() */
	int64_t found_at;    /* the file was found */
	int64_t grown_at;    /* its last batch was found */
	int64_t checked_at;  /* its writer was last checked */
	int64_t seen;	     /* the batch at `at` was first seen; 0: not yet */
	int64_t retry_at;    /* it is read again */
	int64_t retry_delay; /* ns, grows with each attempt */
	int64_t seen_ns;     /* as `seen`, ns since 1970 */
	bool delayed;	     /* no descriptor is free, which was reported */
};

/* Batches of a stream that were published. */
struct watch_stream {
	char receiver_id[17], run[17], incarnation[17];
	struct interval_set sequences;
};

/* A run that is being published. */
struct watch_series {
	struct watch_series *next;
	char *name;
	struct feed_run *run;
	int64_t grown_at;
	bool warned; /* images of another kind were reported */
	struct watch_stream stream[STREAMS_MAX];
	unsigned int nb_streams;
};

struct watch_dir {
	char *path;
	bool is_top; /* its subfolders have runs, too */
	struct timespec changed;
	int64_t listed;
	bool recent; /* it changed less than a time stamp step before it was listed */
	bool failed; /* it cannot be listed, which was reported */
};

struct watch {
	struct watch_config config;
	struct feed *feed;
	struct watch_dir *dir;
	size_t nb_dirs;
	void *names; /* tree of the files, by path */
	struct watch_file **active;
	size_t nb_active, cap_active;
	struct watch_series *series;
	int64_t next_scan;
	bool listed_once;
	bool finished;
	bool stop; /* atomic */
	uint32_t nb_series;
	struct watch_stats stats;
};

static bool
lacks_descriptors(int error)
{
	return error == -EMFILE || error == -ENFILE;
}

static int
add_dir(struct watch *w, const char *path, bool is_top)
{
	struct watch_dir *more = realloc(w->dir, (w->nb_dirs + 1) * sizeof(*more));

	if (more == NULL)
		return -ENOMEM;
	w->dir = more;
	more[w->nb_dirs] = (struct watch_dir){.path = strdup(path), .is_top = is_top};
	if (more[w->nb_dirs].path == NULL)
		return -ENOMEM;
	w->nb_dirs++;
	return 0;
}

/* Table that a complete file has by its name. */
static enum arrow_table
table_of(const char *path)
{
	return strcmp(path + scan_stem_length(path), "_frames.arrow") == 0 ? ARROW_FRAMES
									   : ARROW_IMAGES;
}

static void
close_file(struct watch_file *f)
{
	if (f->fd >= 0)
		close(f->fd);
	f->fd = -1;
	scan_header_drop(f->header);
	f->header = NULL;
	f->series = NULL;
}

static void
free_file(void *file)
{
	struct watch_file *f = file;

	close_file(f);
	free(f->path);
	free(f);
}

static void
free_series(struct watch_series *s)
{
	for (unsigned int i = 0; i < s->nb_streams; i++)
		interval_set_free(&s->stream[i].sequences);
	feed_run_drop(s->run);
	free(s->name);
	free(s);
}

void
watch_destroy(struct watch *w)
{
	struct watch_series *s;

	if (w == NULL)
		return;
	while (w->series != NULL) {
		s = w->series;
		w->series = s->next;
		free_series(s);
	}
	tdestroy(w->names, free_file);
	for (size_t i = 0; i < w->nb_dirs; i++)
		free(w->dir[i].path);
	free(w->dir);
	free(w->active);
	free(w);
}

bool
watch_has_files(const struct watch *w)
{
	return w->nb_active > 0;
}

void
watch_stop(struct watch *w)
{
	__atomic_store_n(&w->stop, true, __ATOMIC_RELAXED);
}

void
watch_stats_get(const struct watch *w, struct watch_stats *stats)
{
	counters_get(stats, &w->stats, sizeof(*stats));
}

static int
by_path(const void *a, const void *b)
{
	return strcmp(((const struct watch_file *)a)->path, ((const struct watch_file *)b)->path);
}

/*
 * Opens a file, under its final name or not.
 * @return 0; errors of own_file_open_named(): of the final name, if it exists
 */
static int
open_file(struct watch_file *f)
{
	char part[PATH_MAX];
	int ret;

	if (f->fd >= 0)
		return 0;
	ret = own_file_open_named(f->path, O_RDONLY, 0);
	f->complete = ret >= 0;
	if (ret == -ENOENT && snprintf(part, sizeof(part), "%s.part", f->path) < (int)sizeof(part))
		ret = own_file_open_named(part, O_RDONLY, 0);
	if (ret < 0)
		return ret;
	f->fd = ret;
	/* small reads for the next announcement must not read ahead: that space is being written */
	(void)posix_fadvise(f->fd, 0, 0, POSIX_FADV_RANDOM);
	return 0;
}

/* Whether a program has the lock of a writer. */
static bool
has_writer(const struct watch_file *f)
{
	struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};

	return fcntl(f->fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

static void
start_file(struct watch *w, struct watch_file *f)
{
	struct watch_file **more;

	if (w->nb_active == w->cap_active) {
		more = realloc(w->active, (2 * w->cap_active + 16) * sizeof(struct watch_file *));
		if (more == NULL)
			return;
		w->active = more;
		w->cap_active = 2 * w->cap_active + 16;
	}
	f->state = FILE_PENDING;
	f->found_at = f->grown_at = monotonic_ns();
	w->active[w->nb_active++] = f;
}

/* Remembers a file. @return NULL: it is known, or there is no memory */
static struct watch_file *
know_file(struct watch *w, const char *path)
{
	struct watch_file *f = calloc(1, sizeof(*f)), **found;

	if (f == NULL)
		return NULL;
	*f = (struct watch_file){.path = strdup(path), .fd = -1, .state = FILE_IGNORED};
	if (f->path == NULL)
		goto fail;
	f->table = table_of(path);
	f->group = scan_run_length(path, scan_stem_length(path));
	found = tsearch(f, &w->names, by_path);
	if (found != NULL && *found == f)
		return f;
fail:
	free_file(f);
	return NULL;
}

/* Files of a directory that were not known. */
struct fresh {
	struct watch_file **file;
	size_t nb;
};

static void
list_entry(struct watch *w, const struct watch_dir *dir, const char *name, struct fresh *fresh)
{
	const size_t part = arrow_name_is_part(name) ? strlen(".part") : 0;
	const size_t size = strlen(name) - part;
	struct watch_file *f, **more;
	char path[PATH_MAX];

	if (scan_stem_length(name) == 0 ||
		snprintf(path, sizeof(path), "%s/%.*s", dir->path, (int)size, name) >=
			(int)sizeof(path))
		return;
	f = know_file(w, path);
	if (f == NULL)
		return;
	more = realloc(fresh->file, (fresh->nb + 1) * sizeof(struct watch_file *));
	if (more == NULL)
		return;
	fresh->file = more;
	more[fresh->nb++] = f;
}

static bool
knows_dir(const struct watch *w, const char *path)
{
	for (size_t i = 0; i < w->nb_dirs; i++) {
		if (strcmp(w->dir[i].path, path) == 0)
			return true;
	}
	return false;
}

static void
list_subfolder(struct watch *w, const char *dir, const char *name)
{
	char path[PATH_MAX];
	struct stat st;

	if (name[0] == '.' || snprintf(path, sizeof(path), "%s/%s", dir, name) >= (int)sizeof(path))
		return;
	if (lstat(path, &st) == 0 && S_ISDIR(st.st_mode) && !knows_dir(w, path))
		(void)add_dir(w, path, false);
}

/* Reports a directory that cannot be listed, once. It may not exist yet. */
static void
note_dir(struct watch_dir *dir, int error)
{
	if (error == ENOENT || dir->failed)
		return;
	dir->failed = true;
	escaped_line(stderr, "braggline-publish: %s: cannot be listed yet: %s; %s", dir->path,
		strerror(error),
		lacks_descriptors(-error) ? TOO_MANY
					  : "expected a directory that this user can read");
}

/* Lists a directory that has changed. */
static void
list_dir(struct watch *w, size_t number, struct fresh *fresh)
{
	struct watch_dir dir = w->dir[number];
	struct dirent *entry;
	struct stat st;
	int64_t age;
	int error;
	DIR *d;

	if (stat(dir.path, &st) < 0) {
		note_dir(&w->dir[number], errno);
		return;
	}
	if (dir.listed != 0 && monotonic_ns() - dir.listed < (int64_t)WATCH_RESCAN_MS * MS &&
		!dir.recent && memcmp(&st.st_mtim, &dir.changed, sizeof(dir.changed)) == 0)
		return;
	d = opendir(dir.path);
	if (d == NULL) {
		note_dir(&w->dir[number], errno);
		return;
	}
	while ((entry = directory_next(d)) != NULL) {
		if (dir.is_top && (entry->d_type == DT_DIR || entry->d_type == DT_UNKNOWN))
			list_subfolder(w, dir.path, entry->d_name);
		list_entry(w, &dir, entry->d_name, fresh);
	}
	error = errno;
	closedir(d);
	if (error != 0) {
		note_dir(&w->dir[number], error);
		return;
	}
	/* the time of a directory has steps of some ms: a change in the same step is not seen */
	age = utc_ns() - ((int64_t)st.st_mtim.tv_sec * NS + st.st_mtim.tv_nsec);
	w->dir[number].changed = st.st_mtim;
	w->dir[number].listed = monotonic_ns();
	w->dir[number].recent = age < 100 * (int64_t)MS;
	w->dir[number].failed = false;
}

/* Order: by folder and run, then by the number of the set. A longer name is a later one. */
static int
by_set(const void *a, const void *b)
{
	const struct watch_file *x = *(struct watch_file *const *)a;
	const struct watch_file *y = *(struct watch_file *const *)b;
	const size_t least = x->group < y->group ? x->group : y->group;
	const int ret = memcmp(x->path, y->path, least);

	if (ret != 0 || x->group != y->group)
		return ret != 0 ? ret : x->group < y->group ? -1 : 1;
	if (strlen(x->path) != strlen(y->path))
		return strlen(x->path) < strlen(y->path) ? -1 : 1;
	return strcmp(x->path, y->path);
}

static bool
is_group(const struct watch_file *a, const struct watch_file *b)
{
	return a->group == b->group && memcmp(a->path, b->path, a->group) == 0;
}

/* Whether the name of a file may be one of the named run. */
static bool
may_be_named(const struct watch *w, const struct watch_file *f)
{
	const char *slash = strrchr(f->path, '/');

	return w->config.run == NULL ||
		strncmp(slash + 1, w->config.run, strlen(w->config.run)) == 0;
}

static void
reject_file(struct watch_file *f, const char *why)
{
	if (why != NULL)
		escaped_line(
			stderr, "braggline-publish: %s: %s; the file is left out", f->path, why);
	f->state = FILE_IGNORED;
	close_file(f);
}

/* Whether a program writes a file that was there at the start. */
static bool
is_live(struct watch_file *f)
{
	const int ret = open_file(f);

	/* it may have been removed */
	if (ret < 0 && ret != -ENOENT)
		reject_file(f, own_file_error(ret));
	return ret == 0 && !f->complete && has_writer(f);
}

/*
 * At the start, only runs that are being written are published, from their first file on; or the
 * named run.
 */
static void
start_old(struct watch *w, const struct fresh *fresh)
{
	size_t i, k, first;
	bool live;

	for (first = 0; first < fresh->nb; first = i) {
		live = w->config.run != NULL;
		for (i = first; i < fresh->nb && is_group(fresh->file[i], fresh->file[first]);
			i++) {
			if (!live)
				live = is_live(fresh->file[i]);
			if (!live)
				close_file(fresh->file[i]);
		}
		for (k = first; live && k < i; k++) {
			if (may_be_named(w, fresh->file[k]))
				start_file(w, fresh->file[k]);
		}
	}
}

static void
scan_dirs(struct watch *w)
{
	struct fresh fresh = {0};
	size_t i;

	/* subfolders are appended meanwhile */
	for (i = 0; i < w->nb_dirs; i++)
		list_dir(w, i, &fresh);
	if (fresh.nb > 0)
		qsort(fresh.file, fresh.nb, sizeof(struct watch_file *), by_set);
	if (!w->listed_once)
		start_old(w, &fresh);
	for (i = 0; w->listed_once && i < fresh.nb; i++) {
		if (may_be_named(w, fresh.file[i]))
			start_file(w, fresh.file[i]);
	}
	free(fresh.file);
	w->listed_once = true;
	w->next_scan = monotonic_ns() + (int64_t)WATCH_SCAN_MS * MS;
}

int
watch_create(struct watch **watch, const struct watch_config *config, struct feed *feed)
{
	struct watch *w = calloc(1, sizeof(*w));
	int ret = w != NULL ? 0 : -ENOMEM;

	for (size_t i = 0; ret == 0 && i < config->nb_dirs; i++)
		ret = add_dir(w, config->dir[i], true);
	if (ret < 0) {
		watch_destroy(w);
		return ret;
	}
	w->config = *config;
	w->feed = feed;
	scan_dirs(w);
	*watch = w;
	return 0;
}

/* Memory for the first batches. Receivers that write for live clients have small ones. */
static void
reserve_memory(const struct wire_series *s, unsigned int messages)
{
	const size_t image = (size_t)s->rows * s->cols * sizeof(int16_t);

	scan_memory_reserve(image * RESERVED_IMAGES + WIRE_REST, RECORDS_MAX);
	/* for encoded images; memory of batches is large enough for them, too */
	scan_memory_reserve(wire_image_size(s), RECORDS_MAX + messages);
}

/* Finds the run of a file, or begins it with images. @return NULL: it cannot be published */
static struct watch_series *
find_series(struct watch *w, const struct watch_file *f)
{
	const char *name = arrow_reader_meta(&f->header->reader, ARROW_META_RUN);
	struct watch_series *s;

	if (name == NULL || (w->config.run != NULL && strcmp(name, w->config.run) != 0))
		return NULL;
	for (s = w->series; s != NULL; s = s->next) {
		if (strcmp(s->name, name) == 0 && series_fits(&s->run->series, f->header))
			return s;
	}
	s = f->table == ARROW_IMAGES ? calloc(1, sizeof(*s)) : NULL;
	if (s == NULL)
		return NULL;
	s->name = strdup(name);
	s->run = s->name != NULL
		? series_create(f->header, w->nb_series + 1, w->config.raw, w->config.geom)
		: NULL;
	if (s->run == NULL) {
		free_series(s);
		return NULL;
	}
	w->nb_series++;
	s->grown_at = monotonic_ns();
	s->next = w->series;
	w->series = s;
	/* the feed has its own reference */
	feed_begin(w->feed, feed_run_ref(s->run));
	reserve_memory(&s->run->series, w->config.messages);
	counter_add(&w->stats.runs, 1);
	escaped_line(stderr, "braggline-publish: run %s begins: series %u, %u x %u pixels", name,
		s->run->series.id, s->run->series.cols, s->run->series.rows);
	return s;
}

static void
end_file(struct watch *w, struct watch_file *f)
{
	if (f->table == ARROW_FRAMES)
		feed_follow_rows(w->feed, f->series->run, false);
	f->state = FILE_DONE;
	close_file(f);
}

/* Whether the run of a file of `frames` may begin yet. */
static bool
is_awaited(const struct watch_file *f)
{
	return monotonic_ns() - f->found_at < (int64_t)OPEN_MS * MS ||
		(!f->complete && has_writer(f));
}

/* A run has begun: its file of `frames` is read before more images. */
static void
expect_rows(struct watch *w, const struct watch_file *images)
{
	struct watch_file *f;

	for (size_t i = 0; i < w->nb_active; i++) {
		f = w->active[i];
		if (f->table == ARROW_FRAMES && is_group(f, images))
			f->retry_at = 0;
	}
}

/* Reads the first block. @return true: there is more to do at once */
static bool
begin_file(struct watch *w, struct watch_file *f)
{
	const char *problem;
	struct stat st;
	int ret;

	if (monotonic_ns() < f->retry_at)
		return false;
	f->retry_at = monotonic_ns() + 2 * (int64_t)MS;
	ret = open_file(f);
	if (ret == 0)
		ret = f->header == NULL
			? scan_header_read(&f->header, f->fd, f->path, f->table, &problem)
			: 0;
	if (ret == -EBADMSG) {
		reject_file(f, problem);
		return false;
	}
	if (lacks_descriptors(ret)) {
		/* clients have all of them: the run is not lost */
		if (!f->delayed)
			escaped_line(stderr,
				"braggline-publish: %s: cannot be opened yet: %s; " TOO_MANY,
				f->path, strerror(-ret));
		f->delayed = true;
		return false;
	}
	if (ret < 0) {
		/* a pipe or a folder does not become a file */
		if (ret == -EMEDIUMTYPE || ret == -EISDIR ||
			monotonic_ns() - f->found_at > (int64_t)OPEN_MS * MS)
			reject_file(f,
				ret == -ENODATA ? "its schema is damaged or absent"
						: own_file_error(ret));
		return false;
	}
	f->at = f->header->reader.begin;
	f->series = find_series(w, f);
	if (f->series == NULL && f->table == ARROW_FRAMES && is_awaited(f)) {
		f->retry_at = monotonic_ns() + ROWS_MS * (int64_t)MS;
		return false;
	}
	if (f->series == NULL || fstat(f->fd, &st) < 0) {
		reject_file(f, NULL);
		return false;
	}
	f->number =
		feed_add_file(w->feed, f->series->run, f->path, f->header, st.st_dev, st.st_ino);
	if (f->number < 0) {
		reject_file(f, "not enough memory");
		return false;
	}
	f->state = FILE_FOLLOWED;
	f->grown_at = f->series->grown_at = monotonic_ns();
	if (f->table == ARROW_FRAMES)
		feed_follow_rows(w->feed, f->series->run, true);
	else
		expect_rows(w, f);
	return true;
}

/* Whether a batch was published before, from a copy of it in another file. */
static bool
is_copy(struct watch_series *s, const struct arrow_read_batch *b)
{
	const uint64_t sequence = strtoull(b->sequence, NULL, 16);
	struct watch_stream *t = s->stream;
	unsigned int i;

	for (i = 0; i < s->nb_streams; i++, t++) {
		if (strcmp(t->receiver_id, b->receiver_id) == 0 && strcmp(t->run, b->run) == 0 &&
			strcmp(t->incarnation, b->incarnation) == 0)
			break;
	}
	if (i == STREAMS_MAX || sequence == UINT64_MAX)
		return false;
	if (i == s->nb_streams) {
		s->nb_streams++;
		snprintf(t->receiver_id, sizeof(t->receiver_id), "%s", b->receiver_id);
		snprintf(t->run, sizeof(t->run), "%s", b->run);
		snprintf(t->incarnation, sizeof(t->incarnation), "%s", b->incarnation);
	}
	if (interval_set_has(&t->sequences, sequence))
		return true;
	(void)interval_set_add(&t->sequences, sequence, sequence);
	return false;
}

static void
warn_kind(struct watch_series *s)
{
	if (!s->warned)
		escaped_line(stderr,
			s->run->series.raw
				? "braggline-publish: run %s: it has images of photons, which are "
				  "left out with --raw"
				: "braggline-publish: run %s: it has raw images, which are left "
				  "out; --raw publishes them instead of photons",
			s->name);
	s->warned = true;
}

static void
publish_rows(struct watch *w, struct watch_file *f, struct scan_record *record, uint64_t length)
{
	const int ret = feed_append_rows(w->feed, f->series->run, f->number, f->at, record);

	counter_add(&w->stats.bytes, length);
	if (ret == 0)
		counter_add(&w->stats.rows, record->batch.rows);
	else if (ret == -EBADMSG)
		counter_add(&w->stats.damaged, 1);
	else
		escaped_line(stderr,
			"braggline-publish: run %s: not enough memory: %lu rows are left out",
			f->series->name, (unsigned long)record->batch.rows);
}

static void
publish(struct watch *w, struct watch_file *f, struct scan_record *record, uint64_t length)
{
	const uint8_t *kind = record->images.kind.data;
	const uint64_t rows = record->batch.rows;
	struct feed_batch b = {.file = f->number, .at = f->at, .seen_ns = f->seen_ns};

	counter_add(&w->stats.bytes, length);
	if (is_copy(f->series, &record->batch)) {
		counter_add(&w->stats.copies, 1);
		return;
	}
	for (uint64_t i = 0; i < rows; i++)
		b.images += feed_is_image(&f->series->run->series, kind[i]);
	if (b.images < rows) {
		counter_add(&w->stats.other_kind, rows - b.images);
		warn_kind(f->series);
	}
	counter_add(&w->stats.batches, 1);
	counter_add(&w->stats.images, b.images);
	if (b.images > 0 && feed_append(w->feed, f->series->run, &b, record) < 0)
		escaped_line(stderr,
			"braggline-publish: run %s: not enough memory: %u images are left out",
			f->series->name, b.images);
}

static uint64_t
file_size(const struct watch_file *f)
{
	struct stat st;

	return fstat(f->fd, &st) == 0 ? st.st_size : 0;
}

/* Continues after a batch that is wrong. */
static void
skip_damage(struct watch *w, struct watch_file *f, enum scan_record_state state, uint64_t length)
{
	const uint64_t size = file_size(f);
	/* if a batch is torn, its length may be wrong, too */
	const bool whole = state == SCAN_RECORD_PARTIAL && length <= size && f->at <= size - length;

	counter_add(&w->stats.damaged, 1);
	escaped_line(stderr, "braggline-publish: %s: damaged at offset %lu; its %s are left out",
		f->path, (unsigned long)f->at, f->table == ARROW_IMAGES ? "images" : "rows");
	f->at += whole ? length : ARROW_BLOCK;
	f->state = whole ? FILE_FOLLOWED : FILE_SEARCHING;
	f->seen = 0;
}

/* Whether no program will write to a file again. Looks for its writer at intervals. */
static bool
is_abandoned(struct watch_file *f)
{
	struct stat st;

	if (f->complete)
		return scan_file_settled(&f->change, f->fd);
	if (monotonic_ns() - f->grown_at < (int64_t)WATCH_STOPPED_MS * MS ||
		monotonic_ns() - f->checked_at < 100 * (int64_t)MS)
		return false;
	f->checked_at = monotonic_ns();
	if (has_writer(f))
		return false;
	/* the writer may have completed and renamed it meanwhile */
	f->complete = stat(f->path, &st) == 0;
	return true;
}

/* Whether a batch of a file is wrong and no longer changes. */
static bool
is_damaged(struct watch_file *f)
{
	/* the copy of a large batch may take long */
	return is_abandoned(f) ||
		(!f->complete && monotonic_ns() - f->seen >= (int64_t)WATCH_DAMAGE_MS * MS);
}

/* A batch, or something else, is at the offset, but cannot be published. */
static bool
wait_for_batch(struct watch *w, struct watch_file *f, enum scan_record_state state, uint64_t length)
{
	const int64_t t = monotonic_ns();

	if (f->seen == 0) {
		f->seen = t;
		f->retry_delay = MS / 4;
	} else {
		f->retry_delay = 2 * f->retry_delay < WATCH_RETRY_MS * (int64_t)MS
			? 2 * f->retry_delay
			: WATCH_RETRY_MS * (int64_t)MS;
	}
	if (!is_damaged(f)) {
		f->retry_at = t + f->retry_delay;
		return false;
	}
	skip_damage(w, f, state, length);
	return true;
}

/* Checks the end of a file. @return true: there is more to do at once */
static bool
follow_file(struct watch *w, struct watch_file *f)
{
	struct scan_record *record = NULL;
	enum scan_record_state state;
	uint64_t length = 0;

	if (f->seen != 0 && monotonic_ns() < f->retry_at)
		return false;
	if (f->seen == 0)
		f->seen_ns = utc_ns();
	state = scan_record_read(&record, f->header, f->fd, f->at, &length);
	switch (state) {
	case SCAN_RECORD_WHOLE:
		if (f->table == ARROW_IMAGES)
			publish(w, f, record, length);
		else
			publish_rows(w, f, record, length);
		scan_record_drop(record);
		f->at += length;
		f->seen = 0;
		f->grown_at = f->series->grown_at = monotonic_ns();
		return true;
	case SCAN_RECORD_END:
		end_file(w, f);
		return true;
	case SCAN_RECORD_NONE:
		if (!is_abandoned(f))
			return false;
		/* zeros in a complete file are damage; in another one, space that is not used */
		if (f->complete && f->at < file_size(f))
			skip_damage(w, f, SCAN_RECORD_WRONG, 0);
		else
			end_file(w, f);
		return true;
	default:
		return wait_for_batch(w, f, state, length);
	}
}

/* Searches the next batch after a damaged region. */
static bool
search_file(struct watch *w, struct watch_file *f)
{
	const int ret = scan_record_search(f->header, f->fd, &f->at, SEARCH_STEPS);

	if (ret < 0)
		end_file(w, f);
	else if (ret > 0)
		f->state = FILE_FOLLOWED;
	return true;
}

/* Sets of files are read in order, both tables at the same time. */
static bool
is_next_set(const struct watch *w, size_t number)
{
	for (size_t i = 0; i < number; i++) {
		if (w->active[i]->table == w->active[number]->table &&
			is_group(w->active[i], w->active[number]))
			return false;
	}
	return true;
}

static bool
step_file(struct watch *w, struct watch_file *f)
{
	switch (f->state) {
	case FILE_PENDING:
		return begin_file(w, f);
	case FILE_FOLLOWED:
		return follow_file(w, f);
	case FILE_SEARCHING:
		return search_file(w, f);
	default:
		return false;
	}
}

/* Removes files that have ended from the list. The tree keeps their names. */
static void
drop_done(struct watch *w)
{
	size_t i, nb = 0;

	for (i = 0; i < w->nb_active; i++) {
		if (w->active[i]->state != FILE_DONE && w->active[i]->state != FILE_IGNORED)
			w->active[nb++] = w->active[i];
	}
	w->nb_active = nb;
}

static bool
has_files(const struct watch *w, const struct watch_series *s)
{
	for (size_t i = 0; i < w->nb_active; i++) {
		/* a file whose run is not known yet may be its next set */
		if (w->active[i]->series == s ||
			(w->active[i]->series == NULL && w->active[i]->table == ARROW_IMAGES))
			return true;
	}
	return false;
}

/* Ends the runs whose files have ended. */
static void
end_runs(struct watch *w)
{
	struct watch_series **at = &w->series, *s;

	while ((s = *at) != NULL) {
		if (has_files(w, s) || monotonic_ns() - s->grown_at < (int64_t)WATCH_END_MS * MS) {
			at = &s->next;
			continue;
		}
		*at = s->next;
		escaped_line(stderr, "braggline-publish: run %s has ended: %lu image%s", s->name,
			(unsigned long)s->run->images, plural(s->run->images, "", "s"));
		feed_end(w->feed, s->run);
		counter_add(&w->stats.ended, 1);
		free_series(s);
		w->finished = w->config.run != NULL;
	}
}

/* Sleeps for the polling interval, or until a batch that is being written is read again. */
static void
pause_files(const struct watch *w)
{
	int64_t ns = w->config.poll_us * INT64_C(1000), left;
	const int64_t t = monotonic_ns();
	struct timespec pause;

	for (size_t i = 0; i < w->nb_active; i++) {
		left = w->active[i]->retry_at - t;
		if (w->active[i]->seen != 0 && left < ns)
			ns = left;
	}
	pause = (struct timespec){.tv_sec = ns / NS, .tv_nsec = ns % NS};
	if (ns > 0)
		nanosleep(&pause, NULL);
}

void
watch_run(struct watch *w)
{
	bool busy;
	size_t i;

	while (!__atomic_load_n(&w->stop, __ATOMIC_RELAXED) && !w->finished) {
		busy = false;
		if (monotonic_ns() >= w->next_scan)
			scan_dirs(w);
		for (i = 0; i < w->nb_active; i++) {
			if (is_next_set(w, i))
				busy |= step_file(w, w->active[i]);
		}
		drop_done(w);
		end_runs(w);
		if (!busy && !scan_memory_touch())
			pause_files(w);
	}
	feed_close(w->feed);
}
