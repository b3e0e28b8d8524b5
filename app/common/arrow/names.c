/* SPDX-License-Identifier: BSD-3-Clause */

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "arrow/names.h"
#include "arrow/tables.h"

/* Cut off the last part of a text. @return the part; NULL: there is no separator */
static const char *
cut_last(char *text, char separator)
{
	char *at = strrchr(text, separator);

	if (at == NULL)
		return NULL;
	*at = '\0';
	return at + 1;
}

/* @return false: the text is not 16 hexadecimal digits */
static bool
read_hex(const char *text, uint64_t *number)
{
	if (text == NULL || strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16)
		return false;
	*number = strtoull(text, NULL, 16);
	return true;
}

bool
arrow_name_stream(const char *path, struct arrow_identity *identity)
{
	const char *slash = strrchr(path, '/'), *table, *number;
	char given[PATH_MAX], folder[PATH_MAX], name[PATH_MAX], *end, *next;
	struct arrow_identity id = {0};
	unsigned int i;

	/* the path may lead through a descriptor of the folder, or be relative to it */
	snprintf(given, sizeof(given), "%.*s", slash != NULL ? (int)(slash - path) : 1,
		slash != NULL ? path : ".");
	if (realpath(given, folder) == NULL)
		memcpy(folder, given, sizeof(folder));
	if (!read_hex(cut_last(folder, '-'), &id.run) ||
		!read_hex(cut_last(folder, '-'), &id.receiver_id))
		return false;
	snprintf(name, sizeof(name), "%s", slash != NULL ? slash + 1 : path);
	end = strstr(name, ".arrow");
	while (end != NULL && (next = strstr(end + 1, ".arrow")) != NULL)
		end = next;
	if (end == NULL)
		return false;
	*end = '\0';
	table = cut_last(name, '_');
	number = cut_last(name, '_');
	if (number == NULL || number[0] == '\0' || number[strspn(number, "0123456789")] != '\0' ||
		!read_hex(cut_last(name, '_'), &id.incarnation))
		return false;
	for (i = 0; i < ARROW_TABLES; i++) {
		if (strcmp(table, arrow_table_name(i)) == 0)
			id.table = arrow_table_name(i);
	}
	if (id.table == NULL)
		return false;
	*identity = id;
	return true;
}
