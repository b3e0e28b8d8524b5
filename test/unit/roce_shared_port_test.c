/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Several devices on one port: what one of them does to the port is not felt by the others. The
 * port is net_ring; what it is told and what it can is the test's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <errno.h>

#include <ethdev_driver.h>
#include <rte_eal.h>
#include <rte_eth_ring.h>
#include <rte_ethdev.h>
#include <rte_ring.h>

#include "rdma.h"
#include "roce_arp.h"
#include "roce_control.h"
#include "roce_filter.h"

#define QUEUES	  5
#define ADDRESSES 2048

/* A port, what it can, what it was told. */
static struct {
	uint16_t id;
	struct rte_ring *rx[QUEUES], *tx[QUEUES];
	struct eth_dev_ops ops;
	const struct eth_dev_ops *true_ops;
	struct rte_mempool *pool; /* RX frames of the last queue set up */
	unsigned int room;	  /* addresses that its list takes */
	unsigned int lists;	  /* it was given */
	struct rte_ether_addr list[ADDRESSES];
	unsigned int nb_list;
} nic;

/* Devices, named by their queue: queue 0 has 10.0.0.1 and fd00::1. */
static struct station {
	struct rdma_dev *dev;
	struct rdma_pd *pd;
	struct rdma_cq *cq;
	struct rdma_qp *qp;
} station[QUEUES];

/* ---- the port -------------------------------------------------------------------------------- */

static int
by_value(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct rte_ether_addr));
}

/* As mlx5: neither a list without end nor an address twice */
static int
take_list(struct rte_eth_dev *dev, struct rte_ether_addr *list, uint32_t n)
{
	static struct rte_ether_addr sorted[ADDRESSES];

	nic.lists++;
	if (n > nic.room)
		return -ENOSPC;
	memcpy(sorted, list, n * sizeof(*list));
	qsort(sorted, n, sizeof(*list), by_value);
	for (uint32_t i = 1; i < n; i++)
		if (by_value(&sorted[i - 1], &sorted[i]) == 0)
			return -EADDRINUSE;
	memcpy(nic.list, sorted, n * sizeof(*list));
	nic.nb_list = n;
	return 0;
}

static int
rx_queue(struct rte_eth_dev *dev, uint16_t queue, uint16_t n, unsigned int socket,
	const struct rte_eth_rxconf *conf, struct rte_mempool *pool)
{
	nic.pool = pool;
	return nic.true_ops->rx_queue_setup(dev, queue, n, socket, conf, pool);
}

static int
do_switch(struct rte_eth_dev *dev)
{
	return 0;
}

static void
port_make(bool started)
{
	static unsigned int generation;
	char name[32];
	int port;

	memset(&nic, 0, sizeof(nic));
	memset(station, 0, sizeof(station));
	generation++;
	for (unsigned int q = 0; q < QUEUES; q++) {
		snprintf(name, sizeof(name), "rx%u_%u", q, generation);
		nic.rx[q] = rte_ring_create(name, 256, 0, RING_F_SP_ENQ | RING_F_SC_DEQ);
		snprintf(name, sizeof(name), "tx%u_%u", q, generation);
		nic.tx[q] = rte_ring_create(name, 256, 0, RING_F_SP_ENQ | RING_F_SC_DEQ);
		assert_true(nic.rx[q] && nic.tx[q]);
	}
	snprintf(name, sizeof(name), "shared%u", generation);
	port = rte_eth_from_rings(name, nic.rx, QUEUES, nic.tx, QUEUES, 0);
	assert_true(port >= 0);
	nic.id = port;
	nic.room = ADDRESSES;
	nic.true_ops = rte_eth_devices[port].dev_ops;
	nic.ops = *nic.true_ops;
	nic.ops.rx_queue_setup = rx_queue;
	nic.ops.set_mc_addr_list = take_list;
	nic.ops.allmulticast_enable = nic.ops.allmulticast_disable = do_switch;
	nic.ops.promiscuous_enable = nic.ops.promiscuous_disable = do_switch;
	rte_eth_devices[port].dev_ops = &nic.ops;
	rte_eth_devices[port].data->promiscuous = 0;
	rte_eth_devices[port].data->all_multicast = 0;
	if (started) {
		static struct rte_mempool *pool;
		const struct rte_eth_conf conf = {0};

		if (!pool)
			pool = rte_pktmbuf_pool_create("app", 255, 0, 0, 2048, 0);
		assert_non_null(pool);
		assert_int_equal(rte_eth_dev_configure(port, QUEUES, QUEUES, &conf), 0);
		for (unsigned int q = 0; q < QUEUES; q++) {
			assert_int_equal(rte_eth_rx_queue_setup(port, q, 64, 0, NULL, pool), 0);
			assert_int_equal(rte_eth_tx_queue_setup(port, q, 64, 0, NULL), 0);
		}
		assert_int_equal(rte_eth_dev_start(port), 0);
	}
}

