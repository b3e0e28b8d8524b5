/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Lists that stay in their files while a statement is executed.
 *
 * The engine gets a handle of 8 bytes in place of each value of a deferred column, in a vector of
 * the column's own type: a list has the handle's bytes as its items, a BLOB has them as its bytes.
 * The statement passes the handles on unchanged (sql/defer.h). In the result of the engine, each
 * handle is resolved to the items in the mapped file.
 *
 * Handles are valid for one statement. Any thread may call the functions, except where noted.
 */
#ifndef SQL_LISTS_H
#define SQL_LISTS_H

#include <assert.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "arrow/reader.h"

/** Handle that the engine gets in place of a list. */
struct sql_handle {
	uint32_t source; /**< number of sql_lists_add() */
	uint32_t row;	 /**< of the batch */
};
static_assert(sizeof(struct sql_handle) == 8, "all widths of items divide 8");

/** A column of a batch. */
struct sql_list_source {
	const int32_t *offsets; /**< rows + 1 */
	const uint8_t *data;
	uint32_t rows;
	uint32_t items; /**< in `data` */
	uint32_t width; /**< bytes of an item */
};

/** The columns of batches that handles refer to. */
struct sql_lists {
	pthread_mutex_t lock;
	struct sql_list_source *source;
	uint32_t nb;
	uint32_t room;
};

/** Items of a row. */
struct sql_list_range {
	const uint8_t *bytes; /**< NULL: none */
	uint32_t items;
};

void sql_lists_init(struct sql_lists *l);

/** Free everything. No thread may use the handles. */
void sql_lists_free(struct sql_lists *l);

/** Forget all handles: those of the statement before. One thread, between two statements. */
void sql_lists_clear(struct sql_lists *l);

/** Whether a column can be deferred: the number of its rows fits into a handle. */
bool sql_lists_fit(enum arrow_type type, uint64_t rows);

/**
 * Add a column of a batch, of the type ARROW_LIST or ARROW_BINARY.
 * @param number  out: sql_handle.source of its rows
 * @return 0; -ENOMEM
 */
int sql_lists_add(struct sql_lists *l, const struct arrow_column *c, uint32_t *number);

/**
 * Resolve handles. Offsets in the file are checked again, since another process may have changed
 * them.
 * @param validity  one bit per row, 1 = valid; NULL: no row is null
 * @param width     bytes of an item
 * @param range     out: of each row; those of rows that are null have no items
 * @return 0; -EBADMSG: a handle or an offset is wrong
 */
int sql_lists_resolve(struct sql_lists *l, const struct sql_handle *handle,
	const uint64_t *validity, uint64_t rows, uint32_t width, struct sql_list_range *range);

#endif /* SQL_LISTS_H */
