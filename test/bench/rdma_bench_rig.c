/* SPDX-License-Identifier: BSD-3-Clause */
#include "rdma_bench_rig.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_errno.h>
#include <rte_eth_ring.h>
#include <rte_ethdev.h>
#include <rte_launch.h>
#include <rte_lcore.h>
#include <rte_malloc.h>
#include <rte_mbuf.h>
#include <rte_random.h>

#define WIRE_SLOTS 1024
#define DEPTH	   512
#define STATS_MAX  128
#define PATIENCE   5 /* s, limit for waits */
#define REST_US	   1000

void
rig_die(const char *format, ...)
{
	va_list list;

	va_start(list, format);
	fprintf(stderr, "rdma_bench: ");
	vfprintf(stderr, format, list);
	fprintf(stderr, "\n");
	va_end(list);
	exit(1);
}

void
rig_poll_side(struct rig_side *side)
{
	uint64_t before = rte_rdtsc();
	unsigned int n = rdma_progress(side->dev, 0);

	if (n)
		side->busy += rte_rdtsc() - before;
}

void
rig_turn(struct rig *rig)
{
	rig_poll_side(&rig->a);
	if (!rig->alone)
		return;
	rig_poll_side(&rig->b);
	if (rig->meanwhile)
		rig->meanwhile(rig);
}

/* The worker's loop: polls its device, and runs jobs. */
static int
worker_main(void *arg)
{
	struct rig *rig = arg;
	void (*job)(struct rig *);

	while (!atomic_load_explicit(&rig->quit, memory_order_relaxed)) {
		if (atomic_load_explicit(&rig->resting, memory_order_relaxed)) {
			usleep(REST_US);
			continue;
		}
		rig_poll_side(&rig->a);
		job = atomic_load_explicit(&rig->job, memory_order_acquire);
		if (!job)
			continue;
		job(rig);
		atomic_store_explicit(&rig->job, NULL, memory_order_release);
	}
	return 0;
}

void
rig_run(struct rig *rig, void (*job)(struct rig *), void (*meanwhile)(struct rig *))
{
	struct rdma_event event[4];
	unsigned int turns = 0;

	if (rig->alone) {
		rig->meanwhile = meanwhile;
		job(rig);
		return;
	}
	atomic_store_explicit(&rig->job, job, memory_order_release);
	while (atomic_load_explicit(&rig->job, memory_order_acquire)) {
		rig_poll_side(&rig->b);
		if (meanwhile)
			meanwhile(rig);
		if (turns++ % 4096 == 0) {
			rdma_poll_cm(rig->a.dev, event, 4);
			rdma_poll_cm(rig->b.dev, event, 4);
		}
	}
}

/* The wire: lost packets are dropped at reception. */
static uint16_t
lose(uint16_t port, uint16_t queue, struct rte_mbuf **m, uint16_t n, uint16_t max, void *arg)
{
	struct rig *rig = arg;
	uint32_t loss = atomic_load_explicit(&rig->loss, memory_order_relaxed);
	uint16_t i, kept = 0;

	if (!loss)
		return n;
	for (i = 0; i < n; i++)
		if ((uint32_t)rte_rand() < loss) {
			rte_pktmbuf_free(m[i]);
			atomic_fetch_add_explicit(&rig->lost, 1, memory_order_relaxed);
		} else {
			m[kept++] = m[i];
		}
	return kept;
}

