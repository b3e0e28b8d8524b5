/* SPDX-License-Identifier: BSD-3-Clause */
#include <rte_cycles.h>

#include "roce_qp.h"

/* a queue pair's notifications are at least so far apart: 50 us */
#define NOTIFY_PER_SECOND 20000
#define CNP_BYTES	  16 /* reserved, zero (A17.9.3) */

void
roce_congestion_mark(struct roce_qp *qp)
{
	roce_count(qp->lane, ROCE_RX_CE);
	/* datagrams have no peer to be told */
	if (qp->type == RDMA_QP_UD || qp->lane->now < qp->cnp_at)
		return;
	qp->cnp_at = qp->lane->now + rte_get_tsc_hz() / NOTIFY_PER_SECOND;
	qp->cnp_due = true;
	roce_qp_activate(qp);
}

void
roce_congestion_notified(struct roce_qp *qp)
{
	roce_count(qp->lane, ROCE_RX_CNP);
	if (qp->dev->dcqcn)
		roce_rate_cut(&qp->rate, qp->lane->now);
}

bool
roce_congestion_run(struct roce_qp *qp)
{
	const struct roce_frame_head head = {.qpn = qp->peer_qpn, .opcode = ROCE_CNP};
	struct roce_frame f;

	if (!qp->cnp_due)
		return false;
	if (roce_lane_tx_room(qp->lane) == 0 || !roce_lane_spare(qp->lane, ROCE_FRAME_SEGMENTS))
		return true;
	qp->cnp_due = false;
	roce_frame_begin(&f, &qp->path, &head, CNP_BYTES);
	f.bth->ecn = ROCE_BTH_BECN;
	memset(f.ext, 0, CNP_BYTES);
	roce_frame_end(qp->lane, &f);
	roce_count(qp->lane, ROCE_TX_CNP);
	return false;
}
