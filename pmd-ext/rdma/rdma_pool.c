/* SPDX-License-Identifier: BSD-3-Clause */
/* Pool of buffers in registered memory, see rdma_pool.h. */
#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_errno.h>

#include "rdma_extent.h"
#include "rdma_pool.h"
#include "rdma_provider.h"

#define HUGE		(UINT64_C(2) << 20)
#define BUFFERS_MAX	65536
#define BUFFERS_MAX_MAX (1u << 28)

struct region {
	void *addr;
	uint64_t length;
	uint32_t span; /**< for rdma_extents_remove() */
	struct rdma_mr *mr;
};

struct rdma_pool {
	struct rdma_pd *pd;
	struct rdma_extents *extents;
	struct rdma_pool_info info;
	struct region region[];
};

static uint64_t
now_ns(void)
{
	return (uint64_t)((double)rte_get_tsc_cycles() / rte_get_tsc_hz() * 1e9);
}

/* ---- registration in parallel --------------------------------------------------------------- */

struct job {
	struct rdma_pool *pool;
	uint32_t access;
	atomic_uint next;
	atomic_int error;
};

static void
register_some(void *arg, unsigned int number)
{
	struct job *job = arg;
	struct rdma_pool *pool = job->pool;
	unsigned int i;

	while ((i = atomic_fetch_add(&job->next, 1)) < pool->info.nb_regions) {
		struct region *r = &pool->region[i];
		const struct rdma_mr_attr attr = {
			.addr = r->addr, .length = r->length, .access = job->access, .gpu = -1};

		r->mr = pool->pd->dev->ops->mr_reg(pool->pd, &attr);
		if (!r->mr) {
			atomic_store(&job->error, rte_errno);
			continue;
		}
		/* As rdma_mr_reg(), except for the reference count, which is not atomic:
		 * register_all() updates it. */
		r->mr->pd = pool->pd;
		r->mr->attr = attr;
	}
}

/** Register all regions. A region whose registration fails has no mr. @return 0; -errno */
static int
register_all(struct rdma_pool *pool, uint32_t access, unsigned int threads)
{
	struct job job = {.pool = pool, .access = access};
	const uint64_t began = now_ns();
	unsigned int i;

	if (!pool->pd->dev->ops->mr_reg_parallel)
		threads = 1;
	rdma_pages_parallel(
		RTE_MIN(rdma_pages_threads(threads), pool->info.nb_regions), register_some, &job);
	pool->info.register_ns = now_ns() - began;
	for (i = 0; i < pool->info.nb_regions; i++) {
		if (!pool->region[i].mr)
			continue;
		pool->pd->nb_mrs++;
		rdma_registrations_count(pool->pd->dev, 1, pool->region[i].length, 0);
	}
	rdma_registrations_count(pool->pd->dev, 0, 0, pool->info.register_ns);
	return -atomic_load(&job.error);
}

/* ---- creation and destruction --------------------------------------------------------------- */

/**
 * Deregister and free all regions, then the pool.
 * @return 0; otherwise the first error, and the remaining regions are kept
 */
static int
release(struct rdma_pool *pool)
{
	unsigned int i;
	int ret;

	for (i = 0; i < pool->info.nb_regions; i++) {
		struct region *r = &pool->region[i];

		if (r->mr) {
			ret = rdma_mr_dereg(r->mr);
			if (ret < 0)
				return ret;
			r->mr = NULL;
			/* if a later region is busy, the pool remains in use without this one */
			rdma_extents_remove(pool->extents, r->span);
			pool->info.bytes -= r->length;
		}
		if (r->addr)
			rdma_pages_unmap(r->addr, r->length);
		r->addr = NULL;
	}
	rdma_extents_destroy(pool->extents);
	free(pool);
	return 0;
}

static int
map_all(struct rdma_pool *pool, uint64_t region_bytes, enum rdma_pages_kind kind,
	unsigned int threads)
{
	const uint64_t began = now_ns();
	unsigned int i;
	int ret;

	for (i = 0; i < pool->info.nb_regions; i++) {
		struct region *r = &pool->region[i];
		enum rdma_pages_kind got = kind;

		r->length = region_bytes;
		r->addr = rdma_pages_map(&r->length, pool->info.numa_node, &got);
		if (!r->addr)
			return -ENOMEM;
		pool->info.kind = RTE_MAX(pool->info.kind, got);
		pool->info.bytes += r->length;
		ret = rdma_pages_prefault(r->addr, r->length, threads);
		if (ret < 0)
			return ret;
		ret = rdma_extents_add(pool->extents, (uintptr_t)r->addr, r->length, i, &r->span);
		if (ret < 0)
			return ret;
	}
	pool->info.prefault_ns = now_ns() - began;
	return 0;
}

