/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arrow/names.h"
#include "recovery/recovery.h"
#include "stream/closed_files.h"
#include "stream/copy.h"
#include "stream/source.h"

void
closed_files_free(struct closed_files *k)
{
	size_t i;

	for (i = 0; i < k->nb; i++) {
		free(k->file[i].path);
		interval_set_free(&k->file[i].have);
		stream_contents_free(&k->file[i].contents);
	}
	free(k->file);
	interval_set_free(&k->have);
	memset(k, 0, sizeof(*k));
}

int
closed_files_add(struct closed_files *k, const char *path, struct interval_set *have,
	struct stream_contents *contents, bool uncut)
{
	struct closed_file *more;

	more = realloc(k->file, (k->nb + 1) * sizeof(*more));
	if (more == NULL)
		return -ENOMEM;
	k->file = more;
	more[k->nb].path = strdup(path);
	if (more[k->nb].path == NULL)
		return -ENOMEM;
	more[k->nb].uncut = uncut;
	more[k->nb].contents = *contents;
	more[k->nb++].have = *have;
	memset(have, 0, sizeof(*have));
	memset(contents, 0, sizeof(*contents));
	return 0;
}

int
closed_files_compare(
	const struct closed_files *k, uint64_t sequence, uint64_t crc, const char **path)
{
	uint64_t there;
	size_t i;
	int found = 0;

	for (i = 0; i < k->nb; i++) {
		if (!interval_set_has(&k->file[i].have, sequence))
			continue;
		found = 1;
		/* an unknown content counts as another one */
		if (stream_contents_get(&k->file[i].contents, sequence, &there) && there == crc)
			continue;
		if (path != NULL)
			*path = k->file[i].path;
		return -ENOTUNIQ;
	}
	return found;
}

int
closed_files_differing(
	const struct closed_file *a, const struct closed_file *b, struct interval_set *which)
{
	const struct stream_content *c;
	uint64_t there;
	size_t i;
	int ret = 0;

	if (interval_set_first_common(&a->have, &b->have) == UINT64_MAX)
		return 0;
	for (i = 0; i < a->contents.nb && ret == 0; i++) {
		c = &a->contents.at[i];
		if (!interval_set_has(&a->have, c->sequence) ||
			!interval_set_has(&b->have, c->sequence))
			continue;
		if (!stream_contents_get(&b->contents, c->sequence, &there) || there != c->crc)
			ret = interval_set_add(which, c->sequence, c->sequence);
	}
	return ret;
}

#define SAY_MAX 64 /* differing batches of two files that are listed one by one */

/* List differing batches of two files. The frames that are listed are those of the first file. */
static void
report_differing(const char *path, const char *other, const struct arrow_io_ops *io,
	const struct interval_set *which, void (*say)(void *arg, bool error, const char *text),
	void *arg)
{
	char frames[ARROW_DAMAGE_TEXT], text[3 * PATH_MAX], message[PATH_MAX];
	uint64_t sequence, said = 0;
	struct stream_source s;
	size_t i;
	/* a listing changes nothing, and a store may be using the file */
	const bool open = stream_source_open_to_show(&s, io, path, message) == 0;

	if (!open)
		say(arg, true, message);
	for (i = 0; open && i < s.reader.nb_batches && said < SAY_MAX; i++) {
		sequence = stream_source_sequence(&s.reader, i);
		if (!interval_set_has(which, sequence))
			continue;
		stream_source_frames(&s.reader, i, frames);
		snprintf(text, sizeof(text),
			"different: batch %" PRIu64 ", %s, has other bytes in %s than in %s",
			sequence, frames, path, other);
		say(arg, true, text);
		said++;
	}
	if (open)
		stream_source_close(&s);
	if (said == interval_set_count(which))
		return;
	snprintf(text, sizeof(text), "different: %" PRIu64 " more batches in %s and %s",
		interval_set_count(which) - said, path, other);
	say(arg, true, text);
}

