/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Which batches of a file are in order. A file holds one stream, ascending: where batches are out
 * of order, the most of them that are in order are the ones that belong there.
 */
#ifndef ARROW_ORDER_H
#define ARROW_ORDER_H

#include "arrow/reader.h"

/** `fault` of those that are not. */
extern const char arrow_order_fault[];

/**
 * Of the batches without a fault the longest ascending sequence of one stream stays without; all
 * others are noted as faults. Files of others, without identities, have no order.
 * Takes O(n log n) for n batches.
 * @return 0; -ENOMEM
 */
int arrow_order(struct arrow_reader *r);

#endif /* ARROW_ORDER_H */
