/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Poll groups and their lifetime: ports that keep frames, devices that are closed and reopened,
 * multicast groups with members in several poll groups, PSN wrap-around. The port is net_ring; the
 * test is its wire.
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

#include <bus_driver.h>
#include <ethdev_driver.h>
#include <rte_cycles.h>
#include <rte_debug.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_ring.h>

#include "rdma.h"
#include "rdma_roce.h"
#include "ring_port.h"
#include "engine/qp.h"

#define MEMORY	     65536
#define GROUP	     "239.1.2.3"
#define DEVICE_POOLS 3 /* of its poll group, of its control lcore, of its port */

/* A device on its own port. */
static struct {
	uint16_t port;
	struct rte_ring *rx[2], *tx[2];
	struct rdma_dev *dev;
	struct rdma_pd *pd;
	struct rdma_cq *cq[2];
	struct rdma_mr *mr;
} it;

static uint8_t memory[MEMORY] __rte_aligned(8);
static unsigned int generation;

/* ---- a port that frees sent frames only on request ---- */

enum port_kind {
	PORT_PROMPT,
	PORT_LAZY,    /* in tx_done_cleanup */
	PORT_STATUS,  /* in descriptor status calls, except the last KEPT_LAST, as mlx5 */
	PORT_NEITHER, /* in neither */
};

static enum port_kind port_kind;
static struct rte_bus no_bus = {.name = "pci"};
static struct rte_device no_device = {.bus = &no_bus};
static bool physical;
static const struct rte_driver *true_driver;
#define KEPT_LAST 31 /* MLX5_TX_COMP_THRESH - 1 */

static struct rte_mbuf *kept[256];
static unsigned int nb_kept;
static struct eth_dev_ops lazy_ops;
static const struct eth_dev_ops *true_ops;
static uint16_t segments_max;

static uint16_t
lazy_tx(void *queue, struct rte_mbuf **m, uint16_t n)
{
	uint16_t i;

	for (i = 0; i < n && nb_kept < RTE_DIM(kept); i++)
		kept[nb_kept++] = m[i];
	return i;
}

static int
lazy_cleanup(void *queue, uint32_t n)
{
	rte_pktmbuf_free_bulk(kept, nb_kept);
	nb_kept = 0;
	return 0;
}

static int
lazy_status(void *queue, uint16_t offset)
{
	const unsigned int n = nb_kept > KEPT_LAST ? nb_kept - KEPT_LAST : 0;

	rte_pktmbuf_free_bulk(kept, n);
	nb_kept -= n;
	memmove(kept, kept + n, nb_kept * sizeof(kept[0]));
	return RTE_ETH_TX_DESC_DONE;
}

static int
lazy_stop(struct rte_eth_dev *dev)
{
	lazy_cleanup(NULL, 0);
	dev->tx_descriptor_status = NULL;
	return true_ops->dev_stop(dev);
}

static int
lazy_start(struct rte_eth_dev *dev)
{
	const int ret = true_ops->dev_start(dev);

	dev->tx_pkt_burst = lazy_tx;
	if (port_kind == PORT_STATUS)
		dev->tx_descriptor_status = lazy_status;
	return ret;
}

static int
lazy_info(struct rte_eth_dev *dev, struct rte_eth_dev_info *info)
{
	const int ret = true_ops->dev_infos_get(dev, info);

	if (segments_max)
		info->tx_desc_lim.nb_mtu_seg_max = segments_max;
	if (physical)
		info->device = &no_device;
	return ret;
}

static void
port_make(unsigned int queues, enum port_kind kind)
{
	char name[32];
	uint16_t port;

	memset(&it, 0, sizeof(it));
	generation++;
	snprintf(name, sizeof(name), "poll group%u", generation);
	it.port = port = ring_port_make(name, 256, queues, it.rx, it.tx);
	port_kind = kind;
	if (kind == PORT_PROMPT)
		return;
	true_ops = rte_eth_devices[port].dev_ops;
	lazy_ops = *true_ops;
	lazy_ops.dev_start = lazy_start;
	lazy_ops.dev_stop = lazy_stop;
	lazy_ops.dev_infos_get = lazy_info;
	lazy_ops.tx_done_cleanup = kind == PORT_LAZY ? lazy_cleanup : NULL;
	rte_eth_devices[port].dev_ops = &lazy_ops;
}

static unsigned int
drain(struct rte_ring *ring)
{
	struct rte_mbuf *m = NULL;
	unsigned int n = 0;

	while (ring && rte_ring_dequeue(ring, (void **)&m) == 0) {
		rte_pktmbuf_free(m);
		n++;
	}
	return n;
}

static void
port_free(void)
{
	unsigned int i;

	rte_eth_dev_close(it.port);
	for (i = 0; i < 2; i++) {
		drain(it.rx[i]);
		drain(it.tx[i]);
		rte_ring_free(it.rx[i]);
		rte_ring_free(it.tx[i]);
	}
}

/* A physical port with the driver of this name */
static void
physical_make(enum port_kind kind, const char *name)
{
	static struct rte_driver driver;
	struct rte_device *device;

	port_make(1, kind);
	physical = true;
	device = rte_eth_devices[it.port].device;
	true_driver = device->driver;
	driver = *true_driver;
	driver.name = name;
	device->driver = &driver;
}

static void
physical_free(void)
{
	rte_eth_devices[it.port].device->driver = true_driver;
	physical = false;
	port_free();
}

static struct rdma_dev *
dev_open(const char *options)
{
	char name[RDMA_NAME_MAX];

	snprintf(name, sizeof(name), "roce:port=%u,%s", it.port, options);
	return rdma_dev_open(name);
}

