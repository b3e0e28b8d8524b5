/* SPDX-License-Identifier: BSD-3-Clause */

#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sql/map_guard.h"

/*
 * A node of a list that only grows, so that the handler can walk through it at any time. The node
 * of an ended guard has the size 0 and is used again.
 */
struct map_guard {
	struct map_guard *next;
	uintptr_t start; /* written while size is 0 */
	size_t size;	 /* atomic */
	bool marked;	 /* atomic */
};

static struct map_guard *guards; /* atomic */
static unsigned int nb_marked;	 /* guards that are marked, atomic */
static pthread_mutex_t guards_lock = PTHREAD_MUTEX_INITIALIZER;
static uintptr_t guards_page;
static struct sigaction guards_before; /* what SIGBUS did before */

/* mmap(2) is a system call without state of libc, so a handler may call it. */
static void
on_sigbus(int number, siginfo_t *info, void *context)
{
	const uintptr_t at = (uintptr_t)info->si_addr;
	const uintptr_t page = at & ~(guards_page - 1);
	struct map_guard *g = __atomic_load_n(&guards, __ATOMIC_ACQUIRE);

	for (; g != NULL; g = g->next) {
		const size_t size = __atomic_load_n(&g->size, __ATOMIC_ACQUIRE);

		if (at - g->start >= size)
			continue;
		/*
		 * Other threads may read the zeros as soon as they are there: it is marked before.
		 * Another one may mark it too: it is counted before.
		 */
		(void)__atomic_add_fetch(&nb_marked, 1, __ATOMIC_RELEASE);
		if (__atomic_exchange_n(&g->marked, true, __ATOMIC_ACQ_REL))
			(void)__atomic_sub_fetch(&nb_marked, 1, __ATOMIC_RELEASE);
		if (mmap((void *)page, guards_page, PROT_READ,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
			break;
		return;
	}
	/* the access faults again */
	sigaction(SIGBUS, &guards_before, NULL);
}

/* Install the handler, also if another library has replaced it since. */
static void
install(void)
{
	struct sigaction action = {.sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO}, now;

	guards_page = sysconf(_SC_PAGESIZE);
	sigemptyset(&action.sa_mask);
	if (sigaction(SIGBUS, NULL, &now) == 0 && now.sa_sigaction != on_sigbus) {
		guards_before = now;
		sigaction(SIGBUS, &action, NULL);
	}
}

struct map_guard *
map_guard_add(const void *data, size_t size)
{
	struct map_guard *g;

	pthread_mutex_lock(&guards_lock);
	install();
	for (g = guards; g != NULL && g->size != 0; g = g->next)
		;
	if (g == NULL) {
		g = calloc(1, sizeof(*g));
		if (g == NULL)
			goto out;
		g->next = guards;
		__atomic_store_n(&guards, g, __ATOMIC_RELEASE);
	}
	g->start = (uintptr_t)data;
	__atomic_store_n(&g->size, size, __ATOMIC_RELEASE);
out:
	pthread_mutex_unlock(&guards_lock);
	return g;
}

void
map_guard_remove(struct map_guard *g)
{
	if (g == NULL)
		return;
	pthread_mutex_lock(&guards_lock);
	__atomic_store_n(&g->size, 0, __ATOMIC_RELEASE);
	if (__atomic_exchange_n(&g->marked, false, __ATOMIC_RELAXED))
		(void)__atomic_sub_fetch(&nb_marked, 1, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&guards_lock);
}

bool
map_guard_is_marked(const struct map_guard *g)
{
	return __atomic_load_n(&g->marked, __ATOMIC_ACQUIRE);
}

bool
map_guard_any_marked(void)
{
	return __atomic_load_n(&nb_marked, __ATOMIC_ACQUIRE) > 0;
}
