/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The cuda implementation of gk_ops: memory, launch, watchdog, end. create() does all allocation
 * and loading. Calls after a launch (stream queries, stores to the channel) do not synchronise.
 */

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gk_cuda.h"
#include "gk_cuda_driver.h"
#include "gk_cuda_image.h"
#include "gk_cuda_peaks.h"
#include "gk_radial.h"

/* Interval in which the host signals that it is alive, and checks the kernel. */
#define BEAT_MS 50
GK_STATIC_ASSERT(GK_WATCHDOG_MIN_MS >= 2 * BEAT_MS, "one beat may be late");

struct gk {
	struct gk_config config;
	struct gk_cuda_args args;
	const struct gk_cuda_symbols *cuda;
	CUcontext context;
	CUdevice_v1 device;
	bool retained; /* the primary context is retained */
	CUmodule module;
	CUfunction kernel;
	CUdeviceptr_v2 constants;
	CUstream stream;
	CUdeviceptr_v2 memory; /* one allocation for everything but searches for peaks */
	/* searches for peaks, if the channel has a map of pixels @{ */
	struct gk_cuda_peaks peaks;
	CUdeviceptr_v2 peak_constants;
	CUdeviceptr_v2 peaks_memory;
	uint64_t peaks_size;
	uint64_t peaks_constant; /* bytes of it that never change, which come first */
	/** @} */
	bool running;
	bool beating;
	int quit; /* for the heartbeat thread */
	pthread_t beat;
};

static _Thread_local char why[256];

static int __attribute__((format(printf, 2, 3))) refuse(int ret, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(why, sizeof(why), format, args);
	va_end(args);
	return ret;
}

static int
failed(const struct gk *gk, const char *call, CUresult result)
{
	const char *name = NULL;

	/* a driver that does not know the number stores NULL */
	gk->cuda->cuGetErrorName(result, &name);
	if (name == NULL)
		name = "unknown error";
	return refuse(result == CUDA_ERROR_OUT_OF_MEMORY ? -ENOMEM
			: result == CUDA_ERROR_NO_DEVICE ? -ENODEV
							 : -EIO,
		"%s: %s", call, name);
}

static const char *
cuda_why(void)
{
	return why;
}

static int
enter(const struct gk *gk)
{
	const CUresult ret = gk->cuda->cuCtxPushCurrent(gk->context);

	return ret == CUDA_SUCCESS ? 0 : failed(gk, "cuCtxPushCurrent", ret);
}

static void
leave(const struct gk *gk)
{
	CUcontext context;

	gk->cuda->cuCtxPopCurrent(&context);
}

/* Get the caller's context, or the primary one of device 0. */
static int
open_device(struct gk *gk)
{
	const struct gk_cuda_symbols *cuda = gk->cuda;
	int major = 0, minor = 0, together = 0, shared = 0, ret;
	CUresult result;

	gk->context = gk->config.context;
	if (gk->context == NULL) {
		result = cuda->cuDeviceGet(&gk->device, 0);
		if (result == CUDA_SUCCESS)
			result = cuda->cuDevicePrimaryCtxRetain(&gk->context, gk->device);
		if (result != CUDA_SUCCESS)
			return failed(gk, "primary context of device 0", result);
		gk->retained = true;
	}
	ret = enter(gk);
	if (ret != 0)
		return ret;
	result = cuda->cuCtxGetDevice(&gk->device);
	leave(gk);
	if (result != CUDA_SUCCESS)
		return failed(gk, "cuCtxGetDevice", result);
	cuda->cuDeviceGetAttribute(
		&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, gk->device);
	cuda->cuDeviceGetAttribute(
		&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, gk->device);
	cuda->cuDeviceGetAttribute(&together, CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, gk->device);
	if (major < 8 || !together)
		return refuse(-ENOTSUP,
			"the GPU has compute capability %d.%d, expected at least 8.0 with "
			"cooperative launch",
			major, minor);
	cuda->cuDeviceGetAttribute(
		&shared, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, gk->device);
	if (shared < GK_CUDA_SHARED + GK_CUDA_DECLARED)
		return refuse(-ENOTSUP,
			"the GPU, of compute capability %d.%d, has %d bytes of shared memory for a "
			"thread block, expected at least %d",
			major, minor, shared, GK_CUDA_SHARED + GK_CUDA_DECLARED);
	return 0;
}

