/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Conversion of UTF-8 to ASCII, for DPDK's telemetry: it reads beyond its table of escapes if a
 * text has a byte that is not ASCII (DPDK 22.11).
 */
#ifndef ASCII_TEXT_H
#define ASCII_TEXT_H

/**
 * Replace every UTF-16 unit that is not ASCII with `\uXXXX`, as in JSON.
 * @param text  UTF-8; each invalid byte is converted as U+FFFD
 * @return the converted text, which the caller frees; NULL: out of memory
 */
char *ascii_text(const char *text);

#endif /* ASCII_TEXT_H */
