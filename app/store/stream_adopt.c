/* SPDX-License-Identifier: BSD-3-Clause */

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arrow_name.h"
#include "stream_copy.h"
#include "stream_source.h"
#include "stream_writer_private.h"

/* Files are told by numbers in their order: the next one's is above all that are there. */
static void
note_number(struct stream_writer *w, const char *name)
{
	const unsigned int number = stream_copy_number(name);

	if (number > w->set)
		w->set = number;
}

/* As they were begun. */
static int
by_number(const struct dirent **a, const struct dirent **b)
{
	const unsigned int first = stream_copy_number((*a)->d_name),
			   second = stream_copy_number((*b)->d_name);

	return first != second ? (first < second ? -1 : 1) : alphasort(a, b);
}

/* Names of the stream's complete files, in the order in which they were begun. */
static int
list_files(struct stream_writer *w, struct dirent ***entry)
{
	int i, n, kept = 0;

	n = scandir(w->config.dir, entry, NULL, by_number);
	if (n < 0)
		return -errno;
	for (i = 0; i < n; i++) {
		const bool ours = stream_source_is_of(
			(*entry)[i]->d_name, w->config.run, &w->config.identity);

		if (ours)
			note_number(w, (*entry)[i]->d_name);
		if (ours && arrow_name_is_complete((*entry)[i]->d_name))
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
	int i, n, rc, unknown = 0;

	(void)stream_copy_clean(w->io, w->config.dir, w->config.run, &w->config.identity);
	/* who named them may have died before their names were durable */
	if (snprintf(path, sizeof(path), "%s/.", w->config.dir) >= (int)sizeof(path))
		return -ENAMETOOLONG;
	rc = w->io->sync_dir(path);
	n = rc == 0 ? list_files(w, &entry) : rc;
	if (n < 0) {
		snprintf(message, sizeof(message), "files in %.3000s: %s", w->config.dir,
			strerror(-n));
		stream_writer_say(w, true, message);
		return n;
	}
	for (i = 0; i < n; i++) {
		rc = snprintf(path, sizeof(path), "%s/%s", w->config.dir, entry[i]->d_name) <
				(int)sizeof(path)
			? stream_writer_adopt(w, path, message)
			: 0;
		if (rc < 0)
			stream_writer_say(w, true, message);
		/* damaged, another stream's or gone it has nothing of ours; else nobody knows */
		if (rc < 0 && rc != -EBADMSG && rc != -EXDEV && rc != -ENOENT)
			unknown = rc;
		free(entry[i]);
	}
	free(entry);
	return unknown;
}
