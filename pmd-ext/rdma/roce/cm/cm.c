/* SPDX-License-Identifier: BSD-3-Clause */
/* Communication manager: transmits and receives CM messages of QP1, and assigns received ones to
 * connections. */
#include <errno.h>

#include "cm/conn.h"
#include "port/ctl_plane.h"

/* Retransmission interval. Shorter than the peer's response time-out allows (code 20, 4.3 s, in
 * REQs of Linux): a lost message must not stall a connection for seconds, and a duplicate does no
 * harm when a reply is merely slow. */
#define INTERVAL_MS 250
#define HOP_LIMIT   64

uint64_t
roce_cm_guid(const struct roce_dev *dev)
{
	const uint8_t *m = dev->mac.addr_bytes;

	return (uint64_t)(m[0] ^ 2) << 56 | (uint64_t)m[1] << 48 | (uint64_t)m[2] << 40 |
		0xfffeULL << 24 | (uint64_t)m[3] << 16 | (uint64_t)m[4] << 8 | m[5];
}

uint8_t
roce_cm_mtu_code(uint16_t bytes)
{
	uint8_t code = 5;

	while (code > 1 && roce_cm_mtu_bytes(code) > bytes)
		code--;
	return code;
}

uint16_t
roce_cm_mtu_bytes(uint8_t code)
{
	return code >= 1 && code <= 5 ? 128 << code : 0;
}

/* ---- transmit -------------------------------------------------------------------------------- */

static void
send_mad(struct roce_control *c, const struct roce_gid *own, const struct roce_gid *peer,
	const struct rte_ether_addr *mac, const uint8_t *mad)
{
	const struct roce_path_attr attr = {
		.src_mac = c->dev->mac,
		.dst_mac = *mac,
		.src = *own,
		.dst = *peer,
		.vlan_tci = c->dev->vlan_tci,
		.udp_src = roce_path_udp_port(ROCE_QPN_CM),
		.hop_limit = HOP_LIMIT,
	};
	struct roce_path path;
	struct rte_mbuf *m;

	roce_path_make(&path, &attr);
	m = roce_control_ud(
		c->dev, &path, ROCE_QPN_CM, ROCE_QPN_CM, ROCE_QKEY_CM, c->psn, mad, ROCE_MAD_BYTES);
	if (!m) {
		roce_control_count(c, ROCE_CTL_NOMBUF);
		return;
	}
	c->psn = (c->psn + 1) & ROCE_PSN_MASK;
	roce_control_count(c, ROCE_CM_TX);
	roce_control_tx(c->dev, 0, m);
}

void
roce_cm_answer(
	struct roce_control *c, const struct roce_cm_packet *to, const struct roce_cm_msg *msg)
{
	uint8_t mad[ROCE_MAD_BYTES];

	roce_cm_encode(msg, mad);
	send_mad(c, &to->dst, &to->src, &to->mac, mad);
}

void
roce_cm_repeat(struct roce_conn *conn)
{
	send_mad(conn->control, &conn->own, &conn->peer, &conn->mac, conn->mad);
}

void
roce_cm_send(struct roce_conn *conn, const struct roce_cm_msg *msg)
{
	RDMA_LOG(
		DEBUG, "connection 0x%08x: sends %s", conn->local_id, roce_cm_attr_name(msg->attr));
	roce_cm_encode(msg, conn->mad);
	roce_cm_repeat(conn);
}

void
roce_cm_await(struct roce_conn *conn)
{
	struct roce_control *c = conn->control;

	conn->retries_left = conn->retries;
	conn->interval_ms = RTE_MIN((uint32_t)INTERVAL_MS, conn->timeout_ms);
	conn->deadline = c->now + c->hz / 1000 * conn->timeout_ms;
	roce_expiry_start(c, &conn->timer, conn->interval_ms);
}

void
roce_cm_reject(struct roce_control *c, const struct roce_cm_packet *packet,
	enum roce_cm_answered answered, uint16_t reason)
{
	struct roce_cm_msg rej = {
		.attr = ROCE_CM_REJ,
		.tid = packet->msg.tid,
		/* both messages start with the sender's id; a REP continues with ours */
		.rej =
			{
				.remote_id = packet->msg.req.local_id,
				.answered = answered,
				.reason = reason,
			},
	};
	char text[INET6_ADDRSTRLEN];

