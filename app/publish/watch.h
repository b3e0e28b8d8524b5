/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Finds runs in directories and follows their files of both tables while they grow. It only reads,
 * so it affects neither the receiver nor the store.
 *
 * A run begins with a file of images. A file of `frames` is followed once its run has begun.
 *
 * A file is followed from its first batch. A batch is published once its CRC is correct; until then
 * it is still being written, and is read again after 0.25, 0.5, 1 ... 50 ms. It may not be durable
 * yet.
 * At the start, runs that no program is writing are left out, unless the run is named. Runs that
 * begin later are always published.
 *
 * A file may also be copied under its final name: its batches are damaged only after
 * scan_file_settled(). A file has ended at the end of its stream, or if its writer has released its
 * lock (io/file_lock.h) and nothing was added for WATCH_STOPPED_MS. A run has ended if all its
 * files have, and none was added for WATCH_END_MS. If it grows again, for example after a restart
 * of the receiver, the new images form another series.
 */
#ifndef PUBLISH_WATCH_H
#define PUBLISH_WATCH_H

#include "feed.h"

#define WATCH_SCAN_MS	 20   /**< between two checks of the directories */
#define WATCH_RESCAN_MS	 1000 /**< a directory is listed at least so often */
#define WATCH_STOPPED_MS 2000
#define WATCH_END_MS	 1000
#define WATCH_RETRY_MS	 50   /**< longest time until an incomplete batch is read again */
#define WATCH_DAMAGE_MS	 5000 /**< a batch that is wrong for so long is damaged */

struct watch_config {
	char *const *dir; /**< of receivers, or of stores, whose runs are in subfolders */
	size_t nb_dirs;
	const char *run;  /**< name of the only run to publish, or NULL */
	const char *geom; /**< file for CrystFEL that is written when a run begins, or NULL */
	unsigned int poll_us;
	unsigned int messages; /**< of images that may be in memory at a time */
	bool raw;	       /**< publish detector words instead of photons */
};

/** Counters; any thread may read them. */
struct watch_stats {
	uint64_t runs;
	uint64_t ended; /**< of the runs */
	uint64_t batches;
	uint64_t images;
	uint64_t other_kind; /**< images that are left out: raw ones, or with --raw all others */
	uint64_t damaged;    /**< batches with a wrong CRC */
	uint64_t copies;     /**< batches that another file has, too */
	uint64_t rows;	     /**< rows of `frames` */
	uint64_t bytes;	     /**< of batches that were read */
};

struct watch;

/** Create, and find the runs that exist. @return 0; -ENOMEM */
int watch_create(struct watch **watch, const struct watch_config *config, struct feed *feed);

void watch_destroy(struct watch *watch);

/** Whether files were found that may be of a run to publish. To be called before watch_run(). */
bool watch_has_files(const struct watch *watch);

/** Follow until watch_stop(), or until the named run has ended. Closes the feed. */
void watch_run(struct watch *watch);

/** Any thread, and signal handlers. */
void watch_stop(struct watch *watch);

void watch_stats_get(const struct watch *watch, struct watch_stats *stats);

#endif /* PUBLISH_WATCH_H */
