/* SPDX-License-Identifier: BSD-3-Clause */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "arrow/names.h"
#include "stream/ended.h"
#include "stream/writer.h"

/*
 * Size of a file for the quota. Incomplete files do not count, since their allocated space is not
 * final. A marker has no bytes, but takes a block of its folder and an inode, and there may be as
 * many as incarnations.
 */
static uint64_t
measure_file(int run, const char *name)
{
	struct stat st;

	if (strncmp(name, STORE_ENDED, strlen(STORE_ENDED)) == 0)
		return XFER_BLOCK;
	if (!arrow_name_is_complete(name) && !arrow_name_is_quarantine(name))
		return 0;
	return fstatat(run, name, &st, AT_SYMLINK_NOFOLLOW) == 0 ? st.st_size : 0;
}

/* Get the size of a run's files. */
static uint64_t
measure_run(int root, const char *name)
{
	const int fd = openat(root, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	const struct dirent *entry;
	uint64_t bytes = 0;

	if (dir == NULL) {
		if (fd >= 0)
			close(fd);
		return 0;
	}
	while ((entry = readdir(dir)) != NULL)
		bytes += measure_file(fd, entry->d_name);
	closedir(dir);
	return bytes;
}

/* Whether a directory's name is RUN-RECEIVER_ID-ID. */
static bool
is_of(const char *name, uint64_t receiver_id)
{
	const size_t length = strlen(name), end = 2 * (1 + 16);
	char digits[1 + 16 + 2];

	snprintf(digits, sizeof(digits), "-%016" PRIx64 "-", receiver_id);
	return length > end && strncmp(name + length - end, digits, strlen(digits)) == 0;
}

void
stream_quota_renew(struct stream_quota *q)
{
	const struct dirent *entry;
	uint64_t bytes = 0;
	DIR *dir;

	dir = opendir(q->root);
	if (dir == NULL)
		return;
	while ((entry = readdir(dir)) != NULL) {
		if (is_of(entry->d_name, q->receiver_id))
			bytes += measure_run(dirfd(dir), entry->d_name);
	}
	closedir(dir);
	q->used = bytes + q->open;
}
