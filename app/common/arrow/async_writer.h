/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Asynchronous writer of a file, front to back. It writes in slices, several at a time, and tracks
 * the durable prefix.
 *
 * Memory that the caller keeps unchanged and that meets the alignment of direct I/O is written in
 * place, if it is at least one slice long. Other data is copied into slices of the writer. An
 * incomplete slice waits for more data until a sync is due. Slices that the disk cannot accept yet
 * wait in a queue; async_writer_poll() starts them when others have completed. Syncs run in
 * parallel with writes. A sync starts when sync_bytes are not durable, or when some bytes have not
 * been durable for sync_ms. Data is therefore durable sync_ms after it was passed in, plus the time
 * that the disk takes to complete the current sync, to write the data and to sync it. This requires
 * regular polling.
 *
 * Data beyond the limit of async_writer_hold() is accepted, but is not written until the limit
 * moves: it waits for data of another file.
 *
 * Space is allocated ahead, so that writes do not extend the file: file systems serialize such
 * writes. async_writer_end() truncates the file to its size. Until then it may end in zeros.
 *
 * An error is sticky: nothing is written after it, except after async_writer_cut(). One thread.
 * Calls may block in the file system.
 */
#ifndef ASYNC_WRITER_H
#define ASYNC_WRITER_H

#include "io/file_io.h"
#include "arrow/schema.h"

#define ARROW_SLICE_SIZE       (4u << 20)
#define ARROW_SLICE_SIZE_MAX   (1u << 30)
#define ARROW_SLICE_DEPTH      8
#define ARROW_SLICE_SYNC_MS    1000
#define ARROW_SLICE_SYNC_BYTES (256u << 20)
#define ARROW_SLICE_STALL_MS   2000
#define ARROW_SLICE_AHEAD      (4ull << 30)
/**
 * Maximum number of slices in progress or waiting: an empty queue has room for the largest body of
 * a batch (XFER_BODY_MAX) in slices of the default size.
 */
#define ARROW_SLICE_QUEUE 260
/** maximum number of bytes for which an empty queue has room: async_writer_has_room() */
#define ARROW_SLICE_PUT_MAX(slice) ((uint64_t)(slice) * (ARROW_SLICE_QUEUE - 3))

/** How to write. 0 selects the default of a member. */
struct async_writer_config {
	const struct arrow_io_ops *io; /**< NULL: direct_io */
	enum arrow_io_mode mode;       /**< best mode to try */
	uint32_t slice;		       /**< size of a write, bytes; a multiple of ARROW_BLOCK */
	/** maximum number of writes in flight, at most ARROW_IO_DEPTH_MAX */
	uint32_t depth;
	uint32_t sync_ms;
	uint64_t sync_bytes;
	/** the disk counts as stalled if nothing completes for this time */
	uint32_t stall_ms;
	uint64_t ahead; /**< maximum bytes to allocate beyond the end */
	/**
	 * Write all memory that the caller keeps unchanged in place, whatever its length: it is not
	 * CPU memory, or must not be copied.
	 */
	bool in_place;
};

struct arrow_slice {
	uint64_t offset;
	uint64_t length;
	struct iovec iov[ARROW_IO_VECTORS];
	unsigned int nb;
	int stage; /**< index of the writer's buffer that holds the data; -1: none */
	int error;
	bool done;
};

struct async_writer {
	struct async_writer_config config; /**< with defaults applied */
	void *handle;			   /**< NULL: not open */
	uint64_t taken;			   /**< bytes passed in */
	uint64_t submitted;		   /**< bytes cut into slices */
	uint64_t written;		   /**< bytes written, a contiguous prefix */
	uint64_t durable;		   /**< bytes durable, a contiguous prefix */
	uint64_t allocated;
	uint64_t ahead;	      /**< current size of allocations; 0: no allocation */
	uint64_t sync_target; /**< a sync is requested once `written` reaches this */
	uint64_t sync_covers; /**< bytes that the current sync makes durable */
	uint64_t since;	      /**< time of the first byte that no sync has covered */
	/**
	 * time of the first byte that the requested sync does not cover either; UINT64_MAX: none
	 */
	uint64_t since_next;
	uint64_t limit; /**< slices that end beyond this offset are not started */
	/** last time that the disk completed an operation, or was given one while it was idle */
	uint64_t moved;
	uint64_t now; /**< clock as of the current call or of the last wait */
	uint64_t syncs;
	uint64_t copied; /**< bytes that were copied, not written in place */
	bool syncing;
	bool stalled; /**< result of the last async_writer_poll() */
	bool torn;    /**< a slice failed, so `written` does not advance */
	int error;
	bool error_in_sync; /**< data written since `durable` may be lost */
	uint8_t *stage;	    /**< depth + 1 buffers of one slice */
	int free_stage[ARROW_IO_DEPTH_MAX + 1];
	unsigned int nb_free_stages;
	struct arrow_slice *slice; /**< array of ARROW_SLICE_QUEUE */
	uint64_t head;		   /**< slices ever queued */
	uint64_t next;		   /**< slices ever started */
	uint64_t tail;		   /**< slices ever completed */
	int gather;		   /**< index of the buffer that is being filled; -1: none */
	uint64_t fill;		   /**< bytes in it */
};

/** @return 0; -errno of open; -EINVAL: invalid configuration; -ENOMEM */
int async_writer_open(
	struct async_writer *s, const struct async_writer_config *config, const char *path);

/**
 * Write data. The sum of the lengths is a multiple of ARROW_BLOCK.
 * @param stay  the memory remains unchanged until async_writer_wait() for its end has returned
 * @return 0 or the error
 */
int async_writer_put(struct async_writer *s, const struct iovec *iov, unsigned int nb, bool stay);

/**
 * Whether async_writer_put() of `size` bytes need not wait for the disk: they stay and are written
 * in place, in at most ARROW_IO_VECTORS parts.
 */
bool async_writer_has_room(const struct async_writer *s, uint64_t size);

/** Process completions and start operations that are due. @return 0 or the error */
int async_writer_poll(struct async_writer *s);

/**
 * Do not start slices that end beyond the offset `limit` until it is moved. The writer must have
 * buffers for the waiting bytes (async_writer_hold_max()). UINT64_MAX, the value after open and
 * cut: no limit.
 */
void async_writer_hold(struct async_writer *s, uint64_t limit);

/** Maximum number of bytes that may wait beyond the limit. */
uint64_t async_writer_hold_max(const struct async_writer *s);

/** Wait until everything is durable. Nothing may be held back. @return 0 or the error */
int async_writer_commit(struct async_writer *s);

/**
 * Wait until the memory of the bytes before `end` is no longer read: they are written or discarded.
 */
void async_writer_wait(struct async_writer *s, uint64_t end);

/**
 * Wait until everything is written. After an error, also wait for the current sync.
 * @return 0 or the error
 */
int async_writer_flush(struct async_writer *s);

/**
 * After an error: discard everything from `size` on, and clear the error. `size` is at most
 * `written`.
 */
void async_writer_cut(struct async_writer *s, uint64_t size);

/**
 * Write everything, truncate the file to its size, and wait until it is durable. @return 0 or the
 * error
 */
int async_writer_end(struct async_writer *s);

/** Allocate space for a number of bytes. @return 0, -ENOSPC, ... */
int async_writer_reserve(struct async_writer *s, uint64_t size);

void async_writer_close(struct async_writer *s);

/** @return number of writes and syncs of all writers of the process that have ended. Any thread */
uint64_t async_writer_ended(void);

#endif /* ASYNC_WRITER_H */