static void
open_side(struct rig *rig, struct rig_side *side, const char *name, uint16_t port)
{
	struct rdma_mr_attr attr = {.length = rig->memory_size,
		.access = RDMA_ACCESS_LOCAL_WRITE | RDMA_ACCESS_REMOTE_WRITE |
			RDMA_ACCESS_REMOTE_READ | RDMA_ACCESS_REMOTE_ATOMIC,
		.gpu = -1};

	side->dev = rdma_dev_open(name);
	if (!side->dev)
		rig_die("device %s: %s", name, rte_strerror(rte_errno));
	if (!rte_eth_add_rx_callback(port, 0, lose, rig))
		rig_die("port %u takes no RX callback: %s", port, rte_strerror(rte_errno));
	side->memory = rte_malloc("rig", rig->memory_size, RIG_MTU);
	if (!side->memory)
		rig_die("%zu bytes of memory are missing: give EAL more (-m)", rig->memory_size);
	/* touch every page before the measurement */
	memset(side->memory, 0x5a, rig->memory_size);
	attr.addr = side->memory;
	side->pd = rdma_pd_alloc(side->dev);
	side->mr = rdma_mr_reg(side->pd, &attr);
	side->send_cq = rdma_cq_create(side->dev, DEPTH, 0);
	side->recv_cq = rdma_cq_create(side->dev, DEPTH, 0);
	if (!side->mr || !side->send_cq || !side->recv_cq)
		rig_die("device %s: no region or completion queue: %s", name,
			rte_strerror(rte_errno));
}

/* Configure a port without RTE_ETH_TX_OFFLOAD_MULTI_SEGS. */
static void
start_port(uint16_t port)
{
	const struct rte_eth_conf conf = {.rxmode.mtu = RIG_MTU + 100};
	static struct rte_mempool *pool;

	/* never used: frames are from the pool of the device that sends them */
	if (!pool)
		pool = rte_pktmbuf_pool_create("rig_port", 255, 0, 0, RTE_MBUF_DEFAULT_BUF_SIZE, 0);
	if (!pool || rte_eth_dev_configure(port, 1, 1, &conf) < 0 ||
		rte_eth_rx_queue_setup(port, 0, WIRE_SLOTS, 0, NULL, pool) < 0 ||
		rte_eth_tx_queue_setup(port, 0, WIRE_SLOTS, 0, NULL) < 0 ||
		rte_eth_dev_start(port) < 0)
		rig_die("port %u cannot be configured", port);
}

/* ---- the switch ------------------------------------------------------------------------------ */

#define ENDS_MAX     (2 + RIG_MORE_MAX)
#define SWITCH_SLOTS 4096 /* more than a ring of a sender of the group: none is lost for its size */

static struct {
	struct rte_ring *from[ENDS_MAX], *to[ENDS_MAX];
	unsigned int nb;
	struct rte_mempool *clones;
	bool (*lose_all)(void);
	_Atomic bool quit;
	unsigned int lcore;
} bridge;

/* The end that has the destination address 10.0.0.N of a frame; `nb`: all others. */
static unsigned int
destination(const struct rte_mbuf *m)
{
	const uint8_t *frame = rte_pktmbuf_mtod(m, const uint8_t *);
	const bool arp = frame[12] == 0x08 && frame[13] == 0x06;
	const unsigned int n = frame[arp ? 41 : 33];

	return frame[0] & 1 || n < 1 || n > bridge.nb ? bridge.nb : n - 1;
}

static void
pass_to(unsigned int end, struct rte_mbuf *m)
{
	if (rte_ring_enqueue(bridge.to[end], m) < 0)
		rte_pktmbuf_free(m);
}

static void
pass(unsigned int from, struct rte_mbuf *m)
{
	const unsigned int to = destination(m);
	struct rte_mbuf *clone;

	if (to < bridge.nb) {
		pass_to(to, m);
		return;
	}
	if (!bridge.lose_all())
		for (unsigned int i = 0; i < bridge.nb; i++) {
			clone = i != from ? rte_pktmbuf_clone(m, bridge.clones) : NULL;
			if (clone)
				pass_to(i, clone);
		}
	rte_pktmbuf_free(m);
}

static void
empty_ring(struct rte_ring *ring)
{
	void *m;

	while (rte_ring_dequeue(ring, &m) == 0)
		rte_pktmbuf_free(m);
}

static int
switch_main(void *arg)
{
	struct rte_mbuf *m[32];
	unsigned int n, i, k;

	while (!bridge.quit)
		for (i = 0; i < bridge.nb; i++) {
			n = rte_ring_dequeue_burst(bridge.from[i], (void **)m, 32, NULL);
			for (k = 0; k < n; k++)
				pass(i, m[k]);
		}
	return 0;
}

