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

#define OPEN_FOLDER (O_PATH | O_DIRECTORY | O_CLOEXEC)

/* Rule that a kind of folder must meet. */
static const struct rule {
	mode_t others; /* mode bits that it must not have */
	/* accepted with these bits if it is sticky: users cannot remove or rename others' files */
	bool sticky;
	bool nofollow; /* must not be a symbolic link */
	mode_t make;
	const char *what; /* what other users could do with such a bit */
	const char *mend;
} rules[] = {
	[OWN_FOLDER_PRIVATE] = {077, false, true, 0700, "list its content", "0700"},
	[OWN_FOLDER_NAMED] = {022, true, false, OWN_FOLDER_MODE, "write", "go-w"},
	[OWN_FOLDER_DATA] = {002, true, false, OWN_FOLDER_MODE, "write", "o-w"},
	[OWN_FOLDER_RUN] = {002, false, true, OWN_FOLDER_MODE, "write", "o-w"},
};

const char *
own_memory_folder(void)
{
	static char path[64];
	struct statfs fs;

	/* in a container, /run is often on disk instead of tmpfs */
	if (geteuid() == 0 && statfs("/run", &fs) == 0 && fs.f_type == TMPFS_MAGIC)
		return "/run/braggline";
	snprintf(path, sizeof(path), "/dev/shm/braggline-%u", geteuid());
	return path;
}

int
own_file_may_replace(const char *path)
{
	struct stat st;

	/* the rename reports all errors of the path */
	if (lstat(path, &st) < 0 || S_ISREG(st.st_mode) || S_ISLNK(st.st_mode))
		return 0;
	return S_ISDIR(st.st_mode) ? -EISDIR : -EMEDIUMTYPE;
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
	int ret;

	if (fstat(fd, &st) < 0) {
		ret = -errno;
		snprintf(message, PATH_MAX, "folder %.3000s: %s", path, strerror(-ret));
		return ret;
	}
	ret = check_owner(&st, "folder", path, message);
	if (ret < 0)
		return ret;
	if ((st.st_mode & rule->others) == 0 || (rule->sticky && (st.st_mode & S_ISVTX) != 0))
		return 0;
	snprintf(message, PATH_MAX,
		"folder %.3000s: mode is %04o, other users may %s; expected none of %04o%s. If "
		"its content is to be trusted, run chmod %s on it",
		path, st.st_mode & 07777, rule->what, rule->others,
		rule->sticky ? ", or the sticky bit" : "", rule->mend);
	return -EPERM;
}

/*
 * Check a folder above, or a link to one, as sshd's StrictModes does: a user who owns it or may
 * write to it could replace everything below it. A group that may write is trusted, because the
 * owner of the folder chose it.
 */
static int
check_above(const struct stat *st, const char *path, const char *above, char message[PATH_MAX])
{
	const bool link = S_ISLNK(st->st_mode);

	if (st->st_uid != geteuid() && st->st_uid != 0) {
		snprintf(message, PATH_MAX,
			"folder %.2000s: owner of %s %.1500s is user %u, who may replace what is "
			"below; expected this user (%u) or root. Run as that user, or name another "
			"path",
			path, link ? "link" : "parent folder", above, st->st_uid, geteuid());
		return -EPERM;
	}
	if (link || (st->st_mode & S_IWOTH) == 0 || (st->st_mode & S_ISVTX) != 0)
		return 0;
	snprintf(message, PATH_MAX,
		"folder %.2000s: mode of parent folder %.1500s is %04o, other users may replace "
		"its content; expected no 0002, or the sticky bit. Run chmod o-w or chmod +t on "
		"that folder, or name another path",
		path, above, st->st_mode & 07777);
	return -EPERM;
}

