/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "arrow/crc32c.h"
#include "recovery/order.h"
#include "recovery/recovery.h"
#include "arrow/tables.h"
#include "io/direct_io.h"
#include "xfer/msg.h"
#include "stream/source.h"

#define CHUNK (1u << 20) /* bytes read at a time */

static int64_t
read_source(void *arg, void *data, uint64_t size, uint64_t offset)
{
	const struct stream_source *s = arg;

	return s->io->read(s->handle, data, size, offset);
}

static int
open_mapped(struct stream_source *s, const char **problem)
{
	const uint8_t *data;
	uint64_t size;
	int ret = s->io->map(s->handle, &data, &size);

	return ret == 0 ? arrow_reader_open_memory(&s->reader, data, size, problem) : ret;
}

static int
open_window(struct stream_source *s, const char **problem)
{
	uint64_t size, allocated;
	int ret = s->io->size(s->handle, &size, &allocated);

	if (ret == 0)
		ret = arrow_window_open(&s->window, size, read_source, s);
	return ret == 0 ? arrow_reader_open_window(&s->reader, s->window, size, size, problem)
			: ret;
}

static int
open_source(struct stream_source *s, const struct arrow_io_ops *io, const char *path, bool to_list,
	bool read_only, char message[PATH_MAX])
{
	const struct arrow_io_open how = {path, true, ARROW_IO_BUFFERED, 1, read_only};
	const char *problem = NULL;
	int ret;

	*s = (struct stream_source){.io = io, .path = path};
	ret = io->open(&s->handle, &how);
	if (ret < 0) {
		snprintf(message, PATH_MAX, "cannot open %.3000s: %s", path,
			ret == -EBUSY ? "locked by another process" : strerror(-ret));
		return ret;
	}
	ret = to_list && io->read != NULL ? open_window(s, &problem) : open_mapped(s, &problem);
	if (ret == 0)
		arrow_reader_only(&s->reader, path);
	if (ret == 0 && !s->reader.complete) {
		problem = s->reader.problem;
		arrow_reader_close(&s->reader);
		ret = -EBADMSG;
	}
	if (ret < 0) {
		snprintf(message, PATH_MAX, "%.3000s: %s", path,
			problem != NULL ? problem : strerror(-ret));
		arrow_window_close(s->window);
		(void)io->close(s->handle);
	}
	return ret;
}

int
stream_source_open(struct stream_source *s, const struct arrow_io_ops *io, const char *path,
	char message[PATH_MAX])
{
	return open_source(s, io, path, false, false, message);
}

int
stream_source_open_to_show(struct stream_source *s, const struct arrow_io_ops *io, const char *path,
	char message[PATH_MAX])
{
	return open_source(s, io, path, true, true, message);
}

int
stream_source_open_to_list(struct stream_source *s, const struct arrow_io_ops *io, const char *path,
	char message[PATH_MAX])
{
	return open_source(s, io, path, true, false, message);
}

void
stream_source_close(struct stream_source *s)
{
	arrow_reader_close(&s->reader);
	arrow_window_close(s->window);
	(void)s->io->close(s->handle);
}

bool
stream_source_is_ours(const struct stream_source *s)
{
	struct stat st;

	if (s->io != &direct_io)
		return true;
	return fstat(direct_io_fd(s->handle), &st) == 0 &&
		(st.st_uid == geteuid() || st.st_uid == 0);
}

uint64_t
stream_source_sequence(const struct arrow_reader *r, size_t batch)
{
	return strtoull(r->batches[batch].sequence, NULL, 16);
}

/* @return true: the text is this number in 16 digits */
static bool
is_number(const char *text, uint64_t wanted)
{
	char digits[17];

	snprintf(digits, sizeof(digits), "%016" PRIx64, wanted);
	return text != NULL && strcmp(text, digits) == 0;
}

static bool
is_of(const struct arrow_read_batch *b, const struct arrow_identity *id)
{
	return is_number(b->receiver_id, id->receiver_id) && is_number(b->run, id->run) &&
		is_number(b->incarnation, id->incarnation) && b->table != NULL &&
		strcmp(b->table, id->table) == 0 && b->sequence != NULL;
}

