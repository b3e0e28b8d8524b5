/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests rx_poll() with valid and damaged packets, packets that arrive too early, and packets of
 * other senders.
 */

#include "counter.h"
#include "rx_rig.h"

#include <pthread.h>

#include <rte_ethdev.h>

static struct detector d;
static struct frame_table_config config;
static struct frame_table *ft;

static int
setup(void **state)
{
	rig_config(&config, &d, 1, 1);
	config.run.first_known = true;
	config.run.first_frame = 1;
	ft = NULL;
	memset(rig_queues, 0, sizeof(rig_queues));
	return 0;
}

static int
poll_all(void)
{
	int busy = 0;

	for (uint32_t i = 0; i < config.nb_rx; i++)
		busy += rx_poll(rig_rx[i]);
	return busy;
}

/** After each test every packet is counted, and every mbuf is freed. */
static int
teardown(void **state)
{
	if (ft == NULL)
		return 0;
	assert_int_equal(rig_outcomes(ft), rig_count(ft, RX_PACKETS));
	while (poll_all() != 0)
		;
	rig_roles_free(ft);
	rig_table_free(ft);
	assert_int_equal(rig_mbufs_out(), 0);
	return 0;
}

static void
begin(uint32_t handoff_size)
{
	ft = rig_table(&config);
	rig_roles(ft, handoff_size);
	for (int i = 0; i < 3; i++) {
		frame_table_open(ft);
		poll_all();
	}
	assert_int_equal(ft->window.state, FRAME_WINDOW_OPEN);
}

static void
free_slot(uint32_t slot)
{
	frame_table_release(ft, slot);
	frame_table_recycle(ft, slot);
}

/** Close and recycle frames as the builder does, without gangs. @return number of frames closed */
static uint32_t
build(void)
{
	struct frame_closed closed;
	uint32_t n = 0;

	for (; rig_close(ft, &closed); n++)
		if (closed.packets > 0)
			free_slot(closed.slot);
	frame_table_open(ft);
	return n;
}

/** End the run: close all frames of the table, and free their packets. */
static void
finish(void)
{
	struct frame_closed closed;

	frame_table_flush(ft);
	while (!frame_table_flushed(ft)) {
		poll_all();
		while (frame_table_close(ft, &closed))
			if (closed.packets > 0)
				free_slot(closed.slot);
	}
}

static void
send_frame(uint32_t queue, uint32_t stream, uint64_t frame, bool split)
{
	for (uint32_t p = 0; p < d.stream_packets; p++)
		rig_push(queue, rig_packet(stream, frame, p, split));
}

static void
whole_frames(bool split, ptrdiff_t view)
{
	struct frame_closed closed;

	begin(64);
	rig_rx[0]->view = view;
	rig_poll_queue(0, 0);
	for (uint64_t f = 1; f <= 10; f++) {
		send_frame(0, 0, f, split);
		while (poll_all() != 0)
			;
		assert_true(rig_close(ft, &closed));
		assert_int_equal(closed.frame, f);
		assert_int_equal(closed.missing, 0);
		for (uint32_t t = 0; t < d.tiles; t++) {
			struct rte_mbuf *m = frame_table_mbufs(ft, closed.slot)[t];

			assert_ptr_equal(m->pool, split ? rig_pixels : rig_single);
			assert_int_equal(frame_table_frame(ft, closed.slot)->packet[t],
				rte_pktmbuf_mtod(m, uintptr_t) +
					(split ? (uintptr_t)view : RIG_HEADERS + RIG_HEADER_BYTES));
		}
		assert_int_equal(rte_mempool_in_use_count(rig_headers), 0);
		free_slot(closed.slot);
		frame_table_open(ft);
	}
	assert_int_equal(rig_count(ft, RX_PLACED), 1280);
	assert_int_equal(rig_count(ft, RX_BYTES), UINT64_C(1280) * RIG_PACKET_BYTES);
}

static void
single_segments(void **state)
{
	whole_frames(false, 0);
}

static void
split_segments(void **state)
{
	whole_frames(true, 0);
}

/* Gangs access the second segment at another address. */
static void
split_segments_seen_elsewhere(void **state)
{
	whole_frames(true, (ptrdiff_t)1 << 40);
}

enum damage {
	ARP,
	VLAN,
	IPV6,
	TCP,
	WITH_OPTIONS,
	FIRST_FRAGMENT,
	LATER_FRAGMENT,
	OTHER_PORT,
	UDP_SHORT,
	UDP_LONG,
	NO_BYTES,
	ONE_BYTE,
	HEADERS_ONLY,
	CUT_HEADER,
	CUT_PIXELS,
	OTHER_TYPE,
	OTHER_VERSION,
	PACKET_BEYOND,
	PACKET_NEGATIVE,
	FRAME_OUTLIER,
	FRAME_OVERFLOWS,
	DAMAGES
};

static const enum rx_counter counted_as[DAMAGES] = {
	[ARP] = RX_FOREIGN,
	[VLAN] = RX_FOREIGN,
	[IPV6] = RX_FOREIGN,
	[TCP] = RX_FOREIGN,
	[WITH_OPTIONS] = RX_FOREIGN,
	[FIRST_FRAGMENT] = RX_FRAGMENT,
	[LATER_FRAGMENT] = RX_FRAGMENT,
	[OTHER_PORT] = RX_FOREIGN,
	[UDP_SHORT] = RX_WRONG_LENGTH,
	[UDP_LONG] = RX_WRONG_LENGTH,
	[NO_BYTES] = RX_FOREIGN,
	[ONE_BYTE] = RX_FOREIGN,
	[HEADERS_ONLY] = RX_WRONG_LENGTH,
	[CUT_HEADER] = RX_WRONG_LENGTH,
	[CUT_PIXELS] = RX_WRONG_LENGTH,
	[OTHER_TYPE] = RX_MALFORMED,
	[OTHER_VERSION] = RX_MALFORMED,
	[PACKET_BEYOND] = RX_MALFORMED,
	[PACKET_NEGATIVE] = RX_MALFORMED,
	[FRAME_OUTLIER] = RX_OUTLIER,
	[FRAME_OVERFLOWS] = RX_OUTLIER,
};

