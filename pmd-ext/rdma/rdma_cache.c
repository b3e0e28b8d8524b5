/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The registration cache. An entry is in one of three states: in the set and in the list of unused
 * entries; in the set and in use; or not in the set and in the list of leaving entries. An entry
 * leaves when its memory is invalidated, when it is evicted, or when a larger entry replaces it.
 * It is deregistered as soon as it has no references.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include <rte_cycles.h>
#include <rte_errno.h>
#include <rte_memory.h>
#include <rte_spinlock.h>

#include "rdma_cache.h"
#include "rdma_interval.h"
#include "rdma_provider.h"

/* A registration pins whole pages of at least this size. */
#define PAGE UINT64_C(4096)

/* Most invalidated ranges that wait for the control lcore. If there are more, all entries are
 * invalidated. */
#define GONE_MAX 1024

struct rdma_cache_entry {
	struct rdma_interval interval; /**< must be first, see entry_of() */
	TAILQ_ENTRY(rdma_cache_entry) next;
	struct rdma_mr *mr;
	uint32_t references;
	int16_t gpu;
	bool leaving; /**< not in the set */
	bool gone;    /**< its memory was invalidated */
};

TAILQ_HEAD(entries, rdma_cache_entry);

struct gone {
	uint64_t start, end;
};

struct rdma_cache {
	struct rdma_pd *pd;
	struct rdma_cache_attr attr;
	uint64_t mr_bytes_max;
	struct rdma_interval_set set;
	struct entries unused;	/**< in the set, least recently used first */
	struct entries leaving; /**< not in the set */
	struct rdma_cache_info info;

	rte_spinlock_t lock; /**< protects the members below, which any thread may write */
	uint32_t nb_gone;
	bool all_gone;
	struct gone gone[GONE_MAX];
};

static uint64_t
since_ns(uint64_t tsc)
{
	return (uint64_t)((double)(rte_get_tsc_cycles() - tsc) / rte_get_tsc_hz() * 1e9);
}

/* ---- entries -------------------------------------------------------------------------------- */

/** Deregister and free a leaving entry. @return 0; -EBUSY: not possible yet */
static int
entry_end(struct rdma_cache *cache, struct rdma_cache_entry *entry)
{
	const uint64_t length = entry->interval.end - entry->interval.start;
	const uint64_t began = rte_get_tsc_cycles();
	int ret = rdma_mr_dereg(entry->mr);

	cache->info.deregistered_ns += since_ns(began);
	if (ret < 0) {
		cache->info.deregistrations_busy++;
		return ret;
	}
	TAILQ_REMOVE(&cache->leaving, entry, next);
	cache->info.deregistrations++;
	cache->info.bytes -= length;
	cache->info.entries--;
	free(entry);
	return 0;
}

/** Move an entry from the set to the leaving entries. */
static void
entry_leave(struct rdma_cache *cache, struct rdma_cache_entry *entry)
{
	rdma_interval_remove(&cache->set, &entry->interval);
	if (entry->references == 0)
		TAILQ_REMOVE(&cache->unused, entry, next);
	entry->leaving = true;
	TAILQ_INSERT_TAIL(&cache->leaving, entry, next);
}

/** Deregister the leaving entries that are not in use. */
static void
sweep(struct rdma_cache *cache)
{
	struct rdma_cache_entry *entry, *after;

	for (entry = TAILQ_FIRST(&cache->leaving); entry; entry = after) {
		after = TAILQ_NEXT(entry, next);
		if (entry->references == 0)
			entry_end(cache, entry);
	}
}

/** The entry that contains an interval, which is its first member. */
static struct rdma_cache_entry *
entry_of(struct rdma_interval *interval)
{
	return (struct rdma_cache_entry *)interval;
}

static void
leave_between(struct rdma_cache *cache, uint64_t start, uint64_t end, uint64_t *counter)
{
	struct rdma_cache_entry *entry;

	while ((entry = entry_of(rdma_interval_touching(&cache->set, start, end))) != NULL) {
		entry_leave(cache, entry);
		(*counter)++;
	}
}

