/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The files of a run, found and read: all rows of `frames`, and the reader of `images`.
 */
#ifndef SCAN_RUN_H
#define SCAN_RUN_H

#include <limits.h>

#include "arrow_read.h"
#include "arrow_tables.h"
#include "frame_record.h"

/** What reports need of a row of `frames`. */
struct scan_frame {
	uint64_t frame;
	int64_t receive_time;
	uint32_t bragg_count;
	uint32_t nnz;
	uint32_t saturated;
	uint32_t flags;
	uint32_t missing; /**< packets, of all modules */
	uint8_t verdict;
	uint8_t kind;
};

struct scan_file {
	char path[PATH_MAX];
	bool present;
	struct arrow_reader reader;
	size_t crc_wrong;  /**< batches */
	size_t crc_absent; /**< batches */
};

struct scan_run {
	char name[NAME_MAX + 1]; /**< of the run: file name up to _frames or _images */
	struct scan_file file[ARROW_TABLES];
	uint32_t modules;
	uint32_t rows;
	uint32_t cols;
	uint32_t packets; /* of a frame */
	struct scan_frame *frame;
	size_t nb_frames;
	uint64_t missing[FRAME_MODULES_MAX]; /**< packets, by module */
};

/** Paths of runs: directory and file name up to _frames or _images. */
struct scan_list {
	char **stem;
	size_t nb;
};

/**
 * Add a file, or all runs of a directory, to the list; prints why not.
 * @return 0, -EINVAL
 */
int scan_list_add(struct scan_list *list, const char *path);

void scan_list_free(struct scan_list *list);

/**
 * Read a run; prints what is wrong.
 * @return 0; -EBADMSG, -ENOENT, -ENOMEM
 */
int scan_run_open(struct scan_run *run, const char *stem);

void scan_run_close(struct scan_run *run);

/** @return true if any batch is damaged, or a file is not complete */
bool scan_run_is_damaged(const struct scan_run *run);

#endif /* SCAN_RUN_H */
