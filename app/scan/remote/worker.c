/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>

#include "eal/poll_pause.h"
#include "eal/process_cpus.h"
#include "escaped_text.h"
#include "remote/worker.h"
#include "scan/list.h"
#include "sql/result_reader.h"

#define QUEUE	   16		     /* outputs that are not sent yet */
#define INLINE_MAX 8192		     /* bytes of a body that is sent in messages */
#define PART_MIN   256		     /* a smaller rest of a message is not used for a part */
#define STAGES_MIN (SCAN_STAGES / 2) /* that are free when a thread that waits for some is woken */
#define GATHER_MIN 4096 /* smaller pieces of files are copied: that is cheaper than a list */
#define POLL_US	   1000 /* time in which a thread polls for the next query */

static_assert(SCAN_SQL_MAX == SQL_STATEMENT_MAX, "the protocol's limit is that of the engine");
static_assert((int)SCAN_NATIVE == SQL_NATIVE && (int)SCAN_TEXT == SQL_TEXT &&
		(int)SCAN_SIMPLE == SQL_SIMPLE,
	"forms of the protocol are those of the session");

struct output {
	struct scan_output out;
	uint8_t message[SCAN_MSG_MAX] __attribute__((aligned(8)));
};

/* A schema that the client keeps. */
struct known_schema {
	uint32_t size; /* 0: none */
	uint8_t bytes[SCAN_RECORD_PART];
};

struct scan_worker {
	struct scan_worker_config config;
	struct xfer_identity identity;
	pthread_t thread;

	/* Protected by the lock. */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool stopping;
	bool ended; /* the thread will no longer use the worker */
	bool running;
	/* what the thread waits for, with its lock; NULL: it does not wait, or waits for a query */
	bool (*awaited)(const struct scan_worker *w);
	struct scan_times times; /* of the present query; the thread's own while it runs */
	bool opened;		 /* `session` may be interrupted */
	enum scan_end end;
	char *sql;
	uint32_t cursor;
	enum scan_form form;
	uint32_t nb_unreturned;		  /* messages that were sent, and not returned yet */
	struct scan_worker_memory memory; /* part_bytes is 0: none yet */
	uint32_t free_slot[SCAN_SLOTS_MAX];
	uint32_t nb_free_slots;
	bool slot_used[SCAN_SLOTS_MAX]; /* it was sent, and not returned yet */
	bool stage_used[SCAN_STAGES];
	struct output *queue; /* ring of QUEUE elements */
	uint32_t head, tail;  /* next to be taken; next to be filled */
	uint32_t nb_gathered; /* outputs in the queue with pieces of files */
	bool dropping;	      /* outputs, until the last of the query */
	struct scan_mapping file[SCAN_FILES];
	uint32_t nb_files, nb_registered; /* the lcore has tried to register them */
	bool leaving_files;		  /* registrations must end */

	enum scan_activity activity; /* atomic; written with the lock */
	bool competes;		     /* with the lock; the thread may run on the CPU of an lcore */

	/* Of the thread. */
	unsigned int nb_cpus; /* that no lcore has */
	struct sql_catalog catalog;
	struct sql_session session;
	struct scan_data *message; /* under construction */
	uint32_t sequence;
	struct known_schema known[SCAN_SCHEMAS];
	uint32_t nb_known;  /* that were sent to be kept; the oldest one is replaced */
	bool known_is_sent; /* the present query has sent the last one */
	uint64_t body;	    /* bytes of that of the last message */
	uint64_t gathered;
	uint32_t file_used; /* last one that was found */
	struct scan_piece piece[SCAN_STAGES][SCAN_PIECES];
};

/* Threads of all engines that execute a query, or poll for one. Atomic. */
static unsigned int nb_threads;

/* ---- output, by the thread ------------------------------------------------------------------- */

static bool
must_end(const struct scan_worker *w)
{
	return w->stopping || w->end != SCAN_END_NOT;
}

static void
set_activity(struct scan_worker *w, enum scan_activity activity)
{
	__atomic_store_n(&w->activity, activity, __ATOMIC_RELAXED);
}

static void
set_working(struct scan_worker *w)
{
	set_activity(w, w->competes ? SCAN_COMPETES : SCAN_WORKS);
}

static void
wake_lcore(const struct scan_worker *w)
{
	if (w->config.pause != NULL)
		poll_wake(w->config.pause);
}

/*
 * Wait for the client or for the lcore, and tell the lcore so. The caller holds the lock.
 * @param until  the thread is woken when it returns true
 */
static void
wait_until(struct scan_worker *w, bool (*until)(const struct scan_worker *))
{
	if (until(w))
		return;
	w->awaited = until;
	while (!until(w)) {
		/* each time: scan_worker_query() sets it while the end of a query waits */
		set_activity(w, w->running ? SCAN_WAITS : SCAN_IDLE);
		wake_lcore(w);
		pthread_cond_wait(&w->changed, &w->lock);
	}
	w->awaited = NULL;
	if (w->running)
		set_working(w);
}

