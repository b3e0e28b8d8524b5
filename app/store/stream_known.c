/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arrow_read.h"
#include "arrow_recovery.h"
#include "stream_known.h"

void
stream_known_free(struct stream_known *k)
{
	size_t i;

	for (i = 0; i < k->nb; i++) {
		free(k->file[i].path);
		interval_set_free(&k->file[i].have);
	}
	free(k->file);
	interval_set_free(&k->have);
	memset(k, 0, sizeof(*k));
}

int
stream_known_add(struct stream_known *k, const char *path, struct interval_set *have)
{
	struct stream_known_file *more;

	more = realloc(k->file, (k->nb + 1) * sizeof(*more));
	if (more == NULL)
		return -ENOMEM;
	k->file = more;
	more[k->nb].path = strdup(path);
	if (more[k->nb].path == NULL)
		return -ENOMEM;
	more[k->nb++].have = *have;
	memset(have, 0, sizeof(*have));
	return 0;
}

static bool
is_number(const char *text, uint64_t wanted)
{
	char digits[17];

	snprintf(digits, sizeof(digits), "%016" PRIx64, wanted);
	return text != NULL && strcmp(text, digits) == 0;
}

static int
read_sequences(
	const struct arrow_identity *id, const struct arrow_reader *r, struct interval_set *have)
{
	const struct arrow_read_batch *b;
	uint64_t sequence;
	size_t i;

	for (i = 0; i < r->nb_batches; i++) {
		b = &r->batches[i];
		if (!is_number(b->producer, id->producer) || !is_number(b->run, id->run) ||
			!is_number(b->incarnation, id->incarnation) || b->table == NULL ||
			strcmp(b->table, id->table) != 0 || b->sequence == NULL)
			return -EXDEV;
		sequence = strtoull(b->sequence, NULL, 16);
		if (interval_set_add(have, sequence, sequence) < 0)
			return -ENOMEM;
	}
	return 0;
}

/* What a file has. */
static int
read_file(const struct arrow_io_ops *io, const struct arrow_identity *id, const char *path,
	uint64_t *size, struct interval_set *have, char *message)
{
	const struct arrow_io_open how = {path, true, ARROW_IO_BUFFERED, 1};
	const char *problem = NULL;
	struct arrow_reader r;
	const uint8_t *data;
	void *handle;
	int rc;

	rc = io->open(&handle, &how);
	if (rc < 0) {
		snprintf(message, PATH_MAX, "%.3000s cannot be opened: %s", path, strerror(-rc));
		return rc;
	}
	rc = io->map(handle, &data, size);
	if (rc == 0)
		rc = arrow_reader_open_memory(&r, data, *size, &problem);
	if (rc == 0) {
		problem = r.problem;
		rc = r.complete ? read_sequences(id, &r, have) : -EBADMSG;
		arrow_reader_close(&r);
	}
	if (rc == -EXDEV)
		problem = "batches of another stream";
	if (rc < 0)
		snprintf(message, PATH_MAX, "%.3000s: %s", path,
			problem != NULL ? problem : strerror(-rc));
	(void)io->close(handle);
	return rc;
}

/* Numbers of a set below n. */
static uint64_t
count_below(const struct interval_set *s, uint64_t n)
{
	uint64_t count = 0;
	size_t i;

	for (i = 0; i < s->nb && s->at[i].first < n; i++)
		count += (s->at[i].last < n ? s->at[i].last + 1 : n) - s->at[i].first;
	return count;
}

/* Cut a file off from a batch on, which it has: numbers in a file ascend. */
static int
cut_file(struct stream_known *k, const struct arrow_io_ops *io, struct stream_known_file *f,
	uint64_t from, uint64_t *cut, char *message)
{
	const uint64_t stay = count_below(&f->have, from);
	struct arrow_recovery report;
	const struct interval *gone;
	size_t i;
	int rc;

	rc = arrow_cut_file(io, f->path, stay, &report);
	snprintf(message, PATH_MAX, "%.2000s cut off at batch %" PRIu64 ": %.1000s", f->path, from,
		report.message);
	if (rc < 0)
		return rc;
	*cut += interval_set_count(&f->have) - stay;
	for (i = 0; i < f->have.nb && rc == 0; i++) {
		gone = &f->have.at[i];
		if (gone->last >= from)
			rc = interval_set_remove(
				&k->have, gone->first > from ? gone->first : from, gone->last);
	}
	return rc == 0 ? interval_set_remove(&f->have, from, UINT64_MAX - 1) : rc;
}

int
stream_known_cut(struct stream_known *k, const struct arrow_io_ops *io,
	const struct interval_set *moved, uint64_t *cut, char message[PATH_MAX])
{
	uint64_t from;
	size_t i;
	int rc = 0;

	message[0] = '\0';
	for (i = 0; i < k->nb && rc == 0; i++) {
		from = interval_set_first_common(&k->file[i].have, moved);
		if (from != UINT64_MAX)
			rc = cut_file(k, io, &k->file[i], from, cut, message);
	}
	return rc;
}

int
stream_known_read(struct stream_known *k, const struct arrow_io_ops *io,
	const struct arrow_identity *identity, const char *path, uint64_t *size, uint64_t *cut,
	char message[PATH_MAX])
{
	struct interval_set have = {0};
	size_t i;
	int rc;

	*cut = 0;
	*size = 0;
	rc = read_file(io, identity, path, size, &have, message);
	if (rc == 0)
		rc = stream_known_cut(k, io, &have, cut, message);
	for (i = 0; rc == 0 && i < have.nb; i++)
		rc = interval_set_add(&k->have, have.at[i].first, have.at[i].last);
	if (rc == 0)
		rc = stream_known_add(k, path, &have);
	interval_set_free(&have);
	return rc;
}