/* Check that the GPU has this memory at the host's address. The context must be current. */
static int
check_memory(const struct gk *gk, const char *name, const void *memory, bool host)
{
	const CUdeviceptr_v2 at = (uintptr_t)memory;
	CUdeviceptr_v2 device = 0;
	void *address = NULL;
	CUresult ret;

	ret = gk->cuda->cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, at);
	if (ret != CUDA_SUCCESS || device != at)
		return refuse(-EINVAL, "%s at %p is neither registered host memory nor the GPU's",
			name, memory);
	if (!host)
		return 0;
	ret = gk->cuda->cuPointerGetAttribute(&address, CU_POINTER_ATTRIBUTE_HOST_POINTER, at);
	if (ret != CUDA_SUCCESS || address != memory)
		return refuse(-EINVAL, "%s at %p is not registered host memory", name, memory);
	return 0;
}

static int
check_config(const struct gk *gk)
{
	const struct gk_config *c = &gk->config;
	int ret;

	ret = check_memory(gk, "channel", c->channel, true);
	if (ret == 0 && gk->args.searches)
		ret = check_memory(
			gk, "map of pixels", (const void *)(uintptr_t)c->channel->pixels.bin, true);
	if (ret == 0 && gk->args.searches)
		ret = check_memory(
			gk, "panels", (const void *)(uintptr_t)c->channel->pixels.panel, true);
	if (ret == 0 && gk->args.profiles != NULL)
		ret = check_memory(gk, "bins of profiles",
			(const void *)(uintptr_t)c->channel->radial.bin, true);
	if (ret == 0 && gk->args.profiles != NULL)
		ret = check_memory(gk, "profiles", c->profiles, false);
	if (ret == 0 && c->details != NULL)
		ret = check_memory(gk, "details", c->details, false);
	if (ret == 0)
		ret = check_memory(gk, "frames", c->frames, false);
	if (ret == 0)
		ret = check_memory(gk, "results", c->results, false);
	if (ret == 0 && c->nb_outputs > 0)
		ret = check_memory(gk, "outputs", c->outputs, false);
	return ret;
}

/* @param size  expected */
static int
find_constants(struct gk *gk, const char *name, size_t expected, CUdeviceptr_v2 *at)
{
	size_t size = 0;
	CUresult ret;

	ret = gk->cuda->cuModuleGetGlobal(at, &size, gk->module, name);
	if (ret != CUDA_SUCCESS)
		return failed(gk, "symbols of the kernel", ret);
	if (size != expected)
		return refuse(-ENOTSUP, "the kernel's %s are %zu bytes, expected %zu", name, size,
			expected);
	return 0;
}

static int
load_kernel(struct gk *gk)
{
	CUresult ret;
	int err;

	ret = gk->cuda->cuModuleLoadData(&gk->module,
		gk->args.profiles != NULL
			? (gk->args.chunked ? gk_cuda_all_image : gk_cuda_profile_image)
			: gk->args.chunked  ? gk_cuda_compress_image
			: gk->args.searches ? gk_cuda_search_image
					    : gk_cuda_image);
	if (ret == CUDA_ERROR_NO_BINARY_FOR_GPU)
		return refuse(-ENOTSUP, "the kernels were not built for this GPU");
	if (ret != CUDA_SUCCESS)
		return failed(gk, "cuModuleLoadData", ret);
	ret = gk->cuda->cuModuleGetFunction(&gk->kernel, gk->module, GK_CUDA_KERNEL);
	if (ret == CUDA_SUCCESS)
		ret = gk->cuda->cuFuncSetAttribute(gk->kernel,
			CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, GK_CUDA_SHARED);
	if (ret != CUDA_SUCCESS)
		return failed(gk, "symbols of the kernel", ret);
	err = find_constants(gk, GK_CUDA_ARGS, sizeof(gk->args), &gk->constants);
	if (err == 0 && gk->args.searches)
		err = find_constants(gk, GK_CUDA_PEAK_ARGS, sizeof(gk->peaks), &gk->peak_constants);
	return err;
}

