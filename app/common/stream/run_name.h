/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The name of a run is a part of its identity: a (receiver, run, incarnation) has one name. Files
 * of the run under another name do not come from its receiver. The directory is named after the
 * run, so a store would find neither these files nor the mark that the run has ended
 * (stream/ended.h).
 */
#ifndef STREAM_RUN_NAME_H
#define STREAM_RUN_NAME_H

#include <limits.h>

#include "arrow/schema.h"

/**
 * Whether a store's directory has files of an incarnation, or the mark that it has ended, under
 * another run name. Lists the directories of this receiver and run.
 * @param identity  its table is not used
 * @param path      out: what was found, or what cannot be listed
 * @return 0: none; 1: found; -errno
 */
int stream_run_other(const char *root, const char *run, const struct arrow_identity *identity,
	char path[PATH_MAX]);

#endif /* STREAM_RUN_NAME_H */
