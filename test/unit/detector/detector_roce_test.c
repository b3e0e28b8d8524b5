/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * braggline-detector: captures of RoCE messages. The packets are decoded here from the formats of
 * IBTA chapter 9 and annex A17, and the messages are compared with the UDP packets of the same
 * seed.
 */

#include <arpa/inet.h>
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
#include <pcap/pcap.h>

#include "detector_options.h"
#include "detector_run.h"
#include "ingest/card.h"
#include "wire/messages.h"

#define FRAMES	8
#define STREAMS 4
#define TILES	128
#define MESSAGE (8192 + 64)

static char directory[] = "/tmp/detector_roce_test.XXXXXX";

static const char *
path_of(const char *name)
{
	static char paths[8][256];
	static unsigned int next;
	char *path = paths[next++ % 8];

	snprintf(path, sizeof(paths[0]), "%s/%s", directory, name);
	return path;
}

static uint64_t
be(const uint8_t *at, int bytes)
{
	uint64_t value = 0;

	while (bytes-- > 0)
		value = value << 8 | *at++;
	return value;
}

static uint64_t
le(const uint8_t *at, int bytes)
{
	uint64_t value = 0;

	while (bytes-- > 0)
		value = value << 8 | at[bytes];
	return value;
}

/* Bit by bit, as in the specification. */
static uint32_t
crc32_bits(uint32_t crc, const uint8_t *bytes, size_t length)
{
	for (size_t i = 0; i < length; i++) {
		crc ^= bytes[i];
		for (int b = 0; b < 8; b++)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
	}
	return crc;
}

/* ICRC of an IPv4 packet. */
static uint32_t
icrc_of(const uint8_t *packet, uint32_t length)
{
	static const uint8_t ones[8] = {255, 255, 255, 255, 255, 255, 255, 255};
	static const unsigned int masked[] = {1, 8, 10, 11, 26, 27, 32};
	uint8_t l3[8192];

	memcpy(l3, packet + 14, length - 14);
	for (unsigned int i = 0; i < sizeof(masked) / sizeof(masked[0]); i++)
		l3[masked[i]] = 0xff;
	return ~crc32_bits(crc32_bits(~0u, ones, sizeof(ones)), l3, length - 14 - 4);
}

static struct ingest_card
a_card(enum ingest_transport transport, uint32_t streams, uint32_t mtu)
{
	struct ingest_card c = {.transport = transport,
		.streams = streams,
		.mtu = mtu,
		.tile_bytes = 8192,
		.trailer_bytes = 64,
		.tiles = TILES,
		.slots = transport == INGEST_WRITE ? 4 : 0,
		.slot_bytes = transport == INGEST_WRITE ? TILES * MESSAGE : 0};

	for (uint32_t s = 0; s < streams; s++) {
		snprintf(c.stream[s].ip, sizeof(c.stream[s].ip), "10.7.0.%u", s + 1);
		c.stream[s].qpn = 0x123456 + s;
		c.stream[s].psn = 0xFFFFF0 + 4 * s; /* wraps soon */
		c.stream[s].rkey = transport == INGEST_WRITE ? 0xabcd0000 + s : 0;
		c.stream[s].base =
			transport == INGEST_WRITE ? 0x7f0000000000 + ((uint64_t)s << 30) : 0;
	}
	return c;
}

static struct detector_options
options_of(uint32_t modules, uint32_t interfaces)
{
	struct detector_options options;

	detector_options_default(&options);
	options.model.modules = options.wire.modules = modules;
	options.model.column_modules = options.wire.column_modules = modules;
	options.wire.interfaces = interfaces;
	options.frames = FRAMES;
	return options;
}

/* A capture, as a receiver that follows the rules of UC sees it. */
struct seen {
	uint32_t packets, events, messages, gaps, lost, dropped, copies;
	uint64_t bytes;
	uint32_t next_psn[STREAMS];
	uint32_t length[STREAMS]; /* of the message so far; UINT32_MAX: dropped */
	uint64_t address[STREAMS];
	bool started[STREAMS];
	bool event[STREAMS][FRAMES + 2];
	uint8_t message[STREAMS][MESSAGE];
	uint8_t *tile[STREAMS][FRAMES + 2][TILES]; /* by frame and packet in the trailer */
};

