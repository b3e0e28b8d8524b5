/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The differences between DPDK 22.11 and 25.11 that this project meets, in one place.
 *
 * Write code against the newest API and let this header carry older releases; nothing else in the
 * tree tests RTE_VERSION.
 */
#ifndef DPDK_COMPAT_H
#define DPDK_COMPAT_H

#include <rte_version.h>

#if RTE_VERSION < RTE_VERSION_NUM(22, 11, 0, 0)
#error "braggline needs DPDK 22.11 or newer"
#endif

#endif /* DPDK_COMPAT_H */
