/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A copy of the arena in memory of the caller, such as a GPU's. Headers are read from the arena;
 * payloads by reference point into the copy.
 */
#include <errno.h>
#include <inttypes.h>

#include <rte_errno.h>

#include "replay.h"

static int
place(uint16_t port_id, const struct net_replay_memory *memory)
{
	struct replay_dev *replay;
	struct rte_eth_dev *dev;

	if (!rte_eth_dev_is_valid_port(port_id))
		return -ENODEV;
	dev = &rte_eth_devices[port_id];
	if (dev->dev_ops != &replay_ops)
		return -ENODEV;
	if (memory == NULL || memory->alloc == NULL || memory->copy == NULL)
		return -EINVAL;
	replay = dev->data->dev_private;
	if (dev->data->dev_started || replay->memory.copy != NULL)
		return -EBUSY;
	/* checked when a queue was set up */
	for (uint16_t q = 0; q < dev->data->nb_rx_queues; q++)
		if (dev->data->rx_queues[q] != NULL)
			return -EBUSY;
	replay->memory = *memory;
	return 0;
}

int
net_replay_place(uint16_t port_id, const struct net_replay_memory *memory)
{
	const int ret = place(port_id, memory);

	if (ret < 0)
		rte_errno = -ret;
	return ret;
}

int
replay_capture_place(
	struct replay_capture *capture, const char *name, const struct net_replay_memory *memory)
{
	const size_t bytes = replay_capture_chunk(capture, 0) * (capture->nb_chunks - 1) +
		replay_capture_chunk(capture, capture->nb_chunks - 1);
	size_t at = 0;
	int ret;

	if (capture->placed)
		return 0;
	if (capture->copy_memory == NULL)
		capture->copy_memory = memory->alloc(memory->arg, bytes);
	if (capture->copy_memory == NULL) {
		REPLAY_LOG(ERR,
			"%s: the memory for payloads is too small for the %zu bytes of the "
			"capture",
			name, bytes);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < capture->nb_chunks; i++) {
		const size_t size = replay_capture_chunk(capture, i);

		ret = memory->copy(
			memory->arg, capture->copy_memory + at, capture->chunks[i], size);
		if (ret < 0) {
			REPLAY_LOG(ERR, "%s: cannot copy %zu bytes of the capture to %p: %s", name,
				size, capture->copy_memory + at, rte_strerror(-ret));
			return ret;
		}
		capture->copy_offset[i] =
			(intptr_t)(capture->copy_memory + at) - (intptr_t)capture->chunks[i];
		at += size;
	}
	capture->placed = true;
	return 0;
}
