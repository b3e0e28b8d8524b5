/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "stream/content.h"

void
stream_contents_free(struct stream_contents *c)
{
	free(c->at);
	memset(c, 0, sizeof(*c));
}

/* @return index of the first entry that is not below a number */
static size_t
find(const struct stream_contents *c, uint64_t sequence)
{
	size_t low = 0, high = c->nb, middle;

	if (c->nb > 0 && c->at[c->nb - 1].sequence < sequence)
		return c->nb;
	while (low < high) {
		middle = low + (high - low) / 2;
		if (c->at[middle].sequence < sequence)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static int
make_room(struct stream_contents *c)
{
	const size_t room = 2 * c->room + 16;
	struct stream_content *more;

	if (c->nb < c->room)
		return 0;
	more = realloc(c->at, room * sizeof(*more));
	if (more == NULL)
		return -ENOMEM;
	c->at = more;
	c->room = room;
	return 0;
}

int
stream_contents_append(struct stream_contents *c, uint64_t sequence, uint64_t crc)
{
	if (make_room(c) < 0)
		return -ENOMEM;
	c->at[c->nb++] = (struct stream_content){sequence, crc};
	return 0;
}

static int
by_sequence(const void *a, const void *b)
{
	const struct stream_content *x = a, *y = b;

	return x->sequence < y->sequence ? -1 : x->sequence > y->sequence;
}

void
stream_contents_sort(struct stream_contents *c)
{
	if (c->nb > 0)
		qsort(c->at, c->nb, sizeof(c->at[0]), by_sequence);
}

int
stream_contents_add(struct stream_contents *c, uint64_t sequence, uint64_t crc)
{
	const size_t i = find(c, sequence);

	if (i < c->nb && c->at[i].sequence == sequence) {
		c->at[i].crc = crc;
		return 0;
	}
	if (make_room(c) < 0)
		return -ENOMEM;
	memmove(&c->at[i + 1], &c->at[i], (c->nb - i) * sizeof(c->at[0]));
	c->at[i] = (struct stream_content){sequence, crc};
	c->nb++;
	return 0;
}

int
stream_contents_add_all(struct stream_contents *c, const struct stream_contents *what)
{
	size_t i;
	int ret = 0;

	for (i = 0; i < what->nb && ret == 0; i++)
		ret = stream_contents_add(c, what->at[i].sequence, what->at[i].crc);
	return ret;
}

bool
stream_contents_get(const struct stream_contents *c, uint64_t sequence, uint64_t *crc)
{
	const size_t i = find(c, sequence);

	if (i == c->nb || c->at[i].sequence != sequence)
		return false;
	*crc = c->at[i].crc;
	return true;
}
