/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Saves the authenticated pairs of identity and address in a file of the store's directory. A store
 * that is restarted during a flood of requests therefore still reserves slots for its receivers.
 *
 * A thread replaces the whole file when a pair is new or was authenticated long ago. Only a peer
 * with a key can cause this. If the file cannot be read, only the pairs are lost. The file alone
 * authenticates no peer.
 */
#ifndef STORE_KNOWN_PEERS_H
#define STORE_KNOWN_PEERS_H

#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "xfer/admission.h"

#define STORE_KNOWN_PEERS ".proved"

/** An entry of the file. After the last entry follows a CRC-32C of all of them, little-endian. */
struct store_known_peers_file {
	char magic[8];
	uint32_t nb;
	uint32_t reserved;
	struct {
		uint8_t addr[16];
		uint64_t identity;
		uint64_t proved; /**< ms since 1970 */
	} pair[ADMISSION_REMEMBERED];
	uint32_t crc;
	uint32_t zero;
};

struct store_known_peers {
	char path[PATH_MAX];
	uint64_t written; /**< version of the pairs that is in the file, or being written */
	uint64_t not_before;
	pthread_t thread;
	bool has_thread;
	bool over; /**< atomic */
	int error;
	struct store_known_peers_file file;
};

/** Read the file into the admission control. If it cannot be read, this is logged. */
void store_known_peers_open(
	struct store_known_peers *p, const char *dir, struct admission *gate, uint64_t now);

/** Save new pairs. */
void store_known_peers_poll(
	struct store_known_peers *p, const struct admission *gate, uint64_t now);

/**
 * Wait for the thread, if any, and save new pairs. May be called for a zero-initialized structure.
 */
void store_known_peers_close(struct store_known_peers *p, const struct admission *gate);

#endif /* STORE_KNOWN_PEERS_H */
