/* SPDX-License-Identifier: BSD-3-Clause */

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arrow/batch.h"
#include "arrow/closing.h"
#include "arrow/names.h"
#include "arrow/stall.h"
#include "backoff.h"
#include "clock.h"
#include "counter.h"
#include "fail_point.h"
#include "io/direct_io.h"
#include "stream/closed_files.h"
#include "stream/copy.h"
#include "stream/source.h"
#include "stream/writer.h"
#include "xfer/msg.h"

/**
 * @file
 * Writes the batches of a stream to files, and reports the result of each batch in order.
 */

/* A batch without a result. */
struct item {
	uint64_t sequence;
	uint64_t tag;
	uint64_t bytes;
	uint64_t rows;
	uint64_t crc; /* content: stream/content.h */
	size_t index; /* index in its file; SIZE_MAX: a duplicate */
};

/* A file that is being written or closed. */
struct stream_file {
	struct stream_file *next; /* the next younger file */
	struct arrow_file file;
	struct item *item;
	size_t nb;
	size_t room;
	size_t results; /* number of items with a result */
	struct interval_set have;
	struct stream_contents contents; /* of `have` */
	uint64_t charged;		 /* bytes charged to the quota */
	uint64_t opened_at;
	uint64_t last; /* sequence number */
	bool empty;
	struct arrow_closing closing; /* its `file` is NULL until closing begins */
};

/* The creation of a file. The file, and the writer's `set`, belong to the thread meanwhile. */
struct opening {
	struct stream_file *file; /* NULL: none is created */
	bool reserve;		  /* after an outage */
	int ret;
	bool has_thread;
	bool over; /* atomic */
	pthread_t thread;
	uint64_t begun_at; /* ns */
};

/* Batches that wait until the disk takes more, oldest first, in [first, nb). */
struct waiting {
	struct stream_batch *batch;
	size_t first;
	size_t nb;
	size_t room;
};

struct stream_writer {
	struct stream_writer_config config;
	const struct arrow_io_ops *io;
	struct stream_file *oldest;
	struct stream_file *current; /* the youngest file, if it is open; NULL: none */
	struct closed_files files;   /* closed files, and all durable batches */
	struct opening opening;
	struct waiting waiting;
	struct interval_set taken;   /* batches of files, without a result */
	struct interval_set damaged; /* batches that were found damaged and not stored again yet */
	/* batches of earlier processes whose bodies were not verified */
	struct interval_set unread;
	bool doubt;		/* one of `unread` was passed again */
	bool differs;		/* a batch was passed that differs from the stored one */
	unsigned int set;	/* number of the last file */
	struct backoff backoff; /* ns */
	/* size of the largest batch that was refused for the quota since it was full */
	uint64_t wanted;
	int first_error;
	struct arrow_stall stall;
	struct stream_stats stats; /* written by one thread, read with atomic loads */
};

/** Log a message through the owner's callback. */
static void stream_writer_log(const struct stream_writer *w, bool error, const char *text);

/** Count a batch's result and report it. */
static void stream_writer_give_result(
	struct stream_writer *w, const struct item *item, enum xfer_result_status status);

/**
 * Report the results that are known, oldest first. Files whose results are all reported are
 * removed.
 */
static void stream_writer_give_results(struct stream_writer *w);

#define NS_PER_MS 1000000ull

static void
stream_writer_log(const struct stream_writer *w, bool error, const char *text)
{
	if (w->config.log != NULL)
		w->config.log(w->config.arg, error, text);
}

int
stream_writer_open(struct stream_writer **writer, const struct stream_writer_config *config)
{
	char name[XFER_NAME_BYTES] = {0};
	struct stream_writer *w;

	snprintf(name, sizeof(name), "%s", config->run);
	if (config->result == NULL || strcmp(name, config->run) != 0 || !xfer_name_check(name))
		return -EINVAL;
	w = calloc(1, sizeof(*w));
	if (w == NULL)
		return -ENOMEM;
	w->config = *config;
	w->config.slices.in_place = true;
	if (w->config.slices.sync_ms == 0)
		w->config.slices.sync_ms = STREAM_SYNC_MS;
	if (w->config.slices.depth == 0)
		w->config.slices.depth = STREAM_DEPTH;
	w->stall.ms =
		w->config.slices.stall_ms != 0 ? w->config.slices.stall_ms : ARROW_SLICE_STALL_MS;
	if (w->config.roll_bytes == 0)
		w->config.roll_bytes = STREAM_ROLL_BYTES;
	if (w->config.retry_ms == 0)
		w->config.retry_ms = STREAM_RETRY_MS;
	if (w->config.retry_max_ms == 0)
		w->config.retry_max_ms = STREAM_RETRY_MAX_MS;
	if (w->config.resume_bytes == 0)
		w->config.resume_bytes = STREAM_RESUME_BYTES;
	w->io = config->slices.io != NULL ? config->slices.io : &direct_io;
	*writer = w;
	return 0;
}

