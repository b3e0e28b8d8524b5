/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fragments of a multicast stream: assembles messages in the stream's ring.
 *
 * Pixels are copied from receive buffers into the ring. A pointer to them would save the copy, but
 * a tile of 8,192 bytes is in three fragments that do not end at a row, so that the pointer table
 * would need parts of different sizes. Buffers would also be in use until the gangs have read them:
 * each frame in progress would reduce the number of posted receives, and a receiver without posted
 * receives loses packets. Gangs read the ring in the same way as with transport `write`.
 *
 * The RX role is the only writer of the ring. Unlike a device it does not lap it: a message waits
 * while its slot has the pixels of an earlier frame. Packets then stay in the receive buffers, and
 * if these are used up, the sender's policy decides whether it waits or overwrites.
 */

#include <string.h>

#include <rte_branch_prediction.h>
#include <rte_byteorder.h>

#include <rdma_stream.h>

#include "counter.h"
#include "ingest/multicast.h"
#include "rx/fragments.h"
#include "rx/messages.h"

#define NO_TILE UINT32_MAX

const char *const rx_fragment_cause_names[RX_FRAGMENT_CAUSES] = {
	[RX_FRAGMENT_FORMAT] = "bad_format",
	[RX_FRAGMENT_STREAM] = "other_stream",
	[RX_FRAGMENT_TILE] = "wrong_tile",
	[RX_FRAGMENT_SIZE] = "wrong_size",
	[RX_FRAGMENT_ORDER] = "out_of_order",
	[RX_FRAGMENT_HEADER] = "wrong_header",
};

static const enum rx_counter counter_of_cause[RX_FRAGMENT_CAUSES] = {
	[RX_FRAGMENT_FORMAT] = RX_MALFORMED,
	[RX_FRAGMENT_STREAM] = RX_MALFORMED,
	[RX_FRAGMENT_TILE] = RX_MALFORMED,
	[RX_FRAGMENT_SIZE] = RX_WRONG_LENGTH,
	[RX_FRAGMENT_ORDER] = RX_MALFORMED,
	[RX_FRAGMENT_HEADER] = RX_MALFORMED,
};

void
fragments_init(struct fragments *fs, const struct rx_messages *m, uint32_t stream)
{
	*fs = (struct fragments){.tile = NO_TILE, .skip = true};
	fs->fragment_max = ingest_fragment_max(m->card.mtu - RDMA_STREAM_HEADER_BYTES);
	fs->message_bytes = m->card.tile_bytes + m->card.trailer_bytes;
	open_frames_init(&fs->open, m, stream);
}

