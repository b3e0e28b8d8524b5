/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The part of the CUDA driver API that the cuda implementation uses. libcuda is loaded at run time,
 * so that one binary runs with and without a GPU. Where the toolkit is installed, gk_cuda_abi.c
 * checks this file against the toolkit's headers.
 */
#ifndef GK_CUDA_DRIVER_H
#define GK_CUDA_DRIVER_H

#include <stddef.h>
#include <stdint.h>

/* Enumerators and flags: name, value. */
#define GK_CUDA_NUMBERS(N)                                                     \
	/* CUresult */                                                         \
	N(CUDA_SUCCESS, 0)                                                     \
	N(CUDA_ERROR_OUT_OF_MEMORY, 2)                                         \
	N(CUDA_ERROR_NO_DEVICE, 100)                                           \
	N(CUDA_ERROR_NO_BINARY_FOR_GPU, 209)                                   \
	N(CUDA_ERROR_NOT_READY, 600)                                           \
	/* CUdevice_attribute */                                               \
	N(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 16)                        \
	N(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75)                    \
	N(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 76)                    \
	N(CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 95)                          \
	N(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 97)           \
	/* CUpointer_attribute */                                              \
	N(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, 3)                              \
	N(CU_POINTER_ATTRIBUTE_HOST_POINTER, 4)                                \
	/* CUfunction_attribute */                                             \
	N(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 8)                  \
	/* CUstream_flags */                                                   \
	N(CU_STREAM_NON_BLOCKING, 1)                                           \
	/* flags of cuMemHostRegister */                                       \
	N(CU_MEMHOSTREGISTER_PORTABLE, 1)                                      \
	N(CU_MEMHOSTREGISTER_DEVICEMAP, 2)                                     \
	/* flags of cuGetProcAddress and its CUdriverProcAddressQueryResult */ \
	N(CU_GET_PROC_ADDRESS_DEFAULT, 0)                                      \
	N(CU_GET_PROC_ADDRESS_SUCCESS, 0)

/*
 * Name, version, parameters. The version is the one in the name of the typedef in cudaTypedefs.h.
 * If the driver is queried for a symbol of that version, it returns exactly this prototype.
 */
