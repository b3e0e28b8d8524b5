/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests cards of receivers: files, private data of the CM, and the layout of ring and events. */

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "ingest/card.h"

static char path[] = "/dev/shm/braggline-card-test-XXXXXX";

#define COMMON                                                                                 \
	"[card]\nversion = 1\ntransport = write\nstreams = 1\nmtu = 4096\ntile_bytes = 8192\n" \
	"trailer_bytes = 64\ntiles = 128\nslots = 8\nslot_bytes = 1056768\n"
#define STREAM_0                                            \
	"[stream 0]\nip = 10.0.0.1\nqpn = 0x123\npsn = 7\n" \
	"rkey = 0xdeadbeef\nbase = 0x7f0000000000\n"

static struct ingest_card
a_card(enum ingest_transport transport, uint32_t streams)
{
	struct ingest_card c = {.transport = transport,
		.streams = streams,
		.mtu = 4096,
		.tile_bytes = 8192,
		.trailer_bytes = INGEST_TRAILER_BYTES,
		.tiles = 128};

	if (transport == INGEST_WRITE) {
		c.slots = 8;
		c.slot_bytes = 128 * (8192 + 64);
	}
	for (uint32_t s = 0; s < streams; s++) {
		snprintf(c.stream[s].ip, sizeof(c.stream[s].ip), s % 2 ? "fd00::%u" : "10.0.0.%u",
			s + 1);
		c.stream[s].qpn = 0x800000 + s;
		c.stream[s].psn = 0xFFFFFF - s;
		if (transport == INGEST_WRITE) {
			c.stream[s].rkey = 0xdead0000 + s;
			c.stream[s].base = 0x7f0012340000 + ((uint64_t)s << 32);
		}
	}
	return c;
}

static void
write_text(const char *text)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
	assert_int_equal(fclose(f), 0);
}

/* The whole message of reading a text, with P for the path. */
static void
expect_message(const char *text, const char *expected)
{
	char message[2048], want[2048] = "";
	struct ingest_card card;
	int ret;

	write_text(text);
	ret = ingest_card_read(&card, path, message, sizeof(message));
	for (const char *p = expected; *p != '\0'; p++) {
		const size_t used = strlen(want);

		if (*p == '@')
			snprintf(want + used, sizeof(want) - used, "%s", path);
		else
			snprintf(want + used, sizeof(want) - used, "%c", *p);
	}
	assert_string_equal(message, want);
	assert_int_equal(ret, expected[0] == '\0' ? 0 : -EINVAL);
}

static void
a_written_card_reads_as_the_same(void **state)
{
	static const enum ingest_transport transports[] = {INGEST_SEND, INGEST_WRITE};
	static const uint32_t streams[] = {1, 2, INGEST_STREAMS_MAX};
	char message[256];

	for (unsigned int t = 0; t < 2; t++) {
		for (unsigned int s = 0; s < 3; s++) {
			const struct ingest_card card = a_card(transports[t], streams[s]);
			struct ingest_card read;

			assert_int_equal(ingest_card_write(&card, path), 0);
			assert_int_equal(
				ingest_card_read(&read, path, message, sizeof(message)), 0);
			assert_string_equal(message, "");
			assert_memory_equal(&read, &card, sizeof(card));
		}
	}
	(void)state;
}

static void
hex_and_decimal_numbers_are_accepted(void **state)
{
	struct ingest_card card;
	char message[256];

	write_text("; by hand\n" COMMON STREAM_0);
	assert_int_equal(ingest_card_read(&card, path, message, sizeof(message)), 0);
	assert_int_equal(card.stream[0].qpn, 0x123);
	assert_int_equal(card.stream[0].psn, 7);
	assert_int_equal(card.stream[0].rkey, 0xdeadbeef);
	assert_int_equal(card.stream[0].base, 0x7f0000000000);
	(void)state;
}

