/* SPDX-License-Identifier: BSD-3-Clause */
/** @file Files that a crash has left, made complete. */
#ifndef RECOVER_H
#define RECOVER_H

/**
 * Recover a file, or all of a directory; prints what becomes of each.
 * @param path  in: what was named; a file that has lost its `.part` is called so here too
 * @return 0; -EBADMSG: some could not be recovered
 */
int recover(char *path);

#endif /* RECOVER_H */
