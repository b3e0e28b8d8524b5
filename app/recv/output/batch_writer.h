/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Writes the records of a run to DIR/RUN_frames.arrow and DIR/RUN_images.arrow, or to a sequence of
 * such pairs of files (output/run_files.h), and writes DIR/RUN_calibration.bin.
 *
 * The writer has its own thread, off the datapath. It receives frame records through a ring, copies
 * them and the output slots that they refer to into record batches, and returns each record at once
 * through another ring. If the output slots are in the journal (egress_area()), a batch refers to
 * the slot of a full image or a chunk instead, and the record returns with another, free
 * slot, as long as one is available. Batches are written while the next ones are built. The thread
 * sleeps while the ring is empty. It is not an lcore and uses no mempool.
 *
 * Errors of the file system do not stall the datapath. The writer continues to receive and return
 * records, counts the rows that it could not write by cause, and continues in other files when
 * writing works again. If the disk is slower than the data, the writer stalls, and so does
 * everything that waits for records.
 *
 * Order of calls, one at a time, from any thread except an lcore (run.h):
 *   batch_writer_create -> batch_writer_start -> batch_writer_stop -> batch_writer_destroy
 * Between create and destroy, any thread may call batch_writer_stats_get and batch_writer_status.
 */
#ifndef BATCH_WRITER_H
#define BATCH_WRITER_H

#include <sched.h>

#include "output/calibration_file.h"
#include "output/run_files.h"

struct rte_ring;
struct compressor;
struct egress;

#define BATCH_WRITER_NAP_US 1000 /**< sleep of the thread if it has no work */
#define BATCH_WRITER_BURST  32
#define BATCH_WRITER_SETS   BATCH_SETS_MAX /**< batches that are built or written at a time */

struct batch_writer_config {
	const char *dir;	  /**< existing directory */
	const char *run;	  /**< prefix of the file names; without a slash */
	struct rte_ring *records; /**< struct frame_record * in frame order; the writer consumes */
	/** the same pointers; the writer produces. It must have room for all records */
	struct rte_ring *returns;
	struct gk_geometry geometry;
	struct gk_layout layout;
	enum gk_value value;
	bool chunks; /**< full images are chunks (arrow_tables_config.chunks) */
	uint32_t modules;
	/** output slot 0, as the CPU addresses it, or as fetch() does; it may be in the journal */
	const uint8_t *outputs;
	/** panels that peaks refer to, with layout.peaks_cap; they outlive the writer @{ */
	const struct gk_peak_panel *panels;
	uint32_t nb_panels;
	/** @} */
	/** areas of radial profiles, as the CPU addresses them; radial_bins 0: none @{ */
	const uint8_t *profiles;
	uint32_t nb_profiles;
	uint32_t radial_bins;
	/** @} */
	uint32_t nb_outputs;
	/**
	 * Buffer of one slot, if the CPU cannot access the outputs. fetch() copies the used part of
	 * a kept frame's slot there before the slot is read. NULL: the CPU can access the outputs
	 */
	uint8_t *staging;
	int (*fetch)(void *arg, void *to, const void *from, size_t size); /**< 0 or -errno */
	void *fetch_arg;
	uint64_t receiver_id; /**< `[output] receiver_id`: id of the receiver, stored in batches */
	uint64_t run_id;
	uint64_t incarnation;
	const struct arrow_meta *meta; /**< schema metadata, keys in arrow/tables.h */
	unsigned int nb_meta;
	uint32_t frames_interval; /**< frame numbers in a batch; 0: the default of arrow/batch.h */
	uint32_t images_interval;
	uint64_t byte_limit;
	/**
	 * Maximum time in ms that a record stays in an open batch, whether or not others follow; 0:
	 * until a record of another interval comes. The time is read once per burst. Add
	 * BATCH_WRITER_NAP_US, the step of a coarse clock, and the time that the writer waits for a
	 * disk or a full journal
	 */
	uint32_t batch_ms;
	const cpu_set_t *cpus; /**< CPUs of the thread; NULL: those of the creating thread */
	/**
	 * Compresses frames ahead, if the CPU can access the outputs. NULL: the writer
	 * compresses
	 */
	struct compressor *compressor;
	struct egress *egress; /**< batches go to stores; NULL: into local files */
	/** direct I/O, slices, depth, sync; all 0: the defaults */
	struct async_writer_config slices;
	uint64_t roll_frames; /**< see struct run_files_config; 0: no limit */
	uint64_t roll_bytes;
	uint64_t roll_ms;
	uint32_t retry_ms; /**< see struct run_files_config; 0: the defaults */
	uint32_t retry_max_ms;
	uint64_t resume_bytes;
	const struct arrow_plane *planes; /**< coefficient maps to write with the files */
	unsigned int nb_planes;		  /**< 0: none. Only batch_writer_create reads them */
	/**
	 * Called for every kept record with its output (slot or staging) before both are returned.
	 * The writer's thread makes the call and waits for it. NULL: no call
	 */
	void (*kept)(void *arg, const struct frame_record *record, const uint8_t *output);
	void *kept_arg;
	/** current time, on the clock of receive_time; NULL: no latency is counted. Any thread */
	int64_t (*clock)(void *arg);
	void *clock_arg;
};

