/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * An output file that appears under its name only when it is complete.
 *
 * It is written as <path>.partial and renamed at the end. An existing path that is not a regular
 * file (a pipe, /dev/null) is written directly. Every function reports its error on standard error.
 */
#ifndef OUTPUT_FILE_H
#define OUTPUT_FILE_H

#include <stddef.h>
#include <stdio.h>

struct output_file {
	FILE *stream; /**< NULL: closed */
	char *path;
	char *partial; /**< name while the file is written; NULL: written under its own name */
};

/** @return 0 or -errno */
int output_file_open(struct output_file *file, const char *path);

/** Open a CSV file, and write its header line, which ends with \n. @return 0 or -errno */
int output_file_open_csv(struct output_file *file, const char *path, const char *header);

/** @return 0 or -errno (ENOSPC: the disk is full) */
int output_file_write(struct output_file *file, const void *data, size_t bytes);

/**
 * Check that all writes so far have succeeded, including writes by other code to `stream`.
 * @return 0 or -errno
 */
int output_file_check(struct output_file *file);

/** Close the file and rename it. @return 0 or -errno; on error the file is discarded */
int output_file_commit(struct output_file *file);

/** Close the file and remove it. Does nothing if it is closed. */
void output_file_discard(struct output_file *file);

#endif /* OUTPUT_FILE_H */
