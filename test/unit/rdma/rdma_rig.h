/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDMA_RIG_H
#define RDMA_RIG_H

/**
 * @file Two devices of rdma.h, of any provider, for tests of rdma.h. Both may be the same device.
 *
 *     program DEVICE [DEVICE [EAL-ARGUMENT...]]
 *
 * A % in an EAL argument stands for the process ID.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "rdma.h"

#define RIG_BYTES   (2u << 20) /* size of each end's memory */
#define RIG_SECONDS 30	       /* limit for waits */

/** One end: device, memory, completion queue. */
struct rig_end {
	struct rdma_dev *dev;
	struct rdma_dev_info info;
	struct rdma_pd *pd;
	struct rdma_cq *cq;
	struct rdma_mr *mr;
	uint8_t *memory;
	/** events that have arrived and were not awaited yet */
	struct rdma_event event[16];
	unsigned int nb_events;
};

struct rig {
	struct rig_end end[2]; /**< both may have the same device */
};

extern struct rig rig;

/**
 * Initialize EAL and the devices of the command line.
 * @return 0; with a printed reason 77: no device given, 1: failed
 */
int rig_open(int argc, char **argv);
/**
 * Close the devices and EAL.
 * @return failed: cmocka's result
 */
int rig_close(int failed);

/** Poll both ends, and store events in rig_end.event. */
void rig_poll(void);

/** The next completion of an end; fails if there is none. */
struct rdma_wc rig_wc(struct rig_end *end);
/** Checks that no completion arrives for a while. */
void rig_no_wc(struct rig_end *end);
/** The next event of this type; fails if there is none. Earlier events are dropped. */
struct rdma_event rig_event(struct rig_end *end, enum rdma_event_type type);

/** A queue pair in INIT; attr may be NULL. The rig sets both completion queues. */
struct rdma_qp *rig_qp(
	struct rig_end *end, enum rdma_qp_type type, const struct rdma_qp_attr *attr);
/** Two queue pairs, connected by hand. */
void rig_pair(enum rdma_qp_type type, const struct rdma_qp_attr *attr, struct rdma_qp *qp[2]);
/** Destroy both; their entries in the completion queues are removed, too. */
void rig_unpair(struct rdma_qp *qp[2]);

/** An SGE in the end's memory. */
struct rdma_sge rig_sge(const struct rig_end *end, uint32_t offset, uint32_t length);
void rig_recv(struct rdma_qp *qp, uint64_t wr_id, struct rdma_sge sge);
/** A send request with one SGE, signalled. */
struct rdma_send_wr rig_wr(enum rdma_op op, uint64_t wr_id, const struct rdma_sge *sge);
void rig_send(struct rdma_qp *qp, const struct rdma_send_wr *wr);

/** Fill memory with bytes that depend on offset and seed; check that they are there. */
void rig_fill(uint8_t *at, uint32_t length, uint32_t seed);
bool rig_holds(const uint8_t *at, uint32_t length, uint32_t seed);

#endif
