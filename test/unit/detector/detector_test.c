/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * braggline-detector: packets compared with the documented offsets and with PSI's packets, pixels
 * compared with the truth through the files that the program writes.
 */

#include <dirent.h>
#include <errno.h>
#include <math.h>
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
#include "sim/model_random.h"

#define MODULE_BYTES (JUNGFRAU_PIXELS * sizeof(uint16_t))

static char directory[] = "/tmp/detector_test.XXXXXX";

static const char *
path_of(const char *name)
{
	static char paths[64][256];
	static unsigned int next;
	char *path = paths[next++ % 64];

	snprintf(path, sizeof(paths[0]), "%s/%s", directory, name);
	return path;
}

static void *
read_whole(const char *path, size_t bytes)
{
	FILE *file = fopen(path, "rb");
	char *data = malloc(bytes + 1);

	assert_non_null(file);
	assert_non_null(data);
	assert_int_equal(fread(data, 1, bytes + 1, file), bytes);
	fclose(file);
	return data;
}

static uint64_t
le(const uint8_t *at, int bytes)
{
	uint64_t value = 0;

	while (bytes-- > 0)
		value = value << 8 | at[bytes];
	return value;
}

static uint32_t
be16(const uint8_t *at)
{
	return (uint32_t)at[0] << 8 | at[1];
}

static struct detector_options
options_of(uint32_t modules, uint32_t interfaces)
{
	struct detector_options options;

	detector_options_default(&options);
	options.model.modules = options.wire.modules = modules;
	options.model.column_modules = options.wire.column_modules = modules;
	options.wire.interfaces = interfaces;
	return options;
}

static void
header_has_documented_offsets(void **state)
{
	struct detector_options options = options_of(5, 2);
	struct jungfrau_frame_header header = {.number = 0x1122334455667788,
		.bunch_id = 0x99aabbccddeeff00,
		.timestamp = 0x0102030405060708,
		.exposure = 0xa1a2a3a4,
		.daq_info = 0x80000020};
	uint16_t *raw = malloc(MODULE_BYTES);
	uint8_t packet[JUNGFRAU_PACKET_BYTES];
	const uint8_t *sls = packet + 42;
	uint32_t sum = 0;

	for (uint32_t i = 0; i < JUNGFRAU_PIXELS; i++)
		raw[i] = (uint16_t)(i / 1024);
	options.wire.column_modules = 3;
	jungfrau_packet_make(&options.wire, &header, 4, 1, 7, raw, packet);

	assert_int_equal(sizeof(packet), 8282);
	assert_memory_equal(packet, ((uint8_t[]){2, 0, 0, 0, 2, 0, 2, 0, 0, 0, 1, 9, 8, 0}), 14);
	assert_int_equal(packet[14], 0x45);
	assert_int_equal(be16(packet + 16), 8268);
	assert_int_equal(be16(packet + 20), 0x4000);
	assert_int_equal(packet[22], 64);
	assert_int_equal(packet[23], 17);
	for (int i = 14; i < 34; i += 2)
		sum += be16(packet + i);
	assert_int_equal((sum & 0xffff) + (sum >> 16), 0xffff);
	assert_memory_equal(packet + 26, ((uint8_t[]){10, 1, 1, 10, 10, 1, 2, 1}), 8);
	assert_int_equal(be16(packet + 34), 32410);
	assert_int_equal(be16(packet + 36), 50001 + 9);
	assert_int_equal(be16(packet + 38), 8248);
	assert_int_equal(be16(packet + 40), 0);

	assert_true(le(sls + 0, 8) == header.number);
	assert_int_equal(le(sls + 8, 4), header.exposure);
	assert_int_equal(le(sls + 12, 4), 7);
	assert_true(le(sls + 16, 8) == header.bunch_id);
	assert_true(le(sls + 24, 8) == header.timestamp);
	assert_int_equal(le(sls + 32, 2), 1238);
	assert_int_equal(le(sls + 34, 2), 3); /* second module of its column, upper half */
	assert_int_equal(le(sls + 36, 2), 1);
	assert_int_equal(le(sls + 38, 2), 0);
	assert_int_equal(le(sls + 40, 4), 0x80000020);
	assert_int_equal(le(sls + 44, 2), 0);
	assert_int_equal(sls[46], 3);
	assert_int_equal(sls[47], 2);
	for (int i = 0; i < 4096; i++)
		assert_int_equal(le(sls + 48 + 2 * i, 2), 256 + 4 * 7 + i / 1024);
	free(raw);
}

