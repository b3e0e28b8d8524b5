/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Gang kernels: one interface with one struct gk_ops per implementation (`host`, `cuda`).
 *
 * The caller owns all memory, because it manages huge pages, NUMA and registration. It communicates
 * with the gangs only through struct gk_channel. The ops start, drive and stop the gangs.
 */
#ifndef GK_H
#define GK_H

#include <stddef.h>

#include "gk_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

struct gk;

/** Memory of the packets of a run. A wrong value affects speed only, never the results. */
enum gk_memory {
	/**
	 * registered host memory: read once over the bus, staged by the gang, released
	 * (gk_done.raw) as soon as the packets are counted
	 */
	GK_MEMORY_HOST = 0,
	GK_MEMORY_DEVICE = 1 /**< GPU memory: read again for outputs, held until then */
};

/** Instruction set of host gangs. It affects speed only, never the results. */
enum gk_isa {
	GK_ISA_AUTO = 0, /**< the widest set that the CPU supports */
	GK_ISA_PLAIN = 1,
	GK_ISA_AVX2 = 2,
	GK_ISA_AVX512 = 3,
};
#define GK_ISAS 4

/**
 * Minimum of watchdog_ms. A live process signals every 50 ms, so a shorter time would end healthy
 * gangs.
 */
#define GK_WATCHDOG_MIN_MS 100

/** Shapes and memory of a group of gangs. All pointers are device addresses, 64-byte aligned. */
struct gk_config {
	struct gk_geometry geometry;
	struct gk_layout layout; /**< layout of output slots, by gk_layout_init() */
	enum gk_value value;
	uint32_t gangs; /**< 1 ... GK_GANGS_MAX */
	/**
	 * cuda: thread blocks of a gang, 0: choose; host: expected number of threads, any number
	 * may poll
	 */
	uint32_t workers;
	/** zeroed except params, coef, dark, pixels, radial and peak */
	struct gk_channel *channel;
	uint8_t *frames;	   /**< frame slots, at a distance of gk_frame_stride() */
	struct gk_result *results; /**< one per frame slot */
	/** one per frame slot; NULL: none are written, and no parameters may select chunks */
	struct gk_details *details;
	uint8_t *profiles; /**< areas at a distance of gk_profile_stride(); with channel->radial */
	uint32_t nb_profiles;
	uint32_t nb_frames; /**< number of frame slots */
	uint8_t *outputs;   /**< output slots, at a distance of layout.stride */
	uint32_t nb_outputs;
	/**
	 * cuda: CUcontext as in rte_gpu_info.context, NULL: the primary context of device 0; host:
	 * NULL
	 */
	void *context;
	/** host: create() returns -ENOTSUP for a set that the CPU lacks; cuda: ignored */
	enum gk_isa isa;
	/* The host implementation ignores the next three fields. Zero is always valid. */
	enum gk_memory packets;
	/**
	 * If the process is silent for this time (stopped, dead) the kernel ends and gk_done.error
	 * is -ETIMEDOUT; at least GK_WATCHDOG_MIN_MS, or 0: never (for debuggers)
	 */
	uint32_t watchdog_ms;
	/**
	 * start() serves the batches handed over before it and then ends; for tools that need
	 * kernels to end by themselves
	 */
	uint32_t once;
	/**
	 * both implementations: frames may have GK_FRAME_TRAILER. create() then allocates memory
	 * for copies of the packets of a batch in each gang; otherwise gangs refuse such frames
	 */
	uint32_t trailers;
	/**
	 * both implementations: parameters may select chunks. create() then allocates memory for
	 * the chunks of a batch in each gang; otherwise gangs refuse such parameters
	 */
	uint32_t chunks;
	/**
	 * host: continue a CRC-32C by bytes that follow those of `crc`, complemented at both ends;
	 * for gk_details.chunk_crc32c, called by threads that poll. NULL: chunk_crc32c is 0. cuda:
	 * ignored
	 */
	uint32_t (*crc32c)(uint32_t crc, const void *bytes, size_t size);
};

/**
 * Implementation of gangs. For each frame of a batch it computes:
 * 1. photons of every pixel (gk_pixel.h); pixels of missing packets are NaN;
 * 2. the statistics of struct gk_result, the peaks if gk_params.search demands them, and the
 *   verdict; photons of the search are those of GK_VALUE_I16 for any type of `value`;
 * 3. the output, for a frame that is a hit or has GK_FRAME_KEEP, and that has an output slot. The
 *   output is CSR, a full image (if requested, or if nnz > nnz_max), or raw data, plain or
 *   compressed (gk_params.chunks);
 * 4. the sums of the G0 samples (struct gk_dark), for a frame with GK_FRAME_DARK;
 * 5. the radial profile, if the channel has a map for it (struct gk_radial_pixels).
 * Bytes of the output slot beyond those that the kind defines are not written. Between pedestal
 * intervals it computes dark updates. Pixels of a frame with GK_FRAME_TRAILER are copied once, and
 * everything is computed from the copies whose trailers match.
 */
struct gk_ops {
	const char *name;

	/**
	 * Check whether gangs can run on this GPU. create() does the same check. NULL: no GPU is
	 * needed.
	 * @param context  as gk_config.context
	 * @return 0; -ENODEV: no GPU or no driver; -ENOTSUP: this GPU is not supported; -EIO: CUDA
	 *   error
	 */
	int (*usable)(void *context);

