/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests placing packets, closing frames and recycling slots, with a small test for each rule. */

#include "frame_table_rig.h"

static void
bad_numbers_are_refused(void **state)
{
	const struct {
		size_t offset;
		uint32_t value;
	} bad[] = {
		{offsetof(struct frame_table_config, nb_rx), 0},
		{offsetof(struct frame_table_config, nb_rx), FRAME_RX_MAX + 1},
		{offsetof(struct frame_table_config, slots), 1},
		{offsetof(struct frame_table_config, slots), FRAME_SLOTS_MAX + 1},
		{offsetof(struct frame_table_config, max_skew_frames), 0},
		{offsetof(struct frame_table_config, max_skew_frames), 4},
		{offsetof(struct frame_table_config, resync_packets), 0},
		{offsetof(struct frame_table_config, max_gap_frames), 3},
		{offsetof(struct frame_table_config, owner), 1},
		/*
		 * the upper half of the number on a little-endian machine; other bytes are
		 * unchanged
		 */
		{offsetof(struct frame_table_config, run.first_frame) + 4, UINT32_MAX},
		{offsetof(struct frame_table_config, run.nb_frames) + 4, UINT32_MAX},
	};

	for (uint32_t i = 0; i < RTE_DIM(bad); i++) {
		struct frame_table_config c = config;

		memcpy((uint8_t *)&c + bad[i].offset, &bad[i].value, sizeof(bad[i].value));
		rte_errno = 0;
		assert_null(frame_table_create(&c));
		assert_int_equal(rte_errno, EINVAL);
	}
}

static void
complete_frame(void **state)
{
	const struct gk_frame *f;
	struct frame_stream *st;

	begin(5);
	/* in reverse order: the order of packets does not matter */
	for (uint32_t p = PACKETS; p-- > 0;)
		assert_int_equal(rig_place(ft, 0, 5, p, p + 1), FRAME_PLACED);
	assert_true(frame_table_close(ft, &closed)); /* without a grace period */
	assert_int_equal(closed.frame, 5);
	assert_int_equal(closed.packets, PACKETS);
	assert_int_equal(closed.missing, 0);
	assert_false(closed.refused || closed.timeout);
	f = frame_table_frame(ft, closed.slot);
	assert_int_equal(f->frame, 5);
	assert_int_equal(f->flags, 0);
	assert_int_equal(f->out, GK_NO_OUT);
	assert_int_equal(f->missing, 0);
	for (uint32_t p = 0; p < PACKETS; p++) {
		assert_int_equal(f->packet[p], (p + 1) * 64);
		assert_ptr_equal(frame_table_mbufs(ft, closed.slot)[p], rig_mbuf(p + 1));
	}
	assert_int_equal(frame_table_stream_packets(ft, closed.slot, 0), PACKETS);
	st = frame_table_stream(ft, closed.slot, 0);
	assert_int_equal(st->info.bunch_id, 5 ^ 0xB0B0);
	assert_int_not_equal(st->rx_tsc, 0);
	expect_nothing();
}

static void
duplicate_packet(void **state)
{
	begin(1);
	assert_int_equal(rig_place(ft, 0, 1, 7, 1), FRAME_PLACED);
	assert_int_equal(rig_place(ft, 0, 1, 7, 2), FRAME_PLACE_DUPLICATE);
	assert_int_equal(place_range(0, 1, 0, 7), FRAME_PLACED);
	assert_int_equal(place_range(0, 1, 8, PACKETS), FRAME_PLACED);
	assert_int_equal(rig_place(ft, 0, 1, 127, 3), FRAME_PLACE_DUPLICATE);
	expect_closed(1, PACKETS);
	assert_ptr_equal(frame_table_mbufs(ft, closed.slot)[7], rig_mbuf(1));
	assert_int_equal(rig_place(ft, 0, 1, 7, 4), FRAME_PLACE_LATE);
}

static void
late_packets(void **state)
{
	begin(100);
	assert_int_equal(rig_place(ft, 0, 99, 0, 1), FRAME_PLACE_LATE); /* before the run */
	run_through(100, 140);
	assert_int_equal(place_range(0, 139, 0, PACKETS), FRAME_PLACE_LATE);
	assert_int_equal(place_range(0, 138, 0, PACKETS), FRAME_PLACE_LATE);
	run_through(140, 150);
}

static void
waits_until_open(void **state)
{
	begin(1);
	for (uint64_t f = 1; f <= 4; f++)
		assert_int_equal(place_range(0, f, 1, PACKETS), FRAME_PLACED);
	assert_int_equal(rig_place(ft, 0, 5, 0, 1), FRAME_PLACE_WAIT);
	frame_rx_waits_for(&ft->rx[0], 6, true);
	assert_int_equal(frame_table_open(ft), 0); /* no slot is free */
	assert_int_equal(rig_place(ft, 0, 5, 0, 1), FRAME_PLACE_WAIT);
	expect_closed(1, PACKETS - 1); /* closed because the stream is K = 2 frames further */
	assert_int_equal(frame_table_open(ft), 1);
	assert_int_equal(rig_place(ft, 0, 5, 0, 1), FRAME_PLACED);
}

