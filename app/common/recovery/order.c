/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "recovery/order.h"

const char arrow_order_fault[] = "a batch out of order, or of another stream";

/* Compare indices of batches: by stream, then by position. */
static int
by_stream(const void *x, const void *y, void *arg)
{
	const struct arrow_read_batch *batch = arg;
	const size_t i = *(const size_t *)x, k = *(const size_t *)y;
	const struct arrow_read_batch *a = &batch[i], *b = &batch[k];
	int ret = strcmp(a->receiver_id, b->receiver_id);

	if (ret == 0)
		ret = strcmp(a->run, b->run);
	if (ret == 0)
		ret = strcmp(a->incarnation, b->incarnation);
	return ret != 0 ? ret : i < k ? -1 : i > k;
}

static bool
is_same_stream(const struct arrow_read_batch *a, const struct arrow_read_batch *b)
{
	return strcmp(a->receiver_id, b->receiver_id) == 0 && strcmp(a->run, b->run) == 0 &&
		strcmp(a->incarnation, b->incarnation) == 0;
}

/*
 * Find the longest ascending subsequence of the batches with the indices `place`.
 * @param tail    scratch: tail[n - 1] is the batch with the lowest number that ends an ascending
 *                subsequence of n batches
 * @param before  out: the predecessor of each batch in the longest subsequence that it ends
 * @param last    out: the last batch of the longest subsequence
 * @return number of batches in the longest subsequence
 */
static size_t
longest_chain(const struct arrow_read_batch *b, const size_t *place, size_t nb, size_t *tail,
	size_t *before, size_t *last)
{
	size_t length = 0, i, low, high, middle;

	for (i = 0; i < nb; i++) {
		for (low = 0, high = length; low < high;) {
			middle = (low + high) / 2;
			/* numbers have a fixed width, so that strcmp() compares their values */
			if (strcmp(b[tail[middle]].sequence, b[place[i]].sequence) < 0)
				low = middle + 1;
			else
				high = middle;
		}
		before[place[i]] = low > 0 ? tail[low - 1] : SIZE_MAX;
		tail[low] = place[i];
		if (low == length)
			length++;
	}
	*last = tail[length - 1];
	return length;
}

/* Keep the longest chain of all streams, and mark all other batches as faults. */
static int
keep_longest(struct arrow_reader *r, size_t nb)
{
	size_t *place = malloc(3 * r->nb_batches * sizeof(*place));
	size_t *tail = place + r->nb_batches, *before = tail + r->nb_batches;
	size_t i, first, length, last, best = 0, best_last = SIZE_MAX;
	struct arrow_read_batch *b = r->batches;

	if (place == NULL)
		return -ENOMEM;
	for (i = 0, nb = 0; i < r->nb_batches; i++) {
		if (b[i].fault == NULL)
			place[nb++] = i;
	}
	qsort_r(place, nb, sizeof(*place), by_stream, b);
	for (first = 0; first < nb; first = i) {
		for (i = first + 1; i < nb && is_same_stream(&b[place[first]], &b[place[i]]);)
			i++;
		length = longest_chain(b, place + first, i - first, tail, before, &last);
		/* of chains of equal length, keep the one that ends first in the file */
		if (length > best || (length == best && last < best_last)) {
			best = length;
			best_last = last;
		}
	}
	for (i = 0; i < nb; i++)
		b[place[i]].fault = arrow_order_fault;
	for (i = best_last; i != SIZE_MAX; i = before[i])
		b[i].fault = NULL;
	free(place);
	return 0;
}

int
arrow_order(struct arrow_reader *r)
{
	const struct arrow_read_batch *last = NULL;
	bool ascends = true;
	size_t i, nb = 0;

	for (i = 0; i < r->nb_batches; i++) {
		if (r->batches[i].fault != NULL)
			continue;
		/* the order of files of other programs is unknown */
		if (!arrow_read_has_identity(r, &r->batches[i]))
			return 0;
		ascends &= last == NULL || arrow_read_follows(&r->batches[i], last);
		last = &r->batches[i];
		nb++;
	}
	return ascends ? 0 : keep_longest(r, nb);
}
