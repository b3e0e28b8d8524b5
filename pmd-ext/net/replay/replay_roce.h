/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Renumbers UC messages of RoCEv2 from loop to loop (device argument `roce`). The packets in the
 * arena are changed in place, because the ICRC at the end of a packet covers all of it, and
 * payloads are delivered by reference. A packet is changed only while no mbuf refers to it.
 */
#ifndef REPLAY_ROCE_H
#define REPLAY_ROCE_H

#include <stdbool.h>
#include <stdint.h>

struct replay_capture;
struct replay_packet;
struct replay_roce;

/* The frame number is in the first 8 bytes of the trailer, and in the last 8 of the leader. */
#define REPLAY_ROCE_TRAILER    64u /* bytes at the end of a message */
#define REPLAY_ROCE_LEADER_MAX 1024u
#define REPLAY_ROCE_SLOTS_MAX  (1u << 24)

/* Device argument `roce`. */
struct replay_roce_args {
	bool on;
	uint64_t step;	     /* frames in a loop */
	uint32_t slots;	     /* of a stream's ring, a power of two; 0: there are no RDMA WRITEs */
	uint64_t slot_bytes; /* distance of slots */
	uint32_t leader;     /* bytes before the pixels; 0: none */
};

/*
 * Finds the numbers in the packets of a capture.
 * @return 0; -EINVAL: RDMA WRITEs without `slots`; -E2BIG: too many queue pairs; -ENOMEM; logged
 */
int replay_roce_load(struct replay_roce **roce, const struct replay_capture *capture,
	const struct replay_roce_args *args, const char *name, int socket);

/* Like its memory, it stays until the last reference to a packet is released. NULL is allowed. */
void replay_roce_free(struct replay_roce *roce);

/*
 * Gives packets the numbers of a loop.
 * @return how many of them, from the first on, have these numbers: the next one is in use with
 *   those of another loop
 */
uint32_t replay_roce_renumber(
	struct replay_roce *roce, struct replay_packet *const *packets, uint32_t n, uint64_t loop);

#endif /* REPLAY_ROCE_H */
