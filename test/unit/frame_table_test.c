/* SPDX-License-Identifier: BSD-3-Clause */
/* The rules of the frame table, one small test each. */

#include "frame_rig.h"

#define PACKETS 128 /* of a module and frame, one interface */

static struct detector d;
static struct frame_table_config config;
static struct frame_table *ft;
static struct frame_closed closed;

static int
setup(void **state)
{
	rig_config(&config, &d, 1, 1);
	ft = NULL;
	return 0;
}

static int
teardown(void **state)
{
	if (ft != NULL)
		rig_table_free(ft);
	return 0;
}

/** A table whose first frame is known, with its window open. */
static void
begin(uint64_t first)
{
	config.run.first_known = true;
	config.run.first_frame = first;
	ft = rig_table(&config);
	frame_table_open(ft);
	rig_quiescent(ft);
	frame_table_open(ft);
	assert_int_equal(ft->window.state, FRAME_WINDOW_OPEN);
}

/** Packets [from, to) of a frame and stream; @return the answer to all of them */
static enum frame_place
place_range(uint32_t stream, uint64_t frame, uint32_t from, uint32_t to)
{
	enum frame_place first = FRAME_PLACES;

	for (uint32_t p = from; p < to; p++) {
		enum frame_place r = rig_place(ft, stream, frame, p, frame * 1000 + p + 1);

		if (first == FRAME_PLACES)
			first = r;
		assert_int_equal(r, first);
	}
	return first;
}

/** Close one frame and give its slot back. */
static void
expect_closed(uint64_t frame, uint32_t packets)
{
	assert_true(rig_close_graced(ft, &closed));
	assert_int_equal(closed.frame, frame);
	assert_int_equal(closed.packets, packets);
	assert_int_equal(closed.missing, d.tiles - packets);
	if (closed.packets > 0)
		frame_table_recycle(ft, closed.slot);
}

static void
expect_nothing(void)
{
	assert_false(rig_close_graced(ft, &closed));
}

/** Frames go through one after the other, whole; numbers from `from` to before `to`. */
static void
run_through(uint64_t from, uint64_t to)
{
	for (uint64_t f = from; f < to; f++) {
		assert_int_equal(place_range(0, f, 0, PACKETS), FRAME_PLACED);
		expect_closed(f, PACKETS);
		frame_table_open(ft);
	}
}

/** Two frames of a new window, which begins K frames earlier, silently. */
static void
begin_run(uint64_t frame)
{
	for (uint64_t f = frame; f < frame + 2; f++) {
		while (place_range(0, f, 0, 1) == FRAME_PLACE_WAIT) {
			frame_lane_want(&ft->lanes[0], f + 1, true);
			expect_nothing();
			frame_table_open(ft);
		}
		frame_lane_want(&ft->lanes[0], 0, false);
		assert_int_equal(place_range(0, f, 1, PACKETS), FRAME_PLACED);
	}
	expect_closed(frame, PACKETS);
	expect_closed(frame + 1, PACKETS);
	frame_table_open(ft);
}

