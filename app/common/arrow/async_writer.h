/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * A file written front to back: bytes in, slices out, several at a time, and a durable prefix.
 *
 * Bytes whose owner leaves them alone and that lie as direct I/O wants them are written from where
 * they are, if there is a slice of them; all others are gathered in slices of the writer's own. A
 * slice that is not full waits for more until a sync is due. Slices that the disk is not ready for
 * wait in a queue: arrow_slices_poll() begins them when others have ended. Syncs run beside the
 * writes: one begins when sync_bytes are not durable, or some bytes have not been for sync_ms. So
 * bytes are durable sync_ms after they were given, and the time that the disk takes to end the sync
 * under way, to write them and to sync them; if somebody polls.
 *
 * Bytes beyond arrow_slices_hold()'s limit are taken and wait, for those of another file.
 *
 * Room is allocated ahead, so that writes do not extend the file (which file systems do one at a
 * time); the end is cut off by arrow_slices_end(). Until then zeros may follow.
 *
 * An error is sticky: nothing is written after it but what arrow_slices_cut() allows.
 * One thread; calls may block in the file system.
 */
#ifndef ARROW_SLICES_H
#define ARROW_SLICES_H

#include "io/file_io.h"
#include "arrow/schema.h"

#define ARROW_SLICE_SIZE       (4u << 20)
#define ARROW_SLICE_SIZE_MAX   (1u << 30)
#define ARROW_SLICE_DEPTH      8
#define ARROW_SLICE_SYNC_MS    1000
#define ARROW_SLICE_SYNC_BYTES (256u << 20)
#define ARROW_SLICE_STALL_MS   2000
#define ARROW_SLICE_AHEAD      (4ull << 30)
#define ARROW_SLICE_QUEUE      256 /**< slices begun or waiting */

/** How to write; 0 is the default of each. */
struct arrow_slices_config {
	const struct arrow_io_ops *io; /**< NULL: direct_io */
	enum arrow_io_mode mode;       /**< the best one wanted */
	uint32_t slice;		       /**< bytes of a write; a multiple of ARROW_BLOCK */
	uint32_t depth;		       /**< writes at a time, at most ARROW_IO_DEPTH_MAX */
	uint32_t sync_ms;
	uint64_t sync_bytes;
	uint32_t stream_timeout_ms; /**< a disk that ends nothing for so long stands still */
	uint64_t ahead;		    /**< bytes allocated ahead of the end, at most */
	/** Bytes that stay are never gathered, however few: they are no memory of the CPU's, or are
	 * not to be copied. */
	bool in_place;
};

struct arrow_slice {
	uint64_t offset;
	uint64_t length;
	struct iovec iov[ARROW_IO_VECTORS];
	unsigned int nb;
	int stage; /**< memory of ours that it is in; -1: none */
	int error;
	bool done;
};

struct arrow_slices {
	struct arrow_slices_config config; /**< with defaults filled in */
	void *handle;			   /**< NULL: not open */
	uint64_t taken;			   /**< bytes given, */
	uint64_t submitted;		   /**< cut into slices, */
	uint64_t written;		   /**< with all before them, and */
	uint64_t durable;		   /**< synced with all before them */
	uint64_t allocated;
	uint64_t ahead;	      /**< what is still tried; 0: no allocation */
	uint64_t sync_target; /**< a sync is wanted when `written` gets here */
	uint64_t sync_covers; /**< bytes that the sync under way makes durable */
	uint64_t since;	      /**< when the first byte came that no sync has covered */
	uint64_t since_next;  /**< ... nor will the one that is wanted; UINT64_MAX: none has */
	uint64_t limit;	      /**< nothing that ends behind it is written yet */
	uint64_t moved; /**< when the disk last ended something, or was given something to do */
	uint64_t now;	/**< as the clock was read last: by each call, and after each wait */
	uint64_t syncs;
	uint64_t copied; /**< bytes that were gathered: not written from where they were */
	bool syncing;
	bool stalled; /**< as arrow_slices_poll() found it */
	bool torn;    /**< a slice failed: `written` stays where it is */
	int error;
	bool error_in_sync; /**< what has been written since `durable` may be lost */
	uint8_t *stage;	    /**< depth + 1 slices */
	int free_stage[ARROW_IO_DEPTH_MAX + 1];
	unsigned int nb_free_stages;
	struct arrow_slice *slice; /**< ARROW_SLICE_QUEUE */
	uint64_t head;		   /**< slices in the queue, */
	uint64_t next;		   /**< begun, */
	uint64_t tail;		   /**< and ended */
	int gather;		   /**< stage that is being filled; -1: none */
	uint64_t fill;		   /**< bytes in it */
};

/** @return 0; -errno of open, -EINVAL for a wrong configuration, -ENOMEM */
int arrow_slices_open(
	struct arrow_slices *s, const struct arrow_slices_config *config, const char *path);

/**
 * Give bytes; the sum is a multiple of ARROW_BLOCK.
 * @param stay  they stay as they are until arrow_slices_wait() for the end of them has returned
 * @return 0 or the error
 */
int arrow_slices_put(struct arrow_slices *s, const struct iovec *iov, unsigned int nb, bool stay);

/** See what has ended, begin what is due. @return 0 or the error */
int arrow_slices_poll(struct arrow_slices *s);

/** Bytes behind `limit` wait until it is moved on; arrow_slices_put() must be able to gather
 * them. So does a full slice that it is in. UINT64_MAX, as after open and cut: none do. */
void arrow_slices_hold(struct arrow_slices *s, uint64_t limit);

/** Bytes that may wait: more have no room. */
uint64_t arrow_slices_hold_max(const struct arrow_slices *s);

/** Return when everything given is durable; nothing may be held back. @return 0 or the error */
int arrow_slices_commit(struct arrow_slices *s);

/** Return when nobody reads the memory of bytes before `end` any more: written, or never to be. */
void arrow_slices_wait(struct arrow_slices *s, uint64_t end);

/** Return when everything given is written; after an error a sync has ended, too. @return 0 or the
 * error */
int arrow_slices_flush(struct arrow_slices *s);

/** After an error: forget all from `size` on, which is at most `written`, and go on from there. */
void arrow_slices_cut(struct arrow_slices *s, uint64_t size);

/** Write everything, cut the file there, return when it is durable. @return 0 or the error */
int arrow_slices_end(struct arrow_slices *s);

/** Make room for so many bytes. @return 0, -ENOSPC, ... */
int arrow_slices_reserve(struct arrow_slices *s, uint64_t size);

void arrow_slices_close(struct arrow_slices *s);

/** Monotonic, in ns. */
uint64_t arrow_slices_clock(void);

#endif /* ARROW_SLICES_H */
