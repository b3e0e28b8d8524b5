/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * A store: listener, connections, runs. The lcore that polls it owns the lanes of the device and is
 * its control lcore.
 */
#ifndef STORE_H
#define STORE_H

#include "server/connection.h"
#include "server/view.h"

struct store_config {
	struct rdma_dev *dev;  /**< open, and stays so; NULL: the next one is opened */
	const char *device;    /**< rdma_dev_open() */
	uint16_t port;	       /**< 0: XFER_PORT */
	const char *keys;      /**< path of the keyring */
	uint64_t memory;       /**< bytes of bodies that a connection is granted; 0: 1 GiB */
	uint32_t heartbeat_ms; /**< 0: 500 */
	uint32_t silence_ms;   /**< 0: 2000 */
	uint64_t region;       /**< bytes of one registration at most; 0: what the device can */
	struct store_files
		files;	     /**< without result and arg; of slices io, mode, depth are chosen */
	unsigned int bodies; /**< STORE_BODIES_AUTO, ... */
	enum store_check_mode check;
	enum store_io io;
	unsigned int io_threads; /**< of cuFile; 0: SLICE_POOL_THREADS */
};

struct store;

/**
 * Its directory is locked until it is closed (store_tree_lock()).
 * @param message  out, on error: what is wrong
 * @return 0 or -errno
 */
int store_open(struct store **s, const struct store_config *config, char message[PATH_MAX]);

/** Let everything go on. @return something was done */
bool store_poll(struct store *s);

/** Say that we go; nothing new is taken. Then store_poll() until store_is_idle(). */
void store_stop(struct store *s);

/** Whether no connection is there any more. */
bool store_is_idle(const struct store *s);

/** Complete the files, free everything. @return 0 or the first error of a file */
int store_close(struct store *s);

/**
 * What it is and does. Only the thread that polls may read what changes; any other one asks for a
 * copy (store_look_view()). What is set when it is opened any thread may read: keys, bodies, check,
 * completion, identity.
 */
const struct store_shared *store_look(const struct store *s);
/** Copies of what changes: for other threads. */
struct store_view *store_look_view(const struct store *s);
/** The device, and what it was when the store was opened. */
const struct rdma_dev *store_look_device(const struct store *s, const struct rdma_dev_info **info);
/** The thread that polls. */
const struct store_connection *store_look_connection(const struct store *s, unsigned int i);

#endif /* STORE_H */
