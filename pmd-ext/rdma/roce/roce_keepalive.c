/* SPDX-License-Identifier: BSD-3-Clause */
/* Signs of life of an idle peer: a queue pair that has nothing outstanding has no time-out. */
#include <errno.h>

#include "roce_qp.h"

/**
 * The packet before the next one, without payload. To the peer it is one that comes again, which
 * has no effect but an acknowledgement (9.7.5.1.2, 9.7.7.2.1): no number is used up, and nothing
 * is told apart from a packet that the network repeats.
 */
static void
probe(struct roce_qp *qp)
{
	const struct roce_frame_head head = {
		.qpn = qp->peer_qpn,
		.psn = roce_psn_add(qp->req.una_psn, -1),
		.opcode = ROCE_SEND_ONLY,
		.ack = true,
	};
	struct roce_frame f;

	roce_frame_begin(&f, &qp->path, &head, 0);
	roce_frame_end(qp->lane, &f);
	roce_count(qp->lane, ROCE_TX_KEEPALIVE);
}

struct look {
	struct roce_qp *qp;
	bool ask;
};

static int
qp_alive(struct roce_lane *lane, void *arg)
{
	const struct look *look = arg;
	struct roce_qp *qp = look->qp;
	struct roce_life *life = &qp->life;
	const struct roce_requester *r = &qp->req;
	const bool alive = life->answered || life->una_psn != r->una_psn ||
		life->expected_psn != qp->resp.expected_psn;

	if (roce_state(qp) != RDMA_QP_RTS)
		return -ENOTCONN;
	life->answered = false;
	life->una_psn = r->una_psn;
	life->expected_psn = qp->resp.expected_psn;
	/* what is outstanding has its own time-out, which does better */
	if (alive || r->una != r->head || roce_lane_tx_room(lane) == 0 ||
		!roce_lane_spare(lane, ROCE_FRAME_SEGMENTS))
		return 1;
	if (look->ask)
		probe(qp);
	return 0;
}

int
roce_qp_alive(struct rdma_qp *qp, bool ask)
{
	struct look look = {(struct roce_qp *)qp, ask};

	return roce_lane_call(look.qp->lane, qp_alive, &look);
}
