/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The cost of memory registration compared with the transfer: each block is registered for its
 * transfer, or taken from the pool; 1 to 40,000 blocks of the same total size (NIXL, issue 1074).
 *
 *     rdma_mr_bench [DEVICE [MIB [ROUNDS]]]
 *
 * DEVICE is a device of rdma_dev_open(), or pin: (default), which only pins pages. MIB is the total
 * size of all blocks, by default 8192 or a third of the free memory. In the first case blocks are
 * ordinary memory that was written before, as by the producer of the data; the pool has its own
 * memory.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_errno.h>

#include "rdma_pool.h"

#define GIB	     (1 << 30)
#define WIRE_NS_BYTE (8 / 100.0) /* 100 Gb/s */
#define PAPER_SHARE  65		 /* per cent of the time, NIXL issue 1074 */

static struct rdma_dev *dev;
static struct rdma_pd *pd;
static struct rdma_dev_info info;
static const uint32_t all_access = RDMA_ACCESS_LOCAL_WRITE | RDMA_ACCESS_REMOTE_WRITE |
	RDMA_ACCESS_REMOTE_READ | RDMA_ACCESS_REMOTE_ATOMIC;

/** A case and its results. */
struct result {
	uint64_t bytes;
	unsigned int registrations;
	double first_ns;    /**< time until the first block can be transferred */
	double once_ns;	    /**< registrations in the first round */
	double repeated_ns; /**< mean of the other rounds */
	double hit_rate;    /**< over all rounds; 1: no registration */
};

static double
now_ns(void)
{
	return (double)rte_get_tsc_cycles() / rte_get_tsc_hz() * 1e9;
}

static void
die(const char *what)
{
	printf("%s: %s\n", what, rte_strerror(rte_errno));
	exit(1);
}

static uint8_t *
ordinary(uint64_t bytes)
{
	uint8_t *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (memory == MAP_FAILED)
		die("mmap");
	return memory;
}

static void
write_to(uint8_t *memory, uint64_t bytes)
{
	uint64_t at;

	for (at = 0; at < bytes; at += 4096)
		memory[at] = 1;
}

static struct rdma_mr *
reg(void *addr, uint64_t length)
{
	const struct rdma_mr_attr attr = {
		.addr = addr, .length = length, .access = all_access, .gpu = -1};
	struct rdma_mr *mr = rdma_mr_reg(pd, &attr);

	if (!mr)
		die("registration");
	return mr;
}

/** A block may exceed one region. @return number of registrations */
static unsigned int
reg_slices(uint8_t *addr, uint64_t length, struct rdma_mr **mr)
{
	unsigned int n = 0;
	uint64_t at;

	for (at = 0; at < length; at += info.max_mr_bytes)
		mr[n++] = reg(addr + at, RTE_MIN(length - at, info.max_mr_bytes));
	return n;
}

/* ---- two methods -------------------------------------------------------------------------- */

static void
each_for_its_transfer(struct result *r, unsigned int blocks, uint64_t block, unsigned int rounds)
{
	uint8_t *memory = ordinary(r->bytes);
	struct rdma_mr *mr[64];
	unsigned int round, b, i, n;
	double began = now_ns(), took;

	n = reg_slices(memory, block, mr);
	r->first_ns = now_ns() - began;
	for (i = 0; i < n; i++)
		rdma_mr_dereg(mr[i]);
	write_to(memory, r->bytes);
	for (round = 0; round < rounds; round++) {
		began = now_ns();
		for (b = 0; b < blocks; b++) {
			n = reg_slices(memory + b * block, block, mr);
			r->registrations += n;
			for (i = 0; i < n; i++)
				rdma_mr_dereg(mr[i]);
		}
		took = now_ns() - began;
		if (round == 0)
			r->once_ns = took;
		else
			r->repeated_ns += took / (rounds - 1);
	}
	munmap(memory, r->bytes);
}

static void
out_of_the_pool(struct result *r, unsigned int blocks, uint64_t block, unsigned int rounds)
{
	/* a large block is split into slices, and each region has room for its remainder */
	const uint64_t slice = RTE_MIN(block, UINT64_C(64) << 20);
	const struct rdma_pool_attr attr = {.bytes = r->bytes + r->bytes / 8 + 2 * slice,
		.access = all_access,
		.numa_node = -1};
	struct rdma_buffer *buffer = calloc(blocks + r->bytes / slice + 1, sizeof(*buffer));
	struct rdma_pool_info did;
	struct rdma_pool *pool;
	unsigned int round, b, n = 0;
	uint64_t at;
	double began = now_ns(), took;

	pool = rdma_pool_create(pd, &attr);
	if (!pool || !buffer)
		die("pool");
	if (rdma_pool_alloc(pool, slice, 0, &buffer[0]) < 0)
		die("pool");
	rdma_pool_free(pool, &buffer[0]);
	r->first_ns = now_ns() - began;
	rdma_pool_info_get(pool, &did);
	r->registrations = did.nb_regions;
	r->hit_rate = 1;
	for (round = 0; round < rounds; round++) {
		began = now_ns();
		for (n = 0, b = 0; b < blocks; b++)
			for (at = 0; at < block; at += slice)
				if (rdma_pool_alloc(
					    pool, RTE_MIN(slice, block - at), 0, &buffer[n++]) < 0)
					die("pool");
		for (b = 0; b < n; b++)
			rdma_pool_free(pool, &buffer[b]);
		took = now_ns() - began;
		if (round == 0)
			r->once_ns = took;
		else
			r->repeated_ns += took / (rounds - 1);
	}
	rdma_pool_destroy(pool);
	free(buffer);
}

