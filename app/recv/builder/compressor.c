/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>

#include <rte_common.h>
#include <rte_ring.h>

#include "builder/compressor.h"
#include "gk_bitshuffle.h"

struct compress_job {
	struct gk_bitshuffle_job work;
	uint8_t *chunk;		   /* own memory */
	uint8_t *to;		   /* where the chunk is */
	struct compress_job *next; /* next free job */
	bool done;
};

struct compressor {
	size_t values;
	uint32_t nb_jobs;
	struct compress_job *jobs;
	struct compress_job *free;
	struct rte_ring *ring; /* jobs that any thread may continue; has room for all */
};

struct compressor *
compressor_create(uint32_t jobs, size_t values)
{
	const uint32_t size = rte_align32pow2(jobs + 1);
	struct compressor *c = calloc(1, sizeof(*c));

	if (c == NULL)
		return NULL;
	c->values = values;
	c->jobs = calloc(jobs, sizeof(*c->jobs));
	c->ring = aligned_alloc(RTE_CACHE_LINE_SIZE,
		RTE_ALIGN_CEIL((size_t)rte_ring_get_memsize(size), RTE_CACHE_LINE_SIZE));
	if (c->jobs == NULL || c->ring == NULL)
		goto no_memory;
	/* On shared CPUs a preempted thread must not block the others. */
	rte_ring_init(c->ring, "compress", size, RING_F_MP_RTS_ENQ | RING_F_MC_RTS_DEQ);
	for (; c->nb_jobs < jobs; c->nb_jobs++) {
		struct compress_job *job = &c->jobs[c->nb_jobs];

		job->chunk = malloc(gk_bitshuffle_bound(values));
		if (job->chunk == NULL)
			goto no_memory;
		compressor_release(c, job);
	}
	return c;

no_memory:
	compressor_destroy(c);
	errno = ENOMEM;
	return NULL;
}

void
compressor_destroy(struct compressor *c)
{
	if (c == NULL)
		return;
	for (uint32_t i = 0; i < c->nb_jobs; i++)
		free(c->jobs[i].chunk);
	free(c->jobs);
	free(c->ring);
	free(c);
}

struct compress_job *
compressor_begin(struct compressor *c, const uint16_t *raw, uint8_t *chunk)
{
	struct compress_job *job = c->free;

	if (job == NULL)
		return NULL;
	c->free = job->next;
	job->done = false;
	job->to = chunk != NULL ? chunk : job->chunk;
	gk_bitshuffle_begin(&job->work, GK_ISA_AUTO, raw, c->values, job->to);
	rte_ring_enqueue(c->ring, job);
	return job;
}

void
compressor_release(struct compressor *c, struct compress_job *job)
{
	job->next = c->free;
	c->free = job;
}

int
compressor_poll(void *arg)
{
	struct compressor *c = arg;
	struct compress_job *job;

	if (rte_ring_dequeue(c->ring, (void **)&job) != 0)
		return 0;
	if (gk_bitshuffle_continue(&job->work, COMPRESSOR_PIECE))
		__atomic_store_n(&job->done, true, __ATOMIC_RELEASE);
	else
		rte_ring_enqueue(c->ring, job);
	return 1;
}

size_t
compressor_finish(struct compressor *c, struct compress_job *job, const uint8_t **chunk)
{
	while (!__atomic_load_n(&job->done, __ATOMIC_ACQUIRE))
		if (!compressor_poll(c))
			sched_yield(); /* other threads hold all jobs */
	*chunk = job->to;
	return job->work.written;
}
