/* SPDX-License-Identifier: BSD-3-Clause */
/* Queue set-up: selects the delivery mode from the pools, once. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <rte_errno.h>
#include <rte_malloc.h>
#include <rte_mbuf_dyn.h>

#include "replay.h"

/* Smaller segments would make chains of more than SEGMENTS_MAX (replay_fill.h). */
#define ROOM_MIN 64u

static bool
is_pinned(struct rte_mempool *pool)
{
	return (rte_pktmbuf_priv_flags(pool) & RTE_PKTMBUF_POOL_F_PINNED_EXT_BUF) != 0;
}

/*
 * A pool without usable room selects delivery by reference. A pinned pool never does: its mbufs own
 * their buffers, and an mbuf attached to another buffer would keep that pointer after it is freed.
 */
static bool
wants_references(struct rte_mempool *pool)
{
	return !is_pinned(pool) && rte_pktmbuf_data_room_size(pool) <= RTE_PKTMBUF_HEADROOM;
}

static int
set_up_single(struct replay_rxq *rxq, const char *name, struct rte_mempool *pool)
{
	uint16_t room = rte_pktmbuf_data_room_size(pool);

	rxq->first_pool = rxq->rest_pool = pool;
	if (wants_references(pool)) {
		rxq->mode = REPLAY_REFERENCE;
		return 0;
	}
	if (room < RTE_PKTMBUF_HEADROOM + ROOM_MIN) {
		REPLAY_LOG(ERR,
			"%s queue %u: pool %s has a data room of %u bytes, expected %u "
			"(headroom) for packets by reference or at least %u for copies",
			name, rxq->id, pool->name, room, RTE_PKTMBUF_HEADROOM,
			RTE_PKTMBUF_HEADROOM + ROOM_MIN);
		return -EINVAL;
	}
	rxq->mode = REPLAY_COPY;
	rxq->first_off = rxq->rest_off = RTE_PKTMBUF_HEADROOM;
	rxq->first_room = rxq->rest_room = room - RTE_PKTMBUF_HEADROOM;
	return 0;
}

static int
set_up_split(struct replay_rxq *rxq, const char *name, const struct rte_eth_rxconf *conf)
{
	const struct rte_eth_rxseg_split *first = &conf->rx_seg[0].split;
	const struct rte_eth_rxseg_split *rest = &conf->rx_seg[1].split;

	if (conf->rx_nseg != 2) {
		REPLAY_LOG(ERR, "%s queue %u: split into %u segments, expected 2", name, rxq->id,
			conf->rx_nseg);
		return -EINVAL;
	}
	/* ethdev has checked that the pools have room for offset and length */
	rxq->split = true;
	rxq->first_pool = first->mp;
	rxq->first_off = RTE_PKTMBUF_HEADROOM + first->offset;
	rxq->first_room = first->length;
	rxq->rest_pool = rest->mp;
	if (wants_references(rest->mp)) {
		if (rest->length != 0 || rest->offset != 0) {
			REPLAY_LOG(ERR,
				"%s queue %u: segment 1 has length %u and offset %u, expected 0 "
				"and 0: pool %s has no data room, its mbufs refer to the whole "
				"rest",
				name, rxq->id, rest->length, rest->offset, rest->mp->name);
			return -ENOTSUP;
		}
		rxq->mode = REPLAY_REFERENCE_SPLIT;
		return 0;
	}
	rxq->mode = REPLAY_COPY;
	rxq->far = rxq->dev->memory.copy != NULL && is_pinned(rest->mp);
	rxq->rest_off = rest->offset;
	rxq->rest_room = rest->length != 0 ? rest->length
					   : rte_pktmbuf_data_room_size(rest->mp) - rest->offset;
	if (rxq->rest_room < ROOM_MIN) {
		REPLAY_LOG(ERR, "%s queue %u: segment 1 of %u bytes, expected at least %u", name,
			rxq->id, rxq->rest_room, ROOM_MIN);
		return -EINVAL;
	}
	return 0;
}

/*
 * A referenced packet is shared by all loops, so a field in it cannot be rewritten. Nor can a field
 * that the CPU cannot access.
 */
