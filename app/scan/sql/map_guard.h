/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Guards mappings of files against SIGBUS. The kernel sends it when a page of a mapping cannot be
 * read: another process has truncated the file, or the disk has an error. In a guarded mapping the
 * page is replaced by zeros, and the guard is marked. A query whose guard is marked must not return
 * data that it read since then. Outside of guarded mappings SIGBUS has its previous effect.
 */
#ifndef SQL_MAP_GUARD_H
#define SQL_MAP_GUARD_H

#include <stdbool.h>
#include <stddef.h>

struct map_guard;

/**
 * Guard a mapping. It installs the handler of SIGBUS for the process, if another one is in
 * force.
 * @param data  aligned to a page
 * @return NULL: out of memory. Any thread
 */
struct map_guard *map_guard_add(const void *data, size_t size);

/** End a guard; NULL is allowed. The mapping must not be read from now on. Any thread. */
void map_guard_remove(struct map_guard *g);

/** Whether a page of the mapping could not be read. Any thread. */
bool map_guard_is_marked(const struct map_guard *g);

/** Whether any guard of the process is marked: one load. Any thread. */
bool map_guard_any_marked(void);

#endif /* SQL_MAP_GUARD_H */
