/* SPDX-License-Identifier: BSD-3-Clause */

#include <assert.h>
#include <errno.h>
#include <getopt.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gk_radial.h>

#include <rte_common.h>

#include "eal/start.h"
#include "escaped_text.h"
#include "geometry/file.h"
#include "option_refuse.h"
#include "options.h"
#include "picture.h"
#include "picture/drawing.h"
#include "sql/duckdb_api.h"
#include "whole_number.h"
#include "xfer/msg.h"

#define SECONDS_MAX 86400

static const char help[] =
	"usage: braggline-scan [OPTION...] DIR|FILE...\n"
	"       braggline-scan --geometry FILE --from FILE\n"
	"       braggline-scan --sql SELECT [--format F] DIR|FILE...\n"
	"       braggline-scan [EAL options --] --serve --device D --keys FILE DIR|FILE...\n"
	"       braggline-scan [EAL options --] --connect ADDR [OPTION...] --sql SELECT\n"
	"Read and check the files of runs, and print a summary. A FILE is\n"
	"RUN_frames.arrow or RUN_images.arrow; the other one is found beside it. Files\n"
	"that end in .part are read up to the last valid batch. If the directory of a\n"
	"run with several sets of files is given, the sets are read as one run. The\n"
	"directory of a store has the runs in its subfolders.\n"
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
	"                were deferred, and how many bytes were copied\n"
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

/* Sets of options; those of a set need the same other option. */
enum {
	REPORT = 1 << 0, /* on a single run */
	PICTURE = 1 << 1,
	RADIAL = 1 << 2,
	QUERY = 1 << 3,
	RDMA = 1 << 4,
	CLIENT = 1 << 5,
	SERVER = 1 << 6,
};

enum value {
	VALUE_NONE,  /* bool: set to true */
	VALUE_TEXT,  /* const char * */
	VALUE_WHOLE, /* uint64_t */
	VALUE_REAL,  /* double */
	VALUE_NAME,  /* unsigned int: index into `names` */
};

/* What the options set. */
struct parser {
	struct scan_options o;
	uint64_t bins, threads, port, sessions, deadline, idle, hold; /* 0: not given */
	unsigned int unit, format;
	double polarization;
	bool serve, help, version, list_telemetry;
	uint64_t given;	   /* bit of each row that was given */
	unsigned int sets; /* theirs */
};

struct row {
	const char *name;
	enum value value;
	size_t at; /* of the value, in struct parser */
	unsigned int sets;
	uint64_t min, max;	  /* VALUE_WHOLE */
	const char *expected;	  /* others than VALUE_NONE and VALUE_TEXT */
	const char *const *names; /* VALUE_NAME: `max` names */
};

#define AT(member) offsetof(struct parser, member)

