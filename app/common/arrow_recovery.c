/* SPDX-License-Identifier: BSD-3-Clause */

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arrow_name.h"
#include "arrow_recovery.h"
#include "arrow_tables.h"
#include "direct_io.h"

#define PART		 ".part"
#define QUARANTINE	 ".quarantine"
#define PLAN		 ".recovery"
#define WRITE_MAX	 (UINT64_C(64) << 20) /* bytes of one write */
#define COMPARE_MAX	 (UINT64_C(1) << 20)  /* bytes that are looked at at once */
#define HOLES_MAX	 (UINT64_C(1) << 30)  /* bytes that need not be allocated, */
#define HOLES_TIMES	 64		      /* and for each one that is (compression) */
#define CALIBRATION_PART "_calibration.bin.part"

static const char out_of_order[] = "a batch out of order, or of another stream";
static const char unreadable[] = "the disk cannot read it";

static uint64_t
batch_end(const struct arrow_read_batch *b)
{
	return b->offset + b->metadata_size + b->body_length;
}

static bool
is_unreadable(const struct arrow_reader *r, uint64_t at, uint64_t size)
{
	return r->window != NULL && arrow_window_is_unreadable(r->window, at, size);
}

/* What is wrong with a batch, whatever is before and behind it. */
static const char *
find_fault(const struct arrow_reader *r, const struct arrow_read_batch *b)
{
	struct arrow_column column;
	unsigned int k;

	if (b->offset % ARROW_BLOCK != 0 || b->metadata_size % ARROW_BLOCK != 0 ||
		b->body_length % ARROW_BLOCK != 0)
		return "a batch that is not made of whole blocks";
	if (!arrow_read_has_identity(r, b))
		return "a batch without identity";
	if (arrow_read_crc(r, b) != 1)
		return is_unreadable(r, b->offset, batch_end(b) - b->offset)
			? unreadable
			: "a batch with a wrong CRC-32C";
	for (k = 0; k < r->schema.nb_fields; k++) {
		if (arrow_read_column(r, b, k, &column) < 0)
			return "a batch whose columns do not agree with the schema";
	}
	return NULL;
}

const char *
arrow_recovery_check(struct arrow_reader *r, size_t i)
{
	r->batches[i].fault = find_fault(r, &r->batches[i]);
	return r->batches[i].fault;
}

/* Where batches are, by stream and then by place. */
static int
by_stream(const void *x, const void *y, void *arg)
{
	const struct arrow_read_batch *batch = arg;
	const size_t i = *(const size_t *)x, k = *(const size_t *)y;
	const struct arrow_read_batch *a = &batch[i], *b = &batch[k];
	int rc = strcmp(a->producer, b->producer);

	if (rc == 0)
		rc = strcmp(a->run, b->run);
	if (rc == 0)
		rc = strcmp(a->incarnation, b->incarnation);
	return rc != 0 ? rc : i < k ? -1 : i > k;
}

static bool
is_same_stream(const struct arrow_read_batch *a, const struct arrow_read_batch *b)
{
	return strcmp(a->producer, b->producer) == 0 && strcmp(a->run, b->run) == 0 &&
		strcmp(a->incarnation, b->incarnation) == 0;
}

/* The longest ascending subsequence of the batches that `place` has: of those that end a
 * subsequence of n batches, `tail` has the one with the lowest number.
 * @param before  out: of each batch, the one before it in the best subsequence that it ends
 * @return batches that it has; *last is the last one of them */
static size_t
longest_chain(const struct arrow_read_batch *b, const size_t *place, size_t nb, size_t *tail,
	size_t *before, size_t *last)
{
	size_t length = 0, i, low, high, middle;

	for (i = 0; i < nb; i++) {
		for (low = 0, high = length; low < high;) {
			middle = (low + high) / 2;
			/* sequence numbers have a fixed width */
			if (strcmp(b[tail[middle]].sequence, b[place[i]].sequence) < 0)
				low = middle + 1;
			else
				high = middle;
		}
		before[place[i]] = low > 0 ? tail[low - 1] : SIZE_MAX;
		tail[low] = place[i];
		if (low == length)
			length++;
	}
	*last = tail[length - 1];
	return length;
}

/* Of the streams the one with the longest chain stays. */
static int
keep_longest(struct arrow_reader *r, size_t nb)
{
	size_t *place = malloc(3 * r->nb_batches * sizeof(*place));
	size_t *tail = place + r->nb_batches, *before = tail + r->nb_batches;
	size_t i, first, length, last, best = 0, best_last = SIZE_MAX;
	struct arrow_read_batch *b = r->batches;

	if (place == NULL)
		return -ENOMEM;
	for (i = 0, nb = 0; i < r->nb_batches; i++) {
		if (b[i].fault == NULL)
			place[nb++] = i;
	}
	qsort_r(place, nb, sizeof(*place), by_stream, b);
	for (first = 0; first < nb; first = i) {
		for (i = first + 1; i < nb && is_same_stream(&b[place[first]], &b[place[i]]);)
			i++;
		length = longest_chain(b, place + first, i - first, tail, before, &last);
		/* of as many the ones that begin the file */
		if (length > best || (length == best && last < best_last)) {
			best = length;
			best_last = last;
		}
	}
	for (i = 0; i < nb; i++)
		b[place[i]].fault = out_of_order;
	for (i = best_last; i != SIZE_MAX; i = before[i])
		b[i].fault = NULL;
	free(place);
	return 0;
}

int
arrow_recovery_order(struct arrow_reader *r)
{
	const struct arrow_read_batch *last = NULL;
	bool ascends = true;
	size_t i, nb = 0;

	for (i = 0; i < r->nb_batches; i++) {
		if (r->batches[i].fault != NULL)
			continue;
		/* files of others have no order that is known */
		if (!arrow_read_has_identity(r, &r->batches[i]))
			return 0;
		ascends &= last == NULL || arrow_read_follows(&r->batches[i], last);
		last = &r->batches[i];
		nb++;
	}
	return ascends ? 0 : keep_longest(r, nb);
}

