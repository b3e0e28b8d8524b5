/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Item of --check for [geometry].
 */
#ifndef CHECK_GEOMETRY_H
#define CHECK_GEOMETRY_H

struct check;
struct settings;

/**
 * Check for a geometry that is probably wrong: pixels without a panel, panels at the same place, a
 * beam outside the picture, lengths or energies in the wrong unit.
 */
void check_geometry(struct check *c, const struct settings *s);

#endif /* CHECK_GEOMETRY_H */
