/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams to a group: losses and their repair, slow, late and dying ends, strangers. */
#include "rdma_stream_rig.h"

#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>

#include <openssl/evp.h>
#include <rte_cycles.h>
#include <rte_errno.h>
#include <rte_ether.h>

#include "counter.h"

/* ---- losses ---------------------------------------------------------------------------------- */

static void
test_nothing_lost(void **state)
{
	rig_sender(NULL);
	for (unsigned int i = 1; i < RIG_STATIONS; i++)
		rig_receiver(i, NULL);
	for (unsigned int i = 1; i < RIG_STATIONS; i++)
		rig_joined(i);
	rig_send(10 * RIG_SLOTS);
	rdma_stream_end(rig.s);
	for (unsigned int i = 1; i < RIG_STATIONS; i++) {
		rig_until(rig_info(i).state == RDMA_STREAM_ENDED);
		assert_int_equal(rig.receiver[i].packets, 10 * RIG_SLOTS);
		assert_int_equal(rig_info(i).received, 10 * RIG_SLOTS);
		assert_int_equal(rig_info(i).reads, 0);
		assert_int_equal(rig_info(i).lost, 0);
		assert_int_equal(rig_info(i).held, 0);
	}
	rig_until(rdma_stream_sender_done(rig.s));
	assert_int_equal(rig_sender_info().members, RIG_STATIONS - 1);
	for (unsigned int i = 1; i < RIG_STATIONS; i++) {
		rdma_stream_leave(rig.receiver[i].r);
		rig_until(rig_info(i).state == RDMA_STREAM_LEFT);
	}
	rig_until(rig_sender_info().left == RIG_STATIONS - 1);
	assert_int_equal(rig_sender_info().members, 0);
}

/* Chosen packets are lost on the way to station 1 only. */
static uint64_t lose_from, lose_to;
static uint64_t lost_packets;

static bool
tap_lose(const struct rig_frame *f)
{
	if (f->stream && f->to == 1 && f->header.sequence >= lose_from &&
		f->header.sequence < lose_to) {
		lost_packets++;
		return false;
	}
	return true;
}

static void
lose(uint64_t from, uint64_t to)
{
	lose_from = from;
	lose_to = to;
	lost_packets = 0;
	rig.tap = tap_lose;
}

static void
two(void)
{
	rig_sender(NULL);
	rig_receiver(1, NULL);
	rig_receiver(2, NULL);
	rig_joined(1);
	rig_joined(2);
}

static void
test_one_lost(void **state)
{
	two();
	lose(10, 11);
	rig_send(40);
	rig_all(1);
	rig_all(2);
	assert_int_equal(rig_info(1).repaired, 1);
	assert_int_equal(rig_info(1).reads, 1);
	assert_int_equal(rig_info(2).reads, 0);
}

/* Adjacent packets are READ together, up to the end of the ring. */
static void
test_range_lost(void **state)
{
	two();
	lose(RIG_SLOTS - 3, RIG_SLOTS + 2);
	rig_send(RIG_SLOTS + 30);
	rig_all(1);
	rig_all(2);
	assert_int_equal(rig_info(1).repaired, 5);
	assert_int_equal(rig_info(1).reads, 2);
	assert_int_equal(rig_info(1).lost, 0);
}

static void
test_first_lost(void **state)
{
	two();
	lose(0, 1);
	rig_send(2);
	rig_all(1);
	assert_int_equal(rig_info(1).repaired, 1);
}

/* No later packet shows the gap: the head does. */
static void
test_tail_lost(void **state)
{
	two();
	lose(17, 20);
	rig_send(20);
	rig_all(1);
	rig_all(2);
	assert_int_equal(rig_info(1).repaired, 3);
	assert_true(rig_info(1).head_reads > 0);
}

static void
test_all_lost(void **state)
{
	two();
	lose(0, UINT64_MAX);
	rig_send(4 * RIG_SLOTS);
	rig_all(1);
	rig_all(2);
	assert_int_equal(rig_info(1).repaired, 4 * RIG_SLOTS);
	assert_int_equal(rig_info(1).received, 0);
	assert_int_equal(rig_info(1).lost, 0);
}

/* Everything is lost at random: packets, READs, acknowledgements, CM messages. */
static void
random_loss(uint32_t percent, enum rdma_stream_repair repair, unsigned int packets)
{
	struct rdma_stream_receiver_attr attr;

	rig_sender(NULL);
	for (unsigned int i = 1; i < RIG_STATIONS; i++) {
		attr = rig_receiver_attr(i);
		attr.repair = repair;
		rig_receiver(i, &attr);
		rig_joined(i);
	}
	rig.lose = 65536 * percent / 100;
	rig_send(packets);
	for (unsigned int i = 1; i < RIG_STATIONS; i++) {
		rig_all(i);
		assert_int_equal(rig.receiver[i].packets, packets);
		assert_int_equal(rig_info(i).lost, 0);
	}
	rig.lose = 0;
	rdma_stream_end(rig.s);
	rig_until(rdma_stream_sender_done(rig.s));
}

static void
test_random_loss(void **state)
{
	random_loss(1, RDMA_STREAM_READ, 5000);
}

static void
test_random_heavy_loss(void **state)
{
	random_loss(10, RDMA_STREAM_READ, 1500);
}

static void
test_nack(void **state)
{
	random_loss(2, RDMA_STREAM_NACK, 2000);
	assert_true(rig_sender_info().resent > 0);
	assert_int_equal(rig_info(1).reads, 0);
}

/*
 * One connection of station 1 loses all its READ responses, or all its tails, from the first on. A
 * network that loses many packets loses runs of them like that.
 */
static uint8_t deaf_from, deaf_to; /* opcodes */
static unsigned int deaf_station;  /* that the frames are for */
static uint32_t deaf_qpn;	   /* 0: none yet */

