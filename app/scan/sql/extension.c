/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The tables of runs as an extension that DuckDB loads. It uses the stable part of DuckDB's C
 * extension API, version 1.2.0, which every later DuckDB 1.x has: functions at fixed positions of a
 * structure. This part has no conversion from Arrow, so values are copied.
 *
 * Source: duckdb.h and duckdb_extension.h of DuckDB 1.4.
 */

#include <stdbool.h>

#include "sql/tables.h"

#define API_VERSION "v1.2.0"

struct duckdb_extension_access {
	void (*set_error)(void *info, const char *error);
	duckdb_database *(*get_database)(void *info);
	void *const *(*get_api)(void *info, const char *version);
};

#define POSITION(name, position)                            \
	{                                                   \
		offsetof(struct duckdb_api, name), position \
	}

/* Positions in struct duckdb_ext_api_v1. */
static const struct {
	size_t offset;
	unsigned int position;
} functions[] = {
	POSITION(connect, 3),
	POSITION(disconnect, 6),
	POSITION(library_version, 7),
	POSITION(free, 25),
	POSITION(destroy_value, 92),
	POSITION(create_varchar_length, 94),
	POSITION(get_uint64, 126),
	POSITION(get_varchar, 142),
	POSITION(is_null_value, 149),
	POSITION(create_logical_type, 156),
	POSITION(create_list_type, 159),
	POSITION(create_array_type, 160),
	POSITION(destroy_logical_type, 184),
	POSITION(data_chunk_get_vector, 190),
	POSITION(data_chunk_set_size, 192),
	POSITION(vector_get_data, 194),
	POSITION(vector_get_validity, 195),
	POSITION(vector_ensure_validity_writable, 196),
	POSITION(vector_assign_string_element_len, 198),
	POSITION(list_vector_get_child, 199),
	POSITION(list_vector_set_size, 201),
	POSITION(list_vector_reserve, 202),
	POSITION(array_vector_get_child, 204),
	POSITION(create_table_function, 242),
	POSITION(destroy_table_function, 243),
	POSITION(table_function_set_name, 244),
	POSITION(table_function_add_parameter, 245),
	POSITION(table_function_add_named_parameter, 246),
	POSITION(table_function_set_extra_info, 247),
	POSITION(table_function_set_bind, 248),
	POSITION(table_function_set_init, 249),
	POSITION(table_function_set_local_init, 250),
	POSITION(table_function_set_function, 251),
	POSITION(table_function_supports_projection_pushdown, 252),
	POSITION(register_table_function, 253),
	POSITION(bind_get_extra_info, 254),
	POSITION(bind_add_result_column, 255),
	POSITION(bind_get_parameter, 257),
	POSITION(bind_get_named_parameter, 258),
	POSITION(bind_set_bind_data, 259),
	POSITION(bind_set_cardinality, 260),
	POSITION(bind_set_error, 261),
	POSITION(init_get_bind_data, 263),
	POSITION(init_set_init_data, 264),
	POSITION(init_get_column_count, 265),
	POSITION(init_get_column_index, 266),
	POSITION(init_set_max_threads, 267),
	POSITION(init_set_error, 268),
	POSITION(function_get_bind_data, 270),
	POSITION(function_get_init_data, 271),
	POSITION(function_get_local_init_data, 272),
	POSITION(function_set_error, 273),
	POSITION(add_replacement_scan, 274),
	POSITION(replacement_scan_set_function_name, 275),
	POSITION(replacement_scan_add_parameter, 276),
};

/* The same for all databases of the process. */
static struct duckdb_api extension_api;
static struct sql_tables extension_tables = {.api = &extension_api, .fill = SQL_COPY};

/* DuckDB calls this function by its name when it loads braggline.duckdb_extension. */
__attribute__((visibility("default"))) bool braggline_init_c_api(
	void *info, struct duckdb_extension_access *access);

bool
braggline_init_c_api(void *info, struct duckdb_extension_access *access)
{
	void *const *api = access->get_api(info, API_VERSION);
	duckdb_connection connection;
	duckdb_database *db;
	size_t i;
	int ret;

	/* DuckDB has set the error */
	if (api == NULL)
		return false;
	for (i = 0; i < sizeof(functions) / sizeof(functions[0]); i++)
		*(void **)((char *)&extension_api + functions[i].offset) =
			api[functions[i].position];
	db = access->get_database(info);
	if (db == NULL || extension_api.connect(*db, &connection) != DUCKDB_SUCCESS) {
		access->set_error(info, "braggline: DuckDB gives no connection");
		return false;
	}
	ret = sql_tables_register(&extension_tables, *db, connection);
	extension_api.disconnect(&connection);
	if (ret < 0)
		access->set_error(info, "braggline: DuckDB does not accept its table functions");
	return ret == 0;
}
