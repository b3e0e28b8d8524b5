/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef FILE_LOCK_H
#define FILE_LOCK_H

/**
 * @file
 * Locks of files that one process uses exclusively: a journal, an Arrow file, the file `.lock` of a
 * directory (io/dir_lock.h). They are write locks of open file descriptions (fcntl(2),
 * F_OFD_SETLK), which need a descriptor that is open for writing.
 *
 * A read lock needs only permission to read, and prevents a write lock. So any user who may read a
 * file can prevent its lock. Programs therefore exclude each other as follows:
 * - The journal and `.lock` have mode 0600: other users cannot lock them.
 * - An Arrow file is created with mode 0600 and becomes readable once it is locked. So while the
 *   process that created it has it open, others find it locked.
 * - An existing Arrow file is readable. If only readers prevent its lock, the lock of its directory
 *   takes its place (direct_io.c).
 *
 * A lock may outlive its process. The kernel releases files that io_uring has used from worker
 * threads, which are delayed on a machine whose CPUs poll (measured: 1.3 s after the process had
 * ended) or whose disk is stalled (measured: 5 s, with 28 receivers on 16 CPUs).
 */

/** How long a starting program waits for a lock, as its predecessor may have just died. */
#define FILE_LOCK_MS 30000

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

/**
 * As file_lock(). If only read locks prevent it, the function takes a read lock instead, without
 * waiting: then no other process has a write lock, or can get one.
 * @return as file_lock(); 1: the descriptor has a read lock
 */
int file_lock_or_read(int fd, unsigned int wait_ms);

/**
 * Reports that another user's read lock was bypassed. Default: a line on stderr. Programs set it
 * before they start threads.
 */
extern void (*file_lock_warn)(const char *text);

#endif
