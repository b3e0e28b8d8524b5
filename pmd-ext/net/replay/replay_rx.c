/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rx bursts. One lcore polls a queue. This code takes no lock, allocates no memory, and makes no
 * log message or system call. If mbufs run out, the packet is kept and the next burst tries again:
 * the port behaves like a link with pause frames and loses no packet for lack of buffers.
 */
#include <rte_atomic.h>
#include <rte_cycles.h>
#include <rte_mbuf_dyn.h>
#include <rte_prefetch.h>

#include "replay_fill.h"

/* Limit of packets lost by faults or dropped per burst, so that a poll stays short. */
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

/* Position in the loop of packet `own` of the queue. */
static inline uint32_t
position_of(struct replay_rxq *rxq, uint32_t own)
{
	uint32_t position;

	replay_fault_order(rxq, own, &position);
	return position;
}

/* Number of packets of the queue, over all loops, that are due at a time of the port's clock. */
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
 * overrun=drop: due packets occupy a ring of nb_desc descriptors, and packets that exceed it are
 * lost. The oldest are lost, whereas a NIC would lose the newest; the number is the same. The
 * number of due packets is computed, not counted: a late poll takes no longer than any other.
 */
static void
fill_ring(struct replay_rxq *rxq, uint64_t now)
{
	const uint64_t taken = rxq->loop * rxq->nb_mine + rxq->next;
	uint64_t due, next;

	/* another queue may have started the clock after `now` was read */
	if ((int64_t)(now - rxq->clock) < 0)
		return;
	due = due_at(rxq, now - rxq->clock);
	if (due <= taken)
		return;
	if (due - taken > rxq->count.most_waiting)
		counter_set(&rxq->count.most_waiting, due - taken);
	if (due - taken <= rxq->nb_desc)
		return;
	next = due - rxq->nb_desc;
	counter_add(&rxq->count.missed, next - taken);
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
	/* the clock starts with the first burst, which finds the first packet due */
	due = due_at(rxq, rxq->clock != 0 && now > rxq->clock ? now - rxq->clock : 0);
	return due > taken ? (uint32_t)RTE_MIN(due - taken, rxq->nb_desc) : 0;
}

/*
 * Chooses up to `max` packets of this queue, all of one loop. Returns the index of the packet that
 * follows them.
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

/* Chooses packets with pacing: only those that are due. */
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

/* Adds a packet to the batch; false if the batch is full. */
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

/* Chooses packets with faults. `again` is the next value of rxq->again. */
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

/* Counts the faults of packets up to the first that was not used. */
static void
count_faults(struct replay_rxq *rxq, const struct batch *batch)
{
	uint64_t *count = rxq->count.fault;
	const uint16_t *lost = batch->lost;

	if (batch->used < batch->n)
		lost = batch->pick[batch->used].lost;
	counter_add(&count[REPLAY_LOSS], lost[0]);
	counter_add(&count[REPLAY_BURST_LOSS], lost[1]);
	for (uint32_t i = 0; i < batch->used; i++) {
		counter_add(&count[REPLAY_REORDER], batch->pick[i].moved && !batch->pick[i].second);
		counter_add(&count[REPLAY_DUPLICATE], batch->pick[i].second);
		counter_add(&count[REPLAY_CORRUPT], batch->pick[i].corrupt);
		counter_add(&count[REPLAY_TRUNCATE], batch->pick[i].truncated);
	}
}

static void
count_lateness(struct replay_rxq *rxq, const struct batch *batch, uint64_t now)
{
	const uint64_t ns_per_cycle = rxq->dev->ns_per_cycle;

	for (uint32_t i = 0; i < batch->used; i++) {
		const unsigned __int128 late =
			(unsigned __int128)(now - batch->due[i]) * ns_per_cycle;

		counter_add(&rxq->count.late[replay_late_bin((uint64_t)(late >> 32))], 1);
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

static REPLAY_INLINE void
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

/* Fills mbufs with the chosen packets, up to one that cannot be changed yet. */
static REPLAY_INLINE void
fill_changed(struct replay_rxq *rxq, struct batch *batch, struct rte_mbuf **bufs, bool faulty)
{
	struct replay_roce *roce = rxq->dev->capture->roce;
	const uint32_t n = batch->n;

	if (unlikely(roce != NULL))
		batch->n = replay_roce_renumber(roce, batch->packet, n, rxq->loop);
	if (likely(batch->n != 0))
		fill(rxq, batch, bufs, faulty);
	if (batch->used == batch->n)
		batch->wait = REPLAY_WAIT_LOOP;
	batch->n = n;
}

/* Publishes the queue's position, with one store. */
static inline void
publish(struct replay_rxq *rxq, bool faulty)
{
	uint64_t place = rxq->loop * rxq->dev->capture->nb_packets;

	if (rxq->next != 0)
		place += faulty ? position_of(rxq, rxq->next) : rxq->mine[rxq->next];
	__atomic_store_n(&rxq->place, place, __ATOMIC_RELAXED);
}

static REPLAY_INLINE uint16_t
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
			fill_changed(rxq, &batch, bufs + nb_rx, faulty);
		if (faulty)
			count_faults(rxq, &batch);
		if (paced)
			count_lateness(rxq, &batch, now);
		if (rxq->stamps)
			stamp(rxq, &batch, bufs + nb_rx, now);
		/* dropped packets count towards PASSED_MAX: a burst ends even if all packets are
		 * dropped */
		passed -= RTE_MIN(passed, batch.used - batch.delivered);
		nb_rx += batch.delivered;
		counter_add(&rxq->count.packets, batch.delivered);
		counter_add(&rxq->count.bytes, batch.bytes);
		if (batch.used < batch.n) {
			rxq->next = faulty ? batch.pick[batch.used].own : rxq->next + batch.used;
			rxq->again = faulty && batch.pick[batch.used].second;
			counter_add(&rxq->count.wait[batch.wait], 1);
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
			break; /* no further packet is due */
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
	/* packets of earlier windows were delivered before; within the window, compare their
	 * positions */
	rxq->next = replay_count_below(rxq->mine, rxq->nb_mine, position - position % window);
	while (rxq->next < rxq->nb_mine && position_of(rxq, rxq->next) < position)
		rxq->next++;
	/* the second packet of a duplicate pair follows its first */
	rxq->again &= rxq->next < rxq->nb_mine && position_of(rxq, rxq->next) == position;
}

uint16_t
replay_rx_burst(void *queue, struct rte_mbuf **bufs, uint16_t nb_bufs)
{
	struct replay_rxq *rxq = queue;
	uint16_t nb_rx = 0;

	/* the thread that changes flow rules provides the fence between these two accesses,
	 * replay_flow.c */
	__atomic_store_n(&rxq->in_burst, true, __ATOMIC_RELAXED);
	rte_compiler_barrier();
	if (likely(!__atomic_load_n(&rxq->dev->paused, __ATOMIC_ACQUIRE)))
		nb_rx = likely(!rxq->dev->args.faults.any) ? rx_burst(rxq, bufs, nb_bufs, false)
							   : rx_burst(rxq, bufs, nb_bufs, true);
	__atomic_store_n(&rxq->in_burst, false, __ATOMIC_RELEASE);
	return nb_rx;
}
