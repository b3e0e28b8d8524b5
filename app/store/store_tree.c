/* SPDX-License-Identifier: BSD-3-Clause */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "arrow/names.h"
#include "io/dir_lock.h"
#include "io/file_lock.h"
#include "io/own_file.h"
#include "recovery/recovery.h"
#include "store_tree.h"
#include "stream/ended.h"

/* Sort by name, with the files of a directory before its subdirectories. */
static int
by_name(const FTSENT **a, const FTSENT **b)
{
	if (((*a)->fts_info == FTS_D) != ((*b)->fts_info == FTS_D))
		return (*a)->fts_info == FTS_D ? 1 : -1;
	return strcmp((*a)->fts_name, (*b)->fts_name);
}

/* Identity of a file, independent of its path. */
struct file_id {
	dev_t dev;
	ino_t ino;
	size_t at; /* index in store_tree.path */
};

static int
add(struct store_tree *t, struct file_id **id, const FTSENT *e)
{
	struct file_id *ids = realloc(*id, (t->nb + 1) * sizeof(*ids));
	char **more;

	if (ids == NULL)
		return -ENOMEM;
	*id = ids;
	more = realloc(t->path, (t->nb + 1) * sizeof(*more));
	if (more == NULL)
		return -ENOMEM;
	t->path = more;
	more[t->nb] = strdup(e->fts_path);
	if (more[t->nb] == NULL)
		return -ENOMEM;
	ids[t->nb] = (struct file_id){e->fts_statp->st_dev, e->fts_statp->st_ino, t->nb};
	t->nb++;
	return 0;
}

static int
by_id(const void *a, const void *b)
{
	const struct file_id *x = a, *y = b;

	if (x->dev != y->dev)
		return x->dev < y->dev ? -1 : 1;
	if (x->ino != y->ino)
		return x->ino < y->ino ? -1 : 1;
	return x->at < y->at ? -1 : 1;
}

/*
 * Remove the second path of a file that was found through nested root directories or hard links, so
 * that it does not count as a second copy of itself.
 */
static void
drop_duplicates(struct store_tree *t, struct file_id *id)
{
	size_t i, nb = 0;

	if (t->nb > 0)
		qsort(id, t->nb, sizeof(*id), by_id);
	for (i = 1; i < t->nb; i++) {
		if (id[i].dev != id[i - 1].dev || id[i].ino != id[i - 1].ino)
			continue;
		free(t->path[id[i].at]);
		t->path[id[i].at] = NULL;
	}
	for (i = 0; i < t->nb; i++)
		if (t->path[i] != NULL)
			t->path[nb++] = t->path[i];
	t->nb = nb;
}

/* Whether it is an incomplete copy, see reconcile.c. */
static bool
is_hidden(const FTSENT *e)
{
	return e->fts_level > FTS_ROOTLEVEL && e->fts_name[0] == '.';
}

static bool
has_name_of_mark(const FTSENT *e)
{
	return e->fts_level > FTS_ROOTLEVEL &&
		strncmp(e->fts_name, STORE_ENDED, strlen(STORE_ENDED)) == 0;
}

/* Whether a name is one of those that are searched. The type of the object is not checked. */
static bool
has_matching_name(const struct store_tree *t, const FTSENT *e)
{
	if (t->ended && has_name_of_mark(e))
		return true;
	if (is_hidden(e))
		return false;
	return arrow_name_is_complete(e->fts_path) || arrow_name_is_part(e->fts_path) ||
		(t->quarantine && arrow_name_is_quarantine(e->fts_path)) ||
		(t->imported && arrow_name_ends(e->fts_path, ".arrow.imported"));
}

static bool
is_wanted(const struct store_tree *t, const FTSENT *e)
{
	return e->fts_info == FTS_F && has_matching_name(t, e);
}