static const struct row rows[] = {
	{"truth", VALUE_TEXT, AT(o.truth), REPORT},
	{"spots", VALUE_TEXT, AT(o.spots), REPORT},
	{"png", VALUE_TEXT, AT(o.png), REPORT},
	{"plot", VALUE_TEXT, AT(o.plot), REPORT},
	{"csv", VALUE_TEXT, AT(o.csv), REPORT},
	{"geometry", VALUE_TEXT, AT(o.geometry), REPORT},
	{"profile", VALUE_TEXT, AT(o.profile), REPORT},
	{"from", VALUE_TEXT, AT(o.from)},
	{"frame", VALUE_WHOLE, AT(o.frame), PICTURE, 0, UINT64_MAX, "a frame number"},
	{"peaks", VALUE_NONE, AT(o.peaks), PICTURE},
	{"calibration", VALUE_TEXT, AT(o.calibration), PICTURE},
	{"unit", VALUE_NAME, AT(unit), RADIAL, 0, PROFILE_UNITS, "q, d or 2theta",
		profile_unit_names},
	{"bins", VALUE_WHOLE, AT(bins), RADIAL, 1, GK_RADIAL_BINS_MAX,
		"1 to " RTE_STR(GK_RADIAL_BINS_MAX)},
	{"solid-angle", VALUE_NONE, AT(o.radial.corrections.solid_angle), RADIAL},
	{"polarization", VALUE_REAL, AT(polarization), RADIAL, 0, 0, "-1 to 1"},
	{"recover", VALUE_NONE, AT(o.recover)},
	{"sql", VALUE_TEXT, AT(o.query.sql)},
	{"format", VALUE_NAME, AT(format), QUERY, 0, QUERY_FORMATS, "table, csv, json or arrow",
		query_format_names},
	{"threads", VALUE_WHOLE, AT(threads), QUERY, 1, 9999, "1 to 9999"},
	{"memory", VALUE_TEXT, AT(o.query.memory), QUERY},
	{"unordered", VALUE_NONE, AT(o.query.unordered), QUERY},
	{"stats", VALUE_NONE, AT(o.query.stats), QUERY},
	{"session", VALUE_NONE, AT(o.session)},
	{"serve", VALUE_NONE, AT(serve)},
	{"connect", VALUE_TEXT, AT(o.client.server)},
	{"device", VALUE_TEXT, AT(o.client.device), RDMA},
	{"identity", VALUE_TEXT, AT(o.client.identity), RDMA | CLIENT},
	{"key", VALUE_TEXT, AT(o.client.key), RDMA | CLIENT},
	{"pull", VALUE_NONE, AT(o.client.pull), RDMA | CLIENT},
	{"keys", VALUE_TEXT, AT(o.server.keys), RDMA | SERVER},
	{"port", VALUE_WHOLE, AT(port), RDMA | SERVER, 1, UINT16_MAX, "1 to 65535"},
	{"sessions", VALUE_WHOLE, AT(sessions), RDMA | SERVER, 1, SCAN_SESSIONS,
		"1 to " RTE_STR(SCAN_SESSIONS)},
	{"deadline", VALUE_WHOLE, AT(deadline), RDMA | SERVER, 1, SECONDS_MAX,
		"1 to " RTE_STR(SECONDS_MAX) " seconds"},
	{"idle", VALUE_WHOLE, AT(idle), RDMA | SERVER, 1, SECONDS_MAX,
		"1 to " RTE_STR(SECONDS_MAX) " seconds"},
	{"hold", VALUE_WHOLE, AT(hold), RDMA | SERVER, 1, SECONDS_MAX,
		"1 to " RTE_STR(SECONDS_MAX) " seconds"},
	{"list-telemetry", VALUE_NONE, AT(list_telemetry)},
	{"help", VALUE_NONE, AT(help)},
	{"version", VALUE_NONE, AT(version)},
};

static_assert(RTE_DIM(rows) <= 64, "bits of parser.given");

void
scan_options_help(void)
{
	fputs(help, stdout);
}

void
scan_options_error(const char *what, const char *name)
{
	escaped_line(stderr, "braggline-scan: %s%s; see braggline-scan --help", what, name);
}

static int
refuse(const char *what)
{
	scan_options_error(what, "");
	return -EINVAL;
}

static int
refuse_value(const struct row *row, const char *found)
{
	char what[128];

	snprintf(what, sizeof(what), "--%s: expected %s, not ", row->name, row->expected);
	scan_options_error(what, found);
	return -EINVAL;
}

/* Refuse those options of a set that were given. */
static int
refuse_set(const struct parser *p, unsigned int set, const char *why)
{
	char names[512] = "";
	int nb = 0;
	size_t i;

	for (i = 0; i < RTE_DIM(rows); i++)
		if ((rows[i].sets & set) != 0 && (p->given >> i & 1) != 0)
			nb += snprintf(names + nb, sizeof(names) - nb, "%s--%s", nb > 0 ? ", " : "",
				rows[i].name);
	scan_options_error(names, why);
	return -EINVAL;
}

bool
scan_options_has_report(const struct scan_options *o)
{
	return o->truth != NULL || o->spots != NULL || o->png != NULL || o->plot != NULL ||
		o->csv != NULL || o->geometry != NULL || o->profile != NULL;
}

static int
set_value(struct parser *p, const struct row *row, const char *text)
{
	void *value = (char *)p + row->at;
	unsigned int *index = value;
	double *real = value;
	char *end;

	p->given |= UINT64_C(1) << (row - rows);
	p->sets |= row->sets;
	switch (row->value) {
	case VALUE_NONE:
		*(bool *)value = true;
		return 0;
	case VALUE_TEXT:
		*(const char **)value = text;
		return 0;
	case VALUE_WHOLE:
		if (!whole_number(text, row->min, row->max, value))
			return refuse_value(row, text);
		return 0;
	case VALUE_REAL:
		*real = strtod(text, &end);
		if (end == text || *end != '\0' || !(*real >= -1 && *real <= 1))
			return refuse_value(row, text);
		p->o.radial.corrections.polarised = true;
		return 0;
	case VALUE_NAME:
		for (*index = 0; *index < row->max; (*index)++)
			if (strcmp(text, row->names[*index]) == 0)
				return 0;
		return refuse_value(row, text);
	}
	return -EINVAL;
}

