/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests the JUNGFRAU format with headers built from slsDetectorPackage's docs/src/udpheader.rst,
 * and with packets that PSI's virtual JUNGFRAU sent, if they are present (BRAGGLINE_DATA).
 */

#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <pcap/pcap.h>

#include "frames/detector.h"

#define UDP_PAYLOAD 42 /* offset after the headers of Ethernet, IPv4 and UDP */

/* Every byte differs from all others. */
static const uint8_t sample[48] = {
	0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, /* frameNumber */
	0x11, 0x12, 0x13, 0x14,				/* expLength */
	0x2A, 0x00, 0x00, 0x00,				/* packetNumber */
	0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28, /* detSpec1: bunch id */
	0x31, 0x32, 0x33, 0x34, 0x35, 0x36, 0x37, 0x38, /* timestamp */
	0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48, /* modId, row, column, detSpec2 */
	0x51, 0x52, 0x53, 0x54,				/* detSpec3: DAQ info */
	0x61, 0x62,					/* detSpec4 */
	0x03,						/* detType */
	0x02,						/* version */
};

static struct detector_packet
parse_one(const uint8_t *header)
{
	struct detector_packet out = {.frame = 99, .packet = 99};

	jungfrau_ops.parse(&header, &out, 1);
	return out;
}

static void
fields_are_where_they_belong(void **state)
{
	const struct detector_packet p = parse_one(sample);
	struct detector_frame_info info;

	assert_true(p.frame == UINT64_C(0x0807060504030201));
	assert_int_equal(p.packet, 42);
	assert_int_equal(p.position, 0x46454443);
	jungfrau_ops.frame_info(sample, &info);
	assert_true(info.bunch_id == UINT64_C(0x2827262524232221));
	assert_true(info.time == UINT64_C(0x3837363534333231));
	assert_int_equal(info.exposure, 0x14131211);
	assert_int_equal(info.status, 0x54535251);
}

/* Fewer rows are those in the middle: packets of other rows are not expected. */
static void
rows_are_centred(void **state)
{
	const uint32_t absent = 1;
	struct detector d;

	assert_int_equal(detector_init(&d, &jungfrau_ops, 1, 1), 0);
	assert_int_equal(detector_expect(&d, 256, NULL, 0), 0);
	assert_int_equal(d.expect_from[0], 32);
	assert_int_equal(d.expect_to[0], 96);
	assert_int_equal(d.expected, 64);
	assert_int_equal(detector_expect(&d, 12, NULL, 0), -EINVAL);
	assert_int_equal(detector_init(&d, &jungfrau_ops, 1, 2), 0);
	assert_int_equal(detector_expect(&d, 256, NULL, 0), 0);
	assert_int_equal(d.expect_from[0], 32);
	assert_int_equal(d.expect_to[0], 64);
	assert_int_equal(d.expect_from[1], 0);
	assert_int_equal(d.expect_to[1], 32);
	assert_int_equal(detector_expect(&d, 256, &absent, 1), 0);
	assert_int_equal(d.expected, 32);
}

static void
other_formats_are_bad(void **state)
{
	uint8_t header[48];

	for (uint32_t value = 0; value < 256; value++) {
		memcpy(header, sample, sizeof(header));
		header[46] = value;
		assert_int_equal(parse_one(header).packet, value == 3 ? 42 : DETECTOR_PACKET_BAD);
		memcpy(header, sample, sizeof(header));
		header[47] = value;
		assert_int_equal(parse_one(header).packet, value == 2 ? 42 : DETECTOR_PACKET_BAD);
		/* all bytes of the packet number are read */
		memcpy(header, sample, sizeof(header));
		header[14] = value;
		assert_int_equal(parse_one(header).packet, 42 + (value << 16));
	}
}

/* Headers may be at odd addresses, and bursts may contain invalid ones. */
static void
bursts_at_any_address(void **state)
{
	uint8_t bytes[64 * 49 + 1];
	const uint8_t *header[64];
	struct detector_packet out[64];

	for (uint32_t i = 0; i < 64; i++) {
		header[i] = &bytes[i * 49 + 1];
		memcpy(&bytes[i * 49 + 1], sample, 48);
		bytes[i * 49 + 1] = i;
		bytes[i * 49 + 1 + 12] = 127 - i;
		bytes[i * 49 + 1 + 46] = i % 5 == 0 ? 1 : 3;
	}
	for (uint32_t n = 0; n <= 64; n++) {
		memset(out, 0xEE, sizeof(out));
		jungfrau_ops.parse(header, out, n);
		for (uint32_t i = 0; i < n; i++) {
			assert_int_equal(out[i].frame & 0xFF, i);
			assert_int_equal(out[i].packet, i % 5 == 0 ? DETECTOR_PACKET_BAD : 127 - i);
		}
		if (n < 64)
			assert_int_equal(out[n].packet, 0xEEEEEEEE);
	}
}

