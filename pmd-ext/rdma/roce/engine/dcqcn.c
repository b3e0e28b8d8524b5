/* SPDX-License-Identifier: BSD-3-Clause */
/* Congestion notification packets (CNP) and DCQCN rate control, see engine/rate.h. */

#include <rte_common.h>
#include <rte_cycles.h>

#include "engine/qp.h"
#include "engine/rate.h"

/* Maximum CNPs of a queue pair per second: one in 50 us */
#define NOTIFY_PER_SECOND 20000
#define CNP_BYTES	  16 /* reserved, zero (A17.9.3) */

void
roce_congestion_mark(struct roce_qp *qp)
{
	roce_count(qp->poll_group, ROCE_RX_CE);
	/* There is no path to a connected peer: UD, and queue pairs that only receive. */
	if (qp->path.length == 0 || qp->poll_group->now < qp->cnp_at)
		return;
	qp->cnp_at = qp->poll_group->now + rte_get_tsc_hz() / NOTIFY_PER_SECOND;
	qp->cnp_due = true;
	roce_qp_activate(qp);
}

void
roce_congestion_notified(struct roce_qp *qp)
{
	roce_count(qp->poll_group, ROCE_RX_CNP);
	if (qp->dev->dcqcn)
		roce_rate_cut(&qp->rate, qp->poll_group->now);
}

bool
roce_congestion_run(struct roce_qp *qp)
{
	const struct roce_frame_head head = {.qpn = qp->peer_qpn, .opcode = ROCE_CNP};
	struct roce_frame f;

	if (!qp->cnp_due)
		return false;
	if (roce_poll_group_tx_room(qp->poll_group) == 0 ||
		!roce_poll_group_spare(qp->poll_group, ROCE_FRAME_SEGMENTS))
		return true;
	qp->cnp_due = false;
	roce_frame_begin(&f, &qp->path, &head, CNP_BYTES);
	f.bth->ecn = ROCE_BTH_BECN;
	memset(f.ext, 0, CNP_BYTES);
	roce_frame_end(qp->poll_group, &f);
	roce_count(qp->poll_group, ROCE_TX_CNP);
	return false;
}

/* Parameters of the paper (section 5, table 14), unless noted otherwise. */
#define G		(1.0 / 256)
#define ALPHA_US	55
#define INCREASE_US	300 /* as ConnectX; the paper's 55 us overshoots when polls are slow */
#define INCREASE_BYTES	10000000
#define FAST_RECOVERIES 5
#define ADD		(40e6 / 8)  /* bytes/s */
#define ADD_HYPER	(400e6 / 8) /* bytes/s */
#define RATE_MIN	(1e6 / 8)   /* bytes/s */
#define LINE_MBPS	100000
#define CATCH_UP_US	50 /* maximum unused sending time that a later burst may use */

static void
set_cost(struct roce_rate *r)
{
	const double rate = roce_rate_get(r);

	r->cost = rate == 0 ? 0 : r->hz / rate;
}

double
roce_rate_get(const struct roce_rate *r)
{
	if (r->rate != 0)
		return r->limited ? RTE_MIN(r->rate, r->ceiling) : r->rate;
	return r->limited ? r->ceiling : 0;
}

void
roce_rate_init(struct roce_rate *r, uint32_t limit_mbps, uint32_t line_mbps, uint64_t hz)
{
	*r = (struct roce_rate){.hz = hz, .limited = limit_mbps != 0};
	r->ceiling = (limit_mbps ? limit_mbps : line_mbps ? line_mbps : LINE_MBPS) * 1e6 / 8;
	set_cost(r);
}

static uint64_t
after(const struct roce_rate *r, uint64_t now, double us)
{
	return now + (uint64_t)(us * r->hz / 1e6);
}

void
roce_rate_cut(struct roce_rate *r, uint64_t now)
{
	if (r->rate != 0)
		roce_rate_recover(r, now);
	if (r->rate == 0) {
		r->rate = r->ceiling;
		r->alpha = 1;
	}
	r->target = r->rate;
	r->rate = RTE_MAX(r->rate * (1 - r->alpha / 2), RATE_MIN);
	r->alpha = (1 - G) * r->alpha + G;
	r->alpha_at = after(r, now, ALPHA_US);
	r->increase_at = after(r, now, INCREASE_US);
	r->bytes = 0;
	r->by_time = r->by_bytes = 0;
	r->next = RTE_MAX(r->next, now);
	set_cost(r);
}

/** Increase the rate by one step, triggered by time or by bytes. */
static void
increase(struct roce_rate *r)
{
	const uint32_t most = RTE_MAX(r->by_time, r->by_bytes);
	const uint32_t least = RTE_MIN(r->by_time, r->by_bytes);

	if (least > FAST_RECOVERIES)
		r->target += ADD_HYPER;
	else if (most > FAST_RECOVERIES)
		r->target += ADD;
	r->target = RTE_MIN(r->target, r->ceiling);
	r->rate = (r->rate + r->target) / 2;
}

void
roce_rate_recover(struct roce_rate *r, uint64_t now)
{
	/* The rate reaches its ceiling within a few thousand steps, even after a long idle time. */
	while (now >= r->increase_at && r->rate != 0) {
		r->increase_at = after(r, r->increase_at, INCREASE_US);
		r->by_time++;
		increase(r);
		if (r->rate > 0.999 * r->ceiling)
			r->rate = 0;
	}
	/* At the ceiling alpha is not updated: the next cut starts again with alpha 1. */
	while (now >= r->alpha_at && r->rate != 0) {
		r->alpha *= 1 - G;
		r->alpha_at = after(r, r->alpha_at, ALPHA_US);
	}
	set_cost(r);
}

void
roce_rate_sent(struct roce_rate *r, uint64_t now, uint32_t bytes)
{
	const uint64_t earliest = now - (uint64_t)(CATCH_UP_US * r->hz / 1e6);

	if (r->cost == 0)
		return;
	r->next = RTE_MAX(r->next, earliest) + (uint64_t)(bytes * r->cost);
	if (r->rate == 0)
		return;
	r->bytes += bytes;
	if (r->bytes < INCREASE_BYTES)
		return;
	r->bytes = 0;
	r->by_bytes++;
	increase(r);
	set_cost(r);
}
