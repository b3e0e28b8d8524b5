/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Detects a disk that has stalled: it creates no file, or completes no write or sync.
 *
 * Files that are being closed belong to threads of their own, so the operations of the whole
 * process are counted: a slow disk that completes an operation now and then has not stalled.
 */
#ifndef ARROW_STALL_H
#define ARROW_STALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Of one table. Zero it, and set `ms`. */
struct arrow_stall {
	uint32_t ms;	/**< the disk counts as stalled if nothing happens for this time */
	uint64_t ended; /**< async_writer_ended() as of `moved` */
	/** ns: the last time that an operation had been completed, or that none was waited for */
	uint64_t moved;
	bool stalled;
	bool creating; /**< of the last stall: a file was being created */
};

/** What is waited for now. */
struct arrow_stall_wait {
	uint64_t creating_since; /**< ns, of monotonic_ns(): a file is being created; 0: none is */
	uint64_t since; /**< ns: a thread waits for an operation of the file; 0: it does not */
	bool closing;	/**< files are being closed */
	bool writing;	/**< async_writer.stalled of the open file */
};

/**
 * Find out whether the disk is stalled. A stall that began before a file is closed lasts until the
 * disk completes an operation.
 * @return true: `stalled` has changed
 */
bool arrow_stall_check(struct arrow_stall *s, const struct arrow_stall_wait *wait);

/** Describe the change. @param table  name of the table */
void arrow_stall_text(
	const struct arrow_stall *s, const char *dir, const char *table, char *text, size_t size);

#endif /* ARROW_STALL_H */
