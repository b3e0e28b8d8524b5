/* SPDX-License-Identifier: BSD-3-Clause */
/* Directories that cannot be read: readdir(3) is wrapped, also by its name in 64 bits. */
#ifndef FAILING_READDIR_H
#define FAILING_READDIR_H

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>

struct dirent *__real_readdir(DIR *d);
struct dirent *__wrap_readdir(DIR *d);
struct dirent *__real_readdir64(DIR *d);
struct dirent *__wrap_readdir64(DIR *d);

static bool readdir_fails; /* atomic */

static bool
failing_readdir(void)
{
	const bool fails = __atomic_load_n(&readdir_fails, __ATOMIC_RELAXED);

	if (fails)
		errno = EIO;
	return fails;
}

struct dirent *
__wrap_readdir(DIR *d)
{
	return failing_readdir() ? NULL : __real_readdir(d);
}

struct dirent *
__wrap_readdir64(DIR *d)
{
	return failing_readdir() ? NULL : __real_readdir64(d);
}

#endif /* FAILING_READDIR_H */
