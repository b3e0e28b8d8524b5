/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The connection manager between two devices over a wire that can lose frames: handshakes,
 * rejections, timeouts, and disconnects in every state. ROCE_SEED repeats a random run.
 */
#include "roce_cm_rig.h"

#include <rte_errno.h>

#include "rdma_roce.h"

#define PORT 7174
#define A    0 /* active side */
#define B    1 /* passive side */

static const struct rdma_conn_attr *
with_data(const char *text)
{
	static struct rdma_conn_attr attr[2];
	static unsigned int i;
	struct rdma_conn_attr *a = &attr[i++ % 2];

	*a = (struct rdma_conn_attr){.private_data = text, .private_len = strlen(text) + 1};
	return a;
}

static void
open_both(const char *a, const char *b)
{
	rig_open(A, a);
	rig_open(B, b);
}

static void
open_ip4(void)
{
	open_both("ip=10.99.0.2/24", "ip=10.99.0.1/24");
}

/* A connection, its ends and their queue pairs */
struct pair {
	struct rdma_qp *qp[2];
	struct rdma_conn *conn[2];
};

static void
connect_pair(struct pair *p, enum rdma_qp_type type, const struct rdma_conn_attr *attr)
{
	p->qp[A] = rig_qp(A, type);
	p->conn[A] = rdma_conn_connect(p->qp[A], rig_address(B, PORT), attr);
	assert_non_null(p->conn[A]);
}

static void
accept_pair(struct pair *p, enum rdma_qp_type type)
{
	const struct rdma_event *e = rig_event(B, RDMA_EVENT_CONNECT_REQUEST, 5000);

	p->conn[B] = e->conn;
	p->qp[B] = rig_qp(B, type);
	assert_int_equal(rdma_conn_accept(p->conn[B], p->qp[B], NULL), 0);
}

static enum rdma_qp_state
state_of(struct rdma_qp *qp)
{
	struct rdma_qp_info info;

	assert_int_equal(rdma_qp_info_get(qp, &info), 0);
	return info.state;
}

static void
establish(struct pair *p, enum rdma_qp_type type)
{
	connect_pair(p, type, NULL);
	accept_pair(p, type);
	assert_ptr_equal(rig_event(A, RDMA_EVENT_ESTABLISHED, 5000)->conn, p->conn[A]);
	assert_ptr_equal(rig_event(B, RDMA_EVENT_ESTABLISHED, 5000)->conn, p->conn[B]);
	assert_int_equal(state_of(p->qp[A]), RDMA_QP_RTS);
	assert_int_equal(state_of(p->qp[B]), RDMA_QP_RTS);
}

static void
destroy(struct pair *p)
{
	for (unsigned int s = 0; s < 2; s++) {
		if (p->conn[s])
			assert_int_equal(rdma_conn_destroy(p->conn[s]), 0);
		if (p->qp[s])
			assert_int_equal(rdma_qp_destroy(p->qp[s]), 0);
	}
	memset(p, 0, sizeof(*p));
}

/* No state is left: neither connections nor time-waits */
static void
finish(struct rdma_conn *listener)
{
	if (listener)
		assert_int_equal(rdma_conn_destroy(listener), 0);
	memset(&rig_wire, 0, sizeof(rig_wire));
	for (unsigned int s = 0; s < 2; s++)
		rig[s].nb_events = rig[s].taken = 0;
	rig_run(20000);
	for (unsigned int s = 0; s < 2; s++)
		assert_int_equal(roce_dev(rig[s].dev)->control->conns.nb_conns, 0);
	rig_close();
}

static void
handshake(const char *a, const char *b, enum rdma_qp_type type)
{
	struct rdma_conn *listener;
	const struct rdma_event *e;
	struct pair p = {0};
	uint32_t qpn;

	open_both(a, b);
	listener = rdma_conn_listen(rig[B].dev, type, PORT, 4, &rig_wire);
	assert_non_null(listener);
	assert_ptr_equal(rdma_conn_context(listener), &rig_wire);
	connect_pair(&p, type, with_data("from A"));
	e = rig_event(B, RDMA_EVENT_CONNECT_REQUEST, 100);
	assert_ptr_equal(e->listener, listener);
	assert_ptr_equal(rdma_conn_context(e->conn), &rig_wire);
	assert_int_equal(e->private_len, 56);
	assert_string_equal((const char *)e->private_data, "from A");
	assert_int_equal(e->rd_atom, 16);
	assert_int_equal(e->responder_rd_atom, 16);
	p.conn[B] = e->conn;
	p.qp[B] = rig_qp(B, type);
	assert_int_equal(rdma_conn_accept(p.conn[B], p.qp[B], with_data("from B")), 0);
	assert_int_equal(rdma_conn_accept(p.conn[B], p.qp[B], NULL), -EINVAL);
	e = rig_event(A, RDMA_EVENT_ESTABLISHED, 100);
	assert_ptr_equal(e->qp, p.qp[A]);
	assert_int_equal(e->private_len, 196);
	assert_string_equal((const char *)e->private_data, "from B");
	assert_int_equal(e->remote_qpn, p.qp[B]->qpn);
	e = rig_event(B, RDMA_EVENT_ESTABLISHED, 100);
	assert_ptr_equal(e->qp, p.qp[B]);
	assert_int_equal(state_of(p.qp[A]), RDMA_QP_RTS);
	assert_int_equal(state_of(p.qp[B]), RDMA_QP_RTS);
	assert_int_equal(rdma_qp_destroy(p.qp[A]), -EBUSY);

	assert_int_equal(rdma_conn_disconnect(p.conn[A]), 0);
	assert_int_equal(rdma_conn_disconnect(p.conn[A]), -ENOTCONN);
	assert_int_equal(state_of(p.qp[A]), RDMA_QP_ERROR);
	rig_event(A, RDMA_EVENT_DISCONNECTED, 100);
	rig_event(B, RDMA_EVENT_DISCONNECTED, 100);
	assert_int_equal(state_of(p.qp[B]), RDMA_QP_ERROR);
	qpn = p.qp[A]->qpn;
	assert_true(roce_control_holds_qpn(roce_dev(rig[A].dev), qpn));
	rig_event(A, RDMA_EVENT_TIMEWAIT_EXIT, 2000);
	rig_event(B, RDMA_EVENT_TIMEWAIT_EXIT, 2000);
	assert_false(roce_control_holds_qpn(roce_dev(rig[A].dev), qpn));
	assert_int_equal(rig_stat(A, "cm_connected"), 1);
	assert_int_equal(rig_stat(B, "cm_disconnected"), 1);
	assert_int_equal(rig_stat(A, "cm_retransmits"), 0);
	destroy(&p);
	finish(listener);
}

