/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ports that are removed while connections are established: one sends a removal event first, the
 * other does not.
 */
#include <errno.h>
#include <netinet/in.h>

#include <rte_common.h>
#include <rte_errno.h>
#include <rte_ethdev.h>

#include <ethdev_driver.h>

#include "../rdma/rdma_rig.h"

static struct rig_end *const one = &rig.end[0], *const two = &rig.end[1];

#define SERVICE 7471

static struct rdma_qp *qp[2], *by_hand[2];
static struct rdma_conn *listener, *conn[2];

static void
connected(void **state)
{
	struct sockaddr_storage addr = two->info.addr;

	((struct sockaddr_in *)&addr)->sin_port = RTE_BE16(SERVICE);
	qp[0] = rig_qp(one, RDMA_QP_RC, NULL);
	qp[1] = rig_qp(two, RDMA_QP_RC, NULL);
	listener = rdma_conn_listen(two->dev, RDMA_QP_RC, SERVICE, 8, NULL);
	assert_non_null(listener);
	conn[0] = rdma_conn_connect(qp[0], (struct sockaddr *)&addr, NULL);
	assert_non_null(conn[0]);
	conn[1] = rig_event(two, RDMA_EVENT_CONNECT_REQUEST).conn;
	assert_int_equal(rdma_conn_accept(conn[1], qp[1], NULL), 0);
	rig_event(one, RDMA_EVENT_ESTABLISHED);
	rig_event(two, RDMA_EVENT_ESTABLISHED);
	rig_pair(RDMA_QP_RC, NULL, by_hand);
}

/** Events of an end, and its remaining operations. */
static void
ends(unsigned int side)
{
	struct rig_end *end = &rig.end[side];
	struct sockaddr_storage addr = rig.end[!side].info.addr;
	struct rdma_event event = rig_event(end, RDMA_EVENT_DEVICE_REMOVED);
	struct rdma_qp_info info;
	struct rdma_qp *late;
	struct rdma_wc wc;

	assert_int_equal(event.status, -ENODEV);
	assert_null(event.conn);
	event = rig_event(end, RDMA_EVENT_DISCONNECTED);
	assert_ptr_equal(event.conn, conn[side]);
	assert_int_equal(event.status, -ENODEV);
	wc = rig_wc(end);
	assert_int_equal(wc.status, RDMA_WC_WR_FLUSH_ERR);
	assert_int_equal(wc.wr_id, 1);
	wc = rig_wc(end);
	assert_int_equal(wc.status, RDMA_WC_WR_FLUSH_ERR);
	assert_int_equal(wc.wr_id, 2);
	rdma_qp_info_get(by_hand[side], &info);
	assert_int_equal(info.state, RDMA_QP_ERROR);
	late = rig_qp(end, RDMA_QP_RC, NULL);
	((struct sockaddr_in *)&addr)->sin_port = RTE_BE16(SERVICE);
	assert_null(rdma_conn_connect(late, (struct sockaddr *)&addr, NULL));
	assert_int_equal(rte_errno, ENODEV);
	assert_null(rdma_conn_listen(end->dev, RDMA_QP_RC, SERVICE + 1, 8, NULL));
	assert_int_equal(rte_errno, ENODEV);
	rig_no_wc(end);
	assert_int_equal(rdma_conn_destroy(conn[side]), 0);
	assert_int_equal(rdma_qp_destroy(late), 0);
	assert_int_equal(rdma_qp_destroy(qp[side]), 0);
	assert_int_equal(rdma_qp_destroy(by_hand[side]), 0);
}

static void
receives(unsigned int side)
{
	rig_recv(qp[side], 1, rig_sge(&rig.end[side], 0, 64));
	rig_recv(by_hand[side], 2, rig_sge(&rig.end[side], 64, 64));
}

/* As a PMD does when its device is unplugged; the port number stays in use until it is closed. */
static void
a_port_announces_its_removal(void **state)
{
	receives(0);
	rte_eth_dev_callback_process(&rte_eth_devices[0], RTE_ETH_EVENT_INTR_RMV, NULL);
	ends(0);
	/* the other end is not affected */
	assert_int_equal(two->nb_events, 0);
}

static void
a_port_is_removed(void **state)
{
	receives(1);
	assert_int_equal(rte_eth_dev_stop(1), 0);
	assert_int_equal(rte_eth_dev_close(1), 0);
	assert_false(rte_eth_dev_is_valid_port(1));
	ends(1);
	assert_int_equal(rdma_conn_destroy(listener), 0);
}

int
main(int argc, char **argv)
{
	const struct CMUnitTest test[] = {
		cmocka_unit_test(connected),
		cmocka_unit_test(a_port_announces_its_removal),
		cmocka_unit_test(a_port_is_removed),
	};
	const int unable = rig_open(argc, argv);

	return unable ? unable : rig_close(cmocka_run_group_tests(test, NULL, NULL));
}