	if (answered == ROCE_CM_ANSWERS_REP)
		rej.rej.local_id = packet->msg.rep.remote_id;
	if (reason == ROCE_REJ_INVALID_MTU) {
		/* the largest MTU that is supported, encoded as in a REQ */
		rej.rej.info_len = 1;
		rej.rej.info[0] = roce_cm_mtu_code(c->dev->mtu) << 4;
	}
	RDMA_LOG(DEBUG, "%s of %s rejected: %u, %s", roce_cm_attr_name(packet->msg.attr),
		roce_gid_text(&packet->src, text, sizeof(text)), reason,
		roce_cm_reason_name(reason));
	roce_cm_answer(c, packet, &rej);
}

/* ---- receive --------------------------------------------------------------------------------- */

struct roce_conn *
roce_cm_conn(struct roce_control *c, const struct roce_cm_packet *packet, uint32_t local_id,
	uint32_t remote_id)
{
	struct roce_conn *conn = roce_conn_find(c, ROCE_CONN_BY_ID, NULL, local_id);

	if (!conn || !roce_gid_equal(&conn->peer, &packet->src) ||
		(conn->remote_id && conn->remote_id != remote_id))
		return NULL;
	return conn;
}

static void
receive_rep(struct roce_control *c, const struct roce_cm_packet *packet)
{
	const struct roce_cm_rep *rep = &packet->msg.rep;
	struct roce_conn *conn = roce_cm_conn(c, packet, rep->remote_id, rep->local_id);

	if (!conn || !conn->active) {
		roce_control_count(c, ROCE_CM_UNMATCHED);
		roce_cm_reject(c, packet, ROCE_CM_ANSWERS_REP, ROCE_REJ_INVALID_COMM_ID);
		return;
	}
	switch (conn->state) {
	case ROCE_CONN_REQ_SENT:
		roce_active_rep(conn, packet);
		return;
	case ROCE_CONN_ESTABLISHED:
		/* our RTU was lost */
		roce_control_count(c, ROCE_CM_DUPLICATES);
		roce_cm_repeat(conn);
		return;
	default:
		roce_control_count(c, ROCE_CM_UNEXPECTED);
	}
}

static void
receive_rtu(struct roce_control *c, const struct roce_cm_packet *packet)
{
	const struct roce_cm_short *rtu = &packet->msg.rtu;
	struct roce_conn *conn = roce_cm_conn(c, packet, rtu->remote_id, rtu->local_id);

	if (!conn)
		roce_control_count(c, ROCE_CM_UNMATCHED);
	else if (conn->state == ROCE_CONN_REP_SENT)
		roce_passive_rtu(conn, "RTU");
	else if (conn->state == ROCE_CONN_ESTABLISHED)
		roce_control_count(c, ROCE_CM_DUPLICATES);
	else
		roce_control_count(c, ROCE_CM_UNEXPECTED);
}

/** MRA: the peer needs more time to reply. */
static void
receive_mra(struct roce_control *c, const struct roce_cm_packet *packet)
{
	const struct roce_cm_mra *mra = &packet->msg.mra;
	struct roce_conn *conn = roce_cm_conn(c, packet, mra->remote_id, mra->local_id);
	uint64_t ms, left;

	if (!conn) {
		roce_control_count(c, ROCE_CM_UNMATCHED);
		return;
	}
	if (!(conn->state == ROCE_CONN_REQ_SENT && mra->answered == ROCE_CM_ANSWERS_REQ) &&
		!(conn->state == ROCE_CONN_REP_SENT && mra->answered == ROCE_CM_ANSWERS_REP)) {
		roce_control_count(c, ROCE_CM_UNEXPECTED);
		return;
	}
	/* 4.096 us x 2^n, limited to the application's own time-out */
	ms = (4096ULL << mra->timeout) / 1000000 + INTERVAL_MS;
	left = conn->deadline > c->now ? (conn->deadline - c->now) * 1000 / c->hz : 0;
	RDMA_LOG(DEBUG, "connection 0x%08x: MRA, waits %" PRIu64 " ms of %" PRIu64, conn->local_id,
		ms, left);
	roce_expiry_start(c, &conn->timer, RTE_MIN(ms, left) + 1);
}

