/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams to a group: losses and their repair, slow, late and dying ends, strangers. */
#include "rdma_stream_rig.h"

#include <errno.h>
#include <stdio.h>

#include <openssl/evp.h>
#include <rte_cycles.h>
#include <rte_errno.h>

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

/* ---- slow, late and dying ends --------------------------------------------------------------- */

static void
test_wait_is_bounded(void **state)
{
	unsigned int n = 0;

	two();
	rig.receiver[1].stalled = true;
	while (rig_try() && n < 10 * RIG_SLOTS) {
		n++;
		rig_run(1);
	}
	assert_int_equal(n, RIG_SLOTS);
	assert_true(rig_sender_info().full > 0);
	rig.receiver[1].stalled = false;
	rig_send(100);
	rig_all(1);
	assert_int_equal(rig_info(1).lost, 0);
}

/* A silent member is removed; when it speaks again it joins as a new one, and counts what it lost. */
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

/* Packets that a program keeps are not overwritten, and stop the sender. */
static void
test_held_packets(void **state)
{
	unsigned int n = 0;

	two();
	rig.receiver[1].hold = true;
	while (n < 20 * RIG_SLOTS) {
		uint64_t end = rte_rdtsc() + rte_get_tsc_hz() / 50;

		while (!rig_try() && rte_rdtsc() < end)
			rig_step();
		if (rte_rdtsc() >= end)
			break;
		rig_step();
		n++;
	}
	/* all of its buffers, and the ring */
	assert_in_range(n, 4 * RIG_SLOTS, 8 * RIG_SLOTS);
	for (unsigned int i = 0; i < rig.receiver[1].nb_held; i++) {
		const struct rdma_stream_packet *p = &rig.receiver[1].held[i];

		assert_memory_equal(p->data, &p->sequence, 8);
	}
	rig.receiver[1].hold = false;
	rig_release(1);
	rig_send(100);
	rig_all(1);
	assert_int_equal(rig_info(1).lost, 0);
	assert_int_equal(rig_info(1).held, 0);
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
		STREAM_TEST(test_duplicates),
		STREAM_TEST(test_wrap),
		STREAM_TEST(test_wait_is_bounded),
		STREAM_TEST(test_silent_member),
		STREAM_TEST(test_member_death),
		STREAM_TEST(test_overwrite),
		STREAM_TEST(test_late_join),
		STREAM_TEST(test_sender_restart),
		STREAM_TEST(test_reconnect),
		STREAM_TEST(test_held_packets),
	};

	return cmocka_run_group_tests(tests, rig_eal, NULL);
}
