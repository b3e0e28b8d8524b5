/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Functions of net_replay ports beyond the ethdev API.
 *
 * A program that is linked with the driver calls them directly. A program that loads the driver
 * with -d finds the symbol in the loaded library:
 * dlsym(dlopen("librte_net_replay.so", RTLD_NOW | RTLD_NOLOAD), ...).
 */
#ifndef NET_REPLAY_H
#define NET_REPLAY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Memory that the CPU may not be able to access, such as a GPU's. */
struct net_replay_memory {
	/**
	 * Allocate memory for the packets of a port, aligned to at least 64 bytes. Called at most
	 * once. The caller of net_replay_place() owns the memory and may free it after the port is
	 * closed and every packet is freed.
	 * @return NULL: out of memory; the start of the port fails with -ENOMEM
	 */
	void *(*alloc)(void *arg, size_t size);
	/** Copy from EAL memory to memory of alloc() or of a pool. @return 0 or -errno */
	int (*copy)(void *arg, void *to, const void *from, size_t size);
	void *arg;
};

/**
 * Deliver payloads in memory of the caller, as an RNIC with GPUDirect RDMA does. This applies only
 * to segment 1 of queues with buffer split:
 * - by reference (the pool has no room): the capture is copied into the memory once, at the start
 *   of the port, and the mbufs are attached to it;
 * - a pool of pinned external buffers: each packet is written by copy(), one call per packet.
 * The driver does not access that memory otherwise.
 *
 * Call it from the control thread while the port is stopped, before its RX queues are set up.
 *
 * @param port_id a net_replay port
 * @param memory  copied
 * @return 0, otherwise a negative errno, also in rte_errno:
 * - -ENODEV: not a net_replay port
 * - -EINVAL: a function is missing
 * - -EBUSY: the port is started, has an RX queue that is set up, or has such memory already
 */
int net_replay_place(uint16_t port_id, const struct net_replay_memory *memory);

#ifdef __cplusplus
}
#endif

#endif /* NET_REPLAY_H */
