/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recovery/quarantine.h"

#define QUARANTINE ".quarantine"

static uint64_t
batch_end(const struct arrow_read_batch *b)
{
	return b->offset + b->metadata_size + b->body_length;
}

static uint64_t
round_up(uint64_t size)
{
	return (size + ARROW_BLOCK - 1) / ARROW_BLOCK * ARROW_BLOCK;
}

uint64_t
arrow_quarantine_trim(const struct arrow_reader *r, uint64_t at, uint64_t size)
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
add_piece(const struct arrow_reader *r, struct arrow_quarantine *p, uint64_t at, uint64_t size)
{
	size = arrow_quarantine_trim(r, at, size);
	if (size == 0)
		return;
	p->piece[p->nb++] = (struct arrow_quarantine_piece){at, size};
	p->bytes += round_up(size);
}

/*
 * Whether the bytes are only a part of the trailer that an interrupted write left. Sectors of it
 * may be zeros. Such a part needs no copy, because the new trailer contains it.
 */
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

int
arrow_quarantine_list(const struct arrow_reader *r, size_t nb, uint64_t end, const uint8_t *trailer,
	size_t trailer_size, struct arrow_quarantine *p)
{
	const uint64_t last = r->complete ? r->end : r->written;
	const struct arrow_read_batch *b;
	uint64_t at = end;
	size_t i;

	*p = (struct arrow_quarantine){calloc(r->nb_batches - nb + 2, sizeof(*p->piece)), 0, 0};
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

/* Build the path of the n-th quarantine file of a file. The first has n = 1. */
static int
name_quarantine(char path[PATH_MAX], const char *part, const char *hidden, unsigned int n)
{
	char what[32] = QUARANTINE;

	if (n > 1)
		snprintf(what, sizeof(what), QUARANTINE ".%u", n);
	return arrow_content_name(path, part, hidden, what);
}

/* Whether a file has exactly these bytes. @return 1, 0, -errno */
static int
has_pieces(const struct arrow_io_ops *io, const char *path, const struct arrow_reader *r,
	const struct arrow_quarantine *p)
{
	const struct arrow_io_open how = {path, true, ARROW_IO_BUFFERED, 1};
	struct arrow_reader q;
	struct arrow_content c;
	uint64_t at = 0;
	void *handle;
	size_t i;
	int ret;

	ret = io->open(&handle, &how);
	if (ret < 0)
		return ret;
	ret = arrow_content_open(&c, io, handle);
	if (ret == 0) {
		q = arrow_content_bytes(&c);
		ret = c.size == p->bytes;
		for (i = 0; i < p->nb && ret == 1; i++) {
			ret = arrow_content_is_same(
				&q, at, r, r->data + p->piece[i].at, p->piece[i].size);
			at += round_up(p->piece[i].size);
		}
		/* a copy that is partly unreadable does not count */
		if (ret == 1 && c.window != NULL && arrow_window_unreadable_end(c.window) > 0)
			ret = 0;
		arrow_content_close(&c);
	}
	(void)io->close(handle);
	return ret;
}

static int
write_piece(const struct arrow_io_ops *io, void *handle, const struct arrow_reader *r,
	const struct arrow_quarantine_piece *p, uint64_t at)
{
	uint64_t done, part, whole = p->size / ARROW_BLOCK * ARROW_BLOCK;
	uint8_t last[ARROW_BLOCK] = {0};
	int ret = 0;

	for (done = 0; done < whole && ret == 0; done += part) {
		part = whole - done < ARROW_CONTENT_PART ? whole - done : ARROW_CONTENT_PART;
		arrow_reader_load(r, r->data + p->at + done, part);
		ret = arrow_content_write(io, handle, r->data + p->at + done, part, at + done);
	}
	if (ret < 0 || whole == p->size)
		return ret;
	arrow_reader_load(r, r->data + p->at + whole, p->size - whole);
	memcpy(last, r->data + p->at + whole, p->size - whole);
	return arrow_content_write(io, handle, last, sizeof(last), at + whole);
}

static int
write_pieces(const struct arrow_io_ops *io, void *handle, const struct arrow_reader *r,
	const struct arrow_quarantine *p)
{
	uint64_t at = 0;
	int ret = 0;
	size_t i;

	for (i = 0; i < p->nb && ret == 0; i++) {
		ret = write_piece(io, handle, r, &p->piece[i], at);
		at += round_up(p->piece[i].size);
	}
	return ret == 0 ? arrow_content_sync(io, handle) : ret;
}

int
arrow_quarantine_keep(const struct arrow_io_ops *io, const char *part, const struct arrow_reader *r,
	const struct arrow_quarantine *p, char path[PATH_MAX])
{
	char hidden[PATH_MAX];
	const struct arrow_io_open how = {hidden, false, ARROW_IO_BUFFERED, 1};
	unsigned int n;
	void *handle;
	int ret;

	for (n = 1;; n++) {
		ret = name_quarantine(path, part, "", n);
		if (ret == 0)
			ret = has_pieces(io, path, r, p);
		if (ret == -ENOENT)
			break;
		if (ret == 1)
			return io->sync_dir(path);
		if (ret < 0)
			return ret;
	}
	ret = name_quarantine(hidden, part, ".", 1);
	/*
	 * remove an incomplete copy that a crash left behind: the file still has all of its bytes
	 */
	if (ret == 0)
		ret = io->remove(hidden);
	if (ret == 0 || ret == -ENOENT)
		ret = io->open(&handle, &how);
	if (ret < 0)
		return ret;
	ret = write_pieces(io, handle, r, p);
	if (ret == 0)
		ret = io->rename(hidden, path);
	if (ret < 0)
		(void)io->remove(hidden);
	(void)io->close(handle);
	return ret == 0 ? io->sync_dir(path) : ret;
}
