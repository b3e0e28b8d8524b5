/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The host side of CUDA gangs, without a GPU. The test contains a fake driver: GPU memory is host
 * memory, a kernel runs until the test or `quit` ends it, and any call can be made to fail.
 */

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include "gk_cuda.h"
#include "gk_cuda_driver.h"
#include "gk_cuda_image.h"
#include "gk_cuda_peaks.h"
#include "gk_rig.h"

#define PROCESSORS 4
#define CONTEXT	   ((CUcontext)0x1000)

static struct {
	/* set by the test */
	const char *fail;
	CUresult fail_with;
	int no_names;	    /* of error codes */
	int major, minor;   /* compute capability */
	int shared;	    /* shared memory of a block, bytes */
	uint32_t fail_from; /* allocations that succeed; 0: all */
	const uint8_t *far; /* memory from here on is not accessible for the GPU */

	/* counters */
	uint32_t retained;
	uint32_t depth; /* of the stack of contexts */
	uint32_t modules;
	uint32_t streams;
	uint32_t allocated;
	uint64_t bytes; /* of all allocations */
	void *last;
	size_t last_size;
	const void *image;
	int running;
	int beat_policy; /* scheduling policy of the heartbeat thread */
	char beat_name[16];
	uint32_t beats;
} gpu;

static struct rig rig;
static struct gk_config config;
static pthread_t main_thread;

static CUresult
call(const char *name)
{
	return gpu.fail != NULL && strcmp(gpu.fail, name) == 0 ? gpu.fail_with : CUDA_SUCCESS;
}

/* Every fake function begins with it. */
#define ENTER()                                       \
	do {                                          \
		const CUresult ret_ = call(__func__); \
		if (ret_ != CUDA_SUCCESS)             \
			return ret_;                  \
	} while (0)

static CUresult
cuGetErrorName(CUresult error, const char **name)
{
	*name = gpu.no_names ? NULL : "CUDA_ERROR_OF_THE_TEST";
	return gpu.no_names ? 1 : CUDA_SUCCESS;
}

static CUresult
cuDeviceGet(CUdevice_v1 *device, int ordinal)
{
	ENTER();
	*device = ordinal;
	return CUDA_SUCCESS;
}

static CUresult
cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice_v1 device)
{
	ENTER();
	switch (attribute) {
	case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
		*value = PROCESSORS;
		break;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
		*value = gpu.major;
		break;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
		*value = gpu.minor;
		break;
	case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
		*value = 1;
		break;
	case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
		*value = gpu.shared;
		break;
	default:
		fail_msg("attribute %d", attribute);
	}
	return CUDA_SUCCESS;
}

static CUresult
cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice_v1 device)
{
	ENTER();
	*context = CONTEXT;
	gpu.retained++;
	return CUDA_SUCCESS;
}

static CUresult
cuDevicePrimaryCtxRelease(CUdevice_v1 device)
{
	gpu.retained--;
	return CUDA_SUCCESS;
}

/* All threads push and pop, including the heartbeat thread of the gangs. */
static CUresult
cuCtxPushCurrent(CUcontext context)
{
	ENTER();
	__atomic_fetch_add(&gpu.depth, 1, __ATOMIC_RELAXED);
	return CUDA_SUCCESS;
}

static CUresult
cuCtxPopCurrent(CUcontext *context)
{
	__atomic_fetch_sub(&gpu.depth, 1, __ATOMIC_RELAXED);
	return CUDA_SUCCESS;
}

static CUresult
cuCtxGetDevice(CUdevice_v1 *device)
{
	ENTER();
	*device = 0;
	return CUDA_SUCCESS;
}

static CUresult
cuModuleLoadData(CUmodule *module, const void *image)
{
	ENTER();
	gpu.image = image;
	*module = (CUmodule)0x2000;
	gpu.modules++;
	return CUDA_SUCCESS;
}

