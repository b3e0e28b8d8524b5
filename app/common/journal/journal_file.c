/* SPDX-License-Identifier: BSD-3-Clause */
/* The file of a journal: creates, checks and adopts it. */

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "io/file_lock.h"
#include "io/own_file.h"
#include "journal/journal_private.h"

#define SLOT_MAX (UINT64_C(1) << 36) /* bytes of a slot: sums of slots do not overflow */
#define PAGE_MAX (UINT64_C(1) << 34) /* the largest supported huge page */

static uint32_t
header_crc(const struct ring_header *h)
{
	return arrow_crc32c(0, &h->size,
		offsetof(struct ring_header, store) - offsetof(struct ring_header, size));
}

/*
 * Map a file, which may be sparse. All of its pages are allocated first: otherwise a page fault on
 * a full file system raises SIGBUS, and MAP_POPULATE does not report that.
 */
static int
map_file(struct journal *r, uint64_t size, uint64_t data_at)
{
	const int access = PROT_READ | PROT_WRITE;
	struct stat st;
	void *map;

	if (fstat(r->fd, &st) < 0)
		return -errno;
	/* this takes long for large files, even if all pages are allocated already */
	if ((uint64_t)st.st_blocks * 512 < size && fallocate(r->fd, 0, 0, (off_t)size) < 0 &&
		errno != EOPNOTSUPP)
		return -errno;
	map = mmap(NULL, size, access, MAP_SHARED, r->fd, 0);
	if (map == MAP_FAILED)
		return -errno;
	r->map = map;
	r->size = size;
	r->header = map;
	/*
	 * The first access to a page would stall a polling lcore. Opening reads all pages in front
	 * of the data, except those of schemas, which are written only when a run begins.
	 */
	map = mmap(r->map + data_at, size - data_at, access, MAP_SHARED | MAP_POPULATE | MAP_FIXED,
		r->fd, data_at);
	return map == MAP_FAILED ? -errno : 0;
}

static uint64_t
slot_bytes(const struct ring_header *h)
{
	return (uint64_t)h->slot_blocks * XFER_BLOCK;
}

/* Number of slots: as many as fit between the data and the end of the file. */
static uint32_t
nb_slots(const struct ring_header *h)
{
	uint64_t n;

	if (h->slot_blocks == 0)
		return 0;
	n = (h->size - h->data_at - h->data_size) / slot_bytes(h);
	return n < JOURNAL_SLOTS ? n : JOURNAL_SLOTS;
}

static void
find_parts(struct journal *r, const struct ring_header *h)
{
	r->ledger = (struct ring_ledger *)(r->map + h->ledger_at);
	r->ring_run = (struct ring_run *)(r->map + h->runs_at);
	r->batch = (struct ring_batch *)(r->map + h->batches_at);
	r->data = r->map + h->data_at;
	r->data_size = h->data_size;
	r->nb_batches = h->nb_batches;
	r->nb_slots = nb_slots(h);
	if (r->nb_slots > 0) {
		r->area = r->data + h->data_size;
		r->slot_bytes = slot_bytes(h);
	}
}

/*
 * Lay out the parts that depend on the number of batches. The rest of the file is whole pages.
 * @return end of the batch records
 */
static uint64_t
lay_out_parts(struct ring_header *h)
{
	h->ledger_at = HEADER_BLOCKS * XFER_BLOCK;
	h->runs_at = h->ledger_at + 2 * sizeof(struct ring_ledger);
	h->batches_at = h->runs_at + JOURNAL_RUNS * sizeof(struct ring_run);
	return h->batches_at + (uint64_t)h->nb_batches * sizeof(struct ring_batch);
}

/* Compute where the parts of a new file are. @return 0 or -EINVAL */
static int
lay_out(struct ring_header *h, const struct journal_config *c, uint64_t page, char *message)
{
	const uint32_t nb = c->batches > 0 ? c->batches : JOURNAL_BATCHES;

	if (c->slots > JOURNAL_SLOTS || (c->slots == 0) != (c->slot_bytes == 0) ||
		c->slot_bytes % XFER_BLOCK != 0 || c->slot_bytes > SLOT_MAX) {
		snprintf(message, PATH_MAX,
			"journal has %u slots of %llu bytes, expected at most %u, of a multiple of "
			"%u bytes up to %llu",
			c->slots, (unsigned long long)c->slot_bytes, JOURNAL_SLOTS, XFER_BLOCK,
			(unsigned long long)SLOT_MAX);
		return -EINVAL;
	}
	*h = (struct ring_header){.version = RING_VERSION,
		.receiver_id = c->receiver_id,
		.nb_batches = nb,
		.slot_blocks = c->slot_bytes / XFER_BLOCK};
	h->data_at = round_up(lay_out_parts(h), page);
	h->data_size = round_up(c->bytes, page);
	h->size = h->data_at + h->data_size + round_up(c->slots * c->slot_bytes, page);
	if (nb > JOURNAL_BATCHES || c->bytes < 2 * XFER_BLOCK || h->data_size < c->bytes ||
		h->size < h->data_size) {
		snprintf(message, PATH_MAX, "journal has %llu bytes, expected at least %u",
			(unsigned long long)c->bytes, 2 * XFER_BLOCK);
		return -EINVAL;
	}
	return 0;
}

