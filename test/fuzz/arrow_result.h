/* SPDX-License-Identifier: BSD-3-Clause */
/* Arrow results in fuzz targets: an example for seeds, and a reader of everything. */
#ifndef ARROW_RESULT_H
#define ARROW_RESULT_H

#include <stdlib.h>

#include "sql/arrow_c.h"
#include "sql/ipc_type.h"

static volatile uint64_t sink;

static inline void
read_bytes(const void *data, uint64_t size)
{
	uint64_t sum = 0;

	for (uint64_t i = 0; i < size; i++)
		sum += ((const uint8_t *)data)[i];
	sink += sum;
}

/* Read all that a consumer may read of an array. */
static inline void
read_array(const struct ArrowSchema *f, const struct ArrowArray *a, unsigned int depth)
{
	struct ipc_type t;
	uint64_t end;

	if (depth > IPC_DEPTH_MAX + 2 || ipc_type_read(f->format, &t) < 0)
		abort();
	if (a->n_buffers > 0 && a->buffers[0] != NULL && t.layout != LAYOUT_UNION)
		read_bytes(a->buffers[0], (a->length + 7) / 8);
	if (t.layout == LAYOUT_BITS)
		read_bytes(a->buffers[1], (a->length + 7) / 8);
	if (t.layout == LAYOUT_FIXED)
		read_bytes(a->buffers[1], (uint64_t)a->length * t.width);
	if (t.layout == LAYOUT_UNION)
		read_bytes(a->buffers[0], a->length);
	if (t.layout == LAYOUT_TEXT || t.layout == LAYOUT_LIST) {
		read_bytes(a->buffers[1], (uint64_t)(a->length + 1) * t.width);
		end = t.width == 4 ? (uint64_t)((const int32_t *)a->buffers[1])[a->length]
				   : (uint64_t)((const int64_t *)a->buffers[1])[a->length];
		if (t.layout == LAYOUT_TEXT)
			read_bytes(a->buffers[2], end);
		else if (end > (uint64_t)a->children[0]->length)
			abort();
	}
	if (a->n_children != f->n_children)
		abort();
	for (int64_t i = 0; i < f->n_children; i++)
		read_array(f->children[i], a->children[i], depth + 1);
	if ((f->dictionary != NULL) != (a->dictionary != NULL))
		abort();
	if (f->dictionary != NULL)
		read_array(f->dictionary, a->dictionary, depth + 1);
}

/* A result with a number, a text, a list, a structure and a dictionary. */
static inline void
result_example(void (*use)(const struct ArrowSchema *schema, const struct ArrowArray *batch))
{
	static int32_t offsets[] = {0, 1, 3}, numbers[] = {5, 6, 7};
	static uint8_t index[] = {1, 0}, valid[] = {1};
	static const void *none[] = {NULL}, *ints[] = {valid, numbers},
			  *texts[] = {NULL, offsets, "abc"}, *lists[] = {NULL, offsets},
			  *indexes[] = {NULL, index};
	struct ArrowSchema item = {"i", "item", NULL, ARROW_FLAG_NULLABLE}, *items[] = {&item},
			   words = {"u", "", NULL, 0};
	struct ArrowSchema columns[] = {{"i", "n", NULL, ARROW_FLAG_NULLABLE}, {"u", "t"},
		{"+l", "l", NULL, 0, 1, items}, {"+s", "s", NULL, 0, 1, items},
		{"C", "e", NULL, 0, 0, NULL, &words}};
	struct ArrowSchema *all[] = {
		&columns[0], &columns[1], &columns[2], &columns[3], &columns[4]};
	struct ArrowSchema schema = {"+s", "", NULL, 0, 5, all};
	struct ArrowArray child = {3, 0, 0, 2, 0, (const void *[]){NULL, numbers}},
			  *children[] = {&child}, dictionary = {2, 0, 0, 3, 0, texts};
	struct ArrowArray arrays[] = {{2, 1, 0, 2, 0, ints}, {2, 0, 0, 3, 0, texts},
		{2, 0, 0, 2, 1, lists, children}, {2, 0, 0, 1, 1, none, children},
		{2, 0, 0, 2, 0, indexes, NULL, &dictionary}};
	struct ArrowArray *parts[] = {&arrays[0], &arrays[1], &arrays[2], &arrays[3], &arrays[4]};
	struct ArrowArray batch = {2, 0, 0, 1, 5, none, parts};

	use(&schema, &batch);
}

#endif /* ARROW_RESULT_H */
