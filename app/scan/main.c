/* SPDX-License-Identifier: BSD-3-Clause */
/* braggline-scan: shows, checks and recovers the files of a run. */

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gk_radial.h>

#include <rte_log.h>

#include "convert.h"
#include "eal/end.h"
#include "eal/start.h"
#include "escaped_text.h"
#include "geometry/file.h"
#include "picture/drawing.h"
#include "picture.h"
#include "plot.h"
#include "profile.h"
#include "query.h"
#include "sql/duckdb_api.h"
#include "sql/heap.h"
#include "recover.h"
#include "report.h"
#include "serve.h"
#include "serve_telemetry.h"
#include "spots.h"
#include "statements.h"
#include "xfer/msg.h"

#define EXIT_DAMAGED 1
#define EXIT_USAGE   2

struct options {
	const char *truth;
	const char *spots;
	const char *png;
	const char *calibration;
	const char *plot;
	const char *csv;
	const char *geometry;
	const char *from;
	const char *profile;
	struct profile_options radial;
	uint64_t frame;
	bool peaks;
	bool recover;
	struct query_options query;
	bool session;
	bool serve;
	struct scan_server_config server;
	struct scan_client_config client; /* server is NULL: no --connect */
};

static const char help[] =
	"usage: braggline-scan [OPTION...] DIR|FILE...\n"
	"       braggline-scan --geometry FILE --from FILE\n"
	"       braggline-scan --sql SELECT [--format F] DIR|FILE...\n"
	"       braggline-scan [EAL options --] --serve --device D --keys FILE DIR|FILE...\n"
	"       braggline-scan [EAL options --] --connect ADDR [OPTION...] --sql SELECT\n"
	"Read and check the files of runs, and print a summary. A FILE is\n"
	"RUN_frames.arrow or RUN_images.arrow; the other one is found beside it. Files\n"
	"that end in .part are read up to the last valid batch. If the directory of a\n"
	"run with several sets of files is given, the sets are read as one run.\n"
	"\n"
	"  --truth FILE  compare hits with a CSV file that has the columns frame and hit\n"
	"  --spots FILE  compare peaks with a CSV file that has the columns frame, fs, ss\n"
	"                and photons, such as braggline-detector --spots writes\n"
	"  --png FILE    write a picture, PNG or SVG by the end of its name: the maximum of\n"
	"                all kept frames, and one frame\n"
	"  --frame N     frame to show in --png (default: the highest strong pixel count)\n"
	"  --peaks       mark the peaks of the frame in --png\n"
	"  --calibration F  RUN_calibration.bin, whose masked pixels are shown in --png\n"
	"                (default: the file of this name beside the files of the run)\n"
	"  --plot FILE   write a plot, PNG or SVG: peaks (or strong pixels) of each frame, and\n"
	"                the hit rate\n"
	"  --csv FILE    write all columns of frames; - is standard output, no summary\n"
	"  --geometry FILE  write the geometry of the run: .geom (CrystFEL) or .poni\n"
	"                (pyFAI), by the end of the name\n"
	"  --from FILE   convert this geometry instead of that of a run\n"
	"  --profile FILE  write radial profiles as CSV: those of the receiver, or of kept full\n"
	"                images; - as above\n"
	"  --unit U      with --profile: q (1/angstrom), d (angstrom), 2theta (degrees); default:\n"
	"                as the receiver, or q\n"
	"  --bins N      of --profile; default: that of the receiver, or 1000\n"
	"  --solid-angle  correct --profile for the solid angle of pixels\n"
	"  --polarization P  correct --profile for polarisation; P is 1 along x\n"
	"  --recover     first complete the .part files that a crash has left\n"
	"  --sql SELECT  execute a query with DuckDB and print its result; - reads it from\n"
	"                standard input. Tables: RUN.frames, RUN.images; frames and images\n"
	"                with the rows of all runs. " DUCKDB_VARIABLE " is the path of\n"
	"                libduckdb.so, if ld.so does not find it\n"
	"  -o, --format F  with --sql: table (default), csv, json (an object a line), arrow\n"
	"                (IPC stream)\n"
	"  --threads N   threads of --sql (default: number of CPUs)\n"
	"  --memory SIZE  limit of the engine's buffers in --sql, such as 8GB; the process\n"
	"                can take more, e.g. for long lists\n"
	"  --unordered   rows of --sql may come in any order, which is faster\n"
	"  --stats       with --sql --format arrow: print to standard error which lists\n"
	"                were past the engine, and how many bytes were copied\n"
	"  --session     for the ADBC driver: execute statements read from standard input\n"
	"  --serve       execute queries of other machines, over RDMA\n"
	"  --connect ADDR  have a server execute --sql; IPv4[:PORT], IPv6 or [IPv6]:PORT\n"
	"  --device D    RDMA device: roce:port=P,ip=ADDRESS/BITS or verbs:NAME\n"
	"  --identity NAME  with --connect: name of the user at the server\n"
	"  --key FILE    with --connect: key of the user\n"
	"  --pull        with --connect: read results from the server's memory, by RDMA READ\n"
	"  --keys FILE   with --serve: users, their keys and the runs that they may read\n"
	"  --port N      with --serve: port to listen on (default 18517)\n"
	"  --sessions N  with --serve: maximum number of clients, 1 to 64 (default 16)\n"
	"  --deadline S  with --serve: maximum seconds of a query (default 600)\n"
	"  --idle S      with --serve: maximum seconds of a client without query (default 600)\n"
	"  --hold S      with --serve: maximum seconds until a client of --pull has read a part\n"
	"                of a result (default 600)\n"
	"                --threads and --memory are limits of each client (1, 1GB)\n"
	"  --list-telemetry  print the commands of /braggline/... of --serve and exit\n"
	"  --help        print this help and exit\n"
	"  --version     print the version and exit\n"
	"\n"
	"--truth, --spots, --png, --plot, --csv, --geometry and --profile require a single run.\n"
	"Exit status: 0: success; 1: a file is damaged, incomplete or cannot be read;\n"
	"2: invalid command line; 130: --sql was cancelled by SIGINT.\n";

