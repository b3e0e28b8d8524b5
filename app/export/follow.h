/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * `braggline-export --follow`: exports the runs of directories while they are written.
 */
#ifndef EXPORT_FOLLOW_H
#define EXPORT_FOLLOW_H

#include "options.h"

/**
 * Follow the directories until a signal. After the signal everything that exists is still exported.
 * A second signal ends at once.
 * @return 0; -EINVAL: printed
 */
int follow(const struct options *o);

#endif /* EXPORT_FOLLOW_H */
