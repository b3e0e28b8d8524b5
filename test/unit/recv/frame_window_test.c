/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests the position of the frame table's window, and what moves it: the first packets, numbers far
 * away, gaps and restarts of the detector. Also tests what must not move it.
 */

#include "frame_table_rig.h"

/** frame_table_open(), and again after a poll of the RX roles if a restart waits for it. */
static void
open_frames(void)
{
	frame_table_open(ft);
	if (!ft->builder->leaving || ft->builder->flushing)
		return;
	rig_quiescent(ft);
	frame_table_open(ft);
}

/* A detector that sends beyond the end of the run does not look like a restart. */
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

/* The number of frames of a run includes those before a restart. */
static void
restart_counts_towards_the_end(void **state)
{
	config.run.nb_frames = 30;
	begin(1000);
	run_through(1000, 1020);
	for (uint32_t p = 0; p < 3; p++)
		rig_place(ft, 0, 1, p, p + 1);
	for (int i = 0; i < 5; i++) {
		open_frames();
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
			assert_int_equal(rig_place(ft, 0, hostile[i], 0, 1),
				hostile[i] > FRAME_NUMBER_MAX ? FRAME_PLACE_OUTLIER
							      : FRAME_PLACE_HOLD);
		run_through(1 + round, 2 + round);
	}
	assert_int_equal(ft->window.generation, 1);
	/* a number above the limit never leads to an agreement */
	for (int i = 0; i < 100; i++)
		assert_int_equal(rig_place(ft, 0, UINT64_MAX, 0, 1), FRAME_PLACE_OUTLIER);
	assert_int_equal(frame_table_open(ft), 0);
	run_through(21, 30);
}

/* Outliers agree only if no packet is placed between them. */
static void
sprinkled_outliers_never_agree(void **state)
{
	begin(1);
	for (uint64_t f = 1; f < 20; f++) {
		assert_int_equal(rig_place(ft, 0, 1000000, f, 1), FRAME_PLACE_HOLD);
		run_through(f, f + 1);
	}
	assert_int_equal(ft->window.generation, 1);
}

/* A single corrupt number that is less than `max_gap_frames` ahead must not move the window. */
static void
lone_number_ahead_is_held(void **state)
{
	begin(1);
	assert_int_equal(rig_place(ft, 0, 900, 0, 1), FRAME_PLACE_HOLD);
	expect_nothing();
	run_through(1, 5);
	assert_int_equal(rig_place(ft, 0, 900, 0, 1), FRAME_PLACE_HOLD);
	assert_int_equal(rig_place(ft, 0, 901, 1, 1), FRAME_PLACE_HOLD);
	run_through(5, 9);
	assert_int_equal(rig_place(ft, 0, 902, 1, 1), FRAME_PLACE_HOLD);
}

static void
gap_by_agreement_is_loss(void **state)
{
	begin(1);
	run_through(1, 5);
	for (uint32_t p = 0; p < 3; p++) {
		assert_int_equal(ft->window.ahead, 0);
		assert_int_equal(rig_place(ft, 0, 50, p, 1), FRAME_PLACE_HOLD);
		assert_int_equal(frame_rx_retry(ft, &ft->rx[0], 0, 50, 0), FRAME_RETRY_HOLD);
		open_frames();
	}
	/* the only stream has agreed */
	assert_int_equal(frame_rx_retry(ft, &ft->rx[0], 0, 50, 0), FRAME_RETRY_PLACE);
	assert_int_equal(rig_place(ft, 0, 50, 2, 1), FRAME_PLACE_WAIT);
	frame_rx_waits_for(&ft->rx[0], 51, true);
	for (uint64_t f = 5; f < 50; f++) {
		expect_closed(f, 0);
		assert_false(closed.refused || closed.timeout);
		open_frames();
	}
	expect_nothing(); /* frame 50 is open, and has no packets yet */
	assert_int_equal(place_range(0, 50, 0, PACKETS), FRAME_PLACED);
	expect_closed(50, PACKETS);
	open_frames();
	assert_int_equal(place_range(0, 51, 0, PACKETS), FRAME_PLACED);
	expect_closed(51, PACKETS);
	run_through(52, 60);
}

static void
first_window_by_agreement(void **state)
{
	ft = rig_table(&config);
	open_frames();
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(ft->window.state, FRAME_WINDOW_SEARCHED);
		assert_int_equal(rig_place(ft, 0, 700 + i % 2, 5, 1), FRAME_PLACE_HOLD);
		open_frames();
	}
	assert_int_equal(ft->window.state, FRAME_WINDOW_MOVING);
	open_frames();
	assert_int_equal(ft->window.state, FRAME_WINDOW_MOVING); /* until the RX role has seen it */
	rig_quiescent(ft);
	open_frames();
	assert_int_equal(ft->window.state, FRAME_WINDOW_OPEN);
	/* the window begins K frames earlier; frames without packets there are not reported */
	assert_int_equal(rig_place(ft, 0, 697, 0, 1), FRAME_PLACE_LATE);
	begin_run(700);
}

/* The NIC drops packets before the builder has found a window: it begins with what is held. */
static void
first_window_before_a_gap(void **state)
{
	ft = rig_table(&config);
	open_frames();
	for (uint32_t p = 0; p < 3; p++)
		assert_int_equal(rig_place(ft, 0, 700, p, 1), FRAME_PLACE_HOLD);
	for (uint32_t p = 0; p < 3; p++)
		assert_int_equal(rig_place(ft, 0, 750, p, 1), FRAME_PLACE_HOLD);
	open_frames();
	assert_int_equal(ft->window.state, FRAME_WINDOW_MOVING);
	assert_int_equal(ft->builder->move_to, 700 + 1 - config.max_skew_frames);
}

