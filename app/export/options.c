/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <getopt.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "export.h"
#include "h5.h"
#include "option_refuse.h"
#include "whole_number.h"
#include "options.h"

#define KEPT (1u << FRAME_HIT | 1u << FRAME_PRESCALED | 1u << FRAME_DRY_RUN)

static const char help[] =
	"usage: braggline-export [OPTION...] DIR|FILE...\n"
	"Write the kept frames of a run as NeXus files (NXmx), which DIALS, CrystFEL, pyFAI\n"
	"and H5Web open: RUN_master.h5, RUN_data_000001.h5 ..., and RUN.geom for CrystFEL.\n"
	"CSR images become sparse frames of pyFAI, RUN_sparse.h5, with --format sparse.\n"
	"One file RUN.cxi has the names of CXI files, with --format cxi.\n"
	"If several stores have parts of the run, name the directories of all.\n"
	"\n"
	"  --format NAME        nxmx (default), sparse or cxi\n"
	"  --output DIR         directory of the files, created if needed (default: .)\n"
	"  --frames A-B         frame numbers, both included; A- and A are also possible\n"
	"  --verdict LIST       of kept frames: hit, prescale, dry_run; commas between them\n"
	"                       (default: all)\n"
	"  --geometry FILE      .geom (CrystFEL), .poni (pyFAI), or .h5, .nxs (NeXus), instead of\n"
	"                       the run's\n"
	"  --calibration FILE   RUN_calibration.bin, which has masked pixels (default: the file\n"
	"                       beside those of the run)\n"
	"  --images-per-file N  images of a data file (default: 1000)\n"
	"  --threads N          threads that compress images (default: number of CPUs)\n"
	"  --overwrite          replace files of other exports\n"
	"  --follow             export the runs of directories, also of a store, while they are\n"
	"                       written, until SIGTERM or SIGINT (default output: beside them)\n"
	"  --background         with --follow: lowest priority, only runs that are not complete,\n"
	"                       end with the parent process\n"
	"  --convert FILE       only write a geometry, .geom or .poni, from the argument: a NeXus\n"
	"                       file (NXmx), a .geom or a .poni file\n"
	"  --help               print this help and exit\n"
	"  --version            print the version and exit\n"
	"\n"
	"An interrupted export is continued by the same command: complete data files are not\n"
	"written again. Exit status: 0: success; 1: an error, or damaged frames are missing;\n"
	"2: invalid command line; 130: interrupted.\n";

void
options_help(void)
{
	fputs(help, stdout);
}

static bool
read_range(const char *text, uint64_t *first, uint64_t *last)
{
	const char *end = whole_number_read(text, 10, first);

	if (end == NULL)
		return false;
	*last = *first;
	if (*end == '\0')
		return true;
	*last = UINT64_MAX;
	if (*end++ != '-')
		return false;
	if (*end == '\0')
		return true;
	end = whole_number_read(end, 10, last);
	return end != NULL && *end == '\0' && *first <= *last;
}

static bool
read_verdicts(const char *text, uint32_t *verdicts)
{
	static const struct {
		const char *name;
		enum frame_verdict verdict;
	} names[] = {{"hit", FRAME_HIT}, {"prescale", FRAME_PRESCALED}, {"dry_run", FRAME_DRY_RUN}};
	size_t size, i;

	for (*verdicts = 0;; text += size + 1) {
		size = strcspn(text, ",");
		for (i = 0; i < 3; i++) {
			if (strlen(names[i].name) == size &&
				strncmp(text, names[i].name, size) == 0)
				break;
		}
		if (i == 3)
			return false;
		*verdicts |= 1u << names[i].verdict;
		if (text[size] == '\0')
			return true;
	}
}