static bool
tap_deaf(const struct rig_frame *f)
{
	const uint8_t *bth = rte_pktmbuf_mtod_offset(f->m, uint8_t *, RTE_ETHER_HDR_LEN + 20 + 8);
	const uint32_t qpn = bth[5] << 16 | bth[6] << 8 | bth[7];

	if (f->from + f->to != 1 || f->to != deaf_station || f->opcode < deaf_from ||
		f->opcode > deaf_to)
		return tap_lose(f);
	deaf_qpn = deaf_qpn ? deaf_qpn : qpn;
	return qpn != deaf_qpn;
}

static void
deaf(unsigned int station, uint8_t from, uint8_t to)
{
	struct rdma_stream_sender_attr attr = rig_sender_attr();

	attr.silence_ms = 20000;
	rig_sender(&attr);
	rig_receiver(1, NULL);
	rig_receiver(2, NULL);
	rig_joined(1);
	rig_joined(2);
	/* all connections know the round trip */
	rig_send(4 * RIG_SLOTS);
	rig_run(20);
	deaf_qpn = 0;
	deaf_station = station;
	deaf_from = from;
	deaf_to = to;
	lose(rig.next + 10, rig.next + 13);
	rig.tap = tap_deaf;
	rig_send(3 * RIG_SLOTS);
	rig_all(1);
	/* long before the connection fails */
	assert_int_equal(rig_info(1).rejoins, 0);
	assert_int_equal(rig_info(1).read_errors, 0);
	assert_int_not_equal(deaf_qpn, 0);
	assert_int_equal(rig_info(1).lost, 0);
}

static void
test_overdue_read(void **state)
{
	deaf(1, 0x0d, 0x10);
	assert_true(rig_info(1).repaired >= 3);
}

static void
test_overdue_tail(void **state)
{
	deaf(0, 0x06, 0x0b);
}

/* Packets that come twice or late are counted once. */
static struct rte_mbuf *kept;

static bool
tap_twice(const struct rig_frame *f)
{
	struct rte_mbuf *c;

	if (!f->stream || f->to != 1)
		return true;
	if (f->header.sequence % 7 == 3) {
		c = rte_pktmbuf_copy(f->m, rig.pool, 0, UINT32_MAX);
		assert_non_null(c);
		if (kept && rte_ring_enqueue(rig.station[1].rx, kept) < 0)
			rte_pktmbuf_free(kept);
		kept = c;
	}
	return true;
}

static void
test_duplicates(void **state)
{
	two();
	rig.tap = tap_twice;
	rig_send(700);
	rig_all(1);
	rig_all(2);
	rig_run(5);
	assert_int_equal(rig_info(1).duplicate, 99);
	assert_int_equal(rig_info(1).received, 700);
	rte_pktmbuf_free(kept);
	kept = NULL;
}

static void
test_wrap(void **state)
{
	struct rdma_stream_sender_attr attr = rig_sender_attr();

	attr.first = UINT32_MAX - 100ULL;
	rig_sender(&attr);
	rig_receiver(1, NULL);
	rig_joined(1);
	lose(UINT32_MAX - 3ULL, UINT32_MAX + 3ULL);
	rig_send(300);
	rig_all(1);
	assert_int_equal(rig.receiver[1].packets, 300);
	assert_int_equal(rig_info(1).repaired, 6);
	assert_true(rig_info(1).next > UINT32_MAX);
}

/* ---- counters -------------------------------------------------------------------------------- */

/* A thread that reads the counters of both ends, and what it has found. */
struct reader {
	pthread_t thread;
	bool stop;
	uint64_t reads;
	uint64_t wrong;
};

static void *
read_info(void *arg)
{
	struct rdma_stream_sender_info s = {0}, s_before;
	struct rdma_stream_receiver_info r = {0}, r_before;
	struct reader *reader = arg;

	for (; !__atomic_load_n(&reader->stop, __ATOMIC_ACQUIRE); counter_add(&reader->reads, 1)) {
		s_before = s;
		r_before = r;
		s = rig_sender_info();
		r = rig_info(1);
		reader->wrong += s.head < s_before.head || s.tail < s_before.tail ||
			r.received < r_before.received || r.repaired < r_before.repaired;
	}
	return NULL;
}

static void
test_info_of_any_lcore(void **state)
{
	struct reader reader = {0};

	two();
	assert_int_equal(pthread_create(&reader.thread, NULL, read_info, &reader), 0);
	do {
		lose(rig.next, rig.next + 1);
		rig_send(RIG_SLOTS);
		rig_all(1);
	} while (counter_get(&reader.reads) < 100);
	__atomic_store_n(&reader.stop, true, __ATOMIC_RELEASE);
	assert_int_equal(pthread_join(reader.thread, NULL), 0);
	assert_int_equal(reader.wrong, 0);
}

/* ---- slow, late and dying ends --------------------------------------------------------------- */

/* The member at a station, as the sender knows it. */
static struct rdma_stream_member_info
member_at(unsigned int station)
{
	const struct sockaddr_in *wanted = (struct sockaddr_in *)&rig.station[station].addr;
	struct rdma_stream_member_info member[RIG_STATIONS];
	const uint16_t n = rdma_stream_sender_members(rig.s, member, RIG_STATIONS);

	for (uint16_t i = 0; i < n; i++)
		if (((struct sockaddr_in *)&member[i].addr)->sin_addr.s_addr ==
			wanted->sin_addr.s_addr)
			return member[i];
	fail_msg("no member at station %u", station);
	return (struct rdma_stream_member_info){0};
}