/* Create a file. A part that is all zeros is empty. */
static int
create(struct journal *r, const struct journal_config *c, uint64_t page, char *message)
{
	struct ring_header h;
	int ret = lay_out(&h, c, page, message);

	if (ret < 0)
		return ret;
	/* discard the old content: the file is zeros */
	ret = ftruncate(r->fd, 0) < 0 || ftruncate(r->fd, h.size) < 0
		? -errno
		: map_file(r, h.size, h.data_at);
	if (ret < 0) {
		snprintf(message, PATH_MAX,
			"cannot allocate %llu bytes for the journal in %.3000s: %s. Enlarge the "
			"file system (mount -o remount,size=... of a tmpfs, more huge pages), or "
			"set another path or a smaller journal ([egress] journal, journal_mib%s)",
			(unsigned long long)h.size, c->path, strerror(-ret),
			c->slots > 0 ? ", journal_slots" : "");
		return ret;
	}
	h.crc = header_crc(&h);
	*r->header = h;
	step(r);
	PUT(r->header->magic, RING_MAGIC);
	step(r);
	return 0;
}

/* Whether the offsets are those of a new file of this size, for any page size. */
static bool
parts_fit(const struct ring_header *h, uint64_t size)
{
	struct ring_header made = {.nb_batches = h->nb_batches};
	uint64_t end, page, area;

	if (h->nb_batches == 0 || h->nb_batches > JOURNAL_BATCHES)
		return false;
	end = lay_out_parts(&made);
	if (h->ledger_at != made.ledger_at || h->runs_at != made.runs_at ||
		h->batches_at != made.batches_at || h->size != size || h->data_at > size ||
		h->data_size > size - h->data_at || h->data_size < 2 * XFER_BLOCK)
		return false;
	area = size - h->data_at - h->data_size;
	if (h->slot_blocks == 0 ? area != 0 : slot_bytes(h) > area)
		return false;
	for (page = XFER_BLOCK; page <= PAGE_MAX; page *= 2) {
		if (h->data_at == round_up(end, page) && h->data_size % page == 0 &&
			area % page == 0)
			return true;
	}
	return false;
}

static bool
version_is_known(uint32_t version)
{
	return version >= RING_OLDEST && version <= RING_VERSION;
}

/* Check a header that was read from a file of this size. */
static int
check_header(const struct ring_header *h, const char *path, uint64_t size, char *message)
{
	const char *what = NULL;

	if (!version_is_known(h->version)) {
		snprintf(message, PATH_MAX,
			"%.3000s is a journal of version %u, expected version %u to %u. Send or "
			"import its batches with the version of braggline that created it, then "
			"remove it",
			path, h->version, RING_OLDEST, RING_VERSION);
		return -EINVAL;
	}
	if (h->crc != header_crc(h))
		what = "wrong checksum of its header";
	else if (!parts_fit(h, size))
		what = "positions of its parts do not match its size";
	if (what == NULL)
		return 0;
	snprintf(message, PATH_MAX,
		"journal %.3000s is damaged: %s. Its content cannot be read; move it away to "
		"create a new one",
		path, what);
	return -EBADMSG;
}

static int
check_receiver_id(const struct ring_header *h, const struct journal_config *c, char *message)
{
	if (h->receiver_id == c->receiver_id)
		return 0;
	snprintf(message, PATH_MAX,
		"journal %.3000s belongs to receiver %llu, expected %llu ([output] receiver_id); "
		"give each receiver its own journal",
		c->path, (unsigned long long)h->receiver_id, (unsigned long long)c->receiver_id);
	return -EINVAL;
}

/*
 * A receiver refuses a damaged store: it could not tell the store which of its batches others have.
 */
static int
refuse_store(const char *path, unsigned int store, const char *problem, char *message)
{
	snprintf(message, PATH_MAX,
		"journal %.3000s is damaged: store %u: %s. Bring its batches into a store "
		"(braggline-store import), remove duplicates (braggline-store reconcile "
		"--journal), then move it away, to create a new one",
		path, store, problem);
	return -EBADMSG;
}

