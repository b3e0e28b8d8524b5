/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROCE_RIG_H
#define ROCE_RIG_H

/* Two roce devices on two net_ring ports, and a wire between them that is as bad as it is told. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <rte_mbuf.h>
#include <rte_ring.h>

#include "rdma.h"

struct roce_gid;

#define RIG_MEMORY (4U << 20) /* bytes of each end's region */
#define RIG_LANES  4

/* Faults of one direction, each the chance of a frame in 1/65536. */
struct rig_faults {
	uint32_t lose, twice, swap, corrupt, delay;
};

/* One end: everything is made by rig_open(), rig_connect(). */
struct rig_end {
	struct rdma_dev *dev;
	struct rdma_pd *pd;
	struct rdma_cq *cq;
	struct rdma_qp *qp;
	struct rdma_mr *mr;
	uint8_t *memory; /* RIG_MEMORY bytes inside a larger allocation */
	struct rte_ring *rx[RIG_LANES], *tx[RIG_LANES];
	struct sockaddr_storage addr;
};

struct rig {
	struct rig_end end[2];
	unsigned int poll_groups;
	bool first_queue;    /* all frames come to queue 0; else to any */
	bool started;	     /* ports were configured and started before the device was opened */
	uint16_t poll_group; /* of the next queue pair; set it before rig_open(), too */
	struct rig_faults faults[2];  /* of what end 0, 1 sends */
	struct rte_mbuf *held[2][64]; /* delayed frames */
	unsigned int nb_held[2];
	uint64_t frames[2]; /* that came from end 0, 1 */
	uint64_t lost[2];
	/* sees every frame before anything happens to it; NULL: none. @return false: drop it */
	bool (*tap)(struct rig *rig, unsigned int from, struct rte_mbuf *m);
	uint64_t random;
};

/* EAL once for the process: no huge pages, one lcore. */
void rig_eal(void);

/*
 * rig->poll groups, rig->poll group and rig->started are set, all else is zero.
 * @param options of both devices; %u is 1, 2: "ip=10.0.0.%u/24,mtu=1024"
 */
void rig_open_as(struct rig *rig, const char *options);
/* one poll group, IPv4. @param options added to both, such as ",mtu=1024" */
void rig_open(struct rig *rig, const char *options);
void rig_close(struct rig *rig);

/* A queue pair on each end, and both connected by hand. @param attr type and what is not default */
void rig_connect(struct rig *rig, const struct rdma_qp_attr *attr, uint16_t mtu);
void rig_disconnect(struct rig *rig);

/* Let both ends work and the wire carry, once. */
void rig_step(struct rig *rig);

/* Until `end` has a completion, at most so many milliseconds. @return 0, 1 */
int rig_wait(struct rig *rig, unsigned int end, struct rdma_wc *wc, unsigned int ms);

/* Step for so long. */
void rig_run(struct rig *rig, unsigned int ms);

uint32_t rig_random(struct rig *rig, uint32_t below);

/* A packet made by hand. What is zero is as the end itself would send it. */
struct rig_packet {
	uint8_t opcode;
	uint32_t psn;
	const void *ext;   /* extended headers, as long as the opcode has them */
	uint16_t length;   /* bytes of payload, all zero, no more than RIG_PAYLOAD */
	uint8_t bth_flags; /* also pad count and version; the pad is not added */
	uint8_t bth_ecn;
	uint32_t qpn;
	uint16_t pkey;
	uint16_t udp_src;
	uint16_t tci; /* of a VLAN tag */
	const struct roce_gid *src, *dst;
	uint32_t icrc_off; /* what the ICRC is wrong by */
};

#define RIG_PAYLOAD 1100

/* As the queue pair of `from` would send it to its peer. It goes nowhere yet. */
struct rte_mbuf *rig_forge(
	const struct rig *rig, unsigned int from, const struct rig_packet *packet);

/* Into the port of the other end, at once. */
void rig_deliver(struct rig *rig, unsigned int from, struct rte_mbuf *m);

/* A counter of a device, by name. */
uint64_t rig_stat(const struct rig *rig, unsigned int end, const char *name);

#endif
