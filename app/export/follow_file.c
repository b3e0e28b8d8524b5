/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "arrow/names.h"
#include "escaped_text.h"
#include "follow_file.h"
#include "io/direct_io.h"
#include "io/own_file.h"

int
follow_file_open(
	struct follow_file *g, struct scan_run *run, struct scan_file *f, enum arrow_table table)
{
	const char *problem;
	int ret;

	memset(g, 0, sizeof(*g));
	g->fd = own_file_open_named(f->path, O_RDONLY, 0);
	if (g->fd < 0)
		return g->fd;
	g->file = f;
	g->limit = UINT64_MAX;
	ret = scan_header_read(&g->header, g->fd, f->path, table, &problem);
	if (ret == -EBADMSG)
		escaped_line(stderr, "%s: %s: %s", program_invocation_short_name, f->path, problem);
	if (ret == 0) {
		f->reader = g->header->reader;
		f->present = true;
		g->at = f->reader.begin;
		ret = scan_run_check(run, f);
	}
	if (ret < 0)
		follow_file_close(g);
	return ret == -ENODATA ? -EAGAIN : ret;
}

/* Checks whether the writer has renamed the file. A receiver does this last. */
static void
check_rename(struct follow_file *g)
{
	const size_t length = strlen(g->file->path) - strlen(".part");
	struct stat ours, named;
	char name[PATH_MAX];

	if (!arrow_name_is_part(g->file->path)) {
		g->named = true;
		return;
	}
	snprintf(name, sizeof(name), "%.*s", (int)length, g->file->path);
	if (fstat(g->fd, &ours) < 0)
		return;
	if (stat(name, &named) == 0 && named.st_ino == ours.st_ino && named.st_dev == ours.st_dev) {
		g->file->path[length] = '\0';
		g->named = true;
	} else if (ours.st_nlink == 0) {
		g->named = true;
	}
}

/* Continues after the last batch that the file still has. @return 0, -errno */
static int
check_size(struct follow_file *g)
{
	struct follow_batch *b;
	struct stat st;
	uint64_t end;

	/* from here on the offset only grows, so that the end is reached */
	if (g->named || g->limit != UINT64_MAX)
		return 0;
	if (fstat(g->fd, &st) < 0)
		return -errno;
	if ((uint64_t)st.st_size >= g->at)
		return 0;
	g->at = g->header->reader.begin;
	for (size_t i = 0; i < g->file->reader.nb_batches; i++) {
		b = &g->batch[i];
		end = b->at + b->length;
		b->gone |= end > (uint64_t)st.st_size;
		if (!b->gone && end > g->at)
			g->at = end;
	}
	return 0;
}

/* Appends a batch, whose reference it takes. @return 0; -ENOMEM */
static int
append(struct follow_file *g, struct scan_record *record, uint64_t length)
{
	struct scan_record *kept = scan_record_without_pixels(record);
	struct arrow_reader *r = &g->file->reader;
	const size_t n = r->nb_batches;
	struct follow_batch *more;

	/* the array doubles whenever its size is a power of two */
	if ((n & (n - 1)) == 0) {
		more = realloc(g->batch, (n == 0 ? 1 : 2 * n) * sizeof(*more));
		if (more == NULL)
			goto fail;
		g->batch = more;
	}
	if (kept == NULL || arrow_reader_keep(r, &record->batch) < 0)
		goto fail;
	g->batch[n] = (struct follow_batch){.record = kept, .at = g->at, .length = length};
	follow_file_forget(g);
	g->loaded = record;
	g->loaded_batch = n;
	return 0;
fail:
	scan_record_drop(kept);
	scan_record_drop(record);
	return -ENOMEM;
}

/* Continues after damage, as readers of complete files do. @return -EBADMSG; 0: the end */
static int
skip(struct follow_file *g, enum scan_record_state state, uint64_t length)
{
	struct stat st;
	const uint64_t size = fstat(g->fd, &st) == 0 ? st.st_size : 0;
	const uint64_t blocks = g->at < g->limit ? (g->limit - g->at) / ARROW_BLOCK + 1 : 0;
	/* if a batch is torn, its length may be wrong, too */
	const bool torn = state == SCAN_RECORD_PARTIAL && (g->at > size || length > size - g->at);

	if (state == SCAN_RECORD_PARTIAL && !torn) {
		g->at += length;
	} else if (state == SCAN_RECORD_END) {
		g->ended = true;
		return 0;
	} else {
		g->at += torn ? ARROW_BLOCK : 0;
		g->ended = scan_record_search(g->header, g->fd, &g->at, blocks) <= 0;
		/* a receiver removes a file without batches, which has no end */
		if (g->ended && state == SCAN_RECORD_NONE && arrow_name_is_part(g->file->path))
			return 0;
	}
	g->file->damaged++;
	return -EBADMSG;
}

