/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Entries of the metadata ring: made by a receiver, copied and checked by a store.
 *
 * A store trusts nothing in an entry. Its numbers are taken out of the copy and checked, and then
 * the whole metadata are made again out of them by the stream's own template (arrow/schema.h):
 * what is not byte for byte the same is refused. So no bytes of a peer's choice get into a file
 * but those of bodies, and nothing of Arrow is parsed here. No allocation after init.
 */
#ifndef XFER_DESC_H
#define XFER_DESC_H

#include "arrow/schema.h"
#include "xfer/proto.h"

static_assert(XFER_BLOCK == ARROW_BLOCK, "bodies are written as they are");

/** What the batches of one table on one connection have in common. One thread at a time. */
struct xfer_stream {
	struct arrow_identity identity;
	const struct arrow_schema *schema; /**< the owner's; outlives this */
	struct arrow_template template;
	uint64_t session_id;
	uint64_t body_max;	 /**< bytes */
	uint8_t table;		 /**< enum arrow_table */
	uint32_t metadata_bytes; /**< of the template, or of the first one described; 0: none */
	uint8_t *made;		 /**< for xfer_desc_check(): what our template makes of one */
};

/** Why an entry is refused; each is a counter. */
enum xfer_desc_fault {
	XFER_DESC_GOOD,
	XFER_DESC_GARBAGE,  /**< magic, version, reserved bytes, table, CRC of the descriptor */
	XFER_DESC_SLOT,	    /**< another entry than the immediate named, another connection */
	XFER_DESC_IDENTITY, /**< producer, run, incarnation of somebody else */
	XFER_DESC_SEQUENCE, /**< a number that cannot be */
	XFER_DESC_LENGTH,   /**< body or metadata longer than their places, not whole blocks, ... */
	XFER_DESC_METADATA, /**< metadata that are not what its numbers make */
	XFER_DESC_FAULTS
};

/** @return name of a fault, for counters: `garbage`, `place`, ... */
const char *xfer_desc_fault_name(enum xfer_desc_fault fault);

/**
 * @param schema    of the table; kept
 * @param identity  its table is a static text
 * @return 0; -ENOMEM; -EINVAL: no schema of ours, or metadata of more than XFER_BLOCK
 */
int xfer_stream_init(struct xfer_stream *s, uint8_t table, const struct arrow_schema *schema,
	const struct arrow_identity *identity, uint64_t session_id, uint64_t body_max);

void xfer_stream_free(struct xfer_stream *s);

/** Beside struct arrow_batch, what a descriptor tells. */
struct xfer_batch {
	uint64_t sequence;
	uint64_t rows;
	uint64_t first; /**< frame numbers */
	uint64_t last;
	int64_t received; /**< ns since 1970; 0: unknown */
	uint64_t body_bytes;
	uint32_t body_crc32c;
	uint32_t entry;
};

/**
 * Announce a batch: what an entry begins with. The first XFER_DESC_METADATA_BYTES of the metadata
 * follow as they are.
 * @param metadata  XFER_BLOCK bytes as arrow_template_patch() left them: of one template all have
 *                  as many that are not zero
 * @return 0; -EMSGSIZE: they do not fit behind the descriptor, or the body is longer than body_max
 */
int xfer_desc_fill(struct xfer_stream *s, const struct xfer_batch *batch, const uint8_t *metadata,
	struct xfer_descriptor *descriptor);

/**
 * Copy an entry once, and look at the copy.
 *
 * @param s      of the table that the descriptor is to name
 * @param entry  where its peer can write to, at any time
 * @param index  of the immediate
 * @param batch  out, if good
 * @param metadata  the copy: XFER_BLOCK bytes for the file, if good, which were zeros or good of
 *                  this stream before: what the template does not have stays zeros. Else zeros
 */
enum xfer_desc_fault xfer_desc_check(struct xfer_stream *s, const struct xfer_desc *entry,
	uint32_t index, struct xfer_batch *batch, uint8_t *metadata);

#endif /* XFER_DESC_H */
