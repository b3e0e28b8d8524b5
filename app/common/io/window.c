/* SPDX-License-Identifier: BSD-3-Clause */

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "io/window.h"

#define PAGE   UINT64_C(4096)
#define CHUNK  (UINT64_C(256) << 10) /* bytes of one read */
#define PAGES  (CHUNK / PAGE)
#define CHUNKS 64 /* chunks that stay in memory */

struct arrow_window {
	uint8_t *data;
	uint64_t size;
	arrow_window_read read;
	void *arg;
	uint8_t *loaded;       /* per chunk: whether it is loaded */
	uint64_t *kept;	       /* per chunk: bitmap of the pages that are kept */
	uint64_t *bad;	       /* per chunk: bitmap of the unreadable pages */
	uint64_t ring[CHUNKS]; /* loaded chunks, in the order of their loads */
	uint64_t nb;	       /* number of loads so far; the next entry of `ring` is nb % CHUNKS */
	uint64_t bad_end;      /* end of the last unreadable page; 0: none */
	uint64_t bytes_read;
};

static_assert(PAGES == 64, "a bit for each page");
static_assert(CHUNKS * CHUNK >= 2 * ARROW_WINDOW_AT_ONCE, "what is loaded at once stays");

int
arrow_window_open(struct arrow_window **window, uint64_t size, arrow_window_read read, void *arg)
{
	const uint64_t chunks = size / CHUNK + (size % CHUNK != 0);
	struct arrow_window *w = calloc(1, sizeof(*w));

	if (w == NULL)
		return -ENOMEM;
	w->size = size;
	w->read = read;
	w->arg = arg;
	if (size > 0) {
		/* pages that were never written take no memory */
		w->data = mmap(NULL, size, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (w->data == MAP_FAILED)
			w->data = NULL;
		w->loaded = calloc(chunks, sizeof(*w->loaded));
		w->kept = calloc(chunks, sizeof(*w->kept));
		w->bad = calloc(chunks, sizeof(*w->bad));
		if (w->data == NULL || w->loaded == NULL || w->kept == NULL || w->bad == NULL) {
			arrow_window_close(w);
			return -ENOMEM;
		}
	}
	*window = w;
	return 0;
}

void
arrow_window_close(struct arrow_window *w)
{
	if (w == NULL)
		return;
	if (w->data != NULL)
		munmap(w->data, w->size);
	free(w->loaded);
	free(w->kept);
	free(w->bad);
	free(w);
}

const uint8_t *
arrow_window_data(const struct arrow_window *w)
{
	return w->data;
}

static bool
has_page(const uint64_t *bits, uint64_t page)
{
	return bits[page / PAGES] >> (page % PAGES) & 1;
}

/* First page after `page` whose bit differs from that of `page`; `end` if there is none. */
static uint64_t
run_end(const uint64_t *bits, uint64_t page, uint64_t end)
{
	const bool is = has_page(bits, page);

	do
		page++;
	while (page < end && has_page(bits, page) == is);
	return page;
}

/* @return false: it cannot be read */
static bool
read_bytes(struct arrow_window *w, uint64_t at, uint64_t size)
{
	const int64_t n = w->read(w->arg, w->data + at, size, at);

	if (n < 0)
		return false;
	/* the file was truncated meanwhile: the missing bytes are zeros */
	memset(w->data + at + n, 0, size - (uint64_t)n);
	w->bytes_read += (uint64_t)n;
	return true;
}

/* Read pages, one by one after a read error, so that only unreadable pages are lost. */
static void
read_run(struct arrow_window *w, uint64_t page, uint64_t end)
{
	uint64_t at, size, last = end * PAGE < w->size ? end * PAGE : w->size;

	if (read_bytes(w, page * PAGE, last - page * PAGE))
		return;
	for (; page < end; page++) {
		at = page * PAGE;
		size = last - at < PAGE ? last - at : PAGE;
		if (read_bytes(w, at, size))
			continue;
		memset(w->data + at, 0, size);
		w->bad[page / PAGES] |= UINT64_C(1) << page % PAGES;
		if (w->bad_end < at + PAGE)
			w->bad_end = at + PAGE;
	}
}

static uint64_t
chunk_end(const struct arrow_window *w, uint64_t chunk)
{
	const uint64_t pages = w->size / PAGE + (w->size % PAGE != 0);

	return (chunk + 1) * PAGES < pages ? (chunk + 1) * PAGES : pages;
}

static void
drop_chunk(struct arrow_window *w, uint64_t chunk)
{
	const uint64_t end = chunk_end(w, chunk);
	uint64_t page, then;

	for (page = chunk * PAGES; page < end; page = then) {
		then = run_end(w->kept, page, end);
		if (!has_page(w->kept, page))
			(void)madvise(w->data + page * PAGE, (then - page) * PAGE, MADV_DONTNEED);
	}
	w->loaded[chunk] = false;
}

static void
load_chunk(struct arrow_window *w, uint64_t chunk)
{
	const uint64_t end = chunk_end(w, chunk);
	uint64_t page, then;

	if (w->nb >= CHUNKS)
		drop_chunk(w, w->ring[w->nb % CHUNKS]);
	w->ring[w->nb++ % CHUNKS] = chunk;
	for (page = chunk * PAGES; page < end; page = then) {
		then = run_end(w->kept, page, end);
		if (!has_page(w->kept, page))
			read_run(w, page, then);
	}
	w->loaded[chunk] = true;
}

void
arrow_window_load(struct arrow_window *w, uint64_t offset, uint64_t size)
{
	unsigned int again;
	uint64_t chunk;

	if (offset >= w->size || size == 0)
		return;
	if (size > w->size - offset)
		size = w->size - offset;
	/* the first pass may drop a chunk of this range that was loaded before: load it again */
	for (again = 0; again < 2; again++) {
		for (chunk = offset / CHUNK; chunk <= (offset + size - 1) / CHUNK; chunk++) {
			if (!w->loaded[chunk])
				load_chunk(w, chunk);
		}
	}
}

void
arrow_window_keep(struct arrow_window *w, uint64_t offset, uint64_t size)
{
	uint64_t page;

	if (offset >= w->size || size == 0)
		return;
	if (size > w->size - offset)
		size = w->size - offset;
	for (page = offset / PAGE; page <= (offset + size - 1) / PAGE; page++)
		w->kept[page / PAGES] |= UINT64_C(1) << page % PAGES;
}

bool
arrow_window_is_unreadable(const struct arrow_window *w, uint64_t offset, uint64_t size)
{
	uint64_t page;

	if (w->bad_end == 0 || size == 0 || offset >= w->bad_end)
		return false;
	if (size > w->bad_end - offset)
		size = w->bad_end - offset;
	for (page = offset / PAGE; page <= (offset + size - 1) / PAGE; page++) {
		if (has_page(w->bad, page))
			return true;
	}
	return false;
}

uint64_t
arrow_window_unreadable_end(const struct arrow_window *w)
{
	return w->bad_end;
}

uint64_t
arrow_window_bytes_read(const struct arrow_window *w)
{
	return w->bytes_read;
}
