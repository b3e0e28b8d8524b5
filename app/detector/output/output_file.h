/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * A file that appears whole under its name, or not at all.
 *
 * It is written as <path>.partial and renamed at the end. What is there and not a regular file (a
 * pipe, /dev/null) is written directly. Every function reports its error on standard error.
 */
#ifndef OUTPUT_FILE_H
#define OUTPUT_FILE_H

#include <stddef.h>
#include <stdio.h>

struct output_file {
	FILE *stream; /**< NULL: closed */
	char *path;
	char *partial; /**< name while it is written; NULL: written under its own name */
};

/** @return 0 or -errno */
int output_file_open(struct output_file *file, const char *path);

/** @return 0 or -errno (ENOSPC: the disk is full) */
int output_file_write(struct output_file *file, const void *data, size_t bytes);

/** Whether all writes so far, also those by others to `stream`, have gone well.
 * @return 0 or -errno */
int output_file_check(struct output_file *file);

/** Close and give the file its name. @return 0 or -errno, and the file is discarded */
int output_file_commit(struct output_file *file);

/** Close and remove what was written; nothing if the file is closed. */
void output_file_discard(struct output_file *file);

#endif /* OUTPUT_FILE_H */