/*
 * Packets of PSI's virtual server, made from its description: equal except for the IP
 * identification and two checksums.
 */
static void
compare_with_psi(const char *name, uint32_t interfaces, uint32_t frames)
{
	struct detector_options options = options_of(1, interfaces);
	struct jungfrau_wire wire = options.wire;
	struct jungfrau_frame_header header = {0};
	uint16_t *raw = malloc(MODULE_BYTES);
	uint8_t packet[JUNGFRAU_PACKET_BYTES];
	uint8_t theirs[JUNGFRAU_PACKET_BYTES];
	struct pcap_pkthdr *captured;
	char error[PCAP_ERRBUF_SIZE];
	char path[512];
	const u_char *data;
	uint32_t count = 0;
	pcap_t *pcap;

	snprintf(path, sizeof(path), "%s/%s",
		getenv("BRAGGLINE_DATA") != NULL ? getenv("BRAGGLINE_DATA") : "", name);
	if (access(path, R_OK) != 0) {
		print_message("missing: %s, packets of PSI's virtual JUNGFRAU\n", name);
		free(raw);
		skip();
	}
	for (uint32_t i = 0; i < JUNGFRAU_PIXELS; i++) {
		uint32_t column = i % 1024, gain = column < 300 ? 0 : column < 600 ? 1 : 3;

		raw[i] = (uint16_t)(gain << 14 | (i / 4096 + 1));
	}
	pcap = pcap_open_offline(path, error);
	assert_non_null(pcap);
	while (pcap_next_ex(pcap, &captured, &data) == 1) {
		uint32_t interface = be16(data + 36) - 50001;
		uint32_t number = count % 128 % jungfrau_stream_packets(&wire);

		assert_int_equal(captured->len, sizeof(packet));
		memcpy(theirs, data, sizeof(theirs));
		memset(wire.source_mac, 0, 6);
		memset(wire.destination_mac, 0, 6);
		wire.source_mac[5] = (uint8_t)-interface; /* streams count upwards */
		wire.source_mac[4] = wire.source_mac[3] = interface ? 0xff : 0;
		wire.source_ip = 0x7f000001 - interface;
		wire.destination_ip = 0x7f000001;
		wire.source_port = (uint16_t)be16(data + 34);
		header.number = 1 + count / 128;
		jungfrau_packet_make(&wire, &header, 0, interface, number, raw, packet);
		for (int i = 0; i < 3; i++) {
			static const int field[] = {18, 24, 40};

			memset(packet + field[i], 0, 2);
			memset(theirs + field[i], 0, 2);
		}
		assert_memory_equal(packet, theirs, sizeof(packet));
		count++;
	}
	assert_int_equal(count, frames * 128);
	pcap_close(pcap);
	free(raw);
}

static void
packets_are_those_of_psi(void **state)
{
	compare_with_psi("sls-virtual-jungfrau.pcap", 1, 3);
}

static void
packets_are_those_of_psi_two_interfaces(void **state)
{
	compare_with_psi("sls-virtual-jungfrau-2if.pcap", 2, 2);
}

static void
functions_agree_with_libm(void **state)
{
	static float normal[MODEL_NORMALS];
	double sum = 0.0, squares = 0.0, drawn = 0.0;
	struct model_random random = {.counter = 5};

	for (double x = 1e-9; x < 1.0; x *= 1.37)
		assert_true(fabs(model_minus_log(x) + log(x)) < 1e-13);
	for (double x = 0.0; x < 300.0; x += 0.73)
		assert_true(fabs(model_exp_minus(x) / exp(-x) - 1.0) < 1e-12);

	model_normal_table(normal);
	for (int i = 0; i < MODEL_NORMALS; i++) {
		double p = 0.5 * erfc(-(double)normal[i] / sqrt(2.0));

		assert_true(fabs(p - (i + 0.5) / MODEL_NORMALS) < 1e-7);
		sum += (double)normal[i];
		squares += (double)(normal[i] * normal[i]);
	}
	assert_true(sum == 0.0);
	assert_true(fabs(squares / MODEL_NORMALS - 1.0) < 2e-3);

	for (int k = 0; k < 2; k++) {
		double lambda = k == 0 ? 3.5 : 400.0;

		drawn = 0.0;
		for (int i = 0; i < 20000; i++)
			drawn += model_random_poisson(&random, lambda, normal);
		assert_true(fabs(drawn / 20000 - lambda) < 5 * sqrt(lambda / 20000));
	}
}