static void
shapes(void **state)
{
	struct detector d;

	assert_ptr_equal(detector_find("jungfrau"), &jungfrau_ops);
	assert_null(detector_find("JUNGFRAU2"));
	for (uint32_t modules = 0; modules <= 34; modules++) {
		for (uint32_t interfaces = 0; interfaces <= 3; interfaces++) {
			const int ret = detector_init(&d, &jungfrau_ops, modules, interfaces);

			if (modules < 1 || modules > 32 || interfaces < 1 || interfaces > 2) {
				assert_int_equal(ret, -EINVAL);
				continue;
			}
			assert_int_equal(ret, 0);
			assert_int_equal(d.streams, modules * interfaces);
			assert_int_equal(d.module_packets, 128);
			assert_int_equal(d.stream_packets, 128 / interfaces);
			assert_int_equal(d.tiles, modules * 128);
			for (uint32_t s = 0; s < d.streams; s++) {
				assert_int_equal(detector_stream_tile(&d, s), s * 128 / interfaces);
				assert_int_equal(detector_stream_module(&d, s), s / interfaces);
			}
		}
	}
}

/**
 * Check the frames of a capture. Its packets are ordered [frame][port][packet]; by the README of
 * the data, pixel value = packet number in the module + 1.
 */
static void
check_capture(const char *name, uint32_t interfaces, uint32_t frames)
{
	static uint8_t seen[16][128];
	const char *dir = getenv("BRAGGLINE_DATA");
	char path[512], why[PCAP_ERRBUF_SIZE];
	struct pcap_pkthdr *record;
	uint16_t first_port = UINT16_MAX;
	const uint8_t *bytes;
	struct detector d;
	uint32_t n = 0;
	pcap_t *pcap;

	snprintf(path, sizeof(path), "%s/%s", dir != NULL ? dir : "../shared/data", name);
	pcap = pcap_open_offline(path, why);
	if (pcap == NULL) {
		print_message("skipped: PSI's capture is missing: %s\n", why);
		skip();
	}
	assert_int_equal(detector_init(&d, &jungfrau_ops, 1, interfaces), 0);
	memset(seen, 0, sizeof(seen));
	for (; pcap_next_ex(pcap, &record, &bytes) == 1; n++) {
		const uint8_t *header = bytes + UDP_PAYLOAD, *pixels = header + 48;
		const uint16_t port = bytes[36] << 8 | bytes[37];
		const struct detector_packet p = parse_one(header);
		uint32_t tile;

		assert_int_equal(record->caplen, UDP_PAYLOAD + 48 + jungfrau_ops.pixel_bytes);
		if (first_port == UINT16_MAX)
			first_port = port - (interfaces == 2 && pixels[0] > 64);
		assert_in_range(port - first_port, 0, interfaces - 1);
		assert_in_range(p.frame, 1, frames);
		assert_in_range(p.packet, 0, d.stream_packets - 1);
		tile = detector_stream_tile(&d, port - first_port) + p.packet;
		assert_int_equal(seen[p.frame][tile]++, 0);
		for (uint32_t i = 0; i < 4096; i++) {
			const uint32_t column = i % 1024;
			const uint16_t gain = column < 300 ? 0 : column < 600 ? 0x4000 : 0xC000;

			assert_int_equal(pixels[2 * i] | pixels[2 * i + 1] << 8, gain | (tile + 1));
		}
	}
	pcap_close(pcap);
	assert_int_equal(n, frames * 128);
}

static void
psi_capture_one_interface(void **state)
{
	check_capture("sls-virtual-jungfrau.pcap", 1, 3);
}

static void
psi_capture_two_interfaces(void **state)
{
	check_capture("sls-virtual-jungfrau-2if.pcap", 2, 2);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fields_are_where_they_belong),
		cmocka_unit_test(other_formats_are_bad),
		cmocka_unit_test(rows_are_centred),
		cmocka_unit_test(bursts_at_any_address),
		cmocka_unit_test(shapes),
		cmocka_unit_test(psi_capture_one_interface),
		cmocka_unit_test(psi_capture_two_interfaces),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
