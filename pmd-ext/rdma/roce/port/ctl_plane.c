/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdlib.h>

#include <rte_cycles.h>

#include "cm/conn.h"
#include "port/ctl_plane.h"
#include "net/icmp.h"
#include "net/nd.h"

#define BURST	     32
#define BURSTS	     8 /* limit per poll: a flood of frames must not delay timers and events */
#define ECHO_SECOND  1000
#define TIMERS_EXTRA (ROCE_NEIGHBORS_MAX + ROCE_MEMBERSHIPS_MAX + 8)

/* ---- timers ---------------------------------------------------------------------------------- */

void
roce_expiry_start(struct roce_control *c, struct roce_expiry *timer, uint32_t ms)
{
	timer->due = false;
	roce_timer_start(&c->wheel, &timer->timer, c->now + c->hz / 1000 * ms);
}

void
roce_expiry_stop(struct roce_control *c, struct roce_expiry *timer)
{
	timer->due = false;
	roce_wheel_remove(&c->wheel, &timer->timer);
}

/** Call the functions of expired timers. A function may stop or start any timer, including expired
 * ones. */
static void
timers_run(struct roce_control *c)
{
	struct roce_timer_list expired;
	struct roce_timer *timer;
	uint32_t i, n = 0;

	if (!roce_wheel_due(&c->wheel, c->now))
		return;
	TAILQ_INIT(&expired);
	roce_wheel_run(&c->wheel, c->now, &expired);
	while ((timer = TAILQ_FIRST(&expired))) {
		TAILQ_REMOVE(&expired, timer, next);
		c->due[n] = (struct roce_expiry *)timer;
		c->due[n++]->due = true;
	}
	for (i = 0; i < n; i++)
		if (c->due[i]->due) {
			c->due[i]->due = false;
			c->due[i]->expired(c, c->due[i]);
		}
}

/* ---- events ---------------------------------------------------------------------------------- */

struct rdma_event *
roce_control_event(
	struct roce_control *c, enum rdma_event_type type, struct roce_conn *conn, int status)
{
	struct roce_event *e = calloc(1, sizeof(*e));

	if (!e) {
		roce_control_count(c, ROCE_CTL_EVENTS_LOST);
		return NULL;
	}
	e->event.type = type;
	e->event.status = status;
	e->event.conn = conn ? &conn->base : NULL;
	STAILQ_INSERT_TAIL(&c->events, e, next);
	return &e->event;
}

bool
roce_control_forget(struct roce_control *c, const struct roce_conn *conn)
{
	struct roce_event *e, *next;
	bool request = false;

	for (e = STAILQ_FIRST(&c->events); e; e = next) {
		next = STAILQ_NEXT(e, next);
		if (e->event.conn != &conn->base)
			continue;
		request |= e->event.type == RDMA_EVENT_CONNECT_REQUEST;
		STAILQ_REMOVE(&c->events, e, roce_event, next);
		free(e);
	}
	return request;
}

void
roce_control_forget_qp(struct roce_dev *dev, const struct rdma_qp *qp)
{
	struct roce_control *c = dev->control;
	struct roce_event *e, *next;

	for (e = STAILQ_FIRST(&c->events); e; e = next) {
		next = STAILQ_NEXT(e, next);
		if (e->event.qp != qp)
			continue;
		STAILQ_REMOVE(&c->events, e, roce_event, next);
		free(e);
	}
}

/* ---- frames ---------------------------------------------------------------------------------- */

