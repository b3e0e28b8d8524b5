/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Which frames a damaged batch has, as far as that can be told, as text. Any thread.
 */
#ifndef ARROW_DAMAGE_H
#define ARROW_DAMAGE_H

#include "arrow/reader.h"

#define ARROW_DAMAGE_TEXT 256

/** Frame numbers of a damaged batch. */
struct arrow_damage_frames {
	bool exact;	 /**< first and last are its own: its frame column is plausible */
	bool has_after;	 /**< else, and if so: its frames are above this one, */
	bool has_before; /**< and below that */
	uint64_t first;	 /**< or the frame that it is above */
	uint64_t last;	 /**< or the frame that it is below */
};

/**
 * Read them from its own column if that ascends and fits between its neighbours; else its
 * neighbours tell.
 */
void arrow_damage_frames(
	const struct arrow_reader *r, size_t damage, struct arrow_damage_frames *frames);

/** Where the damage is, what is wrong and which frames it has: a line without its end. */
void arrow_damage_text(const struct arrow_reader *r, size_t damage, char text[ARROW_DAMAGE_TEXT]);

/** The same of frames alone. */
void arrow_damage_frames_text(
	const struct arrow_damage_frames *frames, char text[ARROW_DAMAGE_TEXT]);

/** Numbers of the batches that a damaged region without an announcement may have had: those between
 * its neighbours'. @return false: they are not known */
bool arrow_damage_sequences(
	const struct arrow_reader *r, size_t damage, uint64_t *first, uint64_t *last);

#endif /* ARROW_DAMAGE_H */
