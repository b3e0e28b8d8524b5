/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Writes the records of a run into its files: DIR/RUN_frames.arrow and DIR/RUN_images.arrow, or
 * sets of them if the run is rolled (output/run_files.h), and DIR/RUN_calibration.bin beside them.
 *
 * A thread of its own, off the datapath: it is fed frame records through a ring, copies what they
 * say and the output slots they name into record batches, gives the records back through another
 * ring at once, and has batches written while it makes the next ones. It sleeps while the ring is
 * empty. It is not an lcore and touches no mempool.
 *
 * Errors of the file system do not stall the datapath: the writer goes on taking and giving back
 * records, counts what it could not write by cause, and goes on writing into other files when that
 * works again. It stalls, and with it what waits for the records, if the disk is slower than the
 * data.
 *
 * Order of calls, one after the other, by any thread but an lcore (run.h):
 *   file_writer_create -> file_writer_start -> file_writer_stop -> file_writer_destroy
 * file_writer_stats_get and file_writer_status may be called by any thread in between.
 */
#ifndef FILE_WRITER_H
#define FILE_WRITER_H

#include <sched.h>

#include "output/calibration_file.h"
#include "output/run_files.h"

struct rte_ring;
struct compressor;
struct egress;

#define FILE_WRITER_NAP_US 1000 /**< sleep while there is nothing to do */
#define FILE_WRITER_BURST  32
#define FILE_WRITER_SETS   BATCH_SETS_MAX /**< batches that are made or written at a time */

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
	const uint8_t *outputs; /**< output slot 0, as the CPU addresses it, or fetch() */
	uint32_t nb_outputs;
	/** Room for one slot, if the CPU does not reach the outputs: what a kept frame uses of its
	 * slot is brought there by fetch() before it is looked at. NULL: it reaches them */
	uint8_t *staging;
	int (*fetch)(void *arg, void *to, const void *from, size_t size); /**< 0 or -errno */
	void *fetch_arg;
	uint64_t producer; /**< `[output] producer`: the receiver, in batches */
	uint64_t run_id;
	uint64_t incarnation;
	const struct arrow_meta *meta; /**< schema metadata, keys in arrow/tables.h */
	unsigned int nb_meta;
	uint32_t frames_interval; /**< frame numbers of a batch; 0: default of arrow/batch.h */
	uint32_t images_interval;
	uint64_t byte_limit;
	/** A record is in an open batch for so long at most, whether others follow or not; 0: until
	 * one of another interval comes. The time is read once a burst: add FILE_WRITER_NAP_US, the
	 * step of a coarse clock, and what the writer waits for a disk or a full journal */
	uint32_t batch_ms;
	const cpu_set_t *cpus; /**< where the thread runs; NULL: where its creator does */
	/** Compresses raw frames ahead, if the CPU reaches the outputs. NULL: the writer does */
	struct compressor *compressor;
	struct egress *egress;		   /**< batches go to stores; NULL: into files here */
	struct arrow_slices_config slices; /**< direct I/O, slices, depth, sync; all 0: defaults */
	uint64_t roll_frames;		   /**< see struct arrow_run_config; 0: no matter */
	uint64_t roll_bytes;
	uint64_t roll_ms;
	uint32_t retry_ms; /**< see struct arrow_run_config; 0: defaults */
	uint32_t retry_max_ms;
	uint64_t resume_bytes;
	const struct arrow_plane *planes; /**< coefficient maps to be written beside the files; */
	unsigned int nb_planes;		  /**< 0: none. Read by file_writer_create only */
	/** Looks at every kept record and its output (slot or staging) before they go back; in the
	 * writing thread, which waits for it. NULL: nobody does */
	void (*kept)(void *arg, const struct frame_record *record, const uint8_t *output);
	void *kept_arg;
	int64_t (*clock)(void *arg); /**< now, as receive_time is; NULL: no latency is counted. Any
				     thread */
	void *clock_arg;
};

/** All but error, state and mode only grow. */
struct file_writer_stats {
	uint64_t records;	   /**< taken */
	uint64_t kept;		   /**< of them, with a verdict that keeps the image */
	uint64_t bad_records;	   /**< kept, but their output slot cannot be what they say, or
				      not be fetched */
	uint64_t held;		   /**< kept rows that stores do not have yet; now */
	uint64_t spilled;	   /**< ... in files of the receiver's own, for good */
	uint64_t unretained;	   /**< ... no room in the journal; of those unwritten */
	uint64_t frames_unwritten; /**< sum of table[].unwritten */
	struct arrow_run_stats table[ARROW_TABLES];
};

struct file_writer;

/**
 * Create the files of a run and reserve memory. May sleep in the file system. What a crash has left
 * of earlier runs is arrow_recover_dir()'s, before.
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

/** Of its batches. */
uint64_t file_writer_incarnation(const struct file_writer *writer);

/** Path of a table's file: of the last one, if there were several. Until destroy. */
const char *file_writer_path(struct file_writer *writer, enum arrow_table table);

/** The last error of a table: what, where, why; "" if there was none. Until destroy. */
const char *file_writer_error(struct file_writer *writer, enum arrow_table table);

/** The same and more while the writer runs. Any thread, until destroy. */
void file_writer_status(
	struct file_writer *writer, enum arrow_table table, struct arrow_run_status *status);

/** Free everything; stops without draining if it was not stopped. */
void file_writer_destroy(struct file_writer *writer);

#endif /* FILE_WRITER_H */
