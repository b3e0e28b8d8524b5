/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Histograms of times. Bucket i counts the times below 2^i us that the buckets before it do not
 * count. The last bucket counts all longer times.
 */
#ifndef HISTOGRAM_H
#define HISTOGRAM_H

#include <stdint.h>

#include "counter.h"

/** The last bucket has times from 4.2 s on. */
#define HISTOGRAM_BUCKETS 24

/** One thread writes, others may read: counter.h. */
struct histogram {
	uint64_t bucket[HISTOGRAM_BUCKETS];
	uint64_t sum_us; /**< of all times, for their mean */
};

/** @return index of the bucket of a time, in a histogram with this number of buckets */
static inline unsigned int
latency_bucket(uint64_t us, unsigned int buckets)
{
	const unsigned int bucket = us == 0 ? 0 : 64 - __builtin_clzll(us);

	return bucket < buckets ? bucket : buckets - 1;
}

/** Count a time. */
static inline void
histogram_count(struct histogram *h, uint64_t us)
{
	counter_add(&h->bucket[latency_bucket(us, HISTOGRAM_BUCKETS)], 1);
	counter_add(&h->sum_us, us);
}

/** Add the times of another histogram, which other threads may write. */
static inline void
histogram_add(struct histogram *to, const struct histogram *from)
{
	for (unsigned int i = 0; i < HISTOGRAM_BUCKETS; i++)
		counter_add(&to->bucket[i], counter_get(&from->bucket[i]));
	counter_add(&to->sum_us, counter_get(&from->sum_us));
}

#endif /* HISTOGRAM_H */
