/* SPDX-License-Identifier: BSD-3-Clause */
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

#define POOL_MBUFS 16383
#define POOL_CACHE 512
/* What came back last goes out next and is in a cache still. Through a ring all mbufs pass before
 * one comes again, each from memory: a packet took 140 cycles more. */
#define POOL_OPS "stack"

/* ---- whose it is -------------------- */

/** Does the owner run something? Of main and of foreign threads nobody knows: it does. */
static bool
owner_runs(uint32_t owner)
{
	return owner == rte_get_main_lcore() || rte_eal_lcore_role(owner) != ROLE_RTE ||
		rte_eal_get_lcore_state(owner) == RUNNING;
}

/** Is it the calling lcore's? Threads without one have the number that is nobody's. */
static bool
is_owner(const struct roce_lane *lane)
{
	const uint32_t self = rte_lcore_id();

	return self != ROCE_OWNER_NONE &&
		atomic_load_explicit(&lane->owner, memory_order_acquire) == self;
}

/** Make the calling lcore the one that runs the lane's calls. @return false: another polls it */
static bool
lane_claim(struct roce_lane *lane)
{
	uint32_t owner = atomic_load_explicit(&lane->owner, memory_order_acquire);
	uint32_t call = ROCE_OWNER_CALL;

	if (is_owner(lane))
		return true;
	if (owner != ROCE_OWNER_NONE && (owner == ROCE_OWNER_CALL || owner_runs(owner)))
		return false;
	if (!atomic_compare_exchange_strong(&lane->owner, &owner, ROCE_OWNER_CALL))
		return false;
	/* one that was launched meanwhile may have found the lane still its own: it runs already */
	if (owner == ROCE_OWNER_NONE || !owner_runs(owner))
		return true;
	atomic_compare_exchange_strong(&lane->owner, &call, owner);
	return false;
}

static void
lane_release(struct roce_lane *lane)
{
	uint32_t owner = ROCE_OWNER_CALL;

	atomic_compare_exchange_strong_explicit(
		&lane->owner, &owner, ROCE_OWNER_NONE, memory_order_acq_rel, memory_order_relaxed);
}

bool
roce_lane_take(struct roce_lane *lane)
{
	uint32_t owner = atomic_load_explicit(&lane->owner, memory_order_acquire);

	return owner != ROCE_OWNER_CALL &&
		atomic_compare_exchange_strong_explicit(&lane->owner, &owner, rte_lcore_id(),
			memory_order_acq_rel, memory_order_relaxed);
}

/* ---- calls -------------------- */

static void
calls_run(struct roce_lane *lane)
{
	struct roce_call *call;

	while (rte_ring_sc_dequeue(lane->calls, (void **)&call) == 0) {
		call->ret = call->fn(lane, call->arg);
		atomic_store_explicit(&call->done, 1, memory_order_release);
	}
}

int
roce_lane_call(struct roce_lane *lane, int (*fn)(struct roce_lane *lane, void *arg), void *arg)
{
	struct roce_call call = {.fn = fn, .arg = arg};

	/* its owner, which may be no control lcore: the ring has one producer */
	if (is_owner(lane)) {
		lane->now = rte_rdtsc();
		call.ret = fn(lane, arg);
		roce_lane_flush(lane);
		return call.ret;
	}
	/* one control lcore, which waits: there is always room */
	rte_ring_sp_enqueue(lane->calls, &call);
	while (!atomic_load_explicit(&call.done, memory_order_acquire)) {
		if (!lane_claim(lane)) {
			rte_pause();
			continue;
		}
		lane->now = rte_rdtsc();
		calls_run(lane);
		roce_lane_flush(lane);
		lane_release(lane);
	}
	return call.ret;
}

static int
nothing(struct roce_lane *lane, void *arg)
{
	return 0;
}

void
roce_dev_quiesce(struct roce_dev *dev)
{
	uint16_t i;

	for (i = 0; i < dev->nb_lanes; i++)
		roce_lane_call(dev->lanes[i], nothing, NULL);
}

