/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arrow_name.h"
#include "arrow_recovery.h"
#include "stream_copy.h"
#include "stream_known.h"
#include "stream_source.h"

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
stream_known_add(struct stream_known *k, const char *path, struct interval_set *have, bool uncut)
{
	struct stream_known_file *more;

	more = realloc(k->file, (k->nb + 1) * sizeof(*more));
	if (more == NULL)
		return -ENOMEM;
	k->file = more;
	more[k->nb].path = strdup(path);
	if (more[k->nb].path == NULL)
		return -ENOMEM;
	more[k->nb].uncut = uncut;
	more[k->nb++].have = *have;
	memset(have, 0, sizeof(*have));
	return 0;
}

/* What a file has. */
static int
read_file(const struct arrow_io_ops *io, const struct arrow_identity *id, const char *path,
	struct interval_set *have, char *message)
{
	struct arrow_identity wanted = *id;
	struct stream_source s;
	int rc;

	rc = stream_source_open_to_list(&s, io, path, message);
	if (rc < 0)
		return rc;
	rc = stream_source_list(&s.reader, &wanted, have);
	if (rc < 0)
		snprintf(message, PATH_MAX, "%.3000s: %s", path,
			rc == -EXDEV ? "batches of another stream" : strerror(-rc));
	stream_source_close(&s);
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

/* Cut a file, and know what it is called then. */
static int
cut_to(struct stream_known_file *f, const struct arrow_io_ops *io, uint64_t from,
	struct arrow_recovery *report)
{
	int rc = arrow_cut_file(io, f->path, from, report);
	char *path;

	if (rc < 0)
		return rc;
	path = strdup(report->path);
	if (path == NULL)
		return -ENOMEM;
	free(f->path);
	f->path = path;
	return 0;
}

/* What turned out to be damaged when the file was cut: the store does not have it. */
static int
forget_damaged(struct stream_known *k, const struct arrow_io_ops *io, struct stream_known_file *f,
	char message[PATH_MAX])
{
	const struct arrow_identity whosever = {0};
	struct interval_set have = {0}, lost = {0};
	int rc = read_file(io, &whosever, f->path, &have, message);

	if (rc == 0)
		rc = interval_set_add_all(&lost, &f->have);
	if (rc == 0)
		rc = interval_set_remove_all(&lost, &have);
	if (rc == 0)
		rc = interval_set_remove_all(&k->have, &lost);
	if (rc == 0)
		rc = interval_set_remove_all(&f->have, &lost);
	interval_set_free(&lost);
	interval_set_free(&have);
	return rc;
}

int
stream_known_cut_file(struct stream_known *k, const struct arrow_io_ops *io,
	struct stream_known_file *f, uint64_t from, uint64_t *cut, char message[PATH_MAX])
{
	const uint64_t stay = count_below(&f->have, from);
	struct arrow_recovery report;
	const struct interval *gone;
	size_t i;
	int rc;

	rc = cut_to(f, io, from, &report);
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
	if (rc == 0)
		rc = interval_set_remove(&f->have, from, UINT64_MAX - 1);
	if (rc == 0 && report.damaged > 0 && report.state == ARROW_RECOVERY_DONE)
		rc = forget_damaged(k, io, f, message);
	return rc;
}

/* A file that failed and could not be cut off then. */
static int
cut_rest(struct stream_known_file *f, const struct arrow_io_ops *io, char message[PATH_MAX])
{
	struct arrow_recovery report;
	int rc;

	rc = cut_to(f, io, f->have.nb > 0 ? f->have.at[f->have.nb - 1].last + 1 : 0, &report);
	if (rc < 0)
		snprintf(message, PATH_MAX,
			"%.2000s: batches that were given back may still be in it: %.1000s",
			f->path, report.message);
	else
		f->uncut = false;
	return rc;
}

bool
stream_known_is_touched(const struct stream_known *k, const struct interval_set *moved)
{
	bool uncut = false;
	size_t i;

	for (i = 0; i < k->nb && !uncut; i++)
		uncut = k->file[i].uncut;
	return moved->nb > 0 && (uncut || interval_set_first_common(&k->have, moved) != UINT64_MAX);
}

/* Files that are `uncut` are cut off, and those completed that could not be: only complete ones can
 * be copied from. */
static int
cut_rests(struct stream_known *k, const struct arrow_io_ops *io, char message[PATH_MAX])
{
	size_t i;
	int rc = 0;

	for (i = 0; i < k->nb && rc == 0; i++) {
		if (k->file[i].uncut || arrow_name_is_part(k->file[i].path))
			rc = cut_rest(&k->file[i], io, message);
	}
	return rc;
}

int
stream_known_alone(const struct stream_known *k, size_t file, uint64_t from,
	struct interval_set *alone, uint64_t *behind)
{
	size_t i;
	int rc = interval_set_add_all(alone, &k->file[file].have);