/*
 * Release the lock, and wake the thread. It may run at once in place of the lcore, so it must not
 * have to wait for the lock.
 */
static void
unlock_and_wake(struct scan_worker *w)
{
	pthread_mutex_unlock(&w->lock);
	pthread_cond_broadcast(&w->changed);
}

/* Release the lock, and wake the thread if a query has what it waits for. */
static void
unlock_and_wake_query(struct scan_worker *w)
{
	if (w->awaited == NULL || !w->awaited(w)) {
		pthread_mutex_unlock(&w->lock);
		return;
	}
	/* once: what it waits for is not taken back */
	w->awaited = NULL;
	/* even before it runs: an idle lcore on the same CPU must not poll meanwhile */
	if (w->running)
		set_working(w);
	unlock_and_wake(w);
}

static void
begin_message(struct scan_worker *w)
{
	scan_msg_begin(w->message, SCAN_DATA, sizeof(*w->message), 0);
	w->message->cursor = w->cursor;
}

/* Whether the queue has no room, or the client could not take another message. With the lock. */
static bool
is_full(const struct scan_worker *w)
{
	const uint32_t queued = w->tail - w->head;

	return queued == QUEUE || queued + w->nb_unreturned >= SCAN_WINDOW;
}

/* Whether a message can be queued, or the thread must stop. */
static bool
has_last_room(const struct scan_worker *w)
{
	return w->stopping || !is_full(w);
}

/* The same, or the query must end. */
static bool
has_room(const struct scan_worker *w)
{
	return has_last_room(w) || must_end(w);
}

/*
 * Queue the message.
 * @param part  that it announces; NULL: none
 * @param last  of the query: it is sent even if the query is being ended, and the next query may
 *   begin as soon as it is queued
 * @return 0; -ECANCELED; with `last`, if the query was being ended, too
 */
static int
queue_message(struct scan_worker *w, const struct scan_output *part, bool last)
{
	struct output *o;
	int ret = 0;

	if (w->message->nb == 0 && !last)
		return 0;
	pthread_mutex_lock(&w->lock);
	wait_until(w, last ? has_last_room : has_room);
	if (must_end(w))
		ret = -ECANCELED;
	if (!w->stopping && (last || ret == 0)) {
		o = &w->queue[w->tail++ % QUEUE];
		memcpy(o->message, w->message, w->message->head.length);
		o->out = part != NULL ? *part : (struct scan_output){.length = 0};
		o->out.message = (struct scan_data *)o->message;
		o->out.last = last;
		o->out.times = w->times;
		w->nb_gathered += o->out.nb_pieces > 0;
	}
	if (last) {
		free(w->sql);
		w->sql = NULL;
		w->end = SCAN_END_NOT;
		w->running = false;
		set_activity(w, SCAN_IDLE);
	}
	pthread_mutex_unlock(&w->lock);
	wake_lcore(w);
	if (!last)
		begin_message(w);
	return ret;
}

static int
flush(struct scan_worker *w, bool last)
{
	return queue_message(w, NULL, last);
}

/* Append a message of Arrow, or another list of bytes, in as many parts as needed. */
static int
put_parts(struct scan_worker *w, enum scan_kind kind, const uint8_t *bytes, uint64_t size)
{
	struct scan_record r = {.kind = kind, .sequence = w->sequence, .total = size};
	uint64_t room;
	int ret;

	while (r.offset < size) {
		room = SCAN_MSG_MAX - w->message->head.length;
		if (room < sizeof(r) + PART_MIN && room < sizeof(r) + size - r.offset) {
			ret = flush(w, false);
			if (ret < 0)
				return ret;
			continue;
		}
		room -= sizeof(r);
		r.length = size - r.offset < room ? size - r.offset : room;
		(void)scan_record_put(w->message, &r, bytes + r.offset);
		r.offset += r.length;
	}
	return 0;
}

/* Append a record that is not divided. */
static int
put_record(struct scan_worker *w, const struct scan_record *r, const void *bytes)
{
	int ret = 0;

	if (!scan_record_put(w->message, r, bytes)) {
		ret = flush(w, false);
		if (ret == 0)
			(void)scan_record_put(w->message, r, bytes);
	}
	return ret;
}

/* Append a schema, or the number of the same one if the client keeps it. */
static int
put_schema(struct scan_worker *w, const uint8_t *bytes, size_t size)
{
	struct scan_record r = {.kind = SCAN_SCHEMA};
	struct known_schema *known;

	if (size > sizeof(known->bytes))
		return put_parts(w, SCAN_METADATA, bytes, size);
	for (known = w->known; known < w->known + SCAN_SCHEMAS; known++) {
		if (known->size == size && memcmp(known->bytes, bytes, size) == 0)
			break;
	}
	if (known == w->known + SCAN_SCHEMAS) {
		known = &w->known[w->nb_known++ % SCAN_SCHEMAS];
		known->size = size;
		memcpy(known->bytes, bytes, size);
		w->known_is_sent = true;
		r.kind = SCAN_METADATA;
		r.length = r.total = size;
	}
	r.slot = known - w->known + 1;
	return put_record(w, &r, known->bytes);
}