static void
bad_numbers_are_refused(void **state)
{
	const struct {
		size_t offset;
		uint32_t value;
	} bad[] = {
		{offsetof(struct frame_table_config, lanes), 0},
		{offsetof(struct frame_table_config, lanes), FRAME_LANES_MAX + 1},
		{offsetof(struct frame_table_config, slots), 1},
		{offsetof(struct frame_table_config, slots), FRAME_SLOTS_MAX + 1},
		{offsetof(struct frame_table_config, give_up), 0},
		{offsetof(struct frame_table_config, give_up), 4},
		{offsetof(struct frame_table_config, agree), 0},
		{offsetof(struct frame_table_config, jump), 3},
		{offsetof(struct frame_table_config, owner), 1},
		/* on a little-endian machine, all other bytes being 0xFF */
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
	/* from the last to the first: order does not matter */
	for (uint32_t p = PACKETS; p-- > 0;)
		assert_int_equal(rig_place(ft, 0, 5, p, p + 1), FRAME_PLACED);
	assert_true(frame_table_close(ft, &closed)); /* without any grace period */
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
	frame_lane_want(&ft->lanes[0], 6, true);
	assert_int_equal(frame_table_open(ft), 0); /* all slots are in use */
	assert_int_equal(rig_place(ft, 0, 5, 0, 1), FRAME_PLACE_WAIT);
	expect_closed(1, PACKETS - 1); /* K = 2 frames behind */
	assert_int_equal(frame_table_open(ft), 1);
	assert_int_equal(rig_place(ft, 0, 5, 0, 1), FRAME_PLACED);
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
		held[f - 1] = closed.slot; /* as if gangs had them */
	}
	assert_int_equal(rig_place(ft, 0, 5, 0, 1), FRAME_PLACE_WAIT);
	assert_int_equal(frame_table_open(ft), 0); /* nobody has asked yet */
	frame_lane_want(&ft->lanes[0], 6, false);
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

/* A detector that goes on sending after the run must not look like one that was restarted. */
static void
nothing_comes_after_the_end(void **state)
{
	config.run.nb_frames = 2;
	begin(1);
	run_through(1, 3);
	for (uint64_t f = 3; f < 3000; f += 100) {
		assert_int_equal(place_range(0, f, 0, PACKETS), FRAME_PLACE_BEYOND);
		assert_int_equal(frame_table_open(ft), 0);
		assert_true(frame_table_ended(ft));
	}
}

/* Frames of a run are counted over a restart. */
static void
restart_counts_towards_the_end(void **state)
{
	config.run.nb_frames = 30;
	begin(1000);
	run_through(1000, 1020);
	for (uint32_t p = 0; p < 3; p++)
		rig_place(ft, 0, 1, p, p + 1);
	for (int i = 0; i < 5; i++) {
		frame_table_open(ft);
		rig_quiescent(ft);
		expect_nothing();
	}
	run_through(1, 11);
	assert_true(frame_table_ended(ft));
	assert_int_equal(rig_place(ft, 0, 11, 0, 1), FRAME_PLACE_BEYOND);
}

static void
hostile_numbers(void **state)
{
	const uint64_t hostile[] = {UINT64_C(1) << 48, UINT64_MAX, UINT64_MAX - 1,
		FRAME_NUMBER_MAX + 1, FRAME_NUMBER_MAX, UINT64_C(1) << 63, 5000000};

	ft = rig_table(&config);
	for (uint32_t i = 0; i < RTE_DIM(hostile); i++)
		if (hostile[i] > FRAME_NUMBER_MAX)
			assert_int_equal(rig_place(ft, 0, hostile[i], 0, 1), FRAME_PLACE_OUTLIER);
	rig_table_free(ft);
	begin(1);
	for (int round = 0; round < 20; round++) {
		for (uint32_t i = 0; i < RTE_DIM(hostile); i++)
			assert_int_equal(rig_place(ft, 0, hostile[i], 0, 1), FRAME_PLACE_OUTLIER);
		run_through(1 + round, 2 + round);
	}
	assert_int_equal(ft->window.generation, 1);
	/* the same again and again: above the limit no agreement is possible */
	for (int i = 0; i < 100; i++)
		assert_int_equal(rig_place(ft, 0, UINT64_MAX, 0, 1), FRAME_PLACE_OUTLIER);
	assert_int_equal(frame_table_open(ft), 0);
	run_through(21, 30);
}

/* Outliers agree only when nothing is placed between them. */
static void
sprinkled_outliers_never_agree(void **state)
{
	begin(1);
	for (uint64_t f = 1; f < 20; f++) {
		assert_int_equal(rig_place(ft, 0, 1000000, f, 1), FRAME_PLACE_OUTLIER);
		run_through(f, f + 1);
	}
	assert_int_equal(ft->window.generation, 1);
}

/* A corrupt number that is not an outlier by `jump` must not make the window run after it. */
static void
lone_number_ahead_is_dropped(void **state)
{
	begin(1);
	assert_int_equal(rig_place(ft, 0, 900, 0, 1), FRAME_PLACE_OUTLIER);
	expect_nothing();
	run_through(1, 5);
	assert_int_equal(rig_place(ft, 0, 900, 0, 1), FRAME_PLACE_OUTLIER);
	assert_int_equal(rig_place(ft, 0, 901, 1, 1), FRAME_PLACE_OUTLIER);
	run_through(5, 9);
	assert_int_equal(rig_place(ft, 0, 902, 1, 1), FRAME_PLACE_OUTLIER);
}

static void
gap_by_agreement_is_loss(void **state)
{
	begin(1);
	run_through(1, 5);
	assert_int_equal(rig_place(ft, 0, 50, 0, 1), FRAME_PLACE_OUTLIER);
	assert_int_equal(rig_place(ft, 0, 50, 1, 1), FRAME_PLACE_OUTLIER);
	assert_int_equal(rig_place(ft, 0, 50, 2, 1), FRAME_PLACE_WAIT);
	frame_lane_want(&ft->lanes[0], 51, true);
	for (uint64_t f = 5; f < 47; f++) {
		expect_closed(f, 0);
		assert_false(closed.refused || closed.timeout);
		frame_table_open(ft);
	}
	expect_nothing(); /* 50 is open, nothing of it has come */
	assert_int_equal(place_range(0, 50, 0, PACKETS), FRAME_PLACED);
	expect_closed(47, 0);
	expect_closed(48, 0);
	expect_nothing();
	frame_table_open(ft);
	assert_int_equal(place_range(0, 51, 0, PACKETS), FRAME_PLACED);
	expect_closed(49, 0);
	expect_closed(50, PACKETS);
	expect_closed(51, PACKETS);
	run_through(52, 60);
}

static void
first_window_by_agreement(void **state)
{
	ft = rig_table(&config);
	assert_int_equal(rig_place(ft, 0, 700, 5, 1), FRAME_PLACE_WAIT);
	frame_table_open(ft);
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(ft->window.state, FRAME_WINDOW_SEARCHED);
		frame_lane_vote(ft, &ft->lanes[0], 700 + i % 2);
		frame_table_open(ft);
	}
	assert_int_equal(ft->window.state, FRAME_WINDOW_MOVING);
	frame_table_open(ft);
	assert_int_equal(ft->window.state, FRAME_WINDOW_MOVING); /* until the lane knows */
	rig_quiescent(ft);
	frame_table_open(ft);
	assert_int_equal(ft->window.state, FRAME_WINDOW_OPEN);
	/* it begins K frames earlier, of which nothing is said if nothing comes */
	assert_int_equal(rig_place(ft, 0, 697, 0, 1), FRAME_PLACE_LATE);
	begin_run(700);
}

