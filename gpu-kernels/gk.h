/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Gang kernels: one interface, a row of gk_ops per implementation (`host`, `cuda`).
 *
 * The caller owns all memory (it knows about huge pages, NUMA and registration) and talks to the
 * gangs through struct gk_channel only; the ops start, drive and stop them.
 */
#ifndef GK_H
#define GK_H

#include <stddef.h>

#include "gk_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

struct gk;

/** Where the packets of a run lie. A wrong answer costs time, never a byte. */
enum gk_memory {
	GK_MEMORY_HOST = 0, /**< registered host memory: read once over the bus, staged by the gang,
			       let go of (gk_done.raw) as soon as they are counted */
	GK_MEMORY_DEVICE = 1 /**< memory of the GPU: read again for outputs, held until then */
};

/** Instruction set of host gangs. Time depends on it, no byte does. */
enum gk_isa {
	GK_ISA_AUTO = 0, /**< the widest that the processor has */
	GK_ISA_PLAIN = 1,
	GK_ISA_AVX2 = 2,
	GK_ISA_AVX512 = 3,
};
#define GK_ISAS 4

/** A watchdog of less would bite a process that is well: it shows that it lives every 50 ms. */
#define GK_WATCHDOG_MIN_MS 100

/** Shapes and memory of one set of gangs. All pointers are device addresses, 64-byte aligned. */
struct gk_config {
	struct gk_geometry geometry;
	struct gk_layout layout; /**< of output slots, by gk_layout_init() */
	enum gk_value value;
	uint32_t gangs;	  /**< 1 ... GK_GANGS_MAX */
	uint32_t workers; /**< cuda: thread blocks of one gang, 0 = choose; host: threads that
			     are expected, any number may poll */
	struct gk_channel *channel; /**< zeroed but for params, coef and dark */
	uint8_t *frames;	    /**< frame slots, gk_frame_stride() apart */
	struct gk_result *results;  /**< one a frame slot */
	uint32_t nb_frames;	    /**< frame slots */
	uint8_t *outputs;	    /**< output slots, layout.stride apart */
	uint32_t nb_outputs;
	void *context; /**< cuda: CUcontext as rte_gpu_info.context gives it, NULL = the primary one
			  of device 0; host: NULL */
	enum gk_isa isa; /**< host: what the processor lacks is refused (-ENOTSUP); cuda: not
			    looked at */
	/* The host row looks at none of these; zero is always right. */
	enum gk_memory packets;
	uint32_t watchdog_ms; /**< a process that is silent for so long (stopped, dead) ends the
				 kernel: gk_done.error is -ETIMEDOUT; at least GK_WATCHDOG_MIN_MS,
				 or 0 = never (debuggers) */
	uint32_t once; /**< start() serves what was handed over before it, and ends: for tools that
			  want kernels to end by themselves */
};

/**
 * What a set of gangs computes, per frame of a batch:
 *  1. photons of every pixel (gk_pixel.h), pixels of missing packets being NaN;
 *  2. the statistics of struct gk_result and the verdict;
 *  3. for a frame that is a hit or has GK_FRAME_KEEP, and has an output slot, the output: CSR, or
 *     a full image when it is asked for or when nnz > nnz_max, or raw data;
 *  4. for a frame with GK_FRAME_DARK, the sums of its G0 samples (struct gk_dark).
 * Output bytes beyond what the kind defines are not written. Between pedestal intervals: dark
 * updates.
 */
struct gk_ops {
	const char *name;

	/**
	 * Can gangs run on this GPU? create() asks the same. NULL: they need no GPU.
	 * @param context  as gk_config.context
	 * @return 0; -ENODEV: no GPU, or no driver; -ENOTSUP: a GPU that cannot; -EIO: CUDA's error
	 */
	int (*usable)(void *context);

	/**
	 * GPU memory that create() takes for this configuration, at most: pointers and context are
	 * not looked at. NULL: none.
	 * @return bytes
	 */
	uint64_t (*memory)(const struct gk_config *config);

