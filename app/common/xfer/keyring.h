/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * A keyring: which identities may connect to a store or join a multicast stream, with which key,
 * and for which receivers and runs. app/store/README.rst has the file's format. Any thread may call
 * these functions.
 */
#ifndef XFER_KEYRING_H
#define XFER_KEYRING_H

#include <stdio.h>

#include "xfer/identity.h"

#define XFER_KEYRING_IDENTITIES	 256
#define XFER_KEYRING_CONNECTIONS 64 /**< maximum connections of an identity: STORE_CONNECTIONS */
#define XFER_KEYRING_RUNS	 64 /**< maximum open runs of an identity: STORE_RUNS */

struct xfer_keyring {
	struct xfer_identity *identity;
	unsigned int nb;
	/** used for all unknown identities; has random keys */
	struct xfer_identity nobody;
	/** digest of the content of the keyring and of its key files */
	uint8_t digest[XFER_DIGEST_BYTES];
};

/**
 * Read a keyring and its key files. Each file is opened as by xfer_secret_open().
 * @param message  out, on error: file, line, what is wrong, what was expected
 * @return 0; -EINVAL; -EACCES; -ENOMEM; -errno
 */
int xfer_keyring_read(struct xfer_keyring *k, const char *path, char message[PATH_MAX]);

/**
 * As xfer_keyring_read(), for an open file. @param path  for messages and relative paths of key
 * files
 */
int xfer_keyring_parse(struct xfer_keyring *k, FILE *f, const char *path, char message[PATH_MAX]);

/** Overwrite the keys and free the keyring. */
void xfer_keyring_free(struct xfer_keyring *k);

/** @return the identity of a REQ; if unknown, `nobody`, which no peer can authenticate as */
const struct xfer_identity *xfer_keyring_find(const struct xfer_keyring *k, uint64_t id);

/** @return the identity of this name, if it still has that key; NULL: not any more */
const struct xfer_identity *xfer_keyring_check(
	const struct xfer_keyring *k, const char *name, uint64_t fingerprint);

#endif /* XFER_KEYRING_H */