static int
usage(const char *what, const char *name)
{
	escaped_line(stderr, "braggline-scan: %s%s; see braggline-scan --help", what, name);
	return EXIT_USAGE;
}

static int
scan(const struct scan_sets *sets, const struct options *o)
{
	const bool quiet = (o->csv != NULL && strcmp(o->csv, "-") == 0) ||
		(o->profile != NULL && strcmp(o->profile, "-") == 0);
	struct scan_run run;
	int ret = 0;

	if (scan_run_open(&run, sets) < 0) {
		scan_run_close(&run);
		return EXIT_DAMAGED;
	}
	if (!quiet && !report_summary(&run))
		ret = EXIT_DAMAGED;
	if (scan_run_is_damaged(&run))
		ret = EXIT_DAMAGED;
	if (o->csv != NULL && report_csv(&run, o->csv) < 0)
		ret = EXIT_DAMAGED;
	if (o->truth != NULL && report_truth(&run, o->truth) < 0)
		ret = EXIT_DAMAGED;
	if (o->spots != NULL && spots_compare(&run, o->spots) < 0)
		ret = EXIT_DAMAGED;
	if (o->png != NULL && picture_save(&run, o->frame, o->peaks, o->calibration, o->png) < 0)
		ret = EXIT_DAMAGED;
	if (o->plot != NULL && plot_save(&run, o->plot) < 0)
		ret = EXIT_DAMAGED;
	if (o->geometry != NULL && convert_run(&run, o->geometry) < 0)
		ret = EXIT_DAMAGED;
	if (o->profile != NULL && profile_save(&run, &o->radial, o->profile) < 0)
		ret = EXIT_DAMAGED;
	scan_run_close(&run);
	return ret;
}