static struct rte_mbuf *
damaged(enum damage damage)
{
	const uint32_t packet = damage == PACKET_BEYOND ? 128
		: damage == PACKET_NEGATIVE		? UINT32_MAX - 1
							: 0;
	const uint64_t frame = damage == FRAME_OUTLIER ? FRAME_NUMBER_MAX + 1
		: damage == FRAME_OVERFLOWS	       ? UINT64_MAX
						       : 1;
	struct rte_mbuf *m = rig_packet(0, frame, packet, false);
	uint8_t *b = rte_pktmbuf_mtod(m, uint8_t *);

	switch (damage) {
	case ARP:
		b[13] = 0x06;
		break;
	case VLAN:
		b[12] = 0x81;
		break;
	case IPV6:
		b[12] = 0x86;
		b[13] = 0xDD;
		break;
	case TCP:
		b[23] = 6;
		break;
	case WITH_OPTIONS:
		b[14] = 0x46;
		break;
	case FIRST_FRAGMENT:
		b[20] = 0x20;
		break;
	case LATER_FRAGMENT:
		b[20] = 0;
		b[21] = 1;
		break;
	case OTHER_PORT:
		b[36] = 0;
		break;
	case UDP_SHORT:
		b[39]--;
		break;
	case UDP_LONG:
		b[39]++;
		break;
	case NO_BYTES:
		rte_pktmbuf_trim(m, RIG_PACKET_BYTES);
		break;
	case ONE_BYTE:
		rte_pktmbuf_trim(m, RIG_PACKET_BYTES - 1);
		break;
	case HEADERS_ONLY:
		rte_pktmbuf_trim(m, RIG_PACKET_BYTES - RIG_HEADERS);
		break;
	case CUT_HEADER:
		rte_pktmbuf_trim(m, RIG_PACKET_BYTES - RIG_HEADERS - 47);
		break;
	case CUT_PIXELS:
		rte_pktmbuf_trim(m, 1);
		break;
	case OTHER_TYPE:
		b[RIG_HEADERS + 46] = 1;
		break;
	case OTHER_VERSION:
		b[RIG_HEADERS + 47] = 1;
		break;
	default:
		break;
	}
	return m;
}

static void
bad_packets_by_cause(void **state)
{
	uint64_t before[RX_COUNTERS];

	begin(64);
	rig_poll_queue(0, 0);
	for (uint32_t k = 0; k < DAMAGES; k++) {
		memcpy(before, rig_rx[0]->counters, sizeof(before));
		rig_push(0, damaged(k));
		assert_int_not_equal(poll_all(), 0);
		for (uint32_t c = RX_PLACED; c < RX_COUNTERS; c++)
			assert_int_equal(rig_rx[0]->counters[c] - before[c], c == counted_as[k]);
		assert_int_equal(rig_mbufs_out(), 0);
	}
	/* mixed with valid packets in one burst */
	for (uint32_t p = 0; p < 40; p++) {
		rig_push(0, rig_packet(0, 1, p, p % 2));
		rig_push(0, damaged(p % FRAME_OUTLIER));
	}
	while (poll_all() != 0)
		;
	assert_int_equal(rig_count(ft, RX_PLACED), 40);
	finish();
}

/*
 * Samples are taken of the first unusable packets since the last look, and then of ever fewer. The
 * lowest and highest packet numbers are recorded, too.
 */
static void
samples_of_bad_packets(void **state)
{
	struct rx_sample sample;

	begin(64);
	rig_poll_queue(0, 0);
	assert_false(rx_take_sample(rig_rx[0], &sample));
	for (uint32_t round = 0; round < 3; round++) {
		for (uint32_t i = 0; i < 100; i++) {
			struct rte_mbuf *m = rig_packet(0, 1, round == 2 ? 130 + i : i, true);

			/* to another port, or with a packet number out of range */
			if (round < 2)
				rte_pktmbuf_mtod(m, uint8_t *)[37] += 7;
			rig_push(0, m);
		}
		while (poll_all() != 0)
			;
		assert_int_equal(rig_rx[0]->samples.total, 100 * (round + 1));
		/* 0, 1, 2, 4 ... 64 */
		for (uint32_t n = 0; n < 8; n++) {
			const uint32_t packet = n < 2 ? n : 1u << (n - 1);

			assert_true(rx_take_sample(rig_rx[0], &sample));
			assert_int_equal(sample.cause, round < 2 ? RX_FOREIGN : RX_MALFORMED);
			assert_int_equal(sample.length, RIG_PACKET_BYTES);
			assert_int_equal(sample.bytes, RIG_HEADERS + RIG_HEADER_BYTES);
			assert_int_equal(
				sample.data[RIG_HEADERS + 12], round < 2 ? packet : 130 + packet);
		}
		assert_false(rx_take_sample(rig_rx[0], &sample));
	}
	assert_int_equal(rig_rx[0]->samples.stream[0].lowest, 130 + 1);
	assert_int_equal(rig_rx[0]->samples.stream[0].highest, 229 + 1);
	/* if samples are not taken, their number is limited */
	for (uint32_t round = 0; round < 200; round++) {
		for (uint32_t i = 0; i < 500; i++)
			rig_push(0, damaged(0));
		while (poll_all() != 0)
			;
	}
	for (uint32_t n = 0; n < RX_SAMPLES; n++)
		assert_true(rx_take_sample(rig_rx[0], &sample));
	assert_false(rx_take_sample(rig_rx[0], &sample));
	finish();
}

/* In split mode the pixels must fill the second segment; all other chains are of wrong length. */
static void
chains_of_wrong_lengths(void **state)
{
	begin(64);
	rig_poll_queue(0, 0);
	for (int change = -1; change <= 1; change += 2) {
		struct rte_mbuf *m = rig_packet(0, 1, 0, true);

		m->data_len += change; /* split one byte before or after */
		m->next->data_len -= change;
		rig_push(0, m);
	}
	for (uint32_t first = 0; first < 90; first += 44) {
		struct rte_mbuf *m = rig_packet(0, 1, 0, true);

		m->data_len = first;
		m->pkt_len = first + RIG_PIXEL_BYTES;
		rig_push(0, m);
	}
	{
		struct rte_mbuf *m = rig_packet(0, 1, 0, true);
		struct rte_mbuf *rest = rte_pktmbuf_alloc(rig_pixels);

		/* pixels in two segments */
		m->next->data_len = 4000;
		m->next->next = rest;
		rest->data_len = RIG_PIXEL_BYTES - 4000;
		m->nb_segs = 3;
		rig_push(0, m);
	}
	while (poll_all() != 0)
		;
	assert_int_equal(rig_count(ft, RX_WRONG_LENGTH) + rig_count(ft, RX_FOREIGN), 6);
	assert_int_equal(rig_mbufs_out(), 0);
	{
		struct rte_mbuf *m = rig_packet(0, 1, 0, true);
		struct rte_mbuf *pad = rte_pktmbuf_alloc(rig_headers);

		/* complete pixels, followed by padding of the link */
		m->next->next = pad;
		pad->data_len = 4;
		m->pkt_len += 4;
		m->nb_segs = 3;
		rig_push(0, m);
	}
	assert_int_not_equal(poll_all(), 0);
	assert_int_equal(rig_count(ft, RX_PLACED), 1);
	finish();
}

