/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef MCKEY_H
#define MCKEY_H

/**
 * @file
 * The peer of librdmacm's mckey: datagrams to a multicast group.
 */

#include "mode.h"

extern const struct mode mckey_mode;

#endif
