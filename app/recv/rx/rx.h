/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The RX role: polls queues, reads headers, places packets in the frame table.
 *
 * One role owns some of the detector's streams and one RX role of the frame table. Packets of
 * streams that another role owns (no flow rules, or a rule that is not exact) are handed on through
 * that role's handoff ring: the software classifier. Nothing here allocates, locks, logs or calls
 * the system.
 */
#ifndef RX_H
#define RX_H

#include <stdbool.h>
#include <stdint.h>

#include <rte_mbuf.h>
#include <rte_ring.h>

#include "frames/detector.h"
#include "frames/frame_table.h"
#include "rx/sources.h"

#define RX_BURST 64
/**
 * Bursts of a queue or an handoff ring that is not empty, in one poll. One alone would be 2.5
 * Mpackets/s at most on an lcore that a gang shares, whose polls take some 25 us.
 */
#define RX_BURSTS_A_POLL 4
#define RX_QUEUES_MAX	 16
/** Where packets come from: queues, and the handoff ring behind them. */
#define RX_SOURCES_MAX	  (RX_QUEUES_MAX + 1)
#define RX_PENDING_SOURCE (4 * RX_BURST) /**< packets of a source that may wait */
/** More of a source wait: no further burst of it is taken. */
#define RX_PENDING_FULL (RX_PENDING_SOURCE - RX_BURST)
/** Packets of streams that are elsewhere, held beside those: a frame's. */
#define RX_HELD_MAX    (DETECTOR_MODULES_MAX * 128)
#define RX_PENDING_MAX (RX_SOURCES_MAX * RX_PENDING_SOURCE + RX_HELD_MAX)
#define RX_INBOX_SIZE  4096
#define RX_NO_STREAM   UINT16_MAX

/** Every packet that is received ends in exactly one of the counters from RX_PLACED on. */
enum rx_counter {
	RX_PACKETS,	 /**< taken from queues */
	RX_BYTES,	 /**< ... frame lengths */
	RX_BURSTS,	 /**< polls of a queue that gave something */
	RX_WAITS,	 /**< polls after which a packet waited for its frame to open */
	RX_HANDOFF_SENT, /**< to another role, which counts what becomes of it */
	RX_PLACED,
	RX_DUPLICATE,
	RX_LATE,
	RX_REFUSED,
	RX_OUTLIER,
	RX_BEYOND,
	RX_NO_RUN,    /**< there was no run */
	RX_OTHER,     /**< of a frame that another receiver takes */
	RX_FOREIGN,   /**< not IPv4/UDP from a stream's source to its destination, see sources.h */
	RX_CHECKSUM,  /**< IPv4 header or UDP checksum is wrong */
	RX_MISPLACED, /**< of another module's position: swapped cables */
	RX_FRAGMENT,  /**< IP fragment: the MTU on the way is too small */
	RX_WRONG_LENGTH, /**< wrong length for the format */
	RX_MALFORMED,	 /**< detector header of another format, or packet number out of range */
	RX_HANDOFF_FULL, /**< no room in the handoff ring of the role that owns the stream */
	RX_STOPPED,	 /**< still waiting when the run was stopped */
	RX_COUNTERS
};

extern const char *const rx_counter_names[RX_COUNTERS];

/** Samples of packets that could not be used, of one role; a power of two. */
#define RX_SAMPLES 16
/** Ethernet with a VLAN tag, IPv4 and UDP, and a detector header of 48 bytes. */
#define RX_SAMPLE_BYTES 104

/** The beginning of a packet that could not be used: for the log. */
struct rx_sample {
	uint32_t length; /**< of the packet */
	uint16_t cause;	 /**< enum rx_counter */
	uint16_t bytes;	 /**< of `data` */
	uint8_t data[RX_SAMPLE_BYTES];
};

/**
 * Packets that could not be used, whoever sent them: the first one since the reader had taken all,
 * the second, the fourth and so on. So a burst of one kind leaves room for another.
 */
