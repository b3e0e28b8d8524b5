/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Files written by cuFile out of a GPU's memory, slices at a time by the threads of a slice pool.
 *
 * Parts of a write that lie in memory that was added to the cuFile go by cuFileWrite(), all others
 * (announcements, first and last blocks) by pwrite(2). Files are opened, reserved and named as
 * those of direct_io are. All files share one pool.
 */
#ifndef CUFILE_IO_H
#define CUFILE_IO_H

#include "io/file_io.h"

struct cufile;

extern const struct arrow_io_ops cufile_io;

/**
 * Before the first file is opened. One thread.
 * @param threads  1 to SLICE_POOL_THREADS_MAX
 * @return as slice_pool_open()
 */
int cufile_io_start(struct cufile *cufile, unsigned int threads);

/** After the last one is closed; without a start nothing. */
void cufile_io_stop(void);

#endif /* CUFILE_IO_H */
