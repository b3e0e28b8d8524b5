/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arrow/names.h"
#include "recovery/content.h"
#include "recovery/order.h"
#include "recovery/plan.h"
#include "recovery/quarantine.h"
#include "plural.h"
#include "recovery/recovery.h"
#include "arrow/tables.h"
#include "io/direct_io.h"

#define PART	    ".part"
#define HOLES_MAX   (UINT64_C(1) << 30) /* bytes that need not be allocated, */
#define HOLES_TIMES 64			/* and for each one that is (compression) */

static const char unreadable[] = "read error of the disk";

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

/* Fault of a batch, regardless of its neighbours. @return NULL: none */
static const char *
find_fault(const struct arrow_reader *r, const struct arrow_read_batch *b)
{
	struct arrow_column column;
	unsigned int k;

	if (b->offset % ARROW_BLOCK != 0 || b->metadata_size % ARROW_BLOCK != 0 ||
		b->body_length % ARROW_BLOCK != 0)
		return "a batch with a length that is not a multiple of the block size";
	if (!arrow_read_has_identity(r, b))
		return "a batch without identity, or of another stream than its file";
	if (arrow_read_crc(r, b) != 1)
		return is_unreadable(r, b->offset, batch_end(b) - b->offset)
			? unreadable
			: "a batch with a wrong CRC-32C";
	for (k = 0; k < r->schema.nb_fields; k++) {
		if (arrow_read_column(r, b, k, &column) < 0)
			return "a batch whose columns do not match the schema";
	}
	return NULL;
}

const char *
arrow_recovery_check(struct arrow_reader *r, size_t i)
{
	r->batches[i].fault = find_fault(r, &r->batches[i]);
	return r->batches[i].fault;
}

/* Split the region between two kept batches into batches with valid announcements and the rest. */
static int
keep_damage(struct arrow_reader *r, uint64_t at, uint64_t end)
{
	struct arrow_read_damage d;
	int ret = 0;

	while (at < end && ret == 0) {
		d = (struct arrow_read_damage){
			.offset = at, .length = end - at, .why = ARROW_NO_ANNOUNCEMENT};
		/* an announced batch that ends after `end` was moved here, or its successor was */
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
		ret = arrow_reader_keep_damage(r, &d);
	}
	return ret;
}

static bool
is_stopped(const bool *stop)
{
	return stop != NULL && __atomic_load_n(stop, __ATOMIC_RELAXED);
}

/* Number of bytes to read to check a batch: all bytes once, and list offsets a second time. */
static uint64_t
check_bytes(const struct arrow_reader *r, const struct arrow_read_batch *b)
{
	const uint64_t offsets = b->rows < b->body_length ? b->rows * sizeof(int32_t) : 0;

	return b->metadata_size + b->body_length + r->schema.nb_fields * offsets;
}

/*
 * Find all valid batches by their announcements and append them to `batches`. Announcements inside
 * a valid batch are part of its data and are ignored.
 */
static int
collect_batches(struct arrow_reader *r, const bool *stop, uint64_t *looked)
{
	const uint64_t most = arrow_recovery_limit(r->size);
	struct arrow_read_batch b;
	uint64_t at = r->begin;
	int ret = 0;

	while (ret == 0 && arrow_reader_next(r, &at, &b) && !is_stopped(stop)) {
		if (batch_end(&b) > r->size) {
			at += ARROW_BLOCK;
			continue;
		}
		*looked += check_bytes(r, &b);
		if (*looked > most)
			return -EFBIG;
		if (find_fault(r, &b) != NULL) {
			/* its body, as announced, may contain other batches: continue inside it */
			at += ARROW_BLOCK;
			continue;
		}
		ret = arrow_reader_keep(r, &b);
		at = batch_end(&b);
	}
	return ret;
}

/* Unreadable regions are not truncated: a later attempt may be able to read them. */
static uint64_t
unreadable_end(const struct arrow_reader *r)
{
	return r->window != NULL ? arrow_window_unreadable_end(r->window) : 0;
}

