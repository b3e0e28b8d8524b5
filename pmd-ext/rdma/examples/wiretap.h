/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDMA_TOOL_WIRETAP_H
#define RDMA_TOOL_WIRETAP_H

/**
 * @file
 * Callbacks between the software engine and its port. They write frames to a file, because tcpdump
 * cannot see them, and lose some frames on purpose. The file contains the frames on the wire: a
 * frame that is lost on receive is included, a frame that is lost on transmit has the EtherType
 * 0x88b5.
 */

#include "target.h"

/** Call after the device is opened. @return 0; negative errno, printed to stderr */
int wiretap_open(const struct target *target);

/** Call before the device is closed; prints how many frames were lost. */
void wiretap_close(void);

#endif
