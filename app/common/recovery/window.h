/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * A file in memory as far as it has been asked for, read by read(2): what the disk cannot read is
 * zeros here, and known to be unreadable. A mapping of the file would end the process (SIGBUS).
 *
 * Each byte has its address as in a mapping, and keeps it. Of what was loaded the last 16 MiB stay,
 * and what was kept; the rest is given back to the kernel and is loaded again when it is asked for.
 * One thread.
 */
#ifndef ARROW_WINDOW_H
#define ARROW_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

/** So many bytes that were loaded at once are there until the next ones are. */
#define ARROW_WINDOW_AT_ONCE (UINT64_C(8) << 20)

struct arrow_window;

/** @return bytes, fewer only at the end of the file; -errno */
typedef int64_t (*arrow_window_read)(void *arg, void *data, uint64_t size, uint64_t offset);

/**
 * @param size  bytes of the file
 * @return 0; -ENOMEM, also if there is no address space for it
 */
int arrow_window_open(struct arrow_window **w, uint64_t size, arrow_window_read read, void *arg);

/** NULL is fine. */
void arrow_window_close(struct arrow_window *w);

/** Where the file begins; NULL: it is empty. */
const uint8_t *arrow_window_data(const struct arrow_window *w);

/** Have bytes there, ARROW_WINDOW_AT_ONCE at most; what lies behind the end is left out. */
void arrow_window_load(struct arrow_window *w, uint64_t offset, uint64_t size);

/** Keep the pages of bytes that are loaded: they stay as they are. */
void arrow_window_keep(struct arrow_window *w, uint64_t offset, uint64_t size);

/** Whether any of these bytes that were loaded could not be read. */
bool arrow_window_is_unreadable(const struct arrow_window *w, uint64_t offset, uint64_t size);

/** Behind the last page that could not be read; 0: there is none so far. */
uint64_t arrow_window_unreadable_end(const struct arrow_window *w);

/** Bytes that were read so far. */
uint64_t arrow_window_bytes_read(const struct arrow_window *w);

#endif /* ARROW_WINDOW_H */