/*
 * RX roles retry when the counter of changes moves. Each increment transfers its cache line to
 * them, so each call increments it at most once.
 */
static void
changes_count_once(void **state)
{
	uint64_t before;

	begin(5);
	place_range(0, 5, 0, PACKETS);
	place_range(0, 6, 0, PACKETS);
	before = frame_rx_changes(ft);
	assert_true(frame_table_close(ft, &closed));
	assert_int_equal(frame_rx_changes(ft), before + 1);
	frame_table_recycle(ft, closed.slot);
	assert_true(frame_table_close(ft, &closed));
	frame_table_recycle(ft, closed.slot);
	before = frame_rx_changes(ft);
	assert_int_equal(frame_table_open(ft), 2);
	assert_int_equal(frame_rx_changes(ft), before + 1);
	assert_int_equal(frame_table_open(ft), 0);
	assert_int_equal(frame_rx_changes(ft), before + 1);
	assert_int_equal(ft->window.next, ft->builder->next_open);
	/* a grace period begins, which is one change until it is over */
	place_range(0, 7, 1, PACKETS);
	place_range(0, 8, 0, PACKETS);
	place_range(0, 9, 0, PACKETS);
	assert_false(rig_close(ft, &closed));
	assert_int_equal(frame_rx_changes(ft), before + 2);
	expect_closed(7, PACKETS - 1);
	before = frame_rx_changes(ft);
	frame_table_stop(ft);
	assert_int_equal(frame_rx_changes(ft), before + 1);
}

static void
refuses_whole_frames(void **state)
{
	uint32_t held[4];

	config.refuse = true;
	begin(1);
	for (uint64_t f = 1; f <= 4; f++) {
		assert_int_equal(place_range(0, f, 0, PACKETS), FRAME_PLACED);
		assert_true(rig_close(ft, &closed));
		held[f - 1] = closed.slot; /* keep the slot, as a gang does */
	}
	assert_int_equal(rig_place(ft, 0, 5, 0, 1), FRAME_PLACE_WAIT);
	assert_int_equal(frame_table_open(ft), 0); /* no RX role has requested the frame */
	frame_rx_waits_for(&ft->rx[0], 6, false);
	assert_int_equal(frame_table_open(ft), 1);
	assert_int_equal(place_range(0, 5, 0, 64), FRAME_PLACE_REFUSED);
	for (uint32_t i = 0; i < 4; i++)
		frame_table_recycle(ft, held[i]);
	frame_table_open(ft);
	assert_int_equal(place_range(0, 5, 64, PACKETS), FRAME_PLACE_REFUSED);
	assert_true(rig_close(ft, &closed));
	assert_int_equal(closed.frame, 5);
	assert_true(closed.refused);
	assert_int_equal(closed.packets, 0);
	assert_int_equal(place_range(0, 5, 0, PACKETS), FRAME_PLACE_REFUSED);
	run_through(6, 20);
}

static void
beyond_the_run(void **state)
{
	config.run.nb_frames = 3;
	begin(10);
	assert_int_equal(rig_place(ft, 0, 13, 0, 1), FRAME_PLACE_BEYOND);
	for (uint64_t f = 10; f < 13; f++) {
		assert_false(frame_table_ended(ft));
		assert_int_equal(place_range(0, f, 0, PACKETS), FRAME_PLACED);
		expect_closed(f, PACKETS);
		frame_table_open(ft);
	}
	assert_true(frame_table_ended(ft));
	expect_nothing();
}

static void
lost_frames_in_the_middle(void **state)
{
	begin(1);
	assert_int_equal(place_range(0, 1, 0, PACKETS), FRAME_PLACED);
	assert_int_equal(place_range(0, 3, 0, 1), FRAME_PLACED);
	expect_closed(1, PACKETS);
	frame_table_open(ft);
	expect_nothing(); /* frame 2 stays open: 3 is only one frame ahead, K is 2 */
	assert_int_equal(place_range(0, 4, 0, 1), FRAME_PLACED);
	expect_closed(2, 0);
	assert_false(closed.refused);
	expect_nothing();
}

