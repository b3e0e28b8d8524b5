/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A poll group: ownership by an lcore, calls from the control lcore, the poll loop, and creation
 * and destruction.
 */
#include <errno.h>
#include <stdio.h>

#include <rte_cycles.h>
#include <rte_ethdev.h>
#include <rte_launch.h>
#include <rte_lcore.h>
#include <rte_malloc.h>
#include <rte_pause.h>
#include <rte_ring_elem.h>

#include "engine/frame.h"
#include "engine/qp.h"
#include "engine/reference.h"

#define POOL_MBUFS 16383
#define POOL_CACHE 512
/* With a stack, the mbuf freed last is used next, while it is still in a cache. A ring cycles
 * through all mbufs, so that each one has to be read from memory: 140 cycles more per packet. */
#define POOL_OPS "stack"

/* ---- ownership -------------------- */

/**
 * True if the owner may be running. EAL does not know the state of the main lcore and of lcores
 * with a role other than ROLE_RTE: they count as running.
 */
static bool
owner_runs(uint32_t owner)
{
	return owner == rte_get_main_lcore() || rte_eal_lcore_role(owner) != ROLE_RTE ||
		rte_eal_get_lcore_state(owner) == RUNNING;
}

/**
 * True if the calling lcore owns the poll group. A thread that is not an lcore never owns one: its
 * id is LCORE_ID_ANY, which equals ROCE_OWNER_NONE.
 */
static bool
is_owner(const struct roce_poll_group *pg)
{
	const uint32_t self = rte_lcore_id();

	return self != ROCE_OWNER_NONE &&
		atomic_load_explicit(&pg->owner, memory_order_acquire) == self;
}

/** Let the calling lcore execute the poll group's calls. @return false: another lcore polls it */
static bool
pg_claim(struct roce_poll_group *pg)
{
	uint32_t owner = atomic_load_explicit(&pg->owner, memory_order_acquire);
	uint32_t call = ROCE_OWNER_CALL;

	if (is_owner(pg))
		return true;
	if (owner != ROCE_OWNER_NONE && (owner == ROCE_OWNER_CALL || owner_runs(owner)))
		return false;
	if (!atomic_compare_exchange_strong(&pg->owner, &owner, ROCE_OWNER_CALL))
		return false;
	/* An lcore that was launched meanwhile may have found itself still the owner and be polling
	 * already. */
	if (owner == ROCE_OWNER_NONE || !owner_runs(owner))
		return true;
	atomic_compare_exchange_strong(&pg->owner, &call, owner);
	return false;
}

static void
pg_release(struct roce_poll_group *pg)
{
	uint32_t owner = ROCE_OWNER_CALL;

	atomic_compare_exchange_strong_explicit(
		&pg->owner, &owner, ROCE_OWNER_NONE, memory_order_acq_rel, memory_order_relaxed);
}

bool
roce_poll_group_take(struct roce_poll_group *pg)
{
	uint32_t owner = atomic_load_explicit(&pg->owner, memory_order_acquire);

	return owner != ROCE_OWNER_CALL &&
		atomic_compare_exchange_strong_explicit(&pg->owner, &owner, rte_lcore_id(),
			memory_order_acq_rel, memory_order_relaxed);
}

/* ---- calls -------------------- */

static void
calls_run(struct roce_poll_group *pg)
{
	struct roce_call *call;

	while (rte_ring_sc_dequeue(pg->calls, (void **)&call) == 0) {
		call->ret = call->fn(pg, call->arg);
		atomic_store_explicit(&call->done, 1, memory_order_release);
	}
}

int
roce_poll_group_call(
	struct roce_poll_group *pg, int (*fn)(struct roce_poll_group *pg, void *arg), void *arg)
{
	struct roce_call call = {.fn = fn, .arg = arg};

