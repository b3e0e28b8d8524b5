/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests how the log explains unusable packets: one sample of each cause, the packets that frames
 * miss, and packets that were dropped because of their frame number.
 */

#include "rx_rig.h"

#include "builder/builder.h"
#include "run_drops.h"
#include "rx/rejects.h"

#define PORT 50001 /* port of stream 0: the rig sends to RIG_UDP_PORT + stream */

static struct detector d;
static struct builder_stats stats;

static int
setup(void **state)
{
	struct frame_table_config config;

	memset(&stats, 0, sizeof(stats));
	rig_config(&config, &d, 1, 1);
	return 0;
}

/** A sample of stream 1 of the rig, which is sent to PORT. */
static struct rx_sample
packet(enum rx_counter cause)
{
	uint8_t b[RIG_PACKET_BYTES];
	struct rx_sample s = {.length = sizeof(b), .cause = cause, .bytes = RX_SAMPLE_BYTES};

	rig_bytes(b, 1, 7, 100);
	memcpy(s.data, b, sizeof(s.data));
	return s;
}

static void
insert(struct rx_sample *s, uint32_t at, const void *bytes, uint32_t n)
{
	memmove(s->data + at + n, s->data + at, sizeof(s->data) - at - n);
	memcpy(s->data + at, bytes, n);
	s->length += n;
}

static void
says(const struct rx_sample *s, uint32_t n, const struct reject_view *v, const char *wanted)
{
	struct rejects r = {0};
	char text[400];

	for (uint32_t i = 0; i < n; i++)
		rejects_add(&r, &s[i], &d);
	assert_true(rejects_explain(&r, v, text, sizeof(text)));
	if (strstr(text, wanted) == NULL)
		fail_msg("'%s' does not say '%s'", text, wanted);
}

/* Samples of RoCE messages: their headers stand for a queue pair. */
static void
messages(void **state)
{
	const struct reject_view v = {.detector = &d, .udp_port = PORT, .stats = &stats};
	struct rejects r = {.udp_port = PORT, .messages = true};
	struct rx_sample s = packet(RX_WRONG_LENGTH);
	char text[400];

	s.length = SOURCE_HEADERS + 8192;
	rejects_add(&r, &s, &d);
	assert_true(rejects_explain(&r, &v, text, sizeof(text)));
	assert_non_null(strstr(text, "are messages of 8192 bytes, expected 8256: 8192 of pixels"));
	assert_null(strstr(text, "0.0.0.0"));
	rejects_clear(&r);
	s.length = SOURCE_HEADERS + 8256;
	rejects_add(&r, &s, &d);
	assert_true(rejects_explain(&r, &v, text, sizeof(text)));
	assert_non_null(strstr(text, "are messages of another operation or path MTU"));
	/* a good header, and no number out of range: the address is wrong */
	rejects_clear(&r);
	s = packet(RX_MALFORMED);
	rejects_add(&r, &s, &d);
	assert_true(rejects_explain(&r, &v, text, sizeof(text)));
	assert_non_null(strstr(text, "(the first one has packet number 100)"));
	/* the same packets by UDP */
	s = packet(RX_FOREIGN);
	s.data[36] = 0x12;
	s.data[37] = 0xb7;
	s.data[39] ^= 4;
	says(&s, 1, &v, "are RoCEv2 (10.1.0.2:0 to 10.0.0.1:4791");
}

