/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Writes frames from the model or from files to the outputs that the options name.
 */
#ifndef DETECTOR_RUN_H
#define DETECTOR_RUN_H

#include <signal.h>

#include "detector_options.h"

/** Set by a signal handler: stop soon and leave no file. */
extern volatile sig_atomic_t detector_stop;

/**
 * Run as the options specify. Outputs are renamed to their final names only when all are complete.
 * @return 0 or -errno, reported; -EINTR: detector_stop was set
 */
int detector_run(const struct detector_options *options);

#endif /* DETECTOR_RUN_H */