/* ---------------------------------------------------------------------------------------------- */

static struct rte_ring *
make_ring(unsigned int number, const char *from, unsigned int end)
{
	struct rte_ring *ring;
	char name[64];

	snprintf(name, sizeof(name), "%s%u_%u", from, number, end);
	ring = rte_ring_create(name, bridge.nb ? SWITCH_SLOTS : WIRE_SLOTS, SOCKET_ID_ANY,
		RING_F_SP_ENQ | RING_F_SC_DEQ);
	if (!ring)
		rig_die("no ring: %s", rte_strerror(rte_errno));
	return ring;
}

/* An end's port and device. Its rings: those of the switch, or the wire, which both ends have. */
static void
make_end(struct rig *rig, struct rig_side *side, unsigned int number, unsigned int end, bool whole)
{
	struct rte_ring **rx = bridge.nb ? &bridge.to[end] : &rig->wire[end];
	struct rte_ring **tx = bridge.nb ? &bridge.from[end] : &rig->wire[!end];
	char name[64];
	int port;

	snprintf(name, sizeof(name), "end%u_%u", number, end);
	port = rte_eth_from_rings(name, rx, 1, tx, 1, 0);
	if (port < 0)
		rig_die("no port on rings: %s", rte_strerror(rte_errno));
	if (whole)
		start_port((uint16_t)port);
	snprintf(name, sizeof(name), "roce:port=%d,ip=10.0.0.%u/24,mtu=4096", port, end + 1);
	open_side(rig, side, name, (uint16_t)port);
}

static void
open_rig(struct rig *rig, size_t memory_size, unsigned int nb_more, bool alone, bool whole)
{
	static unsigned int rigs;
	unsigned int i;

	memset(rig, 0, sizeof(*rig));
	rigs++;
	rig->alone = alone;
	rig->nb_more = nb_more;
	rig->memory_size = memory_size;
	rig->seed = 1;
	rte_srand(rig->seed);
	rig->worker = rte_get_next_lcore(-1, 1, 0);
	if (rig->worker >= RTE_MAX_LCORE)
		rig_die("found one lcore, expected two: EAL's -l");
	bridge.nb = nb_more ? 2 + nb_more : 0;
	for (i = 0; i < RTE_MAX(bridge.nb, 2U); i++) {
		if (bridge.nb) {
			bridge.from[i] = make_ring(rigs, "from", i);
			bridge.to[i] = make_ring(rigs, "to", i);
		} else {
			rig->wire[i] = make_ring(rigs, "wire", i);
		}
	}
	make_end(rig, &rig->a, rigs, 0, whole);
	make_end(rig, &rig->b, rigs, 1, whole);
	for (i = 0; i < nb_more; i++)
		make_end(rig, &rig->more[i], rigs, 2 + i, whole);
	rig_poll_side(&rig->b); /* from now on the main lcore polls it */
	if (alone)
		rig_poll_side(&rig->a);
	else
		rte_eal_remote_launch(worker_main, rig, rig->worker);
}

void
rig_open(struct rig *rig, size_t memory_size, bool alone)
{
	open_rig(rig, memory_size, 0, alone, false);
}

void
rig_open_whole(struct rig *rig, size_t memory_size)
{
	open_rig(rig, memory_size, 0, false, true);
}

void
rig_open_group(struct rig *rig, size_t memory_size, unsigned int nb_more, bool (*lose_all)(void))
{
	unsigned int lcore;

	if (nb_more > RIG_MORE_MAX || rte_lcore_count() < 3 + nb_more)
		rig_die("found %u lcores, expected %u: EAL's -l", rte_lcore_count(), 3 + nb_more);
	bridge.clones = rte_pktmbuf_pool_create(
		"clones", ENDS_MAX * SWITCH_SLOTS * 2 - 1, 256, 0, 0, SOCKET_ID_ANY);
	if (!bridge.clones)
		rig_die("no pool: %s", rte_strerror(rte_errno));
	bridge.lose_all = lose_all;
	open_rig(rig, memory_size, nb_more, false, false);
	lcore = rig->worker;
	for (unsigned int i = 0; i < nb_more; i++)
		rig->more[i].lcore = lcore = rte_get_next_lcore(lcore, 1, 0);
	bridge.lcore = rte_get_next_lcore(lcore, 1, 0);
	rte_eal_remote_launch(switch_main, NULL, bridge.lcore);
}