struct rte_mbuf *
roce_control_frame(struct roce_control *c, const struct rte_ether_addr *dst, uint16_t ether_type,
	unsigned int length, uint8_t **l3)
{
	const struct roce_dev *dev = c->dev;
	const unsigned int l2 =
		sizeof(struct rte_ether_hdr) + (dev->vlan_tci ? sizeof(struct rte_vlan_hdr) : 0);
	struct rte_mbuf *m = rte_pktmbuf_alloc(dev->pool);
	struct rte_ether_hdr *ether;

	ether = m ? (struct rte_ether_hdr *)rte_pktmbuf_append(m, l2 + length) : NULL;
	if (!ether) {
		rte_pktmbuf_free(m);
		roce_control_count(c, ROCE_CTL_NOMBUF);
		return NULL;
	}
	ether->dst_addr = *dst;
	ether->src_addr = dev->mac;
	ether->ether_type = rte_cpu_to_be_16(dev->vlan_tci ? RTE_ETHER_TYPE_VLAN : ether_type);
	if (dev->vlan_tci) {
		struct rte_vlan_hdr *vlan = (struct rte_vlan_hdr *)(ether + 1);

		vlan->vlan_tci = rte_cpu_to_be_16(dev->vlan_tci);
		vlan->eth_proto = rte_cpu_to_be_16(ether_type);
	}
	*l3 = (uint8_t *)ether + l2;
	return m;
}

void
roce_control_send_ip(struct roce_control *c, const struct rte_ether_addr *dst,
	const struct roce_ip *ip, const uint8_t *payload)
{
	uint8_t header[ROCE_IP_BYTES_MAX];
	const unsigned int length = roce_ip_encode(ip, header);
	struct rte_mbuf *m;
	uint8_t *l3;

	m = roce_control_frame(c, dst,
		roce_gid_is_v4(&ip->dst) ? RTE_ETHER_TYPE_IPV4 : RTE_ETHER_TYPE_IPV6,
		length + ip->payload_len, &l3);
	if (!m)
		return;
	memcpy(l3, header, length);
	memcpy(l3 + length, payload, ip->payload_len);
	roce_control_tx(c->dev, 0, m);
}

/**
 * Insert the VLAN tag of the device, unless the frame has one: the port may have stripped it from
 * the request.
 * @return false: no headroom
 */
static bool
tag(const struct roce_dev *dev, struct rte_mbuf *m)
{
	if (!dev->vlan_tci || m->l2_len != sizeof(struct rte_ether_hdr))
		return true;
	m->vlan_tci = dev->vlan_tci;
	return rte_vlan_insert(&m) == 0;
}

/** Reply to an echo request. @return true: the mbuf was consumed */
static bool
echo(struct roce_control *c, struct rte_mbuf *m, const struct roce_ip *ip)
{
	const uint64_t second = c->now / c->hz;

	/* Requests to groups get no reply: one packet would make all stations reply. */
	if (roce_gid_is_multicast(&ip->dst) || roce_gid_is_multicast(&ip->src) ||
		roce_gid_is_none(&ip->src)) {
		roce_control_count(c, ROCE_CTL_OTHER);
		return false;
	}
	if (second != c->echo_second) {
		c->echo_second = second;
		c->echo_sent = 0;
	}
	if (c->echo_sent >= ECHO_SECOND) {
		roce_control_count(c, ROCE_ECHO_LIMITED);
		return false;
	}
	switch (roce_icmp_echo(m, ip, &c->dev->mac)) {
	case 0:
		if (!tag(c->dev, m)) {
			roce_control_count(c, ROCE_CTL_NOMBUF);
			return false;
		}
		c->echo_sent++;
		roce_control_count(c, ROCE_ECHO_REPLIES);
		roce_control_tx(c->dev, 0, m);
		return true;
	case -ENOTSUP:
		roce_control_count(c, ROCE_CTL_OTHER);
		return false;
	default:
		roce_control_count(c, ROCE_CTL_MALFORMED);
		return false;
	}
}

static bool
is_ours(const struct roce_dev *dev, const struct roce_gid *dst)
{
	const struct roce_gid *own = roce_dev_source(dev, dst);

	return own && (roce_gid_equal(own, dst) || roce_gid_is_multicast(dst));
}

