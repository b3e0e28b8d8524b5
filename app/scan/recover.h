/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file Recovery of files that a crash has left incomplete.
 */
#ifndef RECOVER_H
#define RECOVER_H

/**
 * Recover a file, or all files of a directory or of a store; prints the result of each.
 * @param path  in: file or directory; out: the file's name without `.part` if it was recovered
 * @return 0; -EBADMSG: some could not be recovered
 */
int recover(char *path);

#endif /* RECOVER_H */
