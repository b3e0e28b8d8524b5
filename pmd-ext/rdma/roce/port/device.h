/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROCE_DEVICE_H
#define ROCE_DEVICE_H

/**
 * @file
 * The device: its devargs, tables and limits.
 */

#include "roce.h"

#define ROCE_MESSAGE_MAX (1U << 30) /* bytes: 2^22 packets of the smallest MTU */
#define ROCE_WR_MAX	 (1U << 14) /* requests per queue */
#define ROCE_RD_ATOM_MAX 128	    /* as in rdma_rxe */

struct rdma_dev *roce_dev_open(const char *args);
int roce_dev_close(struct rdma_dev *dev);
int roce_dev_info_get(const struct rdma_dev *dev, struct rdma_dev_info *info);
struct rdma_pd *roce_pd_alloc(struct rdma_dev *dev);
int roce_pd_free(struct rdma_pd *pd);

/** port/devargs.c: parse the devargs after `roce:`. @return 0; -EINVAL, -ENODEV: logged */
int roce_args_parse(struct roce_dev *dev, const char *args);

/** port/stat.c */
int roce_xstats_get(const struct rdma_dev *dev, struct rdma_xstat *x, unsigned int n);

#endif
