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

int
stream_contents_add(struct stream_contents *c, uint64_t sequence, uint64_t crc)
{
	const size_t i = find(c, sequence);
	struct stream_content *more;
	size_t room;

	if (i < c->nb && c->at[i].sequence == sequence) {
		c->at[i].crc = crc;
		return 0;
	}
	if (c->nb == c->room) {
		room = 2 * c->room + 16;
		more = realloc(c->at, room * sizeof(*more));
		if (more == NULL)
			return -ENOMEM;
		c->at = more;
		c->room = room;
	}
	memmove(&c->at[i + 1], &c->at[i], (c->nb - i) * sizeof(c->at[0]));
	c->at[i] = (struct stream_content){sequence, crc};
	c->nb++;
	return 0;
}

int
stream_contents_add_all(struct stream_contents *c, const struct stream_contents *what)
{
	size_t i;
	int rc = 0;

	for (i = 0; i < what->nb && rc == 0; i++)
		rc = stream_contents_add(c, what->at[i].sequence, what->at[i].crc);
	return rc;
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