/*
 * Chunks go back over the bus that packets come from. Few gangs that read at the same time also
 * write at the same time, and one direction is idle. So half of them read, in turns. More gangs use
 * both directions without turns, and are faster so (test/bench/results/gk_cuda_chunks_h200.rst).
 */
static void
choose_readers(struct gk_cuda_args *a)
{
	if (a->staged && a->chunked && a->gangs <= GK_CUDA_TURNS)
		a->readers = a->gangs / 2;
}

/*
 * Choose the blocks of a gang: an equal share of the available space, independent of the packets'
 * memory. All blocks are resident, and so is one more that dispatches. Measured on an H200: from
 * GPU memory every block adds speed; from host memory 32 blocks saturate the bus, and more do no
 * harm.
 */
static int
choose_blocks(struct gk *gk)
{
	int processors = 0, each = 0;
	uint32_t most;
	CUresult ret;

	gk->cuda->cuDeviceGetAttribute(
		&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, gk->device);
	ret = gk->cuda->cuOccupancyMaxActiveBlocksPerMultiprocessor(
		&each, gk->kernel, GK_CUDA_THREADS, GK_CUDA_SHARED);
	if (ret != CUDA_SUCCESS)
		return failed(gk, "cuOccupancyMaxActiveBlocksPerMultiprocessor", ret);
	if (processors == 0 || each == 0)
		return refuse(-ENOTSUP,
			"no block of %u threads and %u bytes of shared memory fits a "
			"multiprocessor (%d of them), expected room for one: use another GPU",
			GK_CUDA_THREADS, GK_CUDA_SHARED, processors);
	most = (uint32_t)(processors * each - 1) / gk->args.gangs;
	if (most == 0 || gk->config.workers > most)
		return refuse(-EINVAL,
			"%u gangs of %u thread blocks, expected at most %u blocks of each on %d "
			"multiprocessors",
			gk->args.gangs, gk->config.workers, most, processors);
	gk->args.blocks = gk->config.workers;
	if (gk->args.blocks == 0)
		gk->args.blocks = most < gk->args.chunks ? most : gk->args.chunks;
	choose_readers(&gk->args);
	return 0;
}

static struct gk_cuda_divisor
divisor(uint32_t by)
{
	return (struct gk_cuda_divisor){
		by, by == 1 ? UINT32_MAX : (uint32_t)((UINT64_C(1) << 32) / by)};
}

static void
fill_args(struct gk *gk)
{
	const struct gk_config *c = &gk->config;
	struct gk_cuda_args *a = &gk->args;
	uint32_t tile_pixels;

	a->channel = c->channel;
	a->frames = c->frames;
	a->results = c->results;
	a->details = c->details;
	a->outputs = c->outputs;
	a->frame_stride = gk_frame_stride(&c->geometry);
	a->geometry = c->geometry;
	a->layout = c->layout;
	a->value = c->value;
	a->nb_frames = c->nb_frames;
	a->nb_outputs = c->nb_outputs;
	a->gangs = c->gangs;
	a->rows = gk_rows(&c->geometry);
	a->row_chunks = divisor((c->geometry.cols + GK_CUDA_CHUNK - 1) / GK_CUDA_CHUNK);
	a->tile_rows = divisor(c->geometry.tile_rows);
	a->cols = divisor(c->geometry.cols);
	a->chunks = a->rows * a->row_chunks.by;
	a->staged = c->packets == GK_MEMORY_HOST;
	a->trailers = c->trailers != 0;
	a->chunked = c->chunks != 0;
	a->chunk_blocks = (uint32_t)gk_bitshuffle_blocks(gk_pixels(&c->geometry));
	tile_pixels = c->geometry.tile_rows * c->geometry.cols;
	if (tile_pixels % GK_BITSHUFFLE_BLOCK == 0)
		a->tile_blocks = divisor(tile_pixels / GK_BITSHUFFLE_BLOCK);
	a->map_at = sizeof(struct gk_frame) + gk_packets_size(&c->geometry);
	a->map_words = (uint32_t)(gk_missing_size(&c->geometry) / sizeof(uint32_t));
	a->once = c->once != 0;
	a->watchdog_ns = (uint64_t)c->watchdog_ms * 1000000;
}

