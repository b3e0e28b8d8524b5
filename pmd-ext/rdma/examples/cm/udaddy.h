/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UDADDY_H
#define UDADDY_H

/**
 * @file
 * The peer of librdmacm's udaddy: datagrams to a service that is resolved by SIDR, and back.
 */

#include "mode.h"

extern const struct mode udaddy_mode;

#endif
