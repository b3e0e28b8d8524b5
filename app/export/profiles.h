/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Radial profiles of the run in the master file: /entry/azint.
 */
#ifndef EXPORT_PROFILES_H
#define EXPORT_PROFILES_H

#include "export.h"
#include "h5.h"

/**
 * Write /entry/azint, if the receiver has made profiles.
 * @return 0; -ENOMEM; -EBADMSG: e->message
 */
int profiles_put(struct h5 *h, hid_t entry, struct export *e);

#endif /* EXPORT_PROFILES_H */