static int
check_rewrites(const struct replay_rxq *rxq, const char *name, const struct replay_devargs *args)
{
	uint32_t private_bytes = rxq->mode == REPLAY_REFERENCE ? 0 : rxq->first_room;

	if (rxq->far && args->faults.chance[REPLAY_CORRUPT] != 0) {
		REPLAY_LOG(ERR,
			"%s queue %u: corrupt=... changes payloads, which the CPU cannot access "
			"in pool %s",
			name, rxq->id, rxq->rest_pool->name);
		return -ENOTSUP;
	}
	if (args->roce.on && rxq->mode == REPLAY_REFERENCE_SPLIT && rxq->dev->memory.copy != NULL) {
		REPLAY_LOG(ERR,
			"%s queue %u: roce=... changes payloads, which the CPU cannot access", name,
			rxq->id);
		return -ENOTSUP;
	}
	if (rxq->mode == REPLAY_COPY && !rxq->far)
		return 0;
	for (uint32_t i = 0; i < args->nb_rewrites; i++) {
		const struct replay_rewrite *field = &args->rewrites[i];

		if ((uint32_t)field->offset + field->length <= private_bytes)
			continue;
		REPLAY_LOG(ERR,
			"%s queue %u: rewrite=%u:%u:... changes bytes that pool %s delivers %s; "
			"only the first %u bytes of a frame are private: split after the field, "
			"or use a pool with data room",
			name, rxq->id, field->offset, field->length, rxq->rest_pool->name,
			rxq->far ? "in memory that the CPU cannot access" : "by reference",
			private_bytes);
		return -ENOTSUP;
	}
	return 0;
}

/* Changed payloads are copied: a queue can have this many copies in use, then it waits. */
#define SPARES 255u

static int
set_up_spares(struct replay_rxq *rxq, const char *name, int socket)
{
	const struct replay_capture *capture = rxq->dev->capture;
	char pool[RTE_MEMPOOL_NAMESIZE];
	static uint32_t nth;
	uint32_t longest = 0;

	if (rxq->mode == REPLAY_COPY || rxq->dev->args.faults.chance[REPLAY_CORRUPT] == 0)
		return 0;
	if (rxq->mode == REPLAY_REFERENCE_SPLIT && rxq->dev->memory.copy != NULL) {
		REPLAY_LOG(ERR,
			"%s queue %u: corrupt=... changes payloads, which the CPU cannot access",
			name, rxq->id);
		return -ENOTSUP;
	}
	for (uint32_t i = 0; i < capture->nb_packets; i++)
		longest = RTE_MAX(longest, (uint32_t)capture->packets[i].len);
	snprintf(pool, sizeof(pool), "replay_spares_%u", nth++);
	rxq->spares = replay_spares_create(pool, SPARES, longest, socket);
	if (rxq->spares == NULL) {
		REPLAY_LOG(ERR,
			"%s queue %u: cannot allocate %u changed packets of %u bytes in "
			"EAL memory",
			name, rxq->id, SPARES, longest);
		return -ENOMEM;
	}
	return 0;
}

static int
set_up_stamps(struct replay_rxq *rxq, const char *name)
{
	struct replay_dev *replay = rxq->dev;

	rxq->stamps = (rxq->conf.offloads & RTE_ETH_RX_OFFLOAD_TIMESTAMP) != 0;
	if (!rxq->stamps)
		return 0;
	if (rte_mbuf_dyn_rx_timestamp_register(&replay->stamp_offset, &replay->stamp_flag) == 0)
		return 0;
	REPLAY_LOG(ERR, "%s queue %u: no space in mbufs for time stamps", name, rxq->id);
	return -rte_errno;
}

/* Mask of the checksum flags that a queue with these offloads delivers. */
static uint32_t
checksum_flags(uint64_t offloads)
{
	return ((offloads & RTE_ETH_RX_OFFLOAD_IPV4_CKSUM) ? RTE_MBUF_F_RX_IP_CKSUM_MASK : 0) |
		((offloads & RTE_ETH_RX_OFFLOAD_UDP_CKSUM) ? RTE_MBUF_F_RX_L4_CKSUM_MASK : 0);
}

/* Deferred start is not supported: queues start with their port. */
static int
refuse_deferred(const char *name, const char *way, uint16_t queue, uint8_t deferred)
{
	if (deferred == 0)
		return 0;
	REPLAY_LOG(ERR, "%s %s queue %u: deferred start is not supported, expected 0", name, way,
		queue);
	return -ENOTSUP;
}

static int
no_memory(const char *name, const char *way, uint16_t queue, size_t bytes)
{
	REPLAY_LOG(ERR, "%s %s queue %u: cannot allocate %zu bytes of EAL memory", name, way, queue,
		bytes);
	return -ENOMEM;
}

