/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Writes a result as text, CSV, JSON or Arrow.
 */
#ifndef QUERY_OUTPUT_H
#define QUERY_OUTPUT_H

#include <stdio.h>

#include "query.h"
#include "sql/arrow_c.h"

struct query_result {
	struct ArrowArrayStream *stream;
	const struct ArrowSchema *schema; /**< of the stream */
	const uint32_t *type; /**< of each column before the conversion: enum duckdb_type */
	char error[4096];
	bool plan; /**< of EXPLAIN: QUERY_TABLE writes each value uncut, below its name */
};

/**
 * Read and write all rows of a result. It was executed with SQL_TEXT for QUERY_TABLE and QUERY_CSV,
 * SQL_SIMPLE for QUERY_JSON, and SQL_NATIVE for QUERY_ARROW.
 * @return 0; -EIO, -ECANCELED, -ENOTSUP, -ENOMEM, -errno of stdio: `error` says why
 */
int query_output(struct query_result *r, enum query_format format, FILE *out);

#endif /* QUERY_OUTPUT_H */