static void
take_message(struct seen *seen, const struct ingest_card *card, uint32_t stream)
{
	const uint8_t *sls = seen->message[stream] + 8192;
	const uint64_t frame = le(sls, 8);
	const uint32_t packet = (uint32_t)le(sls + 12, 4);

	assert_true(frame < FRAMES + 2 && packet < TILES);
	for (int i = 48; i < 64; i++)
		assert_int_equal(sls[i], 0);
	if (card->transport == INGEST_WRITE)
		assert_int_equal(
			seen->address[stream], ingest_address(card, stream, frame, packet));
	seen->messages++;
	if (seen->tile[stream][frame][packet] != NULL) {
		seen->copies++;
		return;
	}
	seen->tile[stream][frame][packet] = malloc(MESSAGE);
	memcpy(seen->tile[stream][frame][packet], seen->message[stream], MESSAGE);
}

static void
take_event(struct seen *seen, const struct ingest_card *card, uint32_t stream,
	const uint8_t *extended, uint32_t length)
{
	const uint32_t reth = card->transport == INGEST_WRITE ? 16 : 0;
	const uint32_t immediate = (uint32_t)be(extended + reth, 4);

	for (uint32_t i = 0; i < reth; i++)
		assert_int_equal(extended[i], 0);
	assert_int_equal(length, reth + 4);
	assert_int_equal(immediate >> 24, stream);
	assert_false(seen->event[stream][immediate & 0xffffff]);
	seen->event[stream][immediate & 0xffffff] = true;
	seen->events++;
}

/* A packet of a message: opcodes 0 first, 1 middle, 2 last of SEND or WRITE. */
static void
take_part(struct seen *seen, const struct ingest_card *card, uint32_t stream, uint32_t part,
	const uint8_t *at, uint32_t length)
{
	if (part == 0) {
		seen->length[stream] = 0;
		if (card->transport == INGEST_WRITE) {
			seen->address[stream] = be(at, 8);
			assert_int_equal(be(at + 8, 4), card->stream[stream].rkey);
			assert_int_equal(be(at + 12, 4), MESSAGE);
			at += 16;
			length -= 16;
		}
	}
	if (seen->length[stream] == UINT32_MAX) {
		seen->dropped++;
		return;
	}
	assert_int_equal(part == 2, seen->length[stream] + length == MESSAGE);
	assert_true(part == 2 || length == card->mtu);
	memcpy(seen->message[stream] + seen->length[stream], at, length);
	seen->length[stream] += length;
	if (part == 2)
		take_message(seen, card, stream);
}

static void
take_packet(struct seen *seen, const struct ingest_card *card, const uint8_t *p, uint32_t length)
{
	const uint8_t first = card->transport == INGEST_WRITE ? 0x26 : 0x20;
	const uint32_t stream = (uint32_t)be(p + 47, 3) - card->stream[0].qpn;
	const uint32_t psn = (uint32_t)be(p + 51, 3), part = p[42] - first;
	struct in_addr ip;
	uint32_t sum = 0;

	assert_true(stream < card->streams);
	assert_int_equal(be(p + 12, 2), 0x0800);
	assert_int_equal(be(p + 16, 2), length - 14);
	for (int i = 14; i < 34; i += 2)
		sum += (uint32_t)be(p + i, 2);
	assert_int_equal((sum & 0xffff) + (sum >> 16), 0xffff);
	assert_int_equal(inet_pton(AF_INET, card->stream[stream].ip, &ip), 1);
	assert_memory_equal(p + 30, &ip, 4);
	assert_int_equal(be(p + 26, 4), 0x0a010101 + stream); /* --source-ip */
	assert_true(be(p + 34, 2) >= 0xc000);
	assert_int_equal(be(p + 36, 2), 4791);
	assert_int_equal(be(p + 38, 2), length - 34);
	assert_int_equal(p[43], 0); /* no pad, version 0 */
	assert_int_equal(be(p + 44, 2), 0xffff);
	assert_int_equal(p[50], 0); /* UC: no acknowledgement */
	assert_int_equal(le(p + length - 4, 4), icrc_of(p, length));

	if (!seen->started[stream]) {
		seen->started[stream] = true;
		seen->next_psn[stream] = card->stream[stream].psn;
		seen->length[stream] = UINT32_MAX;
	}
	if (psn != seen->next_psn[stream]) {
		seen->gaps++;
		seen->lost += (psn - seen->next_psn[stream]) & 0xffffff;
		seen->length[stream] = UINT32_MAX;
	}
	seen->next_psn[stream] = (psn + 1) & 0xffffff;
	seen->packets++;
	seen->bytes += length;
	if (part == 5) /* ONLY with immediate */
		take_event(seen, card, stream, p + 54, length - 54 - 4);
	else if (part <= 2)
		take_part(seen, card, stream, part, p + 54, length - 54 - 4);
	else
		fail_msg("opcode 0x%02x", p[42]);
}

