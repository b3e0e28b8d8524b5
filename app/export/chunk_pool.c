/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "chunk_pool.h"
#include "image.h"
#include "mask.h"
#include "scan/record.h"

#define SLOTS 2 /* slots of a thread: one chunk is written while the thread makes the next one */

/* A chunk. Its thread sets `ready`, the consumer clears it. */
struct slot {
	struct image image;
	struct scan_record *record; /* reference to the batch of the chunk; NULL: none */
	const uint8_t *chunk;
	ssize_t size; /* bytes of the chunk; negative: an error */
	bool ready;
};

struct chunk_pool {
	struct export *e;
	size_t first, nb;
	/* used by the consumer: next image to return, first image whose batch is not loaded */
	size_t next, loaded;
	int error; /* error of loading this image's batch */
	struct slot *slot;
	unsigned int nb_slots, nb_threads;
	pthread_t thread[EXPORT_THREADS_MAX];
	pthread_mutex_t lock;
	pthread_cond_t made, freed;
	/* under the lock: first image that no thread has taken, end of those to be taken */
	size_t taken, available;
	bool stop;
};

static void
make_chunk(struct chunk_pool *p, size_t i)
{
	struct slot *s = &p->slot[i % p->nb_slots];
	const struct selection_row *row = &p->e->images.image[p->first + i].image;

	s->size = s->record->has_images ? image_chunk(&s->image, &s->record->images, row, &s->chunk)
					: -EBADMSG;
}

static void *
make_chunks(void *arg)
{
	struct chunk_pool *p = arg;
	size_t i;

	pthread_mutex_lock(&p->lock);
	for (;;) {
		while (!p->stop && p->taken >= p->available)
			pthread_cond_wait(&p->freed, &p->lock);
		if (p->stop)
			break;
		i = p->taken++;
		pthread_mutex_unlock(&p->lock);
		make_chunk(p, i);
		pthread_mutex_lock(&p->lock);
		p->slot[i % p->nb_slots].ready = true;
		pthread_cond_signal(&p->made);
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

static int
start_threads(struct chunk_pool *p, unsigned int threads)
{
	while (p->nb_threads < threads &&
		pthread_create(&p->thread[p->nb_threads], NULL, make_chunks, p) == 0)
		p->nb_threads++;
	return threads > 0 && p->nb_threads == 0 ? -EAGAIN : 0;
}

int
chunk_pool_open(struct chunk_pool **pool, struct export *e, size_t first, size_t nb)
{
	struct chunk_pool *p = calloc(1, sizeof(*p));
	const unsigned int threads = e->raw || e->threads < 2 ? 0
		: e->threads < nb			      ? e->threads
							      : nb;
	const uint32_t *mask;
	unsigned int i;
	int ret = 0;

	if (p == NULL)
		return -ENOMEM;
	p->e = e;
	p->first = first;
	p->nb = nb;
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->made, NULL);
	pthread_cond_init(&p->freed, NULL);
	mask = mask_is_in_images(e) ? e->mask : NULL;
	p->nb_slots = threads > 0 ? threads * SLOTS : 1;
	p->slot = calloc(p->nb_slots, sizeof(*p->slot));
	if (p->slot == NULL)
		ret = -ENOMEM;
	for (i = 0; ret == 0 && i < p->nb_slots; i++)
		ret = image_init(&p->slot[i].image, e->run.rows, e->run.cols, mask);
	if (ret == 0)
		ret = start_threads(p, threads);
	if (ret < 0) {
		chunk_pool_close(p);
		return ret;
	}
	*pool = p;
	return 0;
}

/* Loads the batches of the images up to `end`, exclusive, whose slots are free. */
static void
load(struct chunk_pool *p, size_t end)
{
	struct slot *s;

	for (; p->error == 0 && p->loaded < end; p->loaded++) {
		s = &p->slot[p->loaded % p->nb_slots];
		scan_record_drop(s->record);
		s->record = NULL;
		p->error = p->e->load(p->e->load_arg, p->first + p->loaded, &s->record);
		if (p->error < 0)
			return;
		pthread_mutex_lock(&p->lock);
		p->available = p->loaded + 1;
		pthread_cond_signal(&p->freed);
		pthread_mutex_unlock(&p->lock);
	}
}

/* Waits for the chunk of an image. */
static void
wait_for(struct chunk_pool *p, struct slot *s)
{
	pthread_mutex_lock(&p->lock);
	while (!s->ready)
		pthread_cond_wait(&p->made, &p->lock);
	s->ready = false;
	pthread_mutex_unlock(&p->lock);
}

ssize_t
chunk_pool_next(struct chunk_pool *p, const uint8_t **chunk, struct scan_record **record)
{
	const size_t i = p->next++;
	const struct selection_row *row = &p->e->images.image[p->first + i].image;
	struct slot *s = &p->slot[i % p->nb_slots];

	*record = NULL;
	load(p, i + p->nb_slots < p->nb ? i + p->nb_slots : p->nb);
	if (i == p->loaded)
		return p->error;
	if (p->nb_threads > 0)
		wait_for(p, s);
	else
		make_chunk(p, i);
	*chunk = s->chunk;
	if (s->size >= 0 && s->chunk != s->image.packed)
		*record = scan_record_ref(s->record);
	if (s->size < 0)
		snprintf(p->e->message, sizeof(p->e->message),
			"%.512s: frame %" PRIu64 ": its image does not fit %u x %u pixels; export "
			"the other frames with --frames",
			p->e->run.set[row->set].file[ARROW_IMAGES].path, row->frame, p->e->run.rows,
			p->e->run.cols);
	return s->size;
}

void
chunk_pool_close(struct chunk_pool *p)
{
	unsigned int i;

	pthread_mutex_lock(&p->lock);
	p->stop = true;
	pthread_cond_broadcast(&p->freed);
	pthread_mutex_unlock(&p->lock);
	for (i = 0; i < p->nb_threads; i++)
		pthread_join(p->thread[i], NULL);
	for (i = 0; p->slot != NULL && i < p->nb_slots; i++) {
		scan_record_drop(p->slot[i].record);
		image_free(&p->slot[i].image);
	}
	pthread_cond_destroy(&p->freed);
	pthread_cond_destroy(&p->made);
	pthread_mutex_destroy(&p->lock);
	free(p->slot);
	free(p);
}
