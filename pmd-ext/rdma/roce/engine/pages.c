/* SPDX-License-Identifier: BSD-3-Clause */
/* Registers pages of external memory with EAL and maps them for ports. */
#include "engine/pages.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/queue.h>
#include <unistd.h>

#include <rte_common.h>
#include <rte_dev.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_memory.h>

#include "rdma_provider.h"

/**
 * A sequence of pages registered together. EAL can only unregister it as a whole. This happens with
 * the last memory region that contains one of its pages.
 */
struct run {
	TAILQ_ENTRY(run) next;
	uintptr_t first, end;
	unsigned int refs;
	bool registered; /**< this file registered the pages; false: the application did */
	bool ports[RTE_MAX_ETHPORTS]; /**< ports for which the pages are mapped */
};

/** Sequences in order of address; they do not overlap. */
static TAILQ_HEAD(runs, run) runs = TAILQ_HEAD_INITIALIZER(runs);

/** The first sequence that contains the page at `first` or starts after it. */
static struct run *
run_at(uintptr_t first)
{
	struct run *run;

	TAILQ_FOREACH(run, &runs, next)
		if (run->end > first)
			return run;
	return NULL;
}

static struct rte_device *
port_device(uint16_t port)
{
	struct rte_eth_dev_info info;

	return rte_eth_dev_info_get(port, &info) == 0 ? info.device : NULL;
}

static void
run_free(struct run *run)
{
	const size_t bytes = run->end - run->first;
	struct rte_device *device;
	uint16_t port;

	for (port = 0; port < RTE_MAX_ETHPORTS; port++) {
		device = run->ports[port] ? port_device(port) : NULL;
		if (device)
			rte_dev_dma_unmap(device, (void *)run->first, run->first, bytes);
	}
	if (run->registered)
		rte_extmem_unregister((void *)run->first, bytes);
	TAILQ_REMOVE(&runs, run, next);
	free(run);
}

/** Register new pages and insert them before a sequence, NULL: at the end. @return 0; -errno */
static int
run_new(uintptr_t first, uintptr_t end, struct run *before)
{
	struct run *run = calloc(1, sizeof(*run));

	if (!run)
		return -ENOMEM;
	run->first = first;
	run->end = end;
	run->registered = rte_extmem_register(
				  (void *)first, end - first, NULL, 0, (size_t)getpagesize()) == 0;
	if (!run->registered && rte_errno != EEXIST) {
		free(run);
		return -rte_errno;
	}
	if (before)
		TAILQ_INSERT_BEFORE(before, run, next);
	else
		TAILQ_INSERT_TAIL(&runs, run, next);
	return 0;
}

static int
run_map(struct run *run, uint16_t port)
{
	struct rte_device *device = port_device(port);

	if (run->ports[port])
		return 0;
	if (!device)
		return -ENODEV;
	if (rte_dev_dma_map(device, (void *)run->first, run->first, run->end - run->first) < 0) {
		/* The driver of a port that needs no mapping does not implement it. */
		if (rte_errno != ENOTSUP)
			return -rte_errno;
		return 0;
	}
	run->ports[port] = true;
	return 0;
}

/** Register and map all pages of [first, end). @return 0; -errno */
static int
cover(uint16_t port, uintptr_t first, uintptr_t end)
{
	uintptr_t at = first;
	struct run *run = run_at(first);
	int ret = 0;

	while (ret == 0 && at < end) {
		if (!run || run->first > at) {
			ret = run_new(at, run ? RTE_MIN(end, run->first) : end, run);
			run = run_at(at);
		} else {
			ret = run_map(run, port);
			at = run->end;
			run = TAILQ_NEXT(run, next);
		}
	}
	return ret;
}

static void
pages(void *addr, uint64_t length, uintptr_t *first, uintptr_t *end)
{
	const size_t page = (size_t)getpagesize();

	*first = RTE_ALIGN_FLOOR((uintptr_t)addr, page);
	*end = RTE_ALIGN_CEIL((uintptr_t)addr + length, page);
}

/** Add n to the references of all sequences in the range; free the ones without references. */
static void
count(uintptr_t first, uintptr_t end, int n)
{
	struct run *run = run_at(first), *next;

	for (; run && run->first < end; run = next) {
		next = TAILQ_NEXT(run, next);
		run->refs += n;
		if (run->refs == 0)
			run_free(run);
	}
}

int
roce_pages_hold(uint16_t port, void *addr, uint64_t length)
{
	const struct run *known;
	uintptr_t first, end;
	int ret;

	pages(addr, length, &first, &end);
	known = run_at(first);
	/* EAL also knows the pages that this file registered: check these first. */
	if (!(known && known->first < end) && rte_mem_virt2memseg_list(addr))
		return 0;
	ret = cover(port, first, end);
	if (ret == 0) {
		count(first, end, 1);
		return 1;
	}
	RDMA_LOG(ERR, "port %u: cannot map %zu bytes at %p: %s", port, (size_t)(end - first),
		(void *)first, rte_strerror(-ret));
	count(first, end, 0);
	return ret == -ENOMEM ? -ENOMEM : -ENOTSUP;
}

void
roce_pages_release(void *addr, uint64_t length)
{
	uintptr_t first, end;

	pages(addr, length, &first, &end);
	count(first, end, -1);
}