/* What lies between two batches that stay: batches with whole announcements, and the rest. */
static int
keep_damage(struct arrow_reader *r, uint64_t at, uint64_t end)
{
	struct arrow_read_damage d;
	int rc = 0;

	while (at < end && rc == 0) {
		d = (struct arrow_read_damage){
			.offset = at, .length = end - at, .why = ARROW_NO_ANNOUNCEMENT};
		/* one that ends where nothing ends was moved here, or what follows it was */
		if (arrow_reader_announced(r, at, &d.batch) == 1 && batch_end(&d.batch) <= end) {
			d.announced = true;
			d.length = batch_end(&d.batch) - at;
			d.why = "a batch with a wrong CRC-32C";
		} else {
			memset(&d.batch, 0, sizeof(d.batch));
			do
				at += ARROW_BLOCK;
			while (at < end && arrow_reader_announced(r, at, &d.batch) != 1);
			d.length = at - d.offset;
			memset(&d.batch, 0, sizeof(d.batch));
		}
		if (is_unreadable(r, d.offset, d.length))
			d.why = unreadable;
		at = d.offset + d.length;
		rc = arrow_reader_keep_damage(r, &d);
	}
	return rc;
}

static bool
is_stopped(const bool *stop)
{
	return stop != NULL && __atomic_load_n(stop, __ATOMIC_RELAXED);
}

/* Bytes that it takes to judge a batch: those of its body, and of its offsets again. */
static uint64_t
check_bytes(const struct arrow_reader *r, const struct arrow_read_batch *b)
{
	const uint64_t offsets = b->rows < b->body_length ? b->rows * sizeof(int32_t) : 0;

	return b->metadata_size + b->body_length + r->schema.nb_fields * offsets;
}

/* Whatever announces itself as a batch and is right, into `batches`; what is in it is its own. */
static int
collect_batches(struct arrow_reader *r, const bool *stop, uint64_t *looked)
{
	const uint64_t most = arrow_recovery_most(r->size);
	struct arrow_read_batch b;
	uint64_t at = r->begin;
	int rc = 0;

	while (rc == 0 && arrow_reader_next(r, &at, &b) && !is_stopped(stop)) {
		if (batch_end(&b) > r->size) {
			at += ARROW_BLOCK;
			continue;
		}
		*looked += check_bytes(r, &b);
		if (*looked > most)
			return -EFBIG;
		if (find_fault(r, &b) != NULL) {
			/* what it is taken for may be another's */
			at += ARROW_BLOCK;
			continue;
		}
		rc = arrow_reader_keep(r, &b);
		at = batch_end(&b);
	}
	return rc;
}

/* What the disk cannot read may be read later: it is not cut off. */
static uint64_t
unreadable_end(const struct arrow_reader *r)
{
	return r->window != NULL ? arrow_window_unreadable_end(r->window) : 0;
}

/* A file without a footer: the announcement of a batch may be another's. So a batch is one only if
 * its body is right; what does not belong to one is damaged. */
static int
walk_sound(struct arrow_reader *r, const bool *stop, uint64_t *looked)
{
	struct arrow_read_batch *found;
	struct arrow_read_damage d;
	uint64_t at = r->begin, end;
	size_t i, nb;
	int rc;

	r->nb_batches = 0;
	r->nb_damage = 0;
	rc = collect_batches(r, stop, looked);
	if (rc == 0)
		rc = arrow_recovery_order(r);
	/* they are sorted into batches and damage; the arrays double when they are empty */
	found = r->batches;
	nb = r->nb_batches;
	r->batches = NULL;
	r->nb_batches = 0;
	for (i = 0; i < nb && rc == 0; i++) {
		rc = keep_damage(r, at, found[i].offset);
		at = batch_end(&found[i]);
		d = (struct arrow_read_damage){
			.offset = found[i].offset,
			.length = at - found[i].offset,
			.why = found[i].fault,
			.announced = true,
			.batch = found[i],
		};
		if (rc == 0)
			rc = found[i].fault == NULL ? arrow_reader_keep(r, &found[i])
						    : arrow_reader_keep_damage(r, &d);
	}
	free(found);
	end = unreadable_end(r) > r->end ? unreadable_end(r) : r->end;
	if (end > at && rc == 0)
		rc = keep_damage(r, at, end);
	return rc;
}

/* Until somebody says that it is to stop: then what was found is worth nothing. */
static int
scan_until(struct arrow_reader *r, const bool *stop, uint64_t *looked)
{
	size_t i;
	int rc;

	if (!r->complete && arrow_reader_meta(r, ARROW_META_TABLE) != NULL)
		return walk_sound(r, stop, looked);
	for (i = 0; i < r->nb_batches && !is_stopped(stop); i++) {
		*looked += check_bytes(r, &r->batches[i]);
		(void)arrow_recovery_check(r, i);
	}
	rc = arrow_recovery_order(r);
	return rc < 0 ? rc : arrow_reader_part(r);
}

int
arrow_recovery_scan(struct arrow_reader *r)
{
	uint64_t looked = 0;

	return scan_until(r, NULL, &looked);
}

/* Whether the first block is what was written. */
static bool
header_is_whole(const struct arrow_reader *r)
{
	const char *digits = arrow_reader_meta(r, ARROW_META_HEADER);
	char crc[9];

	/* without its metadata it would pass as a schema that has none */
	if (digits == NULL || strlen(digits) != 8)
		return false;
	/* texts lie in the file */
	snprintf(crc, sizeof(crc), "%08x",
		arrow_metadata_crc(r->data, r->begin, (const uint8_t *)digits - r->data));
	return strcmp(crc, digits) == 0;
}

/* Value of ARROW_KEY_DAMAGED for damage in front of `end`. @return NULL: no memory */
static char *
mark_damage(const struct arrow_reader *r, uint64_t end)
{
	const size_t entry = 2 * 21 + 17; /* two numbers, a sequence number, separators */
	const struct arrow_read_damage *d;
	char *text = malloc(r->nb_damage * entry + 1);
	size_t i, at = 0;

	if (text == NULL)
		return NULL;
	text[0] = '\0';
	for (i = 0; i < r->nb_damage && r->damage[i].offset < end; i++) {
		d = &r->damage[i];
		at += snprintf(text + at, r->nb_damage * entry + 1 - at,
			"%s%" PRIu64 ":%" PRIu64 ":%s", at > 0 ? "," : "", d->offset, d->length,
			d->announced ? d->batch.sequence : "-");
	}
	return text;
}