static void
test_wait_is_bounded(void **state)
{
	struct rdma_stream_member_info member;
	unsigned int n = 0;

	two();
	rig.receiver[1].stalled = true;
	while (rig_try() && n < 10 * RIG_SLOTS) {
		n++;
		rig_run(1);
	}
	assert_int_equal(n, RIG_SLOTS);
	assert_true(rig_sender_info().full > 0);
	rig_until(member_at(2).tail == RIG_SLOTS);
	assert_int_equal(member_at(1).tail, 0);
	assert_int_equal(rdma_stream_sender_members(rig.s, &member, 1), 1);
	rig.receiver[1].stalled = false;
	rig_send(100);
	rig_all(1);
	assert_int_equal(rig_info(1).lost, 0);
}

/* No READ of station 1 is answered. */
static bool
tap_unanswered(const struct rig_frame *f)
{
	return tap_lose(f) && !(f->to == 1 && f->opcode >= 0x0d && f->opcode <= 0x10);
}

/* Responses to READs queue behind packets: while a member misses some, few are in flight to it. */
static void
test_wait_during_repair(void **state)
{
	struct rdma_stream_sender_attr attr = rig_sender_attr();
	unsigned int n = 0;

	attr.silence_ms = 20000;
	rig_sender(&attr);
	rig_receiver(1, NULL);
	rig_receiver(2, NULL);
	rig_joined(1);
	rig_joined(2);
	lose(4, 5);
	rig.tap = tap_unanswered;
	rig_send(10);
	rig_until(member_at(1).tail == 4 && member_at(1).seen == 10);
	rig_until(member_at(2).tail == 10 && member_at(2).seen == 10);
	rig.receiver[1].stalled = true;
	while (rig_try() && n < RIG_SLOTS) {
		n++;
		rig_run(1);
	}
	assert_int_equal(n, RIG_SLOTS / 4);
	/* what it has seen makes room, although it still misses the packet */
	rig.receiver[1].stalled = false;
	rig_send(RIG_SLOTS / 4);
	assert_int_equal(rig_info(1).next, 4);
	rig.tap = NULL;
	rig_send(100);
	rig_all(1);
	rig_all(2);
	assert_int_equal(rig_info(1).lost, 0);
	assert_int_equal(rig_sender_info().removed_wrong, 0);
}

/* A silent member is removed. Later it joins as a new one, and counts what it has lost. */
static void
test_silent_member(void **state)
{
	two();
	rig_send(10);
	rig_all(1);
	rig.receiver[1].stalled = true;
	rig_send(10 * RIG_SLOTS);
	assert_int_equal(rig_sender_info().removed_silent, 1);
	rig_all(2);
	assert_int_equal(rig_info(2).lost, 0);
	rig.receiver[1].stalled = false;
	rig_until(rig_info(1).joins == 2);
	rig_send(10);
	rig_all(1);
	assert_true(rig_info(1).lost > 0);
	assert_int_equal(rig.receiver[1].lost, rig_info(1).lost);
	assert_int_equal(rig_sender_info().members, 2);
}

/* A member that vanishes without a word does not stop the others. */
static void
test_member_death(void **state)
{
	two();
	rig_send(10);
	rig.station[1].dead = true;
	rig_send(10 * RIG_SLOTS);
	rig_all(2);
	assert_int_equal(rig_sender_info().removed_silent, 1);
	rig.station[1].dead = false;
}

static void
test_overwrite(void **state)
{
	struct rdma_stream_sender_attr attr = rig_sender_attr();

	attr.policy = RDMA_STREAM_OVERWRITE;
	attr.silence_ms = 5000;
	rig_sender(&attr);
	rig_receiver(1, NULL);
	rig_receiver(2, NULL);
	rig_joined(1);
	rig_joined(2);
	lose(20, 3 * RIG_SLOTS);
	rig.receiver[1].stalled = true;
	rig_send(20 * RIG_SLOTS);
	rig.receiver[1].stalled = false;
	rig_all(2);
	assert_int_equal(rig_info(2).lost, 0);
	rig_send(10);
	rig_all(1);
	assert_true(rig_info(1).lost >= 3 * RIG_SLOTS - 20);
	assert_int_equal(rig.receiver[1].lost, rig_info(1).lost);
	assert_int_equal(rig.receiver[1].packets + rig.receiver[1].lost, 20 * RIG_SLOTS + 10);
	rdma_stream_end(rig.s);
	rig_until(rdma_stream_sender_done(rig.s));
}

static void
test_late_join(void **state)
{
	rig_sender(NULL);
	rig_receiver(1, NULL);
	rig_joined(1);
	rig_send(150);
	rig_receiver(2, NULL);
	rig_joined(2);
	assert_int_equal(rig_info(2).start, 150);
	rig_send(150);
	rig_all(1);
	rig_all(2);
	assert_int_equal(rig.receiver[2].packets, 150);
	assert_int_equal(rig_info(2).lost, 0);
}

/* A sender that is started again has a new run: the members join it. */
static void
test_sender_restart(void **state)
{
	uint64_t run;

	two();
	rig_send(100);
	rig_all(1);
	rig_all(2);
	run = rig_info(1).run;
	rig_sender_end();
	rig_run(20);
	rig_sender(NULL);
	rig_joined(1);
	rig_joined(2);
	assert_int_not_equal(rig_info(1).run, run);
	rig_send(50);
	rig_all(1);
	rig_all(2);
	assert_int_equal(rig.receiver[1].packets, 150);
	assert_int_equal(rig_info(1).lost, 0);
}

/* A packet of the last RIG_SLOTS ones in the sender's ring. */
static struct stream_header *
slot_in_memory(uint64_t sequence)
{
	struct stream_header *next = (struct stream_header *)rdma_stream_next(rig.s) - 1;
	const uint32_t stride = RTE_ALIGN_CEIL(RIG_PAYLOAD + RDMA_STREAM_HEADER_BYTES, 64);
	uint8_t *first = (uint8_t *)next - rig.next % RIG_SLOTS * stride;

	return (struct stream_header *)(first + sequence % RIG_SLOTS * stride);
}

