/* SPDX-License-Identifier: BSD-3-Clause */
/** @file The ledger of now, from the counters of all parts of the receiver. */
#ifndef LEDGER_READ_H
#define LEDGER_READ_H

#include "ledger.h"

struct batch_writer;
struct pipeline;

/**
 * Read the counters of all parts. The columns of packets add up at any time, those of frames if no
 * data is in progress. Any thread.
 * @param writer  writer of the current run; NULL: none
 */
void ledger_read(struct ledger *l, const struct pipeline *p, const struct batch_writer *writer);

#endif /* LEDGER_READ_H */
