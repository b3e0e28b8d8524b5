/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Receives multicast streams: polls their receivers, hands packets to fragments.h and the events of
 * frames to rx_accept(), joins and leaves. open_frames.h describes when the event of a frame is
 * generated.
 */

#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_errno.h>
#include <rte_malloc.h>

#include <rdma.h>

#include "counter.h"
#include "ingest/multicast.h"
#include "ingest/multicast_proof.h"
#include "log.h"
#include "rx/fragments.h"
#include "rx/messages.h"
#include "rx/multicast.h"
#include "rx/multicast_log.h"
#include "rx/open_frames.h"
#include "rx/rx.h"
#include "rx/transport.h"
#include "settings.h"

LOG_REGISTER("ingest", "ingest");

#define TAKEN	   32 /* packets of a stream that a poll takes */
#define EVENTS	   8  /* CM events of a call */
#define LEAVE_MS   500
#define DESTROY_MS 2000

/** A stream. Written by its RX role, except where it says so. */
struct stream {
	struct rdma_stream_receiver *receiver;
	/* packets that the receiver has delivered; those before `taken` have been taken */
	struct rdma_stream_packet packets[TAKEN];
	uint16_t nb, taken;
	struct fragments fragments;
	bool leaving, left;
	uint64_t leave_until; /**< TSC */
	/* read by other threads */
	bool ended;	 /**< it has ended or failed, and all packets are taken */
	uint64_t failed; /**< 1: it has failed permanently */
} __rte_cache_aligned;

struct rx_multicast {
	struct rx_messages *messages;
	struct ingest_proof *proof;
	/* control lcore */
	uint64_t control_at; /**< TSC */
	struct multicast_log log;
	bool ended;    /**< all streams have ended */
	uint64_t ends; /**< see rx_multicast_ends(); read by other threads */
	struct stream stream[DETECTOR_STREAMS_MAX];
};

/* ---- polling ---- */

static void
release(struct stream *st)
{
	rdma_stream_release(st->receiver, st->packets, st->nb);
	st->nb = st->taken = 0;
}

/**
 * Return true if the stream has ended, and all its packets are taken. Its last frames then have no
 * more packets.
 */
static void
watch_end(struct rx *rx, struct stream *st, struct event_burst *b)
{
	struct rdma_stream_receiver_info info;
	bool ended, failed;

	rdma_stream_receiver_info_get(st->receiver, &info);
	failed = info.state == RDMA_STREAM_FAILED;
	ended = info.state == RDMA_STREAM_ENDED || failed;
	if (unlikely(failed))
		counter_set(&st->failed, 1);
	if (likely(ended == st->ended))
		return;
	if (ended)
		open_frames_end_all(rx, &st->fragments.open, b);
	__atomic_store_n(&st->ended, ended, __ATOMIC_RELEASE);
}

/** Take packets of a stream. @return their number */
static uint32_t
poll_stream(struct rx *rx, struct stream *st, struct event_burst *b)
{
	uint32_t n = 0;

	/*
	 * without packets to take, this call repairs, and reports to the sender which packets have
	 * arrived
	 */
	if (st->nb == 0)
		st->nb = rdma_stream_receive(st->receiver, st->packets, TAKEN);
	else
		rdma_stream_receive(st->receiver, NULL, 0);
	while (st->taken < st->nb && open_frames_have_room(b)) {
		if (!fragments_take(rx, &st->fragments, &st->packets[st->taken], b))
			break;
		st->taken++;
		n++;
	}
	if (st->taken < st->nb || !open_frames_have_room(b))
		return n;
	if (unlikely(st->fragments.open.nb > 0))
		open_frames_end_old(rx, &st->fragments.open, st->receiver, b);
	if (st->nb > 0)
		release(st);
	else if (open_frames_have_room(b))
		watch_end(rx, st, b);
	return n;
}