/* Create a device, a protection domain, a region, and a completion queue for each poll group */
static void
device(unsigned int poll_groups, const char *options)
{
	const struct rdma_mr_attr attr = {
		.addr = memory,
		.length = MEMORY,
		.gpu = -1,
		.access = RDMA_ACCESS_LOCAL_WRITE | RDMA_ACCESS_REMOTE_WRITE |
			RDMA_ACCESS_REMOTE_READ | RDMA_ACCESS_REMOTE_ATOMIC,
	};

	it.dev = dev_open(options);
	assert_non_null(it.dev);
	it.pd = rdma_pd_alloc(it.dev);
	it.mr = rdma_mr_reg(it.pd, &attr);
	it.cq[0] = rdma_cq_create(it.dev, 64, 0);
	it.cq[1] = poll_groups > 1 ? rdma_cq_create(it.dev, 64, 1) : NULL;
	assert_true(it.pd && it.mr && it.cq[0]);
}

static void
device_close(void)
{
	assert_int_equal(rdma_mr_dereg(it.mr), 0);
	assert_int_equal(rdma_cq_destroy(it.cq[0]), 0);
	if (it.cq[1])
		assert_int_equal(rdma_cq_destroy(it.cq[1]), 0);
	assert_int_equal(rdma_pd_free(it.pd), 0);
	assert_int_equal(rdma_dev_close(it.dev), 0);
}

static struct rdma_qp *
qp_make(enum rdma_qp_type type, uint16_t pg)
{
	const struct rdma_qp_attr attr = {.type = type,
		.poll_group = pg,
		.send_cq = it.cq[pg],
		.recv_cq = it.cq[pg],
		.ack_timeout = 8,
		.retry_count = 7,
		.rnr_retry = 7,
		.max_inline = 64};
	struct rdma_qp *qp = rdma_qp_create(it.pd, &attr);

	assert_non_null(qp);
	return qp;
}

static struct sockaddr_storage
address(const char *text)
{
	struct sockaddr_storage sa = {0};
	struct sockaddr_in *in = (struct sockaddr_in *)&sa;

	in->sin_family = AF_INET;
	assert_int_equal(inet_pton(AF_INET, text, &in->sin_addr), 1);
	return sa;
}

/* Connect to a queue pair of the same device */
static void
connect_to(struct rdma_qp *qp, const struct rdma_qp *peer, uint32_t psn)
{
	const struct rdma_qp_peer to = {.addr = address("10.0.0.1"),
		.qpn = peer->qpn,
		.psn = psn,
		.local_psn = psn,
		.mtu = 1024,
		.rd_atom = 4,
		.responder_rd_atom = 4};

	assert_int_equal(rdma_qp_connect(qp, &to), 0);
}

static struct rdma_sge
sge(uint32_t offset, uint32_t length)
{
	return (struct rdma_sge){(uintptr_t)memory + offset, length, rdma_mr_lkey(it.mr)};
}

static uint64_t
stat(const char *name)
{
	struct rdma_xstat x[256];
	int i, n = rdma_xstats_get(it.dev, x, RTE_DIM(x));

	for (i = 0; i < n; i++)
		if (strcmp(x[i].name, name) == 0)
			return x[i].value;
	fail_msg("no counter %s", name);
	return 0;
}

/* Send a datagram with inline data to the group */
static void
send_group(struct rdma_qp *qp, struct rdma_ah *ah)
{
	const struct rdma_sge s = {.addr = (uintptr_t) "hello, all of us", .length = 16};
	const struct rdma_send_wr wr = {.sg = &s,
		.nb_sge = 1,
		.op = RDMA_OP_SEND,
		.flags = RDMA_SEND_SIGNALED | RDMA_SEND_INLINE,
		.ud = {.ah = ah, .remote_qpn = 0xffffff, .remote_qkey = 0x01234567}};

	assert_int_equal(rdma_post_send(qp, &wr, 1), 1);
	rdma_progress(it.dev, 0);
}

static struct rdma_ah *
group_handle(void)
{
	const struct sockaddr_storage sa = address(GROUP);
	struct rdma_ah *ah = rdma_ah_create(it.pd, (const struct sockaddr *)&sa, 0, 0);

	assert_non_null(ah);
	return ah;
}

static void
count_pool(struct rte_mempool *pool, void *arg)
{
	if (strncmp(pool->name, "roce", 4) == 0)
		(*(unsigned int *)arg)++;
}

static unsigned int
pools(void)
{
	unsigned int n = 0;

	rte_mempool_walk(count_pool, &n);
	return n;
}

/* ---- closing and opening --------------------------------------------------------------------- */

/* An open that fails leaves no state that makes the next attempt fail. */
static void
test_refused(void **state)
{
	struct rte_eth_conf conf = {.rxmode.mtu = 1500};
	struct rte_mempool *pool = rte_pktmbuf_pool_create("port", 511, 0, 0, 2048, 0);

	port_make(1, PORT_PROMPT);
	assert_int_equal(rte_eth_dev_configure(it.port, 1, 1, &conf), 0);
	assert_int_equal(rte_eth_rx_queue_setup(it.port, 0, 64, 0, NULL, pool), 0);
	assert_int_equal(rte_eth_tx_queue_setup(it.port, 0, 64, 0, NULL), 0);
	assert_int_equal(rte_eth_dev_start(it.port), 0);
	assert_null(dev_open("ip=10.0.0.1/24,mtu=4096"));
	assert_int_equal(rte_errno, ENOTSUP);
	assert_int_equal(pools(), 0);
	device(1, "ip=10.0.0.1/24");
	device_close();
	rte_eth_dev_stop(it.port);
	port_free();
	rte_mempool_free(pool);
}

