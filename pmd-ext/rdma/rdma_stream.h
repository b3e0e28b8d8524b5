/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDMA_STREAM_H
#define RDMA_STREAM_H

/**
 * @file
 * Reliable multicast: one sender, a stream of packets to the members of a UD group. A member gets
 * packets that it missed from the sender's ring by RDMA READ, so that the sender's program sends
 * nothing twice. README.rst has the protocol.
 *
 * Life cycle of a sender: rdma_stream_sender_create() -> rdma_stream_next(), rdma_stream_commit()
 * for each packet -> rdma_stream_end() -> rdma_stream_sender_poll() until
 * rdma_stream_sender_done() -> rdma_stream_sender_destroy(). Of a receiver:
 * rdma_stream_receiver_create() -> rdma_stream_receive(), rdma_stream_release() until the state is
 * RDMA_STREAM_ENDED -> rdma_stream_leave() -> rdma_stream_receiver_destroy().
 *
 * Threads. Functions marked *Control.* are called by the control lcore of rdma.h, the others by the
 * lcore that owns the poll group. Both may be the same lcore; with `verbs` they must be.
 *
 * The control lcore hands each event of the device's rdma_poll_cm() to the `_event()` functions of
 * all its senders and receivers until one returns true. It calls the `_control()` functions every
 * millisecond or so.
 */

#include <stdbool.h>
#include <stdint.h>

#include "rdma.h"