/* Slots that cannot be READ are missing when the sender is started again. */
static void
restart_missing(uint64_t from, uint64_t to)
{
	two();
	lose(from, to);
	rig.receiver[1].stalled = true;
	rig_send(20);
	for (uint64_t i = from; i < to; i++)
		slot_in_memory(i)->sequence = STREAM_INVALID;
	rig.receiver[1].stalled = false;
	rig_until(rig_info(1).not_written > 2);
	assert_int_equal(rig.receiver[1].next, from);
	rig_sender_end();
	rig.tap = NULL;
	rig_run(20);
	rig_sender(NULL);
	rig_joined(1);
	rig_joined(2);
	rig_send(50);
	rig_all(1);
	rig_all(2);
	assert_int_equal(rig_info(1).lost, to - from);
	assert_int_equal(rig.receiver[1].packets, 20 - (to - from) + 50);
	assert_int_equal(rig_info(2).lost, 0);
}

static void
test_restart_missing(void **state)
{
	restart_missing(10, 12);
	assert_int_equal(rig.receiver[1].lost, 2);
}

/* The first packet of the new run does not count them. */
static void
test_restart_missing_last(void **state)
{
	restart_missing(18, 20);
	assert_int_equal(rig.receiver[1].lost, 0);
}

/* The sender goes on without members, which join again. */
static void
test_all_removed(void **state)
{
	two();
	rig.receiver[1].stalled = rig.receiver[2].stalled = true;
	rig_send(10 * RIG_SLOTS);
	assert_int_equal(rig_sender_info().removed_silent, 2);
	assert_int_equal(rig_sender_info().members, 0);
	rig.receiver[1].stalled = rig.receiver[2].stalled = false;
	for (unsigned int i = 1; i <= 2; i++) {
		rig_until(rig_info(i).joins == 2);
		rig_joined(i);
	}
	rig_until(rig_sender_info().members == 2);
	rig_send(100);
	rig_all(1);
	rig_all(2);
	assert_int_equal(rig_sender_info().joined, 4);
}

/* Members are not silent in the time in which the sender itself gets no CPU. */
static void
test_sender_without_cpu(void **state)
{
	struct rdma_stream_sender_attr attr = rig_sender_attr();

	attr.silence_ms = 400;
	rig_sender(&attr);
	rig_receiver(1, NULL);
	rig_joined(1);
	rig_until(rig_sender_info().members == 1);
	for (unsigned int i = 0; i < 8; i++) {
		rte_delay_us_sleep(90000);
		rdma_stream_sender_poll(rig.s);
	}
	assert_int_equal(rig_sender_info().removed_silent, 0);
	rig_send(100);
	rig_all(1);
	assert_int_equal(rig_info(1).joins, 1);
}

/* A receiver that refuses the card is no member, and does not stop the others. */
static void
test_refused_card(void **state)
{
	struct rdma_stream_sender_attr attr = rig_sender_attr();
	struct rdma_stream_receiver_attr small = rig_receiver_attr(2);

	/* longer than rig_send() waits for a slot */
	attr.silence_ms = 60000;
	small.payload_max = RIG_PAYLOAD - 8;
	rig_sender(&attr);
	rig_receiver(1, NULL);
	rig_joined(1);
	rig_receiver(2, &small);
	rig_until(rig_info(2).state == RDMA_STREAM_FAILED);
	assert_int_equal(rig_info(2).error, -EMSGSIZE);
	rig_send(4 * RIG_SLOTS);
	rig_all(1);
	assert_int_equal(rig_sender_info().refused, 1);
	assert_int_equal(rig_sender_info().joined, 1);
	assert_int_equal(rig_sender_info().members, 1);
	assert_int_equal(rig_sender_info().removed_silent, 0);
}

/* A connection that fails is replaced, and the member remains. */
static bool
tap_no_read(const struct rig_frame *f)
{
	/* neither READ requests nor their acknowledgements */
	return f->opcode != 0x0c || f->from != 1;
}

static void
test_reconnect(void **state)
{
	struct rdma_stream_sender_attr attr = rig_sender_attr();

	attr.silence_ms = 8000;
	rig_sender(&attr);
	rig_receiver(1, NULL);
	rig_joined(1);
	rig_send(10);
	rig_all(1);
	rig.tap = tap_no_read;
	rig_until(rig_info(1).rejoins > 0);
	rig.tap = NULL;
	lose(10, 15);
	rig_send(40);
	rig_all(1);
	assert_int_equal(rig_info(1).joins, 1);
	assert_int_equal(rig_info(1).lost, 0);
}

/* No message of station 1 arrives: its connection for messages fails. */
static bool
tap_no_message(const struct rig_frame *f)
{
	return tap_lose(f) && (f->opcode > 0x04 || f->from != 1);
}

/* A member that repairs by NACKs can do so over the connection that replaces the failed one. */
static void
test_nack_after_reconnect(void **state)
{
	struct rdma_stream_sender_attr attr = rig_sender_attr();
	struct rdma_stream_receiver_attr nack = rig_receiver_attr(1);

	attr.silence_ms = 8000;
	rig_sender(&attr);
	nack.repair = RDMA_STREAM_NACK;
	rig_receiver(1, &nack);
	rig_joined(1);
	lose(2, 4);
	rig.tap = tap_no_message;
	rig_send(10);
	rig_until(rig_info(1).rejoins > 0);
	assert_int_equal(rig.receiver[1].next, 2);
	rig.tap = NULL;
	rig_all(1);
	assert_int_equal(rig_info(1).joins, 1);
	assert_int_equal(rig_info(1).lost, 0);
}

