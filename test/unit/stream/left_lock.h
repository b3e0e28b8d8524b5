/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LEFT_LOCK_H
#define LEFT_LOCK_H

/**
 * @file
 * A lock that outlives its process, as the kernel's worker threads may cause.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "io/file_lock.h"

/**
 * A child process locks a file and ends. Its own child inherits the descriptor, and so
 * holds the lock for `ms` milliseconds more.
 * @return the process that holds the lock
 */
static inline pid_t
left_lock(const char *path, unsigned int ms)
{
	int there[2], status;
	pid_t pid, holder;

	assert_int_equal(pipe(there), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		if (file_lock(open(path, O_RDWR), 0) < 0)
			_exit(1);
		if (fork() == 0) {
			holder = getpid();
			if (write(there[1], &holder, sizeof(holder)) == sizeof(holder))
				usleep(ms * 1000);
			_exit(0);
		}
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(read(there[0], &holder, sizeof(holder)), sizeof(holder));
	close(there[0]);
	close(there[1]);
	return holder;
}

#endif /* LEFT_LOCK_H */