static unsigned int
drain(struct rte_ring *ring)
{
	struct rte_mbuf *m = NULL;
	unsigned int n;

	for (n = 0; rte_ring_dequeue(ring, (void **)&m) == 0; n++)
		rte_pktmbuf_free(m);
	return n;
}

static void
rings_free(struct rte_ring *rx[QUEUES], struct rte_ring *tx[QUEUES])
{
	for (unsigned int q = 0; q < QUEUES; q++) {
		drain(rx[q]);
		drain(tx[q]);
		rte_ring_free(rx[q]);
		rte_ring_free(tx[q]);
	}
}

static void
port_free(void)
{
	if (rte_eth_devices[nic.id].data->dev_started)
		assert_int_equal(rte_eth_dev_stop(nic.id), 0);
	assert_int_equal(rte_eth_dev_close(nic.id), 0);
	rings_free(nic.rx, nic.tx);
}

static bool
port_runs(void)
{
	return rte_eth_devices[nic.id].data->dev_started;
}

/* The port goes, another one gets its number. Station 0 stays, as station 1, with the old rings. */
static void
port_replace(bool started, struct rte_ring *rx[QUEUES], struct rte_ring *tx[QUEUES])
{
	const struct station left = station[0];
	const uint16_t id = nic.id;

	memcpy(rx, nic.rx, sizeof(nic.rx));
	memcpy(tx, nic.tx, sizeof(nic.tx));
	assert_int_equal(rte_eth_dev_stop(nic.id), 0);
	assert_int_equal(rte_eth_dev_close(nic.id), 0);
	port_make(started);
	assert_int_equal(nic.id, id);
	station[1] = left;
}

/* ---- devices --------------------------------------------------------------------------------- */

static void
station_open(unsigned int queue, const char *family)
{
	struct station *s = &station[queue];
	struct rdma_qp_attr attr = {.type = RDMA_QP_UD};
	char name[RDMA_NAME_MAX];

	snprintf(name, sizeof(name), "roce:port=%u,queue=%u,mtu=256,qps=64,mrs=64,ip=%s%u/%u",
		nic.id, queue, family, queue + 1, strchr(family, ':') ? 64 : 24);
	s->dev = rdma_dev_open(name);
	assert_non_null(s->dev);
	s->pd = rdma_pd_alloc(s->dev);
	s->cq = rdma_cq_create(s->dev, 64, 0);
	assert_true(s->pd && s->cq);
	attr.send_cq = attr.recv_cq = s->cq;
	s->qp = rdma_qp_create(s->pd, &attr);
	assert_non_null(s->qp);
}

static void
station_close(unsigned int queue)
{
	struct station *s = &station[queue];

	assert_int_equal(rdma_qp_destroy(s->qp), 0);
	assert_int_equal(rdma_cq_destroy(s->cq), 0);
	assert_int_equal(rdma_pd_free(s->pd), 0);
	assert_int_equal(rdma_dev_close(s->dev), 0);
	s->dev = NULL;
}