/* An IPv4-mapped IPv6 address with an IPv6 prefix length that is too long. */
static void
test_mapped(void **state)
{
	port_make(1, PORT_PROMPT);
	assert_null(dev_open("ip=::ffff:10.0.0.1/120"));
	assert_int_equal(rte_errno, EINVAL);
	assert_null(dev_open("ip=10.0.0.1/24,gateway=::ffff:10.0.0.9"));
	assert_int_equal(rte_errno, EINVAL);
	port_free();
}

/* Frames of a closed device are still in flight when it is opened again. */
static void
test_open_again(void **state)
{
	struct rdma_qp *qp;
	struct rdma_ah *ah;
	unsigned int i;

	port_make(1, PORT_PROMPT);
	for (i = 0; i < 3; i++) {
		device(1, "ip=10.0.0.1/24");
		qp = qp_make(RDMA_QP_UD, 0);
		ah = group_handle();
		assert_int_equal(rdma_qp_connect(qp, NULL), 0);
		send_group(qp, ah);
		assert_int_equal(rdma_ah_destroy(ah), 0);
		assert_int_equal(rdma_qp_destroy(qp), 0);
		device_close();
		assert_true(pools() > 0);
	}
	/* they arrive; the next device frees their mbufs */
	assert_true(drain(it.tx[0]) > 0);
	device(1, "ip=10.0.0.1/24");
	assert_int_equal(pools(), DEVICE_POOLS);
	device_close();
	drain(it.tx[0]);
	port_free();
}

/* Frames that a stopping port drops are not reported as missing. */
static void
test_close_after_stop(void **state)
{
	struct rdma_qp *qp;
	struct rdma_ah *ah;

	port_make(1, PORT_LAZY);
	device(1, "ip=10.0.0.1/24");
	assert_int_equal(pools(), DEVICE_POOLS);
	qp = qp_make(RDMA_QP_UD, 0);
	ah = group_handle();
	assert_int_equal(rdma_qp_connect(qp, NULL), 0);
	send_group(qp, ah);
	assert_true(nb_kept > 0);
	assert_int_equal(rdma_ah_destroy(ah), 0);
	assert_int_equal(rdma_qp_destroy(qp), 0);
	device_close();
	assert_int_equal(pools(), 0);
	port_free();
}

/* Packets that a port never accepts do not hold memory for ever. */
static void
test_stalled_port(void **state)
{
	const uint64_t limit = rte_rdtsc() + 10 * rte_get_tsc_hz();
	struct rdma_qp *qp;
	struct rdma_ah *ah;
	uint64_t dropped;

	port_make(1, PORT_LAZY);
	device(1, "ip=10.0.0.1/24");
	qp = qp_make(RDMA_QP_UD, 0);
	ah = group_handle();
	assert_int_equal(rdma_qp_connect(qp, NULL), 0);
	/* the port is full, and does not send */
	nb_kept = RTE_DIM(kept);
	send_group(qp, ah);
	assert_true(roce_dev(it.dev)->poll_groups[0]->tx_end > 0);
	rdma_progress(it.dev, 0);
	assert_int_equal(stat("tx_port_stalled"), 0);
	do {
		rdma_progress(it.dev, 0);
		dropped = stat("tx_port_stalled");
	} while (dropped == 0 && rte_rdtsc() < limit);
	assert_true(dropped > 0);
	assert_int_equal(roce_dev(it.dev)->poll_groups[0]->tx_end, 0);
	/* time without packets does not count: the next ones wait as long */
	rte_delay_us_block(1000 * ROCE_TX_STALL_MS + 100000);
	send_group(qp, ah);
	rdma_progress(it.dev, 0);
	assert_true(roce_dev(it.dev)->poll_groups[0]->tx_end > 0);
	assert_int_equal(stat("tx_port_stalled"), dropped);
	/* and a port that accepts packets again gets them */
	nb_kept = 0;
	rdma_progress(it.dev, 0);
	assert_int_equal(roce_dev(it.dev)->poll_groups[0]->tx_end, 0);
	assert_true(nb_kept > 0);
	assert_int_equal(stat("tx_port_stalled"), dropped);
	assert_int_equal(rdma_ah_destroy(ah), 0);
	assert_int_equal(rdma_qp_destroy(qp), 0);
	device_close();
	assert_int_equal(pools(), 0);
	port_free();
}

/* A device that is closed reports that it leaves its groups. */
static void
test_leave_reports_on_close(void **state)
{
	struct rte_mbuf *m = NULL;
	unsigned int left = 0;

	port_make(1, PORT_PROMPT);
	device(1, "ip=fd00::1/64");
	rdma_poll_cm(it.dev, NULL, 0);
	rdma_progress(it.dev, 0);
	drain(it.tx[0]);
	device_close();
	while (rte_ring_dequeue(it.tx[0], (void **)&m) == 0) {
		const uint8_t *icmp = rte_pktmbuf_mtod_offset(m, const uint8_t *, 14 + 40 + 8);

		/* an MLDv2 report: the group has no sources left */
		left += m->data_len > 14 + 40 + 8 + 8 && icmp[0] == 143 && icmp[8] == 3;
		rte_pktmbuf_free(m);
	}
	assert_int_equal(left, 1);
	port_free();
}

/* A listener that is closed with its device leaks nothing; a sanitizer would report it. */
static void
test_listener(void **state)
{
	struct rdma_conn *listener;

	port_make(1, PORT_PROMPT);
	device(1, "ip=10.0.0.1/24");
	listener = rdma_conn_listen(it.dev, RDMA_QP_RC, 7174, 4, NULL);
	assert_non_null(listener);
	assert_int_equal(rdma_conn_destroy(listener), 0);
	device_close();
	port_free();
}

/* ---- ports that keep frames ------------------------------------------------------------------ */

