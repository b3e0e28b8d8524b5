/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Keys, and the digests and MACs that use them. SHA-256 and HMAC come from libcrypto. Any thread
 * may call these functions.
 */
#ifndef XFER_AUTH_KEY_H
#define XFER_AUTH_KEY_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "xfer/proto.h"

#define XFER_KEY_MIN 32 /**< bytes */
#define XFER_KEY_MAX 1024

struct xfer_key {
	uint8_t bytes[XFER_KEY_MAX];
	size_t size;
};

/**
 * Open a file that holds secrets. It must be a regular file of this user or of root that no other
 * user can read or write. Symbolic links are not followed.
 *
 * @param what     name of the file in messages, e.g. `key file`
 * @param min,max  size limits, bytes
 * @param message  out, on error: what is wrong, what was expected
 * @return a descriptor
 *   - -EACCES: the file belongs to another user, or others can read or write it
 *   - -EINVAL: not a regular file, or its size is below `min` or above `max`
 *   - -errno of open(2)
 */
int xfer_secret_open(
	const char *path, const char *what, size_t min, size_t max, char message[PATH_MAX]);

/**
 * Read a key file, which is opened as by xfer_secret_open(). The key is the whole content.
 *
 * @param message  out, on error: what is wrong, what was expected
 * @return 0
 *   - -errno of open(2), read(2)
 *   - -EACCES: the file belongs to another user, or others can read or write it
 *   - -EINVAL: not a regular file, or its size is below XFER_KEY_MIN or above XFER_KEY_MAX bytes
 */
int xfer_key_read(struct xfer_key *key, const char *path, char message[PATH_MAX]);

/** Overwrite a key. The compiler does not optimize this away. */
void xfer_key_forget(struct xfer_key *key);

/**
 * Compute a key's fingerprint for logs: the first 8 bytes of an HMAC with it. @return 0: out of
 * memory
 */
uint64_t xfer_key_fingerprint(const struct xfer_key *key);

/** A part of the input of a MAC. */
struct xfer_part {
	const void *data;
	size_t size;
};

/** HMAC-SHA-256 of the concatenated parts. @return 0; -ENOMEM; -EIO (libcrypto) */
int xfer_key_mac(const struct xfer_key *key, const struct xfer_part *parts, unsigned int nb,
	uint8_t mac[XFER_MAC_BYTES]);

/** SHA-256. @return 0; -EIO (libcrypto) */
int xfer_digest(const void *data, size_t size, uint8_t digest[XFER_DIGEST_BYTES]);

/** Constant-time comparison. */
bool xfer_mac_equal(const uint8_t a[XFER_MAC_BYTES], const uint8_t b[XFER_MAC_BYTES]);

/** Generate random bytes for cryptographic use. @return 0; -EIO */
int xfer_random(void *bytes, size_t size);

#endif /* XFER_AUTH_KEY_H */
