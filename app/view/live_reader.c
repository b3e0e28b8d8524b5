/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gk_abi.h>

#include "bounds.h"
#include "geometry/file.h"
#include "io/own_file.h"
#include "live_reader.h"

#define TRIES 4

/** Return true if [offset, offset + size) is in the file. */
static bool
is_inside(uint64_t offset, uint64_t size, uint64_t of)
{
	return offset <= of && size <= of - offset;
}

int
live_reader_check(const struct live_file_head *h, uint64_t size)
{
	const uint64_t pixels = (uint64_t)h->rows * h->cols;
	const uint64_t value = live_reader_value_size(h), room = size - LIVE_FILE_DATA;
	bool good;

	if (memcmp(h->magic, LIVE_FILE_MAGIC, sizeof(h->magic)) != 0 || h->size != size ||
		size < LIVE_FILE_DATA)
		return -EPROTO;
	good = h->rows >= 1 && h->cols >= 1 && h->cols <= GK_COLS_MAX && pixels <= LIMIT_PIXELS &&
		h->packets >= 1 && h->packets <= FRAME_PACKETS_MAX &&
		(uint64_t)h->packets * h->packet_rows == h->rows && h->value <= 1 &&
		h->nnz_cap <= pixels && h->geometry_size < GEOMETRY_FILE_MAX &&
		memchr(h->run, '\0', sizeof(h->run)) != NULL;
	/* The lists of a sparse frame must be before its values. Large gaps are refused: holes of a
	 * file take no memory, but their copies would. */
	good = good && is_inside(h->row_ptr, (h->rows + 1) * sizeof(uint32_t), h->col) &&
		is_inside(h->col, h->nnz_cap * sizeof(uint16_t), h->values) &&
		h->values <= (h->rows + 1) * sizeof(uint32_t) + h->nnz_cap * sizeof(uint16_t) +
				2 * LIVE_FILE_ALIGN &&
		is_inside(h->values, pixels * value, room) && h->row_ptr % 8 == 0 &&
		h->col % 8 == 0 && h->values % 8 == 0;
	/* the pixels of a slot end with those of a full image */
	for (uint32_t i = 0; good && i < LIVE_FILE_SLOTS; i++)
		good = is_inside(h->slot[i], LIVE_FILE_DATA + h->values + pixels * value, size);
	good = good && is_inside(h->maximum, pixels * sizeof(float), size) &&
		is_inside(h->sum, pixels * sizeof(double), size) &&
		is_inside(h->mask, pixels, size) && is_inside(h->geometry, h->geometry_size, size);
	return good ? 0 : -EPROTO;
}

int
live_reader_at(const struct live_reader *r, uint64_t offset, void *to, size_t size)
{
	uint8_t *p = to;
	ssize_t n;

	while (size > 0) {
		n = pread(r->fd, p, size, (off_t)offset);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		p += n;
		offset += (uint64_t)n;
		size -= (size_t)n;
	}
	return 0;
}

int
live_reader_open(struct live_reader *r, const char *path)
{
	struct stat st;
	int ret;

	/* first: opening a FIFO wakes its writer, and opening a device can do anything */
	if (stat(path, &st) != 0)
		r->fd = -errno;
	else if (!S_ISREG(st.st_mode))
		r->fd = S_ISDIR(st.st_mode) ? -EISDIR : -EMEDIUMTYPE;
	else
		r->fd = own_file_open_named(path, O_RDONLY | O_CLOEXEC, 0);
	if (r->fd < 0) {
		ret = r->fd;
		r->fd = -1;
		return ret;
	}
	ret = fstat(r->fd, &st) == 0 ? 0 : -errno;
	if (ret == 0)
		ret = live_reader_at(r, 0, &r->head, sizeof(r->head));
	if (ret == 0)
		ret = live_reader_check(&r->head, (uint64_t)st.st_size);
	if (ret == 0 && r->head.generation % 2 != 0)
		ret = -EAGAIN;
	if (ret != 0)
		live_reader_close(r);
	return ret == -EIO ? -EPROTO : ret;
}

void
live_reader_close(struct live_reader *r)
{
	if (r->fd >= 0)
		close(r->fd);
	r->fd = -1;
}

bool
live_reader_is_stale(const struct live_reader *r)
{
	uint64_t generation;

	return live_reader_at(r, offsetof(struct live_file_head, generation), &generation,
		       sizeof(generation)) != 0 ||
		generation != r->head.generation;
}

/** @return 0; -EAGAIN: the frame is not complete, or was replaced */
static int
check_slot(const struct live_reader *r, uint64_t slot, uint64_t sequence)
{
	uint64_t seen[2];
	const int ret = live_reader_at(r, slot, seen, sizeof(seen));

	if (ret != 0)
		return ret;
	return seen[0] == sequence && seen[1] == sequence ? 0 : -EAGAIN;
}

/** Bytes of the pixels from the start of the slot's data. */
static uint64_t
data_size(const struct live_file_head *h, const struct live_file_frame *f)
{
	const uint64_t n = f->kind == GK_KIND_CSR ? f->nnz : live_reader_pixels(h);

	return h->values + n * live_reader_value_size(h);
}

static int
read_frame(struct live_reader *r, struct live_file_frame *f, uint8_t **pixels)
{
	const struct live_file_head *h = &r->head;
	uint64_t sequence, slot;
	int ret;

	ret = live_reader_at(
		r, offsetof(struct live_file_head, sequence), &sequence, sizeof(sequence));
	if (ret != 0)
		return ret;
	if (sequence == 0)
		return -ENODATA;
	slot = h->slot[sequence % LIVE_FILE_SLOTS];
	ret = live_reader_at(r, slot, f, sizeof(*f));
	if (ret != 0)
		return ret;
	/* a run has begun, and has no frame yet */
	if (f->begin == 0 && f->end == 0)
		return -ENODATA;
	if (f->begin != sequence || f->end != sequence)
		return -EAGAIN;
	if ((f->kind != GK_KIND_CSR && f->kind != GK_KIND_IMAGE) || f->nb_peaks > LIVE_FILE_PEAKS ||
		(f->kind == GK_KIND_CSR && f->nnz > h->nnz_cap))
		return -EPROTO;
	if (pixels == NULL)
		return check_slot(r, slot, sequence);
	*pixels = malloc(data_size(h, f));
	if (*pixels == NULL)
		return -ENOMEM;
	ret = live_reader_at(r, slot + LIVE_FILE_DATA, *pixels, data_size(h, f));
	if (ret == 0)
		ret = check_slot(r, slot, sequence);
	if (ret != 0) {
		free(*pixels);
		*pixels = NULL;
	}
	return ret;
}

int
live_reader_frame(struct live_reader *r, struct live_file_frame *f, uint8_t **pixels)
{
	int ret = -EAGAIN;

	for (int i = 0; i < TRIES && ret == -EAGAIN; i++)
		ret = read_frame(r, f, pixels);
	return ret;
}

float
live_reader_value(const struct live_file_head *h, const void *values, size_t i)
{
	const int16_t v = h->value == GK_VALUE_I16 ? ((const int16_t *)values)[i] : 0;

	if (h->value != GK_VALUE_I16)
		return ((const float *)values)[i];
	return v == INT16_MIN ? NAN : v == INT16_MAX ? INFINITY : v;
}
