/* SPDX-License-Identifier: BSD-3-Clause */
/** @file Reply of `/braggline/rdma`: the counters of an RDMA device. */
#ifndef TELEMETRY_RDMA_H
#define TELEMETRY_RDMA_H

#include <rte_telemetry.h>

struct rdma_dev;
struct rdma_dev_info;

/** Text of telemetry_command.reply for this command. */
#define TELEMETRY_RDMA_KEYS                                                      \
	"active, device, provider; counters {...}: those of rdma_xstats_get(), " \
	"described in braggline-rdma-devices(7)"

/**
 * Fill the reply. Called in the telemetry thread while the device is open.
 * @param dev   NULL: there is no device
 * @param info  information that was read when the device was opened
 */
void telemetry_rdma_reply(
	struct rte_tel_data *d, const struct rdma_dev *dev, const struct rdma_dev_info *info);

#endif /* TELEMETRY_RDMA_H */
