/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Threads that move slices between memory and files, one call of the operating system or of cuFile
 * at a time each: N threads are N slices on their way.
 *
 * Jobs are taken in the order in which they were given, by whichever thread is free. Any thread may
 * give them. The threads run on all CPUs that the process had at its start, not only on the lcore
 * that made them.
 */
#ifndef SLICE_POOL_H
#define SLICE_POOL_H

#define SLICE_POOL_THREADS     16 /**< as NVIDIA found best for cuDF over GPUDirect Storage */
#define SLICE_POOL_THREADS_MAX 256

/** To be embedded in what it is about, which stays until `run` has been called. */
struct slice_job {
	struct slice_job *next;
	void (*run)(struct slice_job *job);
};

struct slice_pool_config {
	unsigned int threads;	  /**< 1 to SLICE_POOL_THREADS_MAX */
	int (*enter)(void *arg);  /**< each thread's first call; NULL: none. 0 or -errno */
	void (*leave)(void *arg); /**< its last one, if `enter` was successful; NULL: none */
	void *arg;
};

struct slice_pool;

/** @return 0; -EINVAL: threads; -errno of pthread_create(3) or of `enter`; -ENOMEM */
int slice_pool_open(struct slice_pool **pool, const struct slice_pool_config *config);

void slice_pool_submit(struct slice_pool *pool, struct slice_job *job);

/** Returns when all that was given has been done and the threads have ended; NULL is allowed. */
void slice_pool_close(struct slice_pool *pool);

#endif /* SLICE_POOL_H */
