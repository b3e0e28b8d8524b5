/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Packets that a software RoCE device has dropped, by its counters: the column of the ledger in
 * which they count, and the remedy if no packet of a run is usable.
 */
#ifndef PORT_REFUSED_H
#define PORT_REFUSED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "port/drops.h"

struct rdma_dev;

#define PORT_REFUSED_COUNTERS 16

/** Counters of the devices of all ports, in the order of a table in refused.c. */
struct port_refused {
	uint64_t n[PORT_REFUSED_COUNTERS];
};

/** Add the counters of a device to the columns of the ledger. Any thread. */
void port_refused_drops(const struct rdma_dev *dev, uint64_t drops[PORT_DROPS]);

/** Add the counters of a device. Any thread. */
void port_refused_add(const struct rdma_dev *dev, struct port_refused *r);

/** Subtract `before`. */
void port_refused_since(struct port_refused *r, const struct port_refused *before);

/**
 * Packets that are not for this receiver's queue pairs, or that these do not accept. Packets of
 * incomplete messages count only if `all`, because loss is another cause of them.
 */
uint64_t port_refused_sum(const struct port_refused *r, bool all);

/**
 * Describe the most frequent cause, with its number and what to check: "120 are for queue pairs
 * ...". @return false: there is none
 */
bool port_refused_explain(const struct port_refused *r, char *text, size_t size);

#endif /* PORT_REFUSED_H */