static void
test_handshake_ip4(void **state)
{
	handshake("ip=10.99.0.2/24", "ip=10.99.0.1/24", RDMA_QP_RC);
}

static void
test_handshake_ip6(void **state)
{
	handshake("ip=fd00::2/64", "ip=fd00::1/64", RDMA_QP_RC);
}

static void
test_handshake_uc(void **state)
{
	handshake("ip=10.99.0.2/24", "ip=10.99.0.1/24", RDMA_QP_UC);
}

static void
test_handshake_vlan(void **state)
{
	handshake("ip=10.99.0.2/24,vlan=7:3", "ip=10.99.0.1/24,vlan=7", RDMA_QP_RC);
}

/* Through a gateway, which is the other station: ARP asks for the gateway's address. */
static void
test_gateway(void **state)
{
	struct pair p = {0};
	struct rdma_conn *listener;

	open_both("ip=10.99.0.2/24,gateway=10.99.0.1", "ip=10.99.0.1/24");
	listener = rdma_conn_listen(rig[B].dev, RDMA_QP_RC, PORT, 4, NULL);
	rig[B].gid.raw[13] = 98; /* 10.98.0.1 */
	p.qp[A] = rig_qp(A, RDMA_QP_RC);
	p.conn[A] = rdma_conn_connect(p.qp[A], rig_address(B, PORT), NULL);
	assert_non_null(p.conn[A]);
	rig_run(50);
	/* the REQ was sent to the gateway, which does not forward it */
	assert_int_equal(roce_conn(p.conn[A])->state, ROCE_CONN_REQ_SENT);
	assert_true(rte_is_same_ether_addr(&roce_conn(p.conn[A])->mac, &rig[B].mac));
	assert_int_equal(rig_stat(B, "cm_rx"), 0);
	destroy(&p);
	rig[B].gid.raw[12] = 11;
	roce_dev(rig[A].dev)->has_gateway4 = false;
	connect_pair(&p, RDMA_QP_RC, NULL);
	assert_int_equal(rig_event(A, RDMA_EVENT_UNREACHABLE, 10)->status, -EHOSTUNREACH);
	destroy(&p);
	finish(listener);
}

static void
test_reject(void **state)
{
	const struct rdma_event *e;
	struct pair p = {0};
	struct rdma_conn *listener;

	open_ip4();
	connect_pair(&p, RDMA_QP_RC, NULL);
	e = rig_event(A, RDMA_EVENT_REJECTED, 100);
	assert_int_equal(e->status, ROCE_REJ_INVALID_SERVICE_ID);
	assert_int_equal(rig_stat(B, "cm_no_listener"), 1);
	assert_int_equal(rdma_conn_destroy(p.conn[A]), 0);

	/* the queue pair may be connected again */
	listener = rdma_conn_listen(rig[B].dev, RDMA_QP_RC, PORT, 4, NULL);
	assert_null(rdma_conn_listen(rig[B].dev, RDMA_QP_RC, PORT, 4, NULL));
	p.conn[A] = rdma_conn_connect(p.qp[A], rig_address(B, PORT), NULL);
	assert_non_null(p.conn[A]);
	e = rig_event(B, RDMA_EVENT_CONNECT_REQUEST, 100);
	assert_int_equal(rdma_conn_reject(e->conn, "no", 3), 0);
	e = rig_event(A, RDMA_EVENT_REJECTED, 100);
	assert_int_equal(e->status, ROCE_REJ_CONSUMER);
	assert_int_equal(e->private_len, 148);
	assert_string_equal((const char *)e->private_data, "no");
	assert_int_equal(state_of(p.qp[A]), RDMA_QP_INIT);
	assert_int_equal(rdma_conn_disconnect(p.conn[A]), -ENOTCONN);
	destroy(&p);

	/* UC has its own service ID space */
	connect_pair(&p, RDMA_QP_UC, NULL);
	assert_int_equal(
		rig_event(A, RDMA_EVENT_REJECTED, 100)->status, ROCE_REJ_INVALID_SERVICE_ID);
	assert_int_equal(rig_stat(B, "cm_no_listener"), 2);
	destroy(&p);
	finish(listener);
}

