/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Record batches in memory, read one by one from a file that may still be written. A batch is whole
 * when its CRC is correct. Nothing of the file is mapped, so a file that is truncated meanwhile
 * does no harm. Everything is checked in the copy. The copy is in reused memory if possible
 * (memory.h), because page faults take longer than the copy. The CRC of a part is computed while
 * the part is in the cache. Any thread; references are counted atomically.
 *
 * Large chunks of images are not as close together as in the file: each begins at a multiple of
 * ARROW_BLOCK, so that it can be written with O_DIRECT from there.
 */
#ifndef SCAN_RECORD_H
#define SCAN_RECORD_H

#include <time.h>

#include "arrow/tables.h"
#include "scan/images.h"

/** Size of the largest batch that is read, bytes. A receiver's batches have about 256 MiB. */
#define SCAN_RECORD_MAX (UINT64_C(1) << 30)

/** The first block of a file: schema and metadata. */
struct scan_header {
	enum arrow_table table;
	unsigned int refs; /**< atomic */
	uint8_t *data;
	struct arrow_reader reader; /**< without batches */
};

/** A batch. */
struct scan_record {
	unsigned int refs;	    /**< atomic */
	struct scan_header *header; /**< a reference; NULL: of scan_record_load() */
	uint8_t *data;
	struct arrow_reader reader; /**< as that of the file, with this batch only */
	struct arrow_read_batch batch;
	struct scan_images images; /**< only of `images`, and with pixels: `has_images` */
	struct scan_peaks peaks;   /**< the same */
	bool has_images, has_peaks;
	bool is_small; /**< `data` has no pixels and is not from memory.h */
};

/** What is at an offset of a file. */
enum scan_record_state {
	SCAN_RECORD_NONE,    /**< nothing: zeros, or the end of the file */
	SCAN_RECORD_WHOLE,   /**< a batch with a correct CRC */
	SCAN_RECORD_PARTIAL, /**< an announced batch, whose body is wrong or not written yet */
	SCAN_RECORD_WRONG,   /**< something else, or a batch that cannot be read */
	SCAN_RECORD_END,     /**< the end of the stream: the file is complete */
};

/**
 * Read the first block of a file.
 * @param path     gives the stream whose batches the file may have (arrow/names.h)
 * @param problem  out, of -EBADMSG: what is wrong
 * @return 0; -ENODATA: not written yet, or damaged; -EBADMSG: not a file of this table, or one of
 *   an unknown format; -errno
 */
int scan_header_read(struct scan_header **header, int fd, const char *path, enum arrow_table table,
	const char **problem);

/** Add a reference. @return the argument @{ */
struct scan_header *scan_header_ref(struct scan_header *header);
struct scan_record *scan_record_ref(struct scan_record *record);
/** @} */

/** Drop a reference, and free what has none. The argument may be NULL. @{ */
void scan_header_drop(struct scan_header *header);
void scan_record_drop(struct scan_record *record);
/** @} */

/**
 * Look at an offset without reading a body. @param length  out, if PARTIAL: size of the batch
 * @return PARTIAL: a batch is announced; WHOLE is never returned
 */
enum scan_record_state scan_record_peek(
	const struct scan_header *header, int fd, uint64_t at, uint64_t *length);

/**
 * Read the batch at an offset.
 * @param record  out, if WHOLE: a reference
 * @param length  out, if WHOLE or PARTIAL: size of the batch
 */
enum scan_record_state scan_record_read(struct scan_record **record, struct scan_header *header,
	int fd, uint64_t at, uint64_t *length);

/**
 * Read a batch whose place is known, of a file of this or of another program. A CRC that is absent
 * is not checked, and columns may be damaged (`has_images`).
 * @param record  out: a reference
 * @param r       of this file, which must outlive the record; its batches may be mapped
 * @param b       a batch of `r`
 * @param room  bytes of minimum size of the memory. With the size of the largest batch, the memory
 *   of any batch can be reused for any other one
 * @return 0; -EBADMSG: wrong CRC, or another batch is there; -ENODATA: the file ends before;
 *         -ENOMEM, -errno
 */
int scan_record_load(struct scan_record **record, const struct arrow_reader *r,
	const struct arrow_read_batch *b, enum arrow_table table, int fd, uint64_t room);

/** Bytes of memory that a batch occupies. */
uint64_t scan_record_memory(const struct scan_record *r);

/**
 * Search the next batch, or the end of the stream, after damage.
 * @param at      in: where to begin; out: what was found, or where to continue
 * @param blocks  number of blocks to search; each takes a system call
 * @return 1: found; 0: not in these blocks; -ENODATA: the file ends before
 */
int scan_record_search(const struct scan_header *header, int fd, uint64_t *at, uint64_t blocks);

/** State of a file when it was last seen to change. Zeros: it was not examined yet. */
struct scan_change {
	int64_t size;		 /**< bytes */
	struct timespec written; /**< time of the last change of its content */
	int64_t seen_ns;	 /**< CLOCK_MONOTONIC */
};

/** A file without a footer is still copied if it changed within this time, ms. */
#define SCAN_SETTLED_MS 2000

/**
 * Whether a file that has its final name is complete. The name alone is no proof, because a file
 * may be copied to this name. The file is complete if it has the footer of an Arrow file, or if no
 * call saw it change for SCAN_SETTLED_MS.
 * @param change  of this file, for the next call
 */
bool scan_file_settled(struct scan_change *change, int fd);

/**
 * Copy a batch without the columns row_ptr, col, value and raw, which then cannot be read. The
 * metadata, and other columns such as the peaks, are those of the batch.
 * @return a reference; NULL: out of memory
 */
struct scan_record *scan_record_without_pixels(const struct scan_record *record);

#endif /* SCAN_RECORD_H */
