/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * For log messages about refused peers: a rate limit for peers that are not authenticated, since
 * anyone can cause these messages, and addresses as text. One thread.
 */
#ifndef REFUSAL_LOG_H
#define REFUSAL_LOG_H

#include <stdbool.h>
#include <stdint.h>

/** Rate limit for warnings about peers that are not authenticated: per network, and in total. */
#define REFUSAL_LIMIT_MS	 10000 /**< period of the limit */
#define REFUSAL_LIMIT_PREFIXES	 16
#define REFUSAL_LIMIT_PER_PREFIX 3
#define REFUSAL_LIMIT_IN_ALL	 20

struct refusal_limit {
	uint64_t begin; /**< begin of the period, ms; 0: no warning yet */
	unsigned int nb;
	uint64_t suppressed; /**< in this period */
	struct {
		uint8_t addr[16];
		unsigned int nb;
	} prefix[REFUSAL_LIMIT_PREFIXES];
	unsigned int nb_prefixes;
	uint64_t suppressed_ever;
};

/** @return true: log this warning */
bool refusal_limit_take(struct refusal_limit *w, const uint8_t addr[16], uint64_t now);

/** Update the period. @return number of warnings suppressed in a period that is over */
uint64_t refusal_limit_poll(struct refusal_limit *w, uint64_t now);

/** An address as text; mapped addresses are written as IPv4. */
#define REFUSAL_ADDRESS_LEN 46
const char *refusal_address(const uint8_t addr[16], char text[REFUSAL_ADDRESS_LEN]);

#endif /* REFUSAL_LOG_H */
