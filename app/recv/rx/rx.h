/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The RX role: polls queues, reads headers, places packets in the frame table.
 *
 * An RX role owns some of the detector's streams, and one struct frame_rx of the frame table. If it
 * receives packets of a stream that another RX role owns (there are no flow rules, or a rule is not
 * exact), it forwards them through that role's handoff ring: the software classifier. No function
 * here allocates, locks, logs or makes a system call.
 */
#ifndef RX_H
#define RX_H

#include <stdbool.h>
#include <stdint.h>

#include <rte_mbuf.h>
#include <rte_ring.h>

#include "frames/detector.h"
#include "frames/frame_rx.h"
#include "port/pools.h"
#include "rx/counters.h"

struct rx_messages;
struct rx_transport;
struct sources;

/**
 * Bursts that one poll takes from each queue and from the handoff ring. A single burst would limit
 * an lcore that also polls a gang (about 25 us a poll) to 2.5 Mpackets/s.
 */
#define RX_BURSTS_A_POLL 4
#define RX_QUEUES_MAX	 16
/** Sources of packets: queues, and the handoff ring as the last one. */
#define RX_SOURCES_MAX (RX_QUEUES_MAX + 1)
/** If more packets of a source wait, no further burst is taken from it. */
#define RX_PENDING_FULL (RX_PENDING_SOURCE - RX_BURST)
/** Packets of streams out of window, held in addition: one frame of packets. */
#define RX_HELD_MAX    (DETECTOR_MODULES_MAX * 128)
#define RX_PENDING_MAX (RX_SOURCES_MAX * RX_PENDING_SOURCE + RX_HELD_MAX)
#define RX_NO_STREAM   UINT16_MAX

/** Samples that an RX role keeps of packets that could not be used; a power of two. */
#define RX_SAMPLES 16
/** Ethernet with a VLAN tag, IPv4, UDP, and a detector header of 48 bytes. */
#define RX_SAMPLE_BYTES 104

/** First bytes of a packet that could not be used: for the log. */
struct rx_sample {
	uint32_t length; /**< length of the packet, in bytes */
	uint16_t cause;	 /**< enum rx_counter */
	uint16_t bytes;	 /**< valid bytes of `data` */
	uint8_t data[RX_SAMPLE_BYTES];
};

/**
 * Number of UDP ports below and above that of stream 0 to which a wrong setting may send packets.
 */
#define RX_NEAR_PORTS ((int)DETECTOR_STREAMS_MAX)

/** Packets to the port of a stream that could not be used. */
struct rx_unusable {
	uint64_t packets;
	uint32_t lowest;  /**< lowest packet number out of range, since the start; + 1, 0: none */
	uint32_t highest; /**< highest packet number out of range, likewise */
};

/**
 * Samples of packets that could not be used, from any sender. After the reader has taken all
 * samples, the first, second, fourth, eighth packet and so on are kept. Therefore a burst of one
 * kind leaves room for other kinds.
 */
struct rx_samples {
	/* written by the RX role */
	uint64_t total;			   /**< packets that could not be used */
	uint64_t since;			   /**< ... since the reader has taken all samples */
	uint32_t head;			   /**< free-running index */
	uint32_t tail __rte_cache_aligned; /**< free-running index; written by the reader */
	struct rx_sample ring[RX_SAMPLES] __rte_cache_aligned;
	struct rx_unusable stream[DETECTOR_STREAMS_MAX]; /**< those to the port of a stream */
	/** Those of the detector's length to other ports, by port - udp_port + RX_NEAR_PORTS. */
	uint64_t near[2 * RX_NEAR_PORTS];
};

/** Packets of a stream that were dropped although they have the detector's format. */
struct rx_drop {
	uint64_t packets;
	uint64_t early;	   /**< ... late, because they are before rx.first_frame */
	uint64_t frame;	   /**< detector's number of the last one */
	uint64_t cause;	   /**< enum rx_counter of the last one */
	uint64_t progress; /**< frame_rx.progress of the stream at the last one */
	/** packets since `progress` changed: since the last one that was placed */
	uint64_t in_row;
};

/** Packets of a stream that were dropped because they are after the last frame of the run. */
struct rx_beyond {
	uint64_t packets;
	uint64_t frame; /**< detector's number of the last one */
};

/** Whether and why a packet is pending. */
enum rx_held {
	RX_NOT_HELD, /**< not pending, or it waits for its own frame to open */
	RX_BEHIND,   /**< it waits behind another packet of its stream */
	RX_HELD,    /**< its stream is out of window; it is held in addition to packets that wait */
	RX_CROWDED, /**< like RX_HELD, but without room: it waits, and soon its queue does */
};

/** A packet whose headers have been read. */
struct rx_packet {
	struct rte_mbuf *m;
	const uint8_t *header; /**< detector header */
	uint64_t frame;	       /**< detector's number */
	uint16_t packet;       /**< number in its stream */
	uint16_t stream;
	uint16_t source; /**< queue, or rx.nb_queues for the handoff ring */
	uint8_t held;	 /**< enum rx_held */
	uint8_t tick;	 /**< frame_rx_tick() when it was first held */
};
static_assert(sizeof(struct rx_packet) == 32, "two a line");

/** Maps UDP destination ports to streams; shared by all RX roles, read-only. */
struct rx_streams {
	uint16_t stream[65536]; /**< RX_NO_STREAM: not a port of the detector */
	uint16_t udp_port;	/**< of stream 0 */
};