static void
poll_all(struct rig *rig)
{
	struct rdma_event event[4];

	if (rig->alone)
		rig_poll_side(&rig->a);
	rig_poll_side(&rig->b);
	rdma_poll_cm(rig->a.dev, event, 4);
	rdma_poll_cm(rig->b.dev, event, 4);
}

/* Repeat a call while it returns busy. */
#define UNTIL_FREE(rig, call, what)                                                \
	do {                                                                       \
		uint64_t end = rte_get_tsc_cycles() + PATIENCE * rte_get_tsc_hz(); \
		while ((call) == -EBUSY) {                                         \
			poll_all(rig);                                             \
			if (rte_get_tsc_cycles() > end)                            \
				rig_die("%s stays busy", what);                    \
		}                                                                  \
	} while (0)

/*
 * Free what is on its way. Frames are passed by reference, so that those of a device's control
 * lcore may also wait for the control lcore of another device, which handles them here. An answer
 * to an ARP request has no answer itself.
 */
static void
empty_wires(struct rig *rig, struct rig_side *const side[])
{
	struct rdma_event event[4];

	for (unsigned int turn = 0; turn < 4; turn++)
		for (unsigned int i = 0; i < 2 + rig->nb_more; i++) {
			rdma_progress(side[i]->dev, 0);
			rdma_poll_cm(side[i]->dev, event, RTE_DIM(event));
		}
	for (unsigned int i = 0; i < bridge.nb; i++) {
		empty_ring(bridge.from[i]);
		empty_ring(bridge.to[i]);
	}
	for (unsigned int i = 0; i < RTE_DIM(rig->wire) && rig->wire[i]; i++)
		empty_ring(rig->wire[i]);
}

void
rig_close(struct rig *rig)
{
	struct rig_side *side[2 + RIG_MORE_MAX] = {&rig->a, &rig->b};
	unsigned int i;

	for (i = 0; i < rig->nb_more; i++)
		side[2 + i] = &rig->more[i];
	for (i = 0; i < 2 + rig->nb_more; i++) {
		rdma_cq_destroy(side[i]->send_cq);
		rdma_cq_destroy(side[i]->recv_cq);
		UNTIL_FREE(rig, rdma_mr_dereg(side[i]->mr), "region");
		rdma_pd_free(side[i]->pd);
	}
	atomic_store(&rig->quit, true);
	bridge.quit = true;
	if (!rig->alone)
		rte_eal_mp_wait_lcore();
	empty_wires(rig, side);
	/* the sender's frames are also in the devices behind the switch */
	for (i = 2 + rig->nb_more; i-- > 0;) {
		rdma_dev_close(side[i]->dev);
		rte_free(side[i]->memory);
	}
}

static uint32_t
qpn_of(const struct rdma_qp *qp)
{
	struct rdma_qp_info info;

	rdma_qp_info_get(qp, &info);
	return info.qpn;
}

static void
connect_one(struct rig *rig, struct rdma_qp *qp, const char *ip, uint32_t qpn, uint32_t psn,
	uint32_t local_psn)
{
	struct rdma_qp_peer peer = {.qpn = qpn,
		.psn = psn,
		.local_psn = local_psn,
		.mtu = RIG_MTU,
		.rd_atom = 16,
		.responder_rd_atom = 16};
	struct sockaddr_in *in = (struct sockaddr_in *)&peer.addr;
	uint64_t end = rte_get_tsc_cycles() + PATIENCE * rte_get_tsc_hz();
	int ret;

	in->sin_family = AF_INET;
	inet_pton(AF_INET, ip, &in->sin_addr);
	while ((ret = rdma_qp_connect(qp, &peer)) == -EAGAIN) {
		poll_all(rig);
		if (rte_get_tsc_cycles() > end)
			rig_die("address %s is not resolved", ip);
	}
	if (ret < 0)
		rig_die("queue pair is not connected: %s", rte_strerror(-ret));
}

