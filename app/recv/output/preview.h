/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The preview: a PNG of a run that goes on, replaced as a whole, with the maximum projection of its
 * kept frames and a recent one of them.
 *
 * The file writer offers every kept frame (preview_offer); what it costs there is projection.h's
 * matter. A thread of the lowest priority, nice 19, draws and writes: the first picture with the
 * first kept frame, then one every period if there is anything new, the last one after the end of
 * the run. It sleeps while there is no run. Where it gets no CPU there are few pictures, and
 * nothing else suffers.
 *
 * Errors of the file system are told in preview_status, and once a run in the log.
 */
#ifndef PREVIEW_H
#define PREVIEW_H

#include <limits.h>
#include <sched.h>

#include "output/projection.h"

/** Pixels of sparse frames looked at in a second: a few percent of the writer's thread. */
#define PREVIEW_PIXELS_PER_S 10000000

struct preview;

struct preview_config {
	struct gk_geometry geometry;
	struct gk_layout layout;
	enum gk_value value;
	const cpu_set_t *cpus; /**< where the thread runs; NULL: where its creator does */
};

struct preview_status {
	bool active;	     /**< a run goes on that is to have a picture */
	char path[PATH_MAX]; /**< of the last picture; "" = none yet */
	uint64_t sequence;   /**< of the last picture: counts all that were written; 0 = none yet */
	uint64_t frame;	     /**< that it shows */
	uint64_t frames;     /**< in its maximum projection */
	uint64_t skipped;    /**< frames of the run at hand that are in none */
	uint64_t errors;     /**< pictures that could not be written, since the start */
	char error[PATH_MAX]; /**< what was wrong with the last one; "" = nothing */
};

/** Little yet: memory is taken and the thread started when a run wants pictures. @return NULL */
struct preview *preview_create(const struct preview_config *config);

/** Draws the last picture of a run that has just ended. NULL is allowed. */
void preview_destroy(struct preview *p);

/**
 * A run begins: forget the one before. Its last picture may be lost if it is not drawn yet, which
 * is waited for, but not for long. Nobody offers frames. Control threads, one at a time.
 * @param path    of the PNG; what is there is replaced. NULL: this run has none
 * @param period  seconds
 * @return 0; -ENOMEM, -errno of pthread_create(3): this run has none
 */
int preview_begin(struct preview *p, const char *path, double period);

/** The run is over; nobody offers frames any more. Control threads. */
void preview_end(struct preview *p);

/**
 * Look at a kept frame; for file_writer_config.kept. The writing thread of the run.
 * @param preview  struct preview
 */
void preview_offer(void *preview, const struct frame_record *record, const uint8_t *output);

/** Any thread. */
void preview_get_status(struct preview *p, struct preview_status *status);

#endif /* PREVIEW_H */