static void
duplicates_late_and_beyond(void **state)
{
	config.run.nb_frames = 2;
	begin(64);
	rig_poll_queue(0, 0);
	rig_rx[0]->first_frame = 1;
	for (uint32_t k = 0; k < 2; k++) {
		for (uint64_t f = 1; f <= 3; f++)
			rig_push(0, rig_packet(0, f, 5, k));
		rig_push(0, rig_packet(0, 0, 5, k));
	}
	while (poll_all() != 0)
		;
	assert_int_equal(rig_count(ft, RX_PLACED), 2);
	assert_int_equal(rig_count(ft, RX_DUPLICATE), 2);
	assert_int_equal(rig_count(ft, RX_BEYOND), 2);
	assert_int_equal(rig_rx[0]->beyond[0].packets, 2);
	assert_int_equal(rig_rx[0]->beyond[0].frame, 3);
	assert_int_equal(rig_count(ft, RX_LATE), 2);
	/* of these, as expected: before the run's first frame */
	assert_int_equal(rig_rx[0]->drops[0].packets, 4);
	assert_int_equal(rig_rx[0]->drops[0].early, 2);
	finish();
}

/** Three modules and three roles. The test decides which role polls which queue. */
static void
three_roles(uint32_t handoff_size)
{
	rig_config(&config, &d, 3, 1);
	config.nb_rx = 3;
	config.owner[1] = 1;
	config.owner[2] = 2;
	config.run.first_known = true;
	config.run.first_frame = 1;
	begin(handoff_size);
}

static void
software_classifier(void **state)
{
	three_roles(64);
	rig_poll_queue(0, 0);
	for (uint64_t f = 1; f <= 3; f++) {
		for (uint32_t p = 0; p < 128; p++) /* streams are interleaved */
			for (uint32_t s = 0; s < 3; s++)
				rig_push(0, rig_packet(s, f, p, p % 2));
		for (int i = 0; i < 20; i++)
			poll_all();
		assert_int_equal(build(), 1);
	}
	assert_int_equal(rig_count(ft, RX_PACKETS), 9 * 128);
	assert_int_equal(rig_count(ft, RX_HANDOFF_SENT), 6 * 128);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(rig_rx[i]->counters[RX_PLACED], 3 * 128);
}

/*
 * A handoff ring is polled for as many bursts as a queue, since an lcore that it shares with a gang
 * polls rarely.
 */
static void
handoff_ring_gives_several_bursts(void **state)
{
	three_roles(512);
	rig_poll_queue(0, 0);
	for (uint64_t f = 1; f <= 3; f++)
		send_frame(0, 1, f, true);
	for (int i = 0; i < 2; i++)
		rx_poll(rig_rx[0]);
	assert_int_equal(rig_count(ft, RX_HANDOFF_SENT), 3 * 128);
	rx_poll(rig_rx[1]);
	assert_int_equal(rig_rx[1]->counters[RX_PLACED], RX_BURSTS_A_POLL * RX_BURST);
	finish();
}

/*
 * Each RX role frees the mbufs that it has placed, a few in each round. A slot is recycled once all
 * are freed.
 */
static void
rx_roles_free_their_own(void **state)
{
	const uint32_t frames = 3;
	struct frame_closed closed;
	uint32_t free_before;

	three_roles(64);
	for (uint32_t i = 0; i < 3; i++)
		rig_poll_queue(i, i);
	for (uint64_t f = 1; f <= frames; f++)
		for (uint32_t s = 0; s < 3; s++)
			send_frame(s, s, f, f != 1); /* not all from one pool, which is too small */
	while (poll_all() != 0)
		;
	free_before = ft->builder->nb_free;
	for (uint32_t f = 1; f <= frames; f++) {
		assert_true(rig_close(ft, &closed));
		free_slot(closed.slot);
	}
	assert_int_equal(rig_mbufs_out(), 3 * frames * 128);
	/* while packets arrive: at most RX_BURST of its own in a round */
	for (uint32_t p = 0; p < 3; p++)
		rig_push(1, rig_packet(1, 4, p, false));
	rx_poll(rig_rx[1]);
	assert_int_equal(rig_mbufs_out(), 3 * frames * 128 - RX_BURST + 3);
	/* without packets: as many as a queue could deliver */
	rx_poll(rig_rx[1]);
	assert_int_equal(rig_mbufs_out(), 3 * frames * 128 - (1 + RX_BURSTS_A_POLL) * RX_BURST + 3);
	while (rx_poll(rig_rx[1]) != 0)
		;
	assert_int_equal(rig_mbufs_out(), 2 * frames * 128 + 3);
	while (rx_poll(rig_rx[0]) != 0)
		;
	frame_table_open(ft);
	assert_int_equal(ft->builder->nb_free, free_before);
	assert_int_equal(rig_mbufs_out(), frames * 128 + 3);
	while (rx_poll(rig_rx[2]) != 0)
		;
	assert_int_equal(rig_mbufs_out(), 3);
	/* the slots can be opened at once */
	assert_int_equal(frame_table_open(ft), frames);
	finish();
}

/*
 * If the handoff ring is full and its owner does not poll, the sender keeps its packets and
 * receives no more.
 */
static void
full_inbox_waits(void **state)
{
	three_roles(32);
	rig_poll_queue(0, 0);
	send_frame(0, 1, 1, false);
	send_frame(0, 1, 2, false);
	for (int i = 0; i < 50; i++)
		rx_poll(rig_rx[0]);
	assert_int_equal(rig_count(ft, RX_HANDOFF_SENT), 32);
	assert_in_range(rig_count(ft, RX_PACKETS), 64, 128);
	assert_int_equal(rig_count(ft, RX_HANDOFF_FULL), 0);
	for (int i = 0; i < 50; i++)
		poll_all();
	assert_int_equal(rig_rx[1]->counters[RX_PLACED], 256);
	finish();
}

static void
full_handoff_ring_drops(void **state)
{
	three_roles(32);
	rig_rx[0]->drop_handoff = true;
	rig_poll_queue(0, 0);
	send_frame(0, 1, 1, true);
	for (int i = 0; i < 50; i++)
		rx_poll(rig_rx[0]);
	assert_int_equal(rig_count(ft, RX_HANDOFF_FULL), 128 - 32);
	poll_all();
	assert_int_equal(rig_rx[1]->counters[RX_PLACED], 32);
	finish();
}

/*
 * Each role polls two queues with packets of the next role, and handoff rings are small: no
 * deadlock.
 */
static void
roles_do_not_wait_for_each_other(void **state)
{
	three_roles(32);
	for (uint32_t i = 0; i < 3; i++) {
		rig_poll_queue(i, i);
		rig_poll_queue(i, i);
		send_frame(i, (i + 1) % 3, 1, false);
		send_frame(i, (i + 1) % 3, 2, false);
	}
	/* all handoff rings fill up before they are read */
	for (int i = 0; i < 200; i++)
		poll_all();
	assert_int_equal(rig_count(ft, RX_PLACED), 6 * 128);
	assert_int_equal(build(), 2);
}

/*
 * All slots are full: the role holds a limited number of packets, and leaves the rest in the queue.
 */