/* ---- between lane and control -------------------- */

void
roce_lane_note(struct roce_lane *lane, enum roce_note_type type, uint32_t qpn)
{
	struct roce_note note = {type, qpn};

	/* it has room for all that the queue pairs of now have to tell */
	if (rte_ring_sp_enqueue_elem(lane->notes, &note, sizeof(note)) < 0)
		roce_count(lane, ROCE_NOTES_LOST);
}

/** Each begins once: one that has more than is taken must not keep the others waiting. */
static uint16_t
next_lane(const struct roce_dev *dev, uint16_t *next)
{
	const uint16_t lane = *next;

	*next = (lane + 1) % dev->nb_lanes;
	return lane;
}

uint16_t
roce_control_notes(struct roce_dev *dev, struct roce_note *note, uint16_t n)
{
	uint16_t i, got = 0, lane = next_lane(dev, &dev->notes_lane);

	for (i = 0; i < dev->nb_lanes && got < n; i++, lane = (lane + 1) % dev->nb_lanes)
		got += rte_ring_sc_dequeue_burst_elem(
			dev->lanes[lane]->notes, note + got, sizeof(*note), n - got, NULL);
	return got;
}

uint16_t
roce_control_rx(struct roce_dev *dev, struct rte_mbuf **m, uint16_t n)
{
	uint16_t i, got = 0, lane = next_lane(dev, &dev->frames_lane);

	for (i = 0; i < dev->nb_lanes && got < n; i++, lane = (lane + 1) % dev->nb_lanes)
		got += rte_ring_sc_dequeue_burst(
			dev->lanes[lane]->to_control, (void **)(m + got), n - got, NULL);
	return got;
}

int
roce_control_tx(struct roce_dev *dev, uint16_t lane, struct rte_mbuf *m)
{
	if (rte_ring_sp_enqueue(dev->lanes[lane]->to_lane, m) == 0)
		return 0;
	__atomic_store_n(&dev->control_full, dev->control_full + 1, __ATOMIC_RELAXED);
	rte_pktmbuf_free(m);
	return -ENOBUFS;
}

/* ---- progress -------------------- */

void
roce_lane_flush(struct roce_lane *lane)
{
	unsigned int i, n = lane->tx_end;

	if (n == 0)
		return;
	if (unlikely(!roce_dev_has_port(lane->dev))) {
		rte_pktmbuf_free_bulk(lane->tx, n);
		lane->tx_end = 0;
		return;
	}
	i = rte_eth_tx_burst(lane->port, lane->queue, lane->tx, n);
	if (unlikely(i < n))
		memmove(lane->tx, lane->tx + i, (n - i) * sizeof(lane->tx[0]));
	lane->tx_end = n - i;
}

void
roce_lane_refill(struct roce_lane *lane)
{
	struct rte_mbuf *more[ROCE_SPARE_MBUFS / 2];

	if (rte_mempool_get_bulk(lane->pool, (void **)more, RTE_DIM(more)) < 0)
		return;
	memmove(lane->spare + RTE_DIM(more), lane->spare, lane->nb_spare * sizeof(more[0]));
	memcpy(lane->spare, more, sizeof(more));
	lane->nb_spare += RTE_DIM(more);
}

int
roce_lane_reclaim(struct roce_lane *lane, void *arg)
{
	int ret;

	if (!roce_dev_has_port(lane->dev))
		return -ENODEV;
	ret = rte_eth_tx_done_cleanup(lane->port, lane->queue, 0);
	/* mlx5 has no such call, but frees what is done as it looks for a descriptor's state */
	if (ret == -ENOTSUP)
		ret = rte_eth_tx_descriptor_status(lane->port, lane->queue, 0);
	return ret;
}