/* Refuse a header with a damaged store. */
static int
check_header_stores(const struct ring_header *h, const char *path, char *message)
{
	struct store store;
	unsigned int i;

	for (i = 0; i < JOURNAL_STORES; i++) {
		(void)journal_store_read(&h->store[i], &store);
		if (store.problem != NULL)
			return refuse_store(path, i, store.problem, message);
	}
	return 0;
}

static int
by_position(const void *a, const void *b)
{
	const struct taken *x = a, *y = b;

	return (x->position > y->position) - (x->position < y->position);
}

/* Refuse a damaged run. */
static int
refuse_runs(const struct journal *r, const char *path, char *message)
{
	unsigned int i;

	for (i = 0; i < JOURNAL_RUNS && r->run_problem[i] == NULL; i++)
		;
	if (i == JOURNAL_RUNS)
		return 0;
	snprintf(message, PATH_MAX,
		"journal %.3000s is damaged: run %u: %s. Bring its other runs into a store "
		"(braggline-store import), then move it away, to create a new one",
		path, i, r->run_problem[i]);
	return -EBADMSG;
}

/* Whether the room can have the batch, and the numbers of its references or pieces are in range. */
static bool
room_fits(const struct journal *r, const struct ring_batch *b)
{
	if (b->body_bytes % XFER_BLOCK != 0 || b->body_bytes / XFER_BLOCK > UINT32_MAX ||
		b->rest_bytes > b->body_bytes || b->nb_references > JOURNAL_REFERENCES ||
		b->nb_references > r->nb_slots || (b->nb_references == 0 && b->rest_bytes != 0) ||
		b->nb_pieces > JOURNAL_PARTS || (b->nb_references > 0 && b->nb_pieces > 0))
		return false;
	return b->position % r->data_size + room_bytes(b) <= r->data_size;
}

bool
journal_record_fits(const struct journal *r, const struct ring_batch *b)
{
	return b->position <= POSITION_MAX && b->position % XFER_BLOCK == 0 &&
		b->sequence != UINT64_MAX && b->run < JOURNAL_RUNS && b->table < XFER_TABLES &&
		room_fits(r, b) &&
		(r->run_status[b->run].state == RUN_LIVE || r->run_problem[b->run] != NULL);
}

/* Read the members of a record in use. One wrong bit is corrected. @return false: damaged */
static bool
read_record(struct journal *r, uint32_t batch)
{
	struct ring_batch b = r->batch[batch];
	const int wrong = journal_record_open(&b);

	if (wrong < 0 || !journal_record_fits(r, &b))
		return false;
	r->stats.corrected += wrong;
	r->known[batch] = b;
	return true;
}

/* Check the table and the body of a held batch. The slots are its own from then on. */
static enum record_is
check_body(struct journal *r, uint32_t batch)
{
	const struct ring_batch *k = &r->known[batch];
	struct iovec part[JOURNAL_REFERENCES];
	struct journal_batch b = known_members(k);
	int wrong;

	if (!journal_pieces_are_sound(r, batch))
		return RECORD_PIECES_DAMAGED;
	if (k->nb_references == 0)
		return journal_body_is_sound(r, batch) ? RECORD_SOUND : RECORD_BODY_DAMAGED;
	wrong = journal_references_open(r, batch, part);
	if (wrong < 0)
		return RECORD_REFERENCES_DAMAGED;
	/* first: a sound batch that refers to the same slots may follow */
	journal_place_parts(r, batch, part, &b);
	if (journal_body_crc32c(&b) != k->body_crc32c)
		return RECORD_BODY_DAMAGED;
	if (!journal_slots_hold(r, batch, part))
		return RECORD_REFERENCES_DAMAGED;
	r->stats.corrected += wrong;
	return RECORD_SOUND;
}

/* Check a record that is not free, and the bytes of its batch. */
static enum record_is
check_record(struct journal *r, uint32_t batch, bool status_known)
{
	const struct ring_batch *k = &r->known[batch];

	if (!read_record(r, batch))
		return status_known ? RECORD_DAMAGED : RECORD_WHOLLY_DAMAGED;
	if (!status_known)
		return RECORD_STATUS_DAMAGED;
	if (r->run_problem[k->run] != NULL)
		return RECORD_RUN_DAMAGED;
	if (r->status[batch].state != BATCH_HELD)
		return RECORD_SOUND;
	if (k->metadata_crc32c != arrow_crc32c(0, data_at(r, k->position), XFER_BLOCK))
		return RECORD_METADATA_DAMAGED;
	return check_body(r, batch);
}

/*
 * Give a damaged batch its slots, so that its bytes can be saved, if they are known and no sound
 * batch refers to one of them.
 */
