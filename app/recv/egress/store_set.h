/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * A receiver's stores: which one is at which address.
 *
 * A store is who it has proved to be, by a number that lies in its directory; addresses only say
 * where to look. What a batch's doubts are about is a directory's files: a store that answers at
 * two addresses, stores that have changed theirs, or another one in the place of the first must
 * neither be told what was meant for another nor counted as two. So a connection tells who is
 * there before anything else is said over it, and an address is of no use while the same store
 * answers at another one.
 *
 * One thread, that of the journal.
 */
#ifndef STORE_SET_H
#define STORE_SET_H

#include <sys/socket.h>

#include "journal/journal.h"

#define STORE_SET 8 /**< that a receiver sends to, at most */

/** An address that a receiver sends to. */
struct xfer_store {
	struct sockaddr_storage to;    /**< with port */
	char name[JOURNAL_ADDRESS];    /**< as it was given, for logs */
	char address[JOURNAL_ADDRESS]; /**< ADDRESS:PORT, however it was given */
	int number;		       /**< in the ring, of the store that is there */
	uint64_t identity;   /**< of it, as it has proved since the start; 0: it has not */
	unsigned int proved; /**< connections that stand, */
	uint64_t refused;    /**< and those that did not as it is the wrong store */
	bool wrong;	     /**< the last one was; that was said */
};

/** All zero, and then filled in: `ring`, `nb`, and `to` to `address` of each. */
struct store_set {
	struct journal *ring;
	unsigned int nb;
	struct xfer_store at[STORE_SET];
	unsigned int changes; /**< times that an address turned out to be another store's */
};

/**
 * Find them in the ring, or add them. Stores that are not among them, and were given nothing that
 * is held or in doubt, are forgotten.
 * @return 0; -ENOSPC: the ring has JOURNAL_STORES others that were given batches
 */
int store_set_find(struct store_set *s);

/**
 * A connection to an address has proved who is there. Numbers of addresses may change by this; then
 * no connection to them stands.
 * @return 0: until store_set_leave(); and of one that cannot be used now (logged once)
 *   - -EEXIST: it answers at another address, too
 *   - -EBUSY: another store answered at this address, and connections to it stand
 *   - -ENOSPC: the ring knows JOURNAL_STORES others that were given batches
 */
int store_set_prove(struct store_set *s, unsigned int at, uint64_t identity);

/** A connection that had proved it ends. */
void store_set_leave(struct store_set *s, unsigned int at);

/** Whether it is known who is there: it has proved to be a store, be it one that is not used. */
static inline bool
store_set_answered(const struct xfer_store *a)
{
	return a->identity != 0 || a->wrong;
}

/** The address of the store of this number in the ring; -ENOENT: it is none of them. */
int store_set_at(const struct store_set *s, unsigned int number);

#endif /* STORE_SET_H */
