/* SPDX-License-Identifier: BSD-3-Clause */
/* braggline-scan: shows, checks and recovers the files of a run. */

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gk_radial.h>

#include "convert.h"
#include "escaped_text.h"
#include "picture.h"
#include "plot.h"
#include "profile.h"
#include "query.h"
#include "sql/duckdb_api.h"
#include "recover.h"
#include "report.h"
#include "spots.h"

#define EXIT_DAMAGED 1
#define EXIT_USAGE   2

struct options {
	const char *truth;
	const char *spots;
	const char *png;
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
};

static const char help[] =
	"usage: braggline-scan [OPTION...] DIR|FILE...\n"
	"       braggline-scan --geometry FILE --from FILE\n"
	"       braggline-scan --sql SELECT [--format F] DIR|FILE...\n"
	"Read and check the files of runs, and print a summary. A FILE is\n"
	"RUN_frames.arrow or RUN_images.arrow; the other one is found beside it. Files\n"
	"that end in .part are read up to the last valid batch. If the directory of a\n"
	"run with several sets of files is given, the sets are read as one run.\n"
	"\n"
	"  --truth FILE  compare hits with a CSV file that has the columns frame and hit\n"
	"  --spots FILE  compare peaks with a CSV file that has the columns frame, fs, ss\n"
	"                and photons, such as braggline-detector --spots writes\n"
	"  --png FILE    write a picture: the maximum of all kept frames, and one frame\n"
	"  --frame N     frame to show in --png (default: the highest strong pixel count)\n"
	"  --peaks       mark the peaks of the frame in --png\n"
	"  --plot FILE   write a plot: strong pixel counts and hit rate by frame number\n"
	"  --csv FILE    write all columns of frames; - is standard output, no summary\n"
	"  --geometry FILE  write the geometry of the run: .geom (CrystFEL) or .poni\n"
	"                (pyFAI), by the end of the name\n"
	"  --from FILE   convert this geometry instead of that of a run\n"
	"  --profile FILE  write radial profiles as CSV: those of the receiver, or of kept full\n"
	"                images; - as above\n"
	"  --unit U      of --profile: q (1/angstrom), d (angstrom), 2theta (degrees); default:\n"
	"                as the receiver, or q\n"
	"  --bins N      of --profile; default: as the receiver, or 1000\n"
	"  --solid-angle  correct --profile for the solid angle of pixels\n"
	"  --polarization P  correct --profile for polarisation; P is 1 along x\n"
	"  --recover     first complete the .part files that a crash has left\n"
	"  --sql SELECT  execute a query with DuckDB and print its result; - reads it from\n"
	"                standard input. Tables: RUN.frames, RUN.images; frames and images\n"
	"                with the rows of all runs. " DUCKDB_VARIABLE " is the path of\n"
	"                libduckdb.so, if ld.so does not find it\n"
	"  --format F    of --sql: table (default), csv, json (an object a line), arrow\n"
	"                (IPC stream)\n"
	"  --threads N   threads of --sql (default: number of CPUs)\n"
	"  --memory SIZE  limit of the engine's buffers in --sql, such as 8GB; the process\n"
	"                can take more, e.g. for long lists\n"
	"  --unordered   rows of --sql may come in any order, which is faster\n"
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
	if (o->png != NULL && picture_save(&run, o->frame, o->peaks, o->png) < 0)
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
	default:
		o->unordered = true;
		return 0;
	}
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
		{"plot", required_argument, NULL, 'l'},
		{"csv", required_argument, NULL, 'c'},
		{"geometry", required_argument, NULL, 'g'},
		{"from", required_argument, NULL, 'i'},
		{"profile", required_argument, NULL, 'o'},
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
		{"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'v'},
		{NULL, 0, NULL, 0},
	};
	struct options o = {.frame = PICTURE_BEST_FRAME, .radial.unit = PROFILE_UNITS};
	struct scan_list list = {0};
	bool radial = false, querying = false;
	int opt, ret = 0;
	char *end;
	size_t i;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
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
		case 'o':
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
		case 'F':
		case 'T':
		case 'M':
		case 'U':
			if (read_query(&o.query, opt, optarg) != 0)
				return EXIT_USAGE;
			querying = true;
			break;
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
	if (o.from != NULL && (o.geometry == NULL || optind < argc))
		return usage("--from requires --geometry, and no directory or file of a run", "");
	if (o.from != NULL)
		return convert_file(o.from, o.geometry) == 0 ? 0 : EXIT_DAMAGED;
	if (optind == argc)
		return usage("expected a directory or a file", "");
	if (o.frame != PICTURE_BEST_FRAME && o.png == NULL)
		return usage("--frame requires --png", "");
	if (radial && o.profile == NULL)
		return usage(
			"--unit, --bins, --solid-angle and --polarization require --profile", "");
	if (o.peaks && o.png == NULL)
		return usage("--peaks requires --png", "");
	if (querying && o.query.sql == NULL)
		return usage("--format, --threads, --memory and --unordered require --sql", "");
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