/* The packets that a program keeps are as they were delivered. */
static void
check_held(unsigned int station)
{
	const struct rig_receiver *rr = &rig.receiver[station];

	for (unsigned int i = 0; i < rr->nb_held; i++) {
		const struct rdma_stream_packet *p = &rr->held[i];

		for (uint32_t at = 0; at < p->length; at += 8)
			assert_memory_equal((const uint8_t *)p->data + at, &p->sequence, 8);
	}
}

/* Send until the sender waits for a program that keeps all packets. */
static void
send_until_held(unsigned int station)
{
	const struct rdma_stream_receiver_attr attr = rig_receiver_attr(station);
	const unsigned int most = attr.buffers + attr.repair_buffers;

	rig.receiver[station].hold = true;
	/* all of its buffers, and the ring */
	rig_until(!rig_try() && rig_info(station).held == most);
	/* the sender waits longer when the member has seen that it misses packets */
	rig_until(!rig_try() && rig.next == most + RIG_SLOTS);
	rig_until(member_at(station).tail == most);
}

/*
 * Packets that a program keeps are not overwritten, and stop the sender. The member is not silent
 * meanwhile, however long that is.
 */
static void
test_held_packets(void **state)
{
	uint64_t stopped, reads;

	two();
	send_until_held(1);
	rig_all(2);
	stopped = rig.next;
	reads = rig_info(1).reads;
	for (unsigned int i = 0; i < 3; i++) {
		rig_run(rig_sender_attr().silence_ms / 2);
		assert_false(rig_try());
	}
	assert_int_equal(rig.next, stopped);
	/* nor does it READ what it has no buffer for */
	assert_int_equal(rig_info(1).reads, reads);
	assert_int_equal(rig_sender_info().removed_silent, 0);
	assert_int_equal(rig_sender_info().members, 2);
	check_held(1);
	rig.receiver[1].hold = false;
	rig_release(1);
	rig_send(100);
	rig_all(1);
	assert_int_equal(rig_info(1).lost, 0);
	assert_int_equal(rig_info(1).held, 0);
	assert_int_equal(rig_info(1).joins, 1);
	assert_int_equal(rig.receiver[1].packets, stopped + 100);
}

/* A program that keeps all packets, but gives one back for each that it wants, waits for none. */
static void
test_held_but_one(void **state)
{
	struct rig_receiver *rr = &rig.receiver[1];
	uint64_t next;

	two();
	send_until_held(1);
	for (unsigned int i = 0; i < 20 * RIG_SLOTS; i++) {
		next = rr->next;
		rdma_stream_release(rr->r, rr->held, 1);
		memmove(rr->held, rr->held + 1, --rr->nb_held * sizeof(rr->held[0]));
		rig_until(rr->next > next || (rig_try() && false));
	}
	check_held(1);
	rr->hold = false;
	rig_release(1);
	rig_all(1);
	assert_int_equal(rig_info(1).lost, 0);
	assert_int_equal(rig_info(1).held, 0);
}

/* The card says *wait*, and the sender overwrites. */
static bool
tap_promise(const struct rig_frame *f)
{
	const unsigned int at = RTE_ETHER_HDR_LEN + 20 + 8 + 12;
	struct stream_card card;

	if (f->from != 0 || f->m->pkt_len != at + sizeof(card) + 4)
		return true;
	memcpy(&card, rte_pktmbuf_mtod_offset(f->m, void *, at), sizeof(card));
	if (card.type != STREAM_ANSWER)
		return true;
	assert_int_equal(card.policy, RDMA_STREAM_OVERWRITE);
	card.policy = RDMA_STREAM_WAIT;
	memcpy(rte_pktmbuf_mtod_offset(f->m, void *, at), &card, sizeof(card));
	rig_checksum(f->m);
	return true;
}

/*
 * A sender does not wait for a program that keeps all packets, even if its card requires it: these
 * are not touched, and what it has overwritten is lost permanently.
 */
static void
held_and_overwritten(bool (*tap)(const struct rig_frame *frame))
{
	struct rdma_stream_sender_attr attr = rig_sender_attr();
	const unsigned int n = 100 * RIG_SLOTS;

	attr.policy = RDMA_STREAM_OVERWRITE;
	rig.tap = tap;
	rig_sender(&attr);
	rig_receiver(1, NULL);
	rig_receiver(2, NULL);
	rig_joined(1);
	rig_joined(2);
	rig.receiver[1].hold = true;
	rig_send(n);
	rig_all(2);
	check_held(1);
	rig.receiver[1].hold = false;
	rig_release(1);
	rig_send(10);
	rig_all(1);
	assert_true(rig_info(1).lost > n / 2);
	assert_int_equal(rig.receiver[1].lost, rig_info(1).lost);
	assert_int_equal(rig.receiver[1].packets + rig.receiver[1].lost, n + 10);
	assert_int_equal(rig_info(1).held, 0);
	assert_int_equal(rig_info(1).joins, 1);
	assert_int_equal(rig_info(2).lost, 0);
}

static void
test_held_and_overwritten(void **state)
{
	held_and_overwritten(NULL);
}

static void
test_held_by_false_promise(void **state)
{
	held_and_overwritten(tap_promise);
}

/* ---- strangers and damage -------------------------------------------------------------------- */

/*
 * Another station sends to the group, with its own UD queue pair. It has seen the stream's headers.
 */
static struct {
	struct rdma_cq *cq;
	struct rdma_qp *qp;
	struct rdma_ah *ah;
	uint8_t packet[1024];
} stranger;

