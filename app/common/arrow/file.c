/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arrow/file.h"
#include "arrow/batch.h"
#include "fail_point.h"

/* What to do about an error. */
static const char *
advice(int error)
{
	switch (error) {
	case -ENOSPC:
		return "; free space on this file system";
	case -EDQUOT:
		return "; free space, or raise this user's quota";
	case -EFBIG:
		return "; raise the limit of file sizes (ulimit -f)";
	case -ENOENT:
		return "; it or its directory was removed or renamed; its rows count as unwritten";
	default:
		return "";
	}
}

static int
file_fail(struct arrow_file *f, int error, const char *what)
{
	if (f->error != 0)
		return f->error;
	f->error = error;
	snprintf(f->message, sizeof(f->message), "cannot %s %s at byte %llu: %s%s", what, f->part,
		(unsigned long long)f->size, strerror(-error), advice(error));
	return error;
}

static void
file_free(struct arrow_file *f)
{
	async_writer_close(&f->out);
	free(f->batches);
	free(f->pending);
	f->batches = NULL;
	f->pending = NULL;
}

void
arrow_file_discard(struct arrow_file *f)
{
	if (f->out.handle == NULL)
		return;
	async_writer_cut(&f->out, 0);
	/* remove it while it is locked */
	(void)f->out.config.io->remove(f->part);
	file_free(f);
}

int
arrow_file_create(struct arrow_file *f, const struct async_writer_config *config, const char *dir,
	const char *name, const struct arrow_schema *schema)
{
	static const struct async_writer_config defaults;
	struct iovec iov;
	uint8_t *header;
	size_t size;
	int ret;

	memset(f, 0, sizeof(*f));
	f->schema = schema;
	if (snprintf(f->path, sizeof(f->path), "%s/%s.arrow", dir, name) >=
			(int)sizeof(f->path) - 5 ||
		snprintf(f->part, sizeof(f->part), "%s/%s.arrow.part", dir, name) >=
			(int)sizeof(f->part))
		return file_fail(f, -ENAMETOOLONG, "name");
	/* fail now, not after hours of writing */
	if (access(f->path, F_OK) == 0) {
		f->error = -EEXIST;
		snprintf(f->message, sizeof(f->message),
			"%s already exists; move it away or set another run name", f->path);
		return f->error;
	}
	ret = arrow_header_build(schema, &header, &size);
	if (ret < 0)
		return file_fail(f, ret, "write the header of");
	ret = async_writer_open(&f->out, config != NULL ? config : &defaults, f->part);
	if (ret < 0) {
		file_fail(f, ret, "create");
		if (ret == -EEXIST)
			snprintf(f->message, sizeof(f->message),
				"%s already exists: another process writes this run, or has left "
				"it; set another run name",
				f->part);
		goto out;
	}
	/* write the header now, so that the creation of the file reports a full disk */
	iov = (struct iovec){header, size};
	ret = async_writer_put(&f->out, &iov, 1, false);
	if (ret == 0)
		ret = async_writer_flush(&f->out);
	if (ret < 0) {
		file_fail(f, ret, "write");
		arrow_file_discard(f);
		goto out;
	}
	/* now, since a batch is durable only if the name is, and an lcore must not wait then */
	ret = f->out.config.io->sync_dir(f->part);
	if (ret < 0) {
		file_fail(f, ret, "sync the directory of");
		arrow_file_discard(f);
		goto out;
	}
	f->size = size;
	f->durable_end = size;
out:
	free(header);
	return ret;
}

int
arrow_file_reserve(struct arrow_file *f, uint64_t bytes)
{
	const int ret = async_writer_reserve(&f->out, f->size + bytes);

	if (ret == 0 || ret == -EOPNOTSUPP)
		return 0;
	snprintf(f->message, sizeof(f->message), "cannot reserve %llu bytes for %s: %s",
		(unsigned long long)bytes, f->part, strerror(-ret));
	arrow_file_discard(f);
	return ret;
}

void
arrow_file_count(
	struct arrow_file *f, struct arrow_file_progress *progress, struct histogram *latency)
{
	const struct arrow_file_progress now = {
		.rows = f->rows_durable,
		.batches = f->nb_durable,
		.bytes = f->size,
		.syncs = f->out.syncs,
	};

