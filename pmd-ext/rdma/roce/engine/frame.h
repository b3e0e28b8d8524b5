/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROCE_FRAME_H
#define ROCE_FRAME_H

/**
 * @file
 * Frames to send. A frame is a chain of an mbuf with the headers, segments that point into
 * registered memory, and an mbuf with pad and ICRC. It is a single mbuf if the payload is short or
 * the port cannot send from registered memory.
 */

#include "engine/engine.h"
#include "engine/mr.h"

/** Bytes of registered memory. */
struct roce_segment {
	uint8_t *addr;
	uint32_t length;
	struct roce_mr *mr;
};

/** Fields of the base transport header. */
struct roce_frame_head {
	uint32_t qpn;
	uint32_t psn;
	uint8_t opcode;
	bool solicited;
	bool ack;
};

/** Position in a list: entry and offset in the entry. */
struct roce_cursor {
	uint32_t entry;
	uint32_t offset;
};

/** Write bytes to a list, which must have room for them. */
void roce_list_write(const struct roce_segment *list, struct roce_cursor *at, const void *bytes,
	uint32_t length);

/** A part of a frame's payload, at its address in registered memory. */
struct roce_part {
	uint8_t *addr;
	uint32_t length;
	struct rte_mbuf_ext_shared_info *info; /**< holds a reference; NULL: the part is copied */
};

/**
 * A frame under construction. It is described here first and written to mbufs at the end. This
 * avoids reads from the mbufs, whose cache lines have to come from another core's cache.
 */
struct roce_frame {
	const struct roce_path *path;
	struct roce_bth *bth; /**< in header */
	uint8_t *ext;	      /**< extended headers, after bth */
	uint32_t headers;     /**< bytes of all headers */
	uint32_t payload;     /**< bytes so far */
	bool copy;	      /**< copy the payload, of any length up to the path MTU */
	unsigned int nb_parts;
	struct roce_part part[RDMA_SGE_MAX];
	const uint8_t *next;  /**< payload that is probably sent next, to be prefetched */
	uint32_t next_length; /**< 0: none */
	uint8_t header[RTE_ALIGN_CEIL(ROCE_HEADER_MAX, RTE_CACHE_LINE_SIZE)] __rte_cache_aligned;
};

/** Maximum mbufs of a frame. */
#define ROCE_FRAME_SEGMENTS (RDMA_SGE_MAX + 2)

/**
 * Begin a frame: fill in the headers except lengths and ICRC.
 *
 * @param ext_bytes size of the extended headers; the caller fills them in before it adds payload
 */
void roce_frame_begin(struct roce_frame *f, const struct roce_path *path,
	const struct roce_frame_head *head, unsigned int ext_bytes);

/** Set the UDP source port, instead of that of the path. */
void roce_frame_udp_port(struct roce_frame *f, uint16_t port);

/**
 * Add payload from a list, by reference. It is copied if it is short or the port requires it.
 *
 * @param at position in the list, advanced by `length`
 * @param info shared info that counts the references; NULL: that of the region and poll group
 */
void roce_frame_attach(struct roce_poll_group *pg, struct roce_frame *f,
	const struct roce_segment *list, struct roce_cursor *at, uint32_t length,
	struct rte_mbuf_ext_shared_info *info);

/** Set the payload that is probably sent next, if it is not the next part of the same list. */
static inline void
roce_frame_next(struct roce_frame *f, const void *addr, uint32_t length)
{
	f->next = addr;
	f->next_length = length;
}

/**
 * Complete a frame with lengths, pad and ICRC, and add it to the pending packets.
 * roce_poll_group_spare(pg, ROCE_FRAME_SEGMENTS) must have returned true before.
 * @return length of the frame in bytes
 */
uint32_t roce_frame_end(struct roce_poll_group *pg, struct roce_frame *f);

#endif