/* Frames come in and go out again. */
static void
assert_answers(unsigned int queue)
{
	const struct roce_arp question = {
		.op = ROCE_ARP_REQUEST,
		.sender_mac = {{2, 0, 0, 0, 0, 99}},
		.sender_ip = RTE_BE32(RTE_IPV4(10, 0, 0, 99)),
		.target_ip = rte_cpu_to_be_32(RTE_IPV4(10, 0, 0, queue + 1)),
	};
	struct rte_mbuf *m = rte_pktmbuf_alloc(nic.pool);
	struct roce_arp answer = {0};
	uint8_t frame[14 + ROCE_ARP_BYTES];
	struct rdma_event event;

	assert_non_null(m);
	memset(frame, 0xff, 6);
	memcpy(frame + 6, &question.sender_mac, 6);
	frame[12] = 0x08;
	frame[13] = 0x06;
	roce_arp_encode(&question, frame + 14);
	memcpy(rte_pktmbuf_append(m, sizeof(frame)), frame, sizeof(frame));
	drain(nic.tx[queue]);
	assert_int_equal(rte_ring_enqueue(nic.rx[queue], m), 0);
	rdma_progress(station[queue].dev, 0);
	rdma_poll_cm(station[queue].dev, &event, 1);
	rdma_progress(station[queue].dev, 0);
	while (answer.op != ROCE_ARP_REPLY && rte_ring_dequeue(nic.tx[queue], (void **)&m) == 0) {
		const uint8_t *l3 = rte_pktmbuf_mtod_offset(m, const uint8_t *, 14);

		if (l3[-2] == 0x08 && l3[-1] == 0x06)
			assert_int_equal(roce_arp_decode(l3, m->data_len - 14, &answer), 0);
		rte_pktmbuf_free(m);
	}
	assert_int_equal(answer.op, ROCE_ARP_REPLY);
	assert_int_equal(answer.sender_ip, question.target_ip);
}

/* ---- the port itself ------------------------------------------------------------------------- */

/* Started by the first of them, which goes first. */
static void
test_runs_for_the_last(void **state)
{
	char pool[RTE_MEMPOOL_NAMESIZE];

	port_make(false);
	station_open(1, "10.0.0.");
	assert_true(port_runs());
	station_open(0, "10.0.0.");
	assert_answers(0);
	assert_answers(1);
	strcpy(pool, nic.pool->name);
	station_close(1);
	assert_true(port_runs());
	/* what its queues are filled with is there, too */
	assert_ptr_equal(rte_mempool_lookup(pool), nic.pool);
	assert_answers(0);
	/* the queue can be had again */
	station_open(1, "10.0.0.");
	assert_answers(1);
	station_close(0);
	assert_true(port_runs());
	assert_answers(1);
	station_close(1);
	assert_false(port_runs());
	assert_null(rte_mempool_lookup(pool));
	port_free();
}

/* Another port got the number of one that is gone, whose device is still there. */
static void
test_number_again(void **state)
{
	struct rte_ring *rx[QUEUES], *tx[QUEUES];

	port_make(false);
	station_open(0, "fd00::");
	port_replace(false, rx, tx);
	station_open(0, "10.0.0.");
	assert_answers(0);
	station_close(1);
	assert_true(port_runs());
	assert_answers(0);
	station_close(0);
	assert_false(port_runs());
	port_free();
	rings_free(rx, tx);
}

/* ---- groups ---------------------------------------------------------------------------------- */

#define NODES4	     "01:00:5E:00:00:01 "
#define NODES6	     "33:33:00:00:00:01 "
#define SOLICITED(n) "33:33:FF:00:00:0" #n " "

/* The port's list is this one. */
static void
assert_list(const char *wanted)
{
	char text[RTE_ETHER_ADDR_FMT_SIZE * 32] = "", *end = text;

	assert_in_range(nic.nb_list, 0, 31);
	for (unsigned int i = 0; i < nic.nb_list; i++) {
		rte_ether_format_addr(end, RTE_ETHER_ADDR_FMT_SIZE, &nic.list[i]);
		end = strcat(end, " ") + RTE_ETHER_ADDR_FMT_SIZE;
	}
	assert_string_equal(text, wanted);
}

static struct rdma_conn *
join(unsigned int queue, const char *group)
{
	struct sockaddr_in sa = {.sin_family = AF_INET};
	struct rdma_conn *member;

	assert_int_equal(inet_pton(AF_INET, group, &sa.sin_addr), 1);
	member = rdma_multicast_join(station[queue].qp, (struct sockaddr *)&sa, NULL);
	assert_non_null(member);
	return member;
}

static void
leave(struct rdma_conn *member)
{
	assert_int_equal(rdma_conn_destroy(member), 0);
}

