/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>

#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "io/file_lock.h"

#define STEP_MS 10

/*
 * Whether the process that holds the lock is alive. If that is unknown, as inside a container:
 * false.
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
			inode == st.st_ino && pid > 0 && (kill(pid, 0) == 0 || errno == EPERM);
	fclose(locks);
	return lives;
}

int
file_lock(int fd, unsigned int wait_ms)
{
	const struct timespec step = {.tv_nsec = STEP_MS * 1000000L};
	unsigned int waited;

	for (waited = 0; flock(fd, LOCK_EX | LOCK_NB) < 0; waited += STEP_MS) {
		if (errno != EWOULDBLOCK)
			return -errno;
		if (waited >= wait_ms || owner_lives(fd))
			return -EBUSY;
		nanosleep(&step, NULL);
	}
	return 0;
}