/** All values only grow, except error, state and mode. */
struct batch_writer_stats {
	uint64_t records; /**< records received */
	uint64_t kept;	  /**< records with a verdict that keeps the image */
	/** kept records whose output slot is invalid or could not be fetched */
	uint64_t bad_records;
	/** of batches that were written or are in the journal: batch.kept_bytes, copied_bytes @{ */
	uint64_t kept_bytes;
	uint64_t copied_bytes;
	/** @} */
	uint64_t no_slot; /**< kept records that were copied because the journal had no free slot */
	uint64_t held;	  /**< kept rows that no store has yet; current value */
	uint64_t spilled; /**< kept rows in local spill files, permanently */
	/** of each table, batches in the journal that no store has yet; current values */
	uint64_t held_batches[ARROW_TABLES];
	uint64_t spilled_batches[ARROW_TABLES]; /**< batches in local spill files, permanently */
	uint64_t unretained;	   /**< unwritten kept rows for which the journal had no room */
	uint64_t frames_unwritten; /**< sum of table[].unwritten */
	struct run_files_stats table[ARROW_TABLES];
};

struct batch_writer;

/**
 * Create the files of a run and allocate memory. May block in the file system. Call
 * arrow_recover_dir() before, to recover files of earlier runs after a crash.
 * @param writer  out
 * @param message  out, on error: the reason and the file; at least PATH_MAX bytes
 * @return 0, or -errno of the file system, -EEXIST if the run has files already, -EINVAL, -ENOMEM
 */
int batch_writer_create(struct batch_writer **writer, const struct batch_writer_config *config,
	char message[PATH_MAX]);

/** Start the thread. @return 0 or -errno of pthread_create(3) */
int batch_writer_start(struct batch_writer *writer);

/**
 * Stop the thread and close the files. Returns when the files are durable.
 * @param drain  true: first write all records that are in the ring now; the receiver must have
 *   stopped. false: records in the ring stay there, neither written nor returned
 * @return 0, or the first error of either file
 */
int batch_writer_stop(struct batch_writer *writer, bool drain);

/**
 * Return a copy of the counters. Each counter is consistent by itself. Any thread, until destroy.
 */
void batch_writer_stats_get(const struct batch_writer *writer, struct batch_writer_stats *stats);

/**
 * Report a disk that has stalled or recovered: see run_files_watch(). batch_writer_stop() does this
 * itself.
 */
void batch_writer_watch(struct batch_writer *writer);

/** Return the incarnation stored in the writer's batches. */
uint64_t batch_writer_incarnation(const struct batch_writer *writer);

/**
 * Return the path of a table's file, or of the last one if there were several. Valid until destroy.
 */
const char *batch_writer_path(struct batch_writer *writer, enum arrow_table table);

/**
 * Return the last error of a table: operation, file and reason; "" if there was none. Valid until
 * destroy.
 */
const char *batch_writer_error(struct batch_writer *writer, enum arrow_table table);

/** Return the path, the error and more while the writer runs. Any thread, until destroy. */
void batch_writer_status(
	struct batch_writer *writer, enum arrow_table table, struct run_files_status *status);

/** Free everything. Stops the thread without draining if it still runs. */
void batch_writer_destroy(struct batch_writer *writer);

#endif /* BATCH_WRITER_H */
