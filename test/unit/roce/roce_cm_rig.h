/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * RoCE devices on net_ring ports, with a wire between them that loses, repeats and delays frames,
 * and a simulated clock. A station without a device is simulated by the test, which receives and
 * sends its frames. ROCE_PCAP names a file for all frames that devices send; ROCE_DEBUG=1 shows
 * debug logs of the devices.
 */
#ifndef ROCE_CM_RIG_H
#define ROCE_CM_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <rte_mempool.h>
#include <rte_ring.h>

#include "rdma.h"
#include "roce.h"
#include "cm/conn.h"
#include "port/ctl_plane.h"
#include "cm/mad.h"

#define RIG_STATIONS 2
#define RIG_EVENTS   64
#define RIG_CQE	     256

struct rig_station {
	struct rdma_dev *dev; /* NULL: simulated by the test */
	struct rdma_pd *pd;
	struct rdma_cq *cq;
	uint16_t port;
	struct rte_ring *rx, *tx; /* of its port */
	struct rte_ether_addr mac;
	struct roce_gid gid;
	struct rdma_event events[RIG_EVENTS];
	unsigned int nb_events, taken;
};

/* Faults of the wire. Chances out of 1000. */
struct rig_wire {
	unsigned int lose, repeat, delay;
	unsigned int lost, repeated, delayed;
	/* CM messages to lose next, by attribute: bit ROCE_CM_x - ROCE_CM_REQ */
	uint32_t lose_next;
};

extern struct rig_station rig[RIG_STATIONS];
extern struct rig_wire rig_wire;
extern struct rte_mempool *rig_pool;

/* Initialize EAL and ports; exit if this fails */
void rig_init(char *program);
void rig_exit(void);

/* Open a device of station s with these arguments after the port, e.g. ip=10.0.0.1/24 */
void rig_open(unsigned int s, const char *args);
/* Station s is simulated by the test */
void rig_raw(unsigned int s, const char *ip);
void rig_close(void);

/* Counter of a station's device */
uint64_t rig_stat(unsigned int s, const char *name);

struct rdma_qp *rig_qp(unsigned int s, enum rdma_qp_type type);

/* Advance the clock by this many milliseconds, and run everything that is due */
void rig_run(unsigned int ms);
/* The same in larger steps: for timers only */
void rig_jump(unsigned int ms, unsigned int step_ms);
/* The next event of a station within this time; fails the test if there is none, or another one */
struct rdma_event *rig_event(unsigned int s, enum rdma_event_type type, unsigned int ms);
/* Has it an event? Does not wait */
bool rig_has_event(unsigned int s);

/* Random number below n, of the seeded generator */
unsigned int rig_random(unsigned int n);
void rig_seed(void);

struct sockaddr *rig_address(unsigned int s, uint16_t port);

/* ---- for a simulated station ---- */

/* The next frame that was sent to simulated station s; NULL: none. The caller frees it. */
struct rte_mbuf *rig_receive(unsigned int s);
/* The next CM message within this time, skipping other frames; false: none */
bool rig_receive_cm(unsigned int s, struct roce_cm_msg *msg, unsigned int ms);
void rig_send(unsigned int s, struct rte_mbuf *m);
void rig_send_bytes(unsigned int s, const void *frame, unsigned int length);
/* Send a CM message from simulated station s to the other station */
void rig_send_cm(unsigned int s, const struct roce_cm_msg *msg);
void rig_send_mad(unsigned int s, const uint8_t *mad, uint32_t qkey, uint32_t src_qpn);
/* Let the other station's device learn the address of simulated station s */
void rig_known(unsigned int s);

/* MAD of a frame, NULL: none */
const uint8_t *rig_mad(const struct rte_mbuf *m);

#endif
