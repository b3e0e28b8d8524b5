/* SPDX-License-Identifier: BSD-3-Clause */

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "scan/memory.h"

#define HEAD 64			 /* bytes in front of a buffer, which keep it aligned */
#define HUGE ((size_t)2 << 20)	 /* size of a huge page */
#define PAGE ((size_t)4 << 10)	 /* size of a page, at least */
#define STEP ((size_t)256 << 10) /* bytes that a call touches; of a huge page all */

struct head {
	size_t size;
	size_t touched; /* bytes from the beginning whose pages exist; `size` after the first use */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct head *spare[SCAN_MEMORY_SPARES];
static size_t spare_bytes; /* of all */

static struct head *
head_of(const void *data)
{
	return (struct head *)((uintptr_t)data - HEAD);
}

/* Whether a spare buffer is large enough, and not much too large. */
static bool
fits(const struct head *h, size_t size)
{
	return h != NULL && h->size >= size && h->size / 4 <= size;
}

/* Whether `a` is to be used before `b`, which may be NULL. */
static bool
is_better(const struct head *a, const struct head *b)
{
	return b == NULL || a->size < b->size || (a->size == b->size && a->touched > b->touched);
}

/* Takes the smallest spare buffer that fits. */
static struct head *
take_spare(size_t size)
{
	struct head *best = NULL;
	unsigned int i, at = 0;

	pthread_mutex_lock(&lock);
	for (i = 0; i < SCAN_MEMORY_SPARES; i++) {
		if (!fits(spare[i], size) || !is_better(spare[i], best))
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

	/* without huge pages, touching only takes longer */
	if (end > first)
		(void)madvise((void *)first, end - first, MADV_HUGEPAGE);
}

/*
 * Batches of a run differ little in size: the buffer of one should be large enough for the next
 * one.
 */
static size_t
round_up(size_t size)
{
	size_t step = HUGE;

	while (step < size / 8)
		step *= 2;
	return size < HUGE ? size : (size + HEAD + step - 1) / step * step - HEAD;
}

/* @param size  of round_up() @return NULL: out of memory */
static struct head *
allocate(size_t size)
{
	struct head *h = aligned_alloc(HEAD, HEAD + (size + HEAD - 1) / HEAD * HEAD);

	if (h == NULL)
		return NULL;
	advise(h, HEAD + size);
	*h = (struct head){.size = size};
	return h;
}

void *
scan_memory_get(size_t size)
{
	struct head *h;

	if (size > SIZE_MAX / 2)
		return NULL;
	size = round_up(size);
	h = take_spare(size);
	if (h == NULL)
		h = allocate(size);
	if (h == NULL)
		return NULL;
	h->touched = h->size;
	return (uint8_t *)h + HEAD;
}

size_t
scan_memory_size(const void *data)
{
	return head_of(data)->size;
}

/* Keeps a buffer, or frees one. */
static void
keep(struct head *h)
{
	struct head *old = NULL;
	unsigned int i, least = 0;

	pthread_mutex_lock(&lock);
	for (i = 0; i < SCAN_MEMORY_SPARES && spare[least] != NULL; i++) {
		if (spare[i] == NULL || spare[i]->size < spare[least]->size)
			least = i;
	}
	/* the smallest buffer is replaced */
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
scan_memory_put(void *data)
{
	if (data != NULL)
		keep(head_of(data));
}

/* Whether a buffer of this size should be reserved and replaces no other one. */
static bool
is_wanted(size_t size, unsigned int nb)
{
	unsigned int i, kept = 0, fit = 0;
	size_t bytes;

	pthread_mutex_lock(&lock);
	for (i = 0; i < SCAN_MEMORY_SPARES; i++) {
		kept += spare[i] != NULL;
		fit += fits(spare[i], size);
	}
	bytes = spare_bytes;
	pthread_mutex_unlock(&lock);
	return fit < nb && kept < SCAN_MEMORY_SPARES && size <= SCAN_MEMORY_SPARE_MAX - bytes;
}

void
scan_memory_reserve(size_t size, unsigned int nb)
{
	struct head *h;

	if (size > SCAN_MEMORY_SPARE_MAX)
		return;
	size = round_up(size);
	while (is_wanted(size, nb)) {
		h = allocate(size);
		if (h == NULL)
			return;
		keep(h);
	}
}

bool
scan_memory_touch(void)
{
	struct head *h = NULL;
	volatile uint8_t *data;
	size_t end;

	/* no other thread can take it meanwhile */
	pthread_mutex_lock(&lock);
	for (unsigned int i = 0; i < SCAN_MEMORY_SPARES && h == NULL; i++) {
		if (spare[i] == NULL || spare[i]->touched == spare[i]->size)
			continue;
		h = spare[i];
		spare[i] = NULL;
		spare_bytes -= h->size;
	}
	pthread_mutex_unlock(&lock);
	if (h == NULL)
		return false;
	data = (uint8_t *)h + HEAD;
	end = h->size - h->touched < STEP ? h->size : h->touched + STEP;
	for (; h->touched < end; h->touched += PAGE)
		data[h->touched] = 0;
	h->touched = end;
	keep(h);
	return true;
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
