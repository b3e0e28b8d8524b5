/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The keyring of a store: who may connect, with which key, for which producers and runs. README.rst
 * has the file's format. Any thread.
 */
#ifndef STORE_KEYRING_H
#define STORE_KEYRING_H

#include <stdio.h>

#include "xfer/identity.h"

#define STORE_IDENTITIES	  256
#define STORE_KEYRING_CONNECTIONS 64 /**< of an identity at most: STORE_CONNECTIONS, */
#define STORE_KEYRING_RUNS	  64 /**< STORE_RUNS */

struct store_keyring {
	struct xfer_identity *identity;
	unsigned int nb;
	struct xfer_identity nobody;	   /**< of random keys: stands for all that are not in it */
	uint8_t digest[XFER_DIGEST_BYTES]; /**< of all that the file and its key files say */
};

/**
 * Read a keyring and the key files that it names; all of them as xfer_secret_open() opens them.
 * @param message  out, on error: file, line, what is wrong, what was expected
 * @return 0; -EINVAL; -EACCES; -ENOMEM; -errno
 */
int store_keyring_read(struct store_keyring *k, const char *path, char message[PATH_MAX]);

/** The same of an open file. @param path  of messages, and of the folder of relative key files */
int store_keyring_parse(struct store_keyring *k, FILE *f, const char *path, char message[PATH_MAX]);

/** Overwrite the keys and free all. */
void store_keyring_free(struct store_keyring *k);

/** @return the identity of a REQ; `nobody`, whose proof no peer can make */
const struct xfer_identity *store_keyring_find(const struct store_keyring *k, uint64_t id);

/** @return the identity of this name, if it still has that key; NULL: not any more */
const struct xfer_identity *store_keyring_check(
	const struct store_keyring *k, const char *name, uint64_t fingerprint);

#endif /* STORE_KEYRING_H */
