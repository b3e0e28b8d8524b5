/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * net_replay, private to the driver.
 *
 * A capture is loaded once into an arena of EAL memory. Every Rx queue walks it from the first
 * packet to the last, as many times as asked for, and hands out the packets that flow rules give
 * to it: by reference (an external buffer attached to an mbuf without room) or as a copy.
 */
#ifndef REPLAY_H
#define REPLAY_H

#include <assert.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include <ethdev_driver.h>
#include <rte_common.h>
#include <rte_kvargs.h>
#include <rte_log.h>
#include <rte_mbuf.h>

#include "dpdk_compat.h"
#include "net_replay.h"
#include "replay_fault.h"
#include "replay_pace.h"

extern int replay_logtype;

#define REPLAY_LOG(level, fmt, ...) \
	rte_log(RTE_LOG_##level, replay_logtype, "net_replay: " fmt "\n", ##__VA_ARGS__)

/* Pixels, and the 16-byte and 64-byte loads that read them, start on lines of this size. */
#define REPLAY_LINE 64u

/* Ethernet + IPv4 + UDP + SLS detector header: 14 + 20 + 8 + 48 bytes before the first pixel. */
#define REPLAY_ALIGN_AT_DEFAULT 90u

#define REPLAY_QUEUES_DEFAULT 16u
#define REPLAY_REWRITES_MAX   16u
#define REPLAY_FILES_MAX      16u
#define REPLAY_BURST_MAX      (1u << 24)
#define REPLAY_RSS_KEY	      40u
#define REPLAY_NO_QUEUE	      UINT16_MAX /* of packets that a flow rule drops */

/* mbuf.buf_len has 16 bits */
#define REPLAY_FRAME_MAX UINT16_MAX

/* An integer field of the frame: captured value + loop x step, modulo 2^(8 x length). */
struct replay_rewrite {
	uint16_t offset;
	uint8_t length;
	bool big_endian;
	uint64_t step;
};

enum replay_stamp {
	REPLAY_STAMP_ARRIVAL,  /* TSC when the packet was due, or polled without pacing */
	REPLAY_STAMP_CAPTURED, /* ns of the capture */
};

enum replay_tx {
	REPLAY_TX_COUNT,
	REPLAY_TX_DROP,
	REPLAY_TX_FILE,
};

struct replay_devargs {
	const char *name; /* of the device, for messages */
	char *files[REPLAY_FILES_MAX];
	uint16_t nb_files;
	uint64_t loops; /* 0: endless */
	/* pace, at most one of these is not 0 */
	uint64_t rate; /* packets per second */
	uint64_t bps;  /* bits per second on the wire */
	double speed;  /* as captured, so many times as fast */
	uint32_t burst;
	uint64_t burst_ns;  /* from burst to burst */
	bool overrun_drops; /* descriptors are as many as a queue has */
	struct replay_faults faults;
	enum replay_stamp stamp;
	enum replay_tx tx;
	char *tx_file;
	uint16_t queues;
	uint16_t align_at;
	uint16_t nb_rewrites;
	struct replay_rewrite rewrites[REPLAY_REWRITES_MAX];
};

/*
 * One packet of the capture. It has a line to itself, because its reference count is written by
 * whoever frees the packet while the lcore of another queue reads its neighbour.
 */
struct replay_packet {
	/* The driver holds one reference for as long as the port lives, so the count of an idle
	 * packet is 1 and nobody but the packet's queue ever raises it.
	 */
	struct rte_mbuf_ext_shared_info shared;
	uint8_t *data;
	uint64_t time_ns; /* as captured */
	uint32_t ptype;
	rte_be32_t src_addr; /* addresses if ptype says IPv4, ports if it says UDP */
	rte_be32_t dst_addr;
	rte_be16_t src_port;
	rte_be16_t dst_port;
	uint16_t len;
	uint16_t chunk; /* of the arena */
} __attribute__((aligned(REPLAY_LINE)));
static_assert(sizeof(struct replay_packet) == REPLAY_LINE, "one packet, one line");

struct replay_capture {
	/* By flow: what other queues have, other lcores write to, and a processor that fetches
	 * lines ahead would take these from them. (Two queues, modules that take turns: see
	 * test/bench/results/host.rst.)
	 */
	struct replay_packet *packets;
	uint32_t *order; /* place in `packets` of each packet, as captured */
	uint32_t nb_packets;
	uint32_t align; /* this byte of every frame lies on a line, modulo REPLAY_LINE */
	uint64_t bytes;
	uint64_t truncated; /* records that hold less than the packet had */
	uint64_t empty;	    /* records without a byte, left out */
	/* Packets that anybody still refers to, the port included. The last one frees all. */
	uint64_t held;
	uint32_t nb_chunks;
	size_t last_chunk; /* bytes; the others are all of one size */
	void **chunks;
	/* The arena once more, in memory of the program's, and how far it is from each chunk. */
	uint8_t *twin;
	intptr_t *away; /* 0: there is none */
	bool placed;	/* the twin is up to date */
	bool lent;	/* queues have handed out references */
};

/* The packet that was captured as number i. */
static inline struct replay_packet *
replay_capture_packet(const struct replay_capture *capture, uint32_t i)
{
	return &capture->packets[capture->order[i]];
}

enum replay_mode {
	REPLAY_REFERENCE,	/* the whole frame is one attached segment */
	REPLAY_REFERENCE_SPLIT, /* private header, attached payload */
	REPLAY_COPY,		/* with or without split */
};

/* Why a burst stopped although the next packet was due. */
enum replay_wait {
	REPLAY_WAIT_MBUF,
	REPLAY_WAIT_REFERENCE, /* the packet has as many as can be counted */
	REPLAY_WAIT_SPARE,     /* for a changed copy */
	REPLAY_WAIT_COPY,      /* into memory out of reach: it failed */
	REPLAY_WAITS,
};

/* Count by n. One lcore alone writes a counter; anybody may read it meanwhile. */
static inline void
replay_count(uint64_t *counter, uint64_t n)
{
	__atomic_store_n(counter, *counter + n, __ATOMIC_RELAXED);
}

/* Each counter has one writer, the lcore that polls the queue. */
struct replay_rx_counters {
	uint64_t packets;
	uint64_t bytes;
	uint64_t by_reference;
	uint64_t copied;
	uint64_t wait[REPLAY_WAITS]; /* bursts that stopped */
	uint64_t oversize; /* frames dropped because they fit neither one mbuf nor SCATTER */
	uint64_t missed;   /* found the ring full */
	uint64_t most_waiting;
	uint64_t fault[REPLAY_FAULTS];
	uint64_t late[REPLAY_LATE_BINS];
};

struct replay_dev;
struct replay_tx_file;

/* The window of reorder=... that a queue is in, and which packets of it are the queue's. */
struct replay_window {
	uint64_t number; /* over all loops; UINT64_MAX: none */
	uint32_t first;	 /* of the queue's packets, the first in it */
	uint8_t from[REPLAY_WINDOW_MAX], at[REPLAY_WINDOW_MAX]; /* as captured; as it comes */
};

/*
 * A queue's place in the replay is the number of the packet, counted over all loops, that it looks
 * at next. It is published once a burst, in one piece.
 */
struct replay_rxq {
	/* set up by the control thread, read by the polling lcore */
	struct replay_dev *dev;
	const uint32_t *mine;		/* packets of this queue, as captured; of dev->steering */
	struct rte_mempool *first_pool; /* of the first segment, unused by REPLAY_REFERENCE */
	struct rte_mempool *rest_pool;	/* of attached, or second and further, segments */
	uint64_t first_flags;		/* RTE_MBUF_F_EXTERNAL if the pool's buffers are pinned */
	uint64_t rest_flags;
	uint32_t nb_mine;
	uint16_t first_room; /* bytes of the frame that the first segment takes */
	uint16_t first_off;
	uint16_t rest_room;
	uint16_t rest_off;
	uint16_t port;
	uint16_t id;
	enum replay_mode mode;
	bool split;
	bool scatter;
	bool far; /* further segments are out of the CPU's reach, see net_replay.h */
	bool stamps;
	uint16_t nb_desc;
	struct replay_spares *spares;

	/* written by the polling lcore */
	__attribute__((aligned(RTE_CACHE_LINE_SIZE))) uint64_t place;
	uint64_t loop;
	uint64_t clock; /* TSC at which the first packet of the port was due */
	uint32_t next;	/* of `mine` */
	bool done;
	bool again; /* of two equal packets the first is out */
	bool in_burst;
	struct replay_rx_counters count;
	struct replay_burst burst;
	struct replay_window window;

	/* of the control thread */
	__attribute__((aligned(RTE_CACHE_LINE_SIZE))) struct rte_eth_rxconf conf;
	union rte_eth_rxseg segments[2]; /* that conf points to */
	struct replay_rx_counters base;	 /* counters at the last reset */
};
static_assert(offsetof(struct replay_rxq, first_room) < RTE_CACHE_LINE_SIZE &&
		offsetof(struct replay_rxq, place) == 2 * RTE_CACHE_LINE_SIZE,
	"what a burst reads first is in one line, and all that it only reads in two");
static_assert(offsetof(struct replay_rxq, count.wait) <= 3 * RTE_CACHE_LINE_SIZE,
	"what every burst writes is in one line");

/* Each counter has one writer, the lcore that transmits. */
struct replay_tx_counters {
	uint64_t packets;
	uint64_t bytes;
	uint64_t dropped; /* asked for, or the file could not be written */
};

struct replay_txq {
	struct replay_dev *dev;
	struct replay_tx_counters count;
	struct replay_tx_counters base;
	struct rte_eth_txconf conf;
	uint16_t nb_desc;
} __attribute__((aligned(RTE_CACHE_LINE_SIZE)));
static_assert(offsetof(struct replay_txq, conf) <= RTE_CACHE_LINE_SIZE,
	"what a burst reads and writes is in one line");

struct rte_flow {
	TAILQ_ENTRY(rte_flow) entry;
	uint32_t priority;
	uint16_t nb_queues; /* 0: packets are dropped; more than one: RSS */
	uint16_t *queues;
	uint64_t rss_types;
	uint8_t rss_key[REPLAY_RSS_KEY];
	bool counts;
	uint64_t hits, bytes; /* up to the last change of rules, start or reset */
	bool ipv4;
	bool udp;
	struct rte_ether_hdr ether, ether_mask;
	rte_be32_t src_addr, src_addr_mask;
	rte_be32_t dst_addr, dst_addr_mask;
	rte_be16_t src_port, src_port_mask;
	rte_be16_t dst_port, dst_port_mask;
};
TAILQ_HEAD(replay_flows, rte_flow);

/*
 * The queue of each packet according to the flow rules. When a rule is added or removed, a new
 * table is built beside the old one and then replaces it as a whole.
 */
struct replay_steering {
	uint32_t *list;	    /* packets of queue 0 as captured, of queue 1 ...; dropped ones */
	uint32_t *first_of; /* where the list of each queue begins, of dropped ones, the end */
	struct rte_flow **rule_of; /* of each packet the first that matches; NULL: none has any */
};

struct replay_dev {
	struct replay_devargs args;
	struct replay_capture *capture;
	struct net_replay_memory memory; /* all NULL without */
	struct replay_pace pace;
	int socket;	       /* of all memory */
	uint64_t ns_per_cycle; /* x 2^32 */
	int stamp_offset;
	uint64_t stamp_flag;
	struct replay_tx_file *tx_file;
	/* The queues return nothing while this is set, see replay_flow.c. */
	bool paused;
	bool can_pause;
	struct replay_flows flows; /* in the order in which they are tried */
	/* What follows is changed by whoever changes rules and read by whoever asks for counters:
	 * not by lcores that poll.
	 */
	pthread_mutex_t lock;
	struct replay_steering *steering;
	uint64_t *marks; /* places of queues when rules were last counted; of dropped packets */
	uint64_t flow_dropped; /* up to the marks */
	uint64_t flow_dropped_base;
	/* of queues that are no more, since the last reset */
	struct replay_rx_counters gone_rx;
	struct replay_tx_counters gone_tx;
	struct rte_ether_addr mac;
	/* TSC of the first burst on any queue, 0 before */
	__attribute__((aligned(RTE_CACHE_LINE_SIZE))) uint64_t clock;
};

/* replay_devargs.c: -EINVAL and a log line that names key, value and what is allowed */
int replay_devargs_parse(struct replay_devargs *args, const char *name, const char *params);
void replay_devargs_free(struct replay_devargs *args);

/* replay_capture.c */
int replay_capture_load(
	struct replay_capture **capture, const struct replay_devargs *args, int socket);
/* Gives up the port's references; the memory goes with the last reference of anybody. */
void replay_capture_release(struct replay_capture *capture, const char *name);
uint64_t replay_capture_references(const struct replay_capture *capture);
/* Moves every frame so that its byte `align_at` lies on a line; -EBUSY while references are out. */
int replay_capture_align(struct replay_capture *capture, uint32_t align_at);

/* packet_type of a frame of which so many bytes are there. */
uint32_t replay_packet_type(const uint8_t *frame, uint32_t len);

/* Bytes of a chunk of the arena. */
size_t replay_capture_chunk(const struct replay_capture *capture, uint32_t chunk);

/* replay_place.c: brings the twin up to date, which the capture's packets then lie in */
int replay_capture_place(
	struct replay_capture *capture, const char *name, const struct net_replay_memory *memory);

/* replay_ethdev.c */
extern const struct eth_dev_ops replay_ops;

/* replay_flow.c */
extern const struct rte_flow_ops replay_flow_ops;
int replay_flow_init(struct replay_dev *dev);
void replay_flow_fini(struct replay_dev *dev);
/* Largest queue that a rule names, -1 without rules. */
int replay_flow_queue_max(const struct replay_dev *dev);
/* A queue that has been set up gets its packets. */
void replay_flow_give(struct replay_rxq *rxq);
/* Rules are about to change, or queues to go: what has passed is written down. */
void replay_flow_settle(const struct rte_eth_dev *dev);
/* Queues have gone back to the begin. What they had passed was written down when they stopped. */
void replay_flow_restart(struct rte_eth_dev *dev);
/* Packets that rules have dropped since the port was made. */
uint64_t replay_flow_dropped(const struct rte_eth_dev *dev);

/* replay_steering.c: NULL without memory */
struct replay_steering *replay_steering_create(
	const struct replay_dev *dev, const struct rte_flow *changed, const struct rte_flow *gone);
void replay_steering_free(struct replay_steering *steering);

/* How many of `n` ascending numbers are less than `value`. */
static inline uint32_t
replay_count_below(const uint32_t *list, uint32_t n, uint32_t value)
{
	uint32_t begin = 0;

	while (n > 0) {
		const uint32_t half = n / 2;

		if (list[begin + half] < value) {
			begin += half + 1;
			n -= half + 1;
		} else {
			n = half;
		}
	}
	return begin;
}

/* How many of the listed packets are passed on the way to a place. */
static inline uint64_t
replay_passed(const uint32_t *list, uint32_t n, uint64_t place, uint32_t nb_packets)
{
	return place / nb_packets * n + replay_count_below(list, n, (uint32_t)(place % nb_packets));
}

/* replay_rule.c: what a rule says; a line of the error says what is wrong */
int replay_rule_parse(const struct rte_eth_dev *dev, const struct rte_flow_attr *attr,
	const struct rte_flow_item *pattern, const struct rte_flow_action *actions,
	struct rte_flow *flow, struct rte_flow_error *error);
bool replay_rule_matches(const struct rte_flow *flow, const struct replay_packet *packet);
/* Queue of a packet that the rule matches, REPLAY_NO_QUEUE if it drops it. */
uint16_t replay_rule_queue(const struct rte_flow *flow, const struct replay_packet *packet);

/* replay_queue.c */
int replay_rx_queue_setup(struct rte_eth_dev *dev, uint16_t queue, uint16_t nb_desc,
	unsigned int socket, const struct rte_eth_rxconf *conf, struct rte_mempool *pool);
void replay_rx_queue_release(struct rte_eth_dev *dev, uint16_t queue);
int replay_tx_queue_setup(struct rte_eth_dev *dev, uint16_t queue, uint16_t nb_desc,
	unsigned int socket, const struct rte_eth_txconf *conf);
void replay_tx_queue_release(struct rte_eth_dev *dev, uint16_t queue);
void replay_rxq_info_get(struct rte_eth_dev *dev, uint16_t queue, struct rte_eth_rxq_info *info);
void replay_txq_info_get(struct rte_eth_dev *dev, uint16_t queue, struct rte_eth_txq_info *info);
int replay_rx_burst_mode_get(
	struct rte_eth_dev *dev, uint16_t queue, struct rte_eth_burst_mode *mode);

/* replay_rx.c */
uint16_t replay_rx_burst(void *queue, struct rte_mbuf **bufs, uint16_t nb_bufs);
/* Packets that are due and not polled, as many as there are descriptors; faults left aside. */
uint32_t replay_rx_queue_count(void *queue);
/* The queue's packets are others now: it goes on from its place. While it is not polled. */
void replay_rx_seek(struct replay_rxq *rxq);

/* replay_tx.c */
uint16_t replay_tx_burst(void *queue, struct rte_mbuf **bufs, uint16_t nb_bufs);
int replay_tx_open(struct replay_dev *dev);
void replay_tx_flush(struct replay_dev *dev);
void replay_tx_close(struct replay_dev *dev);

/* replay_stats.c */
bool replay_is_done(const struct rte_eth_dev *dev);
int replay_stats_get(
	struct rte_eth_dev *dev, struct rte_eth_stats *stats COMPAT_QUEUE_STATS(qstats));
int replay_stats_reset(struct rte_eth_dev *dev);
/* What a queue that goes has counted stays the port's. */
void replay_stats_keep_rx(struct replay_rxq *rxq);
void replay_stats_keep_tx(struct replay_txq *txq);
int replay_xstats_get(struct rte_eth_dev *dev, struct rte_eth_xstat *xstats, unsigned int n);
int replay_xstats_get_names(
	struct rte_eth_dev *dev, struct rte_eth_xstat_name *names, unsigned int n);

#endif /* REPLAY_H */