/**
 * Counters of an RX role at the end of a poll. The following equation holds:
 *
 *   packets received + handoff_taken = sum of all outcomes + packets forwarded + pending
 */
struct rx_counts {
	uint64_t counters[RX_COUNTERS];
	uint64_t handoff_taken; /**< packets that other RX roles have forwarded to this one */
	uint64_t pending;	/**< packets that wait, are held or are to be forwarded */
} __rte_cache_aligned;
static_assert(sizeof(struct rx_counts) == 4 * RTE_CACHE_LINE_SIZE, "written once a poll");

/** State of an RX role. Once it runs, only its RX lcore writes it, except `stop`. */
struct rx {
	struct frame_table *table;
	struct frame_rx *frx; /**< this role's part of the table */
	const struct rx_streams *streams;
	const struct detector *detector;
	struct sources *sources;  /**< shared; this role writes those of its streams */
	uint32_t sources_version; /**< sources.version that was reviewed last */
	const struct rx_transport *transport;
	/** RoCE: the queues are poll groups of these devices; NULL: UDP */
	const struct rx_messages *messages;
	uint32_t nb_queues;
	struct {
		uint16_t port;	/**< RoCE: index in rx_messages.devices */
		uint16_t queue; /**< RoCE: poll group */
	} queues[RX_QUEUES_MAX];
	/** Offset from an address in a second segment to the address that the gangs use. It is 0
	 * because GPUs use the same addresses as NICs, except for a private gpu_host. */
	ptrdiff_t view;
	bool drop_handoff;   /**< full handoff ring: drop (true) or wait (false) */
	uint32_t nb_pending; /**< packets that wait or are held; read by telemetry and control */
	uint32_t nb_of_source[RX_SOURCES_MAX]; /**< packets that wait, by rx_packet.source */
	bool handoff_used;		       /**< another RX role has forwarded packets */
	bool crowded;	  /**< there was no room to hold a packet of some stream */
	bool first;	  /**< pending packets are retried for the first time in this window */
	bool moved;	  /**< ... and may belong to the old window */
	uint64_t arrived; /**< ... bits of streams with a held packet of the new window */
	uint64_t changes; /**< frame_rx_changes() at the last retry of pending packets */
	/** By stream, lowest detector's number + 1 of the packets that wait and are not held; 0:
	 * none. */
	uint64_t waiting[DETECTOR_STREAMS_MAX];
	uint16_t nb_held[DETECTOR_STREAMS_MAX]; /**< packets that are held, by stream */
	uint32_t nb_handoff_out[FRAME_RX_MAX];	/**< packets in handoff_out, by RX role */
	bool counted;				/**< this poll has counted packets: publish them */
	/** [run] first_frame, 0: auto; written by the control lcore. For rx_drop.early. */
	uint64_t first_frame;
	bool stop;    /**< written by the control lcore: place no more packets */
	bool stopped; /**< the RX role has seen `stop`; read by the control lcore */
	struct rte_ring *handoff_ring; /**< packets that other RX roles forward to this one */
	struct rx *const *peers;       /**< all RX roles, by index */
	/** Live: during a poll, a packet may be counted as received and have no outcome yet. */
	uint64_t counters[RX_COUNTERS] __rte_cache_aligned;
	uint64_t handoff_taken; /**< packets that other RX roles have forwarded to this one */
	uint64_t version;	/**< of `published`: the newest is in published[version % 2] */
	uint64_t polls;		/**< polls that have ended, with what they counted published */
	struct rx_counts published[2] __rte_cache_aligned; /**< see rx_get_counts() */
	struct rx_packet pending[RX_PENDING_MAX]; /**< packets that wait or are held, in order */
	/** Packets to forward, by RX role. */
	struct rte_mbuf *handoff_out[FRAME_RX_MAX][RX_BURST];
	struct rx_samples samples;
	struct rx_drop drops[DETECTOR_STREAMS_MAX];    /**< of this role's streams; for the log */
	struct rx_beyond beyond[DETECTOR_STREAMS_MAX]; /**< likewise; for the end of the run */
} __rte_cache_aligned;
static_assert(offsetof(struct rx, counters) == 16 * RTE_CACHE_LINE_SIZE, "read by other threads");
static_assert(offsetof(struct rx, published) == 20 * RTE_CACHE_LINE_SIZE, "four lines");
static_assert(sizeof(struct rx) == 4506 * RTE_CACHE_LINE_SIZE,
	"29 lines, what may wait, what could not be used, and 64 lines of drops");

/**
 * Publish the counters. rx_poll() does it at its end. Only the role's lcore may call this.
 */
void rx_publish(struct rx *rx);

/** Return the counters of the end of one poll, not of the middle of one. Any thread. */
void rx_get_counts(const struct rx *rx, struct rx_counts *counts);

/**
 * Return the number of polls that have ended. rx_get_counts() after this call has at least what
 * they have counted. Any thread.
 */
uint64_t rx_polls(const struct rx *rx);

/** Take the next sample. Only one thread may call this. @return whether there was one */
bool rx_take_sample(struct rx *rx, struct rx_sample *sample);

/**
 * One poll: retry pending packets, then take a few bursts of each queue and of the handoff ring.
 * Called by the role's lcore only.
 * @param rx  struct rx
 * @return non-zero if any packet was handled
 */
int rx_poll(void *rx);

#endif /* RX_H */
