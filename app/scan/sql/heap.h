/* SPDX-License-Identifier: BSD-3-Clause */
/** @file Settings of malloc() for results. */
#ifndef SQL_HEAP_H
#define SQL_HEAP_H

/**
 * Keep memory that is freed, up to some hundred MiB, for the whole process. DuckDB's conversion to
 * Arrow allocates buffers for each chunk. Those of lists are so large that malloc() would
 * map each from the kernel and unmap it again: page faults then take more time than the conversion.
 * Programs call it once, before they execute statements.
 *
 * Source: mallopt(3); test/bench/results/scan.rst has the figures.
 */
void sql_heap_prepare(void);

#endif /* SQL_HEAP_H */