/*
 * Find the batches of a file without a footer. An announcement may be inside another batch, so only
 * an announcement with a valid body is a batch. All other regions are damage.
 */
static int
walk_sound(struct arrow_reader *r, const bool *stop, uint64_t *looked)
{
	struct arrow_read_batch *found;
	struct arrow_read_damage d;
	uint64_t at = r->begin, end;
	size_t i, nb;
	int ret;

	r->nb_batches = 0;
	r->nb_damage = 0;
	ret = collect_batches(r, stop, looked);
	if (ret == 0)
		ret = arrow_order(r);
	/*
	 * Sort them into batches and damage. Both counts are 0 here, so that arrow_reader_keep()
	 * and arrow_reader_keep_damage() allocate their arrays.
	 */
	found = r->batches;
	nb = r->nb_batches;
	r->batches = NULL;
	r->nb_batches = 0;
	for (i = 0; i < nb && ret == 0; i++) {
		ret = keep_damage(r, at, found[i].offset);
		at = batch_end(&found[i]);
		d = (struct arrow_read_damage){
			.offset = found[i].offset,
			.length = at - found[i].offset,
			.why = found[i].fault,
			.announced = true,
			.batch = found[i],
		};
		if (ret == 0)
			ret = found[i].fault == NULL ? arrow_reader_keep(r, &found[i])
						     : arrow_reader_keep_damage(r, &d);
	}
	free(found);
	end = unreadable_end(r) > r->end ? unreadable_end(r) : r->end;
	if (end > at && ret == 0)
		ret = keep_damage(r, at, end);
	return ret;
}

/* Check all batches. If `stop` is set, the check ends early and its result is not valid. */
static int
scan_until(struct arrow_reader *r, const bool *stop, uint64_t *looked)
{
	size_t i;
	int ret;

	if (!r->complete && arrow_reader_meta(r, ARROW_META_TABLE) != NULL)
		return walk_sound(r, stop, looked);
	for (i = 0; i < r->nb_batches && !is_stopped(stop); i++) {
		*looked += check_bytes(r, &r->batches[i]);
		(void)arrow_recovery_check(r, i);
	}
	ret = arrow_order(r);
	return ret < 0 ? ret : arrow_reader_part(r);
}

int
arrow_recovery_scan(struct arrow_reader *r)
{
	uint64_t looked = 0;

	return scan_until(r, NULL, &looked);
}

/* Value of ARROW_KEY_DAMAGED for the damage in front of `end`. @return NULL: out of memory */
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

/* Build the trailer of a file that is truncated at `end`, after its first `nb` batches. */
static int
build_trailer(
	const struct arrow_reader *r, size_t nb, uint64_t end, uint8_t **trailer, size_t *size)
{
	struct arrow_block *blocks = malloc((nb + 1) * sizeof(*blocks));
	char *damaged = mark_damage(r, end);
	int ret = -ENOMEM;
	size_t i;

	if (blocks != NULL && damaged != NULL) {
		for (i = 0; i < nb; i++)
			blocks[i] = (struct arrow_block){r->batches[i].offset,
				r->batches[i].metadata_size, r->batches[i].body_length};
		ret = arrow_trailer_build(
			&r->schema, blocks, nb, damaged[0] != '\0' ? damaged : NULL, trailer, size);
	}
	free(blocks);
	free(damaged);
	return ret;
}

