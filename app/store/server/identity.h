/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Who a store is: a random number in its directory, as what receivers know of a store is about the
 * files in there, wherever they are served from.
 */
#ifndef STORE_IDENTITY_H
#define STORE_IDENTITY_H

#include <limits.h>
#include <stdint.h>

/**
 * Read `.identity` of a directory, or make one: durable before it is returned. The directory is
 * locked by the caller (store_tree_lock()).
 * @param message  out, on error: what is wrong and what to do
 * @return 0; -EBADMSG: something else is in it; -errno
 */
int store_identity(const char *dir, uint64_t *identity, char message[PATH_MAX]);

/** The same of one that may have none. @return 0; -ENOENT: it has none; -EBADMSG; -errno */
int store_identity_read(const char *dir, uint64_t *identity, char message[PATH_MAX]);

#endif /* STORE_IDENTITY_H */
