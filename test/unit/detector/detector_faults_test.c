/* SPDX-License-Identifier: BSD-3-Clause */
/* braggline-detector: faults in a capture match their counters; partial readout; headers. */

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
#include "wire/packet_faults.h"

#define FRAMES 40

static char directory[] = "/tmp/detector_faults_test.XXXXXX";

static const char *
path_of(const char *name)
{
	static char paths[16][256];
	static unsigned int next;
	char *path = paths[next++ % 16];

	snprintf(path, sizeof(paths[0]), "%s/%s", directory, name);
	return path;
}

static uint64_t
le(const uint8_t *at, int bytes)
{
	uint64_t value = 0;

	while (bytes-- > 0)
		value = value << 8 | at[bytes];
	return value;
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

/* Content of a capture, decoded from the packets alone. */
struct capture {
	uint32_t packets, truncated, foreign, malformed, far, copies, backwards;
	uint32_t placed[3 * FRAMES][2][128]; /* by frame, stream, packet */
	uint32_t of_frame[3 * FRAMES];	     /* distinct packets */
	uint64_t hash;
};

static void
count_packet(struct capture *found, const uint8_t *data, uint32_t length, uint64_t *last)
{
	uint32_t port = (uint32_t)data[36] << 8 | data[37];
	uint64_t frame;
	uint32_t packet;

	found->packets++;
	for (uint32_t i = 0; i < length; i += 61)
		found->hash = (found->hash ^ data[i]) * 0x100000001b3;
	if (length != JUNGFRAU_PACKET_BYTES) {
		found->truncated++;
		return;
	}
	frame = le(data + 42, 8);
	packet = (uint32_t)le(data + 54, 4);
	if (port != 50001 && port != 50002) {
		found->foreign++;
	} else if (data[89] != 2 || packet >= 128) {
		found->malformed++;
	} else if (frame >= 3 * FRAMES) {
		found->far++;
	} else {
		uint64_t place = frame * 256 + packet * 2 + (port - 50001);

		found->copies += found->placed[frame][port - 50001][packet]++ != 0;
		found->of_frame[frame] += found->placed[frame][port - 50001][packet] == 1;
		found->backwards += place < *last;
		*last = place > *last ? place : *last;
	}
}

static struct capture *
read_capture(const char *path)
{
	struct capture *found = calloc(1, sizeof(*found));
	char error[PCAP_ERRBUF_SIZE];
	struct pcap_pkthdr *captured;
	const u_char *data;
	uint64_t last = 0;
	pcap_t *pcap = pcap_open_offline(path, error);

	assert_non_null(found);
	assert_non_null(pcap);
	while (pcap_next_ex(pcap, &captured, &data) == 1)
		count_packet(found, data, captured->caplen, &last);
	pcap_close(pcap);
	return found;
}

static uint32_t
reported(const char *path, const char *section, const char *key)
{
	char line[128], inside[64] = "", name[64];
	unsigned int value, result = UINT32_MAX;
	FILE *file = fopen(path, "r");

	assert_non_null(file);
	while (fgets(line, sizeof(line), file) != NULL) {
		if (sscanf(line, "[%63[^]]]", name) == 1)
			strcpy(inside, name);
		else if (sscanf(line, "%63s = %u", name, &value) == 2 &&
			strcmp(inside, section) == 0 && strcmp(name, key) == 0)
			result = value;
	}
	fclose(file);
	if (result == UINT32_MAX)
		fail_msg("%s: no [%s] %s", path, section, key);
	return result;
}

/* Make 40 frames of two modules with these faults; the report is in r.ini, the truth in t.csv. */
static struct capture *
run_with(const char *const *faults, uint64_t seed)
{
	struct detector_options options = options_of(2, 1);

	for (; *faults != NULL; faults++)
		assert_int_equal(fault_options_parse(*faults, &options.faults), 0);
	options.fault_seed = seed;
	options.pcap_path = path_of("f.pcap");
	options.report_path = path_of("r.ini");
	options.truth_path = path_of("t.csv");
	assert_int_equal(detector_run(&options), 0);
	return read_capture(options.pcap_path);
}

static uint32_t
fault_count(const char *kind)
{
	return reported(path_of("r.ini"), "faults", kind);
}

static void
faults_counted_are_those_in_the_capture(void **state)
{
	static const char *const faults[] = {"loss=0.02", "burst-loss=0.001:20", "reorder=0.03:300",
		"duplicate=0.02", "corrupt=0.02", "truncate=0.01", "stall=1:10:14", NULL};
	struct capture *found = run_with(faults, 7), *again;
	uint32_t lost, distinct = 0, sent;
	char line[320];
	FILE *truth;

	lost = fault_count("loss") + fault_count("burst_loss") + fault_count("stall");
	assert_int_equal(fault_count("stall"), 5 * 128);
	assert_in_range(fault_count("loss"), 100, 300);
	assert_in_range(fault_count("burst_loss"), 20, 500);
	assert_in_range(fault_count("reorder"), 150, 450);
	assert_int_equal(found->truncated, fault_count("truncate"));
	assert_int_equal(found->foreign, fault_count("corrupt_port"));
	assert_int_equal(
		found->malformed, fault_count("corrupt_version") + fault_count("corrupt_packet"));
	assert_int_equal(found->far, fault_count("corrupt_frame"));
	assert_in_range(fault_count("corrupt_pixels"), 10, 100);
	assert_int_equal(found->copies, fault_count("duplicate"));
	assert_in_range(found->backwards, fault_count("reorder") / 2, fault_count("reorder"));
	assert_int_equal(found->packets, FRAMES * 256 - lost + fault_count("duplicate"));
	assert_int_equal(found->packets, reported(path_of("r.ini"), "packets", "sent"));

	/* the truth of each frame has the number of its packets that can be placed */
	truth = fopen(path_of("t.csv"), "r");
	assert_non_null(truth);
	assert_non_null(fgets(line, sizeof(line), truth));
	for (uint32_t f = 1; f <= FRAMES; f++) {
		assert_non_null(fgets(line, sizeof(line), truth));
		assert_int_equal(
			sscanf(line, "%*u,%*u,%*u,%*u,%*u,%*u,%*u,%*u,%*u,%*u,%*u,%u", &sent), 1);
		assert_int_equal(sent, found->of_frame[f]);
		distinct += sent;
	}
	fclose(truth);
	assert_int_equal(distinct, reported(path_of("r.ini"), "packets", "placeable"));

	again = run_with(faults, 7);
	assert_true(again->hash == found->hash);
	free(again);
	again = run_with(faults, 8);
	assert_true(again->hash != found->hash);
	free(again);
	free(found);
}

static void
each_corruption_can_be_chosen(void **state)
{
	static const char *const kinds[] = {"port", "version", "packet", "frame", "pixels"};

	for (size_t k = 0; k < 5; k++) {
		char text[64], name[64];
		const char *const faults[] = {text, NULL};
		struct capture *found;
		uint32_t count;

		snprintf(text, sizeof(text), "corrupt=0.05:%s", kinds[k]);
		snprintf(name, sizeof(name), "corrupt_%s", kinds[k]);
		found = run_with(faults, 3);
		count = fault_count(name);
		assert_in_range(count, 300, 800);
		assert_int_equal(found->foreign, k == 0 ? count : 0);
		assert_int_equal(found->malformed, k == 1 || k == 2 ? count : 0);
		assert_int_equal(found->far, k == 3 ? count : 0);
		assert_int_equal(found->packets, FRAMES * 256);
		free(found);
	}
}

static void
frame_numbers_start_again_after_a_restart(void **state)
{
	static const char *const faults[] = {"restart=31:1", NULL};
	struct capture *found = run_with(faults, 1);
	uint64_t frame, restarts, bunch;
	char line[320];
	FILE *truth;

	for (uint32_t f = 1; f <= 30; f++) {
		assert_int_equal(found->of_frame[f], 256);
		assert_int_equal(found->placed[f][0][5], f <= 10 ? 2 : 1);
	}
	assert_int_equal(found->of_frame[31], 0);
	assert_int_equal(fault_count("restart"), 1);
	truth = fopen(path_of("t.csv"), "r");
	assert_non_null(truth);
	assert_non_null(fgets(line, sizeof(line), truth));
	for (uint64_t pulse = 1; pulse <= FRAMES; pulse++) {
		assert_non_null(fgets(line, sizeof(line), truth));
		assert_int_equal(sscanf(line, "%lu,%*u,%*u,%*u,%*u,%*u,%*u,%*u,%lu,%lu", &frame,
					 &bunch, &restarts),
			3);
		assert_int_equal(frame, pulse <= 30 ? pulse : pulse - 30);
		assert_int_equal(restarts, pulse > 30);
		/* pulses of the machine continue */
		assert_int_equal(bunch, 10000000 + pulse);
	}
	fclose(truth);
	free(found);
}

/*
 * PSI's virtual server with 256 rows and 2 interfaces: packets 32 ... 63 on the first, 0 ... 31 on
 * the second.
 */
static void
partial_readout_keeps_packet_numbers(void **state)
{
	static const struct {
		uint32_t rows, interfaces, first[2], packets;
	} cases[] = {
		{512, 1, {0, 0}, 128},
		{512, 2, {0, 0}, 64},
		{256, 2, {32, 0}, 32},
		{256, 1, {32, 0}, 64},
		{8, 1, {63, 0}, 2},
		{8, 2, {63, 0}, 1},
	};

	for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
		struct detector_options options = options_of(1, cases[c].interfaces);
		const uint32_t numbers = 128 / cases[c].interfaces;
		struct capture *found;

		options.frames = 2;
		options.model.rows = options.wire.rows = cases[c].rows;
		options.pcap_path = path_of("p.pcap");
		assert_int_equal(detector_run(&options), 0);
		found = read_capture(options.pcap_path);
		assert_int_equal(found->packets, 2 * cases[c].rows / 4);
		for (uint32_t i = 0; i < cases[c].interfaces; i++)
			for (uint32_t p = 0; p < numbers; p++)
				assert_int_equal(found->placed[1][i][p],
					p >= cases[c].first[i] &&
						p < cases[c].first[i] + cases[c].packets);
		free(found);
	}
}

