/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The registration cache over a provider that only keeps a list. RDMA_SEED repeats a random run,
 * RDMA_STEPS is its length.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include <rte_common.h>
#include <rte_eal.h>
#include <rte_errno.h>

#include "rdma_cache.h"
#include "rdma_fake.h"
#include "rdma_interval.h"

#define PAGE 4096ull

static struct rdma_dev *dev;
static struct rdma_pd *pd;

static struct rdma_cache *
make(uint64_t bytes_max, uint32_t entries_max)
{
	const struct rdma_cache_attr attr = {.bytes_max = bytes_max, .entries_max = entries_max};
	struct rdma_cache *cache;

	rdma_fake_reset();
	cache = rdma_cache_create(pd, &attr);
	assert_non_null(cache);
	return cache;
}

static void
finish(struct rdma_cache *cache)
{
	assert_int_equal(rdma_cache_destroy(cache), 0);
	assert_int_equal(rdma_fake.live, 0);
	assert_int_equal(rdma_fake.live_bytes, 0);
}

static struct rdma_cache_ref
get(struct rdma_cache *cache, uint64_t addr, uint64_t length)
{
	struct rdma_cache_ref ref;
	int ret = rdma_cache_get(cache, (void *)addr, length, -1, &ref);
	const struct rdma_fake_mr *mr;

	if (ret)
		fail_msg("get: %s", strerror(-ret));
	mr = &rdma_fake.mr[ref.lkey];
	assert_true(mr->live);
	assert_true((uintptr_t)mr->attr.addr <= addr);
	assert_true((uintptr_t)mr->attr.addr + mr->attr.length >= addr + length);
	assert_int_equal(ref.rkey, ref.lkey + 1000);
	return ref;
}

/**
 * get and put.
 * @return the key
 */
static uint32_t
touch(struct rdma_cache *cache, uint64_t addr, uint64_t length)
{
	struct rdma_cache_ref ref = get(cache, addr, length);

	rdma_cache_put(cache, &ref);
	return ref.lkey;
}

static struct rdma_cache_info
info_of(const struct rdma_cache *cache)
{
	struct rdma_cache_info info;

	rdma_cache_info_get(cache, &info);
	return info;
}

static void
a_region_is_registered_once(void **state)
{
	struct rdma_cache *cache = make(0, 0);
	uint32_t key = touch(cache, 10 * PAGE + 5, 3 * PAGE);

	assert_int_equal(touch(cache, 10 * PAGE + 5, 3 * PAGE), key);
	/* whole pages are registered */
	assert_int_equal(touch(cache, 10 * PAGE, 4 * PAGE), key);
	assert_int_equal(touch(cache, 14 * PAGE - 1, 1), key);
	assert_int_equal(info_of(cache).hits, 3);
	assert_int_equal(info_of(cache).misses, 1);
	assert_int_equal(rdma_fake.nb, 1);
	assert_int_equal(info_of(cache).bytes, 4 * PAGE);
	finish(cache);
}

static void
what_overlaps_becomes_one(void **state)
{
	struct rdma_cache *cache = make(0, 0);
	struct rdma_cache_ref held = get(cache, 10 * PAGE, 2 * PAGE);
	uint32_t key;

	touch(cache, 20 * PAGE, 2 * PAGE);
	key = touch(cache, 11 * PAGE, 10 * PAGE);
	assert_int_equal(rdma_fake.mr[key].attr.length, 12 * PAGE);
	assert_int_equal(info_of(cache).merges, 1);
	/* the one in use stays until it is put, but is not returned again */
	assert_true(rdma_fake.mr[held.lkey].live);
	assert_int_equal(rdma_fake.live, 2);
	assert_int_equal(touch(cache, 10 * PAGE, 1), key);
	rdma_cache_put(cache, &held);
	assert_int_equal(rdma_fake.live, 1);
	/* neighbours are not merged */
	assert_int_not_equal(touch(cache, 22 * PAGE, PAGE), key);
	finish(cache);
}

static void
what_may_not_be_one_is_registered_alone(void **state)
{
	struct rdma_cache *cache = make(0, 0);
	uint32_t key;

	/* larger than the maximum region */
	rdma_fake.max_mr_bytes = 8 * PAGE;
	assert_int_equal(rdma_cache_destroy(cache), 0);
	{
		const struct rdma_cache_attr attr = {0};

		cache = rdma_cache_create(pd, &attr);
	}
	touch(cache, 10 * PAGE, 6 * PAGE);
	key = touch(cache, 14 * PAGE, 6 * PAGE);
	assert_int_equal(rdma_fake.mr[key].attr.length, 6 * PAGE);
	assert_int_equal(info_of(cache).merges, 0);

	/* a part that is no longer mapped */
	rdma_fake.hole_start = 14 * PAGE;
	rdma_fake.hole_end = 15 * PAGE;
	key = touch(cache, 18 * PAGE, 4 * PAGE);
	assert_int_equal(rdma_fake.mr[key].attr.length, 4 * PAGE);
	finish(cache);
}