/* The trailer of a file that ends behind its first `nb` batches. */
static int
build_trailer(
	const struct arrow_reader *r, size_t nb, uint64_t end, uint8_t **trailer, size_t *size)
{
	struct arrow_block *blocks = malloc((nb + 1) * sizeof(*blocks));
	char *damaged = mark_damage(r, end);
	int rc = -ENOMEM;
	size_t i;

	if (blocks != NULL && damaged != NULL) {
		for (i = 0; i < nb; i++)
			blocks[i] = (struct arrow_block){r->batches[i].offset,
				r->batches[i].metadata_size, r->batches[i].body_length};
		rc = arrow_trailer_build(
			&r->schema, blocks, nb, damaged[0] != '\0' ? damaged : NULL, trailer, size);
	}
	free(blocks);
	free(damaged);
	return rc;
}

const char *
arrow_recovery_frame_fault(const struct arrow_reader *r)
{
	const char *version = arrow_reader_meta(r, ARROW_META_VERSION);
	uint8_t *trailer;
	bool whole;
	size_t size;

	if (!header_is_whole(r))
		return "its schema is damaged";
	/* what was damaged since it was written is still listed there */
	if (!r->complete || r->nb_damage > 0 || version == NULL ||
		strcmp(version, BRAGGLINE_VERSION) != 0 ||
		build_trailer(r, r->nb_batches, r->end, &trailer, &size) < 0)
		return NULL;
	whole = r->size - r->end == size;
	if (whole) {
		arrow_reader_load(r, r->data + r->end, size);
		whole = memcmp(r->data + r->end, trailer, size) == 0;
	}
	free(trailer);
	return whole ? NULL : "its footer is damaged";
}

/* Write everything at `offset`, whole blocks, and wait for it. */
static int
write_at(const struct arrow_io_ops *io, void *handle, const uint8_t *data, uint64_t size,
	uint64_t offset)
{
	struct arrow_io_done done;
	struct iovec iov;
	int rc = 0;

	while (size > 0 && rc == 0) {
		/* iovec has no const */
		iov = (struct iovec){(void *)(uintptr_t)data, size < WRITE_MAX ? size : WRITE_MAX};
		rc = io->write(handle, &iov, 1, offset, 0);
		if (rc == 0)
			rc = io->reap(handle, true, &done);
		rc = rc < 0 ? rc : done.error;
		data += iov.iov_len;
		size -= iov.iov_len;
		offset += iov.iov_len;
	}
	return rc;
}

static int
sync_file(const struct arrow_io_ops *io, void *handle)
{
	struct arrow_io_done done;
	int rc;

	rc = io->sync(handle, 0);
	if (rc == 0)
		rc = io->reap(handle, true, &done);
	return rc < 0 ? rc : done.error;
}

/* What a file has, read as it is asked for. */
struct content {
	const struct arrow_io_ops *io;
	void *handle;
	struct arrow_window *window; /* NULL: it is mapped, or there is nothing */
	const uint8_t *data;
	uint64_t size;
	uint64_t allocated;
};

static int64_t
read_content(void *arg, void *data, uint64_t size, uint64_t offset)
{
	const struct content *c = arg;

	return c->io->read(c->handle, data, size, offset);
}

static int
open_content(struct content *c, const struct arrow_io_ops *io, void *handle)
{
	int rc;

	*c = (struct content){.io = io, .handle = handle};
	if (io->read == NULL) {
		rc = io->map(handle, &c->data, &c->size);
		c->allocated = c->size;
		return rc;
	}
	rc = io->size(handle, &c->size, &c->allocated);
	if (rc == 0)
		rc = arrow_window_open(&c->window, c->size, read_content, c);
	if (rc == 0)
		c->data = arrow_window_data(c->window);
	return rc;
}

static void
close_content(struct content *c)
{
	arrow_window_close(c->window);
}

/* A reader that only has bytes. */
static struct arrow_reader
bytes_of(const struct content *c)
{
	return (struct arrow_reader){
		.data = c->data, .size = c->size, .written = c->size, .window = c->window};
}

/* Whether both have the same bytes. `b` NULL: `a` is compared with what is at `with`. */
static bool
has_bytes(const struct arrow_reader *a, uint64_t at, const struct arrow_reader *b,
	const uint8_t *with, uint64_t size)
{
	uint64_t done, part;

	for (done = 0; done < size; done += part) {
		part = size - done < COMPARE_MAX ? size - done : COMPARE_MAX;
		arrow_reader_load(a, a->data + at + done, part);
		if (b != NULL)
			arrow_reader_load(b, with + done, part);
		if (memcmp(a->data + at + done, with + done, part) != 0)
			return false;
	}
	return true;
}

/* Bytes that are to be in the quarantine file, in the order of the file. */
struct piece {
	uint64_t at;
	uint64_t size;
};

struct pieces {
	struct piece *piece;
	size_t nb;
	uint64_t bytes; /* of all, rounded up to whole blocks each */
};

static uint64_t
round_up(uint64_t size)
{
	return (size + ARROW_BLOCK - 1) / ARROW_BLOCK * ARROW_BLOCK;
}

/* Without the blocks of zeros at its end, which say nothing. */
static uint64_t
trim(const struct arrow_reader *r, uint64_t at, uint64_t size)
{
	uint64_t last;

	if (at + size > r->written)
		size = r->written > at ? r->written - at : 0;
	for (; size > 0; size = last) {
		last = (size - 1) / ARROW_BLOCK * ARROW_BLOCK;
		if (!arrow_reader_is_zero(r, at + last, size - last))
			break;
	}
	return size;
}

static void
add_piece(const struct arrow_reader *r, struct pieces *p, uint64_t at, uint64_t size)
{
	size = trim(r, at, size);
	if (size == 0)
		return;
	p->piece[p->nb++] = (struct piece){at, size};
	p->bytes += round_up(size);
}