/* Check a link, and put its target in front of the rest of the path. */
static int
follow(int at, const char *name, const char *path, char rest[PATH_MAX], char message[PATH_MAX])
{
	char target[PATH_MAX], after[PATH_MAX];
	struct stat st;
	ssize_t size;
	int ret;

	if (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (!S_ISLNK(st.st_mode))
		return -ENOTDIR;
	/* first: after this, no other user can replace it */
	ret = check_above(&st, path, name, message);
	if (ret < 0)
		return ret;
	size = readlinkat(at, name, target, sizeof(target));
	if (size < 0)
		return -errno;
	strcpy(after, rest);
	return snprintf(rest, PATH_MAX, "%.*s%s", (int)size, target, after) < PATH_MAX
		? 0
		: -ENAMETOOLONG;
}

/*
 * Open the folder, or follow the link, that the first name of `rest` is in folder `at`. The name is
 * removed from `rest`.
 * @return descriptor: `at`, or another one, and `at` is closed; -errno: `at` stays open
 */
static int
step_down(int at, const char *path, char rest[PATH_MAX], bool nofollow, char message[PATH_MAX])
{
	char name[PATH_MAX], above[PATH_MAX], fd_path[32];
	const char *first = rest + strspn(rest, "/");
	const size_t size = strcspn(first, "/");
	ssize_t length;
	struct stat st;
	int next, ret;

	if (fstat(at, &st) < 0)
		return -errno;
	snprintf(fd_path, sizeof(fd_path), "/proc/self/fd/%d", at);
	length = readlink(fd_path, above, sizeof(above) - 1);
	above[length > 0 ? length : 0] = '\0';
	ret = check_above(&st, path, above, message);
	if (ret < 0)
		return ret;
	snprintf(name, sizeof(name), "%.*s", (int)size, first);
	memmove(rest, first + size, strlen(first + size) + 1);
	next = openat(at, name, OPEN_FOLDER | O_NOFOLLOW);
	/* a link is not a directory either */
	if (next < 0 && errno == ENOTDIR && !(nofollow && rest[strspn(rest, "/")] == '\0')) {
		ret = follow(at, name, path, rest, message);
		if (ret < 0 || rest[0] != '/')
			return ret < 0 ? ret : at;
		next = open("/", OPEN_FOLDER);
	}
	if (next < 0)
		return -errno;
	close(at);
	return next;
}

/*
 * Open a folder, and check all folders and links that the path leads through, from the top. After
 * this, no other user can replace a part of the path, so it can be opened again.
 */
static int
open_checked(const char *path, bool nofollow, char message[PATH_MAX])
{
	char rest[PATH_MAX], folder[PATH_MAX] = "";
	unsigned int steps;
	int at, next;

	if (path[0] == '\0')
		return -ENOENT;
	if (path[0] != '/' && getcwd(folder, sizeof(folder)) == NULL)
		return -errno;
	if (snprintf(rest, sizeof(rest), "%s/%s", folder, path) >= (int)sizeof(rest))
		return -ENAMETOOLONG;
	at = open("/", OPEN_FOLDER);
	if (at < 0)
		return -errno;
	for (steps = 0; rest[strspn(rest, "/")] != '\0'; steps++) {
		/* bounded, since links may form a loop */
		next = steps < PATH_MAX ? step_down(at, path, rest, nofollow, message) : -ELOOP;
		if (next < 0) {
			close(at);
			return next;
		}
		at = next;
	}
	return at;
}

int
own_folder_open(const char *path, enum own_folder kind, char message[PATH_MAX])
{
	const int fd = open_checked(path, rules[kind].nofollow, message);
	int ret;

	if (fd < 0) {
		if (fd != -EPERM)
			snprintf(message, PATH_MAX, "folder %.3000s: %s", path,
				fd == -ENOTDIR || fd == -ELOOP
					? "it is a symbolic link, or not a folder; remove it or "
					  "name another path"
					: strerror(-fd));
		return fd;
	}
	ret = check_folder(fd, path, &rules[kind], message);
	if (ret == 0)
		return fd;
	close(fd);
	return ret;
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
	int ret = own_folder_open(path, kind, message);

	/* first: nothing is created below a folder where another user could replace it */
	if (ret < 0 && ret != -ENOENT)
		return ret;
	if (ret >= 0)
		close(ret);
	/* a private folder is in memory, so its name need not be durable */
	if (kind == OWN_FOLDER_PRIVATE)
		ret = mkdir(path, rules[kind].make) < 0 && errno != EEXIST ? -errno : 0;
	else
		ret = durable_dir_make(path, rules[kind].make);
	if (ret < 0) {
		snprintf(message, PATH_MAX, "cannot create folder %.3000s: %s", path,
			strerror(-ret));
		return ret;
	}
	return own_folder_open(path, kind, message);
}

static int
open_regular(int folder, const char *path, int flags, mode_t mode)
{
	struct stat st;
	int fd, ret;

	/* Without O_NONBLOCK, opening a FIFO would wait for its other end. */
	fd = openat(folder, path, flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, mode);
	if (fd < 0)
		return errno == ENXIO ? -EMEDIUMTYPE : -errno; /* a FIFO without a reader */
	if (fstat(fd, &st) < 0)
		ret = -errno;
	else if (!S_ISREG(st.st_mode))
		ret = S_ISDIR(st.st_mode) ? -EISDIR : -EMEDIUMTYPE;
	else
		/* with O_NONBLOCK, io_uring would return -EAGAIN instead of waiting */
		ret = fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) < 0 ? -errno : 0;
	if (ret == 0)
		return fd;
	close(fd);
	return ret;
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
	int ret;

	if (fstat(fd, &st) < 0) {
		ret = -errno;
		snprintf(message, PATH_MAX, "%.3000s: %s", path, strerror(-ret));
		return ret;
	}
	if (!S_ISREG(st.st_mode)) {
		snprintf(message, PATH_MAX,
			"%.3000s: it is not a regular file; remove it or name another path", path);
		return -EPERM;
	}
	ret = check_owner(&st, "file", path, message);
	if (ret < 0)
		return ret;
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