static void
each_kind(void **state)
{
	const struct reject_view v = {
		.detector = &d, .udp_port = 50011, .stats = &stats, .lowest = 101, .highest = 101};
	struct rx_sample s = packet(RX_FOREIGN);

	says(&s, 1, &v,
		"are sent to UDP port 50001 (10.1.0.2:0 to 10.0.0.1:50001, UDP length 8248), "
		"expected 50011; set [detector] udp_port = 50001");
	insert(&s, 12, "\x81\x00\x20\x05", 4);
	says(&s, 1, &v, "have VLAN tag 5 (10.1.0.2:0 to 10.0.0.1:50001");
	s = packet(RX_FOREIGN);
	s.data[14] = 0x46;
	insert(&s, 34, "\x01\x01\x01\x00", 4);
	says(&s, 1, &v, "have IPv4 options (10.1.0.2:0 to 10.0.0.1:50001, UDP length 8248)");
	s = packet(RX_FRAGMENT);
	s.data[20] = 0x20;
	says(&s, 1, &v, "are IPv4 fragments (10.1.0.2 to 10.0.0.1, IPv4 length 8268)");
	s = packet(RX_CHECKSUM);
	says(&s, 1, &v, "have a wrong UDP checksum");
	s.data[24] ^= 1;
	says(&s, 1, &v, "have a wrong IPv4 header checksum");
	s = packet(RX_WRONG_LENGTH);
	s.data[38] = 0x10;
	says(&s, 1, &v,
		"have length (10.1.0.2:0 to 10.0.0.1:50001, UDP length 4152), "
		"expected 8248");
	s = packet(RX_WRONG_LENGTH);
	s.length = 1500;
	says(&s, 1, &v, "1500 bytes are present; capture with a larger snapshot length");
	s = packet(RX_MALFORMED);
	says(&s, 1, &v, "have packet numbers from 100, expected 0 to 127; set [detector] rows");
	s.data[RIG_HEADERS + RIG_HEADER_BYTES - 1] = 1;
	says(&s, 1, &v, "have no header of a jungfrau");
	s = packet(RX_FOREIGN);
	s.data[12] = 0x86;
	s.data[13] = 0xDD;
	says(&s, 1, &v, "are not IPv4 datagrams of UDP (EtherType 0x86dd)");
	s = packet(RX_FOREIGN);
	s.data[38] = 1;
	says(&s, 1, &v,
		"are UDP (10.1.0.2:0 to 10.0.0.1:50001, UDP length 312), expected length 8248");
	/* for a truncated sample no byte beyond its end is read */
	for (uint32_t n = 0; n < RX_SAMPLE_BYTES; n++) {
		struct rejects r = {0};

		s = packet(RX_MALFORMED);
		s.bytes = n;
		rejects_add(&r, &s, &d);
	}
}

/*
 * Packets that are normal on any network are ignored; of the others, the most frequent kind is
 * explained.
 */
static void
commonest(void **state)
{
	const struct reject_view v = {.detector = &d, .udp_port = 50011, .stats = &stats};
	struct rx_sample s[6];

	for (uint32_t i = 0; i < RTE_DIM(s); i++) {
		s[i] = packet(RX_FOREIGN);
		if (i < 3)
			s[i].data[13] = 6;
	}
	s[5] = packet(RX_FRAGMENT);
	s[5].data[20] = 0x20;
	says(s, RTE_DIM(s), &v, "udp_port = 50001");
}

/* If some packets are usable, their ports tell which setting is wrong. */
static void
ports(void **state)
{
	struct reject_view v = {.detector = &d, .udp_port = 50002, .stats = &stats, .placed = true};
	struct rx_sample s[2] = {packet(RX_FOREIGN), packet(RX_FOREIGN)};

	says(s, 1, &v, "udp_port = 50001");
	s[1].data[37] += 3;
	v.udp_port = 50000;
	stats.complete = 1;
	says(s, 2, &v, "are sent to UDP port 50001 to 50004");
	says(s, 2, &v, "set [detector] modules = 5");
	stats.complete = 0;
	says(s, 2, &v, "set [detector] modules = 5, or interfaces = 2");
	stats.stream[0] = (struct builder_stream){.frames = 3, .seen = {UINT64_MAX, 0}};
	says(s, 2, &v, "set [detector] interfaces = 2");
}

/* The ports that packets were counted for extend those of samples, which need not have all. */
static void
near_ports(void **state)
{
	struct reject_view v = {.detector = &d,
		.udp_port = 50000,
		.stats = &stats,
		.placed = true,
		.port_min = 50001,
		.port_max = 50007};
	struct rx_sample s = packet(RX_FOREIGN);
	const struct rejects none = {0};
	char text[400];

	stats.complete = 1;
	says(&s, 1, &v,
		"are sent to UDP port 50001 to 50007 (10.1.0.2:0 to 10.0.0.1:50001, UDP length "
		"8248), expected 50000; set [detector] modules = 8");
	s.data[37] += 8;
	says(&s, 1, &v, "are sent to UDP port 50001 to 50009 (10.1.0.2:0 to 10.0.0.1:50009, UDP");
	rejects_explain_ports(&none, &v, text, sizeof(text));
	assert_string_equal(text,
		"are sent to UDP port 50001 to 50007, expected 50000; set [detector] modules = 8");
}