static CUresult
cuModuleUnload(CUmodule module)
{
	gpu.modules--;
	return CUDA_SUCCESS;
}

static CUresult
cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
	ENTER();
	*function = (CUfunction)0x3000;
	return CUDA_SUCCESS;
}

static CUresult
cuModuleGetGlobal(CUdeviceptr_v2 *ptr, size_t *size, CUmodule module, const char *name)
{
	static struct gk_cuda_args args;
	static struct gk_cuda_peaks peaks;

	ENTER();
	if (strcmp(name, GK_CUDA_PEAK_ARGS) == 0) {
		/* the first image has no such name */
		if (gpu.image == gk_cuda_image)
			return 1;
		*ptr = (uintptr_t)&peaks;
		*size = sizeof(peaks);
		return CUDA_SUCCESS;
	}
	assert_string_equal(name, GK_CUDA_ARGS);
	*ptr = (uintptr_t)&args;
	*size = sizeof(args);
	return CUDA_SUCCESS;
}

static CUresult
cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value)
{
	ENTER();
	return value <= gpu.shared ? CUDA_SUCCESS : 1;
}

static CUresult
cuOccupancyMaxActiveBlocksPerMultiprocessor(
	int *blocks, CUfunction function, int threads, size_t shared)
{
	ENTER();
	*blocks = GK_CUDA_BLOCKS;
	return CUDA_SUCCESS;
}

static CUresult
cuStreamCreate(CUstream *stream, unsigned int flags)
{
	ENTER();
	*stream = (CUstream)0x4000;
	gpu.streams++;
	return CUDA_SUCCESS;
}

static CUresult
cuStreamDestroy(CUstream stream)
{
	gpu.streams--;
	return CUDA_SUCCESS;
}

static int
is_running(void)
{
	if (__atomic_load_n(&config.channel->bell.quit, __ATOMIC_ACQUIRE) != 0)
		__atomic_store_n(&gpu.running, 0, __ATOMIC_RELAXED);
	return __atomic_load_n(&gpu.running, __ATOMIC_RELAXED);
}

static CUresult
cuStreamQuery(CUstream stream)
{
	ENTER();
	if (!pthread_equal(pthread_self(), main_thread)) {
		gpu.beat_policy = sched_getscheduler(0);
		pthread_getname_np(pthread_self(), gpu.beat_name, sizeof(gpu.beat_name));
		__atomic_fetch_add(&gpu.beats, 1, __ATOMIC_RELEASE);
	}
	return is_running() ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static CUresult
cuStreamSynchronize(CUstream stream)
{
	ENTER();
	while (is_running())
		;
	return CUDA_SUCCESS;
}

static CUresult
cuMemAlloc(CUdeviceptr_v2 *ptr, size_t size)
{
	ENTER();
	if (gpu.fail_from != 0 && gpu.allocated >= gpu.fail_from)
		return CUDA_ERROR_OUT_OF_MEMORY;
	gpu.last = rig_alloc(size);
	gpu.last_size = size;
	*ptr = (uintptr_t)gpu.last;
	gpu.allocated++;
	gpu.bytes += size;
	return CUDA_SUCCESS;
}

static CUresult
cuMemFree(CUdeviceptr_v2 ptr)
{
	free((void *)(uintptr_t)ptr);
	gpu.allocated--;
	return CUDA_SUCCESS;
}

static CUresult
cuMemsetD8Async(CUdeviceptr_v2 ptr, unsigned char value, size_t size, CUstream stream)
{
	ENTER();
	memset((void *)(uintptr_t)ptr, value, size);
	return CUDA_SUCCESS;
}

static CUresult
cuMemcpyHtoDAsync(CUdeviceptr_v2 to, const void *from, size_t size, CUstream stream)
{
	ENTER();
	memcpy((void *)(uintptr_t)to, from, size);
	return CUDA_SUCCESS;
}

static CUresult
cuPointerGetAttribute(void *value, CUpointer_attribute attribute, CUdeviceptr_v2 ptr)
{
	ENTER();
	if (gpu.far != NULL && ptr >= (uintptr_t)gpu.far)
		return 1;
	memcpy(value, &ptr, sizeof(ptr));
	return CUDA_SUCCESS;
}

static CUresult
cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
	unsigned int grid_z, unsigned int block_x, unsigned int block_y, unsigned int block_z,
	unsigned int shared, CUstream stream, void **parameters)
{
	ENTER();
	assert_in_range(grid_x, 2, PROCESSORS * GK_CUDA_BLOCKS);
	__atomic_store_n(&gpu.running, 1, __ATOMIC_RELAXED);
	return CUDA_SUCCESS;
}

