/* SPDX-License-Identifier: BSD-3-Clause */

#include <stddef.h>
#include <time.h>

#include "egress/file_thread.h"

static void
execute(struct file_thread *t)
{
	if (mailbox_take(&t->mailbox))
		mailbox_answer(&t->mailbox, t->work(t->arg));
}

static void *
file_thread_main(void *arg)
{
	struct file_thread *t = arg;
	bool end;

	do {
		while (sem_wait(&t->wake) < 0)
			; /* a signal handler has run */
		end = __atomic_load_n(&t->end, __ATOMIC_ACQUIRE);
		execute(t);
	} while (!end);
	return NULL;
}

int
file_thread_start(struct file_thread *t, const char *name, const cpu_set_t *cpus)
{
	pthread_attr_t attr;
	int ret;

	sem_init(&t->wake, 0, 0);
	pthread_attr_init(&attr);
	pthread_attr_setaffinity_np(&attr, sizeof(*cpus), cpus);
	ret = pthread_create(&t->thread, &attr, file_thread_main, t);
	pthread_attr_destroy(&attr);
	if (ret != 0) {
		sem_destroy(&t->wake);
		return -ret;
	}
	pthread_setname_np(t->thread, name);
	t->started = true;
	return 0;
}

void
file_thread_begin(struct file_thread *t)
{
	mailbox_post(&t->mailbox);
	if (t->started)
		sem_post(&t->wake);
	else
		execute(t);
}

int
file_thread_result(const struct file_thread *t)
{
	return mailbox_result(&t->mailbox);
}

bool
file_thread_stop(struct file_thread *t, unsigned int limit_s)
{
	struct timespec until;

	if (!t->started)
		return true;
	__atomic_store_n(&t->end, true, __ATOMIC_RELEASE);
	sem_post(&t->wake);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += limit_s;
	if (limit_s == 0) {
		pthread_join(t->thread, NULL);
	} else if (pthread_timedjoin_np(t->thread, NULL, &until) != 0) {
		pthread_detach(t->thread);
		return false;
	}
	sem_destroy(&t->wake);
	t->started = false;
	return true;
}