/* Two gaps one after the other, before the builder has seen the first: the window goes to both. */
static void
gap_after_a_gap(void **state)
{
	bool moved;

	begin(1);
	(void)frame_rx_begin_retry(ft, &ft->rx[0], &moved);
	frame_rx_end_retry(&ft->rx[0]);
	run_through(1, 5);
	for (uint32_t p = 0; p < 3; p++)
		assert_int_equal(rig_place(ft, 0, 50, p, 1), FRAME_PLACE_HOLD);
	for (uint32_t p = 0; p < 3; p++)
		assert_int_equal(rig_place(ft, 0, 90, p, 1), FRAME_PLACE_HOLD);
	open_frames();
	assert_int_equal(ft->builder->gap_to, 51);
	assert_int_equal(frame_rx_retry(ft, &ft->rx[0], 0, 50, 0), FRAME_RETRY_PLACE);
	assert_int_equal(frame_rx_retry(ft, &ft->rx[0], 0, 90, 0), FRAME_RETRY_HOLD);
	/* the packets of 50 are lost on their way: the window still gets there */
	for (uint64_t f = 5; f < 50; f++) {
		expect_closed(f, 0);
		open_frames();
	}
	expect_nothing();
	/* what is held votes again: the next position is that of 90 */
	for (int i = 0; i < 2; i++) {
		(void)frame_rx_begin_retry(ft, &ft->rx[0], &moved);
		for (uint32_t p = 0; p < 3; p++)
			assert_int_equal(frame_rx_retry(ft, &ft->rx[0], 0, 90, 0),
				i == 0 ? FRAME_RETRY_HOLD : FRAME_RETRY_PLACE);
		frame_rx_end_retry(&ft->rx[0]);
		open_frames();
		assert_int_equal(ft->builder->gap_to, 91);
	}
}

/* One of two modules stops. Its frames close before the slots are used up, and none is refused. */
static void
stopped_module_costs_no_slots(void **state)
{
	rig_config(&config, &d, 2, 1);
	config.slots = 16;
	config.refuse = true;
	config.stall_cycles = 64 * UINT64_C(1000000000000);
	begin(1);
	for (uint64_t f = 1; f <= 12; f++) {
		assert_int_equal(place_range(0, f, 0, PACKETS), FRAME_PLACED);
		expect_nothing();
	}
	assert_int_equal(place_range(0, 13, 0, PACKETS), FRAME_PLACED);
	/* the other module may still send */
	expect_nothing();
	ft->rx[0].listened += 1000000000000;
	assert_true(rig_close_graced(ft, &closed));
	assert_int_equal(closed.frame, 1);
	assert_int_equal(closed.missing, PACKETS);
	assert_int_equal(closed.waited_for, 1 << 1);
	assert_false(closed.timeout);
	frame_table_recycle(ft, closed.slot);
	/* the module is not waited for until it sends again */
	for (uint64_t f = 2; f <= 11; f++) {
		expect_closed(f, PACKETS);
		assert_int_equal(closed.waited_for, 0);
	}
	expect_nothing();
	assert_int_equal(rig_place(ft, 1, 12, 0, 1), FRAME_PLACED);
	assert_int_equal(place_range(0, 14, 0, PACKETS), FRAME_PLACED);
	expect_nothing();
}

/* With `backpressure = wait` the detector waits: no frame closes early. */
static void
replay_waits_for_a_stopped_module(void **state)
{
	rig_config(&config, &d, 2, 1);
	config.slots = 16;
	config.stall_cycles = 64 * UINT64_C(1000000000000);
	begin(1);
	for (uint64_t f = 1; f <= 16; f++)
		assert_int_equal(place_range(0, f, 0, PACKETS), FRAME_PLACED);
	expect_nothing();
	ft->rx[0].listened += 1000000000000;
	expect_nothing();
}

/*
 * The window begins at frame 0, before the detector's first frame. A packet of frame 0 that arrives
 * while frame 0 is being closed without packets is late. The frame has no row, so it is counted.
 */
static void
late_for_the_first_head(void **state)
{
	ft = rig_table(&config);
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(rig_place(ft, 0, 1, i, 1), FRAME_PLACE_HOLD);
		open_frames();
	}
	for (int i = 0; i < 3 && ft->window.state != FRAME_WINDOW_OPEN; i++) {
		rig_quiescent(ft);
		open_frames();
	}
	assert_int_equal(ft->window.state, FRAME_WINDOW_OPEN);
	assert_int_equal(ft->window.base, 0);
	for (uint64_t f = 1; f <= config.max_skew_frames; f++)
		assert_int_equal(place_range(0, f, 0, PACKETS), FRAME_PLACED);
	assert_false(rig_close(ft, &closed));
	assert_true(ft->builder->closing);
	assert_int_equal(rig_place(ft, 0, 0, 0, 1), FRAME_PLACE_LATE);
	for (uint64_t f = 1; f <= config.max_skew_frames; f++)
		expect_closed(f, PACKETS);
	open_frames();
	assert_int_equal(ft->builder->late_frames, 1);
}

/*
 * A run begins after the frames that were dropped before it, unless the detector has been silent
 * since.
 */
static void
first_window_between_runs(void **state)
{
	config.no_run = true;
	config.stall_cycles = rte_get_tsc_hz() * 1000;
	for (int silent = 0; silent < 2; silent++) {
		ft = rig_table(&config);
		for (uint64_t f = 1; f < 4; f++)
			assert_int_equal(rig_place(ft, 0, f, 0, 1), FRAME_PLACE_NO_RUN);
		if (silent)
			ft->rx[0].passed_at -= config.stall_cycles + 1;
		assert_int_equal(frame_table_begin(ft, &(struct frame_run){0}), 0);
		for (int i = 0; i < 3; i++) {
			open_frames();
			rig_quiescent(ft);
		}
		assert_int_equal(ft->window.state, FRAME_WINDOW_SEARCHED);
		for (int i = 0; i < 3; i++)
			assert_int_equal(rig_place(ft, 0, 1, i, 1), FRAME_PLACE_HOLD);
		for (int i = 0; i < 3; i++) {
			open_frames();
			rig_quiescent(ft);
		}
		assert_int_equal(ft->window.state, FRAME_WINDOW_OPEN);
		assert_int_equal(
			rig_place(ft, 0, 1, 5, 1), silent ? FRAME_PLACED : FRAME_PLACE_LATE);
		assert_int_equal(rig_place(ft, 0, silent ? 2 : 4, 5, 1), FRAME_PLACED);
		if (!silent)
			rig_table_free(ft);
	}
}

/*
 * No packet comes between two runs, because the RX role does not run in that time. The second run
 * begins after the frame of which the first one has dropped packets.
 */
static void
first_window_after_the_end_of_a_run(void **state)
{
	config.run.nb_frames = 2;
	begin(1);
	run_through(1, 3);
	assert_true(frame_table_ended(ft));
	assert_int_equal(place_range(0, 5, 0, 21), FRAME_PLACE_BEYOND);
	frame_table_end(ft);
	expect_nothing();
	assert_int_equal(frame_table_begin(ft, &(struct frame_run){.nb_frames = 2}), 0);
	for (int i = 0; i < 3; i++) {
		open_frames();
		rig_quiescent(ft);
	}
	assert_int_equal(ft->window.state, FRAME_WINDOW_SEARCHED);
	for (int i = 0; i < 3; i++)
		assert_int_equal(rig_place(ft, 0, 5, 21 + i, 1), FRAME_PLACE_HOLD);
	for (int i = 0; i < 3; i++) {
		open_frames();
		rig_quiescent(ft);
	}
	assert_int_equal(ft->window.state, FRAME_WINDOW_OPEN);
	assert_int_equal(rig_place(ft, 0, 5, 24, 1), FRAME_PLACE_LATE);
	run_through(6, 8);
	assert_true(frame_table_ended(ft));
}