/* Forget the schema of a query that failed: the client may not have got it. */
static void
forget_schema(struct scan_worker *w)
{
	if (w->known_is_sent)
		w->known[--w->nb_known % SCAN_SCHEMAS].size = 0;
}

/*
 * Whether all bytes that were copied from files are those of the files. Zeros in place of bytes
 * that a file no longer has must not be sent.
 */
static int
check_files(struct scan_worker *w)
{
	const char *path = sql_catalog_unreadable(&w->catalog);

	return path == NULL ? 0 : sql_session_unreadable(&w->session, path);
}

static uint32_t
count_free_stages(const struct scan_worker *w)
{
	uint32_t i, nb = 0;

	for (i = 0; i < SCAN_STAGES; i++)
		nb += !w->stage_used[i];
	return nb;
}

/* Whether there is a stage, and a slot of the client, if it has granted some. */
static bool
has_stage(const struct scan_worker *w)
{
	return count_free_stages(w) > 0 && (w->memory.slots == 0 || w->nb_free_slots > 0);
}

/*
 * Whether it is worth the time to run the thread for stages, or the query must end. The parts in
 * the other stages are sent without the thread. A client that reads them may free the next one only
 * when it has another.
 */
static bool
has_stages(const struct scan_worker *w)
{
	const uint32_t least = w->memory.slots > 0 ? STAGES_MIN : 1;

	return must_end(w) || (has_stage(w) && count_free_stages(w) >= least);
}

/*
 * Wait for memory, and for a slot of the client, if it has granted some.
 * @return index of the stage; -ECANCELED
 */
static int
take_stage(struct scan_worker *w, uint32_t *slot)
{
	int stage = -ECANCELED;

	pthread_mutex_lock(&w->lock);
	if (!has_stage(w))
		wait_until(w, has_stages);
	if (!must_end(w))
		for (stage = 0; w->stage_used[stage]; stage++)
			;
	if (stage >= 0) {
		w->stage_used[stage] = true;
		*slot = SCAN_SLOTS_MAX;
		if (w->memory.slots > 0)
			*slot = w->free_slot[--w->nb_free_slots];
	}
	pthread_mutex_unlock(&w->lock);
	return stage;
}

/* Return what take_stage() gave, as it was not used. With the lock. */
static void
return_stage(struct scan_worker *w, uint32_t stage, uint32_t slot)
{
	w->stage_used[stage] = false;
	if (slot != SCAN_SLOTS_MAX)
		w->free_slot[w->nb_free_slots++] = slot;
}

/* Whether the lcore has tried to register all files, or the query must end. */
static bool
are_registered(const struct scan_worker *w)
{
	return w->nb_registered == w->nb_files || must_end(w);
}

/* Get the registration of the file that has some bytes. @return SCAN_FILES: none */
static uint32_t
file_of(struct scan_worker *w, const uint8_t *bytes)
{
	struct sql_mapping m;
	uint32_t i = w->file_used;
	bool good;

	if (i < w->nb_files && (uintptr_t)bytes - (uintptr_t)w->file[i].data < w->file[i].size)
		return w->file[i].mr != NULL ? i : SCAN_FILES;
	for (i = 0; i < w->nb_files; i++) {
		if ((uintptr_t)bytes - (uintptr_t)w->file[i].data < w->file[i].size)
			break;
	}
	if (i == w->nb_files) {
		if (i == SCAN_FILES || !w->config.gather ||
			!sql_catalog_mapping(&w->catalog, bytes, &m))
			return SCAN_FILES;
		pthread_mutex_lock(&w->lock);
		w->file[w->nb_files++] = (struct scan_mapping){m.data, m.size, m.guard, NULL};
		wait_until(w, are_registered);
		good = w->nb_registered == w->nb_files;
		pthread_mutex_unlock(&w->lock);
		if (!good)
			return SCAN_FILES;
	}
	w->file_used = i;
	return w->file[i].mr != NULL ? i : SCAN_FILES;
}

/* Whether no output refers to files. */
static bool
is_gathered(const struct scan_worker *w)
{
	return w->nb_gathered == 0;
}

static bool
is_gathered_or_stopping(const struct scan_worker *w)
{
	return is_gathered(w) || w->stopping;
}

static bool
is_gathered_or_ends(const struct scan_worker *w)
{
	return is_gathered(w) || must_end(w);
}

static bool
has_left_files(const struct scan_worker *w)
{
	return !w->leaving_files;
}

/* Wait until no output refers to files, and end their registrations. */
static void
leave_files(struct scan_worker *w)
{
	pthread_mutex_lock(&w->lock);
	wait_until(w, is_gathered_or_stopping);
	w->leaving_files = w->nb_files > 0;
	wait_until(w, has_left_files);
	w->nb_files = w->nb_registered = 0;
	pthread_mutex_unlock(&w->lock);
}

static uint8_t *
stage_at(const struct scan_worker *w, uint32_t stage)
{
	return w->memory.stage + (uint64_t)stage * w->memory.part_bytes;
}