static void
updated_headers_equal_new_ones(void **state)
{
	struct detector_options options = options_of(3, 2);
	uint8_t made[JUNGFRAU_HEADER_BYTES], updated[JUNGFRAU_HEADER_BYTES];
	struct model_random_state {
		uint64_t x;
	} random = {1};
	struct jungfrau_frame_header header = {0};

	jungfrau_header_make(&options.wire, &header, 2, 1, 17, updated);
	for (int i = 0; i < 100000; i++) {
		random.x = random.x * 6364136223846793005u + 1442695040888963407u;
		/* small steps, jumps ahead and back */
		header.number = i % 3 != 0 ? header.number + 1 : random.x >> (random.x % 64);
		header.bunch_id = random.x * 3;
		header.timestamp = random.x * 5;
		header.exposure = (uint32_t)(random.x * 7);
		header.daq_info = (uint32_t)(random.x >> 32);
		jungfrau_header_make(&options.wire, &header, 2, 1, 17, made);
		jungfrau_header_update(&options.wire, &header, updated);
		assert_memory_equal(made, updated, sizeof(made));
	}
}

static void
header_flags_match_the_frame(void **state)
{
	struct detector_options options = options_of(1, 1);
	struct pulse_numbering numbering;

	numbering = detector_options_numbering(&options);
	assert_int_equal(pulse_header(&numbering, 5, false).daq_info, 1u << 5);
	assert_int_equal(pulse_header(&numbering, 5, true).daq_info, 1u << 31 | 1u << 5);
	options.model.dark_run = JUNGFRAU_DARK_RUN_G1;
	numbering = detector_options_numbering(&options);
	assert_int_equal(pulse_header(&numbering, 5, true).daq_info, 1u << 31 | 1u << 12 | 1u << 5);
	options.model.dark_run = JUNGFRAU_DARK_RUN_G2;
	options.storage_cells = 16;
	numbering = detector_options_numbering(&options);
	assert_int_equal(pulse_header(&numbering, 29, true).daq_info,
		1u << 31 | 1u << 13 | 13u << 8 | 1u << 5);
}

