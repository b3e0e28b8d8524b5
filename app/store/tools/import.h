/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Imports batches from spilled files of a receiver, or from an orphaned journal, into a store's
 * directory. Batches that the store has are not stored again, so an interrupted import can be
 * repeated. Once its batches are durable, a file is removed, and batches of a journal are released.
 * A batch counts as present only if its body in the store is intact: each body is read, and a
 * damaged one is stored again.
 *
 * A batch of a source is the same as a stored one only if both have the same content
 * (stream/content.h). Sources are compared with the store, and with each other, before the first
 * batch is stored. If a batch differs, nothing of its run is imported. Nor is a run that the store
 * has under another name. The mark that a run has ended is imported with its files.
 *
 * One thread.
 */
#ifndef IMPORT_H
#define IMPORT_H

#include "arrow/reader.h"
#include "journal/journal.h"
#include "stream/closed_files.h"
#include "stream/writer.h"

/** Outcomes of batches. */
struct import_counts {
	uint64_t stored;
	uint64_t duplicates; /**< batches that the store already had */
	uint64_t failed;     /**< batches that stay in their source */
	uint64_t damaged;    /**< batches that the store had, but damaged */
};

/** A stream that is being imported. */
struct import_stream {
	struct arrow_identity identity;
	char run[XFER_NAME_BYTES];
	char dir[PATH_MAX];
	uint8_t *header; /**< first blocks of its files */
	uint64_t header_size;
	struct arrow_reader reader; /**< of the header */
	struct stream_writer *writer;
	struct closed_files sources; /**< the files that were compared */
	/** nothing of it is imported, for a reason that was reported; writer may be NULL */
	bool refused;
};

struct import {
	const char *root;		   /**< directory of the store; the caller holds its lock */
	struct async_writer_config slices; /**< for the files that are written */
	/** rename sources to `.imported` instead of removing them */
	bool keep;
	/** Reports actions and problems. */
	void (*say)(void *arg, bool error, const char *text);
	void *arg;
	struct import_counts counts;
	struct import_stream **stream;
	size_t nb;
	bool compared; /**< import_compare_end() was called: no stream is added any more */
	struct journal *journal; /**< journal that batches are being read from; NULL: a file */
};

/** @param s  root, slices, keep, say and arg are set, all else is zero */
void import_free(struct import *s);

/**
 * Compare a file with what the store has, before any import. If it differs, its stream is refused.
 * @return 0; -errno: it could not be compared, and the reason was reported
 */
int import_compare_file(struct import *s, const char *path);

/** Compare the held batches of a journal, as import_compare_file(), after the files. */
int import_compare_journal(struct import *s, struct journal *journal);

/** Compare the sources with each other. @return 0; -ENOTUNIQ: some differ; -ENOMEM */
int import_compare_sources(struct import *s);

/** End the comparison: all of a run is refused if one of its streams was. */
void import_compare_end(struct import *s);

/**
 * After import_compare_end(): whether no batch of a run will be imported.
 * @param arg  the struct import
 */
bool import_is_kept(void *arg, const struct arrow_identity *identity);

/**
 * Import a complete file. It is removed if all its batches are stored.
 * @return 0; -errno: the file stays, and the reason was reported
 */
int import_file(struct import *s, const char *path);

/**
 * Import the held batches of a journal. Stored batches are released. No store may still have to be
 * notified of reassigned batches (orphaned_journals_forget()).
 * @return 0; -errno: some batches are still held, and the reason was reported
 */
int import_journal(struct import *s, struct journal *journal);

#endif /* IMPORT_H */