static struct rdma_qp *
create_qp(struct rig_side *side, const struct rdma_qp_attr *attr)
{
	struct rdma_qp_attr a = *attr;
	struct rdma_qp *qp;

	a.send_cq = side->send_cq;
	a.recv_cq = side->recv_cq;
	qp = rdma_qp_create(side->pd, &a);
	if (!qp)
		rig_die("no queue pair: %s", rte_strerror(rte_errno));
	return qp;
}

static void
connect_pair(struct rig *rig, struct rdma_qp *a, struct rdma_qp *b)
{
	connect_one(rig, a, "10.0.0.2", qpn_of(b), 0x111111, 0x222222);
	connect_one(rig, b, "10.0.0.1", qpn_of(a), 0x222222, 0x111111);
}

void
rig_connect_two(struct rig *rig, const struct rdma_qp_attr *of_a, const struct rdma_qp_attr *of_b)
{
	rig->a.qp = create_qp(&rig->a, of_a);
	rig->b.qp = create_qp(&rig->b, of_b);
	connect_pair(rig, rig->a.qp, rig->b.qp);
}

void
rig_connect(struct rig *rig, const struct rdma_qp_attr *attr)
{
	rig_connect_two(rig, attr, attr);
}

/* Completions of an earlier job. */
static void
drain(struct rdma_cq *cq)
{
	struct rdma_wc wc[32];

	while (rdma_poll_cq(cq, wc, 32))
		;
}

static void
drain_worker(struct rig *rig)
{
	drain(rig->a.send_cq);
	drain(rig->a.recv_cq);
}

void
rig_disconnect(struct rig *rig)
{
	rdma_qp_error(rig->a.qp);
	rdma_qp_error(rig->b.qp);
	UNTIL_FREE(rig, rdma_qp_destroy(rig->a.qp), "queue pair");
	UNTIL_FREE(rig, rdma_qp_destroy(rig->b.qp), "queue pair");
	rig_run(rig, drain_worker, NULL);
	drain(rig->b.send_cq);
	drain(rig->b.recv_cq);
}

struct rdma_qp **
rig_idle(struct rig *rig, unsigned int n)
{
	const struct rdma_qp_attr attr = {
		.type = RDMA_QP_RC, .max_send_wr = 16, .max_recv_wr = 16, .retry_count = 7};
	struct rdma_qp **idle = calloc(2 * n, sizeof(*idle));
	unsigned int i;

	for (i = 0; i < n; i++) {
		idle[2 * i] = create_qp(&rig->a, &attr);
		idle[2 * i + 1] = create_qp(&rig->b, &attr);
		connect_pair(rig, idle[2 * i], idle[2 * i + 1]);
	}
	return idle;
}

void
rig_idle_close(struct rig *rig, struct rdma_qp **idle, unsigned int n)
{
	unsigned int i;

	for (i = 0; i < 2 * n; i++)
		UNTIL_FREE(rig, rdma_qp_destroy(idle[i]), "idle queue pair");
	free(idle);
}

void
rig_rest(struct rig *rig, bool rest)
{
	atomic_store(&rig->resting, rest);
	if (rest)
		usleep(REST_US);
}

uint64_t
rig_stat(const struct rig_side *side, const char *name)
{
	struct rdma_xstat x[STATS_MAX];
	int n = rdma_xstats_get(side->dev, x, STATS_MAX), i;

	for (i = 0; i < n && i < STATS_MAX; i++)
		if (strcmp(x[i].name, name) == 0)
			return x[i].value;
	rig_die("the device has no counter %s", name);
}