	if (rc == 0 && from > 0)
		rc = interval_set_remove(alone, 0, from - 1);
	*behind = interval_set_count(alone);
	for (i = 0; i < k->nb && rc == 0; i++) {
		if (i != file)
			rc = interval_set_remove_all(alone, &k->file[i].have);
	}
	return rc;
}

/* What stays of what is cut off, in a file of its own from here on. */
static int
copy_alone(struct stream_known *k, const struct arrow_io_ops *io,
	const struct arrow_slices_config *slices, const struct arrow_identity *identity,
	size_t file, struct interval_set *alone, char message[PATH_MAX])
{
	char copy[PATH_MAX];
	int rc, error;

	rc = stream_copy(io, slices, identity, k->file[file].path, alone, stream_known_number(k),
		copy, message);
	if (copy[0] == '\0')
		return rc;
	error = stream_known_add(k, copy, alone, false);
	return rc == 0 ? error : rc;
}

unsigned int
stream_known_number(const struct stream_known *k)
{
	unsigned int highest = 0, number;
	size_t i;

	for (i = 0; i < k->nb; i++) {
		number = stream_copy_number(k->file[i].path);
		if (number > highest)
			highest = number;
	}
	return highest;
}

int
stream_known_cut(struct stream_known *k, const struct arrow_io_ops *io,
	const struct arrow_slices_config *slices, const struct arrow_identity *identity,
	const struct interval_set *moved, uint64_t *cut, char message[PATH_MAX])
{
	const size_t nb = k->nb; /* copies come behind those */
	const uint64_t before = interval_set_count(&k->have);
	uint64_t from, behind, gone = 0;
	size_t i;
	int rc;

	message[0] = '\0';
	rc = cut_rests(k, io, message);
	for (i = 0; i < nb && rc == 0; i++) {
		struct interval_set alone = {0};

		from = interval_set_first_common(&k->file[i].have, moved);
		if (from == UINT64_MAX)
			continue;
		/* a copy that was made before the cut failed is another file */
		rc = stream_known_alone(k, i, from, &alone, &behind);
		if (rc == 0)
			rc = interval_set_remove_all(&alone, moved);
		if (rc == 0 && alone.nb > 0)
			rc = copy_alone(k, io, slices, identity, i, &alone, message);
		interval_set_free(&alone);
		if (rc == 0)
			rc = stream_known_cut_file(k, io, &k->file[i], from, &gone, message);
	}
	/* copies have what those have lost */
	for (i = 0; i < k->nb; i++)
		rc = interval_set_add_all(&k->have, &k->file[i].have) < 0 ? -ENOMEM : rc;
	*cut += before - interval_set_count(&k->have);
	return rc;
}

/* What a later file has was given back when this one failed, with all behind it. */
static int
cut_given_back(struct stream_known *k, const struct arrow_io_ops *io,
	const struct interval_set *later, uint64_t *cut, char message[PATH_MAX])
{
	uint64_t from;
	size_t i;
	int rc;

	message[0] = '\0';
	rc = cut_rests(k, io, message);
	for (i = 0; i < k->nb && rc == 0; i++) {
		from = interval_set_first_common(&k->file[i].have, later);
		if (from != UINT64_MAX)
			rc = stream_known_cut_file(k, io, &k->file[i], from, cut, message);
	}
	return rc;
}

int
stream_known_read(struct stream_known *k, const struct arrow_io_ops *io,
	const struct arrow_identity *identity, const char *path, uint64_t *cut,
	char message[PATH_MAX])
{
	struct interval_set have = {0};
	int rc;

	*cut = 0;
	rc = read_file(io, identity, path, &have, message);
	if (rc == 0) {
		rc = cut_given_back(k, io, &have, cut, message);
		/* another file is damaged: this one is sound, and is not to be left out */
		rc = rc == -EBADMSG ? -EUCLEAN : rc;
	}
	if (rc == 0)
		rc = interval_set_add_all(&k->have, &have);
	if (rc == 0)
		rc = stream_known_add(k, path, &have, false);
	interval_set_free(&have);
	return rc;
}