const struct interval_set *
stream_writer_have(const struct stream_writer *w)
{
	return &w->files.have;
}

bool
stream_writer_settled(const struct stream_writer *w)
{
	return w->stats.pending == 0;
}

int
stream_writer_state(const struct stream_writer *w)
{
	return w->stats.error;
}

/* ---- files ----------------------------------------------------------------------------------- */

/* Let a thread close the current file, or remove it if it is empty. */
static void
begin_close(struct stream_writer *w)
{
	struct stream_file *f = w->current;

	if (f == NULL)
		return;
	w->current = NULL;
	f->closing.file = &f->file;
	/* as after an outage */
	f->closing.discard = f->empty;
	arrow_closing_begin(&f->closing, NULL, w->config.enter);
}

static void
back_off(struct stream_writer *w, int error)
{
	COUNTER_SET(w->stats.error, error);
	backoff_extend(&w->backoff, monotonic_ns(), w->config.retry_ms * NS_PER_MS,
		w->config.retry_max_ms * NS_PER_MS);
}

/* Handle a failure of the current file: keep the batches that are certain to be written. */
static void
begin_outage(struct stream_writer *w)
{
	counter_add(&w->stats.outages, 1);
	back_off(w, w->current->file.error);
	begin_close(w);
}

static int
create_file(struct stream_writer *w, struct stream_file *f, bool reserve)
{
	const struct arrow_identity *id = &w->config.identity;
	char name[NAME_MAX];
	int ret, tries;

	/* skip names of existing files */
	for (tries = 0; tries < 10000; tries++) {
		w->set++;
		if (snprintf(name, sizeof(name), "%s%s_%016" PRIx64 "_%06u_%s",
			    w->config.hidden ? "." : "", w->config.run, id->incarnation, w->set,
			    id->table) >= (int)sizeof(name) - 12)
			return -ENAMETOOLONG;
		ret = arrow_file_create(
			&f->file, &w->config.slices, w->config.dir, name, w->config.schema);
		if (ret != -EEXIST)
			break;
	}
	if (ret < 0 || !reserve)
		return ret;
	return arrow_file_reserve(&f->file, w->config.resume_bytes);
}

static void *
run_opening(void *arg)
{
	struct stream_writer *w = arg;
	struct opening *o = &w->opening;

	if (w->config.enter != NULL)
		w->config.enter();
	o->ret = create_file(w, o->file, o->reserve);
	__atomic_store_n(&o->over, true, __ATOMIC_RELEASE);
	return NULL;
}

static bool
fits(const struct stream_quota *q, uint64_t bytes)
{
	return q == NULL || q->limit == 0 || (q->used <= q->limit && bytes <= q->limit - q->used);
}

/* Wait until a file is created, which becomes the current file. @return 0; -errno */
static int
end_opening(struct stream_writer *w)
{
	struct stream_file *f = w->opening.file, **at;
	int ret;

	if (w->opening.has_thread)
		pthread_join(w->opening.thread, NULL);
	ret = w->opening.ret;
	w->opening = (struct opening){0};
	if (ret < 0) {
		if (w->stats.error != ret)
			stream_writer_log(w, true, f->file.message);
		back_off(w, ret);
		free(f);
		return ret;
	}
	f->file.clock = w->config.clock;
	f->file.clock_arg = w->config.arg;
	f->opened_at = monotonic_ns();
	f->empty = true;
	for (at = &w->oldest; *at != NULL; at = &(*at)->next)
		;
	*at = f;
	w->current = f;
	counter_add(&w->stats.files, 1);
	COUNTER_SET(w->stats.mode, w->io->info(f->file.out.handle)->mode);
	/* batches may have used up the quota meanwhile */
	if (w->stats.error == -EDQUOT && !fits(w->config.quota, w->wanted)) {
		begin_close(w);
		return -EDQUOT;
	}
	if (w->stats.error != 0) {
		counter_add(&w->stats.resumes, 1);
		stream_writer_log(w, true, "writing resumed");
		COUNTER_SET(w->stats.error, 0);
		w->wanted = 0;
	}
	return 0;
}

/*
 * Create a file, for an lcore in a thread. After an outage, it must have some free space. @return
 * 0; -EINPROGRESS: not yet; -errno
 */
