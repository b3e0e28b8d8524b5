/* SPDX-License-Identifier: BSD-3-Clause */

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "adbc/pool.h"

struct session_pool {
	pthread_mutex_t lock;
	uint32_t refs; /* atomic */
	bool closed;
	struct session_process *idle; /* NULL: none */
};

struct session_pool *
session_pool_create(void)
{
	struct session_pool *p = calloc(1, sizeof(*p));

	if (p == NULL)
		return NULL;
	pthread_mutex_init(&p->lock, NULL);
	p->refs = 1;
	return p;
}

struct session_pool *
session_pool_get(struct session_pool *p)
{
	__atomic_add_fetch(&p->refs, 1, __ATOMIC_RELAXED);
	return p;
}

void
session_pool_put(struct session_pool *p)
{
	if (p == NULL || __atomic_sub_fetch(&p->refs, 1, __ATOMIC_ACQ_REL) > 0)
		return;
	session_process_close(p->idle);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

void
session_pool_close(struct session_pool *p)
{
	struct session_process *idle;

	pthread_mutex_lock(&p->lock);
	idle = p->idle;
	p->idle = NULL;
	p->closed = true;
	pthread_mutex_unlock(&p->lock);
	session_process_close(idle);
	session_pool_put(p);
}

struct session_process *
session_pool_take(struct session_pool *p, const char *const *argv)
{
	struct session_process *h;

	pthread_mutex_lock(&p->lock);
	h = p->idle;
	/* one with other options stays for the statements that have them */
	if (h != NULL && session_process_has_command(h, argv))
		p->idle = NULL;
	else
		h = NULL;
	pthread_mutex_unlock(&p->lock);
	if (h == NULL || session_process_is_alive(h))
		return h;
	session_process_end(h);
	return NULL;
}

void
session_pool_give(struct session_pool *p, struct session_process *h)
{
	struct session_process *before = h;

	pthread_mutex_lock(&p->lock);
	if (!p->closed) {
		/* the last one: its options are those in use */
		before = p->idle;
		p->idle = h;
	}
	pthread_mutex_unlock(&p->lock);
	session_process_close(before);
}