	/* The owner may be an lcore other than the control lcore, and the ring has one producer. */
	if (is_owner(pg)) {
		pg->now = rte_rdtsc();
		call.ret = fn(pg, arg);
		roce_poll_group_flush(pg);
		return call.ret;
	}
	/* There is one control lcore, and it waits for each call: the ring always has room. */
	rte_ring_sp_enqueue(pg->calls, &call);
	while (!atomic_load_explicit(&call.done, memory_order_acquire)) {
		if (!pg_claim(pg)) {
			rte_pause();
			continue;
		}
		pg->now = rte_rdtsc();
		calls_run(pg);
		roce_poll_group_flush(pg);
		pg_release(pg);
	}
	return call.ret;
}

static int
call_nothing(struct roce_poll_group *pg, void *arg)
{
	return 0;
}

void
roce_dev_quiesce(struct roce_dev *dev)
{
	uint16_t i;

	for (i = 0; i < dev->nb_poll_groups; i++)
		roce_poll_group_call(dev->poll_groups[i], call_nothing, NULL);
}

/* ---- between poll group and control -------------------- */

void
roce_poll_group_note(struct roce_poll_group *pg, enum roce_note_type type, uint32_t qpn)
{
	struct roce_note note = {type, qpn};

	/* The ring has room for all events of the existing queue pairs. */
	if (rte_ring_sp_enqueue_elem(pg->notes, &note, sizeof(note)) < 0)
		roce_count(pg, ROCE_NOTES_LOST);
}

/**
 * Round-robin start index: a poll group that always fills the caller's array must not starve the
 * others.
 */
static uint16_t
next_pg(const struct roce_dev *dev, uint16_t *next)
{
	const uint16_t pg = *next;

	*next = (pg + 1) % dev->nb_poll_groups;
	return pg;
}

uint16_t
roce_control_notes(struct roce_dev *dev, struct roce_note *note, uint16_t n)
{
	uint16_t i, got = 0, pg = next_pg(dev, &dev->notes_pg);

	for (i = 0; i < dev->nb_poll_groups && got < n; i++, pg = (pg + 1) % dev->nb_poll_groups)
		got += rte_ring_sc_dequeue_burst_elem(
			dev->poll_groups[pg]->notes, note + got, sizeof(*note), n - got, NULL);
	return got;
}

uint16_t
roce_control_rx(struct roce_dev *dev, struct rte_mbuf **m, uint16_t n)
{
	uint16_t i, got = 0, pg = next_pg(dev, &dev->frames_pg);

	for (i = 0; i < dev->nb_poll_groups && got < n; i++, pg = (pg + 1) % dev->nb_poll_groups)
		got += rte_ring_sc_dequeue_burst(
			dev->poll_groups[pg]->to_control, (void **)(m + got), n - got, NULL);
	return got;
}

int
roce_control_tx(struct roce_dev *dev, uint16_t pg, struct rte_mbuf *m)
{
	if (rte_ring_sp_enqueue(dev->poll_groups[pg]->to_pg, m) == 0)
		return 0;
	counter_add(&dev->control_full, 1);
	rte_pktmbuf_free(m);
	return -ENOBUFS;
}

/* ---- progress -------------------- */

/**
 * The port has accepted no packet: drop all after ROCE_TX_STALL_MS. @return packets left to send
 */
static unsigned int
tx_stall(struct roce_poll_group *pg, unsigned int n)
{
	const uint64_t now = rte_rdtsc();

	if (pg->tx_stalled == 0) {
		pg->tx_stalled = now;
		return n;
	}
	if (now - pg->tx_stalled < rte_get_tsc_hz() / 1000 * ROCE_TX_STALL_MS)
		return n;
	rte_pktmbuf_free_bulk(pg->tx, n);
	roce_count_n(pg, ROCE_TX_STALLED, n);
	/* the time-out starts again for the next packets */
	pg->tx_stalled = 0;
	return 0;
}

void
roce_poll_group_flush(struct roce_poll_group *pg)
{
	unsigned int i, n = pg->tx_end;

	if (n == 0)
		return;
	if (unlikely(!roce_dev_has_port(pg->dev))) {
		rte_pktmbuf_free_bulk(pg->tx, n);
		pg->tx_end = 0;
		return;
	}
	i = rte_eth_tx_burst(pg->port, pg->queue, pg->tx, n);
	if (unlikely(i == 0)) {
		pg->tx_end = tx_stall(pg, n);
		return;
	}
	pg->tx_stalled = 0;
	if (unlikely(i < n))
		memmove(pg->tx, pg->tx + i, (n - i) * sizeof(pg->tx[0]));
	pg->tx_end = n - i;
}

