/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections, SIDR and multicast as specified by rdma.h, for any provider. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include <rte_common.h>
#include <rte_errno.h>

#include "rdma_rig.h"

static struct rig_end *const one = &rig.end[0], *const two = &rig.end[1];

#define PORT 7471
#define TO   (RIG_BYTES / 2)

/** An end's address with a port, or another host of its network. */
static struct sockaddr_storage
address(const struct rig_end *end, uint16_t port, uint8_t host)
{
	struct sockaddr_storage addr = end->info.addr;

	if (addr.ss_family == AF_INET) {
		struct sockaddr_in *sin = (struct sockaddr_in *)&addr;

		sin->sin_port = htons(port);
		if (host)
			((uint8_t *)&sin->sin_addr)[3] = host;
	} else {
		struct sockaddr_in6 *sin6 = (struct sockaddr_in6 *)&addr;

		sin6->sin6_port = htons(port);
		if (host)
			sin6->sin6_addr.s6_addr[15] = host;
	}
	return addr;
}

static struct rdma_conn *
connect_to(struct rdma_qp *qp, uint16_t port, const struct rdma_conn_attr *attr)
{
	struct sockaddr_storage addr = address(two, port, 0);
	struct rdma_conn *conn = rdma_conn_connect(qp, (struct sockaddr *)&addr, attr);

	assert_non_null(conn);
	return conn;
}

/** Listener, connection, both queue pairs. */
struct connected {
	struct rdma_qp *qp[2];
	struct rdma_conn *listener, *conn[2];
};

static uint32_t
qpn_of(const struct rdma_qp *qp)
{
	struct rdma_qp_info info;

	assert_int_equal(rdma_qp_info_get(qp, &info), 0);
	return info.qpn;
}

static void
established(const struct connected *c)
{
	struct rdma_event event = rig_event(one, RDMA_EVENT_ESTABLISHED);

	assert_ptr_equal(event.conn, c->conn[0]);
	assert_int_equal(event.remote_qpn, qpn_of(c->qp[1]));
	assert_ptr_equal(rig_event(two, RDMA_EVENT_ESTABLISHED).conn, c->conn[1]);
}

static void
connect_both(struct connected *c, enum rdma_qp_type type)
{
	static const char hello[] = "hello", welcome[] = "welcome";
	struct rdma_conn_attr attr = {.private_data = hello, .private_len = sizeof(hello)};
	struct rdma_event event;
	int context;

	c->qp[0] = rig_qp(one, type, NULL);
	c->qp[1] = rig_qp(two, type, NULL);
	c->listener = rdma_conn_listen(two->dev, type, PORT, 8, &context);
	assert_non_null(c->listener);
	c->conn[0] = connect_to(c->qp[0], PORT, &attr);
	event = rig_event(two, RDMA_EVENT_CONNECT_REQUEST);
	assert_ptr_equal(event.listener, c->listener);
	assert_int_equal(event.remote_qpn, qpn_of(c->qp[0]));
	assert_ptr_equal(rdma_conn_context(event.conn), &context);
	assert_true(event.private_len >= sizeof(hello));
	assert_memory_equal(event.private_data, hello, sizeof(hello));
	if (type == RDMA_QP_RC)
		assert_true(event.rd_atom >= 1 && event.responder_rd_atom >= 1);
	c->conn[1] = event.conn;
	attr.private_data = welcome;
	attr.private_len = sizeof(welcome);
	attr.context = c;
	rig_recv(c->qp[1], 1, rig_sge(two, TO, 4096));
	assert_int_equal(rdma_conn_accept(c->conn[1], c->qp[1], &attr), 0);
	assert_ptr_equal(rdma_conn_context(c->conn[1]), c);
}

static void
destroy_both(struct connected *c)
{
	assert_int_equal(rdma_qp_destroy(c->qp[0]), -EBUSY);
	assert_int_equal(rdma_dev_close(two->dev), -EBUSY);
	assert_int_equal(rdma_conn_destroy(c->conn[0]), 0);
	assert_int_equal(rdma_conn_destroy(c->conn[1]), 0);
	assert_int_equal(rdma_conn_destroy(c->listener), 0);
	rig_unpair(c->qp);
}

