/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Preloaded into programs that run under the thread sanitizer: tells it what orders memory inside
 * DPDK's libraries, which are not instrumented.
 *  - An object that a mempool gives was given back before, by whichever thread.
 *  - An lcore begins after its launch, and who sees that it waits again does so after its end.
 *  - Memory that EAL's allocator gives was freed, and set to zero, before: its lock is one.
 *
 * TSAN_CASES is a pattern of the names of cmocka's cases that are to run.
 */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <rte_launch.h>
#include <rte_lcore.h>
#include <rte_malloc.h>
#include <rte_mempool.h>

/* of the program, or of the runtime that it is linked with */
void __tsan_acquire(void *address) __attribute__((weak));
void __tsan_release(void *address) __attribute__((weak));
void cmocka_set_test_filter(const char *pattern) __attribute__((weak));

static rte_mempool_enqueue_t put[RTE_MEMPOOL_MAX_OPS_IDX];
static rte_mempool_dequeue_t get[RTE_MEMPOOL_MAX_OPS_IDX];

static int
pool_put(struct rte_mempool *pool, void *const *objects, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++)
		__tsan_release(objects[i]);
	return put[pool->ops_index](pool, objects, n);
}

static int
pool_get(struct rte_mempool *pool, void **objects, unsigned int n)
{
	int ret = get[pool->ops_index](pool, objects, n);

	for (unsigned int i = 0; ret == 0 && i < n; i++)
		__tsan_acquire(objects[i]);
	return ret;
}

/** Handlers are registered by constructors of libraries: taken over as a pool is filled. */
int
rte_mempool_set_ops_byname(struct rte_mempool *pool, const char *name, void *config)
{
	int (*set)(struct rte_mempool *, const char *, void *) =
		(__typeof__(set))dlsym(RTLD_NEXT, "rte_mempool_set_ops_byname");
	struct rte_mempool_ops *ops;
	int ret = set(pool, name, config);

	if (ret != 0)
		return ret;
	ops = rte_mempool_get_ops(pool->ops_index);
	if (ops->enqueue != pool_put) {
		put[pool->ops_index] = ops->enqueue;
		get[pool->ops_index] = ops->dequeue;
		ops->enqueue = pool_put;
		ops->dequeue = pool_get;
	}
	return 0;
}

static struct launched {
	lcore_function_t *main;
	void *arg;
	char begin, end;
} launched[RTE_MAX_LCORE];

static int
lcore_main(void *arg)
{
	struct launched *l = arg;
	int ret;

	__tsan_acquire(&l->begin);
	ret = l->main(l->arg);
	__tsan_release(&l->end);
	return ret;
}

int
rte_eal_remote_launch(lcore_function_t *f, void *arg, unsigned int lcore)
{
	int (*launch)(lcore_function_t *, void *, unsigned int) =
		(__typeof__(launch))dlsym(RTLD_NEXT, "rte_eal_remote_launch");
	struct launched *l = &launched[lcore];

	if (rte_eal_get_lcore_state(lcore) == WAIT) {
		l->main = f;
		l->arg = arg;
	}
	__tsan_release(&l->begin);
	return launch(lcore_main, l, lcore);
}

int
rte_eal_wait_lcore(unsigned int lcore)
{
	int (*wait)(unsigned int) = (__typeof__(wait))dlsym(RTLD_NEXT, "rte_eal_wait_lcore");
	int ret = wait(lcore);

	__tsan_acquire(&launched[lcore].end);
	return ret;
}

enum rte_lcore_state_t
rte_eal_get_lcore_state(unsigned int lcore)
{
	enum rte_lcore_state_t (*state)(unsigned int) =
		(__typeof__(state))dlsym(RTLD_NEXT, "rte_eal_get_lcore_state");
	const enum rte_lcore_state_t now = state(lcore);

	if (now == WAIT)
		__tsan_acquire(&launched[lcore].end);
	return now;
}

void
rte_eal_mp_wait_lcore(void)
{
	unsigned int lcore;

	RTE_LCORE_FOREACH_WORKER(lcore)
		rte_eal_wait_lcore(lcore);
}

static char heap;

void
rte_free(void *memory)
{
	void (*give)(void *) = (__typeof__(give))dlsym(RTLD_NEXT, "rte_free");

	give(memory);
	__tsan_release(&heap);
}

#define ALLOCATE(name)                                                \
	void *name(const char *type, size_t size, unsigned int align) \
	{                                                             \
		void *(*take)(const char *, size_t, unsigned int) =   \
			(__typeof__(take))dlsym(RTLD_NEXT, #name);    \
		void *memory = take(type, size, align);               \
		__tsan_acquire(&heap);                                \
		return memory;                                        \
	}

ALLOCATE(rte_malloc)
ALLOCATE(rte_zmalloc)

#define ALLOCATE_ON(name)                                                         \
	void *name(const char *type, size_t size, unsigned int align, int socket) \
	{                                                                         \
		void *(*take)(const char *, size_t, unsigned int, int) =          \
			(__typeof__(take))dlsym(RTLD_NEXT, #name);                \
		void *memory = take(type, size, align, socket);                   \
		__tsan_acquire(&heap);                                            \
		return memory;                                                    \
	}

ALLOCATE_ON(rte_malloc_socket)
ALLOCATE_ON(rte_zmalloc_socket)

static __attribute__((constructor)) void
choose_cases(void)
{
	const char *pattern = getenv("TSAN_CASES");

	if (pattern != NULL && cmocka_set_test_filter != NULL)
		cmocka_set_test_filter(pattern);
}
