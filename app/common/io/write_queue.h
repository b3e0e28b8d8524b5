/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Several writes of a file in flight at a time, through io_uring. A write that is short,
 * interrupted or cancelled is completed by system calls when it is reaped; if a short write ended
 * within a block, the rest of it is written without O_DIRECT. If io_uring is not used,
 * is not available, or does not accept a write, the write is made by system calls before
 * write_queue_write() returns.
 *
 * One thread at a time. Nothing is repeated without limit, but every call may wait for the disk.
 */
#ifndef WRITE_QUEUE_H
#define WRITE_QUEUE_H

#include "io/file_io.h"

struct write_queue;

/**
 * @param fd     of the file, open until write_queue_close(). O_DIRECT is removed from its flags if
 *               the file system refuses a write with it
 * @param depth  maximum writes in flight, up to ARROW_IO_DEPTH_MAX; a sync may be added to them
 * @return 0; -EINVAL: depth; -ENOMEM
 */
int write_queue_open(struct write_queue **queue, int fd, unsigned int depth);

/** Use io_uring for the next writes. @return 0; -errno: it is not available */
int write_queue_use_ring(struct write_queue *q);

/** @return true: the file system refused a write with O_DIRECT */
bool write_queue_refused_direct(const struct write_queue *q);

/**
 * Start a write.
 * @param iov  [nb] parts, at most ARROW_IO_VECTORS; they and their memory stay unchanged until the
 *             completion is reaped
 * @param tag  of the completion
 * @return 0: a completion will have the result; -EINVAL: too many writes or parts
 */
int write_queue_write(struct write_queue *q, const struct iovec *iov, unsigned int nb,
	uint64_t offset, uint64_t tag);

/** Start fdatasync(2), which covers the writes that were reaped. @return as above */
int write_queue_sync(struct write_queue *q, uint64_t tag);

/**
 * Get a completion.
 * @param wait  for one, if any write is in flight
 * @param done  out: a write is either complete or has failed, for example with -ENOSPC
 * @return 1; 0: none; -errno of io_uring: the kernel may still read the memory of writes in flight
 */
int write_queue_reap(struct write_queue *q, bool wait, struct arrow_io_done *done);

/** Nothing may be in flight, unless write_queue_reap() has failed. */
void write_queue_close(struct write_queue *q);

#endif /* WRITE_QUEUE_H */