static void
send_through(struct connected *c)
{
	struct rdma_sge sge = rig_sge(one, 0, 3000);
	struct rdma_send_wr wr = rig_wr(RDMA_OP_SEND, 5, &sge);
	struct rdma_wc wc;

	rig_fill(one->memory, 3000, 1);
	rig_send(c->qp[0], &wr);
	wc = rig_wc(two);
	assert_int_equal(wc.status, RDMA_WC_SUCCESS);
	assert_ptr_equal(wc.qp, c->qp[1]);
	assert_int_equal(wc.byte_len, 3000);
	assert_true(rig_holds(two->memory + TO, 3000, 1));
	assert_int_equal(rig_wc(one).status, RDMA_WC_SUCCESS);
}

static void
connections_come_and_go(void **state)
{
	struct rdma_qp_info info;
	struct connected c;
	unsigned int i, end;

	/* disconnected by either side, repeatedly */
	for (i = 0; i < 4; i++) {
		connect_both(&c, RDMA_QP_RC);
		established(&c);
		send_through(&c);
		rig_recv(c.qp[1], 9, rig_sge(two, TO, 64));
		assert_int_equal(rdma_conn_disconnect(c.conn[i & 1]), 0);
		assert_int_equal(rig_wc(two).status, RDMA_WC_WR_FLUSH_ERR);
		for (end = 0; end < 2; end++) {
			rig_event(&rig.end[end], RDMA_EVENT_DISCONNECTED);
			rdma_qp_info_get(c.qp[end], &info);
			assert_int_equal(info.state, RDMA_QP_ERROR);
		}
		destroy_both(&c);
	}
}

static void
a_live_connection_may_be_destroyed(void **state)
{
	struct connected c;

	connect_both(&c, RDMA_QP_RC);
	established(&c);
	destroy_both(&c);
}

static void
a_request_may_be_rejected(void **state)
{
	static const char no[] = "not today";
	struct rdma_conn *listener, *conn;
	struct rdma_qp *qp = rig_qp(one, RDMA_QP_RC, NULL);
	struct rdma_event event;

	listener = rdma_conn_listen(two->dev, RDMA_QP_RC, PORT, 8, NULL);
	conn = connect_to(qp, PORT, NULL);
	event = rig_event(two, RDMA_EVENT_CONNECT_REQUEST);
	assert_int_equal(rdma_conn_reject(event.conn, no, sizeof(no)), 0);
	event = rig_event(one, RDMA_EVENT_REJECTED);
	assert_ptr_equal(event.conn, conn);
	assert_int_equal(event.status, 28);
	assert_true(event.private_len >= sizeof(no));
	assert_memory_equal(event.private_data, no, sizeof(no));
	assert_int_equal(rdma_conn_disconnect(conn), -ENOTCONN);
	assert_int_equal(rdma_conn_destroy(conn), 0);
	assert_int_equal(rdma_conn_destroy(listener), 0);
	assert_int_equal(rdma_qp_destroy(qp), 0);
}

static void
no_listener_and_no_host(void **state)
{
	const struct rdma_conn_attr attr = {.timeout_ms = 300};
	struct rdma_qp *qp = rig_qp(one, RDMA_QP_RC, NULL);
	struct sockaddr_storage addr = address(two, PORT, 250);
	struct rdma_conn *conn = connect_to(qp, PORT + 1, NULL);
	struct rdma_event event = rig_event(one, RDMA_EVENT_REJECTED);

	assert_ptr_equal(event.conn, conn);
	assert_int_equal(event.status, 8); /* invalid service ID */
	assert_int_equal(rdma_conn_destroy(conn), 0);

	conn = rdma_conn_connect(qp, (struct sockaddr *)&addr, &attr);
	assert_non_null(conn);
	event = rig_event(one, RDMA_EVENT_UNREACHABLE);
	assert_ptr_equal(event.conn, conn);
	assert_true(event.status < 0);
	assert_int_equal(rdma_conn_destroy(conn), 0);
	assert_int_equal(rdma_qp_destroy(qp), 0);
}

