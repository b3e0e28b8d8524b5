/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Threads that transfer slices between memory and files. Each thread makes one call to the
 * operating system or to cuFile at a time, so N threads keep N slices in flight.
 *
 * Jobs are started in the order in which they were added, by any free thread. Any thread may add
 * jobs. The threads run on all CPUs that the process had at its start, not only on the CPU of the
 * lcore that created them.
 */
#ifndef SLICE_POOL_H
#define SLICE_POOL_H

/** the best number of threads for cuDF over GPUDirect Storage, according to NVIDIA */
#define SLICE_POOL_THREADS     16
#define SLICE_POOL_THREADS_MAX 256

/** A job, embedded in the caller's structure, which must stay valid until `run` has been called. */
struct slice_job {
	struct slice_job *next;
	void (*run)(struct slice_job *job);
};

struct slice_pool_config {
	unsigned int threads;	 /**< 1 to SLICE_POOL_THREADS_MAX */
	int (*enter)(void *arg); /**< first call of each thread, 0 or -errno; may be NULL */
	/** last call of each thread whose `enter` was successful; may be NULL */
	void (*leave)(void *arg);
	void *arg;
};

struct slice_pool;

/** @return 0; -EINVAL: number of threads; -errno of pthread_create(3) or of `enter`; -ENOMEM */
int slice_pool_open(struct slice_pool **pool, const struct slice_pool_config *config);

void slice_pool_submit(struct slice_pool *pool, struct slice_job *job);

/** Wait until all jobs are done, and end the threads. `pool` may be NULL. */
void slice_pool_close(struct slice_pool *pool);

#endif /* SLICE_POOL_H */