/** Let rx_accept() check the events of a burst, and free the tiles of those that it drops. */
static uint32_t
accept_events(struct rx *rx, uint32_t source, struct event_burst *b, struct rx_batch *batch)
{
	struct detector_packet parsed[RX_BURST];
	struct rx_packet all[RX_BURST];
	struct rx_dropped drop = {.n = 0};
	uint32_t kept, k = 0;

	rx->detector->ops->parse(b->header, parsed, b->n);
	memcpy(all, b->packets, b->n * sizeof(all[0]));
	kept = rx_accept(rx, source, b->packets, parsed, b->n, batch, &drop);
	for (uint32_t i = 0; i < b->n; i++) {
		if (k < kept && b->packets[k].stream == all[i].stream &&
			b->packets[k].frame == all[i].frame)
			k++;
		else
			open_frames_clear(rx, all[i].stream, all[i].frame);
	}
	return kept;
}

static bool
is_of(const struct rx *rx, uint32_t source, uint32_t stream)
{
	const struct rx_message_stream *st = &rx->messages->streams[stream];

	return st->device == rx->queues[source].port && st->poll_group == rx->queues[source].queue;
}

static uint32_t
poll_streams(struct rx *rx, uint32_t source)
{
	const struct rx_messages *m = rx->messages;
	struct rx_multicast *mc = m->multicast;
	struct rx_batch batch;
	struct event_burst b;
	uint32_t n = 0, of;
	bool more = false;

	if (source == rx->nb_queues)
		return 0;
	rdma_progress(m->devices[rx->queues[source].port], rx->queues[source].queue);
	b.n = 0;
	batch = (struct rx_batch){.packets = b.packets};
	rx_check_positions(rx, &batch);
	for (uint32_t s = 0; s < m->card.streams; s++) {
		if (!is_of(rx, source, s))
			continue;
		of = poll_stream(rx, &mc->stream[s], &b);
		more |= of == TAKEN;
		n += of;
	}
	if (n == 0 && b.n == 0)
		return 0;
	rx->counted = true;
	counter_add(&rx->counters[RX_BURSTS], 1);
	if (b.n > 0)
		rx_take(rx, b.packets, accept_events(rx, source, &b, &batch));
	return more ? RX_BURST : RTE_MIN(RTE_MAX(n, 1u), RX_BURST - 1u);
}

/** Too many frames wait: take no packets, but remain a member. */
static void
hold_streams(struct rx *rx, uint32_t source)
{
	const struct rx_messages *m = rx->messages;

	if (source == rx->nb_queues)
		return;
	rdma_progress(m->devices[rx->queues[source].port], rx->queues[source].queue);
	for (uint32_t s = 0; s < m->card.streams; s++)
		if (is_of(rx, source, s))
			rdma_stream_receive(m->multicast->stream[s].receiver, NULL, 0);
}

/** Leave a stream, so that the sender does not wait for this member. @return whether it has left */
static bool
leave_stream(struct rx *rx, struct stream *st)
{
	struct rdma_stream_receiver_info info;

	if (st->left)
		return true;
	open_frames_stop(rx, &st->fragments.open);
	if (!st->leaving) {
		st->leaving = true;
		st->leave_until = rte_rdtsc() + rte_get_tsc_hz() / 1000 * LEAVE_MS;
		rdma_stream_leave(st->receiver);
	}
	if (st->nb > 0)
		release(st);
	st->nb = rdma_stream_receive(st->receiver, st->packets, TAKEN);
	rdma_stream_receiver_info_get(st->receiver, &info);
	/* a sender that does not reply detects this by its time-out */
	st->left = info.state == RDMA_STREAM_LEFT || info.state == RDMA_STREAM_FAILED ||
		rte_rdtsc() > st->leave_until;
	if (st->left && st->nb > 0)
		release(st);
	return st->left;
}

static bool
leave_streams(struct rx *rx)
{
	const struct rx_messages *m = rx->messages;
	bool left = true;

	for (uint32_t q = 0; q < rx->nb_queues; q++) {
		rdma_progress(m->devices[rx->queues[q].port], rx->queues[q].queue);
		for (uint32_t s = 0; s < m->card.streams; s++)
			if (is_of(rx, q, s))
				left &= leave_stream(rx, &m->multicast->stream[s]);
	}
	if (rx->counted)
		rx_publish(rx);
	rx->counted = false;
	return left;
}