static void
mistakes_in_faults_are_reported(void **state)
{
	static const char *const bad[] = {"loss", "loss=", "loss=1.1", "loss=-0.1", "loss=nan",
		"loss=0.1:3", "burst-loss=0.1", "burst-loss=0.1:0", "reorder=0.1:99999999",
		"corrupt=0.1:head", "stall=32:1:2", "stall=0:5:4", "stall=0:5", "restart=x",
		"restart=5:", "magic=1", "los=0.1", "drop=0.1", "drop=FIRST", "drop=SECOND:0.1",
		"drop=LAST:2", "event-loss=x"};
	struct fault_options options = {0};
	struct detector_options detector = options_of(1, 1);

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (fault_options_parse(bad[i], &options) != -EINVAL)
			fail_msg("%s was accepted", bad[i]);
	assert_int_equal(fault_options_parse("restart=50", &options), 0);
	assert_int_equal(fault_options_parse("restart=50:3", &options), -EINVAL);
	/* a module that does not exist */
	assert_int_equal(fault_options_parse("stall=1:5:6", &detector.faults), 0);
	detector.truth_path = path_of("no.csv");
	assert_int_equal(detector_run(&detector), -EINVAL);
}

static int
make_directory(void **state)
{
	return mkdtemp(directory) == NULL;
}

static int
remove_directory(void **state)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -r %s", directory);
	return system(command);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(faults_counted_are_those_in_the_capture),
		cmocka_unit_test(each_corruption_can_be_chosen),
		cmocka_unit_test(frame_numbers_start_again_after_a_restart),
		cmocka_unit_test(partial_readout_keeps_packet_numbers),
		cmocka_unit_test(updated_headers_equal_new_ones),
		cmocka_unit_test(header_flags_match_the_frame),
		cmocka_unit_test(mistakes_in_faults_are_reported),
	};

	return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