/* An idle port frees UC's memory, also in error state. */
static void
test_kept_uc(void **state)
{
	struct rdma_sge s;
	const struct rdma_send_wr wr = {
		.sg = &s, .nb_sge = 1, .op = RDMA_OP_SEND, .flags = RDMA_SEND_SIGNALED};
	struct rdma_qp *qp;
	struct rdma_wc wc;
	unsigned int i;

	port_make(1, PORT_LAZY);
	device(1, "ip=10.0.0.1/24");
	s = sge(0, 1000);
	for (i = 0; i < 2; i++) {
		qp = qp_make(RDMA_QP_UC, 0);
		connect_to(qp, qp, 1);
		assert_int_equal(rdma_post_send(qp, &wr, 1), 1);
		rdma_progress(it.dev, 0);
		assert_int_equal(nb_kept, 1);
		assert_int_equal(rdma_qp_error(qp), 0);
		if (i == 0) {
			rdma_progress(it.dev, 0);
			rdma_progress(it.dev, 0);
			assert_int_equal(rdma_poll_cq(it.cq[0], &wc, 1), 1);
			assert_int_equal(wc.status, RDMA_WC_WR_FLUSH_ERR);
		}
		/* the second time it is freed immediately */
		assert_int_equal(rdma_qp_destroy(qp), 0);
		assert_int_equal(nb_kept, 0);
	}
	device_close();
	port_free();
}

/* An interrupted message completes when the port has freed the frames that were sent of it. */
static void
test_kept_half(void **state)
{
	struct rdma_sge s;
	const struct rdma_send_wr wr = {
		.sg = &s, .nb_sge = 1, .op = RDMA_OP_SEND, .flags = RDMA_SEND_SIGNALED};
	unsigned int i, sent;
	struct rdma_qp *qp;
	struct rdma_wc wc;

	port_make(1, PORT_LAZY);
	device(1, "ip=10.0.0.1/24");
	s = sge(0, MEMORY);
	qp = qp_make(RDMA_QP_UC, 0);
	connect_to(qp, qp, 1);
	assert_int_equal(rdma_post_send(qp, &wr, 1), 1);
	rdma_progress(it.dev, 0);
	sent = nb_kept;
	assert_true(sent > 1);
	assert_int_equal(rdma_qp_error(qp), 0);
	for (i = 0; rdma_poll_cq(it.cq[0], &wc, 1) == 0; i++) {
		assert_true(i < 10);
		rdma_progress(it.dev, 0);
	}
	assert_int_equal(wc.status, RDMA_WC_WR_FLUSH_ERR);
	assert_int_equal(nb_kept, 0);
	assert_int_equal(rdma_qp_destroy(qp), 0);
	device_close();
	port_free();
}

/*
 * A region can be deregistered when its requests are complete, even if an idle port keeps frames.
 */
static void
test_kept_rc(void **state)
{
	struct rdma_sge s;
	struct rdma_send_wr wr = {.sg = &s, .nb_sge = 1, .op = RDMA_OP_SEND};
	struct rdma_qp *qp;

	port_make(1, PORT_LAZY);
	device(1, "ip=10.0.0.1/24");
	s = sge(0, 1000);
	qp = qp_make(RDMA_QP_RC, 0);
	connect_to(qp, qp, 1);
	assert_int_equal(rdma_post_send(qp, &wr, 1), 1);
	rdma_progress(it.dev, 0);
	assert_true(nb_kept > 0);
	assert_int_equal(rdma_mr_dereg(it.mr), -EBUSY);
	rdma_progress(it.dev, 0);
	assert_int_equal(rdma_qp_error(qp), 0);
	assert_int_equal(rdma_qp_destroy(qp), 0);
	device_close();
	port_free();
}

/*
 * mlx5 frees no sent frame before 31 others follow. The region of a short SEND can be deregistered
 * nevertheless, that of other requests only then.
 */
static void
test_kept_last(void **state)
{
	static const struct {
		enum rdma_op op;
		uint32_t length;
		bool busy;
	} row[] = {{RDMA_OP_SEND, 1000, false}, {RDMA_OP_SEND_IMM, 4096, false},
		{RDMA_OP_SEND, 4097, true}, {RDMA_OP_WRITE, 1000, true}};
	struct rdma_sge s;
	struct rdma_send_wr wr = {.sg = &s, .nb_sge = 1};
	struct rdma_qp *qp, *ud;
	struct rdma_ah *ah;
	unsigned int i, n;

	for (i = 0; i < RTE_DIM(row); i++) {
		physical_make(PORT_STATUS, "mlx5_pci");
		device(1, "ip=10.0.0.1/24");
		s = sge(0, row[i].length);
		wr.op = row[i].op;
		wr.rkey = rdma_mr_rkey(it.mr);
		wr.remote_addr = (uintptr_t)memory;
		qp = qp_make(RDMA_QP_RC, 0);
		connect_to(qp, qp, 1);
		assert_int_equal(rdma_post_send(qp, &wr, 1), 1);
		rdma_progress(it.dev, 0);
		assert_int_equal(nb_kept, (row[i].length + 1023) / 1024);
		assert_int_equal(rdma_qp_error(qp), 0);
		assert_int_equal(rdma_qp_destroy(qp), 0);
		if (row[i].busy) {
			assert_int_equal(rdma_mr_dereg(it.mr), -EBUSY);
			ud = qp_make(RDMA_QP_UD, 0);
			assert_int_equal(rdma_qp_connect(ud, NULL), 0);
			ah = group_handle();
			for (n = 0; n < KEPT_LAST; n++)
				send_group(ud, ah);
			assert_int_equal(rdma_qp_destroy(ud), 0);
			assert_int_equal(rdma_ah_destroy(ah), 0);
		}
		assert_true(nb_kept > 0);
		device_close();
		physical_free();
	}
}

/*
 * No request completes, and nothing can be destroyed, while a port keeps frames and cannot be made
 * to free them.
 */
