/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "io/durable_file.h"
#include "io/own_file.h"

/* Rule that a kind of folder must meet. */
static const struct rule {
	mode_t others; /* mode bits that it must not have */
	/* accepted with these bits if it is sticky: users cannot remove or rename others' files */
	bool sticky;
	int open; /* flags of open(2) */
	mode_t make;
	const char *what; /* what other users could do with such a bit */
	const char *mend;
} rules[] = {
	[OWN_FOLDER_PRIVATE] = {077, false, O_NOFOLLOW, 0700, "list its content", "0700"},
	[OWN_FOLDER_NAMED] = {022, true, 0, OWN_FOLDER_MODE, "write", "go-w"},
	[OWN_FOLDER_DATA] = {002, true, 0, OWN_FOLDER_MODE, "write", "o-w"},
	[OWN_FOLDER_RUN] = {002, false, O_NOFOLLOW, OWN_FOLDER_MODE, "write", "o-w"},
};

const char *
own_memory_folder(void)
{
	static char path[64];
	struct statfs fs;

	/* in a container, /run is often on its disk */
	if (geteuid() == 0 && statfs("/run", &fs) == 0 && fs.f_type == TMPFS_MAGIC)
		return "/run/braggline";
	snprintf(path, sizeof(path), "/dev/shm/braggline-%u", geteuid());
	return path;
}

const char *
own_file_error(int error)
{
	switch (error) {
	case -ELOOP:
		return "it is a symbolic link; expected a regular file";
	case -EMEDIUMTYPE:
		return "it is not a regular file";
	default:
		return strerror(-error);
	}
}

static int
check_owner(const struct stat *st, const char *what, const char *path, char message[PATH_MAX])
{
	if (st->st_uid == geteuid() || st->st_uid == 0)
		return 0;
	snprintf(message, PATH_MAX,
		"%s %.3000s: owner is user %u; expected this user (%u) or root. If its content is "
		"to be trusted, chown it or run as that user; else remove it or name another path",
		what, path, st->st_uid, geteuid());
	return -EPERM;
}

static int
check_folder(int fd, const char *path, const struct rule *rule, char message[PATH_MAX])
{
	struct stat st;
	int rc;

	if (fstat(fd, &st) < 0) {
		rc = -errno;
		snprintf(message, PATH_MAX, "folder %.3000s: %s", path, strerror(-rc));
		return rc;
	}
	rc = check_owner(&st, "folder", path, message);
	if (rc < 0)
		return rc;
	if ((st.st_mode & rule->others) == 0 || (rule->sticky && (st.st_mode & S_ISVTX) != 0))
		return 0;
	snprintf(message, PATH_MAX,
		"folder %.3000s: mode is %04o, other users may %s; expected none of %04o%s. If "
		"its content is to be trusted, run chmod %s on it",
		path, st.st_mode & 07777, rule->what, rule->others,
		rule->sticky ? ", or the sticky bit" : "", rule->mend);
	return -EPERM;
}

/* Check the folders above: a user who may write to one of them could replace the folder below. */
static int
check_above(int fd, const char *path, char message[PATH_MAX])
{
	char link[32], above[256] = "";
	struct stat st, below;
	int at = openat(fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC), next, rc = 0;

	if (fstat(fd, &below) < 0)
		rc = -errno;
	/* a folder that may not be searched cannot be checked */
	while (rc == 0 && at >= 0 && fstat(at, &st) == 0 &&
		(st.st_dev != below.st_dev || st.st_ino != below.st_ino)) {
		if ((st.st_mode & S_IWOTH) != 0 && (st.st_mode & S_ISVTX) == 0) {
			snprintf(link, sizeof(link), "/proc/self/fd/%d", at);
			(void)!readlink(link, above, sizeof(above) - 1);
			snprintf(message, PATH_MAX,
				"folder %.3000s: mode of parent folder %s is %04o, other users "
				"may replace its content; expected no 0002, or the sticky bit. "
				"Run chmod o-w or chmod +t on that folder, or name another path",
				path, above, st.st_mode & 07777);
			rc = -EPERM;
			break;
		}
		below = st;
		next = openat(at, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
		close(at);
		at = next;
	}
	if (at >= 0)
		close(at);
	return rc;
}

int
own_folder_open(const char *path, enum own_folder kind, char message[PATH_MAX])
{
	const int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC | rules[kind].open);
	int rc;

	if (fd < 0) {
		rc = -errno;
		snprintf(message, PATH_MAX, "folder %.3000s: %s", path,
			rc == -ENOTDIR || rc == -ELOOP
				? "it is a symbolic link, or not a folder; remove it or name "
				  "another path"
				: strerror(-rc));
		return rc;
	}
	rc = check_folder(fd, path, &rules[kind], message);
	if (rc == 0)
		rc = check_above(fd, path, message);
	if (rc == 0)
		return fd;
	close(fd);
	return rc;
}