/* Read the identity of a batch. Its strings are verified only if is_of() then confirms it. */
int
stream_source_identity(const struct arrow_read_batch *b, struct arrow_identity *id)
{
	unsigned int i;

	if (b->receiver_id == NULL || b->run == NULL || b->incarnation == NULL || b->table == NULL)
		return -EXDEV;
	id->receiver_id = strtoull(b->receiver_id, NULL, 16);
	id->run = strtoull(b->run, NULL, 16);
	id->incarnation = strtoull(b->incarnation, NULL, 16);
	for (i = 0; i < ARROW_TABLES; i++) {
		if (strcmp(b->table, arrow_table_name(i)) == 0)
			id->table = arrow_table_name(i);
	}
	return id->table != NULL ? 0 : -EXDEV;
}

uint64_t
stream_source_content(const struct arrow_reader *r, const struct arrow_read_batch *b)
{
	const uint32_t body = b->crc32c != NULL ? strtoul(b->crc32c, NULL, 16) : 0;

	arrow_reader_load(r, r->data + b->offset, b->metadata_size);
	return stream_content_make(body, arrow_crc32c(0, r->data + b->offset, b->metadata_size));
}

void
stream_source_frames(const struct arrow_reader *r, size_t i, char text[ARROW_DAMAGE_TEXT])
{
	const struct arrow_read_batch *b = &r->batches[i];
	struct arrow_read_damage d = {
		.offset = b->offset,
		.length = b->metadata_size + b->body_length,
		.before = i,
		.announced = true,
		.batch = *b,
	};
	struct arrow_damage_frames frames;
	struct arrow_reader one = *r;

	one.damage = &d;
	one.nb_damage = 1;
	arrow_damage_frames(&one, 0, &frames);
	arrow_damage_frames_text(&frames, text);
}

int
stream_source_list(const struct arrow_reader *r, struct arrow_identity *id,
	struct interval_set *have, struct stream_contents *contents)
{
	uint64_t sequence;
	size_t i;
	int ret = 0;

	if (id->table == NULL && r->nb_batches > 0 && r->only.table != NULL)
		*id = r->only;
	else if (id->table == NULL && r->nb_batches > 0)
		ret = stream_source_identity(&r->batches[0], id);
	for (i = 0; i < r->nb_batches && ret == 0; i++) {
		if (!is_of(&r->batches[i], id))
			return -EXDEV;
		sequence = stream_source_sequence(r, i);
		/* a duplicate in one file, or the highest number, is not written by a store */
		if (interval_set_has(have, sequence) || sequence == UINT64_MAX)
			return -EXDEV;
		ret = interval_set_add(have, sequence, sequence);
		if (ret == 0 && contents != NULL)
			ret = stream_contents_add(
				contents, sequence, stream_source_content(r, &r->batches[i]));
	}
	return ret;
}

const char *
stream_source_fault(struct stream_source *s)
{
	const char *why = NULL;
	size_t i;

	for (i = 0; i < s->reader.nb_batches && why == NULL; i++)
		why = arrow_recovery_check(&s->reader, i);
	if (why == NULL && arrow_order(&s->reader) < 0)
		return "cannot allocate memory to check the order of its batches";
	for (i = 0; i < s->reader.nb_batches && why == NULL; i++)
		why = s->reader.batches[i].fault;
	return why;
}

/* Read bytes of a file with read(2), not through its mapping, and compute their CRC. */
static int
read_bytes(int fd, uint64_t at, uint64_t size, uint32_t *crc)
{
	uint8_t *chunk = malloc(CHUNK);
	const uint64_t begin = at, end = at + size;
	int ret = chunk != NULL ? 0 : -ENOMEM;
	ssize_t n;

	while (ret == 0 && at < end) {
		n = pread(fd, chunk, end - at < CHUNK ? end - at : CHUNK, at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			ret = n < 0 ? -errno : -EIO;
		} else {
			*crc = arrow_crc32c(*crc, chunk, n);
			at += n;
		}
	}
	/* drop the pages from the page cache: no other reader is expected */
	(void)posix_fadvise(fd, begin, size, POSIX_FADV_DONTNEED);
	free(chunk);
	return ret;
}

int
stream_source_check(struct stream_source *s, const struct interval_set *which,
	struct interval_set *bad, uint64_t *bytes)
{
	const struct arrow_reader *r = &s->reader;
	const struct arrow_read_batch *b;
	uint64_t sequence;
	uint32_t crc;
	int ret = 0;
	size_t i;

