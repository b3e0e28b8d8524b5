/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Description of a damaged batch: the numbers of its frames and a text. Frame numbers that cannot
 * be read are bounded by those of the neighbouring batches. Any thread.
 */
#ifndef ARROW_DAMAGE_H
#define ARROW_DAMAGE_H

#include "arrow/reader.h"

#define ARROW_DAMAGE_TEXT 256

/** Frame numbers of a damaged batch. */
struct arrow_damage_frames {
	bool exact;	 /**< `first` and `last` are from its frame column, which is plausible */
	bool has_after;	 /**< if not exact: all its frames are above `first` */
	bool has_before; /**< if not exact: all its frames are below `last` */
	uint64_t first;	 /**< its first frame, or the last frame of the batch before it */
	uint64_t last;	 /**< its last frame, or the first frame of the batch after it */
};

/**
 * Find the frame numbers of a damaged batch. They are read from its frame column if the batch has a
 * valid CRC, or if the column ascends and lies between the frames of the neighbours. Otherwise the
 * neighbours give the limits.
 */
void arrow_damage_frames(
	const struct arrow_reader *r, size_t damage, struct arrow_damage_frames *frames);

/**
 * Return true if the damaged batch is the last one of a file that is being written, or whose writer
 * was killed. Its write may then not have ended.
 */
bool arrow_damage_is_end(const struct arrow_reader *r, size_t damage);

/** One line of text, without newline: position of the damage, its fault and its frames. */
void arrow_damage_text(const struct arrow_reader *r, size_t damage, char text[ARROW_DAMAGE_TEXT]);

/** One line of text, without newline: the frames only. */
void arrow_damage_frames_text(
	const struct arrow_damage_frames *frames, char text[ARROW_DAMAGE_TEXT]);

/**
 * Sequence numbers that a damaged region may contain. A region with an announcement has the number
 * of the announcement, if that is between the numbers of its neighbours. Otherwise a misplaced
 * batch was written over it. Such a region, and one without an announcement, may have all numbers
 * between those of its neighbours.
 * @return false: unknown
 */
bool arrow_damage_sequences(
	const struct arrow_reader *r, size_t damage, uint64_t *first, uint64_t *last);

#endif /* ARROW_DAMAGE_H */
