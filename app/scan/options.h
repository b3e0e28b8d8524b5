/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Command line of braggline-scan.
 */
#ifndef SCAN_OPTIONS_H
#define SCAN_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "profile.h"
#include "query.h"
#include "remote/client.h"
#include "remote/server.h"

/** What the program does. */
enum scan_task {
	TASK_REPORTS, /**< report on runs, and write the files of `report` */
	TASK_CONVERT, /**< convert a geometry file */
	TASK_QUERY,   /**< execute a statement on files of this machine */
	TASK_SESSION, /**< the same with statements from standard input */
	TASK_CONNECT, /**< have a server execute a statement, or those from standard input */
	TASK_SERVE,   /**< execute statements of other machines */
	TASK_LIST_TELEMETRY,
	TASK_HELP,
	TASK_VERSION,
};

struct scan_options {
	enum scan_task task;
	/** files of reports, and what they compare with; NULL: none */
	const char *truth, *spots, *png, *plot, *csv, *geometry, *profile;
	const char *from;	 /**< geometry file to be converted to `geometry` */
	const char *calibration; /**< of `png` */
	uint64_t frame;		 /**< of `png`, or PICTURE_BEST_FRAME */
	bool peaks;		 /**< of `png` */
	struct profile_options radial;
	bool recover;
	bool session; /**< statements come from standard input */
	struct query_options query;
	struct scan_server_config server;
	struct scan_client_config client;
	char **path; /**< directories and files of runs */
	int nb_paths;
	int own; /**< arguments up to this one are for EAL; 0: EAL has none */
};

/** Whether an option requests a report on a single run. */
bool scan_options_has_report(const struct scan_options *o);

/** Print an error about the command line. */
void scan_options_error(const char *what, const char *name);

/**
 * Parse the command line.
 * @return 0; -EINVAL: printed
 */
int scan_options_parse(struct scan_options *o, int argc, char **argv);

void scan_options_help(void);

#endif /* SCAN_OPTIONS_H */
