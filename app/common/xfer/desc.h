/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The descriptors of batches. A receiver builds them; a store copies and checks them.
 *
 * A store trusts nothing in a descriptor. It checks the values in its own copy. It then generates
 * the whole metadata from these values with the stream's own template (arrow/schema.h), and refuses
 * metadata that differ in any byte. A peer can therefore choose the bytes of bodies, but no other
 * bytes of a file, and the store parses no Arrow metadata here. There is no allocation after init.
 */
#ifndef XFER_DESC_H
#define XFER_DESC_H

#include "arrow/schema.h"
#include "xfer/seal.h"

static_assert(XFER_BLOCK == ARROW_BLOCK, "bodies are written as they are");

/** What all batches of one table on one connection have in common. One thread at a time. */
struct xfer_stream {
	struct arrow_identity identity;
	const struct arrow_schema *schema; /**< of the owner; must outlive this structure */
	struct arrow_template template;
	uint64_t session_id;
	struct xfer_seal *seal; /**< of the end that sends; must outlive this structure */
	uint64_t body_max;	/**< size of the largest body, bytes */
	uint8_t table;		/**< enum arrow_table */
	/** of the template, or of the first batch that was described; 0: not known yet */
	uint32_t metadata_bytes;
	/** buffer of xfer_desc_check() for the metadata that the template generates */
	uint8_t *made;
};

/** Why a descriptor is refused. Each fault has a counter. */
enum xfer_desc_fault {
	XFER_DESC_GOOD,
	/** wrong magic, version, reserved bytes, table or CRC of the descriptor */
	XFER_DESC_GARBAGE,
	/** the code is wrong: the descriptor was changed or inserted in transit */
	XFER_DESC_MAC,
	/** the slot is not that of the immediate, or the session is that of another connection */
	XFER_DESC_SLOT,
	XFER_DESC_IDENTITY, /**< receiver, run or incarnation of another stream */
	XFER_DESC_SEQUENCE, /**< the sequence or another number is out of range */
	XFER_DESC_LENGTH,   /**< body or metadata larger than its slot, not in whole blocks, ... */
	XFER_DESC_METADATA, /**< the metadata differ from what the template generates */
	XFER_DESC_FAULTS
};

/** @return name of a fault for counters, e.g. `garbage` */
const char *xfer_desc_fault_name(enum xfer_desc_fault fault);

/**
 * Initialize the state of a table.
 * @param schema    schema of the table; the pointer is kept
 * @param identity  its table must be a static string
 * @param seal      of the connection: of its sender
 * @return 0; -ENOMEM; -EINVAL: not a schema of this program, or more than XFER_BLOCK bytes of
 *   metadata
 */
int xfer_stream_init(struct xfer_stream *s, uint8_t table, const struct arrow_schema *schema,
	const struct arrow_identity *identity, uint64_t session_id, struct xfer_seal *seal,
	uint64_t body_max);

void xfer_stream_free(struct xfer_stream *s);

/** The values of a descriptor, in addition to those of struct arrow_batch. */
struct xfer_batch {
	uint64_t sequence;
	uint64_t rows;
	uint64_t first; /**< frame numbers */
	uint64_t last;
	int64_t received; /**< ns since 1970; 0: unknown */
	uint64_t body_bytes;
	uint32_t body_crc32c;
	uint32_t entry;
	uint32_t flags;	      /**< enum xfer_desc_flag */
	uint32_t copy_crc32c; /**< XFER_COPY_CHECKED: of the receiver's copy of the body; else 0 */
};

/** Return the CRC with which the body leaves the receiver, as far as the receiver knows. */
static inline uint32_t
xfer_batch_sent_crc(const struct xfer_batch *b)
{
	return (b->flags & XFER_COPY_CHECKED) != 0 ? b->copy_crc32c : b->body_crc32c;
}

/**
 * Fill the descriptor of a batch. The first XFER_DESC_METADATA_BYTES of the metadata follow it
 * unchanged.
 * @param metadata  XFER_BLOCK bytes from arrow_template_patch(). All batches of a template have the
 *   same number of bytes up to the last nonzero one
 * @return 0; -EMSGSIZE: the metadata do not fit after the descriptor, or the body is larger than
 *   body_max; -EIO: libcrypto
 */
int xfer_desc_fill(struct xfer_stream *s, const struct xfer_batch *batch, const uint8_t *metadata,
	struct xfer_descriptor *descriptor);

/**
 * Copy a descriptor once, and check the copy.
 *
 * @param s         the table that the descriptor must name
 * @param entry     slot, which the peer can write to at any time
 * @param index     slot number from the immediate
 * @param batch     out, on success
 * @param metadata  out: XFER_BLOCK bytes. They must be zeros, or come from an earlier success on
 *   this stream: bytes beyond the template stay zeros. On success, the metadata for the file; on
 *   error, zeros
 */
enum xfer_desc_fault xfer_desc_check(struct xfer_stream *s, const struct xfer_desc *entry,
	uint32_t index, struct xfer_batch *batch, uint8_t *metadata);

#endif /* XFER_DESC_H */
