/* SPDX-License-Identifier: BSD-3-Clause */
/* braggline-scan: shows, checks and recovers the files of a run. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_log.h>

#include "convert.h"
#include "eal/end.h"
#include "eal/start.h"
#include "escaped_text.h"
#include "options.h"
#include "picture.h"
#include "plot.h"
#include "profile.h"
#include "query.h"
#include "sql/heap.h"
#include "recover.h"
#include "report.h"
#include "serve.h"
#include "serve_telemetry.h"
#include "spots.h"
#include "statements.h"

#define EXIT_DAMAGED 1
#define EXIT_USAGE   2

static int
scan(const struct scan_sets *sets, const struct scan_options *o)
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

/* Start EAL, and serve or query. */
static int
use_rdma(struct scan_options *o, int argc, char **argv)
{
	int ret;

	if (o->task == TASK_SERVE) {
		(void)rte_openlog_stream(stderr);
		serve_prepare();
		ret = eal_start("braggline-scan", argc, argv, o->own);
	} else {
		query_prepare();
		/* the result has standard output for itself, and ADBC reports standard error */
		ret = eal_start_quietly("braggline-scan", argc, argv, o->own);
	}
	if (ret != EXIT_SUCCESS)
		return ret;
	if (o->task == TASK_SERVE)
		ret = serve(&o->server);
	else
		ret = o->session ? statements_remote(&o->client, &o->query)
				 : query_remote(&o->client, &o->query);
	eal_end();
	return ret;
}

static int
report(const struct scan_list *list, const struct scan_options *o)
{
	int ret = 0;
	size_t i;

	if (list->nb > 1 && scan_options_has_report(o)) {
		for (i = 0; i < list->nb; i++)
			escaped_line(stderr, "  %s_frames.arrow", list->run[i].stem[0]);
		scan_options_error("--truth, --spots, --png, --plot, --csv, --geometry and "
				   "--profile require a single run, found several",
			"");
		return EXIT_USAGE;
	}
	for (i = 0; i < list->nb; i++)
		if (scan(&list->run[i], o) != 0)
			ret = EXIT_DAMAGED;
	if (fflush(stdout) != 0) {
		fprintf(stderr, "braggline-scan: cannot write: %s\n", strerror(errno));
		ret = EXIT_DAMAGED;
	}
	return ret;
}

/* Report on runs or query them. */
static int
use_runs(const struct scan_options *o)
{
	struct scan_list list = {0};
	bool damaged = false;
	int i, ret;

	for (i = 0; i < o->nb_paths; i++)
		if ((o->recover && recover(o->path[i]) < 0) || scan_list_add(&list, o->path[i]) < 0)
			damaged = true;
	if (o->task == TASK_REPORTS)
		ret = report(&list, o);
	else
		ret = list.nb > 0 ? query(&list, &o->query) : 0;
	scan_list_free(&list);
	return ret == 0 && damaged ? EXIT_DAMAGED : ret;
}

int
main(int argc, char **argv)
{
	struct scan_options o;

	if (scan_options_parse(&o, argc, argv) != 0)
		return EXIT_USAGE;
	if (o.task == TASK_QUERY || o.task == TASK_SESSION || o.task == TASK_CONNECT ||
		o.task == TASK_SERVE)
		sql_heap_prepare();
	switch (o.task) {
	case TASK_HELP:
		scan_options_help();
		return 0;
	case TASK_VERSION:
		puts("braggline-scan " BRAGGLINE_VERSION);
		return 0;
	case TASK_LIST_TELEMETRY:
		serve_telemetry_document(stdout);
		return 0;
	case TASK_CONVERT:
		return convert_file(o.from, o.geometry) == 0 ? 0 : EXIT_DAMAGED;
	case TASK_SERVE:
	case TASK_CONNECT:
		return use_rdma(&o, argc, argv);
	case TASK_SESSION:
		return statements_local(o.path, o.nb_paths, &o.query);
	case TASK_QUERY:
	case TASK_REPORTS:
		break;
	}
	return use_runs(&o);
}
