/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Items of --check: section [egress].
 */
#ifndef CHECK_EGRESS_H
#define CHECK_EGRESS_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include <gk.h>

#include "egress/egress.h"

struct check;
struct rdma_dev;
struct settings;

struct check_egress {
	struct rdma_dev *dev;	   /**< open device */
	int error;		   /**< 0, or -errno of opening it */
	uint64_t heap;		   /**< bytes of EAL memory that it uses */
	struct store_set stores;   /**< addresses of the settings */
	char no_stores[PATH_MAX];  /**< what is wrong with them; "": nothing */
	char no_route[PATH_MAX];   /**< to a store: what is wrong; "": none */
	bool pins;		   /**< registered memory is locked, as for an RDMA adapter */
	struct egress_slots slots; /**< output slots in a new journal */
	int journal_error;	   /**< of journal_probe() */
	char journal_message[PATH_MAX];
	struct journal_probe journal; /**< valid if journal_error is 0 */
	/**
	 * an existing journal has too few free slots of this size: [gpu] outputs take EAL memory
	 */
	bool lacks_slots;
};

/**
 * Open the device. As in a run, this comes before the ports are set up. Nothing is sent.
 * @param results  memory of kept frames, see struct placement
 */
void check_open_egress(struct check_egress *e, const struct settings *s, enum gk_memory results);

/** Close the device if it is open. */
void check_close_egress(struct check_egress *e);

/** Add all rows of [egress], if it is configured. */
void check_egress(struct check *c, const struct settings *s, const struct check_egress *e);

/* The rows of [egress], one function each. [egress] device is set. */

/** Check that the device could be opened. */
void check_egress_device(struct check *c, const struct settings *s, const struct check_egress *e);

/** Parse the addresses of stores, for check_egress_stores(). check_open_egress() does this. */
void check_parse_stores(struct check_egress *e, const struct settings *s);

/**
 * Check the syntax of the addresses of stores, and that the device has routes to them. The stores
 * are not contacted.
 * @param e  of check_parse_stores()
 */
void check_egress_stores(struct check *c, const struct check_egress *e);

/** Check for a key that is unreadable, too short, or readable by other users. */
void check_egress_key(struct check *c, const struct settings *s);

/**
 * Find out what is at the path of the journal, for check_journal(). check_open_egress() does this
 * once: a receiver that starts meanwhile would find the file locked.
 * @param e  `slots` is used
 */
void check_probe_journal(struct check_egress *e, const struct settings *s);

/**
 * Check for a journal that cannot be created or reused, or is too small for its rate and batches,
 * or has too few free output slots.
 * @param e  of check_probe_journal()
 */
void check_journal(struct check *c, const struct settings *s, const struct check_egress *e);

/** Check that the spill directory is writable and has enough free space; n.a. if none is set. */
void check_spill(struct check *c, const struct settings *s);

#endif /* CHECK_EGRESS_H */
