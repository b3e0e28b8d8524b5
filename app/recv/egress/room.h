/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The room of a batch in the journal, and how the writer fills it.
 *
 * A batch of images is built in an *open* room, which has space for the largest batch: the builder
 * copies the bytes of the images to it row by row (batch_place). When the batch is complete, its
 * other parts are copied there, and its body is pieces of the room. Any other batch is complete
 * before it gets a room. It is copied there as it is, without the parts that are in output slots of
 * the journal, to which it refers.
 *
 * The writer calls all functions.
 */
#ifndef ROOM_H
#define ROOM_H

#include "arrow/batch.h"
#include "journal/journal.h"

/**
 * Reserve an open room.
 * @param body_max  size of the largest body, bytes
 * @return the room; NULL: no space now
 */
uint8_t *room_open(struct journal *journal, uint64_t body_max);

/** @return address for the rows of a batch that is built in an open room; body_max bytes */
uint8_t *room_rows(uint8_t *room);

/** @return size for journal_reserve() of a batch that was not built in an open room, bytes */
uint64_t room_size(const struct batch *batch);

/**
 * Fill the room of a batch that was not built in one.
 * @param room  from journal_reserve()
 * @param to    its numbers are set; receives what journal_commit() needs in addition
 */
void room_fill(struct journal *journal, uint8_t *room, struct journal_batch *to,
	const struct batch *batch);

/** Complete the batch in an open room. @param to  as for room_fill() */
void room_complete(struct journal *journal, uint8_t *room, struct journal_batch *to,
	const struct batch *batch);

#endif /* ROOM_H */
