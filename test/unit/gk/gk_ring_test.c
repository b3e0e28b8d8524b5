/* SPDX-License-Identifier: BSD-3-Clause */
/* gk_ring.h compared with a model, and between two threads. The test simulates the gang. */

#include <pthread.h>
#include <sched.h>

#include "gk_rig.h"

static struct gk_channel *
channel_at(uint32_t counter, uint32_t gang)
{
	struct gk_channel *channel = rig_alloc(sizeof(*channel));

	channel->bell.head[gang] = counter;
	channel->done[gang].raw = channel->done[gang].done = counter;
	return channel;
}

static void
test_full_and_empty(void **state)
{
	struct gk_channel *channel = channel_at(0, 3);
	struct gk_ring ring;
	uint32_t batch = 99;

	gk_ring_init(&ring, channel, 3);
	assert_int_equal(gk_ring_take_raw(&ring, &batch), 0);
	assert_int_equal(batch, 99);
	assert_int_equal(gk_ring_is_done(&ring, 0), 0);
	for (uint32_t i = 0; i < GK_RING_SIZE; i++) {
		assert_ptr_equal(gk_ring_next(&ring), &channel->work[3][i]);
		assert_int_equal(gk_ring_submit(&ring), i);
		assert_int_equal(channel->bell.head[3], i + 1);
	}
	assert_null(gk_ring_next(&ring));
	channel->done[3].raw = channel->done[3].done = 1;
	assert_null(gk_ring_next(&ring)); /* done was not collected */
	assert_int_equal(gk_ring_is_done(&ring, 0), 1);
	assert_int_equal(gk_ring_is_done(&ring, 1), 0);
	gk_ring_collect(&ring);
	assert_ptr_equal(gk_ring_next(&ring), &channel->work[3][0]);
	channel->done[3].error = (uint32_t)-EINVAL;
	assert_int_equal(gk_ring_error(&ring), -EINVAL);
	free(channel);
}

/* Random steps compared with 64-bit counters, across the wrap-around of the 32-bit ones. */
static void
test_model(void **state)
{
	const uint64_t base = (UINT64_C(1) << 32) - 1000;
	uint64_t rng = rig_seed("ring model");
	uint64_t head = base, raw = base, done = base, raw_tail = base, done_tail = base;
	struct gk_channel *channel = channel_at((uint32_t)base, 0);
	struct gk_ring ring;
	uint32_t batch;

	gk_ring_init(&ring, channel, 0);
	for (int i = 0; i < 200000; i++) {
		switch (rig_below(&rng, 5)) {
		case 0:
		case 1:
			if (head - done_tail == GK_RING_SIZE) {
				assert_null(gk_ring_next(&ring));
				break;
			}
			assert_ptr_equal(gk_ring_next(&ring), &channel->work[0][head % 64]);
			gk_ring_next(&ring)->coef = (uint32_t)head;
			assert_int_equal(gk_ring_submit(&ring), (uint32_t)head);
			head++;
			break;
		case 2: /* releases packets, then completes, with any distance */
			if (head > raw)
				raw += 1 + rig_below(&rng, (uint32_t)(head - raw));
			channel->done[0].raw = (uint32_t)raw;
			if (raw > done && rig_below(&rng, 2))
				done += 1 + rig_below(&rng, (uint32_t)(raw - done));
			channel->done[0].done = (uint32_t)done;
			break;
		case 3:
			while (gk_ring_take_raw(&ring, &batch)) {
				assert_int_equal(batch, (uint32_t)raw_tail);
				assert_int_equal(gk_ring_work(&ring, batch)->coef, batch);
				raw_tail++;
			}
			assert_int_equal(raw_tail, raw);
			break;
		case 4:
			for (uint64_t b = done_tail; b < head; b++)
				assert_int_equal(gk_ring_is_done(&ring, (uint32_t)b), b < done);
			while (done_tail < done && done_tail < raw_tail) {
				gk_ring_collect(&ring);
				done_tail++;
			}
			break;
		}
		assert_int_equal(gk_ring_pending(&ring), head - done_tail);
	}
	assert_true(head > base + 2000); /* after the wrap-around */
	/* a ring without batches in flight continues from its present state */
	channel->done[0].done = channel->done[0].raw = (uint32_t)head;
	gk_ring_init(&ring, channel, 0);
	assert_int_equal(gk_ring_pending(&ring), 0);
	assert_int_equal(gk_ring_take_raw(&ring, &batch), 0);
	assert_int_equal(gk_ring_submit(&ring), (uint32_t)head);
	free(channel);
}

#define EXCHANGES 100000

static void *
echo_gang(void *arg)
{
	struct gk_channel *channel = arg;
	uint32_t seen = channel->done[1].done, head;
	uint64_t count = 0;

	while (count < EXCHANGES) {
		head = __atomic_load_n(&channel->bell.head[1], __ATOMIC_ACQUIRE);
		if (head == seen) {
			sched_yield();
			continue;
		}
		/* plain accesses: the doorbell and the done line order them */
		struct gk_work *work = &channel->work[1][seen % GK_RING_SIZE];
		work->slot[1] = work->slot[0] * 3;
		seen++;
		count++;
		__atomic_store_n(&channel->done[1].raw, seen, __ATOMIC_RELEASE);
		__atomic_store_n(&channel->done[1].done, seen, __ATOMIC_RELEASE);
	}
	return NULL;
}

static void
test_two_threads(void **state)
{
	const uint32_t first = UINT32_MAX - 500;
	struct gk_channel *channel = channel_at(first, 1);
	uint32_t sent = 0, got = 0;
	struct gk_work *work;
	struct gk_ring ring;
	pthread_t thread;

	gk_ring_init(&ring, channel, 1);
	assert_int_equal(pthread_create(&thread, NULL, echo_gang, channel), 0);
	while (got < EXCHANGES) {
		while (sent < EXCHANGES && (work = gk_ring_next(&ring)) != NULL) {
			work->slot[0] = sent++;
			gk_ring_submit(&ring);
		}
		if (!gk_ring_is_done(&ring, first + got)) {
			sched_yield();
			continue;
		}
		assert_int_equal(gk_ring_work(&ring, first + got)->slot[1], got * 3);
		gk_ring_collect(&ring);
		got++;
	}
	pthread_join(thread, NULL);
	assert_int_equal(gk_ring_pending(&ring), 0);
	free(channel);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_full_and_empty),
		cmocka_unit_test(test_model),
		cmocka_unit_test(test_two_threads),
	};

	return cmocka_run_group_tests_name("gk_ring", tests, NULL, NULL);
}