static void
test_frames_that_are_never_freed(void **state)
{
	struct rdma_sge s;
	const struct rdma_send_wr wr = {
		.sg = &s, .nb_sge = 1, .op = RDMA_OP_SEND, .flags = RDMA_SEND_SIGNALED};
	struct rdma_qp *qp;
	struct rdma_wc wc;
	unsigned int i;

	port_make(1, PORT_NEITHER);
	device(1, "ip=10.0.0.1/24");
	s = sge(0, 1000);
	qp = qp_make(RDMA_QP_UC, 0);
	connect_to(qp, qp, 1);
	assert_int_equal(rdma_post_send(qp, &wr, 1), 1);
	for (i = 0; i < 10; i++)
		rdma_progress(it.dev, 0);
	assert_int_equal(rdma_poll_cq(it.cq[0], &wc, 1), 0);
	assert_int_equal(rdma_qp_destroy(qp), -EBUSY);
	assert_int_equal(rdma_mr_dereg(it.mr), -EBUSY);
	lazy_cleanup(NULL, 0);
	assert_int_equal(rdma_qp_destroy(qp), 0);
	device_close();
	port_free();
}

/* A physical port that cannot be made to free frames gets copies. */
static void
test_kept_copies(void **state)
{
	static const struct {
		enum port_kind kind;
		const char *driver;
		bool copy;
	} row[] = {{PORT_LAZY, "net_some", false}, {PORT_NEITHER, "net_some", true},
		{PORT_STATUS, "net_some", true}, {PORT_STATUS, "mlx5_pci", false}};
	struct rdma_dev *dev;
	unsigned int i;

	for (i = 0; i < RTE_DIM(row); i++) {
		physical_make(row[i].kind, row[i].driver);
		dev = dev_open("ip=10.0.0.1/24");
		assert_non_null(dev);
		assert_int_equal(roce_dev(dev)->copy, row[i].copy);
		assert_int_equal(rdma_dev_close(dev), 0);
		physical_free();
	}
}

/* A port that accepts few mbufs per frame: lists are shorter, or payload is copied. */
static void
test_segments(void **state)
{
	static const struct {
		uint16_t segments, sge;
	} limits[] = {{0, RDMA_SGE_MAX}, {5, 3}, {3, 1}, {2, RDMA_SGE_MAX}};
	struct rdma_dev_info info;
	struct rdma_qp *qp;
	unsigned int i;

	for (i = 0; i < RTE_DIM(limits); i++) {
		segments_max = limits[i].segments;
		port_make(1, PORT_LAZY);
		device(1, "ip=10.0.0.1/24");
		assert_int_equal(rdma_dev_info_get(it.dev, &info), 0);
		assert_int_equal(info.max_sge, limits[i].sge);
		/* the default is sufficient */
		qp = qp_make(RDMA_QP_RC, 0);
		assert_int_equal(rdma_qp_destroy(qp), 0);
		device_close();
		port_free();
	}
	segments_max = 0;
}

/* Another poller of the queue passes our packets on, including queries of IPv6 groups. */
static void
test_shared_group(void **state)
{
	static const uint8_t query[] = {
		/* Ethernet, IPv6 with hop-by-hop options (router alert), before ICMPv6 */
		0x33, 0x33, 0, 0, 0, 1, 2, 0, 0, 0, 0, 9, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 36, 0, 1,
		0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0xff, 2, 0, 0, 0, 0, 0, 0, 0,
		0, 0, 0, 0, 0, 0, 1, 58, 0, 5, 2, 0, 0, 1, 0, 130};
	struct rte_mempool *pool = rte_pktmbuf_pool_create("query", 31, 0, 0, 512, 0);
	struct rte_mbuf *m = rte_pktmbuf_alloc(pool);
	uint8_t *frame = (uint8_t *)rte_pktmbuf_append(m, 90);

	RTE_VERIFY(frame != NULL); /* the compiler does not know that assertions end a test */
	port_make(1, PORT_PROMPT);
	device(1, "ip=fd00::1/64");
	memset(frame, 0, 90);
	memcpy(frame, query, sizeof(query));
	assert_int_equal(rdma_roce_rx(it.dev, 0, &m, 1), 0);
	assert_int_equal(stat("rx_control_frames"), 1);
	/* while it is processed, control does not call it from another lcore */
	assert_int_equal(roce_dev(it.dev)->poll_groups[0]->owner, rte_lcore_id());
	/* the same before TCP is not ours */
	m = rte_pktmbuf_alloc(pool);
	frame = (uint8_t *)rte_pktmbuf_append(m, 90);
	RTE_VERIFY(frame != NULL);
	memset(frame, 0, 90);
	memcpy(frame, query, sizeof(query));
	frame[14 + 40] = 6;
	assert_int_equal(rdma_roce_rx(it.dev, 0, &m, 1), 1);
	rte_pktmbuf_free(m);
	device_close();
	drain(it.tx[0]);
	port_free();
	rte_mempool_free(pool);
}

/* The rate recovers to the speed of a link that came up after the queue pair was created. */
static void
test_late_link(void **state)
{
	struct rte_eth_link *link;
	struct rdma_qp *qp;

	port_make(1, PORT_PROMPT);
	device(1, "ip=10.0.0.1/24,cc=dcqcn");
	link = &rte_eth_devices[it.port].data->dev_link;
	link->link_status = 0;
	qp = qp_make(RDMA_QP_RC, 0);
	link->link_status = 1;
	link->link_speed = 25000;
	connect_to(qp, qp, 1);
	assert_true(((struct roce_qp *)qp)->rate.ceiling == 25e9 / 8);
	assert_int_equal(rdma_qp_destroy(qp), 0);
	device_close();
	drain(it.tx[0]);
	port_free();
}

/*
 * ---- several poll groups
 * ---------------------------------------------------------------------------
 */

