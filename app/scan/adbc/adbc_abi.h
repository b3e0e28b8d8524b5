/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * ABI of ADBC 1.1.0 between a driver and its driver manager. Debian has no package with ADBC's
 * header, so the structures are declared here. Names and order are those of the specification.
 *
 * Source: Arrow, ADBC API specification 1.1.0 (adbc.h). The sizes are asserted below.
 */
#ifndef ADBC_ABI_H
#define ADBC_ABI_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "sql/arrow_c.h"

#define ADBC_VERSION_1_0_0 1000000
#define ADBC_VERSION_1_1_0 1001000

typedef uint8_t AdbcStatusCode;

enum {
	ADBC_STATUS_OK = 0,
	ADBC_STATUS_UNKNOWN = 1,
	ADBC_STATUS_NOT_IMPLEMENTED = 2,
	ADBC_STATUS_NOT_FOUND = 3,
	ADBC_STATUS_ALREADY_EXISTS = 4,
	ADBC_STATUS_INVALID_ARGUMENT = 5,
	ADBC_STATUS_INVALID_STATE = 6,
	ADBC_STATUS_INVALID_DATA = 7,
	ADBC_STATUS_INTEGRITY = 8,
	ADBC_STATUS_INTERNAL = 9,
	ADBC_STATUS_IO = 10,
	ADBC_STATUS_CANCELLED = 11,
	ADBC_STATUS_TIMEOUT = 12,
	ADBC_STATUS_UNAUTHENTICATED = 13,
	ADBC_STATUS_UNAUTHORIZED = 14,
};

/** What GetObjects describes. */
enum {
	ADBC_OBJECT_DEPTH_ALL = 0, /**< also columns */
	ADBC_OBJECT_DEPTH_CATALOGS = 1,
	ADBC_OBJECT_DEPTH_DB_SCHEMAS = 2,
	ADBC_OBJECT_DEPTH_TABLES = 3,
};

/** Codes of GetInfo. */
enum {
	ADBC_INFO_VENDOR_NAME = 0,
	ADBC_INFO_VENDOR_VERSION = 1,
	ADBC_INFO_VENDOR_SQL = 3,
	ADBC_INFO_VENDOR_SUBSTRAIT = 4,
	ADBC_INFO_DRIVER_NAME = 100,
	ADBC_INFO_DRIVER_VERSION = 101,
	ADBC_INFO_DRIVER_ADBC_VERSION = 103,
};

#define ADBC_OPTION_URI			  "uri"
#define ADBC_CONNECTION_OPTION_AUTOCOMMIT "adbc.connection.autocommit"
#define ADBC_CONNECTION_OPTION_READ_ONLY  "adbc.connection.readonly"
#define ADBC_CONNECTION_OPTION_CATALOG	  "adbc.connection.catalog"
#define ADBC_CONNECTION_OPTION_DB_SCHEMA  "adbc.connection.db_schema"

/** `vendor_code` of a caller whose error has the fields of version 1.1.0. */
#define ADBC_ERROR_VENDOR_CODE_PRIVATE_DATA INT32_MIN

struct AdbcDriver;

struct AdbcError {
	char *message;
	int32_t vendor_code;
	char sqlstate[5]; /**< without a zero at the end */
	void (*release)(struct AdbcError *error);
	/* version 1.1.0: only there if vendor_code was ADBC_ERROR_VENDOR_CODE_PRIVATE_DATA */
	void *private_data;
	struct AdbcDriver *private_driver;
};

struct AdbcErrorDetail {
	const char *key;
	const uint8_t *value;
	size_t value_length;
};

/** An object of a driver. private_driver belongs to the driver manager. @{ */
struct AdbcDatabase {
	void *private_data;
	struct AdbcDriver *private_driver;
};

struct AdbcConnection {
	void *private_data;
	struct AdbcDriver *private_driver;
};

struct AdbcStatement {
	void *private_data;
	struct AdbcDriver *private_driver;
};
/** @} */