/** Invalidate a range, also in entries that are already leaving. */
static void
go(struct rdma_cache *cache, uint64_t start, uint64_t end)
{
	struct rdma_cache_entry *entry;

	leave_between(cache, start, end, &cache->info.invalidations);
	TAILQ_FOREACH(entry, &cache->leaving, next)
		if (entry->interval.start < end && start < entry->interval.end)
			entry->gone = true;
}

/** Process the ranges that other threads invalidated. */
static void
take_gone(struct rdma_cache *cache)
{
	uint32_t i;

	if (!__atomic_load_n(&cache->nb_gone, __ATOMIC_ACQUIRE))
		return;
	rte_spinlock_lock(&cache->lock);
	if (cache->all_gone)
		go(cache, 0, UINT64_MAX);
	for (i = 0; i < cache->nb_gone; i++)
		go(cache, cache->gone[i].start, cache->gone[i].end);
	cache->all_gone = false;
	__atomic_store_n(&cache->nb_gone, 0, __ATOMIC_RELEASE);
	rte_spinlock_unlock(&cache->lock);
	sweep(cache);
}

/* ---- room ----------------------------------------------------------------------------------- */

static bool
has_room(const struct rdma_cache *cache, uint64_t bytes)
{
	return cache->info.entries < cache->attr.entries_max &&
		cache->info.bytes + bytes <= cache->attr.bytes_max;
}

/** Evict the least recently used entries until there is room. @return 0; -ENOSPC: all are in use */
static int
make_room(struct rdma_cache *cache, uint64_t bytes)
{
	struct rdma_cache_entry *entry;

	if (!has_room(cache, bytes))
		sweep(cache);
	while (!has_room(cache, bytes)) {
		entry = TAILQ_FIRST(&cache->unused);
		if (!entry)
			return -ENOSPC;
		entry_leave(cache, entry);
		cache->info.evictions++;
		entry_end(cache, entry);
	}
	return 0;
}

/* ---- registration --------------------------------------------------------------------------- */

/** Register memory and add an entry to the set. */
static int
entry_add(struct rdma_cache *cache, uint64_t start, uint64_t end, int16_t gpu,
	struct rdma_cache_entry **out)
{
	const struct rdma_mr_attr attr = {
		.addr = (void *)(uintptr_t)start,
		.length = end - start,
		.access = cache->attr.access,
		.gpu = gpu,
	};
	struct rdma_cache_info *info = &cache->info;
	struct rdma_cache_entry *entry;
	uint64_t began;
	int ret = make_room(cache, end - start);

	if (ret < 0)
		return ret;
	entry = calloc(1, sizeof(*entry));
	if (!entry)
		return -ENOMEM;
	began = rte_get_tsc_cycles();
	entry->mr = rdma_mr_reg(cache->pd, &attr);
	info->registered_ns += since_ns(began);
	if (!entry->mr) {
		ret = -rte_errno;
		free(entry);
		return ret;
	}
	entry->gpu = gpu;
	entry->interval.start = start;
	entry->interval.end = end;
	rdma_interval_insert(&cache->set, &entry->interval);
	TAILQ_INSERT_TAIL(&cache->unused, entry, next);
	info->registrations++;
	info->bytes += end - start;
	info->entries++;
	info->bytes_peak = RTE_MAX(info->bytes_peak, info->bytes);
	info->entries_peak = RTE_MAX(info->entries_peak, info->entries);
	*out = entry;
	return 0;
}

/**
 * Extend a range by the entries that it overlaps with, up to twice its length. Without this limit,
 * neighbouring buffers that share a page would grow into one region, which would be registered
 * again for each buffer.
 *
 * @return true: the range was extended
 */