/* Whether an option reports on a single run. */
static bool
is_report(const struct options *o)
{
	return o->truth != NULL || o->spots != NULL || o->png != NULL || o->plot != NULL ||
		o->csv != NULL || o->geometry != NULL || o->profile != NULL;
}

/* Check the name of a picture. @return 0, or EXIT_USAGE: printed */
static int
check_picture(const char *option, const char *path)
{
	enum drawing_kind kind;

	if (path == NULL || drawing_kind_of(path, &kind) == 0)
		return 0;
	escaped_line(stderr,
		"braggline-scan: %s: expected a name that ends in " DRAWING_NAMES
		", not %s; see braggline-scan --help",
		option, path);
	return EXIT_USAGE;
}

/* Read an option of --profile. @return 0, or EXIT_USAGE: printed */
static int
read_radial(struct profile_options *o, int opt, const char *text)
{
	char *end;

	switch (opt) {
	case 'u':
		for (o->unit = 0; o->unit < PROFILE_UNITS; o->unit++)
			if (strcmp(text, profile_unit_names[o->unit]) == 0)
				return 0;
		return usage("--unit: expected q, d or 2theta, not ", text);
	case 'b':
		o->bins = (uint32_t)strtoul(text, &end, 10);
		if (*text < '0' || *text > '9' || *end != '\0' || strlen(text) > 5 || o->bins < 1 ||
			o->bins > GK_RADIAL_BINS_MAX)
			return usage("--bins: expected 1 to 16383, not ", text);
		return 0;
	case 'a':
		o->corrections.solid_angle = true;
		return 0;
	default:
		o->corrections.polarised = true;
		o->corrections.polarisation = strtod(text, &end);
		if (end == text || *end != '\0' ||
			!(o->corrections.polarisation >= -1 && o->corrections.polarisation <= 1))
			return usage("--polarization: expected -1 to 1, not ", text);
		return 0;
	}
}

/* Read an option of --sql. @return 0, or EXIT_USAGE: printed */
static int
read_query(struct query_options *o, int opt, const char *text)
{
	char *end;

	switch (opt) {
	case 'F':
		for (o->format = 0; o->format < QUERY_FORMATS; o->format++)
			if (strcmp(text, query_format_names[o->format]) == 0)
				return 0;
		return usage("--format: expected table, csv, json or arrow, not ", text);
	case 'T':
		o->threads = (unsigned int)strtoul(text, &end, 10);
		if (*text < '0' || *text > '9' || *end != '\0' || strlen(text) > 4 ||
			o->threads < 1)
			return usage("--threads: expected 1 to 9999, not ", text);
		return 0;
	case 'M':
		o->memory = text;
		return 0;
	case 'A':
		o->stats = true;
		return 0;
	default:
		o->unordered = true;
		return 0;
	}
}

/* Read an option of --serve or --connect. @return 0, or EXIT_USAGE: printed */
static int
read_remote(struct options *o, int opt, const char *text)
{
	const uint64_t most = opt == 'P' ? UINT16_MAX : opt == 'N' ? SCAN_SESSIONS : 86400;
	uint64_t number;
	char *end;

	switch (opt) {
	case 'E':
		o->serve = true;
		return 0;
	case 'C':
		o->client.server = text;
		return 0;
	case 'D':
		o->server.device = o->client.device = text;
		return 0;
	case 'I':
		o->client.identity = text;
		return 0;
	case 'K':
		o->client.key = text;
		return 0;
	case 'Y':
		o->server.keys = text;
		return 0;
	case 'Q':
		o->client.pull = true;
		return 0;
	}
	number = strtoull(text, &end, 10);
	if (*text < '0' || *text > '9' || *end != '\0' || strlen(text) > 5 || number < 1 ||
		number > most)
		return usage(opt == 'P'	     ? "--port: expected 1 to 65535, not "
				: opt == 'N' ? "--sessions: expected 1 to 64, not "
				: opt == 'L' ? "--deadline: expected 1 to 86400 seconds, not "
				: opt == 'H' ? "--hold: expected 1 to 86400 seconds, not "
					     : "--idle: expected 1 to 86400 seconds, not ",
			text);
	if (opt == 'P')
		o->server.port = number;
	else if (opt == 'N')
		o->server.sessions = number;
	else if (opt == 'L')
		o->server.deadline_ms = number * 1000;
	else if (opt == 'H')
		o->server.hold_ms = number * 1000;
	else
		o->server.idle_ms = number * 1000;
	return 0;
}