	for (i = 0; i < r->nb_batches && ret == 0; i++) {
		b = &r->batches[i];
		sequence = stream_source_sequence(r, i);
		if (!interval_set_has(which, sequence))
			continue;
		crc = 0;
		if (s->io == &direct_io)
			ret = read_bytes(direct_io_fd(s->handle), b->offset + b->metadata_size,
				b->body_length, &crc);
		else
			crc = arrow_crc32c(0, b->body, b->body_length);
		*bytes += b->body_length;
		if (ret == 0 && arrow_reader_crc_is(r, i, crc) != 1)
			ret = interval_set_add(bad, sequence, sequence);
	}
	return ret;
}

int
stream_source_read_through(struct stream_source *s)
{
	uint32_t crc = 0;

	return s->io == &direct_io ? read_bytes(direct_io_fd(s->handle), 0, s->reader.size, &crc)
				   : 0;
}

int
stream_source_run(const char *path, char run[XFER_NAME_BYTES])
{
	const char *name = strrchr(path, '/');
	const char *at;
	unsigned int i;
	size_t size;

	name = name != NULL ? name + 1 : path;
	/* a run's name may have underscores: the last three are separators */
	at = name + strlen(name);
	for (i = 0; i < 3; i++) {
		do {
			if (at == name)
				return -EINVAL;
		} while (*--at != '_');
	}
	size = at - name;
	memset(run, 0, XFER_NAME_BYTES);
	if (size >= XFER_NAME_BYTES || strspn(at + 1, "0123456789abcdef") != 16)
		return -EINVAL;
	memcpy(run, name, size);
	return xfer_name_check(run) ? 0 : -EINVAL;
}

bool
stream_source_matches(const char *path, const char *run, const struct arrow_identity *of)
{
	const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
	char begin[XFER_NAME_BYTES + 32], end[32];

	snprintf(begin, sizeof(begin), "%s_%016" PRIx64 "_", run, of->incarnation);
	snprintf(end, sizeof(end), "_%s.arrow", of->table != NULL ? of->table : "");
	return strncmp(name, begin, strlen(begin)) == 0 &&
		(of->table == NULL || strstr(name, end) != NULL);
}

int
stream_source_dir(char dir[PATH_MAX], const char *root, const char *run,
	const struct arrow_identity *identity)
{
	return snprintf(dir, PATH_MAX, "%s/%s-%016" PRIx64 "-%016" PRIx64, root, run,
		       identity->receiver_id, identity->run) < PATH_MAX
		? 0
		: -ENAMETOOLONG;
}

/* Convert a batch for a writer. Its tag is its index in the file. */
static int
make_batch(const struct arrow_reader *r, size_t i, struct stream_batch *to)
{
	const struct arrow_read_batch *b = &r->batches[i];

	if (b->metadata_size != XFER_BLOCK || b->body_length % XFER_BLOCK != 0 || b->crc32c == NULL)
		return -EBADMSG;
	*to = (struct stream_batch){
		.xfer = {.sequence = stream_source_sequence(r, i),
			.rows = b->rows,
			.body_bytes = b->body_length,
			.body_crc32c = strtoul(b->crc32c, NULL, 16)},
		.metadata = r->data + b->offset,
		.body = (void *)(uintptr_t)b->body,
		.tag = i,
	};
	return 0;
}

int64_t
stream_source_copy(
	const struct stream_source *s, struct stream_writer *w, const struct interval_set *only)
{
	const struct arrow_reader *r = &s->reader;
	struct stream_stats before, now;
	struct stream_batch batch;
	int64_t given = 0;
	size_t i;
	int ret = 0;

	stream_writer_stats_get(w, &before);
	for (i = 0; i < r->nb_batches && ret == 0; i++) {
		if (only != NULL && !interval_set_has(only, stream_source_sequence(r, i)))
			continue;
		ret = make_batch(r, i, &batch);
		if (ret < 0)
			break;
		stream_writer_append(w, &batch);
		given++;
		/* a batch was refused: the caller repeats the whole copy */
		stream_writer_stats_get(w, &now);
		if (now.returned != before.returned || now.outages != before.outages)
			ret = now.error != 0 ? now.error : -EIO;
	}
	/* the writer reads from the mapping until it has all results */
	(void)stream_writer_finish(w);
	return ret < 0 ? ret : given;
}
