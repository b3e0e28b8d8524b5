/* SPDX-License-Identifier: BSD-3-Clause */
#include "roce_rig.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>

#include <rte_bus_vdev.h>
#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_ethdev.h>

#include "ring_port.h"
#include "engine/icrc.h"
#include "engine/qp.h"

#define GUARD 4096 /* bytes before and after the region that must not change */
/* least steps of a wait: a packet and its response take two, and a pause may use up all the time */
#define STEPS_MIN 64

void
rig_eal(void)
{
	const char *argv[] = {"rig", "--no-huge", "-m", "256", "--no-pci", "--no-shconf", "-l", "0",
		"--log-level", "lib.eal:warning"};
	static bool done;

	if (!done)
		assert_true(rte_eal_init(RTE_DIM(argv), (char **)(uintptr_t)argv) >= 0);
	done = true;
}

uint32_t
rig_random(struct rig *rig, uint32_t below)
{
	/* SplitMix64 */
	uint64_t z = rig->random += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return (uint64_t)(uint32_t)(z ^ z >> 31) * below >> 32;
}

/* A port with a pair of rings for each poll group. */
static void
port_make(struct rig *rig, unsigned int i)
{
	struct rte_eth_conf conf = {.rxmode.mtu = 4300};
	struct rig_end *end = &rig->end[i];
	static struct rte_mempool *pool;
	char name[32];
	unsigned int q;
	uint16_t port;

	snprintf(name, sizeof(name), "rig%u", i);
	port = ring_port_make(name, 4096, rig->poll_groups, end->rx, end->tx);
	if (!rig->started)
		return;
	if (!pool)
		pool = rte_pktmbuf_pool_create("rig_port", 255, 0, 0, 2048, 0);
	assert_int_equal(rte_eth_dev_configure(port, rig->poll_groups, rig->poll_groups, &conf), 0);
	for (q = 0; q < rig->poll_groups; q++) {
		assert_int_equal(rte_eth_rx_queue_setup(port, q, 64, 0, NULL, pool), 0);
		assert_int_equal(rte_eth_tx_queue_setup(port, q, 64, 0, NULL), 0);
	}
	assert_int_equal(rte_eth_dev_start(port), 0);
}

static void
end_open(struct rig *rig, unsigned int i, const char *options)
{
	struct rig_end *end = &rig->end[i];
	struct rdma_mr_attr attr = {.gpu = -1, .length = RIG_MEMORY};
	char name[RDMA_NAME_MAX], own[RDMA_NAME_MAX - 32];
	struct rdma_dev_info info;
	const char *u = strstr(options, "%u");
	int n;

	port_make(rig, i);
	assert_non_null(u);
	n = snprintf(own, sizeof(own), "%.*s%u%s", (int)(u - options), options, i + 1, u + 2);
	assert_true(n < (int)sizeof(own));
	snprintf(name, sizeof(name), "roce:port=net_ring_rig%u,%s", i, own);
	end->dev = rdma_dev_open(name);
	assert_non_null(end->dev);
	rdma_dev_info_get(end->dev, &info);
	end->addr = info.addr;
	end->pd = rdma_pd_alloc(end->dev);
	end->memory = malloc(RIG_MEMORY + 2 * GUARD);
	assert_non_null(end->memory);
	memset(end->memory, 0xa5, RIG_MEMORY + 2 * GUARD);
	end->memory += GUARD;
	attr.addr = end->memory;
	attr.access = RDMA_ACCESS_LOCAL_WRITE | RDMA_ACCESS_REMOTE_WRITE | RDMA_ACCESS_REMOTE_READ |
		RDMA_ACCESS_REMOTE_ATOMIC;
	end->mr = rdma_mr_reg(end->pd, &attr);
	assert_non_null(end->mr);
	end->cq = rdma_cq_create(end->dev, 1024, rig->poll_group);
	assert_non_null(end->cq);
}

