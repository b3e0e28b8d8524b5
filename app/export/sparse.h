/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * RUN_sparse.h5: the CSR images of a run as sparse frames of pyFAI (sparsify-Bragg), which
 * fabio.sparseimage opens. The background is 0: the receiver does not store it.
 */
#ifndef EXPORT_SPARSE_H
#define EXPORT_SPARSE_H

#include "export.h"

/** Path of the file. */
void sparse_path(const struct export *e, char path[PATH_MAX]);

/**
 * Write the file, and replace an old one. Full images are reduced to the pixels that CSR images
 * have.
 * @return 0; -EINTR: export_stopped(), nothing was left; -ENOMEM, -EBADMSG, -EIO, -errno:
 *         e->message
 */
int sparse_write(struct export *e, void (*progress)(uint64_t bytes));

#endif /* EXPORT_SPARSE_H */
