/* SPDX-License-Identifier: BSD-3-Clause */
/* The contents of a store's files on the disk in memory (arrow_disk.h). Include cmocka.h before. */
#ifndef STREAM_DISK_H
#define STREAM_DISK_H

#include "../arrow/arrow_disk.h"
#include "recovery/recovery.h"
#include "../xfer/xfer_sample.h"

static inline bool
has_end(const char *name, const char *end)
{
	const size_t n = strlen(name), e = strlen(end);

	return n > e && strcmp(name + n - e, end) == 0;
}

/*
 * Complete the files that a crash has left, as a store does at its start; a file's name is its
 * path.
 */
static inline void
recover_all(void)
{
	struct arrow_recovery report;
	char path[80];
	unsigned int i;

	for (i = 0; i < disk->nb_files; i++) {
		snprintf(path, sizeof(path), "/%s", disk->file[i].name);
		if (has_end(path, ".part") && arrow_recover_file(&disk_io, path, &report) < 0)
			/* the header was lost: the file held nothing durable */
			assert_int_equal(report.state, ARROW_RECOVERY_FAILED);
	}
}

static inline int
by_name(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Whether a file is complete and not hidden, as stores, verify and reconcile see files. */
static inline bool
is_seen(const struct disk_file *f)
{
	return f->name[0] != '.' && has_end(f->name, ".arrow");
}

/* List the complete files, sorted by name. */
static inline unsigned int
list_complete(const char *sorted[DISK_FILES])
{
	static char path[DISK_FILES][80];
	unsigned int i, n = 0;

	for (i = 0; i < disk->nb_files; i++) {
		if (!is_seen(&disk->file[i]))
			continue;
		snprintf(path[n], sizeof(path[n]), "/%s", disk->file[i].name);
		sorted[n] = path[n];
		n++;
	}
	qsort(sorted, n, sizeof(sorted[0]), by_name);
	return n;
}

/* How many times a batch is in complete files. The CRCs of these must be right. */
static inline unsigned int
times_in_files(const struct xfer_sample *s, enum arrow_table table, unsigned int batch)
{
	const uint64_t sequence = s->batch[table][batch].batch.sequence;
	unsigned int i, n = 0;
	const char *problem;
	struct arrow_reader r;
	size_t k;

	for (i = 0; i < disk->nb_files; i++) {
		if (!is_seen(&disk->file[i]))
			continue;
		assert_int_equal(arrow_reader_open_memory(
					 &r, disk->file[i].data, disk->file[i].size, &problem),
			0);
		assert_true(r.complete);
		for (k = 0; k < r.nb_batches; k++) {
			if (strtoull(r.batches[k].sequence, NULL, 16) != sequence)
				continue;
			n++;
			assert_int_equal(arrow_reader_crc(&r, k), 1);
			assert_memory_equal(r.batches[k].body, s->batch[table][batch].body,
				r.batches[k].body_length);
		}
		arrow_reader_close(&r);
	}
	return n;
}

#endif /* STREAM_DISK_H */
