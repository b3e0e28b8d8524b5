/* SPDX-License-Identifier: BSD-3-Clause */
/** @file /braggline/store and /braggline/store/connections through rte_telemetry. */
#ifndef STORE_TELEMETRY_H
#define STORE_TELEMETRY_H

struct store;

/** Commands answer from here on. Main lcore. */
void store_telemetry_open(const struct store *s);

/** The store goes: commands say nothing. */
void store_telemetry_close(void);

#endif /* STORE_TELEMETRY_H */
