/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROCE_PAGES_H
#define ROCE_PAGES_H

/**
 * @file
 * Pages of memory that does not belong to DPDK, registered with EAL and mapped for the ports that
 * send from them. They are reference counted for all devices of the process, because memory regions
 * may share pages and need not start or end at a page boundary.
 */

#include <stdint.h>

/**
 * Register the pages that contain a memory range. *Control.*
 *
 * @return 1: registered until roce_pages_release(); 0: DPDK knows the memory already, nothing to
 *   release
 *   - -ENOMEM
 *   - -ENOTSUP: EAL or the port refuses them; the log gives the reason
 */
int roce_pages_hold(uint16_t port, void *addr, uint64_t length);

/** Release the pages for one registration. *Control.* */
void roce_pages_release(void *addr, uint64_t length);

#endif