static void
neighbours_that_share_pages_do_not_grow(void **state)
{
	struct rdma_cache *cache = make(0, 0);
	uint64_t bytes = 0, at, i;

	for (i = 0, at = 10 * PAGE; i < 1000; i++, at += PAGE * 3 / 2)
		touch(cache, at, PAGE * 3 / 2);
	for (i = 0; i < rdma_fake.nb; i++)
		bytes += rdma_fake.mr[i].attr.length;
	assert_true(bytes <= 1000 * 4 * PAGE);
	/* and each is found again */
	i = rdma_fake.nb;
	for (at = 10 * PAGE; at < 1510 * PAGE; at += PAGE * 3 / 2)
		touch(cache, at, PAGE * 3 / 2);
	assert_int_equal(rdma_fake.nb, i);
	finish(cache);
}

static void
the_longest_unused_makes_room(void **state)
{
	struct rdma_cache *cache = make(3 * PAGE, 0);
	uint32_t key[3];
	unsigned int i;

	for (i = 0; i < 3; i++)
		key[i] = touch(cache, (10 + 2 * i) * PAGE, PAGE);
	touch(cache, 10 * PAGE, PAGE); /* now the second one is least recently used */
	touch(cache, 30 * PAGE, PAGE);
	assert_true(rdma_fake.mr[key[0]].live);
	assert_false(rdma_fake.mr[key[1]].live);
	assert_true(rdma_fake.mr[key[2]].live);
	assert_int_equal(info_of(cache).evictions, 1);
	assert_int_equal(info_of(cache).bytes, 3 * PAGE);
	finish(cache);

	cache = make(0, 2);
	for (i = 0; i < 5; i++)
		touch(cache, (10 + 2 * i) * PAGE, PAGE);
	assert_int_equal(rdma_fake.live, 2);
	assert_int_equal(info_of(cache).entries_peak, 2);
	finish(cache);
}

static void
what_is_in_use_stays(void **state)
{
	struct rdma_cache *cache = make(2 * PAGE, 0);
	struct rdma_cache_ref one = get(cache, 10 * PAGE, PAGE), two = get(cache, 20 * PAGE, PAGE);
	struct rdma_cache_ref three, again = get(cache, 10 * PAGE, 1);

	assert_int_equal(rdma_cache_get(cache, (void *)(30 * PAGE), PAGE, -1, &three), -ENOSPC);
	assert_int_equal(rdma_cache_destroy(cache), -EBUSY);
	rdma_cache_put(cache, &one);
	assert_int_equal(rdma_cache_get(cache, (void *)(30 * PAGE), PAGE, -1, &three), -ENOSPC);
	rdma_cache_put(cache, &again);
	three = get(cache, 30 * PAGE, PAGE);
	rdma_cache_put(cache, &two);
	rdma_cache_put(cache, &three);
	assert_int_equal(info_of(cache).failures, 2);
	assert_int_equal(info_of(cache).in_use, 0);
	finish(cache);
}

static void
memory_that_goes_is_registered_anew(void **state)
{
	struct rdma_cache *cache = make(0, 0);
	struct rdma_cache_ref held = get(cache, 10 * PAGE, 4 * PAGE);
	uint32_t key = touch(cache, 20 * PAGE, PAGE), other = touch(cache, 40 * PAGE, PAGE);

	rdma_cache_invalidate(cache, (void *)(13 * PAGE + 7), 8 * PAGE);
	assert_int_not_equal(touch(cache, 20 * PAGE, PAGE), key);
	assert_false(rdma_fake.mr[key].live);
	/* one is in use: it is not returned again, and is deregistered when it is put */
	assert_int_not_equal(touch(cache, 10 * PAGE, PAGE), held.lkey);
	assert_true(rdma_fake.mr[held.lkey].live);
	rdma_cache_put(cache, &held);
	assert_false(rdma_fake.mr[held.lkey].live);
	assert_int_equal(touch(cache, 40 * PAGE, PAGE), other);
	assert_int_equal(info_of(cache).invalidations, 2);
	finish(cache);
}

