/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Lines of an INI file: `[section]`, `key = value`, comments after `;` (`\;` is a semicolon).
 *
 * The syntax is that of rte_cfgfile, which keeps no line numbers and says nothing of what it does
 * not understand.
 */
#ifndef INI_FILE_H
#define INI_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/** Room for a name, its end included; as rte_cfgfile has it. */
#define INI_NAME_LEN 64
#define INI_NAME_MAX "63" /**< bytes of a name, as messages say it */

/** The same for a value: MAC addresses of 64 streams, with commas and spaces, are 1,214 bytes. */
#define INI_VALUE_LEN 2048
#define INI_VALUE_MAX "2047" /**< bytes of a value, as messages say it */

/** A line; `key` is "" for one that begins a section. @return 0; else the reading ends with it */
typedef int ini_take(
	void *arg, unsigned int line, const char *section, const char *key, const char *value);

/** Whether a text is UTF-8 without control characters other than tab and line end. */
bool ini_is_text(const char *text);

/**
 * Give all lines to `take`, in their order. A line that is wrong is left out, and the reading goes
 * on: the message has a line for each, as far as there is room.
 * @param message  why not, with file and line; "" if 0 is returned
 * @return 0; -EINVAL: lines that are wrong; what fopen() and reading give; what `take` returns
 */
int ini_file_read(const char *path, ini_take *take, void *arg, char *message, size_t size);

/** The same of an open file, which stays open. @param path  what messages call it */
int ini_stream_read(
	FILE *f, const char *path, ini_take *take, void *arg, char *message, size_t size);

#endif /* INI_FILE_H */
