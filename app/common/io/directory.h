/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Reads a directory so that an error is not taken for its end.
 */
#ifndef DIRECTORY_H
#define DIRECTORY_H

#include <dirent.h>
#include <errno.h>

/** Next entry of a directory. @return NULL: the end if errno is 0, otherwise an error */
static inline struct dirent *
directory_next(DIR *dir)
{
	errno = 0;
	return readdir(dir);
}

#endif /* DIRECTORY_H */
