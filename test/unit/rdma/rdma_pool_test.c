/* SPDX-License-Identifier: BSD-3-Clause */
/* Pools of registered memory, and their allocator. RDMA_SEED repeats a random run. */
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

#include "rdma_extent.h"
#include "rdma_fake.h"
#include "rdma_pool.h"

#define MIB (1ull << 20)

static struct rdma_dev *dev;
static struct rdma_pd *pd;

static unsigned int
seed_of(void)
{
	const char *given = getenv("RDMA_SEED");
	unsigned int seed = given ? strtoul(given, NULL, 0) : (unsigned int)time(NULL);

	print_message("RDMA_SEED=%u\n", seed);
	srand(seed);
	return seed;
}

/* ---- extents -------------------------------------------------------------------------------- */

#define SPAN  (64ull * 4096)
#define MOST  200
#define START 0x10000ull

static void
ranges_never_overlap(void **state)
{
	struct rdma_extents *x = rdma_extents_create(MOST, 2);
	static uint8_t taken[2][4096]; /* for each unit of a span */
	struct rdma_extent e[MOST];
	unsigned int n = 0, step, i, no_memory = 0;
	uint32_t span[2];
	uint64_t at;

	seed_of();
	memset(taken, 0, sizeof(taken));
	assert_int_equal(rdma_extents_add(x, START, SPAN, 0, &span[0]), 0);
	assert_int_equal(rdma_extents_add(x, START + 4 * SPAN, SPAN, 1, &span[1]), 0);
	assert_int_equal(rdma_extents_add(x, START + 8 * SPAN, SPAN, 2, &span[0]), -ENOSPC);
	for (step = 0; step < 300000; step++) {
		/* allocations and frees prevail alternately */
		if (n == 0 || rand() % 100 < (step / 1000 % 2 ? 40 : 60)) {
			const uint64_t length = 1 + rand() % (rand() % 8 ? 700 : 60000);
			const uint64_t align = rand() % 4 ? 0 : 1ull << rand() % 14;
			struct rdma_extent got;
			int ret = rdma_extents_alloc(x, length, align, &got);
			uint64_t base;

			if (ret == -ENOSPC) {
				assert_int_equal(n, MOST);
				continue;
			}
			if (ret == -ENOMEM) {
				no_memory++;
				continue;
			}
			assert_int_equal(ret, 0);
			base = START + got.span * 4 * SPAN;
			assert_true(got.length >= length && got.length < length + 64);
			assert_true(got.addr >= base && got.addr + got.length <= base + SPAN);
			assert_int_equal(got.addr % RTE_MAX(align, 64ull), 0);
			for (at = got.addr - base; at < got.addr - base + got.length; at += 64)
				assert_int_equal(taken[got.span][at / 64]++, 0);
			e[n++] = got;
		} else {
			i = rand() % n;
			at = e[i].addr - START - e[i].span * 4 * SPAN;
			memset(&taken[e[i].span][at / 64], 0, e[i].length / 64);
			assert_int_equal(rdma_extents_free(x, e[i].id, e[i].addr + 64), -EINVAL);
			assert_int_equal(rdma_extents_free(x, e[i].id, e[i].addr), 0);
			assert_int_equal(rdma_extents_free(x, e[i].id, e[i].addr), -EINVAL);
			e[i] = e[--n];
		}
	}
	assert_true(no_memory > 0);
	while (n--)
		assert_int_equal(rdma_extents_free(x, e[n].id, e[n].addr), 0);
	/* each span is one free extent again */
	assert_int_equal(rdma_extents_alloc(x, SPAN, 0, &e[0]), 0);
	assert_int_equal(rdma_extents_alloc(x, SPAN, 0, &e[1]), 0);
	assert_int_equal(rdma_extents_alloc(x, 1, 0, &e[2]), -ENOMEM);
	/* a span is removed when none of its ranges is in use, and another takes its place */
	assert_int_equal(rdma_extents_remove(x, span[0]), -EBUSY);
	for (i = 0; i < 2; i++)
		assert_int_equal(rdma_extents_free(x, e[i].id, e[i].addr), 0);
	assert_int_equal(rdma_extents_alloc(x, 1, 0, &e[0]), 0);
	assert_int_equal(rdma_extents_remove(x, span[e[0].span]), -EBUSY);
	assert_int_equal(rdma_extents_remove(x, span[!e[0].span]), 0);
	assert_int_equal(rdma_extents_alloc(x, SPAN, 0, &e[1]), -ENOMEM);
	assert_int_equal(rdma_extents_free(x, e[0].id, e[0].addr), 0);
	assert_int_equal(rdma_extents_remove(x, span[e[0].span]), 0);
	assert_int_equal(rdma_extents_alloc(x, 1, 0, &e[1]), -ENOMEM);
	assert_int_equal(rdma_extents_add(x, START, SPAN, 0, &span[0]), 0);
	assert_int_equal(rdma_extents_add(x, START + 4 * SPAN, SPAN, 1, &span[1]), 0);
	assert_int_equal(rdma_extents_alloc(x, SPAN, 0, &e[0]), 0);
	rdma_extents_destroy(x);
}