/* Reserve `size` bytes of the allocation. */
static uint64_t
reserve(uint64_t *total, uint64_t size)
{
	const uint64_t at = *total;

	*total += (size + 255) & ~UINT64_C(255);
	return at;
}

/* Assign all addresses, starting at `memory`. @return bytes needed */
static uint64_t
place_all(struct gk_cuda_args *a, uint64_t memory)
{
	const uint64_t batches = (uint64_t)a->gangs * GK_BATCH_MAX;
	const uint64_t chunk_blocks = a->chunked ? batches * a->chunk_blocks : 0;
	uint64_t end = memory;

	a->block_chunks = a->chunks / a->blocks + 1;
#define PLACE(field, n) \
	a->field = (__typeof__(a->field))(uintptr_t)reserve(&end, (n) * sizeof(*a->field))
	PLACE(control, 1);
	PLACE(coef, (uint64_t)GK_COEF_MAX * a->chunks);
	PLACE(tables, 2 * batches * a->geometry.tiles);
	PLACE(counts, batches * a->chunks);
	PLACE(odd_lanes, batches * a->chunks);
	PLACE(block_nnz, 2 * batches * a->blocks);
	PLACE(odd, (uint64_t)a->gangs * a->blocks);
	PLACE(odd_chunks, (uint64_t)a->gangs * a->blocks * a->block_chunks);
	PLACE(nothing, GK_CUDA_WORDS / sizeof(*a->nothing));
	PLACE(bin, a->bins > 0 ? (uint64_t)a->chunks * GK_CUDA_CHUNK : 0);
	PLACE(bin_pixels, a->bins);
	PLACE(profile_sums, 2 * (uint64_t)a->gangs * (GK_BATCH_MAX + 1) * a->bins);
	PLACE(copy, a->staged || a->trailers ? batches * a->chunks * GK_CUDA_CHUNK : 0);
	PLACE(chunk_ends, 2 * chunk_blocks);
	PLACE(chunk_crc, a->chunked ? 2 * batches : 0);
	PLACE(chunk_next, a->chunked ? 2 * a->gangs : 0);
	PLACE(crc, a->chunked ? 1 : 0);
#undef PLACE
	return end - memory;
}

static int
allocate_memory(const struct gk *gk, uint64_t size, CUdeviceptr_v2 *memory)
{
	char call[48];
	CUresult ret;

	ret = gk->cuda->cuMemAlloc(memory, size);
	if (ret == CUDA_SUCCESS)
		return 0;
	snprintf(call, sizeof(call), "cuMemAlloc(%llu)", (unsigned long long)size);
	return failed(gk, call, ret);
}

static int
allocate(struct gk *gk)
{
	CUresult result;
	int ret;

	ret = allocate_memory(gk, place_all(&gk->args, 0), &gk->memory);
	if (ret != 0)
		return ret;
	place_all(&gk->args, gk->memory);
	result = gk->cuda->cuStreamCreate(&gk->stream, CU_STREAM_NON_BLOCKING);
	return result == CUDA_SUCCESS ? 0 : failed(gk, "cuStreamCreate", result);
}

static void
set_profiles(struct gk_cuda_args *a, const struct gk_config *c, uint32_t bins)
{
	a->bins = bins;
	a->profiles = c->profiles;
	a->nb_profiles = c->nb_profiles;
	a->profile_stride = gk_profile_stride(bins);
	a->profile_count_at = gk_profile_count_at(bins);
}