void
roce_poll_group_refill(struct roce_poll_group *pg)
{
	struct rte_mbuf *more[ROCE_SPARE_MBUFS / 2];

	if (rte_mempool_get_bulk(pg->pool, (void **)more, RTE_DIM(more)) < 0)
		return;
	memmove(pg->spare + RTE_DIM(more), pg->spare, pg->nb_spare * sizeof(more[0]));
	memcpy(pg->spare, more, sizeof(more));
	pg->nb_spare += RTE_DIM(more);
}

int
roce_poll_group_reclaim(struct roce_poll_group *pg, void *arg)
{
	int ret;

	if (!roce_dev_has_port(pg->dev))
		return -ENODEV;
	ret = rte_eth_tx_done_cleanup(pg->port, pg->queue, 0);
	/* mlx5 does not support this call, but frees sent mbufs when it reads a descriptor's
	 * status, except the last ones: roce_dev.copy_sends. */
	if (ret == -ENOTSUP)
		ret = rte_eth_tx_descriptor_status(pg->port, pg->queue, 0);
	return ret;
}

/**
 * Return true if the rings to poll groups that deliver messages by reference have room for a burst.
 * UC does not retransmit packets that a full ring drops, so packets wait at the port instead.
 */
static bool
others_have_room(const struct roce_poll_group *pg)
{
	for (uint16_t i = 0; i < pg->dev->nb_poll_groups; i++) {
		const struct roce_poll_group *to = pg->dev->poll_groups[i];

		if (i != pg->index && to->messages != NULL &&
			rte_ring_free_count(to->handover[pg->index]) < ROCE_BURST)
			return false;
	}
	return true;
}

static unsigned int
receive(struct roce_poll_group *pg)
{
	struct rte_mbuf *m[ROCE_BURST];
	unsigned int n, total = 0;
	uint16_t i;

	if (unlikely(!roce_reference_has_room(pg))) {
		roce_count(pg, ROCE_RX_MESSAGES_PAUSED);
		return 0;
	}
	if (unlikely(!others_have_room(pg))) {
		roce_count(pg, ROCE_RX_MESSAGES_PAUSED);
	} else if (!pg->dev->no_poll && likely(roce_dev_has_port(pg->dev)) &&
		(!pg->dev->handover || pg->index == 0)) {
		n = rte_eth_rx_burst(pg->port, pg->queue, m, ROCE_BURST);
		roce_count_n(pg, ROCE_RX_PACKETS, n);
		roce_poll_group_rx(pg, m, n, ROCE_FROM_PORT);
		total = n;
	}
	if (pg->index == 0 && unlikely(!rte_ring_empty(pg->dev->given)) &&
		roce_reference_has_room(pg)) {
		n = rte_ring_sc_dequeue_burst(pg->dev->given, (void **)m, ROCE_BURST, NULL);
		roce_count_n(pg, ROCE_RX_TAKEN, n);
		roce_poll_group_rx(pg, m, n, ROCE_FROM_DEVICE);
		total += n;
	}
	for (i = 0; i < pg->dev->nb_poll_groups && pg->dev->nb_poll_groups > 1; i++) {
		if (i == pg->index || !roce_reference_has_room(pg))
			continue;
		n = rte_ring_sc_dequeue_burst(pg->handover[i], (void **)m, ROCE_BURST, NULL);
		roce_poll_group_rx(pg, m, n, ROCE_FROM_POLL_GROUP);
		total += n;
	}
	return total;
}

static void
timers_run(struct roce_poll_group *pg)
{
	struct roce_timer_list expired = TAILQ_HEAD_INITIALIZER(expired);
	struct roce_timer *timer;

	roce_wheel_run(&pg->wheel, pg->now, &expired);
	while ((timer = TAILQ_FIRST(&expired))) {
		TAILQ_REMOVE(&expired, timer, next);
		roce_requester_timeout(container_of(timer, struct roce_qp, req.timer));
	}
}

