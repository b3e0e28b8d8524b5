/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests the frame table with RX roles and builder in separate threads, more of them than CPUs. The
 * scheduler decides the order of steps. In every order, each packet that was placed is returned
 * once, in the frame and tile that it was sent for, and its mbuf is freed once, by the RX role that
 * placed it, before its slot is reused.
 */

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <rte_mbuf.h>
#include <rte_mempool.h>

#include "frame_rig.h"

#define RX_ROLES 3
#define MODULES	 3
#define RUNS	 6 /**< restarts of the detector: frame numbers begin at 1 again */
#ifdef __SANITIZE_THREAD__
#define FRAMES 60 /* the sanitizer makes the test ten times slower */
#else
#define FRAMES 400
#endif
#define PACKETS (RUNS * FRAMES * 128 * 11 / 10) /**< most packets of one RX role */

struct sent {
	uint64_t frame;
	struct rte_mbuf *m;
	uint16_t tile;
	uint8_t placed;
	uint8_t back;  /* returned to the builder */
	uint8_t freed; /* freed by its RX role */
	uint8_t wrong; /* freed by another RX role, or before it was returned to the builder */
	uint8_t frx;
};

struct sender {
	pthread_t thread;
	struct frame_rx *frx;
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
static struct sender senders[RX_ROLES];
static struct rte_mempool *pool;
static __thread uint32_t rx_here;
static bool stop;

/** External buffer of an mbuf, as in a replay. It is in the mbuf's private area. */
struct payload {
	struct rte_mbuf_ext_shared_info shared;
	uint8_t byte;
};

/* Called when the last reference to the buffer is released. */
static void
count_free(void *address, void *arg)
{
	struct sent *sent = arg;

	sent->wrong |= sent->frx != rx_here ||
		__atomic_load_n(&sent->back, __ATOMIC_ACQUIRE) != sent->placed;
	sent->freed++;
}

/**
 * Allocate an mbuf whose release is recorded. While the pool is empty, the RX role frees its own
 * mbufs.
 */
static struct rte_mbuf *
get_mbuf(struct sender *s, struct sent *sent)
{
	struct rte_mbuf *m;
	struct payload *payload;

	while ((m = rte_pktmbuf_alloc(pool)) == NULL) {
		frame_rx_quiescent(ft, s->frx);
		frame_rx_reclaim(ft, s->frx, 128);
		sched_yield();
	}
	payload = rte_mbuf_to_priv(m);
	payload->shared.free_cb = count_free;
	payload->shared.fcb_opaque = sent;
	rte_mbuf_ext_refcnt_set(&payload->shared, 1);
	rte_pktmbuf_attach_extbuf(m, &payload->byte, RTE_BAD_IOVA, 1, &payload->shared);
	return m;
}

/** A quiescent state, and the release of some mbufs, also in the middle of a slot. */
static void
go_on(struct sender *s)
{
	frame_rx_quiescent(ft, s->frx);
	frame_rx_reclaim(ft, s->frx, rig_below(&s->rng, 100));
}

/** Place a packet as an RX lcore does: retry while it has to wait. */
static void
send_packet(struct sender *s, uint32_t stream, uint64_t frame, uint32_t packet)
{
	const uint64_t id = (uint64_t)s->id * PACKETS + s->n + 1;
	struct sent *sent = &s->sent[s->n++];
	uint8_t header[RIG_HEADER_BYTES];
	enum frame_placement r;

	sent->frame = frame;
	sent->tile = detector_stream_tile(&d, stream) + packet;
	sent->frx = s->id;
	sent->m = get_mbuf(s, sent);
	rig_header(header, frame, packet);
	while ((r = frame_rx_place(ft, s->frx, stream, frame, packet, header, id * 64, sent->m)) >=
		FRAME_PLACE_WAIT) {
		enum frame_retry again;

		/* an RX role here has no room to hold a packet */
		frame_rx_crowd(s->frx, r == FRAME_PLACE_HOLD);
		if (r == FRAME_PLACE_WAIT)
			frame_rx_waits_for(s->frx, frame + 1, true);
		do {
			sched_yield();
			go_on(s);
			again = r == FRAME_PLACE_WAIT
				? FRAME_RETRY_PLACE
				: frame_rx_retry(ft, s->frx, stream, frame, 0);
		} while (again == FRAME_RETRY_HOLD && !__atomic_load_n(&stop, __ATOMIC_ACQUIRE));
		if (again != FRAME_RETRY_PLACE || __atomic_load_n(&stop, __ATOMIC_ACQUIRE))
			break;
	}
	frame_rx_waits_for(s->frx, 0, false);
	frame_rx_crowd(s->frx, false);
	sent->placed = r == FRAME_PLACED;
	if (!sent->placed)
		rte_pktmbuf_free(sent->m);
	s->results[r]++;
}

static void *
lane_loop(void *arg)
{
	struct sender *s = arg;

	rx_here = s->id;
	for (uint32_t i = 0; i < RUNS * FRAMES; i++) {
		const uint32_t loss = rig_below(&s->rng, 4) == 0 ? 20 : 0;

		if (rig_below(&s->rng, 100) == 0)
			usleep(rig_below(&s->rng, 2000));
		for (uint32_t p = 0; p < 128; p++) {
			if (p % 16 == 0)
				go_on(s);
			if (rig_below(&s->rng, 1000) < loss)
				continue;
			send_packet(s, s->id, 1 + i % FRAMES, p);
			if (rig_below(&s->rng, 1000) < loss)
				send_packet(s, s->id, 1 + i % FRAMES, p);
		}
	}
	__atomic_store_n(&s->done, true, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
		go_on(s);
		sched_yield();
	}
	frame_rx_reclaim(ft, s->frx, UINT32_MAX);
	return NULL;
}

/** @return number of packets returned */
static uint32_t
take_back(const struct frame_closed *closed)
{
	const struct gk_frame *f = frame_table_frame(ft, closed->slot);
	uint32_t n = 0;

	for (uint32_t t = 0; t < d.tiles; t++) {
		const uint64_t id = f->packet[t] / 64;
		struct sent *sent;

		if (id == 0) {
			assert_null(frame_table_mbufs(ft, closed->slot)[t]);
			continue;
		}
		sent = &senders[(id - 1) / PACKETS].sent[(id - 1) % PACKETS];
		assert_int_equal(sent->frame, closed->frame);
		assert_int_equal(sent->tile, t);
		assert_ptr_equal(frame_table_mbufs(ft, closed->slot)[t], sent->m);
		assert_int_equal(sent->freed, 0);
		assert_int_equal(sent->back, 0);
		__atomic_store_n(&sent->back, 1, __ATOMIC_RELEASE);
		n++;
	}
	assert_int_equal(n, closed->packets);
	return n;
}

/** Release the packets of a slot before the slot is recycled, or both in one step, as gangs do. */
static void
give_back(uint32_t *held, uint32_t *nb_held, uint32_t *nb_released, uint64_t *rng)
{
	while (*nb_released < *nb_held && rig_below(rng, 2) != 0)
		frame_table_release(ft, held[(*nb_released)++]);
	while (*nb_released > 0 && rig_below(rng, 3) != 0) {
		frame_table_recycle(ft, held[0]);
		(*nb_held)--;
		(*nb_released)--;
		memmove(held, held + 1, *nb_held * sizeof(*held));
	}
}

/** @return number of packets returned */
static uint64_t
builder_loop(void)
{
	uint64_t back = 0, rng = 7, last = 0, frames = 0;
	uint32_t held[8], nb_held = 0, nb_released = 0;
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
		give_back(held, &nb_held, &nb_released, &rng);
		for (uint32_t i = 0; i < RX_ROLES; i++)
			done += __atomic_load_n(&senders[i].done, __ATOMIC_ACQUIRE);
		if (done == RX_ROLES && !flushing) {
			frame_table_end(ft);
			flushing = true;
		}
		sched_yield();
	}
	while (nb_held > 0)
		give_back(held, &nb_held, &nb_released, &rng);
	print_message(
		"%" PRIu64 " frames, %u moves of the window\n", frames, ft->window.generation);
	return back;
}