#ifdef __cplusplus
extern "C" {
#endif

struct rdma_stream_sender;
struct rdma_stream_receiver;

#define RDMA_STREAM_HEADER_BYTES 32   /**< bytes before the payload of a packet */
#define RDMA_STREAM_MAC_BYTES	 32   /**< bytes of the code of a proof */
#define RDMA_STREAM_MEMBERS_MAX	 64   /**< maximum members of a sender */
#define RDMA_STREAM_CONNS_MAX	 8    /**< maximum connections of a member */
#define RDMA_STREAM_PORT	 7190 /**< default port of a sender's service */

/** What a sender does when its ring is full. */
enum rdma_stream_policy {
	/** Wait for the slowest member. A member that is silent for `silence_ms` is removed. */
	RDMA_STREAM_WAIT,
	/**
	 * Overwrite the oldest packets. A member that did not receive them in time counts them as
	 * lost.
	 */
	RDMA_STREAM_OVERWRITE,
};

/** How a receiver handles missing packets. */
enum rdma_stream_repair {
	RDMA_STREAM_READ, /**< READ them from the sender's ring */
	/**
	 * Ask the sender to send them to the group again. A baseline for benchmarks: the sender's
	 * program processes each request, and all members receive the repeated packets.
	 */
	RDMA_STREAM_NACK,
	RDMA_STREAM_NO_REPAIR, /**< skip them; they are counted as lost */
};

/**
 * Mutual proof of both ends, made with a key that they share. A sender gives its keys only to
 * members with a valid proof; a member accepts a card only with a valid proof of the sender.
 */
struct rdma_stream_proof {
	/**
	 * Compute the code of a message, for instance an HMAC with a key of an identity. Called by
	 * the owner lcore, once for each proof and key.
	 * @param identity of the member
	 * @param key      from 0; below `keys` for a sender, 0 for a member
	 * @return 0; negative errno: no such identity, or failure. The proof is then refused.
	 */
	int (*mac)(void *arg, uint64_t identity, unsigned int key, const void *message,
		uint32_t length, uint8_t mac[RDMA_STREAM_MAC_BYTES]);
	void *arg;
	/**
	 * Number of keys of an identity that a sender accepts, so that keys can be replaced one
	 * after another (1). The card is signed with the key of the member's proof.
	 */
	unsigned int keys;
};

/* ---- sender ---------------------------------------------------------------------------------- */

/** Attributes of a sender. Zero selects the default, if one is given in parentheses. */
struct rdma_stream_sender_attr {
	struct rdma_dev *dev;
	struct rdma_pd *pd;
	uint16_t poll_group;
	const struct sockaddr *group; /**< multicast address */
	uint16_t port;		      /**< port of the service that members connect to (7190) */
	enum rdma_stream_policy policy;
	/** Of the ring; a power of two (4,096). More than rate x (time to notice a loss + queue +
	 *  round trip + retries) / slot: rdma_stream_slots() */
	uint32_t slots;
	uint32_t payload_max; /**< bytes (the MTU less the header) */
	uint16_t members_max; /**< (8) */
	uint32_t rate_mbps;   /**< limit of the stream (0: none); multicast has no other limit */
	/**
	 * A member that is silent for this time is removed (2,000). Times in which
	 * rdma_stream_sender_poll() is not called do not count
	 */
	uint32_t silence_ms;
	uint32_t gather_us; /**< NACK: time in which requests are collected (100) */
	uint64_t first;	    /**< number of the first packet (0) */
	/** NULL: members are not authenticated, for trusted links only */
	const struct rdma_stream_proof *proof;
};

/** State and counters of a sender. */
struct rdma_stream_sender_info {
	uint64_t run;	  /**< random number of this sender */
	uint64_t head;	  /**< number of the next packet */
	uint64_t tail;	  /**< all members have the packets before this one */
	uint16_t members; /**< members that have accepted the card and have not left */
	uint64_t joined, left;
	uint64_t removed_silent; /**< members removed because they were silent */
	uint64_t removed_wrong;	 /**< members removed because of an invalid tail or message */
	uint64_t refused_proof;	 /**< requests to join with a wrong proof */
	/** other requests refused: malformed, too many members, or a card that a member refused */
	uint64_t refused;
	uint64_t full;	      /**< calls of rdma_stream_next() that found no free slot */
	uint64_t resent;      /**< NACK: packets sent again */
	uint64_t send_errors; /**< failed sends */
};

/** A member that takes part. */
struct rdma_stream_member_info {
	struct sockaddr_storage addr; /**< address from which the member has joined */
	uint64_t identity; /**< claimed by the member; verified if the sender has a proof */
	uint64_t tail;	   /**< the member has all packets before this one */
	/**
	 * No packet before this one is in flight to the member. Above `tail` if the member misses
	 * packets
	 */
	uint64_t seen;
};

/** Number of slots that a ring needs. @param latency_us time to detect and repair a loss */
uint32_t rdma_stream_slots(uint32_t rate_mbps, uint32_t payload_max, uint32_t latency_us);

/**
 * Create a sender: ring, UD queue pair, listener. *Control.*
 * @return NULL with rte_errno EINVAL, ENOMEM, EADDRINUSE, or that of the functions of rdma.h
 */
struct rdma_stream_sender *rdma_stream_sender_create(const struct rdma_stream_sender_attr *attr);

/**
 * Destroy a sender. *Control.* Members detect this by their connections.
 * @return 0; -EBUSY: the port still holds frames of the ring. Keep polling and try again.
 */
int rdma_stream_sender_destroy(struct rdma_stream_sender *s);

/** Handle an event of the device. *Control.* @return true: it belonged to the sender */
bool rdma_stream_sender_event(struct rdma_stream_sender *s, const struct rdma_event *event);

/** Remove members that have left, failed or were silent. *Control.* */
void rdma_stream_sender_control(struct rdma_stream_sender *s);

/**
 * Get the next free slot. The slot is invalid for members until rdma_stream_commit().
 * @return where to write the payload, aligned to 32 bytes; NULL: none is free, call
 *   rdma_stream_sender_poll() and try again
 */
void *rdma_stream_next(struct rdma_stream_sender *s);

/**
 * Publish the slot of rdma_stream_next() and send it, at the latest at the next poll.
 * @param length bytes, at most payload_max
 * @return 0; -EINVAL: no slot, too long, or after the end
 */
int rdma_stream_commit(struct rdma_stream_sender *s, uint32_t length);

/** Send, collect completions, read the members' tails, admit members. @return packets sent */
unsigned int rdma_stream_sender_poll(struct rdma_stream_sender *s);

/** Mark the end of the stream. Members that have all packets are then in RDMA_STREAM_ENDED. */
void rdma_stream_end(struct rdma_stream_sender *s);

/**
 * After rdma_stream_end(): return true if every member has all packets (*overwrite*: if all packets
 * are sent). Only present members count, so the result is also true if there is none.
 * rdma_stream_sender_info.removed_silent and .removed_wrong show whether members without all
 * packets were removed. A removed member that joins again counts once more as `joined`.
 */
bool rdma_stream_sender_done(const struct rdma_stream_sender *s);

/** Any lcore. @return 0 */
int rdma_stream_sender_info_get(
	const struct rdma_stream_sender *s, struct rdma_stream_sender_info *info);

/** Get the members that take part. @return their number, at most n */
uint16_t rdma_stream_sender_members(
	const struct rdma_stream_sender *s, struct rdma_stream_member_info *member, uint16_t n);

/* ---- receiver -------------------------------------------------------------------------------- */

enum rdma_stream_state {
	RDMA_STREAM_JOINING, /**< connecting, for the first time or again */
	RDMA_STREAM_JOINED,  /**< receives the stream */
	RDMA_STREAM_ENDED,   /**< all packets of the stream have been delivered */
	RDMA_STREAM_LEFT,    /**< the sender knows that this member has left */
	RDMA_STREAM_FAILED,  /**< `error` has the reason */
};

/** Attributes of a receiver. Zero selects the default, if one is given in parentheses. */
struct rdma_stream_receiver_attr {
	struct rdma_dev *dev;
	struct rdma_pd *pd;
	uint16_t poll_group;
	const struct sockaddr *group;
	const struct sockaddr *sender; /**< address and port of the sender's service */
	uint32_t payload_max;	       /**< bytes, as at the sender (the MTU less the header) */
	/** Receive buffers (4,096). With fewer than the sender's slots, a slow receiver would lose
	 *  more than the network does: it fails with -EMSGSIZE */
	uint32_t buffers;
	uint32_t repair_buffers; /**< for packets that are READ (1,024) */
	uint16_t reads;		 /**< connections for READ (4), at most RDMA_STREAM_CONNS_MAX */
	uint16_t reads_max;	 /**< READs in flight on each connection (4) */
	uint16_t range_max;	 /**< maximum slots of one READ, up to RDMA_SGE_MAX (8) */
	uint32_t quiet_us; /**< after this time without a packet, the sender's head is READ (200) */
	uint32_t nack_gather_us; /**< NACK: time in which gaps are collected (100) */
	uint32_t nack_again_us;	 /**< NACK: after this time a packet is requested again (5,000) */
	enum rdma_stream_repair repair;
	uint64_t identity; /**< identity of this member, for the proof */
	const struct rdma_stream_proof *proof;
};

/** A packet. */
struct rdma_stream_packet {
	uint64_t sequence;
	uint64_t run; /**< run of the sender; changes when the sender is restarted */
	const void *data;
	uint32_t length;
	uint32_t buffer; /**< internal */
	/**
	 * Packets of this run before this one that are lost permanently, since the previous
	 * delivered one. Those at the end of an earlier run are only in rdma_stream_receiver_info
	 */
	uint64_t lost;
};

/** State and counters of a receiver. */
struct rdma_stream_receiver_info {
	enum rdma_stream_state state;
	int error;	   /**< RDMA_STREAM_FAILED: negative errno */
	uint64_t run;	   /**< of the sender */
	uint32_t slots;	   /**< slots of the sender's ring; set even if its card is rejected */
	uint32_t payload;  /**< payload_max of the sender; set even if its card is rejected */
	uint64_t start;	   /**< first packet since the last join */
	uint64_t next;	   /**< all packets before this one have arrived or are lost */
	uint64_t received; /**< packets received from the group */
	uint64_t repaired; /**< packets received by READ */
	uint64_t duplicate;
	uint64_t stale;	      /**< packets of another run, or too far ahead of the window */
	uint64_t foreign;     /**< invalid packets, or packets that the sender has not sent */
	uint64_t wrong_crc;   /**< slots READ with a wrong CRC-32C: being written, or damaged */
	uint64_t not_written; /**< slots READ that did not have the packet yet */
	uint64_t lost;	      /**< packets lost permanently */
	uint64_t reads;	      /**< READs of slots; one READ covers up to range_max slots */
	uint64_t read_errors; /**< READs that failed with their connection */
	uint64_t head_reads;
	uint64_t nacks;	  /**< NACK: packets requested */
	uint64_t joins;	  /**< completed joins, including the first one */
	uint64_t rejoins; /**< connections that were replaced */
	uint32_t held;	  /**< packets that the application has not released */
};

/**
 * Create a receiver and start to join. *Control.*
 * @return NULL with rte_errno EINVAL, ENOMEM, or that of the functions of rdma.h
 */
struct rdma_stream_receiver *rdma_stream_receiver_create(
	const struct rdma_stream_receiver_attr *attr);

/**
 * Destroy a receiver. *Control.* Its packets become invalid.
 * @return 0; -EBUSY: keep polling and try again
 */
int rdma_stream_receiver_destroy(struct rdma_stream_receiver *r);

/** Handle an event of the device. *Control.* @return true: it belonged to the receiver */
bool rdma_stream_receiver_event(struct rdma_stream_receiver *r, const struct rdma_event *event);

/** Connect, and replace failed connections. *Control.* */
void rdma_stream_receiver_control(struct rdma_stream_receiver *r);

/**
 * Receive, repair, and get packets in order.
 * @return number of packets, 0 to n
 */
uint16_t rdma_stream_receive(
	struct rdma_stream_receiver *r, struct rdma_stream_packet *packet, uint16_t n);

/**
 * Return the buffers of packets, in any order, each once. A program may keep packets. While it
 * keeps all of its `buffers` and `repair_buffers`, it gets no more packets, and in *wait* the
 * sender stops. For each buffer that it returns, it can get another packet.
 */
void rdma_stream_release(
	struct rdma_stream_receiver *r, const struct rdma_stream_packet *packet, uint16_t n);

/** Tell the sender that this member leaves. Poll until the state is RDMA_STREAM_LEFT. */
void rdma_stream_leave(struct rdma_stream_receiver *r);

/** Any lcore. @return 0 */
int rdma_stream_receiver_info_get(
	const struct rdma_stream_receiver *r, struct rdma_stream_receiver_info *info);

#ifdef __cplusplus
}
#endif

#endif
