/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Command line of braggline-export.
 */
#ifndef EXPORT_OPTIONS_H
#define EXPORT_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

#include "selection.h"

#define OPTIONS_MESSAGE_LEN  512
#define OPTIONS_PER_FILE     1000
#define OPTIONS_PER_FILE_MAX 1000000

enum options_format {
	OPTIONS_NXMX,	/**< master and data files of full images */
	OPTIONS_SPARSE, /**< sparse frames of pyFAI, of CSR images */
	OPTIONS_CXI,	/**< one file of full images, with the names of CXI files */
};

struct options {
	enum options_format format;
	const char *output;
	const char *geometry;
	const char *calibration;
	const char *convert; /**< geometry file that is written from `run`; nothing is exported */
	uint32_t per_file;
	uint32_t threads;
	struct selection_filter filter;
	bool overwrite;
	bool follow;	   /**< export runs while they are written */
	bool background;   /**< as started by another program; with `follow` */
	bool output_given; /**< `output` is not the default */
	bool help, version;
	char **run; /**< files and directories of the run */
	size_t nb_runs;
};

/**
 * Parse a command line.
 * @param message  out: option, what was found and expected; "" on success
 * @return 0; -EINVAL
 */
int options_parse(struct options *o, int argc, char **argv, char message[OPTIONS_MESSAGE_LEN]);

void options_help(void);

#endif /* EXPORT_OPTIONS_H */
