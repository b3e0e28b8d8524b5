/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * A record batch of `images` in memory, read from a file that may still be written. Nothing of the
 * file is mapped: a file that is truncated meanwhile does no harm. Everything is checked in the
 * copy.
 */
#ifndef PUBLISH_RECORD_H
#define PUBLISH_RECORD_H

#include "scan/images.h"

/** Size of the largest batch that is read, bytes. A receiver's batches have about 256 MiB. */
#define RECORD_MAX (UINT64_C(1) << 30)

/** The first block of a file: schema and metadata. */
struct record_header {
	unsigned int refs; /**< atomic */
	uint8_t *data;
	struct arrow_reader reader; /**< without batches */
};

/** A batch. It has a reference of its header. */
struct record {
	unsigned int refs; /**< atomic */
	struct record_header *header;
	uint8_t *data;
	struct arrow_reader reader; /**< as that of the header, with this batch only */
	struct arrow_read_batch batch;
	struct scan_images images;
	struct scan_peaks peaks;
	bool has_peaks;
};

/** What is at an offset of a file. */
enum record_state {
	RECORD_NONE,	/**< nothing: zeros, or the end of the file */
	RECORD_WHOLE,	/**< a batch with a correct CRC */
	RECORD_PARTIAL, /**< an announced batch, whose body is wrong or not written yet */
	RECORD_WRONG,	/**< something else, or a batch that cannot be read */
	RECORD_END,	/**< the end of the stream: the file is complete */
};

/**
 * Read the first block of a file.
 * @param path  gives the stream whose batches the file may have (arrow/names.h)
 * @return 0; -ENODATA: not written yet, or damaged; -EBADMSG: not a file of `images`; -errno
 */
int record_header_read(struct record_header **header, int fd, const char *path);

/** Add a reference. @return the argument @{ */
struct record_header *record_header_ref(struct record_header *header);
struct record *record_ref(struct record *record);
/** @} */

/** Drop a reference, and free what has none. The argument may be NULL. @{ */
void record_header_drop(struct record_header *header);
void record_drop(struct record *record);
/** @} */

/**
 * Look at an offset without reading a body. @param length  out, if PARTIAL: size of the batch
 * @return PARTIAL: a batch is announced; WHOLE is never returned
 */
enum record_state record_peek(
	const struct record_header *header, int fd, uint64_t at, uint64_t *length);

/**
 * Read the batch at an offset.
 * @param record  out, if WHOLE: a reference
 * @param length  out, if WHOLE or PARTIAL: size of the batch
 */
enum record_state record_read(struct record **record, struct record_header *header, int fd,
	uint64_t at, uint64_t *length);

#endif /* PUBLISH_RECORD_H */