/* Return true if the file no longer changes: a wrong batch is then damaged, not incomplete. */
static bool
is_final(struct follow_file *g, enum scan_record_state state)
{
	return g->named &&
		(state == SCAN_RECORD_END || g->limit != UINT64_MAX ||
			scan_file_settled(&g->change, g->fd));
}

static void
read_next(void *arg)
{
	struct follow_file *g = arg;

	if (scan_record_read(&g->next, g->header, g->fd, g->next_at, &g->next_length) !=
		SCAN_RECORD_WHOLE)
		g->next = NULL;
}

void
follow_file_read_ahead(struct follow_file *g, struct read_ahead *thread)
{
	if (g->ended || g->reading != NULL || g->next != NULL || g->at >= g->limit)
		return;
	g->next_at = g->at;
	if (read_ahead_start(thread, read_next, g))
		g->reading = thread;
}

static void
wait_for_next(struct follow_file *g)
{
	if (g->reading != NULL)
		read_ahead_wait(g->reading);
	g->reading = NULL;
}

/* Return true if the file still has the batch that was read ahead. A store may truncate it. */
static bool
has_next(const struct follow_file *g)
{
	const uint32_t size = g->next->batch.metadata_size;
	uint8_t *metadata;
	struct stat st;
	bool same;

	if (g->next_at != g->at || fstat(g->fd, &st) < 0 ||
		(uint64_t)st.st_size < g->at + g->next_length)
		return false;
	metadata = malloc(size);
	same = metadata != NULL && direct_io_read(g->fd, metadata, size, g->at) == size &&
		memcmp(metadata, g->next->data, size) == 0;
	free(metadata);
	return same;
}

/* Reads the next batch, if it was not read ahead. */
static enum scan_record_state
read_batch(struct follow_file *g, struct scan_record **record, uint64_t *length)
{
	if (g->next != NULL && has_next(g)) {
		*record = g->next;
		*length = g->next_length;
		g->next = NULL;
		return SCAN_RECORD_WHOLE;
	}
	scan_record_drop(g->next);
	g->next = NULL;
	return scan_record_read(record, g->header, g->fd, g->at, length);
}

int
follow_file_next(struct follow_file *g)
{
	struct scan_record *record = NULL;
	enum scan_record_state state;
	uint64_t length = 0;
	int ret;

	if (g->ended)
		return 0;
	wait_for_next(g);
	/* read the name first: batches that are written before the rename are then seen */
	check_rename(g);
	ret = check_size(g);
	if (ret < 0)
		return ret;
	state = g->at < g->limit ? read_batch(g, &record, &length) : SCAN_RECORD_NONE;
	if (state != SCAN_RECORD_WHOLE)
		return is_final(g, state) ? skip(g, state, length) : 0;
	ret = append(g, record, length);
	if (ret < 0)
		return ret;
	g->at += length;
	return 1;
}

void
follow_file_stop(struct follow_file *g)
{
	struct stat st;

	if (g->limit == UINT64_MAX && fstat(g->fd, &st) == 0)
		g->limit = st.st_size;
}

bool
follow_file_ended(const struct follow_file *g)
{
	return g->file != NULL && g->ended;
}

int
follow_file_load(struct follow_file *g, size_t batch)
{
	const struct scan_record *kept = g->batch[batch].record;
	struct scan_record *record = NULL;
	uint64_t length;

	if (g->loaded != NULL && g->loaded_batch == batch)
		return 0;
	follow_file_forget(g);
	if (scan_record_read(&record, g->header, g->fd, g->batch[batch].at, &length) !=
		SCAN_RECORD_WHOLE)
		return -ENODATA;
	/* another batch may have been written there */
	if (record->batch.metadata_size != kept->batch.metadata_size ||
		memcmp(record->data, kept->data, kept->batch.metadata_size) != 0) {
		scan_record_drop(record);
		return -ENODATA;
	}
	g->file->reader.batches[batch] = record->batch;
	g->loaded = record;
	g->loaded_batch = batch;
	return 0;
}

void
follow_file_forget(struct follow_file *g)
{
	struct scan_record *kept;

	if (g->loaded == NULL)
		return;
	kept = g->batch[g->loaded_batch].record;
	g->file->reader.batches[g->loaded_batch] = kept->batch;
	scan_record_drop(g->loaded);
	g->loaded = NULL;
}

void
follow_file_close(struct follow_file *g)
{
	struct arrow_reader *r;

	if (g->file == NULL)
		return;
	r = &g->file->reader;
	wait_for_next(g);
	scan_record_drop(g->next);
	follow_file_forget(g);
	for (size_t i = 0; g->file->present && i < r->nb_batches; i++)
		scan_record_drop(g->batch[i].record);
	if (g->file->present)
		free(r->batches);
	/* the rest of the reader is the header's */
	memset(r, 0, sizeof(*r));
	g->file->present = false;
	free(g->batch);
	scan_header_drop(g->header);
	close(g->fd);
	memset(g, 0, sizeof(*g));
}
