/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Reads the live file of a receiver (live_file.h) with pread(2): invalid content or a change of the
 * file can only make a read fail. One thread per reader.
 */
#ifndef LIVE_READER_H
#define LIVE_READER_H

#include <stdbool.h>
#include <stddef.h>

#include "live_file.h"

struct live_reader {
	int fd; /**< -1: closed */
	struct live_file_head head;
};

/** Check a head. @param size  of its file @return 0; -EPROTO: offsets or dimensions are wrong */
int live_reader_check(const struct live_file_head *h, uint64_t size);

/**
 * Open a file and read its head.
 * @return 0; -EPROTO: it is no live file; -EAGAIN: a run is about to begin; -errno. r->fd is then
 *         -1
 */
int live_reader_open(struct live_reader *r, const char *path);

/** Close. Further calls do nothing. */
void live_reader_close(struct live_reader *r);

/** Read all of `size` bytes. @return 0; -EIO: the file is shorter; -errno */
int live_reader_at(const struct live_reader *r, uint64_t offset, void *to, size_t size);

/**
 * Read the facts of the newest frame, and its pixels as they were kept.
 * @param f       out
 * @param pixels  out, to be freed: the slot from LIVE_FILE_DATA on, with offsets row_ptr, col and
 *                values of the head; NULL: not wanted
 * @return 0; -ENODATA: there is no frame; -EAGAIN: it was replaced several times while it was read;
 *         -EPROTO; -ENOMEM; -errno
 */
int live_reader_frame(struct live_reader *r, struct live_file_frame *f, uint8_t **pixels);

/** Return true if another run has begun since live_reader_open(). */
bool live_reader_is_stale(const struct live_reader *r);

/** Bytes of a value. */
static inline size_t
live_reader_value_size(const struct live_file_head *h)
{
	return h->value == 1 ? sizeof(int16_t) : sizeof(float);
}

static inline size_t
live_reader_pixels(const struct live_file_head *h)
{
	return (size_t)h->rows * h->cols;
}

/** Value i of an array of the head's type: i16 becomes f32 with NaN and +Inf. */
float live_reader_value(const struct live_file_head *h, const void *values, size_t i);

#endif /* LIVE_READER_H */
