/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The part of the CUDA driver API that the driver uses, so that it builds without the CUDA toolkit.
 *
 * Numbers and prototypes are those of NVIDIA's CUDA driver API reference, CUDA 12.0 and 13.0.
 * cuda_abi_check.c compares them with cuda.h and cudaTypedefs.h where these are installed. That
 * file takes the types from cuda.h, so it defines CUDA_ABI_TOOLKIT before it includes this file.
 */
#ifndef CUDA_ABI_H
#define CUDA_ABI_H

#include <stddef.h>
#include <stdint.h>

/* name, value: enumerators and flags */
#define CUDA_ABI_NUMBERS(N)                                                    \
	/* CUresult */                                                         \
	N(CUDA_SUCCESS, 0)                                                     \
	N(CUDA_ERROR_INVALID_VALUE, 1)                                         \
	N(CUDA_ERROR_OUT_OF_MEMORY, 2)                                         \
	N(CUDA_ERROR_DEINITIALIZED, 4)                                         \
	N(CUDA_ERROR_NO_DEVICE, 100)                                           \
	N(CUDA_ERROR_INVALID_DEVICE, 101)                                      \
	N(CUDA_ERROR_INVALID_CONTEXT, 201)                                     \
	N(CUDA_ERROR_NOT_FOUND, 500)                                           \
	N(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, 712)                      \
	N(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, 713)                          \
	N(CUDA_ERROR_NOT_PERMITTED, 800)                                       \
	N(CUDA_ERROR_NOT_SUPPORTED, 801)                                       \
	/* CUdevice_attribute */                                               \
	N(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 16)                        \
	N(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED, 116)                  \
	N(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS, 117)       \
	N(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING, 118)            \
	N(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 124)                          \
	/* CUpointer_attribute */                                              \
	N(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, 6)                                 \
	/* flags of cuMemHostRegister */                                       \
	N(CU_MEMHOSTREGISTER_PORTABLE, 1)                                      \
	N(CU_MEMHOSTREGISTER_DEVICEMAP, 2)                                     \
	/* CUGPUDirectRDMAWritesOrdering */                                    \
	N(CU_GPU_DIRECT_RDMA_WRITES_ORDERING_NONE, 0)                          \
	/* CUflushGPUDirectRDMAWritesOptions, a mask */                        \
	N(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST, 1)                      \
	/* CUflushGPUDirectRDMAWritesTarget and -Scope */                      \
	N(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX, 0)               \
	N(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER, 100)                       \
	/* CUmemRangeHandleType */                                             \
	N(CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 1)                              \
	/* flags of cuStreamCreate */                                          \
	N(CU_STREAM_NON_BLOCKING, 1)                                           \
	/* flags of cuGetProcAddress and its CUdriverProcAddressQueryResult */ \
	N(CU_GET_PROC_ADDRESS_DEFAULT, 0)                                      \
	N(CU_GET_PROC_ADDRESS_SUCCESS, 0)                                      \
	N(CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND, 1)                             \
	N(CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT, 2)

/*
 * name, version, parameters. The version is the one in the name of the typedef in cudaTypedefs.h
 * (PFN_cuMemAlloc_v3020). A driver that is queried for a symbol at that version returns exactly
 * this prototype; a query for the newest version may return one with other parameters.
 */