/** @return true: the mbuf was consumed */
static bool
packet_ip(struct roce_control *c, struct rte_mbuf *m, uint8_t version)
{
	const uint8_t *l3 = rte_pktmbuf_mtod_offset(m, const uint8_t *, m->l2_len);
	struct roce_ip ip;
	int ret;

	ret = roce_ip_decode(l3, m->data_len - m->l2_len, version, &ip);
	if (ret < 0 || !is_ours(c->dev, &ip.dst)) {
		roce_control_count(c, ret == -EPROTO ? ROCE_CTL_MALFORMED : ROCE_CTL_OTHER);
		return false;
	}
	if (ip.proto == IPPROTO_UDP) {
		/* the poll group checked the ICRC of these; packets with IP options are not checked
		 */
		if (ret == m->l3_len && ip.payload_len >= ROCE_UDP_BYTES &&
			(l3[ret + 2] << 8 | l3[ret + 3]) == ROCE_UDP_PORT)
			roce_cm_frame(c, m);
		else
			roce_control_count(c, ROCE_CTL_OTHER);
		return false;
	}
	m->l3_len = ret;
	l3 += ret;
	ret = -ENOTSUP;
	if (version == 6 && ip.proto == IPPROTO_ICMPV6 && ip.payload_len > 0 &&
		(l3[0] == ROCE_ND_SOLICIT || l3[0] == ROCE_ND_ADVERT)) {
		roce_neighbor_nd(c, &ip, l3);
		return false;
	}
	if (ip.proto == (version == 4 ? IPPROTO_IGMP : IPPROTO_ICMPV6))
		ret = roce_membership_message(c, &ip, l3);
	if (ret == -ENOTSUP && ip.proto == (version == 4 ? IPPROTO_ICMP : IPPROTO_ICMPV6))
		return echo(c, m, &ip);
	if (ret < 0)
		roce_control_count(c, ret == -EPROTO ? ROCE_CTL_MALFORMED : ROCE_CTL_OTHER);
	return false;
}

static void
packet(struct roce_control *c, struct rte_mbuf *m)
{
	const uint8_t *frame = rte_pktmbuf_mtod(m, const uint8_t *);
	const unsigned int l2 = m->l2_len;
	bool taken = false;

	if (l2 < sizeof(struct rte_ether_hdr) || l2 >= m->data_len) {
		/* the engine sets l2_len for IP only */
		m->l2_len = sizeof(struct rte_ether_hdr) +
			(m->data_len >= 18 && frame[12] == 0x81 && frame[13] == 0x00
					? sizeof(struct rte_vlan_hdr)
					: 0);
	}
	if (m->data_len <= m->l2_len) {
		roce_control_count(c, ROCE_CTL_MALFORMED);
		rte_pktmbuf_free(m);
		return;
	}
	switch (frame[m->l2_len - 2] << 8 | frame[m->l2_len - 1]) {
	case RTE_ETHER_TYPE_ARP:
		roce_neighbor_arp(c, frame + m->l2_len, m->data_len - m->l2_len);
		break;
	case RTE_ETHER_TYPE_IPV4:
		taken = packet_ip(c, m, 4);
		break;
	case RTE_ETHER_TYPE_IPV6:
		taken = packet_ip(c, m, 6);
		break;
	default:
		roce_control_count(c, ROCE_CTL_OTHER);
	}
	if (!taken)
		rte_pktmbuf_free(m);
}

/* ---- notifications from poll groups ---------------------------------------------------------- */

static void
note(struct roce_control *c, const struct roce_note *n)
{
	struct roce_conn *conn = roce_conn_find(c, ROCE_CONN_BY_QPN, NULL, n->qpn);
	struct rdma_qp *qp = roce_qp_find(c->dev, n->qpn);
	struct rdma_event *event;

	switch ((enum roce_note_type)n->type) {
	case ROCE_NOTE_FIRST_PACKET:
		if (conn && conn->state == ROCE_CONN_REP_SENT) {
			roce_control_count(c, ROCE_CM_FIRST_PACKETS);
			roce_passive_rtu(conn, "first packet");
		}
		return;
	case ROCE_NOTE_QP_ERROR:
		if (!qp)
			return;
		event = conn ? roce_conn_event(conn, RDMA_EVENT_QP_ERROR, 0)
			     : roce_control_event(c, RDMA_EVENT_QP_ERROR, NULL, 0);
		if (event)
			event->qp = qp;
		return;
	}
}

