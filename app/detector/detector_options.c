/* SPDX-License-Identifier: BSD-3-Clause */

#include "detector_options.h"

#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum value_kind {
	VALUE_U16,
	VALUE_U32,
	VALUE_U64,
	VALUE_REAL,
	VALUE_PATH,
	VALUE_MAC,
	VALUE_IPV4
};

/* One row makes an option: its parser, its limits, its line in --help and its default there. */
struct option_row {
	const char *name;
	const char *argument;
	enum value_kind kind;
	size_t offset;
	double min, max; /* of u16, u32 and real */
	const char *help;
};

#define AT(member) offsetof(struct detector_options, member)

static const struct option_row rows[] = {
	{"modules", "N", VALUE_U32, AT(model.modules), 1, JUNGFRAU_MODULES_MAX,
		"modules of the detector, 1 to 32"},
	{"interfaces", "N", VALUE_U32, AT(wire.interfaces), 1, 2,
		"UDP interfaces of a module, 1 or 2"},
	{"column-modules", "N", VALUE_U32, AT(model.column_modules), 1, JUNGFRAU_MODULES_MAX,
		"modules in a column of the stack (default all)"},
	{"frames", "N", VALUE_U64, AT(frames), 0, 0, "frames to make"},
	{"first-frame", "N", VALUE_U64, AT(first_frame), 0, 0, "number of the first frame"},
	{"seed", "N", VALUE_U64, AT(model.seed), 0, 0, "seed of everything that is random"},
	{"hit-fraction", "X", VALUE_REAL, AT(model.hit_fraction), 0, 1,
		"share of frames with a diffraction pattern"},
	{"peaks", "N", VALUE_U32, AT(model.peaks), 2, JUNGFRAU_MEAN_PEAKS_MAX,
		"mean number of Bragg peaks of a hit"},
	{"energy", "KEV", VALUE_REAL, AT(model.energy), 1, 100, "photon energy"},
	{"background", "X", VALUE_REAL, AT(model.background), 0, JUNGFRAU_BACKGROUND_MAX,
		"mean background, photons a pixel"},
	{"noise", "KEV", VALUE_REAL, AT(model.noise), 0, 50, "electronic noise in G0, rms"},
	{"dark-every", "N", VALUE_U64, AT(model.dark_every), 0, 0,
		"frames whose number is a multiple are dark (0: none)"},
	{"threshold", "X", VALUE_REAL, AT(threshold), 0.5, 30000,
		"photons of a strong pixel in the truth"},
	{"pcap", "FILE", VALUE_PATH, AT(pcap_path), 0, 0, "write packets"},
	{"truth", "FILE", VALUE_PATH, AT(truth_path), 0, 0, "write what each frame holds, as CSV"},
	{"calibration", "DIR", VALUE_PATH, AT(calibration_path), 0, 0,
		"write gains, pedestals and masks of the modules"},
	{"raw", "FILE", VALUE_PATH, AT(raw_path), 0, 0, "write raw frames, as --pack reads them"},
	{"rate", "HZ", VALUE_REAL, AT(rate), 0.001, 1000000, "frames a second in the time stamps"},
	{"first-bunch", "N", VALUE_U64, AT(first_bunch), 0, 0, "bunch id of frame 0"},
	{"module-id", "N", VALUE_U16, AT(wire.module_id), 0, UINT16_MAX,
		"module id of module 0, the others follow"},
	{"udp-port", "PORT", VALUE_U16, AT(wire.port), 1, UINT16_MAX,
		"destination port of stream 0, the others follow"},
	{"udp-source-port", "PORT", VALUE_U16, AT(wire.source_port), 1, UINT16_MAX,
		"source port of all streams"},
	{"source-mac", "MAC", VALUE_MAC, AT(wire.source_mac), 0, 0,
		"of stream 0, the others follow"},
	{"destination-mac", "MAC", VALUE_MAC, AT(wire.destination_mac), 0, 0, "of all streams"},
	{"source-ip", "IP", VALUE_IPV4, AT(wire.source_ip), 0, 0, "of stream 0, the others follow"},
	{"destination-ip", "IP", VALUE_IPV4, AT(wire.destination_ip), 0, 0, "of all streams"},
};

#define NB_ROWS (sizeof(rows) / sizeof(rows[0]))

/* Values that getopt_long() returns for what is not in a row; rows return their index. */
enum {
	OPTION_PACK = 1000,
	OPTION_HELP,
	OPTION_VERSION
};

