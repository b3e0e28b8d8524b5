/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The part of DuckDB's C API that is used. The library is loaded when it is needed, so that
 * programs are built and run without it.
 *
 * A member of struct duckdb_api is the function with this name after `duckdb_`.
 * duckdb_arrow_scan() and duckdb_arrow_array_scan() are left out on purpose: they ignore filters
 * and the order of columns, and give wrong results without an error (duckdb pull request 16050).
 *
 * Source: duckdb.h of DuckDB 1.4; the same functions are in 1.5.6.
 */
#ifndef DUCKDB_API_H
#define DUCKDB_API_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sql/arrow_c.h"

/** Environment variable with the path of the library. Default: DUCKDB_LIBRARY, as ld.so finds it */
#define DUCKDB_VARIABLE "BRAGGLINE_DUCKDB"
#define DUCKDB_LIBRARY	"libduckdb.so"

/** Rows of a vector. */
#define DUCKDB_VECTOR_ROWS 2048

enum duckdb_state {
	DUCKDB_SUCCESS,
	DUCKDB_ERROR
};

/** Values of duckdb_type that programs need. */
enum duckdb_type {
	DUCKDB_TYPE_INVALID = 0,
	DUCKDB_TYPE_BOOLEAN = 1,
	DUCKDB_TYPE_TINYINT = 2,
	DUCKDB_TYPE_SMALLINT = 3,
	DUCKDB_TYPE_INTEGER = 4,
	DUCKDB_TYPE_BIGINT = 5,
	DUCKDB_TYPE_UTINYINT = 6,
	DUCKDB_TYPE_USMALLINT = 7,
	DUCKDB_TYPE_UINTEGER = 8,
	DUCKDB_TYPE_UBIGINT = 9,
	DUCKDB_TYPE_FLOAT = 10,
	DUCKDB_TYPE_DOUBLE = 11,
	DUCKDB_TYPE_TIMESTAMP = 12,
	DUCKDB_TYPE_DATE = 13,
	DUCKDB_TYPE_TIME = 14,
	DUCKDB_TYPE_HUGEINT = 16,
	DUCKDB_TYPE_VARCHAR = 17,
	DUCKDB_TYPE_BLOB = 18,
	DUCKDB_TYPE_DECIMAL = 19,
	DUCKDB_TYPE_TIMESTAMP_S = 20,
	DUCKDB_TYPE_TIMESTAMP_MS = 21,
	DUCKDB_TYPE_TIMESTAMP_NS = 22,
	DUCKDB_TYPE_LIST = 24,
	DUCKDB_TYPE_STRUCT = 25,
	DUCKDB_TYPE_MAP = 26,
	DUCKDB_TYPE_TIMESTAMP_TZ = 31,
	DUCKDB_TYPE_UHUGEINT = 32,
	DUCKDB_TYPE_ARRAY = 33,
};

/** Value of duckdb_statement_type: a SELECT, or PRAGMA that only reads. */
#define DUCKDB_STATEMENT_SELECT 1

/** Text of a vector: up to 12 bytes are inside the structure. */
union duckdb_text {
	uint32_t length;
	struct {
		uint32_t length;
		char bytes[12];
	} inlined;
	struct {
		uint32_t length;
		char prefix[4];
		const char *bytes;
	} pointer;
};

static_assert(sizeof(union duckdb_text) == 16, "the size of DuckDB's duckdb_string_t");

static inline const char *
duckdb_text_bytes(const union duckdb_text *t)
{
	return t->length <= sizeof(t->inlined.bytes) ? t->inlined.bytes : t->pointer.bytes;
}

/** Row of a list vector: position of its items in the child vector. */
struct duckdb_list {
	uint64_t offset;
	uint64_t length;
};

/** A result; its members are not used. */
struct duckdb_result {
	uint64_t deprecated[3];
	void *deprecated_columns;
	char *deprecated_error;
	void *internal;
};

struct duckdb_progress {
	double percentage;
	uint64_t done;
	uint64_t total;
};