int
closed_files_report_differing(const struct closed_files *k, const struct arrow_io_ops *io,
	void (*say)(void *arg, bool error, const char *text), void *arg)
{
	struct interval_set which = {0};
	bool any = false;
	size_t i, n;
	int ret = 0;

	for (i = 0; i < k->nb && ret == 0; i++) {
		for (n = i + 1; n < k->nb && ret == 0; n++) {
			ret = closed_files_differing(&k->file[i], &k->file[n], &which);
			if (ret == 0 && which.nb > 0) {
				any = true;
				report_differing(
					k->file[i].path, k->file[n].path, io, &which, say, arg);
			}
			interval_set_free(&which);
		}
	}
	if (any)
		say(arg, true,
			"different: nothing of this stream is changed by any command. Find out "
			"which files are the receiver's (their dates, audit log of the store), "
			"move the others away, and run the command again");
	return ret < 0 ? ret : any ? -ENOTUNIQ : 0;
}

/* Read which batches a file has. @param contents  out: may be NULL */
static int
read_file(const struct arrow_io_ops *io, const struct arrow_identity *id, const char *path,
	struct interval_set *have, struct stream_contents *contents, char *message)
{
	struct arrow_identity expected = *id;
	struct stream_source s;
	int ret;

	ret = stream_source_open_to_list(&s, io, path, message);
	if (ret < 0)
		return ret;
	if (!stream_source_is_ours(&s)) {
		snprintf(message, PATH_MAX,
			"%.3000s: owner is another user; its batches do not count as stored", path);
		stream_source_close(&s);
		return -EXDEV;
	}
	ret = stream_source_list(&s.reader, &expected, have, contents);
	if (ret < 0)
		snprintf(message, PATH_MAX, "%.3000s: %s", path,
			ret == -EXDEV ? "it has batches of another stream" : strerror(-ret));
	stream_source_close(&s);
	return ret;
}

/* Find the damaged ones among some batches of a file. */
static int
check_file(const struct arrow_io_ops *io, const char *path, const struct interval_set *which,
	struct interval_set *bad, uint64_t *bytes, char message[PATH_MAX])
{
	struct stream_source s;
	int ret;

	ret = stream_source_open(&s, io, path, message);
	if (ret < 0)
		return ret;
	ret = stream_source_check(&s, which, bad, bytes);
	stream_source_close(&s);
	if (ret < 0)
		snprintf(message, PATH_MAX,
			"%.3000s: cannot read batches of which there is another copy: %s", path,
			strerror(-ret));
	return ret;
}

static int
common_of(const struct interval_set *a, const struct interval_set *b, struct interval_set *common)
{
	size_t i;
	int ret = 0;

	for (i = 0; i < b->nb && ret == 0; i++)
		ret = interval_set_add_common(common, a, b->at[i].first, b->at[i].last);
	return ret;
}

/*
 * Mark the damaged batches of a complete file: recovery finds them by their CRC, and writes a
 * footer that lists them. A crash in between leaves a `.part` file, for which recovery has the same
 * result.
 * @param have  out: batches of the file afterwards
 */
static int
mark_file(const struct arrow_io_ops *io, const struct arrow_identity *id, const char *path,
	struct interval_set *have, char message[PATH_MAX])
{
	struct interval_set now = {0};
	struct arrow_recovery report;
	struct stream_source s;
	char part[PATH_MAX];
	int ret;

	if (snprintf(part, sizeof(part), "%s.part", path) >= (int)sizeof(part))
		return -ENAMETOOLONG;
	ret = stream_source_open(&s, io, path, message);
	if (ret < 0)
		return ret;
	/* fail before the file is renamed if the disk cannot read it */
	ret = stream_source_read_through(&s);
	stream_source_close(&s);
	if (ret == 0)
		ret = io->rename(path, part);
	if (ret == 0)
		ret = io->sync_dir(part);
	if (ret < 0) {
		snprintf(message, PATH_MAX, "%.3000s: cannot mark damaged batches: %s", path,
			strerror(-ret));
		return ret;
	}
	ret = arrow_recover_file(io, part, &report);
	snprintf(message, PATH_MAX, "%.2000s: marked damaged batches: %.1000s", path,
		report.message);
	if (ret == -EBADMSG)
		/* restore the name: under the other one, the file's batches would be unknown */
		ret = io->rename(part, path) < 0 ? -EBADMSG : -EUCLEAN;
	if (ret == 0)
		ret = read_file(io, id, path, &now, NULL, message);
	if (ret == 0) {
		interval_set_free(have);
		*have = now;
	} else {
		interval_set_free(&now);
	}
	return ret;
}

