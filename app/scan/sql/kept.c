/* SPDX-License-Identifier: BSD-3-Clause */

#include <stdlib.h>
#include <string.h>

#include "sql/kept.h"

bool
sql_kept_take(struct sql_kept_list *list, const char *sql, struct sql_kept *kept)
{
	size_t i;

	for (i = 0; i < list->nb; i++) {
		if (strcmp(list->entry[i].sql, sql) != 0)
			continue;
		*kept = list->entry[i];
		list->nb--;
		memmove(&list->entry[i], &list->entry[i + 1],
			(list->nb - i) * sizeof(list->entry[0]));
		return true;
	}
	return false;
}

void
sql_kept_put(struct sql_kept_list *list, const struct duckdb_api *api, const struct sql_kept *kept)
{
	if (list->nb == SQL_KEPT_MAX)
		sql_kept_free(&list->entry[--list->nb], api);
	memmove(&list->entry[1], &list->entry[0], list->nb * sizeof(list->entry[0]));
	list->entry[0] = *kept;
	list->nb++;
}

void
sql_kept_clear(struct sql_kept_list *list, const struct duckdb_api *api)
{
	while (list->nb > 0)
		sql_kept_free(&list->entry[--list->nb], api);
}

void
sql_kept_free(struct sql_kept *kept, const struct duckdb_api *api)
{
	uint64_t i;

	if (kept->statement != NULL)
		api->destroy_prepare(&kept->statement);
	for (i = 0; i < kept->nb_columns; i++)
		free(kept->name[i]);
	free(kept->name);
	free(kept->type);
	free(kept->deferred);
	sql_statement_free(&kept->parsed);
	free(kept->sql);
	*kept = (struct sql_kept){.nb_columns = 0};
}
