/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Results of ADBC's functions for metadata: constant ones as streams, others as statements.
 *
 * A run is a schema of the catalog `memory`, with the tables `frames` and `images`. Runs whose
 * names are no schemas (README.rst, "Queries") are left out, and so are the tables of all runs.
 */
#ifndef ADBC_METADATA_H
#define ADBC_METADATA_H

#include "adbc/failure.h"

#define METADATA_CATALOG "memory"
#define METADATA_SCHEMA	 "main"

/** Arguments of GetObjects; NULL: all. All but `types` are patterns of LIKE. */
struct metadata_filter {
	int depth; /**< ADBC_OBJECT_DEPTH_ALL and others */
	const char *catalog;
	const char *schema;
	const char *table;
	const char **types; /**< ends in NULL */
	const char *column;
};

/** GetInfo. @param codes  NULL: all */
AdbcStatusCode metadata_info(
	const uint32_t *codes, size_t nb, struct ArrowArrayStream *stream, struct failure *f);

/** GetTableTypes. */
AdbcStatusCode metadata_table_types(struct ArrowArrayStream *stream, struct failure *f);

/** Statement whose result has the columns of a table. @return NULL: not enough memory */
char *metadata_table_sql(const char *catalog, const char *schema, const char *table);

/**
 * Statement that lists the tables whose columns GetObjects needs: one row, one text, which is the
 * end of the next statement.
 * @return NULL: not enough memory
 */
char *metadata_names_sql(const struct metadata_filter *filter);

/**
 * Statement of GetObjects.
 * @param names  text of metadata_names_sql(); NULL: no columns are needed
 * @return NULL: not enough memory
 */
char *metadata_objects_sql(const struct metadata_filter *filter, const char *names);

#endif /* ADBC_METADATA_H */