/* Mark the damaged batches of a listed file, and update `have` of the stream. */
static int
mark_known(struct closed_files *k, const struct arrow_io_ops *io, const struct arrow_identity *id,
	struct closed_file *f, char message[PATH_MAX])
{
	struct interval_set lost = {0};
	size_t i;
	int ret;

	ret = interval_set_add_all(&lost, &f->have);
	if (ret == 0)
		ret = mark_file(io, id, f->path, &f->have, message);
	if (ret == 0)
		ret = interval_set_remove_all(&lost, &f->have);
	/* except batches that another file has */
	for (i = 0; i < k->nb && ret == 0; i++)
		ret = interval_set_remove_all(&lost, &k->file[i].have);
	if (ret == 0)
		ret = interval_set_remove_all(&k->have, &lost);
	interval_set_free(&lost);
	return ret;
}

/* Count the numbers of a set that are below n. */
static uint64_t
count_below(const struct interval_set *s, uint64_t n)
{
	uint64_t count = 0;
	size_t i;

	for (i = 0; i < s->nb && s->at[i].first < n; i++)
		count += (s->at[i].last < n ? s->at[i].last + 1 : n) - s->at[i].first;
	return count;
}

/* Truncate a file, and record its new name. */
static int
cut_to(struct closed_file *f, const struct arrow_io_ops *io, uint64_t from,
	struct arrow_recovery *report)
{
	int ret = arrow_cut_file(io, f->path, from, report);
	char *path;

	if (ret < 0)
		return ret;
	path = strdup(report->path);
	if (path == NULL)
		return -ENOMEM;
	free(f->path);
	f->path = path;
	return 0;
}

/* Remove batches that were found to be damaged during the truncation. */
static int
forget_damaged(struct closed_files *k, const struct arrow_io_ops *io, struct closed_file *f,
	char message[PATH_MAX])
{
	const struct arrow_identity whosever = {0};
	struct interval_set have = {0}, lost = {0};
	int ret = read_file(io, &whosever, f->path, &have, NULL, message);

	if (ret == 0)
		ret = interval_set_add_all(&lost, &f->have);
	if (ret == 0)
		ret = interval_set_remove_all(&lost, &have);
	if (ret == 0)
		ret = interval_set_remove_all(&k->have, &lost);
	if (ret == 0)
		ret = interval_set_remove_all(&f->have, &lost);
	interval_set_free(&lost);
	interval_set_free(&have);
	return ret;
}

int
closed_files_cut_file(struct closed_files *k, const struct arrow_io_ops *io, struct closed_file *f,
	uint64_t from, uint64_t *cut, char message[PATH_MAX])
{
	const uint64_t stay = count_below(&f->have, from);
	struct arrow_recovery report;
	const struct interval *gone;
	size_t i;
	int ret;

	ret = cut_to(f, io, from, &report);
	snprintf(message, PATH_MAX, "%.2000s: truncated at batch %" PRIu64 ": %.1000s", f->path,
		from, report.message);
	if (ret < 0)
		return ret;
	*cut += interval_set_count(&f->have) - stay;
	for (i = 0; i < f->have.nb && ret == 0; i++) {
		gone = &f->have.at[i];
		if (gone->last >= from)
			ret = interval_set_remove(
				&k->have, gone->first > from ? gone->first : from, gone->last);
	}
	if (ret == 0)
		ret = interval_set_remove(&f->have, from, UINT64_MAX - 1);
	if (ret == 0 && report.damaged > 0 && report.state == ARROW_RECOVERY_DONE)
		ret = forget_damaged(k, io, f, message);
	return ret;
}

/* Truncate a file that failed and could not be truncated then. */
static int
cut_rest(struct closed_file *f, const struct arrow_io_ops *io, char message[PATH_MAX])
{
	struct arrow_recovery report;
	int ret;

	ret = cut_to(f, io, f->have.nb > 0 ? f->have.at[f->have.nb - 1].last + 1 : 0, &report);
	if (ret < 0)
		snprintf(message, PATH_MAX,
			"%.2000s: may still have batches that were returned to the receiver: "
			"%.1000s",
			f->path, report.message);
	else
		f->uncut = false;
	return ret;
}