static void
invalid_sizes(void **state)
{
	struct rdma_extents *x = rdma_extents_create(4, 1);
	struct rdma_extent e;
	uint32_t span;

	assert_int_equal(rdma_extents_add(x, START, SPAN, 0, &span), 0);
	assert_int_equal(rdma_extents_alloc(x, 0, 0, &e), -ENOMEM);
	assert_int_equal(rdma_extents_alloc(x, SPAN + 1, 0, &e), -ENOMEM);
	assert_int_equal(rdma_extents_alloc(x, UINT64_MAX, 0, &e), -ENOMEM);
	assert_int_equal(rdma_extents_alloc(x, 1, 1ull << 63, &e), -ENOMEM);
	assert_int_equal(rdma_extents_free(x, 0, START), -EINVAL);
	assert_int_equal(rdma_extents_free(x, 1000, START), -EINVAL);
	rdma_extents_destroy(x);
}

/* ---- pools ---------------------------------------------------------------------------------- */

static void
few_regions_hold_all_buffers(void **state)
{
	const struct rdma_pool_attr attr = {.bytes = 64 * MIB, .region_bytes = 24 * MIB};
	struct rdma_pool *pool;
	struct rdma_pool_info info;
	struct rdma_registrations before, after;
	struct rdma_buffer buffer[4096];
	unsigned int i, n;

	rdma_fake_reset();
	rdma_registrations_get(dev, &before);
	pool = rdma_pool_create(pd, &attr);
	assert_non_null(pool);
	assert_int_equal(rdma_fake.live, 3);
	rdma_pool_info_get(pool, &info);
	assert_int_equal(info.nb_regions, 3);
	assert_true(info.bytes >= 64 * MIB && info.bytes <= 70 * MIB);
	assert_int_equal(info.bytes, rdma_fake.live_bytes);
	for (n = 0; n < RTE_DIM(buffer); n++) {
		const struct rdma_fake_mr *mr;

		if (rdma_pool_alloc(pool, 60000 + n, 0, &buffer[n]) < 0)
			break;
		mr = &rdma_fake.mr[buffer[n].lkey];
		assert_in_range((uintptr_t)buffer[n].addr, (uintptr_t)mr->attr.addr,
			(uintptr_t)mr->attr.addr + mr->attr.length - buffer[n].length);
		assert_int_equal(buffer[n].rkey, buffer[n].lkey + 1000);
		memset(buffer[n].addr, n, buffer[n].length);
	}
	assert_true(n > 900 && n < 1200);
	for (i = 0; i < n; i++) {
		const uint8_t *byte = buffer[i].addr;

		assert_int_equal(byte[0], i & 0xff);
		assert_int_equal(byte[buffer[i].length - 1], i & 0xff);
	}
	assert_int_equal(rdma_fake.nb, 3); /* none of them added a registration */
	rdma_registrations_get(dev, &after);
	assert_int_equal(after.regions - before.regions, 3);
	assert_int_equal(after.bytes - before.bytes, info.bytes);
	assert_int_equal(after.ns - before.ns, info.register_ns);
	rdma_pool_info_get(pool, &info);
	assert_int_equal(info.used_buffers, n);
	assert_int_equal(info.alloc_failures, 1);
	assert_int_equal(rdma_pool_destroy(pool), -EBUSY);
	for (i = 0; i < n; i++)
		assert_int_equal(rdma_pool_free(pool, &buffer[i]), 0);
	assert_int_equal(rdma_pool_free(pool, &buffer[0]), -EINVAL);
	rdma_pool_info_get(pool, &info);
	assert_int_equal(info.used_buffers, 0);
	assert_int_equal(info.used_bytes, 0);
	assert_int_equal(info.used_buffers_peak, n);
	assert_int_equal(rdma_pool_destroy(pool), 0);
	assert_int_equal(rdma_fake.live, 0);
}

