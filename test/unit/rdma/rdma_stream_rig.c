/* SPDX-License-Identifier: BSD-3-Clause */
#include "rdma_stream_rig.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <time.h>

#include <rte_bus_vdev.h>
#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>

#include "engine/icrc.h"
#include "engine/packet.h"
#include "roce/ring_port.h"

#define GROUP "239.1.2.3"

struct rig rig;

static struct sockaddr_storage group, service;

int
rig_eal(void **state)
{
	const char *argv[] = {"rig", "--no-huge", "-m", "512", "--no-pci", "--no-shconf", "-l", "0",
		"--no-telemetry", "--log-level", "lib.eal:warning", "--log-level",
		getenv("ROCE_DEBUG") ? "braggline.rdma:debug" : "braggline.rdma:emerg"};

	if (rte_eal_init(RTE_DIM(argv), (char **)(uintptr_t)argv) < 0)
		return -1;
	rig.pool = rte_pktmbuf_pool_create("rig", 16383, 256, 0, 128 + 1600, 0);
	return rig.pool ? 0 : -1;
}

uint32_t
rig_random(uint32_t below)
{
	/* SplitMix64 */
	uint64_t z = rig.random += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return (uint64_t)(uint32_t)(z ^ z >> 31) * below >> 32;
}

static void
address(struct sockaddr_storage *to, const char *ip, uint16_t port)
{
	struct sockaddr_in *in = (struct sockaddr_in *)to;

	in->sin_family = AF_INET;
	in->sin_port = htons(port);
	assert_int_equal(inet_pton(AF_INET, ip, &in->sin_addr), 1);
}

int
rig_open(void **state)
{
	const char *seed = getenv("ROCE_SEED");
	struct rte_mempool *pool = rig.pool;
	char name[RDMA_NAME_MAX];
	struct rdma_dev_info info;
	unsigned int i;

	memset(&rig, 0, sizeof(rig));
	rig.pool = pool;
	rig.random = seed ? strtoull(seed, NULL, 0) : rte_rdtsc();
	print_message("ROCE_SEED=%#lx\n", rig.random);
	address(&group, GROUP, 0);
	address(&service, "10.0.0.1", RDMA_STREAM_PORT);
	for (i = 0; i < RIG_STATIONS; i++) {
		struct rig_station *st = &rig.station[i];

		snprintf(name, sizeof(name), "st%u", i);
		st->port = ring_port_make(name, 4096, 1, &st->rx, &st->tx);
		snprintf(name, sizeof(name), "roce:port=%u,ip=10.0.0.%u/24,mtu=1024", st->port,
			i + 1);
		st->dev = rdma_dev_open(name);
		assert_non_null(st->dev);
		rdma_dev_info_get(st->dev, &info);
		st->addr = info.addr;
		st->pd = rdma_pd_alloc(st->dev);
		assert_non_null(st->pd);
	}
	return 0;
}

static void
drain(struct rte_ring *ring)
{
	struct rte_mbuf *m;

	while (rte_ring_dequeue(ring, (void **)&m) == 0)
		rte_pktmbuf_free(m);
}

int
rig_close(void **state)
{
	unsigned int i;
	char name[64];

	rig.lose = 0;
	rig.tap = NULL;
	rig_sender_end();
	for (i = 1; i < RIG_STATIONS; i++)
		rig_receiver_end(i);
	for (i = 0; i < RIG_STATIONS; i++) {
		struct rig_station *st = &rig.station[i];

		drain(st->rx);
		drain(st->tx);
		assert_int_equal(rdma_pd_free(st->pd), 0);
		assert_int_equal(rdma_dev_close(st->dev), 0);
		snprintf(name, sizeof(name), "net_ring_st%u", i);
		rte_eth_dev_close(st->port);
		rte_vdev_uninit(name);
		drain(st->rx);
		drain(st->tx);
		rte_ring_free(st->rx);
		rte_ring_free(st->tx);
	}
	assert_int_equal(rte_mempool_in_use_count(rig.pool), 0);
	return 0;
}

struct rdma_stream_sender_attr
rig_sender_attr(void)
{
	return (struct rdma_stream_sender_attr){.dev = rig.station[0].dev,
		.pd = rig.station[0].pd,
		.group = (const struct sockaddr *)&group,
		.slots = RIG_SLOTS,
		.payload_max = RIG_PAYLOAD,
		.silence_ms = 500};
}

struct rdma_stream_receiver_attr
rig_receiver_attr(unsigned int station)
{
	return (struct rdma_stream_receiver_attr){.dev = rig.station[station].dev,
		.pd = rig.station[station].pd,
		.group = (const struct sockaddr *)&group,
		.sender = (const struct sockaddr *)&service,
		.payload_max = RIG_PAYLOAD,
		.buffers = 4 * RIG_SLOTS,
		.repair_buffers = 2 * RIG_SLOTS};
}

