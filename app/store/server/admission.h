/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Admission of connections that have not proved themselves yet: few at a time, and not for long.
 *
 * There are two pools. One is of peers that have proved themselves before: an identity at an
 * address, which a REQ names. The other one is of all that nobody knows. So a flood of requests
 * from forged addresses takes no place of a receiver that comes back.
 *
 * Time counts from the request on, whatever comes in between. The fuller a pool, the shorter: from
 * ADMISSION_MS down to ADMISSION_MIN_MS. In a full one the oldest place of the most crowded prefix
 * goes to the next who asks, if it is that old.
 *
 * What is remembered: the last ADMISSION_REMEMBERED pairs of identity and address, for
 * ADMISSION_REMEMBER_MS after their last proof; of an identity that proves itself
 * from many addresses the last ADMISSION_PER_IDENTITY, so that it takes no other one's. One thread.
 */
#ifndef ADMISSION_H
#define ADMISSION_H

#include <stdbool.h>
#include <stdint.h>

#define ADMISSION_UNKNOWN      16 /**< places of those that nobody knows, */
#define ADMISSION_PER_ADDRESS  4  /**< of them of one address, */
#define ADMISSION_PER_PREFIX   8  /**< of one IPv4 /24 or IPv6 /64 */
#define ADMISSION_KNOWN	       16 /**< places of those that have proved themselves before, */
#define ADMISSION_PER_KNOWN    8  /**< of them of one identity at one address */
#define ADMISSION_PLACES       (ADMISSION_UNKNOWN + ADMISSION_KNOWN)
#define ADMISSION_MS	       5000 /**< for a proof, in an empty pool, */
#define ADMISSION_MIN_MS       500  /**< and in a full one */
#define ADMISSION_REMEMBERED   256
#define ADMISSION_PER_IDENTITY 16 /**< of them of one identity */
#define ADMISSION_REMEMBER_MS  (7 * 24 * 3600 * UINT64_C(1000))
#define ADMISSION_KEEP_MS      (3600 * UINT64_C(1000)) /**< what a file has is at most so old */

/** Who asks. */
struct admission_peer {
	uint8_t addr[16];
	uint64_t identity; /**< that it says it is: xfer_private.identity */
};

struct admission {
	struct {
		struct admission_peer peer;
		uint64_t since; /**< ms; 0: free */
		void *owner;
	} place[ADMISSION_PLACES]; /**< those of unknown ones first */
	struct {
		struct admission_peer peer;
		uint64_t proved; /**< ms; 0: free */
		uint64_t older;	 /**< ms: it was proved so much earlier, before this process was */
	} known[ADMISSION_REMEMBERED];
	uint64_t version; /**< of what is remembered: changes when that should be kept in a file */
	uint64_t admitted;
	uint64_t admitted_known; /**< of them known */
	uint64_t full;		 /**< sent away: all places taken */
	uint64_t crowded;	 /**< sent away: too many of this address, prefix or identity */
	uint64_t evicted;	 /**< ended for another one */
	uint64_t late;		 /**< time was over */
};

/** Whether it has proved itself before, and that is remembered. */
bool admission_knows(const struct admission *g, const struct admission_peer *peer, uint64_t now);

/**
 * Somebody asks.
 * @param now      ms, any clock that does not go back; not 0
 * @param owner    of the place, not NULL: what is evicted and expires
 * @param evicted  out: owner of the place until now, to be ended; NULL: it was free
 * @return a place; -EBUSY: not now
 */
int admission_enter(struct admission *g, const struct admission_peer *peer, void *owner,
	uint64_t now, void **evicted);

/** It has proved itself: it is known from here on, and leaves. */
void admission_proved(struct admission *g, int place, uint64_t now);

/** A pair has proved itself `age` ms ago, to an earlier process. */
void admission_remember(
	struct admission *g, const struct admission_peer *peer, uint64_t now, uint64_t age);

/** How long ago, in ms, the pair of g->known[i] has proved itself. */
uint64_t admission_age(const struct admission *g, unsigned int i, uint64_t now);

/** It is gone. */
void admission_leave(struct admission *g, int place);

/** Owner of a place whose time is over, once for each: to be ended. @return NULL: none */
void *admission_expire(struct admission *g, uint64_t now);

/** Length of a prefix that counts as one network, in bytes: 15 (IPv4 /24), 8 (IPv6 /64). */
unsigned int admission_prefix(const uint8_t addr[16]);

#endif /* ADMISSION_H */
