/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "io/dir_lock.h"
#include "io/directory.h"
#include "output_lock.h"

int
output_lock_take(struct output_lock *lock, const struct export *e)
{
	char dir[PATH_MAX], name[PATH_MAX];
	const char *run = export_split(e, dir);

	/* the export has begun again */
	if (lock->fd != OUTPUT_LOCK_NONE)
		return 0;
	if (snprintf(name, sizeof(name), ".%s.export.lock", run) >= (int)sizeof(name) ||
		snprintf(lock->path, sizeof(lock->path), "%s/%s", dir, name) >=
			(int)sizeof(lock->path))
		return export_complain("--output %s: the name is too long%s", dir, "");
	lock->fd = export_lock(dir, name, 0);
	if (lock->fd >= 0 || lock->fd == -EOPNOTSUPP)
		return 0;
	if (lock->fd == -EBUSY)
		export_complain("%s: another braggline-export writes the files of run %s; wait "
				"for its end, or choose another --output",
			dir, run);
	lock->fd = OUTPUT_LOCK_NONE;
	return -EINVAL;
}

void
output_lock_release(struct output_lock *lock)
{
	if (lock->fd >= 0) {
		/* while it is locked: another process that has opened it sees its end */
		(void)unlink(lock->path);
		dir_lock_release(lock->fd);
	}
	lock->fd = OUTPUT_LOCK_NONE;
}

/* Whether a file is an incomplete one of a format. */
static bool
is_part(const struct export *e, enum options_format format, const char *name)
{
	switch (format) {
	case OPTIONS_SPARSE:
		return export_is_file(e, name, "_sparse.h5.part") ||
			export_file_number(e, name, "_sparse_", ".h5.part") > 0;
	case OPTIONS_CXI:
		return export_is_file(e, name, ".cxi.part");
	default:
		return export_is_file(e, name, "_master.h5.part") ||
			export_file_number(e, name, "_data_", ".h5.part") > 0;
	}
}

int
output_lock_clear(
	const struct output_lock *lock, const struct export *e, enum options_format format)
{
	char dir[PATH_MAX], path[PATH_MAX];
	struct dirent *entry;
	int ret = 0;
	DIR *d;

	if (lock->fd < 0)
		return 0;
	(void)export_split(e, dir);
	d = opendir(dir);
	if (d == NULL)
		return export_complain("%s: %s", dir, strerror(errno));
	while ((entry = directory_next(d)) != NULL) {
		if (!is_part(e, format, entry->d_name))
			continue;
		snprintf(path, sizeof(path), "%.3800s/%.255s", dir, entry->d_name);
		if (unlink(path) < 0 && errno != ENOENT)
			export_complain(
				"warning: %s: cannot be removed: %s", path, strerror(errno));
	}
	if (errno != 0)
		ret = export_complain("%s: %s", dir, strerror(errno));
	closedir(d);
	return ret;
}
