/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Why a call of the driver failed: status, SQLSTATE, vendor code and text.
 *
 * The vendor code is the exit status of the helper program (1: the statement failed, 2: an option
 * is wrong, 127: it does not start, 128 + N: ended by signal N), or a negative errno if the driver
 * itself failed.
 *
 * SQLSTATEs are those of SQL/CLI (ISO/IEC 9075-3) and ODBC.
 */
#ifndef ADBC_FAILURE_H
#define ADBC_FAILURE_H

#include "adbc/adbc_abi.h"

#define FAILURE_TEXT 4096

struct failure {
	AdbcStatusCode status; /**< ADBC_STATUS_OK: none */
	char sqlstate[6];
	int32_t vendor;
	char text[FAILURE_TEXT];
};

/** Describe a failure. @return status */
AdbcStatusCode failure_set(struct failure *f, AdbcStatusCode status, const char *sqlstate,
	int32_t vendor, const char *format, ...) __attribute__((format(printf, 5, 6)));

/** Describe a failed system call or a lack of memory by its errno (positive). @return status */
AdbcStatusCode failure_errno(struct failure *f, int error, const char *what);

/**
 * Describe the failure of a helper program.
 * @param vendor  its exit status, see above
 * @param said  its text on standard error
 */
AdbcStatusCode failure_of_process(struct failure *f, int32_t vendor, const char *said);

/** Errno of get_next() and get_schema() of a stream, positive. */
int failure_stream_errno(const struct failure *f);

/** Copy a failure to the error of a caller, which can be NULL. @return its status */
AdbcStatusCode failure_return(const struct failure *f, struct AdbcError *error);

#endif /* ADBC_FAILURE_H */