/** Run one queue pair. @return true: it has more to send */
static bool
qp_run(struct roce_qp *qp)
{
	bool more;

	if (unlikely(qp->overrun)) {
		qp->overrun = false;
		roce_qp_fail(qp, RDMA_WC_SUCCESS, true);
	}
	if (unlikely(roce_state(qp) == RDMA_QP_ERROR))
		return !roce_flush_sends(qp);
	more = roce_congestion_run(qp);
	more |= roce_responder_run(qp);
	if (roce_state(qp) == RDMA_QP_RTS)
		more |= roce_requester_run(qp);
	return more;
}

/** Transmit frames of the control lcore. */
static void
transmit_control(struct roce_poll_group *pg)
{
	struct rte_mbuf *m;

	while (roce_poll_group_tx_room(pg)) {
		if (rte_ring_sc_dequeue(pg->to_pg, (void **)&m))
			break;
		roce_count(pg, ROCE_TX_CONTROL);
		roce_poll_group_tx(pg, m);
	}
}

static void
transmit(struct roce_poll_group *pg)
{
	struct roce_qp *qp, *last = TAILQ_LAST(&pg->active, roce_qp_list);

	if (unlikely(!rte_ring_empty(pg->to_pg)))
		transmit_control(pg);
	while ((qp = TAILQ_FIRST(&pg->active)) && roce_poll_group_tx_room(pg)) {
		TAILQ_REMOVE(&pg->active, qp, next);
		qp->active = false;
		if (qp_run(qp))
			roce_qp_activate(qp);
		if (qp == last)
			break;
	}
}

unsigned int
roce_poll_group_progress(struct rdma_dev *dev, uint16_t index)
{
	struct roce_poll_group *pg = roce_dev(dev)->poll_groups[index];
	uint64_t sent = pg->stats[ROCE_TX_PACKETS];
	unsigned int received;

	if (!roce_poll_group_enter(pg))
		return 0;
	pg->now = rte_rdtsc();
	if (unlikely(!rte_ring_empty(pg->calls)))
		calls_run(pg);
	received = receive(pg);
	if (roce_wheel_due(&pg->wheel, pg->now))
		timers_run(pg);
	pg->held = false;
	transmit(pg);
	sent = pg->stats[ROCE_TX_PACKETS] - sent;
	/* The port frees sent mbufs only when it checks its TX ring, which a new transmission
	 * would make it do. */
	if (pg->held && sent == 0)
		roce_poll_group_reclaim(pg, NULL);
	roce_poll_group_settle(pg);
	roce_poll_group_flush(pg);
	return received + sent;
}

/* ---- creation and destruction -------------------- */

static struct rte_ring *
ring_make(
	struct roce_dev *dev, uint16_t pg, const char *what, unsigned int esize, unsigned int slots)
{
	char name[RTE_RING_NAMESIZE];

	if (snprintf(name, sizeof(name), "roce%u_%u_%s", dev->number, pg, what) >=
		(int)sizeof(name))
		return NULL;
	return rte_ring_create_elem(
		name, esize, slots, dev->numa_node, RING_F_SP_ENQ | RING_F_SC_DEQ);
}