static void
mistakes_name_file_line_and_allowed_values(void **state)
{
	expect_message(COMMON STREAM_0, "");
	expect_message("[card]\nversion = 2\ntransport = udp\nstreams = 65\nmtu = 1\ntile_bytes = "
		       "0x\ntrailer_bytes = 48\ntiles = -1\nslots = 08x\nslot_bytes = 1 MB\n",
		"@:2: [card] version = 2: expected 1\n"
		"@:3: [card] transport = udp: expected send or write\n"
		"@:4: [card] streams = 65: expected 1 to 64\n"
		"@:5: [card] mtu = 1: expected 256 to 4096\n"
		"@:6: [card] tile_bytes = 0x: expected 64 to 65536\n"
		"@:7: [card] trailer_bytes = 48: expected 64\n"
		"@:8: [card] tiles = -1: expected 1 to 65536\n"
		"@:9: [card] slots = 08x: expected 1 to 65536\n"
		"@:10: [card] slot_bytes = 1 MB: expected 128 to 4303355904");
	expect_message(COMMON "[stream 0]\nip = 10.0.0.1\nqpn = 1\npsn = 0x1000000\nrkey = "
			      "0x100000000\nbase = 0x0x40\n",
		"@:13: [stream 0] qpn = 1: expected 0x2 to 0xffffff\n"
		"@:14: [stream 0] psn = 0x1000000: expected 0x0 to 0xffffff\n"
		"@:15: [stream 0] rkey = 0x100000000: expected 0x0 to 0xffffffff\n"
		"@:16: [stream 0] base = 0x0x40: expected 0x0 to 0xffffffffffffffff");
	(void)state;
}

static void
a_check_of_several_values_names_the_line(void **state)
{
	expect_message("[card]\nversion = 1\ntransport = write\nstreams = 1\nmtu = 1500\n"
		       "tile_bytes = 8192\ntrailer_bytes = 64\ntiles = 128\nslots = 8\nslot_bytes "
		       "= 1056768\n" STREAM_0,
		"@:5: [card] mtu = 1500: expected 256, 512, 1024, 2048 or 4096");
	expect_message("[card]\nversion = 1\ntransport = write\nstreams = 1\nmtu = 4096\n"
		       "tile_bytes = 8200\ntrailer_bytes = 64\ntiles = 128\nslots = 8\nslot_bytes "
		       "= 1056768\n" STREAM_0,
		"@:6: [card] tile_bytes = 8200: expected a multiple of 64, 64 to 65536");
	expect_message("[card]\nversion = 1\ntransport = write\nstreams = 1\nmtu = 4096\n"
		       "tile_bytes = 8192\ntrailer_bytes = 64\ntiles = 128\nslots = 9\nslot_bytes "
		       "= 1056768\n" STREAM_0,
		"@:9: [card] slots = 9: expected a power of two, 1 to 65536");
	expect_message("[card]\nversion = 1\ntransport = write\nstreams = 1\nmtu = 4096\n"
		       "tile_bytes = 8192\ntrailer_bytes = 64\ntiles = 128\nslots = 8\nslot_bytes "
		       "= 1056832\n" STREAM_0,
		"@:10: [card] slot_bytes = 1056832: expected 1056768, that is tiles x (tile_bytes "
		"+ trailer_bytes)");
	expect_message("[card]\nversion = 1\ntransport = write\nstreams = 1\nmtu = 4096\n"
		       "tile_bytes = 8192\ntrailer_bytes = 64\ntiles = 128\nslots = 8\nslot_bytes "
		       "= 1056768\nleader_bytes = 64\n" STREAM_0,
		"@:10: [card] slot_bytes = 1056768: expected 1064960, that is tiles x "
		"(leader_bytes + tile_bytes + trailer_bytes)");
	expect_message("[card]\nversion = 1\ntransport = write\nstreams = 1\nmtu = 4096\n"
		       "tile_bytes = 8192\ntrailer_bytes = 64\ntiles = 128\nslots = 8\nslot_bytes "
		       "= 1056768\nleader_bytes = 32\n" STREAM_0,
		"@:11: [card] leader_bytes = 32: expected 0 or 64");
	expect_message(COMMON "[stream 0]\nip = 10.0.0.256\nqpn = 2\npsn = 0\nrkey = 0\nbase = 0\n",
		"@:12: [stream 0] ip = 10.0.0.256: expected an IPv4 or IPv6 address, as in "
		"10.0.0.1");
	expect_message(COMMON "[stream 0]\nip = ::1\nqpn = 2\npsn = 0\nrkey = 0\nbase = 72\n",
		"@:16: [stream 0] base = 0x48: expected a multiple of 64");
	expect_message(COMMON "[stream 0]\nip = ::1\nqpn = 2\npsn = 0\nrkey = 0\n"
			      "base = 0xffffffffffffffc0\n",
		"@:16: [stream 0] base = 0xffffffffffffffc0: expected 0x0 to 0xffffffffff7effff");
	(void)state;
}