/*
 * No run has been active for so long that streams count as silent. A run begins with the first
 * packets that were held, also if others arrive before the builder reads the request.
 */
static void
first_window_after_long_idleness(void **state)
{
	bool moved;

	begin(1);
	run_through(1, 5);
	frame_table_end(ft);
	expect_nothing();
	ft->config.stall_cycles = 0;
	open_frames(); /* notes the packets of the run */
	open_frames();
	ft->config.stall_cycles = UINT64_MAX;
	assert_int_equal(ft->builder->silences[0], 1);
	assert_int_equal(frame_table_begin(ft, &(struct frame_run){0}), 0);
	rig_quiescent(ft);
	assert_int_equal(rig_place(ft, 0, 500, 0, 1), FRAME_PLACE_HOLD);
	open_frames();
	assert_int_equal(ft->window.state, FRAME_WINDOW_SEARCHED);
	assert_true(frame_rx_begin_retry(ft, &ft->rx[0], &moved));
	for (uint32_t p = 0; p < 3; p++)
		assert_int_equal(rig_place(ft, 0, 500, p, 1), FRAME_PLACE_HOLD);
	frame_rx_end_retry(&ft->rx[0]);
	for (uint32_t p = 0; p < 3; p++)
		assert_int_equal(rig_place(ft, 0, 501, p, 1), FRAME_PLACE_HOLD);
	open_frames();
	assert_int_equal(ft->window.state, FRAME_WINDOW_MOVING);
	assert_int_equal(ft->builder->requested, 500);
}

/* Between runs one module is slightly ahead: a run begins after the frames of that module, too. */
static void
first_window_out_of_step(void **state)
{
	rig_config(&config, &d, 2, 1);
	config.no_run = true;
	config.stall_cycles = rte_get_tsc_hz() * 1000;
	ft = rig_table(&config);
	assert_int_equal(place_range(0, 101, 0, 21), FRAME_PLACE_NO_RUN);
	assert_int_equal(rig_place(ft, 1, 100, 127, 1), FRAME_PLACE_NO_RUN);
	assert_int_equal(frame_table_begin(ft, &(struct frame_run){0}), 0);
	for (int i = 0; i < 3; i++) {
		open_frames();
		rig_quiescent(ft);
	}
	for (int i = 0; i < 3; i++)
		for (uint32_t m = 0; m < 2; m++)
			assert_int_equal(rig_place(ft, m, 101, i, 1), FRAME_PLACE_HOLD);
	for (int i = 0; i < 3; i++) {
		open_frames();
		rig_quiescent(ft);
	}
	assert_int_equal(ft->window.state, FRAME_WINDOW_OPEN);
	assert_int_equal(rig_place(ft, 0, 101, 21, 1), FRAME_PLACE_LATE);
	assert_int_equal(rig_place(ft, 1, 101, 0, 1), FRAME_PLACE_LATE);
	assert_int_equal(place_range(0, 102, 0, PACKETS), FRAME_PLACED);
	assert_int_equal(place_range(1, 102, 0, PACKETS), FRAME_PLACED);
	expect_closed(102, 2 * PACKETS);
}

/* Between runs frame numbers start again if they are far back, or after silence. */
static void
unused_frames_count_again(void **state)
{
	struct frame_rx *frx;

	config.no_run = true;
	config.stall_cycles = rte_get_tsc_hz() * 1000;
	ft = rig_table(&config);
	frx = &ft->rx[0];
	assert_int_equal(rig_place(ft, 0, 100, 0, 1), FRAME_PLACE_NO_RUN);
	assert_int_equal(rig_place(ft, 0, 100 - config.max_skew_frames, 0, 1), FRAME_PLACE_NO_RUN);
	assert_int_equal(frx->passed, 101);
	frx->passed_at -= config.stall_cycles + 1;
	assert_int_equal(rig_place(ft, 0, 99, 0, 1), FRAME_PLACE_NO_RUN);
	assert_int_equal(frx->passed, 100);
	assert_int_equal(rig_place(ft, 0, 1, 0, 1), FRAME_PLACE_NO_RUN);
	assert_int_equal(frx->passed, 2);
}

/* Fewer packets than resync_packets, followed by silence, open the window after stall_cycles. */
static void
first_window_by_time(void **state)
{
	config.resync_packets = 100;
	config.stall_cycles = 0;
	ft = rig_table(&config);
	open_frames();
	open_frames();
	assert_int_equal(ft->window.state, FRAME_WINDOW_SEARCHED); /* no packet has arrived */
	assert_int_equal(rig_place(ft, 0, 1, 5, 1), FRAME_PLACE_HOLD);
	for (int i = 0; i < 3; i++)
		open_frames();
	rig_quiescent(ft);
	open_frames();
	assert_int_equal(ft->window.state, FRAME_WINDOW_OPEN);
	assert_int_equal(rig_place(ft, 0, 1, 5, 1), FRAME_PLACED);
}

/* A single corrupt number within the open frames does not close frames before it. */
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

/*
 * More frames were lost than there are slots. An RX role holds a packet that comes after them and
 * has no room for another: waiting for its other streams would not end.
 */
static void
full_rx_role_is_not_waited_for(void **state)
{
	rig_config(&config, &d, 2, 1);
	begin(1);
	assert_int_equal(rig_place(ft, 0, 14, 3, 1), FRAME_PLACE_WAIT);
	frame_rx_waits_for(&ft->rx[0], 15, false);
	expect_nothing(); /* packets of module 1 may still arrive */
	frame_rx_waits_for(&ft->rx[0], 15, true);
	for (uint64_t f = 1; f < 11; f++) {
		expect_closed(f, 0);
		open_frames();
	}
	assert_int_equal(rig_place(ft, 0, 14, 3, 1), FRAME_PLACED);
}

/**
 * Place packets of a restarted detector until the builder follows. @return number of packets held
 */
static uint32_t
restart_at(uint64_t frame)
{
	uint32_t held = 0;

	while (held < 100 && ft->window.state == FRAME_WINDOW_OPEN && !ft->builder->flushing) {
		assert_int_equal(rig_place(ft, 0, frame, held, held + 1), FRAME_PLACE_HOLD);
		held++;
		open_frames();
	}
	return held;
}

