/* SPDX-License-Identifier: BSD-3-Clause */
/* Pages that several registrations share. The port has a fake bus that counts its mappings. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>
#include <errno.h>

#include <bus_driver.h>
#include <dev_driver.h>
#include <ethdev_driver.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_eth_ring.h>
#include <rte_memory.h>
#include <rte_ring.h>

#include "engine/pages.h"

#define PAGES 8

static unsigned int maps[2][PAGES]; /* of each port, for each page */
static unsigned int refuse_at = PAGES;
static size_t page;
static uint8_t *memory;
static uint16_t port[2];

static int fake_map(struct rte_device *dev, void *addr, uint64_t iova, size_t length);
static int fake_unmap(struct rte_device *dev, void *addr, uint64_t iova, size_t length);

static struct rte_bus bus = {.name = "fake", .dma_map = fake_map, .dma_unmap = fake_unmap};
static const struct rte_driver driver = {.name = "fake"};
static struct rte_device devices[2] = {
	{.bus = &bus, .driver = &driver}, {.bus = &bus, .driver = &driver}};

static int
fake_map(struct rte_device *dev, void *addr, uint64_t iova, size_t length)
{
	const size_t first = ((uint8_t *)addr - memory) / page;
	size_t i;

	assert_int_equal(iova, (uintptr_t)addr);
	if (first <= refuse_at && refuse_at < first + length / page) {
		rte_errno = EPERM;
		return -1;
	}
	for (i = 0; i < length / page; i++)
		assert_int_equal(maps[dev - devices][first + i]++, 0);
	return 0;
}

static int
fake_unmap(struct rte_device *dev, void *addr, uint64_t iova, size_t length)
{
	const size_t first = ((uint8_t *)addr - memory) / page;
	size_t i;

	for (i = 0; i < length / page; i++)
		assert_int_equal(maps[dev - devices][first + i]--, 1);
	return 0;
}

/* Pages that a port has mapped, and that EAL has registered, as text: "##.." */
static void
assert_pages(unsigned int p, const char *wanted)
{
	for (unsigned int i = 0; i < PAGES && wanted[i]; i++) {
		if (maps[p][i] != (wanted[i] == '#'))
			fail_msg("page %u: %u maps, expected %s", i, maps[p][i], wanted);
		if (wanted[i] == '#')
			assert_non_null(rte_mem_virt2memseg_list(memory + i * page));
	}
}

static void
test_shared(void **state)
{
	uint8_t *a = memory + 100, *b = memory + page + 200, *c = memory + 2 * page + 5;

	/* pages 0 and 1; 1 to 4; a part of 2, twice */
	assert_int_equal(roce_pages_hold(port[0], a, page), 1);
	assert_pages(0, "##......");
	assert_int_equal(roce_pages_hold(port[0], b, 3 * page), 1);
	assert_pages(0, "#####...");
	assert_int_equal(roce_pages_hold(port[0], c, 10), 1);
	assert_int_equal(roce_pages_hold(port[0], c, 10), 1);
	/* pages of b must stay mapped when a is released, in any order of registration */
	roce_pages_release(a, page);
	assert_pages(0, "#####...");
	roce_pages_release(b, 3 * page);
	assert_pages(0, "..###...");
	assert_null(rte_mem_virt2memseg_list(memory));
	roce_pages_release(c, 10);
	assert_pages(0, "..###...");
	roce_pages_release(c, 10);
	assert_pages(0, "........");
	assert_null(rte_mem_virt2memseg_list(memory + 2 * page));
}

/* Gaps between mapped pages are mapped, and no other pages. */
static void
test_holes(void **state)
{
	assert_int_equal(roce_pages_hold(port[0], memory + page, page), 1);
	assert_int_equal(roce_pages_hold(port[0], memory + 4 * page, page), 1);
	assert_pages(0, ".#..#...");
	assert_int_equal(roce_pages_hold(port[0], memory, 7 * page), 1);
	assert_pages(0, "#######.");
	roce_pages_release(memory + page, page);
	roce_pages_release(memory + 4 * page, page);
	assert_pages(0, "#######.");
	roce_pages_release(memory, 7 * page);
	assert_pages(0, "........");
}

static void
test_two_ports(void **state)
{
	assert_int_equal(roce_pages_hold(port[0], memory, 2 * page), 1);
	assert_int_equal(roce_pages_hold(port[1], memory + page, 2 * page), 1);
	assert_pages(0, "##......");
	assert_pages(1, "###.....");
	roce_pages_release(memory, 2 * page);
	assert_pages(1, "###.....");
	roce_pages_release(memory + page, 2 * page);
	assert_pages(0, "........");
	assert_pages(1, "........");
}

/* A failed mapping leaves no pages mapped, and unmaps none. */
static void
test_refused(void **state)
{
	assert_int_equal(roce_pages_hold(port[0], memory, page), 1);
	refuse_at = 3;
	assert_int_equal(roce_pages_hold(port[0], memory, 4 * page), -ENOTSUP);
	assert_pages(0, "#.......");
	assert_null(rte_mem_virt2memseg_list(memory + page));
	refuse_at = PAGES;
	assert_int_equal(roce_pages_hold(port[0], memory, 4 * page), 1);
	roce_pages_release(memory, page);
	assert_pages(0, "####....");
	roce_pages_release(memory, 4 * page);
	assert_pages(0, "........");
}

static void
test_known(void **state)
{
	/* the application has registered it: it stays registered */
	assert_int_equal(rte_extmem_register(memory, 2 * page, NULL, 0, page), 0);
	assert_int_equal(roce_pages_hold(port[0], memory, page), 0);
	assert_pages(0, "........");
	assert_int_equal(rte_extmem_unregister(memory, 2 * page), 0);
}

static int
setup(void **state)
{
	struct rte_ring *ring;
	char name[] = "pages0";

	page = (size_t)getpagesize();
	memory = mmap(
		NULL, PAGES * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(memory != MAP_FAILED);
	for (unsigned int i = 0; i < 2; i++) {
		int made;

		name[5] = (char)('0' + i);
		ring = rte_ring_create(name, 64, 0, 0);
		made = rte_eth_from_rings(name, &ring, 1, &ring, 1, 0);
		assert_true(made >= 0);
		port[i] = (uint16_t)made;
		rte_eth_devices[made].device = &devices[i];
	}
	return 0;
}

int
main(void)
{
	const char *argv[] = {"pages", "--no-huge", "-m", "64", "--no-pci", "--no-shconf", "-l",
		"0", "--log-level", "braggline.rdma:emerg"};
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shared),
		cmocka_unit_test(test_holes),
		cmocka_unit_test(test_two_ports),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_known),
	};

	if (rte_eal_init(RTE_DIM(argv), (char **)(uintptr_t)argv) < 0)
		return 1;
	return cmocka_run_group_tests(tests, setup, NULL);
}