/* Replaces the function that loads libcuda. */
const struct gk_cuda_symbols *
gk_cuda_driver(char *why, size_t size)
{
	static const struct gk_cuda_symbols symbols = {
#define HERE(name) .name = name
		HERE(cuGetErrorName),
		HERE(cuDeviceGet),
		HERE(cuDeviceGetAttribute),
		HERE(cuDevicePrimaryCtxRetain),
		HERE(cuDevicePrimaryCtxRelease),
		HERE(cuCtxPushCurrent),
		HERE(cuCtxPopCurrent),
		HERE(cuCtxGetDevice),
		HERE(cuModuleLoadData),
		HERE(cuModuleUnload),
		HERE(cuModuleGetFunction),
		HERE(cuModuleGetGlobal),
		HERE(cuFuncSetAttribute),
		HERE(cuOccupancyMaxActiveBlocksPerMultiprocessor),
		HERE(cuStreamCreate),
		HERE(cuStreamDestroy),
		HERE(cuStreamQuery),
		HERE(cuStreamSynchronize),
		HERE(cuMemAlloc),
		HERE(cuMemFree),
		HERE(cuMemsetD8Async),
		HERE(cuMemcpyHtoDAsync),
		HERE(cuPointerGetAttribute),
		HERE(cuLaunchCooperativeKernel),
#undef HERE
	};

	return &symbols;
}

static int
setup(void **state)
{
	const struct gk_geometry g = {4, 2, 64};

	memset(&gpu, 0, sizeof(gpu));
	main_thread = pthread_self();
	gpu.major = 9;
	gpu.shared = 232448;
	rig_open(&rig, &g, GK_VALUE_F32, 100, 2, 8, 0);
	config = rig.config;
	config.chunks = 0;
	config.workers = 0;
	return 0;
}

/* Teardown: no resources of the GPU are left. */
static int
teardown(void **state)
{
	rig_close(&rig);
	assert_int_equal(gpu.retained, 0);
	assert_int_equal(gpu.depth, 0);
	assert_int_equal(gpu.modules, 0);
	assert_int_equal(gpu.streams, 0);
	assert_int_equal(gpu.allocated, 0);
	assert_int_equal(gpu.running, 0);
	return 0;
}

static void
refused(int ret, const char *why)
{
	struct gk *gk = NULL;

	assert_int_equal(gk_cuda_ops.create(&config, &gk), ret);
	assert_null(gk);
	if (strstr(gk_cuda_ops.why(), why) == NULL)
		fail_msg("'%s', expected '%s'", gk_cuda_ops.why(), why);
}

static struct gk *
created(void)
{
	struct gk *gk = NULL;

	if (gk_cuda_ops.create(&config, &gk) != 0)
		fail_msg("%s", gk_cuda_ops.why());
	return gk;
}

