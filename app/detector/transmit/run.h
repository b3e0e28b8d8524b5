/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * A run onto a port: frames drawn in advance go out at their times, under ever new numbers.
 */
#ifndef TRANSMIT_RUN_H
#define TRANSMIT_RUN_H

#include "detector_options.h"

/**
 * Transmit as the options say, after rte_eal_init(): on the first worker lcore if there is one,
 * else on the main lcore. detector_stop ends the run after the frame at work.
 * @return 0 or -errno, reported
 */
int transmit_run(const struct detector_options *options);

#endif /* TRANSMIT_RUN_H */
