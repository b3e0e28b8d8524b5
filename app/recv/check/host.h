/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Items of --check: the rest of the host.
 */
#ifndef CHECK_HOST_H
#define CHECK_HOST_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/timex.h>

struct check;
struct check_gpu;
struct check_heap;
struct check_lcores;
struct check_need;
struct check_port;
struct settings;

/** Check that lcores, memory, GPU and ports are on one NUMA node. */
void check_numa(struct check *c, const struct check_lcores *l, const struct check_heap *heap,
	const struct check_gpu *gpu, const struct check_port *ports, uint32_t nb_ports);

/** Check for automatic NUMA balancing, which causes page faults on lcores. */
void check_numa_balancing(struct check *c);

/** Check for scheduling by session (autogroup), in which polling lcores starve kernel workers. */
void check_autogroup(struct check *c);

/** Check for an IOMMU that translates the DMA addresses of ports. */
void check_iommu(struct check *c, const struct check_port *ports, uint32_t nb_ports);

/** Check for ports that need virtual addresses. @param va  EAL uses virtual addresses for DMA */
void check_iova(struct check *c, bool va, const struct check_port *ports, uint32_t nb_ports);

/** Check that the kernel module for DMA to GPU memory is loaded if a NIC is to write there. */
void check_gpu_direct(struct check *c, const struct check_gpu *gpu, const struct check_port *ports,
	uint32_t nb_ports);

/** Check that devices do not lock more memory than allowed. @param limit  RLIMIT_MEMLOCK, bytes */
void check_locked_memory(struct check *c, const struct rlimit *limit, const struct check_need *need,
	const struct check_gpu *gpu, const struct check_port *ports, uint32_t nb_ports);

/** Check that the time stamp counter is invariant. */
void check_tsc(struct check *c);

/** Check that the clock is synchronized. @param state  return value of adjtimex(), or -errno */
void check_clock(struct check *c, int state, const struct timex *t);

/** Check the detector's UDP ports: not RoCEv2's port, and not in use by a socket of this host. */
void check_udp_ports(struct check *c, const struct settings *s);

#endif /* CHECK_HOST_H */
