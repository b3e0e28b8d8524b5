/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rx bursts. One lcore polls a queue; nothing here locks, allocates memory, logs or makes a
 * system call. When mbufs run out the packet stays where it is and the next burst tries again: the
 * port behaves like a link with pause frames, it never drops for want of buffers.
 */
#include <rte_atomic.h>
#include <rte_cycles.h>
#include <rte_mbuf_dyn.h>
#include <rte_prefetch.h>

#include "replay_fill.h"

/* Packets lost on purpose or dropped per burst at most, so that a poll stays short. */
#define PASSED_MAX 8192u

/* The clock of the port starts with the first burst on any of its queues. */
static inline uint64_t
clock_start(struct replay_rxq *rxq)
{
	uint64_t now = rte_rdtsc(), started = 0;

	if (__atomic_compare_exchange_n(
		    &rxq->dev->clock, &started, now, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		started = now;
	rxq->clock = started;
	return now;
}

/* The place in its loop of packet `own` of the queue. */
static inline uint32_t
position_of(struct replay_rxq *rxq, uint32_t own)
{
	uint32_t position;

	replay_fault_order(rxq, own, &position);
	return position;
}

/* Packets of the queue, over all loops, that are due at a time of the port's clock. */
static uint64_t
due_at(const struct replay_rxq *rxq, uint64_t cycles)
{
	const struct replay_dev *dev = rxq->dev;
	const uint32_t nb_packets = dev->capture->nb_packets;
	uint64_t due = UINT64_MAX;

	if (dev->pace.offset != NULL)
		due = replay_pace_passed(&dev->pace, cycles);
	if (dev->args.loops != 0)
		due = RTE_MIN(due, dev->args.loops * nb_packets);
	return replay_passed(rxq->mine, rxq->nb_mine, due, nb_packets);
}

/*
 * overrun=drop: packets that are due lie in a ring of nb_desc descriptors, and those that find it
 * full are lost. The oldest go, where a NIC would lose the newest: there are as many of them. How
 * many are due is computed and not counted: a poll that comes late takes no longer than any other.
 */
static void
fill_ring(struct replay_rxq *rxq, uint64_t now)
{
	const uint64_t taken = rxq->loop * rxq->nb_mine + rxq->next;
	uint64_t due, next;

	/* another queue may have started the clock since */
	if ((int64_t)(now - rxq->clock) < 0)
		return;
	due = due_at(rxq, now - rxq->clock);
	if (due <= taken)
		return;
	if (due - taken > rxq->count.most_waiting)
		__atomic_store_n(&rxq->count.most_waiting, due - taken, __ATOMIC_RELAXED);
	if (due - taken <= rxq->nb_desc)
		return;
	next = due - rxq->nb_desc;
	replay_count(&rxq->count.missed, next - taken);
	rxq->loop = next / rxq->nb_mine;
	rxq->next = (uint32_t)(next % rxq->nb_mine);
}

uint32_t
replay_rx_queue_count(void *queue)
{
	const struct replay_rxq *rxq = queue;
	const uint64_t now = rte_rdtsc();
	uint64_t taken, due;

	if (rxq->done || rxq->nb_mine == 0)
		return 0;
	taken = rxq->loop * rxq->nb_mine + rxq->next;
	/* the clock starts with the first burst, and that finds the first packet */
	due = due_at(rxq, rxq->clock != 0 && now > rxq->clock ? now - rxq->clock : 0);
	return due > taken ? (uint32_t)RTE_MIN(due - taken, rxq->nb_desc) : 0;
}

/*
 * Chooses up to `max` packets of this queue, all of one loop, and returns the one to look at next
 * when all of them have been handed out.
 */
static inline uint32_t
choose(const struct replay_rxq *rxq, struct batch *batch, uint32_t max)
{
	const struct replay_capture *capture = rxq->dev->capture;
	const uint32_t *mine = rxq->mine + rxq->next;
	const uint32_t n = RTE_MIN(max, rxq->nb_mine - rxq->next);

	for (; batch->n < n; batch->n++) {
		batch->packet[batch->n] = replay_capture_packet(capture, mine[batch->n]);
		rte_prefetch0(batch->packet[batch->n]);
	}
	return rxq->next + n;
}

/* The same with a pace: those that are due. */
static inline uint32_t
choose_due(struct replay_rxq *rxq, struct batch *batch, uint32_t max, uint64_t now)
{
	const struct replay_dev *dev = rxq->dev;
	const struct replay_pace_loop loop = replay_pace_loop(&dev->pace, rxq->loop);
	uint32_t k = rxq->next;

	for (; k < rxq->nb_mine && batch->n < max; k++) {
		const uint32_t i = rxq->mine[k];
		const uint64_t due =
			rxq->clock + replay_pace_due(&dev->pace, &rxq->burst, &loop, i);

		if ((int64_t)(now - due) < 0)
			break;
		batch->due[batch->n] = due;
		batch->packet[batch->n] = replay_capture_packet(dev->capture, i);
		rte_prefetch0(batch->packet[batch->n++]);
	}
	return k;
}

/* A packet that arrives is added; false when it has to wait for the next batch. */
static inline bool
pick(const struct replay_rxq *rxq, struct batch *batch, uint32_t max, uint32_t index,
	const struct replay_pick *one, uint64_t due)
{
	struct replay_pick *p = &batch->pick[batch->n];

	if (batch->n == max)
		return false;
	*p = *one;
	batch->packet[batch->n] = replay_capture_packet(rxq->dev->capture, index);
	replay_fault_pick(&rxq->dev->args.faults, p, batch->packet[batch->n]);
	p->lost[0] = batch->lost[0];
	p->lost[1] = batch->lost[1];
	batch->due[batch->n++] = due;
	return true;
}

/* The same when things go wrong on the way. `again` is what rxq->again will be. */
static uint32_t
choose_faulty(struct replay_rxq *rxq, struct batch *batch, uint32_t max, uint32_t *passed,
	uint64_t now, bool *again)
{
	const struct replay_dev *dev = rxq->dev;
	const struct replay_faults *faults = &dev->args.faults;
	const struct replay_pace_loop loop = replay_pace_loop(&dev->pace, rxq->loop);
	uint64_t due = now;
	uint32_t k;

	*again = rxq->again;
	for (k = rxq->next; k < rxq->nb_mine && batch->n < max; k++, *again = false) {
		struct replay_pick one = {.own = k};
		const uint32_t index = replay_fault_order(rxq, k, &one.position);

		one.nth = rxq->loop * dev->capture->nb_packets + one.position;
		one.moved = index != one.position;
		if (dev->pace.offset != NULL) {
			due = rxq->clock +
				replay_pace_due(&dev->pace, &rxq->burst, &loop, one.position);
			if ((int64_t)(now - due) < 0)
				break;
		}
		if (*passed == 0)
			break;
		if (replay_fault_hits(faults, REPLAY_LOSS, one.nth)) {
			batch->lost[0]++;
			--*passed;
			continue;
		}
		if (replay_fault_hits(faults, REPLAY_BURST_LOSS, one.nth / faults->run)) {
			batch->lost[1]++;
			--*passed;
			continue;
		}
		if (!*again)
			pick(rxq, batch, max, index, &one, due);
		if (!replay_fault_hits(faults, REPLAY_DUPLICATE, one.nth))
			continue;
		one.second = true;
		if (!pick(rxq, batch, max, index, &one, due)) {
			*again = true;
			break;
		}
	}
	return k;
}

/* Counts what happened to packets up to the first that was not used. */
static void
count_faults(struct replay_rxq *rxq, const struct batch *batch)
{
	uint64_t *count = rxq->count.fault;
	const uint16_t *lost = batch->lost;

	if (batch->used < batch->n)
		lost = batch->pick[batch->used].lost;
	replay_count(&count[REPLAY_LOSS], lost[0]);
	replay_count(&count[REPLAY_BURST_LOSS], lost[1]);
	for (uint32_t i = 0; i < batch->used; i++) {
		replay_count(
			&count[REPLAY_REORDER], batch->pick[i].moved && !batch->pick[i].second);
		replay_count(&count[REPLAY_DUPLICATE], batch->pick[i].second);
		replay_count(&count[REPLAY_CORRUPT], batch->pick[i].corrupt);
		replay_count(&count[REPLAY_TRUNCATE], batch->pick[i].truncated);
	}
}

static void
count_lateness(struct replay_rxq *rxq, const struct batch *batch, uint64_t now)
{
	const uint64_t ns_per_cycle = rxq->dev->ns_per_cycle;

	for (uint32_t i = 0; i < batch->used; i++) {
		const unsigned __int128 late =
			(unsigned __int128)(now - batch->due[i]) * ns_per_cycle;

		replay_count(&rxq->count.late[replay_late_bin((uint64_t)(late >> 32))], 1);
	}
}

static void
stamp(const struct replay_rxq *rxq, const struct batch *batch, struct rte_mbuf **bufs, uint64_t now)
{
	const struct replay_dev *dev = rxq->dev;
	const bool paced = dev->pace.offset != NULL;

	for (uint32_t i = 0; i < batch->delivered; i++) {
		const uint32_t from = rxq->mode == REPLAY_COPY ? batch->from[i] : i;
		rte_mbuf_timestamp_t at = paced ? batch->due[from] : now;

		if (dev->args.stamp == REPLAY_STAMP_CAPTURED)
			at = batch->packet[from]->time_ns;
		*RTE_MBUF_DYNFIELD(bufs[i], dev->stamp_offset, rte_mbuf_timestamp_t *) = at;
		bufs[i]->ol_flags |= dev->stamp_flag;
	}
}

static __rte_always_inline void
fill(struct replay_rxq *rxq, struct batch *batch, struct rte_mbuf **bufs, bool faulty)
{
	switch (rxq->mode) {
	case REPLAY_REFERENCE:
		rx_reference(rxq, batch, bufs, faulty);
		break;
	case REPLAY_REFERENCE_SPLIT:
		rx_reference_split(rxq, batch, bufs, faulty);
		break;
	case REPLAY_COPY:
		rx_copy(rxq, batch, bufs, faulty);
		break;
	}
}

/* Says how far the queue has come, with one store. */
static inline void
publish(struct replay_rxq *rxq, bool faulty)
{
	uint64_t place = rxq->loop * rxq->dev->capture->nb_packets;

	if (rxq->next != 0)
		place += faulty ? position_of(rxq, rxq->next) : rxq->mine[rxq->next];
	__atomic_store_n(&rxq->place, place, __ATOMIC_RELAXED);
}

static __rte_always_inline uint16_t
rx_burst(struct replay_rxq *rxq, struct rte_mbuf **bufs, uint16_t nb_bufs, bool faulty)
{
	const struct replay_dev *dev = rxq->dev;
	const bool paced = dev->pace.offset != NULL;
	const uint64_t loop = rxq->loop;
	const uint32_t next = rxq->next;
	uint32_t nb_rx = 0, passed = PASSED_MAX;
	uint64_t now = 0;

	if (paced)
		now = likely(rxq->clock != 0) ? rte_rdtsc() : clock_start(rxq);
	else if (rxq->stamps)
		now = rte_rdtsc();
	if (unlikely(rxq->done || rxq->nb_mine == 0))
		return 0;
	if (unlikely(dev->args.overrun_drops))
		fill_ring(rxq, now);
	while (nb_rx < nb_bufs) {
		uint32_t end, max = RTE_MIN((uint32_t)nb_bufs - nb_rx, BATCH);
		struct batch batch;
		bool again = false;

		batch.n = batch.used = batch.delivered = 0;
		batch.lost[0] = batch.lost[1] = 0;
		batch.bytes = 0;
		batch.wait = REPLAY_WAIT_MBUF;
		if (faulty)
			end = choose_faulty(rxq, &batch, max, &passed, now, &again);
		else if (paced)
			end = choose_due(rxq, &batch, max, now);
		else
			end = choose(rxq, &batch, max);
		if (batch.n != 0)
			fill(rxq, &batch, bufs + nb_rx, faulty);
		if (faulty)
			count_faults(rxq, &batch);
		if (paced)
			count_lateness(rxq, &batch, now);
		if (rxq->stamps)
			stamp(rxq, &batch, bufs + nb_rx, now);
		/* dropped packets count as passed over: a burst ends even where none fits */
		passed -= RTE_MIN(passed, batch.used - batch.delivered);
		nb_rx += batch.delivered;
		replay_count(&rxq->count.packets, batch.delivered);
		replay_count(&rxq->count.bytes, batch.bytes);
		if (batch.used < batch.n) {
			rxq->next = faulty ? batch.pick[batch.used].own : rxq->next + batch.used;
			rxq->again = faulty && batch.pick[batch.used].second;
			replay_count(&rxq->count.wait[batch.wait], 1);
			break;
		}
		rxq->next = end;
		rxq->again = again;
		if (end == rxq->nb_mine) {
			rxq->next = 0;
			if (++rxq->loop == dev->args.loops) {
				__atomic_store_n(&rxq->done, true, __ATOMIC_RELEASE);
				break;
			}
		} else if (batch.n < max) {
			break; /* nothing more is due */
		}
		if (passed == 0)
			break;
	}
	if (rxq->next != next || rxq->loop != loop)
		publish(rxq, faulty);
	return (uint16_t)nb_rx;
}

void
replay_rx_seek(struct replay_rxq *rxq)
{
	const uint32_t position = (uint32_t)(rxq->place % rxq->dev->capture->nb_packets);
	const uint32_t window = rxq->dev->args.faults.window;

	rxq->window.number = UINT64_MAX;
	/* packets of windows before this one came before; inside, their order is looked at */
	rxq->next = replay_count_below(rxq->mine, rxq->nb_mine, position - position % window);
	while (rxq->next < rxq->nb_mine && position_of(rxq, rxq->next) < position)
		rxq->next++;
	/* the second of two equal packets goes with the first */
	rxq->again &= rxq->next < rxq->nb_mine && position_of(rxq, rxq->next) == position;
}

uint16_t
replay_rx_burst(void *queue, struct rte_mbuf **bufs, uint16_t nb_bufs)
{
	struct replay_rxq *rxq = queue;
	uint16_t nb_rx = 0;

	/* whoever changes flow rules brings the fence between these two, replay_flow.c */
	__atomic_store_n(&rxq->in_burst, true, __ATOMIC_RELAXED);
	rte_compiler_barrier();
	if (likely(!__atomic_load_n(&rxq->dev->paused, __ATOMIC_ACQUIRE)))
		nb_rx = likely(!rxq->dev->args.faults.any) ? rx_burst(rxq, bufs, nb_bufs, false)
							   : rx_burst(rxq, bufs, nb_bufs, true);
	__atomic_store_n(&rxq->in_burst, false, __ATOMIC_RELEASE);
	return nb_rx;
}