static uint64_t
refused(unsigned int queue)
{
	struct rdma_xstat x[256];
	const int n = rdma_xstats_get(station[queue].dev, x, RTE_DIM(x));

	for (int i = 0; i < n; i++)
		if (strcmp(x[i].name, "group_lists_refused") == 0)
			return x[i].value;
	fail_msg("no counter of refused lists");
	return 0;
}

/* Opening one does not end the other's neighbor discovery, nor does closing. */
static void
test_own_addresses(void **state)
{
	port_make(true);
	station_open(0, "fd00::");
	assert_list(NODES6 SOLICITED(1));
	station_open(1, "fd00::");
	assert_list(NODES6 SOLICITED(1) SOLICITED(2));
	station_open(2, "10.0.0.");
	station_close(0);
	assert_list(NODES6 SOLICITED(2));
	station_close(2);
	assert_list(NODES6 SOLICITED(2));
	station_close(1);
	assert_list("");
	assert_int_equal(rte_eth_allmulticast_get(nic.id), 0);
	port_free();
}

/* A group that two want is there until both have left it. */
static void
test_common_groups(void **state)
{
	struct rdma_conn *one, *two, *own;
	unsigned int lists;

	port_make(true);
	station_open(0, "10.0.0.");
	station_open(1, "10.0.0.");
	own = join(1, "239.1.0.9");
	one = join(0, "239.1.2.3");
	assert_list(NODES4 "01:00:5E:01:00:09 01:00:5E:01:02:03 ");
	lists = nic.lists;
	two = join(1, "239.1.2.3");
	/* a driver may lose frames while it changes its list */
	assert_int_equal(nic.lists, lists);
	leave(one);
	assert_int_equal(nic.lists, lists);
	leave(own);
	assert_list(NODES4 "01:00:5E:01:02:03 ");
	one = join(0, "239.1.2.3");
	leave(one);
	station_close(0);
	assert_list(NODES4 "01:00:5E:01:02:03 ");
	leave(two);
	assert_list(NODES4);
	station_close(1);
	assert_list("");
	assert_int_equal(rte_eth_allmulticast_get(nic.id), 0);
	port_free();
}

/* Two groups of one Ethernet address: of a device, and of two of them. */
static void
test_common_address(void **state)
{
	struct rdma_conn *member[3];

	port_make(true);
	station_open(0, "10.0.0.");
	station_open(1, "10.0.0.");
	member[0] = join(0, "239.1.2.3");
	member[1] = join(0, "239.129.2.3");
	member[2] = join(1, "238.1.2.3");
	assert_list(NODES4 "01:00:5E:01:02:03 ");
	assert_int_equal(rte_eth_allmulticast_get(nic.id), 0);
	leave(member[0]);
	leave(member[1]);
	assert_list(NODES4 "01:00:5E:01:02:03 ");
	leave(member[2]);
	assert_list(NODES4);
	station_close(0);
	station_close(1);
	port_free();
}

/* More than the port takes: all come, until there are less; whoever asked for too much. */
static void
test_too_long(void **state)
{
	struct rdma_conn *member[2];

	port_make(true);
	nic.room = 3;
	station_open(0, "fd00::");
	station_open(1, "10.0.0.");
	assert_int_equal(refused(1), 0);
	member[0] = join(1, "239.1.2.3");
	assert_int_equal(rte_eth_allmulticast_get(nic.id), 1);
	assert_int_equal(refused(1), 1);
	member[1] = join(1, "239.1.2.4");
	assert_int_equal(refused(1), 2);
	/* what it has not taken, one of them leaves: too long still */
	leave(member[0]);
	assert_int_equal(rte_eth_allmulticast_get(nic.id), 1);
	assert_int_equal(refused(1), 3);
	station_close(0);
	assert_int_equal(rte_eth_allmulticast_get(nic.id), 0);
	assert_list(NODES4 "01:00:5E:01:02:04 ");
	assert_int_equal(refused(1), 3);
	leave(member[1]);
	assert_list(NODES4);
	station_close(1);
	port_free();
}

