/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Checks the CRC-32C of all batches of a file, in several threads if the file is large: a single
 * thread is slower than a copy of the file.
 */
#ifndef SCAN_CRCS_H
#define SCAN_CRCS_H

#include "arrow/reader.h"

/**
 * Set the `fault` of batches with a wrong CRC.
 * @param r  of a mapped file
 * @return number of batches without a CRC
 */
size_t scan_crcs(struct arrow_reader *r);

#endif /* SCAN_CRCS_H */