/* Append bytes to the pieces of a part. @return their new number */
static uint32_t
add_piece(
	struct scan_piece *piece, uint32_t nb, const uint8_t *bytes, uint32_t length, uint32_t file)
{
	struct scan_piece *last = nb > 0 ? &piece[nb - 1] : NULL;

	if (last != NULL && last->file == file && last->bytes + last->length == bytes) {
		last->length += length;
		return nb;
	}
	piece[nb] = (struct scan_piece){bytes, length, file};
	return nb + 1;
}

/*
 * Make the pieces of a part of a body: long ones refer to mapped files, all others are copied to
 * the stage, at their place in the part.
 * @return number of pieces; 0: all bytes are in the stage
 */
static uint32_t
gather(struct scan_worker *w, uint32_t stage, const struct ipc_buffer *buffer, size_t nb,
	uint64_t offset, uint32_t length)
{
	uint8_t *to = stage_at(w, stage);
	struct scan_piece *piece = w->piece[stage];
	const uint64_t last = offset + length;
	uint64_t at = 0, end, next, from, until, copied = offset;
	uint32_t file, nb_pieces = 0;
	size_t i;

	for (i = 0; i < nb && at < last; i++, at = next) {
		end = at + buffer[i].size;
		next = buffer[i].joined ? end : (end + IPC_ALIGN - 1) / IPC_ALIGN * IPC_ALIGN;
		from = at > offset ? at : offset;
		until = end < last ? end : last;
		/* room for this piece, for the copied ones around it, and for the rest */
		if (!buffer[i].in_file || until < from + GATHER_MIN || nb_pieces + 3 > SCAN_PIECES)
			continue;
		file = file_of(w, buffer[i].bytes);
		if (file == SCAN_FILES)
			continue;
		if (from > copied) {
			ipc_body_copy(to + (copied - offset), buffer, nb, copied, from - copied);
			nb_pieces = add_piece(piece, nb_pieces, to + (copied - offset),
				from - copied, SCAN_FILES);
		}
		nb_pieces = add_piece(piece, nb_pieces,
			(const uint8_t *)buffer[i].bytes + (from - at), until - from, file);
		w->gathered += until - from;
		copied = until;
	}
	if (copied < last)
		ipc_body_copy(to + (copied - offset), buffer, nb, copied, last - copied);
	if (nb_pieces > 0 && copied < last)
		nb_pieces = add_piece(
			piece, nb_pieces, to + (copied - offset), last - copied, SCAN_FILES);
	return nb_pieces;
}

/*
 * Announce a part of a body that is in its stage or is to be gathered.
 * @param part  pieces are set
 */
static int
announce(struct scan_worker *w, struct scan_record *r, const struct scan_output *part)
{
	const struct scan_pulled pulled = {(uintptr_t)stage_at(w, part->stage), w->memory.rkey, 0};
	const void *bytes = r->kind == SCAN_PULLED ? &pulled : NULL;
	int ret = check_files(w);

	if (ret == 0)
		ret = put_record(w, r, bytes);
	return ret == 0 ? queue_message(w, part, false) : ret;
}

/* Give a body to the client in parts: written to its slots, or to be read by it. */
static int
put_body(struct scan_worker *w, const struct ipc_buffer *buffer, size_t nb, uint64_t size)
{
	struct scan_record r = {.kind = w->memory.slots > 0 ? SCAN_PUSHED : SCAN_PULLED,
		.sequence = w->sequence,
		.total = size};
	struct scan_output part = {.sequence = w->sequence};
	int stage, ret = 0;

	for (r.offset = 0; r.offset < size && ret == 0; r.offset += r.length) {
		stage = take_stage(w, &part.slot);
		if (stage < 0)
			return stage;
		r.length = size - r.offset < w->memory.part_bytes ? size - r.offset
								  : w->memory.part_bytes;
		part.length = r.length;
		part.stage = stage;
		part.piece = w->piece[stage];
		if (r.kind == SCAN_PUSHED) {
			r.slot = part.slot;
			part.nb_pieces = gather(w, stage, buffer, nb, r.offset, r.length);
		} else {
			/* bytes of a file could change while the client reads them */
			ipc_body_copy(stage_at(w, stage), buffer, nb, r.offset, r.length);
		}
		ret = announce(w, &r, &part);
		if (ret == 0)
			continue;
		pthread_mutex_lock(&w->lock);
		return_stage(w, stage, part.slot);
		pthread_mutex_unlock(&w->lock);
	}
	return ret;
}

/* Wait until all parts with pieces of files were sent. @return 0; -ECANCELED */
static int
wait_gathered(struct scan_worker *w)
{
	int ret;

	pthread_mutex_lock(&w->lock);
	wait_until(w, is_gathered_or_ends);
	ret = must_end(w) ? -ECANCELED : 0;
	pthread_mutex_unlock(&w->lock);
	return ret;
}