static struct seen *
read_capture(const char *path, const struct ingest_card *card)
{
	struct seen *seen = calloc(1, sizeof(*seen));
	char error[PCAP_ERRBUF_SIZE];
	struct pcap_pkthdr *captured;
	struct timeval last = {0};
	const u_char *data;
	pcap_t *pcap =
		pcap_open_offline_with_tstamp_precision(path, PCAP_TSTAMP_PRECISION_NANO, error);

	assert_non_null(seen);
	assert_non_null(pcap);
	while (pcap_next_ex(pcap, &captured, &data) == 1) {
		assert_true(captured->ts.tv_sec > last.tv_sec ||
			(captured->ts.tv_sec == last.tv_sec &&
				captured->ts.tv_usec >= last.tv_usec));
		last = captured->ts;
		take_packet(seen, card, data, captured->caplen);
	}
	pcap_close(pcap);
	return seen;
}

static void
forget(struct seen *seen)
{
	for (int s = 0; s < STREAMS; s++)
		for (int f = 0; f < FRAMES + 2; f++)
			for (int t = 0; t < TILES; t++)
				free(seen->tile[s][f][t]);
	free(seen);
}

/* Run with a card. The capture is w.pcap, the report r.ini. */
static struct seen *
run_with(
	struct detector_options *options, const struct ingest_card *card, const char *const *faults)
{
	for (; faults != NULL && *faults != NULL; faults++)
		assert_int_equal(fault_options_parse(*faults, &options->faults), 0);
	assert_int_equal(ingest_card_write(card, path_of("card.ini")), 0);
	options->transport = card->transport;
	options->faults.messages = true;
	options->card_path = path_of("card.ini");
	options->pcap_path = path_of("w.pcap");
	options->report_path = path_of("r.ini");
	assert_int_equal(detector_options_check(options), 0);
	assert_int_equal(detector_run(options), 0);
	return read_capture(options->pcap_path, card);
}

static uint64_t
reported(const char *section, const char *key)
{
	char line[128], inside[64] = "", name[64];
	unsigned long long value;
	uint64_t result = UINT64_MAX;
	FILE *file = fopen(path_of("r.ini"), "r");

	assert_non_null(file);
	while (fgets(line, sizeof(line), file) != NULL) {
		if (sscanf(line, "[%63[^]]]", name) == 1)
			strcpy(inside, name);
		else if (sscanf(line, "%63s = %llu", name, &value) == 2 &&
			strcmp(inside, section) == 0 && strcmp(name, key) == 0)
			result = value;
	}
	fclose(file);
	if (result == UINT64_MAX)
		fail_msg("no [%s] %s", section, key);
	return result;
}