static void
absent_unknown_and_repeated_keys_are_mistakes(void **state)
{
	expect_message(COMMON "[stream 0]\nip = 10.0.0.1\nqpn = 2\nqpn = 3\n",
		"@:14: [stream 0] qpn = 3: set twice, first in line 13; remove one\n"
		"@: [stream 0] psn: missing; add the key\n"
		"@: [stream 0] rkey: missing; add the key\n"
		"@: [stream 0] base: missing; add the key");
	expect_message(COMMON STREAM_0 "key = 1\n[stream 1]\n[stream 64]\n[other]\nip = 1\n",
		"@:17: [stream 0] key = 1: unknown key, expected ip, qpn, psn, rkey, base\n"
		"@:19: [stream 64]: expected [card], or [stream N] with N of 0 to 63\n"
		"@:20: [other]: expected [card], or [stream N] with N of 0 to 63\n"
		"@:18: [stream 1]: expected streams 0 to 0, as [card] streams = 1");
	expect_message("card\n" STREAM_0,
		"@:1: expected [section], key = value or a comment that starts with ;");
	(void)state;
}

static void
a_card_of_sends_needs_no_ring(void **state)
{
	expect_message("[card]\nversion = 1\ntransport = send\nstreams = 1\nmtu = 1024\ntile_bytes "
		       "= 4096\ntrailer_bytes = 64\ntiles = 256\n[stream 0]\nip = fd00::1\n"
		       "qpn = 2\npsn = 0\n",
		"");
	(void)state;
}

static void
a_missing_file_is_reported(void **state)
{
	struct ingest_card card;
	char message[256];

	assert_int_equal(
		ingest_card_read(&card, "/nowhere/card.ini", message, sizeof(message)), -ENOENT);
	assert_string_equal(message, "cannot read /nowhere/card.ini: No such file or directory");
	assert_int_equal(ingest_card_write(&card, "/nowhere/card.ini"), -ENOENT);
	(void)state;
}

static void
a_short_message_is_cut(void **state)
{
	struct ingest_card card;
	char message[8];

	write_text("[card]\nversion = 2\n");
	assert_int_equal(ingest_card_read(&card, path, message, sizeof(message)), -EINVAL);
	assert_int_equal(strlen(message), 7);
	card = a_card(INGEST_WRITE, 1);
	card.slots = 3;
	assert_int_equal(ingest_card_check(&card, message, sizeof(message)), -EINVAL);
	assert_string_equal(message, "[card] ");
	(void)state;
}

static void
a_check_reports_the_value(void **state)
{
	struct ingest_card card = a_card(INGEST_WRITE, 2);
	char message[256];

	assert_int_equal(ingest_card_check(&card, message, sizeof(message)), 0);
	assert_string_equal(message, "");
	card.stream[1].psn = 0x1000000;
	assert_int_equal(ingest_card_check(&card, message, sizeof(message)), -EINVAL);
	assert_string_equal(message, "[stream 1] psn = 0x1000000: expected 0x0 to 0xffffff");
	card = a_card(INGEST_UDP, 1);
	assert_int_equal(ingest_card_check(&card, message, sizeof(message)), -EINVAL);
	assert_string_equal(message, "[card] transport = udp: expected send or write");
	/* addresses without an end do not run over */
	card = a_card(INGEST_WRITE, 1);
	memset(card.stream[0].ip, '1', sizeof(card.stream[0].ip));
	assert_int_equal(ingest_card_check(&card, message, sizeof(message)), -EINVAL);
	(void)state;
}

