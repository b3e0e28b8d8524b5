/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arrow_name.h"
#include "arrow_recovery.h"
#include "arrow_tables.h"
#include "direct_io.h"

#define PART	   ".part"
#define QUARANTINE ".quarantine"
#define WRITE_MAX  (UINT64_C(64) << 20) /* bytes of one write */

/* A file holds one stream, ascending; what is missing another store may have.
 * @param last  the sound batch before it; NULL: there is none */
static const char *
find_fault(const struct arrow_reader *r, const struct arrow_read_batch *b,
	const struct arrow_read_batch *last)
{
	struct arrow_column column;
	unsigned int k;

	if (b->offset % ARROW_BLOCK != 0 || b->metadata_size % ARROW_BLOCK != 0 ||
		b->body_length % ARROW_BLOCK != 0)
		return "a batch that is not made of whole blocks";
	if (!arrow_read_has_identity(r, b))
		return "a batch without identity";
	if (last != NULL && !arrow_read_follows(b, last))
		return "a batch that does not follow the one before";
	for (k = 0; k < r->schema.nb_fields; k++) {
		if (arrow_read_column(r, b, k, &column) < 0)
			return "a batch whose columns do not agree with the schema";
	}
	return arrow_read_crc(r, b) == 1 ? NULL : "a batch with a wrong CRC-32C";
}

const char *
arrow_recovery_check(struct arrow_reader *r, size_t i)
{
	struct arrow_read_batch *b = &r->batches[i];
	const size_t last = i > 0 ? b[-1].sound : SIZE_MAX;

	b->fault = find_fault(r, b, last != SIZE_MAX ? &r->batches[last] : NULL);
	b->sound = b->fault == NULL ? i : last;
	return b->fault;
}

static uint64_t
batch_end(const struct arrow_read_batch *b)
{
	return b->offset + b->metadata_size + b->body_length;
}

/* The next batch that is sound, from `at` on. */
static bool
find_sound(const struct arrow_reader *r, uint64_t at, const struct arrow_read_batch *last,
	struct arrow_read_batch *b)
{
	for (; arrow_reader_next(r, &at, b); at += ARROW_BLOCK) {
		if (batch_end(b) <= r->size && find_fault(r, b, last) == NULL)
			return true;
	}
	return false;
}

/* What lies between two sound batches: batches with whole announcements, and the rest. */
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
			d.why = "a batch with a wrong CRC-32C, or out of order";
		} else {
			memset(&d.batch, 0, sizeof(d.batch));
			do
				at += ARROW_BLOCK;
			while (at < end && arrow_reader_announced(r, at, &d.batch) != 1);
			d.length = at - d.offset;
			memset(&d.batch, 0, sizeof(d.batch));
		}
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

/* A file without a footer: the announcement of a batch may be another's. So a batch is one only if
 * its body is right; what does not belong to one is damaged. */
static int
walk_sound(struct arrow_reader *r, const bool *stop)
{
	struct arrow_read_batch b;
	uint64_t at = r->begin;
	int rc = 0;

	r->nb_batches = 0;
	r->nb_damage = 0;
	while (rc == 0 && at < r->size && !is_stopped(stop) &&
		find_sound(r, at, r->nb_batches > 0 ? &r->batches[r->nb_batches - 1] : NULL, &b)) {
		rc = keep_damage(r, at, b.offset);
		if (rc == 0)
			rc = arrow_reader_keep(r, &b);
		at = batch_end(&b);
	}
	if (r->end > at && rc == 0)
		rc = keep_damage(r, at, r->end);
	return rc;
}

/* Until somebody says that it is to stop: then what was found is worth nothing. */
static int
scan_until(struct arrow_reader *r, const bool *stop)
{
	size_t i;

	if (!r->complete && arrow_reader_meta(r, ARROW_META_TABLE) != NULL)
		return walk_sound(r, stop);
	for (i = 0; i < r->nb_batches && !is_stopped(stop); i++)
		(void)arrow_recovery_check(r, i);
	return arrow_reader_part(r);
}

