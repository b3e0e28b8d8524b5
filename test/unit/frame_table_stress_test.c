/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The frame table under real concurrency: lanes and builder in threads of their own, more of them
 * than CPUs. What happens is up to the scheduler; that nothing is lost or doubled is not: every
 * packet that was placed comes back once, in the frame and tile that it was sent for.
 */

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include "frame_rig.h"

#define LANES	3
#define MODULES 3
#define RUNS	6 /**< of the detector: its numbers begin at 1 again */
#define FRAMES	400
#define PACKETS (RUNS * FRAMES * 128 * 11 / 10) /**< of a lane, at most */

struct sent {
	uint64_t frame;
	uint16_t tile;
	uint8_t placed;
	uint8_t back;
};

struct sender {
	pthread_t thread;
	struct frame_lane *lane;
	uint32_t id;
	uint64_t rng;
	struct sent *sent;
	uint64_t n;
	uint64_t results[FRAME_PLACES];
	bool done;
};

static struct detector d;
static struct frame_table_config config;
static struct frame_table *ft;
static struct sender senders[LANES];
static bool stop;

/** What an RX lcore does with a packet: again and again until it need not wait. */
static void
send_packet(struct sender *s, uint32_t stream, uint64_t frame, uint32_t packet)
{
	const uint64_t id = (uint64_t)s->id * PACKETS + s->n + 1;
	struct sent *sent = &s->sent[s->n++];
	enum frame_place r;

	sent->frame = frame;
	sent->tile = detector_stream_tile(&d, stream) + packet;
	while ((r = rig_place(ft, stream, frame, packet, id)) == FRAME_PLACE_WAIT) {
		frame_lane_want(s->lane, frame + 1, true);
		if (frame_lane_may_vote(ft, s->lane))
			frame_lane_vote(ft, s->lane, frame);
		sched_yield();
		frame_lane_quiescent(ft, s->lane);
		if (__atomic_load_n(&stop, __ATOMIC_ACQUIRE))
			break;
	}
	frame_lane_want(s->lane, 0, false);
	sent->placed = r == FRAME_PLACED;
	s->results[r]++;
}

static void *
lane_loop(void *arg)
{
	struct sender *s = arg;

	for (uint32_t i = 0; i < RUNS * FRAMES; i++) {
		const uint32_t loss = rig_below(&s->rng, 4) == 0 ? 20 : 0;

		if (rig_below(&s->rng, 100) == 0)
			usleep(rig_below(&s->rng, 2000));
		for (uint32_t p = 0; p < 128; p++) {
			if (p % 16 == 0)
				frame_lane_quiescent(ft, s->lane);
			if (rig_below(&s->rng, 1000) < loss)
				continue;
			send_packet(s, s->id, 1 + i % FRAMES, p);
			if (rig_below(&s->rng, 1000) < loss)
				send_packet(s, s->id, 1 + i % FRAMES, p);
		}
	}
	__atomic_store_n(&s->done, true, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
		frame_lane_quiescent(ft, s->lane);
		sched_yield();
	}
	return NULL;
}

/** @return packets that came back */
static uint32_t
take_back(const struct frame_closed *closed)
{
	const struct gk_frame *f = frame_table_frame(ft, closed->slot);
	uint32_t n = 0;

	for (uint32_t t = 0; t < d.tiles; t++) {
		const uint64_t id = f->packet[t] / 64;
		struct sent *sent;

		assert_ptr_equal(frame_table_mbufs(ft, closed->slot)[t], rig_mbuf(id));
		if (id == 0)
			continue;
		sent = &senders[(id - 1) / PACKETS].sent[(id - 1) % PACKETS];
		assert_int_equal(sent->frame, closed->frame);
		assert_int_equal(sent->tile, t);
		assert_int_equal(sent->back++, 0);
		n++;
	}
	assert_int_equal(n, closed->packets);
	return n;
}

/** @return packets that came back */
static uint64_t
builder_loop(void)
{
	uint64_t back = 0, rng = 7, last = 0, frames = 0;
	uint32_t held[8], nb_held = 0;
	bool flushing = false;

	while (!flushing || !frame_table_flushed(ft)) {
		struct frame_closed closed;
		uint32_t done = 0;

		if (!flushing)
			frame_table_open(ft);
		while (nb_held < RTE_DIM(held) && frame_table_close(ft, &closed)) {
			assert_true(closed.frame > last || ft->window.generation > 1);
			last = closed.frame;
			frames++;
			if (closed.packets == 0)
				continue;
			back += take_back(&closed);
			held[nb_held++] = closed.slot;
		}
		while (nb_held > 0 && rig_below(&rng, 3) != 0)
			frame_table_recycle(ft, held[--nb_held]);
		for (uint32_t i = 0; i < LANES; i++)
			done += __atomic_load_n(&senders[i].done, __ATOMIC_ACQUIRE);
		if (done == LANES && !flushing) {
			frame_table_flush(ft);
			flushing = true;
		}
		sched_yield();
	}
	while (nb_held > 0)
		frame_table_recycle(ft, held[--nb_held]);
	print_message(
		"%" PRIu64 " frames, %u moves of the window\n", frames, ft->window.generation);
	return back;
}

static void
nothing_is_lost_or_doubled(void **state)
{
	const uint64_t seed = rig_first_seed();
	uint64_t back, placed = 0, counted = 0, sent = 0;

	rig_config(&config, &d, MODULES, 1);
	config.lanes = LANES;
	for (uint32_t i = 0; i < LANES; i++)
		config.owner[i] = i;
	config.slots = 16;
	config.give_up = 6;
	config.agree = 8;
	config.stall_cycles = rte_get_tsc_hz() / 500; /* 2 ms: stalls happen */
	ft = rig_table(&config);
	for (uint32_t i = 0; i < LANES; i++) {
		senders[i] = (struct sender){.lane = &ft->lanes[i],
			.id = i,
			.rng = (seed * LANES + i) * UINT64_C(0x9E3779B97F4A7C15),
			.sent = calloc(PACKETS, sizeof(struct sent))};
		assert_non_null(senders[i].sent);
		assert_int_equal(
			pthread_create(&senders[i].thread, NULL, lane_loop, &senders[i]), 0);
	}
	back = builder_loop();
	__atomic_store_n(&stop, true, __ATOMIC_RELEASE);
	for (uint32_t i = 0; i < LANES; i++) {
		pthread_join(senders[i].thread, NULL);
		for (uint32_t r = 0; r < FRAME_PLACES; r++)
			counted += senders[i].results[r];
		placed += senders[i].results[FRAME_PLACED];
		sent += senders[i].n;
		for (uint64_t k = 0; k < senders[i].n; k++)
			assert_int_equal(senders[i].sent[k].placed, senders[i].sent[k].back);
		free(senders[i].sent);
	}
	print_message("%" PRIu64 " packets, %" PRIu64 " placed; FRAME_SEED=%" PRIu64 "\n", sent,
		placed, seed);
	assert_int_equal(counted, sent);
	assert_int_equal(back, placed);
	assert_true(placed > sent / 10);
	assert_int_equal(ft->builder.nb_free, config.slots);
	rig_table_free(ft);
}

int
main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(nothing_is_lost_or_doubled)};

	if (rig_eal(argv[0]) < 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
