/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory regions of the verbs provider, in host and GPU memory. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <rte_errno.h>

#include "../../gpu/cuda/gpu_cuda.h"
#include "verbs_device.h"

/* Weak: NULL unless the gpu_cuda driver is linked in. No other driver exports a dma-buf. */
extern int gpu_cuda_dmabuf_export(int16_t dev_id, const void *ptr, size_t size, int *fd,
	uint64_t *offset) __attribute__((weak));

static int
access_flags(uint32_t access)
{
	const struct {
		uint32_t ours;
		int theirs;
	} flag[] = {
		{RDMA_ACCESS_LOCAL_WRITE, IBV_ACCESS_LOCAL_WRITE},
		{RDMA_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_WRITE},
		{RDMA_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_READ},
		{RDMA_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_ATOMIC},
		/* Optional: libibverbs ignores it if the kernel does not support it. */
		{RDMA_ACCESS_RELAXED_ORDERING, IBV_ACCESS_RELAXED_ORDERING},
	};
	unsigned int i;
	int flags = 0;

	for (i = 0; i < RTE_DIM(flag); i++)
		if (access & flag[i].ours)
			flags |= flag[i].theirs;
	return flags;
}

bool
verbs_dmabuf_supported(struct ibv_context *context)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_mr *mr;
	int error;

	if (!pd)
		return false;
	/* File descriptor -1: a driver that supports dma-bufs fails with EBADF. */
	mr = ibv_reg_dmabuf_mr(pd, 0, 4096, 0, -1, 0);
	error = errno;
	if (mr)
		ibv_dereg_mr(mr);
	ibv_dealloc_pd(pd);
	return mr || (error != EOPNOTSUPP && error != EPROTONOSUPPORT && error != ENOSYS);
}

/**
 * Register GPU memory through its dma-buf, then through nvidia-peermem. Memory of the gpu_host
 * driver is host memory and is registered as such.
 */
static struct ibv_mr *
register_gpu(struct verbs_dev *dev, struct ibv_pd *pd, const struct rdma_mr_attr *attr, int flags)
{
	int fd = -1, dmabuf_error = EOPNOTSUPP, peermem_error;
	struct ibv_mr *mr;
	uint64_t offset;

	if (dev->dmabuf && gpu_cuda_dmabuf_export) {
		dmabuf_error =
			-gpu_cuda_dmabuf_export(attr->gpu, attr->addr, attr->length, &fd, &offset);
		if (dmabuf_error == 0) {
			mr = ibv_reg_dmabuf_mr(
				pd, offset, attr->length, (uintptr_t)attr->addr, fd, flags);
			dmabuf_error = errno;
			/* The registration holds its own reference to the dma-buf. */
			close(fd);
			if (mr) {
				verbs_count(&dev->stats.mr_dmabuf);
				return mr;
			}
		}
	}
	mr = ibv_reg_mr(pd, attr->addr, attr->length, flags);
	if (mr) {
		verbs_count(&dev->stats.mr_peermem);
		return mr;
	}
	peermem_error = errno;
	RDMA_LOG(ERR,
		"device %s: %" PRIu64
		" bytes at %p of GPU %d: neither registered through a dma-buf "
		"(%s) nor through nvidia-peermem (%s)",
		dev->base.name, attr->length, attr->addr, attr->gpu,
		!dev->dmabuf ? "the adapter's kernel driver does not support dma-buf"
			: gpu_cuda_dmabuf_export ? strerror(dmabuf_error)
						 : "the gpu_cuda driver is not linked in",
		dev->peermem ? strerror(peermem_error) : "module not loaded");
	errno = ENOTSUP;
	return NULL;
}

static struct ibv_mr *
register_host(struct verbs_dev *dev, struct ibv_pd *pd, const struct rdma_mr_attr *attr, int flags)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, attr->addr, attr->length, flags);
	struct rlimit limit = {0};
	int error = errno;

	if (mr)
		return mr;
	getrlimit(RLIMIT_MEMLOCK, &limit);
	if (error == ENOMEM && limit.rlim_cur != RLIM_INFINITY && geteuid() != 0) {
		RDMA_LOG(ERR,
			"device %s: region of %" PRIu64 " bytes at %p exceeds the limit of "
			"locked memory, RLIMIT_MEMLOCK is %" PRIu64 " bytes",
			dev->base.name, attr->length, attr->addr, (uint64_t)limit.rlim_cur);
		error = EPERM;
	} else {
		RDMA_LOG(ERR, "device %s: region of %" PRIu64 " bytes at %p: %s", dev->base.name,
			attr->length, attr->addr, strerror(error));
	}
	/* EFAULT: the range is not memory of this process that can be pinned. */
	errno = error == EFAULT ? ENOTSUP : error;
	return NULL;
}

struct rdma_mr *
verbs_mr_reg(struct rdma_pd *pd, const struct rdma_mr_attr *attr)
{
	struct verbs_dev *dev = VERBS_DEV(pd->dev);
	const uint64_t most = RTE_MIN(dev->attr.max_mr_size, VERBS_MR_BYTES_MAX);
	int flags = access_flags(attr->access);
	struct verbs_mr *mr;

	if (attr->length > most) {
		RDMA_LOG(ERR,
			"device %s: region of %" PRIu64 " bytes at %p, expected at most "
			"%" PRIu64 ": register slices",
			pd->dev->name, attr->length, attr->addr, most);
		return verbs_refuse(E2BIG);
	}
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return verbs_refuse(ENOMEM);
	mr->mr = attr->gpu >= 0 ? register_gpu(dev, VERBS_PD(pd)->pd, attr, flags)
				: register_host(dev, VERBS_PD(pd)->pd, attr, flags);
	if (!mr->mr) {
		int error = errno;

		free(mr);
		return verbs_refuse(error);
	}
	mr->base.lkey = mr->mr->lkey;
	mr->base.rkey = mr->mr->rkey;
	verbs_count(&dev->stats.mr_registered);
	__atomic_fetch_add(&dev->stats.mr_bytes, attr->length, __ATOMIC_RELAXED);
	return &mr->base;
}

int
verbs_mr_dereg(struct rdma_mr *base)
{
	struct verbs_dev *dev = VERBS_DEV(base->pd->dev);
	struct verbs_mr *mr = VERBS_MR(base);
	int error;

	if (verbs_mr_in_use(dev, base->lkey)) {
		dev->stats.mr_busy++;
		return -EBUSY;
	}
	error = ibv_dereg_mr(mr->mr);
	if (error) {
		RDMA_LOG(ERR, "device %s: cannot deregister %" PRIu64 " bytes at %p: %s",
			dev->base.name, base->attr.length, base->attr.addr, strerror(error));
		return -error;
	}
	__atomic_fetch_sub(&dev->stats.mr_bytes, base->attr.length, __ATOMIC_RELAXED);
	free(mr);
	return 0;
}
