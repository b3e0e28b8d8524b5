/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROCE_FRAME_H
#define ROCE_FRAME_H

/**
 * @file
 * Frames to send: an mbuf with the headers, segments that point into registered memory, an mbuf
 * with pad and ICRC; or one mbuf with all of it when it is short or the port can't do better.
 */

#include "roce_lane.h"
#include "roce_region.h"

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

/** A frame in the making. */
struct roce_frame {
	struct rte_mbuf *m, *last;
	const struct roce_path *path;
	struct roce_bth *bth;
	uint8_t *ext;
	uint32_t headers; /**< bytes of all headers */
	uint32_t payload; /**< bytes so far */
};

/** Most mbufs that a frame takes. */
#define ROCE_FRAME_SEGMENTS (RDMA_SGE_MAX + 2)

/**
 * Begin a frame: headers but lengths and ICRC. roce_lane_spare(lane, ROCE_FRAME_SEGMENTS) must have
 * said yes.
 *
 * @param ext_bytes room for extended headers, to be filled in before the payload comes
 */
void roce_frame_begin(struct roce_lane *lane, struct roce_frame *f, const struct roce_path *path,
	const struct roce_frame_head *head, unsigned int ext_bytes);

/** Another UDP source port than the path's. */
void roce_frame_udp_port(struct roce_frame *f, uint16_t port);

/** Payload that is copied: at most ROCE_COPY_MAX bytes. */
void roce_frame_copy(struct roce_frame *f, const void *bytes, uint32_t length);

/**
 * Payload out of a list: by reference, or copied where it is short or must be.
 *
 * @param info shared info to count references in; NULL: that of the region and lane
 */
void roce_frame_attach(struct roce_lane *lane, struct roce_frame *f,
	const struct roce_segment *list, struct roce_cursor *at, uint32_t length,
	struct rte_mbuf_ext_shared_info *info);

/** End it, lengths, pad and ICRC, and give it to the port. @return bytes of it */
uint32_t roce_frame_end(struct roce_lane *lane, struct roce_frame *f);

#endif
