/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The driver of ADBC for runs: databases, connections, statements. A connection has a process of
 * braggline-scan, which executes its statements, and more if several statements run at a time.
 *
 * Threads: as ADBC says, one thread at a time uses an object; Cancel can be called by any.
 * Statements and streams do not refer to their connection, nor streams to their statement, so all
 * can be released in any order.
 */

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adbc/metadata.h"
#include "adbc/options.h"
#include "adbc/pool.h"
#include "adbc/result.h"
#include "adbc/session_process.h"
#include "whole_number.h"

#define EXPORT __attribute__((visibility("default")))

/* Start of the description of a partition; URI and statement follow, with zeros at their ends. */
#define PARTITION_MAGIC "braggline partition 1"

#define EXIT_NOT_STARTED 127

/* The process that executes the statements of an object. */
struct running {
	struct session_pool *pool; /* of its connection */
	pthread_mutex_t lock;
	struct session_process *process; /* of the last statement, for Cancel; NULL: none */
	uint64_t number;		 /* of the last statement of this process */
};

struct database {
	struct options options;
	bool initialized;
};

struct connection {
	struct options options;
	struct running running; /* of functions for metadata */
	bool initialized;
};

struct statement {
	struct options options;
	struct running running;
	char *sql;
};

/* Fail without a process. */
static AdbcStatusCode
refuse(struct AdbcError *error, AdbcStatusCode status, const char *sqlstate, const char *text)
{
	struct failure f;

	failure_set(&f, status, sqlstate,
		status == ADBC_STATUS_NOT_IMPLEMENTED ? -ENOTSUP : -EINVAL, "%s", text);
	return failure_return(&f, error);
}

static AdbcStatusCode
wrong_state(struct AdbcError *error, const char *text)
{
	return refuse(error, ADBC_STATUS_INVALID_STATE, "HY010", text);
}

static AdbcStatusCode
not_implemented(struct AdbcError *error, const char *text)
{
	return refuse(error, ADBC_STATUS_NOT_IMPLEMENTED, "HYC00", text);
}

static AdbcStatusCode
no_memory(struct AdbcError *error)
{
	struct failure f;

	failure_errno(&f, ENOMEM, "");
	return failure_return(&f, error);
}

/* ------------------------------------------------------------------ execution */

static void
running_set(struct running *r, struct session_process *process, uint64_t number)
{
	struct session_process *before;

	pthread_mutex_lock(&r->lock);
	before = r->process;
	r->process = process != NULL ? session_process_get(process) : NULL;
	r->number = number;
	pthread_mutex_unlock(&r->lock);
	session_process_put(before);
}

static AdbcStatusCode
running_cancel(struct running *r, struct AdbcError *error)
{
	struct session_process *process;
	uint64_t number;

	pthread_mutex_lock(&r->lock);
	process = r->process != NULL ? session_process_get(r->process) : NULL;
	number = r->number;
	pthread_mutex_unlock(&r->lock);
	if (process == NULL)
		return wrong_state(error, "there is no statement to be cancelled");
	session_process_cancel(process, number);
	session_process_put(process);
	return ADBC_STATUS_OK;
}

static int
start_process(const char *const *argv, struct session_process **process, struct failure *f)
{
	const int ret = session_process_start(argv, process);

	if (ret < 0)
		failure_set(f, ret == -ENOENT ? ADBC_STATUS_NOT_FOUND : ADBC_STATUS_IO, "08001",
			EXIT_NOT_STARTED,
			"cannot start the helper program %s: %s; set adbc.braggline.program to its "
			"path",
			argv[0], strerror(-ret));
	return ret;
}

/* Begin a statement in the process that waits for one, or in a new one. @return NULL: `f` is set */
static struct session_process *
begin(const char *const *argv, double deadline, struct running *running, const char *sql,
	struct failure *f)
{
	struct session_process *process = session_pool_take(running->pool, argv);
	bool is_new = process == NULL;
	uint64_t number;
	int ret;

	if (is_new && start_process(argv, &process, f) < 0)
		return NULL;
	ret = session_process_begin(process, sql, deadline, &number);
	if (ret == -EPIPE && !is_new) {
		/* it has ended since the last statement */
		session_process_end(process);
		if (start_process(argv, &process, f) < 0)
			return NULL;
		ret = session_process_begin(process, sql, deadline, &number);
	}
	/* why a new process has ended is read with its output */
	if (ret < 0 && ret != -EPIPE) {
		session_process_end(process);
		failure_errno(f, -ret, "cannot write to the helper program");
		return NULL;
	}
	running_set(running, process, number);
	return process;
}