#define CUDA_ABI_SYMBOLS(S)                                                                      \
	S(cuInit, 2000, (unsigned int flags))                                                    \
	S(cuDriverGetVersion, 2020, (int *version))                                              \
	S(cuGetErrorName, 6000, (CUresult error, const char **name))                             \
	S(cuGetErrorString, 6000, (CUresult error, const char **text))                           \
	S(cuDeviceGetCount, 2000, (int *count))                                                  \
	S(cuDeviceGet, 2000, (CUdevice_v1 * device, int ordinal))                                \
	S(cuDeviceGetName, 2000, (char *name, int len, CUdevice_v1 device))                      \
	/* 9020 returns the UUID of the GPU, 11040 that of the MIG instance, if there is one. */ \
	S(cuDeviceGetUuid, 11040, (CUuuid * uuid, CUdevice_v1 device))                           \
	S(cuDeviceGetByPCIBusId, 4010, (CUdevice_v1 * device, const char *pci))                  \
	S(cuDeviceGetPCIBusId, 4010, (char *pci, int len, CUdevice_v1 device))                   \
	S(cuDeviceTotalMem, 3020, (size_t * bytes, CUdevice_v1 device))                          \
	S(cuDeviceGetAttribute, 2000,                                                            \
		(int *value, CUdevice_attribute attribute, CUdevice_v1 device))                  \
	S(cuDevicePrimaryCtxRetain, 7000, (CUcontext * context, CUdevice_v1 device))             \
	S(cuDevicePrimaryCtxRelease, 11000, (CUdevice_v1 device))                                \
	S(cuCtxPushCurrent, 4000, (CUcontext context))                                           \
	S(cuCtxPopCurrent, 4000, (CUcontext * context))                                          \
	S(cuMemAlloc, 3020, (CUdeviceptr_v2 * ptr, size_t size))                                 \
	S(cuMemFree, 3020, (CUdeviceptr_v2 ptr))                                                 \
	S(cuMemsetD8, 3020, (CUdeviceptr_v2 ptr, unsigned char value, size_t size))              \
	S(cuStreamCreate, 2000, (CUstream * stream, unsigned int flags))                         \
	S(cuStreamDestroy, 4000, (CUstream stream))                                              \
	S(cuStreamSynchronize, 2000, (CUstream stream))                                          \
	S(cuMemcpyAsync, 4000,                                                                   \
		(CUdeviceptr_v2 to, CUdeviceptr_v2 from, size_t size, CUstream stream))          \
	S(cuPointerSetAttribute, 6000,                                                           \
		(const void *value, CUpointer_attribute attribute, CUdeviceptr_v2 ptr))          \
	S(cuMemHostRegister, 6050, (void *ptr, size_t size, unsigned int flags))                 \
	S(cuMemHostUnregister, 4000, (void *ptr))                                                \
	S(cuMemHostGetDevicePointer, 3020,                                                       \
		(CUdeviceptr_v2 * device, void *host, unsigned int flags))                       \
	S(cuMemGetHandleForAddressRange, 11070,                                                  \
		(void *handle, CUdeviceptr_v2 ptr, size_t size, CUmemRangeHandleType type,       \
			unsigned long long flags))                                               \
	S(cuFlushGPUDirectRDMAWrites, 11030,                                                     \
		(CUflushGPUDirectRDMAWritesTarget target, CUflushGPUDirectRDMAWritesScope scope))

/* The only symbol loaded with dlsym(), by the name of its second version, available since 12.0. */
#define CUDA_ABI_GET_PROC_ADDRESS "cuGetProcAddress_v2"

#ifndef CUDA_ABI_TOOLKIT
/* CUDA's enumerations are ints in the Linux ABI; handles are opaque. */
typedef int CUresult;
typedef int CUdevice_v1;
typedef int CUdevice_attribute;
typedef int CUpointer_attribute;
typedef int CUmemRangeHandleType;
typedef int CUflushGPUDirectRDMAWritesTarget;
typedef int CUflushGPUDirectRDMAWritesScope;
typedef int CUdriverProcAddressQueryResult;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef unsigned long long CUdeviceptr_v2;
typedef struct CUuuid_st {
	char bytes[16];
} CUuuid;

enum cuda_abi_number {
#define CUDA_ABI_NUMBER(name, value) name = (value),
	CUDA_ABI_NUMBERS(CUDA_ABI_NUMBER)
#undef CUDA_ABI_NUMBER
};
#endif /* CUDA_ABI_TOOLKIT */

typedef CUresult (*cuda_get_proc_address)(const char *symbol, void **function, int version,
	uint64_t flags, CUdriverProcAddressQueryResult *status);

/* Every symbol as a function pointer of the same name. */
struct cuda_symbols {
#define CUDA_ABI_SYMBOL(name, version, parameters) CUresult(*name) parameters;
	CUDA_ABI_SYMBOLS(CUDA_ABI_SYMBOL)
#undef CUDA_ABI_SYMBOL
};

#endif /* CUDA_ABI_H */
