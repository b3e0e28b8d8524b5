/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * A run that is exported while it is written: its files are read batch by batch, and images are
 * appended to data files in the order of their arrival. The master is replaced now and then.
 */
#ifndef EXPORT_FOLLOW_RUN_H
#define EXPORT_FOLLOW_RUN_H

#include "export.h"
#include "follow_file.h"
#include "growing_file.h"
#include "options.h"
#include "output_lock.h"
#include "sparse.h"

#define FOLLOW_SETS_MAX 4096 /**< sets of files of a run */

struct follow_run {
	struct export e;
	struct output_lock lock;
	struct follow_file (*source)[ARROW_TABLES]; /* of each set */
	struct follow_file *loaded;		    /* the only one with pixels in memory */
	struct read_ahead read_ahead;		    /* reads the next batch meanwhile */
	const struct options *options;
	struct selection_rows frames, images; /* rows with an image, in order of arrival */
	size_t next_frame,
		next_image; /* first row that is not matched, first image that is not selected */
	void *batches;	    /* tree of the batches that were read, to detect copies */
	struct growing_file file;
	struct sparse_live sparse; /* files of a run with CSR images, used instead of `file` */
	bool is_sparse;
	size_t full;	    /* images in complete files of lists */
	size_t written;	    /* images in data files */
	size_t in_master;   /* images of the master */
	uint32_t nb_opened; /* files that are open */
	double master_at, master_took;
	uint64_t left_out; /* images of the other kind, which are not exported */
	uint64_t damaged;  /* batches that are left out, and ends that are absent */
	bool unreadable;   /* the schema of a complete file is damaged */
	bool last;	   /* export only what the files have now */
	bool ready;	   /* geometry, mask and names are known */
	bool read_once;	   /* all batches were read once */
};

enum follow_state {
	FOLLOW_IDLE,   /**< nothing new */
	FOLLOW_BUSY,   /**< more may be there */
	FOLLOW_ENDED,  /**< all files are complete, and everything is exported */
	FOLLOW_FAILED, /**< printed */
};

/**
 * Begin.
 * @param output  directory of the HDF5 files
 * @return 0; -ENOMEM
 */
int follow_run_open(struct follow_run *r, const struct options *options, const char *output);

/** Add a set of files, of which one table may be absent. @return 0; -EINVAL: too many; printed */
int follow_run_add(struct follow_run *r, const char *stem);

/**
 * Read and write at most a batch of each file.
 * @param last  write the master in any case, and from now on read only what the files have now
 */
enum follow_state follow_run_poll(struct follow_run *r, bool last);

void follow_run_close(struct follow_run *r);

#endif /* EXPORT_FOLLOW_RUN_H */