/* What the application has switched on is not ours to switch off. */
static void
test_not_ours(void **state)
{
	port_make(true);
	nic.room = 1;
	assert_int_equal(rte_eth_allmulticast_enable(nic.id), 0);
	station_open(0, "fd00::");
	station_open(1, "fd00::");
	assert_int_equal(refused(1), 1);
	station_close(0);
	station_close(1);
	assert_int_equal(rte_eth_allmulticast_get(nic.id), 1);
	port_free();
}

/* More than anybody keeps account of */
static void
test_beyond_count(void **state)
{
	struct roce_gid group;

	port_make(true);
	for (unsigned int q = 0; q < QUEUES; q++) {
		struct roce_control *c;

		station_open(q, "10.0.0.");
		c = roce_dev(station[q].dev)->control;
		assert_int_equal(rte_eth_allmulticast_get(nic.id), 0);
		for (unsigned int i = 0; i < 250; i++) {
			group = roce_gid_v4(rte_cpu_to_be_32(0xef010000 | q << 8 | i));
			assert_int_equal(roce_membership_join(c, &group), 0);
		}
	}
	assert_int_equal(nic.nb_list, ROCE_FILTER_MAX);
	assert_int_equal(rte_eth_allmulticast_get(nic.id), 1);
	assert_int_equal(refused(QUEUES - 1), 1);
	station_close(1);
	assert_int_equal(nic.nb_list, (QUEUES - 1) * 250 + 1);
	assert_int_equal(rte_eth_allmulticast_get(nic.id), 0);
	for (unsigned int q = 0; q < QUEUES; q++)
		if (station[q].dev)
			station_close(q);
	assert_list("");
	port_free();
}

/* A port without lists takes all groups, or everything, until the last device goes. */
static void
test_no_list(void **state)
{
	port_make(true);
	nic.ops.set_mc_addr_list = NULL;
	station_open(0, "fd00::");
	station_open(1, "fd00::");
	assert_int_equal(rte_eth_allmulticast_get(nic.id), 1);
	assert_int_equal(refused(0), 2);
	assert_int_equal(rte_eth_promiscuous_get(nic.id), 0);
	station_close(0);
	assert_int_equal(rte_eth_allmulticast_get(nic.id), 1);
	station_close(1);
	assert_int_equal(rte_eth_allmulticast_get(nic.id), 0);
	port_free();

	port_make(true);
	nic.ops.set_mc_addr_list = NULL;
	nic.ops.allmulticast_enable = NULL;
	station_open(0, "fd00::");
	station_open(1, "fd00::");
	assert_int_equal(rte_eth_promiscuous_get(nic.id), 1);
	station_close(1);
	assert_int_equal(rte_eth_promiscuous_get(nic.id), 1);
	station_close(0);
	assert_int_equal(rte_eth_promiscuous_get(nic.id), 0);
	port_free();
}

/* A device whose port is gone has no say in that which got its number. */
static void
test_list_of_another(void **state)
{
	struct rte_ring *rx[QUEUES], *tx[QUEUES];
	struct rdma_conn *member[2];

	port_make(true);
	station_open(0, "10.0.0.");
	member[0] = join(0, "239.1.2.3");
	port_replace(true, rx, tx);
	station_open(0, "10.0.0.");
	member[1] = join(0, "239.1.2.4");
	leave(member[0]);
	assert_list(NODES4 "01:00:5E:01:02:04 ");
	station_close(1);
	assert_list(NODES4 "01:00:5E:01:02:04 ");
	leave(member[1]);
	station_close(0);
	port_free();
	rings_free(rx, tx);
}

int
main(void)
{
	const char *argv[] = {"roce_shared_port", "--no-huge", "-m", "512", "--no-pci",
		"--no-shconf", "-l", "0", "--log-level", "braggline.rdma:emerg"};
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_runs_for_the_last),
		cmocka_unit_test(test_number_again),
		cmocka_unit_test(test_own_addresses),
		cmocka_unit_test(test_common_groups),
		cmocka_unit_test(test_common_address),
		cmocka_unit_test(test_too_long),
		cmocka_unit_test(test_not_ours),
		cmocka_unit_test(test_beyond_count),
		cmocka_unit_test(test_no_list),
		cmocka_unit_test(test_list_of_another),
	};

	if (rte_eal_init(RTE_DIM(argv), (char **)(uintptr_t)argv) < 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
