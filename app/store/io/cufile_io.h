/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * File operations that write GPU memory by cuFile. The threads of a slice pool write several slices
 * at a time.
 *
 * Parts of a write in memory registered with cuFile are written by cuFileWrite(), all others
 * (announcements, first and last blocks) by pwrite(2). Files are opened, allocated and renamed as
 * by direct_io. All files share one pool.
 */
#ifndef CUFILE_IO_H
#define CUFILE_IO_H

#include "io/file_io.h"

struct cufile;

extern const struct arrow_io_ops cufile_io;

/**
 * Start the threads, before the first file is opened. One thread.
 * @param threads  1 to SLICE_POOL_THREADS_MAX
 * @return as slice_pool_open()
 */
int cufile_io_start(struct cufile *cufile, unsigned int threads);

/** Stop the threads, after the last file is closed. Does nothing if they were not started. */
void cufile_io_stop(void);

#endif /* CUFILE_IO_H */