static void
nothing_is_lost_or_duplicated(void **state)
{
	const uint64_t seed = rig_first_seed();
	uint64_t back, placed = 0, counted = 0, sent = 0;

	rig_config(&config, &d, MODULES, 1);
	config.nb_rx = RX_ROLES;
	for (uint32_t i = 0; i < RX_ROLES; i++)
		config.owner[i] = i;
	config.slots = 16;
	config.max_skew_frames = 6;
	config.resync_packets = 8;
	config.stall_cycles = rte_get_tsc_hz() / 500; /* 2 ms: short enough that streams do stall */
	ft = rig_table(&config);
	/* CPUs are shared: count the time between two polls, and let no thread wait for another */
	ft->deaf_cycles = config.stall_cycles;
	pool = rte_pktmbuf_pool_create_by_ops("stress", config.slots * d.tiles + RX_ROLES, 0,
		RTE_ALIGN_CEIL(sizeof(struct payload), RTE_MBUF_PRIV_ALIGN), 0, SOCKET_ID_ANY,
		"ring_mt_rts");
	assert_non_null(pool);
	for (uint32_t i = 0; i < RX_ROLES; i++) {
		senders[i] = (struct sender){.frx = &ft->rx[i],
			.id = i,
			.rng = (seed * RX_ROLES + i) * UINT64_C(0x9E3779B97F4A7C15),
			.sent = calloc(PACKETS, sizeof(struct sent))};
		assert_non_null(senders[i].sent);
		assert_int_equal(
			pthread_create(&senders[i].thread, NULL, lane_loop, &senders[i]), 0);
	}
	back = builder_loop();
	__atomic_store_n(&stop, true, __ATOMIC_RELEASE);
	for (uint32_t i = 0; i < RX_ROLES; i++) {
		pthread_join(senders[i].thread, NULL);
		for (uint32_t r = 0; r < FRAME_PLACES; r++)
			counted += senders[i].results[r];
		placed += senders[i].results[FRAME_PLACED];
		sent += senders[i].n;
		for (uint64_t k = 0; k < senders[i].n; k++) {
			assert_int_equal(senders[i].sent[k].placed, senders[i].sent[k].back);
			assert_int_equal(senders[i].sent[k].freed, 1);
			assert_int_equal(senders[i].sent[k].wrong, 0);
		}
		free(senders[i].sent);
	}
	print_message("%" PRIu64 " packets, %" PRIu64 " placed; FRAME_SEED=%" PRIu64 "\n", sent,
		placed, seed);
	assert_int_equal(counted, sent);
	assert_int_equal(back, placed);
	assert_true(placed > sent / 10);
	assert_int_equal(rte_mempool_in_use_count(pool), 0);
	/* all slots can be recycled */
	assert_int_equal(frame_table_open(ft), 0);
	assert_int_equal(ft->builder->nb_free, config.slots);
	rte_mempool_free(pool);
	rig_table_free(ft);
}

int
main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(nothing_is_lost_or_duplicated)};

	if (rig_eal(argv[0]) < 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
