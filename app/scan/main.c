/* SPDX-License-Identifier: BSD-3-Clause */
/* braggline-scan: shows, checks and recovers the files of a run. */

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert.h"
#include "escaped_text.h"
#include "picture.h"
#include "plot.h"
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
	uint64_t frame;
	bool peaks;
	bool recover;
};

static const char help[] =
	"usage: braggline-scan [OPTION...] DIR|FILE...\n"
	"       braggline-scan --geometry FILE --from FILE\n"
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
	"  --recover     first complete the .part files that a crash has left\n"
	"  --help        print this help and exit\n"
	"  --version     print the version and exit\n"
	"\n"
	"--truth, --spots, --png, --plot, --csv and --geometry require a single run.\n"
	"Exit status: 0: success; 1: a file is damaged, incomplete or cannot be read;\n"
	"2: invalid command line.\n";

static int
usage(const char *what, const char *name)
{
	escaped_line(stderr, "braggline-scan: %s%s; see braggline-scan --help", what, name);
	return EXIT_USAGE;
}

static int
scan(const struct scan_sets *sets, const struct options *o)
{
	const bool quiet = o->csv != NULL && strcmp(o->csv, "-") == 0;
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
	scan_run_close(&run);
	return ret;
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
		{"recover", no_argument, NULL, 'r'},
		{"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'v'},
		{NULL, 0, NULL, 0},
	};
	struct options o = {.frame = PICTURE_BEST_FRAME};
	struct scan_list list = {0};
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
		case 'r':
			o.recover = true;
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
	if (o.peaks && o.png == NULL)
		return usage("--peaks requires --png", "");
	for (; optind < argc; optind++) {
		if (o.recover && recover(argv[optind]) < 0)
			ret = EXIT_DAMAGED;
		else if (scan_list_add(&list, argv[optind]) < 0)
			ret = EXIT_DAMAGED;
	}
	if (list.nb > 1 &&
		(o.truth != NULL || o.spots != NULL || o.png != NULL || o.plot != NULL ||
			o.csv != NULL || o.geometry != NULL)) {
		for (i = 0; i < list.nb; i++)
			escaped_line(stderr, "  %s_frames.arrow", list.run[i].stem[0]);
		ret = usage(
			"--truth, --spots, --png, --plot, --csv and --geometry require a single "
			"run, found several",
			"");
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
