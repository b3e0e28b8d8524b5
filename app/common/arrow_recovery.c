/* SPDX-License-Identifier: BSD-3-Clause */

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arrow_name.h"
#include "arrow_recovery.h"
#include "arrow_tables.h"
#include "direct_io.h"

#define PART		 ".part"
#define CALIBRATION_PART "_calibration.bin.part"

/* @return true if `text` has so many hexadecimal digits and nothing else */
static bool
is_hex(const char *text, size_t digits)
{
	return text != NULL && strlen(text) == digits && strspn(text, "0123456789abcdef") == digits;
}

static bool
has_identity(const struct arrow_reader *r, const struct arrow_read_batch *b)
{
	const char *table = arrow_reader_meta(r, ARROW_META_TABLE);

	return is_hex(b->producer, 16) && is_hex(b->run, 16) && is_hex(b->incarnation, 16) &&
		is_hex(b->sequence, 16) && is_hex(b->crc32c, 8) && is_hex(b->metadata_crc32c, 8) &&
		b->table != NULL && table != NULL && strcmp(b->table, table) == 0;
}

/* A file holds one stream, ascending; what is missing another store may have. */
static bool
follows(const struct arrow_read_batch *b, const struct arrow_read_batch *before)
{
	return strcmp(b->producer, before->producer) == 0 && strcmp(b->run, before->run) == 0 &&
		strcmp(b->incarnation, before->incarnation) == 0 &&
		strtoull(b->sequence, NULL, 16) > strtoull(before->sequence, NULL, 16);
}

const char *
arrow_recovery_fault(const struct arrow_reader *r, size_t i)
{
	const struct arrow_read_batch *b = &r->batches[i];
	struct arrow_column column;
	unsigned int k;

	if (b->offset % ARROW_BLOCK != 0 || b->metadata_size % ARROW_BLOCK != 0 ||
		b->body_length % ARROW_BLOCK != 0)
		return "a batch that is not made of whole blocks";
	if (!has_identity(r, b))
		return "a batch without identity";
	if (i > 0 && !follows(b, &r->batches[i - 1]))
		return "a batch that does not follow the one before";
	for (k = 0; k < r->schema.nb_fields; k++) {
		if (arrow_reader_column(r, i, k, &column) < 0)
			return "a batch whose columns do not agree with the schema";
	}
	return arrow_reader_crc(r, i) == 1 ? NULL : "a batch with a wrong CRC-32C";
}

size_t
arrow_recovery_scan(const struct arrow_reader *r, uint64_t *end, const char **why)
{
	const struct arrow_read_batch *b;
	size_t i;

	*why = NULL;
	for (i = 0; i < r->nb_batches; i++) {
		*why = arrow_recovery_fault(r, i);
		if (*why != NULL)
			break;
	}
	if (i < r->nb_batches) {
		*end = r->batches[i].offset;
	} else if (i > 0) {
		b = &r->batches[i - 1];
		*end = b->offset + b->metadata_size + b->body_length;
	} else {
		/* `valid` counts the end of the stream as well if there is one */
		*end = r->valid / ARROW_BLOCK * ARROW_BLOCK;
	}
	if (*why == NULL && !r->complete)
		*why = r->problem;
	return i;
}

/* Whether the schema message is what its schema gives when it is written again. That a file of
 * another version gives something else says nothing. */
static bool
header_is_whole(const struct arrow_reader *r)
{
	const char *version = arrow_reader_meta(r, ARROW_META_VERSION);
	const char *last = arrow_reader_meta(r, ARROW_META_END);
	unsigned int part[3];
	uint8_t *header;
	int end = 0;
	bool whole;
	size_t size;

	/* without its metadata it would pass as a schema that has none */
	if (version == NULL || last == NULL || strcmp(last, ARROW_META_END_VALUE) != 0 ||
		arrow_header_build(&r->schema, &header, &size) < 0)
		return false;
	whole = size <= r->size && memcmp(header, r->data, size) == 0;
	free(header);
	/* a version that a lost sector has cut is none */
	return whole ||
		(strcmp(version, BRAGGLINE_VERSION) != 0 &&
			sscanf(version, "%u.%u.%u%n", &part[0], &part[1], &part[2], &end) == 3 &&
			version[end] == '\0');
}

