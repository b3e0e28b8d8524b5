/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <stdlib.h>

#include "sql/lists.h"
#include "sql/offsets.h"

void
sql_lists_init(struct sql_lists *l)
{
	*l = (struct sql_lists){.source = NULL};
	pthread_mutex_init(&l->lock, NULL);
}

void
sql_lists_free(struct sql_lists *l)
{
	free(l->source);
	l->source = NULL;
	l->nb = l->room = 0;
	pthread_mutex_destroy(&l->lock);
}

void
sql_lists_clear(struct sql_lists *l)
{
	l->nb = 0;
}

bool
sql_lists_fit(enum arrow_type type, uint64_t rows)
{
	return (type == ARROW_LIST || type == ARROW_BINARY) && rows <= UINT32_MAX;
}

int
sql_lists_add(struct sql_lists *l, const struct arrow_column *c, uint32_t *number)
{
	struct sql_list_source *sources;
	int ret = 0;

	pthread_mutex_lock(&l->lock);
	if (l->nb == l->room) {
		const uint64_t room = l->room > 0 ? 2 * (uint64_t)l->room : 64;

		sources = room <= UINT32_MAX ? realloc(l->source, room * sizeof(*sources)) : NULL;
		if (sources == NULL) {
			ret = -ENOMEM;
			goto out;
		}
		l->source = sources;
		l->room = (uint32_t)room;
	}
	l->source[l->nb] = (struct sql_list_source){
		.offsets = c->offsets,
		.data = c->data,
		.rows = c->offsets != NULL ? (uint32_t)c->rows : 0,
		/* offsets are of 31 bits, so no row has items beyond */
		.items = c->items < INT32_MAX ? (uint32_t)c->items : INT32_MAX,
		.width = c->field->type == ARROW_LIST ? arrow_type_width(c->field->item) : 1,
	};
	*number = l->nb++;
out:
	pthread_mutex_unlock(&l->lock);
	return ret;
}

/* Get the items of a row, with the lock. */
static int
resolve(const struct sql_lists *l, const struct sql_handle *h, uint32_t width,
	struct sql_list_range *range)
{
	const struct sql_list_source *s;
	uint64_t start, end;

	if (h->source >= l->nb)
		return -EBADMSG;
	s = &l->source[h->source];
	if (h->row >= s->rows || s->width != width)
		return -EBADMSG;
	if (!offsets_range(s->offsets, h->row, s->items, &start, &end))
		return -EBADMSG;
	range->bytes = s->data + start * width;
	range->items = (uint32_t)(end - start);
	return 0;
}

int
sql_lists_resolve(struct sql_lists *l, const struct sql_handle *handle, const uint64_t *validity,
	uint64_t rows, uint32_t width, struct sql_list_range *range)
{
	uint64_t i;
	int ret = 0;

	pthread_mutex_lock(&l->lock);
	for (i = 0; i < rows && ret == 0; i++) {
		range[i] = (struct sql_list_range){.bytes = NULL};
		if (validity == NULL || validity[i / 64] >> i % 64 & 1)
			ret = resolve(l, &handle[i], width, &range[i]);
	}
	pthread_mutex_unlock(&l->lock);
	return ret;
}
