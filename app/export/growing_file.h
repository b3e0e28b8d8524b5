/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * A data file that grows while a run is written. It has its final name from the first images on.
 * After each call of growing_file_add() other programs read all of its images, also if this process
 * is killed.
 */
#ifndef EXPORT_GROWING_FILE_H
#define EXPORT_GROWING_FILE_H

#include "export.h"
#include "h5.h"

struct growing_file {
	struct h5 h;
	hid_t data, frames; /* datasets */
	uint32_t number;    /* of the file, from 0 */
	size_t nb;	    /* images */
	bool open, named;
};

/** Create a file. An old one of this name stays until the first call of growing_file_add(). */
int growing_file_open(struct growing_file *g, struct export *e, uint32_t number);

/**
 * Append the next images of the selection, and flush. If one of them cannot be exported, those
 * before it are appended (`nb`). If the file cannot be written, it has those of earlier calls.
 * @return 0; -EINTR: export_stopped(); -EBADMSG, -EIO, -ENOMEM, -errno: e->message. After an error
 *         the file must be closed
 */
int growing_file_add(struct growing_file *g, struct export *e, size_t nb);

/** Close the file, and make it durable. @return 0; -EIO, -errno: e->message */
int growing_file_close(struct growing_file *g, struct export *e);

#endif /* EXPORT_GROWING_FILE_H */
