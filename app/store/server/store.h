/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file A store: listener, connections, runs. The lcore that polls it owns the poll groups of the
 * device and is its control lcore.
 */
#ifndef STORE_H
#define STORE_H

#include "server/connection.h"
#include "server/view.h"

struct store_config {
	struct rdma_dev *dev;  /**< an open device, which the caller closes; NULL: open `device` */
	const char *device;    /**< name for rdma_dev_open() */
	uint16_t port;	       /**< 0: XFER_PORT */
	const char *keys;      /**< path of the keyring */
	uint64_t memory;       /**< granted bytes for bodies per connection; 0: 1 GiB */
	uint32_t heartbeat_ms; /**< 0: 500 */
	uint32_t silence_ms;   /**< 0: 2000 */
	uint64_t region;       /**< maximum bytes of a registration; 0: limit of the device */
	struct store_files
		/** without result and arg; io, mode and depth of the slices are set by the store */
		files;
	unsigned int bodies; /**< STORE_BODIES_AUTO, ... */
	enum store_check_mode check;
	enum store_io io;
	unsigned int io_threads; /**< threads of cuFile; 0: SLICE_POOL_THREADS */
	bool nexus;		 /**< main.c starts eal/nexus.h */
};

struct store;

/**
 * Open a store. Its directory is locked until it is closed (store_tree_lock()).
 * @param message  out, on error: what is wrong
 * @return 0 or -errno; -EINVAL: the settings are wrong, or do not fit the host or the EAL options
 */
int store_open(struct store **s, const struct store_config *config, char message[PATH_MAX]);

/** Poll everything. @return true: something was done */
bool store_poll(struct store *s);

/** Whether the device was removed or has failed, which was logged: only store_close() is useful. */
bool store_lost_device(const struct store *s);

/**
 * Announce the stop to all peers and accept nothing new. Then call store_poll() until
 * store_is_idle().
 */
void store_stop(struct store *s);

/** Whether there are no connections any more. */
bool store_is_idle(const struct store *s);

/** time in which a device must release the memory of connections that are closed */
#define STORE_DEVICE_MS 2000

/**
 * Complete the files and free everything. Waits for threads and results without limit, but only for
 * STORE_DEVICE_MS until the device has released the memory of all connections. If it has not, as a
 * device that was removed may never do, this is logged, and what the device may still write to is
 * not freed: the process must end.
 * @return 0 or the first error of a file
 */
int store_close(struct store *s);

/**
 * State of the store. Only the polling thread may read members that change; other threads use a
 * copy (store_get_view()). Any thread may read members that are set at open: keys, bodies, check,
 * completion, identity.
 */
const struct store_shared *store_get_shared(const struct store *s);
/** Get the copies of changing members, for other threads. */
struct store_view *store_get_view(const struct store *s);
/** Get the device, and its properties when the store was opened. */
const struct rdma_dev *store_get_device(const struct store *s, const struct rdma_dev_info **info);
/** Get a connection. Only the polling thread may call this. */
const struct store_connection *store_get_connection(const struct store *s, unsigned int i);

#endif /* STORE_H */
