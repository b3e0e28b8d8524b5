/* SPDX-License-Identifier: BSD-3-Clause */
/** @file The reply of `/braggline/rdma`: what an RDMA device has counted. */
#ifndef TELEMETRY_RDMA_H
#define TELEMETRY_RDMA_H

#include <rte_telemetry.h>

struct rdma_dev;
struct rdma_dev_info;

/** What tables of commands say of it. */
#define TELEMETRY_RDMA_KEYS                                                      \
	"active, device, provider; counters {...}: those of rdma_xstats_get(), " \
	"described in pmd-ext/rdma/README.rst"

/**
 * Fill a reply. Telemetry's thread, while the device is open.
 * @param dev   NULL: there is none
 * @param info  as it was when the device was opened
 */
void telemetry_rdma_reply(
	struct rte_tel_data *d, const struct rdma_dev *dev, const struct rdma_dev_info *info);

#endif /* TELEMETRY_RDMA_H */