struct rx_samples {
	/* by the role */
	uint64_t total;	 /**< packets */
	uint64_t since;	 /**< ... since the reader had taken all */
	uint32_t lowest; /**< packet numbers out of range since the start; + 1, 0: none */
	uint32_t highest;
	uint32_t head;
	uint32_t tail __rte_cache_aligned; /**< by the reader */
	struct rx_sample ring[RX_SAMPLES] __rte_cache_aligned;
};

/** Whether a packet waits because its stream is elsewhere. */
enum rx_held {
	RX_NOT_HELD,
	RX_BEHIND,  /**< not held, but it waits behind another packet of its stream */
	RX_HELD,    /**< beside those that wait */
	RX_CROWDED, /**< there is no room: it waits as others do, and its queue soon with it */
};

/** A packet whose headers have been read. */
struct rx_packet {
	struct rte_mbuf *m;
	const uint8_t *header; /**< detector header */
	uint64_t frame;
	uint16_t packet;
	uint16_t stream;
	uint16_t source; /**< queue, or rx.nb_queues for the handoff ring */
	uint8_t held;	 /**< enum rx_held */
	uint8_t tick;	 /**< frame_rx_tick() when it was first held */
};
static_assert(sizeof(struct rx_packet) == 32, "two a line");

/** Maps UDP destination ports to streams; shared by all RX roles, read-only. */
struct rx_streams {
	uint16_t stream[65536]; /**< RX_NO_STREAM: not the detector's */
};

struct rx {
	struct frame_table *table;
	struct frame_rx *frx;
	const struct rx_streams *streams;
	const struct detector *detector;
	struct sources *sources;  /**< shared by all; filters of this role's streams are its own */
	uint32_t sources_version; /**< that was reviewed */
	uint32_t nb_queues;
	struct {
		uint16_t port;
		uint16_t queue;
	} queues[RX_QUEUES_MAX];
	/** What to add to an address in a second segment for the gangs' own: 0, as GPUs have the
	 * addresses that NICs have, but for a private gpu_host. */
	ptrdiff_t view;
	bool drop_handoff; /**< full handoff ring: drop (true) or wait (false) */
	uint32_t nb_pending;
	uint32_t nb_of_source[RX_SOURCES_MAX]; /**< pending, by rx_packet.source */
	bool handoff_used;		       /**< others have handed packets on */
	bool crowded;			       /**< no room to hold a packet of some stream */
	bool first;	  /**< what is tried again is so for the first time in this window */
	bool moved;	  /**< ... and may be of another one before */
	uint64_t arrived; /**< ... streams of which a packet of the new one was held */
	uint64_t changes; /**< of the table, when pending packets were last tried again */
	/** Of each stream, the lowest frame + 1 of which packets wait; 0: none. */
	uint64_t waiting[DETECTOR_STREAMS_MAX];
	uint16_t nb_held[DETECTOR_STREAMS_MAX]; /**< pending, by stream */
	uint32_t nb_handoff_out[FRAME_RX_MAX];
	bool stop; /**< set by the control lcore: place no more */
	bool stopped;
	struct rte_ring *handoff_ring;
	struct rx *const *peers; /**< all RX roles, by RX role */
	uint64_t counters[RX_COUNTERS] __rte_cache_aligned;
	struct rx_packet pending[RX_PENDING_MAX];
	struct rte_mbuf *handoff_out[FRAME_RX_MAX][RX_BURST];
	struct rx_samples samples;
} __rte_cache_aligned;
static_assert(offsetof(struct rx, counters) == 15 * RTE_CACHE_LINE_SIZE, "read by other threads");
static_assert(sizeof(struct rx) == 4400 * RTE_CACHE_LINE_SIZE,
	"19 lines, what may wait, and samples of what could not be used");

/** The next sample, by the one thread that reads them. @return whether there was one */
bool rx_take_sample(struct rx *rx, struct rx_sample *sample);

/**
 * One round: everything that waits, a few bursts of each queue and of the handoff ring.
 * Its own lcore only. @return non-zero if any packet was handled
 */
int rx_poll(void *rx);

#endif /* RX_H */
