/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROCE_COPY_H
#define ROCE_COPY_H

/**
 * @file
 * Writing payload to memory. Long messages are written with non-temporal stores, which bypass the
 * caches. A normal store would first read the cache line that it is about to overwrite, and the
 * data that the application reads next is seldom still in the cache.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Messages of at least this many bytes are written with non-temporal stores. */
#define ROCE_STREAM_MIN 32768
/**
 * Shorter messages of at least this many bytes are also written in this way if consecutive messages
 * go through more memory than ROCE_STREAM_TURN. A line is then no longer in the lcore's cache when
 * it is written again. Measured with messages of 4 KiB: no difference up to 64 KiB of memory, 15 %
 * from 1 MiB on, 45 % in 400 MB.
 */
#define ROCE_STREAM_PART 1024
#define ROCE_STREAM_TURN (1024 * 1024)

/** The memory that the messages of a queue pair go through repeatedly, in ascending order. */
struct roce_turn {
	uint64_t address; /**< of the latest message */
	uint64_t bytes;	  /**< of the messages of this turn */
	uint64_t before;  /**< of the turn before it */
};

/** Note a message. @return true: it is to be written with non-temporal stores */
static inline bool
roce_turn_next(struct roce_turn *t, uint64_t address, uint64_t length)
{
	if (address <= t->address) {
		t->before = t->bytes;
		t->bytes = 0;
	}
	t->address = address;
	t->bytes += length;
	return length >= ROCE_STREAM_MIN ||
		(length >= ROCE_STREAM_PART &&
			(t->bytes > ROCE_STREAM_TURN || t->before > ROCE_STREAM_TURN));
}

/**
 * Copy with non-temporal stores, if the CPU has them. Until the next roce_copy_fence(), other
 * lcores may see later stores before these.
 */
void roce_copy_stream(void *to, const void *from, size_t length);

/**
 * Make all copied data visible to other lcores before any later store. The fence waits for memory
 * (300 cycles); see roce_poll_group_settle() for when it is needed.
 */
void roce_copy_fence(void);

#endif
