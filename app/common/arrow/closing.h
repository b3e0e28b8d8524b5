/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Closes files in a thread, because closing takes as long as a sync of the disk.
 */
#ifndef ARROW_CLOSING_H
#define ARROW_CLOSING_H

#include <pthread.h>
#include <stdbool.h>

#include "arrow/file.h"

/** A file that is being closed. It belongs to the thread until arrow_closing_is_over(). */
struct arrow_closing {
	struct arrow_file *file;
	bool discard; /**< the file is empty: remove it instead */
	struct arrow_closing *next;
	void (*enter)(void);
	pthread_t thread;
	bool has_thread;
	bool over; /**< atomic */
};

/**
 * Begin to close one or two files, each with `file`, perhaps `discard`, and the rest zero. If no
 * thread can be created, the caller closes them.
 * @param next   closed after the first one by the same thread; NULL: none
 * @param enter  called first by the thread; may be NULL
 */
void arrow_closing_begin(struct arrow_closing *c, struct arrow_closing *next, void (*enter)(void));

/** @return true: the file is closed */
bool arrow_closing_is_over(const struct arrow_closing *c);

/** Wait until the file is closed, and release the thread. Of two files, join `next` first. */
void arrow_closing_join(struct arrow_closing *c);

#endif /* ARROW_CLOSING_H */