static void
more_goes_than_can_be_remembered(void **state)
{
	struct rdma_cache *cache = make(0, 0);
	uint32_t key = touch(cache, 10 * PAGE, PAGE);
	unsigned int i;

	for (i = 0; i < 5000; i++)
		rdma_cache_invalidate(cache, (void *)((100 + i) * PAGE), PAGE);
	assert_int_not_equal(touch(cache, 10 * PAGE, PAGE), key);
	finish(cache);
}

static void
busy_regions_wait(void **state)
{
	struct rdma_cache *cache = make(0, 1);
	uint32_t key = touch(cache, 10 * PAGE, PAGE);
	struct rdma_cache_ref ref;

	rdma_fake.mr[key].busy = true;
	assert_int_equal(rdma_cache_get(cache, (void *)(20 * PAGE), PAGE, -1, &ref), -ENOSPC);
	assert_int_equal(rdma_cache_destroy(cache), -EBUSY);
	rdma_fake.mr[key].busy = false;
	touch(cache, 20 * PAGE, PAGE);
	assert_false(rdma_fake.mr[key].live);
	finish(cache);
}

static void
several_busy_regions_wait(void **state)
{
	struct rdma_cache *cache = make(0, 0);
	unsigned int i;

	for (i = 0; i < 4; i++)
		rdma_fake.mr[touch(cache, (10 + 2 * i) * PAGE, PAGE)].busy = true;
	rdma_cache_invalidate(cache, NULL, 100 * PAGE);
	touch(cache, 50 * PAGE, PAGE);
	assert_int_equal(rdma_fake.live, 5);
	for (i = 0; i < 4; i++)
		rdma_fake.mr[i].busy = false;
	finish(cache);
}

/* No range may be unmapped while it is registered; other invalidations are allowed. */
static void
flush_tells_when_it_is_gone(void **state)
{
	struct rdma_cache *cache = make(0, 0);
	struct rdma_cache_ref held = get(cache, 10 * PAGE, 4 * PAGE), swallowed;
	uint32_t key = touch(cache, 20 * PAGE, PAGE);

	assert_int_equal(rdma_cache_flush(cache), 0);
	assert_int_equal(rdma_fake.live, 2);
	/* flush alone deregisters it after the invalidation */
	rdma_cache_invalidate(cache, (void *)(20 * PAGE), PAGE);
	assert_int_equal(rdma_cache_flush(cache), 0);
	assert_false(rdma_fake.mr[key].live);
	/* requests use it */
	key = touch(cache, 20 * PAGE, PAGE);
	rdma_fake.mr[key].busy = true;
	rdma_cache_invalidate(cache, (void *)(20 * PAGE), PAGE);
	assert_int_equal(rdma_cache_flush(cache), -EBUSY);
	assert_int_equal(rdma_cache_flush(cache), -EBUSY);
	rdma_fake.mr[key].busy = false;
	assert_int_equal(rdma_cache_flush(cache), 0);
	assert_false(rdma_fake.mr[key].live);
	/* in use */
	rdma_cache_invalidate(cache, (void *)(13 * PAGE), PAGE);
	assert_int_equal(rdma_cache_flush(cache), -EBUSY);
	rdma_cache_put(cache, &held);
	assert_int_equal(rdma_cache_flush(cache), 0);
	assert_int_equal(rdma_fake.live, 0);
	/* absorbed by a larger one, and still in use: before it is announced, and after */
	swallowed = get(cache, 30 * PAGE, 2 * PAGE);
	touch(cache, 30 * PAGE, 4 * PAGE);
	assert_int_equal(rdma_fake.live, 2);
	rdma_cache_invalidate(cache, (void *)(33 * PAGE), PAGE);
	assert_int_equal(rdma_cache_flush(cache), 0);
	assert_int_equal(rdma_fake.live, 1);
	rdma_cache_invalidate(cache, (void *)(31 * PAGE), PAGE);
	assert_int_equal(rdma_cache_flush(cache), -EBUSY);
	rdma_cache_put(cache, &swallowed);
	assert_int_equal(rdma_cache_flush(cache), 0);
	assert_int_equal(rdma_fake.live, 0);
	finish(cache);
}

