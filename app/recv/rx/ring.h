/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Rings of RoCE streams whose device writes the detector's messages into memory (ingest/card.h).
 * The RX role sees events only, one for each stream and frame. Gangs read the pixels in the ring,
 * and find missing tiles by their trailers.
 *
 * Slot. The RX role that owns the stream clears the trailers of a frame when its pixels are no
 * longer used, or when its event is dropped. Therefore a lost tile of a later frame never appears
 * with that frame's number, not even if a restarted detector sends the same number again.
 *
 * Lost events. The next event of the stream reveals the frames whose events were lost, see
 * rx_ring_stream.last.
 */
#ifndef RX_RING_H
#define RX_RING_H

#include <stdint.h>

#include <rdma_pool.h>

#include "frames/detector.h"
#include "rx/messages.h"

struct memory;
struct rdma_qp_attr;
struct rx_ring;

/** Memory and setup time of the rings. */
struct rx_ring_info {
	uint64_t bytes;
	enum rdma_pages_kind kind; /**< the worst kind of all pages */
	uint64_t prefault_ns;	   /**< time to map and fault in all pages */
	uint64_t register_ns;	   /**< time to register them with the devices and the GPU */
	uint64_t used_ns;	   /**< time since then */
};

/**
 * Allocate and register the rings of all streams, and enter their addresses and keys in the card.
 * Devices and poll groups of the streams are known. *Control.*
 * @return NULL with rte_errno; logged
 */
struct rx_ring *rx_ring_create(struct rx_messages *m, struct memory *memory);

/** Bytes of a stream's ring. */
uint64_t rx_ring_bytes(const struct ingest_card *card);

/** Bytes of EAL memory that a stream needs in addition. */
uint64_t rx_ring_heap(const struct ingest_card *card);

/** Free the rings. Their queue pairs are destroyed, and gangs have ended. NULL is allowed. */
void rx_ring_destroy(struct rx_ring *ring);

/** [streams] slots in use, for the RX roles' frame_rx.use. */
struct frame_use *rx_ring_use(struct rx_ring *ring);

/** Complete the attributes of a stream's queue pair. *Control.* */
void rx_ring_describe(struct rx_ring *ring, uint32_t stream, struct rdma_qp_attr *attr);

/** A stream's queue pair has been created: post its receives. *Control.* @return 0 or -errno */
int rx_ring_attach(struct rx_ring *ring, uint32_t stream);

/**
 * The detector of a stream asks for credits. Its queue pair is not used yet, or has not been used
 * since rx_ring_attach(). *Control.*
 * @param address, rkey  where they are written; 0: none
 */
void rx_ring_credit(struct rx_ring *ring, uint32_t stream, uint64_t address, uint32_t rkey);

/** A stream's queue pair will be destroyed: its RX role no longer uses it. *Control.* */
void rx_ring_detach(struct rx_ring *ring, uint32_t stream);

/** Any thread. */
void rx_ring_info_get(const struct rx_ring *ring, struct rx_ring_info *info);

#endif
