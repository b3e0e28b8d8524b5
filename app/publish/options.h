/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Command line of braggline-publish.
 */
#ifndef PUBLISH_OPTIONS_H
#define PUBLISH_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

#include "output.h"

#define OPTIONS_MESSAGE_LEN 512
#define OPTIONS_HWM	    4
#define OPTIONS_HWM_MAX	    1000
#define OPTIONS_POLL_MS	    1
#define OPTIONS_POLL_MS_MAX 1000
#define OPTIONS_ROWS_MS_MAX 60000

struct options {
	const char *address[OUTPUT_KINDS]; /**< NULL: no such output */
	const char *run;
	const char *geom;
	const char *stats;
	int hwm;
	uint64_t behind; /**< FEED_ALL: no limit */
	unsigned int poll_ms;
	int rows_ms; /**< -1: the default of each output */
	bool raw;
	bool help, version;
	char **dir;
	size_t nb_dirs;
};

/**
 * Parse a command line.
 * @param message  out: option, what was found and expected; "" on success
 * @return 0; -EINVAL
 */
int options_parse(struct options *o, int argc, char **argv, char message[OPTIONS_MESSAGE_LEN]);

void options_help(void);

#endif /* PUBLISH_OPTIONS_H */
