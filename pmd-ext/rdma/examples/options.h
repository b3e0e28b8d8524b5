/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDMA_TOOL_OPTIONS_H
#define RDMA_TOOL_OPTIONS_H

/**
 * @file
 * Options of a mode as a table: parser, limits, help and defaults use the same row.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum option_kind {
	OPTION_FLAG, /**< bool, no argument */
	OPTION_U8,
	OPTION_U16,
	OPTION_U32,
	OPTION_U64,
	OPTION_REAL,	/**< double */
	OPTION_TEXT,	/**< const char *, in argv */
	OPTION_IGNORED, /**< accepted for compatibility; it is the default here, or has no effect */
	OPTION_IGNORED_FLAG,
};

/** One option. */
struct option_row {
	char letter;	      /**< 0: none */
	const char *name;     /**< NULL: none */
	const char *argument; /**< name in the help; NULL for flags */
	enum option_kind kind;
	size_t offset; /**< offset of the value in the mode's structure */
	uint64_t min, max;
	const char *help; /**< including the default value; NULL: not listed */
};

/** Options whose values are stored in one structure. */
struct option_group {
	const struct option_row *rows;
	unsigned int nb_rows;
	void *values;
};

/** Result of options_parse(). */
enum options_result {
	OPTIONS_OK,
	OPTIONS_HELP,  /**< help was requested and printed */
	OPTIONS_WRONG, /**< an error was printed to stderr */
};

/**
 * Parse a mode's arguments; argv[0] is the mode.
 *
 * @param usage text after the mode's name on the first line of the help
 * @param words words that are not options, at most `max_words`; unused entries stay unchanged
 */
enum options_result options_parse(int argc, char **argv, const struct option_group *groups,
	unsigned int nb_groups, const char *usage, const char **words, unsigned int max_words);

#endif