static void
regions_fit_the_device(void **state)
{
	const struct rdma_pool_attr attr = {.bytes = 30 * MIB, .kind = RDMA_PAGES_SMALL};
	struct rdma_pool *pool;
	struct rdma_pool_info info;

	rdma_fake_reset();
	rdma_fake.max_mr_bytes = 8 * MIB;
	pool = rdma_pool_create(pd, &attr);
	assert_non_null(pool);
	rdma_pool_info_get(pool, &info);
	assert_int_equal(info.nb_regions, 4);
	assert_int_equal(info.kind, RDMA_PAGES_SMALL);
	assert_int_equal(rdma_pool_destroy(pool), 0);
}

static void
many_regions_are_registered_at_once(void **state)
{
	const struct rdma_pool_attr attr = {
		.bytes = 128 * MIB, .region_bytes = 2 * MIB, .threads = 4};
	struct rdma_pool *pool;

	rdma_fake_reset();
	pool = rdma_pool_create(pd, &attr);
	assert_non_null(pool);
	assert_int_equal(rdma_fake.live, 64);
	assert_int_equal(rdma_pool_destroy(pool), 0);
	assert_int_equal(rdma_fake.live, 0);
}

static void
failed_creation_leaves_nothing(void **state)
{
	struct rdma_pool_attr attr = {0};

	rdma_fake_reset();
	assert_null(rdma_pool_create(pd, &attr));
	assert_int_equal(rte_errno, EINVAL);
	attr.bytes = 1ull << 61;
	assert_null(rdma_pool_create(pd, &attr));
	attr.bytes = 8 * MIB;
	attr.region_bytes = 2 * MIB;
	rdma_fake.fail = EPERM;
	assert_null(rdma_pool_create(pd, &attr));
	assert_int_equal(rte_errno, EPERM);
	assert_int_equal(rdma_fake.live, 0);
}

static void
a_busy_region_keeps_the_pool(void **state)
{
	const struct rdma_pool_attr attr = {.bytes = 4 * MIB, .region_bytes = 2 * MIB};
	struct rdma_pool_info info;
	struct rdma_buffer buffer;
	struct rdma_pool *pool;

	rdma_fake_reset();
	pool = rdma_pool_create(pd, &attr);
	assert_non_null(pool);
	rdma_fake.mr[1].busy = true;
	assert_int_equal(rdma_pool_destroy(pool), -EBUSY);
	/* the first region is freed: buffers come from the second one only */
	rdma_pool_info_get(pool, &info);
	assert_int_equal(info.bytes, rdma_fake.live_bytes);
	assert_int_equal(rdma_pool_alloc(pool, info.bytes, 0, &buffer), 0);
	memset(buffer.addr, 0, info.bytes);
	assert_int_equal(rdma_pool_alloc(pool, 64, 0, &buffer), -ENOMEM);
	assert_int_equal(rdma_pool_free(pool, &buffer), 0);
	rdma_fake.mr[1].busy = false;
	assert_int_equal(rdma_pool_destroy(pool), 0);
	assert_int_equal(rdma_fake.live, 0);
}

int
main(int argc, char **argv)
{
	static char program[] = "test", no_huge[] = "--no-huge", memory[] = "-m", amount[] = "32",
		    no_pci[] = "--no-pci", no_conf[] = "--no-shconf",
		    no_telemetry[] = "--no-telemetry", quiet[] = "--log-level=braggline.*:critical";
	char *eal[] = {program, no_huge, memory, amount, no_pci, no_conf, no_telemetry, quiet};
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ranges_never_overlap),
		cmocka_unit_test(invalid_sizes),
		cmocka_unit_test(few_regions_hold_all_buffers),
		cmocka_unit_test(regions_fit_the_device),
		cmocka_unit_test(many_regions_are_registered_at_once),
		cmocka_unit_test(failed_creation_leaves_nothing),
		cmocka_unit_test(a_busy_region_keeps_the_pool),
	};

	if (rte_eal_init(RTE_DIM(eal), eal) < 0)
		return 1;
	dev = rdma_dev_open("fake:");
	pd = dev ? rdma_pd_alloc(dev) : NULL;
	return pd ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
