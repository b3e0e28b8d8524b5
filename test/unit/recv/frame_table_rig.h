/* SPDX-License-Identifier: BSD-3-Clause */
/* A frame table for one module, and the steps of its tests. */
#ifndef FRAME_TABLE_RIG_H
#define FRAME_TABLE_RIG_H

#include "frame_rig.h"

#define PACKETS 128 /* packets of a module and frame, with one interface */

static struct detector d;
static struct frame_table_config config;
static struct frame_table *ft;
static struct frame_closed closed;

static inline int
setup(void **state)
{
	rig_config(&config, &d, 1, 1);
	ft = NULL;
	return 0;
}

static inline int
teardown(void **state)
{
	if (ft != NULL)
		rig_table_free(ft);
	return 0;
}

/** Create a table with a known first frame, and open its window. */
static inline void
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

/** Place packets [from, to) of a frame and stream; @return the result, which is the same for all */
static inline enum frame_placement
place_range(uint32_t stream, uint64_t frame, uint32_t from, uint32_t to)
{
	enum frame_placement first = FRAME_PLACES;

	for (uint32_t p = from; p < to; p++) {
		enum frame_placement r = rig_place(ft, stream, frame, p, frame * 1000 + p + 1);

		if (first == FRAME_PLACES)
			first = r;
		assert_int_equal(r, first);
	}
	return first;
}

/** Expect that a frame is closed, and recycle its slot. */
static inline void
expect_closed(uint64_t frame, uint32_t packets)
{
	assert_true(rig_close_graced(ft, &closed));
	assert_int_equal(closed.frame, frame);
	assert_int_equal(closed.packets, packets);
	assert_int_equal(closed.missing, d.tiles - packets);
	if (closed.packets > 0)
		frame_table_recycle(ft, closed.slot);
}

static inline void
expect_nothing(void)
{
	assert_false(rig_close_graced(ft, &closed));
}

/** Place and close the complete frames [from, to), one after the other. */
static inline void
run_through(uint64_t from, uint64_t to)
{
	for (uint64_t f = from; f < to; f++) {
		assert_int_equal(place_range(0, f, 0, PACKETS), FRAME_PLACED);
		expect_closed(f, PACKETS);
		frame_table_open(ft);
	}
}

/**
 * Place and close the first two frames of a new window. The window begins K frames earlier; those
 * frames have no packets and are not reported.
 */
static inline void
begin_run(uint64_t frame)
{
	for (uint64_t f = frame; f < frame + 2; f++) {
		while (place_range(0, f, 0, 1) >= FRAME_PLACE_WAIT) {
			frame_rx_waits_for(&ft->rx[0], f + 1, true);
			expect_nothing();
			frame_table_open(ft);
		}
		frame_rx_waits_for(&ft->rx[0], 0, false);
		assert_int_equal(place_range(0, f, 1, PACKETS), FRAME_PLACED);
	}
	expect_closed(frame, PACKETS);
	expect_closed(frame + 1, PACKETS);
	frame_table_open(ft);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

#endif /* FRAME_TABLE_RIG_H */
