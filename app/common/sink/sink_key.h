/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Keys, and what is made with them. SHA-256 and HMAC are libcrypto's. Any thread.
 */
#ifndef SINK_KEY_H
#define SINK_KEY_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "sink_wire.h"

#define SINK_KEY_MIN 32 /**< bytes */
#define SINK_KEY_MAX 1024

struct sink_key {
	uint8_t bytes[SINK_KEY_MAX];
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
int sink_secret_open(
	const char *path, const char *what, size_t min, size_t max, char message[PATH_MAX]);

/**
 * Read a key file, as sink_secret_open() opens it: all its bytes are the key.
 *
 * @param message  out, on error: what is wrong, what was wanted
 * @return 0
 *   - -errno of open(2), read(2)
 *   - -EACCES: of another user, or others may read or write it
 *   - -EINVAL: no regular file, fewer than SINK_KEY_MIN bytes or more than SINK_KEY_MAX
 */
int sink_key_read(struct sink_key *key, const char *path, char message[PATH_MAX]);

/** Overwrite it; the compiler does not leave that out. */
void sink_key_forget(struct sink_key *key);

/** What a key may be called in logs: the first 8 bytes of an HMAC with it. @return 0: no memory */
uint64_t sink_key_fingerprint(const struct sink_key *key);

/** A part of what is summed up. */
struct sink_part {
	const void *data;
	size_t size;
};

/** HMAC-SHA-256 of the parts, one after the other. @return 0, -ENOMEM, -EIO (libcrypto) */
int sink_key_mac(const struct sink_key *key, const struct sink_part *parts, unsigned int nb,
	uint8_t mac[SINK_MAC_BYTES]);

/** SHA-256. @return 0, -EIO */
int sink_digest(const void *data, size_t size, uint8_t digest[SINK_DIGEST_BYTES]);

/** Constant-time comparison. */
bool sink_mac_equal(const uint8_t a[SINK_MAC_BYTES], const uint8_t b[SINK_MAC_BYTES]);

/** Unpredictable bytes. @return 0, -EIO */
int sink_random(void *bytes, size_t size);

#endif /* SINK_KEY_H */