bool
closed_files_need_cut(const struct closed_files *k, const struct interval_set *moved)
{
	bool uncut = false;
	size_t i;

	for (i = 0; i < k->nb && !uncut; i++)
		uncut = k->file[i].uncut;
	return moved->nb > 0 && (uncut || interval_set_first_common(&k->have, moved) != UINT64_MAX);
}

/*
 * Truncate the files that are `uncut`, and complete them: copies can only be made from complete
 * files.
 */
static int
cut_rests(struct closed_files *k, const struct arrow_io_ops *io, char message[PATH_MAX])
{
	size_t i;
	int ret = 0;

	for (i = 0; i < k->nb && ret == 0; i++) {
		if (k->file[i].uncut || arrow_name_is_part(k->file[i].path))
			ret = cut_rest(&k->file[i], io, message);
	}
	return ret;
}

int
closed_files_only_copies(const struct closed_files *k, size_t file, uint64_t from,
	struct interval_set *alone, uint64_t *behind)
{
	size_t i;
	int ret = interval_set_add_all(alone, &k->file[file].have);

	if (ret == 0 && from > 0)
		ret = interval_set_remove(alone, 0, from - 1);
	*behind = interval_set_count(alone);
	for (i = 0; i < k->nb && ret == 0; i++) {
		if (i != file)
			ret = interval_set_remove_all(alone, &k->file[i].have);
	}
	return ret;
}

/* Copy the unique batches after the truncation point to a new file. */
static int
copy_alone(struct closed_files *k, const struct arrow_io_ops *io,
	const struct async_writer_config *slices, const struct arrow_identity *identity,
	size_t file, struct interval_set *alone, unsigned int above, char message[PATH_MAX])
{
	struct stream_contents contents = {0};
	char copy[PATH_MAX];
	int ret, error;

	if (above < closed_files_highest_number(k))
		above = closed_files_highest_number(k);
	ret = stream_copy(io, slices, identity, k->file[file].path, alone, above, copy, message);
	if (copy[0] == '\0')
		return ret;
	/* it lists more batches than the copy has */
	error = stream_contents_add_all(&contents, &k->file[file].contents);
	if (error == 0)
		error = closed_files_add(k, copy, alone, &contents, false);
	stream_contents_free(&contents);
	return ret == 0 ? error : ret;
}

unsigned int
closed_files_highest_number(const struct closed_files *k)
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
closed_files_cut(struct closed_files *k, const struct arrow_io_ops *io,
	const struct async_writer_config *slices, const struct arrow_identity *identity,
	const struct interval_set *moved, uint64_t *cut, char message[PATH_MAX])
{
	const size_t nb = k->nb; /* the copies are appended after these */
	const uint64_t before = interval_set_count(&k->have);
	uint64_t from, behind, gone = 0;
	size_t i;
	int ret;

	message[0] = '\0';
	ret = cut_rests(k, io, message);
	for (i = 0; i < nb && ret == 0; i++) {
		struct interval_set alone = {0};

		from = interval_set_first_common(&k->file[i].have, moved);
		if (from == UINT64_MAX)
			continue;
		/* a copy that was made before the truncation failed is a separate file */
		ret = closed_files_only_copies(k, i, from, &alone, &behind);
		if (ret == 0)
			ret = interval_set_remove_all(&alone, moved);
		if (ret == 0 && alone.nb > 0)
			ret = copy_alone(k, io, slices, identity, i, &alone, 0, message);
		interval_set_free(&alone);
		if (ret == 0)
			ret = closed_files_cut_file(k, io, &k->file[i], from, &gone, message);
	}
	/* the copies have batches that these files have lost */
	for (i = 0; i < k->nb; i++)
		ret = interval_set_add_all(&k->have, &k->file[i].have) < 0 ? -ENOMEM : ret;
	*cut += before - interval_set_count(&k->have);
	return ret;
}

/* Sequence numbers that an earlier and a later file both have. */
struct duplicates {
	struct interval_set both;    /* intact in both files */
	struct interval_set earlier; /* damaged in the earlier file */
	struct interval_set later;   /* damaged in the later file */
	/* intact in the earlier file only, and after the truncation point */
	struct interval_set save;
	uint64_t from; /* the truncation point: the first of `both` */
};