const char *
arrow_recovery_frame_fault(const struct arrow_reader *r)
{
	const char *version = arrow_reader_meta(r, ARROW_META_VERSION);
	uint8_t *trailer;
	bool whole;
	size_t size;

	if (r->schema_fault != NULL)
		return r->schema_fault;
	/* the footer also lists batches that were damaged after it was written: do not compare */
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

/*
 * Write the footer after the kept batches and truncate the file after the footer. The bytes to be
 * truncated are first made durable in a quarantine file.
 * @param removed  the caller removes the file: leave it unchanged
 * @param planned  out: a plan was written
 */
static int
rebuild_end(const struct arrow_io_ops *io, void *handle, const char *part,
	const struct arrow_reader *r, uint64_t end, bool removed, struct arrow_recovery *report,
	bool *planned)
{
	const size_t nb = report->batches;
	struct arrow_quarantine p = {NULL, 0, 0};
	uint8_t *trailer = NULL;
	bool cuts;
	size_t size;
	int ret;

	ret = build_trailer(r, nb, end, &trailer, &size);
	if (ret < 0)
		return ret;
	/*
	 * Keep a trailer that is complete. All bytes are compared, because a readable footer does
	 * not imply that the whole trailer is present.
	 */
	if (r->size - end == size && arrow_content_is_same(r, end, NULL, trailer, size)) {
		free(trailer);
		return arrow_content_sync(io, handle);
	}
	ret = arrow_quarantine_list(r, nb, end, trailer, size, &p);
	if (ret == 0 && p.nb > 0) {
		ret = arrow_quarantine_keep(io, part, r, &p, report->quarantine);
		report->quarantined = ret == 0 ? p.bytes - p.piece[0].size : 0;
		if (ret < 0)
			snprintf(report->message, sizeof(report->message),
				"unchanged: cannot save the bytes to be truncated in %.*s: %s",
				PATH_MAX, report->quarantine, strerror(-ret));
	}
	cuts = p.nb > 0 || nb < r->nb_batches || r->complete;
	if (ret == 0 && cuts && !removed) {
		ret = arrow_plan_write(io, part, r, nb, end, trailer, size);
		*planned = ret == 0;
		if (ret == 0)
			ret = arrow_plan_cut(io, handle, end);
	}
	if (ret == 0 && !removed)
		ret = arrow_plan_end(io, handle, trailer, size, end);
	free(p.piece);
	free(trailer);
	return ret;
}

/* Describe the result in one sentence. */
static void
describe_content(const struct arrow_reader *r, const char *why, struct arrow_recovery *report)
{
	const struct arrow_read_damage *d = r->damage;
	char cut[256] = "", room[128] = "", damage[256] = "", quarantine[PATH_MAX + 64] = "";

	if (report->cut > 0)
		snprintf(cut, sizeof(cut),
			"; cut %" PRIu64 " bytes after the last valid batch%s%.160s", report->cut,
			why != NULL ? ": " : "", why != NULL ? why : "");
	if (report->room > 0)
		snprintf(room, sizeof(room), "; released %" PRIu64 " unused preallocated bytes",
			report->room);
	if (report->damaged > 0)
		snprintf(damage, sizeof(damage),
			"; %" PRIu64 " damaged batch%s, not listed, in place: the first (%s) at "
			"byte %" PRIu64 ": %s",
			report->damaged, plural(report->damaged, "", "es"),
			d->announced ? d->batch.sequence : "number unknown", d->offset, d->why);
	if (report->quarantined > 0)
		snprintf(quarantine, sizeof(quarantine), "; %" PRIu64 " bytes saved in %s",
			report->quarantined, report->quarantine);
	snprintf(report->message, sizeof(report->message),
		"%" PRIu64 " batch%s, %" PRIu64 " rows%s%s%s%s%.*s", report->batches,
		plural(report->batches, "", "es"), report->rows, cut, room,
		report->repaired ? "; repaired one copy of its schema from the other" : "", damage,
		(int)sizeof(quarantine), quarantine);
}

/*
 * Compute which part of the file stays: the batches with numbers below `below`, UINT64_MAX: all.
 * @return its size in bytes
 */
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
	/* a batch that is only out of order and an unreadable region are not a torn tail: keep */
	for (i = 0; i < r->nb_damage && below == UINT64_MAX; i++) {
		d = &r->damage[i];
		if (d->offset >= end &&
			(d->why == arrow_order_fault || is_unreadable(r, d->offset, d->length)))
			end = d->offset + d->length;
	}
	/* no torn tail can follow a valid footer */
	if (r->complete && below == UINT64_MAX)
		end = r->end;
	if (end > whole_blocks)
		end = whole_blocks;
	for (i = 0; i < r->nb_damage && r->damage[i].offset < end; i++)
		;
	report->damaged = i;
	return end;
}

