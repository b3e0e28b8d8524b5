/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Plan of a recovery that truncates a file. The plan is made durable in a separate file
 * (`.NAME.arrow.recovery`) before the file is truncated, because the truncated bytes cannot be
 * checked again afterwards. After a crash, the next recovery carries out the plan. One thread.
 */
#ifndef ARROW_PLAN_H
#define ARROW_PLAN_H

#include "recovery/content.h"

/**
 * Write a plan and make it durable. The plan is to truncate the file at `end`, after its first
 * `nb` batches, and to write the trailer there.
 * @param part  path of the file to recover
 * @return 0; -errno
 */
int arrow_plan_write(const struct arrow_io_ops *io, const char *part, const struct arrow_reader *r,
	size_t nb, uint64_t end, const uint8_t *trailer, size_t size);

/**
 * Carry out the plan of an interrupted recovery, if there is one. The file is complete then. If the
 * file has not been truncated yet, it stays unchanged. In both cases, the plan is removed.
 * @return 0; -errno
 */
int arrow_plan_follow(const struct arrow_io_ops *io, void *handle, const char *part);

/** Remove the plan. Call it after the trailer is durable. @return 0, even if none exists; -errno */
int arrow_plan_remove(const struct arrow_io_ops *io, const char *part);

/**
 * Truncate a file, and make that durable. Call it before the trailer is written, so that the file
 * never contains both old bytes and the trailer. @return 0; -errno
 */
int arrow_plan_cut(const struct arrow_io_ops *io, void *handle, uint64_t end);

/** Write the trailer at `end`, truncate the file after it, and sync. @return 0; -errno */
int arrow_plan_end(const struct arrow_io_ops *io, void *handle, const uint8_t *trailer, size_t size,
	uint64_t end);

#endif /* ARROW_PLAN_H */
