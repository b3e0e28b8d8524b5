/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A CUDA driver that runs the kernel of gangs on CPUs, one thread for each block, so that the tests
 * that compare CUDA gangs with host gangs run without a GPU. Memory of the GPU is host memory that
 * the driver does not report as such.
 */

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gk_cuda.h"
#include "gk_cuda_driver.h"
#include "gk_cuda_emulated.h"
#include "gk_cuda_image.h"

#define PROCESSORS 2
#define BLOCKS	   (PROCESSORS * GK_CUDA_BLOCKS)
#define PIECES	   64
#define REFUSED	   1

static struct {
	struct piece {
		uintptr_t at;
		size_t size;
		bool far; /* memory of the GPU */
	} pieces[PIECES];
	const struct gk_cuda_emulated *kernel;
	pthread_t thread[BLOCKS];
	uint32_t launched; /* threads to join */
	uint32_t running;
	CUstream stream; /* of the launch */
	uintptr_t streams;
} gpu;

static void
keep(const void *memory, size_t size, bool far)
{
	for (uint32_t i = 0; i < PIECES; i++) {
		if (gpu.pieces[i].size != 0)
			continue;
		gpu.pieces[i] = (struct piece){(uintptr_t)memory, size, far};
		return;
	}
	abort();
}

static struct piece *
find(uintptr_t at)
{
	for (uint32_t i = 0; i < PIECES; i++)
		if (at - gpu.pieces[i].at < gpu.pieces[i].size)
			return &gpu.pieces[i];
	return NULL;
}

static CUresult
cuGetErrorName(CUresult error, const char **name)
{
	*name = "CUDA_ERROR_OF_THE_EMULATION";
	return CUDA_SUCCESS;
}

static CUresult
cuDeviceGet(CUdevice_v1 *device, int ordinal)
{
	*device = ordinal;
	return CUDA_SUCCESS;
}

static CUresult
cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice_v1 device)
{
	switch (attribute) {
	case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
		*value = PROCESSORS;
		return CUDA_SUCCESS;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
		*value = 9;
		return CUDA_SUCCESS;
	case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
		*value = 1;
		return CUDA_SUCCESS;
	case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
		*value = GK_CUDA_SHARED + GK_CUDA_DECLARED;
		return CUDA_SUCCESS;
	default:
		*value = 0;
		return CUDA_SUCCESS;
	}
}

static CUresult
cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice_v1 device)
{
	*context = (CUcontext)&gpu;
	return CUDA_SUCCESS;
}

static CUresult
cuDevicePrimaryCtxRelease(CUdevice_v1 device)
{
	return CUDA_SUCCESS;
}

static CUresult
cuCtxPushCurrent(CUcontext context)
{
	return CUDA_SUCCESS;
}

static CUresult
cuCtxPopCurrent(CUcontext *context)
{
	return CUDA_SUCCESS;
}

static CUresult
cuCtxGetDevice(CUdevice_v1 *device)
{
	*device = 0;
	return CUDA_SUCCESS;
}

static CUresult
cuModuleLoadData(CUmodule *module, const void *image)
{
	const struct gk_cuda_emulated *kernel = image == gk_cuda_all_image ? &gk_cuda_emulated_all
		: image == gk_cuda_compress_image ? &gk_cuda_emulated_compress
		: image == gk_cuda_profile_image  ? &gk_cuda_emulated_profile
		: image == gk_cuda_search_image	  ? &gk_cuda_emulated_search
						  : &gk_cuda_emulated;

	*module = (CUmodule)(uintptr_t)kernel;
	return CUDA_SUCCESS;
}

static CUresult
cuModuleUnload(CUmodule module)
{
	return CUDA_SUCCESS;
}

static CUresult
cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
	*function = (CUfunction)module;
	return strcmp(name, GK_CUDA_KERNEL) == 0 ? CUDA_SUCCESS : REFUSED;
}

static CUresult
cuModuleGetGlobal(CUdeviceptr_v2 *ptr, size_t *size, CUmodule module, const char *name)
{
	const struct gk_cuda_emulated *kernel = (const struct gk_cuda_emulated *)module;
	const bool peaks = strcmp(name, GK_CUDA_PEAK_ARGS) == 0;

	*ptr = (uintptr_t)(peaks ? kernel->peak_args : kernel->args);
	*size = peaks ? kernel->peak_args_size : kernel->args_size;
	return *ptr != 0 ? CUDA_SUCCESS : REFUSED;
}

static CUresult
cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value)
{
	return CUDA_SUCCESS;
}

