/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROCE_FILTER_H
#define ROCE_FILTER_H

/**
 * @file
 * Which Ethernet groups a port takes: those that the devices on it want. Drivers are given whole
 * lists, so that nobody but them may set the port's.
 */

#include <stdbool.h>
#include <stdint.h>

#include <rte_ether.h>

struct roce_control;

#define ROCE_FILTER_MAX 1024 /**< more than any port has room for: mlx5 takes 127 */

/** Of a port. The control lcore's. */
struct roce_filter {
	struct rte_ether_addr list[ROCE_FILTER_MAX]; /**< the port was given it; ascending */
	int nb_list;				     /**< -ENOSPC: too many to be listed */
	bool refused;		    /**< and did not take it: it takes all groups where it can */
	int (*undo)(uint16_t port); /**< what ends that; NULL: others wanted it so before us */
};

/** Call when other groups than before are wanted. */
void roce_filter_set(struct roce_control *c);

#endif
