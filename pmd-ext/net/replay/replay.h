/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * net_replay, private to the driver.
 *
 * A capture is loaded once into an arena of EAL memory. Every Rx queue iterates over it from the
 * first packet to the last, for the configured number of loops, and delivers the packets that flow
 * rules assign to the queue: by reference (an external buffer attached to an mbuf without room) or
 * as a copy.
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

#include "counter.h"
#include "dpdk_compat.h"
#include "net_replay.h"
#include "replay_fault.h"
#include "replay_pace.h"
#include "replay_roce.h"

extern int replay_logtype;

#define REPLAY_LOG(level, fmt, ...) \
	rte_log(RTE_LOG_##level, replay_logtype, "net_replay: " fmt "\n", ##__VA_ARGS__)

/* Cache line size. Pixels, and the 16-byte and 64-byte loads that read them, start on a line. */
#define REPLAY_LINE 64u

/* Ethernet + IPv4 + UDP + SLS detector header: 14 + 20 + 8 + 48 bytes before the first pixel. */
#define REPLAY_ALIGN_AT_DEFAULT 90u

#define REPLAY_QUEUES_DEFAULT 16u
#define REPLAY_REWRITES_MAX   16u
#define REPLAY_FILES_MAX      16u
#define REPLAY_BURST_MAX      (1u << 24)
#define REPLAY_RSS_KEY	      40u
#define REPLAY_NO_QUEUE	      UINT16_MAX /* queue of packets that a flow rule drops */

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
	REPLAY_STAMP_ARRIVAL,  /* TSC at which the packet was due, or polled without pacing */
	REPLAY_STAMP_CAPTURED, /* ns, from the capture */
};

enum replay_tx {
	REPLAY_TX_COUNT,
	REPLAY_TX_DROP,
	REPLAY_TX_FILE,
};

struct replay_devargs {
	const char *name; /* device name, for log messages */
	char *files[REPLAY_FILES_MAX];
	uint16_t nb_files;
	uint64_t loops; /* 0: endless */
	/* pace: at most one of these is not 0 */
	uint64_t rate; /* packets per second */
	uint64_t bps;  /* bits per second on the wire */
	double speed;  /* factor relative to the captured pace */
	uint32_t burst;
	uint64_t burst_ns;  /* interval between burst starts */
	bool overrun_drops; /* packets beyond the descriptors of a queue are lost */
	struct replay_faults faults;
	enum replay_stamp stamp;
	enum replay_tx tx;
	char *tx_file;
	uint16_t queues;
	uint16_t align_at;
	uint16_t nb_rewrites;
	struct replay_rewrite rewrites[REPLAY_REWRITES_MAX];
	struct replay_roce_args roce;
};

/*
 * One packet of the capture. It occupies a whole cache line, because the thread that frees the
 * packet writes its reference count while the lcore of another queue reads the adjacent packet.
 */
struct replay_packet {
	/* The driver holds one reference for as long as the port exists. The count of an idle
	 * packet is therefore 1, and only the packet's queue ever increments it. */
	struct rte_mbuf_ext_shared_info shared;
	uint8_t *data;
	uint64_t time_ns; /* from the capture */
	uint32_t ptype;
	uint32_t checksums;  /* RTE_MBUF_F_RX_IP_CKSUM_* and L4_CKSUM_* */
	rte_be32_t src_addr; /* addresses are valid if ptype is IPv4, ports if it is UDP */
	rte_be32_t dst_addr;
	rte_be16_t src_port;
	rte_be16_t dst_port;
	uint16_t len;
	uint16_t chunk; /* index of the arena's chunk */
} __attribute__((aligned(REPLAY_LINE)));
static_assert(sizeof(struct replay_packet) == REPLAY_LINE, "one packet, one line");

struct replay_capture {
	/* Grouped by flow. Other lcores write to the packets of other queues, and a hardware
	 * prefetcher would fetch adjacent lines from them. (Measured with two queues and
	 * alternating modules: see test/bench/results/host.rst.) */
	struct replay_packet *packets;
	uint32_t *order; /* index in `packets` of each packet, in the order of the capture */
	uint32_t nb_packets;
	uint32_t align; /* this byte of every frame starts a cache line, modulo REPLAY_LINE */
	uint64_t bytes;
	uint64_t truncated; /* records shorter than their packet */
	uint64_t empty;	    /* records without a byte, left out */
	/* Number of packets with references, including the port's. The last release frees
	 * everything. */
	uint64_t held;
	uint32_t nb_chunks;
	size_t last_chunk; /* size in bytes; all other chunks have the same size */
	void **chunks;
	/* Copy of the arena in the application's memory, and its offset from each chunk. */
	uint8_t *copy_memory;
	intptr_t *copy_offset;	  /* 0: no copy */
	bool placed;		  /* the copy is up to date */
	bool lent;		  /* queues have delivered references */
	struct replay_roce *roce; /* numbers of RoCE messages; NULL: they are not changed */
};

