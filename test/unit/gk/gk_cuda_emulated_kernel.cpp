/* SPDX-License-Identifier: BSD-3-Clause */
/* The kernel of CUDA gangs, compiled for CPUs: one for each of its images (gk_cuda_image.h). */
#include "gk_cuda_gang_on_host.h"

/* their constants have one name on a GPU */
#if defined(GK_CUDA_PROFILE) && defined(GK_CUDA_COMPRESS)
#define args	  emulated_all_args
#define peak_args emulated_all_peak_args
#elif defined(GK_CUDA_COMPRESS)
#define args	  emulated_compress_args
#define peak_args emulated_compress_peak_args
#elif defined(GK_CUDA_PROFILE)
#define args	  emulated_profile_args
#define peak_args emulated_profile_peak_args
#elif defined(GK_CUDA_SEARCH)
#define args emulated_search_args
#else
#define args emulated_args
#endif

#include "gk_cuda_gang.cuh"
#include "gk_cuda_setup.cuh"

#include "gk_cuda_emulated.h"

static void
run_thread(void)
{
	if (blockIdx.x == 0)
		dispatch();
	else
		serve();
}

static void
run_block(uint32_t block)
{
	host_block_number = block;
	memset(shared_area, 0xEE, sizeof(shared_area));
	memset(&gang_state, 0xEE, sizeof(gang_state));
	host_run_block(run_thread);
}

#if defined(GK_CUDA_PROFILE) && defined(GK_CUDA_COMPRESS)
extern "C" const struct gk_cuda_emulated gk_cuda_emulated_all = {
	&args, sizeof(args), &peak_args, sizeof(peak_args), run_block};
#elif defined(GK_CUDA_COMPRESS)
extern "C" const struct gk_cuda_emulated gk_cuda_emulated_compress = {
	&args, sizeof(args), &peak_args, sizeof(peak_args), run_block};
#elif defined(GK_CUDA_PROFILE)
extern "C" const struct gk_cuda_emulated gk_cuda_emulated_profile = {
	&args, sizeof(args), &peak_args, sizeof(peak_args), run_block};
#elif defined(GK_CUDA_SEARCH)
extern "C" const struct gk_cuda_emulated gk_cuda_emulated_search = {
	&args, sizeof(args), &peak_args, sizeof(peak_args), run_block};
#else
extern "C" const struct gk_cuda_emulated gk_cuda_emulated = {
	&args, sizeof(args), NULL, 0, run_block};
#endif
