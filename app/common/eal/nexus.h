/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Writes NeXus files while runs are written: starts a process of `braggline-export --follow`, which
 * reads the Arrow files of this program. The process has the lowest priority, runs on CPUs that no
 * lcore uses, and shares nothing with this process. Therefore neither a slow disk nor a fault of
 * HDF5 disturbs the dataplane. The process is started again if it ends.
 *
 * One thread at a time. A start takes up to a few milliseconds.
 */
#ifndef EAL_NEXUS_H
#define EAL_NEXUS_H

#include <limits.h>
#include <sys/types.h>

struct nexus {
	char program[PATH_MAX];
	const char *directory; /**< NULL: not started */
	pid_t pid;	       /**< 0: it does not run */
	unsigned int ends;     /**< in succession */
	unsigned int wait;     /**< calls of nexus_watch() until it is started again */
};

/**
 * Find the program: in the directory of this program, or in the same build directory.
 * @return 0; -ENOENT
 */
int nexus_find(struct nexus *n);

/**
 * Start the process. When this program ends, it exports what is left, and ends.
 * @param directory  of Arrow files, or of a store; must stay valid
 * @return 0; -errno
 */
int nexus_start(struct nexus *n, const char *directory);

/** Start the process again if it has ended. Call this about once a second. */
void nexus_watch(struct nexus *n);

/**
 * After the Arrow files are complete: let the process export what is left, and wait up to 30 s for
 * its end. After that it continues without this program. If a service manager ends it, the rest is
 * exported when this program is started again.
 */
void nexus_stop(struct nexus *n);

#endif /* EAL_NEXUS_H */
