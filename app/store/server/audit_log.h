/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Who did what: lines of the log type `braggline.audit`, README.rst has their format. And what is
 * counted of each identity. One thread; telemetry
 * has a copy (server/view.h).
 */
#ifndef STORE_AUDIT_H
#define STORE_AUDIT_H

#include <inttypes.h>
#include <stdbool.h>

#include <rte_log.h>

#include "xfer/identity.h"

extern int store_audit_logtype;

/** An audit line. */
#define AUDIT(level, fmt, ...) \
	rte_log(RTE_LOG_##level, store_audit_logtype, "audit: " fmt "\n", ##__VA_ARGS__)

#define STORE_AUDITED 256 /**< identities that are counted; one that changes its name is another */

/** What an identity did, since the store was started. */
struct store_audit_counts {
	char name[XFER_NAME_BYTES];
	uint64_t fingerprint; /**< of the key of its last proof */
	uint64_t proofs;
	uint64_t stood;	      /**< connections that were granted places */
	uint64_t refused;     /**< after the proof, by whatever reason */
	uint64_t durable;     /**< batches */
	uint64_t bytes;	      /**< of bodies of good entries */
	uint64_t batches_cut; /**< that it had moved to another store */
	uint64_t ended;	      /**< runs */
	uint32_t connections; /**< that it has now, from their proofs on */
};

struct store_audit {
	struct store_audit_counts identity[STORE_AUDITED];
	unsigned int nb;
};

/** That of a name, a new one if there is room. @return NULL: there is none */
struct store_audit_counts *store_audit_of(struct store_audit *a, const char *name);

/** Warnings of peers that have not proved themselves: few of each network, and few in all. */
#define STORE_WARN_MS	    10000 /**< in which there are so many: */
#define STORE_WARN_PREFIXES 16
#define STORE_WARN_PER_ONE  3
#define STORE_WARN_IN_ALL   20

struct store_warnings {
	uint64_t begin; /**< ms; 0: nothing was warned of */
	unsigned int nb;
	uint64_t suppressed; /**< in this time */
	struct {
		uint8_t addr[16];
		unsigned int nb;
	} prefix[STORE_WARN_PREFIXES];
	unsigned int nb_prefixes;
	uint64_t suppressed_ever;
};

/** @return whether this one is to be logged */
bool store_warnings_take(struct store_warnings *w, const uint8_t addr[16], uint64_t now);

/** Let time pass. @return how many were suppressed in a time that is over */
uint64_t store_warnings_poll(struct store_warnings *w, uint64_t now);

/** An address as text: IPv4 where it is mapped. */
#define STORE_ADDRESS_LEN 46
const char *store_audit_address(const uint8_t addr[16], char text[STORE_ADDRESS_LEN]);

#endif /* STORE_AUDIT_H */