static int
inline_body(struct scan_worker *w, const struct ipc_buffer *buffer, size_t nb, uint64_t size)
{
	uint8_t *bytes = malloc(size);
	int ret;

	if (bytes == NULL)
		return -ENOMEM;
	ipc_body_copy(bytes, buffer, nb, 0, size);
	ret = check_files(w);
	if (ret == 0)
		ret = put_parts(w, SCAN_BODY, bytes, size);
	free(bytes);
	return ret;
}

/* Takes a message of the Arrow writer. */
static int
take_message(void *arg, const void *metadata, size_t size, const struct ipc_buffer *buffer,
	size_t nb, uint64_t body)
{
	struct scan_worker *w = arg;
	int ret;

	if (size > SCAN_METADATA_MAX || body > SCAN_BODY_MAX)
		return -EOVERFLOW;
	ret = w->sequence == 0 ? put_schema(w, metadata, size)
			       : put_parts(w, SCAN_METADATA, metadata, size);
	if (ret == 0 && body > 0)
		ret = body <= INLINE_MAX || w->memory.part_bytes == 0
			? inline_body(w, buffer, nb, body)
			: put_body(w, buffer, nb, body);
	w->sequence++;
	w->body = body;
	return ret;
}

/* ---- queries, by the thread ------------------------------------------------------------------ */

static void
warn(void *arg, const char *text)
{
	escaped_line(stderr, "%s: %s", program_invocation_short_name, text);
}

static bool
may_read(void *arg, const char *run)
{
	return xfer_identity_may_read(arg, run);
}

static void
close_engine(struct scan_worker *w)
{
	if (!w->opened)
		return;
	pthread_mutex_lock(&w->lock);
	w->opened = false;
	pthread_mutex_unlock(&w->lock);
	leave_files(w);
	sql_session_close(&w->session);
	sql_catalog_destroy(&w->catalog);
}

/* Open the engine with the runs that exist now. @return 0; -errno, `error` says why */
static int
open_engine(struct scan_worker *w, char *error, size_t size)
{
	const struct sql_limits limits = {
		.threads = w->config.threads,
		.memory = w->config.memory,
		.defer = true,
		.join = true,
	};
	struct scan_list list = {0};
	unsigned int i, unreadable = 0;
	int ret;

	for (i = 0; i < w->config.nb_paths; i++) {
		ret = scan_list_add(&list, w->config.path[i]);
		/* a folder without runs may get some later; an unreadable one lacks rows */
		unreadable += ret < 0 && ret != -ENODATA;
	}
	ret = sql_catalog_create(&w->catalog, &list, warn, NULL);
	scan_list_free(&list);
	if (ret < 0) {
		snprintf(error, size, "not enough memory");
		return ret;
	}
	w->catalog.incomplete = unreadable;
	sql_catalog_keep(&w->catalog, may_read, &w->identity);
	sql_catalog_hide_paths(&w->catalog);
	ret = sql_session_open(&w->session, w->config.api, &w->catalog, &limits);
	if (ret < 0) {
		snprintf(error, size, "%s", w->session.error);
		sql_session_close(&w->session);
		sql_catalog_destroy(&w->catalog);
		return ret;
	}
	pthread_mutex_lock(&w->lock);
	w->opened = true;
	pthread_mutex_unlock(&w->lock);
	return 0;
}

/*
 * Count a batch. Bodies are copied once, except the bytes that the device reads from files; values
 * that the engine converted were copied before.
 */
static void
count_batch(struct scan_worker *w, const struct sql_batch *batch)
{
	struct scan_work *n = w->config.work;
	const uint64_t made = w->body > batch->direct ? w->body - batch->direct : 0;

	__atomic_add_fetch(&n->batches, 1, __ATOMIC_RELAXED);
	__atomic_add_fetch(&n->result_bytes, w->body, __ATOMIC_RELAXED);
	__atomic_add_fetch(&n->deferred_bytes, batch->deferred, __ATOMIC_RELAXED);
	__atomic_add_fetch(&n->copied_bytes, w->body + made - w->gathered, __ATOMIC_RELAXED);
	__atomic_add_fetch(&n->gathered_bytes, w->gathered, __ATOMIC_RELAXED);
	w->gathered = 0;
}

static int
send_result(struct scan_worker *w, struct sql_reader *reader)
{
	const struct ipc_sink sink = {take_message, w};
	struct sql_batch batch;
	struct ipc_stream out;
	int ret = 0;

	if (w->session.present.nb_columns > 0)
		ret = put_parts(w, SCAN_COLUMNS, (const uint8_t *)w->session.present.type,
			w->session.present.nb_columns * sizeof(w->session.present.type[0]));
	if (ret == 0)
		ret = ipc_stream_begin_messages(&out, &sink, sql_reader_schema(reader));
	while (ret == 0) {
		ret = sql_reader_next(reader, &batch);
		if (ret < 0 || batch.array == NULL)
			break;
		ret = ipc_stream_batch_values(&out, batch.array, batch.values);
		if (ret == 0)
			count_batch(w, &batch);
	}
	return ret;
}