/*
 * Where own arguments begin. Only --serve and --connect use EAL: without them, `--` ends the
 * options.
 */
static int
own_words(int argc, char **argv)
{
	int i, own = 0;

	for (i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--") == 0 && own == 0)
			own = i;
		else if (own > 0 &&
			(strcmp(argv[i], "--serve") == 0 || strncmp(argv[i], "--connect", 9) == 0))
			return eal_own_words(argc, argv);
	}
	return 0;
}

/* Start EAL, and serve or query. */
static int
use_rdma(struct options *o, int argc, char **argv, int own)
{
	int ret;

	/* the result has standard output for itself */
	(void)rte_openlog_stream(stderr);
	if (o->serve)
		serve_prepare();
	else
		query_prepare();
	if (eal_start("braggline-scan", argc, argv, own) < 0)
		return EXIT_DAMAGED;
	if (o->serve)
		ret = serve(&o->server);
	else
		ret = o->session ? statements_remote(&o->client, &o->query)
				 : query_remote(&o->client, &o->query);
	eal_end();
	return ret;
}

/* Check the options of --serve and --connect. @param nb  number of directories and files */
static int
check_remote(struct options *o, char *const *path, int nb)
{
	if (o->serve && o->client.server != NULL)
		return usage("--serve and --connect exclude each other", "");
	if (o->server.device == NULL)
		return usage("--serve and --connect require --device", "");
	if (is_report(o) || o->recover || (o->serve && (o->query.sql != NULL || o->session)))
		return usage("--serve and --connect cannot be used with other reports", "");
	if (o->serve) {
		if (o->client.identity != NULL || o->client.key != NULL)
			return usage("--serve: --identity and --key are those of a client; the "
				     "users of a server are those of --keys",
				"");
		if (o->client.pull)
			return usage("--serve: --pull is an option of a client", "");
		if (o->server.keys == NULL || nb == 0)
			return usage("--serve requires --keys, and a directory or a file", "");
		if (o->query.stats)
			return usage("--stats cannot be used with --serve", "");
		o->server.worker.path = (const char *const *)path;
		o->server.worker.nb_paths = nb;
		o->server.worker.threads = o->query.threads > 0 ? o->query.threads : 1;
		o->server.worker.memory = o->query.memory != NULL ? o->query.memory : "1GB";
		return 0;
	}
	if (o->query.sql == NULL && !o->session)
		return usage("--connect requires --sql or --session", "");
	if (o->client.identity == NULL)
		return usage(
			"--connect requires --identity NAME: the user's name in the keyring of "
			"the server, as in [receiver NAME]",
			"");
	if (!xfer_name_check_text(o->client.identity))
		return usage(
			"--identity: expected 1 to 63 letters, digits, '-', '_' and '.', without "
			"'.' at the beginning, found ",
			o->client.identity);
	if (o->client.key == NULL)
		return usage("--connect requires --key FILE: the user's key, which is that of the "
			     "keyring of the server",
			"");
	if (o->server.keys != NULL || o->server.port > 0 || o->server.sessions > 0 ||
		o->server.deadline_ms > 0 || o->server.idle_ms > 0 || o->server.hold_ms > 0)
		return usage("--connect: --keys, --port, --sessions, --deadline, --idle and --hold "
			     "are those of a server; the port of a server is that of its address, "
			     "as in 10.0.0.2:18517",
			"");
	if (o->query.stats && o->query.format != QUERY_ARROW)
		return usage("--stats requires --format arrow", "");
	if (nb > 0 || o->query.threads > 0 || o->query.memory != NULL || o->query.unordered)
		return usage("--connect: files, --threads, --memory and --unordered are those of "
			     "the server",
			"");
	return 0;
}

