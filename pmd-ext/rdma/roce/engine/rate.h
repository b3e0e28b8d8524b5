/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROCE_RATE_H
#define ROCE_RATE_H

/**
 * @file
 * How fast a queue pair may send: a static limit, and DCQCN (Zhu et al., "Congestion Control for
 * Large-Scale RDMA Deployments", SIGCOMM 2015), which halves the rate of who is told about
 * congestion and lets it recover. Time is looked at when something is sent: there are no timers.
 */

#include <stdbool.h>
#include <stdint.h>

struct roce_rate {
	uint64_t next; /**< TSC of the next packet; 0: not paced */
	double cost;   /**< TSC cycles of a byte; 0: no limit */
	double hz;
	double ceiling; /**< bytes/s: of the line, or the static limit; 0: neither known nor set */
	/* DCQCN; rate 0: not congested */
	double rate, target, alpha;
	uint64_t alpha_at, increase_at; /**< TSC of the next update */
	uint64_t bytes;			/**< since the byte counter's last increase */
	uint32_t by_time, by_bytes;	/**< increases since the last notification */
	bool limited;			/**< a static limit is set */
};

/** @param limit_mbps static, 0: none @param line_mbps 0: not known, 100 Gb/s is assumed */
void roce_rate_init(struct roce_rate *r, uint32_t limit_mbps, uint32_t line_mbps, uint64_t hz);

/** A congestion notification came. */
void roce_rate_cut(struct roce_rate *r, uint64_t now);

/** Let it recover. Only where rate is not 0. */
void roce_rate_recover(struct roce_rate *r, uint64_t now);

/** May a packet go out now? */
static inline bool
roce_rate_allows(struct roce_rate *r, uint64_t now)
{
	if (r->cost == 0)
		return true;
	if (r->rate != 0 && (now >= r->alpha_at || now >= r->increase_at))
		roce_rate_recover(r, now);
	return now >= r->next;
}

/** So many bytes, headers and all, went out. */
void roce_rate_sent(struct roce_rate *r, uint64_t now, uint32_t bytes);

/** Of now. @return bytes/s, 0: no limit */
double roce_rate_get(const struct roce_rate *r);

#endif
