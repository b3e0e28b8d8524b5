/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The differences between DPDK 22.11 and 25.11 that affect this project, in one place.
 *
 * Write code for the newest API. This header adapts it to older releases. Nothing else in the tree
 * tests RTE_VERSION.
 */
#ifndef DPDK_COMPAT_H
#define DPDK_COMPAT_H

#include <rte_version.h>

#if RTE_VERSION < RTE_VERSION_NUM(22, 11, 0, 0)
#error "braggline needs DPDK 22.11 or newer"
#endif

/*
 * Telemetry's _u64 became _uint in 23.03, where the old names are deprecated. With a release that
 * has only the old names, these macros make code with the old names fail to compile, too.
 */
#if RTE_VERSION < RTE_VERSION_NUM(23, 3, 0, 0)
#include <rte_telemetry.h>
#define rte_tel_data_add_dict_uint  rte_tel_data_add_dict_u64
#define rte_tel_data_add_array_uint rte_tel_data_add_array_u64
#define RTE_TEL_UINT_VAL	    RTE_TEL_U64_VAL
#pragma GCC poison rte_tel_data_add_dict_u64 rte_tel_data_add_array_u64 RTE_TEL_U64_VAL
#endif

/*
 * Drivers only.
 *
 * dev_supported_ptypes_get() returns its count through a second parameter since 24.03; before, the
 * table ended with RTE_PTYPE_UNKNOWN. Define it as
 *	static const uint32_t *x_ptypes_get(struct rte_eth_dev *dev COMPAT_PTYPES_COUNT(count))
 * with a table that ends with RTE_PTYPE_UNKNOWN, and report the count with COMPAT_PTYPES_RETURN.
 */
#if RTE_VERSION < RTE_VERSION_NUM(24, 3, 0, 0)
#define COMPAT_PTYPES_COUNT(count)
#define COMPAT_PTYPES_RETURN(table, count) return (table)
#else
#define COMPAT_PTYPES_COUNT(count) , size_t *count
#define COMPAT_PTYPES_RETURN(table, count)     \
	do {                                   \
		*(count) = RTE_DIM(table) - 1; \
		return (table);                \
	} while (0)
#endif

/*
 * Counters per queue left struct rte_eth_stats for a parameter of stats_get() in 25.11. Define it
 * as
 *	static int x_stats_get(struct rte_eth_dev *dev, struct rte_eth_stats *stats
 *		COMPAT_QUEUE_STATS(qstats))
 * start with COMPAT_QUEUE_STATS_FROM(stats, qstats) and fill qstats->q_ipackets[] and so on, when
 * qstats is not NULL.
 */
#if RTE_VERSION < RTE_VERSION_NUM(25, 11, 0, 0)
#define COMPAT_QUEUE_STATS(qstats)
#define COMPAT_QUEUE_STATS_FROM(stats, qstats) struct rte_eth_stats *qstats = (stats)
#else
#define COMPAT_QUEUE_STATS(qstats)	       , struct eth_queue_stats *qstats
#define COMPAT_QUEUE_STATS_FROM(stats, qstats) RTE_SET_USED(qstats)
#endif

#endif /* DPDK_COMPAT_H */
