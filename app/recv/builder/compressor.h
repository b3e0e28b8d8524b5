/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Raw frames are compressed on lcores that have time, ahead of the writer that needs them in order.
 *
 * The writer begins jobs, as many as there are, and finishes them in the order of the frames, so
 * that files hold the same bytes however many lcores help. A job is compressed in pieces: whoever
 * polls takes a job, compresses a piece and puts it back. No lcore holds a job for longer, and the
 * writer, which helps while it waits, gets on alone when nobody polls.
 *
 * Threads: compressor_poll() by any number of lcores; all else by the writer's thread. Create and
 * destroy need everybody at rest.
 */
#ifndef COMPRESSOR_H
#define COMPRESSOR_H

#include <stddef.h>
#include <stdint.h>

/** Blocks of 8 KiB that a poll compresses at most: some 40 us. */
#define COMPRESSOR_PIECE 16

struct compressor;
struct compress_job;

/**
 * @param jobs    frames in work at most, at least 1
 * @param values  u16 of a frame
 * @return NULL with errno = ENOMEM
 */
struct compressor *compressor_create(uint32_t jobs, size_t values);

/** No job may be out. */
void compressor_destroy(struct compressor *c);

/**
 * Have a frame compressed, which stays where it is until compressor_finish().
 * @return NULL: all jobs are out
 */
struct compress_job *compressor_begin(struct compressor *c, const uint16_t *raw);

/**
 * Wait for a job, and help meanwhile.
 * @param chunk  receives where the chunk is (bitshuffle.h), until compressor_release()
 * @return its bytes
 */
size_t compressor_finish(struct compressor *c, struct compress_job *job, const uint8_t **chunk);

void compressor_release(struct compressor *c, struct compress_job *job);

/** A piece of some job. @param c  struct compressor. @return non-zero if there was one */
int compressor_poll(void *c);

#endif /* COMPRESSOR_H */
