/* SPDX-License-Identifier: BSD-3-Clause */
/** @file Histograms of times: bucket i counts those below 2^i us, the last one all others. */
#ifndef LATENCY_H
#define LATENCY_H

#include <stdint.h>

/** The bucket of a time, of so many. */
static inline unsigned int
latency_bucket(uint64_t us, unsigned int buckets)
{
	const unsigned int bucket = us == 0 ? 0 : 64 - __builtin_clzll(us);

	return bucket < buckets ? bucket : buckets - 1;
}

#endif /* LATENCY_H */
