/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fault injection. Every decision is a function of the seed and of the packet's position in the
 * replay. It is the same for any number of queues and any burst size.
 */
#ifndef REPLAY_FAULT_H
#define REPLAY_FAULT_H

#include <stdbool.h>
#include <stdint.h>

struct rte_mbuf;
struct replay_packet;
struct replay_rxq;

#define REPLAY_WINDOW_MAX 256u
#define REPLAY_FLIPS_MAX  8u

/* Kinds of faults, as counted. */
enum replay_fault {
	REPLAY_LOSS,
	REPLAY_BURST_LOSS,
	REPLAY_REORDER,
	REPLAY_DUPLICATE,
	REPLAY_CORRUPT,
	REPLAY_TRUNCATE,
	REPLAY_FAULTS,
};

struct replay_faults {
	uint64_t seed;
	uint64_t chance[REPLAY_FAULTS]; /* x 2^64; 0: never, UINT64_MAX: always */
	uint32_t run;			/* packets lost in a burst loss */
	uint32_t window;		/* packets that may be reordered among each other */
	bool any;
};

/* A packet that is about to be received, with its faults. */
struct replay_pick {
	uint64_t nth;	   /* position in the replay, over all loops */
	uint32_t position; /* position in the loop */
	uint32_t own;	   /* index in the queue's list of the loop */
	uint16_t len;
	uint32_t ptype;
	bool second; /* second packet of a duplicate pair */
	bool moved;  /* not in its original position */
	bool truncated;
	bool corrupt;
	/* packets of this burst lost before it, by REPLAY_LOSS and REPLAY_BURST_LOSS */
	uint16_t lost[2];
};

/* Uniformly distributed random word for a kind of fault at a position. */
static inline uint64_t
replay_fault_draw(const struct replay_faults *faults, enum replay_fault kind, uint64_t nth)
{
	/* finalizer of splitmix64 (Steele, Lea, Flood: Fast splittable generators, 2014) */
	uint64_t z = faults->seed + (nth * REPLAY_FAULTS + kind + 1) * 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

static inline bool
replay_fault_hits(const struct replay_faults *faults, enum replay_fault kind, uint64_t nth)
{
	const uint64_t chance = faults->chance[kind];

	return chance != 0 &&
		(chance == UINT64_MAX || replay_fault_draw(faults, kind, nth) < chance);
}

/* Packet `own` of the queue's list, in the order of the capture, and the position in the loop at
 * which it is delivered. */
uint32_t replay_fault_order(struct replay_rxq *rxq, uint32_t own, uint32_t *position);

/* Sets len, ptype, truncated and corrupt of a packet that is not lost. */
void replay_fault_pick(const struct replay_faults *faults, struct replay_pick *pick,
	const struct replay_packet *packet);

/*
 * Flips bits of a frame of pick->len bytes that are within the `len` bytes at `bytes`, which start
 * at offset `off` of the frame.
 */
void replay_fault_flip(const struct replay_faults *faults, const struct replay_pick *pick,
	uint8_t *bytes, uint32_t off, uint32_t len);

/* Flips bits of a frame in private mbufs. */
void replay_fault_flip_chain(
	const struct replay_faults *faults, const struct replay_pick *pick, struct rte_mbuf *m);

/*
 * Buffers for changed payloads of queues that deliver references. They outlive the port until the
 * last reference is released.
 */
struct replay_spares;

struct replay_spares *replay_spares_create(
	const char *name, uint32_t n, uint32_t bytes, int socket);
void replay_spares_release(struct replay_spares *spares);

/* Attaches a changed copy of the frame from offset `off`; false if no buffer is free. */
bool replay_spares_attach(struct replay_spares *spares, const struct replay_faults *faults,
	const struct replay_pick *pick, struct rte_mbuf *m, const uint8_t *frame, uint32_t off);

#endif /* REPLAY_FAULT_H */