static int
open_file(struct stream_writer *w)
{
	struct opening *o = &w->opening;

	if (o->file != NULL)
		return -EINPROGRESS;
	o->file = calloc(1, sizeof(*o->file));
	if (o->file == NULL) {
		back_off(w, -ENOMEM);
		return -ENOMEM;
	}
	o->reserve = w->stats.error != 0;
	o->begun_at = monotonic_ns();
	if (w->config.on_lcore && pthread_create(&o->thread, NULL, run_opening, w) == 0) {
		o->has_thread = true;
		return -EINPROGRESS;
	}
	o->ret = create_file(w, o->file, o->reserve);
	return end_opening(w);
}

/* Take a file that a thread has created. */
static void
take_opened(struct stream_writer *w)
{
	if (w->opening.file != NULL && __atomic_load_n(&w->opening.over, __ATOMIC_ACQUIRE))
		(void)end_opening(w);
}

static bool
wants_roll(const struct stream_writer *w, uint64_t sequence, uint64_t bytes)
{
	const struct stream_file *f = w->current;

	if (f == NULL || f->empty)
		return false;
	return sequence <= f->last || f->file.size + bytes > w->config.roll_bytes ||
		(w->config.roll_batches > 0 && f->file.nb_batches >= w->config.roll_batches) ||
		(w->config.roll_ms > 0 &&
			monotonic_ns() - f->opened_at >= w->config.roll_ms * NS_PER_MS);
}

/* Whether the quota has no room for a batch, or for a larger one that was refused before. */
static bool
is_over_quota(struct stream_writer *w, uint64_t bytes)
{
	struct stream_quota *q = w->config.quota;

	if (bytes < w->wanted)
		bytes = w->wanted;
	if (fits(q, bytes))
		return false;
	/* files may have been removed; examined once per retry interval */
	if (q->root != NULL && monotonic_ns() >= w->backoff.retry_at)
		stream_quota_renew(q, w->config.enter);
	return !fits(q, bytes);
}

static void
log_over_quota(struct stream_writer *w)
{
	const struct stream_quota *q = w->config.quota;
	char text[PATH_MAX + 256];

	snprintf(text, sizeof(text),
		"quota reached: files of receiver %016" PRIx64 " in %.4000s have %" PRIu64 " "
		"MiB, the limit is %" PRIu64 " MiB (%s); remove some, or raise the limit",
		q->receiver_id, q->root != NULL ? q->root : w->config.dir, q->used >> 20,
		q->limit >> 20, q->setting != NULL ? q->setting : "quota");
	stream_writer_log(w, true, text);
}

static int
note_item(struct stream_file *f, const struct item *item)
{
	struct item *more;
	size_t room;

	if (f->nb == f->room) {
		room = 2 * f->room + 64;
		more = realloc(f->item, room * sizeof(*more));
		if (more == NULL)
			return -ENOMEM;
		f->item = more;
		f->room = room;
	}
	f->item[f->nb++] = *item;
	return 0;
}

/* Append a batch to the current file. Its error is the file's error. */
static void
write_batch(struct stream_writer *w, const struct stream_batch *b, const struct item *item)
{
	struct stream_file *f = w->current;
	const struct iovec body = {b->body, b->xfer.body_bytes};
	const struct batch batch = {
		.metadata = b->metadata,
		.metadata_size = XFER_BLOCK,
		.body = b->part != NULL ? b->part : &body,
		.nb_body = b->part != NULL ? b->nb_parts : 1,
		.body_length = b->xfer.body_bytes,
		.rows = b->xfer.rows,
		.first = b->xfer.first,
		.last = b->xfer.last,
		.received = b->xfer.received,
		.sequence = b->xfer.sequence,
		.crc32c = b->xfer.body_crc32c,
		.lasting = true,
	};

	counter_add(&w->stats.pending, 1);
	f->last = b->xfer.sequence;
	f->empty = false;
	if (w->config.quota != NULL) {
		counter_add(&w->config.quota->used, item->bytes);
		w->config.quota->open += item->bytes;
		f->charged += item->bytes;
	}
	if (arrow_file_append(&f->file, &batch) < 0)
		begin_outage(w);
}

/* Whether a batch can be written to the current file without waiting for the disk. */
static bool
may_write(const struct stream_writer *w, uint64_t bytes)
{
	const struct async_writer *out = &w->current->file.out;

	return !w->config.on_lcore || out->error != 0 || async_writer_has_room(out, bytes);
}

/*
 * Make sure that there is a file for a batch. @return 0; -EINPROGRESS: the batch must wait; -errno:
 * why it cannot be written now
 */