void
rig_sender(const struct rdma_stream_sender_attr *attr)
{
	const struct rdma_stream_sender_attr usual = rig_sender_attr();

	attr = attr ? attr : &usual;
	rig.s = rdma_stream_sender_create(attr);
	assert_non_null(rig.s);
	rig.next = attr->first;
}

void
rig_receiver(unsigned int station, const struct rdma_stream_receiver_attr *attr)
{
	const struct rdma_stream_receiver_attr usual = rig_receiver_attr(station);
	struct rig_receiver *rr = &rig.receiver[station];

	memset(rr, 0, sizeof(*rr));
	rr->r = rdma_stream_receiver_create(attr ? attr : &usual);
	assert_non_null(rr->r);
}

/* Time for which this process has run: a loaded host may not run it for long. */
static uint64_t
cpu_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return now.tv_sec * UINT64_C(1000000000) + now.tv_nsec;
}

uint64_t
rig_deadline(void)
{
	return cpu_ns() + UINT64_C(10000000000);
}

bool
rig_late(uint64_t deadline)
{
	return cpu_ns() > deadline;
}

void
rig_sender_end(void)
{
	struct rdma_stream_sender *s = rig.s;
	const uint64_t end = rig_deadline();

	rig.s = NULL;
	while (s && rdma_stream_sender_destroy(s) == -EBUSY) {
		rig_step();
		assert_false(rig_late(end));
	}
}

void
rig_receiver_end(unsigned int station)
{
	struct rdma_stream_receiver *r = rig.receiver[station].r;
	const uint64_t end = rig_deadline();

	rig.receiver[station].r = NULL;
	while (r && rdma_stream_receiver_destroy(r) == -EBUSY) {
		rig_step();
		assert_false(rig_late(end));
	}
}

/* ---- the switch ------------------------------------------------------------------------------ */

void
rig_checksum(struct rte_mbuf *m)
{
	const uint8_t *l3 = rte_pktmbuf_mtod_offset(m, uint8_t *, RTE_ETHER_HDR_LEN);
	const unsigned int headers = 20 + 8 + sizeof(struct roce_bth);
	const uint32_t rest = m->pkt_len - RTE_ETHER_HDR_LEN - headers - (uint32_t)ROCE_ICRC_BYTES;
	uint32_t crc = roce_icrc_headers(l3, 20, headers);

	crc = roce_icrc_bytes(crc, l3 + headers, rest);
	memcpy(rte_pktmbuf_mtod_offset(m, uint8_t *, m->pkt_len - sizeof(crc)), &crc, sizeof(crc));
}

static void
frame_carry(unsigned int from, unsigned int to, struct rte_mbuf *m)
{
	struct rig_frame frame = {.from = from, .to = to, .opcode = 0xff};
	struct roce_packet pkt;
	struct rte_mbuf *c;

	if (rig.station[to].dead || rig.station[from].dead)
		return;
	c = rte_pktmbuf_copy(m, rig.pool, 0, UINT32_MAX);
	assert_non_null(c);
	frame.m = c;
	if (roce_packet_parse(c, &pkt) == ROCE_PACKET_DATA) {
		frame.opcode = pkt.opcode;
		if (pkt.qpn == 0xffffff && pkt.length >= sizeof(frame.header)) {
			frame.stream = rte_pktmbuf_mtod_offset(c, uint8_t *, pkt.payload);
			memcpy(&frame.header, frame.stream, sizeof(frame.header));
		}
	}
	if ((rig.tap && !rig.tap(&frame)) || (rig.lose && rig_random(65536) < rig.lose) ||
		rte_ring_enqueue(rig.station[to].rx, c) < 0)
		rte_pktmbuf_free(c);
}

/*
 * The control lcore must not post: the count of a region's references belongs to the owner lcore.
 * Here one thread is both, so that the calls of the control lcore are marked.
 */
static bool in_control;

uint16_t __real_rdma_post_recv(struct rdma_qp *qp, const struct rdma_recv_wr *wr, uint16_t n);
uint16_t __real_rdma_post_send(struct rdma_qp *qp, const struct rdma_send_wr *wr, uint16_t n);
uint16_t __wrap_rdma_post_recv(struct rdma_qp *qp, const struct rdma_recv_wr *wr, uint16_t n);
uint16_t __wrap_rdma_post_send(struct rdma_qp *qp, const struct rdma_send_wr *wr, uint16_t n);

uint16_t
__wrap_rdma_post_recv(struct rdma_qp *qp, const struct rdma_recv_wr *wr, uint16_t n)
{
	assert_false(in_control);
	return __real_rdma_post_recv(qp, wr, n);
}

uint16_t
__wrap_rdma_post_send(struct rdma_qp *qp, const struct rdma_send_wr *wr, uint16_t n)
{
	assert_false(in_control);
	return __real_rdma_post_send(qp, wr, n);
}

