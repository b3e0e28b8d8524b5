/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The content of a batch, for the comparison of copies: the CRC-32C of its body and that of its
 * announcement, 64 bits together. Both are known without reading the body.
 *
 * Two copies of a batch are the same only if their numbers *and* these CRCs are equal. No stored
 * batch is released or removed because of a copy that is not the same. The CRCs distinguish damaged
 * and foreign copies from good ones. They are not signatures: a peer that knows a batch's CRCs can
 * make another batch that has them.
 *
 * A batch takes 16 bytes. Adding a batch with the highest number takes one comparison; any other
 * takes a binary search and a memmove(). One thread per list.
 */
#ifndef STREAM_CONTENT_H
#define STREAM_CONTENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arrow/crc32c.h"
#include "xfer/proto.h"

struct stream_content {
	uint64_t sequence;
	uint64_t crc; /**< stream_content_make() */
};

/** The contents of batches, in ascending order of their numbers. Zero-initialized: none. */
struct stream_contents {
	struct stream_content *at;
	size_t nb;
	size_t room;
};

/** @param metadata_crc32c  of the whole announcement, XFER_BLOCK bytes */
static inline uint64_t
stream_content_make(uint32_t body_crc32c, uint32_t metadata_crc32c)
{
	return (uint64_t)body_crc32c << 32 | metadata_crc32c;
}

/** @param metadata  XFER_BLOCK bytes */
static inline uint64_t
stream_content_of(uint32_t body_crc32c, const uint8_t *metadata)
{
	return stream_content_make(body_crc32c, arrow_crc32c(0, metadata, XFER_BLOCK));
}

void stream_contents_free(struct stream_contents *c);

/** Add a batch, or replace its content. @return 0; -ENOMEM */
int stream_contents_add(struct stream_contents *c, uint64_t sequence, uint64_t crc);

/** Add a batch at the end, in any order; stream_contents_sort() follows. @return 0; -ENOMEM */
int stream_contents_append(struct stream_contents *c, uint64_t sequence, uint64_t crc);

/** Put the batches into the order of their numbers. No number may be there twice. */
void stream_contents_sort(struct stream_contents *c);

/** Add all batches of another list. @return 0; -ENOMEM */
int stream_contents_add_all(struct stream_contents *c, const struct stream_contents *what);

/** @return false: the list does not have this batch */
bool stream_contents_get(const struct stream_contents *c, uint64_t sequence, uint64_t *crc);

#endif /* STREAM_CONTENT_H */
