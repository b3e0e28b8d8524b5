/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Keys, and what is made with them. SHA-256 and HMAC are libcrypto's. Any thread.
 */
#ifndef XFER_KEY_H
#define XFER_KEY_H

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
 * Open a file that holds secrets. It must be a regular file of this user or of root that nobody
 * else can read or write; a link is not followed.
 *
 * @param what     what messages call it: `key file`
 * @param min,max  bytes
 * @param message  out, on error: what is wrong, what was expected
 * @return a descriptor; -errno of open(2); -EACCES: of another user, or others may read or write
 *         it; -EINVAL: no regular file, fewer bytes than `min` or more than `max`
 */
int xfer_secret_open(
	const char *path, const char *what, size_t min, size_t max, char message[PATH_MAX]);

/**
 * Read a key file, as xfer_secret_open() opens it: all its bytes are the key.
 *
 * @param message  out, on error: what is wrong, what was wanted
 * @return 0
 *   - -errno of open(2), read(2)
 *   - -EACCES: of another user, or others may read or write it
 *   - -EINVAL: no regular file, fewer than XFER_KEY_MIN bytes or more than XFER_KEY_MAX
 */
int xfer_key_read(struct xfer_key *key, const char *path, char message[PATH_MAX]);

/** Overwrite it; the compiler does not leave that out. */
void xfer_key_forget(struct xfer_key *key);

/** What a key may be called in logs: the first 8 bytes of an HMAC with it. @return 0: no memory */
uint64_t xfer_key_fingerprint(const struct xfer_key *key);

/** A part of what is summed up. */
struct xfer_part {
	const void *data;
	size_t size;
};

/** HMAC-SHA-256 of the parts, one after the other. @return 0, -ENOMEM, -EIO (libcrypto) */
int xfer_key_mac(const struct xfer_key *key, const struct xfer_part *parts, unsigned int nb,
	uint8_t mac[XFER_MAC_BYTES]);

/** SHA-256. @return 0, -EIO */
int xfer_digest(const void *data, size_t size, uint8_t digest[XFER_DIGEST_BYTES]);

/** Constant-time comparison. */
bool xfer_mac_equal(const uint8_t a[XFER_MAC_BYTES], const uint8_t b[XFER_MAC_BYTES]);

/** Unpredictable bytes. @return 0, -EIO */
int xfer_random(void *bytes, size_t size);

#endif /* XFER_KEY_H */
