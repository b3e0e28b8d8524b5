/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "stream/copy.h"
#include "stream/writer.h"

#define TRIES 10000	 /* maximum tries: a name that is taken belongs to an unknown file */
#define SPARE (16 << 20) /* header, trailer, and a reserve for others */

static void
count_result(void *arg, uint64_t tag, uint64_t sequence, enum xfer_result_status status)
{
	uint64_t *durable = arg;

	*durable += status == XFER_DURABLE;
}

/* Get the directory of a file. */
static int
dir_of(const char *path, char dir[PATH_MAX])
{
	const char *slash = strrchr(path, '/');
	const int size = slash == NULL ? 1 : slash == path ? 1 : (int)(slash - path);

	return snprintf(dir, PATH_MAX, "%.*s", size, slash == NULL ? "." : path) < PATH_MAX
		? 0
		: -ENAMETOOLONG;
}

/* Name of a copy: hidden while it is being written, or final. */
static int
name_copy(char path[PATH_MAX], const char *dir, const char *hidden, const char *run,
	const struct arrow_identity *id, unsigned int number)
{
	return snprintf(path, PATH_MAX, "%s/%s%s_%016" PRIx64 "_%06u_%s.arrow", dir, hidden, run,
		       id->incarnation, number, id->table) < PATH_MAX - 8
		? 0
		: -ENAMETOOLONG;
}

int
stream_copy_clean(const struct arrow_io_ops *io, const char *dir, const char *run,
	const struct arrow_identity *identity)
{
	char path[PATH_MAX], part[PATH_MAX + 8];
	int ret = name_copy(path, dir, ".", run, identity, 1);

	if (ret < 0)
		return ret;
	snprintf(part, sizeof(part), "%s.part", path);
	ret = io->remove(part);
	if (ret == 0 || ret == -ENOENT)
		ret = io->remove(path);
	return ret == -ENOENT ? 0 : ret;
}

/*
 * Rename a copy that is completely durable. It becomes the last file of its stream: readers assume
 * that a batch which a later file also has was refused when the earlier file failed
 * (closed_files_take()).
 */
static int
show_copy(const struct arrow_io_ops *io, const char *hidden, const char *dir, const char *run,
	const struct arrow_identity *id, unsigned int above, char path[PATH_MAX])
{
	unsigned int number;
	int ret = -EEXIST;

	for (number = above + 1; ret == -EEXIST && number <= above + TRIES; number++) {
		ret = name_copy(path, dir, "", run, id, number);
		if (ret == 0)
			ret = io->rename(hidden, path);
	}
	if (ret == 0)
		return io->sync_dir(path);
	path[0] = '\0';
	return ret;
}

/* Check the free space before anything is written: a full disk would stall other writers. */
static int
find_room(const struct stream_source *s, const struct interval_set *which, const char *dir)
{
	const struct arrow_reader *r = &s->reader;
	struct statvfs fs;
	uint64_t bytes = 0;
	size_t i;

	for (i = 0; i < r->nb_batches; i++) {
		if (interval_set_has(which, stream_source_sequence(r, i)))
			bytes += XFER_BLOCK + r->batches[i].body_length;
	}
	/* if the free space is unknown, try to write */
	if (statvfs(dir, &fs) < 0)
		return 0;
	return bytes + SPARE <= (uint64_t)fs.f_bavail * fs.f_frsize ? 0 : -ENOSPC;
}

/* @param w  writes the hidden file. @return 0: all batches are durable in it */
static int
fill_copy(struct stream_writer *w, const struct stream_source *s, const struct interval_set *which,
	const uint64_t *durable)
{
	const int64_t given = stream_source_copy(s, w, which);
	const int error = stream_writer_finish(w);

	stream_writer_close(w);
	if (given < 0)
		return (int)given;
	if (error < 0)
		return error;
	return *durable == interval_set_count(which) ? 0 : -EIO;
}

static int
copy_out(const struct stream_writer_config *config, const struct stream_source *s,
	const struct interval_set *which, unsigned int above, char path[PATH_MAX])
{
	struct stream_writer_config c = *config;
	struct stream_writer *w;
	char hidden[PATH_MAX];
	uint64_t durable = 0;
	int ret;

	c.schema = &s->reader.schema;
	c.roll_bytes = UINT64_MAX;
	c.retry_ms = UINT32_MAX; /* no retry: on an error the caller starts again */
	c.hidden = true;
	c.result = count_result;
	c.arg = &durable;
	ret = name_copy(hidden, c.dir, ".", c.run, &c.identity, 1);
	if (ret == 0)
		ret = stream_copy_clean(c.slices.io, c.dir, c.run, &c.identity);
	if (ret == 0)
		ret = find_room(s, which, c.dir);
	if (ret == 0)
		ret = stream_writer_open(&w, &c);
	if (ret == 0)
		ret = fill_copy(w, s, which, &durable);
	if (ret == 0)
		ret = show_copy(c.slices.io, hidden, c.dir, c.run, &c.identity, above, path);
	if (ret < 0)
		(void)stream_copy_clean(c.slices.io, c.dir, c.run, &c.identity);
	return ret;
}

int
stream_copy(const struct arrow_io_ops *io, const struct async_writer_config *slices,
	const struct arrow_identity *identity, const char *path, const struct interval_set *which,
	unsigned int above, char copy[PATH_MAX], char message[PATH_MAX])
{
	char run[XFER_NAME_BYTES], dir[PATH_MAX];
	struct stream_writer_config c = {
		.dir = dir,
		.run = run,
		.identity = *identity,
		.slices = *slices,
	};
	struct stream_source s;
	int ret;

	copy[0] = '\0';
	c.slices.io = io;
	ret = dir_of(path, dir);
	if (ret == 0)
		ret = stream_source_run(path, run);
	if (ret < 0) {
		snprintf(message, PATH_MAX, "%.3000s: not a file name of a store", path);
		return ret;
	}
	ret = stream_source_open(&s, io, path, message);
	if (ret < 0)
		return ret;
	ret = copy_out(&c, &s, which, above, copy);
	stream_source_close(&s);
	if (ret < 0)
		snprintf(message, PATH_MAX,
			"%.3000s: cannot copy the batches that would be truncated and exist only "
			"here: %s",
			path, strerror(-ret));
	return ret;
}

unsigned int
stream_copy_number(const char *path)
{
	char run[XFER_NAME_BYTES];
	const char *slash = strrchr(path, '/');

	if (stream_source_run(path, run) < 0)
		return 0;
	return strtoul(
		(slash != NULL ? slash + 1 : path) + strlen(run) + sizeof("_0123456789abcdef_") - 1,
		NULL, 10);
}
