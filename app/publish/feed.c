/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"
#include "feed.h"
#include "io/own_file.h"

#define MS 1000000

int
feed_init(struct feed *f)
{
	*f = (struct feed){0};
	return -pthread_mutex_init(&f->lock, NULL);
}

void
feed_free(struct feed *f)
{
	for (; f->first < f->next; f->first++)
		feed_run_drop(f->run[f->first % FEED_RUNS]);
	pthread_mutex_destroy(&f->lock);
}

int
feed_add_cursor(
	struct feed *f, struct feed_cursor *c, bool serial, uint64_t behind, int64_t rows_ns)
{
	*c = (struct feed_cursor){
		.feed = f, .serial = serial, .behind = behind, .rows_ns = rows_ns};
	c->event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (c->event < 0)
		return -errno;
	f->cursor[f->nb_cursors++] = c;
	return 0;
}

void
feed_free_cursor(struct feed_cursor *c)
{
	scan_record_drop(c->record);
	scan_record_drop(c->rows);
	rows_end(&c->join);
	free(c->published);
	feed_run_drop(c->current);
	if (c->feed != NULL)
		close(c->event);
	*c = (struct feed_cursor){0};
}

struct feed_run *
feed_run_ref(struct feed_run *run)
{
	__atomic_add_fetch(&run->refs, 1, __ATOMIC_RELAXED);
	return run;
}

void
feed_run_drop(struct feed_run *run)
{
	const struct wire_series *s;

	if (run == NULL || __atomic_sub_fetch(&run->refs, 1, __ATOMIC_ACQ_REL) > 0)
		return;
	s = &run->series;
	scan_record_drop(run->latest);
	scan_record_drop(run->latest_rows);
	free(run->rows);
	for (size_t i = 0; i < run->nb_files; i++) {
		free(run->file[i].path);
		scan_header_drop(run->file[i].header);
	}
	free(run->file);
	free(run->batch);
	free((void *)(uintptr_t)s->unique_id);
	free((void *)(uintptr_t)s->run);
	free((void *)(uintptr_t)s->sample);
	free((void *)(uintptr_t)s->mask);
	free(run);
}

/* Wake the threads of the outputs. A failed write is ignored: a full counter wakes them, too. */
static void
wake_outputs(const struct feed *f)
{
	const uint64_t one = 1;

	for (unsigned int i = 0; i < f->nb_cursors; i++) {
		if (write(f->cursor[i]->event, &one, sizeof(one)) < 0)
			continue;
	}
}

/* Find or create the entry of a run in `place`. @return its index */
static unsigned int
place_index(struct feed_cursor *c, uint64_t number)
{
	const unsigned int i = number % FEED_RUNS;

	if (c->place[i].run != number + 1) {
		memset(&c->place[i], 0, sizeof(c->place[i]));
		c->place[i].run = number + 1;
	}
	return i;
}

/* Count the images of the oldest run that outputs have not taken. */
static void
count_dropped(struct feed *f)
{
	const struct feed_run *run = f->run[f->first % FEED_RUNS];
	struct feed_cursor *c;
	size_t batch;

	for (unsigned int i = 0; i < f->nb_cursors; i++) {
		c = f->cursor[i];
		if (c->run > f->first)
			continue;
		batch = c->place[place_index(c, f->first)].batch;
		if (batch < run->nb_batches)
			c->dropped += run->images - run->batch[batch].first;
	}
}

/* Drop the runs that all outputs have finished, and the oldest one if there is no room. */
static void
drop_runs(struct feed *f, bool room)
{
	uint64_t first = f->next;

	for (unsigned int i = 0; i < f->nb_cursors; i++) {
		if (f->cursor[i]->run < first)
			first = f->cursor[i]->run;
	}
	if (room && f->next - f->first == FEED_RUNS && first <= f->first) {
		count_dropped(f);
		first = f->first + 1;
	}
	for (; f->first < first; f->first++)
		feed_run_drop(f->run[f->first % FEED_RUNS]);
}

void
feed_begin(struct feed *f, struct feed_run *run)
{
	pthread_mutex_lock(&f->lock);
	run->began_ns = monotonic_ns();
	drop_runs(f, true);
	f->run[f->next++ % FEED_RUNS] = run;
	pthread_mutex_unlock(&f->lock);
	wake_outputs(f);
}