static int
prepare(struct stream_writer *w, const struct item *item)
{
	if (w->current != NULL && wants_roll(w, item->sequence, item->bytes))
		begin_close(w);
	if (is_over_quota(w, item->bytes)) {
		if (w->stats.error != -EDQUOT)
			log_over_quota(w);
		back_off(w, -EDQUOT);
		if (w->wanted < item->bytes)
			w->wanted = item->bytes;
		/* as after an error: polling opens the next file once there is space */
		begin_close(w);
		return -EDQUOT;
	}
	if (w->current != NULL)
		return may_write(w, item->bytes) ? 0 : -EINPROGRESS;
	if (w->stats.error != 0 && monotonic_ns() < w->backoff.retry_at)
		return w->stats.error;
	return open_file(w);
}

/* Compare with the batches of a file that is being written. Those without a result count, too. */
static int
compare_open(const struct stream_file *f, uint64_t sequence, uint64_t crc)
{
	uint64_t there;
	size_t i;

	if (interval_set_has(&f->have, sequence))
		return stream_contents_get(&f->contents, sequence, &there) && there == crc
			? 1
			: -ENOTUNIQ;
	for (i = f->results; i < f->nb; i++) {
		if (f->item[i].index != SIZE_MAX && f->item[i].sequence == sequence)
			return f->item[i].crc == crc ? 1 : -ENOTUNIQ;
	}
	return 0;
}

/* Compare with batches that were found damaged: their announcements identify them. */
static int
compare_damaged(const struct stream_writer *w, uint64_t sequence, uint64_t crc, const char **path)
{
	uint64_t there;
	size_t i;

	for (i = 0; i < w->files.nb; i++) {
		if (!stream_contents_get(&w->files.file[i].contents, sequence, &there) ||
			there == crc)
			continue;
		if (path != NULL)
			*path = w->files.file[i].path;
		return -ENOTUNIQ;
	}
	return 0;
}

int
stream_writer_compare(
	const struct stream_writer *w, uint64_t sequence, uint64_t crc, const char **path)
{
	const struct stream_file *f;
	int ret, found = 0;

	if (interval_set_has(&w->files.have, sequence))
		found = closed_files_compare(&w->files, sequence, crc, path);
	else if (interval_set_has(&w->damaged, sequence))
		return compare_damaged(w, sequence, crc, path);
	else if (!interval_set_has(&w->taken, sequence))
		return 0;
	for (f = w->oldest; f != NULL && found >= 0; f = f->next) {
		ret = compare_open(f, sequence, crc);
		if (ret < 0 && path != NULL)
			*path = arrow_file_path(&f->file);
		found = ret != 0 ? ret : found;
	}
	/* it is durable, but in no list: nothing may be released because of it */
	if (found == 0) {
		if (path != NULL)
			*path = w->config.dir;
		return -ENOTUNIQ;
	}
	return found;
}

bool
stream_writer_differs(const struct stream_writer *w)
{
	return w->differs;
}

/* Refuse a batch that differs from the stored one. */
static void
refuse_differing(struct stream_writer *w, const struct item *item, const char *path)
{
	char text[PATH_MAX + 256];

	counter_add(&w->stats.differing, 1);
	if (!w->differs) {
		snprintf(text, sizeof(text),
			"%s: batch %" PRIu64 " has other bytes than the stored one in %.4000s: it "
			"is refused, and the stored one stays",
			w->config.identity.table, item->sequence, path);
		stream_writer_log(w, true, text);
	}
	w->differs = true;
	stream_writer_give_result(w, item, XFER_RETRY);
}

/* Write or refuse a batch. @return false: it must wait */
static bool
take(struct stream_writer *w, const struct stream_batch *b)
{
	struct item item = {
		.sequence = b->xfer.sequence,
		.tag = b->tag,
		.bytes = XFER_BLOCK + b->xfer.body_bytes,
		.rows = b->xfer.rows,
		.crc = stream_content_of(b->xfer.body_crc32c, b->metadata),
		.index = SIZE_MAX,
	};
	struct stream_file *f, *last;
	const char *path;
	int ret;

	if (stream_writer_compare(w, item.sequence, item.crc, &path) < 0) {
		refuse_differing(w, &item, path);
		return true;
	}

	if (interval_set_has(&w->files.have, item.sequence)) {
		/* a peer that gets the result "duplicate" releases its copy */
		const bool unread = interval_set_has(&w->unread, item.sequence);

		w->doubt |= unread;
		stream_writer_give_result(w, &item, unread ? XFER_RETRY : XFER_DUPLICATE);
		return true;
	}
	if (interval_set_has(&w->taken, item.sequence)) {
		/*
		 * report it after the first copy's result, so after all current batches; an empty
		 * file may be removed without a result
		 */
		for (f = last = w->oldest; f != NULL; f = f->next)
			if (!f->empty)
				last = f;
		if (note_item(last, &item) < 0)
			stream_writer_give_result(w, &item, XFER_RETRY);
		else
			counter_add(&w->stats.pending, 1);
		return true;
	}
	ret = prepare(w, &item);
	if (ret == -EINPROGRESS)
		return false;
	if (ret < 0) {
		stream_writer_give_result(w, &item, XFER_RETRY);
		return true;
	}
	item.index = w->current->file.nb_batches;
	if (interval_set_add(&w->taken, item.sequence, item.sequence) < 0 ||
		note_item(w->current, &item) < 0) {
		(void)interval_set_remove(&w->taken, item.sequence, item.sequence);
		stream_writer_give_result(w, &item, XFER_RETRY);
		return true;
	}
	write_batch(w, b, &item);
	return true;
}

