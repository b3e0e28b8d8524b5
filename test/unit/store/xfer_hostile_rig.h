/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A store with hostile peers: what they send is refused or detected by its CRC, and counted by its
 * cause. The batches of a well-behaved receiver are all in the files once.
 */
#ifndef XFER_HOSTILE_RIG_H
#define XFER_HOSTILE_RIG_H

#include "xfer_store_rig.h"

#include "xfer_hostile_peer.h"

#define STORE_STATION	1 /* the receiver is station 0 */
#define HOSTILE_STATION 2

extern unsigned int hostile_kept; /* batches that the well-behaved receiver has kept */

extern uint64_t hostile_passed_ms; /* added to the clock of everything but the network */

/* Stop the clock of everything but the network: a busy machine makes nothing late then. */
void hostile_stop_clock(void);

/* The clock goes on from where it was stopped. */
void hostile_start_clock(void);

/* Start a store, and a receiver that is connected and sends continuously. */
void hostile_begin(void);

/* Stop: the peers leave no connections, and the receiver had no errors. */
void hostile_end(void);

/* After the end: each batch of the receiver is in the files once. */
void hostile_beside_is_there_once(void);

/* Connect a peer, up to its grant. */
struct peer *hostile_stand(unsigned int i);

void hostile_hang_up(struct peer *p);

/* Wait until the store has refused the peer with this reason and closed its connection. */
void hostile_is_refused(struct peer *p, enum xfer_reason reason);

/* ---- the store's state ----------------------------------------------------------------------- */

const struct store_counters *hostile_counters(void);

uint64_t hostile_device_counter(unsigned int station, const char *name);

/* Number of connections, without the receiver's. */
unsigned int hostile_connections(void);

/* The store's connection to a peer. */
const struct store_connection *hostile_seen(const struct peer *p);

#endif /* XFER_HOSTILE_RIG_H */