static enum frame_placement
place_frame(struct rx *rx, const struct rx_packet *p, uint64_t frame, struct rte_mbuf **rest)
{
	const struct rx_messages *m = rx->messages;

	RTE_SET_USED(rest);
	return frame_rx_place_stream(rx->table, rx->frx, p->stream, frame, p->header,
		(uintptr_t)rx_message_at(m, p->stream, p->frame, 0) + m->card.leader_bytes,
		ingest_message_bytes(&m->card));
}

/**
 * An event is dropped: its frame's pixels are not used. This also applies to a duplicate: its slot
 * was free when it began, so the pixels of the first frame had been returned.
 */
static void
forget_frame(struct rx *rx, const struct rx_packet *p, enum rx_counter cause)
{
	RTE_SET_USED(cause);
	open_frames_clear(rx, p->stream, p->frame);
}

const struct rx_transport rx_multicast = {
	.name = "multicast",
	.events = true,
	.poll = poll_streams,
	.hold = hold_streams,
	.leave = leave_streams,
	.place = place_frame,
	.dropped = forget_frame,
	.headers = rx_queue_pair_headers,
};

/* ---- control ---- */

static int
create_stream(struct rx_multicast *mc, uint32_t stream)
{
	const struct rx_messages *m = mc->messages;
	const struct ingest_settings *s = &m->settings->ingest;
	const struct rx_message_stream *of = &m->streams[stream];
	const struct sockaddr_in group = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(s->group + stream)};
	const struct sockaddr_in sender = {.sin_family = AF_INET,
		.sin_port = htons(s->service + stream),
		.sin_addr.s_addr = htonl(s->sender)};
	const struct rdma_stream_receiver_attr attr = {
		.dev = m->devices[of->device],
		.pd = of->pd,
		.poll_group = of->poll_group,
		.group = (const struct sockaddr *)&group,
		.sender = (const struct sockaddr *)&sender,
		.payload_max = m->card.mtu - RDMA_STREAM_HEADER_BYTES,
		.buffers = s->buffers,
		.reads = s->reads,
		.identity = mc->proof != NULL ? ingest_proof_identity(mc->proof) : 0,
		.proof = mc->proof != NULL ? ingest_proof_stream(mc->proof) : NULL,
	};
	struct stream *st = &mc->stream[stream];

	fragments_init(&st->fragments, m, stream);
	st->receiver = rdma_stream_receiver_create(&attr);
	if (st->receiver != NULL)
		return 0;
	LOG(ERR, "stream %u: cannot receive its group: %s; [ingest] buffers = %u\n", stream,
		rte_strerror(rte_errno), s->buffers);
	return -rte_errno;
}

struct rx_multicast *
rx_multicast_create(struct rx_messages *m)
{
	const struct ingest_settings *s = &m->settings->ingest;
	struct rx_multicast *mc = rte_zmalloc("rx_multicast", sizeof(*mc), RTE_CACHE_LINE_SIZE);
	char message[PATH_MAX];
	int ret = 0;

	if (mc == NULL)
		return NULL;
	mc->messages = m;
	if (s->identity != NULL) {
		ret = ingest_proof_member(&mc->proof, s->identity, s->key, message);
		if (ret != 0)
			LOG(ERR, "[ingest] key: %s\n", message);
	}
	for (uint32_t i = 0; i < m->card.streams && ret == 0; i++)
		ret = create_stream(mc, i);
	if (ret == 0)
		return mc;
	rx_multicast_destroy(mc);
	rte_errno = -ret;
	return NULL;
}

/** Poll the devices that the destruction of receivers waits for. */
static void
poll_devices(const struct rx_messages *m)
{
	struct rdma_event event[EVENTS];

	for (uint32_t s = 0; s < m->card.streams; s++)
		rdma_progress(m->devices[m->streams[s].device], m->streams[s].poll_group);
	for (uint32_t d = 0; d < m->nb_devices; d++)
		rdma_poll_cm(m->devices[d], event, EVENTS);
}

