/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * CSV files with a header line, whose columns may be in any position. Values are not quoted.
 */
#ifndef CSV_FILE_H
#define CSV_FILE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct csv_file {
	const char *path;
	FILE *f;
	char *line;
	size_t room;
	unsigned int number; /**< of the line, from 1 */
};

/** Open a file and read its header line. @return 0; -EINVAL: printed. Call csv_close() if 0 */
int csv_open(struct csv_file *csv, const char *path);

void csv_close(struct csv_file *csv);

/** @return index of a column, after csv_open() and before csv_next(); -1: none */
int csv_column(const struct csv_file *csv, const char *name);

/** Read the next line that is not blank. @return false: end of the file */
bool csv_next(struct csv_file *csv);

/** Value of a column of the line. @return false: absent, or not such a number @{ */
bool csv_whole(const struct csv_file *csv, int column, uint64_t *value);
bool csv_real(const struct csv_file *csv, int column, double *value); /**< finite */
/** @} */

/** Print what is wrong with the line. @return -EINVAL */
int csv_wrong(const struct csv_file *csv, const char *what);

/** Open a file for writing; "-" is standard output. @return NULL: errno is set */
FILE *csv_create(const char *path);

/**
 * Close what csv_create() returned, which may be NULL.
 * @param ret  0, or the error so far
 * @return 0; -errno or `ret`: printed
 */
int csv_finish(FILE *out, const char *path, int ret);

#endif /* CSV_FILE_H */