	progress->rows = now.rows - f->counted.rows;
	progress->batches = now.batches - f->counted.batches;
	progress->bytes = now.bytes - f->counted.bytes;
	progress->syncs = now.syncs - f->counted.syncs;
	f->counted = now;
	/* latencies are measured when batches become durable */
	if (progress->batches > 0) {
		histogram_add(latency, &f->latency);
		f->latency = (struct histogram){0};
	}
}

static struct arrow_file_pending *
pending_at(const struct arrow_file *f, size_t i)
{
	return &f->pending[i & (f->cap_pending - 1)];
}

/* Make room for one more batch. */
static int
grow_batches(struct arrow_file *f)
{
	const size_t cap = f->cap_batches * 2 + 512;
	struct arrow_file_batch *batches;

	if (f->nb_batches < f->cap_batches)
		return 0;
	batches = realloc(f->batches, cap * sizeof(*batches));
	if (batches == NULL)
		return -ENOMEM;
	f->batches = batches;
	f->cap_batches = cap;
	return 0;
}

static int
grow_pending(struct arrow_file *f)
{
	const size_t cap = f->cap_pending > 0 ? f->cap_pending * 2 : 256;
	struct arrow_file_pending *pending;
	size_t i;

	if (f->nb_batches - f->nb_durable < f->cap_pending)
		return 0;
	pending = malloc(cap * sizeof(*pending));
	if (pending == NULL)
		return -ENOMEM;
	for (i = f->nb_durable; i < f->nb_batches; i++)
		pending[i & (cap - 1)] = *pending_at(f, i);
	free(f->pending);
	f->pending = pending;
	f->cap_pending = cap;
	return 0;
}

static int
file_note_batch(struct arrow_file *f, const struct batch *b)
{
	if (b->body_length % 8 != 0 || b->body_length / 8 > UINT32_MAX)
		return -EINVAL;
	if (grow_batches(f) < 0 || grow_pending(f) < 0)
		return -ENOMEM;
	f->batches[f->nb_batches] =
		(struct arrow_file_batch){b->metadata_size, (uint32_t)(b->body_length / 8)};
	*pending_at(f, f->nb_batches++) = (struct arrow_file_pending){b->rows, b->received};
	return 0;
}

static struct arrow_block
block_at(uint64_t offset, const struct arrow_file_batch *b)
{
	return (struct arrow_block){offset, b->metadata, UINT64_C(8) * b->body};
}

static uint64_t
batch_end(uint64_t offset, const struct arrow_file_batch *b)
{
	return offset + b->metadata + UINT64_C(8) * b->body;
}

static bool
next_is_durable(const struct arrow_file *f)
{
	return f->nb_durable < f->nb_batches &&
		batch_end(f->durable_end, &f->batches[f->nb_durable]) <= f->out.durable;
}

static void
count_latency(struct arrow_file *f, int64_t received, int64_t now)
{
	histogram_count(&f->latency, now > received ? (uint64_t)(now - received) / 1000 : 0);
}

static void
count_durable(struct arrow_file *f)
{
	const struct arrow_file_pending *b;
	int64_t now = 0;

	while (next_is_durable(f)) {
		b = pending_at(f, f->nb_durable);
		f->durable_end = batch_end(f->durable_end, &f->batches[f->nb_durable++]);
		f->rows_durable += b->rows;
		if (f->clock == NULL || b->received == 0)
			continue;
		if (now == 0)
			now = f->clock(f->clock_arg);
		count_latency(f, b->received, now);
	}
}

/* Take over the error and the durable end of `out`, after any call. */
static int
file_check(struct arrow_file *f)
{
	if (f->out.error != 0)
		return file_fail(f, f->out.error, f->out.error_in_sync ? "sync" : "write");
	if (next_is_durable(f))
		FAIL_POINT("file.synced");
	count_durable(f);
	return 0;
}

int
arrow_file_append(struct arrow_file *f, const struct batch *b)
{
	struct iovec iov[ARROW_PARTS_MAX + 1];
	int ret;

	if (f->error != 0)
		return f->error;
	if (b->nb_body + 1 > sizeof(iov) / sizeof(iov[0]))
		return file_fail(f, -EINVAL, "gather a batch for");
	ret = file_note_batch(f, b);
	if (ret < 0)
		return file_fail(f, ret, "record a batch of");
	/* iov_base is not const */
	iov[0] = (struct iovec){(void *)(uintptr_t)b->metadata, b->metadata_size};
	memcpy(iov + 1, b->body, b->nb_body * sizeof(*b->body));
	f->rows += b->rows;
	f->size += b->metadata_size + b->body_length;
	async_writer_put(&f->out, iov, b->nb_body + 1, b->lasting);
	return file_check(f);
}