void
rx_multicast_destroy(struct rx_multicast *mc)
{
	uint64_t end;

	if (mc == NULL)
		return;
	end = rte_rdtsc() + rte_get_tsc_hz() / 1000 * DESTROY_MS;
	for (uint32_t s = 0; s < mc->messages->card.streams; s++) {
		struct stream *st = &mc->stream[s];

		while (rdma_stream_receiver_destroy(st->receiver) == -EBUSY && rte_rdtsc() < end)
			poll_devices(mc->messages);
	}
	ingest_proof_destroy(mc->proof);
	rte_free(mc);
}

/**
 * Count when the last stream ends. A failed stream has ended permanently. Streams may have ended a
 * different number of times.
 */
static void
count_ends(struct rx_multicast *mc)
{
	bool ended = true;

	for (uint32_t s = 0; s < mc->messages->card.streams; s++)
		ended &= __atomic_load_n(&mc->stream[s].ended, __ATOMIC_ACQUIRE);
	if (ended && !mc->ended)
		counter_add(&mc->ends, 1);
	mc->ended = ended;
}

int
rx_multicast_control(struct rx_multicast *mc)
{
	struct rx_messages *m = mc->messages;
	struct rdma_event event[EVENTS];
	const uint64_t now = rte_rdtsc();
	int all = 0;

	for (uint32_t d = 0; d < m->nb_devices; d++) {
		const uint16_t n = rdma_poll_cm(m->devices[d], event, EVENTS);

		for (uint16_t i = 0; i < n; i++) {
			rx_messages_watch(m, d, &event[i]);
			for (uint32_t s = 0; s < m->card.streams; s++)
				if (rdma_stream_receiver_event(mc->stream[s].receiver, &event[i]))
					break;
		}
		all += n;
	}
	if (now < mc->control_at)
		return all;
	mc->control_at = now + rte_get_tsc_hz() / 1000;
	multicast_log_begin(&mc->log);
	for (uint32_t s = 0; s < m->card.streams; s++) {
		struct rdma_stream_receiver_info info;
		uint64_t refused[RX_FRAGMENT_CAUSES];

		rdma_stream_receiver_control(mc->stream[s].receiver);
		rdma_stream_receiver_info_get(mc->stream[s].receiver, &info);
		counters_get(refused, mc->stream[s].fragments.refused, sizeof(refused));
		multicast_log_stream(&mc->log, m, s, &info, refused, now);
	}
	multicast_log_end(&mc->log, m, now);
	count_ends(mc);
	return all;
}

void
rx_multicast_info_get(
	const struct rx_multicast *mc, uint32_t stream, struct rx_multicast_info *info)
{
	const struct stream *st = &mc->stream[stream];

	rdma_stream_receiver_info_get(st->receiver, &info->stream);
	info->state = multicast_state_names[info->stream.state];
	info->slot_waits = counter_get(&st->fragments.open.slot_waits);
	counters_get(info->refused, st->fragments.refused, sizeof(info->refused));
}

uint64_t
rx_multicast_ends(const struct rx_multicast *mc)
{
	bool failed = true;

	for (uint32_t s = 0; s < mc->messages->card.streams; s++)
		failed &= counter_get(&mc->stream[s].failed) != 0;
	return failed ? UINT64_MAX : counter_get(&mc->ends);
}

bool
rx_multicast_failed(const struct rx_multicast *mc)
{
	return rx_multicast_ends(mc) == UINT64_MAX;
}

void
rx_multicast_add_drops(const struct rx_multicast *mc, uint64_t drops[PORT_DROPS])
{
	for (uint32_t s = 0; s < mc->messages->card.streams; s++) {
		struct rdma_stream_receiver_info info;

		rdma_stream_receiver_info_get(mc->stream[s].receiver, &info);
		drops[PORT_REPAIRED] += info.repaired;
		drops[PORT_LOST_FOR_GOOD] += info.lost;
	}
}
