/* SPDX-License-Identifier: BSD-3-Clause */

#include <stdlib.h>
#include <string.h>

#include "sql/prepared.h"

bool
sql_prepared_take(struct sql_prepared_list *list, const char *sql, struct sql_prepared *p)
{
	size_t i;

	for (i = 0; i < list->nb; i++) {
		if (strcmp(list->entry[i].sql, sql) != 0)
			continue;
		*p = list->entry[i];
		list->nb--;
		memmove(&list->entry[i], &list->entry[i + 1],
			(list->nb - i) * sizeof(list->entry[0]));
		return true;
	}
	return false;
}

void
sql_prepared_put(
	struct sql_prepared_list *list, const struct duckdb_api *api, const struct sql_prepared *p)
{
	if (list->nb == SQL_PREPARED_MAX)
		sql_prepared_free(&list->entry[--list->nb], api);
	memmove(&list->entry[1], &list->entry[0], list->nb * sizeof(list->entry[0]));
	list->entry[0] = *p;
	list->nb++;
}

void
sql_prepared_clear(struct sql_prepared_list *list, const struct duckdb_api *api)
{
	while (list->nb > 0)
		sql_prepared_free(&list->entry[--list->nb], api);
}

void
sql_prepared_free(struct sql_prepared *p, const struct duckdb_api *api)
{
	uint64_t i;

	if (p->statement != NULL)
		api->destroy_prepare(&p->statement);
	for (i = 0; i < p->nb_columns; i++)
		free(p->name[i]);
	free(p->name);
	free(p->type);
	free(p->deferred);
	sql_statement_free(&p->parsed);
	free(p->sql);
	*p = (struct sql_prepared){.nb_columns = 0};
}
