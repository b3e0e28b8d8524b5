/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * JUNGFRAU, in the format of PSI's slsDetectorPackage (sls_detector_defs.h,
 * docs/src/udpheader.rst; packets of its virtual server). A packet has sls_detector_header version
 * 2 after the UDP header (48 bytes, little-endian), and then 8,192 bytes of pixels: four rows of
 * 1,024. A module with one interface sends packets 0 ... 127. A module with two interfaces sends
 * packets 0 ... 63 on each: the first has rows 0 ... 255, the second rows 256 ... 511.
 */

#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <rte_byteorder.h>
#include <rte_common.h>

#include "frames/detector.h"

/** sls_detector_header; comments have its names of fields where they differ. */
struct sls_header {
	rte_le64_t frame;
	rte_le32_t exposure;  /**< expLength, 100 ns */
	rte_le32_t packet;    /**< packetNumber */
	rte_le64_t bunch_id;  /**< detSpec1 */
	rte_le64_t timestamp; /**< 100 ns */
	rte_le16_t module;
	rte_le16_t row;
	rte_le16_t column;
	rte_le16_t spec2;
	rte_le32_t daq_info; /**< detSpec3 */
	rte_le16_t spec4;
	uint8_t detector_type;
	uint8_t version;
} __rte_packed;
static_assert(sizeof(struct sls_header) == 48, "sls_detector_header is 48 bytes");
static_assert(offsetof(struct sls_header, daq_info) == 40, "detSpec3 is at 40");

#define SLS_TYPE_JUNGFRAU  3
#define SLS_HEADER_VERSION 2

static void
jungfrau_parse(const uint8_t *const header[], struct detector_packet *out, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		const struct sls_header *h = (const struct sls_header *)header[i];

		out[i].frame = rte_le_to_cpu_64(h->frame);
		out[i].packet = rte_le_to_cpu_32(h->packet);
		out[i].position =
			(uint32_t)rte_le_to_cpu_16(h->column) << 16 | rte_le_to_cpu_16(h->row);
		if (h->detector_type != SLS_TYPE_JUNGFRAU || h->version != SLS_HEADER_VERSION)
			out[i].packet = DETECTOR_PACKET_BAD;
	}
}

static void
jungfrau_explain(const uint8_t *header, char *text, size_t size)
{
	const struct sls_header *h = (const struct sls_header *)header;

	snprintf(text, size, "detector type %u and header version %u, expected %u and %u",
		h->detector_type, h->version, SLS_TYPE_JUNGFRAU, SLS_HEADER_VERSION);
}

static void
jungfrau_frame_info(const uint8_t *header, struct detector_frame_info *info)
{
	const struct sls_header *h = (const struct sls_header *)header;

	info->bunch_id = rte_le_to_cpu_64(h->bunch_id);
	info->time = rte_le_to_cpu_64(h->timestamp);
	info->exposure = rte_le_to_cpu_32(h->exposure);
	info->status = rte_le_to_cpu_32(h->daq_info);
}

const struct detector_ops jungfrau_ops = {
	.name = "jungfrau",
	.rows = 512,
	.cols = 1024,
	.header_bytes = sizeof(struct sls_header),
	.pixel_bytes = 8192,
	.tile_rows = 4,
	.interfaces_max = 2,
	.tick_ns = 100,
	/* bits of the DAQ info: storage cell; HG0, fixed and forced gains, comparator reset */
	.status_common = 0x00003F17,
	.status_cell = 0x00000F00,
	.status_mode = 0x00003017,
	.parse = jungfrau_parse,
	.explain = jungfrau_explain,
	.frame_info = jungfrau_frame_info,
};