/* Fewer packets than must agree, and then silence: believed after stall_cycles. */
static void
first_window_by_time(void **state)
{
	config.agree = 100;
	config.stall_cycles = 0;
	ft = rig_table(&config);
	assert_int_equal(rig_place(ft, 0, 1, 5, 1), FRAME_PLACE_WAIT);
	frame_table_open(ft);
	frame_table_open(ft);
	assert_int_equal(ft->window.state, FRAME_WINDOW_SEARCHED); /* nobody asked */
	frame_lane_want(&ft->lanes[0], 2, false);
	for (int i = 0; i < 3; i++)
		frame_table_open(ft);
	rig_quiescent(ft);
	frame_table_open(ft);
	assert_int_equal(ft->window.state, FRAME_WINDOW_OPEN);
	assert_int_equal(rig_place(ft, 0, 1, 5, 1), FRAME_PLACED);
}

static void
lost_frames_in_the_middle(void **state)
{
	begin(1);
	assert_int_equal(place_range(0, 1, 0, PACKETS), FRAME_PLACED);
	assert_int_equal(place_range(0, 3, 0, 1), FRAME_PLACED);
	expect_closed(1, PACKETS);
	frame_table_open(ft);
	expect_nothing(); /* frame 2: 3 is 1 ahead, 2 are wanted */
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
	expect_nothing(); /* the other module has not been heard of */
	assert_int_equal(place_range(1, 2, 0, 1), FRAME_PLACED);
	expect_nothing();
	assert_int_equal(place_range(1, 3, 0, 1), FRAME_PLACED);
	expect_closed(1, 5);
	assert_false(closed.timeout);
	assert_int_equal(rig_place(ft, 0, 1, 100, 1), FRAME_PLACE_LATE);
	for (uint32_t t = 0; t < d.tiles; t++) {
		const bool there = t < 5;

		assert_int_equal(
			frame_table_frame(ft, closed.slot)->packet[t], there ? (1001 + t) * 64 : 0);
		assert_ptr_equal(
			frame_table_mbufs(ft, closed.slot)[t], there ? rig_mbuf(1001 + t) : NULL);
	}
}

