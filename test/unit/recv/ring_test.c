/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The pixels of each frame in memory tell to which frame, stream and tile they belong: a frame has
 * only its own, and what was lost is missing. Records equal those of a UDP run in which the same
 * tiles are lost.
 */
#include "ring_rig.h"

static void
equals_udp(void **state)
{
	open_receiver(false, "csr");
	begin_run(1);
	for (uint64_t f = 1; f <= 100; f++) {
		send_frame(f);
		poll_some();
	}
	end_run();
	check_balance();
	assert_int_equal(nb_records, 100);
	assert_int_equal(p.rx[0]->counters[RX_EVENTS], 100 * STREAMS);
	assert_int_equal(p.rx[0]->counters[RX_PLACED], 100 * STREAMS * TILES);
	assert_int_equal(p.rx[0]->counters[RX_EVENTS_LOST], 0);
	assert_int_equal(builder_stats(p.builder).complete, 100);
	assert_int_equal(builder_stats(p.builder).overrun, 0);
	close_receiver();
	compare_with_udp(1, 100);
}

/** Of each frame something else: FIRST, MIDDLE, LAST, all of a stream, the event. */
static uint32_t
lose_in_turn(void)
{
	switch (now.frame % 8) {
	case 1:
		return now.tile == 1 && now.stream == 0 ? PART_FIRST : 0;
	case 2:
		return now.tile == 2 && now.stream == 1 ? PART_MIDDLE : 0;
	case 3:
		return now.tile == TILES - 1 ? PART_LAST : 0;
	case 4:
		return now.tile == EVENT && now.stream == 0 ? PART_FIRST : 0;
	case 5:
		return now.tile != EVENT && now.stream == 1 ? PART_ALL : 0;
	case 6: /* the first tile, whose header stands for the frame, and the event */
		return (now.tile == 0 || now.tile == EVENT) && now.stream == 1 ? PART_FIRST : 0;
	case 7: /* all of the frame */
		return now.frame == 15 ? PART_ALL : 0;
	default:
		return 0;
	}
}

static void
lost_is_missing(void **state)
{
	open_receiver(false, "csr");
	begin_run(1);
	to_lose = lose_in_turn;
	for (uint64_t f = 1; f <= 96; f++) {
		send_frame(f);
		poll_some();
	}
	end_run();
	check_balance();
	assert_int_equal(nb_records, 96);
	assert_int_equal(p.rx[0]->counters[RX_EVENTS_LOST], 2 * 12);
	assert_int_equal(p.rx[0]->counters[RX_OVERRUN], 0);
	close_receiver();
	compare_with_udp(1, 96);
}

static uint64_t seed;

static uint32_t
lose_at_random(void)
{
	return rig_below(&seed, 20) == 0 ? PART_ALL : 0;
}

/** No pixel of another frame passes for one of this frame. */
static void
no_stale_pixels(void **state)
{
	const uint64_t frames = 1000 * rig_seeds(5);

	seed = rig_first_seed();
	print_message("FRAME_SEED=%lu, %lu frames\n", seed, frames);
	open_receiver(false, "raw");
	check_pixels = check_came = true;
	begin_run(1);
	to_lose = lose_at_random;
	for (uint64_t f = 1; f <= frames; f++) {
		send_frame(f);
		poll_some();
	}
	to_lose = NULL;
	send_frame(frames + 1); /* its events end the frames before it */
	end_run();
	check_balance();
	assert_int_equal(nb_stale, 0);
	assert_true(nb_checked > frames * 9 / 10);
	assert_true(nb_missing > 0);
	assert_int_equal(nb_records, frames + 1);
	print_message("%lu frames, %lu tiles missing, %lu events lost\n", nb_checked, nb_missing,
		p.rx[0]->counters[RX_EVENTS_LOST]);
	close_receiver();
}

/** The receiver does not run while the detector laps the ring. */
static void
lapped(void **state)
{
	open_receiver(false, "raw");
	check_pixels = true;
	begin_run(1);
	for (uint64_t f = 1; f <= 400; f++) {
		send_frame(f);
		/* frames wait in the ring; twice more than it holds, and once in gangs */
		if (f % 100 < 60)
			poll_some();
		else if (f % 100 < 62)
			rx_poll(p.rx[0]);
		else
			rdma_progress(p.messages->devices[0], 0);
	}
	end_run();
	check_balance();
	assert_int_equal(nb_stale, 0);
	assert_true(p.rx[0]->counters[RX_OVERRUN] > 0);
	print_message("%lu of %lu packets overrun before, %lu after they were placed\n",
		p.rx[0]->counters[RX_OVERRUN], p.rx[0]->counters[RX_PACKETS],
		builder_stats(p.builder).overrun + builder_stats(p.builder).missing_packets);
	close_receiver();
}

static uint32_t
lose_last(void)
{
	return PART_LAST;
}

/**
 * The detector begins to overwrite a frame that a gang has not read, and loses the trailer: the new
 * pixels are before the trailer of the old frame.
 */
