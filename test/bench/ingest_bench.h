/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shared by the parts of ingest_bench: one sender, one receiver, and a channel between them over
 * which they agree on each trial. The receiver decides what is measured.
 */
#ifndef INGEST_BENCH_H
#define INGEST_BENCH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "rdma.h"
#include "rdma_pages.h"

#define INGEST_PAYLOAD_MAX 1048576 /* of RDMA */
#define INGEST_PACKET_MAX  8972	   /* of UDP and RAW: an MTU of 9000 */
#define INGEST_DEPTH_MAX   64

/* Ways into memory: the columns of the paper's tables, and ours. */
enum ingest_method {
	INGEST_UDP_RECV,     /* recv(), the socket as the system gives it */
	INGEST_UDP_TUNED,    /* recvmmsg(), large forced buffer */
	INGEST_RAW,	     /* rx_burst of an ethdev port, payload by reference */
	INGEST_UC_SEND,	     /* into posted receives */
	INGEST_UC_WRITE,     /* the sender chooses the address; no completion */
	INGEST_UC_WRITE_IMM, /* with a completion for each message */
	INGEST_RC_WRITE,     /* acknowledged */
	INGEST_METHODS,
};

/* Where the receiver's ring of destinations lies. */
enum ingest_pages {
	INGEST_SMALL,
	INGEST_HUGE,
	INGEST_PAGES,
};

/* What the receiver asks the sender to send. */
struct ingest_trial {
	uint32_t size; /* of this struct, so that other versions and byte orders are refused */
	uint32_t method;
	uint32_t pages;
	uint32_t payload;   /* bytes of a message */
	uint32_t addresses; /* destinations, used in turn */
	uint32_t depth;	    /* RDMA: messages in flight */
	double rate;	    /* messages/s; 0: no limit */
	double seconds;
};

/* What the ends tell each other before a trial. */
struct ingest_end {
	struct sockaddr_storage addr; /* of the RDMA device */
	uint64_t base;		      /* of the ring */
	uint32_t rkey;
	uint32_t qpn, psn;
	uint16_t udp_port, mtu;
};

/* What the sender says after it. */
struct ingest_sent {
	uint64_t messages;
	double seconds;
};

/* Result of a trial, as the receiver sees it. */
struct ingest_outcome {
	uint64_t sent, received;
	double rate;   /* messages/s, from the first to the last one received */
	double cycles; /* TSC cycles of the receiver's lcore for a message */
	double busy;   /* share of the time that its lcore works */
};

/* A ring of destinations. */
struct ingest_ring {
	uint8_t *memory; /* NULL: there is none */
	uint64_t length;
	enum rdma_pages_kind kind;
	struct rdma_mr *mr;
};

/* RDMA device of one end. */
struct ingest_device {
	struct rdma_dev *dev;
	struct rdma_dev_info info;
	struct rdma_pd *pd;
	struct rdma_cq *send_cq, *recv_cq;
	struct rdma_qp *qp;
};

/* One end: the sender has a source, the receiver has the rings. */
struct ingest_host {
	struct ingest_device rdma;
	struct ingest_ring source;
	struct ingest_ring ring[INGEST_PAGES];
	int channel;
	uint16_t raw_port; /* of this end; UINT16_MAX: none */
	bool alone;	   /* no other program uses the CPUs */
};

void ingest_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* Bytes between two destinations: whole cache lines. */
uint32_t ingest_stride(uint32_t payload);

/* ---- ingest_bench_channel.c: a stream of structs between the ends ---- */

void ingest_channel_pair(int channel[2]);
int ingest_channel_listen(uint16_t port);
int ingest_channel_connect(const char *host, uint16_t port);
void ingest_put(int channel, const void *object, size_t size);
/* @param idle called while waiting, may be NULL @return false: the other end has finished */
bool ingest_get(int channel, void *object, size_t size, void (*idle)(void *arg), void *arg);
/* @return whether something can be read */
bool ingest_is_ready(int channel);

/* ---- trials of each transport; both ends call them with the same trial ---- */

/* ingest_bench_udp.c */
void ingest_udp_send(struct ingest_host *h, const struct ingest_trial *t);
void ingest_udp_receive(
	struct ingest_host *h, const struct ingest_trial *t, struct ingest_outcome *out);

/* ingest_bench_raw.c */
void ingest_raw_open(struct ingest_host *sender, struct ingest_host *receiver);
void ingest_raw_send(struct ingest_host *h, const struct ingest_trial *t);
void ingest_raw_receive(
	struct ingest_host *h, const struct ingest_trial *t, struct ingest_outcome *out);

/* ingest_bench_rdma.c: the functions of this file may run on two lcores at a time */
void ingest_rdma_open(struct ingest_host *h, const char *name);
void ingest_rdma_close(struct ingest_host *h);
void ingest_rdma_send(struct ingest_host *h, const struct ingest_trial *t);
void ingest_rdma_receive(
	struct ingest_host *h, const struct ingest_trial *t, struct ingest_outcome *out);

/* ---- ingest_bench_trial.c ---- */

/* The sender's life: trials until the receiver has finished. */
void ingest_serve(struct ingest_host *h);
/* The highest rate without loss, by bisection. */
void ingest_lossless(
	struct ingest_host *h, const struct ingest_trial *t, struct ingest_outcome *out);
/* Messages that the sender may have sent by now. @param begin TSC */
uint64_t ingest_due(const struct ingest_trial *t, uint64_t begin);
/* Did the trial lose nothing? */
bool ingest_is_lossless(const struct ingest_outcome *out);

/* ---- ingest_bench_table.c ---- */

const char *ingest_name(enum ingest_method method);
bool ingest_is_rdma(enum ingest_method method);
/* Payload of a 100 GbE line, Gbit/s: preamble, gap, FCS and all headers are counted. */
double ingest_line(enum ingest_method method, uint32_t payload);
/* The paper's figure, Gbit/s; 0: none. */
double ingest_paper(enum ingest_method method, uint32_t payload, bool many);

#endif /* INGEST_BENCH_H */