/* Execute a statement. @param allow_damaged  damaged and incomplete files are no error */
static AdbcStatusCode
execute_allowing(const struct options *o, struct running *running, const char *sql,
	bool allow_damaged, struct ArrowArrayStream *stream, struct failure *f)
{
	struct command_line c;
	struct session_process *process;
	AdbcStatusCode status;

	status = command_line_make(&c, o, f);
	if (status != ADBC_STATUS_OK)
		return status;
	process = begin(c.argv, strtod(options_get(o, OPTION_DEADLINE), NULL), running, sql, f);
	command_line_free(&c);
	if (process == NULL)
		return f->status;
	return result_of_process(process, running->pool, allow_damaged, stream, f);
}

/* Execute a statement whose rows the user wants. */
static AdbcStatusCode
execute(const struct options *o, struct running *running, const char *sql,
	struct ArrowArrayStream *stream, struct failure *f)
{
	return execute_allowing(o, running, sql, options_true(o, OPTION_ALLOW_DAMAGED), stream, f);
}

/*
 * Execute a statement for its schema alone, which damaged files do not change.
 * @param is_empty  it has no rows: it is executed to its end
 */
static AdbcStatusCode
execute_schema(const struct options *o, struct running *running, const char *sql, bool is_empty,
	struct ArrowSchema *schema, struct failure *f)
{
	struct ArrowArrayStream stream;
	AdbcStatusCode status;
	int ret;

	status = execute_allowing(o, running, sql, true, &stream, f);
	if (status != ADBC_STATUS_OK)
		return status;
	ret = stream.get_schema(&stream, schema);
	if (is_empty)
		status = result_finish(&stream, f);
	else
		stream.release(&stream);
	running_set(running, NULL, 0);
	if (ret != 0)
		return failure_errno(f, ret, "cannot copy the schema");
	if (status != ADBC_STATUS_OK)
		schema->release(schema);
	return status;
}

/* ------------------------------------------------------------------ options */

static AdbcStatusCode
set_option(struct options *o, const char *name, const char *value, struct AdbcError *error)
{
	const enum option option = option_find(name);
	struct failure f = {.status = ADBC_STATUS_OK};

	if (option == OPTIONS) {
		failure_set(&f, ADBC_STATUS_NOT_IMPLEMENTED, "HYC00", -ENOTSUP,
			"option %s is unknown", name);
		return failure_return(&f, error);
	}
	options_set(o, option, value, &f);
	return failure_return(&f, error);
}

static AdbcStatusCode
set_option_int(struct options *o, const char *name, int64_t value, struct AdbcError *error)
{
	char text[32];

	snprintf(text, sizeof(text), "%lld", (long long)value);
	return set_option(o, name, text, error);
}

static AdbcStatusCode
set_option_double(struct options *o, const char *name, double value, struct AdbcError *error)
{
	char text[32];

	snprintf(text, sizeof(text), "%.17g", value);
	return set_option(o, name, text, error);
}

static AdbcStatusCode
unknown_option(const char *name, struct AdbcError *error)
{
	struct failure f;

	failure_set(&f, ADBC_STATUS_NOT_FOUND, "HY092", -ENOENT,
		"option %s is unknown, or has no value", name);
	return failure_return(&f, error);
}

/* The value of an option has another type. */
static AdbcStatusCode
wrong_value(const char *name, const char *expected, const char *value, struct AdbcError *error)
{
	struct failure f;

	failure_set(&f, ADBC_STATUS_INVALID_ARGUMENT, "HY024", -EINVAL,
		"%s: expected %s, found '%s'", name, expected, value);
	return failure_return(&f, error);
}

/* @return NULL: the option is unknown, or has no value */
static const char *
option_text(const struct options *o, const char *name)
{
	const enum option option = option_find(name);

	return option < OPTIONS ? options_get(o, option) : NULL;
}

/* @param length  in: room with the zero at the end; out: needed room */
static AdbcStatusCode
return_text(const char *text, char *value, size_t *length)
{
	const size_t size = strlen(text) + 1;

	if (value != NULL && size <= *length)
		memcpy(value, text, size);
	*length = size;
	return ADBC_STATUS_OK;
}

static AdbcStatusCode
get_option(const struct options *o, const char *name, char *value, size_t *length,
	struct AdbcError *error)
{
	const char *text = option_text(o, name);

	return text != NULL ? return_text(text, value, length) : unknown_option(name, error);
}

static AdbcStatusCode
get_option_double(const struct options *o, const char *name, double *value, struct AdbcError *error)
{
	const char *text = option_text(o, name);
	char *end;

	if (text == NULL)
		return unknown_option(name, error);
	*value = strtod(text, &end);
	return end != text && *end == '\0' ? ADBC_STATUS_OK
					   : wrong_value(name, "a number", text, error);
}