/* Whether there is nothing but a part of a trailer that a crash has left, sectors of it maybe
 * zeros: it is still there when the trailer is whole. */
static bool
is_part_of(const struct arrow_reader *r, uint64_t at, uint64_t end, const uint8_t *trailer,
	size_t size)
{
	uint64_t k;

	for (k = 0; at + k < end && k < size; k++) {
		if (k % ARROW_BLOCK == 0)
			arrow_reader_load(r, r->data + at + k, ARROW_BLOCK);
		if (r->data[at + k] != trailer[k] && r->data[at + k] != 0)
			return false;
	}
	return at + k >= end || arrow_reader_is_zero(r, at + k, end - at - k);
}

/*
 * What is cut off at `end`, and is neither a sound batch nor a trailer.
 * @param nb       batches that stay
 * @param trailer  that is going to be there
 */
static int
list_pieces(const struct arrow_reader *r, size_t nb, uint64_t end, const uint8_t *trailer,
	size_t trailer_size, struct pieces *p)
{
	const uint64_t last = r->complete ? r->end : r->written;
	const struct arrow_read_batch *b;
	uint64_t at = end;
	size_t i;

	*p = (struct pieces){calloc(r->nb_batches - nb + 2, sizeof(*p->piece)), 0, 0};
	if (p->piece == NULL)
		return -ENOMEM;
	add_piece(r, p, 0, r->begin);
	for (i = nb; i < r->nb_batches; i++) {
		b = &r->batches[i];
		if (b->offset > at)
			add_piece(r, p, at, b->offset - at);
		at = batch_end(b);
	}
	if (at < last && (at != end || !is_part_of(r, at, last, trailer, trailer_size)))
		add_piece(r, p, at, last - at);
	if (p->nb == 1)
		p->nb = 0;
	return 0;
}

/* Name of a file beside another that is recovered. */
static int
name_beside(char path[PATH_MAX], const char *part, const char *hidden, const char *what)
{
	const char *slash = strrchr(part, '/');
	const int dir = slash != NULL ? (int)(slash + 1 - part) : 0;

	return snprintf(path, PATH_MAX, "%.*s%s%.*s%s", dir, part, hidden,
		       (int)(strlen(part) - strlen(PART)) - dir, part + dir, what) < PATH_MAX
		? 0
		: -ENAMETOOLONG;
}

/* Name of the n-th quarantine file of a file, from 1. */
static int
name_quarantine(char path[PATH_MAX], const char *part, const char *hidden, unsigned int n)
{
	char what[32] = QUARANTINE;

	if (n > 1)
		snprintf(what, sizeof(what), QUARANTINE ".%u", n);
	return name_beside(path, part, hidden, what);
}

/* Whether a file has just these bytes. @return 1, 0, -errno */
static int
has_pieces(const struct arrow_io_ops *io, const char *path, const struct arrow_reader *r,
	const struct pieces *p)
{
	const struct arrow_io_open how = {path, true, ARROW_IO_BUFFERED, 1};
	struct arrow_reader q;
	struct content c;
	uint64_t at = 0;
	void *handle;
	size_t i;
	int rc;

	rc = io->open(&handle, &how);
	if (rc < 0)
		return rc;
	rc = open_content(&c, io, handle);
	if (rc == 0) {
		q = bytes_of(&c);
		rc = c.size == p->bytes;
		for (i = 0; i < p->nb && rc == 1; i++) {
			rc = has_bytes(&q, at, r, r->data + p->piece[i].at, p->piece[i].size);
			at += round_up(p->piece[i].size);
		}
		/* no copy that can be relied on */
		if (rc == 1 && c.window != NULL && arrow_window_unreadable_end(c.window) > 0)
			rc = 0;
		close_content(&c);
	}
	(void)io->close(handle);
	return rc;
}

static int
write_piece(const struct arrow_io_ops *io, void *handle, const struct arrow_reader *r,
	const struct piece *p, uint64_t at)
{
	uint64_t done, part, whole = p->size / ARROW_BLOCK * ARROW_BLOCK;
	uint8_t last[ARROW_BLOCK] = {0};
	int rc = 0;

	for (done = 0; done < whole && rc == 0; done += part) {
		part = whole - done < COMPARE_MAX ? whole - done : COMPARE_MAX;
		arrow_reader_load(r, r->data + p->at + done, part);
		rc = write_at(io, handle, r->data + p->at + done, part, at + done);
	}
	if (rc < 0 || whole == p->size)
		return rc;
	arrow_reader_load(r, r->data + p->at + whole, p->size - whole);
	memcpy(last, r->data + p->at + whole, p->size - whole);
	return write_at(io, handle, last, sizeof(last), at + whole);
}

static int
write_pieces(const struct arrow_io_ops *io, void *handle, const struct arrow_reader *r,
	const struct pieces *p)
{
	uint64_t at = 0;
	int rc = 0;
	size_t i;

	for (i = 0; i < p->nb && rc == 0; i++) {
		rc = write_piece(io, handle, r, &p->piece[i], at);
		at += round_up(p->piece[i].size);
	}
	return rc == 0 ? sync_file(io, handle) : rc;
}

/* Put the pieces into a file that is durable, by name and content. One that a crash has left is
 * taken if it has just these. */
static int
keep_pieces(const struct arrow_io_ops *io, const char *part, const struct arrow_reader *r,
	const struct pieces *p, char path[PATH_MAX])
{
	char hidden[PATH_MAX];
	const struct arrow_io_open how = {hidden, false, ARROW_IO_BUFFERED, 1};
	unsigned int n;
	void *handle;
	int rc;

	for (n = 1;; n++) {
		rc = name_quarantine(path, part, "", n);
		if (rc == 0)
			rc = has_pieces(io, path, r, p);
		if (rc == -ENOENT)
			break;
		if (rc == 1)
			return io->sync_dir(path);
		if (rc < 0)
			return rc;
	}
	rc = name_quarantine(hidden, part, ".", 1);
	/* a copy that a crash has left: all of it is still in the file */
	if (rc == 0)
		rc = io->remove(hidden);
	if (rc == 0 || rc == -ENOENT)
		rc = io->open(&handle, &how);
	if (rc < 0)
		return rc;
	rc = write_pieces(io, handle, r, p);
	if (rc == 0)
		rc = io->rename(hidden, path);
	if (rc < 0)
		(void)io->remove(hidden);
	(void)io->close(handle);
	return rc == 0 ? io->sync_dir(path) : rc;
}

