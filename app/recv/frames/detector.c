/* SPDX-License-Identifier: BSD-3-Clause */
/* Table of detector formats; computes the shape of a detector and the packets that are expected. */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <rte_common.h>

#include "frames/detector.h"

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
	d->parts = 1;
	return detector_expect(d, 0, NULL, 0);
}

int
detector_split(struct detector *d, uint32_t parts)
{
	if (parts == 0 || d->ops->tile_rows % parts != 0)
		return -EINVAL;
	d->parts = parts;
	return 0;
}

int
detector_expect(struct detector *d, uint32_t rows, const uint32_t *absent, uint32_t nb_absent)
{
	const uint32_t packets = rows == 0 ? d->module_packets : rows / d->ops->tile_rows;
	const uint32_t skipped = (d->module_packets - packets) / 2;
	const uint32_t last = d->module_packets - skipped;

	if (packets == 0 || packets > d->module_packets ||
		(rows != 0 && rows % (2 * d->ops->tile_rows) != 0))
		return -EINVAL;
	for (uint32_t s = 0; s < d->streams; s++) {
		/* number of the stream's first packet among those of its module */
		const uint32_t first = s % d->interfaces * d->stream_packets;

		d->expect_from[s] = skipped > first ? skipped - first : 0;
		d->expect_to[s] = last > first ? RTE_MIN(last - first, d->stream_packets) : 0;
		for (uint32_t i = 0; i < nb_absent; i++)
			if (absent[i] == s)
				d->expect_to[s] = d->expect_from[s];
	}
	d->expected = 0;
	for (uint32_t s = 0; s < d->streams; s++)
		d->expected += detector_stream_expected(d, s);
	return d->expected != 0 ? 0 : -EINVAL;
}

const char *
detector_stream_name(
	const struct detector *d, uint32_t udp_port, uint32_t stream, char *text, size_t size)
{
	const uint32_t module = detector_stream_module(d, stream);

	if (d->messages)
		snprintf(text, size, "module %u (stream %u)", module, stream);
	else
		snprintf(text, size, "module %u (stream %u, UDP port %u)", module, stream,
			udp_port + stream);
	return text;
}
