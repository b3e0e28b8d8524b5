/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The files of a run: all rows of `frames` in memory, and the readers of `images`.
 */
#ifndef SCAN_RUN_H
#define SCAN_RUN_H

#include <limits.h>

#include "arrow/reader.h"
#include "arrow/tables.h"
#include "frame_record.h"
#include "scan/list.h"

/** Columns of a row of `frames` that programs need. */
struct scan_frame {
	uint64_t frame;
	int64_t receive_time;
	uint32_t strong_count;
	uint32_t nnz;
	uint32_t peaks; /**< or FRAME_NO_SEARCH */
	uint32_t saturated;
	uint32_t flags;
	uint32_t missing;  /**< missing packets, of all modules */
	uint32_t expected; /**< packets that the readout sends */
	uint8_t verdict;
	uint8_t kind;
};

struct scan_file {
	char path[PATH_MAX];
	bool present;
	struct arrow_reader reader;
	size_t damaged;	   /**< number of damaged batches, which are left out */
	const char *fault; /**< error of its schema or its footer; NULL: none */
	size_t crc_absent; /**< number of batches without a CRC */
	uint32_t expected; /**< packets of a frame that the readout sends */
};

/** The files of both tables. A run whose files were rotated has several such sets. */
struct scan_set {
	struct scan_file file[ARROW_TABLES];
};

struct scan_run {
	char name[NAME_MAX + 1]; /**< name of the run: file name up to _frames or _images */
	struct scan_set *set;
	size_t nb_sets;
	uint32_t modules;
	uint32_t rows;
	uint32_t cols;
	uint32_t packets; /* packets per frame of the whole raster */
	struct scan_frame *frame;
	size_t nb_frames;
	size_t nb_searched;		     /**< frames whose peaks were searched */
	uint64_t missing[FRAME_MODULES_MAX]; /**< missing packets by module */
};

/**
 * Read a run and print errors.
 * @return 0; -EBADMSG, -ENOENT, -ENOMEM
 */
int scan_run_open(struct scan_run *run, const struct scan_sets *sets);

/**
 * As scan_run_open(), without the CRCs of `images`, for a caller that reads these batches with
 * scan_record_load(). So their bodies are not read twice.
 */
int scan_run_open_unchecked(struct scan_run *run, const struct scan_sets *sets);

/**
 * Check the detector size that a file states. It must be the same in all files of a run; the first
 * file determines it.
 * @return 0; -EBADMSG: printed
 */
int scan_run_check(struct scan_run *run, struct scan_file *f);

void scan_run_close(struct scan_run *run);

/** @return true if the file does not exist, is incomplete, or has a damaged part */
bool scan_file_is_damaged(const struct scan_file *f);

/** @return true if any file is damaged */
bool scan_run_is_damaged(const struct scan_run *run);

/** First reader of `frames`, for the schema's metadata. */
const struct arrow_reader *scan_run_reader(const struct scan_run *run);

/** @return a row of `frames` with this frame number; NULL: none */
const struct scan_frame *scan_run_find(const struct scan_run *run, uint64_t frame);

#endif /* SCAN_RUN_H */