static void
test_arguments(void **state)
{
	uint8_t bytes[RDMA_PRIVATE_MAX + 1] = {0};
	struct rdma_conn_attr attr = {.private_data = bytes, .private_len = 57};
	struct sockaddr_in group = {.sin_family = AF_INET, .sin_addr.s_addr = RTE_BE32(0xef000001)};
	struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = {{{0xfd, [15] = 1}}}};
	struct sockaddr other = {.sa_family = AF_UNIX};
	const struct rdma_event *e;
	struct rdma_conn *listener;
	struct pair p = {0};

	open_ip4();
	listener = rdma_conn_listen(rig[B].dev, RDMA_QP_RC, PORT, 4, NULL);
	p.qp[A] = rig_qp(A, RDMA_QP_RC);
	assert_null(rdma_conn_connect(p.qp[A], rig_address(B, PORT), &attr));
	assert_int_equal(rte_errno, EINVAL);
	assert_null(rdma_conn_connect(p.qp[A], (struct sockaddr *)&group, NULL));
	assert_int_equal(rte_errno, EINVAL);
	assert_null(rdma_conn_connect(p.qp[A], (struct sockaddr *)&six, NULL));
	assert_int_equal(rte_errno, EAFNOSUPPORT);
	assert_null(rdma_conn_connect(p.qp[A], &other, NULL));
	assert_int_equal(rte_errno, EAFNOSUPPORT);
	attr.private_len = 56;
	/* an MTU that a message cannot express */
	attr.mtu = 1000;
	assert_null(rdma_conn_connect(p.qp[A], rig_address(B, PORT), &attr));
	assert_int_equal(rte_errno, EINVAL);
	attr.mtu = 0;
	p.conn[A] = rdma_conn_connect(p.qp[A], rig_address(B, PORT), &attr);
	assert_non_null(p.conn[A]);
	assert_null(rdma_conn_connect(p.qp[A], rig_address(B, PORT), &attr));
	e = rig_event(B, RDMA_EVENT_CONNECT_REQUEST, 100);
	p.conn[B] = e->conn;
	p.qp[B] = rig_qp(B, RDMA_QP_UC);
	assert_int_equal(rdma_conn_accept(p.conn[B], p.qp[B], NULL), -EINVAL);
	assert_int_equal(rdma_qp_destroy(p.qp[B]), 0);
	p.qp[B] = rig_qp(B, RDMA_QP_RC);
	attr.private_len = 197;
	assert_int_equal(rdma_conn_accept(p.conn[B], p.qp[B], &attr), -EINVAL);
	assert_int_equal(rdma_conn_reject(p.conn[B], bytes, 149), -EINVAL);
	attr.private_len = 196;
	assert_int_equal(rdma_conn_accept(p.conn[B], p.qp[B], &attr), 0);
	rig_event(A, RDMA_EVENT_ESTABLISHED, 100);
	destroy(&p);
	finish(listener);
}

static void
test_unreachable(void **state)
{
	struct rdma_conn_attr attr = {.timeout_ms = 1500};
	struct rdma_conn *listener;
	struct pair p = {0};

	open_ip4();
	listener = rdma_conn_listen(rig[B].dev, RDMA_QP_RC, PORT, 4, NULL);
	rig_run(10);
	/* no ARP reply */
	rig_wire.lose = 1000;
	connect_pair(&p, RDMA_QP_RC, NULL);
	rig_run(2500);
	assert_false(rig_has_event(A));
	assert_int_equal(rig_event(A, RDMA_EVENT_UNREACHABLE, 1000)->status, -EHOSTUNREACH);
	assert_int_equal(rig_stat(A, "neighbors_failed"), 1);
	destroy(&p);
	rig_run(3000);
	connect_pair(&p, RDMA_QP_RC, &attr);
	assert_int_equal(rig_event(A, RDMA_EVENT_UNREACHABLE, 1600)->status, -ETIMEDOUT);
	destroy(&p);

	/* resolved, but its CM does not answer */
	rig_run(5000);
	rig_wire.lose = 0;
	connect_pair(&p, RDMA_QP_RC, NULL);
	accept_pair(&p, RDMA_QP_RC);
	rig_event(A, RDMA_EVENT_ESTABLISHED, 1000);
	rig_event(B, RDMA_EVENT_ESTABLISHED, 1000);
	destroy(&p);
	rig_run(2000);
	rig_wire.lose = 1000;
	connect_pair(&p, RDMA_QP_RC, &attr);
	rig_run(1400);
	assert_false(rig_has_event(A));
	assert_int_equal(rig_event(A, RDMA_EVENT_UNREACHABLE, 200)->status, -ETIMEDOUT);
	assert_int_equal(rig_stat(A, "cm_timeouts"), 1);
	assert_true(rig_stat(A, "cm_retransmits") >= 2);
	destroy(&p);
	finish(listener);
}

/* Each message of the handshake and of the disconnect is lost once. */
static void
test_lost_once(void **state)
{
	static const unsigned int lost[] = {
		ROCE_CM_REQ, ROCE_CM_REP, ROCE_CM_RTU, ROCE_CM_DREQ, ROCE_CM_DREP};

	for (size_t i = 0; i < RTE_DIM(lost); i++) {
		struct rdma_conn *listener;
		struct pair p = {0};

		open_ip4();
		listener = rdma_conn_listen(rig[B].dev, RDMA_QP_RC, PORT, 4, NULL);
		rig_wire.lose_next = 1u << (lost[i] - ROCE_CM_REQ);
		establish(&p, RDMA_QP_RC);
		assert_int_equal(rdma_conn_disconnect(p.conn[A]), 0);
		rig_event(A, RDMA_EVENT_DISCONNECTED, 1000);
		rig_event(B, RDMA_EVENT_DISCONNECTED, 1000);
		rig_event(A, RDMA_EVENT_TIMEWAIT_EXIT, 2000);
		rig_event(B, RDMA_EVENT_TIMEWAIT_EXIT, 2000);
		assert_int_equal(rig_wire.lost, 1);
		assert_true(rig_stat(A, "cm_retransmits") + rig_stat(B, "cm_retransmits") >= 1);
		destroy(&p);
		finish(listener);
	}
}