static void
expect_restart(uint64_t frame)
{
	for (int i = 0; i < 5 && ft->window.state != FRAME_WINDOW_OPEN; i++) {
		expect_nothing();
		open_frames();
	}
	assert_int_equal(ft->window.state, FRAME_WINDOW_OPEN);
	begin_run(frame);
}

/*
 * The detector restarts at 1, with the same numbers and slots: no earlier packet shows up, and none
 * leaks.
 */
static void
restart_from_one(void **state)
{
	uint32_t held;

	begin(1);
	run_through(1, 31);
	assert_int_equal(place_range(0, 31, 0, 77), FRAME_PLACED);
	assert_int_equal(place_range(0, 32, 0, PACKETS), FRAME_PLACED);
	assert_int_equal(restart_at(1), 3);
	assert_int_equal(ft->builder->flushing, true);
	assert_true(rig_close_graced(ft, &closed));
	assert_int_equal(closed.frame, 31);
	assert_int_equal(closed.packets, 77);
	held = closed.slot; /* a gang still has this slot while the window moves */
	expect_closed(32, PACKETS);
	expect_restart(1);
	assert_int_equal(ft->window.generation, 2);
	frame_table_recycle(ft, held);
	open_frames();
	run_through(3, 60);
	rig_quiescent(ft);
	assert_int_equal(ft->window.generation, 2);
}

/*
 * A run that is being stopped does not follow a restart: it would wait for frames that are never
 * sent.
 */
static void
restart_after_stop_ends(void **state)
{
	begin(1);
	run_through(1, 31);
	assert_int_equal(place_range(0, 31, 0, 77), FRAME_PLACED);
	frame_table_stop(ft);
	assert_false(frame_table_ended(ft));
	restart_at(1);
	assert_int_equal(ft->window.state, FRAME_WINDOW_CLOSED);
	expect_closed(31, 77);
	expect_nothing();
	assert_true(frame_table_flushed(ft));
	assert_true(frame_table_ended(ft));
}

/* A module that was silent for long sends its old frames: they are late, and no restart. */
static void
long_silence_is_no_restart(void **state)
{
	rig_config(&config, &d, 2, 1);
	config.nb_rx = 2;
	config.owner[1] = 1;
	begin(1);
	assert_int_equal(place_range(1, 1, 0, 128), FRAME_PLACED);
	ft->config.stall_cycles = 0;
	for (uint64_t f = 1; f < 100; f++) {
		assert_int_equal(place_range(0, f, 0, 128), FRAME_PLACED);
		expect_closed(f, f == 1 ? 256 : 128);
		open_frames();
	}
	for (uint64_t f = 2; f < 100; f++)
		assert_int_equal(place_range(1, f, 0, 128), FRAME_PLACE_LATE);
	open_frames();
	assert_int_equal(ft->window.generation, 1);
}

/** Let an eighth of the timeout pass. */
static void
pass_time(void)
{
	struct frame_builder *b = ft->builder;
	uint64_t step;

	/* the test takes less time */
	ft->config.stall_cycles = rte_get_tsc_hz() * 3600;
	step = ft->config.stall_cycles / 8;
	b->listened_at -= step;
	b->ran += step;
	ft->rx[0].listened += step;
	open_frames();
}

/*
 * The packets of a frame arrive over more than the timeout. The stream is not silent, so the rest
 * of the frame is late, and is no restart.
 */
static void
slow_frame_is_no_restart(void **state)
{
	begin(1);
	run_through(1, 5);
	assert_int_equal(rig_place(ft, 0, 5, 0, 1), FRAME_PLACED);
	(void)rig_close(ft, &closed); /* the timeout begins */
	for (uint32_t p = 1; p < 12; p++) {
		pass_time();
		assert_int_equal(ft->builder->silent, 0);
		assert_int_equal(rig_place(ft, 0, 5, p, 1), FRAME_PLACED);
	}
	expect_closed(5, 12);
	assert_true(closed.timeout);
	for (uint32_t p = 12; p < 20; p++) {
		assert_int_equal(rig_place(ft, 0, 5, p, 1), FRAME_PLACE_LATE);
		pass_time();
	}
	run_through(6, 10);
	assert_int_equal(ft->window.generation, 1);
}

/* The same if the detector pauses within the frame: the next frame continues the run. */
static void
interrupted_frame_is_no_restart(void **state)
{
	begin(1);
	run_through(1, 5);
	assert_int_equal(place_range(0, 5, 0, 10), FRAME_PLACED);
	(void)rig_close(ft, &closed);
	for (int i = 0; i < 12; i++)
		pass_time();
	expect_closed(5, 10);
	for (int i = 0; i < 12; i++)
		pass_time();
	assert_int_equal(ft->window.paused, 1);
	assert_int_equal(place_range(0, 5, 10, 20), FRAME_PLACE_HOLD);
	run_through(6, 10);
	assert_int_equal(ft->window.generation, 1);
}

/* A restart with numbers that are not so far back that they are outliers. */
static void
restart_within_the_ring(void **state)
{
	begin(1);
	run_through(1, 7); /* the ring has 8 entries: 1 ... 6 are in it */
	assert_int_equal(restart_at(1), 3);
	expect_restart(1);
	assert_int_equal(ft->window.generation, 2);
}

/*
 * The detector restarts while its last frames wait for slots. Its last number is that of the
 * packets that wait, even if it is only slightly above the placed ones. A packet that waited itself
 * was sent before them, and is late.
 */
static void
restart_after_frames_that_wait(void **state)
{
	bool moved;

	begin(1);
	for (uint64_t f = 1; f <= 4; f++)
		assert_int_equal(place_range(0, f, 0, PACKETS), FRAME_PLACED);
	for (uint64_t f = 5; f <= 9; f++)
		assert_int_equal(place_range(0, f, 0, PACKETS), FRAME_PLACE_WAIT);
	frame_rx_waits_for(&ft->rx[0], 6, false);
	expect_closed(1, PACKETS);
	expect_closed(2, PACKETS);
	(void)frame_rx_begin_retry(ft, &ft->rx[0], &moved);
	assert_int_equal(rig_place(ft, 0, 2, 0, 1), FRAME_PLACE_LATE);
	assert_int_equal(rig_place(ft, 0, 3, 0, 1), FRAME_PLACE_DUPLICATE);
	frame_rx_end_retry(&ft->rx[0]);
	/* closed, and placed already: both are far behind frame 9 */
	assert_int_equal(place_range(0, 2, 0, 2), FRAME_PLACE_HOLD);
	assert_int_equal(rig_place(ft, 0, 3, 0, 1), FRAME_PLACE_HOLD);
	assert_int_equal(ft->rx[0].requests, 1);
	assert_int_equal(ft->rx[0].place[0], 3);
}