static void
numbers(void **state)
{
	static const struct {
		uint32_t interfaces, rows, lowest, highest;
		const char *wanted;
	} cases[] = {
		{1, 256, 0, 127, "from 0 to 127, expected 32 to 95; set [detector] rows = 512"},
		{1, 256, 16, 111, "rows = 384"},
		{1, 256, 16, 96, "rows = 384"},
		{1, 64, 0, 15,
			"from 0 to 15, expected 56 to 71; no [detector] rows fits, because the "
			"rows read out are those around packet 64"},
		{1, 64, 72, 127, "no [detector] rows fits"},
		{2, 256, 0, 63, "rows = 512"},
		{2, 256, 16, 31, "rows = 384"},
		{2, 512, 64, 127,
			"from 64 to 127, expected 0 to 63; set [detector] interfaces = 1"},
		{1, 512, 128, 255, "check [detector] type"},
	};
	struct rx_sample s = packet(RX_MALFORMED);

	for (uint32_t i = 0; i < RTE_DIM(cases); i++) {
		const struct reject_view v = {
			.detector = &d,
			.stats = &stats,
			.lowest = cases[i].lowest + 1,
			.highest = cases[i].highest + 1,
		};

		assert_int_equal(detector_init(&d, &jungfrau_ops, 2, cases[i].interfaces), 0);
		assert_int_equal(detector_expect(&d, cases[i].rows, NULL, 0), 0);
		says(&s, 1, &v, cases[i].wanted);
	}
}

/* A module that differs from the others is named, and no setting. So is an absent stream. */
static void
one_module(void **state)
{
	struct reject_view v = {.detector = &d,
		.udp_port = PORT,
		.stats = &stats,
		.placed = true,
		.lowest = 101,
		.highest = 101,
		.odd = 1};
	struct rx_sample s = packet(RX_MALFORMED);
	struct rejects r = {.udp_port = PORT};
	const uint32_t absent = 0;
	char text[400];

	assert_int_equal(detector_init(&d, &jungfrau_ops, 2, 1), 0);
	assert_int_equal(detector_expect(&d, 64, NULL, 0), 0);
	says(&s, 1, &v,
		"have packet numbers from 100, expected 56 to 71, and are from module 0 (stream 0, "
		"UDP port 50001), unlike those of other modules; check");
	s.data[RIG_HEADERS + RIG_HEADER_BYTES - 1] = 1;
	says(&s, 1, &v,
		": detector type 3 and header version 1, expected 3 and 2; they are from module 0 "
		"(stream 0");
	v.odd = 3;
	s = packet(RX_WRONG_LENGTH);
	s.data[38] = 0x10;
	says(&s, 1, &v,
		"and are from module 0 (stream 0, UDP port 50001) and 1 other stream, unlike");
	assert_int_equal(detector_expect(&d, 64, &absent, 1), 0);
	s = packet(RX_MALFORMED);
	rejects_add(&r, &s, &d);
	v.odd = 0;
	assert_true(rejects_explain(&r, &v, text, sizeof(text)));
	assert_string_equal(text,
		"are from module 0 (stream 0, UDP port 50001), which sends, but is in [detector] "
		"absent; remove it from there");
}

/** Record packets `from` to `to` for interface `of` of both modules. */
static void
sent(uint32_t of, uint32_t from, uint32_t to)
{
	for (uint32_t s = of; s < d.streams; s += d.interfaces) {
		stats.stream[s].frames = 10;
		for (uint32_t p = from; p <= to; p++)
			stats.stream[s].seen[p / 64] |= UINT64_C(1) << (p % 64);
	}
}

