/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RPING_H
#define RPING_H

/**
 * @file
 * The peer of librdmacm's rping: text goes from client to server by READ and back by WRITE.
 */

#include "mode.h"

extern const struct mode rping_mode;

#endif