static void
waits_for_slots(void **state)
{
	begin(64);
	rig_poll_queue(0, 0);
	for (uint64_t f = 1; f <= 6; f++)
		for (uint32_t p = f == 1; p < 128; p++)
			rig_push(0, rig_packet(0, f, p, f == 2));
	for (int i = 0; i < 50; i++)
		poll_all();
	assert_int_equal(rig_count(ft, RX_PLACED), 4 * 128 - 1);
	assert_in_range(rig_rx[0]->nb_pending, RX_PENDING_FULL + 1, RX_PENDING_SOURCE);
	assert_int_equal(ft->rx[0].waits_for, 6);
	assert_int_equal(ft->rx[0].blocked, 6);
	assert_int_equal(
		rig_count(ft, RX_PLACED) + rig_rx[0]->nb_pending, rig_count(ft, RX_PACKETS));
	for (int i = 0; i < 20; i++) {
		build();
		poll_all();
	}
	assert_int_equal(rig_count(ft, RX_PLACED), 6 * 128 - 1);
	assert_int_equal(ft->rx[0].waits_for, 0);
	assert_int_equal(ft->rx[0].blocked, 0);
	finish();
}

static void
open_frames(void)
{
	rig_meanwhile = NULL;
	frame_table_open(ft);
}

/*
 * The builder opens frames after rx_poll() has checked its held packets and before it receives new
 * ones: the order is kept.
 */
static void
frames_open_meanwhile(void **state)
{
	begin(64);
	rig_poll_queue(0, 0);
	for (uint64_t f = 1; f <= 4; f++)
		send_frame(0, 0, f, false);
	rig_push(0, rig_packet(0, 5, 0, false));
	while (poll_all() != 0)
		;
	assert_int_equal(rig_rx[0]->nb_pending, 1);
	assert_int_equal(build(), 4);
	for (int i = 0; i < 20; i++)
		poll_all(); /* slots are recycled, but not opened yet */
	assert_int_equal(rig_rx[0]->nb_pending, 1);
	for (uint32_t p = 0; p < RX_BURST; p++)
		rig_push(0, rig_packet(0, 6, p, false));
	rig_meanwhile = open_frames;
	poll_all();
	assert_null(rig_meanwhile);
	assert_int_equal(rig_count(ft, RX_PLACED), 4 * 128);
	poll_all();
	assert_int_equal(rig_count(ft, RX_PLACED), 4 * 128 + 1 + RX_BURST);
	assert_int_equal(rig_rx[0]->nb_pending, 0);
	finish();
}

/* A packet that waits for a slot while the window moves does not get into the new window. */
static void
waiting_packet_stays_behind(void **state)
{
	struct frame_closed closed[4];
	uint64_t stall_cycles;

	begin(64);
	stall_cycles = ft->config.stall_cycles;
	rig_poll_queue(0, 0);
	for (uint64_t f = 1; f <= 4; f++)
		send_frame(0, 0, f, false);
	rig_push(0, rig_packet(0, 5, 0, false));
	while (poll_all() != 0)
		;
	for (uint32_t i = 0; i < 4; i++)
		assert_true(rig_close(ft, &closed[i]));
	assert_int_equal(ft->rx[0].waits_for, 6);
	/* the detector restarts, and there is no room to hold all packets */
	send_frame(0, 0, 1, false);
	send_frame(0, 0, 2, false);
	while (poll_all() != 0)
		;
	/* no slot is returned in time */
	frame_table_open(ft);
	assert_int_equal(ft->window.state, FRAME_WINDOW_OPEN);
	poll_all();
	ft->config.stall_cycles = 0;
	frame_table_open(ft);
	ft->config.stall_cycles = stall_cycles;
	assert_int_equal(ft->window.state, FRAME_WINDOW_MOVING);
	poll_all();
	for (uint32_t i = 0; i < 4; i++)
		free_slot(closed[i].slot);
	for (int i = 0; i < 20; i++) {
		frame_table_open(ft);
		poll_all();
	}
	assert_int_equal(ft->window.state, FRAME_WINDOW_OPEN);
	assert_int_equal(ft->window.generation, 2);
	assert_int_equal(rig_count(ft, RX_PLACED), 6 * 128);
	assert_int_equal(rig_count(ft, RX_OUTLIER) + rig_count(ft, RX_LATE), 1);
	finish();
}

/* A packet whose number is slightly ahead waits alone: packets behind it are placed. */
static void
corrupt_number_waits_alone(void **state)
{
	begin(64);
	rig_poll_queue(0, 0);
	rig_push(0, rig_packet(0, 7, 0, true));
	send_frame(0, 0, 1, true);
	send_frame(0, 0, 2, true);
	for (int i = 0; i < 10; i++)
		poll_all();
	assert_int_equal(rig_rx[0]->nb_pending, 1);
	assert_int_equal(ft->rx[0].waits_for, 8);
	assert_int_equal(ft->rx[0].blocked, 0);
	assert_int_equal(build(), 2);
	for (uint64_t f = 3; f <= 8; f++) {
		send_frame(0, 0, f, false);
		for (int i = 0; i < 10; i++)
			poll_all();
		build();
	}
	assert_int_equal(rig_rx[0]->nb_pending, 0);
	assert_int_equal(rig_count(ft, RX_DUPLICATE), 1);
	finish();
}

/** Send stream 0 to queue 0 and the others to queue 1, up to the number of mbufs. */
static void
send_halves(uint64_t frames[2], uint64_t end)
{
	for (uint32_t q = 0; q < 2; q++)
		for (; frames[q] < end &&
			rig_queues[q].head - rig_queues[q].tail + (q == 0 ? 1 : 3) * 64 <= 320;
			frames[q]++)
			for (uint32_t p = 0; p < d.stream_packets; p++)
				for (uint32_t s = q; s < (q == 0 ? 1 : d.streams); s++)
					rig_push(q, rig_packet(s, frames[q], p, q == 1));
}

/*
 * Two queues of unequal streams are polled equally: packets of one that arrive too early must not
 * stop the other, which has the packets of the oldest frame.
 */
static void
queue_ahead_is_stopped_alone(void **state)
{
	const uint64_t end = 60;
	struct frame_closed closed;
	uint64_t frames[2] = {1, 1}, next = 1;
	uint32_t most_ahead = 0;

	rig_config(&config, &d, 2, 2);
	config.run.first_known = true;
	config.run.first_frame = 1;
	begin(64);
	rig_poll_queue(0, 0);
	rig_poll_queue(0, 1);
	for (int i = 0; i < 2000 && next < end; i++) {
		send_halves(frames, end);
		poll_all();
		most_ahead = RTE_MAX(most_ahead, rig_rx[0]->nb_of_source[0]);
		/*
		 * all frames can be opened: the missing packets are in the queue that is still
		 * polled
		 */
		assert_int_equal(ft->rx[0].blocked, 0);
		while (rig_close(ft, &closed)) {
			assert_int_equal(closed.frame, next++);
			assert_int_equal(closed.missing, 0);
			free_slot(closed.slot);
		}
		frame_table_open(ft);
	}
	assert_int_equal(next, end);
	assert_true(most_ahead > RX_PENDING_FULL);
	finish();
}

