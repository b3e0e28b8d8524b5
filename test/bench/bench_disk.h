/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Waits for an idle disk before a measurement. Removing a file does not end with unlink(2): with
 * `-o discard` the disk gets a discard of its blocks, which takes 20 ms for 128 MiB on a virtual
 * disk and delays the next writer.
 */
#ifndef BENCH_DISK_H
#define BENCH_DISK_H

/*
 * Return when the disk of a directory has completed its writes and discards, or after some seconds,
 * as other programs may use the disk, too.
 */
void bench_disk_settle(const char *dir);

#endif /* BENCH_DISK_H */