int
roce_poll_group_open(struct roce_dev *dev, uint16_t index)
{
	struct roce_poll_group *pg = rte_zmalloc_socket(
		"roce_poll_group", sizeof(*pg), RTE_CACHE_LINE_SIZE, dev->numa_node);
	const unsigned int room = ROCE_FRAME_ROOM + (dev->copy || dev->copy_sends ? dev->mtu : 0);
	char name[RTE_RING_NAMESIZE];
	uint16_t i;

	if (!pg)
		return -ENOMEM;
	dev->poll_groups[index] = pg;
	pg->dev = dev;
	pg->index = index;
	pg->port = dev->port;
	pg->queue = dev->queue + index;
	pg->owner = ROCE_OWNER_NONE;
	TAILQ_INIT(&pg->active);
	roce_wheel_init(&pg->wheel, rte_get_tsc_hz(), rte_rdtsc());
	pg->pool = roce_pool_make(dev, "tx", POOL_MBUFS, POOL_CACHE, room);
	pg->calls = ring_make(dev, index, "calls", sizeof(void *), ROCE_RING_SLOTS);
	pg->to_pg = ring_make(dev, index, "tx", sizeof(void *), ROCE_RING_SLOTS);
	pg->to_control = ring_make(dev, index, "rx", sizeof(void *), ROCE_RING_SLOTS);
	pg->notes = ring_make(dev, index, "notes", sizeof(struct roce_note),
		rte_align32pow2(ROCE_NOTES_QP * dev->max_qps + 1));
	if (!pg->pool || !pg->calls || !pg->to_pg || !pg->to_control || !pg->notes)
		return -ENOMEM;
	for (i = 0; i < dev->nb_poll_groups; i++) {
		if (i == index)
			continue;
		snprintf(name, sizeof(name), "from%u", i);
		pg->handover[i] = ring_make(dev, index, name, sizeof(void *), ROCE_RING_SLOTS);
		if (!pg->handover[i])
			return -ENOMEM;
	}
	return 0;
}

static void
ring_drain(struct rte_ring *ring)
{
	struct rte_mbuf *m;

	while (ring && rte_ring_dequeue(ring, (void **)&m) == 0)
		rte_pktmbuf_free(m);
	rte_ring_free(ring);
}

/** Pools whose frames were still in flight when the device closed. Freed when a pool is created. */
static struct rte_mempool *pools_in_use[4 * ROCE_POLL_GROUPS_MAX];

struct rte_mempool *
roce_pool_make(const struct roce_dev *dev, const char *what, unsigned int n, unsigned int cache,
	unsigned int room)
{
	static uint32_t pools;
	char name[RTE_MEMPOOL_NAMESIZE];
	unsigned int i;

	for (i = 0; i < RTE_DIM(pools_in_use); i++)
		if (pools_in_use[i] && rte_mempool_full(pools_in_use[i])) {
			rte_mempool_free(pools_in_use[i]);
			pools_in_use[i] = NULL;
		}
	/* A pool that is still in use keeps its name, so that each name is used once. */
	snprintf(name, sizeof(name), "roce%u_%s_%u", dev->port, what, pools++);
	return rte_pktmbuf_pool_create_by_ops(name, n, cache, 0, room, dev->numa_node, POOL_OPS);
}

void
roce_pool_free(struct roce_dev *dev, struct rte_mempool *pool)
{
	unsigned int i;

	if (!pool)
		return;
	if (rte_mempool_full(pool)) {
		rte_mempool_free(pool);
		return;
	}
	for (i = 0; i < RTE_DIM(pools_in_use); i++)
		if (!pools_in_use[i]) {
			pools_in_use[i] = pool;
			break;
		}
	RDMA_LOG(NOTICE,
		"device %s: %u frames of pool %s are still being sent by port %u; the pool is "
		"not freed",
		dev->base.name, rte_mempool_in_use_count(pool), pool->name, dev->port);
}

void
roce_poll_group_finish(struct roce_poll_group *pg)
{
	/* Do not wait for the owner: it may have stopped polling already. */
	if (!pg->to_pg || !pg_claim(pg))
		return;
	do {
		transmit_control(pg);
		roce_poll_group_flush(pg);
	} while (pg->tx_end == 0 && !rte_ring_empty(pg->to_pg));
	pg_release(pg);
}

void
roce_poll_group_close(struct roce_poll_group *pg)
{
	struct roce_dev *dev = pg->dev;
	uint16_t i;

	for (i = 0; i < dev->nb_poll_groups; i++)
		ring_drain(pg->handover[i]);
	ring_drain(pg->to_pg);
	ring_drain(pg->to_control);
	rte_ring_free(pg->calls);
	rte_ring_free(pg->notes);
	rte_pktmbuf_free_bulk(pg->tx, pg->tx_end);
	if (pg->nb_spare)
		rte_mempool_put_bulk(pg->pool, (void **)pg->spare, pg->nb_spare);
	roce_pool_free(dev, pg->pool);
	rte_free(pg->messages);
	dev->poll_groups[pg->index] = NULL;
	rte_free(pg);
}