int
feed_add_file(struct feed *f, struct feed_run *run, const char *path, struct scan_header *header,
	dev_t dev, ino_t ino)
{
	struct feed_file *more;
	char *copy = strdup(path);
	int ret = -ENOMEM;

	pthread_mutex_lock(&f->lock);
	more = realloc(run->file, (run->nb_files + 1) * sizeof(*more));
	if (more != NULL)
		run->file = more;
	if (more != NULL && copy != NULL) {
		more[run->nb_files] = (struct feed_file){copy, scan_header_ref(header), dev, ino};
		ret = (int)run->nb_files++;
		copy = NULL;
	}
	pthread_mutex_unlock(&f->lock);
	free(copy);
	return ret;
}

/*
 * Makes room for one more member of an array of `nb`. The array doubles whenever `nb` is a power of
 * two.
 * @return the array, which may have moved; NULL: out of memory, and the old array stays
 */
static void *
grow(void *array, size_t nb, size_t size)
{
	if ((nb & (nb - 1)) != 0)
		return array;
	return realloc(array, (nb == 0 ? 1 : 2 * nb) * size);
}

static int
append_batch(struct feed_run *run, const struct feed_batch *batch)
{
	struct feed_batch *more = grow(run->batch, run->nb_batches, sizeof(*more));

	if (more == NULL)
		return -ENOMEM;
	run->batch = more;
	run->batch[run->nb_batches++] = *batch;
	return 0;
}

int
feed_append(struct feed *f, struct feed_run *run, const struct feed_batch *batch,
	struct scan_record *record)
{
	struct feed_batch b = *batch;
	struct scan_record *old = NULL;
	int ret;

	pthread_mutex_lock(&f->lock);
	b.first = run->images;
	b.order = f->batches;
	b.added_ns = monotonic_ns();
	ret = append_batch(run, &b);
	if (ret == 0) {
		f->batches++;
		run->images += b.images;
		old = run->latest;
		run->latest = scan_record_ref(record);
	}
	pthread_mutex_unlock(&f->lock);
	scan_record_drop(old);
	wake_outputs(f);
	return ret;
}

int
feed_rows_push(struct feed_run *run, const struct feed_rows *rows)
{
	const size_t n = run->nb_rows;
	struct feed_rows *r = grow(run->rows, n, sizeof(*r));

	if (r == NULL)
		return -ENOMEM;
	run->rows = r;
	r += n;
	*r = *rows;
	r->least_first = r->first;
	r->most_last = n > 0 && r[-1].most_last > r->last ? r[-1].most_last : r->last;
	/* files of several receivers or stores are in order each, but not together */
	for (; r > run->rows && r[-1].least_first > r->least_first; r--)
		r[-1].least_first = r->least_first;
	run->nb_rows++;
	return 0;
}

void
feed_rows_find(
	const struct feed_run *run, uint64_t first, uint64_t last, size_t *begin, size_t *end)
{
	size_t low = 0, high = run->nb_rows, middle;

	while (low < high) {
		middle = low + (high - low) / 2;
		if (run->rows[middle].most_last < first)
			low = middle + 1;
		else
			high = middle;
	}
	*begin = low;
	for (high = run->nb_rows; low < high;) {
		middle = low + (high - low) / 2;
		if (run->rows[middle].least_first <= last)
			low = middle + 1;
		else
			high = middle;
	}
	*end = low;
}

int
feed_append_rows(struct feed *f, struct feed_run *run, uint32_t file, uint64_t at,
	struct scan_record *record)
{
	struct feed_rows rows = {.file = file, .at = at};
	struct scan_record *old = NULL;
	int ret = rows_range(record, &rows.first, &rows.last);

	if (ret < 0)
		return ret == -ENODATA ? 0 : ret;
	pthread_mutex_lock(&f->lock);
	ret = feed_rows_push(run, &rows);
	if (ret == 0) {
		old = run->latest_rows;
		run->latest_rows = scan_record_ref(record);
	}
	pthread_mutex_unlock(&f->lock);
	scan_record_drop(old);
	wake_outputs(f);
	return ret;
}