static void
find_slots(struct journal *r, uint32_t batch)
{
	struct iovec part[JOURNAL_REFERENCES];

	if (r->is[batch] == RECORD_SOUND || !record_is_known(r->is[batch]) ||
		r->status[batch].state != BATCH_HELD || r->known[batch].nb_references == 0)
		return;
	if (journal_references_open(r, batch, part) >= 0)
		(void)journal_slots_hold(r, batch, part);
}

/* Check that the held batches do not overlap and fit into the capacity together. */
static bool
positions_fit(const struct journal *r, uint32_t n)
{
	const struct ring_batch *k;
	uint64_t end = r->tail;
	uint32_t i;

	for (i = 0; i < n; i++) {
		k = &r->known[r->taken[i].batch];
		if (k->position < end)
			return false;
		end = end_of(k);
	}
	return r->head - r->tail <= r->data_size;
}

static uint16_t
known_stores(const struct journal *r)
{
	uint16_t bits = 0;
	unsigned int i;

	for (i = 0; i < JOURNAL_STORES; i++)
		bits |= (uint16_t)(r->store[i].status != 0) << i;
	return bits;
}

/*
 * Read the status of a record. A store that is not known owns no batch, unless it may have a copy.
 * A batch in doubt is free if no other store than its owner may have it: a process was killed
 * before it freed the record.
 * @return false: it is damaged. It then counts as held, since this loses nothing
 */
static bool
read_status(struct journal *r, uint32_t batch, uint16_t known)
{
	struct batch_status *s = &r->status[batch];
	uint32_t value;
	const int wrong = journal_status_open(r->batch[batch].status, &value);

	*s = (struct batch_status){
		.state = value & 0xff, .owner = value >> 8 & 0xff, .given = value >> 16};
	r->stats.corrected += wrong == 1;
	if (wrong < 0 || s->state > BATCH_IN_DOUBT) {
		*s = (struct batch_status){.state = BATCH_HELD, .owner = JOURNAL_NOBODY};
		return false;
	}
	if (s->owner < JOURNAL_STORES ? ((known | s->given) & 1u << s->owner) == 0
				      : s->owner != JOURNAL_SPILL && s->owner != JOURNAL_NOBODY)
		s->owner = JOURNAL_NOBODY;
	if (s->state == BATCH_IN_DOUBT && others_given(*s) == 0)
		s->state = BATCH_FREE;
	if (s->state == BATCH_FREE)
		*s = (struct batch_status){.state = BATCH_FREE};
	return true;
}

void
journal_repair(struct journal *r)
{
	uint32_t i;

	if (r->repaired)
		return;
	r->repaired = true;
	for (i = 0; i < r->nb_batches; i++) {
		if (r->is[i] != RECORD_SOUND)
			continue;
		if (r->status[i].state != BATCH_FREE)
			(void)journal_record_repair(r, i);
		else if (r->batch[i].status != batch_status_seal(r->status[i]))
			put_status(r, i, r->status[i]);
	}
	journal_runs_repair(r);
	journal_stores_repair(r);
}

static void
read_stores(struct journal *r)
{
	unsigned int i;

	for (i = 0; i < JOURNAL_STORES; i++)
		r->stats.corrected += journal_store_read(&r->header->store[i], &r->store[i]);
}

/* Batches were sent to these stores, but no record says which stores they are. */
static void
find_lost_stores(struct journal *r, uint16_t lost)
{
	unsigned int i;

	for (i = 0; i < JOURNAL_STORES; i++) {
		if ((lost & 1u << i) != 0)
			r->store[i] = (struct store){.status = STORE_USED,
				.problem = "batches were sent to it, but its record is free"};
	}
}

/* Add a sound batch to the state that is not in the file. @param n  number of held batches */
static void
add_batch(struct journal *r, uint32_t index, uint32_t *n)
{
	const struct ring_batch *k = &r->known[index];
	const bool held = r->status[index].state == BATCH_HELD;

	r->references[k->run]++;
	if (end_of(k) > r->head)
		r->head = end_of(k);
	r->held[k->run] += held;
	if (held)
		r->taken[(*n)++] = (struct taken){k->position, index};
	else
		r->stats.in_doubt++;
}

/*
 * Find the batches that are held or in doubt, without changing the file.
 * @return number of held batches
 */
