/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROCE_FRAME_H
#define ROCE_FRAME_H

/**
 * @file
 * Frames to send: an mbuf with the headers, segments that point into registered memory, an mbuf
 * with pad and ICRC; or one mbuf with all of it when it is short or the port can't do better.
 */

#include "engine/engine.h"
#include "engine/mr.h"

/** Bytes of registered memory. */
struct roce_segment {
	uint8_t *addr;
	uint32_t length;
	struct roce_mr *mr;
};

/** What goes into the base transport header. */
struct roce_frame_head {
	uint32_t qpn;
	uint32_t psn;
	uint8_t opcode;
	bool solicited;
	bool ack;
};

/** Where a list is being read: entry and offset in it. */
struct roce_cursor {
	uint32_t entry;
	uint32_t offset;
};

/** Bytes into a list, which has the room. */
void roce_list_write(const struct roce_segment *list, struct roce_cursor *at, const void *bytes,
	uint32_t length);

/** A part of a frame's payload, where it lies. */
struct roce_part {
	uint8_t *addr;
	uint32_t length;
	struct rte_mbuf_ext_shared_info *info; /**< a reference was taken; NULL: it is copied */
};

/**
 * A frame in the making: all of it is described first, and put into mbufs at the end. Their lines
 * come from another core's cache; nothing is read back that waits for them.
 */
struct roce_frame {
	const struct roce_path *path;
	struct roce_bth *bth; /**< in header */
	uint8_t *ext;	      /**< behind it */
	uint32_t headers;     /**< bytes of all headers */
	uint32_t payload;     /**< bytes so far */
	unsigned int nb_parts;
	struct roce_part part[RDMA_SGE_MAX];
	const uint8_t *next;  /**< what is likely to be sent after this */
	uint32_t next_length; /**< 0: nothing is */
	uint8_t header[RTE_ALIGN_CEIL(ROCE_HEADER_MAX, RTE_CACHE_LINE_SIZE)] __rte_cache_aligned;
};

/** Most mbufs that a frame takes. */
#define ROCE_FRAME_SEGMENTS (RDMA_SGE_MAX + 2)

/**
 * Begin a frame: headers but lengths and ICRC.
 *
 * @param ext_bytes room for extended headers, to be filled in before the payload comes
 */
void roce_frame_begin(struct roce_frame *f, const struct roce_path *path,
	const struct roce_frame_head *head, unsigned int ext_bytes);

/** Another UDP source port than the path's. */
void roce_frame_udp_port(struct roce_frame *f, uint16_t port);

/**
 * Payload out of a list: by reference, or copied where it is short or must be.
 *
 * @param info shared info to count references in; NULL: that of the region and poll group
 */
void roce_frame_attach(struct roce_poll_group *pg, struct roce_frame *f,
	const struct roce_segment *list, struct roce_cursor *at, uint32_t length,
	struct rte_mbuf_ext_shared_info *info);

/** What is likely to be sent after it, where that is not known from its list. */
static inline void
roce_frame_next(struct roce_frame *f, const void *addr, uint32_t length)
{
	f->next = addr;
	f->next_length = length;
}

/**
 * End it, lengths, pad and ICRC, and give it to the port. roce_poll_group_spare(poll group,
 * ROCE_FRAME_SEGMENTS) must have said yes.
 * @return bytes of it
 */
uint32_t roce_frame_end(struct roce_poll_group *pg, struct roce_frame *f);

#endif