static void
missing(void **state)
{
	const struct reject_view v = {.detector = &d, .stats = &stats};
	char text[400];

	assert_int_equal(detector_init(&d, &jungfrau_ops, 2, 1), 0);
	assert_false(rejects_explain_missing(&v, text, sizeof(text)));
	sent(0, 32, 95);
	assert_true(rejects_explain_missing(&v, text, sizeof(text)));
	assert_string_equal(text,
		"stream 0 sends packets 32 to 95, expected 0 to 127; set [detector] rows = 256");
	/*
	 * a complete frame, or different packets missing in another stream: no setting is the cause
	 */
	stats.complete = 1;
	assert_false(rejects_explain_missing(&v, text, sizeof(text)));
	stats.complete = 0;
	stats.stream[1].seen[0] |= 1u << 31;
	assert_false(rejects_explain_missing(&v, text, sizeof(text)));
	memset(&stats, 0, sizeof(stats));
	sent(0, 0, 63);
	assert_true(rejects_explain_missing(&v, text, sizeof(text)));
	assert_non_null(strstr(text, "interfaces = 2"));
	/* one stream never sends a packet; packets that are lost by chance make no pattern */
	memset(&stats, 0, sizeof(stats));
	sent(0, 0, 127);
	stats.stream[1].seen[1] ^= UINT64_C(1) << 63;
	stats.stream[1].missing = 11;
	assert_true(rejects_explain_missing(&v, text, sizeof(text)));
	assert_string_equal(text,
		"packet 127 of module 1 (stream 1, UDP port 1) is missing in all of them; check "
		"that module and its network");
	stats.stream[1].missing = 12;
	assert_false(rejects_explain_missing(&v, text, sizeof(text)));
	stats.stream[1].seen[1] = 3;
	stats.stream[1].missing = 62 * 10;
	assert_true(rejects_explain_missing(&v, text, sizeof(text)));
	assert_non_null(strstr(text,
		"62 packets of module 1 (stream 1, UDP port 1), the first is "
		"packet 66, are missing"));
	stats.stream[1].frames = 7;
	stats.stream[1].missing = 62 * 7;
	assert_false(rejects_explain_missing(&v, text, sizeof(text)));
	/* no number of rows has these packets */
	memset(&stats, 0, sizeof(stats));
	sent(0, 1, 100);
	assert_false(rejects_explain_missing(&v, text, sizeof(text)));

	assert_int_equal(detector_init(&d, &jungfrau_ops, 2, 2), 0);
	memset(&stats, 0, sizeof(stats));
	sent(0, 32, 63);
	sent(1, 0, 31);
	assert_true(rejects_explain_missing(&v, text, sizeof(text)));
	assert_non_null(strstr(text, "rows = 256"));
}

/* Packets that come after their frame was closed were not sent before. */
static void
late_or_twice(void **state)
{
	const struct run_drops_view v = {.detector = &d,
		.udp_port = PORT,
		.max_skew_frames = 8,
		.stream_timeout_ms = 1000,
		.placed = 500,
		.last_frame = 40};
	struct run_packets p = {.packets = 572, .placed = 500, .late = 40, .duplicate = 32};
	char text[640];

	assert_int_equal(detector_init(&d, &jungfrau_ops, 1, 1), 0);
	p.drop[0] = (struct rx_drop){.packets = 72, .frame = 29};
	run_drops_explain(&p, &v, text, sizeof(text));
	assert_non_null(strstr(text,
		"(32 duplicate, 40 late): the last one has frame 29, which was closed before this "
		"packet arrived. If the detector was restarted"));
	p.late = 32;
	p.duplicate = 40;
	run_drops_explain(&p, &v, text, sizeof(text));
	assert_non_null(strstr(text, "frame 29, which had been sent before. If the"));
}

int
main(int argc, char **argv)
{
#define TEST(f) cmocka_unit_test_setup(f, setup)
	const struct CMUnitTest tests[] = {
		TEST(messages),
		TEST(each_kind),
		TEST(commonest),
		TEST(ports),
		TEST(near_ports),
		TEST(numbers),
		TEST(one_module),
		TEST(missing),
		TEST(late_or_twice),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