static uint32_t
find_batches(struct journal *r)
{
	const uint16_t known = known_stores(r);
	uint32_t i, n = 0;
	uint16_t given = 0;
	bool status_known;

	/* in descending order, so that low numbers are allocated first */
	for (i = r->nb_batches; i-- > 0;) {
		status_known = read_status(r, i, known);
		if (r->status[i].state != BATCH_FREE)
			r->is[i] = check_record(r, i, status_known);
		given |= r->status[i].given;
		if (r->status[i].state == BATCH_FREE)
			r->free_batch[r->nb_free++] = i;
		else if (r->is[i] == RECORD_SOUND)
			add_batch(r, i, &n);
		else
			r->nb_damaged++;
	}
	for (i = 0; i < r->nb_batches && r->nb_damaged > 0; i++)
		find_slots(r, i);
	journal_slots_find(r);
	r->stats.damaged = r->nb_damaged;
	find_lost_stores(r, given & ~known);
	qsort(r->taken, n, sizeof(*r->taken), by_position);
	r->taken_head = n;
	r->tail = n > 0 ? r->taken[0].position : r->head;
	return n;
}

/*
 * Rebuild the state that is not in the file.
 * @param only_sound  refuse a damaged run or store
 */
static int
rebuild(struct journal *r, const char *path, bool only_sound, char *message)
{
	unsigned int i;
	uint32_t n;
	int ret;

	r->taken = calloc(r->nb_batches + 1, sizeof(*r->taken));
	r->free_batch = calloc(r->nb_batches, sizeof(*r->free_batch));
	r->is = calloc(r->nb_batches, sizeof(*r->is));
	r->status = calloc(r->nb_batches, sizeof(*r->status));
	r->known = aligned_alloc(sizeof(*r->known), r->nb_batches * sizeof(*r->known));
	r->copies_stay = calloc(r->nb_batches, sizeof(*r->copies_stay));
	if (r->taken == NULL || r->free_batch == NULL || r->is == NULL || r->status == NULL ||
		r->known == NULL || r->copies_stay == NULL || journal_area_create(r) < 0) {
		snprintf(message, PATH_MAX, "cannot allocate a list of %u batches", r->nb_batches);
		return -ENOMEM;
	}
	memset(r->known, 0, r->nb_batches * sizeof(*r->known));
	ret = journal_runs_read(r);
	if (ret < 0) {
		snprintf(message, PATH_MAX, "cannot allocate the schemas of runs");
		return ret;
	}
	ret = only_sound ? refuse_runs(r, path, message) : 0;
	if (ret < 0)
		return ret;
	read_stores(r);
	n = find_batches(r);
	journal_runs_count(r);
	for (i = 0; i < JOURNAL_STORES && only_sound; i++) {
		if (r->store[i].problem != NULL)
			return refuse_store(path, i, r->store[i].problem, message);
	}
	if (!positions_fit(r, n)) {
		snprintf(message, PATH_MAX,
			"journal %.3000s is damaged: batches overlap. Move it away to create a "
			"new one",
			path);
		return -EBADMSG;
	}
	r->stats.batches = n;
	r->stats.adopted = n;
	r->stats.bytes = r->head - r->tail;
	r->stats.room = r->data_size;
	r->next = r->head;
	journal_grant(r);
	return 0;
}

/* Whether a number is 0, or as in a complete header. */
static bool
is_begun(uint64_t found, uint64_t expected)
{
	return found == 0 || found == expected;
}

/*
 * Whether a header without magic is that of an unfinished file: its creator was killed while it
 * wrote the header, so each number may be missing.
 */
static bool
header_is_begun(const struct ring_header *h, uint64_t size)
{
	static const uint8_t zeros[sizeof(*h) - offsetof(struct ring_header, store)];
	struct ring_header made = {.nb_batches = h->nb_batches};

	if (h->nb_batches > JOURNAL_BATCHES)
		return false;
	(void)lay_out_parts(&made);
	return (h->version == 0 || version_is_known(h->version)) && is_begun(h->size, size) &&
		is_begun(h->ledger_at, made.ledger_at) && is_begun(h->runs_at, made.runs_at) &&
		is_begun(h->batches_at, made.batches_at) && h->data_at <= size &&
		h->data_size <= size && slot_bytes(h) <= size &&
		memcmp(h->store, zeros, sizeof(zeros)) == 0;
}

/* Whether the file has only zeros after its header, as far as any runs and batches can be. */
static bool
parts_are_empty(int fd, uint64_t size)
{
	static const uint8_t zeros[16 * XFER_BLOCK];
	struct ring_header largest = {.nb_batches = JOURNAL_BATCHES};
	const uint64_t all = lay_out_parts(&largest), end = all < size ? all : size;
	uint8_t bytes[sizeof(zeros)];
	uint64_t at;
	ssize_t n;

	for (at = sizeof(struct ring_header); at < end; at += (uint64_t)n) {
		n = pread(
			fd, bytes, end - at < sizeof(bytes) ? end - at : sizeof(bytes), (off_t)at);
		if (n <= 0 || memcmp(bytes, zeros, (size_t)n) != 0)
			return false;
	}
	return true;
}

