/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Packets that a port lost before an RX role could receive them, or nearly lost.
 */
#ifndef PORT_DROPS_H
#define PORT_DROPS_H

/** Packets that arrived since the port was opened and were not received, by cause. */
enum port_drop {
	PORT_RING_FULL, /**< no free descriptor: lcores are late, or bursts too long */
	PORT_NO_MBUF,	/**< the mempool was empty */
	/** `ierrors`: damaged on the wire, or too long; drivers do not distinguish these */
	PORT_ERRORS,
	PORT_ICRC,	 /**< RoCE: invariant CRC is wrong */
	PORT_INCOMPLETE, /**< RoCE: another packet of the message was lost */
	PORT_REPEATED,	 /**< RoCE: PSN of an earlier packet */
	/** RoCE: not for a queue pair of a stream, not from its source, or with a wrong key,
	 * address, operation or length */
	PORT_REFUSED,
	/** multicast: lost, and then READ from the sender's ring, so finally received */
	PORT_REPAIRED,
	PORT_LOST_FOR_GOOD, /**< multicast: lost, and no longer in the sender's ring */
	PORT_DROPS
};

extern const char *const port_drop_names[PORT_DROPS];

#endif /* PORT_DROPS_H */