/* Copy the bins of pixels to the GPU, by chunk, and the number of pixels of each bin. */
static int
copy_bins(struct gk *gk)
{
	const struct gk_radial_map map = {
		.rows = gk->args.rows,
		.cols = gk->config.geometry.cols,
		.nb_bins = gk->args.bins,
		.bin = (const uint16_t *)(uintptr_t)gk->config.channel->radial.bin,
	};
	const uint64_t size = (uint64_t)gk->args.chunks * GK_CUDA_CHUNK * sizeof(*map.bin);
	CUresult result;
	uint32_t *pixels;
	uint16_t *bin;
	int ret;

	ret = gk_radial_map_check(&map, why, sizeof(why));
	if (ret != 0)
		return ret;
	bin = malloc(size);
	pixels = calloc(map.nb_bins + 1, sizeof(*pixels));
	if (bin == NULL || pixels == NULL) {
		free(bin);
		free(pixels);
		return refuse(-ENOMEM, "no memory for the bins of profiles");
	}
	for (uint32_t chunk = 0; chunk < gk->args.chunks; chunk++) {
		const uint32_t row = chunk / gk->args.row_chunks.by;
		const uint32_t col = chunk % gk->args.row_chunks.by * GK_CUDA_CHUNK;

		for (uint32_t i = 0; i < GK_CUDA_CHUNK; i++) {
			const uint16_t b = col + i < map.cols
				? map.bin[(uint64_t)row * map.cols + col + i]
				: (uint16_t)map.nb_bins;

			bin[(uint64_t)chunk * GK_CUDA_CHUNK + i] = b;
			pixels[b]++;
		}
	}
	result = gk->cuda->cuMemcpyHtoDAsync(
		(CUdeviceptr_v2)(uintptr_t)gk->args.bin, bin, size, gk->stream);
	if (result == CUDA_SUCCESS)
		result = gk->cuda->cuMemcpyHtoDAsync((CUdeviceptr_v2)(uintptr_t)gk->args.bin_pixels,
			pixels, map.nb_bins * sizeof(*pixels), gk->stream);
	if (result == CUDA_SUCCESS)
		result = gk->cuda->cuStreamSynchronize(gk->stream);
	free(bin);
	free(pixels);
	return result == CUDA_SUCCESS ? 0 : failed(gk, "copy of the bins of profiles", result);
}

/* Copy the tables for CRCs of chunks to the GPU. */
static int
copy_crc(struct gk *gk)
{
	struct gk_cuda_crc *crc = malloc(sizeof(*crc));
	CUresult result;

	if (crc == NULL)
		return refuse(-ENOMEM, "no memory for the tables of CRCs");
	gk_cuda_crc_init(crc);
	result = gk->cuda->cuMemcpyHtoDAsync(
		(CUdeviceptr_v2)(uintptr_t)gk->args.crc, crc, sizeof(*crc), gk->stream);
	if (result == CUDA_SUCCESS)
		result = gk->cuda->cuStreamSynchronize(gk->stream);
	free(crc);
	return result == CUDA_SUCCESS ? 0 : failed(gk, "copy of the tables of CRCs", result);
}

/* Allocate the memory of searches for peaks, with the map of pixels in it. */
static int
allocate_search(struct gk *gk)
{
	const struct gk_peak_pixels *pixels = &gk->config.channel->pixels;
	const struct gk_peak_map map = {
		.rows = gk->args.rows,
		.cols = gk->config.geometry.cols,
		.bin = (const uint16_t *)(uintptr_t)pixels->bin,
		.panel = (const struct gk_peak_panel *)(uintptr_t)pixels->panel,
		.nb_panels = pixels->nb_panels,
	};
	CUresult result = CUDA_SUCCESS;
	void *constant;
	int ret;

	ret = gk_peak_map_check(&map, why, sizeof(why));
	if (ret == -EINVAL)
		return ret;
	if (ret == 0 && gk_cuda_peaks_shape(&map, &gk->peaks.s) != 0)
		return refuse(-ENOTSUP, "%u rows of %u pixels, expected fewer than 2^31 pixels",
			map.rows, map.cols);
	constant = ret == 0
		? gk_cuda_peaks_make(&map, &gk->peaks, gk->args.gangs, &gk->peaks_constant)
		: NULL;
	if (constant == NULL)
		return refuse(-ENOMEM, "no memory for the map of pixels");
	gk->peaks_size = gk_cuda_peaks_place(&gk->peaks, gk->args.gangs, NULL, &gk->peaks_constant);
	ret = allocate_memory(gk, gk->peaks_size, &gk->peaks_memory);
	if (ret == 0) {
		gk_cuda_peaks_place(&gk->peaks, gk->args.gangs,
			(uint8_t *)(uintptr_t)gk->peaks_memory, &gk->peaks_constant);
		result = gk->cuda->cuMemcpyHtoDAsync(
			gk->peaks_memory, constant, gk->peaks_constant, gk->stream);
		if (result == CUDA_SUCCESS)
			result = gk->cuda->cuStreamSynchronize(gk->stream);
		if (result != CUDA_SUCCESS)
			ret = failed(gk, "copy of the map of pixels", result);
	}
	free(constant);
	return ret;
}

