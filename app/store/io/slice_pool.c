/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "eal/process_cpus.h"
#include "io/slice_pool.h"

struct slice_pool {
	struct slice_pool_config config;
	pthread_mutex_t lock; /* protects the members below */
	pthread_cond_t given; /* a job was added, or the pool is closed */
	pthread_cond_t begun; /* a thread has started, or has failed to */
	struct slice_job *first;
	struct slice_job **last;
	unsigned int entered;
	int error;
	bool closing;
	unsigned int nb_threads;
	pthread_t thread[];
};

/* Get the next job. @return NULL: the pool is closed */
static struct slice_job *
take(struct slice_pool *p)
{
	struct slice_job *job;

	pthread_mutex_lock(&p->lock);
	while (p->first == NULL && !p->closing)
		pthread_cond_wait(&p->given, &p->lock);
	job = p->first;
	if (job != NULL) {
		p->first = job->next;
		if (p->first == NULL)
			p->last = &p->first;
	}
	pthread_mutex_unlock(&p->lock);
	return job;
}

static void *
work(void *arg)
{
	struct slice_pool *p = arg;
	struct slice_job *job;
	int ret;

	process_cpus_take();
	ret = p->config.enter != NULL ? p->config.enter(p->config.arg) : 0;
	pthread_mutex_lock(&p->lock);
	p->entered++;
	if (ret < 0)
		p->error = ret;
	pthread_cond_signal(&p->begun);
	pthread_mutex_unlock(&p->lock);
	if (ret < 0)
		return NULL;
	while ((job = take(p)) != NULL)
		job->run(job);
	if (p->config.leave != NULL)
		p->config.leave(p->config.arg);
	return NULL;
}

int
slice_pool_open(struct slice_pool **pool, const struct slice_pool_config *config)
{
	struct slice_pool *p;
	int ret = 0;

	if (config->threads < 1 || config->threads > SLICE_POOL_THREADS_MAX)
		return -EINVAL;
	p = calloc(1, sizeof(*p) + config->threads * sizeof(p->thread[0]));
	if (p == NULL)
		return -ENOMEM;
	p->config = *config;
	p->last = &p->first;
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->given, NULL);
	pthread_cond_init(&p->begun, NULL);
	while (ret == 0 && p->nb_threads < config->threads) {
		ret = -pthread_create(&p->thread[p->nb_threads], NULL, work, p);
		p->nb_threads += ret == 0;
	}
	pthread_mutex_lock(&p->lock);
	while (p->entered < p->nb_threads)
		pthread_cond_wait(&p->begun, &p->lock);
	if (ret == 0)
		ret = p->error;
	pthread_mutex_unlock(&p->lock);
	if (ret < 0) {
		slice_pool_close(p);
		return ret;
	}
	*pool = p;
	return 0;
}

void
slice_pool_submit(struct slice_pool *p, struct slice_job *job)
{
	job->next = NULL;
	pthread_mutex_lock(&p->lock);
	*p->last = job;
	p->last = &job->next;
	pthread_cond_signal(&p->given);
	pthread_mutex_unlock(&p->lock);
}

void
slice_pool_close(struct slice_pool *p)
{
	if (p == NULL)
		return;
	pthread_mutex_lock(&p->lock);
	p->closing = true;
	pthread_cond_broadcast(&p->given);
	pthread_mutex_unlock(&p->lock);
	while (p->nb_threads > 0)
		pthread_join(p->thread[--p->nb_threads], NULL);
	pthread_cond_destroy(&p->begun);
	pthread_cond_destroy(&p->given);
	pthread_mutex_destroy(&p->lock);
	free(p);
}