/*
 * When all queues are stopped, slow streams cannot deliver: the oldest frame is closed without
 * them.
 */
static void
all_queues_are_stopped(void **state)
{
	struct frame_closed closed;

	rig_config(&config, &d, 2, 2);
	config.run.first_known = true;
	config.run.first_frame = 1;
	begin(64);
	rig_poll_queue(0, 0);
	rig_poll_queue(0, 1);
	/* streams 1 and 3 are dead: their queue has no more packets of the oldest frame */
	for (uint64_t f = 1; f <= 8; f++)
		for (uint32_t p = 0; p < d.stream_packets; p++) {
			rig_push(0, rig_packet(0, f, p, false));
			if (f == 8)
				continue;
			rig_push(1, rig_packet(2, f, p, true));
		}
	for (int i = 0; i < 10; i++)
		poll_all();
	assert_int_equal(ft->rx[0].blocked, 0);
	assert_false(rig_close(ft, &closed));
	for (uint32_t p = 0; p < d.stream_packets; p++)
		rig_push(1, rig_packet(2, 8, p, true));
	for (int i = 0; i < 10; i++)
		poll_all();
	assert_int_equal(ft->rx[0].blocked, 6);
	assert_false(rig_close(ft, &closed));
	poll_all();
	assert_true(rig_close(ft, &closed));
	assert_int_equal(closed.packets, 128);
	free_slot(closed.slot);
	rig_rx[0]->stop = true;
	finish();
}

/*
 * One stream is ahead by so much that its frames are not opened soon, but so little that its
 * packets wait. It must not take the room or the frames of other streams of its RX role.
 */
static void
stray_stream_takes_no_room(void **state)
{
	const uint32_t frames = 30, ahead = 9;
	struct frame_closed closed;
	uint64_t next = 1;

	rig_config(&config, &d, 2, 2);
	config.run.first_known = true;
	config.run.first_frame = 1;
	begin(64);
	rig_poll_queue(0, 0);
	for (uint64_t f = 1; f <= frames; f++) {
		for (uint32_t p = 0; p < d.stream_packets; p++) {
			/* half of the other streams' packets, to save mbufs */
			for (uint32_t s = 0; s < 3 && p % 2 == 0; s++)
				rig_push(0, rig_packet(s, f, p, false));
			rig_push(0, rig_packet(3, f + ahead, p, false));
		}
		for (int i = 0; i < 20; i++) {
			poll_all();
			while (rig_close(ft, &closed)) {
				assert_int_equal(closed.frame, next++);
				/* held packets of the stream ahead are placed in their frame */
				assert_in_range(closed.packets, 3 * 32, 3 * 32 + d.stream_packets);
				free_slot(closed.slot);
			}
			frame_table_open(ft);
		}
	}
	/* the last K frames are still open */
	assert_in_range(next, frames - config.max_skew_frames, frames + 1);
	assert_in_range(rig_count(ft, RX_PLACED), frames * 3 * 32, frames * (3 * 32 + 16));
	assert_int_equal(
		rig_count(ft, RX_PLACED) + rig_count(ft, RX_OUTLIER) + rig_rx[0]->nb_pending,
		frames * (3 * 32 + 64));
	assert_in_range(rig_rx[0]->nb_pending, 0, RX_PENDING_FULL + d.stream_packets);
	assert_int_equal(ft->window.generation, 1);
	rig_rx[0]->stop = true;
	finish();
}

/* Without a window packets are held and vote once each, and none is lost. */
static void
first_packets_find_the_window(void **state)
{
	config.run.first_known = false;
	config.resync_packets = 100;
	config.slots = 8;
	ft = rig_table(&config);
	rig_roles(ft, 64);
	rig_poll_queue(0, 0);
	for (uint32_t i = 0; i < 60; i++)
		rig_push(0, rig_packet(0, 500, i, false));
	for (int i = 0; i < 10; i++) {
		poll_all();
		frame_table_open(ft);
	}
	assert_int_equal(ft->rx[0].agreement[0].votes, 60);
	assert_int_equal(ft->window.state, FRAME_WINDOW_SEARCHED);
	for (uint32_t i = 60; i < 128; i++)
		rig_push(0, rig_packet(0, 500, i, false));
	send_frame(0, 0, 501, false);
	send_frame(0, 0, 502, false);
	for (int i = 0; i < 20; i++) {
		poll_all();
		frame_table_open(ft);
	}
	assert_int_equal(rig_count(ft, RX_PLACED), 3 * 128);
	assert_int_equal(ft->window.generation, 1);
	finish();
}

/*
 * The builder begins to search for a window after rx_poll() has checked its held packets and before
 * it receives new ones.
 */
static void
search_begins_meanwhile(void **state)
{
	const struct frame_run run = {.nb_frames = 3};

	config.slots = 8;
	begin(64);
	rig_poll_queue(0, 0);
	frame_table_end(ft);
	while (!frame_table_flushed(ft)) {
		poll_all();
		build();
	}
	assert_int_equal(frame_table_begin(ft, &run), 0);
	send_frame(0, 0, 1, false);
	poll_all();
	poll_all();
	assert_int_equal(ft->window.state, FRAME_WINDOW_MOVING);
	assert_int_equal(rig_rx[0]->nb_pending, 128);
	send_frame(0, 0, 2, false);
	send_frame(0, 0, 3, false);
	rig_rx[0]->changes = frame_rx_changes(ft);
	rig_meanwhile = open_frames;
	poll_all();
	assert_int_equal(ft->window.state, FRAME_WINDOW_SEARCHED);
	for (int i = 0; i < 20; i++) {
		frame_table_open(ft);
		poll_all();
	}
	assert_int_equal(rig_count(ft, RX_PLACED), 3 * 128);
	finish();
}

/*
 * The window is found although votes are missing: an RX role without room for more packets cannot
 * send more votes.
 */
static void
full_role_finds_the_window(void **state)
{
	config.run.first_known = false;
	config.resync_packets = UINT32_MAX;
	config.slots = 8;
	ft = rig_table(&config);
	rig_roles(ft, 64);
	rig_poll_queue(0, 0);
	rig_push(0, rig_packet(0, 500, 0, false));
	poll_all();
	for (uint32_t i = 1; i < 128; i++)
		rig_push(0, rig_packet(0, 500, i, false));
	for (uint64_t f = 501; f < 505; f++)
		send_frame(0, 0, f, false);
	for (int i = 0; i < 3; i++)
		poll_all();
	/* one frame is held, and beyond it the limit without a further burst */
	assert_int_equal(rig_rx[0]->nb_pending, 128 + RX_PENDING_FULL + 1);
	for (int i = 0; i < 20; i++) {
		frame_table_open(ft);
		poll_all();
	}
	assert_int_equal(rig_count(ft, RX_PLACED), 5 * 128);
	finish();
}

