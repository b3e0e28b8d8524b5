/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROCE_COPY_H
#define ROCE_COPY_H

/**
 * @file
 * Placing payload. Long messages are written past the caches: a cache would first read what is
 * about to be overwritten, and what the application looks at next is seldom there any more.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Messages from so many bytes on are written past the caches. */
#define ROCE_STREAM_MIN 32768

/**
 * Copy past the caches, where the machine can. Other lcores may see what is written later first,
 * up to the next roce_copy_fence().
 */
void roce_copy_stream(void *to, const void *from, size_t length);

/**
 * All that was copied is visible to other lcores before anything that is written later. It waits
 * for memory (300 cycles): roce_poll_group_settle() says when.
 */
void roce_copy_fence(void);

#endif
