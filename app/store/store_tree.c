/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arrow_recovery.h"
#include "file_lock.h"
#include "store_tree.h"

#define LOCK ".lock"

static bool
ends_with(const char *text, const char *end)
{
	const size_t len = strlen(text), end_len = strlen(end);

	return len > end_len && strcmp(text + len - end_len, end) == 0;
}

bool
store_tree_is_part(const char *path)
{
	return ends_with(path, ".arrow.part");
}

/* Files of a directory come one after the other, and before what is below it. */
static int
by_name(const FTSENT **a, const FTSENT **b)
{
	if (((*a)->fts_info == FTS_D) != ((*b)->fts_info == FTS_D))
		return (*a)->fts_info == FTS_D ? 1 : -1;
	return strcmp((*a)->fts_name, (*b)->fts_name);
}

static int
add(struct store_tree *t, const char *path)
{
	char **more = realloc(t->path, (t->nb + 1) * sizeof(*more));

	if (more == NULL)
		return -ENOMEM;
	t->path = more;
	more[t->nb] = strdup(path);
	return more[t->nb] != NULL ? (t->nb++, 0) : -ENOMEM;
}

int
store_tree_read(struct store_tree *t, char *const *root, char message[PATH_MAX])
{
	FTSENT *e;
	FTS *fts;
	int rc = 0;

	fts = fts_open(root, FTS_PHYSICAL | FTS_NOCHDIR, by_name);
	if (fts == NULL) {
		snprintf(message, PATH_MAX, "cannot look for files: %s", strerror(errno));
		return -errno;
	}
	while (rc == 0 && (errno = 0, e = fts_read(fts)) != NULL) {
		if (e->fts_info == FTS_DNR || e->fts_info == FTS_ERR || e->fts_info == FTS_NS) {
			rc = -e->fts_errno;
			snprintf(message, PATH_MAX, "%.3000s: %s", e->fts_path,
				strerror(e->fts_errno));
		} else if (e->fts_info == FTS_F &&
			(ends_with(e->fts_path, ".arrow") || store_tree_is_part(e->fts_path))) {
			rc = add(t, e->fts_path);
			if (rc < 0)
				snprintf(message, PATH_MAX, "no memory for a list of files");
		}
	}
	if (rc == 0 && errno != 0) {
		rc = -errno;
		snprintf(message, PATH_MAX, "cannot look for files: %s", strerror(errno));
	}
	fts_close(fts);
	return rc;
}

void
store_tree_free(struct store_tree *t)
{
	size_t i;

	for (i = 0; i < t->nb; i++)
		free(t->path[i]);
	free(t->path);
	*t = (struct store_tree){0};
}

int
store_tree_recover(
	char *const *root, void (*say)(const char *path, const char *what), char message[PATH_MAX])
{
	struct arrow_recovery report;
	struct store_tree t = {0};
	int rc, left = 0;
	size_t i;

	rc = store_tree_read(&t, root, message);
	for (i = 0; i < t.nb && rc == 0; i++) {
		if (!store_tree_is_part(t.path[i]))
			continue;
		left += arrow_recover_file(NULL, t.path[i], &report) < 0;
		say(report.path, report.message);
	}
	store_tree_free(&t);
	return rc < 0 ? rc : left;
}

/* Hold the directory of a file itself. */
static int
lock_dir_of(const char *path, size_t size, char *message)
{
	char dir[PATH_MAX];
	int fd, rc;

	if (size >= sizeof(dir))
		return -ENAMETOOLONG;
	snprintf(dir, sizeof(dir), "%.*s", (int)size, path);
	if (size == 0)
		strcpy(dir, path[0] == '/' ? "/" : ".");
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	rc = fd < 0 ? -errno : file_lock(fd, FILE_LOCK_MS);
	if (rc < 0) {
		snprintf(message, PATH_MAX, "%.3000s: %s", dir,
			rc == -EBUSY ? "its receiver holds it: a store may still have to cut off "
				       "what was spilled"
				     : strerror(-rc));
		if (fd >= 0)
			close(fd);
	}
	return rc;
}

int
store_tree_lock_runs(char *const *root, char message[PATH_MAX])
{
	struct store_tree t = {0};
	const char *last = "";
	size_t i, size, last_size = 0;
	int rc;

	rc = store_tree_read(&t, root, message);
	for (i = 0; i < t.nb && rc == 0; i++) {
		size = strrchr(t.path[i], '/') != NULL ? strrchr(t.path[i], '/') - t.path[i] : 0;
		if (last_size == size && strncmp(last, t.path[i], size) == 0)
			continue;
		rc = lock_dir_of(t.path[i], size, message);
		last = t.path[i];
		last_size = size;
	}
	store_tree_free(&t);
	return rc;
}

/* @return a descriptor that holds a lock file; -EBUSY; -errno */
static int
lock_file(const char *dir, const char *name, int flags)
{
	char path[PATH_MAX];
	int fd, rc;

	if (snprintf(path, sizeof(path), "%s/%s", dir, name) >= (int)sizeof(path))
		return -ENAMETOOLONG;
	fd = open(path, O_RDWR | O_CLOEXEC | flags, 0644);
	if (fd < 0)
		return -errno;
	rc = file_lock(fd, FILE_LOCK_MS);
	if (rc == 0)
		return fd;
	close(fd);
	return rc;
}

int
store_tree_lock(const char *dir, char message[PATH_MAX])
{
	int fd, above;

	/* that of a run is its store's */
	above = lock_file(dir, "../" LOCK, 0);
	fd = above == -EBUSY ? -EBUSY : lock_file(dir, LOCK, O_CREAT);
	if (above >= 0)
		close(above);
	if (fd < 0)
		snprintf(message, PATH_MAX, "%.3000s: %s", dir,
			fd == -EBUSY
				? "a braggline-store, or another command of it, is at work there"
				: strerror(-fd));
	return fd;
}
