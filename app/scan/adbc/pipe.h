/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Statements and answers between the driver of ADBC and its helper process, `braggline-scan
 * --session`. Both are on the same machine: numbers have its byte order.
 *
 * Standard input has statements: struct pipe_statement and its text. The next one may follow when
 * the answer has ended. The process ends at the end of its input.
 *
 * Standard output has one answer for each statement: an Arrow IPC stream, and struct pipe_end. If
 * the statement fails, the stream is missing, or ends after any message. If it ends within one,
 * because a file was truncated, the process ends, too. Messages on standard error come before the
 * end of the answer.
 */
#ifndef ADBC_PIPE_H
#define ADBC_PIPE_H

#include <assert.h>
#include <stdint.h>

#define PIPE_STATEMENT UINT32_C(0x71736c62) /**< `blsq` */

struct pipe_statement {
	uint32_t magic;	 /**< PIPE_STATEMENT */
	uint32_t length; /**< bytes of the text; at most SQL_STATEMENT_MAX + 1, which is refused */
};
static_assert(sizeof(struct pipe_statement) == 8, "layout");

#define PIPE_END UINT32_C(0x65736c62) /**< `blse`; a message of Arrow IPC begins with FFFFFFFF */

struct pipe_end {
	uint32_t magic;	 /**< PIPE_END */
	uint32_t status; /**< what the exit status of --sql would be: 0 to 255 */
};
static_assert(sizeof(struct pipe_end) == 8, "as large as the prefix of an Arrow IPC message");

#endif /* ADBC_PIPE_H */