static bool
widen(const struct rdma_cache *cache, uint64_t *start, uint64_t *end)
{
	const uint64_t most =
		RTE_MIN(RTE_MIN(cache->mr_bytes_max, cache->attr.bytes_max), 2 * (*end - *start));
	const struct rdma_interval *at;
	bool wider = false;

	/* Only at its ends. Entries inside the range are replaced without an extension. */
	at = rdma_interval_touching(&cache->set, *start, *start + 1);
	if (at && *end - at->start <= most) {
		wider = at->start < *start;
		*start = RTE_MIN(*start, at->start);
	}
	at = rdma_interval_touching(&cache->set, *end - 1, *end);
	if (at && at->end - *start <= most) {
		wider = wider || at->end > *end;
		*end = RTE_MAX(*end, at->end);
	}
	return wider;
}

/** Remove the entries inside the range of a new one, which replaces them. */
static void
swallow(struct rdma_cache *cache, const struct rdma_cache_entry *by)
{
	struct rdma_interval *at, *after;
	bool any = false;

	at = rdma_interval_next(&cache->set, by->interval.start, NULL);
	for (; at && at->start < by->interval.end; at = after) {
		after = rdma_interval_next(&cache->set, at->start, at);
		if (at == &by->interval || at->end > by->interval.end)
			continue;
		entry_leave(cache, entry_of(at));
		any = true;
	}
	if (any) {
		cache->info.merges++;
		sweep(cache);
	}
}

/** Register a range that no entry contains, together with overlapping entries if possible. */
static int
enter(struct rdma_cache *cache, uint64_t start, uint64_t end, int16_t gpu,
	struct rdma_cache_entry **entry)
{
	uint64_t first = start, last = end;
	int ret = -EAGAIN;

	/* The extended registration may fail, because an older entry's memory may be unmapped
	 * without notice. Then register only the range itself. */
	if (gpu < 0 && widen(cache, &first, &last))
		ret = entry_add(cache, first, last, gpu, entry);
	if (ret < 0)
		ret = entry_add(cache, start, end, gpu, entry);
	if (ret == 0)
		swallow(cache, *entry);
	return ret;
}

int
rdma_cache_get(struct rdma_cache *cache, const void *addr, uint64_t length, int16_t gpu,
	struct rdma_cache_ref *ref)
{
	/* A dma-buf of a GPU covers an allocation, not pages (gpu_cuda_dmabuf_export()). */
	const uint64_t page = gpu < 0 ? PAGE : 1;
	const uint64_t from = (uintptr_t)addr, to = from + length;
	struct rdma_cache_entry *entry;
	int ret;

	take_gone(cache);
	if (length == 0 || to < from) {
		cache->info.failures++;
		return -EINVAL;
	}
	entry = entry_of(rdma_interval_holding(&cache->set, from, to));
	if (entry && entry->gpu == gpu) {
		cache->info.hits++;
	} else {
		/* Same address on another device: the old memory was freed without notice. */
		if (entry)
			leave_between(cache, from, to, &cache->info.invalidations);
		cache->info.misses++;
		ret = enter(
			cache, RTE_ALIGN_FLOOR(from, page), RTE_ALIGN_CEIL(to, page), gpu, &entry);
		if (ret < 0) {
			cache->info.failures++;
			return ret;
		}
	}
	if (entry->references++ == 0) {
		TAILQ_REMOVE(&cache->unused, entry, next);
		cache->info.in_use++;
	}
	*ref = (struct rdma_cache_ref){entry->mr->lkey, entry->mr->rkey, entry};
	return 0;
}

void
rdma_cache_put(struct rdma_cache *cache, struct rdma_cache_ref *ref)
{
	struct rdma_cache_entry *entry = ref->entry;

	ref->entry = NULL;
	if (--entry->references == 0) {
		cache->info.in_use--;
		if (!entry->leaving)
			TAILQ_INSERT_TAIL(&cache->unused, entry, next);
		else
			sweep(cache);
	}
	take_gone(cache);
}

