/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>

#include <arpa/inet.h>
#include <errno.h>

#include <rte_ethdev.h>

#include "ring_port.h"
#include "net/arp.h"
#include "roce_shared_rig.h"

struct nic nic;
struct station station[QUEUES];

/* ---- the port -------------------------------------------------------------------------------- */

static int
by_value(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct rte_ether_addr));
}

/* like mlx5, it refuses lists that are too long or contain an address twice */
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

void
port_make(bool started)
{
	static unsigned int generation;
	char name[32];
	uint16_t port;

	memset(&nic, 0, sizeof(nic));
	memset(station, 0, sizeof(station));
	generation++;
	snprintf(name, sizeof(name), "shared%u", generation);
	nic.id = port = ring_port_make(name, 256, QUEUES, nic.rx, nic.tx);
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

unsigned int
drain(struct rte_ring *ring)
{
	struct rte_mbuf *m = NULL;
	unsigned int n;

	for (n = 0; rte_ring_dequeue(ring, (void **)&m) == 0; n++)
		rte_pktmbuf_free(m);
	return n;
}

void
rings_free(struct rte_ring *rx[QUEUES], struct rte_ring *tx[QUEUES])
{
	for (unsigned int q = 0; q < QUEUES; q++) {
		drain(rx[q]);
		drain(tx[q]);
		rte_ring_free(rx[q]);
		rte_ring_free(tx[q]);
	}
}

void
port_free(void)
{
	if (rte_eth_devices[nic.id].data->dev_started)
		assert_int_equal(rte_eth_dev_stop(nic.id), 0);
	assert_int_equal(rte_eth_dev_close(nic.id), 0);
	rings_free(nic.rx, nic.tx);
}

bool
port_runs(void)
{
	return rte_eth_devices[nic.id].data->dev_started;
}

/* ---- devices --------------------------------------------------------------------------------- */

void
station_open_as(unsigned int queue, const char *family, const char *options)
{
	struct station *s = &station[queue];
	struct rdma_qp_attr attr = {.type = RDMA_QP_UD};
	char name[RDMA_NAME_MAX];

	snprintf(name, sizeof(name), "roce:port=%u,queue=%u,mtu=256,qps=64,mrs=64,ip=%s%u/%u%s",
		nic.id, queue, family, queue + 1, strchr(family, ':') ? 64 : 24, options);
	s->dev = rdma_dev_open(name);
	assert_non_null(s->dev);
	s->pd = rdma_pd_alloc(s->dev);
	s->cq = rdma_cq_create(s->dev, 64, 0);
	assert_true(s->pd && s->cq);
	attr.send_cq = attr.recv_cq = s->cq;
	s->qp = rdma_qp_create(s->pd, &attr);
	assert_non_null(s->qp);
}

void
station_open(unsigned int queue, const char *family)
{
	station_open_as(queue, family, "");
}

void
station_close(unsigned int queue)
{
	struct station *s = &station[queue];

	assert_int_equal(rdma_qp_destroy(s->qp), 0);
	assert_int_equal(rdma_cq_destroy(s->cq), 0);
	assert_int_equal(rdma_pd_free(s->pd), 0);
	assert_int_equal(rdma_dev_close(s->dev), 0);
	s->dev = NULL;
}

void
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

uint64_t
station_stat(unsigned int queue, const char *name)
{
	struct rdma_xstat x[256];
	const int n = rdma_xstats_get(station[queue].dev, x, RTE_DIM(x));

	for (int i = 0; i < n; i++)
		if (strcmp(x[i].name, name) == 0)
			return x[i].value;
	fail_msg("no counter %s", name);
	return 0;
}

struct rdma_conn *
station_join(unsigned int queue, const char *group)
{
	struct sockaddr_in sa = {.sin_family = AF_INET};
	struct rdma_conn *member;

	assert_int_equal(inet_pton(AF_INET, group, &sa.sin_addr), 1);
	member = rdma_multicast_join(station[queue].qp, (struct sockaddr *)&sa, NULL);
	assert_non_null(member);
	return member;
}

void
station_leave(struct rdma_conn *member)
{
	assert_int_equal(rdma_conn_destroy(member), 0);
}