static uint64_t
fnv(const void *data, size_t bytes)
{
	const uint8_t *at = data;
	uint64_t hash = 0xcbf29ce484222325;

	while (bytes-- > 0)
		hash = (hash ^ *at++) * 0x100000001b3;
	return hash;
}

static uint64_t
frame_hash(uint64_t seed, uint64_t number)
{
	struct detector_options options = options_of(1, 1);
	struct jungfrau_frame *frame = malloc(sizeof(*frame));
	uint16_t *raw = malloc(MODULE_BYTES);
	struct jungfrau_model *model;
	uint64_t hash;

	options.model.seed = seed;
	options.model.hit_fraction = 1.0;
	assert_int_equal(jungfrau_model_create(&options.model, &model), 0);
	jungfrau_model_plan(model, number, frame);
	jungfrau_model_draw(model, frame, 0, raw);
	hash = fnv(raw, MODULE_BYTES);
	jungfrau_model_destroy(model);
	free(frame);
	free(raw);
	return hash;
}

static void
seed_decides_every_pixel(void **state)
{
	uint64_t hash = frame_hash(1, 7);

	assert_true(hash == frame_hash(1, 7));
	assert_true(hash != frame_hash(2, 7));
	assert_true(hash != frame_hash(1, 8));
	/* the same on every machine and with every compiler; changes of the model change it */
	assert_true(hash == 0xda1f4217a81d0fc7);
}

struct statistics {
	uint64_t count[4]; /* unmasked pixels by gain code */
	uint64_t good;
	double photons, deviation; /* sum over G0; sum of squares below half a photon */
	uint64_t below_half;
};

static struct statistics
survey(uint64_t number, struct detector_options *options)
{
	struct jungfrau_calibration *calibration = malloc(sizeof(*calibration));
	struct jungfrau_frame *frame = malloc(sizeof(*frame));
	uint16_t *raw = malloc(MODULE_BYTES);
	struct statistics found = {0};
	struct jungfrau_model *model;

	assert_int_equal(jungfrau_model_create(&options->model, &model), 0);
	jungfrau_model_calibration(model, 0, calibration);
	jungfrau_model_plan(model, number, frame);
	jungfrau_model_draw(model, frame, 0, raw);
	for (uint32_t i = 0; i < JUNGFRAU_PIXELS; i++) {
		double photons = ((raw[i] & 0x3fff) - (double)calibration->pedestal[0][i]) /
			(calibration->gain[0][i] * options->model.energy);

		if (calibration->mask[i])
			continue;
		found.good++;
		found.count[raw[i] >> 14]++;
		if (raw[i] >> 14 != 0)
			continue;
		found.photons += photons;
		if (photons < 0.5) {
			found.deviation += photons * photons;
			found.below_half++;
		}
	}
	jungfrau_model_destroy(model);
	free(calibration);
	free(frame);
	free(raw);
	return found;
}

static void
pixels_follow_the_configured_physics(void **state)
{
	struct detector_options options = options_of(1, 1);
	struct statistics found;

	options.model.hit_fraction = 0.0;
	options.model.dark_every = 2;
	found = survey(3, &options);
	assert_int_equal(found.good, JUNGFRAU_PIXELS - 235);
	assert_true(fabs(found.photons / (double)found.good - 0.05) < 0.003);
	/* 1.2 keV of 12.4 */
	assert_true(fabs(sqrt(found.deviation / (double)found.below_half) - 1.2 / 12.4) < 0.002);

	found = survey(2, &options);
	assert_true(fabs(found.photons / (double)found.good) < 0.002);

	/* except for stray and flickering pixels, background leaves no pixel in G1 */
	options.model.background = 2.0;
	found = survey(3, &options);
	assert_true(fabs(found.photons / (double)found.good - 2.0) < 0.02);
	assert_true(found.count[1] < 50);
	assert_int_equal(found.count[2], 0);

	options.model.hit_fraction = 1.0;
	options.model.peaks = 200;
	found = survey(3, &options);
	assert_true(found.count[1] > 100);
	assert_true(found.count[3] > 0);
	assert_int_equal(found.count[2], 0);
}