static void
free_duplicates(struct duplicates *d)
{
	interval_set_free(&d->both);
	interval_set_free(&d->earlier);
	interval_set_free(&d->later);
	interval_set_free(&d->save);
}

/*
 * Find the batches after the truncation point of which the earlier file has the only intact copy.
 * Damaged ones are added to those of the earlier file.
 */
static int
find_alone(const struct closed_files *k, size_t file, const struct arrow_io_ops *io,
	const struct interval_set *later, struct duplicates *d, char message[PATH_MAX])
{
	struct interval_set bad = {0}, of_later = {0};
	uint64_t bytes = 0, behind;
	int ret;

	ret = interval_set_add_all(&of_later, later);
	if (ret == 0)
		ret = interval_set_remove_all(&of_later, &d->later);
	if (ret == 0)
		ret = closed_files_only_copies(k, file, d->from, &d->save, &behind);
	if (ret == 0)
		ret = interval_set_remove_all(&d->save, &of_later);
	if (ret == 0)
		ret = check_file(io, k->file[file].path, &d->save, &bad, &bytes, message);
	if (ret == 0)
		ret = interval_set_remove_all(&d->save, &bad);
	if (ret == 0)
		ret = interval_set_add_all(&d->earlier, &bad);
	interval_set_free(&of_later);
	interval_set_free(&bad);
	return ret;
}

/* @return 1: there are duplicates; 0: none; -errno */
static int
find_duplicates(const struct closed_files *k, size_t file, const struct arrow_io_ops *io,
	const char *path, const struct interval_set *later, struct duplicates *d,
	char message[PATH_MAX])
{
	const struct closed_file *f = &k->file[file];
	uint64_t bytes = 0;
	int ret = common_of(&f->have, later, &d->both);

	d->from = UINT64_MAX;
	if (ret < 0 || d->both.nb == 0)
		return ret;
	ret = check_file(io, f->path, &d->both, &d->earlier, &bytes, message);
	if (ret == 0)
		ret = check_file(io, path, &d->both, &d->later, &bytes, message);
	if (ret == 0)
		ret = interval_set_remove_all(&d->both, &d->earlier);
	if (ret == 0)
		ret = interval_set_remove_all(&d->both, &d->later);
	if (ret == 0 && d->both.nb > 0) {
		d->from = d->both.at[0].first;
		ret = find_alone(k, file, io, later, d, message);
	}
	return ret < 0 ? ret : 1;
}

/*
 * Truncate an earlier file at the first batch that a later file also has, if both copies are
 * intact. That batch was refused when the earlier file failed, with all batches after it. But an
 * operator may have added the later file, so batches that no other file has are copied first. If
 * one of them was refused too, the receiver sends it again, and it is a duplicate, or reports it as
 * reassigned. A batch that is damaged in the earlier file was stored again. The copies are made
 * before the later file is marked, so that after a crash in between the same state is found again.
 */
static int
cut_given_back(struct closed_files *k, const struct arrow_io_ops *io,
	const struct async_writer_config *slices, const struct arrow_identity *identity,
	const char *path, struct interval_set *later, uint64_t *cut, char message[PATH_MAX])
{
	const size_t nb = k->nb; /* the copies are appended after these */
	struct duplicates d;
	size_t i;
	int ret;

	message[0] = '\0';
	ret = cut_rests(k, io, message);
	for (i = 0; i < nb && ret == 0; i++) {
		d = (struct duplicates){0};
		ret = find_duplicates(k, i, io, path, later, &d, message);
		if (ret <= 0) {
			free_duplicates(&d);
			continue;
		}
		ret = d.earlier.nb > 0 ? mark_known(k, io, identity, &k->file[i], message) : 0;
		if (ret == 0 && d.save.nb > 0)
			ret = copy_alone(k, io, slices, identity, i, &d.save,
				stream_copy_number(path), message);
		if (ret == 0 && d.from != UINT64_MAX)
			ret = closed_files_cut_file(k, io, &k->file[i], d.from, cut, message);
		/* another file is damaged; this one is intact and must be used */
		ret = ret == -EBADMSG ? -EUCLEAN : ret;
		if (ret == 0 && d.later.nb > 0)
			ret = mark_file(io, identity, path, later, message);
		free_duplicates(&d);
	}
	/* the copies have batches that these files have lost */
	for (i = nb; i < k->nb && ret == 0; i++)
		ret = interval_set_add_all(&k->have, &k->file[i].have);
	return ret;
}

