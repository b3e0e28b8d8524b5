/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The credit of a stream: the frames for which the receiver's ring has room (ingest/card.h). The
 * receiver writes a word. An impossible value is ignored. Any other wrong value can only delay
 * frames.
 */
#ifndef TRANSMIT_CREDITS_H
#define TRANSMIT_CREDITS_H

#include <stdbool.h>
#include <stdint.h>

#define TRANSMIT_CREDIT_NONE UINT64_MAX /**< in the word: no credit yet */

struct transmit_credit {
	const uint64_t *word; /**< written by the receiver, little-endian; NULL: without credits */
	uint32_t slots;	      /**< slots of the receiver's ring */
	bool open;	      /**< the receiver has written a credit */
	uint64_t free;	      /**< the slots of frames below this number are free */
	uint64_t next;	      /**< number of the last frame that was begun + 1 */
	uint64_t pulse;	      /**< pulse of that frame + 1; 0: none */
};

/**
 * Begin a frame, or continue one.
 * @param pulse   counts frames as if the detector were never restarted
 * @param number  of the frame
 * @return false: its slot may be in use, try again
 */
bool transmit_credit_take(struct transmit_credit *c, uint64_t pulse, uint64_t number);

#endif /* TRANSMIT_CREDITS_H */
