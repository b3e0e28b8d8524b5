/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Items of --check for transport `multicast`.
 */
#ifndef CHECK_MULTICAST_H
#define CHECK_MULTICAST_H

struct check;
struct settings;

/** Show the groups, and the ports of the sender. */
void check_multicast_groups(struct check *c, const struct settings *s);

/** Check that the key of [ingest] can be read. Warn: members are not authenticated. */
void check_multicast_key(struct check *c, const struct settings *s);

/** Check that the host has memory for the rings and receive buffers, which is not EAL memory. */
void check_multicast_memory(struct check *c, const struct settings *s);

/** Run all of these items. Adds no row if the transport is another one. */
void check_multicast(struct check *c, const struct settings *s);

#endif /* CHECK_MULTICAST_H */