static void
test_life(void **state)
{
	const uint64_t memory = gk_cuda_ops.memory(&config);
	struct gk *gk = created();

	assert_in_range(gpu.bytes, 1, memory);
	assert_int_equal(gk_cuda_ops.start(gk), 0);
	assert_int_equal(gk_cuda_ops.start(gk), -EBUSY);
	while (gk_cuda_ops.stop(gk) == -EBUSY)
		;
	assert_int_equal(gk_cuda_ops.stop(gk), 0);
	assert_int_equal(gk_cuda_ops.start(gk), 0);
	gk_cuda_ops.destroy(gk);
	gk_cuda_ops.destroy(NULL);
	/* with a given number of blocks the result is exact */
	config.workers = 2;
	gpu.bytes = 0;
	gk_cuda_ops.destroy(created());
	assert_int_equal(gpu.bytes, gk_cuda_ops.memory(&config));
}

/* Two panels, one above the other, around a beam in the middle. */
static void
open_map(uint16_t **bin, struct gk_peak_panel **panel)
{
	const uint32_t rows = gk_rows(&config.geometry), cols = config.geometry.cols;

	*bin = rig_alloc(gk_pixels(&config.geometry) * sizeof(**bin));
	*panel = rig_alloc(2 * sizeof(**panel));
	for (uint32_t i = 0; i < rows * cols; i++)
		(*bin)[i] = gk_peak_bin(
			(double)(i % cols) - cols / 2.0, (double)(i / cols) - rows / 2.0, 0, 0);
	for (uint32_t i = 0; i < 2; i++)
		(*panel)[i] = (struct gk_peak_panel){
			.ss = i * rows / 2, .width = cols, .height = rows / 2};
	config.channel->pixels = (struct gk_peak_pixels){
		.bin = (uintptr_t)*bin, .panel = (uintptr_t)*panel, .nb_panels = 2};
	gk_layout_add_peaks(&config.layout, 20);
}

static void
test_chunks(void **state)
{
	const uint64_t without = gk_cuda_ops.memory(&config);
	struct gk *gk = created();
	uint64_t bytes;

	gk_cuda_ops.destroy(gk);
	bytes = gpu.bytes;
	config.chunks = 1;
	assert_true(gk_cuda_ops.memory(&config) > without);
	gpu.bytes = 0;
	gk = created();
	assert_ptr_equal(gpu.image, gk_cuda_compress_image);
	assert_in_range(gpu.bytes, bytes + 1, gk_cuda_ops.memory(&config));
	gk_cuda_ops.destroy(gk);
}

static void
test_map(void **state)
{
	const uint64_t without = gk_cuda_ops.memory(&config);
	struct gk_peak_panel *panel;
	struct gk *gk = created();
	uint16_t *bin;

	assert_ptr_equal(gpu.image, gk_cuda_image);
	gk_cuda_ops.destroy(gk);
	open_map(&bin, &panel);
	assert_true(gk_cuda_ops.memory(&config) > without);
	gpu.bytes = 0;
	gk = created();
	assert_ptr_equal(gpu.image, gk_cuda_search_image);
	assert_in_range(gpu.bytes, without + 1, gk_cuda_ops.memory(&config));
	/* searches that were ended leave nothing to the next launch */
	memset(gpu.last, 1, sizeof(uint16_t));
	for (int i = 0; i < 2; i++) {
		const uint8_t *end = (const uint8_t *)gpu.last + gpu.last_size - 1;

		*(uint8_t *)(uintptr_t)end = 1;
		assert_int_equal(gk_cuda_ops.start(gk), 0);
		assert_int_equal(*end, 0);
		assert_int_equal(*(const uint8_t *)gpu.last, 1);
		while (gk_cuda_ops.stop(gk) == -EBUSY)
			;
	}
	gk_cuda_ops.destroy(gk);

	panel[1].ss = 1;
	refused(-EINVAL, "panels 0 and 1 overlap");
	panel[1].ss = panel[0].height;
	gpu.fail = "cuMemcpyHtoDAsync";
	gpu.fail_with = 1;
	refused(-EIO, "copy of the map of pixels: ");
	gpu.fail = NULL;
	gpu.fail_from = gpu.allocated + 1;
	refused(-ENOMEM, "cuMemAlloc(");
	gpu.fail_from = 0;
	config.channel->pixels.bin += 2;
	refused(-EINVAL, "pixels.bin is at ");
	config.channel->pixels.bin -= 2;
	gpu.far = (const uint8_t *)1;
	refused(-EINVAL, "neither registered host memory nor the GPU's");
	gpu.far = NULL;
	free(bin);
	free(panel);
}