static unsigned int
receive(struct roce_lane *lane)
{
	struct rte_mbuf *m[ROCE_BURST];
	unsigned int n, total = 0;
	uint16_t i;

	if (!lane->dev->no_poll && likely(roce_dev_has_port(lane->dev)) &&
		(!lane->dev->handover || lane->index == 0)) {
		n = rte_eth_rx_burst(lane->port, lane->queue, m, ROCE_BURST);
		roce_count_n(lane, ROCE_RX_PACKETS, n);
		roce_lane_rx(lane, m, n, ROCE_FROM_PORT);
		total = n;
	}
	if (lane->index == 0 && unlikely(!rte_ring_empty(lane->dev->given))) {
		n = rte_ring_sc_dequeue_burst(lane->dev->given, (void **)m, ROCE_BURST, NULL);
		roce_count_n(lane, ROCE_RX_TAKEN, n);
		roce_lane_rx(lane, m, n, ROCE_FROM_DEVICE);
		total += n;
	}
	for (i = 0; i < lane->dev->nb_lanes && lane->dev->nb_lanes > 1; i++) {
		if (i == lane->index)
			continue;
		n = rte_ring_sc_dequeue_burst(lane->handover[i], (void **)m, ROCE_BURST, NULL);
		roce_lane_rx(lane, m, n, ROCE_FROM_LANE);
		total += n;
	}
	return total;
}

static void
timers(struct roce_lane *lane)
{
	struct roce_timer_list expired = TAILQ_HEAD_INITIALIZER(expired);
	struct roce_timer *timer;

	roce_wheel_run(&lane->wheel, lane->now, &expired);
	while ((timer = TAILQ_FIRST(&expired))) {
		TAILQ_REMOVE(&expired, timer, next);
		roce_requester_timeout(container_of(timer, struct roce_qp, req.timer));
	}
}

/** Let one queue pair send. @return true: it has more */
static bool
serve(struct roce_qp *qp)
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

/** Frames of the control lcore. */
static void
transmit_control(struct roce_lane *lane)
{
	struct rte_mbuf *m;

	while (roce_lane_tx_room(lane)) {
		if (rte_ring_sc_dequeue(lane->to_lane, (void **)&m))
			break;
		roce_count(lane, ROCE_TX_CONTROL);
		roce_lane_tx(lane, m);
	}
}

static void
transmit(struct roce_lane *lane)
{
	struct roce_qp *qp, *last = TAILQ_LAST(&lane->active, roce_qp_list);

	if (unlikely(!rte_ring_empty(lane->to_lane)))
		transmit_control(lane);
	while ((qp = TAILQ_FIRST(&lane->active)) && roce_lane_tx_room(lane)) {
		TAILQ_REMOVE(&lane->active, qp, next);
		qp->active = false;
		if (serve(qp))
			roce_qp_activate(qp);
		if (qp == last)
			break;
	}
}

unsigned int
roce_lane_progress(struct rdma_dev *dev, uint16_t index)
{
	struct roce_lane *lane = roce_dev(dev)->lanes[index];
	uint64_t sent = lane->stats[ROCE_TX_PACKETS];
	unsigned int received;

	if (!roce_lane_enter(lane))
		return 0;
	lane->now = rte_rdtsc();
	if (unlikely(!rte_ring_empty(lane->calls)))
		calls_run(lane);
	received = receive(lane);
	if (roce_wheel_due(&lane->wheel, lane->now))
		timers(lane);
	lane->held = false;
	transmit(lane);
	sent = lane->stats[ROCE_TX_PACKETS] - sent;
	/* memory that was sent from is let go of when the port looks at its ring again */
	if (lane->held && sent == 0)
		roce_lane_reclaim(lane, NULL);
	roce_lane_settle(lane);
	roce_lane_flush(lane);
	return received + sent;
}

/* ---- life -------------------- */

static struct rte_ring *
ring_make(struct roce_dev *dev, uint16_t lane, const char *what, unsigned int esize,
	unsigned int slots)
{
	char name[RTE_RING_NAMESIZE];

	if (snprintf(name, sizeof(name), "roce%u_%u_%s", dev->number, lane, what) >=
		(int)sizeof(name))
		return NULL;
	return rte_ring_create_elem(
		name, esize, slots, dev->numa_node, RING_F_SP_ENQ | RING_F_SC_DEQ);
}

