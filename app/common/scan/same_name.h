/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Different runs that have the same name. Directories of stores have parts of one run: their
 * batches have the same incarnation, or were received by another start of the receiver and have
 * other frame numbers. Any thread.
 */
#ifndef SCAN_SAME_NAME_H
#define SCAN_SAME_NAME_H

#include <stdint.h>

#include "arrow/reader.h"

/** A file of a table of a run. */
struct scan_same_name_file {
	const char *path;
	const struct arrow_reader *reader;
};

/**
 * Search two files in different directories that have a frame number in common, and are of one
 * receiver but of different incarnations. Reads the column `frame`; CRCs are not checked. Files of
 * other programs, which have no incarnation, are not compared.
 * @param text  out, if found: the files and the frame number, which the caller frees
 * @return 1: found; 0; -ENOMEM
 */
int scan_same_name_find(const struct scan_same_name_file *file, size_t nb, char **text);

#endif /* SCAN_SAME_NAME_H */
