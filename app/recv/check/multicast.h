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

/** Check that the key of [ingest] can be read. Warn: members prove nothing. */
void check_multicast_key(struct check *c, const struct settings *s);

/** Check that the host has the memory of rings and receive buffers, which is not EAL's. */
void check_multicast_memory(struct check *c, const struct settings *s);

/** All of these; no row with another transport. */
void check_multicast(struct check *c, const struct settings *s);

#endif /* CHECK_MULTICAST_H */