static int
execute(struct scan_worker *w, char *error, size_t size)
{
	struct sql_reader *reader;
	char names[256];
	int ret;

	ret = w->opened ? 0 : open_engine(w, error, size);
	if (ret < 0)
		return ret;
	ret = sql_session_execute(&w->session, w->sql, (enum sql_form)w->form);
	w->times.executed = ret == 0 ? rte_rdtsc() : 0;
	if (ret == 0 && sql_session_deferred(&w->session, names, sizeof(names)) == 0)
		__atomic_add_fetch(&w->config.work->deferred, 1, __ATOMIC_RELAXED);
	if (ret == 0)
		ret = sql_reader_open(&reader, &w->session);
	if (ret == 0) {
		w->gathered = 0;
		/* a body of a batch is one part, so that the client need not copy it */
		sql_reader_batch_bytes(
			reader, w->memory.part_bytes > 0 ? w->memory.part_bytes : SCAN_STAGE);
		ret = send_result(w, reader);
		sql_reader_close(reader);
		if (ret == 0)
			ret = wait_gathered(w);
	}
	if (ret == -ENOTSUP)
		snprintf(error, size,
			"a column has a type that is not supported in Arrow streams: cast it");
	else if (ret < 0)
		snprintf(error, size, "%s",
			w->session.error[0] != '\0' ? w->session.error : strerror(-ret));
	return ret;
}

/* @return SQLSTATE of an error: ISO 9075; class 57 is that of PostgreSQL */
static const char *
sqlstate(int error, enum scan_end end)
{
	if (end == SCAN_END_CANCELLED || end == SCAN_END_DEADLINE)
		return "57014";
	switch (-error) {
	case EINVAL:
		return "42000";
	case ENOMEM:
		return "53200";
	case ENOTSUP:
	case EOVERFLOW:
		return "0A000";
	default:
		return "58000";
	}
}

/*
 * @return bytes of the whole characters at the beginning of a text in UTF-8, at most
 *   SCAN_ERROR_TEXT
 */
static size_t
text_length(const char *text)
{
	size_t length = strlen(text);

	if (length <= SCAN_ERROR_TEXT)
		return length;
	/* a character that does not fit begins at or before the first byte that does not */
	for (length = SCAN_ERROR_TEXT; length > 0 && (text[length] & 0xc0) == 0x80; length--)
		;
	return length;
}

static void
put_error(struct scan_worker *w, int error, enum scan_end end, const char *text)
{
	struct {
		struct scan_error error;
		char text[SCAN_ERROR_TEXT];
	} m = {.error = {.error = (uint32_t)-error}};
	char deadline[160];
	const char *shown = end == SCAN_END_CANCELLED ? "cancelled"
		: end == SCAN_END_DEADLINE	      ? deadline
						      : text;
	struct scan_record r = {.kind = SCAN_ERROR, .sequence = w->sequence};
	size_t length;

	snprintf(deadline, sizeof(deadline),
		"the query took longer than %g s, the server's --deadline: select fewer rows, or "
		"read the result faster",
		(double)w->config.deadline_ms / 1000);
	length = text_length(shown);

	static_assert(offsetof(struct scan_error, text) == 12, "the text follows");
	memcpy(m.error.sqlstate, sqlstate(error, end), SCAN_SQLSTATE);
	if (end == SCAN_END_CANCELLED || end == SCAN_END_DEADLINE)
		m.error.error = end == SCAN_END_DEADLINE ? ETIMEDOUT : ECANCELED;
	memcpy(m.text, shown, length);
	r.length = r.total = sizeof(m.error) + length;
	/* outputs that were not sent are no longer needed */
	begin_message(w);
	(void)scan_record_put(w->message, &r, &m);
}

static void
run_query(struct scan_worker *w)
{
	char error[sizeof(w->session.error)] = "";
	struct scan_record r = {.kind = SCAN_END};
	bool unreadable = false;
	enum scan_end why;
	const char *path;
	int ret;

	w->times.begun = rte_rdtsc();
	w->sequence = 0;
	w->known_is_sent = false;
	begin_message(w);
	ret = execute(w, error, sizeof(error));
	if (ret == 0) {
		r.sequence = w->sequence;
		/* a later query of the session leaves out the same */
		r.total = __atomic_load_n(&w->catalog.damaged, __ATOMIC_RELAXED) +
			__atomic_load_n(&w->catalog.incomplete, __ATOMIC_RELAXED);
		ret = put_record(w, &r, NULL);
	}
	if (ret < 0) {
		forget_schema(w);
		__atomic_add_fetch(&w->config.work->failed, 1, __ATOMIC_RELAXED);
		unreadable = w->opened && sql_catalog_unreadable(&w->catalog) != NULL;
		if (unreadable)
			(void)wait_gathered(w);
		pthread_mutex_lock(&w->lock);
		why = w->end;
		pthread_mutex_unlock(&w->lock);
		if (why == SCAN_END_UNREADABLE) {
			path = sql_catalog_unreadable(&w->catalog);
			ret = sql_session_unreadable(&w->session, path != NULL ? path : "a file");
			snprintf(error, sizeof(error), "%s", w->session.error);
		}
		put_error(w, ret, why, error);
	}
	w->times.ended = rte_rdtsc();
	/*
	 * An engine that was interrupted executes no further statement. With a file that could not
	 * be read, each statement would fail.
	 */
	if (flush(w, true) < 0 || unreadable)
		close_engine(w);
}

