/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The packet path. The input is a script of packets (valid ones, valid ones with changed bytes, and
 * arbitrary bytes in one or two segments) and of steps of RX roles and builder. Every packet must
 * be counted exactly once, and every mbuf must return to its pool.
 */

#include "seed_corpus.h"

#include "../unit/recv/rx_rig.h"

#define RX_ROLES 2

static struct detector d;
static struct frame_table *ft;

struct script {
	const uint8_t *bytes;
	size_t size, at;
};

static uint8_t
next(struct script *s)
{
	return s->at < s->size ? s->bytes[s->at++] : 0;
}

static void
check(bool fine, const char *what)
{
	if (fine)
		return;
	fprintf(stderr, "%s\n", what);
	abort();
}

static void
build(void)
{
	struct frame_closed closed;

	frame_table_open(ft);
	while (rig_close(ft, &closed)) {
		if (closed.packets == 0)
			continue;
		rte_pktmbuf_free_bulk(frame_table_mbufs(ft, closed.slot), d.tiles);
		frame_table_recycle(ft, closed.slot);
	}
}

/** A valid packet in which up to three bytes are changed. */
static struct rte_mbuf *
scripted_packet(struct script *s, uint8_t op)
{
	const uint8_t where = next(s);
	struct rte_mbuf *m = rig_packet(where & 1, next(s), where >> 1, op & 8);

	for (uint8_t n = op >> 6; n > 0; n--) {
		const uint8_t at = next(s) % (RIG_HEADERS + RIG_HEADER_BYTES);

		rte_pktmbuf_mtod(m, uint8_t *)[at] = next(s);
	}
	if ((op & 0x20) == 0)
		rig_checksum(rte_pktmbuf_mtod(m, uint8_t *));
	if ((op & 0x30) == 0x30) {
		const uint8_t cut = next(s);

		m->data_len -= RTE_MIN(m->data_len, cut);
		m->pkt_len -= RTE_MIN(m->pkt_len, cut);
	}
	return m;
}

/** Arbitrary bytes, possibly with a second segment of any length. */
static struct rte_mbuf *
arbitrary_packet(struct script *s, uint8_t op)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(rig_single), *more;
	const uint8_t size = next(s);
	uint8_t *b = rte_pktmbuf_mtod(m, uint8_t *);

	memset(b, 0xEE, 256);
	for (uint32_t i = 0; i < size; i++)
		b[i] = next(s);
	m->data_len = m->pkt_len = size;
	if ((op & 8) == 0)
		return m;
	more = rte_pktmbuf_alloc(rig_pixels);
	more->data_len = next(s) * 64;
	m->next = more;
	m->nb_segs = 2;
	m->pkt_len += more->data_len;
	return m;
}

static void
play(struct script *s)
{
	while (s->at < s->size) {
		const uint8_t op = next(s);
		const uint32_t frx = op >> 4 & 1;

		switch (op & 7) {
		case 0 ... 3:
			if (rig_mbufs_out() < RIG_POOL / 2)
				rig_push(frx, scripted_packet(s, op));
			break;
		case 4:
			if (rig_mbufs_out() < RIG_POOL / 2)
				rig_push(frx, arbitrary_packet(s, op));
			break;
		case 5:
		case 6:
			rx_poll(rig_rx[frx]);
			break;
		default:
			build();
		}
	}
}

static void
finish(void)
{
	struct frame_closed closed;

	for (int i = 0; i < 20; i++) {
		for (uint32_t l = 0; l < RX_ROLES; l++)
			rx_poll(rig_rx[l]);
		build();
	}
	for (int i = 0; i < 2; i++) {
		for (uint32_t l = 0; l < RX_ROLES; l++) {
			rig_rx[l]->stop = true;
			rx_poll(rig_rx[l]);
		}
	}
	frame_table_flush(ft);
	while (!frame_table_flushed(ft)) {
		for (uint32_t l = 0; l < RX_ROLES; l++)
			rx_poll(rig_rx[l]);
		while (frame_table_close(ft, &closed)) {
			if (closed.packets == 0)
				continue;
			rte_pktmbuf_free_bulk(frame_table_mbufs(ft, closed.slot), d.tiles);
			frame_table_recycle(ft, closed.slot);
		}
	}
	/* the RX role that stopped first may leave packets in its queue of the port */
	for (uint32_t l = 0; l < RX_ROLES; l++) {
		struct rig_queue *q = &rig_queues[l];

		while (q->tail != q->head)
			rte_pktmbuf_free(q->m[q->tail++ % RIG_QUEUE_SIZE]);
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct script s = {.bytes = data, .size = size};
	struct frame_table_config config;
	const uint8_t how = next(&s);

	rig_config(&config, &d, 2, 1);
	config.nb_rx = RX_ROLES;
	config.owner[1] = 1;
	config.refuse = how & 1;
	config.stall_cycles = how & 2 ? 0 : UINT64_MAX;
	ft = rig_table(&config);
	rig_roles(ft, 16);
	for (uint32_t l = 0; l < RX_ROLES; l++) {
		rig_poll_queue(l, l);
		rig_rx[l]->drop_handoff = how & 4;
	}
	play(&s);
	finish();
	check(rig_outcomes(ft) == rig_count(ft, RX_PACKETS), "packets are not accounted for");
	check(ft->builder->nb_free == config.slots, "slots are missing");
	rig_roles_free(ft);
	rig_table_free(ft);
	check(rig_mbufs_out() == 0, "mbufs are missing");
	return 0;
}

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	uint8_t seed[1024], packet[255];
	uint32_t n = 0;

	if (rig_eal((*argv)[0]) < 0)
		return -1;
	rte_log_set_global_level(RTE_LOG_EMERG);
	rig_port();
	seed_begin(argc, argv);

	seed[n++] = 0;
	for (uint32_t i = 0; i < 200; i++) {
		seed[n++] = i % 2 << 4 | (i & 8);
		seed[n++] = i;
		seed[n++] = 1 + i / 50;
		if (i % 20 == 19)
			seed[n++] = 5 | i % 40 / 20 << 4;
		if (i % 50 == 49)
			seed[n++] = 7;
	}
	seed_add("good", seed, n);

	rig_bytes(packet, 0, 1, 0);
	seed[0] = 1;
	seed[1] = 4 | 8;
	seed[2] = RIG_HEADERS + RIG_HEADER_BYTES;
	memcpy(&seed[3], packet, seed[2]);
	n = 3 + seed[2];
	seed[n++] = 128;
	seed[n++] = 5;
	seed[n++] = 7;
	seed_add("split", seed, n);
	return 0;
}