void
rig_open_as(struct rig *rig, const char *options)
{
	const struct rig kept = *rig;
	const char *seed = getenv("ROCE_SEED");
	unsigned int i;

	memset(rig, 0, sizeof(*rig));
	rig->poll_groups = kept.poll_groups;
	rig->poll_group = kept.poll_group;
	rig->started = kept.started;
	rig->random = seed ? strtoull(seed, NULL, 0) : rte_rdtsc();
	print_message("ROCE_SEED=%#lx\n", rig->random);
	for (i = 0; i < 2; i++)
		end_open(rig, i, options);
}

void
rig_open(struct rig *rig, const char *options)
{
	char all[RDMA_NAME_MAX];

	memset(rig, 0, sizeof(*rig));
	rig->poll_groups = 1;
	snprintf(all, sizeof(all), "ip=10.0.0.%%u/24%s", options);
	rig_open_as(rig, all);
}

static void
rings_drain(struct rig_end *end, unsigned int poll_groups)
{
	struct rte_mbuf *m;
	unsigned int q;

	for (q = 0; q < poll_groups; q++) {
		while (rte_ring_dequeue(end->rx[q], (void **)&m) == 0)
			rte_pktmbuf_free(m);
		while (rte_ring_dequeue(end->tx[q], (void **)&m) == 0)
			rte_pktmbuf_free(m);
	}
}

void
rig_close(struct rig *rig)
{
	struct rig_end *end;
	unsigned int i, j;
	uint16_t port;
	char name[32];

	for (i = 0; i < 2; i++)
		rte_pktmbuf_free_bulk(rig->held[i], rig->nb_held[i]);
	for (i = 0; i < 2; i++)
		rings_drain(&rig->end[i], rig->poll_groups);
	for (i = 0; i < 2; i++) {
		end = &rig->end[i];
		for (j = 0; j < GUARD; j++) {
			assert_int_equal(end->memory[-1 - (int)j], 0xa5);
			assert_int_equal(end->memory[RIG_MEMORY + j], 0xa5);
		}
		assert_int_equal(rdma_cq_destroy(end->cq), 0);
		assert_int_equal(rdma_mr_dereg(end->mr), 0);
		assert_int_equal(rdma_pd_free(end->pd), 0);
		assert_int_equal(rdma_dev_close(end->dev), 0);
		free(end->memory - GUARD);
	}
	for (i = 0; i < 2; i++) {
		snprintf(name, sizeof(name), "net_ring_rig%u", i);
		assert_int_equal(rte_eth_dev_get_port_by_name(name, &port), 0);
		if (rig->started)
			rte_eth_dev_stop(port);
		rte_eth_dev_close(port);
		rte_vdev_uninit(name);
		rings_drain(&rig->end[i], rig->poll_groups);
		for (j = 0; j < rig->poll_groups; j++) {
			rte_ring_free(rig->end[i].rx[j]);
			rte_ring_free(rig->end[i].tx[j]);
		}
	}
}

void
rig_connect(struct rig *rig, const struct rdma_qp_attr *attr, uint16_t mtu)
{
	struct rdma_qp_peer peer[2];
	struct rdma_event event;
	struct rdma_qp_attr a;
	struct rdma_qp_info info;
	uint64_t deadline = rte_rdtsc() + 10 * rte_get_tsc_hz();
	unsigned int i;
	int ret;

	for (i = 0; i < 2; i++) {
		a = *attr;
		a.send_cq = a.recv_cq = rig->end[i].cq;
		a.poll_group = rig->poll_group;
		rig->end[i].qp = rdma_qp_create(rig->end[i].pd, &a);
		assert_non_null(rig->end[i].qp);
	}
	memset(peer, 0, sizeof(peer));
	for (i = 0; i < 2; i++) {
		peer[i].addr = rig->end[!i].addr;
		rdma_qp_info_get(rig->end[!i].qp, &info);
		peer[i].qpn = info.qpn;
		peer[i].mtu = mtu;
		peer[i].rd_atom = peer[i].responder_rd_atom = 16;
		/* close to wrap-around */
		peer[i].psn = 0xffffff - (!i ? 3 : 5);
		peer[i].local_psn = 0xffffff - (i ? 3 : 5);
	}
	for (i = 0; i < 2; i++) {
		while ((ret = rdma_qp_connect(rig->end[i].qp, &peer[i])) == -EAGAIN &&
			rte_rdtsc() < deadline) {
			rig_step(rig);
			rdma_poll_cm(rig->end[0].dev, &event, 1);
			rdma_poll_cm(rig->end[1].dev, &event, 1);
		}
		assert_int_equal(ret, 0);
	}
}

