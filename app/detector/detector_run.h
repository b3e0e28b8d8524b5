/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Frames from the model or from files, into the outputs that the options name.
 */
#ifndef DETECTOR_RUN_H
#define DETECTOR_RUN_H

#include <signal.h>

#include "detector_options.h"

/** Set by a signal handler: end soon and leave no file. */
extern volatile sig_atomic_t detector_stop;

/**
 * Do what the options say. Outputs get their names only when all are complete.
 * @return 0 or -errno, reported; -EINTR: detector_stop was set
 */
int detector_run(const struct detector_options *options);

#endif /* DETECTOR_RUN_H */
