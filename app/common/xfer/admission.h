/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Admission control of connections that are not authenticated yet. It limits their number and their
 * duration.
 *
 * There are two pools. One is for known peers: pairs of identity (named in the REQ) and address
 * that were authenticated before. The other is for all other peers. A flood of requests from forged
 * addresses therefore takes no slot of a returning receiver.
 *
 * The time counts from the request on. It depends on the fill level of the pool: from ADMISSION_MS
 * if the pool is empty down to ADMISSION_MIN_MS if it is full. In a full pool, the next request
 * gets the oldest slot of the most crowded prefix, if that slot has reached the minimum time.
 *
 * The last ADMISSION_REMEMBERED pairs of identity and address are remembered, for
 * ADMISSION_REMEMBER_MS after their last authentication. An identity that uses many addresses has
 * at most ADMISSION_PER_IDENTITY pairs, so it does not displace other identities. One thread.
 */
#ifndef ADMISSION_H
#define ADMISSION_H

#include <stdbool.h>
#include <stdint.h>

#define ADMISSION_UNKNOWN      16 /**< slots of the pool for unknown peers */
#define ADMISSION_PER_ADDRESS  4  /**< maximum of these per address */
#define ADMISSION_PER_PREFIX   8  /**< maximum of these per IPv4 /24 or IPv6 /64 */
#define ADMISSION_KNOWN	       16 /**< slots of the pool for known peers */
#define ADMISSION_PER_KNOWN    8  /**< maximum of these per pair of identity and address */
#define ADMISSION_PLACES       (ADMISSION_UNKNOWN + ADMISSION_KNOWN)
#define ADMISSION_MS	       5000 /**< time for the authentication in an empty pool */
#define ADMISSION_MIN_MS       500  /**< time for the authentication in a full pool */
#define ADMISSION_REMEMBERED   256
#define ADMISSION_PER_IDENTITY 16 /**< maximum remembered pairs per identity */
#define ADMISSION_REMEMBER_MS  (7 * 24 * 3600 * UINT64_C(1000))
#define ADMISSION_KEEP_MS      (3600 * UINT64_C(1000)) /**< maximum lag of the times in the file */

/** A peer that requests a connection. */
struct admission_peer {
	uint8_t addr[16];
	uint64_t identity; /**< claimed identity: xfer_private.identity */
};

struct admission {
	struct {
		struct admission_peer peer;
		uint64_t since; /**< ms; 0: free */
		void *owner;
	} place[ADMISSION_PLACES]; /**< unknown peers first */
	struct {
		struct admission_peer peer;
		uint64_t proved; /**< time of the last authentication, ms; 0: free */
		/** ms to subtract from `proved`: authentication before this process was started */
		uint64_t older;
	} known[ADMISSION_REMEMBERED];
	uint64_t version; /**< of the remembered pairs; changes when the file should be updated */
	uint64_t admitted;
	uint64_t admitted_known; /**< part of `admitted`: known peers */
	uint64_t full;		 /**< rejected: all slots are in use */
	uint64_t crowded;	 /**< rejected: too many from this address, prefix or identity */
	uint64_t evicted;	 /**< ended to make room for another peer */
	uint64_t late;		 /**< ended because they exceeded their time */
};

/** Whether the pair was authenticated before and is remembered. */
bool admission_knows(const struct admission *g, const struct admission_peer *peer, uint64_t now);

/**
 * Whether the peer may take one of the connections of the store. The last ADMISSION_KNOWN free ones
 * are reserved for known peers.
 * @param nb_free  number of free connections
 */
bool admission_may_take(const struct admission *g, const struct admission_peer *peer,
	unsigned int nb_free, uint64_t now);

/**
 * Request a slot.
 * @param now      ms, a monotonic clock; not 0
 * @param owner    of the slot, not NULL; returned when the slot is evicted or expires
 * @param evicted  out: previous owner of the slot, to be ended; NULL: the slot was free
 * @return index of the slot; -EBUSY: rejected
 */
int admission_enter(struct admission *g, const struct admission_peer *peer, void *owner,
	uint64_t now, void **evicted);

/** The peer is authenticated: remember it, and free its slot. */
void admission_proved(struct admission *g, int place, uint64_t now);

/** Add a pair that an earlier process authenticated `age` ms ago. */
void admission_remember(
	struct admission *g, const struct admission_peer *peer, uint64_t now, uint64_t age);

/** @return time since the last authentication of g->known[i], ms */
uint64_t admission_age(const struct admission *g, unsigned int i, uint64_t now);

/** Free a slot whose connection has ended. */
void admission_leave(struct admission *g, int place);

/**
 * Get the owner of a slot that has exceeded its time, to be ended. Each is returned once. @return
 * NULL: none
 */
void *admission_expire(struct admission *g, uint64_t now);

/** @return length of the prefix that counts as one network, bytes: 15 (IPv4 /24) or 8 (IPv6 /64) */
unsigned int admission_prefix(const uint8_t addr[16]);

#endif /* ADMISSION_H */
