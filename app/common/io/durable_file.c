/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/direct_io.h"
#include "io/durable_file.h"
#include "io/own_file.h"

#define STEP ((size_t)64 << 20) /* a slow disk writes and syncs it within seconds */

static uint64_t ended; /* atomic: steps of all files of the process */

uint64_t
durable_file_ended(void)
{
	return __atomic_load_n(&ended, __ATOMIC_RELAXED);
}

static int
write_all(int fd, const uint8_t *data, size_t bytes)
{
	while (bytes > 0) {
		const ssize_t n = write(fd, data, bytes < STEP ? bytes : STEP);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		if ((size_t)n == STEP && fdatasync(fd) != 0)
			return -errno;
		__atomic_fetch_add(&ended, 1, __ATOMIC_RELAXED);
		data += n;
		bytes -= (size_t)n;
	}
	return 0;
}

static int
make(const char *path, const struct iovec *content, size_t nb, mode_t mode, bool fresh,
	bool replace)
{
	char part[PATH_MAX];
	int fd, ret = 0;
	size_t i;

	if ((size_t)snprintf(part, sizeof(part), "%s.part", path) >= sizeof(part))
		return -ENAMETOOLONG;
	ret = replace ? own_file_may_replace(path) : 0;
	if (ret < 0)
		return ret;
	/* left by a process that was killed; unlink it, since it could be a link to another file */
	if (fresh)
		(void)unlink(part);
	fd = own_file_open(AT_FDCWD, part, O_WRONLY | O_CREAT | O_EXCL, mode);
	if (fd < 0)
		return fd;
	for (i = 0; i < nb && ret == 0; i++)
		ret = write_all(fd, content[i].iov_base, content[i].iov_len);
	if (ret == 0 && fsync(fd) != 0)
		ret = -errno;
	if (close(fd) != 0 && ret == 0)
		ret = -errno;
	if (ret == 0 && replace && rename(part, path) != 0)
		ret = -errno;
	else if (ret == 0 && !replace)
		ret = direct_io.rename(part, path);
	if (ret != 0)
		unlink(part);
	/* a rename is durable once its directory is */
	return ret == 0 ? direct_io.sync_dir(path) : ret;
}

int
durable_file_replace(const char *path, const void *data, size_t bytes)
{
	const struct iovec content = {(void *)(uintptr_t)data, bytes};

	return make(path, &content, 1, OWN_FILE_MODE, true, true);
}

int
durable_file_create(const char *path, const void *data, size_t bytes)
{
	const struct iovec content = {(void *)(uintptr_t)data, bytes};

	/* fail early; the rename decides */
	if (access(path, F_OK) == 0)
		return -EEXIST;
	return make(path, &content, 1, OWN_FILE_MODE, false, false);
}

int
durable_file_create_parts(const char *path, const struct iovec *part, size_t nb_parts, mode_t mode)
{
	if (access(path, F_OK) == 0)
		return -EEXIST;
	return make(path, part, nb_parts, mode, true, false);
}

int
durable_dir_make(const char *dir, mode_t mode)
{
	char path[PATH_MAX];
	size_t size = strlen(dir);
	bool made;
	int ret;

	if (size >= sizeof(path))
		return -ENAMETOOLONG;
	memcpy(path, dir, size + 1);
	while (size > 1 && path[size - 1] == '/')
		path[--size] = '\0';
	made = mkdir(path, mode) == 0;
	if (!made && errno != EEXIST)
		return -errno;
	/* also for an existing directory: its creator may have died before this sync */
	ret = direct_io.sync_dir(path);
	return !made && ret == -EACCES ? 0 : ret;
}