static int
set_option(struct options *o, int opt, char message[OPTIONS_MESSAGE_LEN])
{
	static const char *const formats[] = {
		[OPTIONS_NXMX] = "nxmx", [OPTIONS_SPARSE] = "sparse", [OPTIONS_CXI] = "cxi"};
	uint64_t value;
	size_t i;

	switch (opt) {
	case 'm':
		for (i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
			if (strcmp(optarg, formats[i]) == 0) {
				o->format = i;
				return 0;
			}
		}
		return option_refuse(
			message, OPTIONS_MESSAGE_LEN, "--format", optarg, "nxmx, sparse or cxi");
	case 'o':
		o->output = optarg;
		o->output_given = true;
		if (*optarg == '\0')
			return option_refuse(
				message, OPTIONS_MESSAGE_LEN, "--output", optarg, "a directory");
		return 0;
	case 'f':
		if (!read_range(optarg, &o->filter.first, &o->filter.last))
			return option_refuse(message, OPTIONS_MESSAGE_LEN, "--frames", optarg,
				"a frame number, or a range such as 100-199");
		return 0;
	case 'k':
		if (!read_verdicts(optarg, &o->filter.verdicts))
			return option_refuse(message, OPTIONS_MESSAGE_LEN, "--verdict", optarg,
				"hit, prescale or dry_run, or several with commas");
		return 0;
	case 'g':
		o->geometry = optarg;
		return 0;
	case 'n':
		if (!whole_number(optarg, 1, OPTIONS_PER_FILE_MAX, &value))
			return option_refuse(message, OPTIONS_MESSAGE_LEN, "--images-per-file",
				optarg, "1 to 1000000");
		o->per_file = value;
		return 0;
	case 'c':
		o->calibration = optarg;
		return 0;
	case 't':
		if (!whole_number(optarg, 1, EXPORT_THREADS_MAX, &value))
			return option_refuse(
				message, OPTIONS_MESSAGE_LEN, "--threads", optarg, "1 to 64");
		o->threads = value;
		return 0;
	case 'C':
		o->convert = optarg;
		return 0;
	case 'F':
		o->follow = true;
		return 0;
	case 'b':
		o->background = true;
		return 0;
	case 'w':
		o->overwrite = true;
		return 0;
	case 'h':
		o->help = true;
		return 0;
	case 'v':
		o->version = true;
		return 0;
	default:
		snprintf(message, OPTIONS_MESSAGE_LEN,
			"an option is unknown or has no value; see braggline-export --help");
		return -EINVAL;
	}
}

/*
 * With --follow, NXmx files of all kept frames are written, and files that are not of the runs are
 * replaced.
 */
static int
check_follow(const struct options *o, char message[OPTIONS_MESSAGE_LEN])
{
	const bool all =
		o->filter.first == 0 && o->filter.last == UINT64_MAX && o->filter.verdicts == KEPT;
	const char *wrong = NULL;

	if (o->background && !o->follow)
		wrong = "--background: requires --follow";
	else if (o->follow && (o->format != OPTIONS_NXMX || !all || o->overwrite))
		wrong = "--follow: found --format, --frames, --verdict or --overwrite, expected "
			"none of them; export the run again after its end";
	else if (o->follow && o->per_file > H5_CHUNKS_MAX)
		wrong = "--follow: --images-per-file is at most 65000";
	snprintf(message, OPTIONS_MESSAGE_LEN, "%s", wrong != NULL ? wrong : "");
	return wrong != NULL ? -EINVAL : 0;
}

/* CPUs that this process may use. */
static uint32_t
cpus(void)
{
	cpu_set_t set;
	int nb;

	if (sched_getaffinity(0, sizeof(set), &set) != 0)
		return 1;
	nb = CPU_COUNT(&set);
	return nb < EXPORT_THREADS_MAX ? nb : EXPORT_THREADS_MAX;
}

int
options_parse(struct options *o, int argc, char **argv, char message[OPTIONS_MESSAGE_LEN])
{
	static const struct option options[] = {
		{"format", required_argument, NULL, 'm'},
		{"output", required_argument, NULL, 'o'},
		{"frames", required_argument, NULL, 'f'},
		{"verdict", required_argument, NULL, 'k'},
		{"geometry", required_argument, NULL, 'g'},
		{"images-per-file", required_argument, NULL, 'n'},
		{"calibration", required_argument, NULL, 'c'},
		{"threads", required_argument, NULL, 't'},
		{"convert", required_argument, NULL, 'C'},
		{"follow", no_argument, NULL, 'F'},
		{"background", no_argument, NULL, 'b'},
		{"overwrite", no_argument, NULL, 'w'},
		{"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'v'},
		{NULL, 0, NULL, 0},
	};
	int opt, ret = 0;

	*o = (struct options){
		.output = ".",
		.per_file = OPTIONS_PER_FILE,
		.threads = cpus(),
		.filter = {.last = UINT64_MAX, .verdicts = KEPT},
	};
	message[0] = '\0';
	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		ret = set_option(o, opt, message);
		if (ret < 0)
			return ret;
	}
	ret = check_follow(o, message);
	if (ret < 0)
		return ret;
	o->run = argv + optind;
	o->nb_runs = argc - optind;
	if (o->nb_runs == 0 && !o->help && !o->version) {
		snprintf(message, OPTIONS_MESSAGE_LEN,
			"expected a directory or a file of a run; see braggline-export --help");
		return -EINVAL;
	}
	return 0;
}
