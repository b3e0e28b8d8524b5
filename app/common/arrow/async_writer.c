/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "arrow/async_writer.h"
#include "clock.h"
#include "io/direct_io.h"
#include "io/huge_pages.h"

#define SYNC_TAG  UINT64_MAX
#define NS_PER_MS 1000000ull
/* minimum allocation ahead, in slices; low, so that short files stay small */
#define AHEAD_LEAST 16
#define AHEAD_TIMES 16 /* allocation ahead, as a multiple of the current end of the file */

static int
fail(struct async_writer *s, int error)
{
	if (s->error == 0)
		s->error = error;
	return s->error;
}

static struct arrow_slice *
slice_at(struct async_writer *s, uint64_t i)
{
	return &s->slice[i % ARROW_SLICE_QUEUE];
}

static uint64_t
slice_end(const struct arrow_slice *slice)
{
	return slice->offset + slice->length;
}

static uint8_t *
stage_at(struct async_writer *s, int i)
{
	return s->stage + (size_t)i * s->config.slice;
}

static size_t
stage_size(const struct async_writer *s)
{
	return huge_pages_round((size_t)(s->config.depth + 1) * s->config.slice);
}

static void
free_all_stages(struct async_writer *s)
{
	s->gather = -1;
	s->fill = 0;
	for (s->nb_free_stages = 0; s->nb_free_stages <= s->config.depth; s->nb_free_stages++)
		s->free_stage[s->nb_free_stages] = s->nb_free_stages;
}

static void
apply_defaults(struct async_writer_config *c)
{
	if (c->io == NULL)
		c->io = &direct_io;
	if (c->mode == ARROW_IO_AUTO)
		c->mode = ARROW_IO_DIRECT_URING;
	if (c->slice == 0)
		c->slice = ARROW_SLICE_SIZE;
	if (c->depth == 0)
		c->depth = ARROW_SLICE_DEPTH;
	if (c->sync_ms == 0)
		c->sync_ms = ARROW_SLICE_SYNC_MS;
	if (c->sync_bytes == 0)
		c->sync_bytes = ARROW_SLICE_SYNC_BYTES;
	if (c->stall_ms == 0)
		c->stall_ms = ARROW_SLICE_STALL_MS;
	if (c->ahead == 0)
		c->ahead = ARROW_SLICE_AHEAD;
}

int
async_writer_open(
	struct async_writer *s, const struct async_writer_config *config, const char *path)
{
	struct arrow_io_open how = {.path = path};
	int ret;

	memset(s, 0, sizeof(*s));
	s->config = *config;
	apply_defaults(&s->config);
	if (s->config.slice % ARROW_BLOCK != 0 || s->config.slice > ARROW_SLICE_SIZE_MAX ||
		s->config.depth > ARROW_IO_DEPTH_MAX)
		return -EINVAL;
	s->ahead = s->config.ahead;
	s->limit = UINT64_MAX;
	s->since_next = UINT64_MAX;
	how.mode = s->config.mode;
	how.depth = s->config.depth;
	s->stage = huge_pages_map(stage_size(s));
	if (s->stage == NULL)
		return -errno;
	free_all_stages(s);
	s->slice = calloc(ARROW_SLICE_QUEUE, sizeof(*s->slice));
	ret = s->slice != NULL ? s->config.io->open(&s->handle, &how) : -ENOMEM;
	if (ret < 0) {
		s->handle = NULL;
		async_writer_close(s);
	}
	return ret;
}

void
async_writer_close(struct async_writer *s)
{
	struct arrow_io_done done;

	if (s->handle != NULL) {
		/* memory must not be freed while a write reads it */
		while (s->config.io->reap(s->handle, true, &done) > 0)
			;
		(void)s->config.io->close(s->handle);
	}
	if (s->stage != NULL)
		munmap(s->stage, stage_size(s));
	free(s->slice);
	s->handle = NULL;
	s->stage = NULL;
	s->slice = NULL;
}

int
async_writer_reserve(struct async_writer *s, uint64_t size)
{
	int ret;

	if (size <= s->allocated)
		return 0;
	ret = s->config.io->allocate(s->handle, size);
	if (ret == 0)
		s->allocated = size;
	return ret;
}

/*
 * Allocate space for upcoming writes. A failure is left for the write to report. Done rarely: on
 * ext4, fallocate(2) waits until no direct write of the file is in flight, and blocks new ones.
 */
