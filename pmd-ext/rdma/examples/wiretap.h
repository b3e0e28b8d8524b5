/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDMA_TOOL_WIRETAP_H
#define RDMA_TOOL_WIRETAP_H

/**
 * @file
 * Between the software engine and its port: frames that pass are written to a file, as no tcpdump
 * sees them otherwise, and some are lost on purpose. The file is what was on the wire: a frame
 * that is lost on receive is there, one that is lost on transmit has the EtherType 0x88b5.
 */

#include "target.h"

/** After the device is open. @return 0; negative errno, said on stderr */
int wiretap_open(const struct target *target);

/** Before the device is closed; prints how many frames were lost. */
void wiretap_close(void);

#endif
