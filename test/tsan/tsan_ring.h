/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Included before every file of a build with -Db_sanitize=thread.
 *
 * Rings with one producer and one consumer are inline code that the thread sanitizer follows: their
 * indices and their elements are checked. DPDK's rings with several producers or consumers are not
 * in order by the rules of C: the tail is handed from one to the next by relaxed loads and, in the
 * RTS mode, read without an atomic access. What goes through them is told to the sanitizer here,
 * object by object, and suppressions.txt names the rest.
 */
#ifndef TSAN_RING_H
#define TSAN_RING_H

#if __has_include(<rte_ring.h>)

#include <rte_ring.h>
#include <sanitizer/tsan_interface.h>

static inline void
tsan_give(struct rte_ring *r, void *const *objects, unsigned int n)
{
	for (unsigned int i = 0; r->prod.sync_type != RTE_RING_SYNC_ST && i < n; i++)
		__tsan_release(objects[i]);
}

static inline void
tsan_take(struct rte_ring *r, void **objects, unsigned int n)
{
	for (unsigned int i = 0; r->prod.sync_type != RTE_RING_SYNC_ST && i < n; i++)
		__tsan_acquire(objects[i]);
}

static inline int
tsan_ring_enqueue(struct rte_ring *r, void *object)
{
	tsan_give(r, &object, 1);
	return rte_ring_enqueue(r, object);
}

static inline unsigned int
tsan_ring_enqueue_burst(
	struct rte_ring *r, void *const *objects, unsigned int n, unsigned int *free_space)
{
	tsan_give(r, objects, n);
	return rte_ring_enqueue_burst(r, objects, n, free_space);
}

static inline int
tsan_ring_dequeue(struct rte_ring *r, void **object)
{
	int ret = rte_ring_dequeue(r, object);

	if (ret == 0)
		tsan_take(r, object, 1);
	return ret;
}

static inline unsigned int
tsan_ring_dequeue_burst(struct rte_ring *r, void **objects, unsigned int n, unsigned int *available)
{
	n = rte_ring_dequeue_burst(r, objects, n, available);
	tsan_take(r, objects, n);
	return n;
}

#define rte_ring_enqueue(r, object)	      tsan_ring_enqueue(r, object)
#define rte_ring_mp_enqueue(r, object)	      tsan_ring_enqueue(r, object)
#define rte_ring_dequeue(r, object)	      tsan_ring_dequeue(r, object)
#define rte_ring_sc_dequeue(r, object)	      tsan_ring_dequeue(r, object)
#define rte_ring_enqueue_burst(r, o, n, f)    tsan_ring_enqueue_burst(r, o, n, f)
#define rte_ring_dequeue_burst(r, o, n, a)    tsan_ring_dequeue_burst(r, o, n, a)
#define rte_ring_sc_dequeue_burst(r, o, n, a) tsan_ring_dequeue_burst(r, o, n, a)

#endif
#endif /* TSAN_RING_H */