/* Compare the messages with the packets of a UDP run. @return number of packets */
static uint32_t
compare_with_udp(struct seen *seen, struct detector_options options, const char *const *faults)
{
	char error[PCAP_ERRBUF_SIZE];
	struct pcap_pkthdr *captured;
	const uint8_t *message;
	const u_char *p;
	uint32_t packets = 0, stream, number;
	uint64_t frame;
	pcap_t *pcap;

	options.transport = INGEST_UDP;
	options.faults = (struct fault_options){0};
	options.card_path = options.report_path = NULL;
	options.pcap_path = path_of("udp.pcap");
	for (; faults != NULL && *faults != NULL; faults++)
		assert_int_equal(fault_options_parse(*faults, &options.faults), 0);
	assert_int_equal(detector_run(&options), 0);
	pcap = pcap_open_offline(options.pcap_path, error);
	assert_non_null(pcap);
	while (pcap_next_ex(pcap, &captured, &p) == 1) {
		stream = (uint32_t)be(p + 36, 2) - 50001;
		frame = le(p + 42, 8);
		number = (uint32_t)le(p + 54, 4);
		message = seen->tile[stream][frame][number];
		if (message == NULL)
			fail_msg("stream %u, frame %u, packet %u is missing", stream,
				(unsigned int)frame, number);
		assert_memory_equal(message, p + 90, 8192);
		assert_memory_equal(message + 8192, p + 42, 48);
		packets++;
	}
	pcap_close(pcap);
	return packets;
}

static void
messages_are_the_udp_packets(void **state)
{
	static const uint32_t mtus[] = {256, 1024, 4096};

	for (unsigned int m = 0; m < 3; m++) {
		for (int t = INGEST_SEND; t <= INGEST_WRITE; t++) {
			struct detector_options options = options_of(2, 2);
			const struct ingest_card card =
				a_card((enum ingest_transport)t, STREAMS, mtus[m]);
			const uint32_t packets = message_packets(&card);
			struct seen *seen;

			options.frames = 3;
			options.model.rows = options.wire.rows = m == 2 ? 512 : 64;
			seen = run_with(&options, &card, NULL);
			assert_int_equal(seen->gaps + seen->dropped + seen->copies, 0);
			assert_int_equal(compare_with_udp(seen, options, NULL), seen->messages);
			assert_int_equal(seen->events, 3 * STREAMS);
			assert_int_equal(seen->packets, seen->messages * packets + seen->events);
			assert_int_equal(reported("packets", "sent"), seen->messages);
			assert_int_equal(reported("packets", "bytes"), seen->bytes);
			assert_int_equal(reported("packets", "events"), seen->events);
			forget(seen);
		}
	}
	(void)state;
}

static void
lost_messages_leave_gaps(void **state)
{
	static const char *const faults[] = {
		"loss=0.03", "burst-loss=0.002:9", "duplicate=0.02", "stall=1:3:4", NULL};
	struct detector_options options = options_of(2, 1);
	const struct ingest_card card = a_card(INGEST_WRITE, 2, 4096);
	struct seen *seen = run_with(&options, &card, faults);
	const uint64_t lost = reported("faults", "loss") + reported("faults", "burst_loss");

	assert_true(reported("faults", "loss") > 20);
	assert_true(reported("faults", "burst_loss") > 0);
	/* a loss of the last messages has no packet that shows it, but the event follows */
	assert_int_equal(seen->lost, 3 * lost);
	assert_int_equal(seen->dropped, 0);
	assert_int_equal(seen->copies, reported("faults", "duplicate"));
	assert_int_equal(seen->events, 2 * FRAMES - 2);
	assert_int_equal(seen->messages - seen->copies, reported("packets", "placeable"));
	assert_int_equal(seen->messages, reported("packets", "sent"));
	/* the same are lost over UDP */
	assert_int_equal(compare_with_udp(seen, options, faults), seen->messages);
	forget(seen);
	(void)state;
}

static void
chosen_packets_are_lost(void **state)
{
	static const struct {
		const char *fault[2], *key;
		uint32_t dropped; /* packets that arrive of a message with a gap */
	} cases[] = {{{"drop=FIRST:0.05"}, "drop_first", 8}, {{"drop=LAST:0.05"}, "drop_last", 0},
		{{"drop=EVENT:0.5"}, "drop_event", 0}, {{"event-loss=0.5"}, "drop_event", 0}};

	for (unsigned int i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct detector_options options = options_of(2, 1);
		const struct ingest_card card = a_card(INGEST_SEND, 2, 1024);
		struct seen *seen = run_with(&options, &card, cases[i].fault);
		const uint32_t lost = (uint32_t)reported("faults", cases[i].key);
		const bool event = strcmp(cases[i].key, "drop_event") == 0;

		assert_true(lost > (event ? 2 : 40));
		assert_int_equal(seen->dropped, lost * cases[i].dropped);
		assert_int_equal(seen->messages, FRAMES * 256 - (event ? 0 : lost));
		assert_int_equal(seen->messages, reported("packets", "placeable"));
		assert_int_equal(seen->events, FRAMES * 2 - (event ? lost : 0));
		/* the events of the last frame may be without a later packet */
		assert_true(seen->lost <= lost && seen->lost + 2 >= lost);
		forget(seen);
	}
	(void)state;
}

