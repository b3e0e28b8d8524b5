/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Recovery in folders that other users may write to: arrow_recover_dir() and what it does with one
 * file. A file is recovered only if it is this user's or root's, one that others cannot write to,
 * and has one name. That is checked through the descriptor that it is mapped from: whoever can
 * change the length of a mapped file ends the process. All that is done to it is done relative to
 * the descriptor of its folder, whatever becomes of the folder's name meanwhile.
 */
#ifndef RECOVER_DIR_H
#define RECOVER_DIR_H

#include "recovery/recovery.h"

/**
 * Recover one file of a folder that was opened by own_folder_open().
 * @param io      NULL: direct_io, with that check; else that of a test, without
 * @param folder  descriptor
 * @param dir     its name, for the report
 * @param name    of the file, which ends in `.arrow.part`
 * @param stop    as of arrow_recover_file_until()
 * @param report  one that another user made is ARROW_RECOVERY_FAILED with -EBADMSG: nothing of ours
 *   is in it. One of ours that fails the check: -EPERM
 * @return as arrow_recover_file_until(), and those two
 */
int arrow_recover_in(const struct arrow_io_ops *io, int folder, const char *dir, const char *name,
	const bool *stop, struct arrow_recovery *report);

/** The path of a file by the descriptor of its folder. @return 0; -ENAMETOOLONG */
int arrow_path_in(char path[PATH_MAX], int folder, const char *name);

#endif /* RECOVER_DIR_H */
