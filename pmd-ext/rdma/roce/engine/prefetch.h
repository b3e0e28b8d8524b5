/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROCE_PREFETCH_H
#define ROCE_PREFETCH_H

/**
 * @file
 * The decision of a poll group whether to prefetch payloads whose CRC it checks.
 *
 * The better choice depends on the CPU and on where the port writes packets. With payloads in the
 * L3 cache of a Zen 4, prefetches cost a fifth of the packet rate, because its hardware prefetchers
 * are faster; with payloads in the DRAM of a Xeon (Emerald Rapids) they add a fifth
 * (test/bench/results). Therefore a poll group tries both, and repeats this from time to time,
 * because the location of payloads may change.
 *
 * Only bursts with ROCE_PREFETCH_MIN bytes count, and only if the CRC of all their packets was
 * checked. The minimum cycles per byte with and without prefetches are compared, because interrupts
 * and other programs only add cycles.
 */

#include <stdbool.h>
#include <stdint.h>

#define ROCE_PREFETCH_MIN    32768u /**< bytes of a burst */
#define ROCE_PREFETCH_TRIALS 64u    /**< bursts, with and without prefetches in turn */
#define ROCE_PREFETCH_PERIOD 4096u  /**< bursts from trial to trial, with these */

/** Of a poll group. All zeros: a trial begins. */
struct roce_prefetch {
	bool off;	/**< payloads are not prefetched now */
	uint32_t burst; /**< in the period */
	/** least cycles of 4,096 bytes in this trial, with and without; 0: none */
	uint32_t least[2];
};

/**
 * Take the time of a burst. Its payloads were prefetched unless `off`.
 *
 * @param cycles TSC cycles that the burst took
 * @param bytes of its packets, whose CRC was checked
 */
static inline void
roce_prefetch_update(struct roce_prefetch *p, uint64_t cycles, uint64_t bytes)
{
	uint64_t cost;

	if (bytes < ROCE_PREFETCH_MIN)
		return;
	if (++p->burst == ROCE_PREFETCH_PERIOD) {
		*p = (struct roce_prefetch){.off = p->off};
		return;
	}
	if (p->burst > ROCE_PREFETCH_TRIALS)
		return;
	cost = cycles * 4096 / bytes + 1;
	if (p->least[p->off] == 0 || cost < p->least[p->off])
		p->least[p->off] = cost < UINT32_MAX ? (uint32_t)cost : UINT32_MAX;
	p->off = p->burst < ROCE_PREFETCH_TRIALS ? !p->off : p->least[1] < p->least[0];
}

#endif