/* A datagram to a group arrives at one queue, and its members are in both poll groups. */
static void
test_groups(void **state)
{
	const struct sockaddr_storage group = address(GROUP);
	struct rdma_conn *member[2];
	struct rdma_qp *qp[2], *sender, *early;
	const struct rdma_sge early_sge = sge(1024, 512);
	const struct rdma_recv_wr early_wr = {.sg = &early_sge, .nb_sge = 1};
	struct rdma_event event[8];
	struct rte_mbuf *m = NULL;
	struct roce_gid gid;
	struct rdma_ah *ah;
	struct rdma_wc wc;
	unsigned int i, queue;

	port_make(2, PORT_PROMPT);
	device(2, "ip=10.0.0.1/24,poll_groups=2");
	ah = group_handle();
	sender = qp_make(RDMA_QP_UD, 0);
	assert_int_equal(rdma_qp_connect(sender, NULL), 0);
	for (i = 0; i < 2; i++) {
		qp[i] = qp_make(RDMA_QP_UD, i);
		member[i] = rdma_multicast_join(qp[i], (const struct sockaddr *)&group, NULL);
		assert_non_null(member[i]);
	}
	/* a member that is not yet ready to receive */
	early = qp_make(RDMA_QP_UD, 0);
	assert_int_equal(roce_gid_from_sockaddr(&gid, (const struct sockaddr *)&group), 0);
	assert_int_equal(roce_qp_attach(early, &gid), 0);
	assert_int_equal(rdma_post_recv(early, &early_wr, 1), 1);
	rdma_poll_cm(it.dev, event, RTE_DIM(event));
	rdma_progress(it.dev, 0);
	for (queue = 0; queue < 2; queue++) {
		drain(it.tx[0]);
		for (i = 0; i < 2; i++) {
			const struct rdma_sge s = sge(i * 512, 512);
			const struct rdma_recv_wr wr = {.wr_id = i, .sg = &s, .nb_sge = 1};

			assert_int_equal(rdma_post_recv(qp[i], &wr, 1), 1);
		}
		send_group(sender, ah);
		assert_int_equal(rte_ring_dequeue(it.tx[0], (void **)&m), 0);
		assert_int_equal(rte_ring_enqueue(it.rx[queue], m), 0);
		for (i = 0; i < 4; i++)
			rdma_progress(it.dev, i & 1);
		assert_int_equal(rdma_poll_cq(it.cq[0], &wc, 1), 1); /* of the send */
		for (i = 0; i < 2; i++) {
			assert_int_equal(rdma_poll_cq(it.cq[i], &wc, 1), 1);
			assert_int_equal(wc.status, RDMA_WC_SUCCESS);
			assert_ptr_equal(wc.qp, qp[i]);
			assert_int_equal(wc.byte_len, RDMA_GRH_BYTES + 16);
			assert_memory_equal(memory + i * 512 + 40, "hello, all of us", 16);
			assert_int_equal(rdma_poll_cq(it.cq[i], &wc, 1), 0);
		}
	}
	assert_int_equal(stat("rx_not_for_us"), 0);
	assert_int_equal(stat("rx_bad_state"), 2);
	assert_int_equal(rdma_qp_destroy(early), 0);
	for (i = 0; i < 2; i++) {
		assert_int_equal(rdma_conn_destroy(member[i]), 0);
		assert_int_equal(rdma_qp_destroy(qp[i]), 0);
	}
	assert_int_equal(rdma_qp_destroy(sender), 0);
	assert_int_equal(rdma_ah_destroy(ah), 0);
	device_close();
	port_free();
}

/* ---- packets for the control lcore ---- */

/* Let the port receive a frame. */
static void
arrive(struct rte_mempool *pool, unsigned int queue, const uint8_t *bytes, unsigned int n)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(pool);
	char *frame = m ? rte_pktmbuf_append(m, n) : NULL;

	RTE_VERIFY(frame != NULL); /* the compiler does not know that assertions end a test */
	memcpy(frame, bytes, n);
	assert_int_equal(rte_ring_enqueue(it.rx[queue], m), 0);
}

/* Packets of other protocols are not queued for control, so they do not displace others. */
static void
test_junk(void **state)
{
	static const uint8_t ip4[] = {0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 9, 10, 0,
		0, 1, 0, 1, 0, 53, 0, 8, 0, 0};
	static const uint8_t ip6[] = {0x60, 0, 0, 0, 0, 8, 6, 64, [23] = 9, [39] = 1, [47] = 0};
	struct rte_mempool *pool = rte_pktmbuf_pool_create("junk", 31, 0, 0, 512, 0);
	uint8_t frame[14 + 48] = {0};

	port_make(1, PORT_PROMPT);
	device(1, "ip=10.0.0.1/24");
	/* UDP to another port, TCP, TCP over IPv6, LLDP */
	frame[12] = 0x08;
	memcpy(frame + 14, ip4, sizeof(ip4));
	arrive(pool, 0, frame, 14 + sizeof(ip4));
	frame[14 + 9] = 6;
	arrive(pool, 0, frame, 14 + sizeof(ip4));
	frame[12] = 0x86;
	frame[13] = 0xdd;
	memcpy(frame + 14, ip6, sizeof(ip6));
	arrive(pool, 0, frame, 14 + sizeof(ip6));
	frame[12] = 0x88;
	frame[13] = 0xcc;
	arrive(pool, 0, frame, 60);
	rdma_progress(it.dev, 0);
	assert_int_equal(stat("rx_not_for_us"), 4);
	assert_int_equal(stat("rx_control_frames"), 0);
	/* a ping is passed to control */
	frame[12] = 0x08;
	frame[13] = 0x00;
	memcpy(frame + 14, ip4, sizeof(ip4));
	frame[14 + 9] = 1;
	arrive(pool, 0, frame, 14 + sizeof(ip4));
	rdma_progress(it.dev, 0);
	assert_int_equal(stat("rx_control_frames"), 1);
	device_close();
	drain(it.tx[0]);
	port_free();
	rte_mempool_free(pool);
}