void
feed_follow_rows(struct feed *f, struct feed_run *run, bool followed)
{
	pthread_mutex_lock(&f->lock);
	run->frames_files += followed ? 1 : -1;
	pthread_mutex_unlock(&f->lock);
	wake_outputs(f);
}

void
feed_end(struct feed *f, struct feed_run *run)
{
	pthread_mutex_lock(&f->lock);
	run->ended = true;
	pthread_mutex_unlock(&f->lock);
	wake_outputs(f);
}

void
feed_close(struct feed *f)
{
	pthread_mutex_lock(&f->lock);
	f->closed = true;
	pthread_mutex_unlock(&f->lock);
	wake_outputs(f);
}

static void
set_current(struct feed_cursor *c, struct feed_run *run)
{
	if (c->current == run)
		return;
	feed_run_drop(c->current);
	c->current = feed_run_ref(run);
	scan_record_drop(c->rows);
	c->rows = NULL;
}

/* Advance to the first run that is neither dropped by the feed nor finished. */
static void
skip_finished(struct feed_cursor *c)
{
	if (c->run < c->feed->first)
		c->run = c->feed->first;
	c->skipped += c->dropped;
	c->dropped = 0;
	while (c->run < c->feed->next && c->place[place_index(c, c->run)].finished)
		c->run++;
	drop_runs(c->feed, false);
}

/*
 * Chooses the run to continue with: if serial, the first one that is not finished; otherwise that
 * with the oldest batch. @return NULL: none
 */
static struct feed_run *
choose_run(struct feed_cursor *c, unsigned int *place)
{
	struct feed_run *run, *best = NULL;
	uint64_t order = UINT64_MAX, n;
	unsigned int i;

	for (n = c->run; n < c->feed->next; n++) {
		run = c->feed->run[n % FEED_RUNS];
		i = place_index(c, n);
		if (c->serial) {
			*place = i;
			return run;
		}
		if (c->place[i].batch < run->nb_batches &&
			run->batch[c->place[i].batch].order < order) {
			order = run->batch[c->place[i].batch].order;
			best = run;
			*place = i;
		}
		c->place[i].finished = run->ended && c->place[i].batch == run->nb_batches;
	}
	return best;
}

/*
 * Reads a batch from its file again.
 * @return 0: `record` is NULL if the batch no longer exists; -EMFILE, -ENFILE: try again
 */
static int
reload_batch(struct scan_record **record, struct scan_header *header, const char *path, dev_t dev,
	ino_t ino, uint64_t at)
{
	char part[PATH_MAX];
	uint64_t length;
	struct stat st;
	int fd;

	*record = NULL;
	fd = own_file_open_named(path, O_RDONLY, 0);
	if (fd == -ENOENT && snprintf(part, sizeof(part), "%s.part", path) < (int)sizeof(part))
		fd = own_file_open_named(part, O_RDONLY, 0);
	/* renamed between both attempts */
	if (fd == -ENOENT)
		fd = own_file_open_named(path, O_RDONLY, 0);
	if (fd < 0)
		return fd == -EMFILE || fd == -ENFILE ? fd : 0;
	if (fstat(fd, &st) == 0 && st.st_dev == dev && st.st_ino == ino)
		(void)scan_record_read(record, header, fd, at, &length);
	close(fd);
	return 0;
}

/* Begins to search the rows of `frames` of a batch. */
static void
begin_join(struct feed_cursor *c)
{
	const uint64_t rows = c->record != NULL ? c->record->batch.rows : 0;
	const uint8_t *kind = rows > 0 ? c->record->images.kind.data : NULL;

	free(c->published);
	c->published = calloc(rows + 1, sizeof(*c->published));
	for (uint64_t i = 0; c->published != NULL && i < rows; i++)
		c->published[i] = feed_is_image(&c->current->series, kind[i]);
	c->rows_tried = 0;
	/* out of memory: publish the images without rows */
	c->joined = rows == 0 || c->published == NULL ||
		rows_begin(&c->join, c->record, c->published) < 0;
}

/* Whether both files are of the same set: their names differ in the table. */
static bool
is_same_set(const struct feed_file *a, const struct feed_file *b)
{
	const size_t length = strlen(a->path), table = strlen("frames.arrow");

	return length == strlen(b->path) && length > table &&
		memcmp(a->path, b->path, length - table) == 0;
}

