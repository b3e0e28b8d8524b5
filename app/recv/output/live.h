/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Writes the live file (live_file.h), which programs such as braggline-view read.
 *
 * The file writer passes every kept frame to live_offer(), which neither locks nor waits:
 * - once a period it copies a frame into the file, as it was kept;
 * - it copies sparse frames into a ring, at most LIVE_PIXELS_PER_S pixels per second; frames that
 *   do not fit are skipped and counted;
 * - of full images, only those that it copies into the file are used; raw frames never are.
 *
 * A thread with the lowest priority (nice 19) adds the frames of the ring, and the full images, to
 * maximum and sum. If it gets little CPU time, fewer frames are used; nothing else is affected.
 */
#ifndef LIVE_H
#define LIVE_H

#include <limits.h>
#include <sched.h>
#include <stdbool.h>

#include <gk_abi.h>

#include "frame_record.h"
#include "geometry/geometry.h"

#define LIVE_PIXELS_PER_S 10000000

struct live;

struct live_config {
	struct gk_geometry geometry;
	struct gk_layout layout;
	enum gk_value value;
	const struct gk_peak_panel
		*panels;       /**< that peaks refer to; must outlive the struct live */
	uint32_t nb_panels;    /**< 0: there are no peaks */
	const cpu_set_t *cpus; /**< of the thread; NULL: those of the creating thread */
};

/** A run. */
struct live_run {
	const char *path; /**< of the file; NULL: the run has none */
	const char *name;
	double period; /**< from one frame to the next, seconds */
	float csr_threshold;
	const struct geometry *geometry; /**< NULL: not known */
	const float *photons_per_adu;	 /**< of G0, by pixel; NaN: no photon value */
};

struct live_status {
	char path[PATH_MAX]; /**< "": there is no file */
	uint64_t sequence;   /**< of the newest frame, over all runs of the file */
	uint64_t frames;     /**< in maximum and sum */
	uint64_t skipped;    /**< kept frames of the run that are not */
};

/**
 * Memory is allocated and the thread started only when a run has a live file. @return NULL: no
 * memory
 */
struct live *live_create(const struct live_config *config);

/** Remove the file and free the memory. NULL is allowed. */
void live_destroy(struct live *l);

/** Check that an existing file may be replaced. @return 0; -EEXIST: it is no live file */
int live_check(const char *path);

/**
 * Begin a run. No thread may call live_offer() meanwhile. Control threads, one at a time. Waits
 * until the thread has finished the frame that it adds.
 * @return 0; -ENOMEM, -ENOSPC, -EEXIST (see live_check()), -errno: the run has no live file
 */
int live_begin(struct live *l, const struct live_run *run);

/** End the run; no thread calls live_offer() any more. The file remains. Control threads. */
void live_end(struct live *l);

/** Process a kept frame. Called by the writer's thread of the run. @param output  its slot */
void live_offer(struct live *l, const struct frame_record *record, const uint8_t *output);

/** Any thread. */
void live_get_status(struct live *l, struct live_status *status);

#endif /* LIVE_H */
