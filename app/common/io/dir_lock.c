/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/dir_lock.h"
#include "io/file_lock.h"
#include "io/own_file.h"

#define NEW	 ".new"
#define ATTEMPTS 100 /* the file may be replaced by another program between two calls */

/* A lock of this process. */
struct held {
	struct held *next;
	int fd;
	dev_t dev;
	ino_t ino;
};

static struct held *held_locks;
static pthread_mutex_t held_mutex = PTHREAD_MUTEX_INITIALIZER;

/* @return fd; -ENOMEM: it was closed */
static int
remember(int fd)
{
	struct held *h = malloc(sizeof(*h));
	struct stat st;

	if (h == NULL || fstat(fd, &st) < 0) {
		free(h);
		close(fd);
		return -ENOMEM;
	}
	*h = (struct held){.fd = fd, .dev = st.st_dev, .ino = st.st_ino};
	pthread_mutex_lock(&held_mutex);
	h->next = held_locks;
	held_locks = h;
	pthread_mutex_unlock(&held_mutex);
	return fd;
}

void
dir_lock_release(int fd)
{
	struct held **at, *h;

	if (fd < 0)
		return;
	pthread_mutex_lock(&held_mutex);
	for (at = &held_locks; *at != NULL && (*at)->fd != fd; at = &(*at)->next)
		;
	h = *at;
	if (h != NULL)
		*at = h->next;
	/* close within the mutex: another thread must not share this descriptor */
	close(fd);
	pthread_mutex_unlock(&held_mutex);
	free(h);
}

static int
make_path(char path[PATH_MAX], const char *dir, const char *name)
{
	return snprintf(path, PATH_MAX, "%s/%s", dir, name) < PATH_MAX ? 0 : -ENAMETOOLONG;
}

int
dir_lock_share(const char *dir, const char *name)
{
	const struct held *h;
	char path[PATH_MAX];
	struct stat st;
	int fd = -ENOENT;

	if (make_path(path, dir, name) < 0 || lstat(path, &st) < 0)
		return -ENOENT;
	pthread_mutex_lock(&held_mutex);
	for (h = held_locks; h != NULL; h = h->next) {
		if (h->dev != st.st_dev || h->ino != st.st_ino)
			continue;
		fd = fcntl(h->fd, F_DUPFD_CLOEXEC, 0);
		if (fd < 0)
			fd = -errno;
		break;
	}
	pthread_mutex_unlock(&held_mutex);
	return fd < 0 ? fd : remember(fd);
}

/* Whether a path is still that of an open file. */
static bool
is_at(int fd, const char *path)
{
	struct stat st, at;

	return fstat(fd, &st) == 0 && lstat(path, &at) == 0 && st.st_dev == at.st_dev &&
		st.st_ino == at.st_ino;
}

/* Other users must not own the file, but the owner of the directory may. */
static int
check_owner(int fd, const char *dir, const char *path, char message[PATH_MAX])
{
	struct stat st, above;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_uid == geteuid() || st.st_uid == 0 ||
		(stat(dir, &above) == 0 && st.st_uid == above.st_uid))
		return 0;
	snprintf(message, PATH_MAX,
		"%.3000s: owner is user %u; expected this user (%u) or root; remove it", path,
		st.st_uid, geteuid());
	return -EPERM;
}

/*
 * Replace a file that others have locked for reading. This process has it locked for reading, too,
 * so no process can have locked it for writing. The lock of the new file is taken before it has its
 * name, and decides which process replaces the file.
 * @return descriptor of the new file; -EAGAIN: another process was faster
 */
