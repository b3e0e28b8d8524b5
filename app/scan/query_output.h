/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Writes the result of a session as text, CSV, JSON or Arrow.
 */
#ifndef QUERY_OUTPUT_H
#define QUERY_OUTPUT_H

#include <stdio.h>

#include "query.h"
#include "sql/session.h"

/**
 * Fetch and write all rows of a result. It was executed with SQL_TEXT for QUERY_TABLE and
 * QUERY_CSV, SQL_SIMPLE for QUERY_JSON, and SQL_NATIVE for QUERY_ARROW.
 * @return 0; -EIO, -ECANCELED, -ENOTSUP, -ENOMEM, -errno of stdio: the session's `error` says why
 */
int query_output(struct sql_session *s, enum query_format format, FILE *out);

#endif /* QUERY_OUTPUT_H */