/* The application is slow: repeated REQs get an MRA, which stops them. */
static void
test_slow_application(void **state)
{
	const struct rdma_event *e;
	struct rdma_conn *listener;
	struct pair p = {0};
	uint64_t sent;

	open_ip4();
	listener = rdma_conn_listen(rig[B].dev, RDMA_QP_RC, PORT, 4, NULL);
	connect_pair(&p, RDMA_QP_RC, NULL);
	e = rig_event(B, RDMA_EVENT_CONNECT_REQUEST, 100);
	p.conn[B] = e->conn;
	rig_run(500);
	sent = rig_stat(A, "cm_tx");
	assert_int_equal(sent, 2); /* the REQ and its repetition */
	assert_int_equal(rig_stat(B, "cm_duplicates"), 1);
	assert_int_equal(rig_stat(B, "cm_tx"), 1);
	rig_run(3500);
	assert_int_equal(rig_stat(A, "cm_tx"), sent);
	p.qp[B] = rig_qp(B, RDMA_QP_RC);
	assert_int_equal(rdma_conn_accept(p.conn[B], p.qp[B], NULL), 0);
	rig_event(A, RDMA_EVENT_ESTABLISHED, 100);
	rig_event(B, RDMA_EVENT_ESTABLISHED, 100);
	destroy(&p);

	/* too slow: the peer has timed out */
	connect_pair(&p, RDMA_QP_RC, NULL);
	p.conn[B] = rig_event(B, RDMA_EVENT_CONNECT_REQUEST, 2000)->conn;
	rig_event(A, RDMA_EVENT_UNREACHABLE, 11000);
	rig_event(B, RDMA_EVENT_REJECTED, 100);
	p.qp[B] = rig_qp(B, RDMA_QP_RC);
	assert_int_equal(rdma_conn_accept(p.conn[B], p.qp[B], NULL), -ENOTCONN);
	destroy(&p);
	finish(listener);
}

static void
test_mtu(void **state)
{
	struct rdma_qp_info info;
	struct rdma_conn *listener;
	struct rdma_conn_attr attr = {.mtu = 256};
	struct pair p = {0};

	/* the device announces its MTU */
	open_both("ip=10.99.0.2/24,mtu=1024", "ip=10.99.0.1/24,mtu=512");
	listener = rdma_conn_listen(rig[B].dev, RDMA_QP_RC, PORT, 4, NULL);
	establish(&p, RDMA_QP_RC);
	for (unsigned int s = 0; s < 2; s++) {
		assert_int_equal(rdma_qp_info_get(p.qp[s], &info), 0);
		assert_int_equal(info.mtu, 512);
	}
	assert_int_equal(rig_stat(B, "cm_bad_mtu"), 1);
	destroy(&p);
	rig_run(2000);
	/* the queue pair announces its MTU */
	connect_pair(&p, RDMA_QP_RC, NULL);
	p.conn[B] = rig_event(B, RDMA_EVENT_CONNECT_REQUEST, 1000)->conn;
	p.qp[B] = rig_qp(B, RDMA_QP_RC);
	assert_int_equal(rdma_conn_accept(p.conn[B], p.qp[B], &attr), -EINVAL);
	assert_int_equal(rdma_conn_destroy(p.conn[B]), 0);
	assert_int_equal(rdma_qp_destroy(p.qp[B]), 0);
	accept_pair(&p, RDMA_QP_RC);
	rig_event(A, RDMA_EVENT_ESTABLISHED, 1000);
	rig_event(B, RDMA_EVENT_ESTABLISHED, 1000);
	assert_int_equal(rdma_qp_info_get(p.qp[A], &info), 0);
	assert_int_equal(info.mtu, 256);
	destroy(&p);
	finish(listener);
}

/* perftest -R uses one port for its control connection and the measured one */
static void
test_two_on_one_listener(void **state)
{
	struct rdma_conn *listener;
	struct pair p[2] = {0};

	open_ip4();
	listener = rdma_conn_listen(rig[B].dev, RDMA_QP_RC, PORT, 4, NULL);
	establish(&p[0], RDMA_QP_RC);
	establish(&p[1], RDMA_QP_RC);
	/* connections survive their listener */
	assert_int_equal(rdma_conn_destroy(listener), 0);
	rig_run(100);
	assert_false(rig_has_event(A));
	assert_int_equal(state_of(p[0].qp[B]), RDMA_QP_RTS);
	assert_int_equal(rdma_conn_disconnect(p[0].conn[B]), 0);
	assert_ptr_equal(rig_event(A, RDMA_EVENT_DISCONNECTED, 100)->conn, p[0].conn[A]);
	assert_ptr_equal(rig_event(B, RDMA_EVENT_DISCONNECTED, 100)->conn, p[0].conn[B]);
	assert_int_equal(state_of(p[1].qp[A]), RDMA_QP_RTS);
	destroy(&p[0]);
	destroy(&p[1]);
	finish(NULL);
}

