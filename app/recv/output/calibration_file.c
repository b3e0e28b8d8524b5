/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arrow/crc32c.h"
#include "output/calibration_file.h"
#include "arrow/async_writer.h"
#include "io/own_file.h"

#define LINE_MAX_BYTES (CALIBRATION_FILE_NAME_MAX + 96)

static uint64_t
plane_size(const struct arrow_plane *p)
{
	return (uint64_t)p->rows * p->cols * sizeof(float);
}

static uint64_t
whole_blocks(uint64_t size)
{
	return (size + ARROW_BLOCK - 1) / ARROW_BLOCK * ARROW_BLOCK;
}

uint32_t
calibration_file_digest(const struct arrow_plane *planes, unsigned int nb)
{
	uint32_t crc = 0;
	unsigned int i;

	for (i = 0; i < nb; i++)
		crc = arrow_crc32c(crc, planes[i].data, plane_size(&planes[i]));
	return crc;
}

static char *
make_header(const struct arrow_plane *planes, unsigned int nb, size_t *size)
{
	uint64_t at;
	unsigned int i;
	char *text;
	size_t n;

	*size = whole_blocks((nb + 2) * LINE_MAX_BYTES);
	text = aligned_alloc(ARROW_BLOCK, *size);
	if (text == NULL)
		return NULL;
	memset(text, 0, *size);
	at = *size;
	n = sprintf(text, "braggline calibration 1\n");
	for (i = 0; i < nb; i++) {
		n += sprintf(text + n, "plane %s float32 %u %u at %" PRIu64 " crc32c %08x\n",
			planes[i].name, planes[i].rows, planes[i].cols, at,
			arrow_crc32c(0, planes[i].data, plane_size(&planes[i])));
		at += whole_blocks(plane_size(&planes[i]));
	}
	sprintf(text + n, "end\n");
	return text;
}

static int
put_planes(struct async_writer *out, const struct arrow_plane *planes, unsigned int nb)
{
	static const uint8_t zeros[ARROW_BLOCK];
	struct iovec iov[2];
	uint64_t size;
	unsigned int i;
	int ret = 0;

	for (i = 0; i < nb && ret == 0; i++) {
		size = plane_size(&planes[i]);
		/* struct iovec has no const */
		iov[0] = (struct iovec){(void *)(uintptr_t)planes[i].data, size};
		iov[1] = (struct iovec){(void *)(uintptr_t)zeros, whole_blocks(size) - size};
		ret = async_writer_put(out, iov, 2, false);
	}
	return ret;
}

/*
 * Compare with the first bytes of an existing file, which contain the digests. A file with this
 * name is always complete. @return 1: it is the same
 */
static int
is_there(const char *path, const char *header, size_t size)
{
	char *text = malloc(size);
	size_t nb = 0;
	FILE *f;

	f = text != NULL ? own_file_read(path) : NULL;
	if (f != NULL) {
		nb = fread(text, 1, size, f);
		fclose(f);
	}
	nb = f != NULL && nb == size && memcmp(text, header, size) == 0;
	free(text);
	return nb ? 1 : -EEXIST;
}

int
calibration_file_write(const struct arrow_io_ops *io, const char *dir, const char *run,
	const struct arrow_plane *planes, unsigned int nb, char message[PATH_MAX])
{
	const struct async_writer_config config = {.io = io};
	char path[PATH_MAX], part[PATH_MAX];
	const char *what = "create";
	struct async_writer out;
	struct iovec iov;
	char *header = NULL;
	size_t size, len;
	unsigned int i;
	int ret = -EINVAL;

	for (i = 0; i < nb; i++) {
		if (strlen(planes[i].name) > CALIBRATION_FILE_NAME_MAX)
			break;
	}
	len = snprintf(path, sizeof(path), "%s/%s_calibration.bin", dir, run);
	if (i < nb || nb > CALIBRATION_FILE_MAX || len + sizeof(".part") > sizeof(path)) {
		snprintf(message, PATH_MAX,
			"calibration of run %.64s: too many names, or names too long", run);
		return ret;
	}
	snprintf(part, sizeof(part), "%.*s.part", (int)len, path);
	ret = -ENOMEM;
	header = make_header(planes, nb, &size);
	if (header == NULL)
		goto out;
	if (access(path, F_OK) == 0) {
		ret = is_there(path, header, size);
		if (ret < 0)
			snprintf(message, PATH_MAX,
				"%.*s belongs to another calibration; set another [run] name or "
				"[output] directory",
				PATH_MAX - 128, path);
		free(header);
		return ret;
	}
	ret = async_writer_open(&out, &config, part);
	if (ret < 0)
		goto out;
	what = "write";
	iov = (struct iovec){header, size};
	ret = async_writer_put(&out, &iov, 1, false);
	if (ret == 0)
		ret = put_planes(&out, planes, nb);
	if (ret == 0)
		ret = async_writer_end(&out);
	if (ret == 0)
		ret = out.config.io->rename(part, path);
	if (ret < 0)
		(void)out.config.io->remove(part);
	else
		ret = out.config.io->sync_dir(path);
	async_writer_close(&out);
out:
	if (ret == -EEXIST)
		snprintf(message, PATH_MAX,
			"%.*s already exists: another process writes this run; set another run "
			"name",
			PATH_MAX - 128, path);
	else if (ret < 0)
		snprintf(message, PATH_MAX, "cannot %s %.*s: %s%s", what, PATH_MAX - 256, path,
			strerror(-ret),
			ret == -ENOSPC ? "; free space on this file system, or set [output] "
					 "calibration = no"
				       : "");
	free(header);
	return ret;
}