static void
station_step(unsigned int i)
{
	struct rig_station *st = &rig.station[i];
	struct rdma_event event;
	struct rte_mbuf *m;
	unsigned int to;

	if (!st->dead) {
		rdma_progress(st->dev, 0);
		in_control = true;
		if (rdma_poll_cm(st->dev, &event, 1)) {
			if (i == 0 && rig.s)
				rdma_stream_sender_event(rig.s, &event);
			if (i && rig.receiver[i].r)
				rdma_stream_receiver_event(rig.receiver[i].r, &event);
		}
		in_control = false;
	}
	while (rte_ring_dequeue(st->tx, (void **)&m) == 0) {
		for (to = 0; to < RIG_STATIONS; to++)
			if (to != i)
				frame_carry(i, to, m);
		rte_pktmbuf_free(m);
	}
}

static void
packet_check(struct rig_receiver *rr, const struct rdma_stream_packet *p)
{
	uint64_t word;

	if (p->run != rr->run || !rr->packets) {
		rr->run = p->run;
		rr->next = p->sequence - p->lost;
	}
	assert_int_equal(p->sequence, rr->next + p->lost);
	rr->lost += p->lost;
	rr->next = p->sequence + 1;
	rr->packets++;
	assert_int_equal(p->length, 8 * (1 + p->sequence % (RIG_PAYLOAD / 8)));
	for (uint32_t i = 0; i < p->length; i += 8) {
		memcpy(&word, (const uint8_t *)p->data + i, 8);
		assert_int_equal(word, p->sequence);
	}
}

static void
receiver_step(struct rig_receiver *rr)
{
	struct rdma_stream_packet packet[16];
	uint16_t n;

	if (!rr->r || rr->stalled)
		return;
	in_control = true;
	rdma_stream_receiver_control(rr->r);
	in_control = false;
	n = rdma_stream_receive(rr->r, packet, RTE_DIM(packet));
	for (uint16_t i = 0; i < n; i++) {
		packet_check(rr, &packet[i]);
		if (rr->hold && rr->nb_held < RTE_DIM(rr->held))
			rr->held[rr->nb_held++] = packet[i];
		else
			rdma_stream_release(rr->r, &packet[i], 1);
	}
}

void
rig_release(unsigned int station)
{
	struct rig_receiver *rr = &rig.receiver[station];

	rdma_stream_release(rr->r, rr->held, rr->nb_held);
	rr->nb_held = 0;
}

void
rig_step(void)
{
	if (rig.s) {
		rdma_stream_sender_poll(rig.s);
		in_control = true;
		rdma_stream_sender_control(rig.s);
		in_control = false;
	}
	for (unsigned int i = 1; i < RIG_STATIONS; i++)
		if (!rig.station[i].dead)
			receiver_step(&rig.receiver[i]);
	for (unsigned int i = 0; i < RIG_STATIONS; i++)
		station_step(i);
}

void
rig_run(unsigned int ms)
{
	const uint64_t end = rte_rdtsc() + rte_get_tsc_hz() / 1000 * ms;

	do
		rig_step();
	while (rte_rdtsc() < end);
}

bool
rig_try(void)
{
	uint8_t *at = rdma_stream_next(rig.s);
	const uint32_t length = 8 * (1 + rig.next % (RIG_PAYLOAD / 8));

	if (!at)
		return false;
	for (uint32_t i = 0; i < length; i += 8)
		memcpy(at + i, &rig.next, 8);
	assert_int_equal(rdma_stream_commit(rig.s, length), 0);
	rig.next++;
	return true;
}

void
rig_send(unsigned int n)
{
	uint64_t end = rig_deadline();

	while (n) {
		if (rig_try()) {
			n--;
			end = rig_deadline();
			if (n % 4)
				continue;
		}
		rig_step();
		if (rig_late(end))
			fail_msg("no slot becomes free");
	}
}

struct rdma_stream_sender_info
rig_sender_info(void)
{
	struct rdma_stream_sender_info info;

	rdma_stream_sender_info_get(rig.s, &info);
	return info;
}

struct rdma_stream_receiver_info
rig_info(unsigned int station)
{
	struct rdma_stream_receiver_info info;

	rdma_stream_receiver_info_get(rig.receiver[station].r, &info);
	return info;
}

void
rig_joined(unsigned int station)
{
	rig_until(rig_info(station).state == RDMA_STREAM_JOINED &&
		rig_info(station).run == rig_sender_info().run);
}

void
rig_all(unsigned int station)
{
	rig_until(rig.receiver[station].next == rig.next);
}

uint64_t
rig_stat(unsigned int station, const char *name)
{
	struct rdma_xstat x[256];
	int i, n = rdma_xstats_get(rig.station[station].dev, x, RTE_DIM(x));

	for (i = 0; i < n; i++)
		if (strcmp(x[i].name, name) == 0)
			return x[i].value;
	fail_msg("no counter %s", name);
	return 0;
}