/* Both disconnect at the same time: the DREQs cross. */
static void
test_both_disconnect(void **state)
{
	struct rdma_conn *listener;
	struct pair p = {0};

	open_ip4();
	listener = rdma_conn_listen(rig[B].dev, RDMA_QP_RC, PORT, 4, NULL);
	establish(&p, RDMA_QP_RC);
	assert_int_equal(rdma_conn_disconnect(p.conn[A]), 0);
	assert_int_equal(rdma_conn_disconnect(p.conn[B]), 0);
	rig_event(A, RDMA_EVENT_DISCONNECTED, 100);
	rig_event(B, RDMA_EVENT_DISCONNECTED, 100);
	rig_event(A, RDMA_EVENT_TIMEWAIT_EXIT, 2000);
	rig_event(B, RDMA_EVENT_TIMEWAIT_EXIT, 2000);
	destroy(&p);
	finish(listener);
}

/* The peer vanishes: the connection still ends, within the configured time. */
static void
test_peer_vanishes(void **state)
{
	struct rdma_conn *listener;
	struct pair p = {0};

	open_ip4();
	listener = rdma_conn_listen(rig[B].dev, RDMA_QP_RC, PORT, 4, NULL);
	establish(&p, RDMA_QP_RC);
	rig_wire.lose = 1000;
	assert_int_equal(rdma_conn_disconnect(p.conn[A]), 0);
	assert_int_equal(rig_event(A, RDMA_EVENT_DISCONNECTED, 10100)->status, -ETIMEDOUT);
	rig_event(A, RDMA_EVENT_TIMEWAIT_EXIT, 2000);
	rig_wire.lose = 0;
	/* B does not know yet; its message is answered by us */
	assert_int_equal(rdma_conn_destroy(p.conn[A]), 0);
	p.conn[A] = NULL;
	assert_int_equal(rdma_conn_disconnect(p.conn[B]), 0);
	rig_event(B, RDMA_EVENT_DISCONNECTED, 100);
	assert_int_equal(rig_stat(A, "cm_unmatched"), 1);
	destroy(&p);
	finish(listener);

	/* while B waits for the RTU */
	open_ip4();
	listener = rdma_conn_listen(rig[B].dev, RDMA_QP_RC, PORT, 4, NULL);
	connect_pair(&p, RDMA_QP_RC, NULL);
	p.conn[B] = rig_event(B, RDMA_EVENT_CONNECT_REQUEST, 100)->conn;
	rig_wire.lose = 1000;
	p.qp[B] = rig_qp(B, RDMA_QP_RC);
	assert_int_equal(rdma_conn_accept(p.conn[B], p.qp[B], NULL), 0);
	assert_int_equal(rig_event(B, RDMA_EVENT_UNREACHABLE, 10100)->status, -ETIMEDOUT);
	assert_int_equal(state_of(p.qp[B]), RDMA_QP_ERROR);
	rig_event(B, RDMA_EVENT_TIMEWAIT_EXIT, 2000);
	rig_event(A, RDMA_EVENT_UNREACHABLE, 100);
	destroy(&p);
	finish(listener);
}

/*
 * The peer of an idle connection vanishes. With keepalives this is detected, and an idle but living
 * peer is not disconnected. Without keepalives it is not detected. UC has no acknowledgements, so
 * it has no keepalives.
 */
static void
test_keepalive(void **state)
{
	const struct rdma_conn_attr attr = {.keepalive_ms = 4000};
	struct rdma_conn *listener;
	struct pair p = {0};
	uint64_t asked;

	open_ip4();
	listener = rdma_conn_listen(rig[B].dev, RDMA_QP_RC, PORT, 4, NULL);
	connect_pair(&p, RDMA_QP_RC, &attr);
	accept_pair(&p, RDMA_QP_RC);
	rig_event(A, RDMA_EVENT_ESTABLISHED, 100);
	rig_event(B, RDMA_EVENT_ESTABLISHED, 100);
	rig_jump(60000, 10);
	assert_false(rig_has_event(A));
	assert_in_range(rig_stat(A, "tx_keepalives"), 10, 20);
	assert_int_equal(rig_stat(B, "tx_keepalives"), 0);
	assert_int_equal(rig_stat(B, "qp_errors"), 0);
	/* some of the keepalives are lost */
	rig_wire.lose = 1000;
	rig_jump(3000, 10);
	rig_wire.lose = 0;
	rig_jump(20000, 10);
	assert_false(rig_has_event(A));
	/* no keepalives while the peer sends */
	asked = rig_stat(A, "tx_keepalives");
	for (unsigned int i = 0; i < 10; i++) {
		const struct rdma_send_wr wr = {.op = RDMA_OP_WRITE};

		assert_int_equal(rdma_post_send(p.qp[i & 1 ? A : B], &wr, 1), 1);
		rig_jump(2000, 10);
	}
	assert_int_equal(rig_stat(A, "tx_keepalives"), asked);
	rig_wire.lose = 1000;
	assert_int_equal(rig_event(A, RDMA_EVENT_DISCONNECTED, 12100)->status, -ETIMEDOUT);
	assert_int_equal(state_of(p.qp[A]), RDMA_QP_ERROR);
	rig_event(A, RDMA_EVENT_TIMEWAIT_EXIT, 2000);
	rig_jump(60000, 10);
	assert_false(rig_has_event(B));
	destroy(&p);
	finish(listener);

	open_ip4();
	listener = rdma_conn_listen(rig[B].dev, RDMA_QP_UC, PORT, 4, NULL);
	connect_pair(&p, RDMA_QP_UC, &attr);
	accept_pair(&p, RDMA_QP_UC);
	rig_event(A, RDMA_EVENT_ESTABLISHED, 100);
	rig_event(B, RDMA_EVENT_ESTABLISHED, 100);
	rig_jump(20000, 10);
	assert_false(rig_has_event(A));
	assert_int_equal(rig_stat(A, "tx_keepalives"), 0);
	destroy(&p);
	finish(listener);
}

