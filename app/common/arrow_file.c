/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "arrow_file.h"

/* A call's share: enough for the disk, little enough that an error does not come minutes late. */
#define SLICE	  (16u << 20)
#define SLICE_IOV 64
#define BATCH_IOV (ARROW_BUFFERS_MAX + 2)

struct posix_file {
	int fd;
};

static int
posix_open(void **handle, const char *path)
{
	struct posix_file *f = malloc(sizeof(*f));
	int rc;

	if (f == NULL)
		return -ENOMEM;
	f->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (f->fd < 0) {
		rc = -errno;
		free(f);
		return rc;
	}
	*handle = f;
	return 0;
}

static int
posix_write(void *handle, const struct iovec *iov, unsigned int nb, uint64_t offset)
{
	const struct posix_file *f = handle;
	struct iovec slice[SLICE_IOV];
	unsigned int i = 0, n;
	size_t done = 0, total, part; /* done: bytes of iov[i] */
	ssize_t written;

	for (;;) {
		while (i < nb && iov[i].iov_len == done) {
			i++;
			done = 0;
		}
		if (i == nb)
			return 0;
		for (n = 0, total = 0; n < SLICE_IOV && i + n < nb && total < SLICE; n++) {
			slice[n] = iov[i + n];
			if (n == 0) {
				slice[0].iov_base = (uint8_t *)slice[0].iov_base + done;
				slice[0].iov_len -= done;
			}
			if (slice[n].iov_len > SLICE - total)
				slice[n].iov_len = SLICE - total;
			total += slice[n].iov_len;
		}
		written = pwritev(f->fd, slice, (int)n, (off_t)offset);
		if (written < 0 && errno == EINTR)
			continue;
		if (written <= 0)
			return written < 0 ? -errno : -EIO;
		offset += written;
		while (written > 0) {
			part = iov[i].iov_len - done;
			if (part > (size_t)written)
				part = written;
			done += part;
			written -= part;
			if (done == iov[i].iov_len) {
				i++;
				done = 0;
			}
		}
	}
}

static int
posix_truncate(void *handle, uint64_t size)
{
	const struct posix_file *f = handle;

	return ftruncate(f->fd, (off_t)size) < 0 ? -errno : 0;
}

static int
posix_sync(void *handle)
{
	const struct posix_file *f = handle;

	return fdatasync(f->fd) < 0 ? -errno : 0;
}

static int
posix_close(void *handle)
{
	struct posix_file *f = handle;
	const int rc = close(f->fd) < 0 ? -errno : 0;

	free(f);
	return rc;
}

static int
posix_publish(const char *part, const char *path)
{
	char dir[PATH_MAX];
	char *slash;
	int fd, rc;

	if (renameat2(AT_FDCWD, part, AT_FDCWD, path, RENAME_NOREPLACE) < 0) {
		/* NFS and others do not know the flag */
		if (errno != EINVAL)
			return -errno;
		if (access(path, F_OK) == 0)
			return -EEXIST;
		if (rename(part, path) < 0)
			return -errno;
	}
	snprintf(dir, sizeof(dir), "%s", path);
	slash = strrchr(dir, '/');
	if (slash == NULL)
		strcpy(dir, ".");
	else
		slash[slash == dir] = '\0';
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	rc = fsync(fd) < 0 ? -errno : 0;
	close(fd);
	return rc;
}

static int
posix_remove(const char *part)
{
	return unlink(part) < 0 ? -errno : 0;
}

const struct arrow_io_ops arrow_io_posix = {
	.open = posix_open,
	.write = posix_write,
	.truncate = posix_truncate,
	.sync = posix_sync,
	.close = posix_close,
	.publish = posix_publish,
	.remove = posix_remove,
};

static int
file_fail(struct arrow_file *f, int error, const char *what)
{
	f->error = error;
	snprintf(f->message, sizeof(f->message), "cannot %s %s at byte %llu: %s", what, f->part,
		(unsigned long long)f->size, strerror(-error));
	return error;
}

/* After an error: leave the batches that are complete, and nothing after them. Best effort, the
 * error that counts has been noted. */
static void
file_abandon(struct arrow_file *f)
{
	if (f->handle == NULL)
		return;
	(void)f->io->truncate(f->handle, f->size);
	(void)f->io->sync(f->handle);
	(void)f->io->close(f->handle);
	f->handle = NULL;
}