/* Frames of a capture, assembled from the packet headers. */
static uint16_t *
assemble(const char *path, uint32_t modules, uint32_t interfaces, uint32_t frames, uint32_t first)
{
	uint16_t *raw = calloc((size_t)frames * modules, MODULE_BYTES);
	uint32_t streams = modules * interfaces, packets = 128 / interfaces;
	struct pcap_pkthdr *captured;
	char error[PCAP_ERRBUF_SIZE];
	const u_char *data;
	uint64_t count = 0, time = 0;
	pcap_t *pcap;

	pcap = pcap_open_offline_with_tstamp_precision(path, PCAP_TSTAMP_PRECISION_NANO, error);
	assert_non_null(pcap);
	while (pcap_next_ex(pcap, &captured, &data) == 1) {
		const uint8_t *sls = data + 42;
		uint64_t frame = le(sls, 8) - first;
		uint32_t packet = (uint32_t)le(sls + 12, 4);
		uint32_t stream = be16(data + 36) - 50001;
		uint64_t now =
			(uint64_t)captured->ts.tv_sec * 1000000000 + (uint64_t)captured->ts.tv_usec;
		uint8_t *at;

		assert_true(captured->caplen == 8282 && captured->len == 8282);
		assert_true(frame < frames && packet < packets && stream < streams);
		/* on the wire: streams in round-robin order, for each packet, for each frame */
		assert_int_equal(count, (frame * packets + packet) * streams + stream);
		assert_int_equal(le(sls + 24, 8), (frame + first) * 5000);
		assert_true(now > time);
		time = now;
		at = (uint8_t *)raw + (frame * modules + stream / interfaces) * MODULE_BYTES;
		memcpy(at + (stream % interfaces * packets + packet) * 8192, sls + 48, 8192);
		count++;
	}
	assert_int_equal(count, (uint64_t)frames * modules * 128);
	pcap_close(pcap);
	return raw;
}

/* Pixels >= 10 photons, computed with the calibration files alone. */
static void
count_strong(uint32_t module, const uint16_t *raw, uint32_t frames, size_t stride, uint32_t *strong)
{
	char name[64];
	double *gain;
	float *pedestal[3];
	uint8_t *mask;

	snprintf(name, sizeof(name), "cal/gain_m%u.bin", module);
	gain = read_whole(path_of(name), 3 * JUNGFRAU_PIXELS * sizeof(double));
	snprintf(name, sizeof(name), "cal/mask_m%u.bin", module);
	mask = read_whole(path_of(name), JUNGFRAU_PIXELS);
	for (int g = 0; g < 3; g++) {
		snprintf(name, sizeof(name), "cal/pedestal_g%d_m%u.bin", g, module);
		pedestal[g] = read_whole(path_of(name), JUNGFRAU_PIXELS * sizeof(float));
	}
	for (uint32_t f = 0; f < frames; f++) {
		for (uint32_t i = 0; i < JUNGFRAU_PIXELS; i++) {
			uint16_t word = raw[f * stride + i];
			int stage = word >> 14 == 3 ? 2 : word >> 14;
			float r;

			if (mask[i])
				continue;
			r = (float)(1.0 / (gain[stage * JUNGFRAU_PIXELS + i] * 12.4));
			strong[f] += word == 0xc000 ||
				((float)(word & 0x3fff) - pedestal[stage][i]) * r >= 10.0f;
		}
	}
	free(gain);
	free(mask);
	for (int g = 0; g < 3; g++)
		free(pedestal[g]);
}