static void
stranger_open(unsigned int station)
{
	struct rdma_qp_attr attr = {.type = RDMA_QP_UD, .max_inline = 256};

	stranger.cq = rdma_cq_create(rig.station[station].dev, 64, 0);
	attr.send_cq = attr.recv_cq = stranger.cq;
	stranger.qp = rdma_qp_create(rig.station[station].pd, &attr);
	assert_non_null(stranger.qp);
	assert_int_equal(rdma_qp_connect(stranger.qp, NULL), 0);
	stranger.ah = rdma_ah_create(rig.station[station].pd, rig_sender_attr().group, 0, 0);
	assert_non_null(stranger.ah);
}

static void
stranger_close(void)
{
	rig_run(2);
	assert_int_equal(rdma_qp_destroy(stranger.qp), 0);
	assert_int_equal(rdma_ah_destroy(stranger.ah), 0);
	assert_int_equal(rdma_cq_destroy(stranger.cq), 0);
}

static void
stranger_send(const struct stream_header *header, uint32_t imm, uint32_t length)
{
	const struct rdma_sge sge = {(uintptr_t)stranger.packet, length, 0};
	const struct rdma_send_wr wr = {.sg = &sge,
		.nb_sge = 1,
		.op = RDMA_OP_SEND_IMM,
		.flags = RDMA_SEND_INLINE,
		.imm = imm,
		.ud = {stranger.ah, 0xffffff, 0x01234567}};

	memcpy(stranger.packet, header, sizeof(*header));
	assert_int_equal(rdma_post_send(stranger.qp, &wr, 1), 1);
	rig_run(1);
}

static void
test_stranger(void **state)
{
	struct stream_header h = {.sequence = 10, .length = 8};

	two();
	stranger_open(3);
	rig_send(10);
	rig_all(1);
	h.run = rig_sender_info().run;
	for (unsigned int i = 0; i < 20; i++) {
		h.sequence = rig_random(2) ? rig_random(1000) : (uint64_t)rig_random(1000) << 32;
		stranger_send(&h, rig_random(2) ? (uint32_t)h.sequence : rig_random(UINT32_MAX),
			rig_random(sizeof(h) + 100));
	}
	assert_int_equal(rig_info(1).foreign, 20);
	stranger_close();
	rig_send(200);
	rig_all(1);
	rig_all(2);
	assert_int_equal(rig_info(1).received, 210);
	assert_int_equal(rig_info(1).reads, 0);
}

/* The switch replaces the headers of the sender's own packets, so that all but they are right. */
static enum {
	FORGE_NOTHING,
	FORGE_FAR,
	FORGE_AHEAD,
	FORGE_RUN,
	FORGE_LENGTH,
	FORGE_OLD
} forge;
static uint64_t forge_at;

static bool
tap_forge(const struct rig_frame *f)
{
	struct stream_header h = f->header;
	uint8_t *imm;

	if (!f->stream || f->to != 1 || h.sequence != forge_at)
		return true;
	switch (forge) {
	case FORGE_FAR:
		h.sequence += 1ULL << 40;
		break;
	case FORGE_AHEAD:
		h.sequence += 40;
		break;
	case FORGE_RUN:
		h.run ^= 1;
		break;
	case FORGE_LENGTH:
		h.length = UINT32_MAX;
		break;
	case FORGE_OLD:
		h.sequence = 0;
		break;
	case FORGE_NOTHING:
		break;
	}
	memcpy(f->stream, &h, sizeof(h));
	imm = f->stream - 4;
	imm[0] = h.sequence >> 24;
	imm[1] = h.sequence >> 16;
	imm[2] = h.sequence >> 8;
	imm[3] = h.sequence;
	rig_checksum(f->m);
	forge = FORGE_NOTHING;
	return true;
}

static void
forged(unsigned int what)
{
	two();
	forge = what;
	forge_at = 20;
	rig.tap = tap_forge;
	rig_send(21);
	rig_run(5);
	rig_send(200);
	rig_all(1);
	rig_all(2);
	assert_int_equal(forge, FORGE_NOTHING);
	assert_int_equal(rig.receiver[1].packets, 221);
	assert_int_equal(rig_info(1).lost, 0);
}

static void
test_forged_far(void **state)
{
	forged(FORGE_FAR);
	assert_int_equal(rig_info(1).stale, 1);
	assert_int_equal(rig_info(1).repaired, 1);
}

/* A packet that does not exist yet makes a gap of packets that do not exist: the head shows it. */
static void
test_forged_ahead(void **state)
{
	forged(FORGE_AHEAD);
	assert_int_equal(rig_info(1).foreign, 1);
	assert_true(rig_info(1).not_written > 0);
}

static void
test_forged_run(void **state)
{
	forged(FORGE_RUN);
	assert_int_equal(rig_info(1).stale, 1);
	assert_int_equal(rig_info(1).repaired, 1);
}

static void
test_forged_length(void **state)
{
	forged(FORGE_LENGTH);
	assert_int_equal(rig_info(1).foreign, 1);
	assert_int_equal(rig_info(1).repaired, 1);
}

static void
test_forged_old(void **state)
{
	forged(FORGE_OLD);
	assert_int_equal(rig_info(1).duplicate, 1);
	assert_int_equal(rig_info(1).repaired, 1);
}

/* A slot that is READ while it is written, or with a wrong checksum, is READ again. */
static void
test_slot_being_written(void **state)
{
	struct stream_header *slot;

	two();
	lose(10, 12);
	rig.receiver[1].stalled = true;
	rig_send(20);
	slot = slot_in_memory(10);
	assert_int_equal(slot->sequence, 10);
	slot->sequence = STREAM_INVALID;
	((uint8_t *)(slot_in_memory(11) + 1))[3] ^= 1;
	rig.receiver[1].stalled = false;
	rig_until(rig_info(1).not_written > 2 && rig_info(1).wrong_crc > 2);
	assert_int_equal(rig.receiver[1].next, 10);
	slot->sequence = 10;
	((uint8_t *)(slot_in_memory(11) + 1))[3] ^= 1;
	rig_all(1);
	assert_int_equal(rig_info(1).repaired, 2);
	assert_int_equal(rig_info(1).lost, 0);
}

