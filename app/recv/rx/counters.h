/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Packets of RX roles, by outcome.
 */
#ifndef RX_COUNTERS_H
#define RX_COUNTERS_H

/**
 * Counters of an RX role. A packet is a UDP packet, or a message of a RoCE queue pair that is not
 * an event. If a device writes packets into memory, an event counts as all packets that its stream
 * sends for a frame: gangs find those that have not come. Each received packet is counted in
 * exactly one of the counters from RX_PLACED on, by the last RX role that has it.
 */
enum rx_counter {
	RX_PACKETS,	 /**< received from queues */
	RX_BYTES,	 /**< ... sum of their Ethernet frame lengths; messages: of their lengths */
	RX_BURSTS,	 /**< polls of a queue that returned packets */
	RX_WAITS,	 /**< polls after which a packet waited for its frame to open */
	RX_EVENTS,	 /**< events of RoCE streams: the detector has sent all of a frame */
	RX_EVENTS_LOST,	 /**< frames of streams in memory of which packets came, and no event */
	RX_CREDITS,	 /**< credits that were written to detectors */
	RX_HANDOFF_SENT, /**< forwarded to another RX role, which counts the outcome */
	RX_PLACED,	 /**< in a frame */
	RX_DUPLICATE,	 /**< the same packet was there already */
	RX_LATE,	 /**< the frame is behind the window */
	RX_OVERRUN,	 /**< in memory: the detector had overwritten all of the stream's frame */
	RX_REFUSED,	 /**< the frame was refused */
	RX_OUTLIER,	 /**< the frame is far ahead of the window */
	RX_BEYOND,	 /**< after the last frame of the run */
	RX_NO_RUN,	 /**< there was no run */
	RX_OTHER,	 /**< the frame belongs to another receiver */
	RX_FOREIGN,   /**< not IPv4/UDP from a stream's source to its destination, see sources.h */
	RX_CHECKSUM,  /**< IPv4 header or UDP checksum is wrong */
	RX_MISPLACED, /**< position of another module in the header: swapped cables */
	RX_FRAGMENT,  /**< IP fragment: the MTU on the path is too small */
	RX_WRONG_LENGTH, /**< wrong length for the format */
	RX_MALFORMED,	 /**< detector header of another format, packet number out of range, or RDMA
			  * WRITE to the address of another packet */
	RX_HANDOFF_FULL, /**< no room in the handoff ring of the role that owns the stream */
	RX_STOPPED,	 /**< waiting, held or in a handoff ring when the run was stopped */
	RX_COUNTERS
};

extern const char *const rx_counter_names[RX_COUNTERS];

#endif /* RX_COUNTERS_H */
