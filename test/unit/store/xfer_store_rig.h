/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Store clients of a receiver and complete stores over software RoCE, in one thread. A switch
 * between them loses frames, and its ports can be unplugged. XFER_SEED repeats a run, XFER_LOG
 * shows the log of both ends.
 */
#ifndef XFER_STORE_RIG_H
#define XFER_STORE_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include <rte_ether.h>
#include <rte_ring.h>

#include "clock.h"
#include "xfer/qp.h"
#include "../xfer/xfer_sample.h"
#include "egress/store_client.h"
#include "server/store.h"

#define RIG_STATIONS 3 /* one receiver, two stores */
#define RIG_STORES   2
#define RIG_SECONDS  30
#define RIG_RING     (32u << 20)
/* of the stores: tests wait for them again and again, and a turn is much shorter */
#define RIG_HEARTBEAT_MS 100
#define RIG_SILENCE_MS	 500
#define RIG_SLOT_BYTES	 (4 * XFER_BLOCK)

struct rig_station {
	struct rte_ring *rx; /* of the station's port */
	struct rte_ring *tx;
	struct rte_ether_addr mac;
	bool known;
	bool out; /* unplugged */
};

struct rig {
	struct rig_station station[RIG_STATIONS];
	unsigned int lose; /* frames lost of 1000 */
	uint64_t seed;
	struct xfer_sample sample;
	char root[64]; /* directory of all files */
	char key_path[80];
	char keys_path[80]; /* the stores' keyring, with the identities `sample` and `hostile` */
	char journal_path[80];
	char message[PATH_MAX];
	struct store *store[RIG_STORES];
	struct rdma_dev *dev[RIG_STATIONS];
	struct rdma_pd *pd;    /* of the receiver */
	struct xfer_mr memory; /* the receiver's journal */
	uint64_t region;       /* largest registration and message in bytes; 0: no limit */
	uint64_t message_max;
	uint16_t max_sge;     /* of the senders opened next; 0: RDMA_SGE_MAX */
	uint32_t slots;	      /* of the area of the journals opened next; 0: none */
	uint64_t quota;	      /* of the stores opened next; 0: none */
	uint32_t failover_ms; /* of the senders opened next; 0: none */
	uint64_t runs_max;
	uint64_t idle_ms;	       /* of the stores opened next; 0: none */
	const struct arrow_io_ops *io; /* of the stores opened next; NULL: direct_io */
	struct journal *journal;
	struct store_set stores;
	struct xfer_key key;
	struct xfer_key hostile_key;
	struct store_client *sender[RIG_STORES];
	unsigned int run;
	unsigned int again;
	void (*also)(void); /* called in each turn, or NULL */
	void (*step)(void); /* called after each store to the journal, or NULL */
	unsigned int found[ARROW_TABLES][XFER_SAMPLE_BATCHES];
};

extern struct rig rig;

/* Run all tests with one set of devices. @return the return value of main() */
#define rig_main(tests) rig_run_tests(tests, sizeof(tests) / sizeof((tests)[0]))
int rig_run_tests(const struct CMUnitTest *tests, size_t nb);

/* Setup of each test: no files, no loss on the network. */
int rig_begin_test(void **state);

/* Poll everything once. */
void rig_turn(void);

/* Print the counters of all devices, and fail the test. */
void rig_give_up(const char *what);

/* Poll until a condition holds. Tests may change the clock of xfer_qp_clock(). */
#define UNTIL(condition)                                                    \
	do {                                                                \
		const int64_t limit = monotonic_ms() + RIG_SECONDS * 1000L; \
		while (!(condition)) {                                      \
			rig_turn();                                         \
			if (monotonic_ms() > limit)                         \
				rig_give_up(#condition);                    \
		}                                                           \
	} while (0)

/*
 * Write the keyring. A running store uses it once it has read it twice. @param more  lines for
 * `sample`
 */
#define RIG_IDENTITY "sample"
void rig_write_keys(const char *more);

void rig_open_store(unsigned int i);
void rig_open_store_in(unsigned int i, unsigned int directory);
void rig_close_store(unsigned int i);

/* Open a receiver with a new journal, for all batches of the sample. */
void rig_open_receiver(void);
/* Only the new journal, for a process that does not send. */
void rig_open_journal(void);
/* Open a receiver that adopts the journal of another process. */
void rig_adopt_journal(void);
void rig_close_receiver(void);
void rig_open_sender(unsigned int i);
void rig_open_sender_to(unsigned int i, unsigned int to_store);
void rig_close_sender(unsigned int i);
struct store_client_stats rig_stats_of(unsigned int i);
void rig_end_run(unsigned int i);

/* The number of batches that each table of the sample has at least. */
unsigned int rig_fewest(void);

/* Put a batch into the journal: rig_hold() without an owner, rig_keep() with a store as owner. */
uint32_t rig_hold(unsigned int table, unsigned int k);
/* As rig_hold(), but the body begins with `nb` parts of odd sizes in slots of the area. */
uint32_t rig_hold_parts(unsigned int table, unsigned int k, unsigned int nb);
/* As rig_hold(), with the body in JOURNAL_PARTS pieces. */
uint32_t rig_hold_pieces(unsigned int table, unsigned int k);
uint32_t rig_keep(unsigned int table, unsigned int k, unsigned int to);
uint64_t rig_held(void);

/* Count the batches of complete files in rig.found, and compare their contents with the sample. */
void rig_look_below(const char *dir);
void rig_each_is_there_once(unsigned int nb);

#endif /* XFER_STORE_RIG_H */
