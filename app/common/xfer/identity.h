/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * An identity of a store's peer: its name, its keys and its rights. The store reads identities from
 * its keyring (app/common/xfer/keyring.h). Any thread may call these functions.
 */
#ifndef XFER_IDENTITY_H
#define XFER_IDENTITY_H

#include "xfer/auth_key.h"

#define XFER_IDENTITY_KEYS	   2 /**< `key` and `key_next` */
#define XFER_IDENTITY_RECEIVER_IDS 32
#define XFER_IDENTITY_RUNS	   8
#define XFER_IDENTITY_LIMIT	   32 /**< default limit of connections and of open runs */

/** Rights of an identity; a bitmap. */
enum xfer_right {
	XFER_RIGHT_WRITE = 1 << 0, /**< send its own batches */
	/** have batches truncated that it reassigned to another store */
	XFER_RIGHT_RECONCILE = 1 << 1,
	XFER_RIGHT_IMPORT = 1 << 2, /**< send batches from spilled files */
	XFER_RIGHT_READ = 1 << 3,   /**< query runs: braggline-scan --serve */
};

struct xfer_identity {
	char name[XFER_NAME_BYTES]; /**< valid for xfer_name_check(); "": none */
	uint64_t id;		    /**< xfer_identity_id() of the name */
	/**
	 * An identity without a second key may have a random one: a proof is compared with both
	 * keys in any case.
	 */
	struct xfer_key key[XFER_IDENTITY_KEYS];
	uint64_t fingerprint[XFER_IDENTITY_KEYS]; /**< 0: this key is not configured */
	struct xfer_interval receiver_id[XFER_IDENTITY_RECEIVER_IDS];
	unsigned int nb_receiver_ids;
	char run[XFER_IDENTITY_RUNS][XFER_NAME_BYTES]; /**< patterns of fnmatch(3) */
	unsigned int nb_runs;
	uint32_t connections; /**< maximum number of connections */
	uint32_t open_runs;   /**< maximum number of open runs of its receivers */
	uint8_t rights;
};

/**
 * Number that represents a name in a REQ: the first 8 bytes of its SHA-256.
 * @return 0: libcrypto failed
 */
uint64_t xfer_identity_id(const char *name);

/** Whether the identity has this right for this receiver's runs of this name. */
bool xfer_identity_may(const struct xfer_identity *identity, enum xfer_right right,
	uint64_t receiver_id, const char *run);

/** Whether the identity has the right XFER_RIGHT_READ for runs of this name, of any receiver. */
bool xfer_identity_may_read(const struct xfer_identity *identity, const char *run);

/** Whether the receiver belongs to the identity. */
bool xfer_identity_has_receiver_id(const struct xfer_identity *identity, uint64_t receiver_id);

/** Overwrite its keys. */
void xfer_identity_forget(struct xfer_identity *identity);

#endif /* XFER_IDENTITY_H */