/* Let a batch wait. @return -ENOMEM */
static int
add_waiting(struct waiting *q, const struct stream_batch *b)
{
	const size_t room = 2 * q->room + 64;
	struct stream_batch *more;

	if (q->nb == q->room) {
		more = realloc(q->batch, room * sizeof(*more));
		if (more == NULL)
			return -ENOMEM;
		q->batch = more;
		q->room = room;
	}
	q->batch[q->nb++] = *b;
	return 0;
}

/* Write or refuse batches that have waited, in their order. */
static void
take_waiting(struct stream_writer *w)
{
	struct waiting *q = &w->waiting;

	for (; q->first < q->nb && take(w, &q->batch[q->first]); q->first++)
		counter_sub(&w->stats.pending, 1);
	if (q->first == 0 || q->first < q->nb / 2)
		return;
	memmove(q->batch, q->batch + q->first, (q->nb - q->first) * sizeof(*q->batch));
	q->nb -= q->first;
	q->first = 0;
}

void
stream_writer_append(struct stream_writer *w, const struct stream_batch *b)
{
	const struct item item = {.sequence = b->xfer.sequence, .tag = b->tag};

	if (w->waiting.nb == 0 && take(w, b)) {
		stream_writer_give_results(w);
		return;
	}
	if (add_waiting(&w->waiting, b) < 0)
		stream_writer_give_result(w, &item, XFER_RETRY);
	else
		counter_add(&w->stats.pending, 1);
}

static bool
is_closing(const struct stream_writer *w)
{
	const struct stream_file *f;

	for (f = w->oldest; f != NULL; f = f->next)
		if (f->closing.file != NULL && !arrow_closing_is_over(&f->closing))
			return true;
	return false;
}

/* Report a disk that has stalled or recovered. */
static void
watch_disk(struct stream_writer *w)
{
	const struct arrow_stall_wait wait = {
		.creating_since = w->opening.file != NULL ? w->opening.begun_at : 0,
		.closing = is_closing(w),
		.writing = w->current != NULL && w->current->file.out.stalled,
	};
	char text[PATH_MAX + 256];

	if (!arrow_stall_check(&w->stall, &wait))
		return;
	counter_add(&w->stats.stalls, w->stall.stalled);
	COUNTER_SET(w->stats.stalled, w->stall.stalled);
	arrow_stall_text(&w->stall, w->config.dir, w->config.identity.table, text, sizeof(text));
	stream_writer_log(w, true, text);
}

void
stream_writer_poll(struct stream_writer *w)
{
	take_opened(w);
	if (w->current != NULL && arrow_file_poll(&w->current->file) < 0)
		begin_outage(w);
	watch_disk(w);
	take_waiting(w);
	stream_writer_give_results(w);
	/* try to recover without a batch, since peers send none until the state is good */
	if (w->stats.error == 0 || w->current != NULL || monotonic_ns() < w->backoff.retry_at)
		return;
	if (is_over_quota(w, XFER_BLOCK))
		back_off(w, w->stats.error); /* do not read directories in every iteration */
	else
		(void)open_file(w);
}

void
stream_writer_begin_finish(struct stream_writer *w)
{
	begin_close(w);
}

bool
stream_writer_finished(const struct stream_writer *w)
{
	return w->oldest == NULL && w->opening.file == NULL && w->waiting.nb == 0;
}

int
stream_writer_finish(struct stream_writer *w)
{
	struct stream_file *f;

	while (w->opening.file != NULL || w->waiting.nb > 0) {
		if (w->opening.file != NULL)
			(void)end_opening(w);
		else if (w->current != NULL)
			arrow_file_wait(&w->current->file, UINT64_MAX);
		take_waiting(w);
	}
	stream_writer_begin_finish(w);
	for (f = w->oldest; f != NULL; f = f->next)
		arrow_closing_join(&f->closing);
	stream_writer_give_results(w);
	return w->first_error;
}