/* @param c  NULL: accept any receiver. @return 1: a journal; 0: no file content; -errno */
static int
read_header(int fd, const char *path, const struct journal_config *c, uint64_t size,
	struct ring_header *h, char *message)
{
	int ret;

	if (size == 0)
		return 0;
	if (pread(fd, h, sizeof(*h), 0) != sizeof(*h) ||
		(h->magic != 0 && h->magic != RING_MAGIC)) {
		snprintf(message, PATH_MAX,
			"%.3000s is not a journal, and is not overwritten; "
			"move it away or set another path",
			path);
		return -EINVAL;
	}
	if (h->magic == 0) {
		/* the process that created the file was killed before it had finished */
		if (header_is_begun(h, size) && parts_are_empty(fd, size))
			return 0;
		snprintf(message, PATH_MAX,
			"%.3000s begins with zeros but is not empty: it is a damaged journal, or "
			"none. It is not overwritten; move it away or set another path",
			path);
		return -EBADMSG;
	}
	ret = check_header(h, path, size, message);
	if (ret == 0 && c != NULL)
		ret = check_receiver_id(h, c, message);
	if (ret == 0 && c != NULL)
		ret = check_header_stores(h, path, message);
	return ret < 0 ? ret : 1;
}

/* A copy that was incomplete when its process died is overwritten next. */
static void
read_ledgers(struct journal *r)
{
	const struct ring_ledger *const copy = r->ledger;
	struct ring_ledger l;
	int wrong, corrected = 0;
	unsigned int i;

	for (i = 0; i < 2; i++) {
		l = copy[i];
		wrong = journal_bytes_open(
			&l.size, sizeof(l) - offsetof(struct ring_ledger, size), &l.crc);
		if (wrong < 0 || l.number % 2 != i || l.size > sizeof(l.bytes) ||
			l.number <= r->newest.number)
			continue;
		corrected = wrong;
		r->newest = l;
	}
	r->stats.corrected += corrected;
	/* copy 1 is the first one, and the checksum is written last */
	r->ledger_lost = r->newest.number == 0 && (copy[0].number != 0 || copy[1].crc != 0);
}

/* A file may have more slots, because its size is rounded up. */
static bool
area_is_as_configured(const struct journal *r, const struct journal_config *c)
{
	return r->slot_bytes == c->slot_bytes && r->nb_slots >= c->slots;
}

/* @return as snprintf(3) */
static int
print_area(char *text, size_t size, uint32_t slots, uint64_t bytes)
{
	if (slots == 0)
		return snprintf(text, size, "no output slots");
	return snprintf(
		text, size, "%u output slots of %llu bytes", slots, (unsigned long long)bytes);
}

/* @param c  NULL: accept any receiver. @return 1: adopted; 0: no file content; -errno */
static int
adopt(struct journal *r, const char *path, const struct journal_config *c, uint64_t size,
	char *message)
{
	struct ring_header h;
	int ret = read_header(r->fd, path, c, size, &h, message);
	size_t n;

	if (ret <= 0)
		return ret;
	ret = map_file(r, size, h.data_at);
	if (ret < 0) {
		snprintf(message, PATH_MAX,
			"cannot allocate and map all %llu bytes of the journal %.3000s: %s. "
			"Enlarge its file system (mount -o remount,size=... of a tmpfs, more huge "
			"pages), or remove other files there%s",
			(unsigned long long)size, path, strerror(-ret),
			c == NULL ? ", or copy the journal to a larger file system" : "");
		return ret;
	}
	find_parts(r, &h);
	read_ledgers(r);
	ret = rebuild(r, path, c != NULL, message);
	if (ret < 0)
		return ret;
	n = snprintf(message, PATH_MAX,
		"resumed %llu batches of %.3000s, %llu in doubt; %llu damaged, %llu corrected",
		(unsigned long long)r->stats.batches, path, (unsigned long long)r->stats.in_doubt,
		(unsigned long long)r->stats.damaged, (unsigned long long)r->stats.corrected);
	if (c != NULL && !area_is_as_configured(r, c)) {
		n += snprintf(message + n, PATH_MAX - n, "; it has ");
		n += print_area(message + n, PATH_MAX - n, r->nb_slots, r->slot_bytes);
		n += snprintf(message + n, PATH_MAX - n, ", configured ");
		(void)print_area(message + n, PATH_MAX - n, c->slots, c->slot_bytes);
	}
	return 1;
}

const char *
journal_default_path(void)
{
	static char path[128];

	snprintf(path, sizeof(path), "%s/journal", own_memory_folder());
	return path;
}

/*
 * Open the folder of a file.
 * @param make  create the folder of the default path
 * @return as own_folder_open()
 */
