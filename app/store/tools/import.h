/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Batches that a receiver has spilled to files, or that are held in a journal that it has
 * left, into the files of a store's directory. What is there already is not stored again, so it can
 * be done again whenever it was interrupted. A source is removed, or its batches released, once
 * what it has is durable. What is there already counts only if its body is right where it is: each
 * is read, and one that is damaged is stored again. One thread.
 */
#ifndef IMPORT_H
#define IMPORT_H

#include "arrow/reader.h"
#include "journal/journal.h"
#include "stream/writer.h"

/** What has become of batches. */
struct import_counts {
	uint64_t stored;
	uint64_t doubles; /**< that were there */
	uint64_t failed;  /**< that stay where they are */
	uint64_t rotten;  /**< that were there, and damaged */
};

/** A stream that is imported. */
struct import_stream {
	struct arrow_identity identity;
	char run[XFER_NAME_BYTES];
	char dir[PATH_MAX];
	uint8_t *header; /**< first blocks of its files */
	uint64_t header_size;
	struct arrow_reader reader; /**< of the header */
	struct stream_writer *writer;
};

struct import {
	const char *root;		   /**< directory of the store, which holds it for us */
	struct arrow_slices_config slices; /**< of the files that are written */
	bool keep;			   /**< rename sources to `.imported` */
	/** What was done, or is wrong. */
	void (*say)(void *arg, bool error, const char *text);
	void *arg;
	struct import_counts counts;
	struct import_stream **stream;
	size_t nb;
	struct journal *ring; /**< that batches come out of now; NULL: a file */
};

/** @param s  root, slices, keep, say, arg are set, all else is zero */
void import_free(struct import *s);

/**
 * A complete file. It goes if all that it has is stored.
 * @return 0; -errno: it stays, and the reason has been said
 */
int import_file(struct import *s, const char *path);

/**
 * What is held in a ring. What is stored is released; nobody is to be told what went elsewhere
 * (left_rings_forget()).
 * @return 0; -errno: some of it is still held, and the reason has been said
 */
int import_ring(struct import *s, struct journal *ring);

#endif /* IMPORT_H */