static AdbcStatusCode
get_option_int(const struct options *o, const char *name, int64_t *value, struct AdbcError *error)
{
	const char *text = option_text(o, name);
	uint64_t number;

	if (text == NULL)
		return unknown_option(name, error);
	/* no option is negative */
	if (!whole_number(text, 0, INT64_MAX, &number))
		return wrong_value(name, "a whole number from 0 to 2^63 - 1", text, error);
	*value = (int64_t)number;
	return ADBC_STATUS_OK;
}

/*
 * Define the functions for options of an object, except that for text.
 * @param object  Database, Connection or Statement
 * @param type    its struct
 */
#define DEFINE_OPTIONS(object, type)                                                               \
	static AdbcStatusCode type##_get_option_bytes(struct Adbc##object *o, const char *name,    \
		uint8_t *value, size_t *length, struct AdbcError *error)                           \
	{                                                                                          \
		return unknown_option(name, error);                                                \
	}                                                                                          \
	static AdbcStatusCode type##_get_option_double(                                            \
		struct Adbc##object *o, const char *name, double *value, struct AdbcError *error)  \
	{                                                                                          \
		struct type *t = o->private_data;                                                  \
		return t == NULL ? wrong_state(error, "no " #type ": not created, or released")    \
				 : get_option_double(&t->options, name, value, error);             \
	}                                                                                          \
	static AdbcStatusCode type##_get_option_int(                                               \
		struct Adbc##object *o, const char *name, int64_t *value, struct AdbcError *error) \
	{                                                                                          \
		struct type *t = o->private_data;                                                  \
		return t == NULL ? wrong_state(error, "no " #type ": not created, or released")    \
				 : get_option_int(&t->options, name, value, error);                \
	}                                                                                          \
	static AdbcStatusCode type##_set_option_bytes(struct Adbc##object *o, const char *name,    \
		const uint8_t *value, size_t size, struct AdbcError *error)                        \
	{                                                                                          \
		return not_implemented(error, "no option has bytes as value");                     \
	}                                                                                          \
	static AdbcStatusCode type##_set_option_double(                                            \
		struct Adbc##object *o, const char *name, double value, struct AdbcError *error)   \
	{                                                                                          \
		struct type *t = o->private_data;                                                  \
		return t == NULL ? wrong_state(error, "no " #type ": not created, or released")    \
				 : set_option_double(&t->options, name, value, error);             \
	}                                                                                          \
	static AdbcStatusCode type##_set_option_int(                                               \
		struct Adbc##object *o, const char *name, int64_t value, struct AdbcError *error)  \
	{                                                                                          \
		struct type *t = o->private_data;                                                  \
		return t == NULL ? wrong_state(error, "no " #type ": not created, or released")    \
				 : set_option_int(&t->options, name, value, error);                \
	}

DEFINE_OPTIONS(Database, database)
DEFINE_OPTIONS(Connection, connection)
DEFINE_OPTIONS(Statement, statement)

/* ------------------------------------------------------------------ database */

static AdbcStatusCode
database_new(struct AdbcDatabase *database, struct AdbcError *error)
{
	database->private_data = calloc(1, sizeof(struct database));
	return database->private_data != NULL ? ADBC_STATUS_OK : no_memory(error);
}

static AdbcStatusCode
database_set_option(
	struct AdbcDatabase *database, const char *name, const char *value, struct AdbcError *error)
{
	struct database *d = database->private_data;

	if (d == NULL)
		return wrong_state(error, "no database: not created, or released");
	return set_option(&d->options, name, value, error);
}

static AdbcStatusCode
database_get_option(struct AdbcDatabase *database, const char *name, char *value, size_t *length,
	struct AdbcError *error)
{
	const struct database *d = database->private_data;

	if (d == NULL)
		return wrong_state(error, "no database: not created, or released");
	return get_option(&d->options, name, value, length, error);
}

static AdbcStatusCode
database_init(struct AdbcDatabase *database, struct AdbcError *error)
{
	struct database *d = database->private_data;

	if (d == NULL || d->initialized)
		return wrong_state(
			error, "database: not created, released, or already initialized");
	if (options_sources(&d->options) == 0)
		return refuse(error, ADBC_STATUS_INVALID_ARGUMENT, "HY024",
			"uri: expected a folder or file of runs, or braggline://ADDRESS, found "
			"nothing");
	d->initialized = true;
	return ADBC_STATUS_OK;
}

static AdbcStatusCode
database_release(struct AdbcDatabase *database, struct AdbcError *error)
{
	struct database *d = database->private_data;

	if (d == NULL)
		return wrong_state(error, "no database: not created, or released");
	options_free(&d->options);
	free(d);
	database->private_data = NULL;
	return ADBC_STATUS_OK;
}

/* ------------------------------------------------------------------ connection */

static AdbcStatusCode
connection_new(struct AdbcConnection *connection, struct AdbcError *error)
{
	struct connection *c = calloc(1, sizeof(*c));

	if (c == NULL)
		return no_memory(error);
	c->running.pool = session_pool_create();
	if (c->running.pool == NULL) {
		free(c);
		return no_memory(error);
	}
	pthread_mutex_init(&c->running.lock, NULL);
	connection->private_data = c;
	return ADBC_STATUS_OK;
}

static AdbcStatusCode
connection_set_option(struct AdbcConnection *connection, const char *name, const char *value,
	struct AdbcError *error)
{
	struct connection *c = connection->private_data;

	if (c == NULL)
		return wrong_state(error, "no connection: not created, or released");
	if (strcmp(name, ADBC_CONNECTION_OPTION_AUTOCOMMIT) == 0)
		return value != NULL && strcmp(value, "true") == 0
			? ADBC_STATUS_OK
			: not_implemented(error, "runs are read-only: autocommit is always true");
	if (strcmp(name, ADBC_CONNECTION_OPTION_READ_ONLY) == 0)
		return value != NULL && strcmp(value, "true") == 0
			? ADBC_STATUS_OK
			: not_implemented(error, "runs are read-only");
	return set_option(&c->options, name, value, error);
}

static AdbcStatusCode
connection_get_option(struct AdbcConnection *connection, const char *name, char *value,
	size_t *length, struct AdbcError *error)
{
	static const struct {
		const char *name;
		const char *value;
	} constants[] = {
		{ADBC_CONNECTION_OPTION_AUTOCOMMIT, "true"},
		{ADBC_CONNECTION_OPTION_READ_ONLY, "true"},
		{ADBC_CONNECTION_OPTION_CATALOG, METADATA_CATALOG},
		{ADBC_CONNECTION_OPTION_DB_SCHEMA, METADATA_SCHEMA},
	};
	const struct connection *c = connection->private_data;
	size_t i;

	if (c == NULL)
		return wrong_state(error, "no connection: not created, or released");
	for (i = 0; i < sizeof(constants) / sizeof(constants[0]); i++) {
		if (strcmp(name, constants[i].name) == 0)
			return return_text(constants[i].value, value, length);
	}
	return get_option(&c->options, name, value, length, error);
}

static AdbcStatusCode
connection_init(
	struct AdbcConnection *connection, struct AdbcDatabase *database, struct AdbcError *error)
{
	struct connection *c = connection->private_data;
	const struct database *d = database->private_data;

	if (c == NULL || c->initialized || d == NULL || !d->initialized)
		return wrong_state(
			error, "expected a new connection and a database that is initialized");
	if (options_inherit(&c->options, &d->options) < 0)
		return no_memory(error);
	c->initialized = true;
	return ADBC_STATUS_OK;
}

static AdbcStatusCode
connection_release(struct AdbcConnection *connection, struct AdbcError *error)
{
	struct connection *c = connection->private_data;

	if (c == NULL)
		return wrong_state(error, "no connection: not created, or released");
	running_set(&c->running, NULL, 0);
	session_pool_close(c->running.pool);
	pthread_mutex_destroy(&c->running.lock);
	options_free(&c->options);
	free(c);
	connection->private_data = NULL;
	return ADBC_STATUS_OK;
}

/* @return NULL: `error` is set */
static struct connection *
connection_get(struct AdbcConnection *connection, struct AdbcError *error)
{
	struct connection *c = connection->private_data;

	if (c != NULL && c->initialized)
		return c;
	wrong_state(error, "connection is not initialized");
	return NULL;
}

static AdbcStatusCode
connection_no_transaction(struct AdbcConnection *connection, struct AdbcError *error)
{
	return wrong_state(error, "runs are read-only: there is no transaction");
}

static AdbcStatusCode
connection_cancel(struct AdbcConnection *connection, struct AdbcError *error)
{
	struct connection *c = connection_get(connection, error);

	return c != NULL ? running_cancel(&c->running, error) : ADBC_STATUS_INVALID_STATE;
}

static AdbcStatusCode
connection_get_info(struct AdbcConnection *connection, const uint32_t *codes, size_t nb,
	struct ArrowArrayStream *stream, struct AdbcError *error)
{
	struct failure f = {.status = ADBC_STATUS_OK};

	if (connection_get(connection, error) == NULL)
		return ADBC_STATUS_INVALID_STATE;
	metadata_info(codes, nb, stream, &f);
	return failure_return(&f, error);
}

static AdbcStatusCode
connection_get_table_types(
	struct AdbcConnection *connection, struct ArrowArrayStream *stream, struct AdbcError *error)
{
	struct failure f = {.status = ADBC_STATUS_OK};

	if (connection_get(connection, error) == NULL)
		return ADBC_STATUS_INVALID_STATE;
	metadata_table_types(stream, &f);
	return failure_return(&f, error);
}

static AdbcStatusCode
connection_get_table_schema(struct AdbcConnection *connection, const char *catalog,
	const char *db_schema, const char *table, struct ArrowSchema *schema,
	struct AdbcError *error)
{
	struct connection *c = connection_get(connection, error);
	struct failure f = {.status = ADBC_STATUS_OK};
	char *sql;

	if (c == NULL)
		return ADBC_STATUS_INVALID_STATE;
	if (table == NULL)
		return refuse(error, ADBC_STATUS_INVALID_ARGUMENT, "HY009",
			"expected the name of a table, found none");
	sql = metadata_table_sql(catalog, db_schema, table);
	if (sql == NULL)
		return no_memory(error);
	execute_schema(&c->options, &c->running, sql, true, schema, &f);
	free(sql);
	return failure_return(&f, error);
}

/* Get the text of a result of one row. @return NULL: `f` is set */
static char *
read_text(struct connection *c, const char *sql, struct failure *f)
{
	struct ArrowArrayStream stream;
	struct ArrowArray array;
	const int32_t *offset;
	char *text = NULL;

	/* damaged files are reported with the result that the user gets */
	if (execute_allowing(&c->options, &c->running, sql, true, &stream, f) != ADBC_STATUS_OK)
		return NULL;
	if (stream.get_next(&stream, &array) == 0 && array.release != NULL) {
		if (array.n_children == 1 && array.length == 1 &&
			array.children[0]->n_buffers == 3) {
			offset = array.children[0]->buffers[1];
			text = strndup((const char *)array.children[0]->buffers[2] + offset[0],
				(size_t)(offset[1] - offset[0]));
		}
		array.release(&array);
	}
	if (result_finish(&stream, f) != ADBC_STATUS_OK) {
		free(text);
		return NULL;
	}
	if (text == NULL)
		failure_set(f, ADBC_STATUS_INTERNAL, "HY000", 0,
			"the list of tables: expected one text, found another result");
	return text;
}

static AdbcStatusCode
connection_get_objects(struct AdbcConnection *connection, int depth, const char *catalog,
	const char *db_schema, const char *table, const char **table_types, const char *column,
	struct ArrowArrayStream *stream, struct AdbcError *error)
{
	const struct metadata_filter filter = {
		depth, catalog, db_schema, table, table_types, column};
	struct connection *c = connection_get(connection, error);
	struct failure f = {.status = ADBC_STATUS_OK};
	char *sql, *names = NULL;

	if (c == NULL)
		return ADBC_STATUS_INVALID_STATE;
	if (depth < ADBC_OBJECT_DEPTH_ALL || depth > ADBC_OBJECT_DEPTH_TABLES)
		return refuse(error, ADBC_STATUS_INVALID_ARGUMENT, "HY024",
			"depth of GetObjects: expected 0 to 3");
	if (depth == ADBC_OBJECT_DEPTH_ALL) {
		sql = metadata_names_sql(&filter);
		if (sql == NULL)
			return no_memory(error);
		names = read_text(c, sql, &f);
		free(sql);
		if (names == NULL)
			return failure_return(&f, error);
	}
	sql = metadata_objects_sql(&filter, names);
	free(names);
	if (sql == NULL)
		return no_memory(error);
	execute(&c->options, &c->running, sql, stream, &f);
	free(sql);
	return failure_return(&f, error);
}

static AdbcStatusCode
connection_read_partition(struct AdbcConnection *connection, const uint8_t *partition, size_t size,
	struct ArrowArrayStream *stream, struct AdbcError *error)
{
	struct connection *c = connection_get(connection, error);
	struct failure f = {.status = ADBC_STATUS_OK};
	struct options options = {0};
	const char *part[3], *at = (const char *)partition;
	size_t i, length;

	if (c == NULL)
		return ADBC_STATUS_INVALID_STATE;
	for (i = 0; i < 3; i++) {
		length = strnlen(at, size);
		if (length == size)
			break;
		part[i] = at;
		at += length + 1;
		size -= length + 1;
	}
	if (i < 3 || size > 0 || strcmp(part[0], PARTITION_MAGIC) != 0)
		return refuse(error, ADBC_STATUS_INVALID_ARGUMENT, "HY024",
			"the description of a partition: expected one of ExecutePartitions of this "
			"driver");
	if (options_inherit(&options, &c->options) < 0)
		failure_errno(&f, ENOMEM, "");
	else if (options_set(&options, OPTION_URI, part[1], &f) == ADBC_STATUS_OK)
		execute(&options, &c->running, part[2], stream, &f);
	options_free(&options);
	return failure_return(&f, error);
}

/* ------------------------------------------------------------------ statement */

static AdbcStatusCode
statement_new(
	struct AdbcConnection *connection, struct AdbcStatement *statement, struct AdbcError *error)
{
	const struct connection *c = connection_get(connection, error);
	struct statement *s;

	if (c == NULL)
		return ADBC_STATUS_INVALID_STATE;
	s = calloc(1, sizeof(*s));
	if (s == NULL || options_inherit(&s->options, &c->options) < 0) {
		if (s != NULL)
			options_free(&s->options);
		free(s);
		return no_memory(error);
	}
	s->running.pool = session_pool_get(c->running.pool);
	pthread_mutex_init(&s->running.lock, NULL);
	statement->private_data = s;
	return ADBC_STATUS_OK;
}

static AdbcStatusCode
statement_release(struct AdbcStatement *statement, struct AdbcError *error)
{
	struct statement *s = statement->private_data;

	if (s == NULL)
		return wrong_state(error, "no statement: not created, or released");
	running_set(&s->running, NULL, 0);
	session_pool_put(s->running.pool);
	pthread_mutex_destroy(&s->running.lock);
	options_free(&s->options);
	free(s->sql);
	free(s);
	statement->private_data = NULL;
	return ADBC_STATUS_OK;
}

static AdbcStatusCode
statement_set_option(struct AdbcStatement *statement, const char *name, const char *value,
	struct AdbcError *error)
{
	struct statement *s = statement->private_data;

	if (s == NULL)
		return wrong_state(error, "no statement: not created, or released");
	return set_option(&s->options, name, value, error);
}

static AdbcStatusCode
statement_get_option(struct AdbcStatement *statement, const char *name, char *value, size_t *length,
	struct AdbcError *error)
{
	const struct statement *s = statement->private_data;

	if (s == NULL)
		return wrong_state(error, "no statement: not created, or released");
	return get_option(&s->options, name, value, length, error);
}

static AdbcStatusCode
statement_set_sql(struct AdbcStatement *statement, const char *sql, struct AdbcError *error)
{
	struct statement *s = statement->private_data;
	char *copy;

	if (s == NULL)
		return wrong_state(error, "no statement: not created, or released");
	copy = strdup(sql);
	if (copy == NULL)
		return no_memory(error);
	free(s->sql);
	s->sql = copy;
	return ADBC_STATUS_OK;
}

/* @return NULL: `error` is set */
static struct statement *
statement_get(struct AdbcStatement *statement, struct AdbcError *error)
{
	struct statement *s = statement->private_data;

	if (s != NULL && s->sql != NULL)
		return s;
	wrong_state(error, "statement has no query: expected SetSqlQuery before");
	return NULL;
}

/* Statements have no parameters, so there is nothing to prepare. */
static AdbcStatusCode
statement_prepare(struct AdbcStatement *statement, struct AdbcError *error)
{
	return statement_get(statement, error) != NULL ? ADBC_STATUS_OK : ADBC_STATUS_INVALID_STATE;
}

static AdbcStatusCode
statement_execute_query(struct AdbcStatement *statement, struct ArrowArrayStream *stream,
	int64_t *rows_affected, struct AdbcError *error)
{
	struct statement *s = statement_get(statement, error);
	struct failure f = {.status = ADBC_STATUS_OK};
	struct ArrowArrayStream unwanted;

	if (s == NULL)
		return ADBC_STATUS_INVALID_STATE;
	if (rows_affected != NULL)
		*rows_affected = -1;
	/* without a stream, a SELECT has no effect but its errors */
	if (execute(&s->options, &s->running, s->sql, stream != NULL ? stream : &unwanted, &f) ==
			ADBC_STATUS_OK &&
		stream == NULL)
		result_finish(&unwanted, &f);
	return failure_return(&f, error);
}

static AdbcStatusCode
statement_execute_schema(
	struct AdbcStatement *statement, struct ArrowSchema *schema, struct AdbcError *error)
{
	struct statement *s = statement_get(statement, error);
	struct failure f = {.status = ADBC_STATUS_OK};

	if (s == NULL)
		return ADBC_STATUS_INVALID_STATE;
	execute_schema(&s->options, &s->running, s->sql, false, schema, &f);
	return failure_return(&f, error);
}

static AdbcStatusCode
statement_cancel(struct AdbcStatement *statement, struct AdbcError *error)
{
	struct statement *s = statement->private_data;

	if (s == NULL)
		return wrong_state(error, "no statement: not created, or released");
	return running_cancel(&s->running, error);
}

/* Memory of AdbcPartitions. */
struct partitions {
	const uint8_t **bytes;
	size_t *length;
	size_t nb;
};

static void
partitions_free(struct partitions *p)
{
	size_t i;

	for (i = 0; i < p->nb; i++)
		free((void *)(uintptr_t)p->bytes[i]);
	free(p->bytes);
	free(p->length);
	free(p);
}

static void
partitions_release(struct AdbcPartitions *partitions)
{
	partitions_free(partitions->private_data);
	partitions->release = NULL;
}

/* Write the description of a partition. @return 0; -ENOMEM */
static int
partitions_add(struct partitions *p, const char *uri, const char *sql)
{
	char *bytes = NULL;
	size_t size;
	FILE *out = open_memstream(&bytes, &size);

	if (out == NULL)
		return -ENOMEM;
	fprintf(out, PARTITION_MAGIC "%c%s%c%s%c", '\0', uri, '\0', sql, '\0');
	if (fclose(out) != 0) {
		free(bytes);
		return -ENOMEM;
	}
	p->bytes[p->nb] = (const uint8_t *)bytes;
	p->length[p->nb++] = size;
	return 0;
}

/*
 * Make the partitions of a statement: one for each source if the user wants it, because only the
 * user knows whether the rows of all sources together are those of the statement. Otherwise one.
 * @return NULL: not enough memory
 */
static struct partitions *
partitions_new(const struct statement *s)
{
	const bool by_source = strcmp(options_get(&s->options, OPTION_PARTITION_BY), "source") == 0;
	const size_t nb = by_source ? options_sources(&s->options) : 1;
	struct partitions *p = calloc(1, sizeof(*p));
	struct options one = {0};
	size_t i;
	int ret = 0;

	if (p == NULL)
		return NULL;
	p->bytes = calloc(nb, sizeof(p->bytes[0]));
	p->length = calloc(nb, sizeof(p->length[0]));
	if (p->bytes == NULL || p->length == NULL)
		ret = -ENOMEM;
	for (i = 0; i < nb && ret == 0; i++) {
		ret = by_source ? options_one_source(&one, &s->options, i) : 0;
		if (ret == 0)
			ret = partitions_add(
				p, options_get(by_source ? &one : &s->options, OPTION_URI), s->sql);
	}
	options_free(&one);
	if (ret == 0)
		return p;
	partitions_free(p);
	return NULL;
}

static AdbcStatusCode
statement_execute_partitions(struct AdbcStatement *statement, struct ArrowSchema *schema,
	struct AdbcPartitions *partitions, int64_t *rows_affected, struct AdbcError *error)
{
	struct statement *s = statement_get(statement, error);
	struct failure f = {.status = ADBC_STATUS_OK};
	struct options first = {0};
	struct partitions *p;

	if (s == NULL)
		return ADBC_STATUS_INVALID_STATE;
	p = partitions_new(s);
	if (p == NULL || options_inherit(&first, &s->options) < 0)
		failure_errno(&f, ENOMEM, "");
	/* the schema is that of the first one */
	else if (options_set(&first, OPTION_URI,
			 (const char *)p->bytes[0] + sizeof(PARTITION_MAGIC), &f) == ADBC_STATUS_OK)
		execute_schema(&first, &s->running, s->sql, false, schema, &f);
	options_free(&first);
	if (f.status != ADBC_STATUS_OK) {
		if (p != NULL)
			partitions_free(p);
		return failure_return(&f, error);
	}
	if (rows_affected != NULL)
		*rows_affected = -1;
	*partitions = (struct AdbcPartitions){
		.num_partitions = p->nb,
		.partitions = p->bytes,
		.partition_lengths = p->length,
		.private_data = p,
		.release = partitions_release,
	};
	return ADBC_STATUS_OK;
}

static AdbcStatusCode
statement_bind(struct AdbcStatement *statement, struct ArrowArray *array,
	struct ArrowSchema *schema, struct AdbcError *error)
{
	return not_implemented(error, "statements have no parameters");
}

static AdbcStatusCode
statement_bind_stream(
	struct AdbcStatement *statement, struct ArrowArrayStream *stream, struct AdbcError *error)
{
	return not_implemented(error, "statements have no parameters");
}

static AdbcStatusCode
statement_get_parameter_schema(
	struct AdbcStatement *statement, struct ArrowSchema *schema, struct AdbcError *error)
{
	return not_implemented(error, "statements have no parameters");
}

static AdbcStatusCode
statement_set_substrait_plan(
	struct AdbcStatement *statement, const uint8_t *plan, size_t size, struct AdbcError *error)
{
	return not_implemented(error, "Substrait plans are not supported: expected SQL");
}

/* ------------------------------------------------------------------ driver */

static int
error_get_detail_count(const struct AdbcError *error)
{
	return 0;
}

static struct AdbcErrorDetail
error_get_detail(const struct AdbcError *error, int index)
{
	return (struct AdbcErrorDetail){0};
}

static AdbcStatusCode
driver_release(struct AdbcDriver *driver, struct AdbcError *error)
{
	driver->release = NULL;
	return ADBC_STATUS_OK;
}

EXPORT AdbcStatusCode AdbcDriverInit(int version, void *driver, struct AdbcError *error);
EXPORT AdbcStatusCode AdbcDriverBragglineInit(int version, void *driver, struct AdbcError *error);

AdbcStatusCode
AdbcDriverInit(int version, void *driver, struct AdbcError *error)
{
	static const struct AdbcDriver functions = {
		.release = driver_release,
		.DatabaseInit = database_init,
		.DatabaseNew = database_new,
		.DatabaseSetOption = database_set_option,
		.DatabaseRelease = database_release,
		.ConnectionCommit = connection_no_transaction,
		.ConnectionGetInfo = connection_get_info,
		.ConnectionGetObjects = connection_get_objects,
		.ConnectionGetTableSchema = connection_get_table_schema,
		.ConnectionGetTableTypes = connection_get_table_types,
		.ConnectionInit = connection_init,
		.ConnectionNew = connection_new,
		.ConnectionSetOption = connection_set_option,
		.ConnectionReadPartition = connection_read_partition,
		.ConnectionRelease = connection_release,
		.ConnectionRollback = connection_no_transaction,
		.StatementBind = statement_bind,
		.StatementBindStream = statement_bind_stream,
		.StatementExecuteQuery = statement_execute_query,
		.StatementExecutePartitions = statement_execute_partitions,
		.StatementGetParameterSchema = statement_get_parameter_schema,
		.StatementNew = statement_new,
		.StatementPrepare = statement_prepare,
		.StatementRelease = statement_release,
		.StatementSetOption = statement_set_option,
		.StatementSetSqlQuery = statement_set_sql,
		.StatementSetSubstraitPlan = statement_set_substrait_plan,
		.ErrorGetDetailCount = error_get_detail_count,
		.ErrorGetDetail = error_get_detail,
		.ErrorFromArrayStream = result_error,
		.DatabaseGetOption = database_get_option,
		.DatabaseGetOptionBytes = database_get_option_bytes,
		.DatabaseGetOptionDouble = database_get_option_double,
		.DatabaseGetOptionInt = database_get_option_int,
		.DatabaseSetOptionBytes = database_set_option_bytes,
		.DatabaseSetOptionDouble = database_set_option_double,
		.DatabaseSetOptionInt = database_set_option_int,
		.ConnectionCancel = connection_cancel,
		.ConnectionGetOption = connection_get_option,
		.ConnectionGetOptionBytes = connection_get_option_bytes,
		.ConnectionGetOptionDouble = connection_get_option_double,
		.ConnectionGetOptionInt = connection_get_option_int,
		.ConnectionSetOptionBytes = connection_set_option_bytes,
		.ConnectionSetOptionDouble = connection_set_option_double,
		.ConnectionSetOptionInt = connection_set_option_int,
		.StatementCancel = statement_cancel,
		.StatementExecuteSchema = statement_execute_schema,
		.StatementGetOption = statement_get_option,
		.StatementGetOptionBytes = statement_get_option_bytes,
		.StatementGetOptionDouble = statement_get_option_double,
		.StatementGetOptionInt = statement_get_option_int,
		.StatementSetOptionBytes = statement_set_option_bytes,
		.StatementSetOptionDouble = statement_set_option_double,
		.StatementSetOptionInt = statement_set_option_int,
	};
	struct AdbcDriver *d = driver;
	void *manager;

	if (version != ADBC_VERSION_1_0_0 && version != ADBC_VERSION_1_1_0)
		return not_implemented(error, "expected version 1.0.0 or 1.1.0 of ADBC");
	/* a table of version 1.0.0 is shorter */
	manager = d->private_manager;
	memcpy(d, &functions,
		version == ADBC_VERSION_1_0_0 ? ADBC_DRIVER_1_0_0_SIZE : sizeof(functions));
	d->private_manager = manager;
	return ADBC_STATUS_OK;
}

/* The name that driver managers derive from that of the library. */
AdbcStatusCode
AdbcDriverBragglineInit(int version, void *driver, struct AdbcError *error)
{
	return AdbcDriverInit(version, driver, error);
}
