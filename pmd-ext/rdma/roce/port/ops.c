/* SPDX-License-Identifier: BSD-3-Clause */
/* Registers the provider `roce` with its operations. */
#include "roce.h"
#include "engine/cq.h"
#include "port/device.h"
#include "engine/engine.h"
#include "engine/qp.h"
#include "engine/mr.h"
#include "net/neighbor.h"

static const struct rdma_ops roce_ops = {
	.provider = "roce",
	.reference = true,
	.dev_open = roce_dev_open,
	.dev_close = roce_dev_close,
	.dev_info_get = roce_dev_info_get,
	.dev_route_check = roce_dev_route_check,
	.progress = roce_poll_group_progress,
	.xstats_get = roce_xstats_get,
	.pd_alloc = roce_pd_alloc,
	.pd_free = roce_pd_free,
	.mr_reg = roce_mr_reg,
	.mr_dereg = roce_mr_dereg,
	.cq_create = roce_cq_create,
	.cq_destroy = roce_cq_destroy,
	.poll_cq = roce_cq_poll,
	.qp_create = roce_qp_create,
	.qp_destroy = roce_qp_destroy,
	.qp_connect = roce_qp_connect,
	.qp_error = roce_qp_error,
	.qp_info_get = roce_qp_info_get,
	.post_send = roce_post_send,
	.post_recv = roce_post_recv,
	.conn_connect = roce_conn_connect,
	.conn_listen = roce_conn_listen,
	.conn_accept = roce_conn_accept,
	.conn_reject = roce_conn_reject,
	.conn_disconnect = roce_conn_disconnect,
	.conn_destroy = roce_conn_destroy,
	.poll_cm = roce_control_poll,
	.ah_create = roce_ah_create,
	.ah_destroy = roce_ah_destroy,
	.multicast_join = roce_multicast_join,
};

RDMA_REGISTER_PROVIDER(roce, roce_ops)