static void
truth_calibration_and_packets_agree(void **state)
{
	enum {
		MODULES = 2,
		INTERFACES = 2,
		FRAMES = 40,
		FIRST = 101
	};
	struct detector_options options = options_of(MODULES, INTERFACES);
	uint32_t strong[FRAMES] = {0};
	uint32_t hits = 0, darks = 0;
	uint16_t *raw, *written;
	char line[320];
	FILE *truth;

	options.frames = FRAMES;
	options.first_frame = FIRST;
	options.model.hit_fraction = 0.4;
	options.model.dark_every = 10;
	options.pcap_path = path_of("a.pcap");
	options.truth_path = path_of("a.csv");
	options.calibration_path = path_of("cal");
	options.raw_path = path_of("a.raw");
	assert_int_equal(detector_run(&options), 0);

	raw = assemble(options.pcap_path, MODULES, INTERFACES, FRAMES, FIRST);
	written = read_whole(options.raw_path, (size_t)FRAMES * MODULES * MODULE_BYTES);
	assert_memory_equal(raw, written, (size_t)FRAMES * MODULES * MODULE_BYTES);
	for (uint32_t m = 0; m < MODULES; m++)
		count_strong(
			m, raw + m * JUNGFRAU_PIXELS, FRAMES, MODULES * JUNGFRAU_PIXELS, strong);

	truth = fopen(options.truth_path, "r");
	assert_non_null(truth);
	assert_non_null(fgets(line, sizeof(line), truth));
	assert_string_equal(line,
		"frame,hit,peaks,dark,strong_pixels,saturated_pixels,switched_pixels,"
		"stray_peaks,bunch_id,restarts,storage_cell,packets_sent,packets_lost,"
		"packets_damaged,packets_duplicated,packets_reordered\n");
	for (uint32_t f = 0; f < FRAMES; f++) {
		uint32_t number, hit, peaks, dark, found, saturated, switched, strays, bunch, sent;

		assert_non_null(fgets(line, sizeof(line), truth));
		assert_int_equal(sscanf(line, "%u,%u,%u,%u,%u,%u,%u,%u,%u,0,0,%u,0,0,0,0", &number,
					 &hit, &peaks, &dark, &found, &saturated, &switched,
					 &strays, &bunch, &sent),
			10);
		assert_int_equal(sent, MODULES * 128);
		assert_int_equal(number, FIRST + f);
		assert_int_equal(bunch, 10000000 + number);
		assert_int_equal(dark, number % 10 == 0);
		assert_true(!(hit && dark) && (hit != 0) == (peaks != 0) && !(hit && strays));
		assert_int_equal(found, strong[f]);
		assert_int_equal(hit, found >= 20);
		hits += hit;
		darks += dark;
	}
	assert_null(fgets(line, sizeof(line), truth));
	fclose(truth);
	assert_in_range(hits, 6, 26);
	assert_int_equal(darks, 4);
	free(raw);
	free(written);
}

/* Uses the raw frames of the test above. */
static void
packed_frames_come_back(void **state)
{
	enum {
		MODULES = 2,
		FRAMES = 40
	};
	struct detector_options options = options_of(MODULES, 1);
	char *raw_path = strdup(path_of("a.raw"));
	char *paths[] = {raw_path, raw_path};
	uint16_t *raw = read_whole(raw_path, (size_t)FRAMES * MODULES * MODULE_BYTES);
	uint16_t *packed;

	options.pack = true;
	options.pack_paths = paths;
	options.nb_pack_paths = 2;
	options.first_frame = 5;
	options.pcap_path = path_of("b.pcap");
	assert_int_equal(detector_run(&options), 0);
	packed = assemble(options.pcap_path, MODULES, 1, 2 * FRAMES, 5);
	for (size_t i = 0; i < 2; i++)
		assert_memory_equal(packed + i * FRAMES * MODULES * JUNGFRAU_PIXELS, raw,
			(size_t)FRAMES * MODULES * MODULE_BYTES);

	/* 80 modules are not a multiple of 3 */
	options.model.modules = options.wire.modules = 3;
	options.pcap_path = path_of("c.pcap");
	assert_int_equal(detector_run(&options), -EINVAL);
	assert_int_not_equal(access(options.pcap_path, F_OK), 0);
	free(raw);
	free(raw_path);
	free(packed);
}

static void
failure_leaves_no_file(void **state)
{
	struct detector_options options = options_of(1, 1);
	struct dirent *entry;
	DIR *listing;

	options.frames = 2;
	options.truth_path = path_of("no.csv");
	options.pcap_path = "/dev/full";
	assert_int_equal(detector_run(&options), -ENOSPC);
	options.pcap_path = path_of("no.pcap");
	options.raw_path = "/dev/full";
	assert_int_equal(detector_run(&options), -ENOSPC);
	options.raw_path = path_of("nowhere/no.raw");
	assert_int_equal(detector_run(&options), -ENOENT);
	options.raw_path = path_of("no.raw");
	options.calibration_path = path_of("nocal");
	detector_stop = SIGINT;
	assert_int_equal(detector_run(&options), -EINTR);
	detector_stop = 0;
	rmdir(options.calibration_path);

	listing = opendir(directory);
	while ((entry = readdir(listing)) != NULL)
		if (strncmp(entry->d_name, "no", 2) == 0)
			fail_msg("found %s/%s, expected nothing left", directory, entry->d_name);
	closedir(listing);
}