static void
allocate(struct async_writer *s, uint64_t end)
{
	const uint64_t least = (uint64_t)AHEAD_LEAST * s->config.slice;
	uint64_t ahead;
	int ret;

	while (s->ahead > 0 && end > s->allocated) {
		ahead = AHEAD_TIMES * end > least ? AHEAD_TIMES * end : least;
		if (ahead > s->ahead)
			ahead = s->ahead;
		ret = async_writer_reserve(s, end + ahead);
		if (ret == 0)
			return;
		s->ahead = ret == -ENOSPC && s->ahead > s->config.slice ? s->ahead / 2 : 0;
	}
}

static bool
is_at_work(const struct async_writer *s)
{
	return s->next > s->tail || s->syncing;
}

/* Start queued slices, up to the depth and the limit. */
static void
push(struct async_writer *s)
{
	struct arrow_slice *slice;
	int ret;

	while (s->error == 0 && s->next < s->head && s->next - s->tail < s->config.depth) {
		slice = slice_at(s, s->next);
		if (slice_end(slice) > s->limit)
			break;
		allocate(s, slice_end(slice));
		if (!is_at_work(s))
			s->moved = s->now;
		ret = s->config.io->write(s->handle, slice->iov, slice->nb, slice->offset, s->next);
		if (ret < 0)
			fail(s, ret);
		else
			s->next++;
	}
}

static uint64_t ended; /* atomic: writes and syncs of all writers of the process */

uint64_t
async_writer_ended(void)
{
	return __atomic_load_n(&ended, __ATOMIC_RELAXED);
}

static void
end_sync(struct async_writer *s, int error)
{
	__atomic_fetch_add(&ended, 1, __ATOMIC_RELAXED);
	s->syncing = false;
	s->syncs++;
	if (error < 0) {
		/* also after a failed write: the kernel reports lost data only once */
		s->error_in_sync = true;
		fail(s, error);
	} else {
		s->durable = s->sync_covers;
	}
}

static void
end_slice(struct async_writer *s, struct arrow_slice *slice, int error)
{
	__atomic_fetch_add(&ended, 1, __ATOMIC_RELAXED);
	slice->error = error;
	slice->done = true;
	if (slice->stage >= 0)
		s->free_stage[s->nb_free_stages++] = slice->stage;
	if (error < 0)
		fail(s, error);
	for (; s->tail < s->next && slice_at(s, s->tail)->done; s->tail++) {
		slice = slice_at(s, s->tail);
		s->torn |= slice->error < 0;
		if (!s->torn)
			s->written = slice_end(slice);
	}
}

/* Whether accepted data should be made durable now. */
static bool
sync_is_due(const struct async_writer *s)
{
	const uint64_t open = s->taken - s->sync_covers;

	return open > 0 &&
		(open >= s->config.sync_bytes ||
			s->now - s->since >= s->config.sync_ms * NS_PER_MS);
}

static int
begin_sync(struct async_writer *s)
{
	int ret;

	s->sync_covers = s->written;
	/* the sync may cover some of the later bytes too; the next sync then starts early */
	s->since = s->since_next;
	if (!is_at_work(s))
		s->moved = s->now;
	ret = s->config.io->sync(s->handle, SYNC_TAG);
	if (ret < 0) {
		s->error_in_sync = true;
		return fail(s, ret);
	}
	s->syncing = true;
	return 0;
}

/*
 * Start a sync if it is due. Syncs do not overlap, and cover at most sync_bytes each. Data that is
 * written during a sync belongs to the next one.
 */
static void
begin_due_sync(struct async_writer *s)
{
	const uint64_t most = s->sync_covers + s->config.sync_bytes;

	if (s->error != 0 || s->syncing)
		return;
	if (s->sync_target <= s->sync_covers && sync_is_due(s)) {
		s->sync_target = s->submitted < most ? s->submitted : most;
		/* do not wait for data that is held back */
		if (s->limit < s->sync_target)
			s->sync_target = s->next > 0 ? slice_end(slice_at(s, s->next - 1)) : 0;
		s->since_next = s->sync_target < s->taken ? s->since : UINT64_MAX;
	}
	/* a sync covers the writes that had completed when it began */
	if (s->sync_target > s->sync_covers && s->written >= s->sync_target)
		begin_sync(s);
}

/*
 * Process one completion, and start another operation. @return false: none completed, or none in
 * flight
 */