static void
restart_far_ahead(void **state)
{
	begin(1);
	run_through(1, 12);
	assert_int_equal(restart_at(1000000), 3);
	expect_restart(1000000);
	run_through(1000002, 1000010);
	assert_int_equal(ft->window.generation, 2);
}

/* ---- several modules ------------------------------------------------------------------------- */

#define MODULES 4
#define ALL	(MODULES * PACKETS)

/* The first RX role has modules 0 and 1, the second one 2 and 3. */
static void
begin_modules(uint64_t first)
{
	rig_config(&config, &d, MODULES, 1);
	config.nb_rx = 2;
	config.owner[2] = config.owner[3] = 1;
	begin(first);
}

/* Place one packet of a module outside the window, and let the builder check. */
static void
drop_one(uint32_t module, uint64_t frame)
{
	enum frame_placement r = rig_place(ft, module, frame, frame % PACKETS, 1);

	open_frames();
	assert_true(r == FRAME_PLACE_HOLD || r == FRAME_PLACE_OUTLIER || r == FRAME_PLACE_LATE ||
		ft->builder->flushing);
}

/* Let twice the timeout pass, in which the modules in the bitmap send nothing. */
static void
be_silent(uint32_t modules)
{
	struct frame_builder *b = ft->builder;
	uint64_t step;

	/* the test takes less time */
	ft->config.stall_cycles = rte_get_tsc_hz() * 3600;
	step = ft->config.stall_cycles / 8;
	for (int i = 0; i < 16; i++) {
		b->listened_at -= step;
		b->ran += step;
		for (uint32_t l = 0; l < config.nb_rx; l++)
			ft->rx[l].listened += step;
		for (uint32_t m = 0; m < MODULES; m++) {
			if (b->request_since[m] != 0)
				b->request_since[m] -= step;
			if ((modules >> m & 1) == 0)
				ft->rx[config.owner[m]].activity[m]++;
		}
		open_frames();
	}
}

/*
 * Place a frame of the modules in the bitmap `here`. If `elsewhere` is not 0, the other modules
 * send numbers that differ by it.
 */
static void
modules_frame(uint64_t frame, uint32_t here, int64_t out_of_window)
{
	for (uint32_t m = 0; m < MODULES; m++) {
		if (here >> m & 1) {
			assert_int_equal(place_range(m, frame, 0, PACKETS), FRAME_PLACED);
		} else if (out_of_window != 0) {
			for (int i = 0; i < 5; i++)
				drop_one(m, frame + out_of_window);
		}
	}
	assert_int_equal(ft->window.state, FRAME_WINDOW_OPEN);
}

/* Expect that frames are closed, in order. */
static void
close_frames(uint64_t from, uint64_t to, uint32_t packets)
{
	for (uint64_t f = from; f < to; f++) {
		expect_closed(f, packets);
		open_frames();
	}
}

/* Place and close complete frames. */
static void
run_modules(uint64_t from, uint64_t to)
{
	for (uint64_t f = from; f < to; f++) {
		modules_frame(f, 0xf, 0);
		close_frames(f, f + 1, ALL);
	}
}

/*
 * One module restarts alone, or its counter jumps far ahead: the window stays with the other
 * modules, and none of their packets are dropped.
 */
static void
one_module_elsewhere(void **state)
{
	const int64_t away[] = {-4000, -50, 500, 1000000};

	for (uint32_t i = 0; i < RTE_DIM(away); i++) {
		begin_modules(5000);
		run_modules(5000, 5010);
		/* frames do not wait for a module that sends other numbers */
		for (uint64_t f = 5010; f < 5200; f++) {
			modules_frame(f, 0xb, away[i]);
			/* K frames behind the others */
			if (f >= 5012)
				close_frames(f - 2, f - 1, ALL - PACKETS);
		}
		assert_int_equal(ft->builder->requests_logged, 0);
		/* all other modules have sent packets since */
		ft->config.stall_cycles = 0;
		drop_one(2, 5199 + away[i]);
		ft->config.stall_cycles = UINT64_MAX;
		assert_int_equal(ft->window.generation, 1);
		assert_int_equal(ft->window.ahead, 0);
		assert_int_equal(ft->builder->requests_logged, 4);
		ft->builder->logged_at = 0; /* logged at most once a second */
		/*
		 * a pause of the detector: the stray module does not become a majority when the
		 * others are silent
		 */
		ft->config.stall_cycles = 0;
		for (int k = 0; k < 10; k++)
			open_frames();
		ft->config.stall_cycles = UINT64_MAX;
		assert_false(ft->builder->flushing);
		assert_int_equal(ft->window.state, FRAME_WINDOW_OPEN);
		/* its numbers agree with the others' again */
		modules_frame(5200, 0xf, 0);
		close_frames(5198, 5199, ALL - PACKETS);
		modules_frame(5201, 0xf, 0);
		close_frames(5199, 5200, ALL - PACKETS);
		close_frames(5200, 5202, ALL);
		assert_int_equal(ft->builder->requests_logged, 0);
		assert_int_equal(ft->window.generation, 1);
		rig_table_free(ft);
		ft = NULL;
	}
}

/*
 * With half of the modules elsewhere it is unknown which half is right, so the window stays. With
 * one more it moves.
 */
