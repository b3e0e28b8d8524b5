/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Slots of a stream's ring in memory that are in use: from the event of a frame until its tiles are
 * returned. Only the lcore of the stream's RX role calls the functions.
 */
#ifndef FRAME_USE_H
#define FRAME_USE_H

#include <stdbool.h>
#include <stdint.h>

#define FRAME_USE_PLACED (UINT64_C(1) << 63)

struct frame_use {
	uint64_t mask;	/**< slots - 1 */
	uint64_t count; /**< slots in use */
	/** [mask + 1]: detector's number + 1, with FRAME_USE_PLACED if it is in the frame table; 0:
	 * free */
	uint64_t *slot;
};

/** Return true if this frame is in use. */
static inline bool
frame_use_has(const struct frame_use *u, uint64_t frame)
{
	return (u->slot[frame & u->mask] & ~FRAME_USE_PLACED) == frame + 1;
}

/** Return true if this frame is in the frame table. */
static inline bool
frame_use_is_placed(const struct frame_use *u, uint64_t frame)
{
	return u->slot[frame & u->mask] == ((frame + 1) | FRAME_USE_PLACED);
}

/** The event of a frame was taken. An older frame in the same slot is overwritten. */
static inline void
frame_use_take(struct frame_use *u, uint64_t frame)
{
	uint64_t *slot = &u->slot[frame & u->mask];

	if (frame_use_has(u, frame))
		return;
	u->count += *slot == 0;
	*slot = frame + 1;
}

/** The frame was placed in the frame table. */
static inline void
frame_use_place(struct frame_use *u, uint64_t frame)
{
	if (frame_use_has(u, frame))
		u->slot[frame & u->mask] |= FRAME_USE_PLACED;
}

/** The pixels of a frame are no longer used. */
static inline void
frame_use_free(struct frame_use *u, uint64_t frame)
{
	if (!frame_use_has(u, frame))
		return;
	u->slot[frame & u->mask] = 0;
	u->count--;
}

#endif /* FRAME_USE_H */
