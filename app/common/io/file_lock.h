/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef FILE_LOCK_H
#define FILE_LOCK_H

/**
 * @file
 * Locks of files that one process uses exclusively: a journal, an Arrow file, the file `.lock` of a
 * directory. They are write locks of open file descriptions (fcntl(2), F_OFD_SETLK), which need a
 * descriptor that is open for writing: a user who may only read a file cannot lock it.
 *
 * A lock may outlive its process. The kernel releases files that io_uring has used from worker
 * threads, which are delayed on a machine whose CPUs poll (measured: 1.3 s after the process had
 * ended) or whose disk is stalled (measured: 5 s, with 28 receivers on 16 CPUs).
 */

/** How long a starting program waits for a lock, as its predecessor may have just died. */
#define FILE_LOCK_MS 30000

/** Name of the file whose lock is that of its directory. */
#define FILE_LOCK_NAME ".lock"

/**
 * Lock a file that is open for writing exclusively. The lock belongs to the descriptor and ends
 * with it. The function does not wait for a lock whose owner is alive (/proc/locks).
 *
 * @param wait_ms  maximum time to wait for a lock that has outlived its owner; 0: do not wait
 * @return
 *   - 0
 *   - -EBUSY: another process has the lock
 *   - -errno of fcntl(2): -ENOLCK, -EBADF
 */
int file_lock(int fd, unsigned int wait_ms);

#endif
