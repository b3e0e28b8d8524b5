/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Reads files of a run while they are written: each batch once it is complete, which its CRC tells.
 * The file is mapped, beyond its present end as well, so that what a reader points to stays in
 * place. If another process truncates the file meanwhile, this process is killed by SIGBUS. One
 * thread.
 */
#ifndef SCAN_GROWING_H
#define SCAN_GROWING_H

#include "scan/run.h"

/** Largest file: addresses that are reserved for each. */
#define SCAN_GROWING_MAX (UINT64_C(1) << 42)

/**
 * Open a file that has a whole schema. Its reader has no batches yet.
 * @param f      of `run`; its path is set
 * @param table  which the file must have
 * @return 0; -EAGAIN: the schema is not written yet; -EBADMSG: printed; -ENOMEM, -errno
 */
int scan_growing_open(struct scan_run *run, struct scan_file *f, enum arrow_table table);

/**
 * Append the next batch to the reader if it is complete.
 * @return 1: appended; 0: there is none yet; -EBADMSG: a damaged batch is left out; -ENOMEM, -errno
 */
int scan_growing_next(struct scan_file *f);

/**
 * Whether the file is complete, and all of its batches were returned. Its writer has then renamed
 * it, which f->path follows.
 */
bool scan_growing_ended(struct scan_file *f);

/** Close the file, if it is open. */
void scan_growing_close(struct scan_file *f);

#endif /* SCAN_GROWING_H */
