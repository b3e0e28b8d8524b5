/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "option_refuse.h"
#include "whole_number.h"
#include "options.h"

#define DEFAULT_CRYSTFEL "tcp://127.0.0.1:31000"
#define DEFAULT_STREAM2	 "tcp://127.0.0.1:31001"

static const char help[] =
	"usage: braggline-publish [OPTION...] DIR...\n"
	"Publish the kept frames of runs, with their peaks, while the runs go on. It follows the\n"
	"files in directories of receivers or stores, and sends messages through ZeroMQ: to\n"
	"CrystFEL (MessagePack) and to clients of DECTRIS stream v2 (CBOR).\n"
	"\n"
	"  --crystfel ADDRESS      workers of CrystFEL, each image to one of them:\n"
	"                          indexamajig --zmq-input=ADDRESS --zmq-request=next\n"
	"                          (default: " DEFAULT_CRYSTFEL ")\n"
	"  --crystfel-pub ADDRESS  all images to each subscriber: indexamajig\n"
	"                          --zmq-input=ADDRESS --zmq-subscribe=\n"
	"  --stream2 ADDRESS       PUSH, each message to one client\n"
	"                          (default: " DEFAULT_STREAM2 ")\n"
	"  --stream2-pub ADDRESS   PUB, all messages to each subscriber, for previews\n"
	"                          The defaults apply if no ADDRESS is given. An ADDRESS is\n"
	"                          tcp://HOST:PORT, tcp://HOST:* for any port, or ipc://PATH\n"
	"  --run NAME              only this run, even if it has ended; exit when all was sent\n"
	"                          (default: runs that are being written, and later ones)\n"
	"  --raw                   detector words of raw images, instead of photons\n"
	"  --behind N              leave out older images if more than N of a run wait for\n"
	"                          workers (default: none is left out; they wait in the files)\n"
	"  --hwm N                 messages that wait for a client, 1 to 1000 (default: 4)\n"
	"  --poll-ms N             polling interval of a file, 1 to 1000 (default: 1)\n"
	"  --rows-ms N             longest time that images wait for their rows of frames, 0 to\n"
	"                          60000 (default: 5000 for stream v2, 0 for CrystFEL)\n"
	"  --geom FILE             write a geometry for indexamajig -g when a run begins\n"
	"  --stats FILE            write counters every second, in the text format of Prometheus\n"
	"  --help                  print this help and exit\n"
	"  --version               print the version and exit\n"
	"\n"
	"It ends on SIGINT and SIGTERM, and prints a summary. Exit status: 0: success; 1: an\n"
	"error; 2: invalid command line.\n";

void
options_help(void)
{
	fputs(help, stdout);
}

static bool
is_address(const char *text)
{
	const char *port = strrchr(text, ':');
	uint64_t number;

	if (strncmp(text, "ipc://", 6) == 0)
		return text[6] != '\0';
	/* ZeroMQ binds to the low 16 bits of a port that is too high */
	return strncmp(text, "tcp://", 6) == 0 && port > text + 6 &&
		(strcmp(port, ":*") == 0 || whole_number(port + 1, 1, UINT16_MAX, &number));
}

static int
set_address(struct options *o, enum output_kind kind, char message[OPTIONS_MESSAGE_LEN])
{
	char option[32];

	snprintf(option, sizeof(option), "--%s", output_name(kind));
	if (!is_address(optarg))
		return option_refuse(message, OPTIONS_MESSAGE_LEN, option, optarg,
			"tcp://HOST:PORT with a port of 1 to 65535, tcp://HOST:* or ipc://PATH");
	o->address[kind] = optarg;
	return 0;
}

