/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Parser of INI files: `[section]`, `key = value`, comments after `;` (`\;` is a semicolon).
 *
 * The syntax is that of rte_cfgfile, which is not used because it keeps no line numbers and
 * silently ignores invalid lines.
 */
#ifndef INI_FILE_H
#define INI_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/** Size of a name with its terminating zero, as in rte_cfgfile. */
#define INI_NAME_LEN 64
#define INI_NAME_MAX "63" /**< maximum length of a name in bytes, for messages */

/** Size of a value with its zero. The MAC addresses of 64 streams take 1,214 bytes. */
#define INI_VALUE_LEN 2048
#define INI_VALUE_MAX "2047" /**< maximum length of a value in bytes, for messages */

/**
 * Callback for a line of the file. The header of a section comes before its keys.
 * @param key  "": the line is the header of a section
 * @return 0; otherwise reading ends with this result
 */
typedef int ini_take(
	void *arg, unsigned int line, const char *section, const char *key, const char *value);

/** Whether a text is UTF-8 without control characters other than tab and line end. */
bool ini_is_text(const char *text);

/**
 * Read a file, and call `take` for each line in file order. Invalid lines are skipped, as are the
 * keys of a section without a valid name. A header with text after it is accepted but reported. The
 * message gets one line of text for each invalid line, until `size` is reached.
 * @param message  out: the errors, with file and line; "" on success
 * @return 0; -EINVAL: invalid lines; -errno of fopen() or reading; errors of `take`
 */
int ini_file_read(const char *path, ini_take *take, void *arg, char *message, size_t size);

/** As ini_file_read(), for an open file, which stays open. @param path  its name for messages */
int ini_stream_read(
	FILE *f, const char *path, ini_take *take, void *arg, char *message, size_t size);

#endif /* INI_FILE_H */