int
arrow_recovery_scan(struct arrow_reader *r)
{
	return scan_until(r, NULL);
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
	whole = r->size - r->end == size && memcmp(r->data + r->end, trailer, size) == 0;
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

/* Bytes that are to be in the quarantine file, in the order of the file. */
struct piece {
	const uint8_t *data;
	uint64_t size;
};

struct pieces {
	struct piece *piece;
	size_t nb;
	uint64_t bytes; /* of all, rounded up to whole blocks each */
};

static bool
is_zero(const uint8_t *data, uint64_t size)
{
	return size == 0 || (data[0] == 0 && memcmp(data, data + 1, size - 1) == 0);
}

static uint64_t
round_up(uint64_t size)
{
	return (size + ARROW_BLOCK - 1) / ARROW_BLOCK * ARROW_BLOCK;
}

static void
add_piece(struct pieces *p, const uint8_t *data, uint64_t size)
{
	/* blocks of zeros at its end say nothing */
	while (size > 0 &&
		is_zero(data + (size - 1) / ARROW_BLOCK * ARROW_BLOCK,
			(size - 1) % ARROW_BLOCK + 1))
		size = (size - 1) / ARROW_BLOCK * ARROW_BLOCK;
	if (size == 0)
		return;
	p->piece[p->nb++] = (struct piece){data, size};
	p->bytes += round_up(size);
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
	uint64_t at = end, k;
	size_t i;

	*p = (struct pieces){calloc(r->nb_batches - nb + 2, sizeof(*p->piece)), 0, 0};
	if (p->piece == NULL)
		return -ENOMEM;
	add_piece(p, r->data, r->begin);
	for (i = nb; i < r->nb_batches; i++) {
		b = &r->batches[i];
		add_piece(p, r->data + at, b->offset - at);
		at = batch_end(b);
	}
	/* a part of the trailer that a crash has left is still there when it is whole */
	for (k = 0; at == end && at + k < last &&
		(r->data[at + k] == (k < trailer_size ? trailer[k] : 0) || r->data[at + k] == 0);)
		k++;
	if (at < last && at + k < last)
		add_piece(p, r->data + at, last - at);
	if (p->nb == 1)
		p->nb = 0;
	return 0;
}

/* Name of the n-th quarantine file of a file, from 1. */
static int
name_quarantine(char path[PATH_MAX], const char *part, const char *hidden, unsigned int n)
{
	const char *slash = strrchr(part, '/');
	const int dir = slash != NULL ? (int)(slash + 1 - part) : 0;
	char number[16] = "";

	if (n > 1)
		snprintf(number, sizeof(number), ".%u", n);
	return snprintf(path, PATH_MAX, "%.*s%s%.*s" QUARANTINE "%s", dir, part, hidden,
		       (int)(strlen(part) - strlen(PART)) - dir, part + dir, number) < PATH_MAX
		? 0
		: -ENAMETOOLONG;
}

/* Whether a file has just these bytes. @return 1, 0, -errno */
static int
has_pieces(const struct arrow_io_ops *io, const char *path, const struct pieces *p)
{
	const struct arrow_io_open how = {path, true, ARROW_IO_BUFFERED, 1};
	const uint8_t *data;
	uint64_t size, at = 0;
	void *handle;
	size_t i;
	int rc;

	rc = io->open(&handle, &how);
	if (rc < 0)
		return rc;
	rc = io->map(handle, &data, &size);
	if (rc == 0)
		rc = size == p->bytes;
	for (i = 0; i < p->nb && rc == 1; i++) {
		rc = memcmp(data + at, p->piece[i].data, p->piece[i].size) == 0;
		at += round_up(p->piece[i].size);
	}
	(void)io->close(handle);
	return rc;
}

static int
write_pieces(const struct arrow_io_ops *io, void *handle, const struct pieces *p)
{
	uint8_t last[ARROW_BLOCK];
	uint64_t at = 0, whole;
	int rc = 0;
	size_t i;

	for (i = 0; i < p->nb && rc == 0; i++) {
		whole = p->piece[i].size / ARROW_BLOCK * ARROW_BLOCK;
		rc = write_at(io, handle, p->piece[i].data, whole, at);
		if (rc == 0 && whole < p->piece[i].size) {
			memset(last, 0, sizeof(last));
			memcpy(last, p->piece[i].data + whole, p->piece[i].size - whole);
			rc = write_at(io, handle, last, sizeof(last), at + whole);
		}
		at += round_up(p->piece[i].size);
	}
	return rc == 0 ? sync_file(io, handle) : rc;
}

/* Put the pieces into a file that is durable, by name and content. One that a crash has left is
 * taken if it has just these. */
static int
keep_pieces(const struct arrow_io_ops *io, const char *part, const struct pieces *p,
	char path[PATH_MAX])
{
	char hidden[PATH_MAX];
	const struct arrow_io_open how = {hidden, false, ARROW_IO_BUFFERED, 1};
	unsigned int n;
	void *handle;
	int rc;

	for (n = 1;; n++) {
		rc = name_quarantine(path, part, "", n);
		if (rc == 0)
			rc = has_pieces(io, path, p);
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
	rc = write_pieces(io, handle, p);
	if (rc == 0)
		rc = io->rename(hidden, path);
	if (rc < 0)
		(void)io->remove(hidden);
	(void)io->close(handle);
	return rc == 0 ? io->sync_dir(path) : rc;
}

/* Put the footer behind the first `nb` batches, and nothing behind the footer. What is cut off is
 * durable elsewhere before, and gone before the footer is written: at no time are both mixed. */
static int
rebuild_end(const struct arrow_io_ops *io, void *handle, const char *part,
	const struct arrow_reader *r, size_t nb, uint64_t end, bool removed,
	struct arrow_recovery *report)
{
	struct pieces p = {NULL, 0, 0};
	uint8_t *trailer = NULL;
	bool same;
	size_t size;
	int rc;

	rc = build_trailer(r, nb, end, &trailer, &size);
	if (rc < 0)
		return rc;
	/* one that is whole stays; that it lists the batches does not say that all is there */
	same = r->size - end == size && memcmp(r->data + end, trailer, size) == 0;
	if (!same)
		rc = list_pieces(r, nb, end, trailer, size, &p);
	if (rc == 0 && p.nb > 0) {
		rc = keep_pieces(io, part, &p, report->quarantine);
		report->quarantined = rc == 0 ? p.bytes - round_up(r->begin) : 0;
		if (rc < 0)
			snprintf(report->message, sizeof(report->message),
				"stays as it is: what would be cut off cannot be kept in %.*s: %s",
				PATH_MAX, report->quarantine, strerror(-rc));
	}
	/* the mapping is read no more behind `end` */
	if (rc == 0 && !same && !removed && (p.nb > 0 || nb < r->nb_batches || r->complete)) {
		rc = io->truncate(handle, end);
		if (rc == 0)
			rc = sync_file(io, handle);
	}
	if (rc == 0 && !same && !removed) {
		rc = write_at(io, handle, trailer, size, end);
		if (rc == 0)
			rc = io->truncate(handle, end + size);
	}
	free(p.piece);
	free(trailer);
	return rc == 0 && !removed ? sync_file(io, handle) : rc;
}

static const char *
plural(uint64_t n)
{
	return n == 1 ? "" : "es";
}

/* What was done, as a sentence. */
static void
say_content(const struct arrow_reader *r, const char *problem, struct arrow_recovery *report)
{
	const struct arrow_read_damage *d = r->damage;
	char damage[256] = "", quarantine[PATH_MAX + 64] = "";

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
		"%" PRIu64 " batch%s, %" PRIu64 " rows; cut %" PRIu64 " bytes%s%s%s%.*s",
		report->batches, plural(report->batches), report->rows, report->cut,
		problem != NULL ? ": " : "", problem != NULL ? problem : "", damage,
		(int)sizeof(quarantine), quarantine);
}

/* What of a file stays, and why the rest does not. @return bytes */
static uint64_t
find_end(const struct arrow_reader *r, size_t most, struct arrow_recovery *report, const char **why)
{
	uint64_t end = r->begin;
	size_t i;

	*why = r->complete ? NULL : r->problem;
	report->batches = r->nb_batches;
	if (report->batches > most) {
		report->batches = most;
		*why = "they were not to stay";
	}
	for (i = 0; i < report->batches; i++)
		report->rows += r->batches[i].rows;
	if (report->batches > 0) {
		end = batch_end(&r->batches[report->batches - 1]);
	}
	for (i = 0; i < r->nb_damage && r->damage[i].offset < end; i++)
		;
	report->damaged = i;
	/* the last batches are damaged: they go with the tail */
	if (i < r->nb_damage && report->batches == r->nb_batches)
		*why = r->damage[i].why;
	return end;
}

/* All but giving it its name; at most `most` batches stay. */
static int
recover_content(const struct arrow_io_ops *io, void *handle, const char *part, size_t most,
	const bool *stop, struct arrow_recovery *report)
{
	const char *problem = NULL;
	uint64_t size, written, end;
	struct arrow_reader r;
	const uint8_t *data;
	int rc;

	rc = io->map(handle, &data, &size);
	if (rc < 0) {
		snprintf(report->message, sizeof(report->message), "cannot be read: %s",
			strerror(-rc));
		return rc;
	}
	written = io->written != NULL ? io->written(handle) : size;
	if (written > size)
		written = size;
	/* room that was allocated, or not even that */
	if (is_zero(data, written)) {
		report->state = ARROW_RECOVERY_REMOVED;
		report->cut = size;
		return 0;
	}
	rc = arrow_reader_open_written(&r, data, size, written, &problem);
	if (rc == 0 && !header_is_whole(&r)) {
		problem = "its schema is damaged";
		rc = -EBADMSG;
		arrow_reader_close(&r);
	}
	if (rc < 0) {
		snprintf(report->message, sizeof(report->message), "nothing can be recovered: %s",
			problem);
		return rc;
	}
	rc = scan_until(&r, stop);
	/* nothing has been changed so far */
	if (is_stopped(stop)) {
		snprintf(report->message, sizeof(report->message), "stays as it is: told to stop");
		rc = -ECANCELED;
	}
	if (rc == 0) {
		end = find_end(&r, most, report, &problem);
		if (problem != NULL)
			report->cut = size - end;
		rc = rebuild_end(io, handle, part, &r, report->batches, end, most == 0, report);
	}
	if (rc == 0 && most == 0)
		report->state = ARROW_RECOVERY_REMOVED;
	if (rc == 0)
		say_content(&r, problem, report);
	else if (report->message[0] == '\0')
		snprintf(report->message, sizeof(report->message), "cannot write its end: %s",
			strerror(-rc));
	arrow_reader_close(&r);
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
recover(const struct arrow_io_ops *io, const char *part, size_t most, const bool *stop,
	struct arrow_recovery *report)
{
	/* what is written are a few blocks */
	const struct arrow_io_open how = {
		.path = part,
		.existing = true,
		.mode = ARROW_IO_BUFFERED,
		.depth = 1,
	};
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
	rc = recover_content(io, handle, part, most, stop, report);
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
	return recover(io != NULL ? io : &direct_io, part, SIZE_MAX, stop, report);
}

/* So many of the first `most` batches are sound. */
static size_t
first_fault(struct arrow_reader *r, size_t most, const char **why)
{
	size_t i;

	*why = r->problem;
	for (i = 0; i < r->nb_batches && i < most; i++) {
		*why = arrow_recovery_check(r, i);
		if (*why != NULL)
			break;
	}
	return i;
}

/* Whether the batches that are to stay are as they were written: a cut goes by what can be read. */
static int
check_before_cut(
	const struct arrow_io_ops *io, const char *path, size_t most, struct arrow_recovery *report)
{
	const struct arrow_io_open how = {path, true, ARROW_IO_BUFFERED, 1};
	const char *problem = NULL;
	struct arrow_reader r;
	const uint8_t *data;
	void *handle;
	uint64_t size;
	int rc;

	rc = io->open(&handle, &how);
	if (rc < 0)
		return rc;
	rc = io->map(handle, &data, &size);
	if (rc == 0)
		rc = arrow_reader_open_memory(&r, data, size, &problem);
	if (rc == 0) {
		/* recovery wants both: the file would be out of sight for good */
		if (!header_is_whole(&r)) {
			problem = "its schema is damaged";
			rc = -EBADMSG;
		} else if (first_fault(&r, most, &problem) < most) {
			rc = -EBADMSG;
		}
		arrow_reader_close(&r);
	}
	(void)io->close(handle);
	if (rc < 0)
		snprintf(report->message, sizeof(report->message),
			"stays as it is, of %zu batches not all are sound: %s", most,
			problem != NULL ? problem : strerror(-rc));
	return rc;
}

int
arrow_cut_file(
	const struct arrow_io_ops *io, const char *path, size_t most, struct arrow_recovery *report)
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
	rc = most > 0 ? check_before_cut(io, name, most, report) : 0;
	if (rc == -ENOENT)
		rc = check_before_cut(io, part, most, report);
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
	rc = recover(io, part, most, NULL, report);
	if (rc != -ENOENT || most > 0)
		return rc;
	report->state = ARROW_RECOVERY_REMOVED;
	report->error = 0;
	snprintf(report->message, sizeof(report->message), "is gone");
	return 0;
}
