/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * A peer of a store: its name, its keys, and what it may do there. The store reads these from its
 * keyring (app/store/store_keyring.h). Any thread.
 */
#ifndef SINK_IDENTITY_H
#define SINK_IDENTITY_H

#include "sink_key.h"

#define SINK_IDENTITY_KEYS	2 /**< `key` and `key_next` */
#define SINK_IDENTITY_PRODUCERS 32
#define SINK_IDENTITY_RUNS	8
#define SINK_IDENTITY_LIMIT	32 /**< connections, and open runs, where nothing else is said */

/** What an identity may do; bits. */
enum sink_right {
	SINK_RIGHT_WRITE = 1 << 0,     /**< send batches of its own */
	SINK_RIGHT_RECONCILE = 1 << 1, /**< have batches cut that it moved to another store */
	SINK_RIGHT_IMPORT = 1 << 2,    /**< send batches out of spilled files */
	SINK_RIGHT_READ = 1 << 3,      /**< reserved: nothing asks for it yet */
};

struct sink_identity {
	char name[SINK_NAME_BYTES]; /**< as sink_name_check() has it; "" : nobody */
	uint64_t id;		    /**< sink_identity_id() of the name */
	/** The second one may be random: a proof is compared with both, whoever it is of. */
	struct sink_key key[SINK_IDENTITY_KEYS];
	uint64_t fingerprint[SINK_IDENTITY_KEYS]; /**< 0: there is no such key */
	struct sink_interval producer[SINK_IDENTITY_PRODUCERS];
	unsigned int nb_producers;
	char run[SINK_IDENTITY_RUNS][SINK_NAME_BYTES]; /**< patterns of fnmatch(3) */
	unsigned int nb_runs;
	uint32_t connections; /**< that it may have at a time */
	uint32_t open_runs;   /**< of its producers, that may be open at a time */
	uint8_t rights;
};

/**
 * What stands for a name in a REQ: the first 8 bytes of its SHA-256.
 * @return 0: libcrypto failed
 */
uint64_t sink_identity_id(const char *name);

/** Whether it has this right for this producer's runs of this name. */
bool sink_identity_may(const struct sink_identity *identity, enum sink_right right,
	uint64_t producer, const char *run);

/** Whether the producer is one of its own. */
bool sink_identity_has_producer(const struct sink_identity *identity, uint64_t producer);

/** Overwrite its keys. */
void sink_identity_forget(struct sink_identity *identity);

#endif /* SINK_IDENTITY_H */
