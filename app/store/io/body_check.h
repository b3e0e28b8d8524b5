/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Verifies the CRC-32C of received bodies before they are written or acknowledged. The receiver
 * discards acknowledged batches, so a bit error in transit (memory, bus, network card) could not be
 * repaired later.
 *
 * The lcore verifies small bodies itself; threads verify large ones. Bodies in GPU memory must be
 * copied to the host for verification, so only a sample of them is verified.
 */
#ifndef STORE_BODY_CHECK_H
#define STORE_BODY_CHECK_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "io/slice_pool.h"
#include "io/bodies.h"

#define STORE_CHECK_THREADS 4
#define STORE_CHECK_SAMPLE  64 /**< STORE_CHECK_SAMPLED: one body of this number */
/** maximum size that the lcore verifies itself, bytes: about 25 us */
#define STORE_CHECK_INLINE (256u << 10)

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
	char what[128]; /**< one sentence: what is verified */
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

#endif /* STORE_BODY_CHECK_H */
