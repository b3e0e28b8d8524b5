/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Builds record batches of the tables `frames` and `images` from frame records.
 *
 * A record is copied once, from its output slot and its profile to the end of growing columns, so
 * that record, slot and profile can be reused immediately. Alternatively, the bytes of an image are
 * copied row by row to memory of the caller, and are not copied again: the body then lists them as
 * parts, column by column. The bytes of a chunk, and the values of a full image or of CSR data,
 * need not be copied at all: batch_builder_refer() adds a row that refers to them in their output
 * slot. The other bytes of CSR data then stay in the slot, too, until batch_emit copies them. One
 * thread per builder. There is no lock, and no allocation after batch_builder_create(). With
 * several sets of columns a batch is written in place while the next one grows.
 *
 * The batch boundaries depend on the rows only, not on time or on earlier batches. The same frames
 * therefore produce the same files, unless batch_builder_flush() is called in between:
 *  - Batch k of a table holds the rows with frame numbers in [k x interval, (k + 1) x interval). An
 *    interval without rows has no batch. A batch of images ends with the first frame of another
 *    interval, whether that frame is kept or not.
 *  - The frame numbers of a batch are strictly ascending. A frame number that is not higher than
 *    the last (after a restart of the detector) starts a new batch.
 *  - Before a batch of frames is emitted, the images of its frames are emitted: a batch of images
 *    also ends where a batch of frames ends.
 *  - A row starts a new batch if it would take the current batch beyond byte_limit, or a column
 *    beyond 2^31 - 1 items or bytes. A row counts its size. A chunk counts its upper bound
 *    (gk_bitshuffle_bound()), independent of the compression. A single row may exceed the limit.
 *  - References end no batch: rows that follow the last reference that a batch can have are copied.
 *    The bytes of a body do not depend on which of its rows are references.
 *
 * Raw frames are chunks, and full images if the tables say so (arrow_tables.chunks).
 */
#ifndef ARROW_BATCH_H
#define ARROW_BATCH_H

#include <sys/uio.h>

#include "arrow/tables.h"
#include "frame_record.h"

#define BATCH_FRAMES_INTERVAL 1024
#define BATCH_IMAGES_INTERVAL 64
#define BATCH_INTERVAL_MAX    (1 << 20)
#define BATCH_BYTE_LIMIT      (256u << 20)
#define BATCH_AHEAD	      (64u << 20)

#define BATCH_SETS_MAX 8

/**
 * Maximum number of parts of a body that is in memory of batch_place. Adjacent parts that are not
 * in this memory count as one. A row of CSR data has three parts, so this is enough for the
 * BATCH_FRAMES_INTERVAL rows that a batch has at most, unless frames_interval is larger. Rows
 * beyond the limit are copied to memory of the builder.
 */
#define BATCH_PLACE_PARTS 3328

/** A record batch. The structure is valid until batch_emit returns; for its bytes see `lasting`. */
struct batch {
	enum arrow_table table;
	const uint8_t *metadata; /**< page-aligned, including the prefix */
	uint32_t metadata_size;	 /**< a multiple of ARROW_BLOCK */
	/**
	 * The non-empty buffers, in the order of the body. Of `frames`, one per column, in order,
	 * up to `pedestal_version`. Of `images`, each part starts at a page, except references,
	 * padding, parts in memory of batch_place and the parts of `row_ptr` and `col` that are in
	 * output slots: they follow one another. The body begins with the column with most of the
	 * bytes, if it is not empty: `raw` if the first row is a chunk, otherwise `value`. This
	 * column consists of the references or of its parts in memory of batch_place, followed by
	 * one part with the rows that were copied to memory of the builder and the padding, if
	 * there are any.
	 */
	const struct iovec *body;
	unsigned int nb_body;
	/** parts at the beginning of the body that are in output slots, one per row; 0: none */
	unsigned int nb_references;
	/** the output slots of these parts, which belong to the receiver of the batch */
	const uint32_t *slots;
	uint64_t body_length; /**< a multiple of ARROW_BLOCK */
	uint64_t rows;
	uint64_t first; /**< frame numbers of the first and the last row */
	uint64_t last;
	int64_t received; /**< receive_time of the last row; 0: unknown */
	uint64_t sequence;
	uint32_t crc32c;
	/** of `images`: bytes of `row_ptr`, `col`, `value` and `raw`, without padding */
	uint64_t kept_bytes;
	/**
	 * number of times that a CPU copies one of these bytes on its way from the output slot: to
	 * memory of the builder or of batch_place, and from memory of the builder if the batch is
	 * not lasting. References are not copied. Values that the builder compresses are written to
	 * this memory, not copied
	 */
	uint64_t copied_bytes;
	/**
	 * true: metadata and body stay valid until batch_reclaim is called for `set`; false: until
	 * batch_emit returns
	 */
	bool lasting;
	unsigned int set; /**< set of columns of this table that holds the batch */
};

/** Receives a complete batch. The builder does not depend on what the callback does with it. */
typedef void (*batch_emit)(void *arg, const struct batch *batch);

/** Called before a set of columns is overwritten. Returns once the set is no longer read. */
typedef void (*batch_reclaim)(void *arg, enum arrow_table table, unsigned int set);