/* The heartbeat thread has normal priority and a name. */
static void
test_beat(void **state)
{
	struct sched_param param = {0};
	struct gk *gk = created();

	assert_int_equal(sched_setscheduler(0, SCHED_BATCH, &param), 0);
	assert_int_equal(gk_cuda_ops.start(gk), 0);
	assert_int_equal(sched_setscheduler(0, SCHED_OTHER, &param), 0);
	while (__atomic_load_n(&gpu.beats, __ATOMIC_ACQUIRE) < 2)
		usleep(1000);
	gk_cuda_ops.destroy(gk);
	assert_int_equal(gpu.beat_policy, SCHED_OTHER);
	assert_string_equal(gpu.beat_name, "gk-beat");
}

/* Every call of create() and start() may fail; the error names the call, and no resources leak. */
static void
test_failures(void **state)
{
	static const struct {
		const char *call, *why;
		CUresult error;
		int ret;
	} cases[] = {
		{"cuDeviceGet", "primary context of device 0: ", 1, -EIO},
		{"cuCtxPushCurrent", "cuCtxPushCurrent: ", 1, -EIO},
		{"cuCtxGetDevice", "cuCtxGetDevice: ", 1, -EIO},
		{"cuModuleLoadData", "cuModuleLoadData: ", 1, -EIO},
		{"cuModuleLoadData", "not built for this GPU", CUDA_ERROR_NO_BINARY_FOR_GPU,
			-ENOTSUP},
		{"cuFuncSetAttribute", "symbols of the kernel: ", 1, -EIO},
		{"cuMemAlloc", "): CUDA_ERROR_OF_THE_TEST", CUDA_ERROR_OUT_OF_MEMORY, -ENOMEM},
		{"cuMemAlloc", "cuMemAlloc(", 719, -EIO},
		{"cuStreamCreate", "cuStreamCreate: ", 1, -EIO},
	};
	struct gk *gk;

	for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		gpu.fail = cases[i].call;
		gpu.fail_with = cases[i].error;
		refused(cases[i].ret, cases[i].why);
	}
	gpu.no_names = 1;
	refused(-EIO, "cuStreamCreate: unknown error");
	gpu.fail = NULL;
	gk = created();
	gpu.fail = "cuLaunchCooperativeKernel";
	assert_int_equal(gk_cuda_ops.start(gk), -EIO);
	gpu.fail = NULL;
	assert_int_equal(gk_cuda_ops.start(gk), 0);
	gk_cuda_ops.destroy(gk);
}

/*
 * CUDA fails while gangs run: the heartbeat thread ends before the memory that it reads is freed.
 */
static void
test_destroy_without_cuda(void **state)
{
	struct gk *gk = created();
	uint32_t beats;

	assert_int_equal(gk_cuda_ops.start(gk), 0);
	gpu.fail = "cuCtxPushCurrent";
	gpu.fail_with = 1;
	assert_int_equal(gk_cuda_ops.stop(gk), -EIO);
	assert_string_equal(gk_cuda_ops.why(), "cuCtxPushCurrent: CUDA_ERROR_OF_THE_TEST");
	assert_int_equal(gk_cuda_ops.start(gk), -EIO);
	gk_cuda_ops.destroy(gk);
	assert_int_equal(config.channel->bell.quit, 1);
	beats = __atomic_load_n(&config.channel->bell.watchdog, __ATOMIC_RELAXED);
	usleep(200 * 1000);
	assert_int_equal(__atomic_load_n(&config.channel->bell.watchdog, __ATOMIC_RELAXED), beats);
	/* the fake context failed, so nothing could be freed */
	gpu.running = gpu.modules = gpu.streams = gpu.allocated = 0;
	free(gpu.last);
}