static bool
reap(struct async_writer *s, bool wait)
{
	struct arrow_io_done done;
	int ret;

	push(s);
	ret = s->config.io->reap(s->handle, wait, &done);
	if (ret < 0)
		fail(s, ret);
	if (ret <= 0)
		return false;
	if (wait)
		s->now = monotonic_ns();
	s->moved = s->now;
	if (done.tag == SYNC_TAG)
		end_sync(s, done.error);
	else
		end_slice(s, slice_at(s, done.tag), done.error);
	push(s);
	begin_due_sync(s);
	return true;
}

/* Get the next slice to fill. @return NULL: an error */
static struct arrow_slice *
next_slice(struct async_writer *s)
{
	struct arrow_slice *slice;

	while (s->error == 0 && s->head - s->tail == ARROW_SLICE_QUEUE)
		reap(s, true);
	if (s->error != 0)
		return NULL;
	slice = slice_at(s, s->head);
	slice->offset = s->submitted;
	slice->length = 0;
	slice->nb = 0;
	slice->stage = -1;
	slice->done = false;
	slice->error = 0;
	return slice;
}

static void
queue(struct async_writer *s, const struct arrow_slice *slice)
{
	s->submitted += slice->length;
	s->head++;
	push(s);
}

/* Slices end at multiples of their size in the file, like the stripes of a disk. */
static uint64_t
slice_room(const struct async_writer *s)
{
	return s->config.slice - s->submitted % s->config.slice;
}

/* Queue the collected data. */
static int
submit_gathered(struct async_writer *s)
{
	struct arrow_slice *slice;

	if (s->error != 0 || s->fill == 0)
		return s->error;
	slice = next_slice(s);
	if (slice == NULL)
		return s->error;
	slice->iov[0] = (struct iovec){stage_at(s, s->gather), s->fill};
	slice->nb = 1;
	slice->length = s->fill;
	slice->stage = s->gather;
	s->gather = -1;
	s->fill = 0;
	queue(s, slice);
	return s->error;
}

static int
gather(struct async_writer *s, const uint8_t *data, size_t size)
{
	size_t part;

	for (; size > 0; size -= part, data += part) {
		while (s->gather < 0 && s->nb_free_stages == 0 && s->error == 0)
			reap(s, true);
		if (s->error != 0)
			return s->error;
		if (s->gather < 0)
			s->gather = s->free_stage[--s->nb_free_stages];
		part = slice_room(s) - s->fill;
		if (part > size)
			part = size;
		memcpy(stage_at(s, s->gather) + s->fill, data, part);
		s->fill += part;
		s->copied += part;
		if (s->fill == slice_room(s) && submit_gathered(s) < 0)
			return s->error;
	}
	return 0;
}

/* Queue slices that refer to the caller's memory. */
static int
refer(struct async_writer *s, const struct iovec *iov, unsigned int nb)
{
	struct arrow_slice *slice;
	size_t done = 0, part; /* bytes of iov[0] that are done */
	uint64_t room;

	if (submit_gathered(s) < 0)
		return s->error;
	while (nb > 0) {
		slice = next_slice(s);
		if (slice == NULL)
			return s->error;
		room = slice_room(s);
		while (nb > 0 && slice->nb < ARROW_IO_VECTORS && slice->length < room) {
			part = iov->iov_len - done;
			if (part > room - slice->length)
				part = room - slice->length;
			if (part > 0)
				slice->iov[slice->nb++] =
					(struct iovec){(uint8_t *)iov->iov_base + done, part};
			slice->length += part;
			done += part;
			if (done == iov->iov_len) {
				iov++;
				nb--;
				done = 0;
			}
		}
		if (slice->length > 0)
			queue(s, slice);
	}
	return s->error;
}

/* Queue the collected data up to the limit. Data may still be added to the rest. */
static void
submit_unheld(struct async_writer *s)
{
	const uint64_t part = s->limit > s->submitted ? s->limit - s->submitted : 0;
	const uint8_t *rest;
	uint64_t size;

	if (s->fill > part) {
		/* move the rest to another buffer; retry later if none is free */
		if (part == 0 || s->nb_free_stages == 0)
			return;
		rest = stage_at(s, s->gather) + part;
		size = s->fill - part;
		s->fill = part;
		if (submit_gathered(s) < 0)
			return;
		s->gather = s->free_stage[--s->nb_free_stages];
		memcpy(stage_at(s, s->gather), rest, size);
		s->fill = size;
		return;
	}
	submit_gathered(s);
}