/* ---- tables --------------------------------------------------------------------------------- */

static double
share(const struct result *r, double ns)
{
	return 100 * ns / (ns + r->bytes * WIRE_NS_BYTE);
}

static void
table(uint64_t bytes, unsigned int rounds)
{
	static const struct {
		const char *name;
		void (*run)(struct result *, unsigned int, uint64_t, unsigned int);
	} way[] = {{"each transfer", each_for_its_transfer}, {"pool", out_of_the_pool}};
	static const unsigned int count[] = {1, 64, 2048, 40000};
	unsigned int c, w;

	printf("\n%u MiB by %s, %u rounds; 100 Gb/s: %.0f ms a round; paper: %u %%\n",
		(unsigned int)(bytes >> 20), info.name, rounds, bytes * WIRE_NS_BYTE / 1e6,
		PAPER_SHARE);
	printf("%6s %-13s %13s %6s %10s %13s %6s %13s %6s\n", "blocks", "way", "registrations",
		"hits %", "first ms", "once us/GiB", "share", "again us/GiB", "share");
	for (c = 0; c < RTE_DIM(count); c++)
		for (w = 0; w < RTE_DIM(way); w++) {
			const uint64_t block = bytes / count[c];
			struct result r = {.bytes = block * count[c]};
			const double gib = (double)r.bytes / GIB;

			way[w].run(&r, count[c], block, rounds);
			printf("%6u %-13s %13u %6.1f %10.3f %13.1f %4.1f %% %13.1f %4.1f %%\n",
				count[c], way[w].name, r.registrations, 100 * r.hit_rate,
				r.first_ns / 1e6, r.once_ns / 1e3 / gib, share(&r, r.once_ns),
				r.repeated_ns / 1e3 / gib, share(&r, r.repeated_ns));
			fflush(stdout);
		}
}

/** Cost of a registration for each kind of page, best of 4. */
static void
pages_table(uint64_t bytes)
{
	static const struct {
		const char *name;
		enum rdma_pages_kind kind;
		bool cold;
	} row[] = {{"4 KiB, cold", RDMA_PAGES_SMALL, true},
		{"4 KiB, there", RDMA_PAGES_SMALL, false},
		{"transparent huge, cold", RDMA_PAGES_TRANSPARENT, true},
		{"transparent huge, there", RDMA_PAGES_TRANSPARENT, false},
		{"hugetlb, there", RDMA_PAGES_HUGETLB, false}};
	unsigned int i, try;

	bytes = RTE_MIN(bytes, RTE_MIN(info.max_mr_bytes, (uint64_t)GIB));
	printf("\n%-24s %14s %14s\n", "pages", "register ms/GiB", "end ms/GiB");
	for (i = 0; i < RTE_DIM(row); i++) {
		double best[2] = {1e99, 1e99};

		for (try = 0; try < 4; try++) {
			enum rdma_pages_kind kind = row[i].kind;
			uint64_t length = bytes;
			void *memory = rdma_pages_map(&length, -1, &kind);
			struct rdma_mr *mr;
			double time[3];

			if (!memory)
				die("memory");
			if (kind == row[i].kind) {
				if (!row[i].cold && rdma_pages_prefault(memory, length, 0) < 0)
					die("memory");
				time[0] = now_ns();
				mr = reg(memory, bytes);
				time[1] = now_ns();
				rdma_mr_dereg(mr);
				time[2] = now_ns();
				best[0] = RTE_MIN(best[0], time[1] - time[0]);
				best[1] = RTE_MIN(best[1], time[2] - time[1]);
			}
			rdma_pages_unmap(memory, length);
		}
		if (best[0] < 1e99)
			printf("%-24s %14.3f %14.3f\n", row[i].name, best[0] / 1e6 * GIB / bytes,
				best[1] / 1e6 * GIB / bytes);
		else
			printf("%-24s %14s %14s\n", row[i].name, "none here", "");
	}
}

int
main(int argc, char **argv)
{
	static char program[] = "bench", no_huge[] = "--no-huge", memory[] = "-m", amount[] = "32",
		    no_pci[] = "--no-pci", no_conf[] = "--no-shconf",
		    no_telemetry[] = "--no-telemetry";
	char *eal[] = {program, no_huge, memory, amount, no_pci, no_conf, no_telemetry};
	unsigned int rounds = argc > 3 ? strtoul(argv[3], NULL, 0) : 5;
	struct sysinfo host;
	uint64_t bytes;

	if (rte_eal_init(RTE_DIM(eal), eal) < 0)
		return 1;
	sysinfo(&host);
	bytes = RTE_MIN(UINT64_C(8192) << 20, (uint64_t)host.freeram * host.mem_unit / 3);
	if (argc > 2)
		bytes = strtoull(argv[2], NULL, 0) << 20;
	dev = rdma_dev_open(argc > 1 ? argv[1] : "pin:");
	if (!dev) {
		printf("skipped: no device %s\n", argc > 1 ? argv[1] : "pin:");
		return 77;
	}
	rdma_dev_info_get(dev, &info);
	pd = rdma_pd_alloc(dev);
	if (!pd || rounds < 2)
		return 1;
	pages_table(bytes);
	table(bytes, rounds);
	rdma_pd_free(pd);
	rdma_dev_close(dev);
	return 0;
}