/*
 * Lists batches of `frames` that may have rows: those of the set of the images first, and the
 * newest ones first. Called with the lock. @return their number
 */
static size_t
list_rows(const struct feed_cursor *c, size_t number[FEED_JOIN_MAX])
{
	const struct feed_run *run = c->current;
	const struct rows_join *j = &c->join;
	const struct feed_rows *r;
	size_t nb = 0, begin, end, i;

	feed_rows_find(run, j->first, j->last, &begin, &end);
	if (begin < c->rows_tried)
		begin = c->rows_tried;
	for (unsigned int others = 0; others < 2; others++) {
		for (i = end; i > begin && nb < FEED_JOIN_MAX; i--) {
			r = &run->rows[i - 1];
			if (r->last >= j->first && r->first <= j->last &&
				is_same_set(&run->file[r->file], &run->file[c->file]) != others)
				number[nb++] = i - 1;
		}
	}
	return nb;
}

/*
 * Gets a batch of `frames` of the current run into `rows`.
 * @return 0: `rows` is NULL if the batch no longer exists, or is damaged; -EMFILE, -ENFILE: try
 *   again
 */
static int
get_rows(struct feed_cursor *c, size_t number)
{
	struct feed_run *run = c->current;
	struct scan_header *header = NULL;
	struct scan_record *record = NULL;
	struct feed_rows r;
	char *path = NULL;
	dev_t dev = 0;
	ino_t ino = 0;
	int ret = 0;

	if (c->rows != NULL && c->rows_number == number)
		return 0;
	pthread_mutex_lock(&c->feed->lock);
	r = run->rows[number];
	if (number + 1 == run->nb_rows) {
		record = scan_record_ref(run->latest_rows);
	} else {
		header = scan_header_ref(run->file[r.file].header);
		path = strdup(run->file[r.file].path);
		dev = run->file[r.file].dev;
		ino = run->file[r.file].ino;
	}
	pthread_mutex_unlock(&c->feed->lock);
	if (record == NULL && path != NULL)
		ret = reload_batch(&record, header, path, dev, ino, r.at);
	scan_header_drop(header);
	free(path);
	scan_record_drop(c->rows);
	c->rows = record;
	c->rows_number = number;
	return ret;
}

/* Searches the rows of the current batch. @return true: it no longer waits for rows */
static bool
join_rows(struct feed_cursor *c)
{
	size_t number[FEED_JOIN_MAX], nb, i;
	const struct feed_run *run = c->current;
	const size_t tried = c->rows_tried;
	int64_t now;
	bool more;

	if (c->joined)
		return true;
	pthread_mutex_lock(&c->feed->lock);
	now = monotonic_ns();
	/* a store may begin the file of `frames` after that of images */
	more = !run->ended && now < c->until_ns &&
		(run->frames_files > 0 || now - run->began_ns < c->rows_ns);
	nb = list_rows(c, number);
	c->rows_tried = run->nb_rows;
	pthread_mutex_unlock(&c->feed->lock);
	c->no_descriptor = false;
	for (i = 0; i < nb && c->join.missing > 0 && !c->no_descriptor; i++) {
		c->no_descriptor = get_rows(c, number[i]) < 0;
		if (c->rows != NULL)
			(void)rows_add(&c->join, c->record, c->published, c->rows);
	}
	/* no descriptor is free: the images wait, and the rows are read again */
	if (c->no_descriptor)
		c->rows_tried = tried;
	else
		c->joined = c->join.missing == 0 || !more;
	return c->joined;
}

int
feed_wait_ms(const struct feed_cursor *c, int most)
{
	int64_t ms;

	if (c->record == NULL || c->joined || c->no_descriptor)
		return most;
	ms = (c->until_ns - monotonic_ns()) / MS + 1;
	return ms < 0 ? 0 : ms < most ? (int)ms : most;
}

/*
 * Takes the next batch of a run. Called with the lock, which it releases.
 * @return FEED_IMAGE: it was taken, or skipped; FEED_WAIT: it cannot be read now
 */