static void
private_data_has_the_values_of_a_stream(void **state)
{
	for (int t = INGEST_SEND; t <= INGEST_WRITE; t++) {
		const struct ingest_card card = a_card((enum ingest_transport)t, 3);
		struct ingest_card got = {0}, want = card;
		uint8_t data[196] = {0}; /* padded by the CM */

		for (uint32_t s = 0; s < 3; s++) {
			ingest_card_to_private(&card, s, data);
			assert_int_equal(ingest_card_from_private(&got, s, data, sizeof(data)), 0);
			want.stream[s] = (struct ingest_stream){
				.rkey = card.stream[s].rkey, .base = card.stream[s].base};
		}
		assert_memory_equal(&got, &want, sizeof(want));
	}
	(void)state;
}

static void
private_data_has_a_fixed_layout(void **state)
{
	static const uint8_t expected[INGEST_PRIVATE_BYTES] = {'B', 'L', 'C', 'D', 0, 1, 0, 2, 0, 1,
		0x10, 0, 0, 0, 0x20, 0, 0, 0, 0, 64, 0, 0, 0, 128, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0,
		0, 0, 0x10, 0x20, 0, 0, 0, 0x7f, 0, 0x12, 0x34, 0, 0, 0xde, 0xad, 0, 0, 0, 0, 0, 0};
	static const uint8_t request[INGEST_REQUEST_BYTES] = {'B', 'L', 'R', 'Q', 0, 1, 0, 2, 0, 0,
		0, 5, 0xde, 0xad, 0, 1, 0, 0, 0x7f, 0, 0, 0, 0x10, 8};
	const struct ingest_card card = a_card(INGEST_WRITE, 1);
	uint8_t data[INGEST_PRIVATE_BYTES];

	ingest_card_to_private(&card, 0, data);
	assert_memory_equal(data, expected, sizeof(expected));
	ingest_request_encode(&(struct ingest_request){.stream = 5,
				      .transport = INGEST_WRITE,
				      .credit_address = 0x7f0000001008,
				      .credit_rkey = 0xdead0001},
		data);
	assert_memory_equal(data, request, sizeof(request));
	(void)state;
}

/* A value that is not allowed leaves the card as it was. */
static void
invalid_private_data_is_refused(void **state)
{
	static const struct {
		unsigned int at;
		uint8_t value;
	} wrong[] = {{0, 0}, {5, 2}, {7, 0}, {7, 3}, {9, 0}, {9, 65}, {11, 1}, {15, 32}, {19, 48},
		{22, 1}, {27, 9}, {31, 1}, {39, 64}, {47, 1}};
	const struct ingest_card card = a_card(INGEST_WRITE, 1);
	struct ingest_card got = {0};
	const struct ingest_card none = {0};
	uint8_t data[INGEST_PRIVATE_BYTES];

	for (unsigned int i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		ingest_card_to_private(&card, 0, data);
		data[wrong[i].at] = wrong[i].value;
		assert_int_equal(ingest_card_from_private(&got, 0, data, sizeof(data)), -EINVAL);
	}
	ingest_card_to_private(&card, 0, data);
	assert_int_equal(ingest_card_from_private(&got, 0, data, sizeof(data) - 1), -EINVAL);
	assert_int_equal(ingest_card_from_private(&got, 1, data, sizeof(data)), -EINVAL);
	assert_int_equal(
		ingest_card_from_private(&got, INGEST_STREAMS_MAX, data, sizeof(data)), -EINVAL);
	assert_memory_equal(&got, &none, sizeof(none));
	(void)state;
}