/* Handles. */
typedef struct duckdb_config_handle *duckdb_config;
typedef struct duckdb_database_handle *duckdb_database;
typedef struct duckdb_connection_handle *duckdb_connection;
typedef struct duckdb_statement_handle *duckdb_statement;
typedef struct duckdb_pending_handle *duckdb_pending;
typedef struct duckdb_chunk_handle *duckdb_chunk;
typedef struct duckdb_vector_handle *duckdb_vector;
typedef struct duckdb_logical_type_handle *duckdb_logical_type;
typedef struct duckdb_value_handle *duckdb_value;
typedef struct duckdb_table_function_handle *duckdb_table_function;
typedef struct duckdb_bind_info_handle *duckdb_bind_info;
typedef struct duckdb_init_info_handle *duckdb_init_info;
typedef struct duckdb_function_info_handle *duckdb_function_info;
typedef struct duckdb_replacement_info_handle *duckdb_replacement_info;
typedef struct duckdb_error_data_handle *duckdb_error_data;
typedef struct duckdb_arrow_options_handle *duckdb_arrow_options;
typedef struct duckdb_arrow_types_handle *duckdb_arrow_types;

typedef void (*duckdb_destroy)(void *data);
typedef void (*duckdb_bind)(duckdb_bind_info info);
typedef void (*duckdb_init)(duckdb_init_info info);
typedef void (*duckdb_function)(duckdb_function_info info, duckdb_chunk output);
typedef void (*duckdb_replacement)(duckdb_replacement_info info, const char *name, void *data);