/*
 * What a recovery that cuts a file off is about to do, in a file of its own beside it before it
 * begins: once the end is cut off, what was behind it cannot be looked at again, so who goes on
 * after a crash does what is written there. The trailer that the file is to have follows.
 */
struct plan {
	char magic[24];
	uint64_t end;		/* where the trailer is to be */
	uint64_t trailer_bytes; /* whole blocks */
	/* which file it is for: its first block, and the last announcement in front of the trailer */
	uint64_t header_bytes;
	uint64_t last;
	uint32_t header_crc;
	uint32_t last_crc;
	uint32_t trailer_crc;
	uint32_t crc; /* of those before */
};

#define PLAN_MAGIC "braggline recovery 1"

static uint32_t
plan_crc(const struct plan *p)
{
	return arrow_crc32c(0, p, offsetof(struct plan, crc));
}

static int
write_plan(const struct arrow_io_ops *io, const char *part, const struct arrow_reader *r, size_t nb,
	uint64_t end, const uint8_t *trailer, size_t size)
{
	struct plan p = {
		.magic = PLAN_MAGIC,
		.end = end,
		.trailer_bytes = size,
		.header_bytes = r->begin,
		.last = nb > 0 ? r->batches[nb - 1].offset : 0,
		.header_crc = arrow_crc32c(0, r->data, r->begin),
		.trailer_crc = arrow_crc32c(0, trailer, size),
	};
	uint8_t block[ARROW_BLOCK] = {0};
	char path[PATH_MAX];
	const struct arrow_io_open how = {path, false, ARROW_IO_BUFFERED, 1};
	void *handle;
	int rc;

	arrow_reader_load(r, r->data + p.last, ARROW_BLOCK);
	p.last_crc = arrow_crc32c(0, r->data + p.last, ARROW_BLOCK);
	p.crc = plan_crc(&p);
	memcpy(block, &p, sizeof(p));
	rc = name_beside(path, part, ".", PLAN);
	if (rc == 0)
		rc = io->open(&handle, &how);
	if (rc < 0)
		return rc;
	rc = write_at(io, handle, block, sizeof(block), 0);
	if (rc == 0)
		rc = write_at(io, handle, trailer, size, sizeof(block));
	if (rc == 0)
		rc = sync_file(io, handle);
	(void)io->close(handle);
	if (rc < 0)
		(void)io->remove(path);
	return rc == 0 ? io->sync_dir(path) : rc;
}

/* @return 1: it is whole; 0: a crash has left some of it, and has changed nothing else; -errno,
 * -ENOENT: there is none */
static int
read_plan(const struct arrow_io_ops *io, const char *path, struct plan *p, uint8_t **trailer)
{
	const struct arrow_io_open how = {path, true, ARROW_IO_BUFFERED, 1};
	struct arrow_reader r;
	struct content c;
	void *handle;
	int rc;

	rc = io->open(&handle, &how);
	if (rc < 0)
		return rc;
	rc = open_content(&c, io, handle);
	if (rc == 0 && c.size >= ARROW_BLOCK) {
		r = bytes_of(&c);
		arrow_reader_load(&r, r.data, ARROW_BLOCK);
		memcpy(p, r.data, sizeof(*p));
		if (strncmp(p->magic, PLAN_MAGIC, sizeof(p->magic)) == 0 && p->crc == plan_crc(p) &&
			p->trailer_bytes == c.size - ARROW_BLOCK) {
			*trailer = malloc(p->trailer_bytes);
			rc = *trailer != NULL ? 1 : -ENOMEM;
		}
	}
	if (rc == 1 &&
		(io->read != NULL
				? io->read(handle, *trailer, p->trailer_bytes, ARROW_BLOCK) < 0
				: memcpy(*trailer, c.data + ARROW_BLOCK, p->trailer_bytes) == NULL))
		rc = -EIO;
	if (rc == 1 && arrow_crc32c(0, *trailer, p->trailer_bytes) != p->trailer_crc)
		rc = 0;
	close_content(&c);
	(void)io->close(handle);
	return rc;
}

/* Whether a file is the one that a plan is for, and has been cut off already. If it has not, all
 * is as it was, and is looked at again. */
static bool
fits_plan(const struct content *c, const struct plan *p)
{
	struct arrow_reader r = bytes_of(c);

	if (c->size < p->end || c->size - p->end > p->trailer_bytes || p->header_bytes > p->end ||
		p->header_bytes > ARROW_WINDOW_AT_ONCE || p->last + ARROW_BLOCK > p->end)
		return false;
	arrow_reader_load(&r, r.data, p->header_bytes);
	if (arrow_crc32c(0, r.data, p->header_bytes) != p->header_crc)
		return false;
	arrow_reader_load(&r, r.data + p->last, ARROW_BLOCK);
	return arrow_crc32c(0, r.data + p->last, ARROW_BLOCK) == p->last_crc;
}

/* Cut a file off, which is durable before the trailer is written: at no time are both mixed. */
static int
cut_off(const struct arrow_io_ops *io, void *handle, uint64_t end)
{
	int rc = io->truncate(handle, end);

	return rc == 0 ? sync_file(io, handle) : rc;
}

static int
put_trailer(const struct arrow_io_ops *io, void *handle, const uint8_t *trailer, size_t size,
	uint64_t end)
{
	int rc = write_at(io, handle, trailer, size, end);

	if (rc == 0)
		rc = io->truncate(handle, end + size);
	return rc == 0 ? sync_file(io, handle) : rc;
}

