/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Reads the settings of a store. Control lcore.
 */
#ifndef STORE_SETTINGS_H
#define STORE_SETTINGS_H

#include "config/config.h"
#include "server/store.h"

/**
 * Read all settings. Errors are recorded in the configuration: config_check(). It also owns the
 * strings.
 */
void store_settings_read(struct store_config *s, struct config *c);

/** Report missing settings that a store requires and that commands do not. */
void store_settings_need(const struct store_config *s, struct config *c);

#endif /* STORE_SETTINGS_H */
