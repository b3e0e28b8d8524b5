/* SPDX-License-Identifier: BSD-3-Clause */

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stream_writer_private.h"

static bool
ends_with(const char *text, const char *end)
{
	const size_t len = strlen(text), end_len = strlen(end);

	return len > end_len && strcmp(text + len - end_len, end) == 0;
}

/* Names of the stream's complete files, in the order in which they were begun. */
static int
list_files(const struct stream_writer *w, struct dirent ***entry)
{
	char begin[SINK_NAME_BYTES + 32], end[32];
	int i, n, kept = 0;

	snprintf(begin, sizeof(begin), "%s_%016" PRIx64 "_", w->config.run,
		w->config.identity.incarnation);
	snprintf(end, sizeof(end), "_%s.arrow", w->config.identity.table);
	n = scandir(w->config.dir, entry, NULL, alphasort);
	if (n < 0)
		return -errno;
	for (i = 0; i < n; i++) {
		if (strncmp((*entry)[i]->d_name, begin, strlen(begin)) == 0 &&
			ends_with((*entry)[i]->d_name, end))
			(*entry)[kept++] = (*entry)[i];
		else
			free((*entry)[i]);
	}
	return kept;
}

int
stream_writer_adopt_all(struct stream_writer *w)
{
	char path[PATH_MAX], message[PATH_MAX];
	struct dirent **entry;
	int i, n;

	n = list_files(w, &entry);
	if (n < 0)
		return n;
	for (i = 0; i < n; i++) {
		if (snprintf(path, sizeof(path), "%s/%s", w->config.dir, entry[i]->d_name) <
				(int)sizeof(path) &&
			stream_writer_adopt(w, path, message) < 0)
			stream_writer_say(w, true, message);
		free(entry[i]);
	}
	free(entry);
	return 0;
}
