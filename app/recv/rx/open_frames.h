/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Open frames of a multicast stream: some tiles of the frame have arrived, but its event has not
 * been generated.
 *
 * Each frame of which a tile has arrived gets one event, even if the detector's event is lost.
 * Otherwise its slot would never become free. The event is generated when the frame has ended and
 * is complete. If it is incomplete, tiles may follow, because a network before the sender may have
 * reordered them. The frame remains open until the events of `skew` later frames have arrived. It
 * also ends if no tile of it has arrived for a part of stream_timeout_ms and its event has arrived
 * or the connection to the sender is lost. Meanwhile it delays the events of later frames: a
 * stream's events are in the order of its frames. If the run is stopped, its open frames end after
 * the same time, whether or not more tiles arrive. A frame for which another stream has an event
 * ends before the builder closes it by time. The tiles that have arrived then count, even if the
 * connection to the sender of this stream is lost.
 *
 * Only the RX role that owns the stream calls these functions.
 */
#ifndef RX_OPEN_FRAMES_H
#define RX_OPEN_FRAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "rx/rx.h"

#define OPEN_FRAMES_MAX 16 /* of a stream */

struct rdma_stream_receiver;
struct rx_messages;

/** Events that a poll generates. */
struct event_burst {
	struct rx_packet packets[RX_BURST];
	const uint8_t *header[RX_BURST];
	uint32_t n;
};

/** A frame of a stream that has tiles, and no event yet. */
struct open_frame {
	uint64_t frame;
	uint64_t begun; /**< open_frames.nb_begun when it was opened */
	uint64_t at;	/**< frame_rx.listened when the last tile arrived */
	uint32_t tiles; /**< that have arrived; 0: this element is free */
	uint32_t first; /**< first of them that arrived */
	uint32_t later; /**< events of later frames that have arrived */
	bool event;	/**< the detector's event has arrived */
	bool ended;	/**< it has arrived, or it is lost */
};

/** Those of a stream. */
struct open_frames {
	const struct rx_messages *messages;
	uint32_t stream;
	uint32_t skew; /**< frames that a tile may be late */
	uint64_t hold; /**< TSC cycles that an open frame waits for its next tile */
	struct open_frame open[OPEN_FRAMES_MAX];
	uint32_t nb;
	uint64_t nb_begun;   /**< frames that were opened */
	uint64_t last;	     /**< frame + 1 of the last event that was generated; 0: none */
	uint64_t leap;	     /**< frame + 1 of a message dropped for an open frame in its slot */
	uint64_t stopped_at; /**< frame_rx.listened when the run was stopped; 0: it was not */
	uint64_t slot_waits; /**< messages that found their slot in use; read by other threads */
};

/** Whether a message may be written into its slot. */
enum slot_state {
	SLOT_FREE, /**< yes */
	SLOT_BUSY, /**< an earlier frame is in it: try again */
	SLOT_DROP, /**< no: the message was counted, and must be dropped */
};

void open_frames_init(struct open_frames *of, const struct rx_messages *m, uint32_t stream);

/** Return true if a burst has room for the events of all open frames of a stream. */
static inline bool
open_frames_have_room(const struct event_burst *b)
{
	return b->n + OPEN_FRAMES_MAX < RX_BURST;
}

/** The pixels of a frame are no longer used: free its tiles. */
void open_frames_clear(const struct rx *rx, uint32_t stream, uint64_t frame);

/** A message of a tile begins. */
enum slot_state open_frames_begin(struct rx *rx, struct open_frames *of, uint64_t frame,
	uint32_t tile, struct event_burst *b);

/** A tile has arrived: enter it in its frame, which is opened if it is not open. */
void open_frames_tile(struct rx *rx, struct open_frames *of, uint64_t frame, uint32_t tile,
	struct event_burst *b);

/** The detector's event of a frame has arrived. */
void open_frames_event(
	struct rx *rx, struct open_frames *of, uint64_t frame, struct event_burst *b);

/**
 * End frames of which no tile has arrived for some time. A sender that waits for another member
 * pauses in the middle of a frame: the frame remains open until its event arrives, until the
 * connection to the sender is lost, or until the builder is about to close it by time.
 * @param receiver  of the stream
 */
void open_frames_end_old(struct rx *rx, struct open_frames *of,
	const struct rdma_stream_receiver *receiver, struct event_burst *b);

/** No more packets come: end all frames. */
void open_frames_end_all(struct rx *rx, struct open_frames *of, struct event_burst *b);

/** The sender was started again: its frame numbers need not continue the earlier ones. */
void open_frames_restart(struct rx *rx, struct open_frames *of, struct event_burst *b);

/** The RX role stops: drop all frames. */
void open_frames_stop(struct rx *rx, struct open_frames *of);

#endif
