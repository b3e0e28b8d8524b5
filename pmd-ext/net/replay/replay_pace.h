/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * When packets are due. Every kind of pacing comes down to one table: how long after the begin of
 * its loop each packet comes. Bursts then move what lies in one burst to the burst's own begin.
 */
#ifndef REPLAY_PACE_H
#define REPLAY_PACE_H

#include <stdbool.h>
#include <stdint.h>

#include <rte_branch_prediction.h>

struct replay_capture;
struct replay_devargs;

/* Cycles are counted in parts of 1 / 65,536: 26 hours of them at 3 GHz fit 64 bits. */
#define REPLAY_PACE_SHIFT 16

struct replay_pace {
	uint64_t *offset; /* of each packet in its loop, parts of cycles, rounded up; NULL: none */
	uint64_t loop;	  /* parts of cycles from loop to loop */
	uint64_t every;	  /* parts of cycles from burst to burst */
	uint32_t burst;	  /* packets; 0: no bursts */
	uint32_t nb_packets;
};

/* The burst that a queue is in. */
struct replay_burst {
	uint64_t first, end;	      /* packets, counted over all loops */
	unsigned __int128 base, from; /* when the first is due without and with bursts */
};

/* Without pacing, pace->offset stays NULL. -EINVAL and -ENOMEM are reported. */
int replay_pace_init(struct replay_pace *pace, const struct replay_devargs *args,
	const struct replay_capture *capture, int socket);
void replay_pace_fini(struct replay_pace *pace);

/* Packets that are due `cycles` after the port's first, counted over all loops. */
uint64_t replay_pace_passed(const struct replay_pace *pace, uint64_t cycles);

static inline unsigned __int128
replay_pace_plain(const struct replay_pace *pace, uint64_t loop, uint32_t i)
{
	return (unsigned __int128)loop * pace->loop + pace->offset[i];
}

/* What all packets of a loop have in common. */
struct replay_pace_loop {
	unsigned __int128 begin; /* parts of cycles */
	uint64_t first;		 /* packet, counted over all loops */
};

static inline struct replay_pace_loop
replay_pace_loop(const struct replay_pace *pace, uint64_t loop)
{
	return (struct replay_pace_loop){
		(unsigned __int128)loop * pace->loop, loop * pace->nb_packets};
}

/*
 * TSC cycles after the port's first packet at which packet i of a loop is due: never less than
 * exact.
 */
static inline uint64_t
replay_pace_due(const struct replay_pace *pace, struct replay_burst *burst,
	const struct replay_pace_loop *loop, uint32_t i)
{
	unsigned __int128 due = loop->begin + pace->offset[i];

	if (pace->burst != 0) {
		const uint64_t nth = loop->first + i;

		if (unlikely(nth >= burst->end || nth < burst->first)) {
			const uint64_t number = nth / pace->burst;

			burst->first = number * pace->burst;
			burst->end = burst->first + pace->burst;
			burst->base = replay_pace_plain(pace, burst->first / pace->nb_packets,
				(uint32_t)(burst->first % pace->nb_packets));
			burst->from = (unsigned __int128)number * pace->every;
		}
		due += burst->from - burst->base;
	}
	return (uint64_t)((due + ((1u << REPLAY_PACE_SHIFT) - 1)) >> REPLAY_PACE_SHIFT);
}

/*
 * How late packets were polled: a histogram with limits of 64 ns x 4^n, the last without limit.
 * The port is not to blame for a poll that comes late, but whoever reads the figures must know.
 */
#define REPLAY_LATE_BINS 10u

static inline uint32_t
replay_late_bin(uint64_t ns)
{
	const uint32_t bits = 64 - (uint32_t)__builtin_clzll(ns | 1);

	if (bits <= 6)
		return 0;
	return (bits - 5) / 2 < REPLAY_LATE_BINS ? (bits - 5) / 2 : REPLAY_LATE_BINS - 1;
}

#endif /* REPLAY_PACE_H */