/* When an RX role stops, the packets that it still holds are dropped and counted. */
static void
stop_in_the_middle(void **state)
{
	three_roles(32);
	rig_poll_queue(0, 0);
	send_frame(0, 1, 1, false); /* fills the handoff ring and the outgoing handoff buffer */
	rig_push(1, rig_packet(1, 7, 0, true)); /* one packet waits for its frame */
	rig_poll_queue(1, 1);
	rx_poll(rig_rx[1]);
	assert_int_equal(rig_rx[1]->nb_pending, 1);
	for (int i = 0; i < 10; i++)
		rx_poll(rig_rx[0]);
	for (uint32_t i = 0; i < 3; i++) {
		assert_false(rig_rx[i]->stopped);
		rig_rx[i]->stop = true;
	}
	for (int k = 0; k < 2; k++)
		assert_int_equal(poll_all(), 0);
	for (uint32_t i = 0; i < 3; i++)
		assert_true(rig_rx[i]->stopped);
	assert_int_equal(rig_count(ft, RX_STOPPED), rig_count(ft, RX_PACKETS));
	assert_int_equal(ft->rx[1].waits_for, 0);
	while (rig_queues[0].tail != rig_queues[0].head)
		rte_pktmbuf_free(rig_queues[0].m[rig_queues[0].tail++ % RIG_QUEUE_SIZE]);
	finish();
}

/* A run is stopped while packets wait and are held. They came in it. */
static void
run_is_stopped(void **state)
{
	config.slots = 4;
	begin(64);
	rig_poll_queue(0, 0);
	rig_push(0, rig_packet(0, 0, 0, false));
	rig_push(0, rig_packet(0, 12, 0, false));      /* waits */
	rig_push(0, rig_packet(0, 1000000, 0, false)); /* is held */
	poll_all();
	assert_true(rig_rx[0]->nb_pending > 0);
	frame_table_end(ft);
	while (!frame_table_flushed(ft)) {
		poll_all();
		build();
	}
	poll_all();
	assert_int_equal(rig_rx[0]->nb_pending, 0);
	assert_int_equal(rig_count(ft, RX_OUTLIER), 0);
	assert_int_equal(rig_count(ft, RX_STOPPED) + rig_count(ft, RX_BEYOND), 2);
	assert_true(rig_count(ft, RX_STOPPED) > 0);
	/* no packet of the next ones came in a run */
	rig_push(0, rig_packet(0, 13, 0, false));
	poll_all();
	assert_int_equal(rig_count(ft, RX_NO_RUN), 1);
	finish();
}

/** A packet from another sender, with other MAC and IP addresses than the detector's. */
static struct rte_mbuf *
forged(uint32_t stream, uint64_t frame, uint32_t packet)
{
	struct rte_mbuf *m = rig_packet(stream, frame, packet, packet % 2);
	uint8_t *b = rte_pktmbuf_mtod(m, uint8_t *);

	b[6] = 0x66;
	memcpy(&b[26], (uint8_t[]){10, 9, 9, 9}, 4);
	rig_checksum(b);
	return m;
}

static void
poll_until_idle(void)
{
	while (poll_all() != 0)
		;
}

/*
 * Without configured addresses the first source is accepted until a second one appears. Then the
 * packets placed are dropped, and the source is learnt that leads by a frame's number of packets.
 */
static void
forged_packets_before_the_real_ones(void **state)
{
	struct frame_closed closed;

	begin(64);
	rig_poll_queue(0, 0);
	for (uint32_t p = 0; p < 64; p++)
		rig_push(0, forged(0, 1, p));
	poll_until_idle();
	assert_int_equal(rig_count(ft, RX_PLACED), 64);
	for (uint64_t f = 1; f <= 4; f++)
		send_frame(0, 0, f, true);
	poll_until_idle();
	assert_int_equal(rig_count(ft, RX_FOREIGN), 64 + 64 + 127);
	assert_int_equal(rig_count(ft, RX_PLACED), 1 + 64 + 2 * 128);
	/* later forged packets have no effect */
	for (uint32_t p = 0; p < 100; p++)
		rig_push(0, forged(0, p < 50 ? 3 : 4, p));
	poll_until_idle();
	assert_int_equal(rig_count(ft, RX_FOREIGN), 64 + 64 + 127 + 100);
	finish();
	assert_int_equal(rig_sources.stream[0].step, SOURCE_LEARNT);
	assert_false(frame_table_close(ft, &closed));
}

/* Forged packets in the same burst, and while packets wait for a window. */
static void
forged_packets_among_the_first(void **state)
{
	config.run.first_known = false;
	ft = rig_table(&config);
	rig_roles(ft, 64);
	rig_poll_queue(0, 0);
	for (uint32_t p = 0; p < 20; p++)
		rig_push(0, rig_packet(0, 1, p, p % 2));
	rig_push(0, forged(0, 1, 20));
	poll_all();
	assert_int_equal(rig_rx[0]->nb_pending, 0);
	assert_int_equal(rig_count(ft, RX_FOREIGN), 21);
	assert_int_equal(rig_mbufs_out(), 0);
	for (uint64_t f = 2; f <= 4; f++)
		send_frame(0, 0, f, true);
	for (int i = 0; i < 10; i++) {
		poll_all();
		build();
	}
	assert_int_equal(rig_count(ft, RX_PLACED), 1 + 20 - 1 + 2 * 128);
	finish();
}

/* Numbers far ahead move the window only if they are from the stream's own source. */
static void
forged_numbers_move_no_window(void **state)
{
	uint64_t frame = 1;

	begin(64);
	rig_poll_queue(0, 0);
	for (; frame <= 10; frame++) {
		send_frame(0, 0, frame, true);
		poll_until_idle();
		for (uint32_t p = 0; p < 16; p++)
			rig_push(0, forged(0, 1000000 + frame, p));
		poll_until_idle();
		build();
		build();
	}
	assert_int_equal(rig_count(ft, RX_PLACED), 10 * 128);
	assert_int_equal(rig_count(ft, RX_FOREIGN), 10 * 16);
	assert_int_equal(ft->window.generation, 1);
	/* from its own source */
	send_frame(0, 0, 2000000, true);
	for (int i = 0; i < 20; i++) {
		poll_all();
		build();
	}
	assert_int_equal(ft->window.generation, 2);
	finish();
}