void
roce_cm_receive(struct roce_control *c, const struct roce_cm_packet *packet)
{
	char text[INET6_ADDRSTRLEN];

	RDMA_LOG(DEBUG, "%s from %s, transaction 0x%" PRIx64, roce_cm_attr_name(packet->msg.attr),
		roce_gid_text(&packet->src, text, sizeof(text)), packet->msg.tid);
	roce_control_count(c, ROCE_CM_RX);
	switch ((enum roce_cm_attr)packet->msg.attr) {
	case ROCE_CM_REQ:
		roce_passive_req(c, packet);
		return;
	case ROCE_CM_MRA:
		receive_mra(c, packet);
		return;
	case ROCE_CM_REJ:
		roce_end_rej(c, packet);
		return;
	case ROCE_CM_REP:
		receive_rep(c, packet);
		return;
	case ROCE_CM_RTU:
		receive_rtu(c, packet);
		return;
	case ROCE_CM_DREQ:
		roce_end_dreq(c, packet);
		return;
	case ROCE_CM_DREP:
		roce_end_drep(c, packet);
		return;
	case ROCE_CM_SIDR_REQ:
		roce_sidr_req(c, packet);
		return;
	case ROCE_CM_SIDR_REP:
		roce_sidr_rep(c, packet);
		return;
	}
}

void
roce_cm_frame(struct roce_control *c, const struct rte_mbuf *m)
{
	const unsigned int at = m->l2_len + m->l3_len + ROCE_UDP_BYTES;
	const unsigned int length =
		sizeof(struct roce_bth) + sizeof(struct roce_deth) + ROCE_MAD_BYTES;
	const struct roce_bth *bth = rte_pktmbuf_mtod_offset(m, const struct roce_bth *, at);
	const struct roce_deth *deth = (const struct roce_deth *)(bth + 1);
	struct roce_cm_packet packet;
	struct roce_ip ip;
	int ret;

	if (m->data_len < at + length + ROCE_ICRC_BYTES ||
		bth->opcode != ROCE_UD + ROCE_SEND_ONLY || ROCE_BTH_PAD(bth->flags) != 0 ||
		roce_get24(bth->qpn) != ROCE_QPN_CM) {
		roce_control_count(c, ROCE_MAD_MALFORMED);
		return;
	}
	if (deth->qkey != RTE_BE32(ROCE_QKEY_CM) || roce_get24(deth->qpn) != ROCE_QPN_CM) {
		roce_control_count(c, ROCE_MAD_QKEY);
		return;
	}
	ret = roce_ip_decode(rte_pktmbuf_mtod_offset(m, const uint8_t *, m->l2_len),
		m->data_len - m->l2_len, m->l3_len == 40 ? 6 : 4, &ip);
	if (ret < 0 || ip.payload_len != ROCE_UDP_BYTES + length + ROCE_ICRC_BYTES) {
		roce_control_count(c, ROCE_MAD_MALFORMED);
		return;
	}
	packet.src = ip.src;
	packet.dst = ip.dst;
	packet.mac = rte_pktmbuf_mtod(m, const struct rte_ether_hdr *)->src_addr;
	if (!rte_is_valid_assigned_ether_addr(&packet.mac) || roce_gid_is_none(&ip.src) ||
		roce_gid_is_multicast(&ip.src) || roce_gid_is_multicast(&ip.dst)) {
		roce_control_count(c, ROCE_MAD_MALFORMED);
		return;
	}
	ret = roce_cm_decode((const uint8_t *)(deth + 1), &packet.msg);
	if (ret < 0) {
		roce_control_count(c, ret == -ENOTSUP ? ROCE_MAD_UNSUPPORTED : ROCE_MAD_MALFORMED);
		return;
	}
	roce_cm_receive(c, &packet);
}
