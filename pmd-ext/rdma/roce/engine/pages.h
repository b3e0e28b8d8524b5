/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROCE_PAGES_H
#define ROCE_PAGES_H

/**
 * @file
 * Pages of memory that is not DPDK's, made known to EAL and to ports that send from them. Counted,
 * for all devices of the process: registrations share pages, and neither begin nor end with them.
 */

#include <stdint.h>

/**
 * Make whole pages around memory known. *Control.*
 *
 * @return 1: until roce_pages_release(); 0: DPDK knows them, nothing to release
 *   - -ENOMEM
 *   - -ENOTSUP: EAL or the port does not take them, the log says why
 */
int roce_pages_hold(uint16_t port, void *addr, uint64_t length);

/** One registration needs them no longer. *Control.* */
void roce_pages_release(void *addr, uint64_t length);

#endif
