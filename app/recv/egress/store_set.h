/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The stores of a receiver: which store is at which address.
 *
 * A store is identified by a number in its directory, which it proves to have; an address only says
 * where to look. A batch in doubt refers to the files of one directory. A store may answer at two
 * addresses, stores may exchange addresses, or another store may replace the first one. In none of
 * these cases may a store get information meant for another one, or be counted twice. A connection
 * therefore proves the identity of the store before it exchanges anything else. An address cannot
 * be used while the same store answers at another address.
 *
 * One thread, the one that owns the journal.
 */
#ifndef STORE_SET_H
#define STORE_SET_H

#include <sys/socket.h>

#include "journal/journal.h"

#define STORE_SET 8 /**< maximum number of stores of a receiver */

/** An address to which a receiver sends. */
struct xfer_store {
	struct sockaddr_storage to;    /**< with the port */
	char name[JOURNAL_ADDRESS];    /**< as configured, for logs */
	char address[JOURNAL_ADDRESS]; /**< normalised as ADDRESS:PORT */
	int number;		       /**< number of its store in the journal */
	uint64_t identity;   /**< of the store, as proved since the start; 0: not proved */
	unsigned int proved; /**< established connections */
	uint64_t refused;    /**< connections refused because it is the wrong store */
	bool wrong;	     /**< the last one was refused; this was logged */
};

/** Zero it, then set `journal`, `nb`, and `to` to `address` of each store. */
struct store_set {
	struct journal *journal;
	unsigned int nb;
	struct xfer_store at[STORE_SET];
	unsigned int changes; /**< how often an address proved to be another store's */
};

/**
 * Find the stores in the journal, or add them. Stores that are not in the set and have no batch
 * that is held or in doubt are removed from the journal.
 * @return 0; -ENOSPC: the journal has JOURNAL_STORES other stores with batches
 */
int store_set_find(struct store_set *s);

/**
 * Record the store that a connection has proved to be at an address. The store numbers of addresses
 * may change; this happens only while no connection to them is established.
 * @return 0: the address is in use until store_set_leave(). If it cannot be used now (logged once):
 *   - -EEXIST: the store answers at another address, too
 *   - -EBUSY: another store answered at this address, and connections to it are established
 *   - -ENOSPC: the journal has JOURNAL_STORES other stores with batches
 */
int store_set_prove(struct store_set *s, unsigned int at, uint64_t identity);

/** Record the end of a connection that had proved its store. */
void store_set_leave(struct store_set *s, unsigned int at);

/**
 * Return true if the identity at the address is known: a store has proved it, even if it is not in
 * use.
 */
static inline bool
store_set_answered(const struct xfer_store *a)
{
	return a->identity != 0 || a->wrong;
}

/** Return the index of the address of this store number in the journal; -ENOENT: none. */
int store_set_at(const struct store_set *s, unsigned int number);

#endif /* STORE_SET_H */
