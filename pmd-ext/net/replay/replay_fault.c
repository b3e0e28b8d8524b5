/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include <rte_malloc.h>
#include <rte_mbuf.h>
#include <rte_memcpy.h>
#include <rte_mempool.h>

#include "replay.h"

/* Derives a second random word. */
static uint64_t
next_word(uint64_t word)
{
	word ^= word << 13;
	word ^= word >> 7;
	return word ^ word << 17;
}

/* 0 to n - 1; the bias of at most 2^-32 does not matter here */
static uint32_t
below(uint64_t word, uint32_t n)
{
	return (uint32_t)((word >> 32) * n >> 32);
}

/*
 * Shuffles the window that contains a packet of the queue (Fisher-Yates), and selects the queue's
 * packets.
 */
static void
shuffle(struct replay_rxq *rxq, uint64_t number, uint32_t begin, uint32_t own)
{
	const struct replay_faults *faults = &rxq->dev->args.faults;
	const uint32_t n = RTE_MIN(faults->window, rxq->dev->capture->nb_packets - begin);
	uint64_t word = replay_fault_draw(faults, REPLAY_REORDER, ~number) | 1;
	struct replay_window *window = &rxq->window;
	bool mine[REPLAY_WINDOW_MAX] = {false};
	uint8_t order[REPLAY_WINDOW_MAX];
	uint32_t found = 0;

	while (own > 0 && rxq->mine[own - 1] >= begin)
		own--;
	window->number = number;
	window->first = own;
	for (; own < rxq->nb_mine && rxq->mine[own] - begin < n; own++)
		mine[rxq->mine[own] - begin] = true;
	for (uint32_t i = 0; i < n; i++)
		order[i] = (uint8_t)i;
	if (replay_fault_hits(faults, REPLAY_REORDER, number))
		for (uint32_t i = n; i-- > 1;) {
			uint32_t k;

			word = next_word(word);
			k = below(word, i + 1);
			RTE_SWAP(order[i], order[k]);
		}
	for (uint32_t i = 0; i < n; i++) {
		if (!mine[order[i]])
			continue;
		window->from[found] = order[i];
		window->at[found++] = (uint8_t)i;
	}
}

uint32_t
replay_fault_order(struct replay_rxq *rxq, uint32_t own, uint32_t *position)
{
	const struct replay_faults *faults = &rxq->dev->args.faults;
	const uint32_t n = rxq->dev->capture->nb_packets;
	uint32_t in_loop, begin;
	uint64_t number;

	*position = rxq->mine[own];
	if (faults->chance[REPLAY_REORDER] == 0)
		return rxq->mine[own];
	in_loop = rxq->mine[own] / faults->window;
	begin = in_loop * faults->window;
	number = rxq->loop * (n / faults->window + 1) + in_loop;
	if (number != rxq->window.number)
		shuffle(rxq, number, begin, own);
	*position = begin + rxq->window.at[own - rxq->window.first];
	return begin + rxq->window.from[own - rxq->window.first];
}

void
replay_fault_pick(const struct replay_faults *faults, struct replay_pick *pick,
	const struct replay_packet *packet)
{
	const uint16_t len = packet->len;

	pick->len = len;
	pick->ptype = packet->ptype;
	pick->truncated = len > 1 && replay_fault_hits(faults, REPLAY_TRUNCATE, pick->nth);
	if (pick->truncated) {
		pick->len = (uint16_t)(1 +
			below(next_word(replay_fault_draw(faults, REPLAY_TRUNCATE, pick->nth)),
				len - 1u));
		pick->ptype = replay_packet_type(packet->data, pick->len);
	}
	pick->corrupt = replay_fault_hits(faults, REPLAY_CORRUPT, pick->nth);
}