int
roce_lane_open(struct roce_dev *dev, uint16_t index)
{
	struct roce_lane *lane =
		rte_zmalloc_socket("roce_lane", sizeof(*lane), RTE_CACHE_LINE_SIZE, dev->numa_node);
	const unsigned int room = ROCE_FRAME_ROOM + (dev->copy ? dev->mtu : 0);
	char name[RTE_RING_NAMESIZE];
	uint16_t i;

	if (!lane)
		return -ENOMEM;
	dev->lanes[index] = lane;
	lane->dev = dev;
	lane->index = index;
	lane->port = dev->port;
	lane->queue = dev->queue + index;
	lane->owner = ROCE_OWNER_NONE;
	TAILQ_INIT(&lane->active);
	roce_wheel_init(&lane->wheel, rte_get_tsc_hz(), rte_rdtsc());
	lane->pool = roce_pool_make(dev, "tx", POOL_MBUFS, POOL_CACHE, room);
	lane->calls = ring_make(dev, index, "calls", sizeof(void *), ROCE_RING_SLOTS);
	lane->to_lane = ring_make(dev, index, "tx", sizeof(void *), ROCE_RING_SLOTS);
	lane->to_control = ring_make(dev, index, "rx", sizeof(void *), ROCE_RING_SLOTS);
	lane->notes = ring_make(dev, index, "notes", sizeof(struct roce_note),
		rte_align32pow2(ROCE_NOTES_QP * dev->max_qps + 1));
	if (!lane->pool || !lane->calls || !lane->to_lane || !lane->to_control || !lane->notes)
		return -ENOMEM;
	for (i = 0; i < dev->nb_lanes; i++) {
		if (i == index)
			continue;
		snprintf(name, sizeof(name), "from%u", i);
		lane->handover[i] = ring_make(dev, index, name, sizeof(void *), ROCE_RING_SLOTS);
		if (!lane->handover[i])
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

/** Pools whose frames were still on their way: freed when the next ones are made. */
static struct rte_mempool *stayed[4 * ROCE_LANES_MAX];

struct rte_mempool *
roce_pool_make(const struct roce_dev *dev, const char *what, unsigned int n, unsigned int cache,
	unsigned int room)
{
	static uint32_t pools;
	char name[RTE_MEMPOOL_NAMESIZE];
	unsigned int i;

	for (i = 0; i < RTE_DIM(stayed); i++)
		if (stayed[i] && rte_mempool_full(stayed[i])) {
			rte_mempool_free(stayed[i]);
			stayed[i] = NULL;
		}
	/* one that had to stay keeps its name */
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
	for (i = 0; i < RTE_DIM(stayed); i++)
		if (!stayed[i]) {
			stayed[i] = pool;
			break;
		}
	RDMA_LOG(NOTICE,
		"device %s: %u frames of pool %s are still on their way through port %u: it stays",
		dev->base.name, rte_mempool_in_use_count(pool), pool->name, dev->port);
}

void
roce_lane_finish(struct roce_lane *lane)
{
	/* no waiting: the lcore that polled the lane may have left it already */
	if (!lane->to_lane || !lane_claim(lane))
		return;
	do {
		transmit_control(lane);
		roce_lane_flush(lane);
	} while (lane->tx_end == 0 && !rte_ring_empty(lane->to_lane));
	lane_release(lane);
}

void
roce_lane_close(struct roce_lane *lane)
{
	struct roce_dev *dev = lane->dev;
	uint16_t i;

	for (i = 0; i < dev->nb_lanes; i++)
		ring_drain(lane->handover[i]);
	ring_drain(lane->to_lane);
	ring_drain(lane->to_control);
	rte_ring_free(lane->calls);
	rte_ring_free(lane->notes);
	rte_pktmbuf_free_bulk(lane->tx, lane->tx_end);
	if (lane->nb_spare)
		rte_mempool_put_bulk(lane->pool, (void **)lane->spare, lane->nb_spare);
	roce_pool_free(dev, lane->pool);
	dev->lanes[lane->index] = NULL;
	rte_free(lane);
}
