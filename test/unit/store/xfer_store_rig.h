/* SPDX-License-Identifier: BSD-3-Clause */
/* A receiver's senders and whole stores over software RoCE, in one thread, with a switch between
 * them whose ports can be pulled out and which loses frames. XFER_SEED repeats a run, XFER_LOG
 * shows what both ends say. */
#ifndef XFER_STORE_RIG_H
#define XFER_STORE_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include <rte_ether.h>
#include <rte_ring.h>

#include "xfer/qp.h"
#include "../xfer/xfer_sample.h"
#include "egress/store_client.h"
#include "server/store.h"

#define RIG_STATIONS 3 /* a receiver, two stores */
#define RIG_STORES   2
#define RIG_SECONDS  30
#define RIG_RING     (32u << 20)

struct rig_station {
	struct rte_ring *rx; /* of its port */
	struct rte_ring *tx;
	struct rte_ether_addr mac;
	bool known;
	bool out; /* pulled out */
};

struct rig {
	struct rig_station station[RIG_STATIONS];
	unsigned int lose; /* of 1000 frames */
	uint64_t seed;
	struct xfer_sample sample;
	char root[64]; /* of the files */
	char key_path[80];
	char keys_path[80]; /* the stores' keyring: of the receiver `sample` and of `hostile` */
	char ring_path[80];
	char message[PATH_MAX];
	struct store *store[RIG_STORES];
	struct rdma_dev *dev[RIG_STATIONS];
	struct rdma_pd *pd;    /* the receiver's */
	struct xfer_mr memory; /* its ring */
	uint64_t region;       /* bytes of a registration and of a message; 0: any */
	uint64_t message_max;
	struct journal *ring;
	struct store_set stores;
	struct xfer_key key;
	struct store_client *sender[RIG_STORES];
	unsigned int run;
	unsigned int again;
	void (*also)(void); /* in each turn; NULL: nothing */
	void (*step)(void); /* after each store into the ring; NULL: nothing */
	unsigned int found[ARROW_TABLES][XFER_SAMPLE_BATCHES];
};

extern struct rig rig;

/* All tests, between the devices' coming and going. @return of main() */
#define rig_main(tests) rig_run_tests(tests, sizeof(tests) / sizeof((tests)[0]))
int rig_run_tests(const struct CMUnitTest *tests, size_t nb);

/* Of each test: no files, a good network. */
int rig_begin_test(void **state);

/* Let everything go on a bit. */
void rig_turn(void);

/* Counters of all devices, and the test has failed. */
void rig_give_up(const char *what);

/* Go on until something is so. */
#define UNTIL(condition)                                                     \
	do {                                                                 \
		const uint64_t limit = xfer_qp_clock() + RIG_SECONDS * 1000; \
		while (!(condition)) {                                       \
			rig_turn();                                          \
			if (xfer_qp_clock() > limit)                         \
				rig_give_up(#condition);                     \
		}                                                            \
	} while (0)

/* Write the keyring; stores take it when they have read it twice. @param more  lines of `sample` */
#define RIG_IDENTITY "sample"
void rig_write_keys(const char *more);

void rig_open_store(unsigned int i);
void rig_open_store_in(unsigned int i, unsigned int directory);
void rig_close_store(unsigned int i);

/* A receiver with a new ring, and what it has to send. */
void rig_open_receiver(void);
void rig_close_receiver(void);
void rig_open_sender(unsigned int i);
void rig_open_sender_to(unsigned int i, unsigned int to_store);
void rig_close_sender(unsigned int i);
struct store_client_stats rig_stats_of(unsigned int i);
void rig_end_run(unsigned int i);

/* The batches of the sample that both tables have. */
unsigned int rig_fewest(void);

/* A batch is kept, and no store's; and this store's. */
uint32_t rig_hold(unsigned int table, unsigned int k);
uint32_t rig_keep(unsigned int table, unsigned int k, unsigned int to);
uint64_t rig_held(void);

/* Count the batches of complete files in rig.found; what is in them is what was sent. */
void rig_look_below(const char *dir);
void rig_each_is_there_once(unsigned int nb);

#endif /* XFER_STORE_RIG_H */
