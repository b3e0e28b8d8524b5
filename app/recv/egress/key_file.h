/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The key of the stores' keyrings. It is read again for each connection, because it may change
 * without a restart. A thread reads it. If that takes longer than KEY_FILE_MS, or if the file
 * cannot be read, the key that was read before stays in use (logged).
 *
 * The egress lcore only, except where noted.
 */
#ifndef KEY_FILE_H
#define KEY_FILE_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "egress/file_thread.h"
#include "xfer/auth_key.h"

#define KEY_FILE_MS 1000

struct key_file {
	struct file_thread thread;
	char path[PATH_MAX];
	struct xfer_key key; /**< in use */
	/* result of the thread */
	struct xfer_key found;
	char message[PATH_MAX];
	/* readings, numbered from 1 on */
	uint64_t asked; /**< the last one that a connection waits for */
	uint64_t begun;
	uint64_t ended;
	uint64_t begun_at; /**< ms */
	bool wrong;	   /**< the file cannot be read, which was logged */
	bool late;	   /**< reading it takes too long, which was logged */
};

/**
 * Read the key for the first time; waits for the disk.
 * @param message  out, on error
 * @return 0; -ENOMEM; an error of xfer_key_read()
 */
int key_file_open(struct key_file **k, const char *path, char message[PATH_MAX]);

/** Start the thread that reads it again. @return 0 or -errno of pthread_create(3) */
int key_file_start(struct key_file *k, const cpu_set_t *cpus);

/** Ask for another reading. @return its number */
uint64_t key_file_ask(struct key_file *k);

/**
 * Return true if `key` is that of the reading of this number or of a later one, or if it stays in
 * use because the reading takes too long.
 * @param now  ms
 */
bool key_file_is_ready(struct key_file *k, uint64_t number, uint64_t now);

/**
 * End the thread, overwrite the keys and free everything. If the thread still waits for the file
 * after KEY_FILE_MS, this is logged, and the thread keeps its memory until the process ends.
 * @param k  NULL: no effect
 */
void key_file_close(struct key_file *k);

#endif /* KEY_FILE_H */