static void
most_modules_move_it(void **state)
{
	begin_modules(5000);
	run_modules(5000, 5010);
	for (uint64_t f = 5010; f < 5012; f++)
		modules_frame(f, 0x3, -5000);
	assert_int_equal(ft->window.generation, 1);
	assert_false(ft->builder->flushing);
	for (int i = 0; i < 3; i++) {
		assert_false(ft->builder->flushing);
		drop_one(1, 11);
	}
	/* module 0 may send the rest of the open frames as long as there is room */
	assert_false(ft->builder->flushing);
	frame_rx_crowd(&ft->rx[0], true);
	open_frames();
	frame_rx_crowd(&ft->rx[0], false);
	assert_true(ft->builder->flushing);
	expect_closed(5010, 2 * PACKETS);
	expect_closed(5011, 2 * PACKETS);
	for (int i = 0; i < 5 && ft->window.state != FRAME_WINDOW_OPEN; i++) {
		expect_nothing();
		open_frames();
	}
	assert_int_equal(ft->window.generation, 2);
	/* a module goes elsewhere again before the others have sent packets: the window stays */
	for (int i = 0; i < 10; i++)
		drop_one(1, 1000000);
	assert_false(ft->builder->flushing);
	/*
	 * the last module sends packets of the old window: they are late, and do not move it back
	 */
	assert_int_equal(place_range(0, 5012, 0, PACKETS), FRAME_PLACE_LATE);
	open_frames();
	for (uint64_t f = 11; f < 13; f++)
		for (uint32_t m = 0; m < MODULES; m++)
			while (rig_place(ft, m, f, 0, 1) == FRAME_PLACE_WAIT) {
				frame_rx_waits_for(&ft->rx[0], f + 1, true);
				frame_rx_waits_for(&ft->rx[1], f + 1, true);
				expect_nothing();
				open_frames();
			}
	frame_rx_waits_for(&ft->rx[0], 0, false);
	frame_rx_waits_for(&ft->rx[1], 0, false);
	for (uint64_t f = 11; f < 13; f++)
		for (uint32_t m = 0; m < MODULES; m++)
			assert_int_equal(place_range(m, f, 1, PACKETS), FRAME_PLACED);
	close_frames(11, 13, ALL);
	assert_int_equal(ft->window.generation, 2);
}

/*
 * The numbers after a restart go on for more than `slots` before the window moves. All packets that
 * are held belong to the restart, also those whose numbers are in the window that is still open.
 */
static void
restart_goes_on_before_the_move(void **state)
{
	bool moved;

	begin(1);
	(void)frame_rx_begin_retry(ft, &ft->rx[0], &moved);
	frame_rx_end_retry(&ft->rx[0]);
	run_through(1, 7);
	for (uint32_t p = 0; p < 3; p++)
		assert_int_equal(rig_place(ft, 0, 1, p, 1), FRAME_PLACE_HOLD);
	for (uint64_t f = 2; f < 12 + config.slots; f++)
		assert_int_equal(rig_place(ft, 0, f, 0, 1), FRAME_PLACE_HOLD);
	(void)frame_rx_begin_retry(ft, &ft->rx[0], &moved);
	for (uint64_t f = 1; f < 12 + config.slots; f++)
		assert_int_equal(frame_rx_retry(ft, &ft->rx[0], 0, f, 0), FRAME_RETRY_HOLD);
	frame_rx_end_retry(&ft->rx[0]);
	open_frames();
	assert_true(ft->builder->flushing);
	assert_int_equal(ft->builder->move_to, 1);
}

/*
 * Half of the modules restart, and the others are silent: half is enough once it is certain that
 * the others are silent. Less than half is never enough.
 */
static void
silent_modules_have_no_say(void **state)
{
	begin_modules(5000);
	run_modules(5000, 5010);
	for (int i = 0; i < 100; i++)
		drop_one(3, 1);
	ft->config.stall_cycles = 0;
	for (int i = 0; i < 100; i++) {
		rig_quiescent(ft);
		drop_one(3, 1);
	}
	assert_false(ft->builder->flushing);
	ft->config.stall_cycles = UINT64_MAX;
	run_modules(5010, 5012);
	for (int i = 0; i < 100; i++)
		for (uint32_t m = 2; m < 4; m++)
			drop_one(m, 1);
	assert_false(ft->builder->flushing);
	be_silent(0x3);
	for (int i = 0; i < 3; i++)
		for (uint32_t m = 2; m < 4; m++)
			drop_one(m, 1);
	assert_true(ft->builder->flushing);
}

/* A refusal ends when its module is silent: after that, the module may restart with the others. */
static void
refusal_ends_with_silence(void **state)
{
	begin_modules(5000);
	run_modules(5000, 5010);
	for (int i = 0; i < 10; i++)
		drop_one(3, 1);
	be_silent(0x7);
	assert_int_equal(ft->window.refused, 0x8);
	assert_int_equal(rig_place(ft, 3, 1, 0, 1), FRAME_PLACE_LATE);
	be_silent(0xf);
	assert_int_equal(ft->window.refused, 0);
	for (uint32_t m = 0; m < MODULES; m++)
		assert_int_equal(place_range(m, 1, 0, 16), FRAME_PLACE_HOLD);
	open_frames();
	assert_true(ft->builder->flushing);
}

/*
 * A module that sends again after it was silent in the whole window restarts with the others. If it
 * sends again alone, its packets are late.
 */
static void
restart_with_a_module_that_was_dead(void **state)
{
	for (uint32_t alone = 0; alone < 2; alone++) {
		begin_modules(1);
		for (uint64_t f = 1; f < 4; f++)
			modules_frame(f, 0x7, 0);
		/* frame 1 waits for module 3, frame 2 for all, frame 3 for none */
		for (uint64_t f = 1; f < 4; f++) {
			(void)rig_close(ft, &closed);
			be_silent(0xf);
			close_frames(f, f + 1, ALL - PACKETS);
		}
		be_silent(0xf);
		if (alone) {
			modules_frame(4, 0x7, 0);
			be_silent(0x8);
		}
		for (uint64_t f = 1; f < 4; f++)
			assert_int_equal(place_range(3, f, 0, PACKETS),
				alone ? FRAME_PLACE_LATE : FRAME_PLACE_HOLD);
		for (uint32_t m = 0; m < 3 && !alone; m++)
			assert_int_equal(place_range(m, 1, 0, 16), FRAME_PLACE_HOLD);
		open_frames();
		assert_int_equal(ft->builder->flushing, !alone);
		rig_table_free(ft);
		ft = NULL;
	}
}

/* Resync requests for different positions do not add up. */
static void
requests_must_agree(void **state)
{
	begin_modules(5000);
	run_modules(5000, 5001);
	for (int i = 0; i < 100; i++) {
		drop_one(0, 1);
		drop_one(1, 100);
		drop_one(2, 200);
		drop_one(3, 300);
	}
	assert_false(ft->builder->flushing);
	for (int i = 0; i < 100 && !ft->builder->flushing; i++) {
		drop_one(1, 2);
		if (!ft->builder->flushing)
			drop_one(3, 3);
	}
	assert_true(ft->builder->flushing);
	assert_int_equal(ft->builder->move_to, 0 + 2 - 1);
}