/* ---- poll ------------------------------------------------------------------------------------ */

/** Receive frames and notifications. */
static void
receive(struct roce_control *c)
{
	struct rte_mbuf *m[BURST];
	struct roce_note notes[BURST];
	unsigned int burst;
	uint16_t i, n = BURST;

	for (burst = 0; burst < BURSTS && n == BURST; burst++) {
		n = roce_control_rx(c->dev, m, BURST);
		for (i = 0; i < n; i++)
			packet(c, m[i]);
	}
	n = roce_control_notes(c->dev, notes, BURST);
	for (i = 0; i < n; i++)
		note(c, &notes[i]);
}

/** The port was removed: end all connections and move all queue pairs to the error state. */
static void
removed(struct roce_control *c)
{
	const struct roce_qp_modify error = {.state = RDMA_QP_ERROR};
	struct roce_conn *conn, *next;
	struct roce_qp *qp;
	uint32_t i;

	c->removed = true;
	RDMA_LOG(NOTICE, "device %s: its port was removed", c->dev->base.name);
	roce_control_event(c, RDMA_EVENT_DEVICE_REMOVED, NULL, -ENODEV);
	for (conn = TAILQ_FIRST(&c->conns.all); conn; conn = next) {
		next = TAILQ_NEXT(conn, next);
		roce_end_removed(conn);
	}
	for (i = 0; i <= c->dev->qp_mask; i++) {
		qp = c->dev->qps[i];
		if (qp)
			roce_qp_modify((struct rdma_qp *)qp, &error);
	}
}

uint16_t
roce_control_poll(struct rdma_dev *dev, struct rdma_event *event, uint16_t n)
{
	struct roce_control *c = roce_dev(dev)->control;
	struct roce_event *e;
	uint16_t got = 0;

	roce_control_time(c);
	receive(c);
	if (unlikely(!roce_dev_has_port(c->dev)) && !c->removed)
		removed(c);
	timers_run(c);
	roce_conns_free_closed(c);
	while (got < n && (e = STAILQ_FIRST(&c->events))) {
		STAILQ_REMOVE_HEAD(&c->events, next);
		event[got++] = e->event;
		free(e);
	}
	return got;
}

bool
roce_control_holds_qpn(const struct roce_dev *dev, uint32_t qpn)
{
	return roce_conn_find(dev->control, ROCE_CONN_BY_QPN, NULL, qpn) != NULL;
}

/* ---- open and close -------------------------------------------------------------------------- */

int
roce_control_open(struct roce_dev *dev)
{
	struct roce_control *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	dev->control = c;
	c->dev = dev;
	c->clock = rte_get_tsc_cycles;
	c->hz = rte_get_tsc_hz();
	c->psn = roce_random(24);
	STAILQ_INIT(&c->events);
	TAILQ_INIT(&c->ahs);
	roce_control_time(c);
	/* ticks of about a millisecond are precise enough here */
	roce_wheel_init(&c->wheel, c->hz * 128, c->now);
	if (roce_conns_open(c) < 0 || roce_neighbors_open(c) < 0 || roce_memberships_open(c) < 0)
		goto fail;
	c->due = calloc(c->conns.max + TIMERS_EXTRA, sizeof(*c->due));
	if (c->due)
		return 0;
fail:
	RDMA_LOG(ERR, "device %s: cannot allocate its control plane", dev->base.name);
	roce_control_close(dev);
	return -ENOMEM;
}

void
roce_control_close(struct roce_dev *dev)
{
	struct roce_control *c = dev->control;
	struct roce_event *e;

	if (!c)
		return;
	roce_control_time(c);
	while ((e = STAILQ_FIRST(&c->events))) {
		STAILQ_REMOVE_HEAD(&c->events, next);
		free(e);
	}
	roce_conns_close(c);
	roce_memberships_close(c);
	roce_neighbors_close(c);
	free(c->due);
	free(c);
	dev->control = NULL;
}