/* Return 1: running; 0: ended; -EAGAIN: CUDA does not respond; other errors: the kernel crashed. */
static int
is_running(const struct gk *gk)
{
	CUresult ret = CUDA_SUCCESS;

	if (!gk->running)
		return 0;
	if (enter(gk) != 0)
		return -EAGAIN;
	ret = gk->cuda->cuStreamQuery(gk->stream);
	leave(gk);
	if (ret == CUDA_ERROR_NOT_READY)
		return 1;
	return ret == CUDA_SUCCESS ? 0 : failed(gk, "the gangs' kernel", ret);
}

/* Thread that signals to the kernel that the host is alive, and reports a crashed kernel. */
static void *
beat(void *arg)
{
	struct gk *gk = arg;
	struct gk_channel *channel = gk->config.channel;
	const uint32_t quarter = gk->config.watchdog_ms / 4;
	const uint32_t ms = quarter > 0 && quarter < BEAT_MS ? quarter : BEAT_MS;
	const struct timespec pause = {.tv_nsec = (long)ms * 1000000};

	while (!__atomic_load_n(&gk->quit, __ATOMIC_ACQUIRE)) {
		__atomic_fetch_add(&channel->bell.watchdog, 1, __ATOMIC_RELEASE);
		if (is_running(gk) < 0) {
			for (uint32_t i = 0; i < gk->config.gangs; i++)
				__atomic_store_n(
					&channel->done[i].error, (uint32_t)-EIO, __ATOMIC_RELEASE);
			break;
		}
		nanosleep(&pause, NULL);
	}
	return NULL;
}

/*
 * Start it as a SCHED_OTHER thread: one that competes with polling threads at real-time priority
 * would starve.
 */
static int
start_beat(struct gk *gk)
{
	pthread_attr_t attr;
	int ret;

	ret = pthread_attr_init(&attr);
	if (ret != 0)
		return ret;
	pthread_attr_setinheritsched(&attr, PTHREAD_EXPLICIT_SCHED);
	pthread_attr_setschedpolicy(&attr, SCHED_OTHER);
	ret = pthread_create(&gk->beat, &attr, beat, gk);
	pthread_attr_destroy(&attr);
	if (ret != 0)
		return ret;
	pthread_setname_np(gk->beat, "gk-beat");
	gk->beating = true;
	return 0;
}

static void
stop_beat(struct gk *gk)
{
	if (!gk->beating)
		return;
	__atomic_store_n(&gk->quit, 1, __ATOMIC_RELEASE);
	pthread_join(gk->beat, NULL);
	gk->beating = false;
}

static void
cuda_destroy(struct gk *gk)
{
	bool entered;

	if (gk == NULL)
		return;
	entered = gk->context != NULL && enter(gk) == 0;
	if (gk->running)
		__atomic_store_n(&gk->config.channel->bell.quit, 1, __ATOMIC_RELEASE);
	if (gk->running && entered)
		gk->cuda->cuStreamSynchronize(gk->stream);
	/* stop the thread first: it uses the memory that is freed here */
	stop_beat(gk);
	if (entered) {
		if (gk->stream != NULL)
			gk->cuda->cuStreamDestroy(gk->stream);
		if (gk->memory != 0)
			gk->cuda->cuMemFree(gk->memory);
		if (gk->peaks_memory != 0)
			gk->cuda->cuMemFree(gk->peaks_memory);
		if (gk->module != NULL)
			gk->cuda->cuModuleUnload(gk->module);
		leave(gk);
	}
	if (gk->retained)
		gk->cuda->cuDevicePrimaryCtxRelease(gk->device);
	free(gk);
}