/* Whether the thread must not poll: it has a query, or an lcore or another engine needs its CPU. */
static bool
must_not_poll(void *arg)
{
	const struct scan_worker *w = arg;

	return scan_worker_activity(w) != SCAN_IDLE ||
		__atomic_load_n(&nb_threads, __ATOMIC_RELAXED) > w->nb_cpus;
}

/* Execute a query, and poll for the next one: a thread that sleeps would begin it later. */
static void
serve_query(struct scan_worker *w, struct poll_spin *spin)
{
	const unsigned int threads = w->config.threads;

	(void)__atomic_add_fetch(&nb_threads, threads, __ATOMIC_RELAXED);
	run_query(w);
	(void)poll_spin(spin, POLL_US, must_not_poll, w);
	(void)__atomic_sub_fetch(&nb_threads, threads, __ATOMIC_RELAXED);
}

static void *
worker_main(void *arg)
{
	struct scan_worker *w = arg;
	struct poll_spin spin = {0};
	cpu_set_t others;

	process_cpus_others(&others);
	/* the threads of the engine inherit it */
	process_cpus_take();
	pthread_mutex_lock(&w->lock);
	w->nb_cpus = CPU_COUNT(&others);
	w->competes = w->nb_cpus == 0;
	while (!w->stopping) {
		if (!w->running) {
			pthread_cond_wait(&w->changed, &w->lock);
			continue;
		}
		pthread_mutex_unlock(&w->lock);
		serve_query(w, &spin);
		pthread_mutex_lock(&w->lock);
	}
	pthread_mutex_unlock(&w->lock);
	close_engine(w);
	__atomic_store_n(&w->ended, true, __ATOMIC_RELEASE);
	return NULL;
}

/* ---- by the lcore ---------------------------------------------------------------------------- */

static void
worker_free(struct scan_worker *w)
{
	pthread_mutex_destroy(&w->lock);
	pthread_cond_destroy(&w->changed);
	xfer_identity_forget(&w->identity);
	free(w->message);
	free(w->queue);
	free(w->sql);
	free(w);
}

struct scan_worker *
scan_worker_create(const struct scan_worker_config *config)
{
	struct scan_worker *w = calloc(1, sizeof(*w));
	sigset_t all, old;

	if (w == NULL)
		return NULL;
	w->config = *config;
	w->identity = *config->identity;
	xfer_identity_forget(&w->identity);
	w->queue = calloc(QUEUE, sizeof(*w->queue));
	w->message = calloc(1, SCAN_MSG_MAX);
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->changed, NULL);
	if (w->queue == NULL || w->message == NULL)
		goto fail;
	/* signals are for the lcore; the engine's threads inherit the mask. Not those of faults, as
	 * of a file that was cut (sql/map_guard.h) */
	sigfillset(&all);
	sigdelset(&all, SIGBUS);
	sigdelset(&all, SIGSEGV);
	sigdelset(&all, SIGFPE);
	sigdelset(&all, SIGILL);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	errno = pthread_create(&w->thread, NULL, worker_main, w);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (errno == 0)
		return w;
fail:
	worker_free(w);
	return NULL;
}

/* Interrupt the engine, with the lock. The thread must be woken, too. */
static void
interrupt(struct scan_worker *w)
{
	if (w->running && w->opened)
		sql_session_cancel(&w->session);
}

void
scan_worker_stop(struct scan_worker *w)
{
	pthread_mutex_lock(&w->lock);
	w->stopping = true;
	interrupt(w);
	unlock_and_wake(w);
}

bool
scan_worker_destroy(struct scan_worker *w)
{
	if (!__atomic_load_n(&w->ended, __ATOMIC_ACQUIRE)) {
		/* repeatedly: a statement that is about to start misses an interrupt */
		scan_worker_stop(w);
		return false;
	}
	pthread_join(w->thread, NULL);
	worker_free(w);
	return true;
}

void
scan_worker_grant(struct scan_worker *w, const struct scan_worker_memory *memory)
{
	pthread_mutex_lock(&w->lock);
	w->memory = *memory;
	for (w->nb_free_slots = 0; w->nb_free_slots < memory->slots; w->nb_free_slots++)
		w->free_slot[w->nb_free_slots] = memory->slots - 1 - w->nb_free_slots;
	pthread_mutex_unlock(&w->lock);
}

bool
scan_worker_query(struct scan_worker *w, uint32_t cursor, enum scan_form form, char *sql)
{
	bool idle;

	pthread_mutex_lock(&w->lock);
	idle = !w->running;
	if (idle) {
		w->sql = sql;
		w->cursor = cursor;
		w->form = form;
		w->running = true;
		w->times = (struct scan_times){.received = rte_rdtsc()};
		/* until the thread runs, too: it needs the CPU */
		set_working(w);
	}
	unlock_and_wake(w);
	if (!idle)
		free(sql);
	return idle;
}

