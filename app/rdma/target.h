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

struct target {
	const char *device;
	struct sockaddr_storage peer; /**< with the port, where `client` */
	bool client;
	bool sleepy; /**< leave the CPU to others when idle */
	uint16_t port;
};

#endif