int
main(int argc, char **argv)
{
	static const struct option options[] = {
		{"truth", required_argument, NULL, 't'},
		{"spots", required_argument, NULL, 's'},
		{"png", required_argument, NULL, 'p'},
		{"frame", required_argument, NULL, 'f'},
		{"peaks", no_argument, NULL, 'k'},
		{"calibration", required_argument, NULL, 'B'},
		{"plot", required_argument, NULL, 'l'},
		{"csv", required_argument, NULL, 'c'},
		{"geometry", required_argument, NULL, 'g'},
		{"from", required_argument, NULL, 'i'},
		{"profile", required_argument, NULL, 'R'},
		{"unit", required_argument, NULL, 'u'},
		{"bins", required_argument, NULL, 'b'},
		{"solid-angle", no_argument, NULL, 'a'},
		{"polarization", required_argument, NULL, 'z'},
		{"recover", no_argument, NULL, 'r'},
		{"sql", required_argument, NULL, 'S'},
		{"format", required_argument, NULL, 'F'},
		{"threads", required_argument, NULL, 'T'},
		{"memory", required_argument, NULL, 'M'},
		{"unordered", no_argument, NULL, 'U'},
		{"stats", no_argument, NULL, 'A'},
		{"session", no_argument, NULL, 'X'},
		{"serve", no_argument, NULL, 'E'},
		{"connect", required_argument, NULL, 'C'},
		{"device", required_argument, NULL, 'D'},
		{"identity", required_argument, NULL, 'I'},
		{"key", required_argument, NULL, 'K'},
		{"keys", required_argument, NULL, 'Y'},
		{"port", required_argument, NULL, 'P'},
		{"sessions", required_argument, NULL, 'N'},
		{"deadline", required_argument, NULL, 'L'},
		{"idle", required_argument, NULL, 'J'},
		{"hold", required_argument, NULL, 'H'},
		{"pull", no_argument, NULL, 'Q'},
		{"list-telemetry", no_argument, NULL, 'V'},
		{"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'v'},
		{NULL, 0, NULL, 0},
	};
	struct options o = {.frame = PICTURE_BEST_FRAME, .radial.unit = PROFILE_UNITS};
	struct scan_list list = {0};
	bool radial = false, querying = false, remote = false;
	const int own = own_words(argc, argv);
	char **const words = argv;
	const int nb_words = argc;
	int opt, ret = 0;
	char *end;
	size_t i;

	argc -= own;
	argv += own;
	while ((opt = getopt_long(argc, argv, "o:", options, NULL)) != -1) {
		switch (opt) {
		case 't':
			o.truth = optarg;
			break;
		case 's':
			o.spots = optarg;
			break;
		case 'p':
			o.png = optarg;
			break;
		case 'B':
			o.calibration = optarg;
			break;
		case 'f':
			o.frame = strtoull(optarg, &end, 0);
			if (*optarg < '0' || *optarg > '9' || *end != '\0')
				return usage("--frame: expected a frame number, not ", optarg);
			break;
		case 'k':
			o.peaks = true;
			break;
		case 'l':
			o.plot = optarg;
			break;
		case 'c':
			o.csv = optarg;
			break;
		case 'g':
			o.geometry = optarg;
			break;
		case 'i':
			o.from = optarg;
			break;
		case 'R':
			o.profile = optarg;
			break;
		case 'u':
		case 'b':
		case 'a':
		case 'z':
			if (read_radial(&o.radial, opt, optarg) != 0)
				return EXIT_USAGE;
			radial = true;
			break;
		case 'r':
			o.recover = true;
			break;
		case 'S':
			o.query.sql = optarg;
			break;
		case 'o':
		case 'F':
		case 'T':
		case 'M':
		case 'U':
		case 'A':
			if (read_query(&o.query, opt == 'o' ? 'F' : opt, optarg) != 0)
				return EXIT_USAGE;
			querying = true;
			break;
		case 'X':
			o.session = true;
			break;
		case 'E':
		case 'C':
		case 'D':
		case 'I':
		case 'K':
		case 'Y':
		case 'P':
		case 'N':
		case 'L':
		case 'J':
		case 'H':
		case 'Q':
			if (read_remote(&o, opt, optarg) != 0)
				return EXIT_USAGE;
			remote = true;
			break;
		case 'V':
			serve_telemetry_document(stdout);
			return 0;
		case 'h':
			fputs(help, stdout);
			return 0;
		case 'v':
			puts("braggline-scan " BRAGGLINE_VERSION);
			return 0;
		default:
			return EXIT_USAGE;
		}
	}
	if (o.query.sql != NULL || o.session || o.serve)
		sql_heap_prepare();
	if (remote && !o.serve && o.client.server == NULL)
		return usage("--device, --identity, --key, --pull, --keys, --port, --sessions, "
			     "--deadline, --idle and --hold require --serve or --connect",
			"");
	if (o.session && (o.query.sql != NULL || is_report(&o) || o.recover))
		return usage("--session cannot be used with --sql, --recover and reports", "");
	if (remote) {
		ret = check_remote(&o, argv + optind, argc - optind);
		return ret != 0 ? ret : use_rdma(&o, nb_words, words, own);
	}
	if (o.from != NULL && (o.geometry == NULL || optind < argc))
		return usage("--from requires --geometry, and no directory or file of a run", "");
	if (o.from != NULL)
		return convert_file(o.from, o.geometry) == 0 ? 0 : EXIT_DAMAGED;
	if (optind == argc)
		return usage("expected a directory or a file", "");
	if (o.geometry != NULL && geometry_file_is_name(argv[optind]))
		return usage("--geometry converts a file with --from ", argv[optind]);
	if (check_picture("--png", o.png) != 0 || check_picture("--plot", o.plot) != 0)
		return EXIT_USAGE;
	if (o.frame != PICTURE_BEST_FRAME && o.png == NULL)
		return usage("--frame requires --png", "");
	if (radial && o.profile == NULL)
		return usage(
			"--unit, --bins, --solid-angle and --polarization require --profile", "");
	if (o.peaks && o.png == NULL)
		return usage("--peaks requires --png", "");
	if (o.calibration != NULL && o.png == NULL)
		return usage("--calibration requires --png", "");
	if (o.session)
		return statements_local(argv + optind, argc - optind, &o.query);
	if (querying && o.query.sql == NULL)
		return usage(
			"--format, --threads, --memory, --unordered and --stats require --sql", "");
	if (o.query.stats && o.query.format != QUERY_ARROW)
		return usage("--stats requires --format arrow", "");
	if (o.query.sql != NULL && is_report(&o))
		return usage("--sql cannot be used with options of other reports", "");
	for (; optind < argc; optind++) {
		if (o.recover && recover(argv[optind]) < 0)
			ret = EXIT_DAMAGED;
		else if (scan_list_add(&list, argv[optind]) < 0)
			ret = EXIT_DAMAGED;
	}
	if (list.nb > 1 && is_report(&o)) {
		for (i = 0; i < list.nb; i++)
			escaped_line(stderr, "  %s_frames.arrow", list.run[i].stem[0]);
		ret = usage(
			"--truth, --spots, --png, --plot, --csv, --geometry and --profile require "
			"a single run, found several",
			"");
		goto out;
	}
	if (o.query.sql != NULL) {
		if (list.nb > 0) {
			const int status = query(&list, &o.query);

			ret = status != 0 ? status : ret;
		}
		goto out;
	}
	for (i = 0; i < list.nb; i++) {
		if (scan(&list.run[i], &o) != 0)
			ret = EXIT_DAMAGED;
	}
	if (fflush(stdout) != 0) {
		fprintf(stderr, "braggline-scan: cannot write: %s\n", strerror(errno));
		ret = EXIT_DAMAGED;
	}
out:
	scan_list_free(&list);
	return ret;
}