static enum feed_kind
take_batch(struct feed_cursor *c, struct feed_run *run, unsigned int place)
{
	const size_t number = c->place[place].batch++;
	const struct feed_batch b = run->batch[number];
	struct scan_header *header = NULL;
	struct scan_record *record = NULL;
	char *path = NULL;
	dev_t dev = 0;
	ino_t ino = 0;
	int ret = 0;

	set_current(c, run);
	if (c->behind != FEED_ALL && b.first + b.images + c->behind <= run->images) {
		c->skipped += b.images;
		pthread_mutex_unlock(&c->feed->lock);
		return FEED_IMAGE;
	}
	if (number + 1 == run->nb_batches) {
		record = scan_record_ref(run->latest);
	} else {
		header = scan_header_ref(run->file[b.file].header);
		path = strdup(run->file[b.file].path);
		dev = run->file[b.file].dev;
		ino = run->file[b.file].ino;
	}
	pthread_mutex_unlock(&c->feed->lock);
	if (record == NULL && path != NULL)
		ret = reload_batch(&record, header, path, dev, ino, b.at);
	scan_header_drop(header);
	free(path);
	if (ret < 0) {
		/* no descriptor is free: try this batch again */
		pthread_mutex_lock(&c->feed->lock);
		c->place[place].batch = number;
		pthread_mutex_unlock(&c->feed->lock);
		return FEED_WAIT;
	}
	if (record == NULL)
		c->gone += b.images;
	c->record = record;
	c->file = b.file;
	c->row = 0;
	c->id = b.first;
	c->seen_ns = b.seen_ns;
	c->until_ns = b.added_ns + c->rows_ns;
	begin_join(c);
	return FEED_IMAGE;
}

/* Finds the next image of the current batch. */
static bool
next_image(struct feed_cursor *c, struct feed_item *item)
{
	const uint8_t *kind = c->record->images.kind.data;
	const uint64_t rows = c->record->batch.rows;

	while (c->row < rows && !feed_is_image(&c->current->series, kind[c->row]))
		c->row++;
	if (c->row == rows)
		return false;
	*item = (struct feed_item){
		.series = &c->current->series,
		.record = c->record,
		.info = rows_get(&c->join, c->row),
		.row = c->row,
		.id = c->id++,
		.seen_ns = c->seen_ns,
	};
	c->row++;
	return true;
}

/* Return true if more images than `behind` follow this one in the run. */
static bool
is_skipped(struct feed_cursor *c, uint64_t id)
{
	uint64_t images;

	if (c->behind == FEED_ALL)
		return false;
	pthread_mutex_lock(&c->feed->lock);
	images = c->current->images;
	pthread_mutex_unlock(&c->feed->lock);
	return images - id > c->behind;
}

/* Proceed to the next batch or event. @return FEED_IMAGE: a batch was taken, or skipped */
static enum feed_kind
advance(struct feed_cursor *c)
{
	unsigned int place = 0;
	struct feed_run *run;
	enum feed_kind kind;

	pthread_mutex_lock(&c->feed->lock);
	skip_finished(c);
	run = choose_run(c, &place);
	if (run == NULL) {
		skip_finished(c);
		kind = c->feed->closed && c->run == c->feed->next ? FEED_CLOSED : FEED_WAIT;
	} else if (c->serial && !c->place[place].begun) {
		c->place[place].begun = true;
		set_current(c, run);
		kind = FEED_START;
	} else if (c->place[place].batch < run->nb_batches) {
		return take_batch(c, run, place);
	} else if (c->serial && run->ended) {
		c->place[place].finished = true;
		set_current(c, run);
		kind = FEED_FINISH;
	} else {
		kind = FEED_WAIT;
	}
	pthread_mutex_unlock(&c->feed->lock);
	return kind;
}

enum feed_kind
feed_next(struct feed_cursor *c, struct feed_item *item)
{
	enum feed_kind kind;

	for (;;) {
		while (c->record != NULL) {
			if (!join_rows(c)) {
				*item = (struct feed_item){.series = &c->current->series};
				return FEED_WAIT;
			}
			if (!next_image(c, item)) {
				scan_record_drop(c->record);
				c->record = NULL;
				rows_end(&c->join);
			} else if (is_skipped(c, item->id)) {
				c->skipped++;
			} else {
				return FEED_IMAGE;
			}
		}
		kind = advance(c);
		if (kind == FEED_IMAGE)
			continue;
		*item = (struct feed_item){
			.series = c->current != NULL ? &c->current->series : NULL};
		return kind;
	}
}
