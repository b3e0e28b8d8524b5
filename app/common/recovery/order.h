/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Check of the order of the batches of a file. A file holds one stream in ascending order. If
 * batches are out of order, the longest ascending sequence is kept and the others are faults.
 */
#ifndef ARROW_ORDER_H
#define ARROW_ORDER_H

#include "arrow/reader.h"

/** `fault` of a batch that is out of order or of another stream. */
extern const char arrow_order_fault[];

/**
 * Find the longest ascending sequence of one stream among the batches without a fault, and set the
 * `fault` of the others to arrow_order_fault. Files of other programs, whose batches have no
 * identity, are not checked. Takes O(n log n) for n batches.
 * @return 0; -ENOMEM
 */
int arrow_order(struct arrow_reader *r);

#endif /* ARROW_ORDER_H */
