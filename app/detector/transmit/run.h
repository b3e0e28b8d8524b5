/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * A run that transmits to a port: frames drawn in advance are sent at their times, with new frame
 * numbers in each repetition.
 */
#ifndef TRANSMIT_RUN_H
#define TRANSMIT_RUN_H

#include "detector_options.h"

/**
 * Transmit as the options specify. Call after rte_eal_init(). Runs on the first worker lcore, or on
 * the main lcore if there is none. detector_stop ends the run after the current frame.
 * @return 0 or -errno, reported
 */
int transmit_run(const struct detector_options *options);

#endif /* TRANSMIT_RUN_H */
