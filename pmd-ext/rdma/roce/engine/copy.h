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
