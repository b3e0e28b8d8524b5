/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The part of a port's configuration that does not depend on the program that configures the port.
 */
#ifndef ETHDEV_CONF_H
#define ETHDEV_CONF_H

#include <stdint.h>

#include <rte_common.h>
#include <rte_ethdev.h>

/** Return the largest MTU that rte_eth_dev_configure() accepts. */
static inline uint32_t
ethdev_mtu_max(const struct rte_eth_dev_info *info)
{
	const uint32_t overhead = RTE_ETHER_HDR_LEN + RTE_ETHER_CRC_LEN;
	const uint32_t most = info->max_mtu != 0 ? info->max_mtu : UINT16_MAX;

	/*
	 * As in eth_dev_get_overhead_len(): if a driver reports both, the overhead is the
	 * difference between the length and the MTU; if it reports no MTU, header and CRC are
	 * subtracted.
	 */
	if (info->max_rx_pktlen <= overhead || (most != UINT16_MAX && info->max_rx_pktlen > most))
		return most;
	return RTE_MIN(most, info->max_rx_pktlen - overhead);
}

/**
 * Begin a port's configuration: with this MTU, or the largest that the driver accepts, and with
 * removal events if the driver has them. Without intr_conf.rmv it does not report that its device
 * was unplugged.
 */
static inline struct rte_eth_conf
ethdev_conf(const struct rte_eth_dev_info *info, uint32_t mtu)
{
	return (struct rte_eth_conf){
		.rxmode.mtu = RTE_MIN(mtu, ethdev_mtu_max(info)),
		.intr_conf.rmv = (*info->dev_flags & RTE_ETH_DEV_INTR_RMV) != 0,
	};
}

#endif /* ETHDEV_CONF_H */
