/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Rows of `frames` and `images` out of frame records, collected into record batches.
 *
 * A record is copied once, from its output slot into growing columns, so that slot and record can
 * go back at once. One thread per builder; no lock, no allocation after batch_builder_create().
 * With several sets of columns a batch is written from where it was made while the next one grows.
 *
 * Where batches are cut depends on the rows alone, never on time or on batches written before, so
 * that the same frames give the same files, unless batch_builder_flush() is called in between:
 *  - batch k of a table holds rows with frame numbers [k x interval, (k + 1) x interval); an
 *    interval without rows makes no batch. A batch of images ends with the first frame of another
 *    interval whether that is kept or not;
 *  - rows of a batch ascend strictly: a frame number that does not (a detector started again)
 *    starts another batch;
 *  - before a batch of frames is emitted, the images of its frames are: a batch of images ends
 *    where one of frames does;
 *  - a row starts another batch if it would take the current one beyond byte_limit, or a column
 *    beyond 2^31 - 1 items or bytes. A row counts what it holds; a raw frame counts its bound
 *    (bitshuffle_bound()), however well it compresses. A single row may be larger than the limit.
 */
#ifndef BATCH_BUILDER_H
#define BATCH_BUILDER_H

#include <sys/uio.h>

#include "arrow/tables.h"
#include "frame_record.h"

#define BATCH_FRAMES_INTERVAL 1024
#define BATCH_IMAGES_INTERVAL 64
#define BATCH_INTERVAL_MAX    (1 << 20)
#define BATCH_BYTE_LIMIT      (256u << 20)
#define BATCH_AHEAD	      (64u << 20)

#define BATCH_SETS_MAX 8

/** A record batch; the structure is valid until batch_emit returns, its bytes as `lasting` says. */
struct batch {
	enum arrow_table table;
	const uint8_t *metadata; /**< page-aligned, with prefix */
	uint32_t metadata_size;	 /**< a multiple of ARROW_BLOCK */
	/** Buffers that are not empty: of frames one for each column, in their order. Of images
	 * every part but gaps starts at a page */
	const struct iovec *body;
	unsigned int nb_body;
	uint64_t body_length; /**< a multiple of ARROW_BLOCK */
	uint64_t rows;
	uint64_t first; /**< frame numbers */
	uint64_t last;
	int64_t received; /**< receive_time of the last row; 0: unknown */
	uint64_t sequence;
	uint32_t crc32c;
	bool lasting; /**< metadata and body stay until batch_reclaim is called for `set`; false:
			       until batch_emit returns */
	unsigned int set; /**< of columns, of this table */
};

/** Takes a batch that is complete; what becomes of it is its own matter. */
typedef void (*batch_emit)(void *arg, const struct batch *batch);

/** Returns when nobody reads a set of a table's columns any more: it is about to be overwritten. */
typedef void (*batch_reclaim)(void *arg, enum arrow_table table, unsigned int set);

struct batch_builder_config {
	struct gk_geometry geometry;
	struct gk_layout layout;
	enum gk_value value;
	const struct arrow_tables *tables; /**< must outlive the builder */
	uint64_t producer;
	uint64_t run;
	uint64_t incarnation;
	const uint8_t *outputs;	  /**< output slot 0, as the CPU addresses it */
	uint32_t nb_outputs;	  /**< output slots */
	uint32_t frames_interval; /**< 0: BATCH_FRAMES_INTERVAL */
	uint32_t images_interval; /**< 0: BATCH_IMAGES_INTERVAL */
	uint64_t byte_limit;	  /**< 0: BATCH_BYTE_LIMIT */
	batch_emit emit;
	batch_reclaim reclaim; /**< NULL: batches do not last */
	unsigned int sets; /**< of columns, at most BATCH_SETS_MAX; 0: 1. More than 1: reclaim */
	/** Bytes on their way that keep the disk busy while a batch grows: of large batches fewer
	 * sets are used, but two; a set takes memory when it is used first. 0: BATCH_AHEAD */
	uint64_t ahead;
	void *arg;
};

struct batch_builder;

/**
 * @return 0
 *   - -EINVAL: intervals beyond BATCH_INTERVAL_MAX, no emit, tables of another raster, sets
 *   - -ENOMEM, or -errno of mmap(2)
 */
int batch_builder_create(struct batch_builder **builder, const struct batch_builder_config *config);

void batch_builder_destroy(struct batch_builder *builder);

/**
 * Add a frame to `frames`, and to `images` if it was kept. May emit batches before.
 * The record and its output slot are free when this returns.
 * @return 0
 *   - -EINVAL: kept, but without a usable output (no slot, kind, or more pixels than fit): the
 *     frame has its row in `frames` only, with FRAME_FLAG_NO_IMAGE
 */
int batch_builder_add(struct batch_builder *builder, const struct frame_record *record);

/** What bitshuffle_compress() makes of a raw frame. */
struct batch_chunk {
	const uint8_t *bytes;
	size_t size;
};

/** The same for a raw frame that is compressed already: its output slot is not read. */
int batch_builder_add_packed(struct batch_builder *builder, const struct frame_record *record,
	const struct batch_chunk *chunk);

/**
 * Images of these frames have been emitted, and refused: rows of theirs that have not been emitted
 * say so (FRAME_FLAG_NO_IMAGE). May be called by batch_emit for the batch of images that it is
 * about: all its rows are still here.
 */
void batch_builder_disown(struct batch_builder *builder, uint64_t first, uint64_t last);

/** Rows of `frames` that have not been emitted: no image waits without one. */
uint64_t batch_builder_rows(const struct batch_builder *builder);

/** Emit what has been collected, images first. The next row starts another batch. */
void batch_builder_flush(struct batch_builder *builder);

#endif /* BATCH_BUILDER_H */
