/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The audit log: messages of the log type `braggline.audit` (README.rst has their format), and
 * counters of each identity. One thread; telemetry uses a copy (server/view.h).
 */
#ifndef STORE_AUDIT_LOG_H
#define STORE_AUDIT_LOG_H

#include <inttypes.h>

#include <rte_log.h>

#include "xfer/identity.h"

extern int store_audit_logtype;

/** Write an audit message. */
#define AUDIT(level, fmt, ...) \
	rte_log(RTE_LOG_##level, store_audit_logtype, "audit: " fmt "\n", ##__VA_ARGS__)

/** maximum number of counted identities; a renamed identity counts as another one */
#define STORE_AUDITED 256

/** Counters of an identity since the store was started. */
struct store_audit_counts {
	char name[XFER_NAME_BYTES];
	uint64_t fingerprint; /**< of the key that was used last */
	uint64_t authentications;
	uint64_t granted;	    /**< connections that were granted slots */
	uint64_t refused;	    /**< connections that were refused after the authentication */
	uint64_t durable;	    /**< batches */
	uint64_t bytes;		    /**< bytes of bodies with a valid descriptor */
	uint64_t batches_truncated; /**< batches that it had reassigned to another store */
	uint64_t ended;		    /**< runs */
	uint32_t connections;	    /**< current connections that are authenticated */
};

struct store_audit {
	struct store_audit_counts identity[STORE_AUDITED];
	unsigned int nb;
};

/** Get the counters of a name; create them if there is space. @return NULL: no space */
struct store_audit_counts *store_audit_of(struct store_audit *a, const char *name);

#endif /* STORE_AUDIT_LOG_H */
