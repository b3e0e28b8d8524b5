/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * A peer of a store: its name, its keys, and what it may do there. The store reads these from its
 * keyring (app/store/server/keyring.h). Any thread.
 */
#ifndef XFER_IDENTITY_H
#define XFER_IDENTITY_H

#include "xfer/auth_key.h"

#define XFER_IDENTITY_KEYS	2 /**< `key` and `key_next` */
#define XFER_IDENTITY_PRODUCERS 32
#define XFER_IDENTITY_RUNS	8
#define XFER_IDENTITY_LIMIT	32 /**< connections, and open runs, where nothing else is said */

/** What an identity may do; bits. */
enum xfer_right {
	XFER_RIGHT_WRITE = 1 << 0,     /**< send batches of its own */
	XFER_RIGHT_RECONCILE = 1 << 1, /**< have batches cut that it moved to another store */
	XFER_RIGHT_IMPORT = 1 << 2,    /**< send batches out of spilled files */
	XFER_RIGHT_READ = 1 << 3,      /**< reserved: nothing asks for it yet */
};

struct xfer_identity {
	char name[XFER_NAME_BYTES]; /**< as xfer_name_check() has it; "" : nobody */
	uint64_t id;		    /**< xfer_identity_id() of the name */
	/** The second one may be random: a proof is compared with both, whoever it is of. */
	struct xfer_key key[XFER_IDENTITY_KEYS];
	uint64_t fingerprint[XFER_IDENTITY_KEYS]; /**< 0: there is no such key */
	struct xfer_interval producer[XFER_IDENTITY_PRODUCERS];
	unsigned int nb_producers;
	char run[XFER_IDENTITY_RUNS][XFER_NAME_BYTES]; /**< patterns of fnmatch(3) */
	unsigned int nb_runs;
	uint32_t connections; /**< that it may have at a time */
	uint32_t open_runs;   /**< of its producers, that may be open at a time */
	uint8_t rights;
};

/**
 * What stands for a name in a REQ: the first 8 bytes of its SHA-256.
 * @return 0: libcrypto failed
 */
uint64_t xfer_identity_id(const char *name);

/** Whether it has this right for this producer's runs of this name. */
bool xfer_identity_may(const struct xfer_identity *identity, enum xfer_right right,
	uint64_t producer, const char *run);

/** Whether the producer is one of its own. */
bool xfer_identity_has_producer(const struct xfer_identity *identity, uint64_t producer);

/** Overwrite its keys. */
void xfer_identity_forget(struct xfer_identity *identity);

#endif /* XFER_IDENTITY_H */