/* One corrupt number within the open frames must not make others look given up. */
static void
lone_number_gives_nothing_up(void **state)
{
	begin(1);
	assert_int_equal(place_range(0, 1, 0, 1), FRAME_PLACED);
	assert_int_equal(rig_place(ft, 0, 4, 7, 4008), FRAME_PLACED);
	expect_nothing();
	assert_int_equal(place_range(0, 1, 1, PACKETS), FRAME_PLACED);
	expect_closed(1, PACKETS);
	expect_nothing();
	run_through(2, 4);
	assert_int_equal(place_range(0, 4, 0, 7), FRAME_PLACED);
	assert_int_equal(place_range(0, 4, 8, PACKETS), FRAME_PLACED);
	expect_closed(4, PACKETS);
}

/* What was in the slot before must not show through where packets are missing now. */
static void
slot_is_clean_when_used_again(void **state)
{
	config.slots = 2;
	config.give_up = 1;
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

/* Closing waits for every lane: what a lane is about to place still belongs to the frame. */
static void
grace_period(void **state)
{
	rig_config(&config, &d, 2, 1);
	config.lanes = 2;
	config.owner[1] = 1;
	begin(1);
	for (uint64_t f = 1; f <= 4; f++)
		assert_int_equal(place_range(0, f, 0, 1) + place_range(1, f, 0, 1), FRAME_PLACED);
	assert_false(rig_close(ft, &closed)); /* its tag is changed from here on */
	assert_int_equal(rig_place(ft, 0, 1, 1, 1), FRAME_PLACE_LATE);
	frame_lane_quiescent(ft, &ft->lanes[0]);
	assert_false(rig_close(ft, &closed));
	frame_lane_quiescent(ft, &ft->lanes[1]);
	assert_true(rig_close(ft, &closed));
	assert_int_equal(closed.packets, 2);
}

/* A silent module holds frames back once, not frame by frame, until it speaks. */
static void
stalled_stream(void **state)
{
	rig_config(&config, &d, 2, 1);
	config.stall_cycles = rte_get_tsc_hz() / 200; /* 5 ms */
	begin(1);
	for (uint64_t f = 1; f <= 4; f++)
		assert_int_equal(place_range(0, f, 0, PACKETS), FRAME_PLACED);
	expect_nothing();
	rte_delay_ms(6);
	expect_closed(1, PACKETS);
	assert_true(closed.timeout);
	frame_table_open(ft);
	ft->config.stall_cycles = UINT64_MAX;
	assert_int_equal(place_range(0, 5, 0, PACKETS), FRAME_PLACED);
	expect_closed(2, PACKETS); /* at once */
	assert_false(closed.timeout);
	frame_table_open(ft);
	assert_int_equal(place_range(1, 5, 0, PACKETS), FRAME_PLACED);
	assert_int_equal(place_range(0, 6, 0, PACKETS), FRAME_PLACED);
	expect_closed(3, PACKETS);
	frame_table_open(ft);
	assert_int_equal(place_range(0, 7, 0, PACKETS), FRAME_PLACED);
	expect_nothing(); /* it speaks again: frame 4 waits for it */
	assert_int_equal(place_range(1, 6, 0, PACKETS), FRAME_PLACED);
	expect_closed(4, PACKETS);
}

/* The end of a burst: the last frame misses packets, nothing follows. Time closes it, no more. */
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

/*
 * Frames were lost, more than there are slots: a lane has what comes after them in hand, and no
 * room for more. Waiting for its other streams would be waiting for ever.
 */
static void
full_lane_is_not_waited_for(void **state)
{
	rig_config(&config, &d, 2, 1);
	begin(1);
	for (uint32_t p = 0; p < 3; p++)
		rig_place(ft, 0, 20, p, 1);
	assert_int_equal(rig_place(ft, 0, 20, 3, 1), FRAME_PLACE_WAIT);
	frame_lane_want(&ft->lanes[0], 21, false);
	expect_nothing(); /* module 1 may still come */
	frame_lane_want(&ft->lanes[0], 21, true);
	for (uint64_t f = 1; f < 17; f++) {
		expect_closed(f, 0);
		frame_table_open(ft);
	}
	assert_int_equal(rig_place(ft, 0, 20, 3, 1), FRAME_PLACED);
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
	expect_nothing(); /* frame 4 was open and had not begun */
	assert_true(frame_table_flushed(ft));
	assert_int_equal(ft->builder.nb_free, 4);
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

/** Packets of a restarted detector, until the window is there. @return packets dropped */
static uint32_t
restart_at(uint64_t frame)
{
	uint32_t dropped = 0;

	for (uint32_t p = 0; p < 100; p++) {
		const enum frame_place r = rig_place(ft, 0, frame, p, p + 1);

		if (r == FRAME_PLACE_WAIT)
			break;
		assert_true(r == FRAME_PLACE_OUTLIER || r == FRAME_PLACE_LATE);
		dropped++;
	}
	frame_table_open(ft);
	return dropped;
}

static void
expect_restart(uint64_t frame)
{
	for (int i = 0; i < 5 && ft->window.state != FRAME_WINDOW_OPEN; i++) {
		expect_nothing();
		frame_table_open(ft);
	}
	assert_int_equal(ft->window.state, FRAME_WINDOW_OPEN);
	begin_run(frame);
}

/* Back to 1, the same numbers and slots as before: nothing of the past shows or leaks. */
static void
restart_from_one(void **state)
{
	uint32_t held;

	begin(1);
	run_through(1, 31);
	assert_int_equal(place_range(0, 31, 0, 77), FRAME_PLACED);
	assert_int_equal(place_range(0, 32, 0, PACKETS), FRAME_PLACED);
	assert_int_equal(restart_at(1), 2);
	assert_int_equal(ft->builder.flushing, true);
	assert_true(rig_close_graced(ft, &closed));
	assert_int_equal(closed.frame, 31);
	assert_int_equal(closed.packets, 77);
	held = closed.slot; /* a gang has it while the window moves */
	expect_closed(32, PACKETS);
	expect_restart(1);
	assert_int_equal(ft->window.generation, 2);
	frame_table_recycle(ft, held);
	frame_table_open(ft);
	run_through(3, 60);
	rig_quiescent(ft);
	assert_int_equal(ft->window.generation, 2);
}

/* A module that was silent for long brings what it has kept: late, and no restart. */
static void
long_silence_is_no_restart(void **state)
{
	rig_config(&config, &d, 2, 1);
	config.lanes = 2;
	config.owner[1] = 1;
	begin(1);
	assert_int_equal(place_range(1, 1, 0, 128), FRAME_PLACED);
	ft->config.stall_cycles = 0;
	for (uint64_t f = 1; f < 100; f++) {
		assert_int_equal(place_range(0, f, 0, 128), FRAME_PLACED);
		expect_closed(f, f == 1 ? 256 : 128);
		frame_table_open(ft);
	}
	for (uint64_t f = 2; f < 100; f++)
		assert_int_equal(place_range(1, f, 0, 128), FRAME_PLACE_LATE);
	frame_table_open(ft);
	assert_int_equal(ft->window.generation, 1);
}

/* Not so far back that the number is an outlier: still a restart. */
static void
restart_within_the_ring(void **state)
{
	begin(1);
	run_through(1, 7); /* 8 entries: 1 ... 6 are in the ring */
	assert_int_equal(restart_at(1), 2);
	expect_restart(1);
	assert_int_equal(ft->window.generation, 2);
}

static void
restart_far_ahead(void **state)
{
	begin(1);
	run_through(1, 12);
	assert_int_equal(restart_at(1000000), 2);
	expect_restart(1000000);
	run_through(1000002, 1000010);
	assert_int_equal(ft->window.generation, 2);
}

/* Lanes that lag behind still bring packets of the old window: they do not take it back. */
static void
restart_survives_stragglers(void **state)
{
	rig_config(&config, &d, 2, 1);
	config.lanes = 2;
	config.owner[1] = 1;
	begin(5000);
	for (uint64_t f = 5000; f < 5020; f++) {
		assert_int_equal(
			place_range(0, f, 0, 128) + place_range(1, f, 0, 128), FRAME_PLACED);
		expect_closed(f, 256);
		frame_table_open(ft);
	}
	assert_int_equal(place_range(0, 5020, 0, 128), FRAME_PLACED);
	assert_int_equal(restart_at(1), 2);
	expect_closed(5020, 128);
	for (int i = 0; i < 5; i++) {
		expect_nothing();
		frame_table_open(ft);
		assert_int_not_equal(rig_place(ft, 1, 5020, 0, 1), FRAME_PLACE_OUTLIER);
	}
	assert_int_equal(place_range(1, 5020, 0, 128), FRAME_PLACE_LATE);
	assert_int_equal(place_range(1, 5021, 0, 128), FRAME_PLACE_LATE);
	frame_table_open(ft);
	assert_int_equal(ft->window.generation, 2);
	assert_int_equal(ft->window.state, FRAME_WINDOW_OPEN);
	/* later such a number may be a restart again */
	ft->config.stall_cycles = 0;
	frame_table_open(ft);
	for (uint32_t p = 0; p < 3; p++)
		rig_place(ft, 1, 5020, p, 1);
	assert_int_not_equal(ft->lanes[1].agreed, 0);
}

int
main(int argc, char **argv)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(bad_numbers_are_refused),
		TEST(complete_frame),
		TEST(duplicate_packet),
		TEST(late_packets),
		TEST(waits_until_open),
		TEST(refuses_whole_frames),
		TEST(beyond_the_run),
		TEST(nothing_comes_after_the_end),
		TEST(restart_counts_towards_the_end),
		TEST(hostile_numbers),
		TEST(sprinkled_outliers_never_agree),
		TEST(lone_number_ahead_is_dropped),
		TEST(gap_by_agreement_is_loss),
		TEST(first_window_by_agreement),
		TEST(first_window_by_time),
		TEST(lost_frames_in_the_middle),
		TEST(gives_up_by_frames),
		TEST(lone_number_gives_nothing_up),
		TEST(slot_is_clean_when_used_again),
		TEST(grace_period),
		TEST(stalled_stream),
		TEST(idle_line),
		TEST(full_lane_is_not_waited_for),
		TEST(flush_at_the_end),
		TEST(flush_before_anything_came),
		TEST(restart_from_one),
		TEST(long_silence_is_no_restart),
		TEST(restart_within_the_ring),
		TEST(restart_far_ahead),
		TEST(restart_survives_stragglers),
	};

	if (rig_eal(argv[0]) < 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
