/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <rte_debug.h>
#include <rte_errno.h>

#include "rdma_fake.h"
#include "rdma_provider.h"

struct rdma_fake rdma_fake;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned int inside;

void
rdma_fake_reset(void)
{
	memset(&rdma_fake, 0, sizeof(rdma_fake));
	rdma_fake.max_mr_bytes = UINT64_C(1) << 40;
	rdma_fake.max_mr = RTE_DIM(rdma_fake.mr);
}

static struct rdma_dev *
fake_open(const char *args)
{
	rdma_fake_reset();
	return calloc(1, sizeof(struct rdma_dev));
}

static int
fake_close(struct rdma_dev *dev)
{
	free(dev);
	return 0;
}

static int
fake_info(const struct rdma_dev *dev, struct rdma_dev_info *info)
{
	info->max_mr_bytes = rdma_fake.max_mr_bytes;
	info->max_mr = rdma_fake.max_mr;
	info->numa_node = -1;
	return 0;
}

static struct rdma_pd *
fake_pd_alloc(struct rdma_dev *dev)
{
	return calloc(1, sizeof(struct rdma_pd));
}

static int
fake_pd_free(struct rdma_pd *pd)
{
	free(pd);
	return 0;
}

static struct rdma_mr *
fake_reg(struct rdma_pd *pd, const struct rdma_mr_attr *attr)
{
	struct rdma_mr *mr = NULL;
	int error = rdma_fake.fail;

	pthread_mutex_lock(&lock);
	if (inside++)
		rdma_fake.parallel_seen = true;
	pthread_mutex_unlock(&lock);
	if (attr->length > rdma_fake.max_mr_bytes)
		error = E2BIG;
	pthread_mutex_lock(&lock);
	if (!error && rdma_fake.nb < RTE_DIM(rdma_fake.mr)) {
		mr = calloc(1, sizeof(*mr));
		mr->lkey = rdma_fake.nb;
		mr->rkey = rdma_fake.nb + 1000;
		rdma_fake.mr[rdma_fake.nb++] = (struct rdma_fake_mr){.attr = *attr, .live = true};
		rdma_fake.live++;
		rdma_fake.live_bytes += attr->length;
	} else {
		rte_errno = error ? error : ENOMEM;
	}
	inside--;
	pthread_mutex_unlock(&lock);
	return mr;
}

static int
fake_dereg(struct rdma_mr *mr)
{
	struct rdma_fake_mr *fake = &rdma_fake.mr[mr->lkey];

	if (fake->busy)
		return -EBUSY;
	RTE_VERIFY(fake->live);
	fake->live = false;
	rdma_fake.live--;
	rdma_fake.live_bytes -= fake->attr.length;
	free(mr);
	return 0;
}

static const struct rdma_ops fake_ops = {
	.provider = "fake",
	.mr_reg_parallel = true,
	.dev_open = fake_open,
	.dev_close = fake_close,
	.dev_info_get = fake_info,
	.pd_alloc = fake_pd_alloc,
	.pd_free = fake_pd_free,
	.mr_reg = fake_reg,
	.mr_dereg = fake_dereg,
};

RDMA_REGISTER_PROVIDER(fake, fake_ops)