/* Go on with what a recovery had begun that did not come to its end. */
static int
follow_plan(const struct arrow_io_ops *io, void *handle, const char *part)
{
	uint8_t *trailer = NULL;
	char path[PATH_MAX];
	struct content c;
	struct plan p;
	bool fits;
	int rc;

	rc = name_beside(path, part, ".", PLAN);
	if (rc == 0)
		rc = read_plan(io, path, &p, &trailer);
	if (rc == -ENOENT)
		return 0;
	if (rc == 1) {
		rc = open_content(&c, io, handle);
		fits = rc == 0 && fits_plan(&c, &p);
		close_content(&c);
		if (fits) {
			rc = cut_off(io, handle, p.end);
			if (rc == 0)
				rc = put_trailer(io, handle, trailer, p.trailer_bytes, p.end);
		}
	}
	free(trailer);
	/* the file goes by its footer from here on, or is as it was before */
	return rc == 0 ? io->remove(path) : rc;
}

static int
remove_plan(const struct arrow_io_ops *io, const char *part)
{
	char path[PATH_MAX];
	int rc = name_beside(path, part, ".", PLAN);

	if (rc == 0)
		rc = io->remove(path);
	return rc == -ENOENT ? 0 : rc;
}

/*
 * Put the footer behind the first `nb` batches, and nothing behind the footer. What is cut off is
 * durable elsewhere before.
 * @param planned  out: it was cut off, and there is a plan
 */
static int
rebuild_end(const struct arrow_io_ops *io, void *handle, const char *part,
	const struct arrow_reader *r, uint64_t end, bool removed, struct arrow_recovery *report,
	bool *planned)
{
	const size_t nb = report->batches;
	struct pieces p = {NULL, 0, 0};
	uint8_t *trailer = NULL;
	bool cuts;
	size_t size;
	int rc;

	rc = build_trailer(r, nb, end, &trailer, &size);
	if (rc < 0)
		return rc;
	/* one that is whole stays; that it lists the batches does not say that all is there */
	if (r->size - end == size && has_bytes(r, end, NULL, trailer, size)) {
		free(trailer);
		return sync_file(io, handle);
	}
	rc = list_pieces(r, nb, end, trailer, size, &p);
	if (rc == 0 && p.nb > 0) {
		rc = keep_pieces(io, part, r, &p, report->quarantine);
		report->quarantined = rc == 0 ? p.bytes - round_up(r->begin) : 0;
		if (rc < 0)
			snprintf(report->message, sizeof(report->message),
				"stays as it is: what would be cut off cannot be kept in %.*s: %s",
				PATH_MAX, report->quarantine, strerror(-rc));
	}
	cuts = p.nb > 0 || nb < r->nb_batches || r->complete;
	if (rc == 0 && cuts && !removed) {
		rc = write_plan(io, part, r, nb, end, trailer, size);
		*planned = rc == 0;
		if (rc == 0)
			rc = cut_off(io, handle, end);
	}
	if (rc == 0 && !removed)
		rc = put_trailer(io, handle, trailer, size, end);
	free(p.piece);
	free(trailer);
	return rc;
}

static const char *
plural(uint64_t n)
{
	return n == 1 ? "" : "es";
}

/* What was done, as a sentence. */
static void
say_content(const struct arrow_reader *r, const char *why, struct arrow_recovery *report)
{
	const struct arrow_read_damage *d = r->damage;
	char cut[256] = "", room[128] = "", damage[256] = "", quarantine[PATH_MAX + 64] = "";

	if (report->cut > 0)
		snprintf(cut, sizeof(cut), "; cut %" PRIu64 " bytes%s%.160s", report->cut,
			why != NULL ? ": " : "", why != NULL ? why : "");
	if (report->room > 0)
		snprintf(room, sizeof(room),
			"; gave back %" PRIu64 " bytes that were allocated ahead and never used",
			report->room);
	if (report->damaged > 0)
		snprintf(damage, sizeof(damage),
			"; %" PRIu64 " damaged batch%s, not listed, in place: the first (%s) at "
			"byte %" PRIu64 ": %s",
			report->damaged, plural(report->damaged),
			d->announced ? d->batch.sequence : "number unknown", d->offset, d->why);
	if (report->quarantined > 0)
		snprintf(quarantine, sizeof(quarantine), "; %" PRIu64 " bytes kept in %s",
			report->quarantined, report->quarantine);
	snprintf(report->message, sizeof(report->message),
		"%" PRIu64 " batch%s, %" PRIu64 " rows%s%s%s%.*s", report->batches,
		plural(report->batches), report->rows, cut, room, damage, (int)sizeof(quarantine),
		quarantine);
}

/* What of a file stays: batches with numbers below `below`. @return bytes */
static uint64_t
find_end(const struct arrow_reader *r, uint64_t below, struct arrow_recovery *report)
{
	const uint64_t whole_blocks = r->size / ARROW_BLOCK * ARROW_BLOCK;
	const struct arrow_read_damage *d;
	uint64_t end = r->begin;
	size_t i;

	for (i = 0; i < r->nb_batches; i++) {
		if (below != UINT64_MAX && strtoull(r->batches[i].sequence, NULL, 16) >= below)
			break;
		report->rows += r->batches[i].rows;
		end = batch_end(&r->batches[i]);
	}
	report->batches = i;
	/* behind a footer that is right there is no torn tail; nor is what is right in itself one, or
	 * what cannot be read */
	for (i = 0; i < r->nb_damage && below == UINT64_MAX; i++) {
		d = &r->damage[i];
		if (d->offset >= end &&
			(d->why == out_of_order || is_unreadable(r, d->offset, d->length)))
			end = d->offset + d->length;
	}
	if (r->complete && below == UINT64_MAX)
		end = r->end;
	if (end > whole_blocks)
		end = whole_blocks;
	for (i = 0; i < r->nb_damage && r->damage[i].offset < end; i++)
		;
	report->damaged = i;
	return end;
}

/* What goes behind `end`, and why. */
static const char *
count_cut(const struct arrow_reader *r, uint64_t end, uint64_t below, struct arrow_recovery *report)
{
	const uint64_t last = r->complete ? r->end : r->size;
	uint64_t batches = end;

	if (last <= end)
		return NULL;
	/* a body may end in zeros */
	if (report->batches < r->nb_batches)
		batches = batch_end(&r->batches[r->nb_batches - 1]);
	report->cut = batches - end + trim(r, batches, last - batches);
	report->room = last - end - report->cut;
	if (report->batches < r->nb_batches || below != UINT64_MAX)
		return "they were not to stay";
	/* the last batches are damaged: they go with the tail */
	return report->damaged < r->nb_damage ? r->damage[report->damaged].why : r->problem;
}

