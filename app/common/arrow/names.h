/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Names of Arrow files. `.arrow`: complete. `.arrow.part`: not complete yet. `.arrow.quarantine`,
 * `.arrow.quarantine.2`, ...: data that recovery removed from a file. A name with a leading dot is
 * hidden: a copy that is still being made (stream/copy.h), which is not used before it is complete.
 *
 * The functions accept names and paths. Any thread may call them.
 */
#ifndef ARROW_NAMES_H
#define ARROW_NAMES_H

#include <stdbool.h>
#include <string.h>

#include "arrow/schema.h"

static inline bool
arrow_name_ends(const char *name, const char *end)
{
	const size_t length = strlen(name), end_length = strlen(end);

	return length > end_length && strcmp(name + length - end_length, end) == 0;
}

static inline bool
arrow_name_is_complete(const char *name)
{
	return arrow_name_ends(name, ".arrow");
}

static inline bool
arrow_name_is_part(const char *name)
{
	return arrow_name_ends(name, ".arrow.part");
}

static inline bool
arrow_name_is_quarantine(const char *name)
{
	const char *slash = strrchr(name, '/');

	return strstr(slash != NULL ? slash : name, ".arrow.quarantine") != NULL;
}

static inline bool
arrow_name_is_hidden(const char *name)
{
	const char *slash = strrchr(name, '/');

	return (slash != NULL ? slash[1] : name[0]) == '.';
}

/**
 * Get the stream of a file from its name and folder,
 * RUN-RECEIVER_ID-ID/RUN_INCARNATION_NNNNNN_TABLE.arrow, which stores and spilling receivers choose
 * (stream/writer.h, stream_source_dir()). What follows `.arrow` does not matter.
 * @param identity  out, if it is such a name
 * @return false: another kind of name
 */
bool arrow_name_stream(const char *path, struct arrow_identity *identity);

#endif /* ARROW_NAMES_H */
