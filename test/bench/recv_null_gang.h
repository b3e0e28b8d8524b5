/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Gangs that read no pixel: they reject each frame and release its packets at once. What is left is
 * the work of RX lcores and builder.
 */
#ifndef RECV_NULL_GANG_H
#define RECV_NULL_GANG_H

/* From now on gk_ops_find("host") finds these gangs. Link with --wrap=gk_ops_find. */
void recv_null_gang_use(void);

#endif /* RECV_NULL_GANG_H */
