/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The result of a session as an Arrow C stream. DuckDB converts each chunk, which copies it.
 */
#ifndef SQL_RESULT_STREAM_H
#define SQL_RESULT_STREAM_H

#include "sql/session.h"

/**
 * Begin to read the result of the executed statement. The stream must be released before the next
 * statement, and before the session is closed. Its functions return errno values, and the error is
 * that of the session. It has one record batch for each chunk: at most 2048 rows.
 * @return 0; -ENOMEM
 */
int sql_result_stream(struct sql_session *s, struct ArrowArrayStream *stream);

#endif /* SQL_RESULT_STREAM_H */
