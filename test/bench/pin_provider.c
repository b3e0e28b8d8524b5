/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `pin:`, a provider of rdma.h that only pins pages, as fixed buffers of io_uring. Registration
 * with an adapter also begins with the kernel's pin_user_pages(). The update of the adapter's own
 * table is not included.
 */
#include <errno.h>
#include <liburing.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <rte_errno.h>

#include "rdma_provider.h"

#define RINGS	  4		      /* registrations of one ring are serialized */
#define SLOTS	  16384		      /* per ring, the kernel's limit */
#define BYTES_MAX (UINT64_C(1) << 30) /* per fixed buffer, the kernel's limit */

struct pin_dev {
	struct rdma_dev base;
	struct io_uring ring[RINGS];
	pthread_mutex_t lock;
	uint32_t nb_unused;
	uint32_t unused[RINGS * SLOTS]; /* free slots, the rings in round-robin order */
};

struct pin_mr {
	struct rdma_mr base;
	uint32_t slot;
};

static struct rdma_dev *
pin_open(const char *args)
{
	const struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
	struct pin_dev *dev = calloc(1, sizeof(*dev));
	unsigned int i;
	int ret = 0;

	if (!dev)
		return NULL;
	setrlimit(RLIMIT_MEMLOCK, &all);
	pthread_mutex_init(&dev->lock, NULL);
	for (i = 0; i < RINGS && ret == 0; i++) {
		ret = io_uring_queue_init(2, &dev->ring[i], 0);
		if (ret == 0)
			ret = io_uring_register_buffers_sparse(&dev->ring[i], SLOTS);
	}
	if (ret < 0) {
		RDMA_LOG(ERR, "pin: io_uring: %s", strerror(-ret));
		free(dev);
		rte_errno = ENODEV;
		return NULL;
	}
	for (i = 0; i < RINGS * SLOTS; i++)
		dev->unused[dev->nb_unused++] = i;
	return &dev->base;
}

static int
pin_close(struct rdma_dev *base)
{
	struct pin_dev *dev = container_of(base, struct pin_dev, base);
	unsigned int i;

	for (i = 0; i < RINGS; i++)
		io_uring_queue_exit(&dev->ring[i]);
	free(dev);
	return 0;
}

static int
pin_info(const struct rdma_dev *dev, struct rdma_dev_info *info)
{
	info->max_mr = RINGS * SLOTS;
	info->max_mr_bytes = BYTES_MAX;
	info->numa_node = -1;
	return 0;
}

static struct rdma_pd *
pin_pd_alloc(struct rdma_dev *dev)
{
	return calloc(1, sizeof(struct rdma_pd));
}

static int
pin_pd_free(struct rdma_pd *pd)
{
	free(pd);
	return 0;
}

static int
slot_set(struct pin_dev *dev, uint32_t slot, void *addr, uint64_t length)
{
	struct iovec iov = {addr, length};
	__u64 tag = 0;
	int ret = io_uring_register_buffers_update_tag(
		&dev->ring[slot % RINGS], slot / RINGS, &iov, &tag, 1);

	return ret < 0 ? ret : 0;
}

static struct rdma_mr *
pin_reg(struct rdma_pd *pd, const struct rdma_mr_attr *attr)
{
	struct pin_dev *dev = container_of(pd->dev, struct pin_dev, base);
	struct pin_mr *mr = calloc(1, sizeof(*mr));
	int ret = -ENOMEM;

	pthread_mutex_lock(&dev->lock);
	if (mr && dev->nb_unused) {
		mr->slot = dev->unused[--dev->nb_unused];
		ret = 0;
	}
	pthread_mutex_unlock(&dev->lock);
	if (ret == 0)
		ret = slot_set(dev, mr->slot, attr->addr, attr->length);
	if (ret < 0) {
		free(mr);
		rte_errno = -ret;
		return NULL;
	}
	return &mr->base;
}

static int
pin_dereg(struct rdma_mr *base)
{
	struct pin_dev *dev = container_of(base->pd->dev, struct pin_dev, base);
	struct pin_mr *mr = container_of(base, struct pin_mr, base);
	int ret = slot_set(dev, mr->slot, NULL, 0);

	if (ret < 0)
		return ret;
	pthread_mutex_lock(&dev->lock);
	dev->unused[dev->nb_unused++] = mr->slot;
	pthread_mutex_unlock(&dev->lock);
	free(mr);
	return 0;
}

static const struct rdma_ops pin_ops = {
	.provider = "pin",
	.mr_reg_parallel = true,
	.dev_open = pin_open,
	.dev_close = pin_close,
	.dev_info_get = pin_info,
	.pd_alloc = pin_pd_alloc,
	.pd_free = pin_pd_free,
	.mr_reg = pin_reg,
	.mr_dereg = pin_dereg,
};

RDMA_REGISTER_PROVIDER(pin, pin_ops)