bool
scan_worker_cancel(struct scan_worker *w, uint32_t cursor, enum scan_end why)
{
	bool first = false;

	pthread_mutex_lock(&w->lock);
	if (w->running && w->cursor == cursor) {
		first = w->end == SCAN_END_NOT;
		if (first)
			w->end = why;
		interrupt(w);
	}
	unlock_and_wake_query(w);
	return first;
}

bool
scan_worker_credit(struct scan_worker *w, const struct scan_credit *m)
{
	bool good = true;
	uint32_t i;

	pthread_mutex_lock(&w->lock);
	good = m->messages <= w->nb_unreturned;
	for (i = 0; i < m->nb && good; i++) {
		good = w->slot_used[m->slot[i]];
		if (!good)
			break;
		w->slot_used[m->slot[i]] = false;
		w->free_slot[w->nb_free_slots++] = m->slot[i];
	}
	if (good)
		w->nb_unreturned -= m->messages;
	unlock_and_wake_query(w);
	return good;
}

void
scan_worker_state_get(struct scan_worker *w, struct scan_worker_state *state)
{
	pthread_mutex_lock(&w->lock);
	*state = (struct scan_worker_state){w->running, w->cursor, w->end};
	pthread_mutex_unlock(&w->lock);
}

enum scan_activity
scan_worker_activity(const struct scan_worker *w)
{
	return __atomic_load_n(&w->activity, __ATOMIC_RELAXED);
}

bool
scan_worker_peek(struct scan_worker *w, uint32_t ahead, struct scan_output *out)
{
	bool found;

	pthread_mutex_lock(&w->lock);
	found = w->tail - w->head > ahead;
	if (found)
		*out = w->queue[(w->head + ahead) % QUEUE].out;
	pthread_mutex_unlock(&w->lock);
	return found;
}

bool
scan_worker_is_readable(struct scan_worker *w, const struct scan_output *out)
{
	uint32_t i;

	for (i = 0; i < out->nb_pieces; i++) {
		if (out->piece[i].file == SCAN_FILES ||
			!map_guard_is_marked(w->file[out->piece[i].file].guard))
			continue;
		pthread_mutex_lock(&w->lock);
		w->dropping = true;
		/* a query whose error is in the queue already is over */
		if (w->running)
			w->end = SCAN_END_UNREADABLE;
		interrupt(w);
		unlock_and_wake_query(w);
		return false;
	}
	return true;
}

bool
scan_worker_must_drop(struct scan_worker *w)
{
	bool drop;

	pthread_mutex_lock(&w->lock);
	drop = w->dropping && w->head != w->tail && !w->queue[w->head % QUEUE].out.last;
	pthread_mutex_unlock(&w->lock);
	return drop;
}

/* Remove the next output, with the lock. */
static void
take_output(struct scan_worker *w)
{
	struct output *o = &w->queue[w->head++ % QUEUE];

	w->nb_gathered -= o->out.nb_pieces > 0;
	if (o->out.last)
		w->dropping = false;
}

void
scan_worker_drop(struct scan_worker *w)
{
	const struct scan_output *o = &w->queue[w->head % QUEUE].out;

	pthread_mutex_lock(&w->lock);
	if (o->length > 0)
		return_stage(w, o->stage, o->slot);
	take_output(w);
	unlock_and_wake_query(w);
}

void
scan_worker_taken(struct scan_worker *w)
{
	const struct scan_output *o = &w->queue[w->head % QUEUE].out;

	pthread_mutex_lock(&w->lock);
	/* from here on, the client may return them */
	w->nb_unreturned++;
	if (o->length > 0 && o->slot != SCAN_SLOTS_MAX)
		w->slot_used[o->slot] = true;
	take_output(w);
	unlock_and_wake_query(w);
}

void
scan_worker_files(struct scan_worker *w, void (*reg)(void *arg, struct scan_mapping *file),
	bool (*dereg)(void *arg, struct scan_mapping *file), void *arg)
{
	bool changed = false;
	uint32_t i;

	pthread_mutex_lock(&w->lock);
	if (w->leaving_files) {
		for (i = 0; i < w->nb_registered; i++) {
			if (w->file[i].mr != NULL && !dereg(arg, &w->file[i]))
				break;
		}
		changed = i == w->nb_registered;
		w->leaving_files = !changed;
	} else if (w->nb_registered < w->nb_files) {
		for (i = w->nb_registered; i < w->nb_files; i++)
			reg(arg, &w->file[i]);
		w->nb_registered = w->nb_files;
		changed = true;
	}
	if (changed)
		unlock_and_wake_query(w);
	else
		pthread_mutex_unlock(&w->lock);
}

const struct scan_mapping *
scan_worker_file(const struct scan_worker *w, uint32_t file)
{
	return &w->file[file];
}

void
scan_worker_written(struct scan_worker *w, uint32_t stage)
{
	pthread_mutex_lock(&w->lock);
	w->stage_used[stage] = false;
	unlock_and_wake_query(w);
}
