/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * braggline-detector: messages as fragments of multicast streams, with a ring of this test in place
 * of rdma_stream. Group addresses.
 */

#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ingest/multicast.h"
#include "transmit/address.h"
#include "transmit/loop.h"
#include "transmit/multicast.h"
#include "wire/messages.h"

#define TILES	128
#define MESSAGE (JUNGFRAU_PAYLOAD_BYTES + INGEST_TRAILER_BYTES)

/* ---- a fake ring, which checks fragments and joins them to messages ----------------------- */

static struct {
	uint32_t max;  /* bytes of a message in a fragment */
	uint32_t room; /* packets until it is full for ever */
	bool failed;
	uint32_t packets, messages, events, incomplete, polls;
	uint8_t slot[sizeof(struct ingest_fragment) + 4096];
	uint8_t message[MESSAGE];
	uint32_t have;	  /* bytes of the message */
	uint32_t tile[8]; /* tile numbers of the first messages */
} ring;

static struct transmit_frame frame;
static struct transmit_frames frames;
static struct jungfrau_wire wire;
static struct detector_report report;

uint32_t __wrap_transmit_multicast_fragment_max(const struct transmit_multicast *m);
uint8_t *__wrap_transmit_multicast_next(struct transmit_multicast *m, uint32_t stream);
uint32_t __wrap_transmit_multicast_commit(
	struct transmit_multicast *m, uint32_t stream, uint32_t bytes);
bool __wrap_transmit_multicast_poll(struct transmit_multicast *m);
bool __wrap_transmit_multicast_failed(const struct transmit_multicast *m);

uint32_t
__wrap_transmit_multicast_fragment_max(const struct transmit_multicast *m)
{
	return ring.max;
}

uint8_t *
__wrap_transmit_multicast_next(struct transmit_multicast *m, uint32_t stream)
{
	return ring.packets < ring.room ? ring.slot : NULL;
}

bool
__wrap_transmit_multicast_poll(struct transmit_multicast *m)
{
	ring.polls++;
	return false;
}

bool
__wrap_transmit_multicast_failed(const struct transmit_multicast *m)
{
	return ring.failed;
}

static void
take_message(const struct ingest_fragment *f)
{
	const uint8_t *pixels = (const uint8_t *)frame.raw + f->tile * JUNGFRAU_PAYLOAD_BYTES;
	uint64_t number;
	uint32_t packet;

	assert_memory_equal(ring.message, pixels, JUNGFRAU_PAYLOAD_BYTES);
	memcpy(&number, ring.message + JUNGFRAU_PAYLOAD_BYTES, sizeof(number));
	memcpy(&packet, ring.message + JUNGFRAU_PAYLOAD_BYTES + 12, sizeof(packet));
	assert_true(number == f->frame && packet == f->tile);
	for (uint32_t i = JUNGFRAU_SLS_BYTES; i < INGEST_TRAILER_BYTES; i++)
		assert_int_equal(ring.message[JUNGFRAU_PAYLOAD_BYTES + i], 0);
	if (ring.messages < 8)
		ring.tile[ring.messages] = f->tile;
	ring.messages++;
}

uint32_t
__wrap_transmit_multicast_commit(struct transmit_multicast *m, uint32_t stream, uint32_t bytes)
{
	const uint32_t data = bytes - (uint32_t)sizeof(struct ingest_fragment);
	struct ingest_fragment f;

	ring.packets++;
	assert_int_equal(ingest_fragment_decode(ring.slot, bytes, ring.max, &f), 0);
	assert_int_equal(f.stream, stream);
	assert_int_equal(f.tiles, TILES);
	if (f.tile == INGEST_EVENT) {
		ring.events++;
		return bytes;
	}
	assert_int_equal(f.message, MESSAGE);
	if (f.offset == 0)
		ring.have = 0;
	if (f.offset != ring.have) {
		/* a fragment was dropped */
		ring.have = UINT32_MAX;
		return bytes;
	}
	memcpy(ring.message + f.offset, ring.slot + sizeof(f), data);
	ring.have = f.offset + data;
	if (ring.have == MESSAGE)
		take_message(&f);
	return bytes;
}

/* ---- runs ----------------------------------------------------------------------------------- */

static int
setup(void **state)
{
	uint16_t *raw = malloc(JUNGFRAU_PIXELS * sizeof(*raw));

	if (raw == NULL)
		return -1;
	for (uint32_t i = 0; i < JUNGFRAU_PIXELS; i++)
		raw[i] = (uint16_t)(i * 2654435761u >> 8);
	frame.raw = raw;
	frames = (struct transmit_frames){.nb_frames = 1, .frame = &frame};
	wire = (struct jungfrau_wire){
		.modules = 1, .interfaces = 1, .rows = 512, .column_modules = 1};
	return 0;
}

static int
teardown(void **state)
{
	free(frame.raw);
	return 0;
}