static CUresult
cuOccupancyMaxActiveBlocksPerMultiprocessor(
	int *blocks, CUfunction function, int threads, size_t shared)
{
	*blocks = GK_CUDA_BLOCKS;
	return CUDA_SUCCESS;
}

static CUresult
cuStreamCreate(CUstream *stream, unsigned int flags)
{
	*stream = (CUstream)++gpu.streams;
	return CUDA_SUCCESS;
}

static CUresult
cuStreamQuery(CUstream stream)
{
	if (stream != gpu.stream || __atomic_load_n(&gpu.running, __ATOMIC_ACQUIRE) == 0)
		return CUDA_SUCCESS;
	return CUDA_ERROR_NOT_READY;
}

static CUresult
cuStreamSynchronize(CUstream stream)
{
	while (cuStreamQuery(stream) != CUDA_SUCCESS)
		usleep(100);
	return CUDA_SUCCESS;
}

/* Only the thread that launches may call this. */
static void
join(void)
{
	while (gpu.launched > 0)
		pthread_join(gpu.thread[--gpu.launched], NULL);
}

static CUresult
cuStreamDestroy(CUstream stream)
{
	if (stream == gpu.stream && cuStreamQuery(stream) == CUDA_SUCCESS)
		join();
	return CUDA_SUCCESS;
}

/* Its content is arbitrary. */
static CUresult
cuMemAlloc(CUdeviceptr_v2 *ptr, size_t size)
{
	void *memory = aligned_alloc(256, (size + 255) & ~(size_t)255);

	if (memory == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memset(memory, 0xA5, size);
	keep(memory, size, true);
	*ptr = (uintptr_t)memory;
	return CUDA_SUCCESS;
}

static CUresult
cuMemFree(CUdeviceptr_v2 ptr)
{
	struct piece *p = find(ptr);

	if (p == NULL || p->at != ptr)
		abort();
	p->size = 0;
	free((void *)(uintptr_t)ptr);
	return CUDA_SUCCESS;
}

static CUresult
cuMemsetD8Async(CUdeviceptr_v2 ptr, unsigned char value, size_t size, CUstream stream)
{
	memset((void *)(uintptr_t)ptr, value, size);
	return CUDA_SUCCESS;
}

static CUresult
cuMemcpyHtoDAsync(CUdeviceptr_v2 to, const void *from, size_t size, CUstream stream)
{
	memcpy((void *)(uintptr_t)to, from, size);
	return CUDA_SUCCESS;
}

static CUresult
cuMemcpyDtoHAsync(void *to, CUdeviceptr_v2 from, size_t size, CUstream stream)
{
	memcpy(to, (const void *)(uintptr_t)from, size);
	return CUDA_SUCCESS;
}

static CUresult
cuMemHostRegister(void *ptr, size_t size, unsigned int flags)
{
	keep(ptr, size, false);
	return CUDA_SUCCESS;
}

static CUresult
cuMemHostUnregister(void *ptr)
{
	find((uintptr_t)ptr)->size = 0;
	return CUDA_SUCCESS;
}

static CUresult
cuPointerGetAttribute(void *value, CUpointer_attribute attribute, CUdeviceptr_v2 ptr)
{
	const struct piece *p = find(ptr);

	if (p == NULL || (attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER && p->far))
		return REFUSED;
	memcpy(value, &ptr, sizeof(ptr));
	return CUDA_SUCCESS;
}

static void *
run_block(void *arg)
{
	gpu.kernel->run((uint32_t)(uintptr_t)arg);
	__atomic_fetch_sub(&gpu.running, 1, __ATOMIC_RELEASE);
	return NULL;
}

static CUresult
cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
	unsigned int grid_z, unsigned int block_x, unsigned int block_y, unsigned int block_z,
	unsigned int shared, CUstream stream, void **parameters)
{
	join();
	if (grid_x > BLOCKS || block_x != GK_CUDA_THREADS || shared != GK_CUDA_SHARED)
		return REFUSED;
	gpu.kernel = (const struct gk_cuda_emulated *)function;
	gpu.stream = stream;
	__atomic_store_n(&gpu.running, grid_x, __ATOMIC_RELEASE);
	for (; gpu.launched < grid_x; gpu.launched++)
		if (pthread_create(&gpu.thread[gpu.launched], NULL, run_block,
			    (void *)(uintptr_t)gpu.launched) != 0)
			abort();
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
		HERE(cuMemcpyDtoHAsync),
		HERE(cuMemHostRegister),
		HERE(cuMemHostUnregister),
		HERE(cuPointerGetAttribute),
		HERE(cuLaunchCooperativeKernel),
#undef HERE
	};

	return &symbols;
}