/* Lagging modules still send packets of the old window: these do not move it back. */
static void
restart_survives_stragglers(void **state)
{
	begin_modules(5000);
	run_modules(5000, 5020);
	modules_frame(5020, 0x7, 0);
	for (int i = 0; i < 3; i++)
		for (uint32_t m = 0; m < 3; m++)
			drop_one(m, 1);
	frame_rx_crowd(&ft->rx[0], true);
	open_frames();
	frame_rx_crowd(&ft->rx[0], false);
	expect_closed(5020, 3 * PACKETS);
	for (int i = 0; i < 5; i++) {
		expect_nothing();
		open_frames();
		assert_int_not_equal(rig_place(ft, 3, 5020, 0, 1), FRAME_PLACE_OUTLIER);
	}
	assert_int_equal(place_range(3, 5020, 0, PACKETS), FRAME_PLACE_LATE);
	assert_int_equal(place_range(3, 5021, 0, PACKETS), FRAME_PLACE_LATE);
	open_frames();
	assert_int_equal(ft->window.generation, 2);
	assert_int_equal(ft->window.state, FRAME_WINDOW_OPEN);
	/* later such a number can be a restart again */
	ft->config.stall_cycles = 0;
	open_frames();
	for (uint32_t p = 0; p < 3; p++)
		rig_place(ft, 3, 5020, p, 1);
	assert_int_equal(ft->rx[1].requests, 8);
}

/* Frames that are refused, and have a row, are not late, however many there are. */
static void
refused_frames_are_not_late(void **state)
{
	config.refuse = true;
	begin(1);
	for (uint64_t f = 1; f <= 3; f++) {
		assert_int_equal(place_range(0, f, 0, PACKETS), FRAME_PLACED);
		assert_true(rig_close(ft, &closed));
	}
	open_frames();
	/* frame f has the only free slot; f + 1 is refused while f is open */
	for (uint64_t f = 4; f < 2000; f += 2) {
		assert_int_equal(rig_place(ft, 0, f, 0, 1), FRAME_PLACED);
		assert_int_equal(rig_place(ft, 0, f + 1, 0, 1), FRAME_PLACE_WAIT);
		frame_rx_waits_for(&ft->rx[0], f + 2, false);
		open_frames();
		assert_int_equal(rig_place(ft, 0, f + 1, 0, 1), FRAME_PLACE_REFUSED);
		frame_rx_waits_for(&ft->rx[0], 0, false);
		open_frames();
		assert_int_equal(frame_table_late_frames(ft), 0);
		for (uint32_t p = 1; p < PACKETS; p++)
			rig_place(ft, 0, f, p, p + 1);
		assert_true(rig_close_graced(ft, &closed));
		assert_int_equal(closed.frame, f);
		frame_table_recycle(ft, closed.slot);
		assert_true(rig_close_graced(ft, &closed));
		assert_true(closed.refused);
		rig_quiescent(ft);
		open_frames();
	}
}

/*
 * After a restart no slot is free. The window begins K frames before the requested one: refused
 * frames there have no row. They are late frames if a packet names them.
 */
static void
refused_frames_without_a_row(void **state)
{
	config.refuse = true;
	begin(1000);
	for (uint64_t f = 1000; f < 1004; f++) {
		assert_int_equal(place_range(0, f, 0, PACKETS), FRAME_PLACED);
		assert_true(rig_close(ft, &closed));
	}
	for (uint32_t p = 0; p < 3; p++)
		assert_int_equal(rig_place(ft, 0, 10, p, 1), FRAME_PLACE_HOLD);
	for (int i = 0; i < 3; i++) {
		open_frames();
		rig_quiescent(ft);
		expect_nothing();
	}
	assert_int_equal(ft->window.state, FRAME_WINDOW_OPEN);
	assert_int_equal(rig_place(ft, 0, 10, 0, 1), FRAME_PLACE_WAIT);
	frame_rx_waits_for(&ft->rx[0], 11, true);
	open_frames();
	for (uint64_t f = 10; f > 8; f--)
		assert_int_equal(rig_place(ft, 0, f, 0, 1), FRAME_PLACE_REFUSED);
	open_frames();
	assert_int_equal(frame_table_late_frames(ft), 1);
	assert_true(rig_close_graced(ft, &closed));
	assert_int_equal(closed.frame, 10);
	assert_true(closed.refused);
	assert_int_equal(frame_table_late_frames(ft), 1);
}

/* Drop a packet of a frame, as RX roles do, and read the report. */
static void
drop_and_collect(uint64_t frame)
{
	assert_int_equal(frame_rx_drop(ft, &ft->rx[0], 0, frame), FRAME_PLACE_OUTLIER);
	frame_late_collect(ft);
}

/* Frames of which a packet was dropped before they got their rows are not late, however many. */
static void
dropped_packets_of_frames_with_rows(void **state)
{
	begin(1);
	ft->run_first = 0;
	ft->window.end = UINT64_MAX;
	for (uint64_t f = 1 << 16; f < (1 << 16) + 5000 * 64; f += 64) {
		drop_and_collect(f);
		assert_int_equal(frame_table_late_frames(ft), 1);
		frame_late_row(ft, f);
		assert_int_equal(frame_table_late_frames(ft), 0);
	}
}

/*
 * Frames without rows are in more blocks than are remembered. Each counts once, and one in the ring
 * of entries is remembered until it has its row.
 */
static void
many_frames_without_rows(void **state)
{
	const uint64_t near = 5, blocks = 20000;

	begin(1);
	ft->run_first = 0;
	ft->window.end = UINT64_MAX;
	drop_and_collect(near);
	for (uint64_t i = 0; i < blocks; i++) {
		drop_and_collect((1 << 16) + i * 64);
		drop_and_collect(near);
		drop_and_collect((1 << 16) + i * 64);
		assert_int_equal(frame_table_late_frames(ft), i + 2);
	}
	frame_late_row(ft, near);
	assert_int_equal(frame_table_late_frames(ft), blocks);
}

/*
 * Two of three streams are restarted. The third goes on, and one of its packets always waits: the
 * window follows the others in time.
 */
