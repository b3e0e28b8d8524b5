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

#include <stddef.h>

/** Room for a name and a value, their ends included; as rte_cfgfile has it. */
#define INI_NAME_LEN  64
#define INI_VALUE_LEN 256

/** A line; `key` is "" for one that begins a section. @return 0; else the reading ends with it */
typedef int ini_take(
	void *arg, unsigned int line, const char *section, const char *key, const char *value);

/**
 * Give all lines to `take`, in their order.
 * @param message  why not, with file and line; set if a negative errno is returned
 * @return 0, -EINVAL: not INI; what fopen() and reading give; what `take` returns
 */
int ini_file_read(const char *path, ini_take *take, void *arg, char *message, size_t size);

#endif /* INI_FILE_H */