static void
lapped_without_trailer(void **state)
{
	open_receiver(false, "raw");
	check_pixels = true;
	begin_run(1);
	/* gangs do not run */
	for (uint64_t f = 1; f <= SLOTS; f++) {
		send_frame(f);
		rx_poll(p.rx[0]);
		builder_poll(p.builder);
	}
	to_lose = lose_last;
	write_tile(0, 1 + SLOTS, 1, FIRST + 1);
	to_lose = NULL;
	end_run();
	check_balance();
	assert_int_equal(nb_stale, 0);
	assert_int_equal(builder_stats(p.builder).overrun, 1);
	assert_int_equal(records[0].frame, 1);
	assert_int_equal(records[0].missing[0], 1);
	close_receiver();
}

/** The detector sends the same few numbers again, and loses tiles: the old ones do not pass. */
static void
restarted(void **state)
{
	seed = rig_first_seed();
	open_receiver(false, "raw");
	check_pixels = true;
	begin_run(1);
	for (restarts = 0; restarts < 8; restarts++) {
		to_lose = restarts > 0 ? lose_at_random : NULL;
		for (uint64_t f = 1; f <= SLOTS - 2; f++) {
			send_frame(f);
			poll_some();
		}
		poll_until_idle();
		to_lose = NULL;
		restart_sender();
	}
	end_run();
	check_balance();
	assert_int_equal(nb_stale, 0);
	assert_int_equal(nb_records, restarts * (SLOTS - 2));
	restarts = 0;
	close_receiver();
}

/** The immediate has 24 bits of the frame number. */
static void
immediate_wraps(void **state)
{
	const uint64_t first = (UINT64_C(5) << 24) - 20;

	open_receiver(false, "csr");
	begin_run(first);
	to_lose = lose_in_turn;
	for (uint64_t f = first; f < first + 40; f++) {
		send_frame(f);
		poll_some();
	}
	end_run();
	check_balance();
	assert_int_equal(nb_records, 40);
	close_receiver();
	compare_with_udp(first, 40);
}

/**
 * After a jump of the frame number, a poll looks up some of the skipped frames, and the next poll
 * continues.
 */
static void
jump_takes_several_polls(void **state)
{
	const uint64_t *counters;
	uint32_t polls = 0;

	open_receiver(false, "raw");
	begin_run(1);
	send_frame(1);
	poll_some();
	counters = p.rx[0]->counters;
	assert_int_equal(counters[RX_PACKETS], STREAMS * TILES);
	send_frame(SLOTS);
	for (uint32_t i = 0; i < 1000 && counters[RX_PACKETS] < 2 * STREAMS * TILES; i++) {
		rdma_progress(sender.dev, 0);
		wire();
		polls += rx_memory.poll(p.rx[0], 0) > 0;
	}
	assert_int_equal(counters[RX_PACKETS], 2 * STREAMS * TILES);
	/* 8 of the SLOTS - 2 skipped frames of each stream at a time */
	assert_true(polls >= STREAMS * (SLOTS - 2) / 8);
	poll_some();
	end_run();
	check_balance();
	assert_int_equal(counters[RX_EVENTS_LOST], 0);
	close_receiver();
}

/** Events and messages that no detector sends. */
static void
malformed(void **state)
{
	open_receiver(false, "csr");
	begin_run(1);
	send_frame(1);
	poll_all();
	send_event(0, 2, ingest_immediate(1, 2), 0);  /* another stream's */
	send_event(0, 2, ingest_immediate(0, 2), 64); /* with data */
	send_event(0, 2, ingest_immediate(63, 2), 0);
	poll_all();
	assert_int_equal(p.rx[0]->counters[RX_MALFORMED], 3);
	/* nothing came with this event */
	send_event(1, 2, ingest_immediate(1, 2), 0);
	poll_all();
	assert_int_equal(p.rx[0]->counters[RX_EVENTS], 3);
	assert_int_equal(p.rx[0]->counters[RX_PACKETS], 2 * TILES + 3);
	/* the header of another packet */
	write_tile(0, 2, 0, FIRST + 1);
	send_event(0, 2, ingest_immediate(0, 2), 0);
	poll_all();
	assert_int_equal(p.rx[0]->counters[RX_MALFORMED], 3 + TILES);
	/* the same event again */
	send_frame(3);
	poll_all();
	send_event(0, 3, ingest_immediate(0, 3), 0);
	poll_all();
	assert_int_equal(p.rx[0]->counters[RX_DUPLICATE] + p.rx[0]->counters[RX_LATE], TILES);
	end_run();
	check_balance();
	close_receiver();
}

/** What rings cost is known, and their memory is on the best pages there are. */
static void
registered_once(void **state)
{
	struct rx_ring_info info;

	open_receiver(false, "csr");
	rx_ring_info_get(p.messages->ring, &info);
	assert_true(info.bytes >= STREAMS * SLOTS * p.messages->card.slot_bytes);
	assert_true(info.register_ns > 0);
	assert_true(info.prefault_ns > 0);
	close_receiver();
}

int
main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(registered_once),
		cmocka_unit_test(equals_udp),
		cmocka_unit_test(lost_is_missing),
		cmocka_unit_test(no_stale_pixels),
		cmocka_unit_test(lapped),
		cmocka_unit_test(lapped_without_trailer),
		cmocka_unit_test(restarted),
		cmocka_unit_test(immediate_wraps),
		cmocka_unit_test(jump_takes_several_polls),
		cmocka_unit_test(malformed),
	};

	return ring_main(argv, tests, RTE_DIM(tests));
}
