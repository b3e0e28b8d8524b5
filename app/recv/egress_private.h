/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef EGRESS_PRIVATE_H
#define EGRESS_PRIVATE_H

/**
 * @file
 * What the parts of the egress share: egress.c (its life, and what threads that make batches and
 * runs ask of it) and egress_lcore.c (what its lcore does: orders, senders, stores that are gone).
 */

#include <rte_log.h>

#include "egress.h"
#include "rdma/rdma.h"
#include "sink/sink_key.h"
#include "sink/sink_sender.h"

extern int egress_logtype;

#define LOG(level, ...) rte_log(RTE_LOG_##level, egress_logtype, "egress: " __VA_ARGS__)

/* What others want of the lcore. */
enum order {
	ORDER_NONE,
	ORDER_BEGIN,
	ORDER_RESERVE,
	ORDER_COMMIT,
	ORDER_END,
	ORDER_IS_OVER,
};

/* One thing at a time: `order` is stored last by who asks, and back to ORDER_NONE by the lcore. */
struct mailbox {
	int order; /* atomic */
	int answer;
	const struct retention_run *run;
	struct retention_batch batch;
	uint64_t body;
	uint8_t *room;
	uint64_t batches[SINK_TABLES];
};

/* What is counted when a batch is durable and forgotten. */
struct known {
	uint32_t rows;
	uint8_t run; /* index */
	uint8_t table;
};

/* A run whose batches are held. */
struct egress_run {
	bool used;
	bool finishing;
	unsigned int index; /* in the ring */
	struct sink_sender *sender[EGRESS_STORES];
};

struct egress {
	struct egress_settings settings;
	uint64_t producer;
	struct sink_key key;
	struct rdma_dev *dev;
	struct rdma_dev_info info;
	struct rdma_pd *pd;
	struct rdma_mr *mr;
	struct retention *ring;
	unsigned int nb_stores;
	struct sockaddr_storage address[EGRESS_STORES];
	char name[EGRESS_STORES][64];
	int number[EGRESS_STORES]; /* in the ring */
	struct egress_run run[RETENTION_RUNS];
	int current; /* index of the run at hand; -1: none */
	unsigned int next_store;
	struct known *known; /* by batch */
	uint64_t turn;
	uint64_t look_at;
	uint64_t cm_at;
	bool lcore_polls; /* atomic */
	uint64_t body_max[SINK_TABLES];
	struct mailbox mail;
	struct egress_stats stats[SINK_TABLES];
};

#define SET(counter, value) __atomic_store_n(&(counter), (value), __ATOMIC_RELAXED)
#define ADD(counter, n)	    SET(counter, (counter) + (n))

/** Runs of a receiver that was killed: theirs is sent, and then they are over. @return 0; -errno */
int egress_adopt_runs(struct egress *e);

/** The lcore's turn, or that of who asks before lcores poll. @return something was done */
int egress_turn(struct egress *e);

#endif /* EGRESS_PRIVATE_H */