struct rdma_pool *
rdma_pool_create(struct rdma_pd *pd, const struct rdma_pool_attr *attr)
{
	const uint32_t all = RDMA_ACCESS_LOCAL_WRITE | RDMA_ACCESS_REMOTE_WRITE |
		RDMA_ACCESS_REMOTE_READ | RDMA_ACCESS_REMOTE_ATOMIC;
	const uint32_t buffers_max = attr->buffers_max ? attr->buffers_max : BUFFERS_MAX;
	struct rdma_dev_info info;
	struct rdma_pool *pool;
	uint64_t most, nb;
	int ret;

	rdma_dev_info_get(pd->dev, &info);
	most = info.max_mr_bytes;
	if (attr->region_bytes)
		most = RTE_MIN(most, attr->region_bytes);
	most = RTE_ALIGN_FLOOR(most, HUGE);
	nb = most && attr->bytes ? (attr->bytes - 1) / most + 1 : 0;
	if (attr->bytes == 0 || attr->bytes > UINT64_MAX / 2 || nb == 0 || nb > info.max_mr ||
		buffers_max > BUFFERS_MAX_MAX) {
		RDMA_LOG(ERR,
			"device %s: pool of %" PRIu64 " bytes in regions of %" PRIu64
			" with %u buffers, expected 1 byte to %u regions of at least 2 MiB, and at "
			"most %u buffers",
			pd->dev->name, attr->bytes, most, buffers_max, info.max_mr,
			BUFFERS_MAX_MAX);
		rte_errno = EINVAL;
		return NULL;
	}
	pool = calloc(1, sizeof(*pool) + nb * sizeof(pool->region[0]));
	if (pool)
		pool->extents = rdma_extents_create(buffers_max, nb);
	if (!pool || !pool->extents) {
		free(pool);
		rte_errno = ENOMEM;
		return NULL;
	}
	pool->pd = pd;
	pool->info.nb_regions = nb;
	pool->info.numa_node = attr->numa_node == -1 ? info.numa_node
		: attr->numa_node < 0		     ? -1
						     : attr->numa_node;
	ret = map_all(pool, (attr->bytes + nb - 1) / nb, attr->kind, attr->threads);
	if (ret < 0)
		RDMA_LOG(ERR, "device %s: cannot allocate a pool of %" PRIu64 " bytes",
			pd->dev->name, attr->bytes);
	else
		ret = register_all(pool, attr->access ? attr->access : all, attr->threads);
	if (ret < 0) {
		release(pool);
		rte_errno = -ret;
		return NULL;
	}
	return pool;
}

int
rdma_pool_destroy(struct rdma_pool *pool)
{
	if (pool->info.used_buffers) {
		RDMA_LOG(ERR, "device %s: pool destroyed with %u buffers in use",
			pool->pd->dev->name, pool->info.used_buffers);
		return -EBUSY;
	}
	return release(pool);
}

/* ---- buffers -------------------------------------------------------------------------------- */

int
rdma_pool_alloc(struct rdma_pool *pool, uint64_t length, uint64_t align, struct rdma_buffer *buffer)
{
	struct rdma_pool_info *info = &pool->info;
	struct rdma_extent extent;
	const struct rdma_mr *mr;
	int ret = rdma_extents_alloc(pool->extents, length, align, &extent);

	if (ret < 0) {
		info->alloc_failures++;
		return ret;
	}
	mr = pool->region[extent.span].mr;
	*buffer = (struct rdma_buffer){
		.addr = (void *)(uintptr_t)extent.addr,
		.length = length,
		.lkey = mr->lkey,
		.rkey = mr->rkey,
		.id = extent.id,
	};
	info->allocs++;
	info->used_buffers++;
	info->used_bytes += length;
	info->used_buffers_peak = RTE_MAX(info->used_buffers_peak, info->used_buffers);
	info->used_bytes_peak = RTE_MAX(info->used_bytes_peak, info->used_bytes);
	return 0;
}

int
rdma_pool_free(struct rdma_pool *pool, const struct rdma_buffer *buffer)
{
	int ret = rdma_extents_free(pool->extents, buffer->id, (uintptr_t)buffer->addr);

	if (ret < 0)
		return ret;
	pool->info.used_buffers--;
	pool->info.used_bytes -= buffer->length;
	return 0;
}

int
rdma_pool_info_get(const struct rdma_pool *pool, struct rdma_pool_info *info)
{
	*info = pool->info;
	return 0;
}