static int
parse_rows(struct parser *p, int argc, char **argv)
{
	struct option table[RTE_DIM(rows) + 1] = {0};
	const int first = 1000; /* above letters */
	int choice, ret;
	size_t i;

	for (i = 0; i < RTE_DIM(rows); i++)
		table[i] = (struct option){rows[i].name,
			rows[i].value == VALUE_NONE ? no_argument : required_argument, NULL,
			first + (int)i};
	while ((choice = getopt_long(argc, argv, "o:", table, NULL)) != -1) {
		if (choice == '?') {
			option_try_help("braggline-scan");
			return -EINVAL;
		}
		for (i = 0; choice == 'o' && strcmp(rows[i].name, "format") != 0; i++)
			;
		ret = set_value(p, &rows[choice == 'o' ? i : (size_t)(choice - first)], optarg);
		if (ret != 0 || p->help || p->version || p->list_telemetry)
			return ret;
	}
	return 0;
}

/* Check the name of a geometry that is read or written. */
static int
check_geometry(const char *option, const char *path)
{
	if (path == NULL || geometry_file_is_name(path))
		return 0;
	escaped_line(stderr,
		"braggline-scan: %s: expected a name that ends in .geom (CrystFEL) or .poni "
		"(pyFAI), not %s; see braggline-scan --help",
		option, path);
	return -EINVAL;
}

/* Check the name of a picture. */
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
	return -EINVAL;
}

static int
check_server(struct parser *p)
{
	struct scan_options *o = &p->o;
	struct scan_server_config *server = &o->server;

	if (scan_options_has_report(o) || o->recover || o->query.sql != NULL || o->session)
		return refuse(
			"--serve cannot be used with --sql, --session, --recover and reports");
	if ((p->sets & CLIENT) != 0)
		return refuse_set(p, CLIENT, ": only with --connect");
	if (server->keys == NULL || o->nb_paths == 0)
		return refuse("--serve requires --keys, and a directory or a file");
	if (o->query.stats)
		return refuse("--stats cannot be used with --serve");
	server->device = o->client.device;
	server->port = p->port;
	server->sessions = p->sessions;
	server->deadline_ms = p->deadline * 1000;
	server->idle_ms = p->idle * 1000;
	server->hold_ms = p->hold * 1000;
	server->worker.path = (const char *const *)o->path;
	server->worker.nb_paths = o->nb_paths;
	server->worker.threads = p->threads > 0 ? p->threads : 1;
	server->worker.memory = o->query.memory != NULL ? o->query.memory : "1GB";
	return 0;
}

static int
check_client(struct parser *p)
{
	struct scan_options *o = &p->o;

	if (scan_options_has_report(o) || o->recover)
		return refuse("--connect cannot be used with --recover and reports");
	if (o->query.sql == NULL && !o->session)
		return refuse("--connect requires --sql or --session");
	if (o->client.identity == NULL)
		return refuse("--connect requires --identity NAME: the user's name in the keyring "
			      "of the server, as in [receiver NAME]");
	if (!xfer_name_check_text(o->client.identity)) {
		scan_options_error("--identity: expected 1 to 63 letters, digits, '-', '_' and "
				   "'.', without '.' at the beginning, found ",
			o->client.identity);
		return -EINVAL;
	}
	if (o->client.key == NULL)
		return refuse("--connect requires --key FILE: the user's key, which is that of the "
			      "keyring of the server");
	if ((p->sets & SERVER) != 0)
		return refuse_set(p, SERVER,
			": only with --serve; the port of a server is that of its address, as in "
			"10.0.0.2:18517");
	if (o->query.stats && o->query.format != QUERY_ARROW)
		return refuse("--stats requires --format arrow");
	if (o->nb_paths > 0 || p->threads > 0 || o->query.memory != NULL || o->query.unordered)
		return refuse("--connect: files, --threads, --memory and --unordered are those of "
			      "the server");
	return 0;
}