/* A kernel that crashes is reported to all gangs, and stop() returns CUDA's name of the error. */
static void
test_crash(void **state)
{
	struct gk *gk = created();

	assert_int_equal(gk_cuda_ops.start(gk), 0);
	gpu.fail = "cuStreamQuery";
	gpu.fail_with = 700;
	while (__atomic_load_n(&config.channel->done[1].error, __ATOMIC_ACQUIRE) == 0)
		usleep(1000);
	assert_int_equal((int)config.channel->done[0].error, -EIO);
	assert_int_equal(gk_cuda_ops.stop(gk), -EIO);
	assert_string_equal(gk_cuda_ops.why(), "the gangs' kernel: CUDA_ERROR_OF_THE_TEST");
	gpu.fail = NULL;
	gpu.running = 0;
	gk_cuda_ops.destroy(gk);
}

/* Gangs that the watchdog ended during a batch do not start again. */
static void
test_ended_in_batch(void **state)
{
	struct gk_channel *channel = config.channel;
	struct gk *gk = created();

	assert_int_equal(gk_cuda_ops.start(gk), 0);
	channel->bell.head[1] = 1;
	channel->done[1].raw = 1;
	channel->done[0].error = channel->done[1].error = (uint32_t)-ETIMEDOUT;
	__atomic_store_n(&gpu.running, 0, __ATOMIC_RELAXED);
	assert_int_equal(gk_cuda_ops.stop(gk), -ETIMEDOUT);
	assert_int_equal(gk_cuda_ops.start(gk), -EINVAL);
	assert_non_null(strstr(gk_cuda_ops.why(), "gang 1 was ended in batch 0"));
	assert_int_equal(gpu.running, 0);
	channel->done[1].done = 1;
	assert_int_equal(gk_cuda_ops.start(gk), 0);
	gk_cuda_ops.destroy(gk);
}

/* A GPU with the required instructions may have too little shared memory. */
static void
test_gpus_that_cannot(void **state)
{
	assert_int_equal(gk_cuda_ops.usable(NULL), 0);
	assert_int_equal(gk_cuda_ops.usable(CONTEXT), 0);
	gpu.minor = 6;
	gpu.major = 8;
	gpu.shared = 101376;
	refused(-ENOTSUP,
		"8.6, has 101376 bytes of shared memory for a thread block, expected at "
		"least 114560");
	assert_int_equal(gk_cuda_ops.usable(CONTEXT), -ENOTSUP);
	assert_int_equal(gk_cuda_ops.usable(NULL), -ENOTSUP);
	assert_non_null(strstr(gk_cuda_ops.why(), "has 101376 bytes"));
	gpu.minor = 0;
	gpu.shared = 166912;
	assert_int_equal(gk_cuda_ops.usable(NULL), 0);
	gpu.major = 7;
	gpu.minor = 5;
	refused(-ENOTSUP, "7.5, expected at least 8.0");
	assert_int_equal(gk_cuda_ops.usable(NULL), -ENOTSUP);
	gpu.fail = "cuDeviceGet";
	gpu.fail_with = CUDA_ERROR_NO_DEVICE;
	refused(-ENODEV, "CUDA_ERROR_OF_THE_TEST");
	assert_int_equal(gk_cuda_ops.usable(NULL), -ENODEV);
}

int
main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_life),
		TEST(test_chunks),
		TEST(test_map),
		TEST(test_beat),
		TEST(test_failures),
		TEST(test_destroy_without_cuda),
		TEST(test_crash),
		TEST(test_ended_in_batch),
		TEST(test_gpus_that_cannot),
	};

	return cmocka_run_group_tests_name("gk_cuda_host", tests, NULL, NULL);
}