static void
errors_are_told(void **state)
{
	const struct rdma_cache_attr attr = {.access = RDMA_ACCESS_REMOTE_WRITE};
	struct rdma_cache *cache = make(0, 0);
	struct rdma_cache_ref ref;

	assert_int_equal(rdma_cache_get(cache, (void *)PAGE, 0, -1, &ref), -EINVAL);
	assert_int_equal(rdma_cache_get(cache, (void *)PAGE, UINT64_MAX, -1, &ref), -EINVAL);
	rdma_fake.fail = ENOTSUP;
	assert_int_equal(rdma_cache_get(cache, (void *)PAGE, PAGE, -1, &ref), -ENOTSUP);
	rdma_fake.fail = 0;
	touch(cache, PAGE, PAGE);
	finish(cache);
	assert_null(rdma_cache_create(pd, &attr));
	assert_int_equal(rte_errno, EINVAL);
}

static void
gpu_memory_is_not_rounded(void **state)
{
	struct rdma_cache *cache = make(0, 0);
	struct rdma_cache_ref ref;
	int ret = rdma_cache_get(cache, (void *)(10 * PAGE + 512), 1000, 2, &ref);

	assert_int_equal(ret, 0);
	assert_int_equal((uintptr_t)rdma_fake.mr[ref.lkey].attr.addr, 10 * PAGE + 512);
	assert_int_equal(rdma_fake.mr[ref.lkey].attr.length, 1000);
	assert_int_equal(rdma_fake.mr[ref.lkey].attr.gpu, 2);
	rdma_cache_put(cache, &ref);
	/* the same address, but in host memory */
	assert_int_not_equal(touch(cache, 10 * PAGE + 512, 1000), ref.lkey);
	finish(cache);
}

/* ---- random, against a model ---------------------------------------------------------------- */

#define PAGES 256
#define HOLDS 24

/*
 * The model: for each page the time (number of registrations so far) of its last invalidation. A
 * region returned by get must have been registered later, contain all of its pages, and stay
 * registered while it is held. Bytes and entries stay within their limits.
 */
static void
random_use_against_a_model(void **state)
{
	const char *given = getenv("RDMA_SEED"), *length = getenv("RDMA_STEPS");
	const unsigned int seed = given ? strtoul(given, NULL, 0) : (unsigned int)time(NULL);
	const unsigned int steps = length ? strtoul(length, NULL, 0) : 200000;
	struct rdma_cache *cache = make(100 * PAGE, 20);
	struct {
		struct rdma_cache_ref ref;
		bool held;
	} hold[HOLDS] = {0};
	uint32_t gone[PAGES] = {0};
	unsigned int step, i, gets = 0, no_space = 0;

	print_message("RDMA_SEED=%u\n", seed);
	srand(seed);
	for (step = 0; step < steps; step++) {
		const uint64_t first = rand() % PAGES, n = 1 + rand() % (rand() % 8 ? 8 : 64);
		const uint64_t last = RTE_MIN(first + n, PAGES);
		struct rdma_cache_info info;
		unsigned int h = rand() % HOLDS;

		if (hold[h].held) {
			assert_true(rdma_fake.mr[hold[h].ref.lkey].live);
			rdma_cache_put(cache, &hold[h].ref);
			hold[h].held = false;
		} else if (rand() % 16 == 0) {
			rdma_cache_invalidate(
				cache, (void *)((1000 + first) * PAGE), (last - first) * PAGE);
			for (i = first; i < last; i++)
				gone[i] = rdma_fake.nb;
		} else {
			int ret = rdma_cache_get(cache,
				(void *)((1000 + first) * PAGE + rand() % 4096),
				(last - first - 1) * PAGE + 1, -1, &hold[h].ref);

			gets++;
			if (ret == -ENOSPC) {
				no_space++;
				continue;
			}
			assert_int_equal(ret, 0);
			hold[h].held = true;
			{
				const struct rdma_fake_mr *mr = &rdma_fake.mr[hold[h].ref.lkey];
				const uint64_t start = (uintptr_t)mr->attr.addr / PAGE - 1000;
				const uint64_t pages = mr->attr.length / PAGE;

				assert_true(mr->live);
				assert_true(start <= first && start + pages >= last);
				for (i = first; i < last; i++)
					assert_true(hold[h].ref.lkey >= gone[i]);
			}
		}
		if (rdma_fake.nb > RTE_DIM(rdma_fake.mr) - 8)
			break;
		for (i = 0; i < 4; i++) { /* sometimes one that is in use */
			unsigned int key = rdma_fake.nb ? rand() % rdma_fake.nb : 0;

			rdma_fake.mr[key].busy = rdma_fake.mr[key].live && rand() % 64 == 0;
		}
		rdma_cache_info_get(cache, &info);
		assert_int_equal(info.bytes, rdma_fake.live_bytes);
		assert_int_equal(info.entries, rdma_fake.live);
		assert_true(info.bytes <= 100 * PAGE && info.entries <= 20);
	}
	for (i = 0; i < HOLDS; i++)
		if (hold[i].held)
			rdma_cache_put(cache, &hold[i].ref);
	for (i = 0; i < rdma_fake.nb; i++)
		rdma_fake.mr[i].busy = false;
	{
		const struct rdma_cache_info info = info_of(cache);

		print_message(
			"%u gets, %u without room: %u hits, %u merges, %u evictions, %u gone\n",
			gets, no_space, (unsigned int)info.hits, (unsigned int)info.merges,
			(unsigned int)info.evictions, (unsigned int)info.invalidations);
		assert_int_equal(info.in_use, 0);
		assert_int_equal(info.hits + info.misses, gets);
		assert_true(info.hits && info.merges && info.evictions && info.invalidations);
	}
	finish(cache);
}