static int
parse(struct detector_options *options, const char *const *words)
{
	char *argv[16] = {(char[]){"braggline-detector"}};
	char copies[15][64];
	int argc = 1;

	for (; words[argc - 1] != NULL; argc++) {
		snprintf(copies[argc - 1], sizeof(copies[0]), "%s", words[argc - 1]);
		argv[argc] = copies[argc - 1];
	}
	return detector_options_parse(argc, argv, options);
}

static void
options_are_read_and_checked(void **state)
{
	static const char *const good[] = {"--modules", "8", "--interfaces=2", "--frames", "0x10",
		"--energy", "9.5", "--source-mac", "aa:bb:cc:dd:ee:ff", "--source-ip",
		"192.168.7.9", "--dark-run=g2", "--cell=50,60,70,80,90,100", "--pcap", "x", NULL};
	static const char *const bad[][5] = {
		{"--modules", "0", "--pcap", "x"},
		{"--modules", "33", "--pcap", "x"},
		{"--interfaces", "3", "--pcap", "x"},
		{"--frames", "-1", "--pcap", "x"},
		{"--frames", "18446744073709551616", "--pcap", "x"},
		{"--frames", "10x", "--pcap", "x"},
		{"--energy", "nan", "--pcap", "x"},
		{"--hit-fraction", "1.1", "--pcap", "x"},
		{"--source-mac", "aa:bb:cc:dd:ee", "--pcap", "x"},
		{"--source-mac", "aa:bb:cc:dd:ee:ff0", "--pcap", "x"},
		{"--source-ip", "10.1.1", "--pcap", "x"},
		{"--udp-port", "65536", "--pcap", "x"},
		{"--column-modules", "2", "--pcap", "x"},
		{"--pcap", ""},
		{"--frames", "1"},
		{"--pcap", "x", "frame.bin"},
		{"--pack", "--pcap", "x"},
		{"--pack", "--truth", "x", "frame.bin"},
		{"--nonsense", "--pcap", "x"},
		{"--rows", "12", "--pcap", "x"},
		{"--rows", "520", "--pcap", "x"},
		{"--cell", "79,79", "--pcap", "x"},
		{"--cell", "79,79,38,90", "--pcap", "x"},
		{"--cell", "79,79,5", "--pcap", "x"},
		{"--beam", "5", "--pcap", "x"},
		{"--dark-run", "g3", "--pcap", "x"},
		{"--fault", "loss=2", "--pcap", "x"},
		{"--storage-cells", "17", "--pcap", "x"},
		{"--loop", "--pcap", "x"},
		{"--port", "x", "--drift", "1"},
	};
	struct detector_options options;

	assert_int_equal(parse(&options, good), 0);
	assert_int_equal(options.model.modules, 8);
	assert_int_equal(options.wire.modules, 8);
	assert_int_equal(options.wire.column_modules, 8);
	assert_int_equal(options.wire.interfaces, 2);
	assert_int_equal(options.frames, 16);
	assert_true(options.model.energy == 9.5);
	assert_int_equal(options.model.dark_run, JUNGFRAU_DARK_RUN_G2);
	assert_true(options.model.cell[2] == 70.0 && options.model.cell[5] == 100.0);
	assert_memory_equal(options.wire.source_mac, "\xaa\xbb\xcc\xdd\xee\xff", 6);
	assert_int_equal(options.wire.source_ip, 0xc0a80709);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (parse(&options, bad[i]) != -EINVAL)
			fail_msg("%s %s was accepted", bad[i][0], bad[i][1]);
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
		cmocka_unit_test(header_has_documented_offsets),
		cmocka_unit_test(packets_are_those_of_psi),
		cmocka_unit_test(packets_are_those_of_psi_two_interfaces),
		cmocka_unit_test(functions_agree_with_libm),
		cmocka_unit_test(seed_decides_every_pixel),
		cmocka_unit_test(pixels_follow_the_configured_physics),
		cmocka_unit_test(truth_calibration_and_packets_agree),
		cmocka_unit_test(packed_frames_come_back),
		cmocka_unit_test(failure_leaves_no_file),
		cmocka_unit_test(options_are_read_and_checked),
	};

	return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