/* Write everything at `offset`, and wait for it. */
static int
write_at(const struct arrow_io_ops *io, void *handle, uint8_t *data, size_t size, uint64_t offset)
{
	const struct iovec iov = {data, size};
	struct arrow_io_done done;
	int rc;

	rc = io->write(handle, &iov, 1, offset, 0);
	if (rc == 0)
		rc = io->reap(handle, true, &done);
	return rc < 0 ? rc : done.error;
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

/* Put the footer behind the first `nb` batches, and nothing behind the footer. */
static int
rebuild_end(const struct arrow_io_ops *io, void *handle, const struct arrow_reader *r, size_t nb,
	uint64_t end)
{
	struct arrow_block *blocks;
	uint8_t *trailer = NULL;
	size_t size, i;
	int rc;

	blocks = malloc((nb + 1) * sizeof(*blocks));
	if (blocks == NULL)
		return -ENOMEM;
	for (i = 0; i < nb; i++)
		blocks[i] = (struct arrow_block){r->batches[i].offset, r->batches[i].metadata_size,
			r->batches[i].body_length};
	rc = arrow_trailer_build(&r->schema, blocks, nb, &trailer, &size);
	free(blocks);
	if (rc < 0)
		return rc;
	/* one that is whole stays; that it lists the batches does not say that all is there */
	if (r->size - end != size || memcmp(r->data + end, trailer, size) != 0) {
		/* the mapping is read no more behind `end` */
		rc = write_at(io, handle, trailer, size, end);
		if (rc == 0)
			rc = io->truncate(handle, end + size);
	}
	free(trailer);
	return rc;
}

/* All but giving it its name; at most `most` batches stay. */
static int
recover_content(
	const struct arrow_io_ops *io, void *handle, size_t most, struct arrow_recovery *report)
{
	const char *problem = NULL;
	struct arrow_reader r;
	const uint8_t *data;
	uint64_t size, end, i;
	size_t nb;
	int rc;

	rc = io->map(handle, &data, &size);
	if (rc < 0) {
		snprintf(report->message, sizeof(report->message), "cannot be read: %s",
			strerror(-rc));
		return rc;
	}
	/* room that was allocated, or not even that */
	if (size == 0 || (data[0] == 0 && memcmp(data, data + 1, size - 1) == 0)) {
		report->state = ARROW_RECOVERY_REMOVED;
		report->cut = size;
		return 0;
	}
	rc = arrow_reader_open_memory(&r, data, size, &problem);
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
	nb = arrow_recovery_scan(&r, &end, &problem);
	if (nb > most) {
		nb = most;
		end = r.batches[nb].offset;
		problem = "they were not to stay";
	}
	if (most == 0)
		report->state = ARROW_RECOVERY_REMOVED;
	report->batches = nb;
	for (i = 0; i < nb; i++)
		report->rows += r.batches[i].rows;
	if (problem != NULL)
		report->cut = size - end;
	rc = rebuild_end(io, handle, &r, nb, end);
	if (rc == 0)
		rc = sync_file(io, handle);
	arrow_reader_close(&r);
	if (rc < 0)
		snprintf(report->message, sizeof(report->message), "cannot write its end: %s",
			strerror(-rc));
	else
		snprintf(report->message, sizeof(report->message),
			"%" PRIu64 " batches, %" PRIu64 " rows; cut %" PRIu64 " bytes%s%s",
			report->batches, report->rows, report->cut, problem != NULL ? ": " : "",
			problem != NULL ? problem : "");
	return rc;
}

static int
recover_name(const struct arrow_io_ops *io, const char *part, struct arrow_recovery *report)
{
	int rc;

	if (report->state == ARROW_RECOVERY_REMOVED) {
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
recover(const struct arrow_io_ops *io, const char *part, size_t most, struct arrow_recovery *report)
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
	rc = recover_content(io, handle, most, report);
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
	return recover(io != NULL ? io : &direct_io, part, SIZE_MAX, report);
}

/* Whether the batches that are to stay are as they were written: a cut goes by what can be read. */
static int
check_before_cut(
	const struct arrow_io_ops *io, const char *path, size_t most, struct arrow_recovery *report)
{
	const struct arrow_io_open how = {path, true, ARROW_IO_BUFFERED, 1};
	const char *problem = NULL;
	struct arrow_reader r;
	uint64_t size, end;
	const uint8_t *data;
	void *handle;
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
		} else if (arrow_recovery_scan(&r, &end, &problem) < most) {
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
	rc = recover(io, part, most, report);
	if (rc != -ENOENT || most > 0)
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
