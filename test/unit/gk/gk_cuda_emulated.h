/* SPDX-License-Identifier: BSD-3-Clause */
/* The kernel of CUDA gangs on CPUs, as gk_cuda_emulated.c launches it. */
#ifndef GK_CUDA_EMULATED_H
#define GK_CUDA_EMULATED_H

#include <stddef.h>
#include <stdint.h>

struct gk_cuda_emulated {
	void *args;
	size_t args_size;
	void *peak_args; /* NULL: without the search for peaks */
	size_t peak_args_size;
	void (*run)(uint32_t block); /* on the calling thread */
};

#ifdef __cplusplus
extern "C" {
#endif
extern const struct gk_cuda_emulated gk_cuda_emulated, gk_cuda_emulated_search,
	gk_cuda_emulated_compress, gk_cuda_emulated_profile, gk_cuda_emulated_all;
#ifdef __cplusplus
}
#endif

#endif /* GK_CUDA_EMULATED_H */
