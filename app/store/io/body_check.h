/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Verifies the CRC-32C of received bodies before they are written or acknowledged. The receiver
 * discards acknowledged batches, so a bit error in transit (memory, bus, network card) could not be
 * repaired later.
 *
 * The lcore verifies small bodies itself; threads verify large ones. Bodies in GPU memory must be
 * copied to the host for this, so only a sample of them is verified.
 */
#ifndef STORE_CHECK_H
#define STORE_CHECK_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "io/slice_pool.h"
#include "io/bodies.h"

#define STORE_CHECK_THREADS 4
#define STORE_CHECK_SAMPLE  64 /**< STORE_CHECK_SAMPLED: one body of this number */
/** maximum size that the lcore verifies itself, bytes: about 25 us */
#define STORE_CHECK_INLINE (256u << 10)
#define STORE_CHECK_TRIES  3  /**< a body received this often with the same wrong CRC is stored */
#define STORE_CHECK_WRONG  16 /**< number of wrong batches of a connection that are remembered */

/** [files] check */
enum store_check_mode {
	STORE_CHECK_AUTO, /**< all bodies in host memory, a sample of those in GPU memory */
	STORE_CHECK_ALL,
	STORE_CHECK_SAMPLED,
	STORE_CHECK_OFF
};

/** Zero-initialized: off. */
struct store_check {
	enum store_check_mode mode; /**< never STORE_CHECK_AUTO */
	bool host;		    /**< the CPU can read the bodies in place */
	int16_t gpu;
	struct slice_pool *pool;
	char what[128]; /**< a sentence: what is verified */
};

/** A body to be verified. It must stay valid until `done`. */
struct store_check_job {
	struct slice_job job;
	const struct store_check *check;
	const uint8_t *body;
	uint64_t bytes;
	uint32_t crc; /**< out */
	int error;    /**< out: 0, or -errno if it could not be read */
	bool done;    /**< out, atomic */
};

/** @return 0; -errno: no threads, see `message` */
int store_check_open(struct store_check *check, enum store_check_mode mode,
	const struct store_bodies *bodies, char message[PATH_MAX]);

/** No job may be in progress. */
void store_check_close(struct store_check *check);

/** Compute the CRC of a body. The job is done when this returns, or later. */
void store_check_begin(struct store_check *check, struct store_check_job *one);

static inline bool
store_check_is_done(const struct store_check_job *one)
{
	return __atomic_load_n(&one->done, __ATOMIC_ACQUIRE);
}

/** A batch of a connection whose body was received with a wrong CRC. */
struct store_wrong {
	uint64_t sequence;
	uint32_t crc;
	uint8_t table;
	uint8_t times; /**< number of consecutive times with that CRC; 0: unused entry */
};

/** The wrong batches of a connection. Zero-initialized: none. */
struct store_wrongs {
	struct store_wrong at[STORE_CHECK_WRONG];
	unsigned int next; /**< index of the entry that is replaced next */
};

/** Whether the last body of this batch was wrong. */
bool store_wrongs_has(const struct store_wrongs *w, uint8_t table, uint64_t sequence);

/** Record a wrong body. @return number of consecutive times with this CRC */
unsigned int store_wrongs_note(
	struct store_wrongs *w, uint8_t table, uint64_t sequence, uint32_t crc);

/** Remove a batch that was received correctly or needs no more attention. */
void store_wrongs_forget(struct store_wrongs *w, uint8_t table, uint64_t sequence);

#endif /* STORE_CHECK_H */