int
closed_files_find_differing(const struct closed_files *k, char message[PATH_MAX])
{
	struct interval_set which = {0};
	size_t i, n;
	int ret = 0;

	snprintf(message, PATH_MAX, "cannot compare files: %s", strerror(ENOMEM));
	for (n = 1; n < k->nb && ret == 0; n++) {
		for (i = 0; i < n && ret == 0; i++) {
			ret = closed_files_differing(&k->file[i], &k->file[n], &which);
			if (ret < 0 || which.nb == 0)
				continue;
			snprintf(message, PATH_MAX,
				"%.1500s: %" PRIu64 " batches, the first is %" PRIu64 ", have "
				"other bytes than in %.1500s: no file of the stream is changed, "
				"and nothing is stored after them; find out which file is the "
				"receiver's, and move the other one away",
				k->file[n].path, interval_set_count(&which), which.at[0].first,
				k->file[i].path);
			ret = -ENOTUNIQ;
		}
	}
	interval_set_free(&which);
	return ret;
}

int
closed_files_list(struct closed_files *k, const struct arrow_io_ops *io,
	const struct arrow_identity *identity, const char *path, char message[PATH_MAX])
{
	struct stream_contents contents = {0};
	struct interval_set have = {0};
	int ret;

	message[0] = '\0';
	ret = read_file(io, identity, path, &have, &contents, message);
	if (ret == 0)
		ret = interval_set_add_all(&k->have, &have);
	if (ret == 0)
		ret = closed_files_add(k, path, &have, &contents, false);
	interval_set_free(&have);
	stream_contents_free(&contents);
	return ret;
}

int
closed_files_take(struct closed_files *k, const struct arrow_io_ops *io,
	const struct async_writer_config *slices, const struct arrow_identity *identity,
	struct closed_file *file, uint64_t *cut, char message[PATH_MAX])
{
	int ret;

	*cut = 0;
	ret = cut_given_back(k, io, slices, identity, file->path, &file->have, cut, message);
	ret = ret == -EBADMSG ? -EUCLEAN : ret;
	if (ret == 0)
		ret = interval_set_add_all(&k->have, &file->have);
	if (ret == 0)
		ret = closed_files_add(k, file->path, &file->have, &file->contents, false);
	return ret;
}

/* Verify the batches of one file that a peer holds. */
static int
check_known(struct closed_files *k, const struct arrow_io_ops *io, const struct arrow_identity *id,
	struct closed_file *f, const struct interval_set *held, bool mark,
	struct stream_checked *checked, char message[PATH_MAX])
{
	struct interval_set which = {0}, bad = {0};
	int ret = common_of(&f->have, held, &which);

	/* only complete files can be verified */
	if (ret == 0 && which.nb > 0 && (f->uncut || arrow_name_is_part(f->path)))
		ret = cut_rest(f, io, message);
	if (ret == 0 && which.nb > 0)
		ret = check_file(io, f->path, &which, &bad, &checked->bytes, message);
	checked->batches += interval_set_count(&which);
	if (ret == 0 && bad.nb > 0 && mark)
		ret = mark_known(k, io, id, f, message);
	else if (ret == 0)
		ret = interval_set_remove_all(&f->have, &bad);
	if (ret == 0)
		ret = interval_set_add_all(&checked->damaged, &bad);
	interval_set_free(&which);
	interval_set_free(&bad);
	return ret;
}

int
closed_files_check(struct closed_files *k, const struct arrow_io_ops *io,
	const struct arrow_identity *identity, const struct interval_set *held, bool mark,
	struct stream_checked *checked, char message[PATH_MAX])
{
	size_t i;
	int ret = 0;

	message[0] = '\0';
	for (i = 0; i < k->nb && ret == 0; i++)
		ret = check_known(k, io, identity, &k->file[i], held, mark, checked, message);
	/* another file may have an intact copy */
	for (i = 0; i < k->nb && ret == 0; i++)
		ret = interval_set_remove_all(&checked->damaged, &k->file[i].have);
	return ret == 0 ? interval_set_remove_all(&k->have, &checked->damaged) : ret;
}
