/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDMA_ROCE_H
#define RDMA_ROCE_H

/**
 * @file
 * Functions that only the `roce` provider has: reception of packets from a queue that the
 * application polls, and messages that are delivered without a copy. An application that polls an
 * RX queue for its own purposes, such as detector data, forwards the RDMA packets to the device.
 */

#include <stdbool.h>
#include <stdint.h>

#include <rte_mbuf.h>

#include "rdma.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Forward received packets to a poll group. Only the lcore that calls rdma_progress() for the poll
 * group may call this function.
 *
 * The poll group takes packets to UDP port 4791 and those that address resolution and multicast
 * need: ARP, ICMP, ICMPv6 and IGMP. It processes and frees them. The caller keeps all others.
 *
 * @param dev of the provider `roce`, on the port that received the packets
 * @param poll_group 0 to rdma_dev_info.nb_poll_groups - 1
 * @param m packets; the ones not taken are moved to the front, in order
 * @param n number of packets
 * @return number of packets not taken, which the caller still owns
 */
uint16_t rdma_roce_rx(struct rdma_dev *dev, uint16_t poll_group, struct rte_mbuf **m, uint16_t n);

/**
 * Bytes of a port's MTU in addition to the path MTU, the same as those of rdma_rxe: 40 IPv6, 8 UDP,
 * 12 BTH, 16 RETH, 4 ICRC.
 */
#define RDMA_ROCE_OVERHEAD 80
#define RDMA_ROCE_QPS	   4096 /**< entries of the table of queue pairs, unless `qps=` is set */

/* ---- messages by reference ------------------------------------------------------------------ */

/**
 * Makes a UC queue pair deliver messages *by reference* (rdma_qp_attr.reference): the payload is
 * not copied, but stays in the mbufs in which the port received it. The ICRC, the PSNs and the
 * source of the packets are checked as for other queue pairs. A message of which a packet was lost
 * is not delivered, and its mbufs are freed. No receives can be posted, and no completions are
 * generated.
 *
 * SEND and RDMA WRITE, each with or without immediate, are accepted. The address of a WRITE is not
 * dereferenced. It is only reported to the application, as chosen by the peer: the key must be
 * `rkey`, and all bytes of the message must be in [base, base + length). The key and the address of
 * a WRITE without bytes are not checked.
 *
 * Mbufs. The payload of packets stays in mbufs of the port's RX pool until the application frees
 * it. In addition to the port's descriptors the pool needs mbufs for each message that is being
 * received (max_bytes / path MTU packets for each queue pair), for complete messages that are not
 * taken (at most 1,024), and for those that the application keeps. On a port that the provider
 * configures, the pool is not sized for that.
 */
struct rdma_roce_reference {
	uint64_t base;
	uint64_t length; /**< 0: no WRITE is accepted */
	uint32_t rkey;
	uint32_t max_bytes; /**< maximum bytes of a message, up to RDMA_ROCE_MESSAGE_MAX */
	/** Number of the queue pair, for peers that are configured by hand; 0: any. It must be free
	 * and below the size of the table of queue pairs (`qps=`). Queue pairs without a fixed
	 * number occupy random entries of the table: create this one before them. */
	uint32_t qpn;
};

#define RDMA_ROCE_MESSAGE_MAX (80 * 1024) /**< maximum bytes of a message by reference */

/** A received message. */
struct rdma_roce_message {
	/** Payload only, one segment for each packet in order; more if the port splits the payload
	 * of a packet. No segment is empty. The caller frees it. NULL: the message has no bytes. */
	struct rte_mbuf *m;
	void *qp_context; /**< rdma_qp_attr.context */
	uint64_t addr;	  /**< WRITE: address; SEND: 0 */
	uint32_t length;  /**< bytes of the payload, without pad */
	uint32_t imm;	  /**< CPU byte order */
	uint8_t op;	  /**< RDMA_WC_RECV: a SEND; RDMA_WC_RECV_WRITE_IMM: a WRITE */
	uint8_t flags;	  /**< RDMA_WC_WITH_IMM or 0 */
};

/**
 * Take messages of all queue pairs by reference of a poll group, in the order of their last
 * packets. Only the lcore that calls rdma_progress() for the poll group may call this. While about
 * 1,000 messages are not taken, the poll group receives no more packets, and its polls are counted
 * (`rx_message_ring_pauses`): loss then shows at the port. rdma_roce_rx() cannot refuse packets:
 * take messages before each call. It drops messages beyond 1,024 (`rx_message_ring_full`).
 *
 * Messages of a queue pair that is destroyed are freed. Those of a queue pair in RDMA_QP_ERROR are
 * still delivered if they were complete.
 * @return number of messages, 0 to n
 */
uint16_t rdma_roce_poll_messages(
	struct rdma_dev *dev, uint16_t poll_group, struct rdma_roce_message *message, uint16_t n);

/** Losses of a UC queue pair, see rdma_roce_uc_info_get(). Counters are never reset. */
struct rdma_roce_uc_info {
	uint64_t messages; /**< delivered, or completed */
	uint64_t gaps;	   /**< packets with a later PSN than the expected one */
	/**
	 * packets missing in the gaps: sum of the PSN differences. After a restart of the peer the
	 * loss is unknown, so none are added: for a PSN behind the expected one, and, in the first
	 * packet or after 200 ms without a packet, for one more than 65,536 ahead
	 */
	uint64_t lost;
	uint64_t dropped;    /**< packets that arrived, of messages that were not delivered */
	uint64_t duplicates; /**< packets with a PSN up to 65,536 earlier */
	uint64_t refused;    /**< messages with a wrong key, address, length or order of packets */
};

/**
 * Get the counters of a UC queue pair of the provider `roce`. Any thread.
 * @return 0; -EINVAL: another type or provider
 */
int rdma_roce_uc_info_get(const struct rdma_qp *qp, struct rdma_roce_uc_info *info);

#ifdef __cplusplus
}
#endif

#endif
