/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDMA_STREAM_RIG_H
#define RDMA_STREAM_RIG_H

/**
 * @file
 * A sender of a stream and receivers, each on its own roce device, and a switch between their ports
 * that can lose, change and inject frames. One lcore runs all. Station 0 is the sender's.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <rte_mbuf.h>
#include <rte_ring.h>

#include "rdma_stream.h"
#include "rdma_stream_wire.h"

#define RIG_STATIONS 4
#define RIG_PAYLOAD  480
#define RIG_SLOTS    64

struct rig_receiver {
	struct rdma_stream_receiver *r;
	uint64_t next;	  /* expected packet */
	uint64_t packets; /* delivered */
	uint64_t lost;	  /* as the packets say */
	uint64_t run;
	bool stalled; /* its program does not run */
	bool hold;    /* its program keeps all packets */
	struct rdma_stream_packet held[4096];
	unsigned int nb_held;
};

struct rig_station {
	struct rdma_dev *dev;
	struct rdma_pd *pd;
	uint16_t port;
	struct rte_ring *rx, *tx;
	struct sockaddr_storage addr;
	bool dead; /* neither polled nor reached */
};

/* A frame of the stream, as the switch sees it. */
struct rig_frame {
	struct rte_mbuf *m;
	unsigned int from, to;
	uint8_t *stream;	     /* header of a packet to the group; NULL: another frame */
	struct stream_header header; /* a copy of it, aligned */
	uint8_t opcode;		     /* 0xff: not RoCEv2 */
};

struct rig {
	struct rig_station station[RIG_STATIONS];
	struct rdma_stream_sender *s;
	struct rig_receiver receiver[RIG_STATIONS]; /* [0] is not used */
	uint64_t next;				    /* packet that rig_send() sends next */
	uint32_t lose;				    /* chance of any frame, of 65,536 */
	/* @return false: the frame is lost on its way to this station */
	bool (*tap)(const struct rig_frame *frame);
	uint64_t random;
	struct rte_mempool *pool;
};

extern struct rig rig;

/** For cmocka: initialize EAL; devices are opened and closed around each test. */
int rig_eal(void **state);
int rig_open(void **state);
int rig_close(void **state);

/** Attributes that fit the rig; tests change them before they create an end. */
struct rdma_stream_sender_attr rig_sender_attr(void);
struct rdma_stream_receiver_attr rig_receiver_attr(unsigned int station);

void rig_sender(const struct rdma_stream_sender_attr *attr);
void rig_receiver(unsigned int station, const struct rdma_stream_receiver_attr *attr);
void rig_sender_end(void);
void rig_receiver_end(unsigned int station);

/** Run all once. */
void rig_step(void);
void rig_run(unsigned int ms);
/** Run until a condition holds; fails after 10 s of CPU time. */
#define rig_until(condition)                                                                       \
	do {                                                                                       \
		uint64_t rig_end = rig_deadline();                                                 \
		while (!(condition)) {                                                             \
			rig_step();                                                                \
			if (rig_late(rig_end))                                                     \
				fail_msg(                                                          \
					"%s:%d: not in time: %s", __func__, __LINE__, #condition); \
		}                                                                                  \
	} while (0)
uint64_t rig_deadline(void);
bool rig_late(uint64_t deadline);

/** Send n packets, as the ring has room; each has its number in all words. */
void rig_send(unsigned int n);
/** Try to send a packet. @return false: no slot is free */
bool rig_try(void);

/** Receiver and sender have joined each other. */
void rig_joined(unsigned int station);
/** All packets sent until now have arrived, or are lost. */
void rig_all(unsigned int station);

struct rdma_stream_sender_info rig_sender_info(void);
struct rdma_stream_receiver_info rig_info(unsigned int station);

uint32_t rig_random(uint32_t below);
uint64_t rig_stat(unsigned int station, const char *name);

/** Make the ICRC of a changed frame right. */
void rig_checksum(struct rte_mbuf *m);

/** Free the packets that a receiver holds. */
void rig_release(unsigned int station);

#endif