static int
replace(int old, const char *path, unsigned int wait_ms)
{
	char new[PATH_MAX], text[PATH_MAX];
	struct stat st;
	int fd, ret;

	if (snprintf(new, sizeof(new), "%s" NEW, path) >= (int)sizeof(new))
		return -ENAMETOOLONG;
	fd = own_file_open(AT_FDCWD, new, O_RDWR | O_CREAT, OWN_SECRET_MODE);
	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0 || (st.st_uid != geteuid() && st.st_uid != 0)) {
		close(fd);
		return -EPERM;
	}
	ret = file_lock(fd, wait_ms);
	if (ret == 0 && (!is_at(fd, new) || !is_at(old, path)))
		ret = -EAGAIN;
	/* the owner of the file is changed next, so it must not be a file of another user */
	if (ret == 0 && (fstat(fd, &st) < 0 || st.st_nlink != 1 || st.st_size != 0))
		ret = -EPERM;
	if (ret == -EPERM) {
		snprintf(text, sizeof(text), "%.3000s: is not a new lock file; remove it", new);
		file_lock_warn(text);
	}
	/* a new file of root would exclude the owner */
	if (ret == 0 && fstat(old, &st) == 0 && st.st_uid != geteuid() &&
		fchown(fd, st.st_uid, st.st_gid) < 0)
		ret = -errno;
	if (ret == 0 && rename(new, path) < 0)
		ret = -errno;
	if (ret < 0) {
		close(fd);
		return ret;
	}
	snprintf(text, sizeof(text),
		"%.3000s: another user had locked it for reading; replaced it by a file that other "
		"users cannot read",
		path);
	file_lock_warn(text);
	return fd;
}

/* @return descriptor; -EAGAIN: the file was replaced meanwhile; as dir_lock() */
static int
lock_once(
	const char *dir, const char *path, int flags, unsigned int wait_ms, char message[PATH_MAX])
{
	int fd = own_file_open(AT_FDCWD, path, O_RDWR | flags, OWN_SECRET_MODE), new = -1, ret;
	struct stat st;

	if (fd < 0) {
		snprintf(message, PATH_MAX, "%.3000s: %s", path, own_file_error(fd));
		return fd;
	}
	ret = check_owner(fd, dir, path, message);
	if (ret == 0) {
		ret = file_lock_or_read(fd, wait_ms);
		if (ret == 1)
			ret = new = replace(fd, path, wait_ms);
		else if (ret == 0 && !is_at(fd, path))
			ret = -EAGAIN;
		if (ret < 0)
			snprintf(message, PATH_MAX, "%.3000s: %s", path, own_file_error(ret));
	}
	if (ret < 0 || new >= 0) {
		close(fd);
		return ret;
	}
	if (fstat(fd, &st) == 0 && (st.st_mode & 077) != 0 && st.st_uid == geteuid() &&
		st.st_nlink == 1)
		(void)fchmod(fd, OWN_SECRET_MODE);
	return fd;
}

int
dir_lock(const char *dir, const char *name, bool create, unsigned int wait_ms,
	char message[PATH_MAX])
{
	char path[PATH_MAX];
	int i, fd = make_path(path, dir, name);

	if (fd < 0) {
		snprintf(message, PATH_MAX, "%.3000s: %s", dir, strerror(-fd));
		return fd;
	}
	fd = -EAGAIN;
	for (i = 0; i < ATTEMPTS && fd == -EAGAIN; i++)
		fd = lock_once(dir, path, create ? O_CREAT : 0, wait_ms, message);
	if (fd == -EAGAIN)
		return -EBUSY;
	return fd < 0 ? fd : remember(fd);
}

int
dir_lock_for_file(const char *path, int fd[2])
{
	const char *slash = strrchr(path, '/');
	char dir[PATH_MAX], message[PATH_MAX];

	fd[0] = fd[1] = -1;
	if (slash == NULL)
		strcpy(dir, ".");
	else if (snprintf(dir, sizeof(dir), "%.*s", slash == path ? 1 : (int)(slash - path),
			 path) >= (int)sizeof(dir))
		return -ENAMETOOLONG;
	fd[0] = dir_lock_share(dir, "../" DIR_LOCK_NAME);
	if (fd[0] == -ENOENT)
		fd[0] = dir_lock_share(dir, DIR_LOCK_NAME);
	if (fd[0] != -ENOENT)
		return fd[0] < 0 ? fd[0] : 0;
	fd[0] = dir_lock(dir, "../" DIR_LOCK_NAME, false, 0, message);
	/* most directories are not below a store */
	if (fd[0] == -EBUSY || fd[0] == -ENOMEM)
		return fd[0];
	fd[1] = dir_lock(dir, DIR_LOCK_NAME, true, 0, message);
	if (fd[1] >= 0)
		return 0;
	dir_lock_release(fd[0]);
	fd[0] = -1;
	return fd[1];
}