/**
 * Called for the first row of a batch of images, unless the row is a reference. `row_ptr`, `col`,
 * `value` and `raw` of the rows are copied to the returned memory, one after the other, from its
 * start on. batch_emit finds the parts of the body there by their addresses, and may copy the other
 * parts after them. When batch_emit returns, the builder has finished with the memory.
 * @param size  bytes that these columns may need
 * @return NULL: the batch is built in the builder's memory
 */
typedef uint8_t *(*batch_place)(void *arg, uint64_t size);

struct batch_builder_config {
	struct gk_geometry geometry;
	struct gk_layout layout;
	enum gk_value value;
	const struct arrow_tables *tables; /**< must outlive the builder */
	uint64_t receiver_id;
	uint64_t run;
	uint64_t incarnation;
	const uint8_t *outputs; /**< CPU address of output slot 0 */
	uint32_t nb_outputs;	/**< number of output slots */
	/** tables with peaks: panels that the peaks refer to; must outlive the builder */
	const struct gk_peak_panel *panels;
	uint32_t nb_panels;
	/** tables with profiles: areas at a distance of gk_profile_stride(); CPU address */
	const uint8_t *profiles;
	uint32_t nb_profiles;
	uint32_t frames_interval; /**< 0: BATCH_FRAMES_INTERVAL */
	uint32_t images_interval; /**< 0: BATCH_IMAGES_INTERVAL */
	uint64_t byte_limit;	  /**< 0: BATCH_BYTE_LIMIT */
	batch_emit emit;
	batch_reclaim reclaim; /**< NULL: batches are not lasting */
	batch_place place;     /**< NULL: not used. Requires no `reclaim` */
	/**
	 * maximum number of output slots that a batch refers to; 0: batch_builder_refer() copies.
	 * Requires no `reclaim`
	 */
	uint32_t references;
	/** sets of columns, at most BATCH_SETS_MAX; 0: 1. More than 1 require `reclaim` */
	unsigned int sets;
	/**
	 * Bytes in flight that keep the disk busy while a batch grows. If batches are large, fewer
	 * sets are used, but at least two. A set allocates memory at its first use. 0: BATCH_AHEAD
	 */
	uint64_t ahead;
	void *arg;
};

struct batch_builder;

/**
 * @return 0
 *   - -EINVAL: an interval beyond BATCH_INTERVAL_MAX, no `emit`, `place` or `references` with
 *     `reclaim`, tables of another raster, or an invalid number of sets
 *   - -ENOMEM, or -errno of mmap(2)
 */
int batch_builder_create(struct batch_builder **builder, const struct batch_builder_config *config);

void batch_builder_destroy(struct batch_builder *builder);

/**
 * Add a frame to `frames`, and to `images` if it was kept. May emit batches first. The record and
 * its output slot can be reused when this returns. An image that is stored as a chunk is
 * compressed, unless the output already is a chunk (frame_record.chunk_bytes).
 * @return 0
 *   - -EINVAL: the frame was kept, but its output is unusable (no slot, unknown kind, too many
 *     pixels, a chunk that exceeds the slot or is not allowed, or a peak in no panel). The frame
 *     has only a row in `frames`, with FRAME_FLAG_NO_IMAGE
 */
int batch_builder_add(struct batch_builder *builder, const struct frame_record *record);

/** Values of a frame as compressed by gk_bitshuffle_compress(). */
struct batch_chunk {
	const uint8_t *bytes;
	size_t size;
};

/**
 * As batch_builder_add(), for a chunk that is already compressed. Only the peaks of its output
 * slot are read.
 */
int batch_builder_add_packed(struct batch_builder *builder, const struct frame_record *record,
	const struct batch_chunk *chunk);

/**
 * As batch_builder_add(), without a copy of the frame's chunk, or of its values if it is not a
 * chunk: the batch refers to them in the output slot, which belongs to the batch from then on.
 * `row_ptr` and `col` of CSR data are read there when the batch is emitted, unless the batch has
 * copied bytes of these columns. May emit batches first. The CRC of the chunk is
 * frame_record.chunk_crc32c; the CPU computes that of other values.
 * @return 1: the batch refers to the slot. Otherwise as batch_builder_add(), and the slot can be
 *   reused: the frame has no image, or it was copied because it has no value or is not compressed
 *   yet, because the batch has copied bytes of this column or begins with another column, or
 *   because the batch already has `references` references
 */
int batch_builder_refer(struct batch_builder *builder, const struct frame_record *record);

/**
 * Mark frames whose images were emitted but refused: their rows that are not yet emitted get
 * FRAME_FLAG_NO_IMAGE. batch_emit may call this for the batch of images that it was called for,
 * since the rows of its frames have not been emitted yet.
 */
void batch_builder_disown(struct batch_builder *builder, uint64_t first, uint64_t last);

/** @return number of rows of `frames` that are not emitted. No image waits without such a row. */
uint64_t batch_builder_rows(const struct batch_builder *builder);

/** Emit the collected rows, images first. The next row starts a new batch. */
void batch_builder_flush(struct batch_builder *builder);

#endif /* ARROW_BATCH_H */