/** Results of ExecutePartitions: descriptions that ReadPartition takes. */
struct AdbcPartitions {
	size_t num_partitions;
	const uint8_t **partitions;
	const size_t *partition_lengths;
	void *private_data;
	void (*release)(struct AdbcPartitions *partitions);
};

/** Types of functions for options of an object. @{ */
#define ADBC_OPTION_TYPES(object)                                                            \
	typedef AdbcStatusCode (*object##_get_text)(                                         \
		struct object *, const char *, char *, size_t *, struct AdbcError *);        \
	typedef AdbcStatusCode (*object##_get_bytes)(                                        \
		struct object *, const char *, uint8_t *, size_t *, struct AdbcError *);     \
	typedef AdbcStatusCode (*object##_get_double)(                                       \
		struct object *, const char *, double *, struct AdbcError *);                \
	typedef AdbcStatusCode (*object##_get_int)(                                          \
		struct object *, const char *, int64_t *, struct AdbcError *);               \
	typedef AdbcStatusCode (*object##_set_text)(                                         \
		struct object *, const char *, const char *, struct AdbcError *);            \
	typedef AdbcStatusCode (*object##_set_bytes)(                                        \
		struct object *, const char *, const uint8_t *, size_t, struct AdbcError *); \
	typedef AdbcStatusCode (*object##_set_double)(                                       \
		struct object *, const char *, double, struct AdbcError *);                  \
	typedef AdbcStatusCode (*object##_set_int)(                                          \
		struct object *, const char *, int64_t, struct AdbcError *);                 \
	typedef AdbcStatusCode (*object##_call)(struct object *, struct AdbcError *)

ADBC_OPTION_TYPES(AdbcDatabase);
ADBC_OPTION_TYPES(AdbcConnection);
ADBC_OPTION_TYPES(AdbcStatement);
/** @} */

/** The functions of a driver. Those that are NULL are filled in by the driver manager. */
struct AdbcDriver {
	void *private_data;
	void *private_manager;
	AdbcStatusCode (*release)(struct AdbcDriver *driver, struct AdbcError *error);

	AdbcDatabase_call DatabaseInit;
	AdbcDatabase_call DatabaseNew;
	AdbcDatabase_set_text DatabaseSetOption;
	AdbcDatabase_call DatabaseRelease;

	AdbcConnection_call ConnectionCommit;
	AdbcStatusCode (*ConnectionGetInfo)(struct AdbcConnection *, const uint32_t *codes,
		size_t nb, struct ArrowArrayStream *, struct AdbcError *);
	AdbcStatusCode (*ConnectionGetObjects)(struct AdbcConnection *, int depth,
		const char *catalog, const char *db_schema, const char *table,
		const char **table_types, const char *column, struct ArrowArrayStream *,
		struct AdbcError *);
	AdbcStatusCode (*ConnectionGetTableSchema)(struct AdbcConnection *, const char *catalog,
		const char *db_schema, const char *table, struct ArrowSchema *, struct AdbcError *);
	AdbcStatusCode (*ConnectionGetTableTypes)(
		struct AdbcConnection *, struct ArrowArrayStream *, struct AdbcError *);
	AdbcStatusCode (*ConnectionInit)(
		struct AdbcConnection *, struct AdbcDatabase *, struct AdbcError *);
	AdbcConnection_call ConnectionNew;
	AdbcConnection_set_text ConnectionSetOption;
	AdbcStatusCode (*ConnectionReadPartition)(struct AdbcConnection *, const uint8_t *partition,
		size_t size, struct ArrowArrayStream *, struct AdbcError *);
	AdbcConnection_call ConnectionRelease;
	AdbcConnection_call ConnectionRollback;

	AdbcStatusCode (*StatementBind)(struct AdbcStatement *, struct ArrowArray *,
		struct ArrowSchema *, struct AdbcError *);
	AdbcStatusCode (*StatementBindStream)(
		struct AdbcStatement *, struct ArrowArrayStream *, struct AdbcError *);
	AdbcStatusCode (*StatementExecuteQuery)(struct AdbcStatement *, struct ArrowArrayStream *,
		int64_t *rows_affected, struct AdbcError *);
	AdbcStatusCode (*StatementExecutePartitions)(struct AdbcStatement *, struct ArrowSchema *,
		struct AdbcPartitions *, int64_t *rows_affected, struct AdbcError *);
	AdbcStatusCode (*StatementGetParameterSchema)(
		struct AdbcStatement *, struct ArrowSchema *, struct AdbcError *);
	AdbcStatusCode (*StatementNew)(
		struct AdbcConnection *, struct AdbcStatement *, struct AdbcError *);
	AdbcStatement_call StatementPrepare;
	AdbcStatement_call StatementRelease;
	AdbcStatement_set_text StatementSetOption;
	AdbcStatusCode (*StatementSetSqlQuery)(
		struct AdbcStatement *, const char *sql, struct AdbcError *);
	AdbcStatusCode (*StatementSetSubstraitPlan)(
		struct AdbcStatement *, const uint8_t *plan, size_t size, struct AdbcError *);

	/* version 1.1.0 */
	int (*ErrorGetDetailCount)(const struct AdbcError *error);
	struct AdbcErrorDetail (*ErrorGetDetail)(const struct AdbcError *error, int index);
	const struct AdbcError *(*ErrorFromArrayStream)(
		struct ArrowArrayStream *stream, AdbcStatusCode *status);

	AdbcDatabase_get_text DatabaseGetOption;
	AdbcDatabase_get_bytes DatabaseGetOptionBytes;
	AdbcDatabase_get_double DatabaseGetOptionDouble;
	AdbcDatabase_get_int DatabaseGetOptionInt;
	AdbcDatabase_set_bytes DatabaseSetOptionBytes;
	AdbcDatabase_set_double DatabaseSetOptionDouble;
	AdbcDatabase_set_int DatabaseSetOptionInt;

	AdbcConnection_call ConnectionCancel;
	AdbcConnection_get_text ConnectionGetOption;
	AdbcConnection_get_bytes ConnectionGetOptionBytes;
	AdbcConnection_get_double ConnectionGetOptionDouble;
	AdbcConnection_get_int ConnectionGetOptionInt;
	AdbcStatusCode (*ConnectionGetStatistics)(struct AdbcConnection *, const char *catalog,
		const char *db_schema, const char *table, char approximate,
		struct ArrowArrayStream *, struct AdbcError *);
	AdbcStatusCode (*ConnectionGetStatisticNames)(
		struct AdbcConnection *, struct ArrowArrayStream *, struct AdbcError *);
	AdbcConnection_set_bytes ConnectionSetOptionBytes;
	AdbcConnection_set_double ConnectionSetOptionDouble;
	AdbcConnection_set_int ConnectionSetOptionInt;

	AdbcStatement_call StatementCancel;
	AdbcStatusCode (*StatementExecuteSchema)(
		struct AdbcStatement *, struct ArrowSchema *, struct AdbcError *);
	AdbcStatement_get_text StatementGetOption;
	AdbcStatement_get_bytes StatementGetOptionBytes;
	AdbcStatement_get_double StatementGetOptionDouble;
	AdbcStatement_get_int StatementGetOptionInt;
	AdbcStatement_set_bytes StatementSetOptionBytes;
	AdbcStatement_set_double StatementSetOptionDouble;
	AdbcStatement_set_int StatementSetOptionInt;
};

/** Bytes of the table in version 1.0.0. */
#define ADBC_DRIVER_1_0_0_SIZE (offsetof(struct AdbcDriver, ErrorGetDetailCount))

static_assert(sizeof(void *) != 8 || sizeof(struct AdbcDriver) == 464, "ADBC 1.1.0");
static_assert(sizeof(void *) != 8 || ADBC_DRIVER_1_0_0_SIZE == 232, "ADBC 1.0.0");
static_assert(sizeof(void *) != 8 || offsetof(struct AdbcError, private_data) == 32, "ADBC 1.0.0");

/** Type of the entry of a driver. */
typedef AdbcStatusCode (*AdbcDriverInitFunc)(int version, void *driver, struct AdbcError *error);

#endif /* ADBC_ABI_H */
