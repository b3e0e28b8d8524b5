/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROCE_RIG_H
#define ROCE_RIG_H

/* Two roce devices on two net_ring ports, and a wire between them with configurable faults. */

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

/* Faults of one direction, each as the chance of a frame in 1/65536. */
struct rig_faults {
	uint32_t lose, twice, swap, corrupt, delay;
};

/* One end: rig_open() and rig_connect() set all fields. */
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
	bool first_queue; /* all frames arrive at queue 0; else at any queue */
	bool started;	  /* the ports were configured and started before the devices were opened */
	uint16_t poll_group;	      /* of the next queue pair; also set before rig_open() */
	struct rig_faults faults[2];  /* of packets that end 0, 1 sends */
	struct rte_mbuf *held[2][64]; /* delayed frames */
	unsigned int nb_held[2];
	uint64_t frames[2]; /* from end 0, 1 */
	uint64_t lost[2];
	/*
	 * called for every frame before any fault is applied; NULL: none.
	 * @return false: drop the frame
	 */
	bool (*tap)(struct rig *rig, unsigned int from, struct rte_mbuf *m);
	uint64_t random;
};

/* Initialize EAL once for the process: no huge pages, one lcore. */
void rig_eal(void);

/*
 * rig->poll_groups, rig->poll_group and rig->started are set, all other fields are zero.
 * @param options of both devices; %u is 1, 2: "ip=10.0.0.%u/24,mtu=1024"
 */
void rig_open_as(struct rig *rig, const char *options);
/*
 * One poll group, IPv4.
 * @param options added for both devices, for instance ",mtu=1024"
 */
void rig_open(struct rig *rig, const char *options);
void rig_close(struct rig *rig);

/*
 * Create a queue pair at each end, and connect them by hand.
 * @param attr type and attributes that differ from the default
 */
void rig_connect(struct rig *rig, const struct rdma_qp_attr *attr, uint16_t mtu);
void rig_disconnect(struct rig *rig);

/* Poll both ends and move frames on the wire, once. */
void rig_step(struct rig *rig);

/*
 * Wait for a completion of `end`, at most this many milliseconds.
 * @return 0, 1
 */
int rig_wait(struct rig *rig, unsigned int end, struct rdma_wc *wc, unsigned int ms);

/* Repeat rig_step() for this time, and often enough if the machine is busy. */
void rig_run(struct rig *rig, unsigned int ms);

uint32_t rig_random(struct rig *rig, uint32_t below);

/* A packet made by hand. Fields that are zero get the values that the end itself would send. */
struct rig_packet {
	uint8_t opcode;
	uint32_t psn;
	const void *ext;   /* extended headers, of the length that the opcode needs */
	uint16_t length;   /* bytes of payload, all zero, at most RIG_PAYLOAD */
	uint8_t bth_flags; /* also pad count and version; no pad is added */
	uint8_t bth_ecn;
	uint32_t qpn;
	uint16_t pkey;
	uint16_t udp_src;
	uint16_t tci; /* of a VLAN tag */
	const struct roce_gid *src, *dst;
	uint32_t icrc_off; /* difference from the right ICRC */
};

#define RIG_PAYLOAD 1100

/* Make a packet as the queue pair of `from` would send it to its peer. It is not sent yet. */
struct rte_mbuf *rig_forge(
	const struct rig *rig, unsigned int from, const struct rig_packet *packet);

/* Deliver to the port of the other end immediately. */
void rig_deliver(struct rig *rig, unsigned int from, struct rte_mbuf *m);

/* A counter of a device, by name. */
uint64_t rig_stat(const struct rig *rig, unsigned int end, const char *name);

#endif