void
rdma_cache_invalidate(struct rdma_cache *cache, const void *addr, uint64_t length)
{
	const uint64_t start = (uintptr_t)addr;

	if (length == 0)
		return;
	rte_spinlock_lock(&cache->lock);
	if (cache->nb_gone == GONE_MAX) {
		cache->all_gone = true;
	} else {
		cache->gone[cache->nb_gone].start = start;
		cache->gone[cache->nb_gone].end =
			start + length < start ? UINT64_MAX : start + length;
		__atomic_store_n(&cache->nb_gone, cache->nb_gone + 1, __ATOMIC_RELEASE);
	}
	rte_spinlock_unlock(&cache->lock);
}

int
rdma_cache_flush(struct rdma_cache *cache)
{
	struct rdma_cache_entry *entry;

	take_gone(cache);
	sweep(cache);
	TAILQ_FOREACH(entry, &cache->leaving, next)
		if (entry->gone)
			return -EBUSY;
	return 0;
}

int
rdma_cache_info_get(const struct rdma_cache *cache, struct rdma_cache_info *info)
{
	*info = cache->info;
	return 0;
}

/* ---- creation and destruction --------------------------------------------------------------- */

/** Memory event callback: invalidate memory that EAL frees. */
static void
on_memory(enum rte_mem_event type, const void *addr, size_t length, void *arg)
{
	if (type == RTE_MEM_EVENT_FREE)
		rdma_cache_invalidate(arg, addr, length);
}

static void
callback_name(const struct rdma_cache *cache, char *name, size_t size)
{
	snprintf(name, size, "rdma_cache_%p", (const void *)cache);
}

struct rdma_cache *
rdma_cache_create(struct rdma_pd *pd, const struct rdma_cache_attr *attr)
{
	const uint32_t writers = RDMA_ACCESS_REMOTE_WRITE | RDMA_ACCESS_REMOTE_ATOMIC;
	struct rdma_dev_info info;
	struct rdma_cache *cache;
	char name[64];

	if ((attr->access & writers) && !(attr->access & RDMA_ACCESS_LOCAL_WRITE)) {
		RDMA_LOG(ERR,
			"device %s: cache of memory that allows remote writes but no local writes",
			pd->dev->name);
		rte_errno = EINVAL;
		return NULL;
	}
	cache = calloc(1, sizeof(*cache));
	if (!cache) {
		rte_errno = ENOMEM;
		return NULL;
	}
	rdma_dev_info_get(pd->dev, &info);
	cache->pd = pd;
	cache->attr = *attr;
	cache->mr_bytes_max = info.max_mr_bytes;
	if (!cache->attr.access)
		cache->attr.access = RDMA_ACCESS_LOCAL_WRITE | writers | RDMA_ACCESS_REMOTE_READ;
	if (!cache->attr.bytes_max)
		cache->attr.bytes_max = UINT64_MAX;
	if (!cache->attr.entries_max)
		cache->attr.entries_max = RTE_MAX(1u, info.max_mr / 2);
	cache->set.random = rte_get_tsc_cycles();
	TAILQ_INIT(&cache->unused);
	TAILQ_INIT(&cache->leaving);
	rte_spinlock_init(&cache->lock);
	/* ENOTSUP is ignored: EAL never frees memory in this mode. */
	callback_name(cache, name, sizeof(name));
	rte_mem_event_callback_register(name, on_memory, cache);
	return cache;
}

int
rdma_cache_destroy(struct rdma_cache *cache)
{
	uint64_t dropped = 0;
	char name[64];

	if (cache->info.in_use) {
		RDMA_LOG(ERR, "device %s: cache destroyed with %u entries in use",
			cache->pd->dev->name, cache->info.in_use);
		return -EBUSY;
	}
	leave_between(cache, 0, UINT64_MAX, &dropped);
	sweep(cache);
	if (!TAILQ_EMPTY(&cache->leaving))
		return -EBUSY;
	callback_name(cache, name, sizeof(name));
	rte_mem_event_callback_unregister(name, cache);
	free(cache);
	return 0;
}
