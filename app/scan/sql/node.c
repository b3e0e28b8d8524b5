/* SPDX-License-Identifier: BSD-3-Clause */

#include <string.h>

#include "sql/statement.h"

int
sql_node_child(const struct sql_statement *s, int node, const char *key)
{
	int i;

	if (node < 0)
		return -1;
	for (i = s->node[node].child; i >= 0; i = s->node[i].next) {
		if (strcmp(s->node[i].key, key) == 0)
			return i;
	}
	return -1;
}

const char *
sql_node_text(const struct sql_statement *s, int node, const char *key)
{
	const int child = sql_node_child(s, node, key);

	return child >= 0 && s->node[child].text != NULL ? s->node[child].text : "";
}

bool
sql_node_is(const struct sql_statement *s, int node, const char *key, const char *text)
{
	return strcmp(sql_node_text(s, node, key), text) == 0;
}

bool
sql_node_is_empty(const struct sql_statement *s, int node)
{
	return node < 0 || (s->node[node].child < 0 && s->node[node].text == NULL);
}