	/**
	 * Return the maximum GPU memory that create() allocates for this configuration. Pointers
	 * and context are ignored; a map of pixels is expected if layout.peaks_cap is not 0, and
	 * the most bins of profiles if nb_profiles is not 0. NULL: none.
	 * @return bytes
	 */
	uint64_t (*memory)(const struct gk_config *config);

	/**
	 * Check the configuration and allocate private state.
	 * @return 0; -EINVAL: invalid shape or pointer, gk_config_check() says which; -ENOMEM;
	 *   -ENODEV: no GPU; -ENOTSUP: GPU or CPU not supported; -EIO: CUDA error
	 */
	int (*create)(const struct gk_config *config, struct gk **gk);

	/**
	 * Start to serve the rings (cuda: launch the persistent kernel). Each ring begins at
	 * gk_done.done: at batch 0 on a zeroed channel, otherwise where it was stopped. cuda:
	 * clears `quit` and creates a SCHED_OTHER thread with the CPU affinity of the caller.
	 * @return 0; -EBUSY: the gangs are running; -EINVAL: the rings cannot be continued, see
	 *   gk_start_check()
	 */
	int (*start)(struct gk *gk);

	/**
	 * Execute one quantum of a host gang's work. NULL if gangs run by themselves. The call
	 * never blocks and never waits for another thread. A quantum is at most 8 tiles of every
	 * frame in a batch. Any number of threads may serve a gang, and a thread may serve any
	 * number of gangs. A thread that is preempted in this call delays only the batch that it
	 * works on. Returns 0 while the gangs are stopped.
	 * @param worker  the caller's number within the gang (a hint; the host implementation
	 *   ignores it)
	 * @return non-zero if any work was done
	 */
	int (*poll)(struct gk *gk, uint32_t gang, uint32_t worker);

	/**
	 * Stop serving after all batches handed over are done (cuda: sets `quit`). Other threads
	 * may poll during the call. When it has returned anything but -EBUSY, poll() does nothing.
	 * @return 0; -EBUSY: batches are not done yet (host: keep polling; call again); the
	 *   gk_done.error of a failed gang, with all gangs stopped; -EIO: the kernel crashed or
	 *   CUDA does not respond (destroy() then ends the gangs)
	 */
	int (*stop)(struct gk *gk);

	/**
	 * Free private state. No thread may be in poll(). NULL is allowed. cuda: if the kernel
	 * runs, sets `quit` and waits for its end.
	 */
	void (*destroy)(struct gk *gk);

	/**
	 * Return the reason of the last failure of usable(), create(), start() or stop() in this
	 * thread, for a log; never NULL. NULL pointer: the errno is the only information.
	 */
	const char *(*why)(void);
};

extern const struct gk_ops gk_host_ops;
extern const struct gk_ops gk_cuda_ops; /**< available if built with nvcc */

/** @return "auto", "plain", "avx2", "avx512"; NULL: there is no such set */
const char *gk_isa_name(enum gk_isa isa);

/**
 * Return the set that GK_ISA_AUTO selects on this CPU, or `isa` if the CPU supports it, otherwise
 * -ENOTSUP.
 */
int gk_isa_choose(enum gk_isa isa);

/** Find an implementation by name ("host", "cuda"). @return NULL: not built in */
const struct gk_ops *gk_ops_find(const char *name);

/**
 * Check a configuration. create() does the same check.
 * @param why   receives the error with the value found and the value expected; may be NULL
 * @param size  size of why
 * @return 0 or -EINVAL
 */
int gk_config_check(const struct gk_config *config, char *why, size_t size);

/**
 * Return the maximum memory that host gangs use for peak searches and radial profiles, in bytes:
 * that of one frame for each thread of a gang.
 * @param config        geometry, gangs, workers
 * @param peak_bins     gk_peak_pixels.nb_bins; 0: no peaks are searched
 * @param profile_bins  gk_radial_pixels.nb_bins; 0: no profiles are made
 */
uint64_t gk_host_search_memory(
	const struct gk_config *config, uint32_t peak_bins, uint32_t profile_bins);

/**
 * Check a descriptor: op, indices, parameters, coefficients, accumulators, frame and output slots,
 * addresses of packets. Conditions that depend on other batches (struct gk_dark) cannot be checked.
 * Gangs check every batch with this function, and fail on an invalid one; the host may then call it
 * to get the reason.
 * @param why,size  as gk_config_check()
 * @return 0 or -EINVAL
 */
int gk_work_check(
	const struct gk_config *config, const struct gk_work *work, char *why, size_t size);

/**
 * Same as gk_work_check() without the addresses of packets of frames without trailers. Host gangs
 * use this check because they accept any address of such packets.
 */
int gk_descriptor_check(
	const struct gk_config *config, const struct gk_work *work, char *why, size_t size);

/**
 * Check whether the rings of stopped gangs can be continued. start() does the same check. A gang
 * that was ended during a batch (by the watchdog, or by a crash of the kernel) cannot repeat it:
 * packets that it has released may have been overwritten, and the samples that it has added to dark
 * accumulators would be added again. Create new gangs on a zeroed channel then.
 * @param why,size  as gk_config_check()
 * @return 0 or -EINVAL
 */
int gk_start_check(const struct gk_config *config, char *why, size_t size);

#ifdef __cplusplus
}
#endif

#endif /* GK_H */