/* ---- existing files, and reassigned batches -------------------------------------------------- */

/* List files as they are. @return 0; -errno: the batches of one are unknown */
static int
read_listed(
	struct stream_writer *w, const char *const *path, size_t nb, struct closed_files *listed)
{
	char message[PATH_MAX];
	size_t i;
	int ret;

	for (i = 0; i < nb; i++) {
		ret = closed_files_list(listed, w->io, &w->config.identity, path[i], message);
		if (ret < 0)
			stream_writer_log(w, true, message);
		/*
		 * a damaged or removed file, or one of another stream, has no batches here; other
		 * errors: unknown
		 */
		if (ret < 0 && ret != -EBADMSG && ret != -EXDEV && ret != -ENOENT)
			return ret;
	}
	return 0;
}

/* Remove what two files have, and adopt the files. */
static int
take_listed(struct stream_writer *w, struct closed_files *listed)
{
	char message[PATH_MAX];
	uint64_t cut;
	size_t i;
	int ret;

	ret = closed_files_find_differing(listed, message);
	if (ret < 0)
		stream_writer_log(w, true, message);
	for (i = 0; i < listed->nb && ret == 0; i++) {
		ret = closed_files_take(&w->files, w->io, &w->config.slices, &w->config.identity,
			&listed->file[i], &cut, message);
		if (message[0] != '\0')
			stream_writer_log(w, true, message);
	}
	return ret;
}

int
stream_writer_adopt(struct stream_writer *w, const char *const *path, size_t nb)
{
	struct closed_files listed = {0};
	int ret;

	if (w->config.final) {
		ret = read_listed(w, path, nb, &w->files);
	} else {
		/* all files are compared before the first is truncated */
		ret = read_listed(w, path, nb, &listed);
		if (ret == 0)
			ret = take_listed(w, &listed);
		closed_files_free(&listed);
	}
	if (ret == 0)
		ret = interval_set_add_all(&w->unread, &w->files.have);
	/* the next file number is above those of copies, too */
	if (w->set < closed_files_highest_number(&w->files))
		w->set = closed_files_highest_number(&w->files);
	return ret;
}

bool
stream_writer_begin_cut(struct stream_writer *w, const struct interval_set *moved)
{
	if (!stream_writer_settled(w))
		return false;
	if (!closed_files_need_cut(&w->files, moved))
		return true;
	stream_writer_begin_finish(w);
	return stream_writer_finished(w);
}

int
stream_writer_cut(struct stream_writer *w, const struct interval_set *moved)
{
	char message[PATH_MAX];
	uint64_t cut = 0;
	int ret;

	if (!stream_writer_settled(w))
		return -EBUSY;
	if (!closed_files_need_cut(&w->files, moved))
		return 0;
	(void)stream_writer_finish(w);
	ret = closed_files_cut(
		&w->files, w->io, &w->config.slices, &w->config.identity, moved, &cut, message);
	/* the next file number is above those of copies, too */
	if (w->set < closed_files_highest_number(&w->files))
		w->set = closed_files_highest_number(&w->files);
	counter_add(&w->stats.cut, cut);
	stream_writer_log(w, ret < 0, message);
	return ret;
}

bool
stream_writer_begin_check(struct stream_writer *w, const struct interval_set *held)
{
	const struct stream_file *f;
	bool touched = false;

	if (!stream_writer_settled(w))
		return false;
	for (f = w->oldest; f != NULL && !touched; f = f->next)
		touched = interval_set_first_common(&f->have, held) != UINT64_MAX;
	if (!touched)
		return true;
	stream_writer_begin_finish(w);
	return stream_writer_finished(w);
}

bool
stream_writer_in_doubt(const struct stream_writer *w)
{
	return w->doubt;
}

/* Log damaged batches. */
static void
log_damaged(const struct stream_writer *w, const struct interval_set *damaged, const char *message)
{
	char text[PATH_MAX + 256];
	size_t i;

	for (i = 0; i < damaged->nb; i++) {
		snprintf(text, sizeof(text),
			"%s: stored batches %" PRIu64 " to %" PRIu64 " are damaged; they are "
			"not released, and stored again when received. %s",
			w->config.identity.table, damaged->at[i].first, damaged->at[i].last,
			message);
		stream_writer_log(w, true, text);
	}
}

int
stream_writer_check(struct stream_writer *w, const struct interval_set *held, bool mark,
	struct interval_set *damaged)
{
	struct stream_checked checked = {0};
	char message[PATH_MAX];
	int ret, error;