/*
 * Disconnects by either side in every state, with destroy alone: no state is left, and no side
 * waits forever.
 */
static void
test_destroy_everywhere(void **state)
{
	enum when {
		RESOLVING,
		REQ_SENT,
		REQ_UNSEEN, /* B's event was not polled */
		REQ_RECEIVED,
		REP_SENT,
		ESTABLISHED,
		DREQ_SENT,
		TIMEWAIT,
		CLOSED,
		WHENS
	};

	for (unsigned int when = 0; when < WHENS; when++)
		for (unsigned int who = 0; who < 3; who++) {
			struct rdma_conn *listener;
			struct pair p = {0};

			open_ip4();
			listener = rdma_conn_listen(rig[B].dev, RDMA_QP_RC, PORT, 4, NULL);
			rig_run(2500);
			if (when <= REQ_SENT)
				rig_wire.lose = 1000;
			connect_pair(&p, RDMA_QP_RC, NULL);
			if (when == REQ_SENT) {
				/* its address is resolved in time */
				rig_wire.lose = 0;
				rig_wire.lose_next = ~0u;
				rig_run(300);
				rig_wire.lose = 1000;
			}
			if (when == REQ_UNSEEN) {
				rig_run(20);
				/* the rig has polled it: undo this */
				assert_true(rig_has_event(B));
				p.conn[B] = rig_event(B, RDMA_EVENT_CONNECT_REQUEST, 1)->conn;
			}
			if (when == REQ_RECEIVED)
				p.conn[B] = rig_event(B, RDMA_EVENT_CONNECT_REQUEST, 100)->conn;
			if (when >= REP_SENT) {
				if (when == REP_SENT)
					rig_wire.lose_next = 1u << (ROCE_CM_REP - ROCE_CM_REQ);
				accept_pair(&p, RDMA_QP_RC);
				rig_run(50);
			}
			if (when >= DREQ_SENT) {
				rig_wire.lose_next =
					when == DREQ_SENT ? 1u << (ROCE_CM_DREQ - ROCE_CM_REQ) : 0;
				assert_int_equal(rdma_conn_disconnect(p.conn[A]), 0);
				rig_run(when == CLOSED ? 3000 : 50);
			}
			if (who != B && p.conn[A]) {
				assert_int_equal(rdma_conn_destroy(p.conn[A]), 0);
				assert_int_equal(rdma_qp_destroy(p.qp[A]), 0);
				p.conn[A] = NULL;
				p.qp[A] = NULL;
			}
			if (who != A && p.conn[B]) {
				assert_int_equal(rdma_conn_destroy(p.conn[B]), 0);
				if (p.qp[B])
					assert_int_equal(rdma_qp_destroy(p.qp[B]), 0);
				p.conn[B] = NULL;
				p.qp[B] = NULL;
			}
			rig_run(12000);
			/* each remaining side has got an event */
			if (p.conn[A] && (p.conn[B] || who == B))
				assert_true(rig_has_event(A));
			for (unsigned int s = 0; s < 2; s++)
				if (p.qp[s] && when >= ESTABLISHED)
					assert_int_equal(state_of(p.qp[s]), RDMA_QP_ERROR);
			/* a request that arrived too late for the checks above */
			while (rig_has_event(B)) {
				struct rdma_event *e = &rig[B].events[rig[B].taken++];

				if (e->type == RDMA_EVENT_CONNECT_REQUEST)
					rdma_conn_reject(e->conn, NULL, 0);
			}
			destroy(&p);
			finish(listener);
		}
}

static void
test_sidr(void **state)
{
	struct rdma_conn *listener, *asked[2], *answered;
	struct rdma_qp *client, *server;
	const struct rdma_event *e;

	open_ip4();
	client = rig_qp(A, RDMA_QP_UD);
	server = rig_qp(B, RDMA_QP_UD);
	asked[0] = rdma_conn_connect(client, rig_address(B, PORT), NULL);
	assert_int_equal(rig_event(A, RDMA_EVENT_REJECTED, 100)->status, ROCE_SIDR_UNSUPPORTED);
	assert_int_equal(rdma_conn_destroy(asked[0]), 0);

	listener = rdma_conn_listen(rig[B].dev, RDMA_QP_UD, PORT, 1, NULL);
	/* the reply is lost: the request is repeated and gets the stored reply */
	rig_wire.lose_next = 1u << (ROCE_CM_SIDR_REP - ROCE_CM_REQ);
	asked[0] = rdma_conn_connect(client, rig_address(B, PORT), with_data("what is"));
	e = rig_event(B, RDMA_EVENT_CONNECT_REQUEST, 100);
	assert_int_equal(e->private_len, 180);
	assert_string_equal((const char *)e->private_data, "what is");
	answered = e->conn;
	/* the listener's backlog is full */
	asked[1] = rdma_conn_connect(client, rig_address(B, PORT), NULL);
	rig_run(10);
	assert_int_equal(rig_stat(B, "cm_backlog_full"), 1);
	assert_int_equal(rdma_conn_accept(answered, server, with_data("that")), 0);
	rig_event(B, RDMA_EVENT_ESTABLISHED, 10);
	assert_int_equal(rdma_conn_destroy(answered), 0);
	e = rig_event(A, RDMA_EVENT_ESTABLISHED, 1000);
	assert_ptr_equal(e->conn, asked[0]);
	assert_non_null(e->ah);
	assert_int_equal(e->remote_qpn, server->qpn);
	assert_int_equal(e->remote_qkey, ROCE_RDMA_UDP_QKEY);
	assert_int_equal(e->private_len, 136);
	assert_string_equal((const char *)e->private_data, "that");
	assert_int_equal(state_of(client), RDMA_QP_RTS);
	assert_int_equal(rig_wire.lost, 1);
	assert_true(rig_stat(B, "cm_duplicates") >= 1);
	/* the other request is repeated, too, and is refused */
	e = rig_event(B, RDMA_EVENT_CONNECT_REQUEST, 1000);
	assert_int_equal(rdma_conn_reject(e->conn, "no", 3), 0);
	e = rig_event(A, RDMA_EVENT_REJECTED, 100);
	assert_int_equal(e->status, ROCE_SIDR_REJECTED);
	assert_string_equal((const char *)e->private_data, "no");
	assert_int_equal(rdma_conn_disconnect(asked[0]), -ENOTCONN);
	assert_int_equal(rdma_conn_destroy(asked[0]), 0);
	assert_int_equal(rdma_conn_destroy(asked[1]), 0);
	assert_int_equal(rdma_qp_destroy(client), 0);
	assert_int_equal(rdma_qp_destroy(server), 0);
	finish(listener);
}

