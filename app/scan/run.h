/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The files of a run, read: all rows of `frames`, and the readers of `images`.
 */
#ifndef SCAN_RUN_H
#define SCAN_RUN_H

#include <limits.h>

#include "arrow/reader.h"
#include "arrow/tables.h"
#include "frame_record.h"
#include "runs.h"

/** What reports need of a row of `frames`. */
struct scan_frame {
	uint64_t frame;
	int64_t receive_time;
	uint32_t strong_count;
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
	size_t damaged;	   /**< batches, which are left out */
	const char *fault; /**< of its schema or its footer; NULL: none */
	size_t crc_absent; /**< batches */
};

/** Files of both tables; a run that was rolled has several. */
struct scan_set {
	struct scan_file file[ARROW_TABLES];
};

struct scan_run {
	char name[NAME_MAX + 1]; /**< of the run: file name up to _frames or _images */
	struct scan_set *set;
	size_t nb_sets;
	uint32_t modules;
	uint32_t rows;
	uint32_t cols;
	uint32_t packets; /* of a frame */
	struct scan_frame *frame;
	size_t nb_frames;
	uint64_t missing[FRAME_MODULES_MAX]; /**< packets, by module */
};

/**
 * Read a run; prints what is wrong.
 * @return 0; -EBADMSG, -ENOENT, -ENOMEM
 */
int scan_run_open(struct scan_run *run, const struct scan_sets *sets);

void scan_run_close(struct scan_run *run);

/** @return true if the file is not there or not complete, or anything of it is damaged */
bool scan_file_is_damaged(const struct scan_file *f);

/** @return true if any file is */
bool scan_run_is_damaged(const struct scan_run *run);

/** First reader of `frames`: for what the schema says. */
const struct arrow_reader *scan_run_reader(const struct scan_run *run);

#endif /* SCAN_RUN_H */