int
arrow_file_poll(struct arrow_file *f)
{
	if (f->error != 0 || f->out.handle == NULL)
		return f->error;
	async_writer_poll(&f->out);
	return file_check(f);
}

int
arrow_file_commit(struct arrow_file *f)
{
	if (f->error != 0)
		return f->error;
	async_writer_commit(&f->out);
	return file_check(f);
}

void
arrow_file_wait(struct arrow_file *f, uint64_t end)
{
	if (f->out.handle != NULL)
		async_writer_wait(&f->out, end);
}

/* After an error: keep the batches that are certain to be written, and continue after them. */
static void
file_cut(struct arrow_file *f)
{
	uint64_t end = f->durable_end, sure;
	size_t n = f->nb_durable;

	/* wait until operations in flight have completed */
	(void)async_writer_flush(&f->out);
	/* a failed sync may have lost any data that was not durable before */
	sure = f->out.error_in_sync ? f->out.durable : f->out.written;
	for (; n < f->nb_batches && batch_end(end, &f->batches[n]) <= sure; n++)
		end = batch_end(end, &f->batches[n]);
	f->size = end;
	for (; f->nb_batches > n; f->nb_batches--)
		f->rows -= pending_at(f, f->nb_batches - 1)->rows;
	async_writer_cut(&f->out, f->size);
}

static int
file_write_trailer(struct arrow_file *f)
{
	struct arrow_block *blocks;
	struct iovec iov = {NULL, 0};
	uint8_t *trailer = NULL;
	uint64_t at = f->size;
	size_t size, i;
	int ret;

	blocks = malloc((f->nb_batches + 1) * sizeof(*blocks));
	if (blocks == NULL)
		return -ENOMEM;
	/* backwards, because only the end offset is known */
	for (i = f->nb_batches; i-- > 0;) {
		at -= batch_end(0, &f->batches[i]);
		blocks[i] = block_at(at, &f->batches[i]);
	}
	ret = arrow_trailer_build(f->schema, blocks, f->nb_batches, NULL, &trailer, &size);
	free(blocks);
	if (ret < 0)
		return ret;
	/* the trailer replaces what was truncated, so the file has space for it */
	iov = (struct iovec){trailer, size};
	ret = async_writer_put(&f->out, &iov, 1, false);
	if (ret == 0)
		ret = async_writer_end(&f->out);
	free(trailer);
	if (ret == 0)
		f->size += size;
	return ret;
}

int
arrow_file_close(struct arrow_file *f)
{
	const struct arrow_io_ops *io = f->out.config.io;
	const char *what = "write the end of";
	bool removed = false;
	int ret;

	if (f->out.handle == NULL)
		return f->error;
	async_writer_hold(&f->out, UINT64_MAX);
	if (f->error == 0 && async_writer_flush(&f->out) < 0)
		file_check(f);
	if (f->error != 0)
		file_cut(f);
	ret = file_write_trailer(f);
	if (ret < 0) {
		/* no trailer then: truncate after the batches that are certain */
		file_fail(f, ret, what);
		file_cut(f);
		f->uncut =
			io->truncate(f->out.handle, f->size) < 0 || async_writer_end(&f->out) < 0;
		goto out;
	}
	FAIL_POINT("file.trailer");
	what = "rename";
	ret = io->rename(f->part, f->path);
	removed = ret == -ENOENT;
	if (ret < 0)
		goto out;
	f->complete = true;
	FAIL_POINT("file.renamed");
out:
	if (ret < 0)
		file_fail(f, ret, what);
	ret = io->sync_dir(f->path);
	if (ret < 0)
		file_fail(f, ret, "sync the directory of");
	/* synced data is in the file under either name, and one of them is durable */
	count_durable(f);
	for (; f->nb_batches > f->nb_durable; f->nb_batches--)
		f->rows -= pending_at(f, f->nb_batches - 1)->rows;
	/* without a name, nothing of the file is left */
	if (removed)
		f->rows = f->rows_durable = f->nb_batches = f->nb_durable = 0;
	file_free(f);
	return f->error;
}

const char *
arrow_file_path(const struct arrow_file *f)
{
	return f->complete ? f->path : f->part;
}
