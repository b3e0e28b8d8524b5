/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * RUN_sparse.h5: the CSR images of a run as sparse frames of pyFAI (sparsify-Bragg), which
 * fabio.sparseimage opens. The background is 0: the receiver does not store it.
 */
#ifndef EXPORT_SPARSE_H
#define EXPORT_SPARSE_H

#include <sys/types.h>

#include "export.h"

#define SPARSE_FRAMES "/entry_0000/frames" /**< columns of the images */

/** Path of the file. */
void sparse_path(const struct export *e, char path[PATH_MAX]);

/**
 * Write the file, and replace an old one. Full images are reduced to the pixels that CSR images
 * have.
 * @return 0; -EINTR: export_stopped(), nothing was left; -EUCLEAN (export_load); -ENOMEM,
 *         -EBADMSG, -EIO, -errno: e->message
 */
int sparse_write(struct export *e, void (*progress)(uint64_t bytes));

/**
 * Sparse frames of a run that is written. The lists of each `per_file` images are in a file of
 * their own, RUN_sparse_000001.h5 ..., and RUN_sparse.h5 has them as virtual datasets. All files
 * are replaced by complete ones. Zero-initialized: not open.
 */
struct sparse_live {
	struct pixels *pixels;
	uint64_t *first; /**< [written + 1] first pixel of each image in the lists */
	size_t written;	 /**< images in files */
	size_t room;
	uint32_t own; /**< files with lower numbers were written by this process */
};

/** @return 0; -ENOMEM, -errno */
int sparse_live_open(struct sparse_live *s, const struct export *e);

/**
 * Write a file of lists, or replace one that has fewer images.
 * @param number  of the file, from 0
 * @param nb      images
 * @param all     all images of the run that exist are known
 * @return 0; -EAGAIN: the file of an earlier process has more images than are known yet; -EINTR,
 *         -ENOMEM, -EBADMSG, -EIO, -errno: e->message
 */
int sparse_live_part(struct sparse_live *s, struct export *e, uint32_t number, size_t nb, bool all);

/** Replace RUN_sparse.h5 by one with the images that were written. @return as sparse_write() */
int sparse_live_write(struct sparse_live *s, struct export *e);

/** Remove files of lists of higher numbers. @return 0; -errno: e->message */
int sparse_live_finish(struct sparse_live *s, struct export *e);

void sparse_live_close(struct sparse_live *s);

#endif /* EXPORT_SPARSE_H */
