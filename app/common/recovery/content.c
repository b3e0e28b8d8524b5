/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "recovery/content.h"

#define PART	  ".part"
#define WRITE_MAX (UINT64_C(64) << 20) /* bytes of one write */

static int64_t
read_content(void *arg, void *data, uint64_t size, uint64_t offset)
{
	const struct arrow_content *c = arg;

	return c->io->read(c->handle, data, size, offset);
}

int
arrow_content_open(struct arrow_content *c, const struct arrow_io_ops *io, void *handle)
{
	int ret;

	*c = (struct arrow_content){.io = io, .handle = handle};
	if (io->read == NULL) {
		ret = io->map(handle, &c->data, &c->size);
		c->allocated = c->size;
		return ret;
	}
	ret = io->size(handle, &c->size, &c->allocated);
	if (ret == 0)
		ret = arrow_window_open(&c->window, c->size, read_content, c);
	if (ret == 0)
		c->data = arrow_window_data(c->window);
	return ret;
}

void
arrow_content_close(struct arrow_content *c)
{
	arrow_window_close(c->window);
}

struct arrow_reader
arrow_content_bytes(const struct arrow_content *c)
{
	return (struct arrow_reader){
		.data = c->data, .size = c->size, .written = c->size, .window = c->window};
}

bool
arrow_content_is_same(const struct arrow_reader *a, uint64_t at, const struct arrow_reader *b,
	const uint8_t *with, uint64_t size)
{
	uint64_t done, part;

	for (done = 0; done < size; done += part) {
		part = size - done < ARROW_CONTENT_PART ? size - done : ARROW_CONTENT_PART;
		arrow_reader_load(a, a->data + at + done, part);
		if (b != NULL)
			arrow_reader_load(b, with + done, part);
		if (memcmp(a->data + at + done, with + done, part) != 0)
			return false;
	}
	return true;
}

int
arrow_content_write(const struct arrow_io_ops *io, void *handle, const uint8_t *data, uint64_t size,
	uint64_t offset)
{
	struct arrow_io_done done;
	struct iovec iov;
	int ret = 0;

	while (size > 0 && ret == 0) {
		/* iov_base is not const */
		iov = (struct iovec){(void *)(uintptr_t)data, size < WRITE_MAX ? size : WRITE_MAX};
		ret = io->write(handle, &iov, 1, offset, 0);
		if (ret == 0)
			ret = io->reap(handle, true, &done);
		ret = ret < 0 ? ret : done.error;
		data += iov.iov_len;
		size -= iov.iov_len;
		offset += iov.iov_len;
	}
	return ret;
}

int
arrow_content_sync(const struct arrow_io_ops *io, void *handle)
{
	struct arrow_io_done done;
	int ret;

	ret = io->sync(handle, 0);
	if (ret == 0)
		ret = io->reap(handle, true, &done);
	return ret < 0 ? ret : done.error;
}

int
arrow_content_name(char path[PATH_MAX], const char *part, const char *hidden, const char *what)
{
	const char *slash = strrchr(part, '/');
	const int dir = slash != NULL ? (int)(slash + 1 - part) : 0;

	return snprintf(path, PATH_MAX, "%.*s%s%.*s%s", dir, part, hidden,
		       (int)(strlen(part) - strlen(PART)) - dir, part + dir, what) < PATH_MAX
		? 0
		: -ENAMETOOLONG;
}