/* An event that was not polled does not refer to a queue pair that has been destroyed. */
static void
test_event_of_destroyed_qp(void **state)
{
	struct rdma_sge s;
	const struct rdma_send_wr wr = {.sg = &s, .nb_sge = 1, .op = RDMA_OP_SEND};
	struct rdma_qp *qp[2];
	struct rdma_event event = {0};
	unsigned int i;

	port_make(1, PORT_PROMPT);
	device(1, "ip=10.0.0.1/24");
	s = sge(0, 1000);
	s.lkey ^= 1;
	for (i = 0; i < 2; i++) {
		qp[i] = qp_make(RDMA_QP_RC, 0);
		connect_to(qp[i], qp[i], 1);
		assert_int_equal(rdma_post_send(qp[i], &wr, 1), 1);
	}
	rdma_progress(it.dev, 0);
	assert_int_equal(rdma_poll_cm(it.dev, &event, 0), 0);
	assert_int_equal(rdma_qp_destroy(qp[0]), 0);
	assert_int_equal(rdma_poll_cm(it.dev, &event, 1), 1);
	assert_int_equal(event.type, RDMA_EVENT_QP_ERROR);
	assert_ptr_equal(event.qp, qp[1]);
	assert_int_equal(rdma_poll_cm(it.dev, &event, 1), 0);
	assert_int_equal(rdma_qp_destroy(qp[1]), 0);
	device_close();
	drain(it.tx[0]);
	port_free();
}

/* All queue pairs may fail before control is polled; excess events are counted. */
static void
test_notes(void **state)
{
	const unsigned int most = ROCE_NOTES_QP * 2000;
	struct roce_note note[32];
	unsigned int i, n, got = 0;
	struct roce_dev *dev;

	port_make(1, PORT_PROMPT);
	device(1, "ip=10.0.0.1/24,qps=2000");
	dev = roce_dev(it.dev);
	for (i = 0; i < most; i++)
		roce_poll_group_note(dev->poll_groups[0], ROCE_NOTE_QP_ERROR, i);
	assert_int_equal(stat("qp_events_lost"), 0);
	while ((n = roce_control_notes(dev, note, RTE_DIM(note))))
		for (i = 0; i < n; i++)
			assert_int_equal(note[i].qpn, got++);
	assert_int_equal(got, most);
	for (i = 0; i < 4100; i++)
		roce_poll_group_note(dev->poll_groups[0], ROCE_NOTE_QP_ERROR, 2);
	assert_int_equal(stat("qp_events_lost"), 4100 - 4095);
	device_close();
	drain(it.tx[0]);
	port_free();
}

/* A poll group that is flooded with packets for control does not block the others. */
static void
test_control_flood_is_fair(void **state)
{
	struct rte_mempool *pool = rte_pktmbuf_pool_create("turns", 1023, 0, 0, 256, 0);
	uint8_t frame[14 + 28] = {[12] = 8, 6};
	struct rdma_event event;
	struct roce_dev *dev;
	unsigned int i, j;

	port_make(2, PORT_PROMPT);
	device(2, "ip=10.0.0.1/24,poll_groups=2");
	dev = roce_dev(it.dev);
	for (i = 0; i < 20; i++) {
		for (j = 0; j < 32; j++)
			arrive(pool, 0, frame, sizeof(frame));
		rdma_progress(it.dev, 0);
	}
	arrive(pool, 1, frame, sizeof(frame));
	rdma_progress(it.dev, 1);
	for (i = 0; i < 80; i++)
		roce_poll_group_note(dev->poll_groups[0], ROCE_NOTE_QP_ERROR, 2);
	roce_poll_group_note(dev->poll_groups[1], ROCE_NOTE_QP_ERROR, 2);
	for (i = 0; i < 2; i++)
		rdma_poll_cm(it.dev, &event, 1);
	assert_false(rte_ring_empty(dev->poll_groups[0]->to_control));
	assert_true(rte_ring_empty(dev->poll_groups[1]->to_control));
	assert_true(rte_ring_empty(dev->poll_groups[1]->notes));
	device_close();
	drain(it.tx[0]);
	drain(it.tx[1]);
	port_free();
	rte_mempool_free(pool);
}

/* ---- wrap-around of PSNs --------------------------------------------------------------------- */

static void
carry(bool lose)
{
	struct rte_mbuf *m = NULL;

	rdma_progress(it.dev, 0);
	while (rte_ring_dequeue(it.tx[0], (void **)&m) == 0)
		if (lose || rte_ring_enqueue(it.rx[0], m) < 0)
			rte_pktmbuf_free(m);
}

/*
 * An atomic is repeated, and 2^24 packets before there was another one with the same PSN: the
 * result is that of the later one.
 */