void
detector_options_default(struct detector_options *options)
{
	*options = (struct detector_options){
		.model = {.modules = 1,
			.seed = 1,
			.hit_fraction = 0.1,
			.peaks = 40,
			.energy = 12.4,
			.background = 0.05,
			.noise = 1.2},
		.threshold = 10.0,
		.frames = 100,
		.first_frame = 1,
		.first_bunch = 10000000,
		.rate = 2000.0,
		.wire = {.interfaces = 1,
			.module_id = 1234,
			.source_port = 32410,
			.port = 50001,
			.source_mac = {0x02, 0x00, 0x00, 0x00, 0x01, 0x00},
			.destination_mac = {0x02, 0x00, 0x00, 0x00, 0x02, 0x00},
			.source_ip = 0x0a010101,
			.destination_ip = 0x0a010201},
	};
}

static int
bad_value(const struct option_row *row, const char *text, const char *wanted)
{
	warnx("--%s: found '%s', wanted %s", row->name, text, wanted);
	return -EINVAL;
}

static int
out_of_range(const struct option_row *row, const char *text)
{
	warnx("--%s: found '%s', wanted a value of %.12g to %.12g", row->name, text, row->min,
		row->max);
	return -EINVAL;
}

static int
parse_whole(const struct option_row *row, const char *text, uint64_t *value)
{
	char *end;

	errno = 0;
	*value = strtoull(text, &end, 0);
	if (end == text || *end != '\0' || strchr(text, '-') != NULL)
		return bad_value(row, text, "a whole number");
	if (errno != 0)
		return bad_value(row, text, "a number below 2^64");
	if (row->max != 0 && ((double)*value < row->min || (double)*value > row->max))
		return out_of_range(row, text);
	return 0;
}

static int
parse_real(const struct option_row *row, const char *text, double *value)
{
	char *end;

	*value = strtod(text, &end);
	if (end == text || *end != '\0')
		return bad_value(row, text, "a number");
	/* in this form NaN is refused too */
	if (!(*value >= row->min && *value <= row->max))
		return out_of_range(row, text);
	return 0;
}

static int
parse_mac(const struct option_row *row, const char *text, uint8_t mac[6])
{
	unsigned int byte[6];
	int length = 0;

	if (sscanf(text, "%2x:%2x:%2x:%2x:%2x:%2x%n", &byte[0], &byte[1], &byte[2], &byte[3],
		    &byte[4], &byte[5], &length) != 6 ||
		text[length] != '\0')
		return bad_value(row, text, "six hexadecimal bytes, as in 02:00:00:00:01:00");
	for (int i = 0; i < 6; i++)
		mac[i] = (uint8_t)byte[i];
	return 0;
}

static int
parse_ipv4(const struct option_row *row, const char *text, uint32_t *address)
{
	struct in_addr in;

	if (inet_pton(AF_INET, text, &in) != 1)
		return bad_value(row, text, "an IPv4 address, as in 10.1.1.1");
	*address = ntohl(in.s_addr);
	return 0;
}

static int
parse_row(const struct option_row *row, const char *text, struct detector_options *options)
{
	void *at = (char *)options + row->offset;
	uint64_t whole;
	int rc;

	switch (row->kind) {
	case VALUE_U16:
		rc = parse_whole(row, text, &whole);
		if (rc == 0)
			*(uint16_t *)at = (uint16_t)whole;
		return rc;
	case VALUE_U32:
		rc = parse_whole(row, text, &whole);
		if (rc == 0)
			*(uint32_t *)at = (uint32_t)whole;
		return rc;
	case VALUE_U64:
		return parse_whole(row, text, at);
	case VALUE_REAL:
		return parse_real(row, text, at);
	case VALUE_PATH:
		if (text[0] == '\0')
			return bad_value(row, text, "a path");
		*(const char **)at = text;
		return 0;
	case VALUE_MAC:
		return parse_mac(row, text, at);
	case VALUE_IPV4:
		return parse_ipv4(row, text, at);
	}
	return -EINVAL;
}

static void
print_default(const struct option_row *row, const struct detector_options *options)
{
	const void *at = (const char *)options + row->offset;
	const uint8_t *mac = at;
	struct in_addr in;

	switch (row->kind) {
	case VALUE_U16:
		printf(" (%u)\n", *(const uint16_t *)at);
		return;
	case VALUE_U32:
		/* 0 stands for what the help text says */
		if (*(const uint32_t *)at != 0)
			printf(" (%u)\n", *(const uint32_t *)at);
		else
			printf("\n");
		return;
	case VALUE_U64:
		printf(" (%llu)\n", *(const unsigned long long *)at);
		return;
	case VALUE_REAL:
		printf(" (%g)\n", *(const double *)at);
		return;
	case VALUE_PATH:
		printf("\n");
		return;
	case VALUE_MAC:
		printf(" (%02x:%02x:%02x:%02x:%02x:%02x)\n", mac[0], mac[1], mac[2], mac[3], mac[4],
			mac[5]);
		return;
	case VALUE_IPV4:
		in.s_addr = htonl(*(const uint32_t *)at);
		printf(" (%s)\n", inet_ntoa(in));
		return;
	}
}

