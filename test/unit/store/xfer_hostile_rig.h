/* SPDX-License-Identifier: BSD-3-Clause */
/* A store with peers that mean it no good: what they do is refused or shows by its CRC, is counted
 * by its cause, and the batches of a receiver beside them are all there once. */
#ifndef XFER_HOSTILE_RIG_H
#define XFER_HOSTILE_RIG_H

#include "xfer_store_rig.h"

#include "xfer_hostile_peer.h"

#define STORE_STATION	1 /* the receiver is 0 */
#define HOSTILE_STATION 2

extern uint64_t hostile_passed_ms; /* of a time that passes for all but the network */
extern unsigned int hostile_kept;  /* batches of the receiver beside them */

/* A store, and a receiver that is connected and sends all the time. */
void hostile_begin(void);

/* Nothing of the peers is left, and the receiver has noticed nothing. */
void hostile_end(void);

/* After the end: the receiver's batches in the files. */
void hostile_beside_is_there_once(void);

/* A peer that has proved itself and was granted places. */
struct peer *hostile_stand(unsigned int i);

void hostile_hang_up(struct peer *p);

/* The store has refused the peer for this, and has let go of it. */
void hostile_is_refused(struct peer *p, enum xfer_reason reason);

/* ---- the store's view ------------------------------------------------------------------------ */

const struct store_counters *hostile_counters(void);

uint64_t hostile_device_counter(unsigned int station, const char *name);

/* Connections that it has, beside the receiver's. */
unsigned int hostile_connections(void);

/* A peer's connection. */
const struct store_connection *hostile_seen(const struct peer *p);

#endif /* XFER_HOSTILE_RIG_H */