static int
open_folder(const char *path, bool make, char *message)
{
	char copy[PATH_MAX];

	if (strcmp(path, journal_default_path()) == 0) {
		return make ? own_folder_make(own_memory_folder(), OWN_FOLDER_PRIVATE, message)
			    : own_folder_open(own_memory_folder(), OWN_FOLDER_PRIVATE, message);
	}
	snprintf(copy, sizeof(copy), "%s", path);
	return own_folder_open(dirname(copy), OWN_FOLDER_NAMED, message);
}

/* Open a file, or create it with O_EXCL, because other users may write to the folder. */
static int
open_or_create(int folder, const char *name, bool create)
{
	unsigned int tries;
	int fd;

	for (tries = 0; tries < 3; tries++) {
		fd = own_file_open(folder, name, O_RDWR, 0);
		if (fd != -ENOENT || !create)
			return fd;
		fd = own_file_open(folder, name, O_RDWR | O_CREAT | O_EXCL, OWN_SECRET_MODE);
		if (fd != -EEXIST)
			return fd;
	}
	return -EEXIST;
}

/* Open and lock a file. After an error, *fd may be open as well. */
static int
open_file(int *fd, const char *path, bool create, unsigned int wait_ms, struct stat *st,
	char *message)
{
	const int folder = open_folder(path, create, message);
	char copy[PATH_MAX];
	int ret;

	*fd = -1;
	if (folder < 0)
		return folder;
	snprintf(copy, sizeof(copy), "%s", path);
	*fd = open_or_create(folder, basename(copy), create);
	close(folder);
	if (*fd < 0) {
		snprintf(message, PATH_MAX, "cannot open journal %.3000s: %s", path,
			own_file_error(*fd));
		return *fd;
	}
	ret = own_file_check(*fd, path, 077, message);
	if (ret < 0)
		return ret;
	ret = file_lock(*fd, wait_ms);
	if (ret < 0) {
		snprintf(message, PATH_MAX, "journal %.3000s is locked by another process%s: %s",
			path,
			ret == -EBUSY ? " (or by a killed process that still waits for its disk)"
				      : "",
			strerror(-ret));
		return ret;
	}
	/* read the status again: under the lock, no other process changes the file */
	if (fstat(*fd, st) == 0)
		return 0;
	ret = -errno;
	snprintf(message, PATH_MAX, "cannot get the status of journal %.3000s: %s", path,
		strerror(-ret));
	return ret;
}

/* Require a file system that survives the process but not the machine. @return 0 or -errno */
static int
check_file_system(const char *path, int error, const struct statfs *fs, char *message)
{
	if (error != 0) {
		snprintf(message, PATH_MAX, "cannot open journal %.3000s: %s", path,
			strerror(error));
		return -error;
	}
	if (fs->f_type == TMPFS_MAGIC || fs->f_type == HUGETLBFS_MAGIC)
		return 0;
	snprintf(message, PATH_MAX,
		"journal %.3000s is not in memory: expected a path in a tmpfs or hugetlbfs", path);
	return -EINVAL;
}

/* Page size: on a hugetlbfs, that of its huge pages. */
static uint64_t
page_of(const struct statfs *fs)
{
	return (uint64_t)fs->f_bsize > XFER_BLOCK ? (uint64_t)fs->f_bsize : XFER_BLOCK;
}

static void
print_created(const struct journal *r, const char *path, char *message)
{
	const size_t n = snprintf(message, PATH_MAX, "%.3000s: created, %llu bytes for batches",
		path, (unsigned long long)r->data_size);

	if (r->nb_slots > 0) {
		snprintf(message + n, PATH_MAX - n, ", ");
		(void)print_area(message + n + 2, PATH_MAX - n - 2, r->nb_slots, r->slot_bytes);
	}
}

int
journal_open(struct journal **ring, const struct journal_config *c, char message[PATH_MAX])
{
	struct journal *r = calloc(1, sizeof(*r));
	struct statfs fs;
	struct stat st;
	int ret;

	snprintf(message, PATH_MAX, "cannot allocate a journal");
	if (r == NULL)
		return -ENOMEM;
	r->step = c->step;
	r->step_arg = c->step_arg;
	ret = open_file(&r->fd, c->path, true, FILE_LOCK_MS, &st, message);
	if (ret == 0)
		ret = check_file_system(c->path, fstatfs(r->fd, &fs) < 0 ? errno : 0, &fs, message);
	if (ret == 0)
		ret = adopt(r, c->path, c, st.st_size, message);
	if (ret == 0) {
		ret = create(r, c, page_of(&fs), message);
		if (ret == 0) {
			find_parts(r, r->header);
			ret = rebuild(r, c->path, true, message);
		}
		if (ret == 0)
			print_created(r, c->path, message);
	}
	if (ret < 0) {
		journal_close(r);
		return ret;
	}
	journal_repair(r);
	/* first: an older program cannot read every batch that is added from now on */
	PUT(r->header->version, RING_VERSION);
	step(r);
	*ring = r;
	return ret;
}