/* Another source gets a stream after silence, and the first one gets it back later. */
static void
detector_is_replaced(void **state)
{
	begin(64);
	rig_poll_queue(0, 0);
	for (uint64_t f = 1; f <= 3; f++)
		send_frame(0, 0, f, true);
	poll_until_idle();
	/* a complete frame, but the silence was too short */
	for (uint32_t p = 0; p < 128; p++)
		rig_push(0, forged(0, 4, p));
	poll_until_idle();
	assert_int_equal(rig_count(ft, RX_FOREIGN), 128);
	rig_sources.stall_cycles = 1;
	rig_push(0, forged(0, 4, 0));
	rig_push(0, forged(0, 4, 1));
	poll_until_idle();
	assert_int_equal(rig_count(ft, RX_PLACED), 3 * 128 + 2);
	rig_sources.stall_cycles = UINT64_MAX;
	rig_push(0, rig_packet(0, 4, 2, true));
	poll_until_idle();
	assert_int_equal(rig_count(ft, RX_FOREIGN), 128 + 1);
	rig_sources.stall_cycles = 1;
	send_frame(0, 0, 5, true);
	send_frame(0, 0, 6, true);
	rig_push(0, forged(0, 4, 2));
	for (int i = 0; i < 10; i++) {
		poll_all();
		build();
	}
	/* the 128th packet is the first one accepted */
	assert_int_equal(rig_count(ft, RX_PLACED), 3 * 128 + 2 + 256 - 126);
	assert_int_equal(rig_count(ft, RX_FOREIGN), 128 + 1 + 126 + 1);
	finish();
}

/* With configured addresses nothing is learnt: packets that differ in them are dropped. */
static void
configured_source(void **state)
{
	const uint32_t at[] = {SOURCE_MAC_FROM, SOURCE_IP_FROM, SOURCE_IP_TO, SOURCE_PORT_FROM};
	const uint8_t *packet;
	struct rte_mbuf *m;

	begin(64);
	rig_poll_queue(0, 0);
	m = rig_packet(0, 1, 0, false);
	packet = rte_pktmbuf_mtod(m, const uint8_t *);
	for (uint32_t i = 0; i < RTE_DIM(at); i++) {
		uint8_t mask[SOURCE_HEADERS] = {0};
		uint64_t value[SOURCE_WORDS], bits[SOURCE_WORDS];

		mask[at[i]] = 0xFF;
		rig_source_settings = (struct source_settings){.source = true};
		source_words(packet, 0, value);
		source_words(mask, 0, bits);
		source_filter_set(&rig_source_settings.filter[0], value, bits);
		sources_init(&rig_sources, &rig_source_settings, &d, 0);
		for (uint32_t k = 0; k < RTE_DIM(at); k++) {
			struct rte_mbuf *other = rig_packet(0, 1, 4 * i + k, k % 2);
			uint8_t *b = rte_pktmbuf_mtod(other, uint8_t *);

			b[at[k]] ^= 0x40;
			rig_checksum(b);
			rig_push(0, other);
		}
		poll_until_idle();
		assert_int_equal(rig_count(ft, RX_FOREIGN), i + 1);
		assert_int_equal(rig_count(ft, RX_PLACED), 3 * (i + 1));
	}
	rte_pktmbuf_free(m);
	rig_source_settings = (struct source_settings){0};
	finish();
}

/* The port's checksum flags are used. If it does not check the IPv4 header, the software does. */
static void
checksums(void **state)
{
	static const struct {
		uint64_t flags;
		bool damaged, udp, taken;
	} cases[] = {
		{0, false, false, true},
		{0, true, false, false},
		{RTE_MBUF_F_RX_IP_CKSUM_GOOD, false, false, true},
		{RTE_MBUF_F_RX_IP_CKSUM_GOOD, true, false, true},
		{RTE_MBUF_F_RX_IP_CKSUM_NONE, true, false, false},
		{RTE_MBUF_F_RX_IP_CKSUM_BAD, false, false, false},
		{RTE_MBUF_F_RX_L4_CKSUM_BAD, false, false, true},
		{RTE_MBUF_F_RX_L4_CKSUM_BAD, false, true, false},
		{RTE_MBUF_F_RX_L4_CKSUM_GOOD, false, true, true},
	};
	uint32_t taken = 0;

	begin(64);
	rig_poll_queue(0, 0);
	for (uint32_t i = 0; i < RTE_DIM(cases); i++) {
		struct rte_mbuf *m = rig_packet(0, 1, i, i % 2);
		uint8_t *b = rte_pktmbuf_mtod(m, uint8_t *);

		m->ol_flags |= cases[i].flags;
		b[22] ^= cases[i].damaged; /* time to live */
		b[41] = cases[i].udp;
		rig_push(0, m);
		poll_until_idle();
		taken += cases[i].taken;
		assert_int_equal(rig_count(ft, RX_PLACED), taken);
		assert_int_equal(rig_count(ft, RX_CHECKSUM), i + 1 - taken);
	}
	finish();
}

/** A packet with the position of its module. */
static struct rte_mbuf *
positioned(uint32_t stream, uint64_t frame, uint32_t packet, uint16_t row, uint16_t column)
{
	struct rte_mbuf *m = rig_packet(stream, frame, packet, packet % 2);
	uint8_t *h = rte_pktmbuf_mtod(m, uint8_t *) + RIG_HEADERS;

	rig_put(h + 34, row, 2);
	rig_put(h + 36, column, 2);
	return m;
}

/**
 * Send a frame of four modules, two in a column. from[s] is the module whose packets arrive in
 * stream s.
 */
static void
send_modules(uint64_t frame, const uint32_t from[4])
{
	for (uint32_t s = 0; s < 4; s++)
		for (uint32_t p = 0; p < 128; p++)
			rig_push(0, positioned(s, frame, p, from[s] % 2, from[s] / 2));
	poll_until_idle();
}

static void
four_modules(uint32_t positions)
{
	rig_config(&config, &d, 4, 1);
	config.slots = 2;
	config.max_skew_frames = 1;
	config.run.first_known = true;
	config.run.first_frame = 1;
	rig_source_settings.positions = positions;
	begin(64);
	rig_poll_queue(0, 0);
}

static void
swapped(uint32_t positions, const uint32_t from[4], uint32_t misplaced, uint32_t good)
{
	struct frame_closed closed;

	four_modules(positions);
	send_modules(1, from);
	assert_int_equal(rig_count(ft, RX_MISPLACED), misplaced * 128);
	assert_int_equal(rig_count(ft, RX_PLACED), good * 128);
	/* after the cables are corrected, packets are accepted after a few of them */
	send_modules(2, (const uint32_t[]){0, 1, 2, 3});
	assert_int_equal(rig_count(ft, RX_MISPLACED), misplaced * (128 + SOURCE_MOVES - 1));
	while (rig_close(ft, &closed))
		if (closed.packets > 0)
			free_slot(closed.slot);
	finish();
	rig_source_settings = (struct source_settings){0};
}

static void
modules_in_their_places(void **state)
{
	swapped(SOURCE_POSITIONS_AUTO, (const uint32_t[]){0, 1, 2, 3}, 0, 4);
}