void
arrow_file_discard(struct arrow_file *f)
{
	if (f->handle == NULL)
		return;
	(void)f->io->close(f->handle);
	(void)f->io->remove(f->part);
	f->handle = NULL;
	free(f->blocks);
	f->blocks = NULL;
}

int
arrow_file_create(struct arrow_file *f, const struct arrow_io_ops *io, const char *dir,
	const char *name, const struct arrow_schema *schema)
{
	struct iovec iov;
	uint8_t *header;
	size_t size;
	int rc;

	memset(f, 0, sizeof(*f));
	f->io = io != NULL ? io : &arrow_io_posix;
	f->schema = schema;
	if (snprintf(f->path, sizeof(f->path), "%s/%s.arrow", dir, name) >=
			(int)sizeof(f->path) - 5 ||
		snprintf(f->part, sizeof(f->part), "%s/%s.arrow.part", dir, name) >=
			(int)sizeof(f->part))
		return file_fail(f, -ENAMETOOLONG, "name");
	/* found out now, not after hours of writing */
	if (access(f->path, F_OK) == 0) {
		f->error = -EEXIST;
		snprintf(f->message, sizeof(f->message),
			"%s is already there: move it away or choose another run name", f->path);
		return f->error;
	}
	rc = arrow_header_build(schema, &header, &size);
	if (rc < 0)
		return file_fail(f, rc, "lay out the header of");
	rc = f->io->open(&f->handle, f->part);
	if (rc < 0) {
		f->handle = NULL;
		file_fail(f, rc, "create");
		goto out;
	}
	iov = (struct iovec){header, size};
	rc = f->io->write(f->handle, &iov, 1, 0);
	if (rc < 0) {
		file_fail(f, rc, "write");
		arrow_file_discard(f);
		goto out;
	}
	f->size = size;
out:
	free(header);
	return rc;
}

static int
file_note_block(struct arrow_file *f, const struct arrow_block *block)
{
	struct arrow_block *blocks;
	size_t cap;

	if (f->nb_blocks == f->cap_blocks) {
		cap = f->cap_blocks * 2 + 256;
		blocks = realloc(f->blocks, cap * sizeof(*blocks));
		if (blocks == NULL)
			return -ENOMEM;
		f->blocks = blocks;
		f->cap_blocks = cap;
	}
	f->blocks[f->nb_blocks++] = *block;
	return 0;
}

int
arrow_file_append(struct arrow_file *f, const uint8_t *metadata, uint32_t metadata_size,
	const struct iovec *body, unsigned int nb_body, uint64_t body_length)
{
	const struct arrow_block block = {f->size, metadata_size, body_length};
	struct iovec iov[BATCH_IOV];
	int rc;

	if (f->error != 0)
		return f->error;
	if (nb_body + 1 > BATCH_IOV)
		return file_fail(f, -EINVAL, "gather a batch for");
	iov[0] = (struct iovec){(void *)(uintptr_t)metadata, metadata_size};
	memcpy(iov + 1, body, nb_body * sizeof(*body));
	rc = f->io->write(f->handle, iov, nb_body + 1, f->size);
	if (rc == 0)
		rc = file_note_block(f, &block);
	if (rc < 0) {
		file_fail(f, rc, "write");
		file_abandon(f);
		return rc;
	}
	f->size += metadata_size + body_length;
	return 0;
}

int
arrow_file_close(struct arrow_file *f)
{
	const char *what = "write the footer of";
	struct iovec iov = {NULL, 0};
	uint8_t *trailer = NULL;
	size_t size;
	int rc = f->error;

	if (f->handle == NULL)
		goto out;
	rc = arrow_trailer_build(f->schema, f->blocks, f->nb_blocks, &trailer, &size);
	if (rc < 0)
		goto out;
	iov = (struct iovec){trailer, size};
	rc = f->io->write(f->handle, &iov, 1, f->size);
	if (rc < 0)
		goto out;
	what = "sync";
	rc = f->io->sync(f->handle);
	if (rc < 0)
		goto out;
	f->size += size;
	what = "close";
	rc = f->io->close(f->handle);
	f->handle = NULL;
	if (rc < 0)
		goto out;
	what = "rename";
	rc = f->io->publish(f->part, f->path);
out:
	if (rc < 0 && f->error == 0)
		file_fail(f, rc, what);
	file_abandon(f);
	free(trailer);
	free(f->blocks);
	f->blocks = NULL;
	f->nb_blocks = 0;
	f->cap_blocks = 0;
	return rc;
}