static void
test_first_packet(void **state)
{
	static uint8_t bytes[64] __rte_aligned(64);
	const struct rdma_mr_attr mr_attr = {.addr = bytes,
		.length = sizeof(bytes),
		.access = RDMA_ACCESS_LOCAL_WRITE,
		.gpu = -1};
	struct rdma_mr *mr[2];
	struct rdma_conn *listener;
	struct rdma_wc wc;
	struct pair p = {0};

	open_ip4();
	for (unsigned int s = 0; s < 2; s++) {
		mr[s] = rdma_mr_reg(rig[s].pd, &mr_attr);
		assert_non_null(mr[s]);
	}
	listener = rdma_conn_listen(rig[B].dev, RDMA_QP_RC, PORT, 4, NULL);
	connect_pair(&p, RDMA_QP_RC, NULL);
	rig_wire.lose_next = 1u << (ROCE_CM_RTU - ROCE_CM_REQ);
	accept_pair(&p, RDMA_QP_RC);
	rig_event(A, RDMA_EVENT_ESTABLISHED, 100);
	assert_false(rig_has_event(B));
	const struct rdma_sge to = {(uintptr_t)bytes + 32, 8, rdma_mr_lkey(mr[B])};
	const struct rdma_sge from = {(uintptr_t)bytes, 8, rdma_mr_lkey(mr[A])};
	const struct rdma_recv_wr recv = {.sg = &to, .nb_sge = 1};
	const struct rdma_send_wr send = {
		.sg = &from, .nb_sge = 1, .op = RDMA_OP_SEND, .flags = RDMA_SEND_SIGNALED};
	assert_int_equal(rdma_post_recv(p.qp[B], &recv, 1), 1);
	assert_int_equal(rdma_post_send(p.qp[A], &send, 1), 1);
	rig_event(B, RDMA_EVENT_ESTABLISHED, 20);
	assert_int_equal(rig_stat(B, "cm_first_packets"), 1);
	assert_int_equal(rdma_poll_cq(rig[B].cq, &wc, 1), 1);
	assert_int_equal(wc.status, RDMA_WC_SUCCESS);
	assert_int_equal(rdma_poll_cq(rig[A].cq, &wc, 1), 1);
	/* the REP is no longer repeated */
	rig_run(3000);
	assert_int_equal(rig_stat(B, "cm_retransmits"), 0);
	destroy(&p);
	for (unsigned int s = 0; s < 2; s++)
		assert_int_equal(rdma_mr_dereg(mr[s]), 0);
	finish(listener);
}

/*
 * A queue pair by reference that only receives accepts a connection: it takes packets of the
 * sender of the REQ. The first one replaces the RTU, which is lost.
 */
static void
test_reference(void **state)
{
	static uint8_t bytes[3000];
	const struct rdma_mr_attr mr_attr = {.addr = bytes, .length = sizeof(bytes), .gpu = -1};
	const struct rdma_roce_reference by = {
		.base = 4096, .length = 4096, .rkey = 7, .max_bytes = sizeof(bytes)};
	struct rdma_qp_attr attr = {.type = RDMA_QP_UC, .receive_only = true, .reference = &by};
	struct rdma_roce_message message;
	struct rdma_conn *listener;
	struct pair p = {0};
	struct rdma_mr *mr;

	open_ip4();
	mr = rdma_mr_reg(rig[A].pd, &mr_attr);
	listener = rdma_conn_listen(rig[B].dev, RDMA_QP_UC, PORT, 4, NULL);
	connect_pair(&p, RDMA_QP_UC, NULL);
	rig_wire.lose_next = 1u << (ROCE_CM_RTU - ROCE_CM_REQ);
	p.conn[B] = rig_event(B, RDMA_EVENT_CONNECT_REQUEST, 100)->conn;
	attr.send_cq = attr.recv_cq = rig[B].cq;
	p.qp[B] = rdma_qp_create(rig[B].pd, &attr);
	assert_non_null(p.qp[B]);
	assert_int_equal(rdma_conn_accept(p.conn[B], p.qp[B], NULL), 0);
	assert_int_equal(state_of(p.qp[B]), RDMA_QP_RTR);
	rig_event(A, RDMA_EVENT_ESTABLISHED, 100);
	const struct rdma_sge sge = {(uintptr_t)bytes, sizeof(bytes), rdma_mr_lkey(mr)};
	const struct rdma_send_wr wr = {.sg = &sge,
		.nb_sge = 1,
		.op = RDMA_OP_WRITE_IMM,
		.remote_addr = 4096 + 96,
		.rkey = 7,
		.imm = 5};
	assert_int_equal(rdma_post_send(p.qp[A], &wr, 1), 1);
	rig_event(B, RDMA_EVENT_ESTABLISHED, 20);
	assert_int_equal(rdma_roce_poll_messages(rig[B].dev, 0, &message, 1), 1);
	assert_int_equal(message.length, sizeof(bytes));
	assert_int_equal(message.addr, 4096 + 96);
	assert_int_equal(message.imm, 5);
	rte_pktmbuf_free(message.m);
	destroy(&p);
	rig_run(10);
	assert_int_equal(rdma_mr_dereg(mr), 0);
	finish(listener);
}