static void
gives_up_by_frames(void **state)
{
	rig_config(&config, &d, 2, 1);
	begin(1);
	assert_int_equal(place_range(0, 1, 0, 5), FRAME_PLACED);
	for (uint64_t f = 2; f <= 4; f++)
		assert_int_equal(place_range(0, f, 0, 128), FRAME_PLACED);
	expect_nothing(); /* nothing was received from the other module */
	assert_int_equal(place_range(1, 2, 0, 1), FRAME_PLACED);
	expect_nothing();
	assert_int_equal(place_range(1, 3, 0, 1), FRAME_PLACED);
	expect_closed(1, 5);
	assert_false(closed.timeout);
	/* so far back that it may be a restart */
	assert_int_equal(rig_place(ft, 0, 1, 100, 1), FRAME_PLACE_HOLD);
	assert_int_equal(rig_place(ft, 1, 1, 100, 1), FRAME_PLACE_LATE);
	for (uint32_t t = 0; t < d.tiles; t++) {
		const bool there = t < 5;

		assert_int_equal(
			frame_table_frame(ft, closed.slot)->packet[t], there ? (1001 + t) * 64 : 0);
		assert_ptr_equal(
			frame_table_mbufs(ft, closed.slot)[t], there ? rig_mbuf(1001 + t) : NULL);
	}
}

/* A reused slot shows no packets of the frame before. */
static void
slot_is_clean_when_used_again(void **state)
{
	config.slots = 2;
	config.max_skew_frames = 1;
	begin(1);
	run_through(1, 7);
	assert_int_equal(rig_place(ft, 0, 7, 9, 99), FRAME_PLACED);
	assert_int_equal(rig_place(ft, 0, 8, 1, 98), FRAME_PLACED);
	rig_place(ft, 0, 9, 0, 97);
	assert_true(rig_close_graced(ft, &closed));
	assert_int_equal(closed.packets, 1);
	for (uint32_t t = 0; t < d.tiles; t++) {
		assert_int_equal(
			frame_table_frame(ft, closed.slot)->packet[t], t == 9 ? 99 * 64 : 0);
		assert_ptr_equal(
			frame_table_mbufs(ft, closed.slot)[t], t == 9 ? rig_mbuf(99) : NULL);
	}
}

/*
 * Closing waits for a quiescent state of every RX role: a packet that an RX role is just placing
 * still belongs to the frame.
 */
static void
grace_period(void **state)
{
	rig_config(&config, &d, 2, 1);
	config.nb_rx = 2;
	config.owner[1] = 1;
	begin(1);
	for (uint64_t f = 1; f <= 4; f++)
		assert_int_equal(place_range(0, f, 0, 1) + place_range(1, f, 0, 1), FRAME_PLACED);
	assert_false(rig_close(ft, &closed)); /* the tag of the frame changes here */
	assert_int_equal(rig_place(ft, 0, 1, 1, 1), FRAME_PLACE_LATE);
	frame_rx_quiescent(ft, &ft->rx[0]);
	assert_false(rig_close(ft, &closed));
	frame_rx_quiescent(ft, &ft->rx[1]);
	assert_true(rig_close(ft, &closed));
	assert_int_equal(closed.packets, 2);
}

/**
 * Poll once every `us` until the timeout of the head has passed. The builder checks it all the
 * time.
 */
static void
wait_for_timeout(uint32_t us)
{
	const uint64_t begin = rte_rdtsc(), every = rte_get_tsc_hz() / 1000000 * us;
	uint64_t polled = begin;

	while (!ft->builder->closing) {
		assert_true(rte_rdtsc() - begin < 10 * rte_get_tsc_hz());
		assert_false(frame_table_close(ft, &closed));
		if (rte_rdtsc() - polled < every)
			continue;
		rig_quiescent(ft);
		polled = rte_rdtsc();
	}
}

/* A silent module delays frames once, by the timeout, and not again until it has sent a packet. */
static void
stalled_stream(void **state)
{
	rig_config(&config, &d, 2, 1);
	config.stall_cycles = rte_get_tsc_hz() / 200; /* 5 ms */
	begin(1);
	for (uint64_t f = 1; f <= 4; f++)
		assert_int_equal(place_range(0, f, 0, PACKETS), FRAME_PLACED);
	expect_nothing();
	wait_for_timeout(1000);
	expect_closed(1, PACKETS);
	assert_true(closed.timeout);
	frame_table_open(ft);
	ft->config.stall_cycles = UINT64_MAX;
	assert_int_equal(place_range(0, 5, 0, PACKETS), FRAME_PLACED);
	expect_closed(2, PACKETS); /* without a delay */
	assert_false(closed.timeout);
	frame_table_open(ft);
	assert_int_equal(place_range(1, 5, 0, PACKETS), FRAME_PLACED);
	assert_int_equal(place_range(0, 6, 0, PACKETS), FRAME_PLACED);
	expect_closed(3, PACKETS);
	frame_table_open(ft);
	assert_int_equal(place_range(0, 7, 0, PACKETS), FRAME_PLACED);
	expect_nothing(); /* the module sends again: frame 4 waits for it */
	assert_int_equal(place_range(1, 6, 0, PACKETS), FRAME_PLACED);
	expect_closed(4, PACKETS);
}