#define GK_CUDA_SYMBOLS(S)                                                                        \
	S(cuInit, 2000, (unsigned int flags))                                                     \
	S(cuGetErrorName, 6000, (CUresult error, const char **name))                              \
	S(cuDeviceGet, 2000, (CUdevice_v1 * device, int ordinal))                                 \
	S(cuDeviceGetName, 2000, (char *name, int len, CUdevice_v1 device))                       \
	S(cuDeviceGetAttribute, 2000,                                                             \
		(int *value, CUdevice_attribute attribute, CUdevice_v1 device))                   \
	S(cuDevicePrimaryCtxRetain, 7000, (CUcontext * context, CUdevice_v1 device))              \
	S(cuDevicePrimaryCtxRelease, 11000, (CUdevice_v1 device))                                 \
	S(cuCtxPushCurrent, 4000, (CUcontext context))                                            \
	S(cuCtxPopCurrent, 4000, (CUcontext * context))                                           \
	S(cuCtxGetDevice, 2000, (CUdevice_v1 * device))                                           \
	S(cuModuleLoadData, 2000, (CUmodule * module, const void *image))                         \
	S(cuModuleUnload, 2000, (CUmodule module))                                                \
	S(cuModuleGetFunction, 2000, (CUfunction * function, CUmodule module, const char *name))  \
	S(cuModuleGetGlobal, 3020,                                                                \
		(CUdeviceptr_v2 * ptr, size_t * size, CUmodule module, const char *name))         \
	S(cuFuncSetAttribute, 9000,                                                               \
		(CUfunction function, CUfunction_attribute attribute, int value))                 \
	S(cuOccupancyMaxActiveBlocksPerMultiprocessor, 6050,                                      \
		(int *blocks, CUfunction function, int threads, size_t shared))                   \
	S(cuStreamCreate, 2000, (CUstream * stream, unsigned int flags))                          \
	S(cuStreamDestroy, 4000, (CUstream stream))                                               \
	S(cuStreamQuery, 2000, (CUstream stream))                                                 \
	S(cuStreamSynchronize, 2000, (CUstream stream))                                           \
	S(cuMemAlloc, 3020, (CUdeviceptr_v2 * ptr, size_t size))                                  \
	S(cuMemFree, 3020, (CUdeviceptr_v2 ptr))                                                  \
	S(cuMemsetD8Async, 3020,                                                                  \
		(CUdeviceptr_v2 ptr, unsigned char value, size_t size, CUstream stream))          \
	S(cuMemcpyHtoDAsync, 3020,                                                                \
		(CUdeviceptr_v2 to, const void *from, size_t size, CUstream stream))              \
	S(cuPointerGetAttribute, 4000,                                                            \
		(void *value, CUpointer_attribute attribute, CUdeviceptr_v2 ptr))                 \
	S(cuLaunchCooperativeKernel, 9000,                                                        \
		(CUfunction function, unsigned int grid_x, unsigned int grid_y,                   \
			unsigned int grid_z, unsigned int block_x, unsigned int block_y,          \
			unsigned int block_z, unsigned int shared, CUstream stream,               \
			void **parameters))                                                       \
	/* for tests and benchmarks */                                                            \
	S(cuLaunchKernel, 4000,                                                                   \
		(CUfunction function, unsigned int grid_x, unsigned int grid_y,                   \
			unsigned int grid_z, unsigned int block_x, unsigned int block_y,          \
			unsigned int block_z, unsigned int shared, CUstream stream,               \
			void **parameters, void **extra))                                         \
	S(cuMemHostRegister, 6050, (void *ptr, size_t size, unsigned int flags))                  \
	S(cuMemHostUnregister, 4000, (void *ptr))                                                 \
	S(cuMemcpyDtoHAsync, 3020, (void *to, CUdeviceptr_v2 from, size_t size, CUstream stream)) \
	S(cuStreamWaitValue32, 11070,                                                             \
		(CUstream stream, CUdeviceptr_v2 ptr, uint32_t value, unsigned int flags))        \
	S(cuStreamWriteValue32, 11070,                                                            \
		(CUstream stream, CUdeviceptr_v2 ptr, uint32_t value, unsigned int flags))        \
	S(cuEventCreate, 2000, (CUevent * event, unsigned int flags))                             \
	S(cuEventDestroy, 4000, (CUevent event))                                                  \
	S(cuEventRecord, 2000, (CUevent event, CUstream stream))                                  \
	S(cuEventElapsedTime, 2000, (float *ms, CUevent from, CUevent to))

/* The only symbol loaded with dlsym(). Since 12.0 this is the name of its second version. */
#define GK_CUDA_GET_PROC_ADDRESS "cuGetProcAddress_v2"

#ifndef GK_CUDA_TOOLKIT
/* CUDA's enumerations are int in the Linux ABI; handles are opaque. */
typedef int CUresult;
typedef int CUdevice_v1;
typedef int CUdevice_attribute;
typedef int CUpointer_attribute;
typedef int CUfunction_attribute;
typedef int CUdriverProcAddressQueryResult;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef unsigned long long CUdeviceptr_v2;

enum gk_cuda_number {
#define GK_CUDA_NUMBER(name, value) name = (value),
	GK_CUDA_NUMBERS(GK_CUDA_NUMBER)
#undef GK_CUDA_NUMBER
};
#endif /* GK_CUDA_TOOLKIT */

typedef CUresult (*gk_cuda_get_proc_address)(const char *symbol, void **function, int version,
	uint64_t flags, CUdriverProcAddressQueryResult *status);

/** All symbols, each under its own name. */
struct gk_cuda_symbols {
#define GK_CUDA_SYMBOL(name, version, parameters) CUresult(*name) parameters;
	GK_CUDA_SYMBOLS(GK_CUDA_SYMBOL)
#undef GK_CUDA_SYMBOL
};

/**
 * Load and initialise libcuda, once per process. It stays loaded. Any thread.
 * @param why,size  receives what is missing
 * @return the symbols, or NULL
 */
const struct gk_cuda_symbols *gk_cuda_driver(char *why, size_t size);

#endif /* GK_CUDA_DRIVER_H */
