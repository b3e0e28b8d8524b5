/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Histograms of times. Bucket i counts the times below 2^i us that the buckets before it do not
 * count. The last bucket counts all longer times.
 */
#ifndef HISTOGRAM_H
#define HISTOGRAM_H

#include <stdint.h>

/** @return index of the bucket of a time, in a histogram with this number of buckets */
static inline unsigned int
latency_bucket(uint64_t us, unsigned int buckets)
{
	const unsigned int bucket = us == 0 ? 0 : 64 - __builtin_clzll(us);

	return bucket < buckets ? bucket : buckets - 1;
}

#endif /* HISTOGRAM_H */