/* Count the bytes that are truncated at `end`. @return the reason; NULL: there are none */
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
	report->cut = batches - end + arrow_quarantine_trim(r, batches, last - batches);
	report->room = last - end - report->cut;
	if (report->batches < r->nb_batches || below != UINT64_MAX)
		return "removed on request";
	/* if the last batches are damaged, they are truncated with the tail */
	return report->damaged < r->nb_damage ? r->damage[report->damaged].why : r->problem;
}

/*
 * Reject files that consist mainly of holes. A hole takes no disk space, so a file can be made that
 * takes unbounded time to check.
 */
static int
check_size(const struct arrow_content *c, uint64_t written, struct arrow_recovery *report)
{
	if (written <= HOLES_MAX || (written - HOLES_MAX) / HOLES_TIMES <= c->allocated)
		return 0;
	snprintf(report->message, sizeof(report->message),
		"unchanged: %" PRIu64 " bytes, of which %" PRIu64 " are allocated; not a file of "
		"braggline, its holes are too large",
		written, c->allocated);
	return -EFBIG;
}

/* Recover a file that has a valid schema and is not empty. */
static int
recover_batches(const struct arrow_io_ops *io, void *handle, const char *part,
	struct arrow_reader *r, uint64_t below, const bool *stop, struct arrow_recovery *report,
	bool *planned)
{
	const size_t listed = r->nb_batches;
	const char *why = NULL;
	uint64_t end;
	int ret;

	ret = scan_until(r, stop, &report->looked);
	/* the file is still unchanged */
	if (is_stopped(stop)) {
		snprintf(report->message, sizeof(report->message), "unchanged: interrupted");
		return -ECANCELED;
	}
	if (ret == -EFBIG)
		snprintf(report->message, sizeof(report->message),
			"unchanged: announced batches overlap; to check them takes more than "
			"%" PRIu64 " bytes of reading, the file has %" PRIu64,
			arrow_recovery_limit(r->size), r->size);
	if (ret < 0)
		return ret;
	end = find_end(r, below, report);
	/*
	 * Keep the footer if every batch that the reader found is sound. Readers skip damage that
	 * the footer lists, and they find damaged announcements themselves.
	 */
	if (r->complete && below == UINT64_MAX && r->nb_batches == listed) {
		ret = arrow_content_sync(io, handle);
	} else {
		why = count_cut(r, end, below, report);
		ret = rebuild_end(io, handle, part, r, end, below == 0, report, planned);
	}
	if (ret == 0 && below == 0)
		report->state = ARROW_RECOVERY_REMOVED;
	if (ret == 0)
		describe_content(r, why, report);
	else if (report->message[0] == '\0')
		snprintf(report->message, sizeof(report->message), "cannot write its footer: %s",
			strerror(-ret));
	return ret;
}

static int
open_reader(struct arrow_reader *r, struct arrow_content *c, uint64_t written, const char **problem)
{
	int ret;

	if (c->window != NULL)
		ret = arrow_reader_open_window(r, c->window, c->size, written, problem);
	else
		ret = arrow_reader_open_written(r, c->data, c->size, written, problem);
	if (ret == 0 && !arrow_reader_has_schema(r)) {
		*problem = ARROW_NO_SCHEMA;
		ret = -EBADMSG;
		arrow_reader_close(r);
	}
	if (ret < 0 && c->window != NULL &&
		arrow_window_is_unreadable(c->window, 0, ARROW_WINDOW_AT_ONCE)) {
		*problem = "read error of the disk in its schema";
		ret = -EIO;
	}
	return ret;
}

/* Repair the damaged copy of the schema from the other copy, which a crash leaves intact. */
static int
repair_schema(const struct arrow_io_ops *io, void *handle, const struct arrow_reader *r,
	struct arrow_recovery *report)
{
	int ret;

	ret = arrow_content_write(
		io, handle, r->data + r->copy_at, r->copy, r->copy_at == 0 ? r->copy : 0);
	if (ret == 0)
		ret = arrow_content_sync(io, handle);
	report->repaired = ret == 0;
	if (ret < 0)
		snprintf(report->message, sizeof(report->message),
			"unchanged: " ARROW_ONE_SCHEMA ", and cannot be written: %s",
			strerror(-ret));
	return ret;
}