/*
 * RX role and builder share a CPU: the builder checks the head many times between two polls. This
 * time counts, else the timeout takes many times as long.
 */
static void
timeout_on_a_shared_cpu(void **state)
{
	rig_config(&config, &d, 2, 1);
	config.stall_cycles = rte_get_tsc_hz() / 10;
	begin(1);
	assert_int_equal(place_range(0, 1, 0, PACKETS), FRAME_PLACED);
	wait_for_timeout(4000);
	expect_closed(1, PACKETS);
	assert_true(closed.timeout);
}

/*
 * A module does not send an acquisition, whose other packets come while its first frame is delayed:
 * one timeout closes all of its frames. The next acquisition may begin then.
 */
static void
incomplete_acquisition(void **state)
{
	struct frame_delay since;

	rig_config(&config, &d, 2, 1);
	config.stall_cycles = rte_get_tsc_hz() / 4;
	begin(1);
	for (uint64_t frame = 1; frame <= config.slots; frame++) {
		frame_delay_note(ft, &since);
		assert_int_equal(place_range(0, frame, 0, PACKETS), FRAME_PLACED);
		expect_nothing();
		rte_delay_ms(2);
	}
	for (uint64_t frame = 1; frame <= config.slots; frame++) {
		wait_for_timeout(4000);
		expect_closed(frame, PACKETS);
	}
	assert_in_range(frame_delay_cycles(ft, &since), 0, config.stall_cycles * 3 / 2);
}

/* The time in which an RX role does not poll is no silence of the detector. */
static void
stopped_rx_role(void **state)
{
	rig_config(&config, &d, 2, 1);
	config.stall_cycles = rte_get_tsc_hz() / 10;
	begin(1);
	assert_int_equal(place_range(0, 1, 0, PACKETS), FRAME_PLACED);
	expect_nothing();
	rte_delay_ms(150);
	for (int i = 0; i < 4; i++)
		expect_nothing();
	assert_int_equal(place_range(1, 1, 0, PACKETS), FRAME_PLACED);
	expect_closed(1, 2 * PACKETS);
	assert_false(closed.timeout);
}

/*
 * The last frame of a burst is incomplete and no packet follows: a timeout closes it, and no
 * further frame.
 */
static void
idle_line(void **state)
{
	begin(1);
	run_through(1, 5);
	assert_int_equal(place_range(0, 5, 0, 100), FRAME_PLACED);
	expect_nothing();
	ft->config.stall_cycles = 0;
	expect_closed(5, 100);
	assert_true(closed.timeout);
	frame_table_open(ft);
	for (int i = 0; i < 10; i++)
		expect_nothing();
	ft->config.stall_cycles = UINT64_MAX;
	run_through(6, 10);
}

static void
flush_at_the_end(void **state)
{
	begin(1);
	assert_int_equal(place_range(0, 1, 0, PACKETS), FRAME_PLACED);
	assert_int_equal(place_range(0, 3, 0, 10), FRAME_PLACED);
	frame_table_flush(ft);
	assert_false(frame_table_flushed(ft));
	assert_false(frame_table_close(ft, &closed));
	assert_int_equal(rig_place(ft, 0, 3, 50, 1), FRAME_PLACE_LATE);
	expect_closed(1, PACKETS);
	expect_closed(2, 0);
	expect_closed(3, 10);
	expect_nothing(); /* frame 4 was open, but had no packets */
	assert_true(frame_table_flushed(ft));
	assert_int_equal(ft->builder->nb_free, 4);
}

static void
flush_before_anything_came(void **state)
{
	ft = rig_table(&config);
	frame_table_flush(ft);
	rig_quiescent(ft);
	assert_true(frame_table_flushed(ft));
	expect_nothing();
}

int
main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(bad_numbers_are_refused),
		TEST(complete_frame),
		TEST(duplicate_packet),
		TEST(late_packets),
		TEST(waits_until_open),
		TEST(changes_count_once),
		TEST(refuses_whole_frames),
		TEST(beyond_the_run),
		TEST(lost_frames_in_the_middle),
		TEST(gives_up_by_frames),
		TEST(slot_is_clean_when_used_again),
		TEST(grace_period),
		TEST(stalled_stream),
		TEST(timeout_on_a_shared_cpu),
		TEST(incomplete_acquisition),
		TEST(stopped_rx_role),
		TEST(idle_line),
		TEST(flush_at_the_end),
		TEST(flush_before_anything_came),
	};

	if (rig_eal(argv[0]) < 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