int
journal_open_existing(struct journal **ring, const char *path, char message[PATH_MAX])
{
	struct journal *r = calloc(1, sizeof(*r));
	struct stat st;
	int ret;

	snprintf(message, PATH_MAX, "cannot allocate a journal");
	if (r == NULL)
		return -ENOMEM;
	ret = open_file(&r->fd, path, false, FILE_LOCK_MS, &st, message);
	if (ret == 0) {
		ret = adopt(r, path, NULL, st.st_size, message);
		if (ret == 0) {
			snprintf(message, PATH_MAX, "%.3000s is not a journal", path);
			ret = -EINVAL;
		}
	}
	if (ret < 0) {
		journal_close(r);
		return ret;
	}
	*ring = r;
	return 0;
}

/* Check the folder of a file that does not exist. @return 0 or errno */
static int
check_folder(const char *path, struct statfs *fs)
{
	char copy[PATH_MAX];
	const char *folder;

	snprintf(copy, sizeof(copy), "%s", path);
	folder = dirname(copy);
	/* the default folder is created when it is needed */
	if (strcmp(path, journal_default_path()) == 0 && access(folder, F_OK) < 0)
		folder = dirname(copy);
	return access(folder, W_OK | X_OK) < 0 || statfs(folder, fs) < 0 ? errno : 0;
}

/*
 * Count the slots that held batches refer to, by their records alone. Batches whose record is
 * damaged do not count: a receiver frees their slots when it starts.
 */
static uint32_t
count_held_slots(int fd, const struct ring_header *h)
{
	struct ring_batch record[128];
	uint32_t batch, i, n, status, held = 0;

	for (batch = 0; batch < h->nb_batches && h->slot_blocks > 0; batch += n) {
		n = h->nb_batches - batch < 128 ? h->nb_batches - batch : 128;
		if (pread(fd, record, n * sizeof(*record),
			    (off_t)(h->batches_at + batch * sizeof(*record))) !=
			(ssize_t)(n * sizeof(*record)))
			break;
		for (i = 0; i < n; i++) {
			if (journal_status_open(record[i].status, &status) >= 0 &&
				(status & 0xff) == BATCH_HELD &&
				journal_record_open(&record[i]) >= 0)
				held += record[i].nb_references;
		}
	}
	return held < nb_slots(h) ? held : nb_slots(h);
}

int
journal_probe(const struct journal_config *c, struct journal_probe *to, char message[PATH_MAX])
{
	struct ring_header h;
	struct stat st = {0};
	struct statfs fs;
	int fd, ret, error;

	ret = open_file(&fd, c->path, false, 0, &st, message);
	if (ret < 0 && ret != -ENOENT)
		goto out;
	if (ret == 0)
		error = fstatfs(fd, &fs) < 0 ? errno : 0;
	else
		error = check_folder(c->path, &fs);
	ret = check_file_system(c->path, error, &fs, message);
	if (ret == 0)
		ret = read_header(fd, c->path, c, st.st_size, &h, message);
	*to = (struct journal_probe){.adopts = ret == 1, .free = UINT64_MAX};
	if (ret == 1)
		to->slots_held = count_held_slots(fd, &h);
	if (ret == 0)
		ret = lay_out(&h, c, page_of(&fs), message);
	if (ret < 0)
		goto out;
	ret = 0;
	to->room = h.data_size;
	to->file = h.size;
	to->slot_bytes = slot_bytes(&h);
	to->slots = nb_slots(&h);
	/* an incomplete file is created again, so its blocks count as free */
	if (fs.f_blocks > 0)
		to->free = (uint64_t)fs.f_bavail * fs.f_bsize + (uint64_t)st.st_blocks * 512;
out:
	if (fd >= 0)
		close(fd);
	return ret;
}

uint64_t
journal_receiver_id(const struct journal *r)
{
	return r->header->receiver_id;
}

void
journal_close(struct journal *r)
{
	if (r == NULL)
		return;
	if (r->map != NULL)
		munmap(r->map, r->size);
	if (r->fd >= 0)
		close(r->fd);
	free(r->taken);
	free(r->free_batch);
	free(r->is);
	free(r->status);
	free(r->known);
	free(r->copies_stay);
	journal_area_destroy(r);
	journal_runs_free(r);
	free(r);
}

void
journal_memory(const struct journal *r, void **addr, uint64_t *size)
{
	*addr = r->map;
	*size = r->size;
}
