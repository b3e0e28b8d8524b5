/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Writes a result of this machine as an Arrow IPC stream. Deferred lists go from the
 * mapped files to the stream.
 */
#ifndef QUERY_ARROW_H
#define QUERY_ARROW_H

#include <stdio.h>

#include "sql/session.h"

/**
 * Read and write all rows of a statement that was executed with SQL_NATIVE. Bytes of a file that
 * was truncated meanwhile are not written.
 * @param stats  print the plan, and counters of bytes, to standard error
 * @return 0; -EPROTO: there is such a file, and the stream ends within a message; -EIO, -ECANCELED,
 *   -ENOTSUP, -ENOMEM, -errno of stdio. The error of the session says why
 */
int query_arrow(struct sql_session *s, FILE *out, bool stats);

#endif /* QUERY_ARROW_H */
