/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Compresses frames on idle lcores, ahead of the writer, which needs them in frame order.
 *
 * The writer begins jobs, up to their maximum number, and finishes them in frame order. Files are
 * therefore identical for any number of helping lcores. A job is compressed in pieces: a polling
 * lcore takes a job, compresses one piece and puts the job back, so no lcore holds a job for longer
 * than a piece. The writer helps while it waits, and so completes a job even if no lcore polls.
 *
 * Threads: any number of lcores may call compressor_poll(). Only the writer's thread may call the
 * other functions. No other thread may use the compressor during create and destroy.
 */
#ifndef COMPRESSOR_H
#define COMPRESSOR_H

#include <stddef.h>
#include <stdint.h>

/** Maximum number of 8 KiB blocks that one poll compresses, about 20 us. */
#define COMPRESSOR_PIECE 16

struct compressor;
struct compress_job;

/**
 * @param jobs    maximum number of frames in progress, at least 1
 * @param values  number of uint16_t values in a frame
 * @return NULL with errno = ENOMEM
 */
struct compressor *compressor_create(uint32_t jobs, size_t values);

/** All jobs must have been released. */
void compressor_destroy(struct compressor *c);

/**
 * Start to compress a frame. `raw` and `chunk` must stay valid until compressor_finish().
 * @param chunk  out: the chunk; gk_bitshuffle_bound() bytes. NULL: it is in memory of the job
 * @return NULL: all jobs are in use
 */
struct compress_job *compressor_begin(struct compressor *c, const uint16_t *raw, uint8_t *chunk);

/**
 * Wait for a job, and help to compress meanwhile.
 * @param chunk  receives the chunk (gk_bitshuffle.h), in memory of the job valid until
 *   compressor_release()
 * @return its size in bytes
 */
size_t compressor_finish(struct compressor *c, struct compress_job *job, const uint8_t **chunk);

void compressor_release(struct compressor *c, struct compress_job *job);

/**
 * Compress one piece of a job.
 * @param c  struct compressor
 * @return non-zero if there was one
 */
int compressor_poll(void *c);

#endif /* COMPRESSOR_H */
