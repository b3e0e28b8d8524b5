/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>

#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "io/file_lock.h"

#define STEP_MS 10

/* Whether a process belongs to this user or root. Others may lock a file with flock(2), too. */
static bool
is_trusted(int pid)
{
	char path[32];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%d", pid);
	return stat(path, &st) == 0 && (st.st_uid == geteuid() || st.st_uid == 0);
}

/*
 * Whether the process that holds the lock is alive. /proc/locks has its number only for the lock of
 * flock(2). If it is unknown, as inside a container: false.
 */
static bool
owner_lives(int fd)
{
	unsigned int major_, minor_;
	bool lives = false;
	uint64_t inode;
	char line[256];
	struct stat st;
	FILE *locks;
	int pid;

	if (fstat(fd, &st) < 0)
		return false;
	locks = fopen("/proc/locks", "re");
	if (locks == NULL)
		return false;
	while (!lives && fgets(line, sizeof(line), locks) != NULL)
		lives = sscanf(line, "%*d: FLOCK %*s %*s %d %x:%x:%" SCNu64, &pid, &major_, &minor_,
				&inode) == 4 &&
			major_ == major(st.st_dev) && minor_ == minor(st.st_dev) &&
			inode == st.st_ino && pid > 0 && is_trusted(pid);
	fclose(locks);
	return lives;
}

/* @param or_read  if only readers prevent the lock: take a read lock and return 1 */
static int
lock_whole(int fd, unsigned int wait_ms, bool or_read)
{
	const struct timespec step = {.tv_nsec = STEP_MS * 1000000L};
	struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	struct flock shared = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
	unsigned int waited;

	for (waited = 0; fcntl(fd, F_OFD_SETLK, &whole) < 0; waited += STEP_MS) {
		if (errno != EAGAIN && errno != EACCES)
			return -errno;
		/* no other process has a write lock, or can get one from now on */
		if (or_read && fcntl(fd, F_OFD_SETLK, &shared) == 0)
			return 1;
		if (waited >= wait_ms || owner_lives(fd))
			return -EBUSY;
		nanosleep(&step, NULL);
	}
	/* only names this process in /proc/locks: any user who can read the file may prevent it */
	(void)flock(fd, LOCK_EX | LOCK_NB);
	return 0;
}

int
file_lock(int fd, unsigned int wait_ms)
{
	return lock_whole(fd, wait_ms, false);
}

int
file_lock_or_read(int fd, unsigned int wait_ms)
{
	return lock_whole(fd, wait_ms, true);
}

static void
warn_on_stderr(const char *text)
{
	fprintf(stderr, "braggline: %s\n", text);
}

void (*file_lock_warn)(const char *text) = warn_on_stderr;
