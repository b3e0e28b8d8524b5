/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What goes wrong on the way, on purpose. Every decision is a function of the seed and of the
 * packet's place in the replay: the same for any number of queues and any size of bursts.
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

/* Kinds, as they are counted. */
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
	uint32_t run;			/* packets that a burst loss takes */
	uint32_t window;		/* packets among which order may change */
	bool any;
};

/* A packet that is about to be received, and what becomes of it. */
struct replay_pick {
	uint64_t nth;	   /* place in the replay, over all loops */
	uint32_t position; /* place in the loop */
	uint32_t own;	   /* of the queue's packets of the loop */
	uint16_t len;
	uint32_t ptype;
	bool second; /* of two equal packets */
	bool moved;  /* out of its order */
	bool truncated;
	bool corrupt;
	uint16_t lost[2]; /* packets of this burst lost before it, by REPLAY_LOSS, _BURST_LOSS */
};

/* A word for this kind of fault at this place; equally distributed. */
static inline uint64_t
replay_fault_draw(const struct replay_faults *faults, enum replay_fault kind, uint64_t nth)
{
	/* the finaliser of splitmix64 (Steele, Lea, Flood: Fast splittable generators, 2014) */
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

/* Packet `own` of the queue's loop, as captured, and the place in the loop at which it comes. */
uint32_t replay_fault_order(struct replay_rxq *rxq, uint32_t own, uint32_t *position);

/* Fills len, ptype, truncated and corrupt of a packet that is not lost. */
void replay_fault_pick(const struct replay_faults *faults, struct replay_pick *pick,
	const struct replay_packet *packet);

/*
 * Flips bits of a frame of pick->len bytes as far as they lie in the `len` bytes at `bytes`, which
 * begin `off` bytes into the frame.
 */
void replay_fault_flip(const struct replay_faults *faults, const struct replay_pick *pick,
	uint8_t *bytes, uint32_t off, uint32_t len);

/* The same for a frame in private mbufs. */
void replay_fault_flip_chain(
	const struct replay_faults *faults, const struct replay_pick *pick, struct rte_mbuf *m);

/*
 * Copies of changed payloads, for queues whose payloads are references. They outlive the port as
 * long as anybody refers to one.
 */
struct replay_spares;

struct replay_spares *replay_spares_create(
	const char *name, uint32_t n, uint32_t bytes, int socket);
void replay_spares_release(struct replay_spares *spares);

/* Attaches a changed copy of the frame from `off` on; false when there is no spare. */
bool replay_spares_attach(struct replay_spares *spares, const struct replay_faults *faults,
	const struct replay_pick *pick, struct rte_mbuf *m, const uint8_t *frame, uint32_t off);

#endif /* REPLAY_FAULT_H */
