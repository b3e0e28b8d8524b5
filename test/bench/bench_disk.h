/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A disk at rest before something is timed. Removing a file does not end with unlink(2): with
 * `-o discard` the disk is told of its blocks, 20 ms for 128 MiB on a virtual one, and whoever
 * writes next waits for that.
 */
#ifndef BENCH_DISK_H
#define BENCH_DISK_H

/* Return when the disk of a directory has written and discarded what it was told to, or after some
 * seconds: others may use it, too. */
void bench_disk_settle(const char *dir);

#endif /* BENCH_DISK_H */