/* Whether it is worth looking at. Holes have no end: somebody may have made a file of nothing else.
 */
static int
check_size(const struct content *c, uint64_t written, struct arrow_recovery *report)
{
	if (written <= HOLES_MAX || (written - HOLES_MAX) / HOLES_TIMES <= c->allocated)
		return 0;
	snprintf(report->message, sizeof(report->message),
		"stays as it is: %" PRIu64 " bytes, of which %" PRIu64
		" are allocated: no file of ours has so large holes",
		written, c->allocated);
	return -EFBIG;
}

/* A file with a schema that is whole, of which something is written. */
static int
recover_batches(const struct arrow_io_ops *io, void *handle, const char *part,
	struct arrow_reader *r, uint64_t below, const bool *stop, struct arrow_recovery *report,
	bool *planned)
{
	const size_t listed = r->nb_batches;
	const char *why = NULL;
	uint64_t end;
	int rc;

	rc = scan_until(r, stop, &report->looked);
	/* nothing has been changed so far */
	if (is_stopped(stop)) {
		snprintf(report->message, sizeof(report->message), "stays as it is: told to stop");
		return -ECANCELED;
	}
	if (rc == -EFBIG)
		snprintf(report->message, sizeof(report->message),
			"stays as it is: what it announces as batches lies in each other's place: to "
			"check them takes more than %" PRIu64 " bytes, and it has %" PRIu64,
			arrow_recovery_most(r->size), r->size);
	if (rc < 0)
		return rc;
	end = find_end(r, below, report);
	/* readers find themselves what its footer lists, and is damaged where it is announced */
	if (r->complete && below == UINT64_MAX && r->nb_batches == listed) {
		rc = sync_file(io, handle);
	} else {
		why = count_cut(r, end, below, report);
		rc = rebuild_end(io, handle, part, r, end, below == 0, report, planned);
	}
	if (rc == 0 && below == 0)
		report->state = ARROW_RECOVERY_REMOVED;
	if (rc == 0)
		say_content(r, why, report);
	else if (report->message[0] == '\0')
		snprintf(report->message, sizeof(report->message), "cannot write its end: %s",
			strerror(-rc));
	return rc;
}

static int
open_reader(struct arrow_reader *r, struct content *c, uint64_t written, const char **problem)
{
	int rc;

	if (c->window != NULL)
		rc = arrow_reader_open_window(r, c->window, c->size, written, problem);
	else
		rc = arrow_reader_open_written(r, c->data, c->size, written, problem);
	if (rc == 0 && !header_is_whole(r)) {
		*problem = "its schema is damaged";
		rc = -EBADMSG;
		arrow_reader_close(r);
	}
	if (rc < 0 && c->window != NULL &&
		arrow_window_is_unreadable(c->window, 0, ARROW_WINDOW_AT_ONCE)) {
		*problem = "the disk cannot read its schema";
		rc = -EIO;
	}
	return rc;
}

/* All but giving it its name; batches with numbers below `below` stay. */
static int
recover_content(const struct arrow_io_ops *io, void *handle, const char *part, uint64_t below,
	const bool *stop, struct arrow_recovery *report, bool *planned)
{
	const char *problem = NULL;
	struct arrow_reader r;
	struct content c;
	uint64_t written;
	int rc;

	rc = open_content(&c, io, handle);
	if (rc < 0) {
		snprintf(report->message, sizeof(report->message), "cannot be read: %s",
			strerror(-rc));
		goto out;
	}
	written = io->written != NULL ? io->written(handle) : c.size;
	if (written > c.size)
		written = c.size;
	rc = check_size(&c, written, report);
	if (rc < 0)
		goto out;
	r = bytes_of(&c);
	/* room that was allocated, or not even that */
	if (arrow_reader_is_zero(&r, 0, written) &&
		(c.window == NULL || arrow_window_unreadable_end(c.window) == 0)) {
		report->state = ARROW_RECOVERY_REMOVED;
		report->room = c.size;
		goto out;
	}
	rc = open_reader(&r, &c, written, &problem);
	if (rc < 0) {
		snprintf(report->message, sizeof(report->message), "nothing can be recovered: %s",
			problem != NULL ? problem : strerror(-rc));
		goto out;
	}
	rc = recover_batches(io, handle, part, &r, below, stop, report, planned);
	arrow_reader_close(&r);
out:
	if (c.window != NULL)
		report->looked += arrow_window_bytes_read(c.window);
	close_content(&c);
	return rc;
}

static int
recover_name(const struct arrow_io_ops *io, const char *part, struct arrow_recovery *report)
{
	int rc;

	if (report->state == ARROW_RECOVERY_REMOVED) {
		if (report->message[0] == '\0')
			snprintf(report->message, sizeof(report->message),
				"removed: nothing had been written");
		rc = io->remove(part);
	} else {
		rc = io->rename(part, report->path);
	}
	if (rc == 0)
		rc = io->sync_dir(part);
	if (rc == -EEXIST)
		snprintf(report->message, sizeof(report->message),
			"stays as it is: %.*s is already there", PATH_MAX, report->path);
	else if (rc < 0)
		snprintf(report->message, sizeof(report->message), "cannot be %s: %s",
			report->state == ARROW_RECOVERY_REMOVED ? "removed" : "renamed",
			strerror(-rc));
	return rc;
}

static int
recover(const struct arrow_io_ops *io, const char *part, uint64_t below, const bool *stop,
	struct arrow_recovery *report)
{
	/* what is written are a few blocks */
	const struct arrow_io_open how = {
		.path = part,
		.existing = true,
		.mode = ARROW_IO_BUFFERED,
		.depth = 1,
	};
	bool planned = false;
	void *handle;
	int rc;

