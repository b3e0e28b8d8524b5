/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROCE_FILTER_H
#define ROCE_FILTER_H

/**
 * @file
 * Multicast filter of a port: the Ethernet groups that its devices need. The ethdev API replaces
 * the
 * whole list, so that only the devices may set the port's list.
 */

#include <stdbool.h>
#include <stdint.h>

#include <rte_ether.h>

struct roce_control;

#define ROCE_FILTER_MAX 1024 /**< more than any port supports: mlx5 takes 127 */

/** Filter of a port. Owned by the control lcore. */
struct roce_filter {
	struct rte_ether_addr list[ROCE_FILTER_MAX]; /**< last list given to the port; ascending */
	int nb_list;				     /**< -ENOSPC: too many for the list */
	/** the port refused the list: it receives all groups if it can */
	bool refused;
	/** function that restores the mode; NULL: the mode was set before */
	int (*undo)(uint16_t port);
};

/** Update the filter. Call it when the required groups have changed. */
void roce_filter_set(struct roce_control *c);

#endif