static int
cuda_usable(void *context)
{
	struct gk gk = {.config.context = context};
	int ret;

	why[0] = '\0';
	gk.cuda = gk_cuda_driver(why, sizeof(why));
	if (gk.cuda == NULL)
		return -ENODEV;
	ret = open_device(&gk);
	if (gk.retained)
		gk.cuda->cuDevicePrimaryCtxRelease(gk.device);
	return ret;
}

static uint64_t
cuda_memory(const struct gk_config *config)
{
	struct gk gk = {.config = *config};
	uint64_t constant, search = 0;

	fill_args(&gk);
	if (config->layout.peaks_cap > 0) {
		gk_cuda_peaks_most(gk.args.rows, config->geometry.cols, &gk.peaks.s);
		search = gk_cuda_peaks_place(&gk.peaks, config->gangs, NULL, &constant);
	}
	if (config->nb_profiles > 0)
		set_profiles(&gk.args, config, GK_PROFILE_BINS_MAX);
	/* more blocks than chunks are useless, unless requested */
	gk.args.blocks = config->workers != 0 ? config->workers : gk.args.chunks;
	return search + place_all(&gk.args, 0);
}

static int
cuda_create(const struct gk_config *config, struct gk **out)
{
	struct gk *gk;
	int ret;

	why[0] = '\0';
	ret = gk_config_check(config, why, sizeof(why));
	if (ret != 0)
		return ret;
	gk = calloc(1, sizeof(*gk));
	if (gk == NULL)
		return refuse(-ENOMEM, "no memory");
	gk->config = *config;
	gk->cuda = gk_cuda_driver(why, sizeof(why));
	if (gk->cuda == NULL) {
		free(gk);
		return -ENODEV;
	}
	fill_args(gk);
	gk->args.searches = config->channel->pixels.bin != 0;
	if (config->channel->radial.bin != 0)
		set_profiles(&gk->args, config, config->channel->radial.nb_bins);
	ret = open_device(gk);
	if (ret != 0)
		goto fail;
	ret = enter(gk);
	if (ret != 0)
		goto fail;
	ret = check_config(gk);
	if (ret == 0)
		ret = load_kernel(gk);
	if (ret == 0)
		ret = choose_blocks(gk);
	if (ret == 0)
		ret = allocate(gk);
	if (ret == 0 && gk->args.profiles != NULL)
		ret = copy_bins(gk);
	if (ret == 0 && gk->args.chunked)
		ret = copy_crc(gk);
	if (ret == 0 && gk->args.searches)
		ret = allocate_search(gk);
	leave(gk);
	if (ret != 0)
		goto fail;
	*out = gk;
	return 0;
fail:
	cuda_destroy(gk);
	return ret;
}

/* Clear the state of searches that were ended. The context must be current. */
static CUresult
clear_search(const struct gk *gk)
{
	CUresult ret;

	ret = gk->cuda->cuMemsetD8Async(gk->peaks_memory + gk->peaks_constant, 0,
		gk->peaks_size - gk->peaks_constant, gk->stream);
	if (ret == CUDA_SUCCESS)
		ret = gk->cuda->cuMemcpyHtoDAsync(
			gk->peak_constants, &gk->peaks, sizeof(gk->peaks), gk->stream);
	return ret;
}

/* Clear device memory. The context must be current. */
static CUresult
clear(const struct gk *gk, const void *memory, uint64_t size)
{
	return gk->cuda->cuMemsetD8Async((CUdeviceptr_v2)(uintptr_t)memory, 0, size, gk->stream);
}