	memset(report, 0, sizeof(*report));
	snprintf(report->path, sizeof(report->path), "%s", part);
	rc = -EINVAL;
	snprintf(
		report->message, sizeof(report->message), "wanted a file that ends in .arrow" PART);
	if (!arrow_name_is_part(part) || strlen(part) >= sizeof(report->path))
		goto out;
	rc = io->open(&handle, &how);
	if (rc < 0) {
		snprintf(report->message, sizeof(report->message), "cannot be opened: %s",
			rc == -EBUSY ? "somebody writes it" : strerror(-rc));
		goto out;
	}
	report->path[strlen(part) - strlen(PART)] = '\0';
	report->message[0] = '\0';
	rc = follow_plan(io, handle, part);
	if (rc < 0)
		snprintf(report->message, sizeof(report->message),
			"cannot go on with a recovery that had begun: %s", strerror(-rc));
	if (rc == 0)
		rc = recover_content(io, handle, part, below, stop, report, &planned);
	/* the file goes by its footer now */
	if (rc == 0 && planned)
		rc = remove_plan(io, part);
	/* while it is locked */
	if (rc == 0)
		rc = recover_name(io, part, report);
	(void)io->close(handle);
out:
	if (rc < 0) {
		report->state = rc == -EBUSY ? ARROW_RECOVERY_BUSY : ARROW_RECOVERY_FAILED;
		report->error = rc;
		snprintf(report->path, sizeof(report->path), "%s", part);
	}
	return rc;
}

int
arrow_recover_file(const struct arrow_io_ops *io, const char *part, struct arrow_recovery *report)
{
	return arrow_recover_file_until(io, part, NULL, report);
}

int
arrow_recover_file_until(const struct arrow_io_ops *io, const char *part, const bool *stop,
	struct arrow_recovery *report)
{
	return recover(io != NULL ? io : &direct_io, part, UINT64_MAX, stop, report);
}

/* Whether the file can be recovered once it is called `.part`: else it would be out of sight for
 * good. That a batch of it is damaged is no reason: that one is marked, and stays where it is. */
static int
check_before_cut(const struct arrow_io_ops *io, const char *path, struct arrow_recovery *report)
{
	const struct arrow_io_open how = {path, true, ARROW_IO_BUFFERED, 1};
	const char *problem = NULL;
	struct arrow_reader r;
	struct content c;
	void *handle;
	int rc;

	rc = io->open(&handle, &how);
	if (rc < 0)
		return rc;
	rc = open_content(&c, io, handle);
	if (rc == 0)
		rc = open_reader(&r, &c, c.size, &problem);
	if (rc == 0)
		arrow_reader_close(&r);
	close_content(&c);
	(void)io->close(handle);
	if (rc < 0)
		snprintf(report->message, sizeof(report->message), "stays as it is: %s",
			problem != NULL ? problem : strerror(-rc));
	return rc;
}

int
arrow_cut_file(
	const struct arrow_io_ops *io, const char *path, uint64_t from, struct arrow_recovery *report)
{
	char name[PATH_MAX], part[PATH_MAX];
	int rc;

	if (io == NULL)
		io = &direct_io;
	memset(report, 0, sizeof(*report));
	snprintf(report->path, sizeof(report->path), "%s", path);
	snprintf(name, sizeof(name), "%s", path);
	if (arrow_name_is_part(name))
		name[strlen(name) - strlen(PART)] = '\0';
	if (snprintf(part, sizeof(part), "%s" PART, name) >= (int)sizeof(part))
		return -ENAMETOOLONG;
	rc = from > 0 ? check_before_cut(io, name, report) : 0;
	if (rc == -ENOENT)
		rc = check_before_cut(io, part, report);
	if (rc < 0) {
		report->state = ARROW_RECOVERY_FAILED;
		report->error = rc;
		return rc;
	}
	/* by its name it is no longer complete: a crash in between leaves what recovery knows */
	rc = io->rename(name, part);
	/* it was, or an earlier try came as far as this, maybe to where nothing was left of it */
	if (rc == -ENOENT)
		rc = 0;
	if (rc == 0)
		rc = io->sync_dir(part);
	if (rc < 0) {
		report->state = ARROW_RECOVERY_FAILED;
		report->error = rc;
		snprintf(report->message, sizeof(report->message), "cannot be cut off: %s",
			strerror(-rc));
		return rc;
	}
	rc = recover(io, part, from, NULL, report);
	if (rc != -ENOENT || from > 0)
		return rc;
	report->state = ARROW_RECOVERY_REMOVED;
	report->error = 0;
	snprintf(report->message, sizeof(report->message), "is gone");
	return 0;
}

/* A copy of a calibration that was not completed is worth nothing. */
static void
remove_calibration(const struct arrow_io_ops *io, const char *path)
{
	const struct arrow_io_open how = {path, true, ARROW_IO_BUFFERED, 1};
	void *handle;

	if (io->open(&handle, &how) < 0)
		return;
	(void)io->remove(path);
	(void)io->close(handle);
}

static int
is_part(const struct dirent *entry)
{
	return !arrow_name_is_hidden(entry->d_name) &&
		(arrow_name_is_part(entry->d_name) ||
			arrow_name_ends(entry->d_name, CALIBRATION_PART));
}

int
arrow_recover_dir(
	const struct arrow_io_ops *io, const char *dir, arrow_recovery_report report, void *arg)
{
	struct arrow_recovery *r;
	struct dirent **entry;
	char path[PATH_MAX];
	int i, nb, failed = 0;

	if (io == NULL)
		io = &direct_io;
	nb = scandir(dir, &entry, is_part, alphasort);
	if (nb < 0)
		return errno == ENOENT ? 0 : -errno;
	r = malloc(sizeof(*r));
	for (i = 0; i < nb; i++) {
		if (snprintf(path, sizeof(path), "%s/%s", dir, entry[i]->d_name) <
				(int)sizeof(path) &&
			r != NULL) {
			if (arrow_name_ends(path, CALIBRATION_PART)) {
				remove_calibration(io, path);
			} else {
				(void)arrow_recover_file(io, path, r);
				failed += r->state == ARROW_RECOVERY_FAILED;
				if (report != NULL)
					report(arg, r);
			}
		}
		free(entry[i]);
	}
	free(entry);
	if (r == NULL)
		return -ENOMEM;
	free(r);
	return failed;
}
