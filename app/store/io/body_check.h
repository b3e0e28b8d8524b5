/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Whether bodies that have arrived are what their CRC-32C says, before anything of them is written
 * or acknowledged. The receiver forgets what is acknowledged, so a bit that was flipped on the way
 * (memory, bus, network card) would be lost for good.
 *
 * The lcore does small bodies itself; threads do large ones. Bodies in a GPU's memory are copied to
 * the host for it, and so only some of them are.
 */
#ifndef STORE_CHECK_H
#define STORE_CHECK_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "io/slice_pool.h"
#include "io/bodies.h"

#define STORE_CHECK_THREADS 4
#define STORE_CHECK_SAMPLE  64		 /**< STORE_CHECK_SAMPLED: one of so many */
#define STORE_CHECK_INLINE  (256u << 10) /**< bytes that the lcore looks at itself: some 25 us */
#define STORE_CHECK_TRIES   3  /**< a body that comes with the same wrong CRC so often is stored */
#define STORE_CHECK_WRONG   16 /**< batches of a connection that are remembered as wrong */

/** [files] check */
enum store_check_mode {
	STORE_CHECK_AUTO, /**< all in memory of the host, some in memory of a GPU */
	STORE_CHECK_ALL,
	STORE_CHECK_SAMPLED,
	STORE_CHECK_OFF
};

/** All zero: off. */
struct store_check {
	enum store_check_mode mode; /**< never STORE_CHECK_AUTO */
	bool host;		    /**< the CPU can read the bodies where they are */
	int16_t gpu;
	struct slice_pool *pool;
	char what[128]; /**< a sentence: what is checked */
};

/** A body to look at. It stays where it is until `done`. */
struct store_check_job {
	struct slice_job job;
	const struct store_check *check;
	const uint8_t *body;
	uint64_t bytes;
	uint32_t crc; /**< out */
	int error;    /**< out: 0, or -errno: it could not be read */
	bool done;    /**< out, atomic */
};

/** @return 0; -errno: no threads, the message says so */
int store_check_open(struct store_check *check, enum store_check_mode mode,
	const struct store_bodies *bodies, char message[PATH_MAX]);

/** No job may be on its way. */
void store_check_close(struct store_check *check);

/** Compute the CRC of a body: done when this returns, or later. */
void store_check_begin(struct store_check *check, struct store_check_job *one);

static inline bool
store_check_is_done(const struct store_check_job *one)
{
	return __atomic_load_n(&one->done, __ATOMIC_ACQUIRE);
}

/** A batch of a connection whose body came with a CRC that is not its own. */
struct store_wrong {
	uint64_t sequence;
	uint32_t crc;
	uint8_t table;
	uint8_t times; /**< in succession, with that CRC; 0: this is nobody's */
};

/** What of a connection's batches is to be remembered; all zero: nothing. */
struct store_wrongs {
	struct store_wrong at[STORE_CHECK_WRONG];
	unsigned int next; /**< that is given up for another one */
};

/** Whether the last body of this batch was wrong. */
bool store_wrongs_has(const struct store_wrongs *w, uint8_t table, uint64_t sequence);

/** It was wrong now. @return how often it has come with this CRC in succession */
unsigned int store_wrongs_note(
	struct store_wrongs *w, uint8_t table, uint64_t sequence, uint32_t crc);

/** It was right now, or is done with. */
void store_wrongs_forget(struct store_wrongs *w, uint8_t table, uint64_t sequence);

#endif /* STORE_CHECK_H */