/* ---- proofs ---------------------------------------------------------------------------------- */

static int
hmac(void *arg, uint64_t identity, unsigned int number, const void *message, uint32_t length,
	uint8_t mac[RDMA_STREAM_MAC_BYTES])
{
	EVP_PKEY *key;
	EVP_MD_CTX *ctx;
	size_t size = RDMA_STREAM_MAC_BYTES;
	int ok;

	if (identity != 7)
		return -ENOENT;
	key = EVP_PKEY_new_raw_private_key(EVP_PKEY_HMAC, NULL, (uint8_t *)arg + 32 * number, 32);
	ctx = EVP_MD_CTX_new();
	ok = key && ctx && EVP_DigestSignInit(ctx, NULL, EVP_sha256(), NULL, key) == 1 &&
		EVP_DigestSign(ctx, mac, &size, message, length) == 1;
	EVP_MD_CTX_free(ctx);
	EVP_PKEY_free(key);
	return ok ? 0 : -EIO;
}

static uint8_t keys[3][32] = {"one", "next", "other"};
static const struct rdma_stream_proof proof_one = {.mac = hmac, .arg = keys[0]},
				      proof_next = {.mac = hmac, .arg = keys[1]},
				      proof_other = {.mac = hmac, .arg = keys[2]},
				      proof_both = {.mac = hmac, .arg = keys[0], .keys = 2};

static const struct rdma_stream_proof *proof_of_sender;

static void
proving(uint64_t identity, const struct rdma_stream_proof *proof)
{
	struct rdma_stream_sender_attr sender = rig_sender_attr();
	struct rdma_stream_receiver_attr receiver = rig_receiver_attr(1);

	sender.proof = proof_of_sender ? proof_of_sender : &proof_one;
	receiver.proof = proof;
	receiver.identity = identity;
	rig_sender(&sender);
	rig_receiver(1, &receiver);
}

static void
test_proof(void **state)
{
	proving(7, &proof_one);
	rig_joined(1);
	lose(3, 5);
	rig_send(40);
	rig_all(1);
	assert_int_equal(rig_sender_info().refused_proof, 0);
}

static void
refused(void)
{
	rig_until(rig_info(1).state == RDMA_STREAM_FAILED);
	assert_int_equal(rig_info(1).error, -EACCES);
	assert_int_equal(rig_sender_info().joined, 0);
}

static void
test_wrong_key(void **state)
{
	proving(7, &proof_other);
	refused();
	assert_int_equal(rig_sender_info().refused_proof, 3);
}

static void
test_unknown_identity(void **state)
{
	proving(8, NULL);
	refused();
	assert_int_equal(rig_sender_info().refused_proof, 3);
}

/* While a key is replaced, members have the old or the new one; their card is signed with it. */
static void
test_next_key(void **state)
{
	struct rdma_stream_receiver_attr receiver = rig_receiver_attr(2);

	proof_of_sender = &proof_both;
	proving(7, &proof_next);
	proof_of_sender = NULL;
	receiver.proof = &proof_one;
	receiver.identity = 7;
	rig_receiver(2, &receiver);
	rig_joined(1);
	rig_joined(2);
	receiver = rig_receiver_attr(3);
	receiver.proof = &proof_other;
	receiver.identity = 7;
	rig_receiver(3, &receiver);
	rig_until(rig_info(3).state == RDMA_STREAM_FAILED);
	assert_int_equal(rig_info(3).error, -EACCES);
	assert_int_equal(rig_sender_info().members, 2);
	assert_int_equal(rig_sender_info().refused_proof, 3);
	rig_send(40);
	rig_all(1);
	rig_all(2);
}

/* A sender that accepts one key does not accept the next one. */
static void
test_next_key_alone(void **state)
{
	proving(7, &proof_next);
	refused();
}

/* A sender without the key gets a proof, but no member. */
static void
test_false_sender(void **state)
{
	struct rdma_stream_receiver_attr receiver = rig_receiver_attr(1);

	receiver.proof = &proof_one;
	receiver.identity = 7;
	rig_sender(NULL);
	rig_receiver(1, &receiver);
	rig_until(rig_info(1).state == RDMA_STREAM_FAILED);
}

/* Connections with any private data and messages; none becomes a member. */
static void
test_hostile_requests(void **state)
{
	struct rig_station *st = &rig.station[3];
	struct rdma_cq *cq = rdma_cq_create(st->dev, 64, 0);
	const struct rdma_qp_attr attr = {.type = RDMA_QP_RC,
		.send_cq = cq,
		.recv_cq = cq,
		.max_inline = 256,
		.retry_count = 7};
	struct stream_request request;
	struct rdma_conn_attr conn_attr = {
		.private_data = &request, .private_len = sizeof(request)};
	uint8_t message[200];
	struct rdma_sge sge = {(uintptr_t)message, 0, 0};
	struct rdma_send_wr wr = {.sg = &sge,
		.nb_sge = 1,
		.op = RDMA_OP_SEND,
		.flags = RDMA_SEND_INLINE | RDMA_SEND_SIGNALED};
	struct rdma_conn *conn;
	struct rdma_qp *qp;
	struct rdma_wc wc;

	two();
	rig_send(10);
	for (unsigned int i = 0; i < 60; i++) {
		for (unsigned int k = 0; k < sizeof(request); k++)
			((uint8_t *)&request)[k] = rig_random(256);
		if (i % 4) {
			request.magic = STREAM_MAGIC;
			request.kind = i % 4 == 1 ? STREAM_ATTACH : STREAM_JOIN;
			request.member = rig_random(4);
			request.number = rig_random(10);
		}
		qp = rdma_qp_create(st->pd, &attr);
		assert_non_null(qp);
		conn = rdma_conn_connect(qp, rig_receiver_attr(3).sender, &conn_attr);
		assert_non_null(conn);
		rig_run(2);
		for (unsigned int k = 0; k < sizeof(message); k++)
			message[k] = rig_random(i % 2 ? 256 : 4);
		message[0] = rig_random(5);
		message[1] = message[2] = message[3] = 0;
		sge.length = rig_random(2) ? sizeof(struct stream_proof_message)
					   : rig_random(sizeof(message));
		if (rdma_post_send(qp, &wr, 1) == 1)
			rig_run(2);
		rdma_conn_destroy(conn);
		rig_until(rdma_qp_destroy(qp) == 0);
		while (rdma_poll_cq(cq, &wc, 1))
			;
		rig_run(2);
	}
	assert_int_equal(rdma_cq_destroy(cq), 0);
	assert_int_equal(rig_sender_info().members, 2);
	assert_true(rig_sender_info().refused > 10);
	rig_send(300);
	rig_all(1);
	rig_all(2);
	assert_int_equal(rig_info(1).joins, 1);
}

