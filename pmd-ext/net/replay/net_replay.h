/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * What net_replay ports can do beyond ethdev.
 *
 * A program that links the driver calls this directly. One that loads it with -d finds the symbol
 * in the loaded library: dlsym(dlopen("librte_net_replay.so", RTLD_NOW | RTLD_NOLOAD), ...).
 */
#ifndef NET_REPLAY_H
#define NET_REPLAY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Memory that the CPU may not be able to use, a GPU's. */
struct net_replay_memory {
	/** Memory for the packets of a port, aligned to 64 bytes at least; called once at most. It
	 * stays the caller's, who takes it back after the port is closed and every packet is freed.
	 * @return NULL: no room; the start of the port fails with -ENOMEM */
	void *(*alloc)(void *arg, size_t size);
	/** Copy from EAL's memory into memory of alloc() or into a pool's. @return 0 or -errno */
	int (*copy)(void *arg, void *to, const void *from, size_t size);
	void *arg;
};

/**
 * Deliver payloads in memory of the caller's, as an RNIC with GPUDirect RDMA does. It concerns
 * queues with buffer split alone, and their segment 1 alone:
 *  - by reference (its pool has no room): the capture is copied into the memory once, at the start
 *    of the port, and the mbufs are attached to what lies there;
 *  - a pool of pinned external buffers: each packet is written by copy(), one call a packet.
 * Nothing else in the driver reads or writes that memory.
 *
 * To be called while the port is stopped, before its RX queues are set up. Control thread.
 *
 * @param port_id a net_replay port
 * @param memory  copied
 * @return 0, otherwise a negative errno, also in rte_errno:
 *   - -ENODEV: not a net_replay port
 *   - -EINVAL: a function is missing
 *   - -EBUSY: the port is started, has an RX queue that is set up, or has such memory already
 */
int net_replay_place(uint16_t port_id, const struct net_replay_memory *memory);

#ifdef __cplusplus
}
#endif

#endif /* NET_REPLAY_H */
