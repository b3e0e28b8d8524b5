/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks cuda_abi.h against the CUDA toolkit. Compiled if the toolkit is installed, never linked.
 */
#include <assert.h>

#include <cuda.h>
#include <cudaTypedefs.h>

#define CUDA_ABI_TOOLKIT
#include "cuda_abi.h"

#define CUDA_ABI_NUMBER(name, value) static_assert((int)(name) == (value), #name);
CUDA_ABI_NUMBERS(CUDA_ABI_NUMBER)

#define CUDA_ABI_SYMBOL(name, version, parameters)                           \
	static_assert(__builtin_types_compatible_p(PFN_##name##_v##version,  \
			      __typeof__(((struct cuda_symbols *)0)->name)), \
		"prototype of " #name);
CUDA_ABI_SYMBOLS(CUDA_ABI_SYMBOL)

/* cuuint64_t is uint64_t */
static_assert(__builtin_types_compatible_p(PFN_cuGetProcAddress_v12000, cuda_get_proc_address),
	"prototype of cuGetProcAddress");
static_assert(sizeof(CUresult) == sizeof(int) && sizeof(CUdevice_attribute) == sizeof(int) &&
		sizeof(CUpointer_attribute) == sizeof(int) &&
		sizeof(CUmemRangeHandleType) == sizeof(int) &&
		sizeof(CUflushGPUDirectRDMAWritesTarget) == sizeof(int) &&
		sizeof(CUflushGPUDirectRDMAWritesScope) == sizeof(int) &&
		sizeof(CUdriverProcAddressQueryResult) == sizeof(int),
	"an enumeration that cuda_abi.h takes for an int is none");
static_assert(sizeof(CUuuid) == 16 && sizeof(CUdeviceptr_v2) == 8, "a type has another size");
