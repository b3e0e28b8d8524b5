/* SPDX-License-Identifier: BSD-3-Clause */

#include <signal.h>
#include <string.h>

#include "read_ahead.h"

static void *
run_tasks(void *arg)
{
	struct read_ahead *a = arg;

	pthread_mutex_lock(&a->lock);
	while (!a->stop) {
		if (a->task == NULL) {
			pthread_cond_wait(&a->changed, &a->lock);
			continue;
		}
		pthread_mutex_unlock(&a->lock);
		a->task(a->arg);
		pthread_mutex_lock(&a->lock);
		a->task = NULL;
		pthread_cond_signal(&a->changed);
	}
	pthread_mutex_unlock(&a->lock);
	return NULL;
}

static bool
start_thread(struct read_ahead *a)
{
	sigset_t all, before;
	int ret;

	pthread_mutex_init(&a->lock, NULL);
	pthread_cond_init(&a->changed, NULL);
	/* a signal interrupts the waits of the other thread */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	ret = pthread_create(&a->thread, NULL, run_tasks, a);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (ret == 0)
		return true;
	pthread_cond_destroy(&a->changed);
	pthread_mutex_destroy(&a->lock);
	return false;
}

bool
read_ahead_start(struct read_ahead *a, void (*task)(void *arg), void *arg)
{
	bool started;

	if (!a->has_thread)
		a->has_thread = start_thread(a);
	if (!a->has_thread)
		return false;
	pthread_mutex_lock(&a->lock);
	started = a->task == NULL;
	if (started) {
		a->arg = arg;
		a->task = task;
		pthread_cond_signal(&a->changed);
	}
	pthread_mutex_unlock(&a->lock);
	return started;
}

void
read_ahead_wait(struct read_ahead *a)
{
	if (!a->has_thread)
		return;
	pthread_mutex_lock(&a->lock);
	while (a->task != NULL)
		pthread_cond_wait(&a->changed, &a->lock);
	pthread_mutex_unlock(&a->lock);
}

void
read_ahead_close(struct read_ahead *a)
{
	if (!a->has_thread)
		return;
	read_ahead_wait(a);
	pthread_mutex_lock(&a->lock);
	a->stop = true;
	pthread_cond_signal(&a->changed);
	pthread_mutex_unlock(&a->lock);
	pthread_join(a->thread, NULL);
	pthread_cond_destroy(&a->changed);
	pthread_mutex_destroy(&a->lock);
	memset(a, 0, sizeof(*a));
}
