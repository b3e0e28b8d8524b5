/* SPDX-License-Identifier: BSD-3-Clause */

#include "detector_options.h"

#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "option_refuse.h"
#include "whole_number.h"

enum value_kind {
	VALUE_U16,
	VALUE_U32,
	VALUE_U64,
	VALUE_REAL,
	VALUE_PATH,
	VALUE_MAC,
	VALUE_IPV4,
	VALUE_CELL,
	VALUE_POINT,
	VALUE_DARK_RUN,
	VALUE_FAULT,
	VALUE_TRANSPORT,
	VALUE_QUEUE_PAIRS,
	VALUE_POLICY
};

/* One row defines an option: its parser, its limits, its line in --help and its default there. */
struct option_row {
	const char *name;
	const char *argument;
	enum value_kind kind;
	size_t offset;
	double min, max; /* for u16, u32 and real */
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
	{"frames", "N", VALUE_U64, AT(frames), 0, 0, "number of frames"},
	{"first-frame", "N", VALUE_U64, AT(first_frame), 0, 0, "number of the first frame"},
	{"seed", "N", VALUE_U64, AT(model.seed), 0, 0, "seed of all random numbers"},
	{"hit-fraction", "X", VALUE_REAL, AT(model.hit_fraction), 0, 1,
		"fraction of frames with a diffraction pattern"},
	{"peaks", "N", VALUE_U32, AT(model.peaks), 2, JUNGFRAU_MEAN_PEAKS_MAX,
		"mean number of Bragg peaks of a hit"},
	{"energy", "KEV", VALUE_REAL, AT(model.energy), 1, 100, "photon energy"},
	{"background", "X", VALUE_REAL, AT(model.background), 0, JUNGFRAU_BACKGROUND_MAX,
		"mean background, photons per pixel"},
	{"noise", "KEV", VALUE_REAL, AT(model.noise), 0, 50, "electronic noise in G0, rms"},
	{"dark-every", "N", VALUE_U64, AT(model.dark_every), 0, 0,
		"every Nth frame is dark (0: none)"},
	{"dark-run", "STAGE", VALUE_DARK_RUN, AT(model.dark_run), 0, 0,
		"all frames are dark, with pixels forced into g1 or g2, or left in g0"},
	{"drift", "ADU/S", VALUE_REAL, AT(model.drift), -1000, 1000,
		"drift of the G0 pedestals, mean of the pixels"},
	{"cell", "A,B,C[,...]", VALUE_CELL, AT(model.cell), 0, 0,
		"unit cell of the crystals, angstrom; three angles may follow, degrees"},
	{"distance", "MM", VALUE_REAL, AT(model.distance), 0, 10000,
		"distance from sample to detector; 0: the diagonal of the stack"},
	{"beam", "X,Y", VALUE_POINT, AT(model.beam), 0, 0,
		"beam centre in pixels, 0 is the outer edge (default middle of the stack)"},
	{"geometry", "FILE", VALUE_PATH, AT(geometry_path), 0, 0,
		"positions of pixels, distance and photon energy: a .geom file of CrystFEL"},
	{"rows", "N", VALUE_U32, AT(model.rows), 8, JUNGFRAU_ROWS,
		"rows read out of each module, the middle ones, a multiple of 8"},
	{"storage-cells", "N", VALUE_U32, AT(storage_cells), 1, 16,
		"number of storage cells used in turn"},
	{"threshold", "X", VALUE_REAL, AT(threshold), 0.5, 30000,
		"photons of a strong pixel in the truth"},
	{"pcap", "FILE", VALUE_PATH, AT(pcap_path), 0, 0, "write packets"},
	{"truth", "FILE", VALUE_PATH, AT(truth_path), 0, 0,
		"write the content of each frame, as CSV"},
	{"spots", "FILE", VALUE_PATH, AT(spots_path), 0, 0,
		"write the positions and indices of all peaks, as CSV"},
	{"calibration", "DIR", VALUE_PATH, AT(calibration_path), 0, 0,
		"write gains, pedestals and masks of the modules"},
	{"raw", "FILE", VALUE_PATH, AT(raw_path), 0, 0,
		"write raw frames, in the format that --pack reads"},
	{"report", "FILE", VALUE_PATH, AT(report_path), 0, 0,
		"write the counts of sent packets, as INI"},
	{"rate", "HZ", VALUE_REAL, AT(rate), 0.001, 1000000,
		"frames per second, in time stamps and on the port"},
	{"first-bunch", "N", VALUE_U64, AT(first_bunch), 0, 0, "bunch id of frame 0"},
	{"module-id", "N", VALUE_U16, AT(wire.module_id), 0, UINT16_MAX,
		"module id of module 0, others follow"},
	{"udp-port", "PORT", VALUE_U16, AT(wire.port), 1, UINT16_MAX,
		"destination port of stream 0, others follow"},
	{"udp-source-port", "PORT", VALUE_U16, AT(wire.source_port), 1, UINT16_MAX,
		"source port of all streams"},
	{"source-mac", "MAC", VALUE_MAC, AT(wire.source_mac), 0, 0,
		"address of stream 0, others follow"},
	{"destination-mac", "MAC", VALUE_MAC, AT(wire.destination_mac), 0, 0,
		"address of all streams"},
	{"source-ip", "IP", VALUE_IPV4, AT(wire.source_ip), 0, 0,
		"address of stream 0, others follow"},
	{"destination-ip", "IP", VALUE_IPV4, AT(wire.destination_ip), 0, 0,
		"address of all streams"},
	{"fault", "NAME=VALUE", VALUE_FAULT, AT(faults), 0, 0,
		"loss=P, burst-loss=P:N, reorder=P:N, duplicate=P, corrupt=P[:KIND], truncate=P, "
		"stall=MODULE:FROM:TO, restart=FRAME[:FIRST], drop=FIRST|MIDDLE|LAST|EVENT:P, "
		"event-loss=P, group-loss=P, read-loss=P; repeatable"},
	{"fault-seed", "N", VALUE_U64, AT(fault_seed), 0, 0,
		"seed of the faults; 0: the seed of --seed"},
	{"port", "NAME", VALUE_PATH, AT(port_name), 0, 0, "transmit on this DPDK port"},
	{"transport", "NAME", VALUE_TRANSPORT, AT(transport), 0, 0,
		"UDP packets, RDMA SEND, RDMA WRITE or reliable multicast: udp, send, write or "
		"multicast"},
	{"device", "NAME", VALUE_PATH, AT(device_name), 0, 0,
		"transmit with this RDMA device, roce:port=...,ip=... or verbs:NAME"},
	{"card", "FILE", VALUE_PATH, AT(card_path), 0, 0, "read the receiver's card"},
	{"connect", "ADDRESS:PORT", VALUE_PATH, AT(connect), 0, 0,
		"connect to the receiver, which sends its card"},
	{"queue-pairs", "NAME", VALUE_QUEUE_PAIRS, AT(reliable), 0, 0,
		"uc or rc; rc requires --connect"},
	{"group", "ADDRESS", VALUE_PATH, AT(group), 0, 0,
		"multicast: address of stream 0, others follow (239.192.0.0)"},
	{"service", "PORT", VALUE_U16, AT(service), 1, UINT16_MAX,
		"multicast: port that members of stream 0 connect to, others follow"},
	{"policy", "NAME", VALUE_POLICY, AT(policy), 0, 0,
		"multicast: wait for slow members, or overwrite packets that they do not have"},
	{"ring-slots", "N", VALUE_U32, AT(ring_slots), 16, 1 << 20,
		"multicast: packets in the ring of a stream, a power of two"},
	{"members", "N", VALUE_U32, AT(members), 0, RDMA_STREAM_MEMBERS_MAX,
		"multicast: members of each stream to wait for before the first frame"},
	{"silence", "MS", VALUE_U32, AT(silence_ms), 100, 3600 * 1000,
		"multicast: remove a member that is silent for this time"},
	{"keys", "FILE", VALUE_PATH, AT(keys_path), 0, 0,
		"multicast: keyring; members prove that they have a key of it"},
	{"distinct", "N", VALUE_U64, AT(distinct), 0, 0,
		"frames generated in advance and repeated; 0: up to 128 MiB"},
	{"burst-gap", "NS", VALUE_U32, AT(burst_gap), 0, 1000000000,
		"time between the packets of a frame; 0: back to back"},
	{"link-wait", "S", VALUE_U32, AT(link_wait), 0, 86400,
		"time to wait for the link of the port, or for receivers"},
};

