/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Text for those who take ASCII alone: DPDK's telemetry reads outside of its table of escapes for
 * any other byte (22.11).
 */
#ifndef ASCII_TEXT_H
#define ASCII_TEXT_H

/**
 * @param text  UTF-8; bytes that are none count as U+FFFD each
 * @return the text with `\uXXXX`, as JSON has it, for every UTF-16 unit that is not ASCII; the
 *         caller frees it. NULL: no memory
 */
char *ascii_text(const char *text);

#endif /* ASCII_TEXT_H */
