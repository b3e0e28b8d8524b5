/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDMA_TOOL_TARGET_H
#define RDMA_TOOL_TARGET_H

/**
 * @file
 * What all modes are told: the device, and whom to connect to.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "options.h"

struct target {
	const char *device;
	struct sockaddr_storage peer; /**< with the port, where `client` */
	bool client;
	uint16_t port;
	bool sleepy;	     /**< leave the CPU to others when idle */
	uint32_t wait;	     /**< s to try again while nobody listens */
	const char *capture; /**< file for all frames; NULL: none */
	double loss;	     /**< per cent of frames to lose, both ways */
	uint64_t seed;	     /**< of the loss */
	bool stats;	     /**< print what the device has counted, at the end */
};

/** options_parse() of a mode's options and of those that all modes have, whose values go here. */
enum options_result target_parse(int argc, char **argv, const struct option_row *rows,
	unsigned int nb_rows, void *values, struct target *target, const char *usage,
	const char **words, unsigned int max_words);

#endif
