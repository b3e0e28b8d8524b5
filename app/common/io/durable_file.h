/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Small files that appear whole or not at all, and stay when the power goes: PATH.part, fsync,
 * rename, fsync of the directory. Any thread that may wait for a disk; nothing is logged.
 */
#ifndef DURABLE_FILE_H
#define DURABLE_FILE_H

#include <stddef.h>
#include <sys/types.h>

/** Write `path`; an older file of that name is replaced. @return 0 or -errno: it is as it was */
int durable_file_replace(const char *path, const void *data, size_t bytes);

/**
 * Write `path`, which nobody has.
 * @return 0; -EEXIST: it is there, or somebody is at it or died at it (PATH.part); -errno
 */
int durable_file_create(const char *path, const void *data, size_t bytes);

/**
 * Make a directory, or take the one that is there, and make its name durable: what is written into
 * it would be lost with it.
 * @return 0; -errno of mkdir(2), or of the sync of the directory that it is in
 */
int durable_dir_make(const char *dir, mode_t mode);

#endif /* DURABLE_FILE_H */