static void
silence_times_out(void **state)
{
	const struct rdma_conn_attr attr = {.timeout_ms = 3000};
	struct rdma_qp *qp = rig_qp(one, RDMA_QP_RC, NULL);
	struct rdma_conn *listener = rdma_conn_listen(two->dev, RDMA_QP_RC, PORT, 8, NULL);
	struct rdma_conn *conn = connect_to(qp, PORT, &attr);
	struct rdma_event request = rig_event(two, RDMA_EVENT_CONNECT_REQUEST), event;

	/* a request that is never answered */
	event = rig_event(one, RDMA_EVENT_UNREACHABLE);
	assert_ptr_equal(event.conn, conn);
	assert_int_equal(event.status, -ETIMEDOUT);
	assert_int_equal(rdma_conn_destroy(conn), 0);
	assert_int_equal(rdma_conn_destroy(request.conn), 0);
	assert_int_equal(rdma_conn_destroy(listener), 0);
	assert_int_equal(rdma_qp_destroy(qp), 0);
}

static void
arguments_are_checked(void **state)
{
	static const uint8_t much[256];
	const struct rdma_conn_attr attr = {.private_data = much, .private_len = 57};
	struct rdma_qp *qp = rig_qp(one, RDMA_QP_RC, NULL);
	struct sockaddr_storage addr = address(two, PORT, 0);
	struct rdma_conn *listener;

	assert_null(rdma_conn_connect(qp, (struct sockaddr *)&addr, &attr));
	assert_int_equal(rte_errno, EINVAL);
	addr.ss_family = AF_UNIX;
	assert_null(rdma_conn_connect(qp, (struct sockaddr *)&addr, NULL));
	assert_int_equal(rte_errno, EAFNOSUPPORT);
	listener = rdma_conn_listen(two->dev, RDMA_QP_RC, PORT, 8, NULL);
	assert_non_null(listener);
	assert_null(rdma_conn_listen(two->dev, RDMA_QP_RC, PORT, 8, NULL));
	assert_int_equal(rte_errno, EADDRINUSE);
	assert_int_equal(rdma_conn_destroy(listener), 0);
	assert_null(rdma_multicast_join(qp, (struct sockaddr *)&one->info.addr, NULL));
	assert_int_equal(rte_errno, EINVAL);
	assert_int_equal(rdma_qp_destroy(qp), 0);
}

static void
unreliable_connections_too(void **state)
{
	struct connected c;

	connect_both(&c, RDMA_QP_UC);
	established(&c);
	send_through(&c);
	destroy_both(&c);
}

static void
a_service_is_looked_up(void **state)
{
	struct rdma_sge sge = rig_sge(one, 0, 512);
	struct rdma_send_wr wr = rig_wr(RDMA_OP_SEND, 5, &sge);
	struct rdma_qp *qp[2] = {rig_qp(one, RDMA_QP_UD, NULL), rig_qp(two, RDMA_QP_UD, NULL)};
	struct rdma_conn *listener = rdma_conn_listen(two->dev, RDMA_QP_UD, PORT, 8, NULL);
	struct rdma_conn *conn = connect_to(qp[0], PORT, NULL);
	struct rdma_event request = rig_event(two, RDMA_EVENT_CONNECT_REQUEST), event;
	struct rdma_qp_info info;
	struct rdma_wc wc;

	assert_int_equal(rdma_conn_accept(request.conn, qp[1], NULL), 0);
	event = rig_event(two, RDMA_EVENT_ESTABLISHED);
	assert_ptr_equal(event.conn, request.conn);
	assert_int_equal(rdma_conn_destroy(request.conn), 0);
	event = rig_event(one, RDMA_EVENT_ESTABLISHED);
	assert_ptr_equal(event.conn, conn);
	assert_non_null(event.ah);
	rdma_qp_info_get(qp[1], &info);
	assert_int_equal(event.remote_qpn, info.qpn);

	rig_recv(qp[1], 2, rig_sge(two, TO, 512 + RDMA_GRH_BYTES));
	rig_fill(one->memory, 512, 3);
	wr.ud.ah = event.ah;
	wr.ud.remote_qpn = event.remote_qpn;
	wr.ud.remote_qkey = event.remote_qkey;
	rig_send(qp[0], &wr);
	wc = rig_wc(two);
	assert_int_equal(wc.status, RDMA_WC_SUCCESS);
	assert_true(rig_holds(two->memory + TO + RDMA_GRH_BYTES, 512, 3));
	assert_int_equal(rig_wc(one).status, RDMA_WC_SUCCESS);
	assert_int_equal(rdma_conn_destroy(conn), 0);
	assert_int_equal(rdma_conn_destroy(listener), 0);

	/* and one to a station that does not exist */
	conn = connect_to(qp[0], PORT + 1, NULL);
	event = rig_event(one, RDMA_EVENT_REJECTED);
	assert_ptr_equal(event.conn, conn);
	assert_true(event.status > 0);
	assert_int_equal(rdma_conn_destroy(conn), 0);
	rig_unpair(qp);
}