static int
set_option(struct options *o, int opt, char message[OPTIONS_MESSAGE_LEN])
{
	uint64_t value;

	switch (opt) {
	case 'R':
		o->run = optarg;
		if (*optarg == '\0' || strchr(optarg, '/') != NULL)
			return option_refuse(
				message, OPTIONS_MESSAGE_LEN, "--run", optarg, "the name of a run");
		return 0;
	case 'b':
		if (!whole_number(optarg, 1, UINT64_MAX - 1, &o->behind))
			return option_refuse(message, OPTIONS_MESSAGE_LEN, "--behind", optarg,
				"a number of images from 1");
		return 0;
	case 'w':
		if (!whole_number(optarg, 1, OPTIONS_HWM_MAX, &value))
			return option_refuse(
				message, OPTIONS_MESSAGE_LEN, "--hwm", optarg, "1 to 1000");
		o->hwm = value;
		return 0;
	case 'p':
		if (!whole_number(optarg, 1, OPTIONS_POLL_MS_MAX, &value))
			return option_refuse(
				message, OPTIONS_MESSAGE_LEN, "--poll-ms", optarg, "1 to 1000");
		o->poll_ms = value;
		return 0;
	case 'm':
		if (!whole_number(optarg, 0, OPTIONS_ROWS_MS_MAX, &value))
			return option_refuse(
				message, OPTIONS_MESSAGE_LEN, "--rows-ms", optarg, "0 to 60000");
		o->rows_ms = value;
		return 0;
	case 'g':
		o->geom = optarg;
		return 0;
	case 's':
		o->stats = optarg;
		return 0;
	case 'r':
		o->raw = true;
		return 0;
	case 'h':
		o->help = true;
		return 0;
	case 'v':
		o->version = true;
		return 0;
	case '?':
		snprintf(message, OPTIONS_MESSAGE_LEN,
			"an option is unknown or has no value; see braggline-publish --help");
		return -EINVAL;
	default:
		return set_address(o, opt - 256, message);
	}
}

/* Without any address, those that programs expect on the same machine. */
static void
set_defaults(struct options *o)
{
	for (unsigned int i = 0; i < OUTPUT_KINDS; i++) {
		if (o->address[i] != NULL)
			return;
	}
	o->address[OUTPUT_CRYSTFEL] = DEFAULT_CRYSTFEL;
	o->address[OUTPUT_STREAM2] = DEFAULT_STREAM2;
}

int
options_parse(struct options *o, int argc, char **argv, char message[OPTIONS_MESSAGE_LEN])
{
	static const struct option options[] = {
		{"crystfel", required_argument, NULL, 256 + OUTPUT_CRYSTFEL},
		{"crystfel-pub", required_argument, NULL, 256 + OUTPUT_CRYSTFEL_PUB},
		{"stream2", required_argument, NULL, 256 + OUTPUT_STREAM2},
		{"stream2-pub", required_argument, NULL, 256 + OUTPUT_STREAM2_PUB},
		{"run", required_argument, NULL, 'R'},
		{"raw", no_argument, NULL, 'r'},
		{"behind", required_argument, NULL, 'b'},
		{"hwm", required_argument, NULL, 'w'},
		{"poll-ms", required_argument, NULL, 'p'},
		{"rows-ms", required_argument, NULL, 'm'},
		{"geom", required_argument, NULL, 'g'},
		{"stats", required_argument, NULL, 's'},
		{"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'v'},
		{NULL, 0, NULL, 0},
	};
	struct stat st;
	int opt, ret;

	*o = (struct options){
		.hwm = OPTIONS_HWM, .behind = FEED_ALL, .poll_ms = OPTIONS_POLL_MS, .rows_ms = -1};
	message[0] = '\0';
	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		ret = set_option(o, opt, message);
		if (ret < 0)
			return ret;
	}
	set_defaults(o);
	o->dir = argv + optind;
	o->nb_dirs = argc - optind;
	if (o->nb_dirs == 0 && !o->help && !o->version) {
		snprintf(message, OPTIONS_MESSAGE_LEN,
			"expected a directory of a receiver or a store; see braggline-publish "
			"--help");
		return -EINVAL;
	}
	for (int i = 0; i < o->nb_dirs; i++) {
		/* one that does not exist may be created later */
		if (stat(o->dir[i], &st) == 0 && !S_ISDIR(st.st_mode))
			return option_refuse(message, OPTIONS_MESSAGE_LEN, "argument", o->dir[i],
				"a directory of a receiver or a store, not a file; --run NAME "
				"selects a run");
	}
	return 0;
}
