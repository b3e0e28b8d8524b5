/* SPDX-License-Identifier: BSD-3-Clause */

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "scan/memory.h"

#define HEAD 64		       /* bytes in front of a buffer, which keep it aligned */
#define HUGE ((size_t)2 << 20) /* size of a huge page */

struct head {
	size_t size;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct head *spare[SCAN_MEMORY_SPARES];
static size_t spare_bytes; /* of all */

static struct head *
head_of(const void *data)
{
	return (struct head *)((uintptr_t)data - HEAD);
}

/* Takes the smallest spare buffer that is large enough, and not much too large. */
static struct head *
take_spare(size_t size)
{
	struct head *best = NULL;
	unsigned int i, at = 0;

	pthread_mutex_lock(&lock);
	for (i = 0; i < SCAN_MEMORY_SPARES; i++) {
		if (spare[i] == NULL || spare[i]->size < size || spare[i]->size / 4 > size ||
			(best != NULL && spare[i]->size >= best->size))
			continue;
		best = spare[i];
		at = i;
	}
	if (best != NULL) {
		spare[at] = NULL;
		spare_bytes -= best->size;
	}
	pthread_mutex_unlock(&lock);
	return best;
}

/* Asks for huge pages: the first touch of a buffer is a fault for each page. */
static void
advise(const void *data, size_t size)
{
	const uintptr_t first = ((uintptr_t)data + HUGE - 1) / HUGE * HUGE;
	const uintptr_t end = ((uintptr_t)data + size) / HUGE * HUGE;

	/* without them, it only takes longer */
	if (end > first)
		(void)madvise((void *)first, end - first, MADV_HUGEPAGE);
}

/* Batches of a run differ in size by little: the buffer of one shall be enough for the next one. */
static size_t
round_up(size_t size)
{
	size_t step = HUGE;

	while (step < size / 8)
		step *= 2;
	return size < HUGE ? size : (size + HEAD + step - 1) / step * step - HEAD;
}

void *
scan_memory_get(size_t size)
{
	struct head *h;

	if (size > SIZE_MAX / 2)
		return NULL;
	size = round_up(size);
	h = take_spare(size);
	if (h == NULL) {
		h = aligned_alloc(HEAD, HEAD + (size + HEAD - 1) / HEAD * HEAD);
		if (h == NULL)
			return NULL;
		advise(h, HEAD + size);
		h->size = size;
	}
	return (uint8_t *)h + HEAD;
}

size_t
scan_memory_size(const void *data)
{
	return head_of(data)->size;
}

void
scan_memory_put(void *data)
{
	struct head *h, *old = NULL;
	unsigned int i, least = 0;

	if (data == NULL)
		return;
	h = head_of(data);
	pthread_mutex_lock(&lock);
	for (i = 0; i < SCAN_MEMORY_SPARES && spare[least] != NULL; i++) {
		if (spare[i] == NULL || spare[i]->size < spare[least]->size)
			least = i;
	}
	/* the smallest one makes room */
	old = spare[least];
	if ((old != NULL && old->size >= h->size) ||
		spare_bytes - (old != NULL ? old->size : 0) + h->size > SCAN_MEMORY_SPARE_MAX) {
		old = h;
	} else {
		spare_bytes += h->size - (old != NULL ? old->size : 0);
		spare[least] = h;
	}
	pthread_mutex_unlock(&lock);
	free(old);
}

void
scan_memory_trim(void)
{
	pthread_mutex_lock(&lock);
	for (unsigned int i = 0; i < SCAN_MEMORY_SPARES; i++) {
		free(spare[i]);
		spare[i] = NULL;
	}
	spare_bytes = 0;
	pthread_mutex_unlock(&lock);
}
