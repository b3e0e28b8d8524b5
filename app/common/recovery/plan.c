/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "arrow/crc32c.h"
#include "recovery/plan.h"

#define PLAN ".recovery"

/* First block of the plan file. The new trailer of the file follows in the next block. */
struct plan {
	char magic[24];
	uint64_t end;		/* offset of the trailer in the file */
	uint64_t trailer_bytes; /* whole blocks */
	/* identify the file: its first block, and its last announcement before the trailer */
	uint64_t header_bytes;
	uint64_t last; /* offset */
	uint32_t header_crc;
	uint32_t last_crc;
	uint32_t trailer_crc;
	uint32_t crc; /* of all fields above */
};

#define PLAN_MAGIC "braggline recovery 1"

static uint32_t
plan_crc(const struct plan *p)
{
	return arrow_crc32c(0, p, offsetof(struct plan, crc));
}

int
arrow_plan_write(const struct arrow_io_ops *io, const char *part, const struct arrow_reader *r,
	size_t nb, uint64_t end, const uint8_t *trailer, size_t size)
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
	int ret;

	arrow_reader_load(r, r->data + p.last, ARROW_BLOCK);
	p.last_crc = arrow_crc32c(0, r->data + p.last, ARROW_BLOCK);
	p.crc = plan_crc(&p);
	memcpy(block, &p, sizeof(p));
	ret = arrow_content_name(path, part, ".", PLAN);
	if (ret == 0)
		ret = io->open(&handle, &how);
	if (ret < 0)
		return ret;
	ret = arrow_content_write(io, handle, block, sizeof(block), 0);
	if (ret == 0)
		ret = arrow_content_write(io, handle, trailer, size, sizeof(block));
	if (ret == 0)
		ret = arrow_content_sync(io, handle);
	(void)io->close(handle);
	if (ret < 0)
		(void)io->remove(path);
	return ret == 0 ? io->sync_dir(path) : ret;
}

/*
 * Read the plan.
 * @return 1: complete
 *   - 0: incomplete. The recovery crashed before it changed the file.
 *   - -ENOENT: there is no plan
 *   - -errno
 */
static int
read_plan(const struct arrow_io_ops *io, const char *path, struct plan *p, uint8_t **trailer)
{
	const struct arrow_io_open how = {path, true, ARROW_IO_BUFFERED, 1};
	struct arrow_reader r;
	struct arrow_content c;
	void *handle;
	int ret;

	ret = io->open(&handle, &how);
	if (ret < 0)
		return ret;
	ret = arrow_content_open(&c, io, handle);
	if (ret == 0 && c.size >= ARROW_BLOCK) {
		r = arrow_content_bytes(&c);
		arrow_reader_load(&r, r.data, ARROW_BLOCK);
		memcpy(p, r.data, sizeof(*p));
		if (strncmp(p->magic, PLAN_MAGIC, sizeof(p->magic)) == 0 && p->crc == plan_crc(p) &&
			p->trailer_bytes == c.size - ARROW_BLOCK) {
			*trailer = malloc(p->trailer_bytes);
			ret = *trailer != NULL ? 1 : -ENOMEM;
		}
	}
	if (ret == 1 &&
		(io->read != NULL
				? io->read(handle, *trailer, p->trailer_bytes, ARROW_BLOCK) < 0
				: memcpy(*trailer, c.data + ARROW_BLOCK, p->trailer_bytes) == NULL))
		ret = -EIO;
	if (ret == 1 && arrow_crc32c(0, *trailer, p->trailer_bytes) != p->trailer_crc)
		ret = 0;
	arrow_content_close(&c);
	(void)io->close(handle);
	return ret;
}

/*
 * Whether the plan is for this file, and the file has been truncated already. A file that has not
 * been truncated is unchanged, and recovery checks it again.
 */
static bool
fits_plan(const struct arrow_content *c, const struct plan *p)
{
	struct arrow_reader r = arrow_content_bytes(c);

	if (c->size < p->end || c->size - p->end > p->trailer_bytes || p->header_bytes > p->end ||
		p->header_bytes > ARROW_WINDOW_AT_ONCE || p->last + ARROW_BLOCK > p->end)
		return false;
	arrow_reader_load(&r, r.data, p->header_bytes);
	if (arrow_crc32c(0, r.data, p->header_bytes) != p->header_crc)
		return false;
	arrow_reader_load(&r, r.data + p->last, ARROW_BLOCK);
	return arrow_crc32c(0, r.data + p->last, ARROW_BLOCK) == p->last_crc;
}

int
arrow_plan_cut(const struct arrow_io_ops *io, void *handle, uint64_t end)
{
	int ret = io->truncate(handle, end);

	return ret == 0 ? arrow_content_sync(io, handle) : ret;
}

int
arrow_plan_end(const struct arrow_io_ops *io, void *handle, const uint8_t *trailer, size_t size,
	uint64_t end)
{
	int ret = arrow_content_write(io, handle, trailer, size, end);

	if (ret == 0)
		ret = io->truncate(handle, end + size);
	return ret == 0 ? arrow_content_sync(io, handle) : ret;
}

int
arrow_plan_follow(const struct arrow_io_ops *io, void *handle, const char *part)
{
	uint8_t *trailer = NULL;
	char path[PATH_MAX];
	struct arrow_content c;
	struct plan p;
	bool fits;
	int ret;

	ret = arrow_content_name(path, part, ".", PLAN);
	if (ret == 0)
		ret = read_plan(io, path, &p, &trailer);
	if (ret == -ENOENT)
		return 0;
	if (ret == 1) {
		ret = arrow_content_open(&c, io, handle);
		fits = ret == 0 && fits_plan(&c, &p);
		arrow_content_close(&c);
		if (fits) {
			ret = arrow_plan_cut(io, handle, p.end);
			if (ret == 0)
				ret = arrow_plan_end(io, handle, trailer, p.trailer_bytes, p.end);
		}
	}
	free(trailer);
	/* the file is complete, or is unchanged: the plan is not needed any more */
	return ret == 0 ? io->remove(path) : ret;
}

int
arrow_plan_remove(const struct arrow_io_ops *io, const char *part)
{
	char path[PATH_MAX];
	int ret = arrow_content_name(path, part, ".", PLAN);

	if (ret == 0)
		ret = io->remove(path);
	return ret == -ENOENT ? 0 : ret;
}
