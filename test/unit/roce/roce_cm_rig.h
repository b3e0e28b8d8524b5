/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * RoCE devices on net_ring ports with a wire between them that loses, repeats and delays frames,
 * and a clock that only runs when told. A station without a device is the test itself: it takes
 * and makes frames. ROCE_PCAP names a file for all frames that devices send; ROCE_DEBUG=1 shows
 * what the devices do.
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
	struct rdma_dev *dev; /* NULL: the test plays it */
	struct rdma_pd *pd;
	struct rdma_cq *cq;
	uint16_t port;
	struct rte_ring *rx, *tx; /* of its port */
	struct rte_ether_addr mac;
	struct roce_gid gid;
	struct rdma_event events[RIG_EVENTS];
	unsigned int nb_events, taken;
};

/* How the wire is. Chances out of 1000. */
struct rig_wire {
	unsigned int lose, repeat, delay;
	unsigned int lost, repeated, delayed;
	/* frames of the CM to lose next, by attribute: bit ROCE_CM_x - ROCE_CM_REQ */
	uint32_t lose_next;
};

extern struct rig_station rig[RIG_STATIONS];
extern struct rig_wire rig_wire;
extern struct rte_mempool *rig_pool;

/* EAL and ports; ends the process when it can't */
void rig_init(char *program);
void rig_exit(void);

/* Station s gets a device with these arguments after the port, as ip=10.0.0.1/24 */
void rig_open(unsigned int s, const char *args);
/* Station s is the test */
void rig_raw(unsigned int s, const char *ip);
void rig_close(void);

/* Counter of a station's device */
uint64_t rig_stat(unsigned int s, const char *name);

struct rdma_qp *rig_qp(unsigned int s, enum rdma_qp_type type);

/* Let so many milliseconds go by, with all that happens in them */
void rig_run(unsigned int ms);
/* The same in steps of so many milliseconds: for timers only */
void rig_jump(unsigned int ms, unsigned int step_ms);
/* The next event of a station within so many milliseconds; fails the test if there is none, or
 * another */
struct rdma_event *rig_event(unsigned int s, enum rdma_event_type type, unsigned int ms);
/* Is there one? Without waiting */
bool rig_has_event(unsigned int s);

/* Random number below n, of the seeded generator */
unsigned int rig_random(unsigned int n);
void rig_seed(void);

struct sockaddr *rig_address(unsigned int s, uint16_t port);

/* ---- for a station that is the test ---- */

/* The next frame sent to raw station s; NULL: none. The caller frees it. */
struct rte_mbuf *rig_receive(unsigned int s);
/* The next CM message, others skipped, within so many milliseconds; false: none */
bool rig_receive_cm(unsigned int s, struct roce_cm_msg *msg, unsigned int ms);
void rig_send(unsigned int s, struct rte_mbuf *m);
void rig_send_bytes(unsigned int s, const void *frame, unsigned int length);
/* A CM message from raw station s to the other one */
void rig_send_cm(unsigned int s, const struct roce_cm_msg *msg);
void rig_send_mad(unsigned int s, const uint8_t *mad, uint32_t qkey, uint32_t src_qpn);
/* The device of the other station learns where raw station s is */
void rig_known(unsigned int s);

/* MAD of a frame, NULL: it has none */
const uint8_t *rig_mad(const struct rte_mbuf *m);

#endif
