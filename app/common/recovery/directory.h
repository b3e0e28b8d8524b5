/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Recovery in folders that other users may write to: arrow_recover_dir() and arrow_recover_in(). A
 * file is recovered only if it belongs to this user or root, no other user can write to it, and it
 * has one hard link. The check uses the descriptor that the file is read through, so replacing the
 * file meanwhile has no effect. All operations on a file are relative to the descriptor of its
 * folder, so renaming the folder meanwhile has no effect either.
 */
#ifndef RECOVERY_DIRECTORY_H
#define RECOVERY_DIRECTORY_H

#include "recovery/recovery.h"

/**
 * Recover one file of a folder that was opened with own_folder_open().
 * @param io      NULL: direct_io, and check the owner of the file. Other operations, which are for
 *                tests, do not check it.
 * @param folder  descriptor of the folder
 * @param dir     name of the folder, for the report
 * @param name    name of the file, which ends in `.arrow.part`
 * @param stop    as in arrow_recover_file_until()
 * @param report  if the file fails the check, its state is ARROW_RECOVERY_FAILED
 * @return as arrow_recover_file_until()
 *   - -EBADMSG: another user owns the file, so it contains no data of this user
 *   - -EPERM: this user or root owns the file, and it fails the check
 */
int arrow_recover_in(const struct arrow_io_ops *io, int folder, const char *dir, const char *name,
	const bool *stop, struct arrow_recovery *report);

/** Build the path of a file relative to the descriptor of its folder. @return 0; -ENAMETOOLONG */
int arrow_path_in(char path[PATH_MAX], int folder, const char *name);

#endif /* RECOVERY_DIRECTORY_H */