static int
proceed(struct async_writer *s)
{
	push(s);
	while (s->error == 0 && reap(s, false))
		;
	s->stalled = is_at_work(s) && s->now - s->moved >= s->config.stall_ms * NS_PER_MS;
	/* queue an incomplete slice only if the next sync waits for it */
	if (!s->syncing && s->sync_target <= s->sync_covers && sync_is_due(s) &&
		s->submitted < s->sync_covers + s->config.sync_bytes)
		submit_unheld(s);
	begin_due_sync(s);
	return s->error;
}

int
async_writer_put(struct async_writer *s, const struct iovec *iov, unsigned int nb, bool stay)
{
	/* parts are whole blocks, so the remainder of a part at the end of a slice is too */
	const uintptr_t memory = s->config.io->info(s->handle)->memory_align - 1;
	uint64_t length = 0;
	unsigned int i;

	if (s->error != 0)
		return s->error;
	s->now = monotonic_ns();
	if (s->taken == s->sync_covers)
		s->since = s->now;
	else if (s->since_next == UINT64_MAX)
		s->since_next = s->now;
	for (i = 0; i < nb; i++) {
		length += iov[i].iov_len;
		stay &= ((uintptr_t)iov[i].iov_base & memory) == 0 &&
			iov[i].iov_len % ARROW_BLOCK == 0;
	}
	s->taken += length;
	/* data that waits for another file is copied, so that its owner need not wait */
	if (stay && s->limit == UINT64_MAX && (s->config.in_place || length >= s->config.slice))
		refer(s, iov, nb);
	else
		for (i = 0; i < nb && s->error == 0; i++)
			gather(s, iov[i].iov_base, iov[i].iov_len);
	return proceed(s);
}

bool
async_writer_has_room(const struct async_writer *s, uint64_t size)
{
	/* both ends may be in the middle of a slice, and collected data becomes a slice, too */
	return size / s->config.slice + 3 <= ARROW_SLICE_QUEUE - (s->head - s->tail);
}

int
async_writer_poll(struct async_writer *s)
{
	s->now = monotonic_ns();
	return proceed(s);
}

void
async_writer_hold(struct async_writer *s, uint64_t limit)
{
	s->limit = limit;
}

uint64_t
async_writer_hold_max(const struct async_writer *s)
{
	/* slices may end anywhere: depth + 1 buffers, one of them being filled */
	return (uint64_t)s->config.depth * s->config.slice;
}

static void
wait_for_sync(struct async_writer *s)
{
	while (s->syncing && reap(s, true))
		;
}

int
async_writer_commit(struct async_writer *s)
{
	if (async_writer_flush(s) < 0)
		return s->error;
	wait_for_sync(s);
	if (s->error == 0 && s->durable < s->taken && begin_sync(s) == 0)
		wait_for_sync(s);
	return s->error;
}

void
async_writer_wait(struct async_writer *s, uint64_t end)
{
	s->now = monotonic_ns();
	/* after an error, queued slices are never started; those in flight complete */
	while (s->tail < (s->error == 0 ? s->head : s->next) &&
		slice_at(s, s->tail)->offset < end && reap(s, true))
		;
}

int
async_writer_flush(struct async_writer *s)
{
	s->now = monotonic_ns();
	submit_gathered(s);
	async_writer_wait(s, UINT64_MAX);
	/* the sync may report another error */
	while (s->error != 0 && s->syncing && reap(s, true))
		;
	return s->error;
}

void
async_writer_cut(struct async_writer *s, uint64_t size)
{
	/* start nothing new */
	s->head = s->next;
	while (s->handle != NULL && reap(s, true))
		;
	s->error = 0;
	s->error_in_sync = false;
	s->torn = false;
	s->syncing = false;
	free_all_stages(s);
	s->taken = size;
	s->submitted = size;
	s->written = size;
	s->limit = UINT64_MAX;
	s->since_next = UINT64_MAX;
	s->sync_target = 0;
	s->sync_covers = s->durable < size ? s->durable : size;
	s->durable = s->sync_covers;
	/* the file system was full: allocate no more than needed from now on */
	s->ahead = 0;
}

int
async_writer_end(struct async_writer *s)
{
	int ret;

	if (async_writer_flush(s) < 0)
		return s->error;
	wait_for_sync(s);
	if (s->error != 0)
		return s->error;
	ret = s->config.io->truncate(s->handle, s->taken);
	if (ret < 0)
		return fail(s, ret);
	if (begin_sync(s) == 0)
		wait_for_sync(s);
	return s->error;
}
