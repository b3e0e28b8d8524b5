/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Compiled if the CUDA toolkit is installed: checks gk_cuda_driver.h against the toolkit's headers.
 * No code.
 */

#include <cuda.h>
#include <cudaTypedefs.h>

#define GK_CUDA_TOOLKIT
#include "gk_cuda_driver.h"

#define GK_CUDA_NUMBER(name, value) _Static_assert((int)name == (value), #name);
GK_CUDA_NUMBERS(GK_CUDA_NUMBER)
#undef GK_CUDA_NUMBER

#define GK_CUDA_SYMBOL(name, version, parameters)                                                  \
	_Static_assert(                                                                            \
		__builtin_types_compatible_p(                                                      \
			__typeof__(((struct gk_cuda_symbols *)0)->name), PFN_##name##_v##version), \
		#name " has another prototype in cudaTypedefs.h at version " #version);
GK_CUDA_SYMBOLS(GK_CUDA_SYMBOL)
#undef GK_CUDA_SYMBOL