#define NB_ROWS (sizeof(rows) / sizeof(rows[0]))

/* Values that getopt_long() returns for options without a row; for rows it returns their index. */
enum {
	OPTION_PACK = 1000,
	OPTION_REPLAY,
	OPTION_LOOP,
	OPTION_CREDITS,
	OPTION_HELP,
	OPTION_VERSION
};

void
detector_options_default(struct detector_options *options)
{
	*options = (struct detector_options){
		.model = {.modules = 1,
			.column_modules = 1,
			.rows = JUNGFRAU_ROWS,
			.seed = 1,
			.rate = 2000.0,
			.beam = {-1.0, -1.0},
			/* hen egg-white lysozyme, tetragonal */
			.cell = {79.1, 79.1, 37.9, 90.0, 90.0, 90.0},
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
		.storage_cells = 1,
		.link_wait = 10,
		.group = "239.192.0.0",
		.service = RDMA_STREAM_PORT,
		.ring_slots = 4096,
		.members = 1,
		.silence_ms = 2000,
		.wire = {.modules = 1,
			.interfaces = 1,
			.column_modules = 1,
			.rows = JUNGFRAU_ROWS,
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
	warnx("--%s: found '%s', expected %s", row->name, text, wanted);
	return -EINVAL;
}

static int
out_of_range(const struct option_row *row, const char *text)
{
	warnx("--%s: found '%s', expected a value of %.12g to %.12g", row->name, text, row->min,
		row->max);
	return -EINVAL;
}

static int
parse_whole(const struct option_row *row, const char *text, uint64_t *value)
{
	const char *end = whole_number_or_hex(text, value);

	if (end == NULL || *end != '\0')
		return bad_value(row, text, "a whole number below 2^64");
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
	/* this form of the comparison also rejects NaN */
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

/* Parses numbers separated by commas. @return how many; -1: invalid text */
static int
read_list(const char *text, double *values, int max)
{
	char *end;

	for (int n = 0; n < max; text = end + 1) {
		values[n++] = strtod(text, &end);
		if (end == text)
			return -1;
		if (*end == '\0')
			return n;
		if (*end != ',')
			return -1;
	}
	return -1;
}

static int
parse_cell(const struct option_row *row, const char *text, double cell[6])
{
	double values[6] = {0, 0, 0, 90.0, 90.0, 90.0};
	int n = read_list(text, values, 6);

	if (n != 3 && n != 6)
		return bad_value(row, text, "A,B,C or A,B,C,ALPHA,BETA,GAMMA");
	for (int i = 0; i < 6; i++)
		if (i < 3 ? !(values[i] >= 10.0 && values[i] <= 1000.0)
			  : !(values[i] >= 20.0 && values[i] <= 160.0))
			return bad_value(row, text,
				"edges of 10 to 1000 angstrom, angles of 20 to 160 degrees");
	memcpy(cell, values, sizeof(values));
	return 0;
}

static int
parse_point(const struct option_row *row, const char *text, double point[2])
{
	double values[2];

	if (read_list(text, values, 2) != 2 || !(values[0] >= 0.0 && values[0] <= 40000.0) ||
		!(values[1] >= 0.0 && values[1] <= 40000.0))
		return bad_value(row, text, "X,Y of 0 to 40000 pixels");
	memcpy(point, values, sizeof(values));
	return 0;
}

static int
parse_dark_run(const struct option_row *row, const char *text, enum jungfrau_dark_run *run)
{
	if (text[0] != 'g' || text[1] < '0' || text[1] > '2' || text[2] != '\0')
		return bad_value(row, text, "g0, g1 or g2");
	*run = JUNGFRAU_DARK_RUN_G0 + (unsigned int)(text[1] - '0');
	return 0;
}

static int
parse_transport(const struct option_row *row, const char *text, enum ingest_transport *transport)
{
	for (int t = INGEST_UDP; t <= INGEST_MULTICAST; t++) {
		if (strcmp(text, ingest_transport_names[t]) == 0) {
			*transport = (enum ingest_transport)t;
			return 0;
		}
	}
	return bad_value(row, text, "udp, send, write or multicast");
}

static int
parse_policy(const struct option_row *row, const char *text, enum rdma_stream_policy *policy)
{
	if (strcmp(text, "wait") == 0)
		*policy = RDMA_STREAM_WAIT;
	else if (strcmp(text, "overwrite") == 0)
		*policy = RDMA_STREAM_OVERWRITE;
	else
		return bad_value(row, text, "wait or overwrite");
	return 0;
}

static int
parse_queue_pairs(const struct option_row *row, const char *text, bool *reliable)
{
	if (strcmp(text, "uc") != 0 && strcmp(text, "rc") != 0)
		return bad_value(row, text, "uc or rc");
	*reliable = text[0] == 'r';
	return 0;
}

static int
parse_row(const struct option_row *row, const char *text, struct detector_options *options)
{
	void *at = (char *)options + row->offset;
	uint64_t whole;
	int ret;

	switch (row->kind) {
	case VALUE_U16:
		ret = parse_whole(row, text, &whole);
		if (ret == 0)
			*(uint16_t *)at = (uint16_t)whole;
		return ret;
	case VALUE_U32:
		ret = parse_whole(row, text, &whole);
		if (ret == 0)
			*(uint32_t *)at = (uint32_t)whole;
		return ret;
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
	case VALUE_CELL:
		return parse_cell(row, text, at);
	case VALUE_POINT:
		return parse_point(row, text, at);
	case VALUE_DARK_RUN:
		return parse_dark_run(row, text, at);
	case VALUE_FAULT:
		return fault_options_parse(text, at);
	case VALUE_TRANSPORT:
		return parse_transport(row, text, at);
	case VALUE_QUEUE_PAIRS:
		return parse_queue_pairs(row, text, at);
	case VALUE_POLICY:
		return parse_policy(row, text, at);
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
		/* 0 selects the default that the help text describes */
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
	case VALUE_CELL:
		for (int i = 0; i < 6; i++)
			printf("%s%g", i == 0 ? " (" : ",", ((const double *)at)[i]);
		printf(")\n");
		return;
	case VALUE_PATH:
	case VALUE_POINT:
	case VALUE_DARK_RUN:
	case VALUE_FAULT:
		printf("\n");
		return;
	case VALUE_TRANSPORT:
		printf(" (%s)\n", ingest_transport_names[options->transport]);
		return;
	case VALUE_QUEUE_PAIRS:
		printf(" (%s)\n", options->reliable ? "rc" : "uc");
		return;
	case VALUE_POLICY:
		printf(" (%s)\n", options->policy == RDMA_STREAM_WAIT ? "wait" : "overwrite");
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
	options.model.column_modules = 0; /* unless specified: all modules */
	printf("Usage: braggline-detector [OPTION]...                       model a detector\n"
	       "       braggline-detector --pack [OPTION]... FILE...        pack raw frames\n"
	       "       braggline-detector --replay [OPTION]... RUN...       raw frames of a run\n"
	       "       braggline-detector EAL-OPTION... -- --port NAME [OPTION]...\n"
	       "       braggline-detector EAL-OPTION... -- --transport send|write|multicast "
	       "--device NAME ...\n"
	       "Write or transmit the packets of a JUNGFRAU detector, with their truth and "
	       "calibration.\n"
	       "\n");
	for (size_t i = 0; i < NB_ROWS; i++) {
		snprintf(label, sizeof(label), "--%s %s", rows[i].name, rows[i].argument);
		printf("  %-24s %s", label, rows[i].help);
		print_default(&rows[i], &options);
	}
	printf("  %-24s %s\n", "--pack",
		"read frames from FILEs of u16 [modules][512][1024] instead of the model");
	printf("  %-24s %s\n", "--replay",
		"read raw frames and their headers from the Arrow files of RUNs");
	printf("  %-24s %s\n", "--loop", "transmit until a signal arrives; --frames is ignored");
	printf("  %-24s %s\n", "--credits",
		"write: wait until the receiver's ring has room; requires --connect");
	printf("  %-24s %s\n  %-24s %s\n", "--help", "print this help and exit", "--version",
		"print the version and exit");
	printf("\nStream s = module x interfaces + interface. FILE may be a pipe.\n");
}

int
detector_options_parse(int argc, char **argv, struct detector_options *options)
{
	struct option table[NB_ROWS + 7] = {0};
	int choice, ret;

	for (size_t i = 0; i < NB_ROWS; i++)
		table[i] = (struct option){rows[i].name, required_argument, NULL, (int)i};
	table[NB_ROWS] = (struct option){"pack", no_argument, NULL, OPTION_PACK};
	table[NB_ROWS + 1] = (struct option){"help", no_argument, NULL, OPTION_HELP};
	table[NB_ROWS + 2] = (struct option){"version", no_argument, NULL, OPTION_VERSION};
	table[NB_ROWS + 3] = (struct option){"loop", no_argument, NULL, OPTION_LOOP};
	table[NB_ROWS + 4] = (struct option){"replay", no_argument, NULL, OPTION_REPLAY};
	table[NB_ROWS + 5] = (struct option){"credits", no_argument, NULL, OPTION_CREDITS};

	detector_options_default(options);
	options->model.column_modules = 0; /* unless specified: all modules */
	optind = 0;			   /* restart the scan, in case getopt was used before */
	while ((choice = getopt_long(argc, argv, "", table, NULL)) != -1) {
		switch (choice) {
		case OPTION_PACK:
			options->pack = true;
			break;
		case OPTION_REPLAY:
			options->replay = true;
			break;
		case OPTION_LOOP:
			options->loop = true;
			break;
		case OPTION_CREDITS:
			options->credits = true;
			break;
		case OPTION_HELP:
			print_help();
			return 1;
		case OPTION_VERSION:
			printf("braggline-detector %s\n", BRAGGLINE_VERSION);
			return 1;
		case '?':
			option_try_help("braggline-detector");
			return -EINVAL;
		default:
			ret = parse_row(&rows[choice], optarg, options);
			if (ret != 0)
				return ret;
		}
	}
	if (options->model.column_modules == 0)
		options->model.column_modules = options->model.modules;
	options->wire.modules = options->model.modules;
	options->wire.column_modules = options->model.column_modules;
	options->wire.rows = options->model.rows;
	options->model.rate = options->rate;
	options->faults.messages = options->transport != INGEST_UDP;
	options->pack_paths = argv + optind;
	options->nb_pack_paths = argc - optind;
	return detector_options_check(options);
}

struct pulse_numbering
detector_options_numbering(const struct detector_options *options)
{
	return (struct pulse_numbering){.first_bunch = options->first_bunch,
		.rate = options->rate,
		.storage_cells = options->storage_cells,
		.dark_run = options->model.dark_run,
		.faults = &options->faults};
}

uint64_t
detector_options_fault_seed(const struct detector_options *options)
{
	return options->fault_seed != 0 ? options->fault_seed : options->model.seed;
}
