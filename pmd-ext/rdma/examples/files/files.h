/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDMA_TOOL_FILES_H
#define RDMA_TOOL_FILES_H

/**
 * @file
 * Files by reliable multicast: `push` sends them to the members of a group, `fetch` is a member.
 */

#include "mode.h"

extern const struct mode push_mode;
extern const struct mode fetch_mode;

#define FILES_GROUP "239.192.255.1" /**< default group */

#define FILES_WAIT_S 60 /**< for the other end, without --wait */

/** Parse --group and report what is wrong with it. @return 0 or -EINVAL */
int files_group(const char *mode, const char *text, struct sockaddr_storage *group);

#endif