static void
requests_name_stream_and_transport(void **state)
{
	static const struct ingest_request wrong[] = {
		{.stream = 64, .transport = INGEST_SEND},
		{.stream = 0, .transport = INGEST_UDP},
		{.stream = 0, .transport = INGEST_WRITE + 1},
		{.stream = 0, .transport = INGEST_WRITE, .credit_address = 4},
		{.stream = 0, .transport = INGEST_WRITE, .credit_rkey = 1},
		{.stream = 0, .transport = INGEST_SEND, .credit_address = 8},
	};
	struct ingest_request request = {.stream = 63, .transport = INGEST_SEND}, got = {0};
	uint8_t data[56] = {0};

	ingest_request_encode(&request, data);
	assert_int_equal(ingest_request_decode(&got, data, sizeof(data)), 0);
	assert_int_equal(got.stream, 63);
	assert_int_equal(got.transport, INGEST_SEND);
	assert_int_equal(got.credit_address, 0);
	assert_int_equal(ingest_request_decode(&got, data, INGEST_REQUEST_BYTES - 1), -EINVAL);
	for (unsigned int i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		ingest_request_encode(&wrong[i], data);
		assert_int_equal(ingest_request_decode(&got, data, sizeof(data)), -EINVAL);
	}
	request = (struct ingest_request){
		.transport = INGEST_WRITE, .credit_address = UINT64_MAX - 7, .credit_rkey = 7};
	ingest_request_encode(&request, data);
	assert_int_equal(ingest_request_decode(&got, data, sizeof(data)), 0);
	assert_int_equal(got.credit_address, UINT64_MAX - 7);
	assert_int_equal(got.credit_rkey, 7);
	data[5]++;
	assert_int_equal(ingest_request_decode(&got, data, sizeof(data)), -EINVAL);
	(void)state;
}

static void
addresses_use_the_ring(void **state)
{
	const struct ingest_card c = a_card(INGEST_WRITE, 2);

	assert_int_equal(ingest_address(&c, 0, 0, 0), 0x7f0012340000);
	assert_int_equal(ingest_address(&c, 1, 8, 0), c.stream[1].base);
	assert_int_equal(ingest_address(&c, 1, 0xFFFF000A, 127),
		c.stream[1].base + 2 * 1056768 + 127 * 8256);
	(void)state;
}

static void
immediates_widen_to_the_nearest_frame(void **state)
{
	static const uint64_t near[] = {0, 5, 0x7FFFFF, 0x1000000, 0x1800000, 0xFFFFFF000000};

	assert_int_equal(ingest_immediate(63, 0x123456789), 0x3f456789);
	assert_int_equal(ingest_immediate_stream(0x3f456789), 63);
	for (unsigned int i = 0; i < sizeof(near) / sizeof(near[0]); i++) {
		for (int64_t d = -0x7FFFFF; d <= 0x7FFFFF; d += 0x7FFFF) {
			if (d < 0 && (uint64_t)-d > near[i])
				continue;
			assert_int_equal(
				ingest_immediate_frame(
					ingest_immediate(7, near[i] + (uint64_t)d), near[i]),
				near[i] + (uint64_t)d);
		}
	}
	(void)state;
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_written_card_reads_as_the_same),
		cmocka_unit_test(hex_and_decimal_numbers_are_accepted),
		cmocka_unit_test(mistakes_name_file_line_and_allowed_values),
		cmocka_unit_test(a_check_of_several_values_names_the_line),
		cmocka_unit_test(absent_unknown_and_repeated_keys_are_mistakes),
		cmocka_unit_test(a_card_of_sends_needs_no_ring),
		cmocka_unit_test(a_missing_file_is_reported),
		cmocka_unit_test(a_short_message_is_cut),
		cmocka_unit_test(a_check_reports_the_value),
		cmocka_unit_test(private_data_has_the_values_of_a_stream),
		cmocka_unit_test(private_data_has_a_fixed_layout),
		cmocka_unit_test(invalid_private_data_is_refused),
		cmocka_unit_test(requests_name_stream_and_transport),
		cmocka_unit_test(addresses_use_the_ring),
		cmocka_unit_test(immediates_widen_to_the_nearest_frame),
	};
	int fd = mkstemp(path), ret;

	if (fd < 0)
		return 1;
	close(fd);
	ret = cmocka_run_group_tests(tests, NULL, NULL);
	unlink(path);
	return ret;
}