/* The context must be current. */
static int
launch(struct gk *gk)
{
	const struct gk_cuda_symbols *cuda = gk->cuda;
	const struct gk_cuda_args *a = &gk->args;
	const uint64_t blocks = (uint64_t)a->gangs * a->blocks;
	CUresult ret;

	/* nothing is packed, counted or ended: coefficients are read again */
	ret = clear(gk, a->control, sizeof(*a->control));
	if (ret == CUDA_SUCCESS)
		ret = clear(gk, a->nothing, GK_CUDA_WORDS);
	if (ret == CUDA_SUCCESS)
		ret = clear(gk, a->block_nnz, 2 * GK_BATCH_MAX * blocks * sizeof(*a->block_nnz));
	if (ret == CUDA_SUCCESS)
		ret = clear(gk, a->odd, blocks * sizeof(*a->odd));
	if (ret == CUDA_SUCCESS)
		ret = cuda->cuMemcpyHtoDAsync(
			gk->constants, &gk->args, sizeof(gk->args), gk->stream);
	if (ret == CUDA_SUCCESS && a->profiles != NULL)
		ret = clear(gk, a->profile_sums,
			2 * (uint64_t)a->gangs * (GK_BATCH_MAX + 1) * a->bins *
				sizeof(*a->profile_sums));
	if (ret == CUDA_SUCCESS && a->searches)
		ret = clear_search(gk);
	if (ret == CUDA_SUCCESS)
		ret = cuda->cuStreamSynchronize(gk->stream);
	if (ret == CUDA_SUCCESS)
		ret = cuda->cuLaunchCooperativeKernel(gk->kernel, 1 + (uint32_t)blocks, 1, 1,
			GK_CUDA_THREADS, 1, 1, GK_CUDA_SHARED, gk->stream, NULL);
	return ret == CUDA_SUCCESS ? 0 : failed(gk, "launch of the gangs' kernel", ret);
}

static int
cuda_start(struct gk *gk)
{
	struct gk_channel *channel = gk->config.channel;
	int ret;

	ret = is_running(gk);
	if (ret > 0)
		return refuse(-EBUSY, "the gangs are running");
	if (ret == -EAGAIN)
		return -EIO;
	stop_beat(gk);
	gk->running = false;
	ret = gk_start_check(&gk->config, why, sizeof(why));
	if (ret != 0)
		return ret;
	__atomic_store_n(&channel->bell.quit, 0, __ATOMIC_RELEASE);
	for (uint32_t i = 0; i < gk->config.gangs; i++) {
		gk->args.first[i] = channel->done[i].done;
		__atomic_store_n(&channel->done[i].error, 0, __ATOMIC_RELEASE);
	}
	gk->quit = 0;
	ret = enter(gk);
	if (ret != 0)
		return ret;
	ret = launch(gk);
	leave(gk);
	if (ret != 0)
		return ret;
	gk->running = true;
	ret = start_beat(gk);
	if (ret != 0) {
		/* Without the heartbeat the watchdog would end the kernel: end it now. */
		__atomic_store_n(&channel->bell.quit, 1, __ATOMIC_RELEASE);
		return refuse(-ret, "no thread for the watchdog: %s", strerror(ret));
	}
	return 0;
}

static int
cuda_stop(struct gk *gk)
{
	struct gk_channel *channel = gk->config.channel;
	int ret, error;

	__atomic_store_n(&channel->bell.quit, 1, __ATOMIC_RELEASE);
	ret = is_running(gk);
	if (ret > 0)
		return refuse(-EBUSY, "batches are unfinished");
	/* the kernel may still run: destroy() ends it */
	if (ret == -EAGAIN)
		return -EIO;
	stop_beat(gk);
	gk->running = false;
	for (uint32_t i = 0; i < gk->config.gangs && ret == 0; i++) {
		error = (int)__atomic_load_n(&channel->done[i].error, __ATOMIC_ACQUIRE);
		if (error != 0)
			ret = refuse(error, "gang %u: %s", i,
				error == -ETIMEDOUT ? "ended by the watchdog"
						    : "failed on an invalid descriptor");
	}
	return ret;
}

const struct gk_ops gk_cuda_ops = {
	.name = "cuda",
	.usable = cuda_usable,
	.memory = cuda_memory,
	.create = cuda_create,
	.start = cuda_start,
	.stop = cuda_stop,
	.destroy = cuda_destroy,
	.why = cuda_why,
};