static void
a_middle_packet_is_one_of_several(void **state)
{
	static const char *const faults[] = {"drop=MIDDLE:0.05", NULL};
	struct detector_options options = options_of(2, 1);
	const struct ingest_card card = a_card(INGEST_WRITE, 2, 1024);
	struct seen *seen = run_with(&options, &card, faults);
	const uint32_t lost = (uint32_t)reported("faults", "drop_middle");

	assert_true(lost > 40);
	assert_int_equal(seen->lost, lost);
	assert_int_equal(seen->messages, FRAMES * 256 - lost);
	/* 1 to 7 of the 9 packets come after the gap */
	assert_true(seen->dropped > lost && seen->dropped < 7 * lost);
	forget(seen);
	(void)state;
}

/* Late messages of the last frames follow after the last event. */
static void
reordered_messages_are_complete(void **state)
{
	static const char *const faults[] = {"reorder=0.2:400", NULL};
	struct detector_options options = options_of(2, 1);
	const struct ingest_card card = a_card(INGEST_WRITE, 2, 4096);
	struct seen *seen = run_with(&options, &card, faults);

	assert_true(reported("faults", "reorder") > 100);
	assert_int_equal(seen->gaps, 0);
	assert_int_equal(compare_with_udp(seen, options, NULL), seen->messages);
	assert_int_equal(seen->events, 2 * FRAMES);
	forget(seen);
	(void)state;
}

static int
parse(int nb, const char *const *words)
{
	char *argv[16] = {(char *)(uintptr_t) "braggline-detector"};
	struct detector_options options;

	for (int i = 0; i < nb; i++)
		argv[i + 1] = (char *)(uintptr_t)words[i];
	return detector_options_parse(nb + 1, argv, &options);
}