int
replay_rx_queue_setup(struct rte_eth_dev *dev, uint16_t queue, uint16_t nb_desc,
	unsigned int socket, const struct rte_eth_rxconf *conf, struct rte_mempool *pool)
{
	struct replay_dev *replay = dev->data->dev_private;
	const char *name = dev->data->name;
	struct replay_rxq *rxq;
	uint64_t offloads;
	int ret;

	ret = refuse_deferred(name, "Rx", queue, conf->rx_deferred_start);
	if (ret < 0)
		return ret;
	rxq = rte_zmalloc_socket("replay_rxq", sizeof(*rxq), RTE_CACHE_LINE_SIZE, (int)socket);
	if (rxq == NULL)
		return no_memory(name, "Rx", queue, sizeof(*rxq));
	rxq->dev = replay;
	rxq->id = queue;
	rxq->port = dev->data->port_id;
	rxq->nb_desc = nb_desc;
	rxq->conf = *conf;
	/* arrays owned by the caller */
	rxq->conf.rx_seg = NULL;
	rxq->conf.rx_mempools = NULL;
	if (conf->rx_nseg == RTE_DIM(rxq->segments)) {
		memcpy(rxq->segments, conf->rx_seg, sizeof(rxq->segments));
		rxq->conf.rx_seg = rxq->segments;
	}
	offloads = conf->offloads | dev->data->dev_conf.rxmode.offloads;
	rxq->scatter = (offloads & RTE_ETH_RX_OFFLOAD_SCATTER) != 0;
	rxq->checksums = checksum_flags(offloads);
	rxq->conf.offloads = offloads;

	ret = conf->rx_nseg > 0 ? set_up_split(rxq, name, conf) : set_up_single(rxq, name, pool);
	if (ret == 0)
		ret = check_rewrites(rxq, name, &replay->args);
	if (ret == 0)
		ret = set_up_stamps(rxq, name);
	if (ret == 0)
		ret = set_up_spares(rxq, name, (int)socket);
	if (ret < 0) {
		rte_free(rxq);
		return ret;
	}
	rxq->first_flags = is_pinned(rxq->first_pool) ? RTE_MBUF_F_EXTERNAL : 0;
	rxq->rest_flags = is_pinned(rxq->rest_pool) ? RTE_MBUF_F_EXTERNAL : 0;
	replay_flow_give(rxq);
	dev->data->rx_queues[queue] = rxq;
	return 0;
}

void
replay_rx_queue_release(struct rte_eth_dev *dev, uint16_t queue)
{
	struct replay_rxq *rxq = dev->data->rx_queues[queue];

	if (rxq == NULL)
		return;
	replay_stats_keep_rx(rxq);
	replay_spares_release(rxq->spares);
	rte_free(rxq);
	dev->data->rx_queues[queue] = NULL;
}

int
replay_tx_queue_setup(struct rte_eth_dev *dev, uint16_t queue, uint16_t nb_desc,
	unsigned int socket, const struct rte_eth_txconf *conf)
{
	const char *name = dev->data->name;
	struct replay_txq *txq;
	int ret;

	ret = refuse_deferred(name, "Tx", queue, conf->tx_deferred_start);
	if (ret < 0)
		return ret;
	txq = rte_zmalloc_socket("replay_txq", sizeof(*txq), RTE_CACHE_LINE_SIZE, (int)socket);
	if (txq == NULL)
		return no_memory(name, "Tx", queue, sizeof(*txq));
	txq->dev = dev->data->dev_private;
	txq->conf = *conf;
	txq->nb_desc = nb_desc;
	dev->data->tx_queues[queue] = txq;
	return 0;
}

void
replay_tx_queue_release(struct rte_eth_dev *dev, uint16_t queue)
{
	struct replay_txq *txq = dev->data->tx_queues[queue];

	if (txq == NULL)
		return;
	replay_stats_keep_tx(txq);
	rte_free(txq);
	dev->data->tx_queues[queue] = NULL;
}

void
replay_rxq_info_get(struct rte_eth_dev *dev, uint16_t queue, struct rte_eth_rxq_info *info)
{
	const struct replay_rxq *rxq = dev->data->rx_queues[queue];

	info->mp = rxq->split ? NULL : rxq->rest_pool; /* NULL: more than one pool */
	info->conf = rxq->conf;
	info->scattered_rx = rxq->scatter || rxq->split;
	info->nb_desc = rxq->nb_desc;
	info->rx_buf_size = rxq->mode == REPLAY_REFERENCE ? REPLAY_FRAME_MAX : rxq->first_room;
}

void
replay_txq_info_get(struct rte_eth_dev *dev, uint16_t queue, struct rte_eth_txq_info *info)
{
	const struct replay_txq *txq = dev->data->tx_queues[queue];

	info->conf = txq->conf;
	info->nb_desc = txq->nb_desc;
}

int
replay_rx_burst_mode_get(struct rte_eth_dev *dev, uint16_t queue, struct rte_eth_burst_mode *mode)
{
	const struct replay_rxq *rxq = dev->data->rx_queues[queue];
	const char *what = "copy";

	if (rxq == NULL)
		return -EINVAL;
	if (rxq->mode == REPLAY_REFERENCE)
		what = "by reference";
	else if (rxq->mode == REPLAY_REFERENCE_SPLIT)
		what = rxq->dev->memory.copy != NULL ? "split, payload by reference, placed"
						     : "split, payload by reference";
	else if (rxq->far)
		what = "split, payload placed";
	else if (rxq->split)
		what = "split, copy";
	snprintf(mode->info, sizeof(mode->info), "Scalar, %s", what);
	return 0;
}