/* Send one frame. @return whether the loop goes on */
static bool
send_frame(uint32_t path_mtu, uint32_t room, const char *fault)
{
	static const volatile sig_atomic_t no_stop;
	struct fault_options options = {.messages = true};
	struct jungfrau_frame_header header = {.number = 0x0102030405060708};
	struct frame_outcome outcome;
	struct transmit_loop loop = {.wire = &wire,
		.frames = &frames,
		.first = 1,
		.kept = &header,
		.nb_kept = 1,
		.stop = &no_stop,
		.report = &report};
	uint32_t count;

	memset(&ring, 0, sizeof(ring));
	memset(&report, 0, sizeof(report));
	ring.max = ingest_fragment_max(path_mtu - RDMA_STREAM_HEADER_BYTES);
	ring.room = room;
	if (fault != NULL)
		assert_int_equal(fault_options_parse(fault, &options), 0);
	assert_int_equal(packet_faults_create(&options, &wire, 1, &loop.faults), 0);
	loop.packets = calloc(packet_faults_room(loop.faults), sizeof(*loop.packets));
	assert_non_null(loop.packets);
	count = packet_faults_frame(loop.faults, 1, loop.packets, &outcome);
	transmit_fragments.send(&loop, count, 0);
	if (!loop.timed_out)
		transmit_fragments.end_frame(&loop, 1);
	free(loop.packets);
	packet_faults_destroy(loop.faults);
	return !loop.timed_out;
}

static void
fragments_make_the_messages(void **state)
{
	static const struct {
		uint32_t mtu, fragments;
	} cases[] = {{4096, 3}, {2048, 5}, {1024, 9}, {512, 19}, {256, 43}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_true(send_frame(cases[i].mtu, UINT32_MAX, NULL));
		assert_int_equal(ring.messages, TILES);
		assert_int_equal(ring.packets, TILES * cases[i].fragments + 1);
		assert_int_equal(ring.events, 1);
		assert_true(report.sent == TILES && report.events == 1);
		assert_true(ring.tile[0] == 0 && ring.tile[7] == 7);
	}
}

/* A dropped fragment is not in the stream; a lost message has none. */
static void
faults_leave_fragments_out(void **state)
{
	static const char *const parts[] = {"drop=FIRST:1", "drop=MIDDLE:1", "drop=LAST:1"};

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		assert_true(send_frame(4096, UINT32_MAX, parts[i]));
		assert_int_equal(ring.messages, 0);
		assert_int_equal(ring.packets, 2 * TILES + 1);
		assert_true(report.sent == TILES);
	}
	assert_true(send_frame(4096, UINT32_MAX, "loss=1"));
	assert_int_equal(ring.packets, 1);
	assert_true(report.sent == 0);
	assert_true(send_frame(4096, UINT32_MAX, "event-loss=1"));
	assert_true(ring.events == 0 && report.events == 0);
	assert_int_equal(ring.messages, TILES);
	assert_true(send_frame(4096, UINT32_MAX, "stall=0:1:1"));
	assert_int_equal(ring.packets, 0);
	assert_true(send_frame(4096, UINT32_MAX, "duplicate=1"));
	assert_int_equal(ring.messages, 2 * TILES);
}

/* The loop's link_timeout_s is 0 s here. */
static void
a_ring_that_stays_full_ends_the_run(void **state)
{
	assert_false(send_frame(4096, 100, NULL));
	assert_int_equal(ring.packets, 100);
	assert_int_equal(ring.messages, 33);
	assert_true(report.full == 1 && report.sent == 33);
	assert_true(ring.polls > 0);
	/* at the event */
	assert_false(send_frame(4096, 3 * TILES, NULL));
	assert_true(report.sent == TILES && report.events == 0);
}

/* ---- addresses ------------------------------------------------------------------------------ */

static void
expect_group(const char *first, uint32_t n, const char *expected)
{
	struct sockaddr_storage addr;
	char text[RDMA_ADDRESS_LEN];

	assert_int_equal(transmit_address_parse(first, 7, &addr), 0);
	if (expected == NULL) {
		assert_int_equal(transmit_address_group(&addr, n), -EINVAL);
		return;
	}
	assert_int_equal(transmit_address_group(&addr, n), 0);
	assert_string_equal(rdma_address_text((struct sockaddr *)&addr, text), expected);
}

static void
groups_are_counted(void **state)
{
	struct sockaddr_storage addr;

	expect_group("239.192.0.0", 0, "239.192.0.0");
	expect_group("239.192.0.255", 1, "239.192.1.0");
	expect_group("239.255.255.255", 1, NULL);
	expect_group("224.0.0.1", UINT32_MAX, NULL);
	expect_group("10.0.0.1", 0, NULL);
	expect_group("ff15::fffe", 3, "ff15::1:1");
	expect_group("ff15::ffff:ffff", 1, NULL);
	expect_group("fd00::1", 0, NULL);
	assert_int_equal(transmit_address_parse("239.1.1", 0, &addr), -EINVAL);
	assert_int_equal(transmit_address_parse("", 0, &addr), -EINVAL);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fragments_make_the_messages),
		cmocka_unit_test(faults_leave_fragments_out),
		cmocka_unit_test(a_ring_that_stays_full_ends_the_run),
		cmocka_unit_test(groups_are_counted),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