static void
two_cables_are_swapped(void **state)
{
	swapped(SOURCE_POSITIONS_AUTO, (const uint32_t[]){0, 2, 1, 3}, 2, 2);
}

static void
three_cables_are_swapped(void **state)
{
	swapped(2, (const uint32_t[]){1, 2, 0, 3}, 3, 1);
}

/* PSI's virtual servers need not set positions. If two are equal, positions are not checked. */
static void
modules_without_places(void **state)
{
	struct frame_closed closed;

	for (uint32_t positions = 0; positions < 2; positions++) {
		four_modules(positions == 0 ? SOURCE_POSITIONS_AUTO : SOURCE_POSITIONS_OFF);
		send_modules(1,
			positions == 0 ? (const uint32_t[]){0, 0, 0, 0}
				       : (const uint32_t[]){3, 2, 1, 0});
		assert_int_equal(rig_count(ft, RX_PLACED), 4 * 128);
		while (rig_close(ft, &closed))
			free_slot(closed.slot);
		finish();
		rig_source_settings = (struct source_settings){0};
		teardown(NULL);
		ft = NULL;
	}
}

/** Read a role's counters. @return whether each packet has an outcome, is pending or forwarded */
static bool
counts_get(uint32_t role, struct rx_counts *of)
{
	uint64_t outcomes = 0;

	rx_get_counts(rig_rx[role], of);
	for (uint32_t c = RX_PLACED; c < RX_COUNTERS; c++)
		outcomes += of->counters[c];
	return of->counters[RX_PACKETS] + of->handoff_taken ==
		outcomes + of->counters[RX_HANDOFF_SENT] + of->pending;
}

static void
counts_balance(void)
{
	struct rx_counts of;

	for (uint32_t i = 0; i < config.nb_rx; i++)
		assert_true(counts_get(i, &of));
}

/* Random packets on random queues: the counters add up, also in the middle of each poll. */
static void
random_mixture(void **state)
{
	const uint64_t first = rig_first_seed(), n = rig_seeds(20);

	for (uint64_t seed = first; seed < first + n; seed++) {
		uint64_t rng = seed * UINT64_C(0x9E3779B97F4A7C15) + 1;

		print_message("FRAME_SEED=%" PRIu64 "\n", seed);
		memset(rig_queues, 0, sizeof(rig_queues));
		three_roles(32 + rig_below(&rng, 64));
		rig_meanwhile = counts_balance;
		for (uint32_t i = 0; i < 3; i++) {
			rig_poll_queue(i, i);
			rig_rx[i]->drop_handoff = rig_below(&rng, 2);
		}
		for (uint32_t i = 0; i < 3000; i++) {
			const uint64_t frame = 1 + i / 300 + rig_below(&rng, 3);

			if (rig_mbufs_out() < RIG_POOL / 2)
				rig_push(rig_below(&rng, 3),
					rig_below(&rng, 10) == 0
						? damaged(rig_below(&rng, DAMAGES))
						: rig_packet(rig_below(&rng, 3), frame,
							  rig_below(&rng, 128),
							  rig_below(&rng, 2)));
			if (rig_below(&rng, 20) == 0)
				rx_poll(rig_rx[rig_below(&rng, 3)]);
			if (rig_below(&rng, 50) == 0)
				build();
		}
		for (int i = 0; i < 100; i++) {
			poll_all();
			build();
		}
		for (uint32_t i = 0; i < 3; i++)
			rig_rx[i]->stop = true;
		poll_all();
		poll_all();
		finish();
		rig_meanwhile = NULL;
		counts_balance();
		teardown(NULL);
		ft = NULL;
	}
}

/** A thread that reads counters, and what it has found. */
struct reader {
	pthread_t thread;
	bool stop;
	uint64_t reads;
	uint64_t wrong;
};

static void *
read_counts(void *arg)
{
	struct reader *r = arg;
	uint64_t packets = 0;

	for (; !__atomic_load_n(&r->stop, __ATOMIC_ACQUIRE); counter_add(&r->reads, 1)) {
		struct rx_counts of;

		r->wrong += !counts_get(0, &of) || of.counters[RX_PACKETS] < packets;
		packets = of.counters[RX_PACKETS];
	}
	return NULL;
}

/* Another thread reads the counters while packets are placed, dropped, and wait. */
static void
counters_are_read_meanwhile(void **state)
{
	const uint64_t end = rte_rdtsc() + rte_get_tsc_hz() / 4;
	struct reader r = {0};

	begin(64);
	rig_poll_queue(0, 0);
	assert_int_equal(pthread_create(&r.thread, NULL, read_counts, &r), 0);
	for (uint64_t f = 1; rte_rdtsc() < end || counter_get(&r.reads) < 100; f++) {
		for (uint32_t p = 0; p < 128; p++) {
			rig_push(0, rig_packet(0, f + (p % 2) * config.slots, p, true));
			rig_push(0, damaged(p % DAMAGES));
		}
		for (int i = 0; i < 20 || rig_mbufs_out() > RIG_POOL / 2; i++) {
			poll_all();
			build();
		}
	}
	__atomic_store_n(&r.stop, true, __ATOMIC_RELEASE);
	assert_int_equal(pthread_join(r.thread, NULL), 0);
	assert_int_equal(r.wrong, 0);
	rig_rx[0]->stop = true;
	poll_all();
	finish();
}

int
main(int argc, char **argv)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(single_segments),
		TEST(split_segments),
		TEST(split_segments_seen_elsewhere),
		TEST(bad_packets_by_cause),
		TEST(samples_of_bad_packets),
		TEST(chains_of_wrong_lengths),
		TEST(duplicates_late_and_beyond),
		TEST(software_classifier),
		TEST(handoff_ring_gives_several_bursts),
		TEST(rx_roles_free_their_own),
		TEST(full_inbox_waits),
		TEST(full_handoff_ring_drops),
		TEST(roles_do_not_wait_for_each_other),
		TEST(waits_for_slots),
		TEST(frames_open_meanwhile),
		TEST(waiting_packet_stays_behind),
		TEST(corrupt_number_waits_alone),
		TEST(queue_ahead_is_stopped_alone),
		TEST(all_queues_are_stopped),
		TEST(stray_stream_takes_no_room),
		TEST(first_packets_find_the_window),
		TEST(search_begins_meanwhile),
		TEST(full_role_finds_the_window),
		TEST(stop_in_the_middle),
		TEST(run_is_stopped),
		TEST(forged_packets_before_the_real_ones),
		TEST(forged_packets_among_the_first),
		TEST(forged_numbers_move_no_window),
		TEST(detector_is_replaced),
		TEST(configured_source),
		TEST(checksums),
		TEST(modules_in_their_places),
		TEST(two_cables_are_swapped),
		TEST(three_cables_are_swapped),
		TEST(modules_without_places),
		TEST(random_mixture),
		TEST(counters_are_read_meanwhile),
	};

	if (rig_eal(argv[0]) < 0)
		return 1;
	rig_port();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