static void
groups_are_joined(void **state)
{
	struct sockaddr_in group = {.sin_family = AF_INET};
	struct rdma_sge sge = rig_sge(one, 0, 256);
	struct rdma_send_wr wr = rig_wr(RDMA_OP_SEND, 5, &sge);
	struct rdma_qp *qp[2] = {rig_qp(one, RDMA_QP_UD, NULL), rig_qp(two, RDMA_QP_UD, NULL)};
	struct rdma_conn *member[2];
	struct rdma_event event;
	struct rdma_wc wc;
	unsigned int i;

	if (one->info.addr.ss_family != AF_INET) {
		print_message("skipped: an address of IPv4\n");
		skip();
	}
	inet_pton(AF_INET, "239.1.2.3", &group.sin_addr);
	for (i = 0; i < 2; i++) {
		struct rig_end *end = &rig.end[i];

		member[i] = rdma_multicast_join(qp[i], (struct sockaddr *)&group, &group);
		assert_non_null(member[i]);
		event = rig_event(end, RDMA_EVENT_MULTICAST_JOINED);
		assert_ptr_equal(event.conn, member[i]);
		assert_ptr_equal(rdma_conn_context(member[i]), &group);
		assert_int_equal(event.remote_qpn, 0xffffff);
		rig_recv(qp[i], 10 + i, rig_sge(end, TO, 256 + RDMA_GRH_BYTES));
	}
	sge = rig_sge(two, 0, 256);
	rig_fill(two->memory, 256, 4);
	wr.ud.ah = event.ah;
	wr.ud.remote_qpn = event.remote_qpn;
	wr.ud.remote_qkey = event.remote_qkey;
	rig_send(qp[1], &wr);
	do
		wc = rig_wc(one);
	while (wc.op != RDMA_WC_RECV);
	assert_int_equal(wc.status, RDMA_WC_SUCCESS);
	assert_int_equal(wc.wr_id, 10);
	assert_true(rig_holds(one->memory + TO + RDMA_GRH_BYTES, 256, 4));
	assert_int_equal(rdma_qp_destroy(qp[0]), -EBUSY);
	for (i = 0; i < 2; i++)
		assert_int_equal(rdma_conn_destroy(member[i]), 0);
	rig_unpair(qp);
}

int
main(int argc, char **argv)
{
	const struct CMUnitTest test[] = {
		cmocka_unit_test(connections_come_and_go),
		cmocka_unit_test(a_live_connection_may_be_destroyed),
		cmocka_unit_test(a_request_may_be_rejected),
		cmocka_unit_test(no_listener_and_no_host),
		cmocka_unit_test(silence_times_out),
		cmocka_unit_test(arguments_are_checked),
		cmocka_unit_test(unreliable_connections_too),
		cmocka_unit_test(a_service_is_looked_up),
		cmocka_unit_test(groups_are_joined),
	};
	const int unable = rig_open(argc, argv);

	return unable ? unable : rig_close(cmocka_run_group_tests(test, NULL, NULL));
}