static void
mistakes_in_options_are_refused(void **state)
{
	static const char *const bad[][8] = {
		{"--transport", "tcp", "--pcap", "x"},
		{"--transport", "write", "--port", "0", "--card", "c"},
		{"--transport", "write", "--pcap", "x"},
		{"--transport", "write", "--pcap", "x", "--connect", "10.0.0.1:1"},
		{"--transport", "write", "--device", "roce:port=0"},
		{"--transport", "write", "--device", "d", "--card", "c", "--connect", "10.0.0.1:1"},
		{"--transport", "write", "--device", "d", "--card", "c", "--queue-pairs", "rc"},
		{"--transport", "write", "--device", "d", "--card", "c", "--pcap", "x"},
		{"--transport", "write", "--pcap", "x", "--card", "c", "--fault", "corrupt=0.1"},
		{"--transport", "send", "--pcap", "x", "--card", "c", "--fault", "truncate=0.1"},
		{"--queue-pairs", "ud", "--pcap", "x"},
		{"--queue-pairs", "rc", "--pcap", "x"},
		{"--card", "c", "--pcap", "x"},
		{"--connect", "10.0.0.1:1", "--pcap", "x"},
		{"--device", "d"},
		{"--pcap", "x", "--fault", "drop=FIRST:0.1"},
		{"--pcap", "x", "--fault", "event-loss=0.1"},
		{"--transport", "write", "--card", "c", "--pcap", "x", "--loop"},
		{"--transport", "multicast", "--device", "d", "--card", "c"},
		{"--transport", "multicast", "--device", "d", "--connect", "10.0.0.1:1"},
		{"--transport", "multicast", "--device", "d", "--queue-pairs", "rc"},
		{"--transport", "multicast", "--port", "0"},
		{"--transport", "multicast", "--pcap", "x"},
		{"--transport", "multicast", "--device", "d", "--ring-slots", "100"},
		{"--transport", "multicast", "--device", "d", "--members", "65"},
		{"--transport", "multicast", "--device", "d", "--policy", "drop"},
		{"--transport", "multicast", "--device", "d", "--service", "0"},
		{"--transport", "multicast", "--device", "d", "--fault", "corrupt=0.1"},
		{"--transport", "send", "--card", "c", "--pcap", "x", "--keys", "k"},
		{"--transport", "send", "--card", "c", "--pcap", "x", "--group", "239.0.0.1"},
		{"--transport", "write", "--card", "c", "--pcap", "x", "--fault", "read-loss=0.1"},
		{"--pcap", "x", "--fault", "group-loss=0.1"},
		{"--pcap", "x", "--members", "2"},
		{"--pcap", "x", "--policy", "overwrite"},
	};
	static const char *const good[][8] = {
		{"--transport", "udp", "--queue-pairs", "uc", "--pcap", "x"},
		{"--transport", "write", "--card", "c", "--pcap", "x"},
		{"--transport", "send", "--device", "d", "--card", "c", "--loop"},
		{"--transport", "send", "--device", "d", "--connect", "h:1", "--queue-pairs", "rc"},
		{"--transport", "write", "--card", "c", "--pcap", "x", "--fault", "drop=LAST:1"},
		{"--transport", "multicast", "--device", "d", "--members", "0", "--loop"},
		{"--transport", "multicast", "--device", "d", "--policy", "overwrite"},
		{"--transport", "multicast", "--device", "d", "--fault", "group-loss=0.1"},
		{"--transport", "multicast", "--device", "d", "--fault", "drop=LAST:1"},
	};
	int n;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		for (n = 0; n < 8 && bad[i][n] != NULL; n++)
			;
		if (parse(n, bad[i]) != -EINVAL)
			fail_msg("accepted: %s %s ...", bad[i][0], bad[i][1]);
	}
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		for (n = 0; n < 8 && good[i][n] != NULL; n++)
			;
		if (parse(n, good[i]) != 0)
			fail_msg("refused: %s %s ...", good[i][0], good[i][1]);
	}
	(void)state;
}

static void
cards_of_other_detectors_are_refused(void **state)
{
	for (int i = 0; i < 7; i++) {
		struct detector_options options = options_of(2, 1);
		struct ingest_card card = a_card(INGEST_WRITE, 2, 4096);

		switch (i) {
		case 0:
			card.streams = 3;
			card.stream[2] = card.stream[1];
			break;
		case 1:
			card = a_card(INGEST_SEND, 2, 4096);
			break;
		case 2:
			card.tile_bytes = 4096;
			card.slot_bytes = TILES * (4096 + 64);
			break;
		case 3:
			card.tiles = 127;
			card.slot_bytes = 127 * MESSAGE;
			break;
		case 4:
			strcpy(card.stream[1].ip, "fd00::1");
			break;
		case 5:
			card.slots = 3; /* not a card */
			break;
		default:
			break;
		}
		assert_int_equal(ingest_card_write(&card, path_of("card.ini")), 0);
		options.transport = INGEST_WRITE;
		options.card_path = i == 6 ? path_of("absent.ini") : path_of("card.ini");
		options.pcap_path = path_of("no.pcap");
		assert_int_equal(detector_run(&options), i == 6 ? -ENOENT : -EINVAL);
		assert_int_not_equal(access(path_of("no.pcap"), F_OK), 0);
	}
	(void)state;
}

static int
make_directory(void **state)
{
	(void)state;
	return mkdtemp(directory) == NULL;
}

static int
remove_directory(void **state)
{
	char command[64];

	(void)state;
	snprintf(command, sizeof(command), "rm -r %s", directory);
	return system(command);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(messages_are_the_udp_packets),
		cmocka_unit_test(lost_messages_leave_gaps),
		cmocka_unit_test(chosen_packets_are_lost),
		cmocka_unit_test(a_middle_packet_is_one_of_several),
		cmocka_unit_test(reordered_messages_are_complete),
		cmocka_unit_test(mistakes_in_options_are_refused),
		cmocka_unit_test(cards_of_other_detectors_are_refused),
	};

	return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
