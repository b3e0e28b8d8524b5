/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "interval_set.h"

void
interval_set_free(struct interval_set *s)
{
	free(s->at);
	memset(s, 0, sizeof(*s));
}

/* Find the first interval that ends at or above n. @return its index; s->nb: none */
static size_t
find(const struct interval_set *s, uint64_t n)
{
	size_t low = 0, high = s->nb, middle;

	if (high == 0 || s->at[high - 1].last < n)
		return high;
	while (low < high) {
		middle = (low + high) / 2;
		if (s->at[middle].last < n)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Make room for one more interval. @return 0; -ENOMEM */
static int
grow(struct interval_set *s)
{
	const size_t room = s->room * 2 + 8;
	struct interval *at;

	if (s->nb < s->room)
		return 0;
	at = realloc(s->at, room * sizeof(*at));
	if (at == NULL)
		return -ENOMEM;
	s->at = at;
	s->room = room;
	return 0;
}

/* Replace `old` intervals at index i with `nb` new ones, for which there is room. */
static void
replace(struct interval_set *s, size_t i, size_t old, const struct interval *new, size_t nb)
{
	memmove(s->at + i + nb, s->at + i + old, (s->nb - i - old) * sizeof(*s->at));
	if (nb > 0)
		memcpy(s->at + i, new, nb * sizeof(*new));
	s->nb = s->nb - old + nb;
}

int
interval_set_add(struct interval_set *s, uint64_t first, uint64_t last)
{
	struct interval all = {first, last};
	size_t i, end;

	if (last < first || last == UINT64_MAX)
		return -EINVAL;
	if (grow(s) < 0)
		return -ENOMEM;
	/* an interval that ends right below `first` is merged too */
	i = find(s, first > 0 ? first - 1 : 0);
	for (end = i; end < s->nb && s->at[end].first <= last + 1; end++) {
		if (s->at[end].first < all.first)
			all.first = s->at[end].first;
		if (s->at[end].last > all.last)
			all.last = s->at[end].last;
	}
	replace(s, i, end - i, &all, 1);
	return 0;
}

int
interval_set_add_common(
	struct interval_set *s, const struct interval_set *of, uint64_t first, uint64_t last)
{
	const struct interval *at;
	size_t i;
	int ret = 0;

	if (last < first || last == UINT64_MAX)
		return -EINVAL;
	for (i = find(of, first); i < of->nb && of->at[i].first <= last && ret == 0; i++) {
		at = &of->at[i];
		ret = interval_set_add(s, at->first > first ? at->first : first,
			at->last < last ? at->last : last);
	}
	return ret;
}

int
interval_set_remove(struct interval_set *s, uint64_t first, uint64_t last)
{
	struct interval rest[2];
	size_t i, end, nb = 0;

	if (last < first || last == UINT64_MAX)
		return -EINVAL;
	if (grow(s) < 0)
		return -ENOMEM;
	i = find(s, first);
	for (end = i; end < s->nb && s->at[end].first <= last; end++)
		;
	if (end == i)
		return 0;
	if (s->at[i].first < first)
		rest[nb++] = (struct interval){s->at[i].first, first - 1};
	if (s->at[end - 1].last > last)
		rest[nb++] = (struct interval){last + 1, s->at[end - 1].last};
	replace(s, i, end - i, rest, nb);
	return 0;
}

bool
interval_set_meets(const struct interval_set *s, uint64_t first, uint64_t last)
{
	const size_t i = find(s, first);

	return i < s->nb && s->at[i].first <= last;
}

bool
interval_set_has(const struct interval_set *s, uint64_t n)
{
	return interval_set_meets(s, n, n);
}

uint64_t
interval_set_first_common(const struct interval_set *a, const struct interval_set *b)
{
	size_t i = 0, k = 0;

	while (i < a->nb && k < b->nb) {
		if (a->at[i].last < b->at[k].first)
			i++;
		else if (b->at[k].last < a->at[i].first)
			k++;
		else
			return a->at[i].first > b->at[k].first ? a->at[i].first : b->at[k].first;
	}
	return UINT64_MAX;
}

uint64_t
interval_set_count(const struct interval_set *s)
{
	uint64_t n = 0;
	size_t i;

	for (i = 0; i < s->nb; i++)
		n += s->at[i].last - s->at[i].first + 1;
	return n;
}

int
interval_set_add_all(struct interval_set *s, const struct interval_set *what)
{
	size_t i;
	int ret = 0;

	for (i = 0; i < what->nb && ret == 0; i++)
		ret = interval_set_add(s, what->at[i].first, what->at[i].last);
	return ret;
}

int
interval_set_remove_all(struct interval_set *s, const struct interval_set *what)
{
	size_t i;
	int ret = 0;

	for (i = 0; i < what->nb && ret == 0; i++)
		ret = interval_set_remove(s, what->at[i].first, what->at[i].last);
	return ret;
}
