/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Pairs of identity and address that have proved themselves, in a file of the store's directory: a
 * store that is started again in a flood of requests keeps places for the receivers that it had.
 *
 * The file is replaced as a whole when a pair is new, or was proved long ago, by a thread; only who
 * has a key makes that happen. One that cannot be read costs what it had: nobody is let in by it.
 */
#ifndef STORE_PROVED_H
#define STORE_PROVED_H

#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "server/admission.h"

#define STORE_PROVED ".proved"

/** As it is in the file, and behind it a CRC-32C of all of it, little-endian. */
struct store_proved_file {
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

struct store_proved {
	char path[PATH_MAX];
	uint64_t written; /**< version of the gate that is in the file, or on its way */
	uint64_t not_before;
	pthread_t thread;
	bool has_thread;
	bool over; /**< atomic */
	int error;
	struct store_proved_file file;
};

/** The gate remembers what the file has. It says in the log if that cannot be read. */
void store_proved_open(
	struct store_proved *p, const char *dir, struct admission *gate, uint64_t now);

/** Write down what is new. */
void store_proved_poll(struct store_proved *p, const struct admission *gate, uint64_t now);

/** Wait for the thread, if there is one, and write down what is new. Also of one of all zeros. */
void store_proved_close(struct store_proved *p, const struct admission *gate);

#endif /* STORE_PROVED_H */
