/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Computes when packets are due. Every kind of pacing is stored in one table: the offset of each
 * packet from the start of its loop. With bursts, the packets of a burst are then shifted to its
 * start.
 */
#ifndef REPLAY_PACE_H
#define REPLAY_PACE_H

#include <stdbool.h>
#include <stdint.h>

#include <rte_branch_prediction.h>

struct replay_capture;
struct replay_devargs;

/* Time is counted in fractions of 1 / 65,536 of a cycle: 26 hours at 3 GHz fit 64 bits. */
#define REPLAY_PACE_SHIFT 16

struct replay_pace {
	/* of each packet in its loop, in fractions of cycles, rounded up; NULL: no pacing */
	uint64_t *offset;
	uint64_t loop;	/* duration of a loop in fractions of cycles */
	uint64_t every; /* burst interval in fractions of cycles */
	uint32_t burst; /* packets per burst; 0: no bursts */
	uint32_t nb_packets;
};

/* The burst that a queue is in. */
struct replay_burst {
	uint64_t first, end;	      /* packet numbers, counted over all loops */
	unsigned __int128 base, from; /* when the first packet is due, without and with bursts */
};

/* Without pacing, pace->offset stays NULL. -EINVAL and -ENOMEM are logged. */
int replay_pace_init(struct replay_pace *pace, const struct replay_devargs *args,
	const struct replay_capture *capture, int socket);
void replay_pace_fini(struct replay_pace *pace);

/* Number of packets that are due `cycles` after the port's first one, counted over all loops. */
uint64_t replay_pace_passed(const struct replay_pace *pace, uint64_t cycles);

static inline unsigned __int128
replay_pace_plain(const struct replay_pace *pace, uint64_t loop, uint32_t i)
{
	return (unsigned __int128)loop * pace->loop + pace->offset[i];
}

/* Values common to all packets of a loop. */
struct replay_pace_loop {
	unsigned __int128 begin; /* in fractions of cycles */
	uint64_t first;		 /* number of the first packet, counted over all loops */
};

static inline struct replay_pace_loop
replay_pace_loop(const struct replay_pace *pace, uint64_t loop)
{
	return (struct replay_pace_loop){
		(unsigned __int128)loop * pace->loop, loop * pace->nb_packets};
}

/* TSC cycles after the port's first packet at which packet i of a loop is due, rounded up. */
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
 * Histogram of the delay between due time and poll. The limits are 64 ns x 4^n, the last bin has
 * none. A late poll is not an error of the port, but it affects the validity of a measurement.
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