/* Packet number i in the order of the capture. */
static inline struct replay_packet *
replay_capture_packet(const struct replay_capture *capture, uint32_t i)
{
	return &capture->packets[capture->order[i]];
}

enum replay_mode {
	REPLAY_REFERENCE,	/* the whole frame is one attached segment */
	REPLAY_REFERENCE_SPLIT, /* private header, attached payload */
	REPLAY_COPY,		/* with or without buffer split */
};

/* Why a burst ended although the next packet was due. */
enum replay_wait {
	REPLAY_WAIT_MBUF,
	REPLAY_WAIT_REFERENCE, /* the packet's reference count is at its maximum */
	REPLAY_WAIT_SPARE,     /* no free buffer for a changed copy */
	REPLAY_WAIT_COPY,      /* a copy to memory that the CPU cannot access has failed */
	REPLAY_WAIT_LOOP,      /* the packet of an earlier loop is in use, see replay_roce.h */
	REPLAY_WAITS,
};

/* Each counter has one writer, the lcore that polls the queue. */
struct replay_rx_counters {
	uint64_t packets;
	uint64_t bytes;
	uint64_t by_reference;
	uint64_t copied;
	uint64_t wait[REPLAY_WAITS]; /* bursts that ended early */
	uint64_t oversize;	     /* frames dropped: larger than one mbuf, without SCATTER */
	uint64_t missed;	     /* lost because the descriptor ring was full */
	uint64_t most_waiting;
	uint64_t fault[REPLAY_FAULTS];
	uint64_t late[REPLAY_LATE_BINS];
};

struct replay_dev;
struct replay_tx_file;

/* The reorder window that a queue is in, and the queue's packets in it. */
struct replay_window {
	uint64_t number; /* counted over all loops; UINT64_MAX: none */
	uint32_t first;	 /* index of the window's first packet in the queue's list */
	/* positions in the window: as captured, as delivered */
	uint8_t from[REPLAY_WINDOW_MAX], at[REPLAY_WINDOW_MAX];
};

/*
 * An Rx queue. `place` is the number of the packet, counted over all loops, that the queue handles
 * next. It is published once per burst, with one store.
 */
struct replay_rxq {
	/* set by the control thread, read by the polling lcore */
	struct replay_dev *dev;
	/* packets of this queue in the order of the capture; part of dev->steering */
	const uint32_t *mine;
	struct rte_mempool *first_pool; /* of the first segment, unused in mode REPLAY_REFERENCE */
	/* of attached segments, or of the second and further segments */
	struct rte_mempool *rest_pool;
	uint64_t first_flags; /* RTE_MBUF_F_EXTERNAL if the pool's buffers are pinned */
	uint64_t rest_flags;
	uint32_t nb_mine;
	uint16_t first_room; /* frame bytes that fit into the first segment */
	uint16_t first_off;
	uint16_t rest_room;
	uint16_t rest_off;
	uint16_t port;
	uint16_t id;
	enum replay_mode mode;
	bool split;
	bool scatter;
	bool far; /* the CPU cannot access further segments, see net_replay.h */
	bool stamps;
	uint16_t nb_desc;
	uint32_t checksums; /* mask of the packets' checksum flags: what the offloads enable */
	struct replay_spares *spares;

	/* written by the polling lcore */
	__attribute__((aligned(RTE_CACHE_LINE_SIZE))) uint64_t place;
	uint64_t loop;
	uint64_t clock; /* TSC at which the first packet of the port was due */
	uint32_t next;	/* index in `mine` */
	bool done;
	bool again; /* the first packet of a duplicate pair was delivered */
	bool in_burst;
	struct replay_rx_counters count;
	struct replay_burst burst;
	struct replay_window window;