static void
test_attributes(void **state)
{
	struct rdma_stream_sender_attr s = rig_sender_attr();
	struct rdma_stream_receiver_attr r = rig_receiver_attr(1);

	s.slots = 100;
	assert_null(rdma_stream_sender_create(&s));
	assert_int_equal(rte_errno, EINVAL);
	s = rig_sender_attr();
	s.payload_max = 1024;
	assert_null(rdma_stream_sender_create(&s));
	assert_int_equal(rte_errno, EINVAL);
	r.reads = RDMA_STREAM_CONNS_MAX + 1;
	assert_null(rdma_stream_receiver_create(&r));
	assert_int_equal(rte_errno, EINVAL);
	/* 100 Gbit/s, 4 KiB, 1 ms: 3,052 slots */
	assert_int_equal(rdma_stream_slots(100000, 4096 - RDMA_STREAM_HEADER_BYTES, 1000), 4096);
	rig_sender(NULL);
	r = rig_receiver_attr(1);
	r.payload_max = RIG_PAYLOAD - 8;
	rig_receiver(1, &r);
	rig_until(rig_info(1).state == RDMA_STREAM_FAILED);
	assert_int_equal(rig_info(1).error, -EMSGSIZE);
	assert_int_equal(rdma_stream_commit(rig.s, 1), -EINVAL);
	assert_non_null(rdma_stream_next(rig.s));
	assert_int_equal(rdma_stream_commit(rig.s, RIG_PAYLOAD + 1), -EINVAL);
	assert_int_equal(rdma_stream_commit(rig.s, 0), 0);
	/* as many buffers as slots are enough, and fewer are not */
	r = rig_receiver_attr(2);
	r.buffers = RIG_SLOTS - 1;
	rig_receiver(2, &r);
	rig_until(rig_info(2).state == RDMA_STREAM_FAILED);
	assert_int_equal(rig_info(2).error, -EMSGSIZE);
	r = rig_receiver_attr(3);
	r.buffers = RIG_SLOTS;
	rig_receiver(3, &r);
	rig_until(rig_info(3).state == RDMA_STREAM_JOINED);
	rdma_stream_end(rig.s);
	assert_null(rdma_stream_next(rig.s));
}

int
main(void)
{
#define STREAM_TEST(test) cmocka_unit_test_setup_teardown(test, rig_open, rig_close)
	const struct CMUnitTest tests[] = {
		STREAM_TEST(test_nothing_lost),
		STREAM_TEST(test_one_lost),
		STREAM_TEST(test_range_lost),
		STREAM_TEST(test_first_lost),
		STREAM_TEST(test_tail_lost),
		STREAM_TEST(test_all_lost),
		STREAM_TEST(test_random_loss),
		STREAM_TEST(test_random_heavy_loss),
		STREAM_TEST(test_nack),
		STREAM_TEST(test_overdue_read),
		STREAM_TEST(test_overdue_tail),
		STREAM_TEST(test_duplicates),
		STREAM_TEST(test_wrap),
		STREAM_TEST(test_info_of_any_lcore),
		STREAM_TEST(test_wait_is_bounded),
		STREAM_TEST(test_wait_during_repair),
		STREAM_TEST(test_silent_member),
		STREAM_TEST(test_member_death),
		STREAM_TEST(test_overwrite),
		STREAM_TEST(test_late_join),
		STREAM_TEST(test_sender_restart),
		STREAM_TEST(test_restart_missing),
		STREAM_TEST(test_restart_missing_last),
		STREAM_TEST(test_all_removed),
		STREAM_TEST(test_sender_without_cpu),
		STREAM_TEST(test_refused_card),
		STREAM_TEST(test_reconnect),
		STREAM_TEST(test_nack_after_reconnect),
		STREAM_TEST(test_held_packets),
		STREAM_TEST(test_held_but_one),
		STREAM_TEST(test_held_and_overwritten),
		STREAM_TEST(test_held_by_false_promise),
		STREAM_TEST(test_stranger),
		STREAM_TEST(test_forged_far),
		STREAM_TEST(test_forged_ahead),
		STREAM_TEST(test_forged_run),
		STREAM_TEST(test_forged_length),
		STREAM_TEST(test_forged_old),
		STREAM_TEST(test_slot_being_written),
		STREAM_TEST(test_proof),
		STREAM_TEST(test_wrong_key),
		STREAM_TEST(test_unknown_identity),
		STREAM_TEST(test_next_key),
		STREAM_TEST(test_next_key_alone),
		STREAM_TEST(test_false_sender),
		STREAM_TEST(test_hostile_requests),
		STREAM_TEST(test_attributes),
	};

	return cmocka_run_group_tests(tests, rig_eal, NULL);
}