/* Check a command line of reports and of statements on files of this machine. */
static int
check_local(const struct parser *p)
{
	const struct scan_options *o = &p->o;

	if (o->from != NULL && (o->geometry == NULL || o->nb_paths > 0))
		return refuse("--from requires --geometry, and no directory or file of a run");
	if (check_geometry("--geometry", o->geometry) != 0 ||
		check_geometry("--from", o->from) != 0)
		return -EINVAL;
	if (o->from != NULL)
		return 0;
	if (o->nb_paths == 0)
		return refuse("expected a directory or a file");
	if (o->geometry != NULL && geometry_file_is_name(o->path[0])) {
		scan_options_error("--geometry converts a file with --from ", o->path[0]);
		return -EINVAL;
	}
	if (check_picture("--png", o->png) != 0 || check_picture("--plot", o->plot) != 0)
		return -EINVAL;
	if ((p->sets & PICTURE) != 0 && o->png == NULL)
		return refuse_set(p, PICTURE, ": only with --png");
	if ((p->sets & RADIAL) != 0 && o->profile == NULL)
		return refuse_set(p, RADIAL, ": only with --profile");
	if (o->session)
		return 0;
	if ((p->sets & QUERY) != 0 && o->query.sql == NULL)
		return refuse_set(p, QUERY, ": only with --sql");
	if (o->query.stats && o->query.format != QUERY_ARROW)
		return refuse("--stats requires --format arrow");
	if (o->query.sql != NULL && scan_options_has_report(o))
		return refuse("--sql cannot be used with options of other reports");
	return 0;
}

/* Find the task, and check the options that it needs and excludes. */
static int
check(struct parser *p)
{
	struct scan_options *o = &p->o;
	const bool connect = o->client.server != NULL;

	if ((p->sets & RDMA) != 0 && !p->serve && !connect)
		return refuse_set(p, RDMA, ": only with --serve or --connect");
	if (o->session && (o->query.sql != NULL || scan_options_has_report(o) || o->recover))
		return refuse("--session cannot be used with --sql, --recover and reports");
	if (p->serve && connect)
		return refuse("--serve and --connect exclude each other");
	if ((p->serve || connect) && o->client.device == NULL)
		return refuse("--serve and --connect require --device");
	if (p->serve) {
		o->task = TASK_SERVE;
		return check_server(p);
	}
	if (connect) {
		o->task = TASK_CONNECT;
		return check_client(p);
	}
	o->task = o->from != NULL      ? TASK_CONVERT
		: o->session	       ? TASK_SESSION
		: o->query.sql != NULL ? TASK_QUERY
				       : TASK_REPORTS;
	return check_local(p);
}

static bool
needs_eal(const char *word)
{
	return strcmp(word, "--serve") == 0 || strncmp(word, "--connect", 9) == 0;
}

/*
 * Where the arguments of this program begin. Only --serve and --connect use EAL: without them, `--`
 * ends the options.
 */
static int
own_words(int argc, char **argv)
{
	int i, own = 0;

	for (i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--") == 0 && own == 0)
			own = i;
		else if (own > 0 && needs_eal(argv[i]))
			return eal_own_words(argc, argv);
	}
	return 0;
}

int
scan_options_parse(struct scan_options *o, int argc, char **argv)
{
	struct parser p = {
		.o = {.frame = PICTURE_BEST_FRAME, .own = own_words(argc, argv)},
		.unit = PROFILE_UNITS,
	};
	int ret = parse_rows(&p, argc - p.o.own, argv + p.o.own), i;

	for (i = 1; ret < 0 && p.o.own == 0 && i < argc; i++) {
		if (!needs_eal(argv[i]))
			continue;
		eal_hint(stderr, "braggline-scan", argv[i]);
		break;
	}
	if (ret != 0)
		return ret;
	p.o.path = argv + p.o.own + optind;
	p.o.nb_paths = argc - p.o.own - optind;
	p.o.radial.unit = p.unit;
	p.o.radial.bins = p.bins;
	p.o.radial.corrections.polarisation = p.polarization;
	p.o.query.format = p.format;
	p.o.query.threads = p.threads;
	if (p.help || p.version || p.list_telemetry)
		p.o.task = p.help ? TASK_HELP : p.version ? TASK_VERSION : TASK_LIST_TELEMETRY;
	else
		ret = check(&p);
	*o = p.o;
	return ret;
}
