/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The keyring in force. A thread reads its files again every second; a change is taken when it was
 * read twice the same, so that a file half written is none. A keyring with a mistake leaves the one
 * in force, and is logged. The lcore changes over in store_keys_poll().
 */
#ifndef STORE_KEYS_H
#define STORE_KEYS_H

#include <limits.h>

#include "server/keyring.h"

#define STORE_KEYS_MS 1000 /**< between two looks */

struct store_keys;

/** @return 0; what store_keyring_read() returns, and its message */
int store_keys_open(struct store_keys **keys, const char *path, char message[PATH_MAX]);

void store_keys_close(struct store_keys *k);

/** That in force until the next store_keys_poll(). The lcore. */
const struct store_keyring *store_keys_get(const struct store_keys *k);

/** Change over to one that was read since. @return whether it did. The lcore. */
bool store_keys_poll(struct store_keys *k);

/** Read it now: in force with the next poll. Any thread. @return 0; -errno, and the message */
int store_keys_reload(struct store_keys *k, char message[PATH_MAX]);

#endif /* STORE_KEYS_H */