/** Expected result of the set, by linear search. */
static bool
any_of(const struct rdma_interval *all, unsigned int n, uint64_t start, uint64_t end, bool whole)
{
	unsigned int i;

	for (i = 0; i < n; i++)
		if (all[i].end &&
			(whole ? all[i].start <= start && all[i].end >= end
			       : all[i].start < end && all[i].end > start))
			return true;
	return false;
}

static void
the_set_against_a_table(void **state)
{
	const char *given = getenv("RDMA_SEED");
	const unsigned int seed = given ? strtoul(given, NULL, 0) : (unsigned int)time(NULL);
	static struct rdma_interval all[120];
	struct rdma_interval_set set = {.random = seed};
	struct rdma_interval *found;
	unsigned int step, used = 0, i;

	print_message("RDMA_SEED=%u\n", seed);
	srand(seed);
	for (step = 0; step < 100000; step++) {
		const uint64_t start = rand() % 500, end = start + 1 + rand() % 60;
		struct rdma_interval *one = &all[rand() % RTE_DIM(all)];

		if (one->end) {
			rdma_interval_remove(&set, one);
			one->end = 0;
			used--;
		} else if (used < step / 500 % RTE_DIM(all)) {
			one->start = start;
			one->end = end;
			rdma_interval_insert(&set, one);
			used++;
		}
		found = rdma_interval_holding(&set, start, end - 1);
		assert_true(!found || (found->start <= start && found->end >= end - 1));
		assert_int_equal(!!found, any_of(all, RTE_DIM(all), start, end - 1, true));
		found = rdma_interval_touching(&set, start, end);
		assert_true(!found || (found->start < end && found->end > start));
		assert_int_equal(!!found, any_of(all, RTE_DIM(all), start, end, false));
		if (step % 50)
			continue;
		/* all, in order */
		found = rdma_interval_next(&set, 0, NULL);
		for (i = 0; found; i++) {
			struct rdma_interval *next = rdma_interval_next(&set, found->start, found);

			assert_true(!next || next->start >= found->start);
			found = next;
		}
		assert_int_equal(i, used);
	}
}

int
main(int argc, char **argv)
{
	static char program[] = "test", no_huge[] = "--no-huge", memory[] = "-m", amount[] = "32",
		    no_pci[] = "--no-pci", no_conf[] = "--no-shconf",
		    no_telemetry[] = "--no-telemetry", quiet[] = "--log-level=braggline.*:critical";
	char *eal[] = {program, no_huge, memory, amount, no_pci, no_conf, no_telemetry, quiet};
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_region_is_registered_once),
		cmocka_unit_test(what_overlaps_becomes_one),
		cmocka_unit_test(what_may_not_be_one_is_registered_alone),
		cmocka_unit_test(neighbours_that_share_pages_do_not_grow),
		cmocka_unit_test(the_longest_unused_makes_room),
		cmocka_unit_test(what_is_in_use_stays),
		cmocka_unit_test(memory_that_goes_is_registered_anew),
		cmocka_unit_test(more_goes_than_can_be_remembered),
		cmocka_unit_test(busy_regions_wait),
		cmocka_unit_test(several_busy_regions_wait),
		cmocka_unit_test(flush_tells_when_it_is_gone),
		cmocka_unit_test(errors_are_told),
		cmocka_unit_test(gpu_memory_is_not_rounded),
		cmocka_unit_test(random_use_against_a_model),
		cmocka_unit_test(the_set_against_a_table),
	};

	if (rte_eal_init(RTE_DIM(eal), eal) < 0)
		return 1;
	dev = rdma_dev_open("fake:");
	pd = dev ? rdma_pd_alloc(dev) : NULL;
	return pd ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