static void
print_help(void)
{
	struct detector_options options;
	char label[32];

	detector_options_default(&options);
	printf("Usage: braggline-detector [OPTION]...                       model a detector\n"
	       "       braggline-detector --pack [OPTION]... FILE...        pack raw frames\n"
	       "Write the packets of a JUNGFRAU detector, with their truth and calibration.\n"
	       "\n");
	for (size_t i = 0; i < NB_ROWS; i++) {
		snprintf(label, sizeof(label), "--%s %s", rows[i].name, rows[i].argument);
		printf("  %-24s %s", label, rows[i].help);
		print_default(&rows[i], &options);
	}
	printf("  %-24s %s\n", "--pack",
		"take frames from FILEs of u16 [modules][512][1024] instead of the model");
	printf("  %-24s %s\n  %-24s %s\n", "--help", "print this", "--version",
		"print the version");
	printf("\nStream s = module x interfaces + interface. FILE may be a pipe or /dev/stdout.\n");
}

int
detector_options_parse(int argc, char **argv, struct detector_options *options)
{
	struct option table[NB_ROWS + 4] = {0};
	int choice, rc;

	for (size_t i = 0; i < NB_ROWS; i++)
		table[i] = (struct option){rows[i].name, required_argument, NULL, (int)i};
	table[NB_ROWS] = (struct option){"pack", no_argument, NULL, OPTION_PACK};
	table[NB_ROWS + 1] = (struct option){"help", no_argument, NULL, OPTION_HELP};
	table[NB_ROWS + 2] = (struct option){"version", no_argument, NULL, OPTION_VERSION};

	detector_options_default(options);
	optind = 0; /* begin anew, whoever parsed before */
	while ((choice = getopt_long(argc, argv, "", table, NULL)) != -1) {
		switch (choice) {
		case OPTION_PACK:
			options->pack = true;
			break;
		case OPTION_HELP:
			print_help();
			return 1;
		case OPTION_VERSION:
			printf("braggline-detector %s\n", BRAGGLINE_VERSION);
			return 1;
		case '?':
			/* getopt_long() has named the option */
			return -EINVAL;
		default:
			rc = parse_row(&rows[choice], optarg, options);
			if (rc != 0)
				return rc;
		}
	}
	if (options->model.column_modules == 0)
		options->model.column_modules = options->model.modules;
	options->wire.modules = options->model.modules;
	options->wire.column_modules = options->model.column_modules;
	options->pack_paths = argv + optind;
	options->nb_pack_paths = argc - optind;
	return detector_options_check(options);
}

int
detector_options_check(const struct detector_options *options)
{
	uint32_t streams = options->model.modules * options->wire.interfaces;

	if (options->model.column_modules > options->model.modules) {
		warnx("--column-modules: found %u, wanted at most the %u of --modules",
			options->model.column_modules, options->model.modules);
		return -EINVAL;
	}
	if (options->wire.port + streams - 1 > UINT16_MAX) {
		warnx("--udp-port: found %u, wanted at most %u, because %u streams need as many ports",
			options->wire.port, UINT16_MAX - streams + 1, streams);
		return -EINVAL;
	}
	if (options->wire.module_id + options->model.modules - 1 > UINT16_MAX) {
		warnx("--module-id: found %u, wanted at most %u for %u modules",
			options->wire.module_id, UINT16_MAX - options->model.modules + 1,
			options->model.modules);
		return -EINVAL;
	}
	if (options->pcap_path == NULL && options->truth_path == NULL &&
		options->calibration_path == NULL && options->raw_path == NULL) {
		warnx("nothing to write: wanted one of --pcap, --truth, --calibration, --raw");
		return -EINVAL;
	}
	if (options->pack) {
		if (options->nb_pack_paths == 0) {
			warnx("--pack: found no file, wanted raw frame files");
			return -EINVAL;
		}
		if (options->truth_path != NULL || options->calibration_path != NULL) {
			warnx("--pack: found --%s, which only the model can give",
				options->truth_path != NULL ? "truth" : "calibration");
			return -EINVAL;
		}
	} else if (options->nb_pack_paths > 0) {
		warnx("found '%s', wanted options only; raw frame files need --pack",
			options->pack_paths[0]);
		return -EINVAL;
	}
	return 0;
}
