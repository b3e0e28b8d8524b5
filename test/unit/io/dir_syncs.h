/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Counts the syncs of one directory by any thread. Without such a sync, the names of files that
 * were created in the directory may be lost at a power failure. For tests that are linked with
 * -Wl,--wrap=fsync.
 */
#ifndef DIR_SYNCS_H
#define DIR_SYNCS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include <cmocka.h>

int __real_fsync(int fd);
int __wrap_fsync(int fd);

static ino_t dir_syncs_of;
static unsigned int dir_syncs_nb; /* atomic */

int
__wrap_fsync(int fd)
{
	struct stat st;

	if (fstat(fd, &st) == 0 && st.st_ino == __atomic_load_n(&dir_syncs_of, __ATOMIC_RELAXED))
		__atomic_fetch_add(&dir_syncs_nb, 1, __ATOMIC_RELEASE);
	return __real_fsync(fd);
}

/** Select the directory whose syncs are counted, and reset the count to 0. */
static inline void
dir_syncs_begin(const char *dir)
{
	struct stat st;

	assert_int_equal(stat(dir, &st), 0);
	__atomic_store_n(&dir_syncs_nb, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&dir_syncs_of, st.st_ino, __ATOMIC_RELAXED);
}

static inline unsigned int
dir_syncs(void)
{
	return __atomic_load_n(&dir_syncs_nb, __ATOMIC_ACQUIRE);
}

#endif /* DIR_SYNCS_H */
