/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Frames drawn in advance, in memory that ports can access, to be sent by reference any number of
 * times.
 */
#ifndef TRANSMIT_FRAMES_H
#define TRANSMIT_FRAMES_H

#include <signal.h>

#include <rte_mbuf.h>

#include "frame_source.h"

/** The pixels of one packet. The run holds one reference, each packet in flight another. */
struct transmit_payload {
	struct rte_mbuf_ext_shared_info shared;
	uint8_t *data;
	rte_iova_t iova;
};

struct transmit_frame {
	uint16_t *raw;			  /**< [modules][pixels] */
	struct transmit_payload *payload; /**< [modules][128] */
	struct frame_truth truth;
};

struct transmit_frames {
	uint32_t nb_frames;
	uint32_t nb_payloads; /**< per frame */
	struct transmit_frame *frame;
};

/**
 * Draw frames `first` ... `first + nb_frames - 1`, or read as many.
 * @param stop non-zero: stop soon
 * @return 0 or -errno, reported; -EINTR: stopped
 */
int transmit_frames_load(struct transmit_frames *frames, struct frame_source *source,
	uint64_t first, uint32_t nb_frames, const volatile sig_atomic_t *stop);

/** Free the frames. All references must have been returned: the port is closed. */
void transmit_frames_release(struct transmit_frames *frames);

/** Attach a payload to an mbuf of a pool without data room. @return false: too many references */
static inline bool
transmit_payload_attach(struct transmit_payload *payload, struct rte_mbuf *mbuf)
{
	if (unlikely(rte_mbuf_ext_refcnt_read(&payload->shared) == UINT16_MAX))
		return false;
	rte_mbuf_ext_refcnt_update(&payload->shared, 1);
	rte_pktmbuf_attach_extbuf(
		mbuf, payload->data, payload->iova, JUNGFRAU_PAYLOAD_BYTES, &payload->shared);
	mbuf->ol_flags = RTE_MBUF_F_EXTERNAL; /* clear the flags of its previous use */
	mbuf->data_len = JUNGFRAU_PAYLOAD_BYTES;
	return true;
}

#endif /* TRANSMIT_FRAMES_H */
