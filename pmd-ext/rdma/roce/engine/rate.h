/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROCE_RATE_H
#define ROCE_RATE_H

/**
 * @file
 * Send rate of a queue pair: a static limit, and DCQCN (Zhu et al., "Congestion Control for
 * Large-Scale RDMA Deployments", SIGCOMM 2015). DCQCN reduces the rate, at first to a half, when a
 * CNP is received and then increases it again. There are no timers: elapsed time is evaluated when
 * something is sent.
 */

#include <stdbool.h>
#include <stdint.h>

struct roce_rate {
	uint64_t next; /**< TSC of the next packet; 0: not paced */
	double cost;   /**< TSC cycles per byte; 0: no limit */
	double hz;
	double ceiling; /**< bytes/s: the static limit, or the line rate if there is none */
	/* DCQCN; rate is 0 without congestion */
	double rate, target, alpha;
	uint64_t alpha_at, increase_at; /**< TSC of the next update */
	uint64_t bytes;			/**< since the byte counter's last increase */
	uint32_t by_time, by_bytes;	/**< increases since the last CNP */
	bool limited;			/**< a static limit is set */
};

/**
 * @param limit_mbps static limit; 0: none
 * @param line_mbps line rate; 0: unknown, 100 Gb/s is assumed
 */
void roce_rate_init(struct roce_rate *r, uint32_t limit_mbps, uint32_t line_mbps, uint64_t hz);

/** Reduce the rate after a CNP. */
void roce_rate_cut(struct roce_rate *r, uint64_t now);

/** Apply the rate increases that are due. Only if rate is not 0. */
void roce_rate_recover(struct roce_rate *r, uint64_t now);

/** True if a packet may be sent now. */
static inline bool
roce_rate_allows(struct roce_rate *r, uint64_t now)
{
	if (r->cost == 0)
		return true;
	if (r->rate != 0 && (now >= r->alpha_at || now >= r->increase_at))
		roce_rate_recover(r, now);
	return now >= r->next;
}

/** Account for bytes sent, including all headers. */
void roce_rate_sent(struct roce_rate *r, uint64_t now, uint32_t bytes);

/** The current rate. @return bytes/s; 0: no limit */
double roce_rate_get(const struct roce_rate *r);

#endif
