/* SPDX-License-Identifier: BSD-3-Clause */
#include "rdma_stream_window.h"

#include <errno.h>
#include <stdlib.h>

#include <rte_common.h>

int
stream_window_init(struct stream_window *w, uint32_t size)
{
	w->size = size;
	for (unsigned int i = 0; i < RANGE_RINGS; i++) {
		w->ranges[i].at = calloc(size, sizeof(struct stream_range));
		if (!w->ranges[i].at)
			return -ENOMEM;
	}
	w->entries = calloc(size, sizeof(*w->entries));
	return w->entries ? 0 : -ENOMEM;
}

void
stream_window_free(struct stream_window *w)
{
	free(w->entries);
	for (unsigned int i = 0; i < RANGE_RINGS; i++)
		free(w->ranges[i].at);
}

static void
range_add(
	struct stream_window *w, enum range_ring ring, uint64_t first, uint64_t end, uint64_t wait)
{
	struct stream_ranges *ranges = &w->ranges[ring];

	if (ranges->head - ranges->tail == w->size) {
		w->rescan = true;
		return;
	}
	ranges->at[ranges->head++ & (w->size - 1)] =
		(struct stream_range){.first = first, .end = end, .due = w->now + wait};
}

void
stream_window_again(struct stream_window *w, uint64_t first, uint64_t end, uint64_t wait)
{
	range_add(w, RANGE_AGAIN, first, end, wait);
}

void
stream_window_see(struct stream_window *w, uint64_t end)
{
	const uint64_t first = w->seen;

	end = RTE_MIN(end, w->deliver + w->size);
	if (end <= first)
		return;
	for (uint64_t s = first; s < end; s++)
		*stream_entry(w, s) = (struct stream_entry){.buffer = STREAM_NO_BUFFER,
			.state = w->repair ? ENTRY_MISSING : ENTRY_LOST};
	w->seen = end;
	if (w->repair)
		range_add(w, RANGE_NEW, first, end, w->gather);
	else
		counter_add(w->lost, end - first);
}

void
stream_window_advance(struct stream_window *w)
{
	while (w->next < w->seen && stream_entry(w, w->next)->state >= ENTRY_HERE)
		w->next++;
}

void
stream_window_skip(struct stream_window *w, uint64_t floor)
{
	for (uint64_t s = w->next; s < RTE_MIN(floor, w->seen); s++)
		if (stream_entry(w, s)->state == ENTRY_MISSING)
			stream_entry_lose(w, stream_entry(w, s));
	while (w->seen < floor && w->seen < w->deliver + w->size) {
		stream_entry(w, w->seen)->buffer = STREAM_NO_BUFFER;
		stream_entry_lose(w, stream_entry(w, w->seen++));
	}
}

void
stream_window_give_up(struct stream_window *w)
{
	for (uint64_t s = w->next; s < w->seen; s++)
		if (stream_entry(w, s)->state < ENTRY_HERE)
			stream_entry_lose(w, stream_entry(w, s));
	for (unsigned int i = 0; i < RANGE_RINGS; i++)
		w->ranges[i].tail = w->ranges[i].head;
	w->rescan = false;
	stream_window_advance(w);
}

static uint16_t
ranges_take(struct stream_window *w, struct stream_ranges *ranges, uint16_t most, uint64_t *first)
{
	for (; ranges->tail != ranges->head; ranges->tail++) {
		struct stream_range *range = &ranges->at[ranges->tail & (w->size - 1)];
		const uint64_t end = RTE_MIN(range->end, w->seen);
		uint64_t s = RTE_MAX(range->first, w->next);
		uint16_t n = 0;

		if (range->due > w->now)
			return 0;
		while (s < end && stream_entry(w, s)->state != ENTRY_MISSING)
			s++;
		*first = s;
		while (s < end && stream_entry(w, s)->state == ENTRY_MISSING && n < most &&
			(n == 0 || (s & (w->slots - 1)) != 0)) {
			s++;
			n++;
		}
		range->first = s;
		if (n)
			return n;
	}
	return 0;
}

uint16_t
stream_window_take(struct stream_window *w, uint16_t most, uint64_t *first)
{
	const uint16_t n = ranges_take(w, &w->ranges[RANGE_AGAIN], most, first);

	return n ? n : ranges_take(w, &w->ranges[RANGE_NEW], most, first);
}

void
stream_window_rescan(struct stream_window *w)
{
	w->rescan = false;
	for (uint64_t s = w->next; s < w->seen; s++)
		if (stream_entry(w, s)->state == ENTRY_MISSING)
			range_add(w, RANGE_NEW, s, s + 1, 0);
}