/* Whether a directory, FIFO, socket or device has the name of a file that is searched. */
static bool
is_in_place_of_file(const struct store_tree *t, const FTSENT *e)
{
	return (e->fts_info == FTS_D || e->fts_info == FTS_DEFAULT) && has_matching_name(t, e);
}

/*
 * Check that no other user created a file or folder or may replace it. A batch must not be removed
 * because of a copy in such a file. A folder is checked before its content.
 */
static int
check_own(const FTSENT *e, char message[PATH_MAX])
{
	const struct stat *st = e->fts_statp;
	const bool file = e->fts_info == FTS_F;
	mode_t others = file ? OWN_FILE_OTHERS : 002;

	if (st->st_uid != geteuid() && st->st_uid != 0) {
		snprintf(message, PATH_MAX,
			"%.3000s: owner is user %u; expected this user (%u) or root. If its "
			"content is to be trusted, chown it or run as that user; else remove it",
			e->fts_path, st->st_uid, geteuid());
		return -EPERM;
	}
	/* in a sticky folder, users can only remove or rename their own files */
	if (!file && (st->st_mode & S_ISVTX) != 0)
		others = 0;
	if ((st->st_mode & others) != 0) {
		snprintf(message, PATH_MAX,
			"%.3000s: mode is %04o, other users may write; expected none of %04o. Run "
			"chmod %s on it if its content is to be trusted",
			e->fts_path, st->st_mode & 07777, others, file ? "go-w" : "o-w");
		return -EPERM;
	}
	if (file && arrow_name_is_part(e->fts_path) && st->st_nlink != 1) {
		snprintf(message, PATH_MAX,
			"%.3000s: it has %lu hard links; expected one. Find the others with find "
			"-inum %lu and remove them",
			e->fts_path, (unsigned long)st->st_nlink, (unsigned long)st->st_ino);
		return -EPERM;
	}
	return 0;
}

/* Check the named directories, and those of named files, as a store checks its own. */
static int
check_roots(char *const *root, char message[PATH_MAX])
{
	char path[PATH_MAX];
	struct stat st;
	int ret = 0;

	for (; *root != NULL && ret == 0; root++) {
		snprintf(path, sizeof(path), "%s", *root);
		/* dirname() may change the path */
		if (stat(path, &st) == 0 && !S_ISDIR(st.st_mode))
			ret = own_folder_check(dirname(path), OWN_FOLDER_DATA, message);
		else
			ret = own_folder_check(path, OWN_FOLDER_DATA, message);
	}
	return ret;
}

