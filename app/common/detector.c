/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <rte_common.h>

#include "detector.h"

static const struct detector_ops *const detectors[] = {
	&jungfrau_ops,
};

const struct detector_ops *
detector_find(const char *name)
{
	for (unsigned int i = 0; i < RTE_DIM(detectors); i++)
		if (strcmp(detectors[i]->name, name) == 0)
			return detectors[i];
	return NULL;
}

const char *
detector_names(void)
{
	static char names[128];
	size_t used = 0;

	if (names[0] != '\0')
		return names;
	for (unsigned int i = 0; i < RTE_DIM(detectors) && used < sizeof(names); i++)
		used += snprintf(names + used, sizeof(names) - used, "%s%s", i == 0 ? "" : ", ",
			detectors[i]->name);
	return names;
}

int
detector_init(
	struct detector *d, const struct detector_ops *ops, uint32_t modules, uint32_t interfaces)
{
	if (modules < 1 || modules > DETECTOR_MODULES_MAX)
		return -EINVAL;
	if (interfaces < 1 || interfaces > ops->interfaces_max)
		return -EINVAL;
	d->ops = ops;
	d->modules = modules;
	d->interfaces = interfaces;
	d->streams = modules * interfaces;
	d->module_packets = ops->rows / ops->tile_rows;
	d->stream_packets = d->module_packets / interfaces;
	d->tiles = modules * d->module_packets;
	return 0;
}
