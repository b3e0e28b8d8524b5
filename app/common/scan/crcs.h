/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Checks the CRC-32C of all batches of a file, in threads if the file is large. One thread reads
 * slower than a copy of the file would.
 */
#ifndef SCAN_CRCS_H
#define SCAN_CRCS_H

#include "arrow/reader.h"

/**
 * Mark batches with a wrong CRC as faults.
 * @param r  of a mapped file
 * @return number of batches without a CRC
 */
size_t scan_crcs(struct arrow_reader *r);

#endif /* SCAN_CRCS_H */