int
store_tree_read(struct store_tree *t, char *const *root, char message[PATH_MAX])
{
	struct file_id *id = NULL;
	FTSENT *e;
	FTS *fts;
	int ret = check_roots(root, message);

	if (ret < 0)
		return ret;
	fts = fts_open(root, FTS_PHYSICAL | FTS_COMFOLLOW | FTS_NOCHDIR, by_name);
	if (fts == NULL) {
		snprintf(message, PATH_MAX, "cannot list files: %s", strerror(errno));
		return -errno;
	}
	while (ret == 0 && (errno = 0, e = fts_read(fts)) != NULL) {
		if (e->fts_info == FTS_DNR || e->fts_info == FTS_ERR || e->fts_info == FTS_NS) {
			ret = -e->fts_errno;
			snprintf(message, PATH_MAX, "%.3000s: %s", e->fts_path,
				strerror(e->fts_errno));
		} else if (e->fts_info == FTS_SL || e->fts_info == FTS_SLNONE) {
			ret = -ELOOP;
			snprintf(message, PATH_MAX,
				"%.3000s is a symbolic link and is not followed; give its target",
				e->fts_path);
		} else if (e->fts_level == FTS_ROOTLEVEL && e->fts_info != FTS_D &&
			e->fts_info != FTS_DP && !has_matching_name(t, e)) {
			ret = -EINVAL;
			snprintf(message, PATH_MAX,
				"%.3000s: expected a directory, or a file named *.arrow or "
				"*.arrow.part",
				e->fts_path);
		} else if (is_in_place_of_file(t, e)) {
			ret = -EINVAL;
			snprintf(message, PATH_MAX,
				"%.3000s is %s with the name of %s; expected a regular file. %s",
				e->fts_path,
				e->fts_info == FTS_D ? "a directory" : "a FIFO, socket or device",
				has_name_of_mark(e) ? "the mark of an ended run"
						    : "a file of batches",
				has_name_of_mark(e)
					? "If the run has ended, replace it by an empty file; else "
					  "remove it"
					: "Its batches are missing: rename or remove it");
		} else if (t->own && (e->fts_info == FTS_D || is_wanted(t, e)) &&
			check_own(e, message) < 0) {
			ret = -EPERM;
		} else if (is_wanted(t, e)) {
			ret = add(t, &id, e);
			if (ret < 0)
				snprintf(message, PATH_MAX, "cannot allocate a list of files");
		}
	}
	if (ret == 0 && errno != 0) {
		ret = -errno;
		snprintf(message, PATH_MAX, "cannot list files: %s", strerror(errno));
	}
	fts_close(fts);
	drop_duplicates(t, id);
	free(id);
	return ret;
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

/* Whether these locks include a file. */
static bool
holds(const struct store_locks *l, const char *path)
{
	struct stat st, locked;
	size_t i;

	if (lstat(path, &st) < 0)
		return false;
	for (i = 0; i < l->nb; i++) {
		if (fstat(l->fd[i], &locked) == 0 && locked.st_dev == st.st_dev &&
			locked.st_ino == st.st_ino)
			return true;
	}
	return false;
}

/* Lock a lock file, unless these locks include it. @return 0; as dir_lock() */
static int
lock_file(struct store_locks *l, const char *dir, const char *name, bool create,
	char message[PATH_MAX])
{
	char path[PATH_MAX];
	int fd, *more;

	snprintf(message, PATH_MAX, "%.3000s: the path is too long, or out of memory", dir);
	if (snprintf(path, sizeof(path), "%s/%s", dir, name) >= (int)sizeof(path))
		return -ENAMETOOLONG;
	if (holds(l, path))
		return 0;
	more = realloc(l->fd, (l->nb + 1) * sizeof(*more));
	if (more == NULL)
		return -ENOMEM;
	l->fd = more;
	fd = dir_lock(dir, name, create, FILE_LOCK_MS, message);
	if (fd < 0)
		return fd;
	l->fd[l->nb++] = fd;
	return 0;
}

int
store_locks_add(struct store_locks *l, const char *dir, char message[PATH_MAX])
{
	int ret = own_folder_check(dir, OWN_FOLDER_DATA, message);

	if (ret < 0)
		return ret;
	/* a directory of a run is also locked by the lock file of its store, one level above */
	ret = lock_file(l, dir, "../" DIR_LOCK_NAME, false, message);
	if (ret != -EBUSY && ret != -ENOMEM)
		ret = lock_file(l, dir, DIR_LOCK_NAME, true, message);
	if (ret == -EBUSY)
		snprintf(message, PATH_MAX,
			"%.3000s: in use by a running braggline-store, by one of its commands, or "
			"by a receiver that may still spill to it or whose stores may still have "
			"to remove their copies of the spilled batches; stop it first",
			dir);
	return ret;
}

void
store_locks_free(struct store_locks *l)
{
	while (l->nb > 0)
		dir_lock_release(l->fd[--l->nb]);
	free(l->fd);
	*l = (struct store_locks){0};
}

int
store_tree_lock(const char *dir, char message[PATH_MAX])
{
	struct store_locks l = {0};
	int ret = store_locks_add(&l, dir, message);

	if (ret == 0)
		ret = l.fd[--l.nb];
	store_locks_free(&l);
	return ret;
}

/* Lock the directory of a file and its store. */
static int
lock_dir_of(struct store_locks *l, const char *path, size_t size, char message[PATH_MAX])
{
	char dir[PATH_MAX];
	int fd, ret;

	if (size >= sizeof(dir))
		return -ENAMETOOLONG;
	snprintf(dir, sizeof(dir), "%.*s", (int)size, path);
	if (size == 0)
		strcpy(dir, path[0] == '/' ? "/" : ".");
	ret = store_locks_add(l, dir, message);
	if (ret < 0)
		return ret;
	/* make the names of the files durable, because other copies may be removed next */
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ret = fd < 0 || (fsync(fd) < 0 && errno != EINVAL) ? -errno : 0;
	if (ret < 0)
		snprintf(message, PATH_MAX, "%.3000s: %s", dir, strerror(-ret));
	if (fd >= 0)
		close(fd);
	return ret;
}

static size_t
dir_size(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash != NULL ? slash - path : 0;
}

static bool
is_same_dir(const char *a, const char *b)
{
	return dir_size(a) == dir_size(b) && strncmp(a, b, dir_size(a)) == 0;
}

/* Lock the directories of all files. The files of a directory are adjacent in the list. */
static int
lock_dirs(struct store_locks *l, const struct store_tree *t, char message[PATH_MAX])
{
	int ret = 0;
	size_t i;

	for (i = 0; i < t->nb && ret == 0; i++) {
		if (i == 0 || !is_same_dir(t->path[i - 1], t->path[i]))
			ret = lock_dir_of(l, t->path[i], dir_size(t->path[i]), message);
	}
	return ret;
}

/* Remove copies that a killed reconcile left. The original files still have their batches. */
static void
remove_hidden(const char *path)
{
	char name[PATH_MAX];
	const struct dirent *entry;
	DIR *dir;

	snprintf(name, sizeof(name), "%.*s/.", (int)dir_size(path), path);
	dir = opendir(dir_size(path) > 0 || path[0] == '/' ? name : ".");
	while (dir != NULL && (entry = readdir(dir)) != NULL) {
		if (arrow_name_is_hidden(entry->d_name) &&
			(arrow_name_is_complete(entry->d_name) ||
				arrow_name_is_part(entry->d_name)))
			(void)unlinkat(dirfd(dir), entry->d_name, 0);
	}
	if (dir != NULL)
		closedir(dir);
}

static int
complete(const struct store_tree *t, void (*say)(const char *path, const char *what))
{
	struct arrow_recovery report;
	int left = 0;
	size_t i;

	for (i = 0; i < t->nb; i++) {
		if (i == 0 || !is_same_dir(t->path[i - 1], t->path[i]))
			remove_hidden(t->path[i]);
		if (!arrow_name_is_part(t->path[i]))
			continue;
		left += arrow_recover_file(NULL, t->path[i], &report) < 0;
		say(report.path, report.message);
	}
	return left;
}

/* Drop files of directories that are not locked: they were created after the locks were taken. */
static void
drop_others(struct store_tree *t, const struct store_tree *held)
{
	size_t i, k, nb = 0;

	for (i = 0; i < t->nb; i++) {
		for (k = 0; k < held->nb && !is_same_dir(held->path[k], t->path[i]); k++)
			;
		if (k < held->nb)
			t->path[nb++] = t->path[i];
		else
			free(t->path[i]);
	}
	t->nb = nb;
}

int
store_tree_take(struct store_tree *t, struct store_locks *locks, char *const *root,
	void (*say)(const char *path, const char *what), char message[PATH_MAX])
{
	struct store_tree held = {.own = true, .ended = t->ended};
	int ret, left = 0;

	t->own = true;
	ret = store_tree_read(&held, root, message);
	if (ret == 0)
		ret = lock_dirs(locks, &held, message);
	if (ret == 0 && say != NULL)
		left = complete(&held, say);
	/* read again, because completed files have new names */
	if (ret == 0)
		ret = store_tree_read(t, root, message);
	if (ret == 0)
		drop_others(t, &held);
	store_tree_free(&held);
	return ret < 0 ? ret : left;
}