int
own_folder_check(const char *path, enum own_folder kind, char message[PATH_MAX])
{
	const int fd = own_folder_open(path, kind, message);

	if (fd < 0)
		return fd;
	close(fd);
	return 0;
}

int
own_folder_make(const char *path, enum own_folder kind, char message[PATH_MAX])
{
	int rc;

	/* a private folder is in memory, so its name need not be durable */
	if (kind == OWN_FOLDER_PRIVATE)
		rc = mkdir(path, rules[kind].make) < 0 && errno != EEXIST ? -errno : 0;
	else
		rc = durable_dir_make(path, rules[kind].make);
	if (rc < 0) {
		snprintf(
			message, PATH_MAX, "cannot create folder %.3000s: %s", path, strerror(-rc));
		return rc;
	}
	return own_folder_open(path, kind, message);
}

static int
open_regular(int folder, const char *path, int flags, mode_t mode)
{
	struct stat st;
	int fd, rc;

	/* Without O_NONBLOCK, opening a FIFO would wait for its other end. */
	fd = openat(folder, path, flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, mode);
	if (fd < 0)
		return errno == ENXIO ? -EMEDIUMTYPE : -errno; /* a FIFO without a reader */
	if (fstat(fd, &st) < 0)
		rc = -errno;
	else if (!S_ISREG(st.st_mode))
		rc = S_ISDIR(st.st_mode) ? -EISDIR : -EMEDIUMTYPE;
	else
		/* with O_NONBLOCK, io_uring would return -EAGAIN instead of waiting */
		rc = fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) < 0 ? -errno : 0;
	if (rc == 0)
		return fd;
	close(fd);
	return rc;
}

int
own_file_open(int folder, const char *path, int flags, mode_t mode)
{
	return open_regular(folder, path, flags | O_NOFOLLOW, mode);
}

int
own_file_open_named(const char *path, int flags, mode_t mode)
{
	return open_regular(AT_FDCWD, path, flags, mode);
}

/** @param fd  or -errno */
static FILE *
stream_of(int fd, const char *mode)
{
	FILE *f;

	if (fd < 0) {
		errno = -fd;
		return NULL;
	}
	f = fdopen(fd, mode);
	if (f == NULL)
		close(fd);
	return f;
}

FILE *
own_file_read(const char *path)
{
	return stream_of(own_file_open_named(path, O_RDONLY, 0), "r");
}

FILE *
own_file_write(const char *path)
{
	return stream_of(
		own_file_open(AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, OWN_FILE_MODE), "w");
}

int
own_file_check(int fd, const char *path, mode_t others, char message[PATH_MAX])
{
	struct stat st;
	int rc;

	if (fstat(fd, &st) < 0) {
		rc = -errno;
		snprintf(message, PATH_MAX, "%.3000s: %s", path, strerror(-rc));
		return rc;
	}
	if (!S_ISREG(st.st_mode)) {
		snprintf(message, PATH_MAX,
			"%.3000s: it is not a regular file; remove it or name another path", path);
		return -EPERM;
	}
	rc = check_owner(&st, "file", path, message);
	if (rc < 0)
		return rc;
	if (st.st_nlink != 1) {
		snprintf(message, PATH_MAX,
			"%.3000s: it has %lu hard links; expected one. Find the others with find "
			"-inum %lu and remove them",
			path, (unsigned long)st.st_nlink, (unsigned long)st.st_ino);
		return -EPERM;
	}
	if ((st.st_mode & others) == 0)
		return 0;
	snprintf(message, PATH_MAX,
		"%.3000s: mode is %04o, other users may %s it; expected none of %04o. Run chmod "
		"%s on it if its content is to be trusted",
		path, st.st_mode & 07777, (others & 044) != 0 ? "read or write" : "write", others,
		(others & 044) != 0 ? "go-rwx" : "go-w");
	return -EPERM;
}