void
rig_disconnect(struct rig *rig)
{
	struct rdma_wc wc;
	unsigned int i;

	for (i = 0; i < 2; i++) {
		assert_int_equal(rdma_qp_destroy(rig->end[i].qp), 0);
		while (rdma_poll_cq(rig->end[i].cq, &wc, 1))
			;
	}
}

/* Does a fault with this chance happen? */
static bool
chance(struct rig *rig, uint32_t of65536)
{
	return of65536 && rig_random(rig, 65536) < of65536;
}

static void
deliver(struct rig *rig, unsigned int to, struct rte_mbuf *m)
{
	const unsigned int q = rig->first_queue ? 0 : rig_random(rig, rig->poll_groups);

	if (rte_ring_enqueue(rig->end[to].rx[q], m) < 0)
		rte_pktmbuf_free(m);
}

/* Corrupt one bit of a copy. */
static struct rte_mbuf *
corrupt(struct rig *rig, struct rte_mbuf *m)
{
	uint32_t at = rig_random(rig, m->pkt_len);
	struct rte_mbuf *seg = m;

	while (at >= seg->data_len) {
		at -= seg->data_len;
		seg = seg->next;
	}
	*rte_pktmbuf_mtod_offset(seg, uint8_t *, at) ^= 1 << rig_random(rig, 8);
	return m;
}

/* A copy of a frame: the wire must not modify registered memory, nor see it change. */
static struct rte_mbuf *
copy(struct rte_mbuf *m)
{
	static struct rte_mempool *pool;
	struct rte_mbuf *c;

	if (!pool)
		pool = rte_pktmbuf_pool_create("rig", 4095, 0, 0, 128 + 5000, 0);
	assert_non_null(pool);
	c = rte_pktmbuf_copy(m, pool, 0, UINT32_MAX);
	return c;
}

static void
carry(struct rig *rig, unsigned int from, struct rte_ring *tx)
{
	const struct rig_faults *f = &rig->faults[from];
	const unsigned int to = !from;
	struct rte_mbuf *m, *other;
	unsigned int i;

	/* delayed frames are delivered later */
	for (i = 0; i < rig->nb_held[from];) {
		if (rig_random(rig, 64)) {
			i++;
			continue;
		}
		deliver(rig, to, rig->held[from][i]);
		rig->held[from][i] = rig->held[from][--rig->nb_held[from]];
	}
	while (rte_ring_dequeue(tx, (void **)&m) == 0) {
		rig->frames[from]++;
		if (rig->tap && !rig->tap(rig, from, m)) {
			rte_pktmbuf_free(m);
			continue;
		}
		if (chance(rig, f->lose)) {
			rig->lost[from]++;
			rte_pktmbuf_free(m);
			continue;
		}
		if (chance(rig, f->twice)) {
			other = copy(m);
			if (other)
				deliver(rig, to, other);
		}
		if (chance(rig, f->corrupt)) {
			other = copy(m);
			rte_pktmbuf_free(m);
			if (!other)
				continue;
			m = corrupt(rig, other);
		}
		if (chance(rig, f->delay) && rig->nb_held[from] < RTE_DIM(rig->held[from])) {
			other = copy(m);
			rte_pktmbuf_free(m);
			if (other)
				rig->held[from][rig->nb_held[from]++] = other;
			continue;
		}
		if (chance(rig, f->swap) && rte_ring_dequeue(tx, (void **)&other) == 0)
			deliver(rig, to, other);
		deliver(rig, to, m);
	}
}

void
rig_step(struct rig *rig)
{
	unsigned int i, q;

	for (i = 0; i < 2; i++) {
		for (q = 0; q < rig->poll_groups; q++)
			rdma_progress(rig->end[i].dev, q);
		for (q = 0; q < rig->poll_groups; q++)
			carry(rig, i, rig->end[i].tx[q]);
	}
}