/*
 * Recover a file without renaming it. Only batches with numbers below `below` stay.
 * @return 0; -EAGAIN: the schema was repaired, and the file must be read again; -errno
 */
static int
recover_content(const struct arrow_io_ops *io, void *handle, const char *part, uint64_t below,
	const bool *stop, struct arrow_recovery *report, bool *planned)
{
	const char *problem = NULL;
	struct arrow_reader r;
	struct arrow_content c;
	uint64_t written;
	bool repair = false;
	int ret;

	ret = arrow_content_open(&c, io, handle);
	if (ret < 0) {
		snprintf(report->message, sizeof(report->message), "cannot read it: %s",
			strerror(-ret));
		goto out;
	}
	written = io->written != NULL ? io->written(handle) : c.size;
	if (written > c.size)
		written = c.size;
	ret = check_size(&c, written, report);
	if (ret < 0)
		goto out;
	r = arrow_content_bytes(&c);
	/* an empty file, or one that has only unused preallocated space */
	if (arrow_reader_is_zero(&r, 0, written) &&
		(c.window == NULL || arrow_window_unreadable_end(c.window) == 0)) {
		report->state = ARROW_RECOVERY_REMOVED;
		report->room = c.size;
		goto out;
	}
	ret = open_reader(&r, &c, written, &problem);
	if (ret < 0) {
		snprintf(report->message, sizeof(report->message), "no batch can be recovered: %s",
			problem != NULL ? problem : strerror(-ret));
		goto out;
	}
	arrow_reader_only(&r, part);
	repair = r.schema_fault != NULL;
	ret = repair ? repair_schema(io, handle, &r, report)
		     : recover_batches(io, handle, part, &r, below, stop, report, planned);
	arrow_reader_close(&r);
out:
	if (c.window != NULL)
		report->looked += arrow_window_bytes_read(c.window);
	arrow_content_close(&c);
	return ret == 0 && repair ? -EAGAIN : ret;
}

static int
recover_name(const struct arrow_io_ops *io, const char *part, struct arrow_recovery *report)
{
	int ret;

	if (report->state == ARROW_RECOVERY_REMOVED) {
		if (report->message[0] == '\0')
			snprintf(report->message, sizeof(report->message),
				"removed: no batch was written");
		ret = io->remove(part);
	} else {
		ret = io->rename(part, report->path);
	}
	if (ret == 0)
		ret = io->sync_dir(part);
	if (ret == -EEXIST)
		snprintf(report->message, sizeof(report->message), "unchanged: %.*s already exists",
			PATH_MAX, report->path);
	else if (ret < 0)
		snprintf(report->message, sizeof(report->message), "cannot be %s: %s",
			report->state == ARROW_RECOVERY_REMOVED ? "removed" : "renamed",
			strerror(-ret));
	return ret;
}

static int
recover(const struct arrow_io_ops *io, const char *part, uint64_t below, const bool *stop,
	struct arrow_recovery *report)
{
	/* buffered I/O with depth 1 is sufficient: only a few blocks are written */
	const struct arrow_io_open how = {
		.path = part,
		.existing = true,
		.mode = ARROW_IO_BUFFERED,
		.depth = 1,
	};
	bool planned = false;
	void *handle;
	int ret;