	/* used by the control thread */
	__attribute__((aligned(RTE_CACHE_LINE_SIZE))) struct rte_eth_rxconf conf;
	union rte_eth_rxseg segments[2]; /* referenced by conf */
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
	uint64_t dropped; /* due to tx=drop, or because the file could not be written */
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
 * table is built, and then replaces the old one as a whole.
 */
struct replay_steering {
	/* packets of queue 0 in the order of the capture, of queue 1, ..., dropped packets */
	uint32_t *list;
	uint32_t *first_of; /* start of each queue's list, start of the dropped packets, end */
	/* first matching rule of each packet; NULL: there are no rules */
	struct rte_flow **rule_of;
};

struct replay_dev {
	struct replay_devargs args;
	struct replay_capture *capture;
	struct net_replay_memory memory; /* all NULL if not set */
	struct replay_pace pace;
	int socket;	       /* NUMA node of all memory */
	uint64_t ns_per_cycle; /* x 2^32 */
	int stamp_offset;
	uint64_t stamp_flag;
	struct replay_tx_file *tx_file;
	/* While this is set the queues return no packets, see replay_flow.c. */
	bool paused;
	bool can_pause;
	struct replay_flows flows; /* in the order of matching */
	/* The following fields are written by threads that change rules and read by threads that
	 * query counters, under the lock. Polling lcores do not access them. */
	pthread_mutex_t lock;
	struct replay_steering *steering;
	/* positions of the queues at the last count; then that of dropped packets */
	uint64_t *marks;
	uint64_t flow_dropped; /* up to the marks */
	uint64_t flow_dropped_base;
	/* counters of released queues since the last reset */
	struct replay_rx_counters removed_rx;
	struct replay_tx_counters removed_tx;
	struct rte_ether_addr mac;
	/* TSC of the first burst on any queue; 0: no burst yet */
	__attribute__((aligned(RTE_CACHE_LINE_SIZE))) uint64_t clock;
};

/* replay_devargs.c: -EINVAL after a log message that names key, value and the expected values */
int replay_devargs_parse(struct replay_devargs *args, const char *name, const char *params);
void replay_devargs_free(struct replay_devargs *args);

/* replay_capture.c */
int replay_capture_load(
	struct replay_capture **capture, const struct replay_devargs *args, int socket);
/* Releases the port's references. The memory is freed with the last reference. */
void replay_capture_release(struct replay_capture *capture, const char *name);
uint64_t replay_capture_references(const struct replay_capture *capture);
/* Moves every frame so that its byte `align_at` starts a cache line; -EBUSY while references are
 * outstanding. */
int replay_capture_align(struct replay_capture *capture, uint32_t align_at);

/* packet_type of a frame of which `len` bytes are available. */
uint32_t replay_packet_type(const uint8_t *frame, uint32_t len);

/* Size in bytes of a chunk of the arena. */
size_t replay_capture_chunk(const struct replay_capture *capture, uint32_t chunk);

/* replay_place.c: updates the copy of the arena, to which references then point */
int replay_capture_place(
	struct replay_capture *capture, const char *name, const struct net_replay_memory *memory);

/* replay_ethdev.c */
extern const struct eth_dev_ops replay_ops;

/* replay_flow.c */
extern const struct rte_flow_ops replay_flow_ops;
int replay_flow_init(struct replay_dev *dev);
void replay_flow_fini(struct replay_dev *dev);
/* Highest queue that a rule names, -1 without rules. */
int replay_flow_queue_max(const struct replay_dev *dev);
/* Assigns the packet list to a queue that has been set up. */
void replay_flow_give(struct replay_rxq *rxq);
/* Updates the counts of rules. Called before rules change or queues are released. */
void replay_flow_settle(const struct rte_eth_dev *dev);
/* The queues restart at the first packet. Their progress was counted when they stopped. */
void replay_flow_restart(struct rte_eth_dev *dev);
/* Packets dropped by rules since the port was created. */
uint64_t replay_flow_dropped(const struct rte_eth_dev *dev);

/* replay_steering.c: NULL: out of memory */
struct replay_steering *replay_steering_create(
	const struct replay_dev *dev, const struct rte_flow *changed, const struct rte_flow *gone);
void replay_steering_free(struct replay_steering *steering);

/* Number of the `n` ascending values that are less than `value`. */
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

/* Number of listed packets that are passed before a position is reached. */
static inline uint64_t
replay_passed(const uint32_t *list, uint32_t n, uint64_t place, uint32_t nb_packets)
{
	return place / nb_packets * n + replay_count_below(list, n, (uint32_t)(place % nb_packets));
}

/* replay_rule.c: parses a rule; errors are described in `error` */
int replay_rule_parse(const struct rte_eth_dev *dev, const struct rte_flow_attr *attr,
	const struct rte_flow_item *pattern, const struct rte_flow_action *actions,
	struct rte_flow *flow, struct rte_flow_error *error);
bool replay_rule_matches(const struct rte_flow *flow, const struct replay_packet *packet);
/* Queue of a packet that matches the rule; REPLAY_NO_QUEUE if the rule drops it. */
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
/* Number of packets that are due and not polled, at most the number of descriptors; faults are
 * ignored. */
uint32_t replay_rx_queue_count(void *queue);
/* Finds the queue's position in a new packet list. Call it while the queue is not polled. */
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
/* Adds the counters of a queue to the port's before the queue is released. */
void replay_stats_keep_rx(struct replay_rxq *rxq);
void replay_stats_keep_tx(struct replay_txq *txq);
int replay_xstats_get(struct rte_eth_dev *dev, struct rte_eth_xstat *xstats, unsigned int n);
int replay_xstats_get_names(
	struct rte_eth_dev *dev, struct rte_eth_xstat_name *names, unsigned int n);

#endif /* REPLAY_H */
