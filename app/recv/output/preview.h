/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The preview: a PNG of the current run with the maximum projection of its kept frames and one
 * recent kept frame. Each picture replaces the previous file atomically.
 *
 * The file writer passes every kept frame to preview_offer(); projection.h describes the cost. A
 * thread with the lowest priority (nice 19) draws and writes the pictures: the first one on the
 * first kept frame, then one every period if there are new frames, and the last one after the end
 * of the run. It sleeps while there is no run. If it gets little CPU time there are fewer pictures;
 * nothing else is affected.
 *
 * preview_status reports errors of the file system. They are logged once per run.
 */
#ifndef PREVIEW_H
#define PREVIEW_H

#include <limits.h>
#include <sched.h>

#include "geometry/geometry.h"
#include "output/projection.h"

/** Pixels of sparse frames that are examined per second: a few percent of the writer's thread. */
#define PREVIEW_PIXELS_PER_S 10000000

struct preview;

struct preview_config {
	struct gk_geometry geometry;
	struct gk_layout layout;
	enum gk_value value;
	const cpu_set_t *cpus; /**< CPUs of the thread; NULL: those of the creating thread */
};

struct preview_status {
	bool active;	     /**< a run with a preview is in progress */
	char path[PATH_MAX]; /**< of the last picture; "": none yet */
	/** number of the last picture, counted over all pictures; 0: none yet */
	uint64_t sequence;
	uint64_t frame;	      /**< frame shown in the last picture */
	uint64_t frames;      /**< frames in its maximum projection */
	uint64_t skipped;     /**< frames of the current run that are in no picture */
	uint64_t errors;      /**< pictures that could not be written, since the start */
	char error[PATH_MAX]; /**< error of the last picture; "": none */
};

/**
 * Create the preview. Memory is allocated and the thread started only when a run has a preview.
 * @return NULL: no memory
 */
struct preview *preview_create(const struct preview_config *config);

/**
 * Free the preview, after drawing the last picture of a run that has just ended. NULL is allowed.
 */
void preview_destroy(struct preview *p);

/**
 * Check that an existing file of this path may be replaced. @return 0; -EEXIST: it is no PNG
 */
int preview_check(const char *path);

/**
 * Begin a run and discard the state of the previous one. Waits a short time for the last picture of
 * the previous run, which is lost if it is not drawn by then. No thread may call preview_offer()
 * meanwhile. Control threads, one at a time.
 * @param path    path of the PNG; an existing PNG is replaced. NULL: the run has no preview
 * @param period  seconds
 * @param g       places of the pixels; NULL: as in the raster. If it differs from that of the
 *                previous run, the call waits until the last picture of that run is drawn
 * @return 0; -ENOMEM, -EEXIST, -errno of pthread_create(3): the run has no preview
 */
int preview_begin(struct preview *p, const char *path, double period, const struct geometry *g);

/** End the run; no thread calls preview_offer() any more. Control threads. */
void preview_end(struct preview *p);

/**
 * Process a kept frame; for batch_writer_config.kept. Called by the writer's thread of the run.
 * @param preview  struct preview
 */
void preview_offer(void *preview, const struct frame_record *record, const uint8_t *output);

/** Any thread. */
void preview_get_status(struct preview *p, struct preview_status *status);

#endif /* PREVIEW_H */
