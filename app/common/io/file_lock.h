/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef FILE_LOCK_H
#define FILE_LOCK_H

/**
 * @file
 * flock(2) of what one process has for itself: a journal, a directory. A lock may outlive
 * its process: files that io_uring has used are let go of by workers of the kernel, which come late
 * on a machine whose CPUs poll (seen: 1.3 s after the process was gone), or whose disk stands still
 * (seen: 5 s, of 28 receivers on 16 CPUs).
 */

/** What a program waits as it starts: its predecessor may have died this moment. */
#define FILE_LOCK_MS 30000

/**
 * Take the lock of an open file, alone. It is the descriptor's, and gone with it. A lock whose
 * owner lives (/proc/locks) is not waited for.
 *
 * @param wait_ms time in which a lock that has outlived its owner may go; 0: none
 * @return
 *   - 0
 *   - -EBUSY: another one has it
 *   - -errno of flock(2): -ENOLCK, -EBADF
 */
int file_lock(int fd, unsigned int wait_ms);

#endif