/** Write the leader: before any pixel, so that a gang that reads the tile meanwhile sees it. */
static void
write_leader(const struct rx_messages *m, uint8_t *message, uint64_t frame)
{
	uint64_t *number = (uint64_t *)(message + m->card.leader_bytes) - 1;

	memset(message, 0, m->card.leader_bytes - sizeof(*number));
	__atomic_store_n(number, rte_cpu_to_le_64(frame), __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
}

/** Write the end of a message. The number in the trailer is written last: the tile is complete. */
static void
write_end(uint8_t *to, const uint8_t *from, uint32_t bytes, uint64_t frame)
{
	const uint32_t pixels = bytes - INGEST_TRAILER_BYTES;
	uint64_t *trailer = (uint64_t *)(to + pixels);

	memcpy(to, from, pixels);
	memcpy(trailer + 1, from + pixels + sizeof(*trailer),
		INGEST_TRAILER_BYTES - sizeof(*trailer));
	__atomic_store_n(trailer, rte_cpu_to_le_64(frame), __ATOMIC_RELEASE);
}

/** Count a fragment that is refused. The rest of its message is dropped. */
static void
refuse(struct rx *rx, struct fragments *fs, enum rx_fragment_cause cause)
{
	counter_add(&rx->counters[RX_PACKETS], 1);
	counter_add(&rx->counters[counter_of_cause[cause]], 1);
	counter_add(&fs->refused[cause], 1);
	rx->counted = true;
	fs->tile = NO_TILE;
	fs->skip = true;
}

/** Check that a fragment belongs to this stream. @return RX_FRAGMENT_CAUSES if it does */
static enum rx_fragment_cause
check_fragment(const struct rx *rx, const struct fragments *fs, const struct ingest_fragment *f)
{
	if (f->stream != fs->open.stream)
		return RX_FRAGMENT_STREAM;
	if (f->tiles != fs->open.messages->card.tiles)
		return RX_FRAGMENT_SIZE;
	/* in a trailer, this number means that the tile is free */
	if (f->frame == FRAME_TRAILER_NONE)
		return RX_FRAGMENT_TILE;
	if (f->tile == INGEST_EVENT)
		return RX_FRAGMENT_CAUSES;
	if (f->message != fs->message_bytes)
		return RX_FRAGMENT_SIZE;
	if (f->tile < rx->detector->expect_from[fs->open.stream] ||
		f->tile >= rx->detector->expect_to[fs->open.stream])
		return RX_FRAGMENT_TILE;
	return RX_FRAGMENT_CAUSES;
}

/** Return true if the detector's header of a message names the frame and tile of its fragments. */
static bool
is_header_of(const struct rx *rx, const uint8_t *header, const struct ingest_fragment *f)
{
	struct detector_packet parsed;

	rx->detector->ops->parse(&header, &parsed, 1);
	return parsed.packet == f->tile && parsed.frame == f->frame;
}

/** Begin a message. @return false: an earlier frame is in its slot, try again */
static bool
begin_message(
	struct rx *rx, struct fragments *fs, const struct ingest_fragment *f, struct event_burst *b)
{
	const struct rx_messages *m = rx->messages;

	if (fs->tile != NO_TILE)
		refuse(rx, fs, RX_FRAGMENT_ORDER); /* the message before has no end */
	switch (open_frames_begin(rx, &fs->open, f->frame, f->tile, b)) {
	case SLOT_BUSY:
		return false;
	case SLOT_DROP:
		fs->skip = true;
		return true;
	case SLOT_FREE:
		break;
	}
	write_leader(m, rx_message_at(m, fs->open.stream, f->frame, f->tile), f->frame);
	fs->tile = f->tile;
	fs->frame = f->frame;
	fs->at = 0;
	fs->skip = false;
	return true;
}

/** Take a part of a message. */
static void
take_part(struct rx *rx, struct fragments *fs, const struct ingest_fragment *f, const uint8_t *data,
	uint32_t bytes, struct event_burst *b)
{
	const struct rx_messages *m = rx->messages;
	uint8_t *to;

	if (fs->skip)
		return;
	if (unlikely(fs->tile != f->tile || fs->frame != f->frame || fs->at != f->offset)) {
		refuse(rx, fs, RX_FRAGMENT_ORDER);
		return;
	}
	to = rx_message_at(m, fs->open.stream, f->frame, f->tile) + m->card.leader_bytes +
		f->offset;
	fs->at += bytes;
	if (fs->at < f->message) {
		memcpy(to, data, bytes);
		return;
	}
	if (unlikely(!is_header_of(rx, data + bytes - INGEST_TRAILER_BYTES, f))) {
		refuse(rx, fs, RX_FRAGMENT_HEADER);
		return;
	}
	write_end(to, data, bytes, f->frame);
	fs->tile = NO_TILE;
	open_frames_tile(rx, &fs->open, f->frame, f->tile, b);
}

bool
fragments_take(struct rx *rx, struct fragments *fs, const struct rdma_stream_packet *p,
	struct event_burst *b)
{
	struct ingest_fragment f;
	enum rx_fragment_cause cause;
	bool taken = true;

	if (!fs->begun || p->run != fs->run || p->sequence != fs->next) {
		if (fs->begun && p->run != fs->run)
			open_frames_restart(rx, &fs->open, b);
		/* packets before this one are missing: the rest of their message is useless */
		fs->tile = NO_TILE;
		fs->skip = true;
		fs->begun = true;
		fs->run = p->run;
		fs->next = p->sequence;
	}
	if (ingest_fragment_decode(p->data, p->length, fs->fragment_max, &f) != 0) {
		refuse(rx, fs, RX_FRAGMENT_FORMAT);
	} else if ((cause = check_fragment(rx, fs, &f)) != RX_FRAGMENT_CAUSES) {
		refuse(rx, fs, cause);
	} else if (f.tile == INGEST_EVENT) {
		if (fs->tile != NO_TILE)
			refuse(rx, fs, RX_FRAGMENT_ORDER);
		open_frames_event(rx, &fs->open, f.frame, b);
	} else {
		if (f.offset == 0)
			taken = begin_message(rx, fs, &f, b);
		if (taken)
			take_part(rx, fs, &f, (const uint8_t *)p->data + sizeof(f),
				p->length - sizeof(f), b);
	}
	fs->next += taken;
	return taken;
}
