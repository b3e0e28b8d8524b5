/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Ethernet ports that options name. Not for the datapath.
 */
#ifndef ETHDEV_FIND_H
#define ETHDEV_FIND_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_ethdev.h>

/** Size of the names of ports in a message; of more ports, the first ones are named. */
#define ETHDEV_NAMES_SIZE 256

/**
 * Find the port with this EAL name or number.
 * @return 0 or -ENODEV
 */
static inline int
ethdev_find(const char *device, uint16_t *id)
{
	char *end;
	const unsigned long number = strtoul(device, &end, 10);

	if (device[0] >= '0' && device[0] <= '9' && *end == '\0' && number < RTE_MAX_ETHPORTS &&
		rte_eth_dev_is_valid_port(number)) {
		*id = number;
		return 0;
	}
	return rte_eth_dev_get_port_by_name(device, id) == 0 ? 0 : -ENODEV;
}

/** Write what EAL has: `net_null0, net_ring1`, or `no port`. @return text */
static inline const char *
ethdev_names(char text[ETHDEV_NAMES_SIZE])
{
	char name[RTE_ETH_NAME_MAX_LEN];
	size_t at = 0;
	uint16_t id;

	snprintf(text, ETHDEV_NAMES_SIZE, "no port");
	RTE_ETH_FOREACH_DEV(id) {
		if (rte_eth_dev_get_name_by_port(id, name) != 0)
			continue;
		/* room for this name, and for the end of a list that is cut */
		if (at + strlen(", ") + strlen(name) + sizeof(", ...") > ETHDEV_NAMES_SIZE) {
			snprintf(text + at, ETHDEV_NAMES_SIZE - at, ", ...");
			break;
		}
		at += snprintf(
			text + at, ETHDEV_NAMES_SIZE - at, "%s%s", at == 0 ? "" : ", ", name);
	}
	return text;
}

#endif /* ETHDEV_FIND_H */
