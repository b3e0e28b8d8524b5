/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDMA_TOOL_TARGET_H
#define RDMA_TOOL_TARGET_H

/**
 * @file
 * Options common to all modes: the device, and the address to connect to.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "options.h"

struct target {
	const char *device;
	struct sockaddr_storage peer; /**< address and port, if `client` */
	bool client;
	uint16_t port;
	bool sleepy;	     /**< sleep when idle, so that other processes can use the CPU */
	uint32_t wait;	     /**< s to retry while there is no listener */
	const char *capture; /**< capture file for all frames; NULL: none */
	double loss;	     /**< percentage of frames to lose, in both directions */
	uint64_t seed;	     /**< seed of the losses */
	bool stats;	     /**< print the device's counters at the end */
};

/** Parse a mode's options and the common options with options_parse(); the latter are stored in
 * `target`. */
enum options_result target_parse(int argc, char **argv, const struct option_row *rows,
	unsigned int nb_rows, void *values, struct target *target, const char *usage,
	const char **words, unsigned int max_words);

#endif