	if (!stream_writer_settled(w))
		return -EBUSY;
	w->doubt = false;
	w->differs = false;
	if (interval_set_first_common(&w->files.have, held) == UINT64_MAX)
		return 0;
	if (!stream_writer_begin_check(w, held))
		(void)stream_writer_finish(w);
	ret = closed_files_check(
		&w->files, w->io, &w->config.identity, held, mark, &checked, message);
	counter_add(&w->stats.checked, checked.batches);
	counter_add(&w->stats.checked_bytes, checked.bytes);
	counter_add(&w->stats.damaged, interval_set_count(&checked.damaged));
	log_damaged(w, &checked.damaged, message);
	if (ret < 0)
		stream_writer_log(w, true, message);
	error = interval_set_add_all(&w->damaged, &checked.damaged);
	if (ret == 0 && error == 0)
		error = interval_set_remove_all(&w->unread, held);
	if (error == 0 && damaged != NULL)
		error = interval_set_add_all(damaged, &checked.damaged);
	interval_set_free(&checked.damaged);
	return ret < 0 ? ret : error;
}

void
stream_writer_stats_get(const struct stream_writer *w, struct stream_stats *to)
{
	counters_get(to, &w->stats, sizeof(*to));
}

void
stream_writer_close(struct stream_writer *w)
{
	if (w == NULL)
		return;
	(void)stream_writer_finish(w);
	closed_files_free(&w->files);
	interval_set_free(&w->taken);
	interval_set_free(&w->damaged);
	interval_set_free(&w->unread);
	free(w->waiting.batch);
	free(w);
}

/*
 * Track the highest file number. Numbers give the order of files, so the next one must be above
 * all.
 */
static void
note_number(struct stream_writer *w, const char *name)
{
	const unsigned int number = stream_copy_number(name);

	if (number > w->set)
		w->set = number;
}

/* Compare by file number. */
static int
by_number(const struct dirent **a, const struct dirent **b)
{
	const unsigned int first = stream_copy_number((*a)->d_name),
			   second = stream_copy_number((*b)->d_name);

	return first != second ? (first < second ? -1 : 1) : alphasort(a, b);
}

/* List the stream's complete files, in the order of their numbers. */
static int
list_files(struct stream_writer *w, struct dirent ***entry)
{
	int i, n, kept = 0;

	n = scandir(w->config.dir, entry, NULL, by_number);
	if (n < 0)
		return -errno;
	for (i = 0; i < n; i++) {
		const bool ours = stream_source_matches(
			(*entry)[i]->d_name, w->config.run, &w->config.identity);

		if (ours)
			note_number(w, (*entry)[i]->d_name);
		if (ours && arrow_name_is_complete((*entry)[i]->d_name))
			(*entry)[kept++] = (*entry)[i];
		else
			free((*entry)[i]);
	}
	return kept;
}

/* Adopt files of the directory. The entries are freed. */
static int
adopt_entries(struct stream_writer *w, struct dirent **entry, size_t n)
{
	char **path = calloc(n + 1, sizeof(*path));
	int ret = path != NULL ? 0 : -ENOMEM;
	size_t i;

	for (i = 0; i < n; i++) {
		if (ret == 0 && asprintf(&path[i], "%s/%s", w->config.dir, entry[i]->d_name) < 0) {
			path[i] = NULL;
			ret = -ENOMEM;
		}
		free(entry[i]);
	}
	free(entry);
	if (ret == 0)
		ret = stream_writer_adopt(w, (const char *const *)path, n);
	for (i = 0; path != NULL && i < n; i++)
		free(path[i]);
	free(path);
	return ret;
}

int
stream_writer_adopt_all(struct stream_writer *w)
{
	char path[PATH_MAX], message[PATH_MAX];
	struct dirent **entry;
	int n, ret;

	(void)stream_copy_clean(w->io, w->config.dir, w->config.run, &w->config.identity);
	/* the process that renamed them may have died before their names were durable */
	if (snprintf(path, sizeof(path), "%s/.", w->config.dir) >= (int)sizeof(path))
		return -ENAMETOOLONG;
	ret = w->io->sync_dir(path);
	n = ret == 0 ? list_files(w, &entry) : ret;
	if (n < 0) {
		snprintf(message, sizeof(message), "files in %.3000s: %s", w->config.dir,
			strerror(-n));
		stream_writer_log(w, true, message);
		return n;
	}
	return adopt_entries(w, entry, n);
}

