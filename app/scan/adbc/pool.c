/* SPDX-License-Identifier: BSD-3-Clause */

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "adbc/pool.h"

struct helper_pool {
	pthread_mutex_t lock;
	uint32_t refs; /* atomic */
	bool closed;
	struct helper *idle; /* NULL: none */
};

struct helper_pool *
helper_pool_create(void)
{
	struct helper_pool *p = calloc(1, sizeof(*p));

	if (p == NULL)
		return NULL;
	pthread_mutex_init(&p->lock, NULL);
	p->refs = 1;
	return p;
}

struct helper_pool *
helper_pool_get(struct helper_pool *p)
{
	__atomic_add_fetch(&p->refs, 1, __ATOMIC_RELAXED);
	return p;
}

void
helper_pool_put(struct helper_pool *p)
{
	if (p == NULL || __atomic_sub_fetch(&p->refs, 1, __ATOMIC_ACQ_REL) > 0)
		return;
	helper_close(p->idle);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

void
helper_pool_close(struct helper_pool *p)
{
	struct helper *idle;

	pthread_mutex_lock(&p->lock);
	idle = p->idle;
	p->idle = NULL;
	p->closed = true;
	pthread_mutex_unlock(&p->lock);
	helper_close(idle);
	helper_pool_put(p);
}

struct helper *
helper_pool_take(struct helper_pool *p, const char *const *argv)
{
	struct helper *h;

	pthread_mutex_lock(&p->lock);
	h = p->idle;
	/* one with other options stays for the statements that have them */
	if (h != NULL && helper_has_command(h, argv))
		p->idle = NULL;
	else
		h = NULL;
	pthread_mutex_unlock(&p->lock);
	if (h == NULL || helper_is_alive(h))
		return h;
	helper_end(h);
	return NULL;
}

void
helper_pool_give(struct helper_pool *p, struct helper *h)
{
	struct helper *before = h;

	pthread_mutex_lock(&p->lock);
	if (!p->closed) {
		/* the last one: its options are those in use */
		before = p->idle;
		p->idle = h;
	}
	pthread_mutex_unlock(&p->lock);
	helper_close(before);
}
