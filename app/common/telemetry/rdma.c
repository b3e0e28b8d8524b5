/* SPDX-License-Identifier: BSD-3-Clause */

#include <stdlib.h>

#include <rte_common.h>

#include "rdma/rdma.h"
#include "telemetry/dict.h"
#include "telemetry/rdma.h"

static struct rte_tel_data *
counters(const struct rdma_dev *dev)
{
	const int most = rdma_xstats_get(dev, NULL, 0);
	struct rdma_xstat *x = calloc(RTE_MAX(most, 1), sizeof(*x));
	struct rte_tel_data *d = telemetry_dict_new();
	int n;

	if (x != NULL && d != NULL) {
		n = RTE_MIN(rdma_xstats_get(dev, x, most), most);
		for (int i = 0; i < n; i++)
			rte_tel_data_add_dict_uint(d, x[i].name, x[i].value);
	}
	free(x);
	return d;
}

void
telemetry_rdma_reply(
	struct rte_tel_data *d, const struct rdma_dev *dev, const struct rdma_dev_info *info)
{
	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_uint(d, "active", dev != NULL);
	if (dev == NULL)
		return;
	telemetry_dict_text(d, "device", info->name);
	rte_tel_data_add_dict_string(d, "provider", info->provider);
	telemetry_dict_nest(d, "counters", counters(dev));
}