void
replay_fault_flip(const struct replay_faults *faults, const struct replay_pick *pick,
	uint8_t *bytes, uint32_t off, uint32_t len)
{
	uint64_t word = next_word(replay_fault_draw(faults, REPLAY_CORRUPT, pick->nth) | 1);
	const uint32_t flips = 1 + (uint32_t)(word % REPLAY_FLIPS_MAX);
	uint32_t bit[REPLAY_FLIPS_MAX];

	for (uint32_t i = 0; i < flips; i++) {
		bool again = false;

		word = next_word(word);
		bit[i] = below(word, pick->len * 8u);
		/* flipping a bit twice would restore it */
		for (uint32_t k = 0; k < i; k++)
			again |= bit[k] == bit[i];
		if (!again && bit[i] / 8 >= off && bit[i] / 8 - off < len)
			bytes[bit[i] / 8 - off] ^= (uint8_t)(1u << bit[i] % 8);
	}
}

void
replay_fault_flip_chain(
	const struct replay_faults *faults, const struct replay_pick *pick, struct rte_mbuf *m)
{
	for (uint32_t off = 0; m != NULL; off += m->data_len, m = m->next)
		replay_fault_flip(faults, pick, rte_pktmbuf_mtod(m, uint8_t *), off, m->data_len);
}

struct spare {
	struct rte_mbuf_ext_shared_info shared;
	uint8_t bytes[] __attribute__((aligned(REPLAY_LINE)));
};

struct replay_spares {
	struct rte_mempool *pool;
	uint64_t held; /* number of references, including the port's */
};

static void
spares_drop(struct replay_spares *spares)
{
	if (__atomic_sub_fetch(&spares->held, 1, __ATOMIC_ACQ_REL) != 0)
		return;
	rte_mempool_free(spares->pool);
	rte_free(spares);
}

static void
spare_released(void *addr, void *opaque)
{
	struct replay_spares *spares = opaque;
	const uintptr_t start = (uintptr_t)addr & ~(uintptr_t)(REPLAY_LINE - 1);

	rte_mempool_put(spares->pool, (void *)(start - offsetof(struct spare, bytes)));
	spares_drop(spares);
}

struct replay_spares *
replay_spares_create(const char *name, uint32_t n, uint32_t bytes, int socket)
{
	struct replay_spares *spares =
		rte_zmalloc_socket("replay_spares", sizeof(*spares), 0, socket);

	if (spares == NULL)
		return NULL;
	spares->held = 1;
	spares->pool = rte_mempool_create(name, n,
		(unsigned int)(sizeof(struct spare) +
			RTE_ALIGN_CEIL(bytes + REPLAY_LINE - 1, REPLAY_LINE)),
		0, 0, NULL, NULL, NULL, NULL, socket, 0);
	if (spares->pool == NULL) {
		rte_free(spares);
		return NULL;
	}
	return spares;
}

void
replay_spares_release(struct replay_spares *spares)
{
	if (spares != NULL)
		spares_drop(spares);
}

bool
replay_spares_attach(struct replay_spares *spares, const struct replay_faults *faults,
	const struct replay_pick *pick, struct rte_mbuf *m, const uint8_t *frame, uint32_t off)
{
	const uint32_t len = pick->len - off;
	/* a copy has the same alignment as its original */
	const size_t shift = (uintptr_t)(frame + off) % REPLAY_LINE;
	struct spare *spare;
	uint8_t *bytes;

	if (rte_mempool_get(spares->pool, (void **)&spare) != 0)
		return false;
	__atomic_add_fetch(&spares->held, 1, __ATOMIC_RELAXED);
	bytes = spare->bytes + shift;
	rte_memcpy(bytes, frame + off, len);
	replay_fault_flip(faults, pick, bytes, off, len);
	spare->shared.free_cb = spare_released;
	spare->shared.fcb_opaque = spares;
	rte_mbuf_ext_refcnt_set(&spare->shared, 1);
	rte_pktmbuf_attach_extbuf(
		m, bytes, (rte_iova_t)(uintptr_t)bytes, (uint16_t)len, &spare->shared);
	m->ol_flags = RTE_MBUF_F_EXTERNAL;
	m->data_len = (uint16_t)len;
	m->pkt_len = len;
	return true;
}