	memset(report, 0, sizeof(*report));
	snprintf(report->path, sizeof(report->path), "%s", part);
	ret = -EINVAL;
	snprintf(report->message, sizeof(report->message),
		"expected a file name that ends in .arrow" PART);
	if (!arrow_name_is_part(part) || strlen(part) >= sizeof(report->path))
		goto out;
	ret = io->open(&handle, &how);
	if (ret < 0) {
		snprintf(report->message, sizeof(report->message), "cannot open: %s",
			ret == -EBUSY ? "locked by another process" : strerror(-ret));
		goto out;
	}
	report->path[strlen(part) - strlen(PART)] = '\0';
	report->message[0] = '\0';
	ret = arrow_plan_follow(io, handle, part);
	if (ret < 0)
		snprintf(report->message, sizeof(report->message),
			"cannot resume an interrupted recovery: %s", strerror(-ret));
	if (ret == 0)
		ret = recover_content(io, handle, part, below, stop, report, &planned);
	if (ret == -EAGAIN && report->repaired)
		ret = recover_content(io, handle, part, below, stop, report, &planned);
	if (ret == -EAGAIN) {
		ret = -EIO;
		snprintf(report->message, sizeof(report->message),
			"unchanged: " ARROW_ONE_SCHEMA ", also after it was written");
	}
	/* the footer is durable, so the plan is no longer needed */
	if (ret == 0 && planned)
		ret = arrow_plan_remove(io, part);
	/* rename the file while it is still locked */
	if (ret == 0)
		ret = recover_name(io, part, report);
	(void)io->close(handle);
out:
	if (ret < 0) {
		report->state = ret == -EBUSY ? ARROW_RECOVERY_BUSY : ARROW_RECOVERY_FAILED;
		report->error = ret;
		snprintf(report->path, sizeof(report->path), "%s", part);
	}
	return ret;
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

/*
 * Check whether the file can be recovered after it is renamed to `.part`. If it could not, readers
 * would never see it again. A damaged batch does not fail the check, because it is marked and stays
 * in place.
 */
static int
check_before_cut(const struct arrow_io_ops *io, const char *path, struct arrow_recovery *report)
{
	const struct arrow_io_open how = {path, true, ARROW_IO_BUFFERED, 1};
	const char *problem = NULL;
	struct arrow_reader r;
	struct arrow_content c;
	void *handle;
	int ret;

	ret = io->open(&handle, &how);
	if (ret < 0)
		return ret;
	ret = arrow_content_open(&c, io, handle);
	if (ret == 0)
		ret = open_reader(&r, &c, c.size, &problem);
	if (ret == 0)
		arrow_reader_close(&r);
	arrow_content_close(&c);
	(void)io->close(handle);
	if (ret < 0)
		snprintf(report->message, sizeof(report->message), "unchanged: %s",
			problem != NULL ? problem : strerror(-ret));
	return ret;
}

int
arrow_cut_file(const struct arrow_io_ops *io, const char *path, uint64_t from,
	struct arrow_recovery *report)
{
	char name[PATH_MAX], part[PATH_MAX];
	int ret;

	if (io == NULL)
		io = &direct_io;
	memset(report, 0, sizeof(*report));
	snprintf(report->path, sizeof(report->path), "%s", path);
	snprintf(name, sizeof(name), "%s", path);
	if (arrow_name_is_part(name))
		name[strlen(name) - strlen(PART)] = '\0';
	if (snprintf(part, sizeof(part), "%s" PART, name) >= (int)sizeof(part))
		return -ENAMETOOLONG;
	ret = from > 0 ? check_before_cut(io, name, report) : 0;
	if (ret == -ENOENT)
		ret = check_before_cut(io, part, report);
	if (ret < 0) {
		report->state = ARROW_RECOVERY_FAILED;
		report->error = ret;
		return ret;
	}
	/* rename it to `.part` first, so that recovery completes the file after a crash */
	ret = io->rename(name, part);
	/* not found: it is already `.part`, or an earlier attempt renamed or removed it */
	if (ret == -ENOENT)
		ret = 0;
	if (ret == 0)
		ret = io->sync_dir(part);
	if (ret < 0) {
		report->state = ARROW_RECOVERY_FAILED;
		report->error = ret;
		snprintf(report->message, sizeof(report->message), "cannot truncate: %s",
			strerror(-ret));
		return ret;
	}
	ret = recover(io, part, from, NULL, report);
	if (ret != -ENOENT || from > 0)
		return ret;
	report->state = ARROW_RECOVERY_REMOVED;
	report->error = 0;
	snprintf(report->message, sizeof(report->message), "already removed");
	return 0;
}
