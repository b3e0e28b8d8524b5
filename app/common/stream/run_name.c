/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "io/directory.h"
#include "stream/ended.h"
#include "stream/run_name.h"
#include "stream/source.h"

/* Whether a file belongs to the incarnation, and has another run's name. */
static bool
is_other(const char *name, bool other_dir, const char *run, const struct arrow_identity *id)
{
	char its_run[XFER_NAME_BYTES], text[32];

	snprintf(text, sizeof(text), STORE_ENDED "%016" PRIx64, id->incarnation);
	if (other_dir && strcmp(name, text) == 0)
		return true;
	if (stream_source_run(name, its_run) < 0 || strcmp(its_run, run) == 0)
		return false;
	snprintf(text, sizeof(text), "_%016" PRIx64 "_", id->incarnation);
	return strncmp(name + strlen(its_run), text, strlen(text)) == 0;
}

/* @return 0; 1: found; -errno */
static int
look_in(const char *root, const char *dir_name, bool other_dir, const char *run,
	const struct arrow_identity *id, char path[PATH_MAX])
{
	char dir[PATH_MAX];
	const struct dirent *e;
	int ret = 0;
	DIR *d;

	if (snprintf(dir, sizeof(dir), "%s/%s", root, dir_name) >= (int)sizeof(dir))
		return -ENAMETOOLONG;
	snprintf(path, PATH_MAX, "%s", dir);
	d = opendir(dir);
	if (d == NULL)
		return errno == ENOENT || errno == ENOTDIR ? 0 : -errno;
	while (ret == 0 && (e = directory_next(d)) != NULL) {
		if (!is_other(e->d_name, other_dir, run, id))
			continue;
		ret = 1;
		if (snprintf(path, PATH_MAX, "%s/%s", dir, e->d_name) >= PATH_MAX)
			snprintf(path, PATH_MAX, "%s", dir);
	}
	if (ret == 0 && errno != 0)
		ret = -errno;
	closedir(d);
	return ret;
}

int
stream_run_other(
	const char *root, const char *run, const struct arrow_identity *id, char path[PATH_MAX])
{
	char end[64];
	const struct dirent *e;
	size_t size, all;
	int ret = 0;
	DIR *d;

	size = snprintf(end, sizeof(end), "-%016" PRIx64 "-%016" PRIx64, id->receiver_id, id->run);
	snprintf(path, PATH_MAX, "%s", root);
	d = opendir(root);
	if (d == NULL)
		return -errno;
	while (ret == 0 && (e = directory_next(d)) != NULL) {
		all = strlen(e->d_name);
		if (all <= size || strcmp(e->d_name + all - size, end) != 0)
			continue;
		ret = look_in(root, e->d_name,
			strlen(run) != all - size || strncmp(e->d_name, run, all - size) != 0, run,
			id, path);
	}
	if (ret == 0 && errno != 0)
		ret = -errno;
	closedir(d);
	return ret;
}