/* Many connections over a wire with losses: each is established and closed at both ends. */
static void
test_bad_wire(void **state)
{
	unsigned int number;
	const struct rdma_conn_attr patient = {.timeout_ms = 60000,
		.cm_retries = 15,
		.private_data = &number,
		.private_len = sizeof(number)};
	struct rdma_conn *listener;
	unsigned int up = 0;

	rig_seed();
	open_ip4();
	listener = rdma_conn_listen(rig[B].dev, RDMA_QP_RC, PORT, 4, NULL);
	for (unsigned int i = 0; i < 100; i++) {
		bool down[2] = {false, false}, established[2] = {false, false};
		const unsigned int first = rig_random(2);
		struct pair p = {0};

		number = i;
		rig_wire.lose = 150;
		rig_wire.repeat = 150;
		rig_wire.delay = 200;
		connect_pair(&p, RDMA_QP_RC, &patient);
		for (unsigned int ms = 0; ms < 60000 && !(down[A] && down[B]); ms++) {
			rig_run(1);
			for (unsigned int s = 0; s < 2; s++) {
				const struct rdma_event *e;

				if (!rig_has_event(s))
					continue;
				e = &rig[s].events[rig[s].taken++];
				if (e->type == RDMA_EVENT_CONNECT_REQUEST) {
					/* or a late copy of a closed connection */
					if (memcmp(e->private_data, &i, sizeof(i)) != 0 ||
						p.conn[B]) {
						rdma_conn_reject(e->conn, NULL, 0);
						continue;
					}
					p.conn[B] = e->conn;
					p.qp[B] = rig_qp(B, RDMA_QP_RC);
					assert_int_equal(
						rdma_conn_accept(p.conn[B], p.qp[B], &patient), 0);
				} else if (e->type == RDMA_EVENT_ESTABLISHED) {
					established[s] = true;
				} else if (e->type == RDMA_EVENT_DISCONNECTED) {
					down[s] = true;
				} else if (e->type != RDMA_EVENT_TIMEWAIT_EXIT) {
					fail_msg("connection %u, station %u: %s, %d", i, s,
						rdma_event_name(e->type), e->status);
				}
			}
			if (established[A] && established[B] && !down[A] && !down[B])
				rdma_conn_disconnect(p.conn[first]);
		}
		assert_true(established[A] && established[B] && down[A] && down[B]);
		up++;
		destroy(&p);
		rig[A].nb_events = rig[A].taken = 0;
		while (rig_has_event(B)) {
			const struct rdma_event *e = &rig[B].events[rig[B].taken++];

			if (e->type == RDMA_EVENT_CONNECT_REQUEST)
				rdma_conn_reject(e->conn, NULL, 0);
		}
		rig[B].nb_events = rig[B].taken = 0;
	}
	print_message("%u connections, %u frames lost, %u repeated, %u late\n", up, rig_wire.lost,
		rig_wire.repeated, rig_wire.delayed);
	assert_true(rig_wire.lost > 50 && rig_wire.repeated > 50 && rig_wire.delayed > 50);
	/* late packets create requests that no side answers */
	memset(&rig_wire, 0, sizeof(rig_wire));
	rig_run(1000);
	while (rig_has_event(B)) {
		const struct rdma_event *e = &rig[B].events[rig[B].taken++];

		if (e->type == RDMA_EVENT_CONNECT_REQUEST)
			rdma_conn_reject(e->conn, NULL, 0);
	}
	finish(listener);
}

int
main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_handshake_ip4),
		cmocka_unit_test(test_handshake_ip6),
		cmocka_unit_test(test_handshake_uc),
		cmocka_unit_test(test_handshake_vlan),
		cmocka_unit_test(test_gateway),
		cmocka_unit_test(test_reject),
		cmocka_unit_test(test_arguments),
		cmocka_unit_test(test_unreachable),
		cmocka_unit_test(test_lost_once),
		cmocka_unit_test(test_slow_application),
		cmocka_unit_test(test_mtu),
		cmocka_unit_test(test_two_on_one_listener),
		cmocka_unit_test(test_both_disconnect),
		cmocka_unit_test(test_peer_vanishes),
		cmocka_unit_test(test_keepalive),
		cmocka_unit_test(test_destroy_everywhere),
		cmocka_unit_test(test_sidr),
		cmocka_unit_test(test_first_packet),
		cmocka_unit_test(test_reference),
		cmocka_unit_test(test_bad_wire),
	};
	int failed;

	rig_init(argv[0]);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	rig_exit();
	return failed;
}
