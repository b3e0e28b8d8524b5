/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Text of untrusted origin for a terminal or a log: names of files and folders can have newlines
 * and escape sequences, which would forge lines or control the terminal.
 */
#ifndef ESCAPED_TEXT_H
#define ESCAPED_TEXT_H

#include <stdio.h>

/**
 * Replace each byte of a control character, and each byte that is not UTF-8, with `\xNN`.
 * @return the converted text, which the caller frees; NULL: out of memory
 */
char *escaped_text(const char *text);

/** Print one line. The format has no newline; the text is escaped as by escaped_text(). */
__attribute__((format(printf, 2, 3))) void escaped_line(FILE *out, const char *format, ...);

#endif /* ESCAPED_TEXT_H */