static void
restart_is_not_held_up(void **state)
{
	uint64_t far = 0, begun;

	rig_config(&config, &d, 3, 1);
	config.nb_rx = 3;
	for (uint32_t s = 0; s < 3; s++)
		config.owner[s] = s;
	config.stall_cycles = rte_get_tsc_hz() / 5;
	config.refuse = true;
	begin(1000);
	for (uint64_t f = 1000; f < 1003; f++) {
		for (uint32_t s = 0; s < 3; s++)
			assert_int_equal(place_range(s, f, 0, PACKETS), FRAME_PLACED);
		assert_true(rig_close_graced(ft, &closed));
		frame_table_recycle(ft, closed.slot);
		open_frames();
	}
	for (uint32_t s = 0; s < 2; s++) {
		for (uint32_t p = 0; p < PACKETS; p++)
			assert_int_equal(rig_place(ft, s, 10, p, p + 1), FRAME_PLACE_HOLD);
		frame_rx_crowd(&ft->rx[s], true);
	}
	begun = ft->rx[0].listened;
	for (uint64_t f = 1003; ft->window.state == FRAME_WINDOW_OPEN; f++) {
		const uint64_t sent = rte_rdtsc();

		/* in time in which this process runs */
		assert_true(ft->rx[0].listened - begun < 2 * config.stall_cycles);
		assert_int_equal(rig_place(ft, 2, f, 0, 1), FRAME_PLACED);
		if (far < ft->builder->next_open) {
			far = f + 11;
			assert_int_equal(rig_place(ft, 2, far, 0, 2), FRAME_PLACE_WAIT);
			frame_rx_waits_for(&ft->rx[2], far + 1, false);
		}
		while (ft->window.state == FRAME_WINDOW_OPEN &&
			rte_rdtsc() - sent < rte_get_tsc_hz() / 500) {
			rig_quiescent(ft);
			open_frames();
			while (rig_close_graced(ft, &closed))
				if (closed.packets > 0)
					frame_table_recycle(ft, closed.slot);
		}
	}
}

/** Let builder and RX roles run for a time. */
static void
let_run(uint64_t cycles)
{
	ft->builder->ran += cycles;
	for (uint32_t i = 0; i < config.nb_rx; i++)
		ft->rx[i].listened += cycles;
}

/*
 * An RX role stops in a poll after a restart: it has requested the move, and has not published yet
 * that packets before the restart wait.
 */
static void
restart_before_waits_are_seen(void **state)
{
	begin(5000);
	run_through(5000, 5010);
	for (uint32_t p = 0; p < 3; p++)
		assert_int_equal(rig_place(ft, 0, 1, p, 1), FRAME_PLACE_HOLD);
	for (int i = 0; i < 3; i++)
		frame_table_open(ft);
	assert_int_equal(ft->window.state, FRAME_WINDOW_OPEN);
	/* the end of this poll, and the next one */
	frame_rx_waits_for(&ft->rx[0], 5020, false);
	rig_quiescent(ft);
	frame_table_open(ft);
	assert_int_equal(ft->window.state, FRAME_WINDOW_OPEN);
	frame_rx_waits_for(&ft->rx[0], 0, false);
	frame_table_open(ft);
	assert_int_equal(ft->window.state, FRAME_WINDOW_MOVING);
	/* the window may open before the held packets are retried: later ones do not pass them */
	rig_quiescent(ft);
	for (int i = 0; i < 3; i++)
		while (rig_close_graced(ft, &closed) || frame_table_open(ft) > 0)
			;
	rig_quiescent(ft);
	frame_table_open(ft);
	assert_int_equal(ft->window.state, FRAME_WINDOW_OPEN);
	assert_true(frame_rx_is_early(&ft->rx[0], 0));
}

/*
 * One module does not follow a restart, and its packets wait for slots that the gangs have. The
 * gangs will return them, so the restart waits longer than otherwise, but not without a limit.
 */
static void
restart_waits_for_gangs(void **state)
{
	uint32_t slot[2];

	begin_modules(5000);
	run_modules(5000, 5010);
	ft->config.stall_cycles = rte_get_tsc_hz() * 3600;
	for (uint32_t i = 0; i < 2; i++) {
		modules_frame(5010 + i, 0xf, 0);
		assert_true(rig_close_graced(ft, &closed));
		slot[i] = closed.slot;
	}
	open_frames();
	modules_frame(5012, 0x1, 0);
	assert_int_equal(rig_place(ft, 0, 5014, 0, 1), FRAME_PLACE_WAIT);
	frame_rx_waits_for(&ft->rx[0], 5015, false);
	for (int i = 0; i < 3; i++)
		for (uint32_t m = 1; m < MODULES; m++)
			drop_one(m, 1);
	rig_quiescent(ft);
	open_frames();
	assert_true(ft->builder->leaving);
	let_run(ft->config.stall_cycles / 2);
	open_frames();
	assert_false(ft->builder->flushing);
	/* a returned slot does not extend the time: the module would hold the others up for ever */
	frame_table_recycle(ft, slot[0]);
	open_frames();
	assert_false(ft->builder->flushing);
	/* time in which an RX role does not run does not count */
	ft->builder->ran += ft->config.stall_cycles;
	open_frames();
	assert_false(ft->builder->flushing);
	let_run(ft->config.stall_cycles / 2);
	open_frames();
	assert_true(ft->builder->flushing);
	frame_table_recycle(ft, slot[1]);
}

int
main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(nothing_comes_after_the_end),
		TEST(restart_counts_towards_the_end),
		TEST(hostile_numbers),
		TEST(sprinkled_outliers_never_agree),
		TEST(lone_number_ahead_is_held),
		TEST(gap_by_agreement_is_loss),
		TEST(first_window_by_agreement),
		TEST(first_window_before_a_gap),
		TEST(gap_after_a_gap),
		TEST(stopped_module_costs_no_slots),
		TEST(replay_waits_for_a_stopped_module),
		TEST(late_for_the_first_head),
		TEST(first_window_between_runs),
		TEST(first_window_after_the_end_of_a_run),
		TEST(first_window_after_long_idleness),
		TEST(first_window_out_of_step),
		TEST(unused_frames_count_again),
		TEST(first_window_by_time),
		TEST(lone_number_gives_nothing_up),
		TEST(full_rx_role_is_not_waited_for),
		TEST(refused_frames_are_not_late),
		TEST(refused_frames_without_a_row),
		TEST(dropped_packets_of_frames_with_rows),
		TEST(many_frames_without_rows),
		TEST(restart_is_not_held_up),
		TEST(restart_before_waits_are_seen),
		TEST(restart_waits_for_gangs),
		TEST(restart_from_one),
		TEST(restart_after_stop_ends),
		TEST(long_silence_is_no_restart),
		TEST(slow_frame_is_no_restart),
		TEST(interrupted_frame_is_no_restart),
		TEST(restart_within_the_ring),
		TEST(restart_goes_on_before_the_move),
		TEST(restart_after_frames_that_wait),
		TEST(restart_far_ahead),
		TEST(one_module_elsewhere),
		TEST(most_modules_move_it),
		TEST(silent_modules_have_no_say),
		TEST(refusal_ends_with_silence),
		TEST(restart_with_a_module_that_was_dead),
		TEST(requests_must_agree),
		TEST(restart_survives_stragglers),
	};

	if (rig_eal(argv[0]) < 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
