/* SPDX-License-Identifier: BSD-3-Clause */
/** @file What a store's configuration says. Control lcore. */
#ifndef STORE_SETTINGS_H
#define STORE_SETTINGS_H

#include "config/config.h"
#include "server/store.h"

/** Read all keys; mistakes are the configuration's: config_check(). Texts are, too. */
void store_settings_read(struct store_config *s, struct config *c);

/** Complain of what a store cannot be without, and commands can. */
void store_settings_need(const struct store_config *s, struct config *c);

#endif /* STORE_SETTINGS_H */
