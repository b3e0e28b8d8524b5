/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The keyring in use. A thread reads its files every second. A change is accepted after two
 * identical reads, so that a partly written file is not used. If the new keyring is invalid, the
 * old one stays in use and the error is logged. The lcore switches to a new keyring in
 * store_keys_poll().
 */
#ifndef STORE_KEYRING_RELOAD_H
#define STORE_KEYRING_RELOAD_H

#include <limits.h>

#include "xfer/keyring.h"

#define STORE_KEYS_MS 1000 /**< interval between two reads */

struct store_keys;

/** @return 0, or the error and message of xfer_keyring_read() */
int store_keys_open(struct store_keys **keys, const char *path, char message[PATH_MAX]);

void store_keys_close(struct store_keys *k);

/** Get the keyring in use, valid until the next store_keys_poll(). Called by the lcore. */
const struct xfer_keyring *store_keys_get(const struct store_keys *k);

/** Switch to a newly read keyring. @return true: switched. Called by the lcore. */
bool store_keys_poll(struct store_keys *k);

/**
 * Read the keyring now; the next poll switches to it. Any thread. @return 0; -errno and the message
 */
int store_keys_reload(struct store_keys *k, char message[PATH_MAX]);

#endif /* STORE_KEYRING_RELOAD_H */
