/* SPDX-License-Identifier: BSD-3-Clause */
#include "files/incoming.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "arrow/crc32c.h"
#include "files/record.h"
#include "io/own_file.h"

#define wrong(in, error, ...) (snprintf((in)->message, sizeof((in)->message), __VA_ARGS__), error)

static void
part_name(const struct incoming *in, char part[NAME_MAX + 1])
{
	snprintf(part, NAME_MAX + 1, ".%.*s.part", RECORD_NAME_MAX, in->name);
}

static int
failed(struct incoming *in, const char *what)
{
	const int error = errno;

	return wrong(in, -error, "%s: cannot %s: %s", in->name, what, own_file_error(-error));
}

int
incoming_open(struct incoming *in, const char *directory)
{
	int path;

	memset(in, 0, sizeof(*in));
	in->fd = in->folder = -1;
	path = own_folder_make(directory, OWN_FOLDER_DATA, in->message);
	if (path < 0)
		return path;
	/* reopen: flock(2) and fsync(2) do not accept a descriptor with O_PATH */
	in->folder = openat(path, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (in->folder < 0 || flock(in->folder, LOCK_EX | LOCK_NB) < 0) {
		const int error = errno;

		close(path);
		return wrong(in, error == EWOULDBLOCK ? -EBUSY : -error, "%.3000s: %s", directory,
			error == EWOULDBLOCK ? "another process fetches into it" : strerror(error));
	}
	close(path);
	return 0;
}

static void
discard(struct incoming *in)
{
	char part[NAME_MAX + 1];

	if (in->fd < 0)
		return;
	close(in->fd);
	in->fd = -1;
	part_name(in, part);
	unlinkat(in->folder, part, 0);
}

/* Check that the name is free, or that of a regular file. */
static int
check_place(struct incoming *in)
{
	struct stat st;

	if (fstatat(in->folder, in->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : failed(in, "get its status");
	if (S_ISREG(st.st_mode))
		return 0;
	return wrong(
		in, -EEXIST, "%s: exists and is not a regular file; it is not replaced", in->name);
}

static int
begin(struct incoming *in, const struct record *r, const char *name, size_t length)
{
	char part[NAME_MAX + 1];
	int ret;

	if (in->fd >= 0 || in->done || r->file != in->files)
		return wrong(
			in, -EPROTO, "the sender begins file %u, expected %u", r->file, in->files);
	memcpy(in->name, name, length);
	in->name[length] = '\0';
	in->size = r->offset;
	in->written = 0;
	in->crc = 0;
	ret = check_place(in);
	if (ret < 0)
		return ret;
	part_name(in, part);
	/* remove the file of a process that was killed; no other process uses the directory */
	unlinkat(in->folder, part, 0);
	in->fd = own_file_open(in->folder, part, O_WRONLY | O_CREAT | O_EXCL, OWN_FILE_MODE);
	if (in->fd < 0) {
		errno = -in->fd;
		in->fd = -1;
		return failed(in, "create it");
	}
	/* detect a full disk before the data arrives */
	if (in->size > 0 && in->size <= INT64_MAX &&
		fallocate(in->fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)in->size) < 0 &&
		errno != EOPNOTSUPP)
		return failed(in, "allocate it");
	return in->size <= INT64_MAX ? 0 : wrong(in, -EFBIG, "%s: too large", in->name);
}

static int
take_data(struct incoming *in, const struct record *r, const uint8_t *data, size_t length)
{
	ssize_t n;

	if (in->fd < 0 || r->file != in->files || r->offset != in->written ||
		length > in->size - in->written)
		return wrong(in, -EPROTO,
			"the sender has bytes %" PRIu64 " of file %u, expected "
			"bytes %" PRIu64 " of file %u",
			r->offset, r->file, in->written, in->files);
	in->crc = arrow_crc32c(in->crc, data, length);
	in->written += length;
	in->bytes += length;
	while (length > 0) {
		n = write(in->fd, data, length);
		if (n < 0 && errno != EINTR)
			return failed(in, "write it");
		data += n > 0 ? n : 0;
		length -= n > 0 ? (size_t)n : 0;
	}
	return 0;
}

static int
end(struct incoming *in, const struct record *r)
{
	char part[NAME_MAX + 1];
	int ret;

	if (in->fd < 0 || r->file != in->files || r->offset != in->size || in->written != in->size)
		return wrong(in, -EPROTO, "the sender ends file %u, expected more of file %u",
			r->file, in->files);
	if (r->crc != in->crc)
		return wrong(in, -EILSEQ,
			"%s: found CRC-32C %#010x, expected %#010x; push it again", in->name,
			in->crc, r->crc);
	ret = check_place(in);
	if (ret < 0)
		return ret;
	part_name(in, part);
	if (fsync(in->fd) < 0 || renameat(in->folder, part, in->folder, in->name) < 0)
		return failed(in, "store it");
	close(in->fd);
	in->fd = -1;
	in->files++;
	/* make the new name durable */
	return fsync(in->folder) < 0 ? failed(in, "make its name durable") : 0;
}

int
incoming_place(struct incoming *in, uint64_t run, uint64_t sequence, uint64_t lost)
{
	if (!in->begun || run != in->run) {
		incoming_restart(in);
		in->begun = true;
		in->run = run;
		in->lost = 0;
		if (sequence != lost)
			return wrong(in, -ESTALE,
				"joined after the first file had begun; increase --members of "
				"push");
	}
	in->lost += lost;
	return in->lost == 0;
}

int
incoming_lost(struct incoming *in, uint64_t run)
{
	if (in->lost == 0 || run != in->run)
		return 0;
	return wrong(in, -EIO, "%" PRIu64 " packets are lost permanently; push again", in->lost);
}

int
incoming_take(struct incoming *in, const uint8_t *packet, size_t length)
{
	const uint8_t *rest = packet + sizeof(struct record);
	struct record r;

	if (record_decode(packet, length, &r) < 0)
		return wrong(
			in, -EPROTO, "received a packet that braggline-rdma push did not send");
	length -= sizeof(r);
	switch (r.type) {
	case RECORD_BEGIN:
		return begin(in, &r, (const char *)rest, length);
	case RECORD_DATA:
		return take_data(in, &r, rest, length);
	case RECORD_END:
		return end(in, &r);
	default:
		break;
	}
	if (in->fd >= 0 || r.file != in->files || in->done)
		return wrong(in, -EPROTO, "the sender has %u files, found %u", r.file, in->files);
	in->done = true;
	return 0;
}

void
incoming_restart(struct incoming *in)
{
	discard(in);
	in->files = 0;
	in->bytes = 0;
	in->done = false;
}

void
incoming_close(struct incoming *in)
{
	discard(in);
	if (in->folder >= 0)
		close(in->folder);
	in->folder = -1;
}