/** Functions: type of the result, name, parameters. */
#define DUCKDB_FUNCTIONS(F)                                                                        \
	F(const char *, library_version, (void))                                                   \
	F(void, free, (void *memory))                                                              \
	F(int, create_config, (duckdb_config * config))                                            \
	F(int, set_config, (duckdb_config config, const char *name, const char *value))            \
	F(void, destroy_config, (duckdb_config * config))                                          \
	F(int, open_ext,                                                                           \
		(const char *path, duckdb_database *db, duckdb_config config, char **error))       \
	F(void, close, (duckdb_database * db))                                                     \
	F(int, connect, (duckdb_database db, duckdb_connection * connection))                      \
	F(void, disconnect, (duckdb_connection * connection))                                      \
	F(void, interrupt, (duckdb_connection connection))                                         \
	/* statements and results */                                                               \
	F(int, query,                                                                              \
		(duckdb_connection connection, const char *sql, struct duckdb_result *result))     \
	F(int, prepare,                                                                            \
		(duckdb_connection connection, const char *sql, duckdb_statement *statement))      \
	F(const char *, prepare_error, (duckdb_statement statement))                               \
	F(void, destroy_prepare, (duckdb_statement * statement))                                   \
	F(int, prepared_statement_type, (duckdb_statement statement))                              \
	F(uint64_t, nparams, (duckdb_statement statement))                                         \
	F(uint64_t, prepared_statement_column_count, (duckdb_statement statement))                 \
	F(char *, prepared_statement_column_name, (duckdb_statement statement, uint64_t column))   \
	F(duckdb_logical_type, prepared_statement_column_logical_type,                             \
		(duckdb_statement statement, uint64_t column))                                     \
	F(int, bind_varchar_length,                                                                \
		(duckdb_statement statement, uint64_t index, const char *text, uint64_t length))   \
	F(int, execute_prepared, (duckdb_statement statement, struct duckdb_result * result))      \
	F(int, pending_prepared_streaming, (duckdb_statement statement, duckdb_pending * pending)) \
	F(int, execute_pending, (duckdb_pending pending, struct duckdb_result * result))           \
	F(const char *, pending_error, (duckdb_pending pending))                                   \
	F(void, destroy_pending, (duckdb_pending * pending))                                       \
	F(duckdb_chunk, fetch_chunk, (struct duckdb_result result))                                \
	F(const char *, result_error, (struct duckdb_result * result))                             \
	F(void, destroy_result, (struct duckdb_result * result))                                   \
	F(duckdb_logical_type, column_logical_type,                                                \
		(struct duckdb_result * result, uint64_t column))                                  \
	/* types */                                                                                \
	F(duckdb_logical_type, create_logical_type, (int type))                                    \
	F(duckdb_logical_type, create_list_type, (duckdb_logical_type item))                       \
	F(duckdb_logical_type, create_array_type, (duckdb_logical_type item, uint64_t size))       \
	F(void, destroy_logical_type, (duckdb_logical_type * type))                                \
	F(int, get_type_id, (duckdb_logical_type type))                                            \
	F(char *, logical_type_get_alias, (duckdb_logical_type type))                              \
	F(void, logical_type_set_alias, (duckdb_logical_type type, const char *alias))             \
	F(duckdb_logical_type, list_type_child_type, (duckdb_logical_type type))                   \
	F(duckdb_logical_type, array_type_child_type, (duckdb_logical_type type))                  \
	F(uint64_t, array_type_array_size, (duckdb_logical_type type))                             \
	F(uint64_t, struct_type_child_count, (duckdb_logical_type type))                           \
	F(char *, struct_type_child_name, (duckdb_logical_type type, uint64_t index))              \
	F(duckdb_logical_type, struct_type_child_type, (duckdb_logical_type type, uint64_t index)) \
	/* chunks and vectors */                                                                   \
	F(duckdb_chunk, create_data_chunk, (duckdb_logical_type * types, uint64_t columns))        \
	F(void, destroy_data_chunk, (duckdb_chunk * chunk))                                        \
	F(uint64_t, data_chunk_get_column_count, (duckdb_chunk chunk))                             \
	F(uint64_t, data_chunk_get_size, (duckdb_chunk chunk))                                     \
	F(void, data_chunk_set_size, (duckdb_chunk chunk, uint64_t rows))                          \
	F(duckdb_vector, data_chunk_get_vector, (duckdb_chunk chunk, uint64_t column))             \
	F(void *, vector_get_data, (duckdb_vector vector))                                         \
	F(uint64_t *, vector_get_validity, (duckdb_vector vector))                                 \
	F(void, vector_ensure_validity_writable, (duckdb_vector vector))                           \
	F(void, vector_assign_string_element_len,                                                  \
		(duckdb_vector vector, uint64_t row, const char *text, uint64_t length))           \
	F(duckdb_vector, list_vector_get_child, (duckdb_vector vector))                            \
	F(int, list_vector_reserve, (duckdb_vector vector, uint64_t items))                        \
	F(int, list_vector_set_size, (duckdb_vector vector, uint64_t items))                       \
	F(duckdb_vector, array_vector_get_child, (duckdb_vector vector))                           \
	F(duckdb_vector, struct_vector_get_child, (duckdb_vector vector, uint64_t index))          \
	F(void, vector_reference_vector, (duckdb_vector to, duckdb_vector from))                   \
	F(void, vector_reference_value, (duckdb_vector to, duckdb_value value))                    \
	/* values */                                                                               \
	F(duckdb_value, create_varchar_length, (const char *text, uint64_t length))                \
	F(char *, get_varchar, (duckdb_value value))                                               \
	F(uint64_t, get_uint64, (duckdb_value value))                                              \
	F(bool, is_null_value, (duckdb_value value))                                               \
	F(void, destroy_value, (duckdb_value * value))                                             \
	/* table functions */                                                                      \
	F(duckdb_table_function, create_table_function, (void))                                    \
	F(void, destroy_table_function, (duckdb_table_function * function))                        \
	F(void, table_function_set_name, (duckdb_table_function function, const char *name))       \
	F(void, table_function_add_parameter,                                                      \
		(duckdb_table_function function, duckdb_logical_type type))                        \
	F(void, table_function_add_named_parameter,                                                \
		(duckdb_table_function function, const char *name, duckdb_logical_type type))      \
	F(void, table_function_set_extra_info,                                                     \
		(duckdb_table_function function, void *data, duckdb_destroy destroy))              \
	F(void, table_function_set_bind, (duckdb_table_function function, duckdb_bind bind))       \
	F(void, table_function_set_init, (duckdb_table_function function, duckdb_init init))       \
	F(void, table_function_set_local_init, (duckdb_table_function function, duckdb_init init)) \
	F(void, table_function_set_function,                                                       \
		(duckdb_table_function function, duckdb_function call))                            \
	F(void, table_function_supports_projection_pushdown,                                       \
		(duckdb_table_function function, bool pushdown))                                   \
	F(int, register_table_function,                                                            \
		(duckdb_connection connection, duckdb_table_function function))                    \
	F(void *, bind_get_extra_info, (duckdb_bind_info info))                                    \
	F(duckdb_value, bind_get_parameter, (duckdb_bind_info info, uint64_t index))               \
	F(duckdb_value, bind_get_named_parameter, (duckdb_bind_info info, const char *name))       \
	F(void, bind_add_result_column,                                                            \
		(duckdb_bind_info info, const char *name, duckdb_logical_type type))               \
	F(void, bind_set_cardinality, (duckdb_bind_info info, uint64_t rows, bool exact))          \
	F(void, bind_set_bind_data, (duckdb_bind_info info, void *data, duckdb_destroy destroy))   \
	F(void, bind_set_error, (duckdb_bind_info info, const char *error))                        \
	F(void *, init_get_bind_data, (duckdb_init_info info))                                     \
	F(uint64_t, init_get_column_count, (duckdb_init_info info))                                \
	F(uint64_t, init_get_column_index, (duckdb_init_info info, uint64_t column))               \
	F(void, init_set_max_threads, (duckdb_init_info info, uint64_t threads))                   \
	F(void, init_set_init_data, (duckdb_init_info info, void *data, duckdb_destroy destroy))   \
	F(void, init_set_error, (duckdb_init_info info, const char *error))                        \
	F(void *, function_get_bind_data, (duckdb_function_info info))                             \
	F(void *, function_get_init_data, (duckdb_function_info info))                             \
	F(void *, function_get_local_init_data, (duckdb_function_info info))                       \
	F(void, function_set_error, (duckdb_function_info info, const char *error))                \
	/* replacement scans */                                                                    \
	F(void, add_replacement_scan,                                                              \
		(duckdb_database db, duckdb_replacement replacement, void *data,                   \
			duckdb_destroy destroy))                                                   \
	F(void, replacement_scan_set_function_name,                                                \
		(duckdb_replacement_info info, const char *name))                                  \
	F(void, replacement_scan_add_parameter,                                                    \
		(duckdb_replacement_info info, duckdb_value value))                                \
	/* Arrow */                                                                                \
	F(const char *, error_data_message, (duckdb_error_data error))                             \
	F(void, destroy_error_data, (duckdb_error_data * error))                                   \
	F(duckdb_arrow_options, result_get_arrow_options, (struct duckdb_result * result))         \
	F(void, destroy_arrow_options, (duckdb_arrow_options * options))                           \
	F(duckdb_error_data, to_arrow_schema,                                                      \
		(duckdb_arrow_options options, duckdb_logical_type * types, char **names,          \
			uint64_t columns, struct ArrowSchema *schema))                             \
	F(duckdb_error_data, data_chunk_to_arrow,                                                  \
		(duckdb_arrow_options options, duckdb_chunk chunk, struct ArrowArray * array))     \
	F(duckdb_error_data, schema_from_arrow,                                                    \
		(duckdb_connection connection, struct ArrowSchema * schema,                        \
			duckdb_arrow_types * types))                                               \
	F(duckdb_error_data, data_chunk_from_arrow,                                                \
		(duckdb_connection connection, struct ArrowArray * array,                          \
			duckdb_arrow_types types, duckdb_chunk * chunk))                           \
	F(void, destroy_arrow_converted_schema, (duckdb_arrow_types * types))

#define DUCKDB_MEMBER(result, name, parameters) result(*name) parameters;

struct duckdb_api {
	DUCKDB_FUNCTIONS(DUCKDB_MEMBER)
	void *library;
};

/**
 * Load the library: the path in DUCKDB_VARIABLE, or DUCKDB_LIBRARY. It stays loaded, because its
 * threads may outlive a database for a moment.
 * @param problem  out, on error: what is wrong, at most `size` bytes
 * @return 0; -ENOENT: not found; -ENOSYS: it lacks a function
 */
int duckdb_api_load(struct duckdb_api *api, char *problem, size_t size);

#endif /* DUCKDB_API_H */
