/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adbc/failure.h"

#define EXIT_USAGE     2
#define EXIT_CANCELLED 130

AdbcStatusCode
failure_set(struct failure *f, AdbcStatusCode status, const char *sqlstate, int32_t vendor,
	const char *format, ...)
{
	va_list args;

	f->status = status;
	f->vendor = vendor;
	snprintf(f->sqlstate, sizeof(f->sqlstate), "%s", sqlstate);
	va_start(args, format);
	vsnprintf(f->text, sizeof(f->text), format, args);
	va_end(args);
	return status;
}

AdbcStatusCode
failure_errno(struct failure *f, int error, const char *what)
{
	if (error == ENOMEM)
		return failure_set(f, ADBC_STATUS_INTERNAL, "HY001", -error, "not enough memory");
	return failure_set(f, ADBC_STATUS_IO, "HY000", -error, "%s: %s", what, strerror(error));
}

/* Errors of DuckDB and of braggline-scan, by the start of a line. */
static const struct {
	const char *start;
	AdbcStatusCode status;
	const char *sqlstate;
} kinds[] = {
	{"Parser Error: ", ADBC_STATUS_INVALID_ARGUMENT, "42000"},
	{"Binder Error: ", ADBC_STATUS_INVALID_ARGUMENT, "42000"},
	{"Catalog Error: ", ADBC_STATUS_NOT_FOUND, "42S02"},
	{"Conversion Error: ", ADBC_STATUS_INVALID_DATA, "22018"},
	{"Out of Range Error: ", ADBC_STATUS_INVALID_DATA, "22003"},
	{"Invalid Input Error: ", ADBC_STATUS_INVALID_DATA, "22000"},
	{"Out of Memory Error: ", ADBC_STATUS_INTERNAL, "HY001"},
	{"Permission Error: ", ADBC_STATUS_UNAUTHORIZED, "42000"},
	{"Not implemented Error: ", ADBC_STATUS_NOT_IMPLEMENTED, "HYC00"},
	{"syntax error", ADBC_STATUS_INVALID_ARGUMENT, "42000"},
	{"zero-length delimited identifier", ADBC_STATUS_INVALID_ARGUMENT, "42000"},
	{"unterminated ", ADBC_STATUS_INVALID_ARGUMENT, "42000"},
	{"expected a SELECT statement", ADBC_STATUS_INVALID_ARGUMENT, "42000"},
	{"expected one SELECT statement", ADBC_STATUS_INVALID_ARGUMENT, "42000"},
	{"table function ", ADBC_STATUS_UNAUTHORIZED, "42000"},
	{"parameters ($1, ?) ", ADBC_STATUS_NOT_IMPLEMENTED, "HYC00"},
	{"the connection to the server ", ADBC_STATUS_IO, "08S01"},
	{"the server does not answer", ADBC_STATUS_IO, "08S01"},
	{"the server does not follow the protocol", ADBC_STATUS_IO, "08S01"},
	{"the server has ended the connection", ADBC_STATUS_IO, "08S01"},
	{"no server listens at this address", ADBC_STATUS_IO, "08001"},
	{"no answer from the server", ADBC_STATUS_IO, "08001"},
	{"cannot connect", ADBC_STATUS_IO, "08001"},
	{"the server refuses the connection: no free session", ADBC_STATUS_IO, "53300"},
	{"the server refuses the connection: too many connections", ADBC_STATUS_IO, "53300"},
};

AdbcStatusCode
failure_of_process(struct failure *f, int32_t vendor, const char *said)
{
	const char *line, *text;
	size_t i;

	for (line = said; line != NULL; line = strchr(line, '\n')) {
		line += *line == '\n';
		/* after the name of the program */
		text = strstr(line, ": ");
		if (text == NULL)
			break;
		for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
			if (strncmp(text + 2, kinds[i].start, strlen(kinds[i].start)) == 0)
				return failure_set(
					f, kinds[i].status, kinds[i].sqlstate, vendor, "%s", said);
		}
	}
	if (strstr(said, "wrong identity or key") != NULL ||
		strstr(said, "no right to read") != NULL)
		return failure_set(f, ADBC_STATUS_UNAUTHENTICATED, "28000", vendor, "%s", said);
	if (vendor == EXIT_CANCELLED)
		return failure_set(f, ADBC_STATUS_CANCELLED, "HY008", vendor, "%s",
			*said != '\0' ? said : "the statement was cancelled");
	if (vendor == EXIT_USAGE)
		return failure_set(f, ADBC_STATUS_INVALID_ARGUMENT, "HY024", vendor, "%s", said);
	if (vendor > 128)
		return failure_set(f, ADBC_STATUS_IO, "08S01", vendor,
			"the helper program was ended by signal %d (%s)%s%s", vendor - 128,
			strsignal(vendor - 128), *said != '\0' ? ": " : "", said);
	return failure_set(f, ADBC_STATUS_IO, "HY000", vendor, "%s",
		*said != '\0' ? said : "the helper program failed without a message");
}

int
failure_stream_errno(const struct failure *f)
{
	if (f->status == ADBC_STATUS_CANCELLED)
		return ECANCELED;
	if (f->status == ADBC_STATUS_TIMEOUT)
		return ETIMEDOUT;
	return f->vendor == -ENOMEM ? ENOMEM : EIO;
}

static void
error_release(struct AdbcError *error)
{
	free(error->message);
	error->message = NULL;
	error->release = NULL;
}

AdbcStatusCode
failure_return(const struct failure *f, struct AdbcError *error)
{
	if (error == NULL || f->status == ADBC_STATUS_OK)
		return f->status;
	if (error->release != NULL)
		error->release(error);
	error->message = strdup(f->text);
	memcpy(error->sqlstate, f->sqlstate, sizeof(error->sqlstate));
	/* private_data of version 1.1.0 is not used, so the vendor code is free */
	error->vendor_code = f->vendor;
	error->release = error_release;
	return f->status;
}
