/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CMATOSE_H
#define CMATOSE_H

/**
 * @file
 * The peer of librdmacm's ucmatose: both sides SEND a number of messages over RC.
 */

#include "mode.h"

extern const struct mode cmatose_mode;

#endif