	/**
	 * Check the configuration and allocate private state.
	 * @return 0; -EINVAL: a shape or pointer is unusable, gk_config_check() says which;
	 *         -ENOMEM; -ENODEV: no GPU; -ENOTSUP: a GPU, or a processor, that cannot; -EIO:
	 *         CUDA's error
	 */
	int (*create)(const struct gk_config *config, struct gk **gk);

	/**
	 * Begin to serve the rings (cuda: launch the persistent kernel), each from gk_done.done on:
	 * from batch 0 on a zeroed channel, from where they stood after a stop. cuda: clears quit,
	 * and makes a thread that has the CPUs of the caller, but SCHED_OTHER.
	 * @return 0; -EBUSY: the gangs are running; -EINVAL: a doorbell and gk_done disagree
	 */
	int (*start)(struct gk *gk);

	/**
	 * Do one quantum of a host gang's work; NULL where the gangs run by themselves.
	 * Never blocks and waits for nobody: a quantum is at most 8 tiles of every frame in a
	 * batch. Any number of threads may serve a gang, and one thread any number of gangs; a
	 * thread that is preempted inside delays only the batch that it works on. Returns 0 while
	 * the gangs are stopped.
	 * @param worker  the caller's number within the gang (a hint; the host row needs none)
	 * @return non-zero if something was done
	 */
	int (*poll)(struct gk *gk, uint32_t gang, uint32_t worker);

	/**
	 * Stop serving once what was handed over is done (cuda: sets quit). May be called while
	 * other threads poll; when it has returned anything but -EBUSY, poll() does nothing.
	 * @return 0; -EBUSY: batches are still out (host: keep polling; call again); or, with all
	 *         gangs stopped, the gk_done.error of a gang that gave up; -EIO: the kernel
	 *         crashed, or CUDA cannot be asked (then destroy() ends the gangs)
	 */
	int (*stop)(struct gk *gk);

	/** Free private state; no thread is in poll() any more. NULL is allowed. cuda: while the
	 * kernel runs, sets quit and waits for its end. */
	void (*destroy)(struct gk *gk);

	/** What was wrong when usable(), create(), start() or stop() last failed in this thread,
	 * for a log; never NULL. NULL pointer: the row has no more to say than its errno. */
	const char *(*why)(void);
};

extern const struct gk_ops gk_host_ops;
extern const struct gk_ops gk_cuda_ops; /**< built where nvcc is */

/** @return "auto", "plain", "avx2", "avx512"; NULL if there is no such set */
const char *gk_isa_name(enum gk_isa isa);

/** The set that GK_ISA_AUTO stands for here, or `isa` if the processor has it, or else -ENOTSUP. */
int gk_isa_choose(enum gk_isa isa);

/** An implementation by name ("host", "cuda"). @return NULL if it is not built in */
const struct gk_ops *gk_ops_find(const char *name);

/**
 * Is the configuration usable? create() asks the same.
 * @param why   receives what is wrong, with the value found and the value wanted; may be NULL
 * @param size  of why
 * @return 0 or -EINVAL
 */
int gk_config_check(const struct gk_config *config, char *why, size_t size);

/**
 * May a gang take this descriptor: its op, indices, parameters, coefficients, accumulators, frame
 * and output slots, addresses of packets? What depends on other batches (struct gk_dark) cannot be
 * checked. Gangs ask it of every batch, and give up on one that is refused; then the host may ask
 * for the reason.
 * @param why,size  as gk_config_check()
 * @return 0 or -EINVAL
 */
int gk_work_check(
	const struct gk_config *config, const struct gk_work *work, char *why, size_t size);

/** gk_work_check() but for addresses of packets: to host gangs, which ask this, any is good. */
int gk_descriptor_check(
	const struct gk_config *config, const struct gk_work *work, char *why, size_t size);

#ifdef __cplusplus
}
#endif

#endif /* GK_H */
