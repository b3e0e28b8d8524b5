/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Writes the records of a run into DIR/RUN_frames.arrow and DIR/RUN_images.arrow.
 *
 * A thread of its own, off the datapath: it is fed frame records through a ring, copies what they
 * say and the output slots they name into record batches, gives the records back through another
 * ring at once, and writes batches when they are complete. It sleeps while the ring is empty. It
 * is not an lcore and touches no mempool.
 *
 * Errors of the file system do not stall the datapath: the writer goes on taking and giving back
 * records, counts what it could not write (file_writer_stats), logs the first error of each file,
 * and leaves that file as `.part` with the batches that were complete. The next run, with its own
 * writer, starts anew.
 *
 * Order of calls, all by one thread (the main lcore):
 *   file_writer_create -> file_writer_start -> file_writer_stop -> file_writer_destroy
 * file_writer_stats may be called by any thread in between.
 */
#ifndef FILE_WRITER_H
#define FILE_WRITER_H

#include <sched.h>

#include "arrow_file.h"
#include "batch_builder.h"

struct rte_ring;

#define FILE_WRITER_NAP_US 200 /**< sleep while there is nothing to do */
#define FILE_WRITER_BURST  32

struct file_writer_config {
	const char *dir;	  /**< must exist */
	const char *run;	  /**< begins the file names; no slash */
	struct rte_ring *records; /**< struct frame_record *, frame order; the writer consumes */
	struct rte_ring
		*returns; /**< the same pointers; the writer produces. Room for all records */
	struct gk_geometry geometry;
	struct gk_layout layout;
	enum gk_value value;
	uint32_t modules;
	const uint8_t *outputs; /**< output slot 0, as the CPU addresses it */
	uint32_t nb_outputs;
	uint64_t producer; /**< identity, see architecture.md */
	uint64_t run_id;
	uint64_t incarnation;
	const struct arrow_meta *meta; /**< schema metadata, keys in arrow_tables.h */
	unsigned int nb_meta;
	uint32_t frames_interval; /**< frame numbers of a batch; 0: default of batch_builder.h */
	uint32_t images_interval;
	uint64_t byte_limit;
	const cpu_set_t *cpus;	       /**< where the thread runs; NULL: where its creator does */
	const struct arrow_io_ops *io; /**< NULL: arrow_io_posix */
};

/** Of one table. Only grow. */
struct file_writer_table_stats {
	uint64_t rows;	    /**< written: their batch is in the file */
	uint64_t batches;   /**< written */
	uint64_t bytes;	    /**< size of the file */
	uint64_t unwritten; /**< rows that the file lacks: error or wrong record */
	int32_t error;	    /**< 0, or the -errno that ended the file */
	uint8_t complete;   /**< footer written, file has its name */
};

struct file_writer_stats {
	uint64_t records;	   /**< taken */
	uint64_t kept;		   /**< of them, with a verdict that keeps the image */
	uint64_t bad_records;	   /**< kept, but their output slot cannot be what they say */
	uint64_t frames_unwritten; /**< sum of table[].unwritten */
	uint64_t naps;
	struct file_writer_table_stats table[ARROW_TABLES];
};

struct file_writer;

/**
 * Create the files of a run and reserve memory. May sleep in the file system.
 * @param writer  out
 * @param message  out, on error: what is wrong and with which file; at least PATH_MAX bytes
 * @return 0, or -errno of the file system, -EEXIST if the run has files already, -EINVAL, -ENOMEM
 */
int file_writer_create(struct file_writer **writer, const struct file_writer_config *config,
	char message[PATH_MAX]);

/** Start the thread. @return 0 or -errno of pthread_create(3) */
int file_writer_start(struct file_writer *writer);

/**
 * Stop the thread and close the files; returns when they are durable.
 * @param drain  true: first everything that is in the ring now; whoever fills it has stopped.
 *               false: records still in the ring stay there, unwritten and unreturned
 * @return 0, or the first error of either file
 */
int file_writer_stop(struct file_writer *writer, bool drain);

/** A copy of the counters; each is consistent by itself. Any thread, until destroy. */
void file_writer_stats_get(const struct file_writer *writer, struct file_writer_stats *stats);

/** Path of a table's file: its name when complete, else that of the `.part`. */
const char *file_writer_path(const struct file_writer *writer, enum arrow_table table);

/** What ended a table's file: what, where, why; "" if nothing did. After stop. */
const char *file_writer_error(const struct file_writer *writer, enum arrow_table table);

/** Free everything; stops without draining if it was not stopped. */
void file_writer_destroy(struct file_writer *writer);

#endif /* FILE_WRITER_H */