int
rig_wait(struct rig *rig, unsigned int end, struct rdma_wc *wc, unsigned int ms)
{
	const uint64_t deadline = rte_rdtsc() + rte_get_tsc_hz() / 1000 * ms;
	const unsigned int least = ms > 0 ? STEPS_MIN : 1;
	unsigned int steps = 0;

	do {
		if (rdma_poll_cq(rig->end[end].cq, wc, 1))
			return 1;
		rig_step(rig);
	} while (++steps < least || rte_rdtsc() < deadline);
	return rdma_poll_cq(rig->end[end].cq, wc, 1) > 0;
}

void
rig_run(struct rig *rig, unsigned int ms)
{
	const uint64_t deadline = rte_rdtsc() + rte_get_tsc_hz() / 1000 * ms;
	const unsigned int least = ms > 0 ? STEPS_MIN : 1;
	unsigned int steps = 0;

	do
		rig_step(rig);
	while (++steps < least || rte_rdtsc() < deadline);
}

uint64_t
rig_stat(const struct rig *rig, unsigned int end, const char *name)
{
	struct rdma_xstat x[256];
	int i, n = rdma_xstats_get(rig->end[end].dev, x, RTE_DIM(x));

	for (i = 0; i < n; i++)
		if (strcmp(x[i].name, name) == 0)
			return x[i].value;
	fail_msg("no counter %s", name);
	return 0;
}

struct rte_mbuf *
rig_forge(const struct rig *rig, unsigned int from, const struct rig_packet *packet)
{
	static const uint8_t payload[RIG_PAYLOAD];
	static struct rte_mempool *pool;
	const struct roce_qp *qp = (struct roce_qp *)rig->end[from].qp;
	const unsigned int ext_bytes = roce_opcodes[packet->opcode].ext_bytes;
	const unsigned int bytes =
		sizeof(struct roce_bth) + ext_bytes + packet->length + ROCE_ICRC_BYTES;
	const struct roce_path_attr attr = {
		.src = packet->src ? *packet->src : qp->path.src,
		.dst = packet->dst ? *packet->dst : qp->path.dst,
		.vlan_tci = packet->tci,
		.udp_src = packet->udp_src,
		.hop_limit = 64,
	};
	struct roce_path path;
	struct roce_bth *bth;
	struct rte_mbuf *m;
	uint8_t *frame;
	uint32_t crc;

	if (!pool)
		pool = rte_pktmbuf_pool_create("forged", 255, 0, 0, 2048, 0);
	assert_non_null(pool);
	assert_true(packet->length <= RIG_PAYLOAD);
	roce_path_make(&path, &attr);
	m = rte_pktmbuf_alloc(pool);
	assert_non_null(m);
	frame = (uint8_t *)rte_pktmbuf_append(m, path.length + bytes);
	memcpy(frame, path.header, path.length);
	roce_path_finish(&path, frame, bytes);
	bth = (struct roce_bth *)(frame + path.length);
	memset(bth, 0, sizeof(*bth));
	bth->opcode = packet->opcode;
	bth->flags = packet->bth_flags;
	bth->pkey = rte_cpu_to_be_16(packet->pkey ? packet->pkey : ROCE_PKEY);
	bth->ecn = packet->bth_ecn;
	roce_put24(bth->qpn, packet->qpn ? packet->qpn : qp->peer_qpn);
	roce_put24(bth->psn, packet->psn);
	if (packet->ext)
		memcpy(bth + 1, packet->ext, ext_bytes);
	else
		memset(bth + 1, 0, ext_bytes);
	memcpy((uint8_t *)(bth + 1) + ext_bytes, payload, packet->length);
	crc = roce_icrc_headers(frame + path.l2_len, path.l3_len,
		path.length - path.l2_len + sizeof(*bth) + ext_bytes);
	crc = roce_icrc_bytes(crc, payload, packet->length) ^ packet->icrc_off;
	crc = rte_cpu_to_le_32(crc);
	memcpy(frame + m->pkt_len - sizeof(crc), &crc, sizeof(crc));
	return m;
}

void
rig_deliver(struct rig *rig, unsigned int from, struct rte_mbuf *m)
{
	assert_int_equal(rte_ring_enqueue(rig->end[!from].rx[0], m), 0);
}