static void
stream_writer_give_result(
	struct stream_writer *w, const struct item *item, enum xfer_result_status status)
{
	switch (status) {
	case XFER_DURABLE:
		counter_add(&w->stats.batches, 1);
		counter_add(&w->stats.rows, item->rows);
		counter_add(&w->stats.bytes, item->bytes);
		break;
	case XFER_DUPLICATE:
		counter_add(&w->stats.duplicates, 1);
		break;
	default:
		counter_add(&w->stats.returned, 1);
	}
	w->config.result(w->config.arg, item->tag, item->sequence, status);
}

/* Count a damaged batch that was stored again. */
static void
note_repair(struct stream_writer *w, uint64_t sequence)
{
	char text[128];

	if (!interval_set_has(&w->damaged, sequence))
		return;
	(void)interval_set_remove(&w->damaged, sequence, sequence);
	counter_add(&w->stats.repaired, 1);
	snprintf(text, sizeof(text), "%s: repaired batch %" PRIu64 ": stored another copy of it",
		w->config.identity.table, sequence);
	stream_writer_log(w, true, text);
}

/* Determine the result of a batch of a file: it is durable, or will never be. */
static void
resolve(struct stream_writer *w, struct stream_file *f, const struct item *item)
{
	bool durable = item->index < f->file.nb_durable;

	counter_sub(&w->stats.pending, 1);
	if (item->index == SIZE_MAX) {
		/* all batches before it have results, so the first copy's result is known */
		durable = interval_set_has(&w->files.have, item->sequence);
		stream_writer_give_result(w, item, durable ? XFER_DUPLICATE : XFER_RETRY);
		return;
	}
	(void)interval_set_remove(&w->taken, item->sequence, item->sequence);
	/* a batch that cannot be recorded would be written twice */
	if (durable &&
		(interval_set_add(&w->files.have, item->sequence, item->sequence) < 0 ||
			interval_set_add(&f->have, item->sequence, item->sequence) < 0 ||
			stream_contents_add(&f->contents, item->sequence, item->crc) < 0))
		stream_writer_log(w, true, "cannot allocate the list of durable batches");
	if (durable) {
		w->backoff.delay = 0;
		note_repair(w, item->sequence);
		FAIL_POINT("stream.durable");
	}
	stream_writer_give_result(w, item, durable ? XFER_DURABLE : XFER_RETRY);
}

/* Update the statistics with the progress of a file, open or closed. */
static void
count_file(struct stream_writer *w, struct stream_file *f)
{
	struct arrow_file_progress p;

	arrow_file_count(&f->file, &p, &w->stats.latency);
	counter_add(&w->stats.syncs, p.syncs);
}

/* Record a closed file, which has batches. */
static void
add_closed(struct stream_writer *w, struct stream_file *f)
{
	counter_add(&w->stats.complete, f->file.complete);
	counter_add(&w->stats.uncut, f->file.uncut);
	counter_add(&w->stats.copied, f->file.out.copied);
	if (closed_files_add(&w->files, arrow_file_path(&f->file), &f->have, &f->contents,
		    f->file.uncut) < 0)
		stream_writer_log(w, true, "cannot allocate the list of files");
	if (w->config.quota != NULL) {
		counter_add(&w->config.quota->used, f->file.size - f->charged);
		w->config.quota->open -= f->charged;
		w->config.quota->closed += f->file.size;
	}
}

/* Remove a closed file whose batches all have results. */
static void
retire(struct stream_writer *w, struct stream_file *f)
{
	arrow_closing_join(&f->closing);
	if (f->file.error != 0) {
		stream_writer_log(w, true, f->file.message);
		if (w->first_error == 0)
			w->first_error = f->file.error;
	}
	if (!f->closing.discard)
		add_closed(w, f);
	interval_set_free(&f->have);
	stream_contents_free(&f->contents);
	free(f->item);
	free(f);
}

static void
stream_writer_give_results(struct stream_writer *w)
{
	struct stream_file *f;
	bool closed;

	while ((f = w->oldest) != NULL) {
		closed = arrow_closing_is_over(&f->closing);
		/* its thread owns it now */
		if (f->closing.file != NULL && !closed)
			return;
		count_file(w, f);
		while (f->results < f->nb &&
			(closed || f->item[f->results].index == SIZE_MAX ||
				f->item[f->results].index < f->file.nb_durable))
			resolve(w, f, &f->item[f->results++]);
		if (!closed)
			break;
		w->oldest = f->next;
		retire(w, f);
	}
	/* remove items whose results were reported */
	if (f != NULL && f->results > 0 && f->results >= f->nb / 2) {
		memmove(f->item, f->item + f->results, (f->nb - f->results) * sizeof(*f->item));
		f->nb -= f->results;
		f->results = 0;
	}
}