static void
test_atomic_round(void **state)
{
	struct rdma_sge s;
	struct rdma_send_wr wr = {.sg = &s,
		.nb_sge = 1,
		.op = RDMA_OP_FETCH_ADD,
		.flags = RDMA_SEND_SIGNALED,
		.remote_addr = (uintptr_t)memory,
		.swap_add = 5};
	uint64_t *remote = (uint64_t *)memory, *local = (uint64_t *)(memory + 8);
	struct rdma_qp *a, *b;
	struct roce_qp *asker, *answerer;
	struct rdma_wc wc;
	uint64_t deadline;

	port_make(1, PORT_PROMPT);
	device(1, "ip=10.0.0.1/24");
	a = qp_make(RDMA_QP_RC, 0);
	b = qp_make(RDMA_QP_RC, 0);
	connect_to(a, b, 0xfffff0);
	connect_to(b, a, 0xfffff0);
	asker = (struct roce_qp *)a;
	answerer = (struct roce_qp *)b;
	carry(false);
	s = sge(8, 8);
	wr.rkey = rdma_mr_rkey(it.mr);
	*remote = 100;
	assert_int_equal(rdma_post_send(a, &wr, 1), 1);
	while (rdma_poll_cq(it.cq[0], &wc, 1) == 0)
		carry(false);
	assert_int_equal(*local, 100);
	/* as if 2^24 - 1 packets had been sent */
	asker->req.next_psn = asker->req.una_psn = asker->req.max_psn = 0xfffff0;
	answerer->resp.expected_psn = 0xfffff0;
	assert_int_equal(rdma_post_send(a, &wr, 1), 1);
	carry(false); /* request */
	carry(true);  /* its response is lost */
	deadline = rte_rdtsc() + 10 * rte_get_tsc_hz();
	while (rdma_poll_cq(it.cq[0], &wc, 1) == 0 && rte_rdtsc() < deadline)
		carry(false);
	assert_int_equal(wc.status, RDMA_WC_SUCCESS);
	assert_true(stat("rx_duplicates") > 0);
	assert_int_equal(*remote, 110);
	assert_int_equal(*local, 105);
	assert_int_equal(rdma_qp_destroy(a), 0);
	assert_int_equal(rdma_qp_destroy(b), 0);
	drain(it.tx[0]);
	drain(it.rx[0]);
	device_close();
	port_free();
}

/*
 * A NAK is a response. After any number of RNR NAKs, the timeout starts again with the next packet;
 * otherwise it would expire during the RNR wait.
 */
static void
test_nak_is_answer(void **state)
{
	struct rdma_sge s;
	const struct rdma_send_wr wr = {.sg = &s, .nb_sge = 1, .op = RDMA_OP_SEND};
	const uint32_t psn = 0xfffff0;
	struct roce_qp *asker;
	struct rdma_qp *a, *b;
	struct rte_mbuf *m = NULL;
	unsigned int i;

	port_make(1, PORT_PROMPT);
	device(1, "ip=10.0.0.1/24");
	a = qp_make(RDMA_QP_RC, 0);
	b = qp_make(RDMA_QP_RC, 0);
	connect_to(a, b, psn);
	connect_to(b, a, psn);
	asker = (struct roce_qp *)a;
	asker->req.ack_cycles = 1000 * rte_get_tsc_hz(); /* never in this test */
	s = sge(0, 10);
	carry(false);
	assert_int_equal(rdma_post_send(a, &wr, 1), 1);
	for (i = 0; i < 1000 && asker->req.wait != ROCE_WAIT_RNR; i++)
		carry(false);
	assert_int_equal(asker->req.wait, ROCE_WAIT_RNR);
	assert_int_equal(asker->req.ack_deadline, 0);
	/* two are posted, the first is lost: NAK of a sequence error */
	assert_int_equal(rdma_qp_destroy(a), 0);
	assert_int_equal(rdma_qp_destroy(b), 0);
	a = qp_make(RDMA_QP_RC, 0);
	b = qp_make(RDMA_QP_RC, 0);
	connect_to(a, b, psn);
	connect_to(b, a, psn);
	asker = (struct roce_qp *)a;
	asker->req.ack_cycles = 1000 * rte_get_tsc_hz();
	assert_int_equal(rdma_post_send(a, &wr, 1), 1);
	rdma_progress(it.dev, 0);
	assert_int_equal(rte_ring_dequeue(it.tx[0], (void **)&m), 0);
	rte_pktmbuf_free(m);
	asker->req.ack_deadline = 1; /* expired, except for the NAK */
	assert_int_equal(rdma_post_send(a, &wr, 1), 1);
	for (i = 0; i < 1000 && stat("rx_nak_sequence") == 0; i++)
		carry(false);
	assert_int_equal(stat("rx_nak_sequence"), 1);
	assert_true(asker->req.ack_deadline != 1);
	assert_int_equal(stat("ack_timeouts"), 0);
	assert_int_equal(rdma_qp_destroy(a), 0);
	assert_int_equal(rdma_qp_destroy(b), 0);
	drain(it.tx[0]);
	drain(it.rx[0]);
	device_close();
	port_free();
}

int
main(void)
{
	const char *argv[] = {"roce_poll_group", "--no-huge", "-m", "256", "--no-pci",
		"--no-shconf", "-l", "0", "--log-level", "braggline.rdma:emerg"};
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_mapped),
		cmocka_unit_test(test_open_again),
		cmocka_unit_test(test_close_after_stop),
		cmocka_unit_test(test_stalled_port),
		cmocka_unit_test(test_leave_reports_on_close),
		cmocka_unit_test(test_listener),
		cmocka_unit_test(test_kept_uc),
		cmocka_unit_test(test_kept_half),
		cmocka_unit_test(test_kept_rc),
		cmocka_unit_test(test_kept_last),
		cmocka_unit_test(test_frames_that_are_never_freed),
		cmocka_unit_test(test_kept_copies),
		cmocka_unit_test(test_segments),
		cmocka_unit_test(test_shared_group),
		cmocka_unit_test(test_late_link),
		cmocka_unit_test(test_groups),
		cmocka_unit_test(test_junk),
		cmocka_unit_test(test_event_of_destroyed_qp),
		cmocka_unit_test(test_notes),
		cmocka_unit_test(test_control_flood_is_fair),
		cmocka_unit_test(test_atomic_round),
		cmocka_unit_test(test_nak_is_answer),
	};

	if (rte_eal_init(RTE_DIM(argv), (char **)(uintptr_t)argv) < 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
