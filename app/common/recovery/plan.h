/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * What a recovery that cuts a file off is about to do, in a file of its own beside it
 * (`.NAME.arrow.recovery`) before it begins: once the end is cut off, what was behind it cannot be
 * looked at again, so who goes on after a crash does what is written there. One thread.
 */
#ifndef ARROW_PLAN_H
#define ARROW_PLAN_H

#include "recovery/content.h"

/**
 * Write down that a file is going to be cut off at `end`, behind its first `nb` batches, and gets
 * this trailer there. It is durable then.
 * @param part  the file's own name
 * @return 0; -errno
 */
int arrow_plan_write(const struct arrow_io_ops *io, const char *part, const struct arrow_reader *r,
	size_t nb, uint64_t end, const uint8_t *trailer, size_t size);

/**
 * Go on with what a recovery had begun that did not come to its end, if there is any: the file goes
 * by its footer then. One that has not been cut off yet is as it was before.
 * @return 0; -errno
 */
int arrow_plan_follow(const struct arrow_io_ops *io, void *handle, const char *part);

/** Once the trailer is durable. @return 0, also if there is none; -errno */
int arrow_plan_remove(const struct arrow_io_ops *io, const char *part);

/** Cut a file off, which is durable before the trailer is written: at no time are both mixed. */
int arrow_plan_cut(const struct arrow_io_ops *io, void *handle, uint64_t end);

/** Put the trailer at `end`, and nothing behind it; it is durable then. */
int arrow_plan_end(const struct arrow_io_ops *io, void *handle, const uint8_t *trailer, size_t size,
	uint64_t end);

#endif /* ARROW_PLAN_H */
