/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The identity of a store: a random number in its directory. What receivers know about a store
 * refers to the files in that directory, regardless of the host that serves them.
 */
#ifndef STORE_IDENTITY_H
#define STORE_IDENTITY_H

#include <limits.h>
#include <stdint.h>

/**
 * Read `.identity` of a directory, or create it durably. The caller holds the lock of the directory
 * (store_tree_lock()).
 * @param message  out, on error: what is wrong and what to do
 * @return 0; -EBADMSG: invalid content; -errno
 */
int store_identity(const char *dir, uint64_t *identity, char message[PATH_MAX]);

/**
 * Read the identity of a directory that may have none. @return 0; -ENOENT: none; -EBADMSG; -errno
 */
int store_identity_read(const char *dir, uint64_t *identity, char message[PATH_MAX]);

#endif /* STORE_IDENTITY_H */
